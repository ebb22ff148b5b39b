"""`torch.utils.flop_counter`: floating-point operations of products and convolutions, by module.

Counts are those of PyTorch: a multiplication and an addition are two operations, products are
named `mm`, `addmm`, `bmm` and `baddbmm`, convolutions `convolution` and `convolution_backward`.
Attention without dropout counts nothing, as on PyTorch's CPU.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as torch
from flambeau.utils._python_dispatch import TorchDispatchMode
from flambeau.utils._pytree import tree_map
from flambeau.utils.module_tracker import ModuleTracker

__all__ = ["FlopCounterMode", "register_flop_formula"]

aten = torch.ops.aten
flop_registry: dict[Any, Any] = {}
suffixes = ["", "K", "M", "B", "T"]


def get_shape(i: Any) -> Any:
    """The shape of a tensor; other values as they are."""
    return i.shape if isinstance(i, torch.Tensor) else i


def shape_wrapper(f: Callable[..., int]) -> Callable[..., int]:
    """A function of tensors from one of shapes; `out_val` becomes `out_shape`."""

    def counted(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        args, kwargs, out_shape = tree_map(get_shape, (args, kwargs, out_val))
        return f(*args, out_shape=out_shape, **kwargs)

    return counted


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable[[Any], Any]:
    """A decorator that enters how the operations of some operators are counted.

    Args:
        targets: operators, as `torch.ops.mylib.product`.
        get_raw: the function takes tensors and `out_val`; else shapes and `out_shape`.
    """

    def enter(formula: Callable[..., int]) -> Callable[..., int]:
        function = formula if get_raw else shape_wrapper(formula)
        for target in targets if isinstance(targets, (list, tuple)) else [targets]:
            if target in flop_registry:
                raise RuntimeError(f"duplicate registrations for {target}")
            flop_registry[target] = function
        return formula

    return enter


@register_flop_formula(aten.mm)
def mm_flop(a_shape: Any, b_shape: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    """Counts the operations of a matrix product."""
    (m, k), (_, n) = a_shape, b_shape
    return 2 * m * n * k


@register_flop_formula(aten.addmm)
def addmm_flop(
    self_shape: Any, a_shape: Any, b_shape: Any, out_shape: Any = None, **kwargs: Any
) -> int:
    """Counts the operations of a matrix product that is added."""
    return mm_flop(a_shape, b_shape)


@register_flop_formula(aten.bmm)
def bmm_flop(a_shape: Any, b_shape: Any, out_shape: Any = None, **kwargs: Any) -> int:
    """Counts the operations of a batch of products."""
    (b, m, k), (_, _, n) = a_shape, b_shape
    return 2 * b * m * n * k


@register_flop_formula(aten.baddbmm)
def baddbmm_flop(
    self_shape: Any, a_shape: Any, b_shape: Any, out_shape: Any = None, **kwargs: Any
) -> int:
    """Counts the operations of a batch of products that are added."""
    return bmm_flop(a_shape, b_shape)


def conv_flop_count(
    x_shape: Sequence[int],
    w_shape: Sequence[int],
    out_shape: Sequence[int],
    transposed: bool = False,
) -> int:
    """Counts the operations of a convolution, bias excluded."""
    positions = (x_shape if transposed else out_shape)[2:]
    c_out, c_in, *window = w_shape
    return 2 * math.prod(positions) * math.prod(window) * x_shape[0] * c_out * c_in


@register_flop_formula(aten.convolution)
def conv_flop(
    x_shape: Any,
    w_shape: Any,
    _bias: Any,
    _stride: Any,
    _padding: Any,
    _dilation: Any,
    transposed: bool,
    *args: Any,
    out_shape: Any = None,
    **kwargs: Any,
) -> int:
    """Counts the operations of a convolution."""
    return conv_flop_count(x_shape, w_shape, out_shape, transposed=transposed)


def _swapped(shape: Sequence[int]) -> list[int]:
    return [shape[1], shape[0], *shape[2:]]


def _conv_gradients(x: Any, w: Any, grad: Any, transposed: bool, for_x: bool, for_w: bool) -> int:
    count = conv_flop_count(grad, w, x, not transposed) if for_x else 0
    if for_w:
        first, second = (grad, x) if transposed else (x, grad)
        count += conv_flop_count(_swapped(first), _swapped(second), _swapped(w))
    return count


@register_flop_formula(aten.convolution_backward)
def conv_backward_flop(
    grad_out_shape: Any,
    x_shape: Any,
    w_shape: Any,
    _bias: Any,
    _stride: Any,
    _padding: Any,
    _dilation: Any,
    transposed: bool,
    _output_padding: Any,
    _groups: Any,
    output_mask: Any,
    out_shape: Any = None,
    **kwargs: Any,
) -> int:
    """Counts the operations of a convolution's gradients."""
    return _conv_gradients(x_shape, w_shape, grad_out_shape, transposed, *output_mask[:2])


def sdpa_flop_count(query_shape: Any, key_shape: Any, value_shape: Any) -> int:
    """Counts the operations of attention: two batches of products."""
    b, h, s_q, d_q = query_shape
    s_k, d_v = key_shape[-2], value_shape[-1]
    return bmm_flop((b * h, s_q, d_q), (b * h, d_q, s_k)) + bmm_flop(
        (b * h, s_q, s_k), (b * h, s_k, d_v)
    )


def sdpa_flop(
    query_shape: Any,
    key_shape: Any,
    value_shape: Any,
    *args: Any,
    out_shape: Any = None,
    **kwargs: Any,
) -> int:
    """Counts the operations of attention."""
    return sdpa_flop_count(query_shape, key_shape, value_shape)


def sdpa_backward_flop_count(
    grad_out_shape: Any, query_shape: Any, key_shape: Any, value_shape: Any
) -> int:
    """Counts the operations of attention's gradients: the scores again, and four batches of
    products.
    """
    b, h, s_q, d_q = query_shape
    s_k, d_v = key_shape[-2], value_shape[-1]
    scores = bmm_flop((b * h, s_q, d_q), (b * h, d_q, s_k))
    values = bmm_flop((b * h, s_q, s_k), (b * h, s_k, d_v))
    return 3 * scores + 2 * values


def sdpa_backward_flop(
    grad_out_shape: Any,
    query_shape: Any,
    key_shape: Any,
    value_shape: Any,
    *args: Any,
    out_shape: Any = None,
    **kwargs: Any,
) -> int:
    """Counts the operations of attention's gradients."""
    return sdpa_backward_flop_count(grad_out_shape, query_shape, key_shape, value_shape)


# -------------------------------------------------------------------------------------------------
# Tables


def get_suffix_str(number: int) -> str:
    """The unit in which a number has two to four digits."""
    return suffixes[max(0, min(len(suffixes) - 1, (len(str(number)) - 2) // 3))]


def convert_num_with_suffix(number: float, suffix: str) -> str:
    """A number in a unit.

    Example:
        >>> convert_num_with_suffix(1234, "K")
        '1.234K'
    """
    return f"{number / 1000 ** suffixes.index(suffix):.3f}{suffix}"


def convert_to_percent_str(num: float, denom: float) -> str:
    """A share in percent."""
    return "0%" if denom == 0 else f"{num / denom:.2%}"


def _plain_table(rows: list[list[str]], headers: Sequence[str]) -> str:
    """Rows in columns: the first aligned left, the others right."""
    if all(_is_number(row[1]) for row in rows):
        rows = [[name, f"{float(count):g}", share] for name, count, share in rows]
    widths = [max(len(row[i]) for row in [headers, *rows]) for i in range(len(headers))]
    widths = [max(width, len(header) + 2) for width, header in zip(widths, headers, strict=True)]

    def line(cells: Sequence[str]) -> str:
        parts = [cells[0].ljust(widths[0])]
        parts += [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return "  ".join(parts).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(headers), rule, *map(line, rows)])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class FlopCounterMode(TorchDispatchMode):
    """A block in which operations are counted, by module and operator.

    Args:
        mods: not needed: modules are found by themselves.
        depth: of nested modules in the table.
        display: prints the table at the end of the block.
        custom_mapping: operators to functions that count them, see `register_flop_formula`.

    Example:
        >>> with FlopCounterMode(display=False) as counter:
        ...     _ = torch.nn.Linear(3, 4)(torch.ones(5, 3))
        >>> counter.get_total_flops()
        120
    """

    def __init__(
        self,
        mods: Any = None,
        depth: int = 2,
        display: bool = True,
        custom_mapping: dict[Any, Any] | None = None,
    ) -> None:
        super().__init__()
        if mods is not None:
            import warnings

            warnings.warn(
                "mods argument is not needed anymore, you can stop passing it", stacklevel=2
            )
        self.flop_counts: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
        self.depth, self.display = depth, display
        custom = {
            packet: formula if getattr(formula, "_get_raw", False) else shape_wrapper(formula)
            for packet, formula in (custom_mapping or {}).items()
        }
        self.flop_registry = {**flop_registry, **custom}
        self.mod_tracker = ModuleTracker()

    def get_total_flops(self) -> int:
        """All operations of the block."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """Module names ("Global" is everything) to operators to counts."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def _rows(self, name: str, depth: int, suffix: str) -> list[list[str]]:
        total, everything = sum(self.flop_counts[name].values()), self.get_total_flops()
        entries = [(name, total)]
        entries += [(f" - {packet}", n) for packet, n in self.flop_counts[name].items()]
        return [
            [
                " " * depth + text,
                convert_num_with_suffix(count, suffix),
                convert_to_percent_str(count, everything),
            ]
            for text, count in entries
        ]

    def get_table(self, depth: int | None = None) -> str:
        """A table of modules and operators.

        Args:
            depth: of nested modules; the constructor's when None.
        """
        depth = self.depth if depth is None else depth
        everything = self.get_total_flops()
        suffix = get_suffix_str(everything)
        rows: list[list[str]] = []
        single_module = False  # one module does everything: a line for "Global" would repeat it
        for name in sorted(self.flop_counts):
            level = name.count(".") + 1
            if name == "Global" or level > depth:
                continue
            single_module |= sum(self.flop_counts[name].values()) >= everything
            rows += self._rows(name, level - 1, suffix)
        if not single_module:
            rows = self._rows("Global", 0, suffix) + [[" " + row[0], *row[1:]] for row in rows]
        if not rows:
            rows = [["Global", "0", "0%"]]
        return _plain_table(rows, ("Module", "FLOP", "% Total"))

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts.clear()
        self.flop_counts["Global"]  # noqa: B018 - makes the entry
        self.mod_tracker.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        if self.display:
            print(self.get_table(self.depth))
        self.mod_tracker.__exit__()

    def _steps_aside(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Operators that are not counted run as without this mode."""
        return getattr(func, "overloadpacket", func) not in self.flop_registry

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Calls an operator and counts it."""
        result = func(*args, **(kwargs or {}))
        packet = getattr(func, "overloadpacket", func)
        if packet in self.flop_registry:
            count = self.flop_registry[packet](*args, **(kwargs or {}), out_val=result)
            for name in self.mod_tracker.parents:
                self.flop_counts[name][packet] += count
        return result
