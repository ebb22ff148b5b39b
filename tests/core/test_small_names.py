"""Small names and switches of PyTorch that programs call: checks, files, fills, refusals."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from flambeau import _core
from flambeau.nn.attention import SDPBackend, sdpa_kernel

F = torch.nn.functional


def test_checks_raise_their_exception():
    torch._assert(True, "fine")
    with pytest.raises(AssertionError, match="broken"):
        torch._assert(torch.tensor(False), "broken")
    kinds = {
        "_check": RuntimeError,
        "_check_index": IndexError,
        "_check_value": ValueError,
        "_check_type": TypeError,
        "_check_not_implemented": NotImplementedError,
    }
    for name, kind in kinds.items():
        check = getattr(torch, name)
        assert check(True) is None
        with pytest.raises(kind, match="hello"):
            check(False, lambda: "hello")
        for wrong in (1, torch.tensor(True)):
            with pytest.raises(TypeError, match="cond must be a bool"):
                check(wrong)
    with pytest.raises(TypeError, match="callable"):
        torch._check(False, "text")
    with pytest.raises(KeyError):
        torch._check_with(KeyError, False)
    torch._check_tensor_all(torch.tensor([True, True]))
    with pytest.raises(ValueError, match="some"):
        torch._check_tensor_all_with(ValueError, torch.tensor([True, False]), lambda: "some")
    with pytest.raises(TypeError, match="must be a tensor"):
        torch._check_tensor_all(True)
    with pytest.raises(RuntimeError):
        torch._check_is_size(-1)


def test_truth_of_tensors():
    truths = torch.tensor([True, False])
    assert not torch._is_all_true(truths).item()
    assert truths._is_any_true().item()
    assert torch._is_all_true(torch.ones(0, dtype=torch.bool)).item()
    torch._assert_async(truths[0])
    with pytest.raises(RuntimeError, match="empty"):
        torch._assert_async(truths[1], "empty")


def test_softmax_backward_data():
    x = torch.randn(3, 4, requires_grad=True)
    grad = torch.randn(3, 4)
    for function, inner in (
        (torch.softmax, torch._softmax_backward_data),
        (torch.log_softmax, torch._log_softmax_backward_data),
    ):
        result = function(x, -1)
        (expected,) = torch.autograd.grad(result, x, grad)
        assert torch.allclose(inner(grad, result.detach(), -1, torch.float32), expected, atol=1e-6)


def test_storage_from_file(tmp_path: Path):
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(64)))
    storage = torch.UntypedStorage.from_file(str(path), shared=False, nbytes=16)
    assert list(storage) == list(range(16))
    storage[0] = 7
    assert path.read_bytes()[0] == 0
    shared = torch.UntypedStorage.from_file(str(path), shared=True, nbytes=128)
    shared[1] = 9
    assert path.read_bytes()[1] == 9
    assert path.stat().st_size == 128
    assert len(torch.FloatStorage.from_file(str(path), False, 4)) == 4
    with pytest.raises(RuntimeError, match="unable to open"):
        torch.UntypedStorage.from_file(str(tmp_path / "none"), False, 4)


def test_parse_to():
    parse = torch._C._nn._parse_to
    assert parse("cpu", torch.float64) == (torch.device("cpu"), torch.float64, False, None)
    assert parse(torch.float16, True)[1:3] == (torch.float16, True)
    assert parse(torch.ones(1))[:2] == (torch.device("cpu"), torch.float32)
    assert parse(memory_format=torch.channels_last)[3] is torch.channels_last
    assert torch.legacy_contiguous_format is torch.contiguous_format


@pytest.mark.parametrize("guard", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_grad_modes_enter_as_none(guard: Any):
    with guard() as value:
        assert value is None
    with torch.set_grad_enabled(False) as value:
        assert value is None


def test_pinned_memory_is_refused():
    x = torch.ones(2)
    assert not x.is_pinned()
    for call in (
        x.pin_memory,
        lambda: torch.empty(2, pin_memory=True),
        lambda: torch.zeros(2, pin_memory=True),
        lambda: torch.tensor([1.0], pin_memory=True),
        lambda: torch.rand(2, pin_memory=True),
    ):
        with pytest.raises(RuntimeError, match=r"accelerator"):
            call()


def _uninitialised(dtype: torch.dtype) -> list[torch.Tensor]:
    x = torch.zeros(1, dtype=dtype)
    return [
        torch.empty(3, dtype=dtype),
        torch.empty(2, 1, dtype=dtype).flatten(),
        torch.empty_like(torch.zeros(3, dtype=dtype)),
        x.new_empty(3),
        x.new_empty_strided((2,), (3,)),
        torch.empty_strided((2,), (2,), dtype=dtype),
        torch.empty_permuted((2, 1), (1, 0), dtype=dtype),
        torch.zeros(2, dtype=dtype).resize_(5)[2:],
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_deterministic_fill(dtype: torch.dtype):
    deterministic = torch.utils.deterministic
    torch.use_deterministic_algorithms(True)
    try:
        for x in _uninitialised(dtype):
            assert x.isnan().all()
        assert all(math.isnan(v) for v in torch.Tensor(3).tolist())
        assert torch.empty(2, dtype=torch.int16).tolist() == [2**15 - 1] * 2
        assert torch.empty(2, dtype=torch.uint8).tolist() == [255] * 2
        assert torch.empty(2, dtype=torch.bool).tolist() == [True] * 2
        assert torch.zeros(2).resize_(3).tolist()[:2] == [0.0, 0.0]
        assert torch.compile(lambda: torch.empty(3))().isnan().all()
        deterministic.fill_uninitialized_memory = False
        assert not _core.fills_uninitialised
    finally:
        deterministic.fill_uninitialized_memory = True
        torch.use_deterministic_algorithms(False)
    assert deterministic.fill_uninitialized_memory is True
    assert not _core.fills_uninitialised
    with pytest.raises(RuntimeError, match="expected a bool"):
        deterministic.fill_uninitialized_memory = 3


def test_choice_of_attention():
    q = torch.rand(1, 2, 4, 8)
    plain = F.scaled_dot_product_attention(q, q, q)
    for chosen in (
        SDPBackend.MATH,
        SDPBackend.FLASH_ATTENTION,
        [SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH],
    ):
        for priority in (False, True):
            with sdpa_kernel(chosen, set_priority=priority):
                assert torch.equal(F.scaled_dot_product_attention(q, q, q), plain)
    for refused in ([SDPBackend.CUDNN_ATTENTION], [SDPBackend.EFFICIENT_ATTENTION], []):
        with sdpa_kernel(refused), pytest.raises(RuntimeError, match="No viable backend"):
            F.scaled_dot_product_attention(q, q, q)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        with pytest.raises(RuntimeError, match="No available kernel"):
            F.scaled_dot_product_attention(q, q[:, :1], q[:, :1])
        with pytest.raises(RuntimeError, match="No available kernel"):
            F.scaled_dot_product_attention(q.mT, q.mT, q.mT)
        with pytest.raises(RuntimeError, match="No available kernel"):
            F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
        with pytest.raises(RuntimeError, match="No available kernel"):
            F.scaled_dot_product_attention(q[0], q[0], q[0])
        with sdpa_kernel(SDPBackend.MATH):
            F.scaled_dot_product_attention(q[0], q[0], q[0])
    attention = torch.nn.MultiheadAttention(8, 2)
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]), pytest.raises(RuntimeError, match="viable"):
        attention(q[0], q[0], q[0], need_weights=False)
    assert torch.equal(F.scaled_dot_product_attention(q, q, q), plain)


def attention_switches() -> tuple[bool, ...]:
    cuda = torch.backends.cuda
    kinds = (cuda.flash_sdp_enabled, cuda.mem_efficient_sdp_enabled, cuda.math_sdp_enabled)
    return (*(kind() for kind in kinds), cuda.cudnn_sdp_enabled())


def test_switches_of_attention_have_one_home():
    q, cuda = torch.rand(1, 2, 4, 8), torch.backends.cuda
    present = torch.nn.attention._cur_sdpa_kernel_backends
    everything = present()
    compiled = torch.compile(F.scaled_dot_product_attention)
    compiled(q, q, q)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        assert attention_switches() == (True, False, False, False)
        assert present() == [SDPBackend.FLASH_ATTENTION]
        cuda.enable_math_sdp(True)
        F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
    assert attention_switches() == (True,) * 4
    assert present() == everything
    try:
        cuda.enable_math_sdp(False)
        cuda.enable_flash_sdp(False)
        for call in (F.scaled_dot_product_attention, compiled):
            with pytest.raises(RuntimeError, match="No viable backend"):
                call(q, q, q)
        F.scaled_dot_product_attention(q[:0], q[:0], q[:0])
        with sdpa_kernel([SDPBackend.MATH]):
            F.scaled_dot_product_attention(q, q, q)
        assert attention_switches() == (False, True, False, True)
    finally:
        cuda.enable_math_sdp(True)
        cuda.enable_flash_sdp(True)
    with cuda.sdp_kernel(enable_math=False), pytest.raises(RuntimeError, match="No available"):
        F.scaled_dot_product_attention(q[0], q[0], q[0])
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
        assert present(True) == [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]
    assert present(True)[0] == SDPBackend.FLASH_ATTENTION
    with pytest.raises(AssertionError, match="got tuple"), sdpa_kernel((SDPBackend.MATH,)):
        pass
    F.scaled_dot_product_attention(q[0], q[0], q[0])


def test_rows_of_sparse_indices_are_compressed_and_back():
    rows = torch.tensor([0, 0, 1, 3, 3, 3])
    begins = torch._convert_indices_from_coo_to_csr(rows, 5)
    assert begins.tolist() == [0, 2, 3, 3, 6, 6]
    assert torch._convert_indices_from_coo_to_csr(rows[:0], 2).tolist() == [0, 0, 0]
    places = torch._convert_indices_from_csr_to_coo(begins, torch.arange(6), out_int32=True)
    assert places.dtype is torch.int32 and places[0].tolist() == rows.tolist()
    with pytest.raises(RuntimeError, match="a vector"):
        torch._convert_indices_from_coo_to_csr(rows[None], 5)


def test_programs_that_turn_opt_einsum_on_may():
    """timm.optim does where the package is installed."""
    settings = torch.backends.opt_einsum
    assert settings.enabled is settings.is_available()
    before = settings.set_flags(enabled=True, strategy="auto-hq")
    assert settings.strategy == "auto-hq"
    settings.enabled, settings.strategy = before
