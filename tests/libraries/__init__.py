"""Third-party libraries, unmodified, under the alias: the same models beside PyTorch.

`python -m tests.libraries` runs them. A case builds a model and its inputs; PyTorch's run of it
writes weights, outputs and gradients to a file, ours loads the weights and compares, eager and
compiled.
"""
