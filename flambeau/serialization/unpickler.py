"""`weights_only`: pickles are interpreted here, and only what is allowed is built.

A pickle is a program for a small stack machine (Python's `pickletools` describes it). This machine
implements the instructions that build data. A name in a file is looked up in a table (`names.safe`)
and among the names that the caller declared safe; nothing is imported, and nothing else can be
called. Work and memory are bounded by the length of the program: every copy is charged, keys are
checked before they are hashed, and there is no recursion.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any

from flambeau import _core
from flambeau.ir.failure import failure
from flambeau.runtime import safe_classes
from flambeau.serialization import names, rebuild

__all__ = ["Scanner", "Unpickler"]

_LARGEST_INT = 4096  # bytes
_LARGEST_DEPTH = 32  # of tuples inside tuples that are hashed
_LARGEST_KEY = 4096  # elements of such a tuple, all levels counted


def malformed(reason: str) -> UnpicklingError:
    """The error of a pickle that is no valid program."""
    return UnpicklingError(
        f"[load] Weights only load failed: the pickle is damaged, {reason}\nhint: save it again"
    )


def blocked(name: str) -> UnpicklingError:
    """The error of a pickle that names what is not allowed."""
    return UnpicklingError(
        "[load] Weights only load failed: Unsupported global: GLOBAL "
        f"{name} was not an allowed global by default\nhint: if you trust {name}, use "
        f"`torch.serialization.add_safe_globals([{name}])` or the `torch.serialization."
        f"safe_globals([{name}])` context manager; weights_only=False runs whatever code the "
        "file names, for files from a trusted source only"
    )


def check_key(key: Any) -> None:
    """Raises for a key whose hash would take more than a moment, or more stack than there is."""
    if not isinstance(key, tuple):
        return
    level, count = [key], 0
    for _ in range(_LARGEST_DEPTH):
        inner = [item for part in level for item in part if isinstance(item, tuple)]
        count += sum(map(len, inner))
        if not inner:
            return
        if count > _LARGEST_KEY or len(inner) > _LARGEST_KEY:
            break
        level = inner
    raise malformed("a key is nested too deeply")


class _Mark:
    """Where a group of values begins on the stack."""


_MARK = _Mark()


class Unpickler:
    """Interprets one pickle.

    Args:
        data: bytes that begin with the pickle.
        persistent_load: called with what the pickle says about a storage.
        rebuild_v3: what `torch._utils._rebuild_tensor_v3` does.
        encoding: of text that Python 2 wrote as bytes.
        begin: where in `data` the pickle begins.
        size: of the whole file, to which memory is bounded.
    """

    def __init__(
        self,
        data: bytes,
        persistent_load: Callable[[Any], Any],
        rebuild_v3: Any = None,
        encoding: str = "utf-8",
        begin: int = 0,
        size: int = 0,
    ) -> None:
        self.data, self.position = data, begin
        self.persistent_load, self.encoding = persistent_load, encoding
        self.rebuild_v3 = rebuild_v3
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.calls: dict[int, Any] = {}
        self.globals: dict[tuple[str, str], Any] = {}
        self.instances: set[int] = set()
        self.budget = 2 * max(len(data), size) + 2**16

    # ------------------------------------------------------------------ the machine
    def load(self) -> Any:
        """The object that the pickle describes.

        Raises:
            UnpicklingError: it names what is not allowed, or is damaged.
        """
        try:
            return self._run()
        except (IndexError, KeyError, TypeError, AttributeError, struct.error) as error:
            raise malformed(f"{type(error).__name__}: {error}") from error
        except (UnicodeDecodeError, OverflowError) as error:
            raise malformed(str(error)) from error
        except RecursionError as error:
            raise malformed("it is nested too deeply") from error

    def _run(self) -> Any:
        data, size = self.data, len(self.data)
        while self.position < size:
            code = data[self.position]
            self.position += 1
            if code == 0x2E:  # STOP
                return self._pop()
            handler = _HANDLERS.get(code)
            if handler is None:
                raise UnpicklingError(
                    f"[load] Weights only load failed: Unsupported operand {code}\n"
                    "hint: weights_only=False, for files from a trusted source only"
                )
            handler(self)
        raise failure(EOFError, "load", "Ran out of input", "the file is cut off, save it again")

    def _pop(self) -> Any:
        if self.marks and self.marks[-1] == len(self.stack):
            raise malformed("a mark stands where a value should")
        return self.stack.pop()

    def _group(self) -> list[Any]:
        """The values above the last mark."""
        begin = self.marks.pop()
        values = self.stack[begin:]
        del self.stack[begin:]
        return values

    def _target(self) -> Any:
        """The value below the last mark, which takes the others in."""
        begin = self.marks[-1]
        if begin == 0 or (len(self.marks) > 1 and self.marks[-2] == begin):
            raise malformed("nothing takes the values in")
        return self.stack[begin - 1]

    def _last(self) -> Any:
        if self.marks and self.marks[-1] == len(self.stack):
            raise malformed("nothing takes the value in")
        return self.stack[-1]

    def _bytes(self, count: int) -> bytes:
        end = self.position + count
        if count < 0 or end > len(self.data):
            raise EOFError("[load] Ran out of input\nhint: the file is cut off, save it again")
        data = self.data[self.position : end]
        self.position = end
        return data

    def _line(self) -> bytes:
        end = self.data.find(b"\n", self.position)
        if end < 0:
            raise EOFError("[load] Ran out of input\nhint: the file is cut off, save it again")
        line = self.data[self.position : end]
        self.position = end + 1
        return line

    def _number(self, form: str) -> int:
        return int(struct.unpack(form, self._bytes(struct.calcsize(form)))[0])

    def _charge(self, amount: int) -> None:
        """Counts bytes that are made beyond those of the file itself."""
        self.budget -= amount
        if self.budget < 0:
            raise malformed("it makes more data than it has")

    # ------------------------------------------------------------------ names and calls
    def find(self, module: str, name: str) -> Any:
        """Resolves a name of the file, if it is allowed."""
        key = (module, name)
        if key in self.globals:
            return self.globals[key]
        entry = names.safe(module, name, check_key)
        if entry is None:
            value = safe_classes.lookup(f"{names.canonical(module)}.{name}")
            if value is None:
                raise blocked(f"{names.canonical(module)}.{name}")
            entry = (value, value if callable(value) else None)
            if isinstance(value, type):
                self.instances.add(id(value))
        value, call = entry
        if value is rebuild._rebuild_tensor_v3 and self.rebuild_v3:
            value = call = self.rebuild_v3
        self.globals[key] = value
        if call is not None:
            self.calls[id(value)] = call
        return value

    def _call(self, function: Any, args: Any) -> Any:
        call = self.calls.get(id(function))
        if call is None or not isinstance(args, tuple):
            name = getattr(function, "__qualname__", type(function).__name__)
            raise UnpicklingError(
                f"[load] Weights only load failed: Trying to call reduce for unrecognized function "
                f"{name}\nhint: torch.serialization.add_safe_globals([{name}])"
            )
        if function is rebuild._rebuild_from_type_v2:
            self._check_inner(args)
        for value in args:
            if isinstance(value, (str, bytes, bytearray)):
                self._charge(len(value))
            elif isinstance(value, (list, tuple, dict, set, frozenset)):
                self._charge(8 * len(value))
        return call(*args)

    def _check_inner(self, args: tuple[Any, ...]) -> None:
        """The function that makes a tensor of a subclass has to be allowed itself."""
        if len(args) != 4 or id(args[0]) not in self.calls:
            raise malformed("a tensor is made by a function that is not allowed")
        if args[0] is rebuild._rebuild_from_type_v2 or self.calls[id(args[0])] is not args[0]:
            raise malformed("a tensor is made by a function that makes none")

    def _new(self, cls: Any, args: Any) -> Any:
        """`cls.__new__(cls, *args)` of what the caller declared safe, or a call of our table's."""
        if id(cls) in self.instances and isinstance(args, tuple):
            return cls.__new__(cls, *args)
        return self._call(cls, args)

    def _build(self, target: Any, state: Any) -> None:
        """Gives an object its attributes."""
        if type(target) is OrderedDict:
            if not isinstance(state, dict) or any(type(name) is not str for name in state):
                raise malformed("attributes have no names")
            if any(hasattr(OrderedDict, name) for name in state):
                raise malformed("an attribute hides a method")
            target.__dict__.update(state)
        elif isinstance(target, _core.Tensor):
            self._build_tensor(target, state)
        elif id(type(target)) in self.instances or _is_safe(type(target)):
            _set_state(target, state)
        else:
            name = f"{type(target).__module__}.{type(target).__qualname__}"
            problem = "Weights only load failed: Can only build Tensor, Parameter, OrderedDict or "
            problem += f"types allowlisted via `add_safe_globals`, but got {name}"
            raise failure(
                UnpicklingError, "load", problem, f"torch.serialization.add_safe_globals([{name}])"
            )

    def _build_tensor(self, target: Any, state: Any) -> None:
        """The oldest files give a tensor its storage and geometry afterwards."""
        if not isinstance(state, tuple) or len(state) not in (4, 5):
            raise malformed("a tensor has no geometry")
        requires_grad = state[0] if len(state) == 5 else None
        storage, offset, size, stride = state[-4:] if requires_grad is None else state[1:]
        view = rebuild._rebuild_tensor(storage, offset, size, stride)
        target.data = view
        if requires_grad is True:
            target.requires_grad_()

    def extend(self, target: Any, values: list[Any]) -> None:
        """Adds values to a list."""
        if type(target) is not list and id(type(target)) not in self.instances:
            raise malformed("values are added to what is no list")
        target.extend(values)

    def set_items(self, target: Any, values: list[Any]) -> None:
        """Sets keys and values, in turn, in a dict."""
        if not isinstance(target, dict) and id(type(target)) not in self.instances:
            raise malformed("items are set in what is no dict")
        if len(values) % 2:
            raise malformed("an item has no value")
        for position in range(0, len(values), 2):
            check_key(values[position])
            target[values[position]] = values[position + 1]

    def persistent(self, pid: Any) -> Any:
        """The storage that a pickle describes."""
        return self.persistent_load(pid)


class Scanner(Unpickler):
    """Runs through a pickle, builds nothing, and notes the storages that it names.

    Attributes:
        references: what it says about each.
    """

    def __init__(self, data: bytes, encoding: str = "utf-8", begin: int = 0) -> None:
        super().__init__(data, self._note, None, encoding, begin)
        self.references: list[Any] = []

    def _note(self, pid: Any) -> Any:
        self.references.append(pid)
        return _Anything()

    def find(self, module: str, name: str) -> Any:
        """A storage type, or a stand-in."""
        builder = names.safe(module, name, check_key) if name.endswith("Storage") else None
        return builder[0] if builder else _Anything()

    def _call(self, function: Any, args: Any) -> Any:
        return _Anything()

    def _new(self, cls: Any, args: Any) -> Any:
        return _Anything()

    def _build(self, target: Any, state: Any) -> None:
        """Nothing has attributes."""

    def extend(self, target: Any, values: list[Any]) -> None:
        """Nothing takes values in."""

    def set_items(self, target: Any, values: list[Any]) -> None:
        """Nothing takes items in."""


class _Anything:
    """Represents any object that a pickle would build."""


def _is_safe(cls: type) -> bool:
    return any(value is cls for value in safe_classes.get_safe_globals())


def _set_state(target: Any, state: Any) -> None:
    """Sets the state of an object of a class that the caller trusts, as `pickle` does."""
    method = getattr(target, "__setstate__", None)
    if method is not None:
        method(state)
        return
    own, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    target.__dict__.update(own or {})
    for name, value in (slots or {}).items():
        setattr(target, name, value)


# ------------------------------------------------------------------------------ instructions
def _constant(value: Any) -> Callable[[Unpickler], None]:
    return lambda machine: machine.stack.append(value)


def _number(form: str) -> Callable[[Unpickler], None]:
    return lambda machine: machine.stack.append(machine._number(form))


def _empty(kind: Callable[[], Any]) -> Callable[[Unpickler], None]:
    return lambda machine: machine.stack.append(kind())


def _text(form: str) -> Callable[[Unpickler], None]:
    def run(machine: Unpickler) -> None:
        data = machine._bytes(machine._number(form))
        machine.stack.append(data.decode("utf-8", "surrogatepass"))

    return run


def _raw(form: str, kind: Callable[[bytes], Any] = bytes) -> Callable[[Unpickler], None]:
    return lambda machine: machine.stack.append(kind(machine._bytes(machine._number(form))))


def _old_text(form: str) -> Callable[[Unpickler], None]:
    def run(machine: Unpickler) -> None:
        machine.stack.append(_decoded(machine, machine._bytes(machine._number(form))))

    return run


def _decoded(machine: Unpickler, data: bytes) -> Any:
    return data if machine.encoding == "bytes" else data.decode(machine.encoding)


def _long(form: str) -> Callable[[Unpickler], None]:
    def run(machine: Unpickler) -> None:
        count = machine._number(form)
        if count > _LARGEST_INT:
            raise malformed("a number has too many digits")
        machine.stack.append(int.from_bytes(machine._bytes(count), "little", signed=True))

    return run


def _tuple(count: int) -> Callable[[Unpickler], None]:
    def run(machine: Unpickler) -> None:
        values = tuple([machine._pop() for _ in range(count)][::-1])
        machine.stack.append(values)

    return run


def _put(form: str) -> Callable[[Unpickler], None]:
    def run(machine: Unpickler) -> None:
        machine.memo[machine._number(form)] = machine._last()

    return run


def _get(form: str) -> Callable[[Unpickler], None]:
    return lambda machine: machine.stack.append(machine.memo[machine._number(form)])


def _put_line(machine: Unpickler) -> None:
    machine.memo[int(_digits(machine._line()))] = machine._last()


def _get_line(machine: Unpickler) -> None:
    machine.stack.append(machine.memo[int(_digits(machine._line()))])


def _memoize(machine: Unpickler) -> None:
    machine.memo[len(machine.memo)] = machine._last()


def _digits(line: bytes) -> str:
    text = line.decode("ascii")
    if len(text) > 1000:
        raise malformed("a number has too many digits")
    return text


def _int_line(machine: Unpickler) -> None:
    text = _digits(machine._line())
    booleans = {"00": False, "01": True}
    machine.stack.append(booleans[text] if text in booleans else int(text.removesuffix("L")))


def _float_line(machine: Unpickler) -> None:
    machine.stack.append(float(_digits(machine._line())))


def _unicode_line(machine: Unpickler) -> None:
    machine.stack.append(machine._line().decode("raw-unicode-escape"))


def _string_line(machine: Unpickler) -> None:
    line = machine._line()
    if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"'):
        raise malformed("a string has no quotes")
    machine.stack.append(_decoded(machine, line[1:-1].decode("unicode_escape").encode("latin-1")))


def _float(machine: Unpickler) -> None:
    machine.stack.append(struct.unpack(">d", machine._bytes(8))[0])


def _proto(machine: Unpickler) -> None:
    version = machine._bytes(1)[0]
    if version > 5:
        raise malformed(f"unsupported pickle protocol {version}")


def _frame(machine: Unpickler) -> None:
    machine._bytes(8)


def _global(machine: Unpickler) -> None:
    module, name = machine._line().decode(), machine._line().decode()
    machine.stack.append(machine.find(module, name))


def _stack_global(machine: Unpickler) -> None:
    name, module = machine._pop(), machine._pop()
    if type(name) is not str or type(module) is not str:
        raise malformed("a name is no text")
    machine.stack.append(machine.find(module, name))


def _reduce(machine: Unpickler) -> None:
    args, function = machine._pop(), machine._pop()
    machine.stack.append(machine._call(function, args))


def _newobj(machine: Unpickler) -> None:
    args, cls = machine._pop(), machine._pop()
    machine.stack.append(machine._new(cls, args))


def _build(machine: Unpickler) -> None:
    state = machine._pop()
    machine._build(machine._last(), state)


def _append(machine: Unpickler) -> None:
    value = machine._pop()
    machine.extend(machine._last(), [value])


def _appends(machine: Unpickler) -> None:
    target = machine._target()
    machine.extend(target, machine._group())


def _setitem(machine: Unpickler) -> None:
    value, key = machine._pop(), machine._pop()
    machine.set_items(machine._last(), [key, value])


def _setitems(machine: Unpickler) -> None:
    target = machine._target()
    machine.set_items(target, machine._group())


def _additems(machine: Unpickler) -> None:
    target = machine._target()
    if type(target) is not set:
        raise malformed("elements are added to what is no set")
    for value in machine._group():
        check_key(value)
        target.add(value)


def _frozenset(machine: Unpickler) -> None:
    values = machine._group()
    for value in values:
        check_key(value)
    machine.stack.append(frozenset(values))


def _mark(machine: Unpickler) -> None:
    machine.marks.append(len(machine.stack))


def _grouped(kind: Callable[[list[Any]], Any]) -> Callable[[Unpickler], None]:
    return lambda machine: machine.stack.append(kind(machine._group()))


def _dict(machine: Unpickler) -> None:
    result: dict[Any, Any] = {}
    machine.set_items(result, machine._group())
    machine.stack.append(result)


def _drop(machine: Unpickler) -> None:
    machine._pop()


def _drop_group(machine: Unpickler) -> None:
    machine._group()


def _again(machine: Unpickler) -> None:
    machine.stack.append(machine._last())


def _persistent(machine: Unpickler) -> None:
    machine.stack.append(machine.persistent(machine._pop()))


_HANDLERS: dict[int, Callable[[Unpickler], None]] = {
    ord(code): handler
    for code, handler in {
        "(": _mark, "0": _drop, "1": _drop_group, "2": _again, "N": _constant(None),
        "\x88": _constant(True), "\x89": _constant(False), "I": _int_line, "L": _int_line,
        "F": _float_line, "V": _unicode_line, "S": _string_line, "G": _float, "J": _number("<i"),
        "K": _number("<B"), "M": _number("<H"), "\x8a": _long("<B"), "\x8b": _long("<I"),
        "X": _text("<I"), "\x8c": _text("<B"), "\x8d": _text("<Q"), "B": _raw("<I"),
        "C": _raw("<B"), "\x8e": _raw("<Q"), "\x96": _raw("<Q", bytearray), "T": _old_text("<i"),
        "U": _old_text("<B"), "]": _empty(list), "}": _empty(dict), ")": _constant(()),
        "\x8f": _empty(set), "a": _append, "e": _appends, "s": _setitem, "u": _setitems,
        "\x90": _additems, "\x91": _frozenset, "t": _grouped(tuple), "l": _grouped(list),
        "d": _dict, "\x85": _tuple(1), "\x86": _tuple(2), "\x87": _tuple(3), "p": _put_line,
        "q": _put("<B"), "r": _put("<I"), "g": _get_line, "h": _get("<B"), "j": _get("<I"),
        "\x94": _memoize, "c": _global, "\x93": _stack_global, "R": _reduce, "\x81": _newobj,
        "b": _build, "Q": _persistent, "\x80": _proto, "\x95": _frame,
    }.items()
}  # fmt: skip
