"""Decompositions: graphs in primitives or in core ATen, and the tables that make them."""

from __future__ import annotations

import pickle

import pytest

import flambeau as torch
from flambeau import _decomp, _prims, _refs
from flambeau.decompositions import inner
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.language.definition import REGISTRY
from flambeau.nn import functional
from flambeau.prims.record import PRIMITIVES
from tests.fx.decomposed import TableCall, targets
from tests.ops.inputs import same_bits
from tests.ops.table import TABLE, UNINITIALISED

aten, prims = torch.ops.aten, torch.ops.prims
X = torch.arange(12.0).reshape(3, 4) / 7 - 0.8
MODES = ("real", "fake")
# Steps whose compositions write in place to what a product gave, here to operands of the sample.
STEPS = frozenset(f"private._{name}_step" for name in ("gru", "lstm", "rnn"))
KEYS = [
    key for key, entry in TABLE.items() if key not in UNINITIALISED | STEPS and not entry.mutating
]
CORE = _decomp.core_aten_decompositions()
OWN = frozenset(PRIMITIVES)  # others are those that tests add


def graphs_of(key, table):
    """(call, graph, its operators) of each sample that gives tensors and reads no data."""
    for sample in TABLE[key].samples(1):
        call = TableCall(TABLE[key], sample)
        try:
            expected = call.results(call)
        except (RuntimeError, TypeError, ValueError):
            continue  # a sample of an error
        module = call.graph(table) if expected else None
        if module is not None:
            yield call, expected, module


def check_bits(call, expected, module):
    """A graph gives the function's bits, or those of the graph that PyTorch's composition gives."""
    results = call.results(module)
    if not same_bits(results, expected):
        composed = call.results(call.graph())
        assert same_bits(results, composed)
        assert all(
            torch.allclose(a, b, 1e-4, 1e-5, equal_nan=True)
            for a, b in zip(results, expected, strict=True)
        )


@pytest.mark.parametrize("key", KEYS)
def test_everything_is_primitives(key):
    for call, expected, module in graphs_of(key, _decomp.decomposition_table):
        assert all(target.namespace == "prims" for target in targets(module))
        check_bits(call, expected, module)


# Operators that stay in graphs for core ATen: a primitive of theirs is no core operator, or they
# are PyTorch's compositions that write in place.
STAYS = frozenset(
    """
    _conj _dirichlet_grad _histogramdd_from_bin_tensors _int_mm _neg_view _standard_gamma
    _standard_gamma_grad add_ argsort bernoulli bernoulli_ binomial bitwise_left_shift
    bitwise_right_shift cholesky_inverse cholesky_solve complex conj_physical copy_ copysign
    cummax cummin cumprod det digamma div_ empty_like erfc erfinv exp2 fft_fft fft_fft2
    fft_fftn fft_hfft fft_hfft2 fft_hfftn fft_ifft fft_ifft2 fft_ifftn fft_ihfft fft_ihfft2
    fft_ihfftn fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn fill_ frexp
    geqrf hash_tensor histc histogram igamma igammac im2col index_add index_copy index_fill
    index_reduce kthvalue ldexp lgamma linalg_cholesky_ex linalg_det linalg_eig linalg_eigh
    linalg_eigvals linalg_eigvalsh linalg_householder_product linalg_inv_ex
    linalg_ldl_factor linalg_ldl_factor_ex linalg_ldl_solve linalg_lu linalg_lu_factor
    linalg_lu_factor_ex linalg_lu_solve linalg_matrix_norm linalg_matrix_rank linalg_pinv
    linalg_qr linalg_solve_ex linalg_solve_triangular linalg_svd linalg_svdvals
    linalg_tensorinv linalg_tensorsolve linalg_vander local_response_norm logaddexp2
    logcumsumexp logdet logspace lp_pool1d lp_pool2d lp_pool3d lu_solve lu_unpack median
    mode msort mul_ mvlgamma nanmedian nanquantile nextafter nonzero_static normal orgqr
    ormqr pinverse poisson polar polygamma qr quantile rand_like randint randint_like
    randn_like scaled_dot_product_attention sigmoid_ signbit slogdet
    special_chebyshev_polynomial_t special_chebyshev_polynomial_u
    special_chebyshev_polynomial_v special_chebyshev_polynomial_w special_erfcx
    special_hermite_polynomial_h special_hermite_polynomial_he special_laguerre_polynomial_l
    special_legendre_polynomial_p special_log_ndtr special_multigammaln special_ndtri
    special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u
    special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w
    special_zeta sqrt_ sub_ svd tanh_ triangular_solve unfold unfold_copy vander
    view_as_complex view_as_complex_copy view_as_real view_as_real_copy
    """.split()
)


def check_core(key):
    for call, expected, module in graphs_of(key, CORE):
        check_bits(call, expected, module)
        operators = [target for target in targets(module) if target.namespace == "aten"]
        outside = [target for target in operators if torch.Tag.core not in target.tags]
        assert {target.overloadpacket.__name__ for target in outside} <= STAYS
        # Private operators have no name in aten: what core ATen lacks of them is primitives.
        assert operators == targets(module) or key in PRIVATE


PRIVATE = frozenset(
    """linalg.lstsq ctc_loss nn.functional.ctc_loss nn.functional.embedding_bag combinations
    nn.functional.linear_cross_entropy ops.aten._upsample_bicubic2d_aa
    ops.aten._upsample_bilinear2d_aa""".split()
) | frozenset(key for key in KEYS if key.startswith(("private.", "nn.functional.fractional_max")))


@pytest.mark.parametrize("key", KEYS)
def test_core_aten(key):
    check_core(key)


def test_the_primitives_are_a_closed_set():
    names = dir(prims)
    assert len(names) == len(set(names)) <= 250
    served = {getattr(prims, name).default for name in names}
    assert len(served) == len(names)
    assert not OWN - {"with_derivative", "full", "size"} - set(names) - RENAMED
    with pytest.raises(AttributeError, match="no_such"):
        prims.no_such  # noqa: B018


# Primitives that have PyTorch's names in `torch.ops.prims`.
RENAMED = frozenset(
    "broadcast permute flip cast max min xor erfinv shift_right svd as_strided".split()
)


def gradient(x):
    y = x.detach().requires_grad_()
    loss = functional.gelu(y).sum() + functional.softplus(y).sum() + y.softmax(1)[0].sum()
    return torch.autograd.grad(loss, y)[0]


def in_place(x):
    y = x.clone()
    y[0].fill_(2.0)
    y.add_(1).mul_(x)
    return y.t(), functional.silu(y.clone(), inplace=True)


def own_data(x):
    return x * torch.tensor([1.0, 2, 3, 4]) + torch.ones(4) + torch.arange(4)


CASES = {
    "gradient": gradient,
    "in place": in_place,
    "own data": own_data,
    "half": lambda x: (x.half() * 0.1 + 1).sum(),
    "conjugate": lambda x: torch.complex(x, x + 1).mH * 2,
    "parts": lambda x: torch.complex(x, x + 1).imag + 1,
    "draws": lambda x: torch.rand(4) + functional.dropout(x, 0.3),
    "loss": lambda x: functional.cross_entropy(x, torch.tensor([0, 1, 2])),
    "indices": lambda x: x[torch.tensor([2, -1])] + x[:, torch.tensor([0])][:2],
    "attention": lambda x: functional.scaled_dot_product_attention(*[x[None, None]] * 3),
    "norm": lambda x: functional.batch_norm(x, None, None, training=True),
    "convolution": lambda x: functional.conv1d(x[None], x[:, :3][None].mT.mT, padding=1),
    "transposed": lambda x: x.t().exp(),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("table", ["prims", "core"])
@pytest.mark.parametrize("name", CASES)
def test_graphs_give_what_the_function_gives(name, table, mode):
    function = CASES[name]
    entries = _decomp.decomposition_table if table == "prims" else CORE
    module = make_fx(function, entries, tracing_mode=mode)(X)
    if table == "prims":
        assert {target.namespace for target in targets(module)} == {"prims"}
    for x in (X, X * 1.5):
        torch.manual_seed(3)
        expected = torch.utils._pytree.tree_leaves(function(x))
        torch.manual_seed(3)
        results = torch.utils._pytree.tree_leaves(module(x))
        for result, value in zip(results, expected, strict=True):
            assert torch.equal(result, value) and result.stride() == value.stride()


def test_a_decomposition_is_a_graph_s_and_a_program_s():
    module = make_fx(functional.silu, _decomp.decomposition_table)(X)
    assert [str(target) for target in targets(module)] == [
        "prims.sigmoid.default", "prims.mul.default",
    ]  # fmt: skip
    assert "torch.ops.prims.sigmoid.default(" in module.code
    again = make_fx(module)(X)
    assert targets(again) == targets(module)
    assert torch.equal(torch.compile(module)(X), functional.silu(X))
    assert pickle.loads(pickle.dumps(prims.mul.default)) is prims.mul.default
    silu = _decomp.decomposition_table[aten.silu.default]
    assert torch.equal(silu(X), functional.silu(X))


def test_primitives_have_gradients():
    x = X.clone().requires_grad_()
    prims.sum.default(prims.mul.default(x, prims.exp.default(x)), [0, 1]).backward()
    y = X.clone().requires_grad_()
    (y * y.exp()).sum().backward()
    assert torch.allclose(x.grad, y.grad)


def test_primitives_are_strict():
    with pytest.raises(RuntimeError, match="add"):
        prims.add.default(X, X[0])
    with pytest.raises(RuntimeError, match="add"):
        prims.add.default(X, X.double())


def test_tables():
    table = _decomp.get_decompositions([aten.silu, aten.add.Tensor, "aten::gelu", "aten.neg"])
    assert set(map(str, table)) == {
        "aten.silu.default", "aten.add.Tensor", "aten.gelu.default", "aten.neg.default",
        "aten.silu.out", "aten.gelu.out", "aten.neg.out",
    }  # fmt: skip
    _decomp.remove_decompositions(table, [aten.add])
    assert aten.add.Tensor not in table and len(table) == 6
    assert _decomp.get_decompositions([object()]) == {}
    assert _decomp.global_decomposition_table["post_autograd"] is _decomp.decomposition_table
    with pytest.raises(AssertionError, match="type"):
        _decomp.get_decompositions([aten.silu], type="other")
    assert aten.silu.default in CORE and aten.silu_.default in CORE
    assert aten.mul.Tensor not in CORE and aten.mul_.Tensor not in CORE


def test_registered_decompositions():
    table = {}

    @_decomp.register_decomposition([aten.gelu, aten.silu.default], table)
    def replaced(x, **options):
        return x * 2

    assert set(map(str, table)) == {"aten.gelu.default", "aten.gelu.out", "aten.silu.default"}
    module = make_fx(lambda x: functional.gelu(x) + functional.silu(x), table)(X)
    assert [str(target) for target in targets(module)] == ["aten.mul.Tensor"] * 2 + [
        "aten.add.Tensor"
    ]
    with pytest.raises(AssertionError, match="no operator"):
        _decomp.register_decomposition(5, table)(replaced)


def test_entries_can_be_replaced_and_removed():
    table = _decomp.core_aten_decompositions()
    table.pop(aten.silu.default)
    assert targets(make_fx(functional.silu, table)(X)) == [aten.silu.default]
    assert aten.silu.default in _decomp.core_aten_decompositions()


def test_private_operators_do_not_stay_in_graphs():
    """A graph calls operators by their names in `torch.ops.aten`; ours have none there."""
    logs = X.reshape(3, 1, 4).log_softmax(2)
    targets_of_rows, lengths = torch.tensor([[1, 2]]), torch.tensor([3])

    def loss(x):
        return functional.ctc_loss(x, targets_of_rows, lengths, torch.tensor([2]))

    assert torch.equal(make_fx(loss)(logs)(logs), loss(logs))


@pytest.mark.parametrize("name", ["add", "softmax", "var", "cumsum", "where", "norm"])
def test_references_run_primitives(name):
    arguments = {"add": (X, X), "softmax": (X, 1), "cumsum": (X, 1), "where": (X > 0, X, -X)}
    args = arguments.get(name, (X,))
    reference, public = getattr(_refs, name), getattr(torch, name)
    assert torch.equal(reference(*args), public(*args))
    module = make_fx(lambda x: reference(*[x if a is X else a for a in args]))(X)
    assert {target.namespace for target in targets(module)} == {"prims"}


def test_references_have_the_operator_s_gradient():
    x = X.clone().requires_grad_()
    _refs.nn.functional.gelu(x).sum().backward()
    y = X.clone().requires_grad_()
    functional.gelu(y).sum().backward()
    assert torch.equal(x.grad, y.grad)
    with pytest.raises(AttributeError, match="no_such"):
        _refs.no_such  # noqa: B018


def test_primitives_under_pytorch_s_names():
    assert _prims.add is prims.add.default
    assert all(getattr(_prims, name) is not None for name in _prims.__all__)
    assert _prims.expand_dims(X, [0, -1]).shape == (1, 3, 4, 1)
    assert _prims.maximum_value(torch.bool) is True and _prims.minimum_value(torch.int8) == -128
    assert _prims.maximum_value(torch.float32) == torch.finfo(torch.float32).max
    assert torch.equal(_prims.convert_element_type(X, torch.int32), X.int())
    x = X.clone()
    _prims.copy_to(x[0], X[1])
    assert torch.equal(x[0], X[1])
    assert _prims.transpose(X, [1, 0]).data_ptr() == X.data_ptr()


def test_tags():
    tags = aten.add.Tensor.tags
    assert torch.Tag.pointwise in tags and torch.Tag.core in tags
    assert torch.Tag.reduction in aten.sum.dim_IntList.tags
    assert (
        torch.Tag.inplace in aten.add_.Tensor.tags and torch.Tag.core not in aten.add_.Tensor.tags
    )
    assert torch.Tag.inplace_view in aten.t_.default.tags
    assert torch.Tag.nondeterministic_seeded in aten.bernoulli.default.tags
    assert torch.Tag.dynamic_output_shape in aten.nonzero.default.tags
    assert torch.Tag.data_dependent_output in aten.equal.default.tags
    assert torch.Tag.view_copy in aten.view_copy.default.tags


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_decomposed_attention(causal):
    def loss(q, k, v):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=causal).square().sum()

    def joint(q, k, v):
        return torch.autograd.grad(loss(q, k, v), (q, k, v))

    inputs = [(torch.arange(64.0) * k).sin().reshape(1, 2, 4, 8) for k in (0.3, 0.7, 1.1)]
    leaves = [x.clone().requires_grad_() for x in inputs]
    expected = joint(*leaves)
    module = make_fx(joint, CORE)(*leaves)
    for result, value in zip(module(*inputs), expected, strict=True):
        assert torch.equal(result, value)
    module = make_fx(loss, CORE)(*inputs)  # and of the graph itself
    for result, value in zip(torch.autograd.grad(module(*leaves), leaves), expected, strict=True):
        assert torch.equal(result, value)


def test_all_operators_have_schemas():
    names = {name.rpartition(".")[2] for name in (*REGISTRY, *inner.TABLE)}
    count = 0
    for name in names:
        packet = getattr(torch.ops.aten, name, None)
        for overload in () if packet is None else packet.overloads():
            schema = getattr(packet, overload)._schema
            assert schema.name == f"aten::{name}" and len(schema.arguments) < 40
            count += 1
    for name in dir(prims):
        assert getattr(prims, name).default._schema.arguments is not None
    assert count > 1000
    written = torch.ops.aten.squeeze_.dim._schema
    assert str(written).startswith("aten::squeeze_.dim(Tensor(a!) self")
