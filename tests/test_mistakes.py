"""The commonest mistakes of users raise PyTorch's exception with a message of the project's form.

Every entry is a program, the exception it raises in PyTorch 2.13 (compared with PyTorch itself
where that is installed), and what its message must say: `[op] what: numbers`, then `hint: ...`.
"""

from __future__ import annotations

import copy
import importlib
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import flambeau


class Mistake(NamedTuple):
    """A wrong program: its code, PyTorch's exception type, fragments of the message."""

    name: str
    code: str
    error: type[BaseException]
    fragments: tuple[str, ...]


def _mistakes(text: str) -> list[Mistake]:
    """Reads the table: `name | exception | fragment; fragment`, then the indented program."""
    found = []
    for block in text.strip().split("\n\n"):
        head, *lines = block.splitlines()
        name, error, fragments = (part.strip() for part in head.split("|"))
        program = "\n".join(line[4:] for line in lines)
        parts = tuple(part.strip() for part in fragments.split(";"))
        found.append(Mistake(name, program, getattr(__import__("builtins"), error), parts))
    return found


MISTAKES = _mistakes(
    """
shapes do not broadcast | RuntimeError | [add]; (4); (5); dimension 1
    torch.ones(3, 4) + torch.ones(5)

inner dimensions of a product | RuntimeError | [matmul]; [4, 3]; [5, 6]; 3 != 5
    torch.ones(4, 3) @ torch.ones(5, 6)

matrix product of a stack | RuntimeError | [mm]; matrix; [2, 3, 4]
    torch.mm(torch.ones(2, 3, 4), torch.ones(2, 3))

batches differ | RuntimeError | [bmm]; [2, 4]; [3, 4]
    torch.bmm(torch.ones(2, 3, 4), torch.ones(3, 4, 5))

vectors of two lengths | RuntimeError | [dot]; 2; 3
    torch.dot(torch.ones(2), torch.ones(3))

dtypes of a product differ | RuntimeError | [matmul]; same dtype
    torch.ones(2, 3) @ torch.ones(3, 4, dtype=torch.float64)

features of a linear layer | RuntimeError | [linear]; 2, 5; 3
    torch.nn.Linear(3, 4)(torch.ones(2, 5))

dtype of a layer's input | RuntimeError | [linear]; same dtype
    torch.nn.Linear(3, 4)(torch.ones(2, 3, dtype=torch.float64))

dimension out of range | IndexError | [sum]; [-2, 1]; got 2
    torch.ones(2, 3).sum(dim=2)

negative dimension out of range | IndexError | [softmax]; -3
    torch.ones(2, 3).softmax(-3)

dimension of transpose | IndexError | [transpose]; got 5
    torch.ones(2, 3).transpose(0, 5)

permutation repeats | RuntimeError | [permute]; dim
    torch.ones(2, 3).permute(0, 0)

reshape to another count | RuntimeError | [reshape]; [4, 2]; 6
    torch.ones(2, 3).reshape(4, 2)

view of strided memory | RuntimeError | [view]; not compatible
    torch.ones(2, 3).t().view(6)

two inferred sizes | RuntimeError | [view]; only one dimension can be inferred
    torch.ones(2, 3).view(-1, -1)

expand a size that is not 1 | RuntimeError | [expand]; (4); (3)
    torch.ones(3).expand(4)

cat of other sizes | RuntimeError | [cat]; dimension 0; 3; 4
    torch.cat([torch.ones(2, 3), torch.ones(3, 4)])

cat of nothing | ValueError | [cat]; non-empty
    torch.cat([])

stack of other sizes | RuntimeError | [stack]; [2]; [3]
    torch.stack([torch.ones(2), torch.ones(3)])

index out of bounds | IndexError | index 5; dimension 0; size 3
    torch.ones(3)[5]

too many indices | IndexError | too many indices; dimension 1
    torch.ones(3)[0, 0]

index tensor out of bounds | IndexError | [index]; 7; size 3
    torch.ones(3)[torch.tensor([0, 7])]

floating index | IndexError | tensors used as indices must be long
    torch.ones(3)[torch.tensor([0.5])]

mask of another shape | IndexError | shape of the mask [2]; [3]
    torch.ones(3)[torch.tensor([True, False])]

gather out of bounds | RuntimeError | [gather]; index 5; size 3
    torch.gather(torch.ones(3), 0, torch.tensor([5]))

gather with floats | RuntimeError | [gather]; int64
    torch.gather(torch.ones(3), 0, torch.tensor([0.0]))

scatter out of bounds | RuntimeError | [scatter; index 4; size 3
    torch.zeros(3).scatter_(0, torch.tensor([4]), 1.0)

assign another shape | RuntimeError | [3]; [2]
    x = torch.ones(3)
    x[torch.tensor([0, 1])] = torch.ones(3)

item of many | RuntimeError | [item]; 3 elements
    torch.ones(3).item()

truth of many | RuntimeError | [bool]; ambiguous
    bool(torch.ones(3))

length of a number | TypeError | [len]; 0-d
    len(torch.tensor(1.0))

backward of many | RuntimeError | [backward]; scalar outputs
    torch.ones(3, requires_grad=True).mul(2).backward()

backward without gradient | RuntimeError | [backward]; does not require grad
    torch.ones(3).sum().backward()

backward twice | RuntimeError | [backward]; second time; retain_graph
    x = torch.ones(3, requires_grad=True)
    y = (x * x).sum()
    y.backward()
    y.backward()

in place on a leaf | RuntimeError | leaf Variable that requires grad
    x = torch.ones(3, requires_grad=True)
    x.add_(1)

in place on a view of a leaf | RuntimeError | view of a leaf Variable
    x = torch.ones(3, requires_grad=True)
    x[0] = 1

in place on a saved tensor | RuntimeError | [backward]; modified by an inplace operation; version
    x = torch.ones(3, requires_grad=True)
    y = x.exp()
    y.mul_(2)
    y.sum().backward()

in place with a larger operand | RuntimeError | [add_]; [3]; [2, 3]
    torch.ones(3).add_(torch.ones(2, 3))

in place into integers | RuntimeError | [add_]; Float; Long
    torch.ones(3, dtype=torch.int64).add_(1.5)

gradient of integers | RuntimeError | floating point; int64
    torch.ones(3, dtype=torch.int64, requires_grad=True)

array of a tensor with gradient | RuntimeError | [numpy]; detach
    torch.ones(3, requires_grad=True).numpy()

copy of an interior tensor | RuntimeError | [deepcopy]; leaves
    copy.deepcopy(torch.ones(3, requires_grad=True) * 2)

gradient of another shape | RuntimeError | [backward]; [4]; [3]
    x = torch.ones(3, requires_grad=True)
    (x * 2).backward(torch.ones(4))

missing gradient | RuntimeError | [grad]; index 0; allow_unused
    x = torch.ones(3, requires_grad=True)
    other = torch.ones(3, requires_grad=True)
    torch.autograd.grad((x * 2).sum(), other)

flag of an interior tensor | RuntimeError | [requires_grad]; leaf
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    y.requires_grad = False

gradient through inference tensors | RuntimeError | Inference tensors
    with torch.inference_mode():
        x = torch.ones(3)
    w = torch.ones(3, requires_grad=True)
    (x * w).sum().backward()

devices differ | RuntimeError | [add]; device; cpu; meta
    torch.ones(3) + torch.ones(3, device="meta")

unknown device | RuntimeError | [device]; gpu
    torch.ones(3, device="gpu")

value of a meta tensor | RuntimeError | [item]; meta
    torch.ones((), device="meta").item()

missing keys | RuntimeError | [load_state_dict]; Missing key(s); "bias"
    torch.nn.Linear(2, 2).load_state_dict({"weight": torch.ones(2, 2)})

unexpected keys | RuntimeError | [load_state_dict]; Unexpected key(s); "extra"
    layer = torch.nn.Linear(2, 2)
    layer.load_state_dict({**layer.state_dict(), "extra": torch.ones(1)})

sizes of a state | RuntimeError | size mismatch for weight; [3, 2]; [2, 2]
    torch.nn.Linear(2, 2).load_state_dict({"weight": torch.ones(3, 2), "bias": torch.ones(2)})

misspelt attribute | AttributeError | [Linear]; 'wieght'
    torch.nn.Linear(2, 2).wieght

module before its constructor | AttributeError | Module.__init__() call
    class Model(torch.nn.Module):
        def __init__(self):
            self.layer = torch.nn.Linear(2, 2)
    Model()

module without forward | NotImplementedError | [forward]; Module
    torch.nn.Module()(torch.ones(2))

tensor in place of a parameter | TypeError | [setattr]; parameter 'weight'
    layer = torch.nn.Linear(2, 2)
    layer.weight = torch.ones(2, 2)

optimizer of nothing | ValueError | [optim]; empty parameter list
    torch.optim.SGD([], lr=0.1)

optimizer of a tensor | TypeError | [optim]; iterable
    torch.optim.SGD(torch.ones(2), lr=0.1)

optimizer of an interior tensor | ValueError | [optim]; non-leaf
    torch.optim.SGD([torch.ones(2, requires_grad=True) * 2], lr=0.1)

negative learning rate | ValueError | [optim]; -0.1
    torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=-0.1)

classes as floats | RuntimeError | [cross_entropy]; Long
    torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.ones(2))

batches of a loss differ | ValueError | [cross_entropy]; (2); (3)
    torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor([0, 1, 2]))

class out of range | IndexError | 5; 3
    torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor([0, 5]))

loss of other shapes | RuntimeError | [mse_loss]; (3); (4)
    torch.nn.functional.mse_loss(torch.ones(3), torch.ones(4))

channels of a convolution | RuntimeError | [conv2d]; [4, 3, 3, 3]; 5
    torch.nn.Conv2d(3, 4, 3)(torch.ones(1, 5, 8, 8))

rank of a convolution | RuntimeError | [conv2d]; 3D; 4D
    torch.nn.Conv2d(3, 4, 3)(torch.ones(8, 8))

kernel larger than the image | RuntimeError | [conv2d]; (2 x 2); (5 x 5)
    torch.nn.Conv2d(3, 4, 5)(torch.ones(1, 3, 2, 2))

word out of the vocabulary | IndexError | [embedding]; 3
    torch.nn.Embedding(3, 2)(torch.tensor([3]))

words as floats | RuntimeError | [embedding]; Long
    torch.nn.Embedding(3, 2)(torch.ones(2))

features of a normalisation | RuntimeError | [layer_norm]; [4]; [2, 3]
    torch.nn.LayerNorm(4)(torch.ones(2, 3))

channels of a normalisation | RuntimeError | [batch_norm]; running_mean; 3; 4
    torch.nn.BatchNorm1d(4)(torch.ones(2, 3))

heads of attention | AssertionError | embed_dim; num_heads
    torch.nn.MultiheadAttention(5, 2)

features of a recurrent layer | RuntimeError | [LSTM]; 3; 6
    torch.nn.LSTM(3, 4)(torch.ones(5, 2, 6))

missing argument | TypeError | [cat]; tensors
    torch.cat()

argument of another type | TypeError | [add]; other; str
    torch.add(torch.ones(2), "a")

unknown argument | TypeError | [sum]; 'dims'
    torch.ones(2).sum(dims=1)

ragged lists | ValueError | [tensor]; length 2; dim 1
    torch.tensor([[1, 2], [3]])

mean of integers | RuntimeError | [mean]; dtype
    torch.ones(3, dtype=torch.int64).mean()

difference of booleans | RuntimeError | [sub]; bool
    torch.ones(3, dtype=torch.bool) - torch.ones(3, dtype=torch.bool)

bits of floats | NotImplementedError | [bitwise_and]; float32
    torch.ones(3) & torch.ones(3)

maximum of nothing | RuntimeError | [max]; dim
    torch.ones(0).max()

letters of different sizes | RuntimeError | [einsum]; j; 4; 3
    torch.einsum("ij,jk->ik", torch.ones(2, 3), torch.ones(4, 5))

out of another dtype | RuntimeError | [out]; Float; Long
    torch.add(torch.ones(2), torch.ones(2), out=torch.ones(2, dtype=torch.int64))

negative size | RuntimeError | negative dimension -1
    torch.ones(-1)

more than there are | RuntimeError | [topk]; 5; 3
    torch.ones(3).topk(5)

condition of numbers | RuntimeError | [where]; boolean
    torch.where(torch.ones(3), torch.ones(3), torch.ones(3))

batch of other sizes | RuntimeError | [stack]; [2]; [3]
    list(torch.utils.data.DataLoader([torch.ones(2), torch.ones(3)], batch_size=2))
"""
)
FORM = re.compile(r"\[[\w.]+\] [^\n]+(\n(?!hint: ).+)*\nhint: \S.*", re.DOTALL)
# What users never see of an error of their own.
INTERNALS = ("core", "prims", "ir", "compiler", "capture", "ops")


def run(mistake: Mistake, torch: Any) -> BaseException | None:
    """The exception of a program, with the frames from the program on."""
    try:
        exec(compile(mistake.code, "<program>", "exec"), {"torch": torch, "copy": copy})  # noqa: S102
    except Exception as error:
        return error
    return None


def test_there_are_enough() -> None:
    assert len(MISTAKES) >= 35
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_mistake(mistake: Mistake) -> None:
    error = run(mistake, flambeau)
    assert type(error) is mistake.error
    message = str(error.args[0])
    assert FORM.fullmatch(message), message
    for fragment in mistake.fragments:
        assert fragment in message, (fragment, message)
    package = Path(flambeau.__file__).parent
    for frame in traceback.extract_tb(error.__traceback__):
        if package in Path(frame.filename).parents:
            part = Path(frame.filename).relative_to(package).parts[0]
            assert part not in INTERNALS, f"{frame.filename}:{frame.lineno} is shown"


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_type_is_of_pytorch(mistake: Mistake) -> None:
    torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
    assert type(run(mistake, torch)) is mistake.error


def test_errors_point_at_the_users_line() -> None:
    mistake = next(m for m in MISTAKES if m.name == "backward twice")
    error = run(mistake, flambeau)
    assert error is not None
    frames = traceback.extract_tb(error.__traceback__)
    assert (frames[-1].filename, frames[-1].lineno) == ("<program>", 4)
    assert error.__cause__ is None and error.__context__ is None


def test_errors_of_the_compiler_hide_our_frames(tmp_path: Path) -> None:
    """A kernel, its backward and a region: the traceback ends where the user called."""
    program = """
import traceback
import flambeau as torch
x = torch.randn(3, 5, 7).transpose(0, 1).requires_grad_()
region = torch.compile(lambda x: (x.sin() * x.cos() + x.exp() * 3.25).logit())
for call in (lambda: x.logit() * 3.5, lambda: x.sum().backward(), lambda: region(x)):
    try:
        call()
    except RuntimeError as error:
        frames = traceback.extract_tb(error.__traceback__)
        print([frame.name for frame in frames if "/compiler/" in frame.filename], error)
"""
    environment = {**os.environ, "FLAMBEAU_CC": "/bin/false", "FLAMBEAU_CACHE_DIR": str(tmp_path)}
    environment["FLAMBEAU_DEBUG"] = "0"
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    lines = [line for line in result.stdout.splitlines() if not line.startswith("hint")]
    assert lines and set(lines) == {
        "[] [codegen] /bin/false --version gives no version, exit status 1: ''"
    }, result.stderr


def test_debug_shows_internals() -> None:
    program = "import flambeau as torch\ntorch.ones(2, 3).sum(dim=2)\n"
    for level, shown in (("0", False), ("1", True)):
        environment = {**os.environ, "FLAMBEAU_DEBUG": level}
        result = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True
        )
        assert "[sum] Dimension out of range" in result.stderr
        assert ("flambeau/driver" in result.stderr) is shown, result.stderr


def test_a_failing_callback_keeps_its_frames() -> None:
    x = flambeau.ones(3, requires_grad=True)

    def hook(grad: Any) -> None:
        raise ValueError("[mine] a callback of the user fails")

    x.register_hook(hook)
    with pytest.raises(ValueError, match="a callback of the user") as caught:
        (x * 2).sum().backward()
    assert caught.traceback[-1].name == "hook"


def test_failing_kernel_compile_names_its_source(tmp_path: Path) -> None:
    """The source is kept, and the message names the file."""
    settings = importlib.import_module("flambeau.runtime.settings")
    toolchain = importlib.import_module("flambeau.compiler.toolchain")
    targets = importlib.import_module("flambeau.compiler.targets")
    with settings.override(CACHE_DIR=tmp_path), pytest.raises(RuntimeError) as caught:
        toolchain.find().compile("int broken(", targets.current(), tmp_path / "kernels.so")
    message = str(caught.value)
    assert message.startswith("[codegen] the C compiler failed") and "\nhint: " in message
    [kept] = (tmp_path / "failed").glob("*.c")
    assert str(kept) in message and kept.read_text() == "int broken("
