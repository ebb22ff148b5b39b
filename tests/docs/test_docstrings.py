"""Public docstrings: everything has one, and every `>>>` example in them runs as shown."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import types
from collections.abc import Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau.language.definition import REGISTRY, OpDefinition

# Namespaces that users import from; everything public in them is documented.
NAMESPACES = ("flambeau.nn", "flambeau.optim", "flambeau.autograd", "flambeau.utils")
NAMESPACES += ("flambeau.capture", "flambeau.serialization", "flambeau.random", "flambeau.linalg")
NAMESPACES += ("flambeau.special", "flambeau.runtime", "flambeau.func", "flambeau.fft")
NAMESPACES += ("flambeau.profiler", "flambeau.distributions")
INTERNAL = ("flambeau.nn.messages", "flambeau.nn.modules.registry", "flambeau.nn.modules.hooks")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def public_operators() -> list[tuple[str, OpDefinition]]:
    return [(key, op) for key, op in REGISTRY.items() if not op.name.startswith("_")
            and not key.startswith("private.")]  # fmt: skip


def importable(name: str) -> bool:
    """Whether what a module needs is installed: `torch.utils.tensorboard` needs `tensorboard`."""
    return "tensorboard" not in name or importlib.util.find_spec("tensorboard") is not None


def modules() -> Iterator[Any]:
    """The public modules of `NAMESPACES` that exist."""
    for name in NAMESPACES:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        yield module
        found = pkgutil.walk_packages(getattr(module, "__path__", []), f"{name}.")
        for item in found:
            hidden = any(part.startswith("_") for part in item.name.split("."))
            if not hidden and importable(item.name):
                yield importlib.import_module(item.name)


MODULES = {module.__name__: module for module in modules()}


def members(module: Any) -> Iterator[tuple[str, Any]]:
    """Public functions and classes defined in a module, and the classes' public methods."""
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value) or inspect.isclass(value):
            yield name, value
        if inspect.isclass(value):
            for method, function in vars(value).items():
                if not method.startswith("_") and inspect.isfunction(function):
                    yield f"{name}.{method}", getattr(value, method)


def test_every_operator_is_documented() -> None:
    missing = sorted(key for key, op in public_operators() if not (op.__doc__ or "").strip())
    assert not missing, f"{len(missing)} operators without a docstring: {missing}"


@pytest.mark.parametrize("space", [torch, torch.Tensor, torch.nn.functional, torch.linalg])
def test_every_public_name_is_documented(space: Any) -> None:
    """Types of the native core, methods, functions: whatever `help` may be asked about."""
    found = {name: getattr(space, name) for name in dir(space) if not name.startswith("_")}
    own = {
        n: f
        for n, f in found.items()
        if getattr(f, "__module__", "flambeau") not in ("typing", "collections.abc")
    }
    silent = [name for name, value in own.items() if callable(value) and not value.__doc__]
    assert not silent, f"no docstring: {silent}"


def reachable() -> Iterator[tuple[str, Any]]:
    """Every function, class, method and property of ours below `flambeau` whose path has no
    underscore: in submodules, too, that a program only reaches by importing them."""
    seen: set[int] = set()
    for found in pkgutil.walk_packages(torch.__path__, "flambeau."):
        if any(part.startswith("_") for part in found.name.split(".")):
            continue
        if not importable(found.name):
            continue
        space = importlib.import_module(found.name)
        for name in sorted({*dir(space), *getattr(space, "__all__", ())}):
            value = getattr(space, name, None)
            ours = str(getattr(value, "__module__", "")).startswith("flambeau")
            if name.startswith("_") or not (ours and callable(value)) or id(value) in seen:
                continue
            seen.add(id(value))
            yield f"{found.name}.{name}", value
            for method, raw in vars(value).items() if inspect.isclass(value) else ():
                if not method.startswith("_") and isinstance(raw, METHODS):
                    yield f"{found.name}.{name}.{method}", raw


METHODS = (types.FunctionType, staticmethod, classmethod, property)


def test_nothing_that_can_be_reached_is_silent() -> None:
    found = list(reachable())
    silent = [path for path, value in found if not (value.__doc__ or "").strip()]
    assert len(found) > 2500, "the walk misses something"
    assert not silent, f"{len(silent)} without a docstring: {silent}"


def test_every_operator_has_an_example() -> None:
    """Those that are written in C++ aside: their text is one line of the method table."""
    lacking = [
        key
        for key, op in public_operators()
        if ">>>" not in (op.__doc__ or "") and not inspect.isbuiltin(op.overloads[0].body)
    ]
    assert not lacking, f"{len(lacking)} operators without an example: {lacking}"


@pytest.mark.parametrize("name", MODULES)
def test_everything_public_is_documented(name: str) -> None:
    missing = [n for n, value in members(MODULES[name]) if not (inspect.getdoc(value) or "")]
    assert not missing, f"{name}: no docstring: {missing}"


def check(name: str, text: str, space: dict[str, Any] | None = None) -> None:
    """Runs the examples of one docstring, with the usual short names and those of `space`."""
    usual = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "optim": torch.optim}
    torch.manual_seed(0)
    examples = doctest.DocTestParser().get_doctest(text, (space or {}) | usual, name, name, 0)
    said: list[str] = []
    result = doctest.DocTestRunner(optionflags=FLAGS).run(examples, out=said.append)
    assert result.failed == 0, "".join(said)


def with_examples(found: Iterator[tuple[str, str | None]]) -> list[tuple[str, str]]:
    return [(name, text) for name, text in found if text and ">>>" in text]


OPERATORS = with_examples((key, op.__doc__) for key, op in public_operators())


@pytest.mark.parametrize(("name", "text"), OPERATORS, ids=[name for name, _ in OPERATORS])
def test_operator_examples(name: str, text: str) -> None:
    check(name, text)


@pytest.mark.parametrize("name", MODULES)
def test_module_examples(name: str) -> None:
    module = MODULES[name]
    texts = [(name, module.__doc__)] + [(n, inspect.getdoc(v)) for n, v in members(module)]
    for place, text in with_examples(iter(texts)):
        check(f"{name}.{place}", text, dict(vars(module)))
