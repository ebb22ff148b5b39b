"""Operators as PyTorch's inner library has them: their decompositions, and their derivatives.

An operator here is one program; in PyTorch many are sequences of others (`linear` is `t` and
`addmm`). Programs that look inside see PyTorch's operators all the same: dispatch modes, the names
and inputs of `grad_fn`, profiles. One table serves them all:

    composites.py   what a public operator is made of, as calls of inner ones
    inner.py        inner operators that are no public ones, computed by these
    derivatives.py  gradients of inner operators, as calls of inner operators
    names.py        classes of nodes of the graph, and which arguments have a gradient
    nodes.py        what `grad_fn` shows of a call
"""
