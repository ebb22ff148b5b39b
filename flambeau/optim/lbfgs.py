"""L-BFGS: steps from the curvature of the last changes (Liu & Nocedal 1989).

The product with the inverse Hessian is the two-loop recursion, the line search is that for the
strong Wolfe conditions with cubic interpolation (Nocedal & Wright 2006, algorithms 7.4, 3.5, 3.6).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.autograd import enable_grad, no_grad
from flambeau.ir.failure import failure
from flambeau.optim.optimizer import Optimizer, ParamsT, check_lr

__all__ = ["LBFGS"]

Evaluation = Callable[[Tensor, float, Tensor], tuple[float, Tensor]]


class LBFGS(Optimizer):
    """L-BFGS with one parameter group; the closure is evaluated several times a step.

    Args:
        params: parameters; one group only.
        lr: factor of the step, and the first step of the line search.
        max_iter: iterations a step.
        max_eval: evaluations a step; 1.25 `max_iter` if None.
        tolerance_grad: done where no gradient is larger.
        tolerance_change: done where neither parameters nor loss change more.
        history_size: pairs of changes that are stored.
        line_search_fn: None, or "strong_wolfe".

    Raises:
        ValueError: several groups, or a rate below 0.
        RuntimeError: another line search.

    Example:
        >>> p = torch.zeros(2, requires_grad=True)
        >>> optimizer = torch.optim.LBFGS([p], line_search_fn="strong_wolfe")
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = (p - torch.tensor([1.0, 2.0])).square().sum()
        ...     loss.backward()
        ...     return loss
        >>> optimizer.step(closure)
        tensor(5., grad_fn=<SumBackward0>)
        >>> p
        tensor([1.0000, 2.0000], requires_grad=True)
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_lr(lr)
        if not 0.0 <= lr:
            raise ValueError(f"[optim] Invalid learning rate: {lr}\nhint: it must not be negative")
        defaults = {
            "lr": lr, "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change,
            "history_size": history_size, "line_search_fn": line_search_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            problem = "LBFGS doesn't support per-parameter options (parameter groups)"
            raise failure(ValueError, "optim", problem, "pass a list of parameters")
        self._params = self.param_groups[0]["params"]

    def _flat_grad(self) -> Tensor:
        parts = []
        for parameter in self._params:
            grad = parameter.grad
            if grad is None:
                grad = flambeau.zeros_like(parameter, requires_grad=False)
            elif grad.is_sparse:
                grad = grad.to_dense()
            parts.append(_as_real(grad).reshape(-1))
        return flambeau.cat(parts)

    def _move(self, step: float, direction: Tensor) -> None:
        offset = 0
        for parameter in self._params:
            target = _as_real(parameter)
            count = target.numel()
            part = direction[offset : offset + count].view_as(target)
            target.add_(part, alpha=step)
            offset += count

    @no_grad()
    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Takes up to `max_iter` iterations.

        Args:
            closure: clears the gradients, evaluates the loss, calls backward, returns the loss.

        Returns:
            The loss of the first evaluation.
        """

        def evaluate() -> Any:
            with enable_grad():
                return closure()

        group = self.param_groups[0]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = evaluate()
        state["func_evals"] += 1
        grad = self._flat_grad()
        if grad.abs().max() <= group["tolerance_grad"]:
            return first
        run = _Run(group, state, float(first), grad)
        while run.iterations < group["max_iter"]:
            run.choose_direction()
            if run.slope > -group["tolerance_change"]:
                break
            self._advance(run, evaluate)
            if run.finished():
                break
        run.save()
        return first

    def _advance(self, run: _Run, evaluate: Callable[[], Any]) -> None:
        """Moves along the direction, by the line search or by the first step size."""
        group = run.group
        evaluations = 1
        if group["line_search_fn"] is None:
            self._move(run.step, run.direction)
            if run.iterations != group["max_iter"]:
                run.loss = float(evaluate())
                run.grad = self._flat_grad()
            else:
                evaluations = 0
        elif group["line_search_fn"] != "strong_wolfe":
            problem = "only 'strong_wolfe' is supported"
            raise failure(RuntimeError, "optim", problem, "line_search_fn=None")
        else:
            start = [p.clone(memory_format=flambeau.contiguous_format) for p in self._params]

            def at(step: float) -> tuple[float, Tensor]:
                self._move(step, run.direction)
                loss = float(evaluate())
                grad = self._flat_grad()
                for parameter, value in zip(self._params, start, strict=True):
                    parameter.copy_(value)
                return loss, grad

            search = _WolfeSearch(at, run.direction, run.loss, run.grad, run.slope)
            run.loss, run.grad, run.step, evaluations = search.search(run.step)
            self._move(run.step, run.direction)
        run.evaluated(evaluations)


def _as_real(tensor: Tensor) -> Tensor:
    return flambeau.view_as_real(tensor) if tensor.is_complex() else tensor


class _Run:
    """One call of `step`: what its iterations share, loaded from the state and saved to it."""

    def __init__(
        self, group: dict[str, Any], state: dict[str, Any], loss: float, grad: Tensor
    ) -> None:
        self.group, self.state = group, state
        self.loss, self.grad = loss, grad
        self.iterations, self.evaluations = 0, 1
        self.direction = state.get("d")
        self.step = state.get("t")
        self.directions: list[Tensor] = state.get("old_dirs") or []
        self.changes: list[Tensor] = state.get("old_stps") or []
        self.inverses: list[Tensor] = state.get("ro") or []
        self.scale = state.get("H_diag")
        self.previous_grad = state.get("prev_flat_grad")
        self.previous_loss = state.get("prev_loss")
        self.slope: Any = 0.0

    def choose_direction(self) -> None:
        """The next direction, its slope and the first step size along it."""
        self.iterations += 1
        self.state["n_iter"] += 1
        if self.state["n_iter"] == 1:
            self.direction = self.grad.neg()
            self.directions, self.changes, self.inverses, self.scale = [], [], [], 1
        else:
            self._remember()
            self.direction = self._product()
        if self.previous_grad is None:
            self.previous_grad = self.grad.clone()
        else:
            self.previous_grad.copy_(self.grad)
        self.previous_loss = self.loss
        lr = self.group["lr"]
        if self.state["n_iter"] == 1:
            lr = min(1.0, float(1.0 / self.grad.abs().sum())) * lr
        self.step = lr
        self.slope = self.grad.dot(self.direction)

    def _remember(self) -> None:
        change = self.grad.sub(self.previous_grad)
        moved = self.direction.mul(self.step)
        curvature = change.dot(moved)
        if curvature <= 1e-10:
            return
        if len(self.directions) == self.group["history_size"]:
            for entries in (self.directions, self.changes, self.inverses):
                entries.pop(0)
        self.directions.append(change)
        self.changes.append(moved)
        self.inverses.append(1.0 / curvature)
        self.scale = curvature / change.dot(change)

    def _product(self) -> Tensor:
        """The inverse Hessian's estimate times the negative gradient: the two-loop recursion."""
        if "al" not in self.state:
            self.state["al"] = [None] * self.group["history_size"]
        shares = self.state["al"]
        vector = self.grad.neg()
        for index in reversed(range(len(self.directions))):
            shares[index] = self.changes[index].dot(vector) * self.inverses[index]
            vector.sub_(self.directions[index] * shares[index])
        vector = vector * self.scale
        for index, (change, moved) in enumerate(zip(self.directions, self.changes, strict=True)):
            share = change.dot(vector) * self.inverses[index]
            vector.add_(moved * (shares[index] - share))
        return vector

    def evaluated(self, count: int) -> None:
        """Counts evaluations of the closure."""
        self.evaluations += count
        self.state["func_evals"] += count

    def finished(self) -> bool:
        """Whether a limit or a tolerance is reached."""
        group = self.group
        if self.iterations == group["max_iter"] or self.evaluations >= group["max_eval"]:
            return True
        if self.grad.abs().max() <= group["tolerance_grad"]:
            return True
        if self.direction.mul(self.step).abs().max() <= group["tolerance_change"]:
            return True
        return bool(abs(self.loss - self.previous_loss) < group["tolerance_change"])

    def save(self) -> None:
        """Writes the state for the next call."""
        self.state.update(
            d=self.direction, t=self.step, old_dirs=self.directions, old_stps=self.changes,
            ro=self.inverses, H_diag=self.scale, prev_flat_grad=self.previous_grad,
            prev_loss=self.previous_loss,
        )  # fmt: skip


class _Point:
    """A step size with loss, gradient and slope there."""

    def __init__(self, step: Any, loss: float, grad: Tensor, slope: Any) -> None:
        self.step, self.loss, self.grad, self.slope = step, loss, grad, slope


class _WolfeSearch:
    """A step that fulfils the strong Wolfe conditions (Nocedal & Wright, algorithms 3.5, 3.6)."""

    decrease, curvature, tolerance, limit = 1e-4, 0.9, 1e-9, 25

    def __init__(
        self,
        at: Callable[[float], tuple[float, Tensor]],
        direction: Tensor,
        loss: float,
        grad: Tensor,
        slope: Any,
    ) -> None:
        self.at, self.direction = at, direction
        self.size = direction.abs().max()
        self.start = _Point(0.0, loss, grad.clone(), slope)
        self.evaluations = 0

    def _evaluated(self, step: Any) -> _Point:
        loss, grad = self.at(step)
        grad = grad.clone()
        self.evaluations += 1
        return _Point(step, loss, grad, grad.dot(self.direction))

    def _too_high(self, point: _Point) -> bool:
        bound = self.start.loss + self.decrease * point.step * self.start.slope
        return bool(point.loss > bound)

    def _flat(self, point: _Point) -> bool:
        return bool(point.slope.abs() <= -self.curvature * self.start.slope)

    def search(self, step: Any) -> tuple[float, Tensor, Any, int]:
        """Loss, gradient and size of the step, and the number of evaluations."""
        bracket, done, iterations = self._bracket(step)
        if not done:
            bracket = self._zoom(bracket, iterations)
        best = min(bracket, key=lambda point: point.loss)
        return best.loss, best.grad, best.step, self.evaluations

    def _bracket(self, step: Any) -> tuple[list[_Point], bool, int]:
        """Two points that hold a fit step between them, or the fit point itself."""
        before, point = self.start, self._evaluated(step)
        for iteration in range(self.limit):
            if self._too_high(point) or (iteration > 1 and point.loss >= before.loss):
                return [before, point], False, iteration
            if self._flat(point):
                return [point], True, iteration
            if point.slope >= 0:
                return [before, point], False, iteration
            low = point.step + 0.01 * (point.step - before.step)
            step = _cubic_minimum(before, point, (low, point.step * 10))
            before, point = point, self._evaluated(step)
        return [self.start, point], False, self.limit

    def _zoom(self, bracket: list[_Point], iterations: int) -> list[_Point]:
        stalled = False
        low, high = sorted(range(2), key=lambda index: bracket[index].loss)
        while iterations < self.limit:
            steps = [point.step for point in bracket]
            if abs(steps[1] - steps[0]) * self.size < self.tolerance:
                break
            step, stalled = _inside(_cubic_minimum(*bracket), min(steps), max(steps), stalled)
            point = self._evaluated(step)
            iterations += 1
            if self._too_high(point) or point.loss >= bracket[low].loss:
                bracket[high] = point
                low, high = (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)
                continue
            done = self._flat(point)
            if not done and point.slope * (bracket[high].step - bracket[low].step) >= 0:
                bracket[high] = bracket[low]
            bracket[low] = point
            if done:
                break
        return [bracket[low]]


def _inside(step: Any, lowest: Any, highest: Any, stalled: bool) -> tuple[Any, bool]:
    """The step away from the ends of its interval, where it cannot stay twice."""
    margin = 0.1 * (highest - lowest)
    if min(highest - step, step - lowest) >= margin:
        return step, False
    if not stalled and lowest < step < highest:
        return step, True
    nearer_high = abs(step - highest) < abs(step - lowest)
    return (highest - margin if nearer_high else lowest + margin), False


def _cubic_minimum(a: _Point, b: _Point, bounds: tuple[Any, Any] | None = None) -> Any:
    """Where the cubic through two points with their slopes is least (Nocedal & Wright, 3.59)."""
    lowest, highest = bounds or (min(a.step, b.step), max(a.step, b.step))
    first = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.step - b.step)
    square = first**2 - a.slope * b.slope
    if not square >= 0:
        return (lowest + highest) / 2.0
    root = square.sqrt()
    if a.step > b.step:
        a, b = b, a
    ratio = (b.slope + root - first) / (b.slope - a.slope + 2 * root)
    return min(max(b.step - (b.step - a.step) * ratio, lowest), highest)


def _cubic_interpolate(
    x1: Any, f1: Any, g1: Any, x2: Any, f2: Any, g2: Any, bounds: tuple[Any, Any] | None = None
) -> Any:
    """PyTorch's private name: where the cubic through two points with their slopes is least."""
    empty: Any = None
    return _cubic_minimum(_Point(x1, f1, empty, g1), _Point(x2, f2, empty, g2), bounds)


def _strong_wolfe(
    obj_func: Callable[[Tensor, Any, Tensor], tuple[float, Tensor]],
    x: Tensor,
    t: Any,
    d: Tensor,
    f: float,
    g: Tensor,
    gtd: Any,
    c1: float = 1e-4,
    c2: float = 0.9,
    tolerance_change: float = 1e-9,
    max_ls: int = 25,
) -> tuple[float, Tensor, Any, int]:
    """PyTorch's private name: a step along `d` that fulfils the strong Wolfe conditions.

    Returns:
        Loss, gradient and size of the step, and the number of evaluations.
    """
    search = _WolfeSearch(lambda step: obj_func(x, step, d), d, f, g, gtd)
    search.decrease, search.curvature = c1, c2
    search.tolerance, search.limit = tolerance_change, max_ls
    return search.search(t)
