"""How C combines the values of a reduction: operators, functions, and what changes nothing."""

from __future__ import annotations

from flambeau.compiler.codegen.c.printer.c_types import kind_bits

OPERATORS = {"sum": "+", "prod": "*", "xor": "^", "any": "|", "all": "&", "max": "", "min": ""}
"""What stands between two values; nothing: the function of the operation's name combines them."""


def combine(operation: str, kind: str, lanes: int, a: str, x: str) -> str:
    """C expression that adds the element `x` to the running value `a`."""
    operator = OPERATORS.get(operation)
    if not operator:
        return f"fb_{operation}_{kind}x{lanes}({a}, {x})"
    combined = f"({a} {operator} {x})"
    return combined if operation in ("any", "all") else f"({kind}x{lanes}){combined}"


def identity(operation: str, kind: str) -> str:
    """C constant that changes nothing when combined."""
    bits = kind_bits(kind)
    if operation in ("sum", "any", "xor"):
        return "0"
    if operation == "prod":
        return "1"
    if operation == "all":
        return "-1"
    largest = operation in ("min", "argmin")
    if kind[0] == "f":
        value = "__builtin_inff()" if bits == 32 else "__builtin_inf()"
        return value if largest else f"-{value}"
    if kind[0] == "u":
        return str((1 << bits) - 1) + "u" * (bits >= 32) if largest else "0"
    top = (1 << (bits - 1)) - 1
    suffix = "ll" if bits == 64 else ""
    return f"{top}{suffix}" if largest else f"(-{top}{suffix} - 1)"


def order_identity(operation: str, bits: int) -> str:
    """The order of the infinity that changes nothing."""
    infinity = 0xFF << 23 if bits == 32 else 0x7FF << 52
    number = infinity if operation == "min" else -infinity - 1
    return f"({number}{'ll' if bits == 64 else ''})"
