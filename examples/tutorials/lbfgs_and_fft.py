"""Science: a signal's frequencies by FFT, its parameters by LBFGS, derivatives by transforms."""

from __future__ import annotations

import json
import math

import flambeau as torch

COUNT = 128


def signal(parameters: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    """A damped wave: amplitude, frequency, phase and decay."""
    amplitude, frequency, phase, decay = parameters.unbind()
    return amplitude * torch.sin(2 * math.pi * frequency * time + phase) * torch.exp(-decay * time)


def dominant(values: torch.Tensor, time: torch.Tensor) -> float:
    """The frequency of the largest coefficient."""
    spectrum = torch.fft.rfft(values * torch.hann_window(COUNT, dtype=values.dtype))
    step = float(time[1] - time[0])
    return float(torch.fft.rfftfreq(COUNT, d=step)[spectrum.abs().argmax()])


def fit(start: torch.Tensor, values: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    """Parameters of least squares, by LBFGS with a line search."""
    parameters = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([parameters], max_iter=40, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.mean((signal(parameters, time) - values) ** 2)
        loss.backward()
        return loss

    optimizer.step(closure)
    return parameters.detach()


def heat(values: torch.Tensor, steps: int) -> torch.Tensor:
    """The heat equation on a circle, solved in the space of frequencies."""
    k = 2 * math.pi * torch.fft.fftfreq(COUNT, d=1 / COUNT, dtype=values.dtype)
    spectrum = torch.fft.fft(values)
    for _ in range(steps):
        spectrum = spectrum * torch.exp(-1e-5 * k.square())
    return torch.fft.ifft(spectrum).real


def main() -> dict[str, object]:
    """Fitted parameters, conserved quantities, covariances, an integral."""
    generator = torch.Generator().manual_seed(12)
    time = torch.linspace(0, 2, COUNT, dtype=torch.float64)
    truth = torch.tensor([1.5, 4.0, 0.5, 0.7], dtype=torch.float64)
    values = signal(truth, time) + 0.01 * torch.randn(
        COUNT, generator=generator, dtype=torch.float64
    )
    frequency = dominant(values, time)
    start = torch.tensor([1.0, frequency, 0.0, 0.5], dtype=torch.float64)
    parameters = fit(start, values, time)
    jacobian = torch.func.jacrev(signal)(parameters, time)
    covariance = torch.linalg.inv(jacobian.T @ jacobian) * 1e-4
    hessian = torch.autograd.functional.hessian(
        lambda p: torch.mean((signal(p, time) - values) ** 2), parameters
    )
    assert isinstance(hessian, torch.Tensor)
    curves = torch.func.vmap(signal, in_dims=(0, None))(torch.stack([truth, parameters]), time)
    cooled = heat(values, 20)
    return {
        "frequency": frequency,
        "parameters": parameters.tolist(),
        "errors": covariance.diagonal().sqrt().tolist(),
        "curvature": torch.linalg.eigvalsh(hessian).tolist(),
        "apart": (curves[0] - curves[1]).abs().max().item(),
        "heat": [cooled.sum().item(), values.sum().item(), cooled.std().item()],
        "energy": torch.trapezoid(curves[0] ** 2, time).item(),
    }


if __name__ == "__main__":
    print(json.dumps(main()))
