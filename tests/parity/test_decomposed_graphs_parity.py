"""Decompositions beside PyTorch's: node lists in core ATen, tags, and the names of modules."""

from __future__ import annotations

import importlib

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")

from flambeau.decompositions.primitive_operators import PUBLIC  # noqa: E402

for library in ("torch", "flambeau"):
    for module in ("_decomp", "_prims", "_refs", "fx.experimental.proxy_tensor"):
        importlib.import_module(f"{library}.{module}")


def programs(library):
    """name: (function, arguments): functions of operators outside core ATen."""
    functional = library.nn.functional
    x = (library.arange(12.0) * 0.37 - 1).sin().reshape(3, 4)
    w = x.reshape(4, 3)
    return {
        "silu": (lambda x: functional.silu(x), (x,)),
        "t": (lambda x, w: x.t() + w, (x, w)),
        "addcmul": (lambda x: library.addcmul(x, x, x.exp()), (x,)),
        "linear": (lambda x: functional.linear(x, x), (x,)),
        "rsub": (lambda x: x.mul(2).neg().sub(x), (x,)),
        "square": (lambda x: x.square().sum(1), (x,)),
        "softmax": (lambda x: x.softmax(1).log_softmax(0), (x,)),
        "layer_norm": (lambda x: functional.layer_norm(x, (4,)).relu(), (x,)),
        "transpose": (lambda x: x.transpose(0, 1).tanh(), (x,)),
        "mish": (lambda x: functional.silu(functional.silu(x)), (x,)),
        "unsqueeze": (lambda x: x.unsqueeze(0).swapaxes(0, 1).exp(), (x,)),
        "flatten": (lambda x: x.flatten().cos(), (x,)),
        "bmm": (lambda x, w: x[None] @ w[None], (x, w)),
        "movedim": (lambda x: x.movedim(0, 1).sigmoid(), (x,)),
    }


def node_list(library, name):
    function, arguments = programs(library)[name]
    make_fx = library.fx.experimental.proxy_tensor.make_fx
    module = make_fx(function, library._decomp.core_aten_decompositions())(*arguments)
    return [str(node.target) for node in module.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("name", programs(torch))
def test_node_lists_in_core_aten(name):
    assert node_list(flambeau, name) == node_list(torch, name)


# ------------------------------------------------------------------------------ tags
# Pointwise operators whose tag PyTorch leaves out: aliases, forms in place, and operators that it
# composes of others. Here the tag follows from the definition.
UNTAGGED = frozenset(
    """
    abs_.default absolute.default arccos.default arccosh.default arcsin.default
    arcsinh.default arctan.default arctan2.default arctanh.default complex.default
    copysign_.Tensor copysign_.Scalar eq.Tensor_list eq_.Scalar eq_.Tensor fill.Scalar
    fill.Tensor fill_.Scalar fill_.Tensor fix.default floor_divide.default
    floor_divide.Scalar floor_divide_.Scalar gcd_.default ge_.Scalar ge_.Tensor gt_.Scalar
    gt_.Tensor hardswish.default hardswish_.default heaviside_.default lcm_.default
    le_.Scalar le_.Tensor lt_.Scalar lt_.Tensor masked_fill.Tensor masked_fill_.Scalar
    masked_fill_.Tensor mish_.default ne.Tensor_list ne_.Scalar ne_.Tensor negative.default
    polar.default rsub.Tensor special_ndtr.default threshold_.default to.other
    where.ScalarOther where.ScalarSelf where.Scalar where.default xlogy_.Scalar_Other
    zero_.default isreal.default type_as.default special_polygamma.default
    special_log1p.default special_erf.default special_round.default special_expm1.default
    chalf.default special_i0.default special_xlogy.default isclose.default
    special_expit.default relu6_.default special_erfinv.default special_sinc.default
    special_multigammaln.default special_erfc.default special_digamma.default
    special_exp2.default special_logit.default absolute_.default arccos_.default
    arccosh_.default arcsin_.default arcsinh_.default arctan_.default arctanh_.default
    arctan2_.default fix_.default negative_.default
    """.split()
)
# (overload, tag) of other differences, with their reasons:
DIFFERENT = {
    ("clip_.default", "pointwise"),  # an alias of a tagged operator; ours has another path
    ("rrelu.default", "pointwise"),  # draws
    ("equal.default", "pointwise"),  # gives one bool
    ("bernoulli.Tensor", "generated"),  # how PyTorch generates its code
    ("resize.default", "generated"),
    ("resize_as.default", "generated"),
    ("zero.default", "generated"),
    ("uniform.default", "generated"),
    ("exponential.default", "generated"),
    ("_native_batch_norm_legit_functional.default", "generated"),
    ("copy_.Tensor", "inplace"),  # overloads of TorchScript
    ("copy_.int", "inplace"),
    ("index_put_.hacked_twin", "inplace"),
    ("nanmean.default", "reduction"),  # PyTorch composes them of tagged operators
    ("special_logsumexp.default", "reduction"),
}


def overloads_of_both():
    """Names of the overloads of `torch.ops.aten` that both libraries have."""
    for full in torch._C._dispatch_get_all_op_names():
        space, _, name = full.partition("::")
        operator, _, overload = name.partition(".")
        packet = getattr(flambeau.ops.aten, operator, None) if space == "aten" else None
        if packet is not None and (overload or "default") in packet.overloads():
            yield operator, overload or "default"


def tags(library, operator, overload):
    return {tag.name for tag in getattr(getattr(library.ops.aten, operator), overload).tags}


def test_tags_of_all_overloads_that_both_have():
    different = set()
    count = 0
    for operator, overload in overloads_of_both():
        count += 1
        ours, theirs = (tags(library, operator, overload) for library in (flambeau, torch))
        different |= {(f"{operator}.{overload}", tag) for tag in ours ^ theirs}
    assert count > 1100
    assert {name for name, tag in different if tag == "pointwise"} <= UNTAGGED | {
        name for name, _ in DIFFERENT
    }
    assert {pair for pair in different if pair[1] != "pointwise"} <= DIFFERENT


def test_core_aten_is_the_same_set():
    for operator, overload in overloads_of_both():
        ours, theirs = (tags(library, operator, overload) for library in (flambeau, torch))
        assert ("core" in ours) == ("core" in theirs), (operator, overload)


# ------------------------------------------------------------------------------ modules
@pytest.mark.parametrize("module", ["_prims", "_refs"])
def test_names_of_modules_are_pytorch_s(module):
    ours = set(getattr(flambeau, module).__all__)
    theirs = set(getattr(torch, module).__all__)
    assert ours <= theirs and len(ours) > 0.75 * len(theirs)


@pytest.mark.parametrize("space", ["", "nn.functional", "linalg", "fft", "special"])
def test_names_of_references_are_pytorch_s(space):
    path = "_refs" + (f".{space}" if space else "")
    ours, theirs = (set(importlib.import_module(f"{each}.{path}").__all__) for each in (
        "flambeau", "torch",
    ))  # fmt: skip
    assert ours <= theirs and len(ours) > 0.75 * len(theirs)


def test_signatures_of_primitives_that_both_have():
    """Arguments of the primitives under PyTorch's names are PyTorch's, in their order."""
    compared = 0
    for name in dir(flambeau.ops.prims):
        theirs = getattr(torch.ops.prims, name, None)
        ours = getattr(flambeau.ops.prims, name).default
        if theirs is None or name in PUBLIC:
            continue
        compared += 1
        names = [
            [argument.name for argument in overload._schema.arguments if argument.name != "device"]
            for overload in (ours, theirs.default)
        ]
        assert names[0] == names[1], name
    assert compared > 65


def test_values_of_primitives():
    results = []
    for library in (flambeau, torch):
        prims, x = library.ops.prims, (library.arange(12.0) * 0.37 - 1).sin().reshape(3, 4)
        results.append([
            prims.sum.default(x, [0]), prims.amax.default(x, [0, 1]), prims.rev.default(x, [1]),
            prims.broadcast_in_dim.default(x, [2, 3, 4], [1, 2]),
            prims.transpose.default(x, [1, 0]),
            prims.convert_element_type.default(x, library.int32),
            prims.where.default(prims.gt.default(x, prims.neg.default(x)), x, prims.exp.default(x)),
            prims.iota.default(
                4, start=1, step=2, dtype=library.int64, device="cpu", requires_grad=False
            ),
            prims.cat.default([x, x], 1),
            prims.scalar_tensor.default(2.5, dtype=library.float64, device="cpu"),
        ])  # fmt: skip
    for ours, theirs in zip(*results, strict=True):
        assert ours.dtype == getattr(flambeau, str(theirs.dtype).removeprefix("torch."))
        assert torch.allclose(torch.tensor(ours.tolist(), dtype=theirs.dtype), theirs)
