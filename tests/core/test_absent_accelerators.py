"""Modules of accelerators that this build has not: honest answers, PyTorch's exceptions."""

from __future__ import annotations

import pytest

import flambeau as torch

ERRORS = {
    "cuda": AssertionError,
    "xpu": AssertionError,
    "mps": RuntimeError,
    "mtia": RuntimeError,
    "accelerator": RuntimeError,
}


@pytest.mark.parametrize("name", ERRORS)
def test_says_no(name):
    module = getattr(torch, name)
    assert module.is_available() is False
    assert module.device_count() == 0
    with pytest.raises(ERRORS[name], match=rf"^\[{name}.synchronize\] .*\nhint: .*is_available"):
        module.synchronize()
    assert all(hasattr(module, public) for public in module.__all__)


def test_answers_are_fresh():
    torch.cuda.memory_stats()["allocated"] = 1
    assert torch.cuda.memory_stats() == {}
    assert torch.cuda.memory.max_memory_allocated() == torch.cuda.memory_allocated() == 0
    assert torch.cuda.random.get_rng_state_all() == []


def test_types_have_no_instances():
    with pytest.raises(AssertionError, match=r"^\[cuda.Stream\]"):
        torch.cuda.Stream()
    assert not isinstance(torch.ones(1), torch.cuda.FloatTensor)


def test_contexts_of_no_device():
    with torch.cuda.device(None), torch.cuda.stream(None), torch.xpu.device(-1):
        pass
    with pytest.raises(AssertionError, match=r"^\[cuda.device\]"), torch.cuda.device(0):
        pass


def test_backends_keep_their_switches():
    cudnn = torch.backends.cudnn
    assert cudnn.enabled and not cudnn.benchmark and not cudnn.is_available()
    with cudnn.flags(benchmark=True):
        assert cudnn.benchmark
    assert not cudnn.benchmark
    with pytest.raises(RuntimeError, match="expects a bool"):
        cudnn.benchmark = 3
    matmul = torch.backends.cuda.matmul
    with pytest.raises(AttributeError, match="Unknown attribute"):
        matmul.allow_tf33 = True
    with pytest.raises(RuntimeError, match="not a valid value"):
        torch.backends.quantized.engine = "fbgemm"
    with torch.backends.cuda.sdp_kernel(enable_flash=False):
        assert not torch.backends.cuda.flash_sdp_enabled()
    assert torch.backends.cuda.flash_sdp_enabled()


@pytest.mark.parametrize("name", torch.backends.__all__)
def test_every_backend_exists(name):
    assert getattr(torch.backends, name) is not None


@pytest.mark.parametrize("path", ["torch.nn.intrinsic"])
def test_names_of_pytorch_that_are_missing(path):
    with pytest.raises(AttributeError, match=f"{path} is a name of PyTorch 2.13 that is not in"):
        eval(path)


def test_names_that_nobody_has():
    with pytest.raises(AttributeError, match="^module 'flambeau.nn' has no attribute 'Lineer'$"):
        _ = torch.nn.Lineer
    assert not hasattr(torch, "lineer")


def test_version_compares_as_a_version():
    version = torch.__version__
    assert version >= "2.0" and version > "2.4.1" and version < "2.14" and version >= (2, 13)
    assert version == str(version) and version != "2.12.0" and "flambeau" in version
    kind = type(version)
    assert kind("2.13.0rc1") < "2.13.0" < kind("2.13.0.post1") and kind("2.13.dev1") < "2.13.0a1"
    assert kind("2.13.0+cpu") > "2.13.0" and kind("2.13") == "2.13.0" and kind("2.13") != "main"
