"""`torch.jit.unsupported_tensor_ops`: which methods of tensors scripted code cannot use."""

from __future__ import annotations

from typing import Any

from flambeau import _core
from flambeau.jit import verifier

__all__ = ["execWrapper"]


def execWrapper(code: str, glob: dict[str, Any], loc: dict[str, Any]) -> None:  # noqa: N802
    """Runs a source text of the caller's own."""
    exec(code, glob, loc)  # noqa: S102 - the caller's text


def __getattr__(name: str) -> Any:
    if name == "__doc__":
        return f"Unsupported methods: {_unsupported()}"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _unsupported() -> list[str]:
    """Methods that archives may not call."""
    public = {name for name in dir(_core.Tensor) if not name.startswith("_")}
    return sorted(public - verifier._methods())
