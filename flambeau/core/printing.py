"""How tensors print: PyTorch's text, so that documentation and doctests carry over.

The values are read natively (`tolist` of the parts that show), never computed by ops: printing
must not compile a kernel, record a node or depend on what is being debugged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from flambeau import _core
from flambeau.core.devices import has_memory, on_host
from flambeau.ir.lock import late


class PrintOptions:
    """Settings of `set_printoptions`; lengths in characters, counts in elements."""

    def __init__(
        self,
        precision: int = 4,
        threshold: float = 1000,
        edgeitems: int = 3,
        linewidth: int = 80,
        sci_mode: bool | None = None,
    ) -> None:
        self.precision = precision
        self.threshold = threshold
        self.edgeitems = edgeitems
        self.linewidth = linewidth
        self.sci_mode = sci_mode


PROFILES = {
    "default": PrintOptions(),
    "short": PrintOptions(precision=2, edgeitems=2),
    "full": PrintOptions(threshold=math.inf),
}
options = PrintOptions()


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Sets how tensors print.

    Args:
        precision: digits after the point (4).
        threshold: tensors with more elements are summarised (1000).
        edgeitems: elements shown at each end of a summarised dimension (3).
        linewidth: characters in a line (80).
        profile: "default", "short" or "full": a base for the other arguments.
        sci_mode: force scientific notation on or off; None chooses by the values.

    An unknown profile changes nothing, as in PyTorch.
    """
    base = PROFILES.get(profile) if profile is not None else None
    if base is not None:
        for field in ("precision", "threshold", "edgeitems", "linewidth"):
            setattr(options, field, getattr(base, field))
    settings = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    for field, value in settings.items():
        if value is not None:
            setattr(options, field, value)
    options.sci_mode = sci_mode


class Gap:
    """Replaces, in a nested list, the elements that a summary leaves out."""


GAP = Gap()


# ------------------------------------------------------------------------------ values that show
def visible_values(tensor: Any) -> Any:
    """Nested lists of the elements to print, with `GAP` where some are left out."""
    if _core.is_recording():
        _core.record_flush(late("flambeau.runtime.boundaries").PRINTING)
    if tensor.numel() <= options.threshold:
        return tensor.tolist()
    return _corners(tensor, tuple(tensor.shape), tensor.stride(), tensor.storage_offset())


def _corners(tensor: Any, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Any:
    edge = options.edgeitems
    size, stride = sizes[0], strides[0]
    parts = [(0, size)] if size <= 2 * edge else [(0, edge), (size - edge, size)]
    rows: list[Any] = []
    for number, (first, last) in enumerate(parts):
        if number:
            rows.append(GAP)
        if len(sizes) == 1:
            at = offset + first * stride
            rows += _core.tensor_alias(tensor, (last - first,), (stride,), at).tolist()
            continue
        for index in range(first, last):
            rows.append(_corners(tensor, sizes[1:], strides[1:], offset + index * stride))
    return rows


def _leaves(values: Any) -> Iterator[Any]:
    if not isinstance(values, list):
        yield values
        return
    for item in values:
        if item is not GAP:
            yield from _leaves(item)


# ------------------------------------------------------------------------------ numbers
class NumberFormat:
    """One width and notation for all numbers of a tensor."""

    def __init__(self, values: list[Any], floating: bool) -> None:
        """Chooses the notation from the values that show."""
        self.floating = floating
        self.integral = True
        self.scientific = False
        self.width = 1
        if not floating:
            self.width = max([len(str(v)) for v in values], default=1)
            return
        finite = [v for v in values if v != 0 and math.isfinite(v)]
        if finite:
            self._choose(finite)

    def _choose(self, finite: list[float]) -> None:
        smallest, largest = min(map(abs, finite)), max(map(abs, finite))
        self.integral = all(v == math.ceil(v) for v in finite)
        wide = largest / smallest > 1000.0 or largest > 1e8
        self.scientific = wide or (not self.integral and smallest < 1e-4)
        if options.sci_mode is not None:
            self.scientific = options.sci_mode
        self.width = max([self.width, *(len(self._text(v)) for v in finite)])

    def _text(self, value: float) -> str:
        if self.scientific:
            return f"{value:.{options.precision}e}"
        if self.integral:
            return f"{value:.0f}" + ("." if math.isfinite(value) else "")
        return f"{value:.{options.precision}f}"

    def __call__(self, value: Any) -> str:
        """The number, right-aligned."""
        return (self._text(value) if self.floating else str(value)).rjust(self.width)


class ComplexFormat:
    """Real and imaginary parts, each with a format of its own."""

    def __init__(self, values: list[complex]) -> None:
        """Chooses both notations from the values that show."""
        self.real = NumberFormat([v.real for v in values], True)
        self.imaginary = NumberFormat([v.imag for v in values], True)
        self.width = self.real.width + self.imaginary.width + 1

    def __call__(self, value: complex) -> str:
        """The number as `1.+2.j`."""
        imaginary = self.imaginary(value.imag).lstrip() + "j"
        sign = "" if imaginary[0] in "+-" else "+"
        return self.real(value.real) + sign + imaginary


# ------------------------------------------------------------------------------ layout of lines
def _vector(values: list[Any], number: Any, indent: int) -> str:
    per_line = max(1, (options.linewidth - indent) // (number.width + 2))
    if options.edgeitems == 0 and GAP in values:
        texts = ["..."]
    else:
        texts = [" ..." if v is GAP else number(v) for v in values]
    lines = [", ".join(texts[i : i + per_line]) for i in range(0, len(texts), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _block(values: Any, number: Any, indent: int, ndim: int) -> str:
    if ndim == 0:
        return str(number(values))
    if ndim == 1:
        return _vector(values, number, indent)
    parts = ["..." if v is GAP else _block(v, number, indent + 1, ndim - 1) for v in values]
    return "[" + ("," + "\n" * (ndim - 1) + " " * (indent + 1)).join(parts) + "]"


def numbers_text(tensor: Any, indent: int) -> str:
    """The elements in their brackets; lines after the first are indented by `indent`."""
    values = visible_values(tensor if tensor.is_cpu else tensor.detach().cpu())
    leaves = list(_leaves(values))
    if tensor.is_complex():
        number: Any = ComplexFormat(leaves)
    else:
        number = NumberFormat(leaves, tensor.is_floating_point())
    return _block(values, number, indent, tensor.dim())


# ------------------------------------------------------------------------------ the whole text
def _contents(tensor: Any, indent: int) -> tuple[str, list[str]]:
    """Returns the text between the parentheses: the numbers and the notes on shape and dtype."""
    default = _core.get_default_dtype()
    dtype = tensor.dtype
    notes = []
    if not has_memory(tensor.device):
        notes.append(f"size={tuple(tensor.shape)}")
        text, shown = "...", dtype is not default
    elif tensor.numel() == 0:
        if tensor.dim() != 1:
            notes.append(f"size={tuple(tensor.shape)}")
        text, shown = "[]", dtype is not default
    else:
        usual = (default, default.to_complex(), _core.int64, _core.bool)
        text, shown = numbers_text(tensor, indent), dtype not in usual
    if shown:
        notes.append(f"dtype={dtype}")
    return text, notes


def gradient_note(tensor: Any) -> str | None:
    """Returns the note about gradients, or None."""
    node = tensor.grad_fn
    if node is not None:
        name = getattr(node, "name", None)
        text = name() if callable(name) else type(node).__name__
        return f"grad_fn=<{text.removeprefix('torch::autograd::')}>"
    return "requires_grad=True" if tensor.requires_grad else None


def join_notes(text: str, notes: list[str], indent: int, fresh_line: bool = False) -> str:
    """The text of a tensor with its notes, and the closing parenthesis.

    Args:
        indent: of lines that begin with a note.
        fresh_line: the first note begins a line.
    """
    length = len(text) - text.rfind("\n") + 1
    for note in notes:
        if fresh_line or length + len(note) + 2 > options.linewidth:
            fresh_line = False
            text += ",\n" + " " * indent + note
            length = indent + len(note)
        else:
            text += ", " + note
            length += len(note) + 2
    return text + ")"


def tensor_repr(tensor: Any, *, prefix: str | None = None) -> str:
    """The text of a tensor: values, then size, dtype and gradient where they are not obvious."""
    if prefix is None:
        plain = type(tensor) is _core.Tensor or type(tensor).__name__ == "Parameter"
        prefix = "tensor(" if plain else f"{type(tensor).__name__}("
    indent = len(prefix)
    text, notes = _contents(tensor, indent)
    if not on_host(tensor.device):
        notes.insert(0, f"device='{tensor.device}'")
    gradient = gradient_note(tensor)
    if gradient is not None:
        notes.append(gradient)
    return join_notes(prefix + text, notes, indent)
