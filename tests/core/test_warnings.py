"""Warnings of operators: texts that programs know, at the user's line."""

import warnings

import pytest

import flambeau as torch
import flambeau.nn.functional as F
from flambeau.runtime import plan_cache_clear


def told(function):
    plan_cache_clear()  # a class of calls that is known already is not traced, and silent
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            function()
    finally:
        torch.set_warn_always(False)
    return seen


CALLS = {
    "Using a target size": lambda: F.mse_loss(torch.zeros(3, 1), torch.zeros(3)),
    "Using a target size (torch": lambda: F.l1_loss(torch.zeros(3, 1), torch.zeros(3)),
    "std(): degrees of freedom is <= 0": lambda: torch.std(torch.ones(1)),
    "reduction: 'mean' divides": lambda: F.kl_div(torch.zeros(2, 3), torch.ones(2, 3)),
    "indexing with dtype torch.uint8": lambda: torch.ones(2)[torch.ones(2, dtype=torch.uint8)],
    "Casting complex values to real": lambda: torch.ones(1, dtype=torch.complex64).to(torch.float),
    "torch.meshgrid: in an upcoming": lambda: torch.meshgrid(torch.ones(2), torch.ones(3)),
    "size_average and reduce args": lambda: F.mse_loss(
        torch.ones(7), torch.ones(7), size_average=True
    ),
    "The use of `x.T` on tensors": lambda: torch.ones(1, 3, 2).T,
    "torch.cholesky is deprecated": lambda: torch.cholesky(torch.eye(2)),
    "torch.chain_matmul is deprecated": lambda: torch.chain_matmul(torch.eye(2), torch.eye(2)),
    "'pin_memory' argument is set": lambda: iter(torch.utils.data.DataLoader([1], pin_memory=True)),
    "torch.qr is deprecated": lambda: torch.qr(torch.eye(2)),
    "torch.lu is deprecated": lambda: torch.lu(torch.eye(2)),
    "torch.triangular_solve is deprecated": lambda: torch.triangular_solve(
        torch.ones(2, 1), torch.eye(2)
    ),
    "Using torch.cross without": lambda: torch.cross(torch.ones(3), torch.ones(3)),
    "Casting complex values to real dis": lambda: torch.ones(1, dtype=torch.complex64).float(),
    "Converting a tensor with requires_grad": lambda: float(torch.ones(1, requires_grad=True)),
    "Using a non-tuple sequence": lambda: torch.ones(3, 3)[[slice(0, 1), 0]],
    "Using padding='same' with even": lambda: F.conv1d(
        torch.ones(1, 1, 5), torch.ones(1, 1, 4), padding="same"
    ),
    "The reduce argument of torch.scatter": lambda: torch.zeros(3).scatter(
        0, torch.tensor([0]), torch.ones(1), reduce="add"
    ),
    "torch.searchsorted(): boundary": lambda: torch.searchsorted(
        torch.ones(2, 3).t(), torch.ones(3, 1)
    ),
    "[affine_grid] align_corners": lambda: F.affine_grid(torch.ones(1, 2, 3), (1, 1, 2, 2)),
    "Sparse invariant checks": lambda: torch.sparse_coo_tensor([[0]], [1.0]),
    "The PyTorch API of nested": lambda: torch.nested.nested_tensor([torch.ones(1)]),
    "enable_nested_tensor is True": lambda: torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(4, 2), 1
    ),
}


@pytest.mark.parametrize("text", list(CALLS))
def test_texts(text):
    seen = told(CALLS[text])
    assert any(str(w.message).startswith(text) for w in seen)
    assert all(w.filename == __file__ for w in seen)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
def test_sizes_of_targets_are_numbers(name):
    def call(*shape):
        with pytest.raises(RuntimeError, match="must match the size"):
            getattr(F, name)(torch.zeros(6, 4), torch.zeros(shape))

    for shape in ((6, 3), (5, 6, 3)):
        [warning] = told(lambda shape=shape: call(*shape))
        size = f"({torch.Size(shape)}) that is different to the input size (torch.Size([6, 4]))"
        assert size in str(warning.message)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.kl_div(x, x),
        lambda x: F.mse_loss(x, x, size_average=True),
        lambda x: F.l1_loss(x, x, reduce=False),
    ],
)
def test_one_warning_where_sizes_prove_equal(call):
    # Such a definition runs twice: the first run finds which sizes are one symbol.
    assert len(told(lambda: call(torch.ones(3, 1)))) == 1


def test_fitting_sizes_are_silent():
    calls = [
        lambda: F.mse_loss(torch.zeros(5, 2), torch.zeros(5, 2)),
        lambda: torch.std(torch.ones(3)),
        lambda: torch.ones(3, 2).T,
    ]
    assert not [w for call in calls for w in told(call)]


def test_keywords_of_modules_and_gradients_by_name():
    x = torch.ones(2, 4, requires_grad=True)
    assert torch.nn.RMSNorm(4)(x=x).shape == (2, 4)
    layer = torch.nn.AdaptiveLogSoftmaxWithLoss(4, 5, [2])
    assert layer(input_=x, target_=torch.tensor([0, 4])).output.shape == (2,)
    grads = torch.autograd.grad((x * 3).sum(), {"x": x})
    assert list(grads) == ["x"] and grads["x"].tolist() == [[3.0] * 4] * 2


def test_numbers_without_gradients_are_silent():
    x = torch.ones(1, requires_grad=True)

    def convert():
        with torch.no_grad():
            float(x)
        float(x.detach()), int(x), x.item()

    assert not told(convert)


def test_repeated_warnings_count():
    """A call whose warning was told before is not stored either: a later process tells it."""
    from flambeau.core import warned

    before = warned.count()
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warned.warn_once("test_repeated_warnings_count")
    assert warned.count() == before + 2
