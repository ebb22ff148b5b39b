"""`torch._dynamo.bytecode_debugger`: no bytecode is rewritten here, so nothing is debugged."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["breakpoint", "debug"]


def debug(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises: compiled functions run their own bytecode.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        "[bytecode_debugger] compiled functions run their own bytecode\n"
        "hint: use Python's debugger; torch.compiler.stages(fn) shows the compiler's programs"
    )


breakpoint = debug  # noqa: A001 - PyTorch's name
