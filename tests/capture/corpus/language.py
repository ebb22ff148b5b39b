"""Cases of the language, made systematically: each form of one kind in each form of another."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator

from tests.capture.corpus.cases import Case, of_text

_SHARED = """
import contextlib

class Odd(Exception):
    def __init__(self, number, *rest):
        super().__init__(number, *rest)
        self.number = number

class Odder(Odd): pass

LOG = []

def check(i):
    if i % 2:
        raise Odd(i)
    if i > 6:
        raise Odder(i, "large")
    if i < 0:
        raise ValueError(f"negative: {i}")
    return i * 10

class Swallow:
    def __init__(self, *kinds): self.kinds, self.seen = kinds, None
    def __enter__(self): return self
    def __exit__(self, kind, error, trace):
        self.seen = kind
        return kind is not None and issubclass(kind, self.kinds)
"""

# One round of a loop: `i` is its number, `out` a list, `x` a tensor.
_EXCEPTIONS = {
    "except": """
        try:
            out.append(check(i))
        except Odd:
            out.append(-1)
            x = x + 1
    """,
    "as": """
        try:
            out.append(check(i))
        except Odd as error:
            out.append((error.number, str(error), error.args))
    """,
    "several": """
        try:
            out.append(check(i))
        except ValueError as error:
            out.append(str(error))
        except (Odder, KeyError):
            out.append("odder")
        except Odd:
            x = x * 2
    """,
    "else-finally": """
        try:
            value = check(i)
        except Odd:
            value = 0
        else:
            x = x + value
        finally:
            out.append(value)
    """,
    "finally": """
        try:
            out.append(check(i))
        finally:
            LOG.append(i)
    """,
    "finally-fresh": """
        marks = []
        try:
            out.append(i)
        finally:
            marks.append(i)
            x = x - 1
        out.append(marks)
    """,
    "finally-continue": """
        try:
            out.append(check(i))
        finally:
            continue
    """,
    "finally-break": """
        try:
            out.append(check(i))
        finally:
            if i > 1:
                break
    """,
    "from": """
        try:
            check(i)
        except Odd as error:
            raise KeyError("wrapped") from error
    """,
    "from-none": """
        try:
            check(i)
        except Odd:
            raise KeyError("alone") from None
    """,
    "again": """
        try:
            check(i)
        except Odd:
            x = x + 1
            raise
    """,
    "nested": """
        try:
            try:
                check(i)
            except ValueError:
                out.append("inner")
        except Odd as error:
            out.append(error.number)
            try:
                raise RuntimeError("second")
            except RuntimeError as second:
                out.append(type(second.__context__).__name__)
    """,
    "unmatched": """
        try:
            out.append(check(i))
        except KeyError:
            out.append("never")
    """,
    "bare": """
        try:
            x = x + check(i)
        except:
            out.append("any")
    """,
    "assert": """
        try:
            assert i % 2 == 0, f"odd {i}"
            out.append(i)
        except AssertionError as error:
            out.append(str(error))
    """,
    "builtin": """
        try:
            out.append(10 // (i - 1))
            out.append([1, 2][i])
        except ZeroDivisionError:
            out.append("zero")
        except IndexError as error:
            out.append(str(error))
    """,
    "key": """
        table = {0: "a", 2: "b"}
        try:
            out.append(table[i])
        except KeyError as error:
            out.append(error.args[0])
    """,
    "attribute": """
        try:
            out.append(i.missing)
        except AttributeError as error:
            out.append(str(error))
    """,
    "conversion": """
        try:
            out.append(int("1x"[: i % 2 + 1]))
        except ValueError:
            out.append("text")
    """,
    "stop": """
        values = iter([i])
        try:
            out.append(next(values))
            out.append(next(values))
        except StopIteration:
            out.append("end")
    """,
    "group": """
        try:
            if i % 2:
                raise ExceptionGroup("both", [Odd(i), ValueError("v")])
        except* Odd as group:
            out.append(len(group.exceptions))
        except* ValueError as group:
            out.append(str(group.exceptions[0]))
    """,
    "suppress": """
        with contextlib.suppress(Odd):
            out.append(check(i))
    """,
    "manager": """
        manager = Swallow(Odd)
        with manager:
            out.append(check(i))
        out.append(manager.seen is None)
    """,
    "manager-unmatched": """
        with Swallow(KeyError) as manager:
            out.append(check(i))
    """,
    "tensor": """
        try:
            x = x + x[i + 2]
            out.append(x.shape)
        except IndexError:
            out.append("index")
    """,
    "tensor-shape": """
        try:
            out.append(x.reshape(i + 1, -1).shape)
        except RuntimeError:
            out.append("shape")
    """,
    "note": """
        try:
            check(i)
        except Odd as error:
            error.add_note("here")
            raise
    """,
    "deleted": """
        error = "outer"
        try:
            check(i)
        except Odd as error:
            pass
        out.append("error" in locals())
    """,
}

# Loops around a round.
_LOOPS = {
    "for": """
        for i in range(4):
        BODY
    """,
    "while": """
        i = 4
        while i > 0:
            i -= 2
        BODY
    """,
    "else": """
        for i in (0, 2, n):
        BODY
        else:
            out.append("else")
    """,
    "enumerate": """
        for i, (a, b) in enumerate(zip([1, 2, 3], "abc")):
        BODY
            out.append(b)
    """,
    "double": """
        for j in range(2):
            for i in [j, 2]:
        BODY_
                if j:
                    break
    """,
    "generator": """
        for i in (k * n for k in (0, 1, 2)):
        BODY
    """,
    "dict": """
        for i, name in {0: "a", n: "b"}.items():
        BODY
            out.append(name)
    """,
    "rows": """
        for row, i in zip(x, [2, 0, n]):
        BODY
            out.append(row + 1)
    """,
}


def _indented(text: str, by: int) -> str:
    return textwrap.indent(textwrap.dedent(text).strip("\n"), " " * by)


def _exceptions() -> Iterator[Case]:
    for (round_, body), (loop, around) in itertools.product(_EXCEPTIONS.items(), _LOOPS.items()):
        around = _indented(around, 4)
        around = around.replace("    BODY_", _indented(body, 12)).replace(
            "    BODY", _indented(body, 8)
        )
        text = f"{_SHARED}\ndef f(x, n):\n    out = []\n{around}\n    return x, out\n"
        text += "steps = [(t(3), 2), (t(3), 1), (t(3), 7), (t(3), 8), (t(3), -2)]"
        yield of_text(f"exceptions:{round_}-{loop}", text)


# Generators: bodies, and ways to use one.
_GENERATORS = {
    "plain": """
        for i in range(n):
            yield x + i
    """,
    "return": """
        yield n
        return x * 2
    """,
    "send": """
        total = 0
        while total < 5:
            got = yield total
            total += 1 if got is None else got
    """,
    "throw": """
        for _ in range(3):
            try:
                yield n
            except ValueError as error:
                yield str(error)
                return
    """,
    "finally": """
        try:
            yield 1
            yield x
        finally:
            LOG.append("closed")
    """,
    "from": """
        result = yield from inner(x, n)
        yield result
    """,
    "from-list": """
        yield from [n, n + 1]
        yield from "ab"[:n]
    """,
    "raise": """
        yield x
        raise Odd(n)
    """,
    "stop": """
        yield 0
        raise StopIteration(n)
    """,
    "with": """
        with Swallow(ValueError) as manager:
            yield manager.seen
            yield n
        yield manager.seen is None
    """,
    "recursive": """
        if n > 0:
            yield from g(x, n - 1)
            yield n
    """,
    "pairs": """
        for i, value in enumerate(x):
            yield i, value * n
    """,
    "closure": """
        def later():
            return n * 100
        yield later()
        n += 1
        yield later()
    """,
    "nothing": """
        return
        yield
    """,
}
_CONSUMERS = {
    "list": "out = list(g(x, n))",
    "for": "for value in g(x, n):\n    out.append(value)",
    "break": "for value in g(x, n):\n    out.append(value)\n    break",
    "next": "it = g(x, n)\nout.append(next(it))\nout.append(next(it, 'default'))",
    "send": "it = g(x, n)\nout.append(next(it))\nout.append(it.send(3))\nout += list(it)",
    "throw": "it = g(x, n)\nnext(it)\nout.append(it.throw(ValueError('thrown')))",
    "close": "it = g(x, n)\nnext(it)\nit.close()\nout.append(list(it))",
    "unpack": "first, *others = g(x, n)\nout = [first, others]",
    "star": "out = [*g(x, n), *g(x, 1)]",
    "zip": "out = [pair for pair in zip(g(x, n), range(9))]",
    "caught": "try:\n    out.extend(g(x, n))\nexcept (Odd, RuntimeError) as error:\n"
              "    out.append(type(error).__name__)",
    "map": "out = list(map(lambda value: (value, 1), g(x, n)))",
    "returned": "return g(x, n)",
    "filter": "out = [value for value in g(x, n) if value is not None]",
    "chain": "import itertools\nout = list(itertools.islice(itertools.chain(g(x, n), [5]), 2))",
}  # fmt: skip
_INNER = """
def inner(x, n):
    got = yield x + n
    return (got, n)
"""


def _generators() -> Iterator[Case]:
    for (name, body), (way, use) in itertools.product(_GENERATORS.items(), _CONSUMERS.items()):
        text = f"{_SHARED}{_INNER}\ndef g(x, n):\n{_indented(body, 4)}\n"
        text += f"def f(x, n):\n    out = []\n{textwrap.indent(use, '    ')}\n    return out\n"
        text += "steps = [(t(3), 2), (t(3), 3), (t(2), 0)]"
        yield of_text(f"generators:{name}-{way}", text)


# Signatures and calls.
_SIGNATURES = {
    "plain": "a, b",
    "default": "a, b=5",
    "star": "a, *args",
    "named": "a, **named",
    "only": "a, *, b=7",
    "required": "a, *, b",
    "position": "a, b=2, /, c=3",
    "all": "a, /, b=1, *args, c=4, **named",
    "mutable": "a, b=[]",
    "names": "*args, **named",
}
_CALLS = {
    "one": "h(x)",
    "two": "h(x, n)",
    "named": "h(x, b=n)",
    "by-name": "h(a=x, b=n)",
    "three": "h(x, n, 9)",
    "star": "h(*[x, n])",
    "stars": "h(*(x,), **{'b': n})",
    "both": "h(x, *range(n), c=n)",
    "other": "h(x, zz=n)",
    "twice": "h(x, a=n)",
    "wrong": "h()",
    "nested": "h(h(x, n), b=h(x, b=1))",
}


def _values(signature: str) -> str:
    names = [part.strip(" */").split("=")[0] for part in signature.split(",")]
    return f"[{', '.join(name for name in names if name)}]"


def _arguments() -> Iterator[Case]:
    for (name, signature), (way, call) in itertools.product(_SIGNATURES.items(), _CALLS.items()):
        text = f"""
def h({signature}):
    {"a = a * 2" if signature.startswith("a") else "args = args[::-1]"}
    return {_values(signature)}
def direct(x, n):
    return {call}, x + n
def caught(x, n):
    try:
        return direct(x, n)
    except TypeError as error:
        return str(error)
f = caught if {(len(name) + len(way)) % 2} else direct
steps = [(t(2), 2), (t(2), 1), (t(2), 3), (t(2), "s")]
"""
        yield of_text(f"arguments:{name}-{way}", text)


# Comprehensions: kinds, and what is inside.
_KINDS = {"list": "[{}]", "set": "sorted({{{}}}, key=repr)", "generator": "list(({}))",
          "tuple": "tuple({})", "dict": "dict(enumerate(({})))"}  # fmt: skip
_INSIDE = {
    "plain": "i * n for i in range(3)",
    "if": "i for i in range(6) if i % 2 if i > n",
    "nested": "(i, j) for i in range(n) for j in range(i)",
    "ternary": "i if i % 2 else -i for i in range(4)",
    "walrus": "(last := i) for i in range(n)",
    "scope": "n for n in range(3)",
    "closure": "(lambda: i + n)() for i in range(3)",
    "late": "g() for g in [lambda: k for k in range(3)]",
    "unpack": "a + b for a, b in [(1, 2), (n, 4)]",
    "star": "(a, *b) for a, *b in [(1, 2, 3), (4,)]",
    "inner": "tuple(j * i for j in range(i)) for i in range(n)",
    "call": "str(i) + 'x' for i in sorted({n, 1, 3})",
    "class": "C.scale * i for i in range(2)",
    "condition": "i for i in [1, 2, 3] if (y := i * n) > 2",
    "error": "10 // (i - n) for i in range(4)",
}


def _comprehensions() -> Iterator[Case]:
    for (kind, around), (name, inside) in itertools.product(_KINDS.items(), _INSIDE.items()):
        text = f"""
class C:
    scale = 3
    values = [v for v in range(2)]
def f(x, n):
    i = "outer"
    last = y = None
    value = {around.format(inside)}
    return combine(x, value), value, i, last, y, n
steps = [(t(3), 2), (t(3), 0), (t(3), 5), (t(3), "s")]
"""
        yield of_text(f"comprehensions:{kind}-{name}", text)


def cases() -> Iterator[Case]:
    """All of them."""
    for make in (_exceptions, _generators, _arguments, _comprehensions):
        yield from make()
