"""Cases of classes and statements: operators, attributes, patterns, texts, made systematically."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator

from tests.capture.corpus.cases import Case, of_text

_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%",
    "pow": "**", "matmul": "@", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
}  # fmt: skip
_COMPARISONS = {"lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">="}

# How a class defines an operator {op} with the name {name}, and its use.
_FORMS = {
    "left": ("def __{name}__(self, other): return (self.v, '{name}', other)", "A(x) {op} n"),
    "right": ("def __r{name}__(self, other): return (self.v, 'r{name}', other)", "n {op} A(x)"),
    "in-place": (
        "def __i{name}__(self, other): self.v = self.v + 1; return self",
        "in_place(A(x), n).v",
    ),
    "declined": ("def __{name}__(self, other): return NotImplemented", "A(x) {op} n"),
    "subclass": (
        "def __{name}__(self, other): return (type(self).__name__, self.v)",
        "A(x) {op} B(n)",
    ),
}


def _operators() -> Iterator[Case]:
    for (name, op), (form, (method, use)) in itertools.product(_OPERATORS.items(), _FORMS.items()):
        text = f"""
class A:
    def __init__(self, v): self.v = v
    {method.format(name=name)}
class B(A):
    def __r{name}__(self, other): return ("reflected", self.v, other.v)
def in_place(a, n):
    a {op}= n
    return a
def f(x, n):
    return {use.format(op=op)}, x + 1
steps = [(t(2), 3), (t(2), 2), (t(2), None)]
"""
        yield of_text(f"operators:{name}-{form}", text)


def _comparisons() -> Iterator[Case]:
    forms = {
        "own": ("def __{name}__(self, other): return other is None or self.v {op} other.v", "b"),
        "declined": ("def __{name}__(self, other): return NotImplemented", "b"),
        "number": ("def __{name}__(self, other): return self.v {op} other", "n"),
        "tensor": ("def __{name}__(self, other): return x_of {op} other.v", "b"),
        "inherited": ("pass", "b"),
    }
    for (name, op), (form, (method, right)) in itertools.product(
        _COMPARISONS.items(), forms.items()
    ):
        text = f"""
x_of = t(2)
class A:
    def __init__(self, v): self.v = v
    {method.format(name=name, op=op)}
def f(x, n):
    a, b = A(2), A(n)
    return a {op} {right}, x * n
steps = [(t(2), 3), (t(2), 2), (t(2), "s")]
"""
        yield of_text(f"comparisons:{name}-{form}", text)


# Attributes: class bodies, and expressions on `o`, an object from outside or made in the call.
_CLASSES = {
    "plain": "k = 1\ndef __init__(self): self.v = 2",
    "property": "@property\ndef v(self): return self._v * 2\n@v.setter\ndef v(self, new): "
                "self._v = new\n_v = 3",
    "slots": "__slots__ = ('v', 'w')\ndef __init__(self): self.v = 2",
    "getattr": "def __getattr__(self, name):\n    if name == 'v': return 7\n"
               "    raise AttributeError(f'no {name}')",
    "getattribute": "v = 4\ndef __getattribute__(self, name): "
                    "return object.__getattribute__(self, name) if name != 'z' else 26",
    "setattr": "v = 1\ndef __setattr__(self, name, value): "
               "object.__setattr__(self, name, value * 2)",
    "descriptor": "class D:\n    def __get__(self, o, kind): return (o is None, kind.__name__)\n"
                  "v = D()",
    "data-descriptor": "class D:\n    def __get__(self, o, kind): return o.__dict__.get('v', 0)\n"
                       "    def __set__(self, o, value): o.__dict__['v'] = value + 100\nv = D()",
    "named-descriptor": "class D:\n    def __set_name__(self, kind, name): self.name = name\n"
                        "    def __get__(self, o, kind): return self.name\nv = D()",
    "deleting-descriptor": "class D:\n    def __get__(self, o, kind): return 5\n"
                           "    def __delete__(self, o): raise AttributeError('fixed')\nv = D()",
    "class-method": "@classmethod\ndef v(cls): return cls.__name__\n",
    "static-method": "@staticmethod\ndef v(*args): return len(args)\n",
    "failing-property": "@property\ndef v(self): return self.missing\n"
                        "def __getattr__(self, name): return name.upper()",
    "call": "v = 3\ndef __call__(self, n): return self.v * n",
    "dict-only": "def __init__(self): self.__dict__['v'] = 9; self.__dict__['not a name'] = 1",
    "class-attribute": "v = [1, 2]\nw = {'k': t(2)}",
    "inherited": "class Base:\n    v = 5\n    def z(self): return self.v\n"
                 "class Middle(Base):\n    v = 6\ndef v(self): return 0\nz = Middle.z",
}  # fmt: skip
_ACCESSES = {
    "read": "o.v",
    "write": "setattr(o, 'v', n), o.v",
    "delete": "delattr(o, 'v'), getattr(o, 'v', 'gone')",
    "default": "getattr(o, 'v', 'none'), getattr(o, 'z', 'none')",
    "has": "hasattr(o, 'v'), hasattr(o, 'z'), hasattr(o, 'w')",
    "class": "C.v",
    "missing": "o.zz",
    "call": "o.v() if callable(o.v) else o(n)",
    "dict": "sorted(vars(o)) if hasattr(o, '__dict__') else n",
}


def _attributes() -> Iterator[Case]:
    for (name, body), (access, use) in itertools.product(_CLASSES.items(), _ACCESSES.items()):
        outside = (len(name) + len(access)) % 2
        text = f"""
class C:
{textwrap.indent(body, "    ")}
shared = C()
def f(x, n):
    o = {"shared" if outside else "C()"}
    value = {use}
    return combine(x, n), value
steps = [(t(3), 2), (t(3), 3), lambda: setattr(C, 'k', 0), (t(3), None)]
"""
        yield of_text(f"attributes:{name}-{access}", text)


# Special methods that statements and builtin functions call.
_PROTOCOLS = {
    "bool": ("def __bool__(self): return self.n > 2", "'yes' if o else 'no', not o, bool(o)"),
    "len": ("def __len__(self): return self.n", "len(o), 'full' if o else 'empty'"),
    "iter": ("def __iter__(self): return iter(range(self.n))", "[*o], sum(o), 1 in o"),
    "iter-generator": ("def __iter__(self):\n        yield self.n\n        yield x0",
                       "[e for e in o], dict(enumerate(o))"),
    "next": ("i = 0\n    def __iter__(self): return self\n    def __next__(self):\n"
             "        self.i += 1\n        if self.i > self.n: raise StopIteration\n"
             "        return self.i", "[e for e in o], next(o, 'end')"),
    "getitem": ("def __getitem__(self, i):\n        if i >= self.n: raise IndexError\n"
                "        return i * 2", "o[1], list(o), 4 in o"),
    "slices": ("def __getitem__(self, key): return key", "o[1:2], o[::3], o[1, ..., None]"),
    "setitem": ("def __setitem__(self, key, value): self.n = (key, value)",
                "o.__setitem__('a', 1), o.n"),
    "delitem": ("def __delitem__(self, key): self.n = key", "o.__delitem__(3), o.n"),
    "contains": ("def __contains__(self, value): return value == self.n", "n in o, 5 not in o"),
    "call": ("def __call__(self, *args, **named): return self.n, args, named", "o(1, b=2), o()"),
    "enter": ("def __enter__(self): return self.n\n    def __exit__(self, *e): self.n = e[0]",
              "entered(o), o.n"),
    "hash": ("def __hash__(self): return self.n\n    def __eq__(self, other): return True",
             "hash(o), len({o, O(n)}), o == 5"),
    "eq": ("def __eq__(self, other): return isinstance(other, O) and self.n == other.n",
           "o == O(n), o != O(1), o in [O(n)]"),
    "str": ("def __str__(self): return f'<{self.n}>'", "str(o), f'{o}', '%s' % o, '{}'.format(o)"),
    "repr": ("def __repr__(self): return f'O({self.n})'", "repr(o), str([o]), f'{o!r:>8}'"),
    "format": ("def __format__(self, spec): return spec + str(self.n)", "f'{o:>3}', format(o)"),
    "index": ("def __index__(self): return self.n", "[0, 1, 2, 3, 4][o], hex(o), range(9)[o]"),
    "int": ("def __int__(self): return self.n\n    def __float__(self): return 0.5",
            "int(o), float(o), x0 * float(o)"),
    "neg": ("def __neg__(self): return -self.n\n    def __abs__(self): return self.n",
            "-o, abs(o)"),
    "invert": ("def __invert__(self): return ~self.n\n    def __pos__(self): return self",
               "~o, +o"),
    "round": ("def __round__(self, d=0): return (self.n, d)\n    def __trunc__(self): return 1",
              "round(o, 2), round(o), __import__('math').trunc(o)"),
    "reversed": ("def __reversed__(self): return iter('ba')", "list(reversed(o))"),
    "length-hint": ("def __iter__(self): return iter('ab')\n    def __length_hint__(self): "
                    "return 9", "list(o), tuple(o)"),
    "dir": ("def __dir__(self): return ['b', 'a']", "dir(o)"),
    "new": ("def __new__(cls, n): o = super().__new__(cls); o.m = n; return o", "o.m, o.n"),
    "new-other": ("def __new__(cls, n): return [n]", "o"),
    "del": ("def __del__(self): LOG.append(self.n)", "o.n"),
    "init-subclass": ("def __init_subclass__(cls, **k): LOG.append(cls.__name__)",
                      "type('Sub', (O,), {})(n).n"),
    "class-getitem": ("def __class_getitem__(cls, key): return key", "O[n], O[int]"),
    "missing": ("", "Table(a=1)[n], Table(a=1)['a']"),
    "bytes": ("def __bytes__(self): return b'xy'", "bytes(o), bytes(o) + b'z'"),
    "divmod": ("def __divmod__(self, other): return ('divmod', other)", "divmod(o, 2)"),
    "pow": ("def __pow__(self, other, mod=None): return (other, mod)", "o ** 2, pow(o, 2, 7)"),
    "concat": ("def __add__(self, other): return O(self.n + other)\n"
               "    def __radd__(self, other): return O(other + self.n)",
               "(o + 1).n, (1 + o).n, sum([O(1), O(n)]).n if False else n"),
    "torch-function": ("@classmethod\n    def __torch_function__(cls, func, types, args=(), "
                       "kwargs=None): return func.__name__", "torch.add(x0, o), torch.sin(o)"),
    "tensor-add": ("def __radd__(self, other): return 'radd'", "x0 + o if False else o.n"),
}  # fmt: skip


def _protocols() -> Iterator[Case]:
    for name, (body, use) in _PROTOCOLS.items():
        for where in ("inside", "outside", "argument"):
            make = "O(n)" if where == "inside" else "shared" if where == "outside" else "n[0]"
            number = "n = n[1]" if where == "argument" else "pass"
            steps = (
                "[(t(2), (shared, 3)), (t(2), (O(2), 2)), (t(2), (shared, 3))]"
                if where == "argument"
                else "[(t(2), 3), (t(2), 2), lambda: setattr(shared, 'n', 4), (t(2), 'a')]"
            )
            text = f"""
LOG = []
x0 = t(2)
class O:
    def __init__(self, n): self.n = n
    {body}
class Table(dict):
    def __missing__(self, key): return (key, len(self))
def entered(o):
    with o as value:
        return value, o.n
shared = O(3)
def f(x, n):
    o = {make}
    {number}
    value = {use}
    return x - 1, value
steps = {steps}
"""
            yield of_text(f"protocols:{name}-{where}", text)


_PATTERNS = {
    "literal": "case 1: r = 'one'\ncase 'a' | 'b': r = 'text'\ncase None: r = 'none'",
    "capture": "case [a, b]: r = (b, a)\ncase a: r = a",
    "star": "case [first, *others]: r = (first, others)\ncase (): r = 'empty'",
    "mapping": "case {'k': v}: r = v\ncase {'a': 1, **more}: r = more",
    "class": "case P(a=1): r = 'one'\ncase P(a, b): r = (a, b)\ncase int(k): r = k",
    "builtin": "case int() | float(): r = 'number'\ncase str() as s: r = s\ncase list(): r = 'l'",
    "guard": "case int(k) if k > 1: r = 'large'\ncase int(k): r = 'small'\ncase _: r = 'other'",
    "value": "case C.one: r = 'C.one'\ncase C.two: r = 'C.two'",
    "nested": "case {'p': [1, {'q': z}]}: r = z\ncase [[a], *_]: r = a",
    "or": "case [1, z] | [z, 1]: r = z\ncase 1 | 2.5: r = 'either'",
    "sequence": "case (1, 2, 3): r = 'exact'\ncase [_, _]: r = 'two'\ncase [*_, 9]: r = 'nine'",
    "return": "case [*all_]: return x, all_\ncase {}: return x + 1",
}
_SUBJECTS = {
    "numbers": ["1", "2", "2.5", "'a'", "None"],
    "sequences": ["[1, 2]", "(3, 1)", "[]", "[1, 2, 3]", "[[5], 9]"],
    "others": ["{'k': 7}", "{'a': 1, 'z': 2}", "P(1, 2)", "P(4, 5)", "{'p': [1, {'q': 3}]}"],
}


def _matches() -> Iterator[Case]:
    for (name, body), (kind, values) in itertools.product(_PATTERNS.items(), _SUBJECTS.items()):
        steps = ", ".join(f"(t(2), {value})" for value in values)
        text = f"""
class P:
    __match_args__ = ("a", "b")
    def __init__(self, a, b): self.a, self.b = a, b
class C:
    one, two = 1, "a"
def f(x, n):
    r = "no match"
    match n:
{textwrap.indent(body, "        ")}
    return combine(x, r), r
steps = [{steps}]
"""
        yield of_text(f"match:{name}-{kind}", text)


_SPECS = ["", ":>8", ":<6|", ":^7", "!r", "!s:>9", "!a", "={n}", ":{w}", ":0{w}", ":,", ":.{p}f"]
_SHOWN = ["1234", "2.5", "'text'", "None", "[1, 'a']", "(1,)", "{'k': 2}", "x.shape", "x.dtype",
          "True", "n"]  # fmt: skip


def _texts() -> Iterator[Case]:
    for number, (spec, value) in enumerate(itertools.product(_SPECS, _SHOWN)):
        if number % 3:
            continue
        field = f"{{n}}{{({value})}}" if spec == "={n}" else f"{{({value}){spec}}}"
        text = f"""
def f(x, n):
    w, p = 6, 2
    text = f\"\"\"<{field}>\"\"\"
    return x + len(text), text
steps = [(t(2), 3), (t(2), -1.5), (t(2), "s")]
"""
        yield of_text(f"formats:{value}{spec}", text)


def cases() -> Iterator[Case]:
    """All of them."""
    for make in (_operators, _comparisons, _attributes, _protocols, _matches, _texts):
        yield from make()
