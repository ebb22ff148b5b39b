"""The models of examples/models against themselves under PyTorch: one source, the same weights.

Outputs, losses and gradients agree within the tolerance of float32; so do running statistics. With
equal seeds even the dropout of both packages does.
"""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")

from examples.models import CLASSES, build  # noqa: E402

LIBRARIES = {"flambeau": flambeau, "torch": torch}
BATCH = 4


def twins(name):
    """The model in both packages with PyTorch's weights, and a batch for each."""
    torch.manual_seed(3)
    theirs = build(name, "torch")
    ours = build(name, "flambeau")
    state = {key: flambeau.from_numpy(t.numpy().copy()) for key, t in theirs.state_dict().items()}
    ours.load_state_dict(state)
    batch = theirs.example(BATCH)
    copied = tuple(flambeau.from_numpy(t.contiguous().numpy().copy()) for t in batch)
    return {"flambeau": (ours, copied), "torch": (theirs, batch)}


def arrays(tensors):
    return {name: tensor.detach().numpy() for name, tensor in tensors}


def assert_close(ours, theirs, tolerance):
    """Every difference is small against the largest element of its tensor."""
    assert list(ours) == list(theirs)
    for name, expected in theirs.items():
        assert ours[name].dtype == expected.dtype and ours[name].shape == expected.shape, name
        scale = max(float(np.abs(expected).max()), 1e-6)
        np.testing.assert_allclose(
            ours[name] / scale, expected / scale, rtol=0, atol=tolerance, err_msg=name
        )


@pytest.mark.parametrize("name", CLASSES)
def test_state_has_the_names_of_pytorch(name):
    ours, theirs = (build(name, library).state_dict() for library in LIBRARIES)
    assert {key: tuple(t.shape) for key, t in ours.items()} == {
        key: tuple(t.shape) for key, t in theirs.items()
    }


@pytest.mark.parametrize("name", CLASSES)
def test_equal_seeds_give_equal_weights_and_batches(name):
    found = []
    for label, library in LIBRARIES.items():
        library.manual_seed(11)
        model = build(name, label)
        batch = enumerate(model.example(BATCH))
        found.append(arrays(model.state_dict().items()) | arrays((str(i), t) for i, t in batch))
    ours, theirs = found
    for key, expected in theirs.items():
        np.testing.assert_array_equal(ours[key], expected, err_msg=key)


@pytest.mark.parametrize("name", CLASSES)
def test_outputs(name):
    results = []
    for label, (model, batch) in twins(name).items():
        model.eval()
        with LIBRARIES[label].no_grad():
            output = model(batch[0])
            loss = model.loss(*batch)
        logits, *state = output if isinstance(output, tuple) else (output,)
        tensors = [logits, loss, *(tensor for pair in state for tensor in pair)]
        results.append(arrays((str(index), tensor) for index, tensor in enumerate(tensors)))
    assert_close(*results, 1e-5)


@pytest.mark.parametrize("name", CLASSES)
def test_training_step(name):
    losses, gradients, buffers = [], [], []
    for label, (model, batch) in twins(name).items():
        LIBRARIES[label].manual_seed(5)  # dropout
        loss = model.loss(*batch)
        loss.backward()
        losses.append({"loss": loss.detach().numpy()})
        gradients.append(arrays((key, p.grad) for key, p in model.named_parameters()))
        buffers.append(arrays(model.named_buffers()))
    assert_close(*losses, 1e-5)
    assert_close(*gradients, 2e-4)
    assert_close(*buffers, 1e-5)
