"""Pruning, orthogonal weights, conversion to batch norm of several processes."""

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn.utils import parametrizations, prune


def layer():
    torch.manual_seed(0)
    return nn.Linear(4, 3)


def test_smallest_elements_are_zero_and_learn_nothing():
    m = prune.l1_unstructured(layer(), "weight", amount=5)
    pruned = m.weight_mask == 0
    assert int(pruned.sum()) == 5 and not m.weight[pruned].any()
    assert m.weight_orig[pruned].abs().max() <= m.weight_orig[~pruned].abs().min()
    m(torch.ones(2, 4)).sum().backward()
    assert not m.weight_orig.grad[pruned].any() and m.weight_orig.grad[~pruned].all()


def test_second_method_prunes_what_is_left():
    m = prune.ln_structured(layer(), "weight", amount=1, n=2, dim=0)
    prune.random_unstructured(m, "weight", amount=3)
    assert int((m.weight_mask == 0).sum()) == 7
    (hook,) = m._forward_pre_hooks.values()
    assert isinstance(hook, prune.PruningContainer) and len(hook) == 2
    before = m.weight.clone()
    prune.remove(m, "weight")
    assert sorted(m.state_dict()) == ["bias", "weight"] and torch.equal(m.weight, before)
    with pytest.raises(ValueError, match="has to be pruned"):
        prune.remove(m, "weight")


def test_several_parameters_as_one():
    pairs = [(nn.Linear(4, 4), "weight"), (nn.Linear(4, 4), "weight")]
    prune.global_unstructured(pairs, prune.L1Unstructured, amount=10)
    assert sum(int((m.weight_mask == 0).sum()) for m, _ in pairs) == 10
    with pytest.raises(TypeError, match="unstructured"):
        prune.global_unstructured(pairs, prune.LnStructured, amount=0.4, n=2)


@pytest.mark.parametrize(
    ("amount", "error"), [("a", TypeError), (-1, ValueError), (50, ValueError)]
)
def test_amounts_refused(amount, error):
    m = layer()
    with pytest.raises(error):
        prune.l1_unstructured(m, "weight", amount)
    assert not prune.is_pruned(m) and "weight" in m._parameters


@pytest.mark.parametrize("mapping", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize(("outputs", "inputs"), [(3, 3), (4, 2), (2, 4)])
@pytest.mark.parametrize("trivialization", [True, False])
def test_orthogonal_weights(mapping, outputs, inputs, trivialization):
    m = nn.Linear(inputs, outputs)
    parametrizations.orthogonal(m, orthogonal_map=mapping, use_trivialization=trivialization)
    for _ in range(2):
        w = m.weight if outputs >= inputs else m.weight.T
        torch.testing.assert_close(w.T @ w, torch.eye(min(outputs, inputs)), atol=1e-5, rtol=0)
        m(torch.ones(1, inputs)).sum().backward()
        torch.optim.SGD(m.parameters(), 0.01).step()


def test_conversion_shares_tensors():
    net = nn.Sequential(nn.BatchNorm2d(3), nn.Sequential(nn.BatchNorm1d(2, affine=False)))
    weight = net[0].weight
    assert nn.SyncBatchNorm.convert_sync_batchnorm(net) is net
    assert isinstance(net[1][0], nn.SyncBatchNorm) and net[0].weight is weight
    x = torch.randn(2, 3, 4, 4)
    assert torch.equal(net[0](x), nn.BatchNorm2d(3)(x))


def test_no_devices():
    with pytest.raises(ValueError, match="non cpu"):
        nn.parallel.replicate(nn.Linear(1, 1), ["cpu"])
    with pytest.raises(AssertionError, match="CPU"):
        nn.parallel.gather([torch.ones(2)], 0)
    with pytest.raises(RuntimeError, match="device"):
        nn.parallel.data_parallel(nn.Linear(1, 1), torch.ones(1, 1))
