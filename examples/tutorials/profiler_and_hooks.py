"""Looking inside: hooks of modules and tensors, checkpointed layers, the profiler."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import flambeau as torch

nn = torch.nn
checkpoint = torch.utils.checkpoint.checkpoint


class Deep(nn.Module):
    """Residual layers, recomputed in the backward pass."""

    def __init__(self, width: int, depth: int, recompute: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.recompute = recompute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, width) to the same shape."""
        for layer in self.layers:
            if self.recompute:
                x = x + checkpoint(self.part, layer, x, use_reentrant=False)
            else:
                x = x + self.part(layer, x)
        return x

    @staticmethod
    def part(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        """A layer with its activation and dropout, whose draws are repeated."""
        return nn.functional.dropout(torch.tanh(layer(x)), 0.2)


def watch(model: nn.Module) -> tuple[dict[str, float], Callable[[], None]]:
    """Norms of what every linear layer gives, and of its gradients; how to stop."""
    norms: dict[str, float] = {}
    handles: list[torch.utils.hooks.RemovableHandle] = []
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear):

            def forward(module: nn.Module, inputs: Any, output: Any, name: str = name) -> None:
                norms[f"{name} forward"] = output.norm().item()

            def backward(module: nn.Module, inputs: Any, outputs: Any, name: str = name) -> None:
                norms[f"{name} backward"] = outputs[0].norm().item()

            handles.append(layer.register_forward_hook(forward))
            handles.append(layer.register_full_backward_hook(backward))

    def stop() -> None:
        for handle in handles:
            handle.remove()

    return norms, stop


def gradients(recompute: bool) -> tuple[list[float], dict[str, float]]:
    """Norms of the parameters' gradients, and what hooks saw."""
    torch.manual_seed(13)
    model = Deep(8, 3, recompute)
    norms, stop = watch(model)
    x = torch.randn(4, 8, requires_grad=True)
    handle = x.register_hook(lambda grad: grad * 2)
    model(x).pow(2).mean().backward()
    handle.remove()
    stop()
    assert x.grad is not None
    of_weights = [p.grad.norm().item() for p in model.parameters() if p.grad is not None]
    return [*of_weights, x.grad.norm().item()], norms


def main() -> dict[str, object]:
    """Equal gradients with and without recomputation; what the profiler saw."""
    plain, norms = gradients(recompute=False)
    again, _ = gradients(recompute=True)
    model = Deep(8, 2, recompute=False).eval()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        with torch.profiler.record_function("inference"), torch.no_grad():
            model(torch.ones(2, 8))
    names = {event.key for event in profile.key_averages()}
    table = profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=5)
    return {
        "gradients": plain,
        "same": plain == again,
        "norms": norms,
        "events": sorted(names & {"inference", "aten::linear", "aten::tanh"}),
        "table": "Self CPU" in table,
    }


if __name__ == "__main__":
    print(json.dumps(main()))
