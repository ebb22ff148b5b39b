"""Losses with PyTorch's inner signatures: the reduction is a number, 0 none, 1 mean, 2 sum.

Each is the loss of the same name in `nn.functional`; a number that is none of these reduces
nothing, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flambeau.language.definition import REGISTRY, op
from flambeau.language.samples import Sample, T, sample
from flambeau.ops.linear import distance  # noqa: F401 - defines losses
from flambeau.ops.neural.loss import reduction_named

_SIGNS = T(3, values=[1.0, -1.0, 1.0], grad=False)
_TARGET = T(2, 3, low=0.1, high=0.9)
# name: signature; the arguments of a sample before the reduction, and of one after it; the
# docstring's example.
_LOSSES: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], tuple[str, str]]] = {
    "binary_cross_entropy_with_logits": (
        "Tensor self, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, int reduction=1",
        (T(2, 3), _TARGET, T(3, low=0.5), T(3, low=0.5)),
        {},
        ("torch.zeros(2), torch.tensor([0.0, 1.0]), reduction=2", "1.3863"),
    ),
    "cosine_embedding_loss": (
        "Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=1",
        (T(3, 5), T(3, 5), _SIGNS, 0.5),
        {},
        ("torch.ones(1, 2), torch.ones(1, 2), torch.tensor([-1.0])", "1."),
    ),
    "hinge_embedding_loss": (
        "Tensor self, Tensor target, float margin=1.0, int reduction=1",
        (T(3), _SIGNS, 0.5),
        {},
        ("torch.tensor([0.5, 0.5]), torch.tensor([1.0, -1.0]), reduction=2", "1."),
    ),
    "kl_div": (
        "Tensor self, Tensor target, int reduction=1, *, bool log_target=False",
        (T(2, 3), _TARGET),
        {"log_target": True},
        ("torch.zeros(2), torch.ones(2), 2", "0."),
    ),
    "margin_ranking_loss": (
        "Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=1",
        (T(3), T(3), _SIGNS, 0.5),
        {},
        ("torch.tensor([1.0]), torch.tensor([3.0]), torch.tensor([1.0])", "2."),
    ),
    "poisson_nll_loss": (
        "Tensor input, Tensor target, bool log_input, bool full, float eps, int reduction",
        (T(5), T(5, low=0.0, high=4.0), True, True, 1e-8),
        {},
        ("torch.zeros(2), torch.ones(2), True, False, 1e-8, 1", "1."),
    ),
    "triplet_margin_loss": (
        "Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2, "
        "float eps=1e-06, bool swap=False, int reduction=1",
        (T(3, 5), T(3, 5), T(3, 5), 0.5, 1.0, 1e-6, True),
        {},
        ("torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 2)", "1."),
    ),
}


def _samples(arguments: tuple[Any, ...], named: dict[str, Any]) -> Callable[[], Iterator[Sample]]:
    def make() -> Iterator[Sample]:
        for number in (1, 2, 0):
            yield sample(*arguments, number)
        yield sample(*arguments, 2, **named)

    return make


def _define(name: str) -> None:
    signature, samples_of_name, named, (call, value) = _LOSSES[name]
    source = REGISTRY[f"nn.functional.{name}"]
    names = [part.split("=")[0].split()[-1] for part in signature.replace("*, ", "").split(", ")]
    others = {"self": "input"}
    unsaved = source.overloads[0].options.unsaved

    def body(*arguments: Any) -> Any:
        options = {others.get(n, n): v for n, v in zip(names, arguments, strict=True)}
        options["reduction"] = reduction_named(options["reduction"])
        return source(**options)

    body.__name__ = name
    body.__doc__ = f"""`nn.functional.{name}`, its reduction by number: 0 none, 1 mean, 2 sum.

    Raises:
        RuntimeError: where the function of `nn.functional` raises it.

    Example:
        >>> torch.{name}({call})
        tensor({value})
    """
    op(
        f"{name}({signature}) -> Tensor",
        where="torch",
        autocast=source.options.autocast,
        unsaved=tuple(n for n in names if others.get(n, n) in unsaved),
        samples=_samples(samples_of_name, named),
    )(body)


for _name in _LOSSES:
    _define(_name)
