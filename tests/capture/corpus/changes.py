"""Cases whose state changes between calls: whatever a function reads, set to something else."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tests.capture.corpus.cases import Case, of_text

# Where a value comes from: statements before, the expression that reads it, statements that set it
# to NEW, statements that change a container in place.
_SOURCES = {
    "global": ("G = OLD", "G", "globals().__setitem__('G', NEW)", "G"),
    "attribute": ("class O: pass\no = O()\no.v = OLD", "o.v", "setattr(o, 'v', NEW)", "o.v"),
    "class-attribute": ("class O: v = OLD\no = O()", "o.v", "setattr(O, 'v', NEW)", "O.v"),
    "base-attribute": (
        "class B: v = OLD\nclass O(B): pass\no = O()", "o.v", "setattr(B, 'v', NEW)", "B.v",
    ),
    "shadowed": ("class O: v = OLD\no = O()", "o.v", "setattr(o, 'v', NEW)", "O.v"),
    "dict": ("D = {'k': OLD}", "D['k']", "D.__setitem__('k', NEW)", "D['k']"),
    "dict-get": ("D = {'k': OLD}", "D.get('k')", "D.__setitem__('k', NEW)", "D['k']"),
    "int-key": ("D = {1: OLD}", "D[1]", "D.__setitem__(1, NEW)", "D[1]"),
    "tuple-key": ("D = {(1, 2): OLD}", "D[1, 2]", "D.__setitem__((1, 2), NEW)", "D[1, 2]"),
    "list": ("L = [0, OLD]", "L[1]", "L.__setitem__(1, NEW)", "L[1]"),
    "list-loop": ("L = [OLD]", "[e for e in L]", "L.append(NEW)", "L[0]"),
    "nested": ("D = {'a': [{'b': OLD}]}", "D['a'][0]['b']", "D['a'][0].__setitem__('b', NEW)",
               "D['a'][0]['b']"),
    "closure": (
        "def outer():\n    v = OLD\n    def read(): return v\n    def write(new):\n"
        "        nonlocal v\n        v = new\n    return read, write\nread, write = outer()",
        "read()", "write(NEW)", "read()",
    ),
    "default": ("def h(v=OLD): return v", "h()", "setattr(h, '__defaults__', (NEW,))",
                "h.__defaults__[0]"),
    "named-default": ("def h(*, v=OLD): return v", "h()", "h.__kwdefaults__.__setitem__('v', NEW)",
                      "h.__kwdefaults__['v']"),
    "function-attribute": ("def h(): return h.v\nh.v = OLD", "h()", "setattr(h, 'v', NEW)", "h.v"),
    "function": ("def h(): return OLD", "h()", "globals().__setitem__('h', lambda: NEW)", "OLD"),
    "code": ("def h(): return OLD\ndef k(): return NEW", "h()",
             "setattr(h, '__code__', k.__code__)", "OLD"),
    "method": ("class O:\n    def m(self): return OLD\no = O()", "o.m()",
               "setattr(O, 'm', lambda self: NEW)", "OLD"),
    "own-method": ("class O:\n    def m(self): return OLD\no = O()", "o.m()",
                   "setattr(o, 'm', lambda: NEW)", "OLD"),
    "class": ("class O: v = OLD\nclass P: v = NEW\no = O()", "o.v", "setattr(o, '__class__', P)",
              "O.v"),
    "instance-dict": ("class O: pass\no = O()\no.v = OLD", "o.v",
                      "setattr(o, '__dict__', {'v': NEW})", "o.v"),
    "property": ("class O:\n    @property\n    def v(self): return self.w\no = O()\no.w = OLD",
                 "o.v", "setattr(o, 'w', NEW)", "o.w"),
    "slot": ("class O: __slots__ = ('v',)\no = O()\no.v = OLD", "o.v", "setattr(o, 'v', NEW)",
             "o.v"),
    "super": ("class B:\n    def m(self): return OLD\nclass O(B):\n"
              "    def m(self): return super().m()\no = O()", "o.m()",
              "setattr(B, 'm', lambda self: NEW)", "OLD"),
    "module": ("import types\nM = types.ModuleType('m')\nM.v = OLD", "M.v",
               "setattr(M, 'v', NEW)", "M.v"),
    "namespace": ("import types\nN = types.SimpleNamespace(v=OLD)", "N.v", "setattr(N, 'v', NEW)",
                  "N.v"),
    "partial": ("import functools\nP = functools.partial(lambda v: v, v=OLD)", "P()",
                "P.keywords.__setitem__('v', NEW)", "P.keywords['v']"),
    "bound": ("class O:\n    def m(self): return self.v\no = O()\no.v = OLD\nB = o.m", "B()",
              "setattr(o, 'v', NEW)", "o.v"),
    "builtin": ("len_ = len", "(OLD, len([1]))",
                "globals().__setitem__('len', lambda v: NEW)", "OLD"),
    "getattr": ("class O:\n    def __getattr__(self, n): return OLD\no = O()", "o.v",
                "setattr(o, 'v', NEW)", "OLD"),
    "metaclass": ("class M(type): v = OLD\nclass O(metaclass=M): pass", "O.v",
                  "setattr(M, 'v', NEW)", "M.v"),
    "ordered": ("from collections import OrderedDict\nD = OrderedDict(k=OLD)", "D['k']",
                "D.__setitem__('k', NEW)", "D['k']"),
    "default-dict": ("from collections import defaultdict\nD = defaultdict(lambda: 0, k=OLD)",
                     "D['k']", "D.__setitem__('k', NEW)", "D['k']"),
    "deque": ("from collections import deque\nD = deque([OLD])", "D[0]", "D.appendleft(NEW)",
              "D[0]"),
    "set": ("S = {1}", "(OLD, 5 in S)", "S.add(5)", "OLD"),
    "empty-set": ("S = set()", "(OLD, 5 in S, len(S))", "S.add(5)", "OLD"),
    "buffer": ("m = torch.nn.Module()\nm.register_buffer('b', t(1))", "(OLD, m.b)",
               "m.register_buffer('b', t(1, start=5.0))", "OLD"),
}  # fmt: skip
_VALUES = {
    "number": ("2", "5"),
    "same-number": ("1", "True"),
    "zero": ("0.0", "-0.0"),
    "text": ("'ab'", "'c'"),
    "none": ("None", "3"),
    "tensor": ("t(2)", "t(2, start=3.0)"),
    "shape": ("t(2)", "t(4)"),
    "list": ("[1, 2]", "[3]"),
    "tuple": ("(1, t(2))", "(1, t(2, start=9.0))"),
    "function": ("abs", "str"),
    "ellipsis": ("...", "2"),
}
_SHORT = ("number", "tensor", "list", "same-number")  # for the rarer sources


def _sources() -> Iterator[Case]:
    for (name, (before, read, write, _)), (kind, (old, new)) in itertools.product(
        _SOURCES.items(), _VALUES.items()
    ):
        if kind not in _SHORT and len(name) > 6:
            continue
        text = f"""
{before.replace("OLD", old).replace("NEW", new)}
def f(x, n):
    value = {read.replace("OLD", old)}
    if isinstance(value, torch.Tensor):
        return x + value.sum(), value
    return combine(x, value), value, n
def change():
    {write.replace("NEW", new)}
def back():
    {write.replace("NEW", old)}
steps = [(t(3), 1), change, (t(3), 2), back]
"""
        yield of_text(f"changes:{name}-{kind}", text)


# Arguments that are also reached otherwise, or are alike and not the same.
_ALIASES = {
    "tensor-global": ("G = t(2)", "x + G", "[(G,), (t(2, start=5.0),), (G,)]"),
    "tensor-attribute": (
        "class O: pass\no = O()\no.w = t(2)", "x * o.w", "[(o.w,), (t(2, start=4.0),)]",
    ),
    "tensor-list": ("L = [t(2), t(2)]", "x + L[0] + L[1]", "[(L[1],), (t(2, start=4.0),)]"),
    "tensor-closure": (
        "def outer(w):\n    return lambda x: x - w\nw = t(2)\ng = outer(w)", "g(x)",
        "[(w,), (t(2, start=4.0),)]",
    ),
    "other-order": ("G = t(2)", "x + G", "[(t(2, start=5.0),), (G,), (t(2, start=7.0),)]"),
    "list-global": ("G = [1, 2]", "(len(G), len(x))",
                    "[(G,), lambda: G.append(3), ([1, 2],), (G,)]"),
    "dict-global": ("G = {'a': 1}", "(G['a'], x['a'])",
                    "[(G,), lambda: G.update(a=2), ({'a': 1},), (G,)]"),
    "returned-tuple": ("T = (1, 2)", "(T, x)", "[((1, 2),), (T,), ((1, 2),)]"),
    "returned-tuple-outside": ("T = (1, t(2))", "[T, T]", "[(1,), (2,)]"),
    "constant-tuple": ("", "[(1, 2), (1, 2)]", "[(1,), (2,)]"),
    "one-tuple-twice": ("", "(lambda p: [p, p])((x, 1))", "[(1,), (t(2),)]"),
    "same-argument": ("", "x", "[(t(2),), (t(3),), (5,)]"),
    "same-list": ("", "x", "[([1],), ([2],)]"),
    "list-of-argument": ("", "[x, x]", "[(t(2),), ([1],), ((1, 2),)]"),
    "nan-in": ("N = float('nan')", "(x[0] in x[1], x[1].count(x[0]))",
               "[((N, [N]),), ((float('nan'), [N]),)]"),
    "nan-equal": ("N = float('nan')", "([x] == [N], x == x, (x,) == (x,))",
                  "[(N,), (float('nan'),), (1.0,)]"),
    "nan-index": ("N = float('nan')", "x[1].index(x[0])", "[((N, [N]),), ((float('nan'), [N]),)]"),
    "number-identity": ("G = 10 ** 9", "(x is G, x == G)", "[(G,), (int('1000000000'),)]"),
    "bytes": ("", "x + b'!'", "[(b'a',), (bytes([97]),), (b'c',)]"),
    "complex": ("", "x * 2j", "[(1 + 2j,), (complex(1, 2),), (0j,)]"),
    "range": ("", "[e for e in x]", "[(range(3),), (range(3),), (range(2),)]"),
    "generator": ("", "sum(x)", "[Fresh(lambda: ((i for i in range(3)),)),"
                  "Fresh(lambda: (iter([4, 5]),))]"),
    "iterator-once": ("I = iter([1, 2, 3])", "next(x, 'end')", "[(I,), (iter([]),)]"),
    "set": ("", "(len(x), 1 in x, sorted(x))", "[({1, 2},), ({3},), (set(),)]"),
    "set-changes": ("S = {1}", "(len(x), 5 in x)", "[(S,), lambda: S.add(5), lambda: S.clear()]"),
    "empty-set-changes": ("S = set()", "(5 in x, bool(x))", "[(S,), lambda: S.add(5)]"),
    "frozen-set": ("", "(len(x), 1 in x)", "[(frozenset([1]),), (frozenset([2]),)]"),
    "subclass": ("class N(int):\n    def double(self): return self * 2", "x.double() + 1",
                 "[(N(3),), (N(4),), (5,)]"),
    "list-subclass": ("class L(list): pass\nl = L([1])", "[*x, len(x)]",
                      "[(l,), lambda: l.append(2), (L(),)]"),
    "object-changes": ("class O: pass\no = O()\no.v = 1", "x.v",
                       "[(o,), lambda: setattr(o, 'v', 2)]"),
    "object-other": ("class O:\n    def __init__(self, v): self.v = v", "x.v",
                     "[(O(1),), (O(2),), (O(t(2)),)]"),
    "slots-changes": ("class O: __slots__ = 'v',\no = O()\no.v = 1", "x.v",
                      "[(o,), lambda: setattr(o, 'v', 2)]"),
    "module-argument": ("m = torch.nn.Linear(2, 2)", "x(t(2)).detach()",
                        "[(m,), lambda: m.weight.data.zero_(), (torch.nn.ReLU(),)]"),
    "function-argument": ("", "x(3)", "[(abs,), (lambda v: v + 1,), (str,), (None,)]"),
    "class-argument": ("class C: v = 1", "x.v", "[(C,), lambda: setattr(C, 'v', 2)]"),
    "registered": ("import abc\nclass A(abc.ABC): pass", "isinstance(x, A)",
                   "[(3,), lambda: A.register(int), (3.5,)]"),
    "hooked": ("import abc\nclass A(abc.ABC):\n    ok = False\n    @classmethod\n"
               "    def __subclasshook__(cls, kind): return cls.ok", "isinstance(x, A)",
               "[(3,), lambda: setattr(A, 'ok', True), (3.5,)]"),
    "renamed-class": ("class C: pass", "f'{x.__name__}', '{}'.format(x)[:3]",
                      "[(C,), lambda: setattr(C, '__name__', 'Other')]"),
    "renamed-function": ("def h(): pass", "'{}'.format(x).split(' at ')[0]",
                         "[(h,), lambda: setattr(h, '__qualname__', 'other')]"),
    "shown-class": ("class C: pass", "'%s' % (x,)",
                    "[(C,), lambda: setattr(C, '__qualname__', 'Other')]"),
    "meta-getattr": ("class M(type):\n    def __getattr__(cls, name): return name * 2\n"
                     "class C(metaclass=M): pass", "(getattr(x, 'ab', 0), hasattr(x, 'q'))",
                     "[(C,), (int,)]"),
    "class-property": ("class B:\n    @property\n    def __class__(self): return int\n"
                       "class C(B): pass", "isinstance(x, int), isinstance(x, C)",
                       "[(C(),), (3,)]"),
    "ellipsis-get": ("", "({'a': ...}.get('a'), 'a' in {'a': x}, getattr(C, 'e', 1))"
                     .replace("C", "type('C', (), {'e': ...})"), "[(...,), (1,)]"),
    "ellipsis-in": ("D = {'a': ...}", "('a' in D, D.get('a', 5), 'b' in D)", "[(1,), (2,)]"),
    "ellipsis-fresh": ("", "(lambda d: ('a' in d, d.get('a', 5)))({'a': ...})", "[(1,), (2,)]"),
    "lazy-map": ("def count():\n    i = 0\n    while True:\n        yield i\n        i += 1",
                 "next(map(lambda v: v * x, count()))", "[(2,), (3,)]"),
    "map-order": ("", "(lambda l: [l.append(v) or len(l) for v in map(lambda e: e + len(l), "
                  "[1, 2])])([])", "[(1,), (2,)]"),
    "map-short": ("", "list(map(lambda a, b: (a, b), [1, 2, 3], iter([x])))", "[(1,), (2,)]"),
    "torch-function-effect": (
        "LOG = []\nclass O:\n    @classmethod\n"
        "    def __torch_function__(cls, f, kinds, args=(), k=None):\n"
        "        LOG.append(1)\n        return 5",
        "(torch.add(t(2), O()), x, len(LOG))", "[(1,), (2,)]",
    ),
    "native-conversion": ("G = {'v': 1.5}\nclass O:\n    def __float__(self): return G['v']\n"
                          "    def __index__(self): return int(G['v'])",
                          "(float(O()), [0, 1, 2, 3][O()], range(O()), x)",
                          "[(1,), lambda: G.update(v=3.5), (2,)]"),
    "kept-traceback": ("class M:\n    def __enter__(self): return self\n"
                       "    def __exit__(self, *e): self.e = e[2] is None, e[0]; return True\n"
                       "def use(x):\n    with M() as m: raise ValueError(x)\n    return m",
                       "use(x).e", "[(1,), (2,)]"),
    "traceback-result": ("class M:\n    def __enter__(self): return self\n"
                         "    def __exit__(self, *e): self.e = type(e[2]).__name__; return True\n"
                         "def use(x):\n    with M() as m: raise ValueError(x)\n    return m.e",
                         "use(x)", "[(1,), (2,)]"),
    "refusal-caught": ("def use(x):\n    try: x.add_(1)\n    except RuntimeError: return x * 0\n"
                       "    return x * 0", "use(x)", "[(t(3),), (t(2),)]"),
    "generator-result": ("", "[g := (e for e in [x]), next(g)][1:]", "[(1,), (t(2),)]"),
    "set-order": ("", "list({v for v in (8, 0, x, 16)}), {8, 0, x}", "[(1,), (24,)]"),
    "object-twice": ("class O: pass\ndef use(x):\n    o = O(); o.v = x\n    return [o, o]",
                     "use(x)", "[(1,), (t(2),)]"),
    "object-cycle": ("class O: pass\ndef use(x):\n    o = O(); o.v = x; o.o = o\n    return o",
                     "use(x)", "[(1,), (t(2),)]"),
    "object-result": ("class O:\n    def __init__(self, v): self.v, self.w = v, [v]\n"
                      "    def __setattr__(self, n, v): object.__setattr__(self, n, v)",
                      "O(x), {'o': O(2)}", "[(1,), (t(2),)]"),
    "named-results": ("import collections\nP = collections.namedtuple('P', 'a b')",
                      "P(x, [x]), t(3, 2).max(0), t(3).sort().values", "[(1,), (t(2),)]"),
    "deque-result": ("import collections", "collections.deque([x, 1]), frozenset([2])",
                     "[(1,), (t(2),)]"),
    "reversed-later": ("", "(lambda l, r: [l.append(9), list(r)])(*(lambda l: (l, reversed(l)))"
                       "([1, 2]))", "[(1,), (2,)]"),
}  # fmt: skip


def _aliases() -> Iterator[Case]:
    for name, (before, read, steps) in _ALIASES.items():
        text = f"{before}\ndef f(x):\n    return {read}\nsteps = {steps}\n"
        yield of_text(f"aliases:{name}", text)


def cases() -> Iterator[Case]:
    """All of them."""
    yield from _sources()
    yield from _aliases()
