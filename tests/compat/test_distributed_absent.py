"""`torch.distributed` without communication: questions are answered, work is refused."""

import pytest

import flambeau as torch


def test_questions_are_answered():
    distributed = torch.distributed
    assert not distributed.is_available() and not distributed.is_initialized()
    assert not distributed.is_nccl_available() and not distributed.is_torchelastic_launched()


@pytest.mark.parametrize("name", ["init_process_group", "get_rank", "all_reduce", "TCPStore"])
def test_work_is_refused(name):
    with pytest.raises(RuntimeError, match="is_available"):
        getattr(torch.distributed, name)()


def test_names_that_are_not_there_yet():
    with pytest.raises(AttributeError, match="not in Flambeau yet"):
        torch.distributed.checkpoint  # noqa: B018


def test_parts_are_attributes():
    """Annotations of diffusers name them without importing them."""
    assert torch.distributed.device_mesh.DeviceMesh is torch.distributed.DeviceMesh
    assert not torch.distributed.rpc.is_available()
    with pytest.raises(RuntimeError, match="is_available"):
        torch.distributed.device_mesh.init_device_mesh("cpu", (2,))


def test_nothing_is_distributed():
    from flambeau.distributed._tensor import DTensor
    from flambeau.distributed.fsdp import FSDPModule
    from flambeau.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel
    from flambeau.distributed.tensor import DTensor as Same

    model = torch.nn.Linear(2, 3)
    assert DTensor is Same and not isinstance(model.weight, DTensor)
    assert not isinstance(model, (FSDPModule, FullyShardedDataParallel))
    with pytest.raises(RuntimeError, match="is_available"):
        DTensor()
