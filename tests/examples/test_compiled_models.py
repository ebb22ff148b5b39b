"""The models of examples/models, small: compiled they give eager mode's bits, on any thread count.

Forward at evaluation; in training the loss, every gradient and every running statistic of a step,
with dropout as each model has it.
"""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from examples.models import CLASSES, build

BATCH = 3
Bits = dict[str, list[Any]]


def bits(tensor: torch.Tensor) -> list[Any]:
    """Elements without rounding, zeros with their signs."""
    flat = tensor.detach().contiguous().view(-1)
    return (flat.view(torch.int32) if flat.dtype == torch.float32 else flat).tolist()


def evaluated(name: str, compiled: bool) -> Bits:
    """Outputs without gradients."""
    model = build(name).eval()
    inputs, _ = model.example(BATCH)
    call = torch.compile(model) if compiled else model
    with torch.no_grad():
        outputs = call(inputs)
    logits, *state = outputs if isinstance(outputs, tuple) else (outputs,)
    tensors = [logits, *(tensor for pair in state for tensor in pair)]
    return {str(index): bits(tensor) for index, tensor in enumerate(tensors)}


def trained(name: str, compiled: bool) -> Bits:
    """Loss, gradients and buffers after forward and backward."""
    model = build(name)

    def step(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss = model.loss(inputs, targets)
        loss.backward()
        return loss.detach()

    loss = (torch.compile(step) if compiled else step)(*model.example(BATCH))
    found = {"loss": bits(loss)}
    found |= {f"gradient of {key}": bits(p.grad) for key, p in model.named_parameters()}
    return found | {f"buffer {key}": bits(buffer) for key, buffer in model.named_buffers()}


@pytest.mark.parametrize("kind", [evaluated, trained])
@pytest.mark.parametrize("name", CLASSES)
def test_compiled_is_eager_on_any_number_of_threads(name: str, kind: Any) -> None:
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for compiled in (False, True):
            torch.manual_seed(7)
            results.append(kind(name, compiled))
    for result in results[1:]:
        differing = [key for key, value in results[0].items() if result[key] != value]
        assert not differing, f"{len(differing)} of {len(result)}: {differing[:5]}"


@pytest.mark.parametrize("name", CLASSES)
def test_a_model_learns_its_batch(name: str) -> None:
    model = build(name)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = model.example(BATCH)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model.loss(*batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [step().item() for _ in range(6)]
    assert losses[-1] < losses[0]
