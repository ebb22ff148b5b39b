"""Private names of PyTorch that packages for science import: they do what they do there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import flambeau as torch
from flambeau import nn


def test_a_package_takes_its_containers_through_vmap(monkeypatch):
    from flambeau._C import _functorch as inside
    from flambeau._functorch import vmap as steps

    class Box:
        def __init__(self, tensor):
            self.tensor = tensor

    own = steps._create_batched_inputs, steps._unwrap_batched

    def process(in_dims, args, func):
        return 3, [0] * len(args), list(args), torch.utils._pytree.tree_structure(args)

    def create(dims, flat, level, spec):
        opened = [inside._add_batch_dim(box.tensor, 0, level) for box in flat]
        assert all(map(inside.is_batchedtensor, opened)) and inside.maybe_current_level() == level
        return own[0]([None] * len(flat), [Box(x) for x in opened], level, spec)

    def unwrap(result, out_dims, level, extent, func):
        return Box(inside._remove_batch_dim(result.tensor, level, extent, out_dims))

    monkeypatch.setattr(steps, "_process_batched_inputs", process)
    monkeypatch.setattr(steps, "_create_batched_inputs", create)
    monkeypatch.setattr(steps, "_unwrap_batched", unwrap)
    rows = torch.arange(6.0).view(3, 2)
    result = torch.vmap(lambda box: Box(box.tensor.sum()))(Box(rows))
    assert result.tensor.tolist() == [1, 5, 9]


def test_own_steps_are_vmap():
    from flambeau._functorch import vmap as steps

    assert not steps.are_replaced()
    rows = torch.arange(6.0).view(3, 2)
    same = steps.run(lambda x, k: {"sum": x.sum() + k}, (1, None), 0, "error", (rows, 2.0), {})
    assert same["sum"].tolist() == [8, 11]


def test_functorch_is_a_package_under_the_alias():
    program = (
        "from functorch import grad, make_functional, make_functional_with_buffers, vmap\n"
        "import torch\n"
        "layer = torch.nn.Linear(3, 1)\n"
        "f, p = make_functional(layer)\n"
        "loss = lambda p, x: f(p, x).sum()\n"
        "g = vmap(grad(loss), (None, 0))(p, torch.arange(6.0).view(2, 3))\n"
        "print(g[0].tolist(), p[0] is layer.weight, len(make_functional_with_buffers(layer)))\n"
    )
    words = [sys.executable, "-m", "flambeau", "-c", program]
    output = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert output == "[[[0.0, 1.0, 2.0]], [[3.0, 4.0, 5.0]]] False 3\n"


def test_modules_as_functions_of_their_state():
    from flambeau._functorch import make_functional as functional

    layers = [nn.Linear(2, 3) for _ in range(3)]
    function, params, buffers = functional.combine_state_for_ensemble(layers)
    x = torch.ones(4, 2)
    together = torch.vmap(function, in_dims=(0, 0, None))(params, buffers, x)
    assert together.equal(torch.stack([layer(x) for layer in layers]))
    with pytest.raises(RuntimeError, match="make_functional_with_buffers"):
        functional.make_functional(nn.BatchNorm1d(2))


def test_search_along_a_line():
    from flambeau.optim.lbfgs import _cubic_interpolate, _strong_wolfe

    step = _cubic_interpolate(0.0, torch.tensor(3.0), torch.tensor(-2.0), 1.0, 2.5, 1.0)
    assert round(float(step), 4) == 0.6667

    def value(x, t, d):
        y = (x + t * d).detach().requires_grad_()
        ((y**4).sum() + y.sum()).backward()
        return float((y**4).sum() + y.sum()), y.grad

    x = torch.tensor([1.0, 2.0])
    f, g = value(x, 0.0, torch.zeros(2))
    loss, grad, t, count = _strong_wolfe(value, x, 1.0, -g, f, g, g.dot(-g))
    assert (round(loss, 5), round(float(t), 4), count) == (0.26180, 0.0795, 4)
    assert torch.allclose(grad, torch.tensor([1.8746, 0.0290]), atol=1e-4)


def test_jacobians_by_hand():
    from flambeau._vmap_internals import _vmap
    from flambeau.autograd import forward_ad, functional

    basis = functional._construct_standard_basis_for((torch.ones(2), torch.ones(1)), (2, 1))
    assert [b.tolist() for b in basis] == [[[1, 0], [0, 1], [0, 0]], [[0], [0], [1]]]
    assert functional._tuple_postprocess(((1, 2), (3, 4)), (True, False)) == (1, 3)
    assert functional._as_tuple(torch.ones(1))[0] is False
    assert _vmap(torch.dot)(torch.ones(2, 3), torch.ones(2, 3)).tolist() == [3, 3]
    assert forward_ad._current_level == -1
    with forward_ad.dual_level():
        assert forward_ad._current_level == 0


def test_contexts_that_decorate():
    from flambeau.utils._contextlib import _DecoratorContextManager

    depth = [0]

    class Deeper(_DecoratorContextManager):
        def __enter__(self):
            depth[0] += 1

        def __exit__(self, *exception):
            depth[0] -= 1

    @Deeper()
    def steps():
        yield depth[0]
        yield depth[0]

    assert [(inside, depth[0]) for inside in steps()] == [(1, 0), (1, 0)]


def test_small_names():
    from flambeau.distributed._composable.fsdp import FSDPModule
    from flambeau.distributed._tensor.experimental import implicit_replication
    from flambeau.distributed.elastic.multiprocessing.errors import record
    from flambeau.distributions.multivariate_normal import _precision_to_scale_tril
    from flambeau.distributions.transforms import _clipped_sigmoid
    from flambeau.nn.utils._named_member_accessor import swap_tensor
    from flambeau.utils.data._utils.worker import _generate_state

    layer = nn.Linear(2, 2)
    weight, other = layer.weight, torch.ones(2, 2)
    assert swap_tensor(layer, "weight", other) is weight and layer.weight is other
    assert 0 < float(_clipped_sigmoid(torch.tensor(-1e3))) < 1e-37
    assert _precision_to_scale_tril(4 * torch.eye(2)).tolist() == [[0.5, 0], [0, 0.5]]
    pytest.importorskip("numpy")
    assert _generate_state(123, 1)[:2] == [3294636787, 2680389647]
    x = torch.arange(3.0)
    assert torch._C._is_alias_of(x, x[1:]) and not torch._C._is_alias_of(x, x.clone())
    assert torch._cast_Long(torch.tensor(1.7)).dtype == torch.int64
    assert torch.distributed.Backend.GLOO == "gloo" and not isinstance(layer, FSDPModule)
    assert record(test_small_names) is test_small_names
    assert not torch.distributed.autograd.is_available()
    assert torch.distributed.rpc.api.UNSET_RPC_TIMEOUT == -1
    with implicit_replication(), pytest.raises(RuntimeError, match="back end"):
        torch.distributed.nn.all_reduce(x)


def test_marks_for_a_profiler_of_gpus_wait_for_the_call():
    @torch.cuda.nvtx.range("step")
    def step():
        return 1

    assert torch.cuda._initialized is False
    with pytest.raises(RuntimeError, match="NVTX"):
        step()
