"""Private names of PyTorch that other packages import: beside what PyTorch 2.13 gives."""

from __future__ import annotations

import pytest

import flambeau as torch
import flambeau._prims_common as prims
from flambeau._prims_common.dtypes import ELEMENTWISE_TYPE_PROMOTION_KIND as Kind
from flambeau._tensor import _rebuild_from_type
from flambeau.numa import binding
from flambeau.optim import optimizer

t = torch.tensor


def test_operators():
    assert torch._shape_as_tensor(torch.zeros(2, 3)).tolist() == [2, 3]
    assert torch._shape_as_tensor(t(1)).dtype is torch.int64
    rows = torch._convert_indices_from_coo_to_csr(t([0, 0, 2]), 4, out_int32=True)
    assert rows.tolist() == [0, 2, 2, 3, 3] and rows.dtype is torch.int32
    back = torch._convert_indices_from_csr_to_coo(rows, t([1, 0, 2]), transpose=True)
    assert back.tolist() == [[1, 0, 2], [0, 0, 2]] and back.dtype is torch.int64
    with pytest.raises(RuntimeError, match="supposed to be a vector"):
        torch._convert_indices_from_coo_to_csr(t([[0]]), 4)
    concentration = t([[1.0, 2.0, 3.0]], requires_grad=True)
    torch.manual_seed(0)
    drawn = torch._sample_dirichlet(concentration)
    torch.manual_seed(0)
    again = torch.distributions.Dirichlet(concentration).sample()
    assert torch.equal(drawn, again) and not drawn.requires_grad
    x = torch.zeros(2, 3)
    aten = torch.ops.aten
    assert list(aten.sym_size(x)) == [2, 3] and aten.sym_size.int(x, 1) == 3
    assert (aten.sym_numel(x), list(aten.sym_stride(x))) == (6, [3, 1])
    assert aten._local_scalar_dense(t(2.5)) == 2.5 and aten._unsafe_view(x, (6,)).shape == (6,)


def test_sparse_types():
    indices, values = t([[0, 1], [1, 0]]), t([1.0, 2.0])
    x = torch.sparse.FloatTensor(indices, values, torch.Size([2, 2]))
    assert isinstance(x, torch.sparse.FloatTensor) and not isinstance(x, torch.FloatTensor)
    assert x.to_dense().tolist() == [[0, 1], [2, 0]]
    assert torch.sparse.DoubleTensor(2, 3).dtype is torch.float64
    assert torch.sparse.HalfTensor().shape == (0,)
    assert repr(torch.sparse.LongTensor) == "<class 'torch.sparse.LongTensor'>"


def test_transformations_are_seen():
    seen = []
    torch.func.vmap(lambda x: seen.append(torch._C._are_functorch_transforms_active()) or x)(
        torch.ones(2)
    )
    assert seen == [True] and not torch._C._are_functorch_transforms_active()
    assert torch.Tensor.grad.__get__ in torch.overrides.get_default_nowrap_functions()


def test_optimizers():
    class Step(optimizer.Optimizer):
        @optimizer._use_grad_for_differentiable
        def step(self, closure=None):
            return torch.is_grad_enabled()

    assert not Step([torch.ones(1)], {"differentiable": False}).step()
    assert Step([torch.ones(1)], {"differentiable": True}).step()
    choose = optimizer._default_to_fused_or_foreach
    ones = [torch.ones(1)]
    assert [choose(ones, False), choose(ones, False, True), choose(ones, True, True)] == [
        (False, False), (True, False), (False, False)
    ]  # fmt: skip
    assert "xla" not in optimizer._get_capturable_supported_devices(False)
    params, grads = [torch.ones(1, dtype=torch.complex64)], [torch.zeros(1, dtype=torch.complex64)]
    optimizer._view_as_real(params, grads)
    assert params[0].shape == grads[0].shape == (1, 2)
    assert optimizer._get_value(t(3.0)) == 3 and optimizer._get_scalar_dtype() is torch.float32


def test_modules_that_refuse():
    with pytest.raises(NotImplementedError, match="floating point"):
        torch.nn.quantized.Linear(2, 3)
    assert not isinstance(torch.nn.Linear(1, 1), torch.nn.quantized.Linear)
    assert torch.nn.quantized.FloatFunctional().add(t([1.0]), 1) == 2
    options = binding.NumaOptions(binding.AffinityMode.NODE)
    wrap = binding._maybe_wrap_command_args_with_numa_binding
    assert wrap(("run",), gpu_index=0, numa_options=None) == ("run",)
    with pytest.raises(NotImplementedError, match="sched_setaffinity"):
        wrap(("run",), gpu_index=0, numa_options=options)


def test_initialisation_and_rebuilding():
    x = torch.empty(3)
    torch.manual_seed(1)
    drawn = torch.nn.init._no_grad_uniform_(x, -1, 1).clone()
    torch.manual_seed(1)
    assert torch.equal(drawn, torch.nn.init.uniform_(x, -1, 1))
    assert torch.nn.init._no_grad_zero_(x).sum() == 0

    class Named(torch.Tensor):
        pass

    rebuilt = _rebuild_from_type(torch.ones, Named, (2,), {"label": "a"})
    assert type(rebuilt) is Named and rebuilt.label == "a"
    assert callable(torch._tensor._rebuild_from_type_v2)


def test_shapes():
    assert prims.canonicalize_dims(3, (0, -1)) == (0, 2) and prims.canonicalize_dim(0, -1) == 0
    with pytest.raises(IndexError, match=r"range of \[-3, 2\], but got 4"):
        prims.canonicalize_dim(3, 4)
    assert prims.make_contiguous_strides_for((2, 0, 3)) == (3, 3, 1)
    assert prims.make_contiguous_strides_for((2, 3, 4), row_major=False) == (12, 1, 3)
    assert prims.make_channels_last_strides_for((2, 3, 4, 5)) == (60, 1, 15, 3)
    assert prims.infer_size((-1, 3), 6) == (2, 3) and prims.infer_size_shapes((1, 3), (2, 1)) == (
        2,
        3,
    )
    with pytest.raises(RuntimeError, match=r"shape '\[-1, 4\]' is invalid for input of size 6"):
        prims.infer_size((-1, 4), 6)
    assert prims.is_non_overlapping_and_dense_or_false(torch.zeros(2, 3).T)
    assert not prims.is_contiguous(torch.zeros(2, 3).T)
    assert prims.invert_perm((1, 2, 0)) == [2, 0, 1] and prims.apply_perm([5, 6, 7], (1, 2, 0)) == [
        6,
        7,
        5,
    ]
    assert prims.reduction_dims((2, 3), None) == (0, 1)
    assert prims.compute_reduction_output_shape((2, 3, 4), (0, 2)) == (3,)
    assert prims.compute_required_storage_length((2, 3), (3, 1), 1) == 7
    assert prims.set_correction(False) == 0 and prims.is_expandable_to((1, 3), (2, 3))
    with pytest.raises(RuntimeError, match="is not the expected shape"):
        prims.check_same_shape(t([1]), t([1, 2]), allow_cpu_scalar_tensors=False)


f16, f32, i64, c64 = torch.float16, torch.float32, torch.int64, torch.complex64


@pytest.mark.parametrize(
    ("args", "expected"),  # of DEFAULT, INT_TO_FLOAT, COMPLEX_TO_FLOAT, BOOL_TO_LONG
    [
        ((t([1]), 2.0), [(f32, f32)] * 4),
        ((t([1.0]), t([1])), [(f32, f32)] * 4),
        ((t([1], dtype=f16),), [(f32, f16)] * 4),
        ((t([True]),), [(torch.bool,) * 2, (f32, f32), (torch.bool,) * 2, (i64, i64)]),
        ((t([1 + 1j]),), [(c64, c64), (c64, c64), (c64, f32), (c64, c64)]),
        ((t(1.0), t([1])), [(f32, f32)] * 4),
        ((t([1], dtype=f16), t(2.0, dtype=torch.float64)), [(f32, f16)] * 4),
        ((1, 2.0), [(f32, f32)] * 4),
    ],
)
def test_elementwise_dtypes(args, expected):
    kinds = (Kind.DEFAULT, Kind.INT_TO_FLOAT, Kind.COMPLEX_TO_FLOAT, Kind.BOOL_TO_LONG)
    assert [prims.elementwise_dtypes(*args, type_promotion_kind=k) for k in kinds] == expected
    both = prims.elementwise_dtypes(*args, type_promotion_kind=Kind.NO_OPMATH)
    assert both == (expected[0][1],) * 2
    always = prims.elementwise_dtypes(*args, type_promotion_kind=Kind.ALWAYS_BOOL)
    assert always == (expected[0][0], torch.bool)


def test_dtypes():
    assert prims.is_integer_dtype(torch.int8) and not prims.is_integer_dtype(torch.bool)
    assert prims.dtype_to_type(torch.bfloat16) is float and prims.type_to_dtype(complex) is c64
    assert prims.get_higher_dtype(torch.int8, f16) is f16 and prims.get_higher_dtype(None, 1) is i64
    assert prims.get_computation_dtype(f16) is f32
    assert prims.is_weakly_lesser_type(int, float) and prims.get_higher_type(int, float) is float
    with pytest.raises(RuntimeError, match="floating point or complex"):
        prims.check_fp_or_complex(torch.int8, "f")
