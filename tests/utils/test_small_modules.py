"""Futures, monitors, Sobol sequences, configuration, private names that other packages import."""

import datetime
import threading

import pytest

import flambeau as torch
from flambeau import _utils, monitor, nn
from flambeau.futures import Future, collect_all, wait_all
from flambeau.quasirandom import SobolEngine
from flambeau.testing import FileCheck


def test_future_of_another_thread():
    future = Future()
    doubled = future.then(lambda f: 2 * f.wait())
    thread = threading.Timer(0.02, lambda: future.set_result(4))
    thread.start()
    assert doubled.wait() == 8 and future.done()
    with pytest.raises(RuntimeError, match="completed"):
        future.set_result(5)
    assert wait_all([future, doubled]) == [4, 8] and collect_all([]).wait() == []


def test_future_that_fails():
    failed = Future()
    failed.set_exception(ValueError("why"))
    with pytest.raises(ValueError, match="why"):
        failed.wait()
    with pytest.raises(RuntimeError, match="ValueError: why"):
        failed.then(lambda f: f.wait()).wait()
    with pytest.raises(ValueError, match="why"):
        wait_all([failed])
    with pytest.raises(AssertionError):
        Future().set_exception(3)


def test_statistics_are_logged():
    events = []
    handle = monitor.register_event_handler(events.append)
    try:
        kinds = [monitor.Aggregation.SUM, monitor.Aggregation.MAX]
        stat = monitor.Stat("loss", kinds, datetime.timedelta(days=1000), max_samples=2)
        stat.add(1.0)
        assert stat.count == 1 and not events
        stat.add(3.0)
    finally:
        monitor.unregister_event_handler(handle)
    assert events[0].data == {"loss.sum": 4.0, "loss.max": 3.0}
    assert stat.get()[monitor.Aggregation.MAX] == 3.0


def test_sobol_points_are_even():
    points = SobolEngine(4).draw(64)
    for axis in points.T:
        assert torch.equal(axis.sort().values, torch.arange(64) / 64)
    engine = SobolEngine(3, scramble=True, seed=5)
    all_points = engine.draw(20)
    again = SobolEngine(3, scramble=True, seed=5).fast_forward(7)
    assert torch.equal(again.draw(13), all_points[7:])
    assert engine.reset().draw(1).tolist() == all_points[:1].tolist()
    assert SobolEngine(21201).draw(2)[1].tolist() == [0.5] * 21201
    with pytest.raises(ValueError, match="21201"):
        SobolEngine(21202)
    with pytest.raises(ValueError, match="power of 2"):
        SobolEngine(2).fast_forward(3).draw_base2(2)


def test_conversion_of_modules():
    future = torch.__future__
    layer = nn.Linear(2, 2)
    weight = layer.weight
    layer(torch.ones(1, 2)).sum().backward()
    future.set_swap_module_params_on_conversion(True)
    try:
        layer.double()
    finally:
        future.set_swap_module_params_on_conversion(False)
    assert layer.weight is weight and weight.dtype == weight.grad.dtype == torch.float64
    future.set_overwrite_module_params_on_conversion(True)
    try:
        layer.float()
    finally:
        future.set_overwrite_module_params_on_conversion(False)
    assert layer.weight is not weight and layer.weight.grad.dtype == torch.float32


def test_private_helpers():
    tensors = [torch.ones(2), torch.zeros(3)]
    flat = _utils._flatten_dense_tensors(tensors)
    assert [t.tolist() for t in _utils._unflatten_dense_tensors(flat, tensors)] == [[1, 1], [0] * 3]
    try:
        raise KeyError("x")
    except KeyError:
        wrapper = _utils.ExceptionWrapper(where="in a test")
    with pytest.raises(KeyError, match="Caught KeyError in a test"):
        wrapper.reraise()
    with pytest.raises(ValueError, match="non cpu"):
        _utils._get_device_index("cpu")
    with torch._tensor_str.printoptions(precision=2):
        assert str(torch.tensor([1.2345])) == "tensor([1.23])"
    assert str(torch.tensor([1.2345])) == "tensor([1.2345])"


def test_what_is_honest_without_devices():
    assert torch.get_device_module() is torch.cpu
    assert torch.Stream().query() and issubclass(torch.OutOfMemoryError, RuntimeError)
    with pytest.raises(RuntimeError, match="no device"):
        torch.Event("cuda")
    with pytest.raises(RuntimeError, match="CUDA"):
        torch.sparse.to_sparse_semi_structured(torch.ones(4, 4))
    with pytest.raises(RuntimeError, match="ITT"):
        torch.profiler.itt.mark("x")
    with pytest.raises(NotImplementedError, match="stance"):
        torch.compiler.set_stance("no_such_stance")
    assert "inductor" in torch.compiler.list_backends()
    assert "CPU capability" in torch.__config__.show()
    with pytest.raises(AttributeError):
        torch._no_such_module  # noqa: B018


def test_file_check():
    FileCheck().check("a").check_not("x").check_next("b").run("a\nb\nx")
    FileCheck().check_count("ab", 2, exactly=True).run("ab ab")
    FileCheck().check_dag("b").check_dag("a").check("c").run("a b c")
    for bad in (FileCheck().check("z"), FileCheck().check_not("a"), FileCheck().check_same("c")):
        with pytest.raises(RuntimeError, match="Expected to"):
            bad.run("a\nb\nc")


def test_older_comparison():
    with pytest.warns(FutureWarning, match="assert_close"):
        torch.testing.assert_allclose(torch.ones(2), [1.0, 1.00001])
    with pytest.warns(FutureWarning), pytest.raises(AssertionError):
        torch.testing.assert_allclose(torch.ones(2), torch.zeros(2, dtype=torch.float64))


def double(tensor):
    return tensor * 2


def test_pool():
    from flambeau.multiprocessing.pool import Pool

    with Pool(1, context=torch.multiprocessing.get_context("fork")) as pool:
        assert pool.map(double, [torch.ones(2)])[0].tolist() == [2, 2]
