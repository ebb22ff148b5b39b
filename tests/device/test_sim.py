"""The device "sim": memory that the host cannot touch, work that runs later, PyTorch's errors.

What holds for it holds for a device with memory of its own; only the last tests are its own.
"""

from __future__ import annotations

import contextlib
import copy
import io
import os
import pickle
import signal
import subprocess
import sys

import numpy
import pytest

import flambeau as torch
from flambeau.core import devices
from flambeau.runtime.streams import current_stream, synchronize


@pytest.fixture
def x():
    return torch.arange(6.0).reshape(2, 3).to("sim")


def test_names():
    assert str(torch.device("sim")) == "sim"
    assert torch.empty(1, device="sim").device == torch.device("sim", 0)
    assert torch.empty(1, device="sim:1").get_device() == 1
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.empty(1, device="sim:2")
    assert devices.properties("sim")[2:] == ("own", True, True, 2)
    assert devices.properties("cpu").memory == "host"
    assert not devices.has_memory(torch.device("meta"))
    assert not devices.has_memory(torch.device("cuda"))


def test_copies(x):
    assert not x.is_cpu and not x.is_meta
    assert x.to("sim") is x and x.to("sim:0") is x
    assert torch.equal(x.cpu(), torch.arange(6.0).reshape(2, 3))
    other = x.to("sim:1")
    assert other.device.index == 1 and torch.equal(other.cpu(), x.cpu())
    turned = torch.arange(6.0).reshape(3, 2).T
    assert turned.to("sim").stride() == turned.stride()
    assert torch.equal(turned.to("sim").cpu(), turned)
    assert torch.equal(torch.ones(1).expand(4).to("sim").cpu(), torch.ones(4))
    assert torch.equal(x.to("cpu", torch.int32), torch.arange(6, dtype=torch.int32).reshape(2, 3))
    assert torch.equal(torch.zeros(2, 3).copy_(x), x.cpu())
    assert torch.equal(x[:, 1:].copy_(torch.ones(2, 2)).cpu(), torch.ones(2, 2))
    assert x.to("meta").device.type == "meta"
    assert torch.empty(0, device="sim").cpu().shape == (0,)


def test_reads(x):
    assert x[1, 2].item() == 5.0 and float(x.sum()) == 15.0
    assert x.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert bool((x == x.clone()).all())
    assert f"{x[0, 1]:.1f}" == "1.0"
    assert repr(x) == "tensor([[0., 1., 2.],\n        [3., 4., 5.]], device='sim:0')"
    assert repr(x.new_zeros(())) == "tensor(0., device='sim:0')"
    assert [int(v) for v in x.long().flatten()] == [0, 1, 2, 3, 4, 5]


def test_refuses_the_host(x):
    with pytest.raises(TypeError, match="can't convert sim:0 device type tensor to numpy"):
        x.numpy()
    with pytest.raises(TypeError, match="can't convert sim:0"):
        numpy.asarray(x)
    with pytest.raises(BufferError, match="DLPack"):
        x.__dlpack__()
    with pytest.raises(NotImplementedError, match="the bytes are on device sim"):
        x.untyped_storage()[0]
    with pytest.raises(BufferError):
        memoryview(x.untyped_storage())
    with pytest.raises(RuntimeError, match="only available on CPU"):
        x.share_memory_()
    assert bytes(x.untyped_storage().bytes()) == x.cpu().numpy().tobytes()


def test_mixed_devices(x):
    for call in (
        lambda: x + torch.ones(3),
        lambda: torch.ones(3, 2) @ x,
        lambda: torch.cat([x, torch.ones(1, 3)]),
        lambda: x.add_(torch.ones(3)),
        lambda: x + x.to("sim:1"),
        lambda: torch.add(x, 1, out=torch.empty(2, 3)),
    ):
        with pytest.raises(RuntimeError, match="same device|cross-device"):
            call()
    assert (x + torch.tensor(1.0)).device == x.device  # a number may join
    assert (torch.tensor(1.0) + x).device == x.device
    assert torch.equal(x[torch.tensor([1])].cpu(), x.cpu()[[1]])  # so may indices
    assert torch.equal(torch.zeros_like(torch.empty(3, device="meta"), device="sim").cpu(),
                       torch.zeros(3))  # fmt: skip


def test_gradients_cross_devices():
    a = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    scale = torch.tensor(2.0, requires_grad=True)
    y = (a.to("sim").exp() * scale).sum()
    y.backward()
    assert a.grad.is_cpu and scale.grad.is_cpu
    b = a.detach().clone().requires_grad_()
    other = torch.tensor(2.0, requires_grad=True)
    (b.exp() * other).sum().backward()
    assert torch.equal(a.grad, b.grad) and torch.equal(scale.grad, other.grad)
    target = torch.zeros(3, device="sim")
    target.copy_(a).square().sum().backward()
    assert torch.equal(a.grad, b.grad + 2 * b)


def test_bad_index_names_the_call(x):
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        x[:, torch.tensor([9], device="sim")]
    with pytest.raises(torch.linalg.LinAlgError):
        torch.linalg.inv(torch.zeros(2, 2, device="sim"))
    assert x.sum().item() == 15.0  # nothing is left of the error


def test_generators():
    torch.manual_seed(3)
    drawn = torch.randn(5, device="sim")
    torch.manual_seed(3)
    assert torch.equal(drawn.cpu(), torch.randn(5))  # a stream of its own, of the same seed
    own = torch.Generator(device="sim").manual_seed(1)
    assert own.device.type == "sim"
    first = torch.rand(3, device="sim", generator=own)
    assert torch.equal(first.cpu(), torch.rand(3, generator=torch.Generator().manual_seed(1)))
    with pytest.raises(RuntimeError, match="Expected a 'sim' device type for generator"):
        torch.rand(3, device="sim", generator=torch.Generator())
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator"):
        torch.rand(3, generator=own)


def test_files_and_copies_keep_the_device(x):
    for made in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert made.device == x.device and torch.equal(made.cpu(), x.cpu())
    file = io.BytesIO()
    torch.save({"x": x}, file)
    file.seek(0)
    assert torch.load(file)["x"].device == x.device
    file.seek(0)
    assert torch.equal(torch.load(file, map_location="cpu")["x"], x.cpu())


def test_trains_as_on_the_cpu():
    losses = []
    for device in ("cpu", "sim"):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
        model.to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        inputs, labels = torch.randn(32, 8).to(device), torch.randint(0, 4, (32,)).to(device)
        for _ in range(5):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[:5] == losses[5:]


def test_compiled_functions_run(x):
    def function(a):
        return (a.exp() + 1).log().sum(0)

    assert torch.equal(torch.compile(function)(x).cpu(), function(x.cpu()))


def test_streams_are_in_order_and_wait_for_events(x):
    side = torch.Stream(device="sim")
    assert current_stream("sim") != side
    with side:
        assert current_stream("sim") == side
        done = torch.Event(device="sim")
        y = x
        for _ in range(200):
            y = y + 1
        done.record()
    done.wait()  # the current stream waits, the host does not
    z = y * 2
    assert torch.equal(z.cpu(), (torch.arange(6.0).reshape(2, 3) + 200) * 2)
    done.synchronize()
    assert done.query() and side.query()
    start, end = torch.Event(device="sim"), torch.Event(device="sim")
    start.record()
    end.record()
    synchronize("sim")
    assert start.elapsed_time(end) >= 0
    assert repr(side).startswith("torch.Stream device_type=sim, device_index=0")


def test_work_runs_later():
    """A launch behind an event that has not happened is enqueued, and its results too."""
    first, second = torch.Stream(device="sim"), torch.Stream(device="sim")
    gate = torch.Event(device="sim")
    with first:
        slow = torch.ones(300, 300, device="sim")
        for _ in range(20):
            slow = slow @ slow * 1e-3
        gate.record()
    with second:
        second.wait_event(gate)
        y = torch.ones(3, device="sim") + 1
        pending = not second.query() or gate.query()
        assert pending
        assert y.tolist() == [2.0, 2.0, 2.0]
    synchronize("sim")


def test_memory_is_given_back():
    synchronize("sim")
    before = devices.device_statistics("sim").allocated
    big = torch.empty(1 << 20, device="sim")
    assert devices.device_statistics("sim").allocated == before + (4 << 20)
    del big
    synchronize("sim")
    assert devices.device_statistics("sim").allocated == before
    assert devices.device_statistics("sim").peak >= before + (4 << 20)


# ------------------------------------------------------------------------------ its own
def test_host_access_is_a_fault():
    program = (
        "import ctypes, flambeau as torch\n"
        "x = torch.ones(4, device='sim')\n"
        "print(torch.ones(1).data_ptr() and x.data_ptr() != 0, flush=True)\n"
        "ctypes.string_at(x.data_ptr(), 1)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "True\n"
    assert run.returncode in (-signal.SIGSEGV, 1)  # AddressSanitizer exits with 1


def test_released_memory_of_another_stream_is_an_error(x):
    """The allocator knows the stream that a tensor was made on; another one must wait for it."""
    held, slow, other = torch.Event(device="sim"), torch.Stream(device="sim"), None
    y = x + 1  # its kernel is compiled
    size = 200
    while other is None or held.query():  # until the slow stream is slow enough
        size *= 2
        if other is not None:
            with contextlib.suppress(RuntimeError):
                other.synchronize()
        with slow:
            a = torch.ones(size, size, device="sim")
            a = a @ a
            held.record()
        other = torch.Stream(device="sim")
        made = x.clone()
        current_stream("sim").synchronize()
        with other:
            other.wait_event(held)
            y = made + 1
        del made
        current_stream("sim").synchronize()  # it is released now
    with pytest.raises(RuntimeError, match="not in the device's memory"):
        other.synchronize()
    other.synchronize()  # an error is reported once
    del y
    synchronize("sim")


def test_a_forked_child_is_refused(x):
    x.sum().item()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            (x + 1).cpu()
            text = "no error"
        except RuntimeError as error:
            text = str(error)
        os.write(write, text.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    text = os.read(read, 1000).decode()
    os.close(read)
    assert "forked" in text or "memory" in text
    assert (x + 1).sum().item() == 21.0
