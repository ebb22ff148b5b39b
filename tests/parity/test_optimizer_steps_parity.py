"""Every optimizer beside PyTorch over 50 steps: parameters, state, state dicts, refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import flambeau

COMMON: list[dict[str, Any]] = [
    {}, {"weight_decay": 0.05}, {"maximize": True, "weight_decay": 0.01}, {"foreach": True},
    {"lr": 0.05, "tensor": True},
]  # fmt: skip
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "Adadelta": [*COMMON, {"rho": 0.5, "eps": 1e-3, "lr": 0.5}],
    "Adamax": [*COMMON, {"betas": (0.5, 0.9), "eps": 1e-2}],
    "NAdam": [
        *COMMON, {"decoupled_weight_decay": True, "weight_decay": 0.1},
        {"momentum_decay": 0.1, "betas": (0.5, 0.9)},
    ],
    "RAdam": [
        *COMMON, {"decoupled_weight_decay": True, "weight_decay": 0.1}, {"betas": (0.5, 0.9)},
    ],
    "ASGD": [*COMMON[:3], COMMON[4], {"t0": 10, "lambd": 0.01, "alpha": 0.5}],
    "RMSprop": [
        *COMMON, {"momentum": 0.9}, {"centered": True, "alpha": 0.9},
        {"centered": True, "momentum": 0.5, "weight_decay": 0.01},
    ],
    "Rprop": [
        {}, {"maximize": True}, {"foreach": True}, {"lr": 0.05, "tensor": True},
        {"etas": (0.3, 1.5), "step_sizes": (0.002, 0.05)},
    ],
    "Adafactor": [
        *COMMON, {"eps": (1e-3, 0.1), "d": 1.5, "beta2_decay": -0.5},
    ],
    "Adam": [*COMMON[:3], {"amsgrad": True}, {"fused": True}, {"decoupled_weight_decay": True}],
    "AdamW": [*COMMON[:3], {"amsgrad": True, "betas": (0.5, 0.9)}, {"fused": True}],
    "SGD": [*COMMON, {"momentum": 0.9, "nesterov": True}, {"fused": True}],
    "Adagrad": [*COMMON, {"lr_decay": 0.1, "initial_accumulator_value": 0.5}],
}  # fmt: skip
CASES = [(name, options) for name, entries in OPTIONS.items() for options in entries]
LEAST_LR = {"SGD": 0.01, "Adadelta": 1.0}


def _grads(dtype: Any) -> list[list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    shapes = [(4, 3), (3,), ()]
    grads = [
        [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
        for _ in range(50)
    ]
    return [[g.to(dtype) for g in step] for step in grads]


def _trained(module: Any, name: str, given: dict[str, Any], dtype: str) -> Any:
    """The optimizer and its parameters after 50 steps with the same gradients."""
    options = dict(given)
    if options.pop("tensor", False):
        options["lr"] = module.tensor(options["lr"], dtype=module.float64)
    steps = [
        [module.tensor(g.tolist(), dtype=getattr(module, dtype)) for g in grads]
        for grads in _grads(getattr(torch, dtype))
    ]
    parameters = [(g * 0.5 + 1).requires_grad_() for g in steps[0]]
    optimizer = getattr(module.optim, name)(parameters, **options)
    for grads in steps:
        for parameter, grad in zip(parameters, grads, strict=True):
            parameter.grad = grad
        optimizer.step()
    return optimizer, parameters


def _flat(state: dict[Any, Any]) -> dict[str, Any]:
    entries = {}
    for number, values in state.items():
        for name, value in values.items():
            entries[f"{number}.{name}"] = value
    return entries


def _close(ours: Any, theirs: Any, dtype: str) -> None:
    exact = dtype == "float64" and str(theirs.dtype) == "torch.float64"
    assert str(ours.dtype).split(".")[-1] == str(theirs.dtype).split(".")[-1]
    scale = max(1e-3, theirs.abs().max().item() if theirs.numel() else 0.0)
    rtol = 1e-12 if exact else 2e-5
    torch.testing.assert_close(
        torch.tensor(ours.tolist(), dtype=torch.float64).reshape(theirs.shape),
        theirs.detach().double(), rtol=rtol, atol=rtol * scale,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_fifty_steps(name: str, options: dict[str, Any], dtype: str) -> None:
    optimizers, parameters = zip(
        *(_trained(module, name, options, dtype) for module in (flambeau, torch)), strict=True
    )
    for ours, theirs in zip(*parameters, strict=True):
        _close(ours, theirs, dtype)
    states = [o.state_dict() for o in optimizers]
    ours, theirs = (_flat(s["state"]) for s in states)
    assert list(ours) == list(theirs)
    for key, value in theirs.items():
        if isinstance(value, torch.Tensor):
            _close(ours[key], value, dtype)
        else:
            assert ours[key] == value
    groups = [s["param_groups"][0] for s in states]
    assert list(groups[0]) == list(groups[1])
    for key in groups[0].keys() - {"lr"}:
        assert groups[0][key] == groups[1][key]


@pytest.mark.parametrize("name", ["Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "RMSprop"])
def test_state_dicts_are_exchanged(name: str) -> None:
    """A state of PyTorch continues as it would there."""
    theirs, their_parameters = _trained(torch, name, {}, "float64")
    ours, parameters = _trained(flambeau, name, {}, "float64")
    saved = theirs.state_dict()
    saved["state"] = {
        number: {k: flambeau.tensor(v.tolist(), dtype=getattr(flambeau, str(v.dtype)[6:]))
                 for k, v in values.items()}
        for number, values in saved["state"].items()
    }  # fmt: skip
    fresh = getattr(flambeau.optim, name)(parameters)
    fresh.load_state_dict(saved)
    for optimizer in (fresh, theirs):
        optimizer.step()
    for mine, other in zip(parameters, their_parameters, strict=True):
        _close(mine, other, "float64")


@pytest.mark.parametrize(
    "options", [{}, {"nesterov": False}, {"adjust_lr_fn": "match_rms_adamw", "weight_decay": 0.0}]
)
def test_muon(options: dict[str, Any]) -> None:
    """The iteration is in bfloat16 in both."""
    generator = torch.Generator().manual_seed(5)
    grads = [torch.randn(4, 3, generator=generator) for _ in range(50)]
    results = []
    for module in (flambeau, torch):
        p = module.ones(4, 3, requires_grad=True)
        optimizer = module.optim.Muon([p], **options)
        for grad in grads:
            p.grad = module.tensor(grad.tolist())
            optimizer.step()
        results.append((torch.tensor(p.tolist()), list(optimizer.param_groups[0])))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=0, atol=5e-5)
    assert results[0][1] == results[1][1]


LBFGS_RUNS: list[dict[str, Any]] = [
    {"lr": 1e-3}, {"line_search_fn": "strong_wolfe"}, {"lr": 1e-4, "history_size": 2},
    {"line_search_fn": "strong_wolfe", "history_size": 3, "max_iter": 5, "lr": 0.5},
    {"line_search_fn": "strong_wolfe", "max_iter": 50, "max_eval": 12, "tolerance_grad": 1e-3},
]  # fmt: skip


@pytest.mark.parametrize("options", LBFGS_RUNS)
def test_lbfgs(options: dict[str, Any]) -> None:
    """The same evaluations, iterations and numbers on Rosenbrock's function."""
    results = []
    for module in (flambeau, torch):
        p = module.tensor([-1.2, 1.0, 0.5, 2.0], dtype=module.float64, requires_grad=True)
        optimizer = module.optim.LBFGS([p], **options)
        losses = []

        def closure(module: Any = module, p: Any = p, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = (100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2).sum()
            loss.backward()
            return loss

        losses = [optimizer.step(closure).item() for _ in range(6)]
        state = optimizer.state[p]
        counts = [state[k] for k in ("func_evals", "n_iter")] + [len(state["old_dirs"])]
        results.append((counts, list(state), list(optimizer.param_groups[0]), p.tolist(), losses))
    assert results[0][:3] == results[1][:3]
    for ours, theirs in zip(results[0][3:], results[1][3:], strict=True):
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=1e-9, atol=1e-9)


CHECKED: list[dict[str, Any]] = [
    {"differentiable": True}, {"foreach": True, "differentiable": True}, {"capturable": True},
    {"lr": [0.1, 0.2], "tensor": True}, {"lr": 0.1, "tensor": True, "foreach": True},
    {"lr": -1.0}, {"weight_decay": -1.0}, {"eps": -1.0}, {"rho": 1.5}, {"betas": (1.0, 0.9)},
    {"betas": (0.5, -0.1)}, {"momentum_decay": -1.0}, {"alpha": -1.0}, {"momentum": -1.0},
    {"etas": (1.5, 1.2)}, {"lambd": -1.0}, {"step_sizes": (1.0, 0.5)}, {"complex": True},
    {"sparse": True}, {"lr": 0.0}, {"unknown": 1}, {"beta2_decay": 0.5}, {"eps": (-1.0, 0.1)},
    {"d": 0.5}, {"adjust_lr_fn": "x"}, {"ns_steps": 200}, {"ns_coefficients": (1.0, 2.0)},
]  # fmt: skip


def _outcome(module: Any, name: str, given: dict[str, Any]) -> tuple[str, str]:
    """Where an option is refused, and by what."""
    options = dict(given)
    if options.pop("tensor", False):
        options["lr"] = module.tensor(options["lr"], dtype=module.float64)
    kind = module.complex64 if options.pop("complex", False) else module.float32
    sparse = options.pop("sparse", False)
    p = module.ones(2, 2, dtype=kind, requires_grad=True)
    try:
        optimizer = getattr(module.optim, name)([p], **options)
    except Exception as error:
        return "made", type(error).__name__
    p.grad = module.ones(2, 2, dtype=kind)
    if sparse:
        p.grad = module.ones(2, 2).to_sparse()
    try:
        optimizer.step()
    except Exception as error:
        return "step", type(error).__name__
    return "fine", str([round(abs(v), 5) for row in p.tolist() for v in row])


@pytest.mark.parametrize("name", [*OPTIONS, "Muon", "SparseAdam"])
def test_refusals(name: str) -> None:
    for options in CHECKED:
        assert _outcome(flambeau, name, options) == _outcome(torch, name, options), options
