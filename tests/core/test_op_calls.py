"""Native op calls on hand-made plans: parsing, keys, caches, execution, `out=`, overrides.

Kernels come from a few lines of C, so that nothing of the compiler is needed here.
"""

from __future__ import annotations

import copy
import ctypes
import gc
import os
import pickle
import subprocess
import threading
import warnings
from operator import attrgetter

import pytest

import flambeau
from flambeau import _core
from flambeau.compiler import toolchain
from flambeau.ir.plan import Buffer, Execution, Launch, Number, Output, PlanSpec
from flambeau.language.schema import ArgumentSpec

KERNELS = """
#include <stdint.h>
typedef union { double d; int64_t i; } Scalar;
void add(char *const *p, const int64_t *n, const Scalar *s, int64_t b, int64_t e, char *t) {
    const float *x = (const float *)p[0], *y = (const float *)p[1]; float *o = (float *)p[2];
    int64_t end = e * 8192 < n[0] ? e * 8192 : n[0];
    for (int64_t i = b * 8192; i < end; ++i) o[i] = x[i] + y[i] * (float)s[0].d;
}
void put(char *const *p, const int64_t *n, const Scalar *s, int64_t b, int64_t e, char *t) {
    float *o = (float *)p[0];
    int64_t end = e * 8192 < n[0] ? e * 8192 : n[0];
    for (int64_t i = b * 8192; i < end; ++i) o[i] = (float)s[0].d;
}
void strided(char *const *p, const int64_t *n, const Scalar *s, int64_t b, int64_t e, char *t) {
    const float *x = (const float *)p[0]; float *o = (float *)p[1];
    for (int64_t i = 0; i < n[0]; ++i) o[i * n[2]] += x[i * n[1]];
}
void fail(char *const *p, const int64_t *n, const Scalar *s, int64_t b, int64_t e, char *t) {
    int64_t *error = (int64_t *)p[0];
    error[1] = 7; error[2] = n[0]; error[3] = 0; error[0] = 1;
}
"""
CONST, ADD, SUB, MUL, FLOORDIV, EQ = 0, 1, 2, 3, 4, 8
REQUIRED = ()


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """Addresses of the C kernels by name."""
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "k.c").write_text(KERNELS)
    options = ["-O2", "-shared", "-fPIC", "-o", folder / "k.so", folder / "k.c"]
    subprocess.run([*toolchain.find().command, *options], check=True)
    library = ctypes.CDLL(str(folder / "k.so"))
    names = ("add", "put", "strided", "fail")
    found = {n: ctypes.cast(getattr(library, n), ctypes.c_void_p).value for n in names}
    found["library"] = library
    return found


def tensor(values, dtype=None):
    return _core.tensor_from_python(values, dtype=dtype or _core.float32)


def argument(name, kind, default=REQUIRED, keyword_only=False, runtime=False, mutated=False):
    return ArgumentSpec(name, kind, default, keyword_only, runtime, mutated)


class AddBuilder:
    """Plans for `add(self, other, *, alpha)` on contiguous float32 vectors of any length."""

    def __init__(self, kernels, inplace=False):
        self.kernels, self.inplace, self.calls = kernels, inplace, []

    def __call__(self, call):
        self.calls.append(call)
        first, second = call[0], call[1]
        if first.sizes != second.sizes and second.sizes != ():
            sizes = f"{first.sizes} and {second.sizes}"
            raise RuntimeError(f"[add] shapes differ: {sizes}\nhint: reshape")
        # symbols: n, stride, offset, m, stride, offset
        program = [(EQ, 0, 3), (CONST, 4, 0), (MUL, 0, 7), (CONST, 1, 0)]
        new = Output("new", -1, "f32", [0], [9], nbytes=8)

        def compile_plan():
            scalar = Number("argument", 0, True) if len(call) > 2 else Number("constant", 1.0, True)
            launch = Launch("add", self.kernels["add"], None, [0, 1, 2], [-1, -1, -1], [0],
                            [scalar], chunks=13, work=0)  # fmt: skip
            return Execution(
                [(CONST, 8191, 0), (ADD, 0, 10), (CONST, 8192, 0), (FLOORDIV, 11, 12)],
                [Buffer("input", 0), Buffer("input", 1),
                 Buffer("input" if self.inplace else "output", 0)],
                [launch],
                keepalive=[self.kernels["library"]],
            )  # fmt: skip

        spec = PlanSpec(
            "add_" if self.inplace else "add",
            symbols=6,
            tensors=2,
            outputs=[Output("input", 0) if self.inplace else new],
            visible=1,
            numbers=int(len(call) > 2),
            program=program,
            guards=[6],
            mutated=[0] if self.inplace else [],
        )
        return _core.Plan(spec, compile=compile_plan)


@pytest.fixture
def add(kernels):
    builder = AddBuilder(kernels)
    arguments = (
        argument("self", "Tensor"),
        argument("other", "TensorOrScalar"),
        argument("alpha", "Scalar", (1,), True, True),
    )
    op = _core.Op("add", [(arguments, builder, ("cast",))])
    op.builder = builder
    return op


@pytest.fixture(autouse=True)
def _fresh_cache():
    _core.plan_cache_clear()


def test_runs_and_caches(add):
    x, y = tensor([1.0, 2.0, 3.0]), tensor([10.0, 20.0, 30.0])
    assert add(x, y).tolist() == [11.0, 22.0, 33.0]
    assert add(x, y, alpha=2).tolist() == [21.0, 42.0, 63.0]
    assert add(x, other=y, alpha=3).tolist() == [31.0, 62.0, 93.0]
    assert len(add.builder.calls) == 1
    longer = tensor([1.0] * 5)
    assert add(longer, longer).tolist() == [2.0] * 5
    stats = _core.plan_cache_stats()
    assert stats == {"exact_hits": 2, "class_hits": 1, "builds": 1, "entries": 2, "plans": 1}
    # The type of a run-time number is part of the key, its value is not.
    assert add(x, y, alpha=0.5).tolist() == [6.0, 12.0, 18.0]
    assert add(x, y, alpha=0.25).tolist() == [3.5, 7.0, 10.5]
    assert len(add.builder.calls) == 2


def test_call_description(add):
    x = tensor([1.0, 2.0])
    add(x, x, alpha=0.5)
    first, second, alpha = add.builder.calls[0]
    assert type(first) is _core.TensorArgument
    assert first[:6] == ("f32", (2,), (1,), 0, False, "contiguous")
    assert (first.dtype, first.sizes, str(first.device)) == ("f32", (2,), "cpu")
    assert second == first
    assert type(alpha) is _core.ScalarArgument
    assert (alpha.slot, alpha.type, alpha.value) == (0, float, 0.5)


def test_description_with_other_fields(add):
    add(tensor([1.0]), tensor([1.0]))
    first = add.builder.calls[0][0]
    changed = first._replace(sizes=(3,), offset=2)
    assert type(changed) is _core.TensorArgument
    assert changed == ("f32", (3,), (1,), 2, False, "contiguous", first.device)
    assert first.sizes == (1,)
    with pytest.raises(TypeError, match="no field"):
        first._replace(shape=(3,))


def test_large_runs_in_parallel(add):
    n = 1_000_003
    x = tensor([1.0]).expand(n).contiguous() if hasattr(_core.Tensor, "expand") else None
    x = x if x is not None else tensor([1.0] * n)
    for threads in (1, 2, 3):
        _core.set_num_threads(threads)
        assert set(add(x, x).tolist()) == {2.0}
    _core.set_num_threads(2)


def test_errors(add):
    x = tensor([1.0])
    with pytest.raises(TypeError, match=r"\[add\] argument 'other' must be Tensor or Number, got"):
        add(x, "a")
    with pytest.raises(TypeError, match=r"missing a required argument: 'other'"):
        add(x)
    with pytest.raises(TypeError, match=r"at most 2 positional arguments, got 3"):
        add(x, x, x)
    with pytest.raises(TypeError, match=r"unexpected keyword argument: 'beta'"):
        add(x, x, beta=1)
    with pytest.raises(TypeError, match=r"several values for argument: 'other'"):
        add(x, x, other=x)
    with pytest.raises(RuntimeError, match=r"shapes differ") as caught:
        add(x, tensor([1.0, 2.0]))
    assert caught.traceback[-1].name == "test_errors"


def test_method_and_pickle(add, monkeypatch):
    monkeypatch.setattr(_core.Tensor, "add_for_test", add, raising=False)
    x = tensor([1.0])
    assert x.add_for_test(x).tolist() == [2.0]
    bound = x.add_for_test
    assert bound(x).tolist() == [2.0]
    add.__module__ = __name__
    add.__qualname__ = "the_op"
    monkeypatch.setitem(globals(), "the_op", add)
    assert pickle.loads(pickle.dumps(add)) is add
    assert copy.deepcopy(add) is add
    add.__doc__ = "Adds."
    assert add.__doc__ == "Adds."
    assert add.__name__ == "add"
    assert add.schemas == ("add(Tensor self, TensorOrScalar other, *, Scalar alpha=1)",)


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize(
    "name",
    ["sigmoid", "relu_", "nn.functional.softplus", "nn.functional.gelu", "linalg.svd"]
    + ["fft.fft", "special.erf", "Tensor.add", "Tensor.add_", "Tensor.__add__", "Tensor.view"]
    + ["ops.aten.relu", "ops.aten.add.Tensor", "signal.windows.hann"],
)
def test_installed_operators_pickle(name, protocol):
    operator = attrgetter(name)(flambeau)
    assert pickle.loads(pickle.dumps(operator, protocol)) is operator
    assert copy.deepcopy(operator) is operator
    assert copy.copy(operator) is operator


def test_operators_of_nobody_do_not_pickle(add):
    with pytest.raises(TypeError, match="no definition that could be found again"):
        pickle.dumps(add)


def test_out(add):
    x, y = tensor([1.0, 2.0]), tensor([3.0, 4.0])
    out = tensor([0.0, 0.0])
    assert add(x, y, out=out) is out
    assert out.tolist() == [4.0, 6.0]
    wide = tensor([0.0, 0.0], _core.float64)
    assert add(x, y, out=wide).tolist() == [4.0, 6.0]
    with pytest.raises(RuntimeError, match="can't be cast"):
        add(x, y, out=tensor([0, 0], _core.int64))
    assert add(x, y, out=x) is x
    assert x.tolist() == [4.0, 6.0]
    assert add(x, y, out=None).tolist() == [7.0, 10.0]


def test_out_resizes(add):
    x = tensor([1.0, 2.0])
    out = tensor([1.0, 2.0, 3.0])
    with pytest.warns(UserWarning, match="resized"):
        add(x, x, out=out)
    assert out.tolist() == [2.0, 4.0]
    empty = _core.tensor_empty((0,), dtype=_core.float32)
    assert add(x, x, out=empty).tolist() == [2.0, 4.0]


def test_inplace_bumps_version(kernels):
    builder = AddBuilder(kernels, inplace=True)
    arguments = (argument("self", "Tensor", mutated=True), argument("other", "Tensor"))
    op = _core.Op("add_", [(arguments, builder, ())])
    x = tensor([1.0, 2.0])
    before = x._version
    assert op(x, x) is x
    assert x.tolist() == [2.0, 4.0]
    assert x._version == before + 1
    base = tensor([1.0, 2.0, 3.0])
    head = _core.tensor_alias(base, (2,), (1,), 0)
    tail = _core.tensor_alias(base, (2,), (1,), 1)
    op(tail, head)  # the other operand is read as it was before the call
    assert base.tolist() == [1.0, 3.0, 5.0]


def test_inplace_needs_separate_elements(kernels):
    builder = AddBuilder(kernels, inplace=True)
    arguments = (argument("self", "Tensor", mutated=True), argument("other", "Tensor"))
    op = _core.Op("add_", [(arguments, builder, ())])
    spread = _core.tensor_alias(tensor([1.0]), (3,), (0,), 0)
    with pytest.raises(RuntimeError, match=r"\[add_\] unsupported operation"):
        op(spread, tensor([1.0, 2.0, 3.0]))


def test_plans_of_static_values_that_never_repeat_are_dropped():
    """Each value is a class of its own: an overload keeps 1,024 plans, its keys no others."""

    def build(call):
        symbols = len(call[0].sizes) * 2 + 1
        return _core.Plan(PlanSpec("same", symbols, 1, [Output("input", 0)], 1))

    arguments = (argument("self", "Tensor"), argument("k", "int"))
    op = _core.Op("same", [(arguments, build, ())])
    x, before = tensor([1.0]), _core.plan_cache_stats()
    others = _live_plans()
    for value in range(5_000):
        op(x, value)
    after = _core.plan_cache_stats()
    assert after["builds"] - before["builds"] == 5_000
    assert after["plans"] - before["plans"] <= 1_024
    assert after["entries"] - before["entries"] <= 1_024
    assert _live_plans() - others <= 1_024
    op(x, 4_999)  # the newest are kept
    assert _core.plan_cache_stats()["builds"] == after["builds"]


def test_plans_whose_guards_never_repeat_are_dropped():
    """One class, whose plans each fit one size: the core keeps 256, and keys of those alone."""

    def build(call):
        size = call[0].sizes[0]
        program = [(CONST, size, 0), (EQ, 0, 3)]
        output = Output("input", 0)
        return _core.Plan(PlanSpec("same", 3, 1, [output], 1, program=program, guards=[4]))

    op = _core.Op("same", [((argument("self", "Tensor"),), build, ())])
    before, others = _core.plan_cache_stats(), _live_plans()
    for size in range(2, 2_000):
        op(_core.tensor_empty((size,), dtype=_core.float32))
    after = _core.plan_cache_stats()
    assert after["builds"] - before["builds"] == 1_998
    assert after["plans"] - before["plans"] <= 256
    assert after["entries"] - before["entries"] <= 256
    assert _live_plans() - others <= 256


def _live_plans():
    gc.collect()
    return sum(type(each) is _core.Plan for each in gc.get_objects())


def test_forked_child_has_threads_of_its_own(add):
    x = tensor([1.0] * 300_000)
    add(x, x)
    child = os.fork()
    if child == 0:
        os._exit(0 if add(x, x).tolist()[-1] == 2.0 else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("index", IndexError),
        ("runtime", RuntimeError),
        ("value", ValueError),
        ("linalg", flambeau.linalg.LinAlgError),
    ],
)
def test_error_buffer(kernels, kind, error):
    message = "runtime:index {value} is out of bounds, size {size}"  # no prefix has a meaning

    def build(call):
        execution = Execution(
            [],
            [Buffer("error", error=kind, message=message)],
            [Launch("t", kernels["fail"], None, [0], sizes=[0], chunks=3)],
        )
        spec = PlanSpec("take", 3, 1, [], 0, program=[(CONST, 1, 0)], returns="nothing")
        return _core.Plan(spec, compile=lambda: execution)

    op = _core.Op("take", [((argument("self", "Tensor"),), build, ())])
    text = r"^\[take\] runtime:index 7 is out of bounds, size 3$"
    with pytest.raises(error, match=text) as raised:
        op(tensor([1.0, 2.0, 3.0]))
    assert type(raised.value) is error


def arena_execution(kernels):
    """x + 2 * 5: the fives are a temporary."""
    fives = [Number("constant", 5.0, True)]
    twice = [Number("constant", 2.0, True)]
    return Execution(
        [(CONST, 1, 0)],
        [Buffer("input", 0), Buffer("temporary", nbytes=4, first=0, last=1), Buffer("output", 0)],
        [
            Launch("put", kernels["put"], None, [1], sizes=[0], scalars=fives, chunks=6, group=0),
            Launch("add", kernels["add"], None, [0, 1, 2], sizes=[0], scalars=twice, chunks=6,
                   group=1),
        ],
    )  # fmt: skip


def test_arena(kernels):
    def build(call):
        program = [(CONST, 4, 0), (MUL, 0, 3), (CONST, 1, 0)]
        outputs = [Output("new", -1, "f32", [0], [5], nbytes=4)]
        spec = PlanSpec("shift", 3, 1, outputs, 1, program=program, returns="list")
        return _core.Plan(spec, compile=lambda: arena_execution(kernels))

    op = _core.Op("shift", [((argument("self", "Tensor"),), build, ())])
    (result,) = op(tensor([1.0, 2.0, 3.0]))
    assert result.tolist() == [11.0, 12.0, 13.0]


def alias_builder(calls):
    """select(self, index): a view whose offset depends on the input's own offset."""

    def build(call):
        calls.append(call)
        # symbols: sizes 0 1, strides 2 3, offset 4, index 5
        outputs = [Output("alias", 0, "f32", [1], [3], 7)]
        program = [(MUL, 5, 2), (ADD, 4, 6)]
        return _core.Plan(PlanSpec("select", 6, 1, outputs, 1, program=program))

    return build


def test_views_do_not_depend_on_offsets():
    calls = []
    arguments = (argument("self", "Tensor"), argument("index", "SymInt"))
    op = _core.Op("select", [(arguments, alias_builder(calls), ())])
    x = tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    assert [op(x, i).tolist() for i in range(3)] == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    shifted = _core.tensor_alias(x, (2, 2), (2, 1), 2)
    assert op(shifted, 1).tolist() == [5.0, 6.0]
    assert op(x, 0).data_ptr() == x.data_ptr()
    assert len(calls) == 1
    assert type(calls[0][1]) is _core.IntegerArgument
    assert calls[0][1].value == 0


def test_static_values_and_kinds():
    seen = []

    def implementation(*args, **kwargs):
        seen.append((args, kwargs))
        return len(seen)

    arguments = (
        argument("self", "Tensor"),
        argument("dims", "int[]"),
        argument("mode", "str", ("a",), True),
    )
    op = _core.Op("host", [(arguments, implementation, ("python",))])
    x = tensor([1.0])
    assert op(x, 1, 2, 3, mode="b") == 1
    assert op(x, 4) == 2
    assert op(x, [5, 6]) == 3
    assert op(input=x, dims=(7,)) == 4
    assert [(a[1], k["mode"]) for a, k in seen] == [
        ((1, 2, 3), "b"), ((4,), "a"), ([5, 6], "a"), ((7,), "a")
    ]  # fmt: skip
    for wrong in ("x", 1.5, [1.5], None):
        with pytest.raises(TypeError, match=r"argument 'dims' must be tuple of ints, got"):
            op(x, wrong)


def describe(kind, value, default=REQUIRED, runtime=False):
    """What the build function is told about one argument."""
    told = []

    def build(call):
        told.append(call[0])
        raise RuntimeError("[stop] enough\nhint: none")

    op = _core.Op("describe", [((argument("v", kind, default, False, runtime),), build, ())])
    with pytest.raises(RuntimeError, match="stop"):
        op(value)
    return told[0]


def test_descriptions():
    assert describe("int", 3) == 3
    assert describe("float", 3) == 3.0
    assert describe("int[]", [1, 2]) == (1, 2)
    assert [entry.value for entry in describe("SymInt[]", (1, 2))] == [1, 2]
    assert describe("bool", True) is True
    assert describe("str?", None) is None
    assert describe("str", "mean") == "mean"
    assert describe("dtype", _core.float16) is _core.float16
    assert describe("dtype", float) is _core.float64
    assert str(describe("device?", "cpu")) == "cpu"
    assert describe("Scalar", 1 + 2j, runtime=True) == 1 + 2j
    assert describe("Scalar", True, runtime=True) == (0, bool, True)
    assert describe("Scalar", tensor(2.5), runtime=True) == (0, float, 2.5)
    assert describe("int", tensor(4, _core.int64)) == 4
    assert describe("generator?", None) == (0,)
    assert describe("float[]", (1, 2.5)) == (1.0, 2.5)
    x = tensor([[1.0, 2.0], [3.0, 4.0]])
    turned = _core.tensor_alias(x, (2, 2), (1, 2), 0)
    assert [t.layout for t in describe("Tensor[]", [x, turned])] == ["contiguous", (1, 0)]
    row = _core.tensor_alias(x, (3, 2), (0, 1), 0)
    assert describe("Tensor", row).layout == "strided"


def test_numpy_scalars():
    np = pytest.importorskip("numpy")
    assert describe("Scalar", np.float32(0.5), runtime=True) == (0, float, 0.5)
    assert describe("Scalar", np.int64(5), runtime=True) == (0, int, 5)
    assert describe("Scalar", np.bool_(True), runtime=True) == (0, bool, True)
    assert describe("int", np.int32(5)) == 5
    assert describe("bool", np.bool_(False)) is False


def test_factories_follow_the_default_device():
    calls = []

    def build(call):
        calls.append(str(_core.get_default_device()))
        device = _core.get_default_device()
        outputs = [Output("new", -1, "f32", [0], [1], nbytes=2, device=device)]
        program = [(CONST, 1, 0), (CONST, 4, 0)]
        return _core.Plan(PlanSpec("empty", 1, 0, outputs, 1, program=program))

    op = _core.Op("empty", [((argument("n", "SymInt"),), build, ())])
    before = _core.get_default_device()
    assert str(op(3).device) == "cpu"
    try:
        _core.set_default_device("meta")
        assert str(op(3).device) == "meta"
    finally:
        _core.set_default_device(before)
    assert str(op(3).device) == "cpu"
    assert len(calls) == 2


def test_structseq():
    kind = _core.make_structseq("torch.return_types.max", ("values", "indices"))
    made = kind((1, 2))
    assert made.values == 1
    assert made.indices == 2


def test_torch_function(add):
    calls = []

    class Logged(_core.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            calls.append((func, types, len(args), kwargs))
            return _core._disabled_torch_function(func, types, args, kwargs)

    x = tensor([1.0])
    logged = x.as_subclass(Logged) if hasattr(x, "as_subclass") else None
    if logged is not None:
        assert add(x, logged, alpha=2).tolist() == [3.0]
        assert calls == [(add, (Logged,), 2, {"alpha": 2})]

    class Duck:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return "duck"

    assert add(x, Duck()) == "duck"


def test_function_mode(add):
    x = tensor([1.0])
    seen = []

    def mode(func, types, args, kwargs):
        seen.append(func.__name__)
        return func(*args, **kwargs)

    before = _core.set_function_mode(mode)
    try:
        assert add(x, x).tolist() == [2.0]
    finally:
        assert _core.set_function_mode(before) is mode
    assert seen == ["add"]


def test_many_threads(add):
    x = tensor([1.0] * 200_000)
    failures = []

    def work():
        for _ in range(20):
            if add(x, x).tolist()[-1] != 2.0:
                failures.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_cache_is_bounded(add):
    sizes = 9000
    x = _core.tensor_empty((sizes,), dtype=_core.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(1, sizes):
            view = _core.tensor_alias(x, (n,), (1,), 0)
            add(view, view)
    assert _core.plan_cache_stats()["entries"] <= 8192
