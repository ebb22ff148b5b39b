"""Damaged files: whatever their bytes, `load` returns or raises, runs no code, and stays small.

`python -m tests.stress.damaged_files 10000` loads so many mutants of each form (`--first S` begins
with another seed, `--form NAME` takes one form). A mutant is a good file with bytes changed,
inserted, removed or copied, or with extreme numbers. A crash ends the process; the bytes that a
mutant allocates are counted, and audit hooks note code that runs.
"""

from __future__ import annotations

import argparse
import collections
import io
import pickle
import random
import struct
import sys
import tracemalloc
import warnings
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau import _core
from tests.serialization import oldest_files

FORMS = ("zip", "legacy", "tar", "safetensors", "gguf")
TRUSTED = ("tar",)
"""Forms that only `weights_only=False` reads, by Python's own unpickler.

It may run code and allocate what it likes; that it does not crash, and what tensors take, is ours.
"""
ERRORS = (RuntimeError, ValueError, EOFError, pickle.UnpicklingError, NotImplementedError)
EVENTS = (
    "os.",
    "subprocess.",
    "socket.",
    "shutil.",
    "ctypes.",
    "exec",
    "compile",
    "open",
    "import",
)
SLACK = 2**20  # of Python's own objects
_events: list[str] = []
_watching = False


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if not _watching or not event.startswith(EVENTS):
        return
    top = str(args[0]).partition(".")[0] if event == "import" else ""
    if top == "flambeau" or top in sys.stdlib_module_names:
        return
    frame: Any = sys._getframe()
    while frame is not None:  # our own compiler, for an operator on the parts of a tensor
        name = frame.f_code.co_filename
        if "/flambeau/compiler/" in name or name.endswith("/core/dispatch.py"):
            return
        if name.startswith("<frozen importlib"):  # of a module whose name was judged above
            return
        frame = frame.f_back
    _events.append(f"{event} {args!r}"[:200])


sys.addaudithook(_audit)


# ------------------------------------------------------------------------------ good files
def content() -> dict[str, Any]:
    """What the good files of three forms hold."""
    base = torch.arange(40.0).reshape(5, 8)
    return {
        "numbers": [
            None,
            True,
            -(2**70),
            0.5,
            1 - 2j,
            "é",
            b"\xff",
            (1, (2, {3})),
            torch.Size([2]),
        ],
        "base": base,
        "view": base[1:, ::2],
        "half": torch.ones(3, dtype=torch.bfloat16),
        "eight": torch.ones(3).to(torch.float8_e4m3fn),
        "parameter": torch.nn.Parameter(torch.ones(3)),
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "sparse": torch.eye(3).to_sparse(),
        "rows": torch.eye(3).to_sparse_csr(),
        "order": collections.OrderedDict(a=torch.float32),
        "count": collections.Counter("abca"),
        "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "ragged": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        "device": torch.device("cpu"),
        "state": torch.nn.Linear(2, 2).state_dict(),
    }


def gguf_file() -> bytes:
    """A small GGUF file: metadata, a plain tensor and one of each kind of blocks."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    pairs = text("general.name") + struct.pack("<I", 8) + text("model")
    pairs += text("list") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b")
    pairs += text("numbers") + struct.pack("<IIQIII", 9, 4, 3, 1, 2, 3)
    infos, data = b"", b""
    for kind, (elements, size) in {0: (8, 32), 2: (32, 18), 8: (32, 34), 14: (256, 210)}.items():
        infos += text(f"t{kind}") + struct.pack("<IQIQ", 1, elements, kind, len(data))
        data += bytes(range(size)) + bytes(-size % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, 4, 3) + pairs + infos
    return head + bytes(-len(head) % 32) + data


def good_file(form: str) -> bytes:
    """A file of a form."""
    if form == "gguf":
        return gguf_file()
    file = io.BytesIO()
    if form == "tar":
        oldest_files.write(file)
        return file.getvalue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = content()
        if form == "safetensors":
            del value["count"]  # a class that the form does not have
        torch.save(value, file, form=form)
    return file.getvalue()


# ------------------------------------------------------------------------------ mutants
EXTREMES = (0, 1, 2**7, 2**15, 2**31 - 1, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1)
OPCODES = b"()]}aebsutcR\x81QhqX\x85\x86\x87.2001NKMJ\x8a\x93\x94"


def _flip(generator: random.Random, data: bytearray) -> None:
    data[generator.randrange(len(data))] = generator.randrange(256)


def _extreme(generator: random.Random, data: bytearray) -> None:
    width = generator.choice((1, 2, 4, 8))
    begin = generator.randrange(len(data))
    number = generator.choice(EXTREMES) % 256**width
    data[begin : begin + width] = number.to_bytes(width, "little")


def _cut(generator: random.Random, data: bytearray) -> None:
    begin = generator.randrange(len(data))
    del data[begin : begin + generator.choice((1, 2, 8, 64, 4096))]


def _insert(generator: random.Random, data: bytearray) -> None:
    begin = generator.randrange(len(data) + 1)
    data[begin:begin] = generator.randbytes(generator.choice((1, 4, 16)))


def _copy(generator: random.Random, data: bytearray) -> None:
    begin, target = (generator.randrange(len(data)) for _ in range(2))
    part = data[begin : begin + generator.choice((4, 16, 64))]
    data[target : target + len(part)] = part


def _opcode(generator: random.Random, data: bytearray) -> None:
    data[generator.randrange(min(len(data), 6000))] = generator.choice(OPCODES)


CHANGES: tuple[Callable[[random.Random, bytearray], None], ...] = (
    _flip, _flip, _extreme, _cut, _insert, _copy, _opcode,
)  # fmt: skip


def mutant(good: bytes, seed: int) -> bytes:
    """A damaged copy of a file; the seed repeats it."""
    generator = random.Random(seed)
    data = bytearray(good)
    for _ in range(generator.choice((1, 1, 2, 3, 8))):
        if data:
            generator.choice(CHANGES)(generator, data)
    if generator.random() < 0.1:
        del data[generator.randrange(len(data) + 1) :]
    return bytes(data)


# ------------------------------------------------------------------------------ the check
def _measured(data: bytes, trusted: bool) -> tuple[str, int]:
    """What loading bytes ends with, and the bytes that it allocates."""
    errors = (Exception,) if trusted else ERRORS
    global _watching
    _core.reset_peak_memory_stats()
    before = _core.memory_stats()["requested_bytes.all.current"]
    tracemalloc.start()
    _events.clear()
    _watching = True
    try:
        value = torch.load(io.BytesIO(data), weights_only=not trusted)
        outcome = "nothing" if value is None else "loaded"
    except errors as error:
        outcome = type(error).__name__
    finally:
        _watching = False
        python = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    tensors = _core.memory_stats()["requested_bytes.all.peak"] - before
    return outcome, tensors if trusted else python + tensors


def read(data: bytes, trusted: bool = False) -> str:
    """Loads bytes: "loaded", or the name of the error; raises for whatever must not happen."""
    outcome, allocated = _measured(data, trusted)
    assert trusted or not _events, _events
    limit = 2 * len(data) + SLACK
    if allocated > limit:  # the first call of an operator compiles it
        outcome, allocated = _measured(data, trusted)
    assert allocated <= limit, (allocated, limit)
    return outcome


def run(form: str, first: int, count: int) -> dict[str, int]:
    """Reads mutants of a form; how many had which outcome."""
    good, trusted = good_file(form), form in TRUSTED
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.load(io.BytesIO(good), weights_only=not trusted)  # imports what it needs
        outcomes: collections.Counter[str] = collections.Counter()
        for seed in range(first, first + count):
            try:
                outcomes[read(mutant(good, seed), trusted)] += 1
            except Exception as error:
                raise AssertionError(f"form {form}, seed {seed}: {error!r}") from error
    return dict(outcomes)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=10000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--form", choices=FORMS)
    options = parser.parse_args()
    for form in [options.form] if options.form else FORMS:
        print(form, run(form, options.first, options.count), flush=True)


if __name__ == "__main__":
    main()
