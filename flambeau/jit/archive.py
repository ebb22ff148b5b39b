"""Archives of scripted code: `torch.jit.save` and `load`.

An archive is a zip file as `torch.save` writes it. `data.pkl` describes the modules: their names,
parameters, buffers, attributes and submodules; the record `code/n` is the source of function *n*.
The library's own modules are stored by name. Loading needs no source of the class and runs nothing
but verified scripted code (`verifier`).
"""

from __future__ import annotations

import ast
import enum
import inspect
import io
import os
import typing
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.ir.modules import module_of
from flambeau.jit import names
from flambeau.jit.functions import Code, Program, ScriptFunction, scripts
from flambeau.jit.modules import RecursiveScriptModule, ScriptModule, layer_of, scripted_class
from flambeau.jit.rewriting import unused_stub
from flambeau.jit.script_types import Tensor
from flambeau.jit.signature import schema_of_tree
from flambeau.jit.verifier import Verifier, refused
from flambeau.nn import Module
from flambeau.runtime.replacing import replacing
from flambeau.serialization.scripted_pickles import ScriptedObject

_FORMAT = "flambeau.jit 1"
_TABLES = ("_parameters", "_buffers")
_SKIPPED = frozenset(
    "_script_codes _pending_methods _original_name _failed_attributes "
    "_script_properties _modules _parameters _buffers".split()
)


# Writing.


class _Writer:
    """Collects what an archive of one module or function holds."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.sources: list[str] = []
        self.functions: dict[str, int] = {}
        self.classes: dict[str, Any] = {}
        self.constants: dict[str, Any] = {}
        self.modules: list[dict[str, Any]] = []
        self._indices: dict[int, int] = {}

    def content(self, root: Any) -> dict[str, Any]:
        """The archive's description of a scripted module or function."""
        if isinstance(root, ScriptFunction):
            entry: Any = self._function(root.qualified_name, root._code)
            kind = "function"
        else:
            entry, kind = self._module(root), "module"
        return {
            "format": _FORMAT,
            "kind": kind,
            "root": entry,
            "functions": self.functions,
            "classes": self.classes,
            "constants": self.constants,
            "modules": self.modules,
        }

    def _function(self, name: str, code: Code) -> str:
        if name not in self.functions:
            self.functions[name] = -1  # recursion finds it
            self.functions[name] = self._source(code)
        return name

    def _source(self, code: Code) -> int:
        if code.passes:
            raise RuntimeError(f"Could not export the builtin function '{code.name}'")
        if code.python_calls:
            raise RuntimeError(
                f"Could not export Python function call '{code.python_calls[0]}'. Remove calls to "
                "Python functions before export. Did you forget to add @script or @script_method "
                "annotation? If this is a nn.ModuleList, add it to __constants__"
            )
        for path in _archive_names(code.tree):
            self._dependency(path)
        self.sources.append(code.text)
        return len(self.sources) - 1

    def _dependency(self, path: str) -> None:
        """Stores the function, class or constant that a name of scripted code means."""
        parts = path.split(".")
        for end in range(len(parts), 1, -1):
            name = ".".join(parts[:end])
            if name in self.program.codes:
                self._function(name, self.program.codes[name])
                return
            if name in self.program.classes:
                self.classes.setdefault(name, _class_record(self.program.classes[name]))
                return
        value: Any = self.program.root
        for part in parts[1:]:
            value = getattr(value, part)
        self.constants[path] = value

    def _module(self, module: Any) -> int:
        if id(module) in self._indices:
            return self._indices[id(module)]
        if not isinstance(module, ScriptModule):
            raise RuntimeError(f"[jit.save] {type(module).__name__} is not scripted")
        index = self._indices[id(module)] = len(self.modules)
        record: dict[str, Any] = {}
        self.modules.append(record)
        state = module.__dict__
        codes = state["_script_codes"]
        self._refuse_python(module, codes)
        record["name"] = module.original_name
        record["library"] = _library_name(type(module))
        record["properties"] = sorted(state.get("_script_properties", ()))
        record["methods"] = {name: self._source(code) for name, code in codes.items()}
        record["unused"] = [n for n, v in state.items() if getattr(v, "unused", False) is True]
        record["modules"] = OrderedDict(
            (name, None if inner is None else self._module(inner))
            for name, inner in module._modules.items()
        )
        record["parameters"], record["buffers"] = state["_parameters"], state["_buffers"]
        record["not_persistent"] = sorted(state["_non_persistent_buffers_set"])
        record["functions"] = {
            name: self._function(value.qualified_name, value._code)
            for name, value in state.items()
            if isinstance(value, ScriptFunction) and not value._code.passes
        }
        record["attributes"] = self._attributes(state)
        return index

    def _refuse_python(self, module: Any, codes: Mapping[str, Code]) -> None:
        """Raises where scripted methods call a method that stays Python."""
        for code in codes.values():
            for node in ast.walk(code.tree):
                if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
                    value = module.__dict__.get(node.attr)
                    if getattr(value, "__wrapped__", None) is not None or (
                        callable(getattr(value, "__func__", None))
                    ):
                        raise RuntimeError(
                            f"Could not export Python function call '{node.attr}'. Remove calls to "
                            "Python functions before export."
                        )

    def _attributes(self, state: Mapping[str, Any]) -> dict[str, Any]:
        plain = Module().__dict__
        attributes = {}
        for name, value in state.items():
            if name in _SKIPPED or (name in plain and name != "training"):
                continue
            stored = _stored(value)
            if stored is not _NOT_STORED:
                attributes[name] = stored
        return attributes


_NOT_STORED = object()


def _stored(value: Any) -> Any:
    """An attribute as a file holds it; functions of the library by name."""
    if isinstance(value, enum.Enum):
        return _NOT_STORED
    if isinstance(value, (list, tuple, dict)):
        inner = value.values() if isinstance(value, dict) else value
        fits = all(_stored(item) is item for item in inner)
        return value if fits and not hasattr(value, "_fields") else _NOT_STORED
    if names.is_constant(value) or isinstance(value, Tensor):
        return value
    if callable(value) and (name := _operator_name(value)) is not None:
        return {_LIBRARY: name}
    return _NOT_STORED


_LIBRARY = "__library__"


def _operator_name(value: Any) -> str | None:
    """The public name of an operator, or None."""
    name: str | None = late("flambeau.overrides").resolve_name(value)
    return name


def _library_name(cls: Any) -> str | None:
    """The public name of the layer of the library that a scripted module's class derives from."""
    layer = layer_of(cls)
    if layer is None:
        return None
    return f"torch{module_of(layer).removeprefix('flambeau')}.{layer.__qualname__}"


def _class_record(cls: type) -> dict[str, Any]:
    if issubclass(cls, enum.Enum):
        return {"kind": "enum", "members": {member.name: member.value for member in cls}}
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return {"kind": "tuple", "fields": list(cls._fields), "defaults": _defaults(cls)}
    problem = f"objects of class {cls.__name__} cannot be stored in archives yet"
    raise failure(
        NotImplementedError, "jit.save", problem, "use a NamedTuple, or functions of its fields"
    )


def _defaults(cls: Any) -> dict[str, Any]:
    return dict(cls._field_defaults)


def _archive_names(tree: ast.AST) -> set[str]:
    """The names of the archive's own functions, classes and constants that code uses."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            if text.startswith("__torch__."):
                names.add(text)
    return {name for name in names if not any(other.startswith(name + ".") for other in names)}


def save(m: Any, f: Any, _extra_files: Mapping[str, Any] | None = None) -> None:
    """Writes a scripted module or function to an archive.

    Args:
        m: what `script` or `trace` returned.
        f: a path or a binary file object.
        _extra_files: further records by name, text or bytes.

    Raises:
        RuntimeError: scripted code calls a Python function.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> torch.jit.save(torch.jit.script(torch.nn.ReLU()), file)
        >>> _ = file.seek(0)
        >>> torch.jit.load(file)(torch.tensor([-1.0, 1.0]))
        tensor([0., 1.])
    """
    warnings.warn("`torch.jit.save` is deprecated. Please switch to `torch.export`.",
                  DeprecationWarning, stacklevel=2)  # fmt: skip
    data = to_bytes(m, _extra_files)
    if isinstance(f, (str, os.PathLike)):
        with replacing(os.fspath(f)) as file:
            file.write(data)
    else:
        f.write(data)


def to_bytes(m: Any, _extra_files: Mapping[str, Any] | None = None) -> bytes:
    """An archive as bytes."""
    if not isinstance(m, (ScriptModule, ScriptFunction)):
        raise ValueError(f"[jit.save] {type(m).__name__} is not scripted")
    if "_archive_names" in m.__dict__:
        raise NotImplementedError(
            "[jit.save] modules from archives of PyTorch's are not written again\n"
            "hint: copy the file; torch.save stores the state_dict"
        )
    writer = _Writer(getattr(m, "_program", None) or m.__dict__.get("_program", scripts.program))
    content = writer.content(m)
    file = io.BytesIO()
    records = {f"code/{i}.py": text.encode() for i, text in enumerate(writer.sources)}
    for name, value in (_extra_files or {}).items():
        records[f"extra/{name}"] = value.encode() if isinstance(value, str) else bytes(value)
    records["constants.pkl"] = b"\x80\x02)."  # an empty tuple; its presence marks scripted code
    archives = late("flambeau.serialization.archives")
    archives.write(content, file, "archive", None, 2, records=records)
    return file.getvalue()


def save_jit_module_to_flatbuffer(*args: Any, **kwargs: Any) -> None:
    """Flatbuffers of PyTorch Mobile, which Flambeau does not write."""
    raise NotImplementedError("[jit] flatbuffer archives are not in Flambeau\nhint: torch.jit.save")


jit_module_from_flatbuffer = save_jit_module_to_flatbuffer


def export_opnames(m: Any) -> list[str]:
    """Names of the operators that a scripted module calls.

    Example:
        >>> torch.jit.export_opnames(torch.jit.trace(torch.relu, torch.ones(1)))
        ['aten::relu']
    """
    holders = m.modules() if isinstance(m, ScriptModule) else [m]
    called = set()
    for holder in holders:
        codes = holder.__dict__.get("_script_codes", {}).values()
        for code in codes if isinstance(holder, ScriptModule) else [holder._code]:
            for node in ast.walk(code.tree):
                if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("torch."):
                    called.add("aten::" + ast.unparse(node.func).rpartition(".")[2])
    return sorted(called)


# Reading.


def load(
    f: Any,
    map_location: Any = None,
    _extra_files: dict[str, Any] | None = None,
    _restore_shapes: bool = False,
) -> Any:
    """Reads an archive that `save` wrote, here or in PyTorch.

    Of PyTorch's archives weights are read, and the code of plain modules and functions; what their
    code does that is not known here raises NotImplementedError when it is called.

    Args:
        f: a path or a binary file object.
        map_location: as in `torch.load`.
        _extra_files: names of further records; their contents are put in.

    Raises:
        RuntimeError: the file is damaged, or holds code that is not scripted code.
        ValueError: no file of this name.
    """
    warnings.warn("`torch.jit.load` is deprecated. Please switch to `torch.export`.",
                  DeprecationWarning, stacklevel=2)  # fmt: skip
    if isinstance(f, (str, os.PathLike)):
        path = os.fspath(f)
        if not os.path.exists(path):
            raise ValueError(f"The provided filename {path} does not exist")
        if os.path.isdir(path):
            raise ValueError(f"The provided filename {path} is a directory")
    return _load(f, map_location, _extra_files)


def from_bytes(data: bytes) -> Any:
    """The module or function of an archive's bytes."""
    return _load(io.BytesIO(data), None, None)


def _load(f: Any, map_location: Any, extra_files: dict[str, Any] | None) -> Any:
    read = late("flambeau.serialization").read_scripted
    content, records = read(f, map_location)
    for name in extra_files or ():
        if f"extra/{name}" in records:
            assert extra_files is not None
            extra_files[name] = records[f"extra/{name}"]
    return restored(content, records)


def restored(content: Any, records: Mapping[str, bytes]) -> Any:
    """The module or function that an archive's content and records describe."""
    foreign = isinstance(content, ScriptedObject)
    if not foreign and (not isinstance(content, dict) or content.get("format") != _FORMAT):
        raise refused("it describes no module")
    try:
        if foreign:
            return late("flambeau.jit.torchscript").restored(content, records)
        return _Reader(content, records).root()
    except (KeyError, IndexError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise refused(f"{type(error).__name__}: {error}") from error


class _Reader:
    """Builds what an archive describes."""

    def __init__(self, content: dict[str, Any], records: Mapping[str, bytes]) -> None:
        self.content, self.records = content, records
        self.program = Program()
        self.verifier = Verifier(_attribute_names(content))
        self.modules: dict[int, Any] = {}
        for name, record in content["classes"].items():
            self._class(_own_name(name), record)
        for name, value in content["constants"].items():
            if not isinstance(value, Tensor):
                raise refused("a constant that is no tensor")
            self.program.root.place(_own_name(name), value)
        for name, source in content["functions"].items():
            code = self._code(source)
            self.program.codes[name] = code
            self.program.root.place(_own_name(name), code.run)

    def root(self) -> Any:
        """The module or function."""
        if self.content["kind"] == "function":
            name = self.content["root"]
            return ScriptFunction(self.program.codes[name], name, self.program, None)
        return self._module(self.content["root"])

    def _class(self, name: str, record: Mapping[str, Any]) -> None:
        plain = name.rpartition(".")[2]
        if record["kind"] == "enum":
            members = dict(record["members"])
            cls: Any = enum.Enum(plain, members)  # type: ignore[misc]
        else:
            fields = [(_identifier(field), Any) for field in record["fields"]]
            cls = typing.NamedTuple(plain, fields)  # type: ignore[misc, no-redef]
            cls.__new__.__defaults__ = tuple(record["defaults"].values())
        self.program.classes[f"__torch__.{name}"] = cls
        self.program.root.place(name, cls)

    def _code(self, source: int) -> Code:
        if type(source) is not int:
            raise refused("a function without a number")
        tree = self.verifier.parse(self.records[f"code/{source}.py"].decode())
        run = self.program.compile(tree, f"<code/{source}.py>")
        return Code(tree.name, schema_of_tree(tree, run, self.program), tree, run)

    def _module(self, index: int) -> Any:
        if index in self.modules:
            return self.modules[index]
        record = self.content["modules"][index]
        cls = scripted_class(RecursiveScriptModule, _library_class(record["library"]))
        module = cls.__new__(cls)
        RecursiveScriptModule.__init__(module, str(record["name"]))
        self.modules[index] = module
        state = module.__dict__
        state["_program"] = self.program
        state["_script_properties"] = set(record["properties"])
        for name, source in record["methods"].items():
            state["_script_codes"][name] = self._code(source)
        for name, value in record["attributes"].items():
            state[name] = _library_value(value)
        for name in record["unused"]:
            state[name] = unused_stub(name)
        for name, function in record["functions"].items():
            code = self.program.codes[function]
            state[name] = ScriptFunction(code, function, self.program, None)
        state["_parameters"] = dict(record["parameters"])
        state["_buffers"] = dict(record["buffers"])
        state["_non_persistent_buffers_set"] = set(record["not_persistent"])
        for name, inner in record["modules"].items():
            state["_modules"][name] = None if inner is None else self._module(inner)
        return module


def _attribute_names(content: Mapping[str, Any]) -> set[str]:
    """All names of attributes that code of an archive may use; checked by the verifier."""
    names: set[str] = set()
    for record in content["modules"]:
        for table in ("methods", "attributes", "functions", "modules", "parameters", "buffers"):
            names.update(record[table])
        names.update(record["unused"])
        names.update(record["properties"])
    for record in content["classes"].values():
        names.update(record["fields"] if record["kind"] == "tuple" else record["members"])
    return names - {"forward", "training"} | {"forward", "training", "name", "value"}


def _own_name(name: str) -> str:
    """A dotted name of the archive, without its first part."""
    head, _, path = name.partition(".")
    if head != "__torch__" or not all(map(_identifier, path.split("."))):
        raise refused(f"a name {name[:80]!r}")
    return path


def _identifier(name: str) -> str:
    if not name.isidentifier() or (name.startswith("__") and name != "__main__"):
        raise refused(f"a name {name[:80]!r}")
    return name


def _library_class(name: str | None) -> Any:
    """The layer of the library that an archive names."""
    if name is None:
        return None
    parts = str(name).split(".")
    layers: Any = late("flambeau.nn.modules")
    family = getattr(layers, parts[3], None) if len(parts) == 5 else None
    cls = getattr(family, parts[4], None) if inspect.ismodule(family) else None
    fits = isinstance(cls, type) and issubclass(cls, Module) and names.is_library(cls)
    if parts[:3] != ["torch", "nn", "modules"] or not fits:
        raise refused(f"a layer {str(name)[:80]!r}")
    return cls


def _library_value(value: Any) -> Any:
    """An attribute; a function of the library that is stored by name."""
    if not isinstance(value, dict) or set(value) != {_LIBRARY}:
        return value
    path = str(value[_LIBRARY])
    result: Any = late("flambeau")
    for part in path.split(".")[1:]:
        result = getattr(result, part, None)
    if _operator_name(result) is None:
        raise refused(f"a function {path[:80]!r}")
    return result


def define_method(module: Any, source: str) -> None:
    """Adds a method of scripted code to a module."""
    import textwrap

    tree = ast.parse(textwrap.dedent(source)).body[0]
    assert isinstance(tree, ast.FunctionDef)
    run = scripts.program.compile(tree, "<define>")
    code = Code(tree.name, schema_of_tree(tree, run, scripts.program), tree, run)
    module.__dict__["_script_codes"][tree.name] = code


class CompilationUnit:
    """Functions of scripted code, from their source.

    Example:
        >>> unit = torch.jit.CompilationUnit("def twice(x):\\n  return x + x")
        >>> unit.twice(torch.ones(1))
        tensor([2.])
    """

    def __init__(self, lang: str | None = None, _frames_up: int = 0) -> None:
        self._functions: dict[str, ScriptFunction] = {}
        if lang is not None:
            self.define(lang)

    def define(self, lang: str, rcb: Any = None, _frames_up: int = 0) -> None:
        """Adds the functions that a source text defines."""
        program = Program()
        for node in ast.parse(lang).body:
            if not isinstance(node, ast.FunctionDef):
                raise RuntimeError(f"expected a function, not {type(node).__name__}")
            names_of_functions = [*self._functions, node.name]
            tree = Verifier((), names_of_functions).parse(ast.unparse(node))
            run = program.compile(tree, "<CompilationUnit>")
            code = Code(tree.name, schema_of_tree(tree, run, program), tree, run)
            program.globals[tree.name] = run
            program.globals.update({n: f._code.run for n, f in self._functions.items()})
            qualified = f"__torch__.{tree.name}"
            self._functions[tree.name] = ScriptFunction(code, qualified, program, None)

    def __getattr__(self, name: str) -> ScriptFunction:
        functions = self.__dict__.get("_functions", {})
        if name not in functions:
            raise AttributeError(f"'CompilationUnit' has no attribute '{name}'")
        return typing.cast("ScriptFunction", functions[name])

    def find_function(self, name: str) -> ScriptFunction | None:
        """A function by name, or None."""
        return self._functions.get(name)

    def get_functions(self) -> list[ScriptFunction]:
        """All functions."""
        return list(self._functions.values())
