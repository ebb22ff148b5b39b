"""`AdaptiveLogSoftmaxWithLoss`: one distribution over all classes, whatever cluster they are in."""

import pytest

import flambeau as torch


@pytest.fixture
def layer():
    torch.manual_seed(3)
    return torch.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], 2.0, True)


def test_output_is_the_log_probability_of_the_class(layer):
    x, classes = torch.randn(6, 8), torch.tensor([0, 5, 12, 19, 3, 9])
    whole = layer.log_prob(x)
    torch.testing.assert_close(whole.exp().sum(1), torch.ones(6))
    found = layer(x, classes)
    torch.testing.assert_close(found.output, whole.gather(1, classes.unsqueeze(1)).squeeze(1))
    torch.testing.assert_close(found.loss, -found.output.mean())
    torch.testing.assert_close(layer(x[2], classes[2]).output, found.output[2])
    assert layer.predict(x).tolist() == whole.argmax(1).tolist()


def test_every_used_layer_has_a_gradient(layer):
    layer(torch.randn(3, 8), torch.tensor([1, 5, 15])).loss.backward()
    assert all(bool(p.grad.abs().sum() > 0) for p in layer.parameters())


@pytest.mark.parametrize("cutoffs", [[], [10, 4], [4, 4], [4, 20], [0, 4], [4.5]])
def test_cutoffs_that_do_not_fit(cutoffs):
    with pytest.raises(ValueError, match="cutoffs"):
        torch.nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs)


def test_targets_that_do_not_fit(layer):
    x = torch.randn(2, 8)
    for classes in ([0], [0, 20], [-1, 0], [[0, 1]]):
        with pytest.raises(RuntimeError):
            layer(x, torch.tensor(classes))
