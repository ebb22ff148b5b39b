"""`torch._tensor_str`: how tensors print, under PyTorch's private module name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from flambeau.core import printing
from flambeau.core.printing import options as PRINT_OPTS  # noqa: N811 - PyTorch's name
from flambeau.core.printing import set_printoptions

__all__ = ["PRINT_OPTS", "get_printoptions", "printoptions", "set_printoptions"]


def get_printoptions() -> dict[str, Any]:
    """The settings of `torch.set_printoptions`."""
    return dict(vars(PRINT_OPTS))


@contextlib.contextmanager
def printoptions(**kwargs: Any) -> Iterator[dict[str, Any]]:
    """A block with other settings of `torch.set_printoptions`."""
    before = get_printoptions()
    set_printoptions(**kwargs)
    try:
        yield get_printoptions()
    finally:
        vars(PRINT_OPTS).update(before)


def _tensor_str(self: Any, indent: int) -> str:
    """The numbers of a tensor."""
    return printing.numbers_text(self.detach(), indent)


def _add_suffixes(tensor_str: str, suffixes: list[str], indent: int, force_newline: bool) -> str:
    """A text with notes, and the closing parenthesis."""
    return printing.join_notes(tensor_str, suffixes, indent, force_newline)


def _str_intern(inp: Any, *, tensor_contents: str | None = None) -> str:
    """The text of a tensor, with other numbers where they are passed."""
    text = str(inp)
    if tensor_contents is None:
        return text
    numbers = _tensor_str(inp, len(text) - len(text.split("(", 1)[1]))
    return text.replace(numbers, tensor_contents, 1)


def _str(self: Any, *, tensor_contents: str | None = None) -> str:
    return _str_intern(self, tensor_contents=tensor_contents)
