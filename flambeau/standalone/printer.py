"""The tables of a compiled model as C: what `model.c.in` executes.

Registers are computed by printed statements; launches, buffers and slots are arrays of constants.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from flambeau.export._environment import shown
from flambeau.ir.dtypes import ITEM_SIZE, SCALAR_TYPES
from flambeau.ir.failure import failure
from flambeau.ir.plan import ERRORS, Buffer, Execution, Instruction, Launch, Number
from flambeau.ir.size import Size, SizeExpr, affine_in
from flambeau.ir.size_program import Opcode, Program
from flambeau.standalone.program import IR_NAMES, LoweredProgram

__all__ = ["Metadata", "metadata_of", "print_model"]

_INCLUDE = Path(__file__).parent.parent / "include" / "flambeau" / "model.h"
_EXECUTOR = Path(__file__).parent / "model.c.in"
_ALIGNMENT = 64
_TYPES = """
typedef union { double d; int64_t i; } Scalar;
typedef void Function(char* const*, const int64_t*, const Scalar*, int64_t, int64_t, char*);
typedef Function* Kernel;
enum { FB_INPUT, FB_OUTPUT, FB_TEMPORARY, FB_ERROR };
/* Memory of a run. fixed: a constant that no launch writes. */
typedef struct {
  int32_t kind, position, nbytes, first, last, error, fixed;
  const char* message;
} Buffer;
/* A kernel with its operands; -1 is no register. sizes: where its arguments begin. */
typedef struct {
  Kernel kernel;
  const int32_t *buffers, *offsets, *size_registers;
  const Scalar* scalars;
  int32_t buffer_count, size_count, sizes, chunks, work, scratch, group;
  int32_t packs_from, packs_to, spare;
} Launch;
typedef struct { int32_t place; const char* text; } Condition;

static inline int floor_divide(int64_t a, int64_t b, int64_t* result) {
  if (b == 0 || (b == -1 && a == INT64_MIN)) return 0;
  *result = a / b - ((a % b != 0) && ((a < 0) != (b < 0)));
  return 1;
}
static inline int modulo(int64_t a, int64_t b, int64_t* result) {
  if (b == 0 || (b == -1 && a == INT64_MIN)) return 0;
  *result = a % b;
  if (*result != 0 && (*result < 0) != (b < 0)) *result += b;
  return 1;
}
"""
_CHECKED = {
    Opcode.ADD: "if (__builtin_add_overflow({a}, {b}, &{r})) return 0;",
    Opcode.SUB: "if (__builtin_sub_overflow({a}, {b}, &{r})) return 0;",
    Opcode.MUL: "if (__builtin_mul_overflow({a}, {b}, &{r})) return 0;",
    Opcode.FLOORDIV: "if (!floor_divide({a}, {b}, &{r})) return 0;",
    Opcode.MOD: "if (!modulo({a}, {b}, &{r})) return 0;",
}
_PLAIN = {
    Opcode.MIN: "{a} < {b} ? {a} : {b}",
    Opcode.MAX: "{a} > {b} ? {a} : {b}",
    Opcode.EQ: "{a} == {b}",
    Opcode.NE: "{a} != {b}",
    Opcode.LT: "{a} < {b}",
    Opcode.LE: "{a} <= {b}",
    Opcode.AND: "({a} != 0) & ({b} != 0)",
    Opcode.OR: "({a} != 0) | ({b} != 0)",
    Opcode.NOT: "{a} == 0",
}


class Metadata(NamedTuple):
    """The registers that a call's symbols alone determine.

    Attributes:
        symbols: their number: the first registers.
        program: instructions of the further registers.
        input_sizes, input_strides: registers, per input.
        outputs: registers of sizes, then of strides, per output.
        conditions: register and text of each.
    """

    symbols: int
    program: list[Instruction]
    input_sizes: list[list[int]]
    input_strides: list[list[int]]
    outputs: list[list[int]]
    conditions: list[tuple[int, str]]

    @property
    def registers(self) -> int:
        """Their number."""
        return self.symbols + len(self.program)


def metadata_of(lowered: LoweredProgram) -> Metadata:
    """The registers that describe a program's inputs and outputs."""
    program = Program(lowered.graph.symbols)

    def registers(sizes: Sequence[Size]) -> list[int]:
        return [program.register(size) for size in sizes]

    sizes = [registers(each.sizes) for each in lowered.inputs]
    strides = [registers(each.strides) for each in lowered.inputs]
    outputs = [
        registers((*output.node.shape, *(output.strides or ())))
        for output in lowered.graph.outputs
        if output.target is None
    ]
    names = _names(lowered)
    conditions = [(program.register(x), shown(x, names)) for x in lowered.conditions]
    return Metadata(
        len(lowered.graph.symbols), program.packed(), sizes, strides, outputs, conditions
    )


def _names(lowered: LoweredProgram) -> dict[str, str]:
    """The symbols as users know them: sizes of arguments."""
    names: dict[str, str] = {}
    for each in reversed(lowered.inputs):
        for dim, size in enumerate(each.sizes):
            if isinstance(size, SizeExpr) and size.kind == "symbol":
                names[size.name] = f"{each.name}.size()[{dim}]"
    return names


def print_model(
    lowered: LoweredProgram,
    metadata: Metadata,
    execution: Execution,
    symbols: Sequence[str],
    features: Sequence[str],
) -> str:
    """The C of a model, to be linked with its kernels.

    Args:
        lowered: the program.
        metadata: of its inputs and outputs.
        execution: its launches; `kernel` is a number.
        symbols: names of the kernels' functions, by number.
        features: instructions that the kernels need, as /proc/cpuinfo names them.

    Raises:
        NotImplementedError: it needs a routine of the native core.
    """
    printer = _Printer(lowered, metadata, execution, symbols, features)
    header = _INCLUDE.read_text()
    return "\n".join([header, _TYPES, *printer.lines(), _EXECUTOR.read_text()])


class _Printer:
    def __init__(
        self,
        lowered: LoweredProgram,
        metadata: Metadata,
        execution: Execution,
        symbols: Sequence[str],
        features: Sequence[str],
    ) -> None:
        self.lowered, self.metadata, self.execution = lowered, metadata, execution
        self.symbols, self.features = symbols, features
        self.graph = lowered.graph
        self.constants = len(lowered.constants)

    def lines(self) -> Iterator[str]:
        """The text, table by table."""
        for launch in self.execution.launches:
            if launch.kernel is None:
                problem = f"the model needs {launch.routine!r}, a routine of the native core"
                raise failure(
                    NotImplementedError, "aoti_compile_and_package", problem,
                    "sorting, scattering, Fourier transforms, factorisations and random numbers "
                    "run in this package: use torch.export.save",
                )  # fmt: skip
        yield from self._limits()
        yield from self._programs()
        yield from self._slots()
        yield from self._buffers()
        yield from self._launches()

    # ---- counts
    def _limits(self) -> Iterator[str]:
        launches, registers = self.execution.launches, self.metadata.registers
        groups = [[x for x in launches if x.group == g] for g in {x.group for x in launches} - {-1}]
        groups += [[x] for x in launches]
        errors = sum(buffer.kind == "error" for buffer in self.execution.buffers)
        rank = max((len(x.sizes) for x in self.lowered.inputs), default=0)
        limits = {
            "INPUTS": len(self.lowered.inputs),
            "OUTPUTS": len(self.metadata.outputs),
            "CONSTANTS": self.constants,
            "INPUT_REGISTERS": self.metadata.symbols,
            "METADATA_REGISTERS": registers,
            "REGISTERS": registers + len(self.execution.program),
            "BUFFERS": len(self.execution.buffers),
            "LAUNCHES": len(launches),
            "ERRORS": errors,
            "SIZES": sum(len(x.sizes) for x in launches),
            "CONDITIONS": len(self.metadata.conditions),
            "GEOMETRY": sum(map(len, self.metadata.outputs)),
            "MOST_POINTERS": max((sum(len(x.buffers) for x in g) for g in groups), default=0),
            "MOST_GROUP": max(map(len, groups), default=0),
            "MOST_DIMENSIONS": rank,
        }
        yield from (f"enum {{ FB_{name} = {value} }};" for name, value in limits.items())
        quoted = "".join(f"{_text(x)}, " for x in sorted(self.features))
        yield f"static const char* const processor_flags[] = {{{quoted}0}};"

    # ---- registers
    def _programs(self) -> Iterator[str]:
        yield "static int compute_metadata(int64_t* r) {"
        yield from _statements(self.metadata.program, self.metadata.symbols)
        yield "}"
        yield "static int compute_sizes(int64_t* r) {"
        yield from _statements(self.execution.program, self.metadata.registers)
        yield "}"
        yield "static int read_symbols(const flambeau_array* inputs, int64_t* r) {"
        yield "  (void)inputs;"
        for number, name in enumerate(self.graph.symbols):
            yield f"  if (!{self._symbol(name, number)}) return 0;"
        yield "  return 1;\n}"

    def _symbol(self, name: str, number: int) -> str:
        """Statement that reads a symbol off the input that has it, or a multiple of it."""
        for slot, each in enumerate(self.lowered.inputs):
            for dim, size in enumerate(each.sizes):
                linear = _linear(size, name)
                if linear is not None:
                    factor, offset = linear
                    value = f"inputs[{slot}].sizes[{dim}] - {_integer(offset)}"
                    return f"floor_divide({value}, {factor}, &r[{number}])"
        problem = f"no size of an input says what {name} is"
        hint = "export with a Dim of its own for each size"
        raise failure(NotImplementedError, "aoti_compile_and_package", problem, hint)

    # ---- tensors
    def _slots(self) -> Iterator[str]:
        offset = 0
        rows = []
        for number, constant in enumerate(self.lowered.constants):
            sizes = list(map(int, constant.tensor.shape))
            yield _array("int64_t", f"constant_sizes_{number}", sizes)
            nbytes = constant.tensor.nbytes
            dtype = IR_NAMES[constant.tensor.dtype.name]
            rows.append(_slot(constant.name, dtype, len(sizes), nbytes, offset, number))
            offset += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        yield _table("flambeau_slot", "constant_slots", rows)
        inputs = self.lowered.inputs
        yield _table(
            "flambeau_slot", "input_slots", [_slot(x.name, x.dtype, len(x.sizes)) for x in inputs]
        )
        results = [output for output in self.graph.outputs if output.target is None]
        yield _table(
            "flambeau_slot",
            "output_slots",
            [_slot(f"output_{k}", o.node.dtype, len(o.node.shape)) for k, o in enumerate(results)],
        )
        yield from _rows("input_sizes", self.metadata.input_sizes)
        yield from _rows("input_strides", self.metadata.input_strides)
        texts = [[_text(str(size)) for size in each.sizes] for each in inputs]
        yield from _rows("input_texts", texts, "char* const")
        yield _array("int32_t", "input_widths", [ITEM_SIZE[x.dtype] for x in inputs])
        yield _array("int32_t", "input_written", [int(x.written) for x in inputs])
        yield _array(
            "int32_t", "output_geometry", [r for row in self.metadata.outputs for r in row]
        )
        numbers, count = [], 0
        for output in self.graph.outputs:
            numbers.append(count if output.target is None else -1)
            count += output.target is None
        yield _array("int32_t", "output_numbers", numbers)
        conditions = [f"{{{place}, {_text(text)}}}" for place, text in self.metadata.conditions]
        yield _table("Condition", "conditions", conditions)

    # ---- launches
    def _buffers(self) -> Iterator[str]:
        rows = [self._buffer(buffer) for buffer in self.execution.buffers]
        yield _table("Buffer", "buffers", rows)

    def _buffer(self, buffer: Buffer) -> str:
        kinds = {"input": 0, "output": 1, "temporary": 2, "error": 3}
        if buffer.kind not in kinds:
            problem = "the model draws random numbers"
            raise failure(
                NotImplementedError,
                "aoti_compile_and_package",
                problem,
                "pass them, or call eval()",
            )
        fixed = (
            buffer.kind == "input"
            and buffer.position < self.constants
            and buffer.position not in self.execution.written
        )
        error = 1 + ERRORS.index(buffer.error)
        fields = (
            kinds[buffer.kind], buffer.position, buffer.nbytes, buffer.first, buffer.last, error,
            int(fixed), _text(buffer.message),
        )  # fmt: skip
        return f"{{{', '.join(map(str, fields))}}}"

    def _launches(self) -> Iterator[str]:
        for symbol in dict.fromkeys(self.symbols):
            yield f"Function {symbol};"
        rows, sizes = [], 0
        for number, launch in enumerate(self.execution.launches):
            yield _array("int32_t", f"buffers_{number}", launch.buffers)
            yield _array("int32_t", f"sizes_{number}", launch.sizes)
            moved = any(offset >= 0 for offset in launch.offsets)
            if moved:
                yield _array("int32_t", f"offsets_{number}", launch.offsets)
            scalars = [self._scalar(scalar) for scalar in launch.scalars]
            yield _table("Scalar", f"scalars_{number}", scalars)
            rows.append(self._launch(number, launch, moved, sizes))
            sizes += len(launch.sizes)
        yield _table("Launch", "launches", rows)

    def _launch(self, number: int, launch: Launch, moved: bool, sizes: int) -> str:
        assert launch.kernel is not None
        packing = launch.packing
        packs = (-1, -1, -1) if packing is None else (packing.source, packing.target, packing.spare)
        fields = (
            self.symbols[launch.kernel], f"buffers_{number}",
            f"offsets_{number}" if moved else "0", f"sizes_{number}", f"scalars_{number}",
            len(launch.buffers), len(launch.sizes), sizes, launch.chunks, launch.work,
            launch.scratch, launch.group, *packs,
        )  # fmt: skip
        return f"{{{', '.join(map(str, fields))}}}"

    def _scalar(self, number: Number) -> str:
        value = number.value
        if number.kind == "argument":
            value = self.lowered.numbers[value]
        return (
            f"{{.d = {_double(float(value))}}}"
            if number.as_float
            else (f"{{.i = {_integer(int(value))}}}")
        )


def _statements(program: Sequence[Instruction], first: int) -> Iterator[str]:
    for place, (code, a, b) in enumerate(program, first):
        opcode, names = Opcode(code), {"a": f"r[{a}]", "b": f"r[{b}]", "r": f"r[{place}]"}
        if opcode is Opcode.CONST:
            yield f"  r[{place}] = {_integer(a)};"
        elif opcode in _CHECKED:
            yield "  " + _CHECKED[opcode].format(**names)
        else:
            yield f"  r[{place}] = {_PLAIN[opcode].format(**names)};"
    yield "  (void)r;\n  return 1;"


def _linear(size: Size, name: str) -> tuple[int, int] | None:
    """(factor, offset) of a size that is a multiple of a symbol and a number."""
    if not isinstance(size, SizeExpr):
        return None
    affine = affine_in(size, [name])
    if affine is None or not isinstance(affine[1], int):
        return None
    factor = affine[0].get(name)
    return (factor, affine[1]) if isinstance(factor, int) and factor else None


def _slot(
    name: str, dtype: str, rank: int, nbytes: int = 0, offset: int = 0, number: int | None = None
) -> str:
    sizes = "0" if number is None else f"constant_sizes_{number}"
    return f"{{{_text(name)}, {SCALAR_TYPES[dtype]}, {rank}, {nbytes}, {offset}, {sizes}}}"


def _rows(name: str, rows: Sequence[Sequence[object]], kind: str = "int32_t") -> Iterator[str]:
    for number, row in enumerate(rows):
        yield _array(kind, f"{name}_{number}", row)
    yield _table(f"{kind}* const", name, [f"{name}_{number}" for number in range(len(rows))])


def _array(kind: str, name: str, values: Sequence[object]) -> str:
    return _table(kind, name, [str(value) for value in values])


def _table(kind: str, name: str, rows: Sequence[str]) -> str:
    """An array of constants, which has a last element of zeros: C has no empty arrays."""
    text = ",\n  ".join(rows)
    return f"static const {kind} {name}[{len(rows) + 1}] = {{{text or '0'}}};"


def _text(value: str) -> str:
    """A string literal of printable ASCII."""
    letters = [
        chr(x) if 32 <= x < 127 and x not in b'"\\?' else f"\\{x:03o}" for x in value.encode()
    ]
    return f'"{"".join(letters)}"'


def _integer(value: int) -> str:
    return f"INT64_C({value})" if value > -(2**63) else "INT64_MIN"


def _double(value: float) -> str:
    if math.isnan(value):
        return '__builtin_nan("")'
    if math.isinf(value):
        return "__builtin_inf()" if value > 0 else "-__builtin_inf()"
    return value.hex()
