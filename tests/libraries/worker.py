"""Runs cases of one library in this process: `python worker.py SIDE LIBRARY FOLDER NAME...`.

SIDE is "reference" (PyTorch writes files) or "ours" (Flambeau, run by `python -m flambeau`, reads
them). One line of JSON per case goes to FOLDER/LIBRARY.SIDE.jsonl.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np
import torch

from tests.libraries.cases import Case, Program, cases, tensors

SECONDS = 240  # per case, of this process's processor time
WAITING = 10 * SECONDS  # likewise, of wall time: the machine may have other work
LARGE = 10_000_000  # bytes of a reference that is deleted when nothing differs from it
FORWARD, GRADIENT = 1e-4, 1e-3  # of the largest element of a tensor
DOUBLE = 1e-5  # of it, of steps in float64


def loss_of(outputs: Any) -> Any:
    """A number that depends on every element of every floating-point output."""
    total = 0.0
    for output in tensors(outputs):
        if output.is_floating_point() and output.requires_grad and output.numel():
            weights = torch.cos(torch.arange(output.numel(), dtype=torch.float32) * 0.7)
            total = total + (output.float() * weights.view(output.shape)).mean()
    return total


def values(outputs: Any) -> list[Any]:
    """Copies of the tensors of an output, as arrays."""
    return [
        t.detach().resolve_conj().float().numpy().copy()
        if t.dtype in (torch.bfloat16, torch.float16)
        else t.detach().resolve_conj().numpy().copy()
        for t in tensors(outputs)
        if not t.is_sparse
    ]


def seed(number: int) -> None:
    """Starts all generators that models draw from."""
    torch.manual_seed(number)
    np.random.seed(number)


def forward(case: Case, call: Any) -> list[Any]:
    """Outputs in eval mode."""
    case.model.eval()
    seed(1)
    with torch.no_grad():
        return values(call(*case.args, **case.kwargs))


def step(case: Case, call: Any) -> dict[str, Any]:
    """Outputs, loss, gradients and buffers of a step in training mode."""
    case.model.train()
    case.model.zero_grad()
    seed(1)
    outputs = call(*case.args, **case.kwargs)
    loss = loss_of(outputs)
    loss.backward()
    gradients = {
        name: parameter.grad.detach().float().numpy().copy()
        for name, parameter in case.model.named_parameters()
        if parameter.grad is not None
    }
    buffers = {
        f"buffer {name}": buffer.detach().float().numpy().copy()
        for name, buffer in case.model.named_buffers()
        if buffer.is_floating_point()
    }
    return {"outputs": values(outputs), "loss": float(loss), "gradients": gradients | buffers}


def in_double(case: Case) -> Case:
    """A copy of a case in float64."""

    def convert(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.double() if value.is_floating_point() else value
        if isinstance(value, dict):
            return {key: convert(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(map(convert, value))
        return value

    return Case(copy.deepcopy(case.model).double(), convert(case.args), convert(case.kwargs))


def build(make: Any) -> Any:
    """A case, its parameters from a fixed seed; those that begin as zeros are drawn, too.

    Zeros would hide what stands behind them, and make ties of experts' scores.
    """
    seed(0)
    case = make()
    for parameter in case.model.parameters() if isinstance(case, Case) else ():
        if torch.nn.parameter.is_lazy(parameter):
            continue
        if parameter.is_floating_point() and not parameter.detach().any():
            torch.nn.init.normal_(parameter, 0.0, 0.02)
    return case


def choose(case: Case) -> int:
    """The first of a case's inputs that the model accepts; they become the case's.

    Raises:
        RuntimeError: it accepts none; says why.
    """
    own, reasons = case.kwargs, []
    for index, more in enumerate(case.choices):
        case.kwargs = own | more
        try:
            forward(case, case.model)
        except Exception as error:
            reasons.append(reason(error))
        else:
            return index
    if case.choices:
        raise RuntimeError(" | ".join(reasons))
    return 0


def reference(make: Any, path: Path) -> dict[str, Any]:
    """Runs a case under PyTorch and writes what it computed."""
    case = build(make)
    if isinstance(case, Program):
        seed(1)
        torch.save({"program": values(case.function())}, path)
        return {}
    weights = {k: v.clone() for k, v in case.model.state_dict().items()}
    content: dict[str, Any] = {"weights": weights, "choice": choose(case)}
    case.model.load_state_dict(weights)
    content["forward"] = forward(case, case.model)
    if case.backward:
        case.model.load_state_dict(weights)
        content["step"] = step(case, case.model)
        case.model.load_state_dict(weights)
        with contextlib.suppress(Exception):  # models may ask for float32
            double = in_double(case)
            content["double"] = step(double, double.model)
    content["asked"] = on_the_way_of_compiled(case, weights)
    torch.save(content, path)
    return {"parameters": sum(p.numel() for p in case.model.parameters())}


def on_the_way_of_compiled(case: Case, weights: dict[str, Any]) -> dict[str, Any]:
    """What a model computes, or why it fails, where programs hear that they are compiled."""
    content: dict[str, Any] = {}
    with on_compiled_path():
        try:
            for name, run in (("forward", forward), ("step", step))[: 1 + case.backward]:
                case.model.load_state_dict(weights)
                content[name] = run(case, case.model)
        except Exception as error:
            content["failure"] = reason(error)
    return content


def difference(name: str, ours: Any, theirs: Any, bound: float, scale: float = 0.0) -> float:
    """The largest difference of two arrays as a share of the larger one.

    Raises:
        AssertionError: it is above the bound, or shapes, dtypes or special values differ.
    """
    assert ours.shape == theirs.shape, f"{name}: shape {ours.shape}, not {theirs.shape}"
    assert ours.dtype == theirs.dtype, f"{name}: {ours.dtype}, not {theirs.dtype}"
    if not ours.size:
        return 0.0
    if ours.dtype.kind in "biu":
        differing = int((ours != theirs).sum())
        assert differing <= 0, f"{name}: {differing} of {ours.size} whole numbers differ"
        return 0.0
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    a, b = np.where(same, 0, ours).astype(np.complex128), np.where(same, 0, theirs)
    largest = max(float(np.abs(np.where(np.isfinite(theirs), theirs, 0)).max()), scale, 1e-6)
    with np.errstate(all="ignore"):
        error = float(np.abs(a - b).max()) / largest
    assert error <= bound, f"{name}: differs by {error:.1e} of the largest element"
    return error


def compare_outputs(ours: list[Any], theirs: list[Any]) -> float:
    """The largest share by which two lists of outputs differ."""
    assert len(ours) == len(theirs), "number of outputs"
    pairs = enumerate(zip(ours, theirs, strict=True))
    return max([difference(f"output {i}", *pair, FORWARD) for i, pair in pairs], default=0.0)


def compare_step(
    ours: dict[str, Any],
    theirs: dict[str, Any],
    forward: float = FORWARD,
    gradient: float = GRADIENT,
) -> float:
    """The largest share by which two training steps differ."""
    errors = [0.0]
    assert len(ours["outputs"]) == len(theirs["outputs"]), "number of outputs in training"
    for index, pair in enumerate(zip(ours["outputs"], theirs["outputs"], strict=True)):
        errors.append(difference(f"training output {index}", *pair, forward))
    mine, other = ours["gradients"], theirs["gradients"]
    assert mine.keys() == other.keys(), f"gradients of {sorted(mine.keys() ^ other.keys())[:4]}"
    scale = max([float(np.abs(g).max()) for g in other.values() if g.size], default=0.0) * 1e-3
    for name in mine:
        errors.append(difference(f"gradient {name}", mine[name], other[name], gradient, scale))
    return max(errors)


def equal_bits(first: Any, second: Any) -> str:
    """The name of something that differs between eager and compiled, or nothing."""
    if isinstance(first, dict):
        for key in first:
            where = equal_bits(first[key], second[key])
            if where:
                return f"{key} {where}".strip()
        return ""
    if isinstance(first, list):
        return "; ".join(
            f"{index}"
            for index, pair in enumerate(zip(first, second, strict=True))
            if equal_bits(*pair)
        )
    same = np.array_equal(first, second, equal_nan=np.asarray(first).dtype.kind in "fc")
    return "" if same else f"by {np.abs(np.asarray(first, dtype=np.complex128) - second).max():.1e}"


def ours(make: Any, path: Path) -> dict[str, Any]:
    """Runs a case under Flambeau and compares it with PyTorch's file."""
    content = torch.load(path, weights_only=False)
    case = build(make)
    if isinstance(case, Program):
        seed(1)
        mine = values(case.function())
        pairs = zip(mine, content["program"], strict=True)
        errors = [difference(f"result {i}", *p, GRADIENT) for i, p in enumerate(pairs)]
        return {"error": max(errors, default=0.0)} | compiled_program(case, mine)
    case.model.load_state_dict(content["weights"])
    if case.choices:
        case.kwargs |= case.choices[content["choice"]]
    result: dict[str, Any] = {}
    outputs = forward(case, case.model)
    result["error"] = compare_outputs(outputs, content["forward"])
    mine = None
    if case.backward:
        case.model.load_state_dict(content["weights"])
        mine = step(case, case.model)
        result |= judge_step(case, mine, content)
    if not case.compiled or "failure" in content.get("asked", ()):
        result["compiled"] = None
    elif not os.environ.get("EAGER"):
        try:
            result["compiled"] = compiled(case, content, outputs, mine)
        except Exception as error:
            result["compiled"] = reason(error)
    if result.get("compiled") == "" and path.stat().st_size > LARGE:
        path.unlink()
    return result


def compiled_program(case: Program, mine: list[Any]) -> dict[str, Any]:
    """What differs between a program and its compiled form; None where it is not compiled."""
    if not case.compiled:
        return {"compiled": None}
    if os.environ.get("EAGER"):
        return {}
    try:
        seed(1)
        fast = values(torch.compile(case.function)())
        where = equal_bits(mine, fast)
        if where:  # it may take another way where it is compiled
            with on_compiled_path():
                seed(1)
                where = equal_bits(values(case.function()), fast)
    except Exception as error:
        return {"compiled": reason(error)}
    return {"compiled": f"result {where} differs from eager" if where else ""}


def judge_step(case: Case, mine: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    """By how much a training step differs from PyTorch's.

    Where float32 leaves open on which side of zero an activation lies, gradients of two right
    implementations differ; then a step in float64 decides.
    """
    try:
        return {"gradient_error": compare_step(mine, content["step"])}
    except AssertionError as error:
        if "double" not in content:
            raise
        case.model.load_state_dict(content["weights"])
        double = in_double(case)
        again = step(double, double.model)
        return {
            "single": str(error),
            "gradient_error": compare_step(again, content["double"], DOUBLE, DOUBLE),
        }


def compiled(case: Case, content: dict[str, Any], outputs: Any, mine: Any) -> str:
    """What differs between eager and compiled; nothing where all bits are equal.

    Models that take another way where they are compiled are compared with that way, run eagerly,
    by us and by PyTorch.
    """
    theirs = content.get("asked", content)
    call = torch.compile(case.model)
    runs = [("output", forward, outputs), ("step:", step, mine)]
    for what, run, eager in runs if mine is not None else runs[:1]:
        case.model.load_state_dict(content["weights"])
        fast = run(case, call)
        if not equal_bits(eager, fast):
            continue
        case.model.load_state_dict(content["weights"])
        with on_compiled_path():
            eager = run(case, case.model)
        where = equal_bits(eager, fast)
        if where:
            return f"{what} {where} differs from eager"
        if run is step:
            compare_step(fast, theirs["step"])
        else:
            compare_outputs(fast, theirs["forward"])
    return ""


@contextlib.contextmanager
def on_compiled_path() -> Iterator[None]:
    """Programs that ask whether they are compiled get the answer yes."""
    before = torch.compiler.is_compiling
    torch.compiler.is_compiling = lambda: True
    try:
        yield
    finally:
        torch.compiler.is_compiling = before


def reason(error: BaseException) -> str:
    """An exception and the last line of the library that led to it."""
    frames = traceback.extract_tb(error.__traceback__)
    outside = [f for f in frames if "site-packages" in f.filename and "/torch/" not in f.filename]
    place = ""
    if outside:
        name = outside[-1].filename.partition("site-packages/")[2]
        place = f" ({name}:{outside[-1].lineno})"
    text = str(error).replace("\n", " ")[:400]
    return f"{type(error).__name__}: {text}{place}"


def _alarm(number: int, _: Any) -> None:
    working = number == signal.SIGPROF
    limit = f"{SECONDS} s of processor time" if working else f"{WAITING} s"
    raise TimeoutError(f"longer than {limit}")


def _limit(share: float) -> None:
    """Sets the limits of a case, or (0) removes them."""
    signal.setitimer(signal.ITIMER_PROF, share * SECONDS)
    signal.setitimer(signal.ITIMER_REAL, share * WAITING)


def main(side: str, library: str, folder: Path, names: list[str]) -> None:
    """Runs the named cases."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # small models: threads would wait for each other
    constructors = cases(library)
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, _alarm)
    with open(folder / f"{library}.{side}.jsonl", "a", encoding="utf-8") as log:
        for name in names or constructors:
            record: dict[str, Any] = {"name": name}
            log.write(json.dumps({"begins": name}) + "\n")
            log.flush()
            begin = time.process_time()
            _limit(1)
            try:
                run = reference if side == "reference" else ours
                record |= run(constructors[name], folder / f"{library}.{name}.pt".replace("/", "_"))
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                record["failure"] = reason(error)
                if os.environ.get("TRACE"):
                    traceback.print_exc()
            _limit(0)
            record["seconds"] = round(time.process_time() - begin, 1)
            log.write(json.dumps(record) + "\n")
            log.flush()
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
