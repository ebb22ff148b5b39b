"""The calls that a new process usually makes first: operators on their samples, steps of training.

The package ships plans for it (`tools/ship_plans.py`). Everything is called forward and backward;
the common operators on all their samples, the rest, and other dtypes, on a few contiguous ones.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from flambeau.ir.dtypes import PUBLIC as TORCH_DTYPE
from tools.workload_idioms import STEPS as IDIOMS
from tools.workload_models import STEPS as MODELS
from tools.workload_models import train

FIRST = "f32"
RARE_SAMPLES = 2  # of an operator that is not on the short list, or in another dtype
# Operators whose kernels are wanted for other dtypes too; floating ones besides f32 for a few.
OTHERS = ("i64", "bool", "bf16", "f64")
SHORT_LIST = frozenset(
    "add sub mul div neg abs eq ne lt le gt ge where sum mean amax amin argmax argmin any all "
    "clone copy_ zero_ fill_ to cat stack softmax nn.functional.softmax relu exp log sqrt pow "
    "clamp maximum minimum index_select embedding nn.functional.embedding nn.functional.gelu "
    "nn.functional.layer_norm nn.functional.silu arange masked_fill full zeros ones".split()
)


def calls() -> list[tuple[str, str]]:
    """(operator, dtype) of what is called, the most useful first."""
    from flambeau.language.definition import REGISTRY

    sampled = [name for name, op in REGISTRY.items() if _samples(op) is not None]
    first = [(name, FIRST) for name in sampled]
    others = [(name, d) for d in OTHERS for name in sampled if name in SHORT_LIST]
    first.sort(key=lambda call: call[0] not in SHORT_LIST)
    common = sum(name in SHORT_LIST for name in sampled)
    steps = [(name, FIRST) for name in STEPS]
    return [*first[:common], *steps, *others, *first[common:]]


def _samples(definition: Any) -> Any:
    for overload in definition.overloads:
        if overload.options.samples is not None:
            return overload.options
    return None


def _tensor(spec: Any, dtype: str) -> Any:
    """A tensor as the sample describes it, without running a kernel."""
    flambeau: Any = importlib.import_module("flambeau")
    dtype = spec.dtype or dtype
    kind = getattr(flambeau, TORCH_DTYPE[dtype])
    grad = spec.grad and dtype[0] in "fb" and dtype != "bool"
    if spec.values is not None:
        return flambeau.tensor(spec.values, dtype=kind, requires_grad=grad)
    shape = list(spec.shape)
    if spec.layout == "transposed" and len(shape) > 1:
        shape[-1], shape[-2] = shape[-2], shape[-1]
        tensor = flambeau.empty(*shape, dtype=kind).transpose(-1, -2)
    elif spec.layout == "sliced" and shape:
        shape[-1] *= 2
        tensor = flambeau.empty(*shape, dtype=kind)[..., ::2]
    elif spec.layout == "expanded" and shape:
        tensor = flambeau.empty(1, *shape[1:], dtype=kind).expand(*shape)
    else:
        tensor = flambeau.empty(shape, dtype=kind)
    return tensor.requires_grad_() if grad else tensor


def _argument(value: Any, dtype: str) -> Any:
    from flambeau.language.samples import TensorSpec

    if isinstance(value, TensorSpec):
        return _tensor(value, dtype)
    if isinstance(value, (list, tuple)):
        return type(value)(_argument(item, dtype) for item in value)
    return value


def _chosen_samples(name: str, dtype: str) -> Iterator[Any]:
    """All samples of a common operator in float32; a few contiguous ones of anything else."""
    from flambeau.language.definition import REGISTRY

    samples = _samples(REGISTRY[name]).samples()
    if name in SHORT_LIST and dtype == FIRST:
        return iter(samples)
    return islice((sample for sample in samples if _plain(sample.args)), RARE_SAMPLES)


def _plain(values: Sequence[Any]) -> bool:
    return all(getattr(value, "layout", "contiguous") == "contiguous" for value in values)


def call(name: str, dtype: str) -> None:
    """Runs one operator on its samples, and what it recorded backward; or a step of training."""
    from flambeau.language.definition import REGISTRY

    if name in STEPS:
        with suppress(Exception):
            STEPS[name](importlib.import_module("flambeau"))
        return
    definition = REGISTRY[name]
    for sample in _chosen_samples(name, dtype):
        with suppress(Exception):
            args = [_argument(value, dtype) for value in sample.args]
            kwargs = {key: _argument(value, dtype) for key, value in sample.kwargs.items()}
            result = definition.native(*args, **kwargs)
            for output in result if isinstance(result, (list, tuple)) else [result]:
                if getattr(output, "requires_grad", False):
                    output.backward(output.detach(), retain_graph=True)


def _regression(torch: Any) -> None:
    nn = torch.nn
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
    x, y = torch.randn(16, 4), torch.randn(16, 2)
    train(torch, model, lambda: nn.functional.mse_loss(model(x), y))


def _classifier(torch: Any) -> None:
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.1), nn.Linear(8 * 16, 10),
    )  # fmt: skip
    x, y = torch.randn(4, 3, 8, 8), torch.zeros(4, dtype=torch.int64)
    train(torch, model, lambda: nn.functional.cross_entropy(model(x), y))
    with suppress(Exception):
        model.eval()
        with torch.no_grad():
            (model(x).argmax(-1) == y).float().mean().item()


def _transformer(torch: Any) -> None:
    nn = torch.nn
    functional = nn.functional
    embedding, norm, mix = nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 24, bias=False)
    feed, head = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)), nn.Linear(8, 11)
    model = nn.ModuleList([embedding, norm, mix, feed, head])
    tokens = torch.zeros(2, 6, dtype=torch.int64)

    def loss() -> Any:
        x = embedding(tokens) + embedding(torch.arange(6))
        q, k, v = mix(norm(x)).split(8, dim=-1)
        q, k, v = (t.view(2, 6, 2, 4).transpose(1, 2) for t in (q, k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + y.transpose(1, 2).contiguous().view(2, 6, 8)
        x = x + feed(norm(x))
        return functional.cross_entropy(head(x).view(-1, 11), tokens.view(-1))

    train(torch, model, loss)


STEPS: dict[str, Callable[[Any], None]] = {
    "step: regression": _regression,
    "step: classifier": _classifier,
    "step: transformer": _transformer,
    **MODELS,
    **IDIOMS,
}
