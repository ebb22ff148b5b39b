"""The checks of one entry of PyTorch's operator database in one dtype.

Each check runs the entry's samples through both libraries and gives `Record`s. A sample that
PyTorch itself refuses is not counted.
"""

from __future__ import annotations

import itertools
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch

import flambeau
from tests.parity import verdicts
from tests.parity.comparison import (
    UNORDERED,
    difference,
    flattened,
    in_order,
    stride_difference,
)
from tests.parity.translation import (
    MissingNameError,
    Translator,
    entry_function,
    function,
    named,
)


@dataclass
class Record:
    """How one check of one entry in one dtype went.

    Attributes:
        samples, failed: how many calls were compared, and differ.
        excused: of the failed, where ours is no farther from the exact result, or names another
            of several equal elements; see `verdicts`.
        reason: the first difference, in one line.
    """

    entry: str
    dtype: str
    check: str
    samples: int = 0
    failed: int = 0
    excused: int = 0
    reason: str = ""

    def add(self, reason: str | None) -> None:
        """Counts a sample; `reason` is None where both libraries agree."""
        self.samples += 1
        if reason is not None:
            self.failed += 1
            self.reason = self.reason or " ".join(reason.split())[:240]

    def as_dict(self) -> dict[str, Any]:
        """For a file of JSON lines."""
        return asdict(self)


def entry_name(entry: Any) -> str:
    """The name of an entry with its variant."""
    variant = entry.variant_test_name
    return f"{entry.name}.{variant}" if variant else entry.name


def attempt(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """(result, None), or (None, the exception)."""
    try:
        return call(), None
    except Exception as error:
        return None, error


def message(error: Exception) -> str:
    """An exception in one line."""
    if isinstance(error, MissingNameError):
        return str(error)
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def samples_of(entry: Any, dtype: torch.dtype, limit: int, grad: bool = False) -> Iterator[Any]:
    """An entry's samples, at most `limit` (0: all) spread over the whole list."""
    torch.manual_seed(0)
    drawn = list(entry.sample_inputs("cpu", dtype, requires_grad=grad))
    step = max(1, -(-len(drawn) // limit)) if limit else 1
    yield from drawn[::step]


class Twin:
    """One sample in both libraries.

    Attributes:
        theirs, ours: (arguments, keywords) of each.
        leaves: pairs of tensors that require gradients.
    """

    def __init__(self, sample: Any, first: Any = None) -> None:
        translate = Translator()
        arguments = (sample.input if first is None else first, *sample.args)
        self.theirs = arguments, dict(sample.kwargs)
        self.ours = translate(arguments), translate(dict(sample.kwargs))
        pairs = translate.tensors.values()
        self.leaves = [pair for pair in pairs if pair[0].requires_grad and pair[0].is_leaf]

    def run(self, theirs: Any, ours: Any) -> tuple[Any, Any, str | None]:
        """Both results and what is wrong: "refused" where PyTorch raises, else our exception."""
        torch.manual_seed(7)
        flambeau.manual_seed(7)
        expected, refused = attempt(lambda: theirs(*self.theirs[0], **self.theirs[1]))
        if refused is not None:
            return None, None, "refused"
        result, error = attempt(lambda: ours(*self.ours[0], **self.ours[1]))
        return result, expected, None if error is None else message(error)


def _copied(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_copied(item) for item in value]
    return value.clone() if isinstance(value, torch.Tensor) else value


def compare_calls(
    entry: Any, samples: Iterator[Any], record: Record, theirs: Any, ours: Any,
    strides: Record | None = None, inplace: bool = False,
) -> None:  # fmt: skip
    """Runs every sample as it stands through a pair of functions."""
    for sample in samples:
        first = _copied(sample.input) if inplace else None
        twin, error = attempt(lambda s=sample, f=first: Twin(s, f))
        if error is not None:
            record.add(message(error))
            continue
        result, expected, wrong = twin.run(theirs, ours)
        if wrong == "refused":
            continue
        if wrong is None and inplace:
            pairs = zip(flattened(result), flattened(twin.ours[0][0]))
            if any(mine is not given for mine, given in pairs):
                wrong = "the result is not the first argument"
        wrong = wrong or difference(result, expected, entry)
        record.add(wrong)
        if wrong is not None and wrong.startswith("value"):
            record.excused += verdicts.excuse(entry, sample, result, expected) is not None
        if strides is not None and wrong is None:
            strides.add(stride_difference(result, expected))


def forward(entry: Any, dtype: torch.dtype, limit: int) -> list[Record]:
    """Values, dtypes and shapes of every sample; strides as a check of their own."""
    name, kind = entry_name(entry), str(dtype).removeprefix("torch.")
    record, strides = Record(name, kind, "forward"), Record(name, kind, "strides")
    samples = samples_of(entry, dtype, limit)
    ours, missing = attempt(lambda: entry_function(entry))
    if missing is not None:
        compare_missing(entry, samples, record, missing)
    else:
        compare_calls(entry, samples, record, entry.op, ours, strides)
    return [record, strides]


def compare_missing(entry: Any, samples: Iterator[Any], record: Record, why: Exception) -> None:
    """Counts the first sample that PyTorch takes as failed."""
    for sample in itertools.islice(samples, 1):
        if attempt(lambda s=sample: entry.op(s.input, *s.args, **s.kwargs))[1] is None:
            record.add(message(why))


def _cotangents(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(o.shape, dtype=o.dtype, generator=generator) for o in outputs]


def _differentiable(value: Any, library: Any) -> list[Any]:
    kinds = library.Tensor
    return [leaf for leaf in flattened(value) if isinstance(leaf, kinds) and leaf.requires_grad]


def _derivatives(
    library: Any, outputs: list[Any], leaves: list[Any], given: list[Any], order: int
) -> list[Any]:
    """First or second derivatives with respect to the leaves."""
    grads = library.autograd.grad(outputs, leaves, given, create_graph=order > 1, allow_unused=True)
    if order == 1:
        return list(grads)
    again = [g for g in grads if g is not None and g.requires_grad]
    if not again:
        return []
    ones = [library.ones_like(g) * 0.75 for g in again]
    return list(library.autograd.grad(again, leaves, ones, allow_unused=True))


def _called(call: Any, *args: Any, **kwargs: Any) -> Any:
    return call(*args, **kwargs)


def _differentiated(entry: Any, sample: Any) -> tuple[Any, Any]:
    """The call whose derivatives are compared, in both libraries.

    As in PyTorch's own tests: a matrix that has to be symmetric or triangular is made so within
    the call (derivatives along others are not defined), and of the result what is unique is kept.
    """
    prepare, process = entry.gradcheck_wrapper, sample.output_process_fn_grad
    if "masked" in prepare.__name__:  # what is masked out is compared as well
        prepare = _called
    ours, mine, kept = entry_function(entry), function(prepare), function(process)
    order = in_order if entry.name in UNORDERED else None

    def theirs(*args: Any, **kwargs: Any) -> Any:
        result = process(prepare(entry.op, *args, **kwargs))
        return result if order is None else order(result, torch)

    def our_call(*args: Any, **kwargs: Any) -> Any:
        result = kept(mine(ours, *args, **kwargs))
        return result if order is None else order(result, flambeau)

    return theirs, our_call


def _gradients(entry: Any, sample: Any, order: int) -> str | None:
    """What differs in the derivatives of one sample; "refused" where PyTorch has none."""
    twin = Twin(sample)
    result, expected, wrong = twin.run(*_differentiated(entry, sample))
    if wrong is not None:
        return wrong
    theirs, mine = _differentiable(expected, torch), _differentiable(result, flambeau)
    if not theirs or not twin.leaves:
        return "refused"
    if len(theirs) != len(mine):
        return f"{len(mine)} results require gradients, expected {len(theirs)}"
    given = _cotangents(theirs)
    wanted, refused = attempt(
        lambda: _derivatives(torch, theirs, [pair[0] for pair in twin.leaves], given, order)
    )
    if refused is not None:
        return "refused"
    translated = Translator()(given)
    found = _derivatives(flambeau, mine, [pair[1] for pair in twin.leaves], translated, order)
    return _gradient_difference(found, wanted, entry)


def _gradient_difference(found: list[Any], wanted: list[Any], entry: Any) -> str | None:
    if not found and wanted:
        return "no derivative" if any(w is not None and w.any() for w in wanted) else None
    for mine, theirs in zip(found, wanted):
        if theirs is None or mine is None:
            one = mine if theirs is None else theirs
            if one is not None and bool((one != 0).any()):
                return f"{mine!r}, expected {theirs!r}"
            continue
        plain = type("Entry", (), {"name": "", "decorators": entry.decorators})
        wrong = difference(mine, theirs, plain)
        if wrong is not None:
            return wrong
    return None


def _derivative_check(entry: Any, dtype: torch.dtype, limit: int, order: int) -> list[Record]:
    check = "gradient" if order == 1 else "double gradient"
    record = Record(entry_name(entry), str(dtype).removeprefix("torch."), check)
    for sample in samples_of(entry, dtype, limit, grad=True):
        wrong, error = attempt(lambda s=sample: _gradients(entry, s, order))
        if error is not None or wrong != "refused":
            record.add(message(error) if error is not None else wrong)
    return [record]


def gradient(entry: Any, dtype: torch.dtype, limit: int) -> list[Record]:
    """First derivatives with respect to everything that requires them."""
    supported = entry.supports_autograd and dtype in entry.supported_backward_dtypes("cpu")
    return _derivative_check(entry, dtype, limit, 1) if supported else []


def double_gradient(entry: Any, dtype: torch.dtype, limit: int) -> list[Record]:
    """Second derivatives."""
    supported = entry.supports_gradgrad and entry.supports_autograd
    supported = supported and dtype in entry.supported_backward_dtypes("cpu")
    return _derivative_check(entry, dtype, limit, 2) if supported else []


def _with_duals(library: Any, value: Any, pairs: list[tuple[Any, Any]]) -> Any:
    """`value` with tensors replaced by dual numbers: `pairs` of tensors and their tangents."""
    if isinstance(value, (list, tuple)):
        items = [_with_duals(library, item, pairs) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {key: _with_duals(library, item, pairs) for key, item in value.items()}
    for leaf, tangent in pairs:
        if leaf is value:
            return library.autograd.forward_ad.make_dual(leaf.detach(), tangent)
    return value


def _tangents(library: Any, call: Any, given: Any, pairs: list[tuple[Any, Any]]) -> list[Any]:
    """What forward mode gives with the results of a call."""
    with library.autograd.forward_ad.dual_level():
        arguments, keywords = _with_duals(library, given, pairs)
        results = call(*arguments, **keywords)
        leaves = [leaf for leaf in flattened(results) if isinstance(leaf, library.Tensor)]
        return [library.autograd.forward_ad.unpack_dual(leaf).tangent for leaf in leaves]


def _forward_mode(entry: Any, sample: Any) -> str | None:
    twin = Twin(sample)
    if not twin.leaves:
        return "refused"
    their_call, our_call = _differentiated(entry, sample)
    given = _cotangents([pair[0] for pair in twin.leaves])
    theirs = [(pair[0], tangent) for pair, tangent in zip(twin.leaves, given)]
    torch.manual_seed(7)
    flambeau.manual_seed(7)
    wanted, refused = attempt(lambda: _tangents(torch, their_call, twin.theirs, theirs))
    if refused is not None:
        return "refused"
    mine = [(pair[1], Translator()(tangent)) for pair, tangent in zip(twin.leaves, given)]
    found = _tangents(flambeau, our_call, twin.ours, mine)
    if len(found) != len(wanted):
        return f"{len(found)} results, expected {len(wanted)}"
    return _gradient_difference(found, wanted, entry)


def forward_mode(entry: Any, dtype: torch.dtype, limit: int) -> list[Record]:
    """Derivatives along one direction, carried with the values."""
    if not (entry.supports_forward_ad and dtype in entry.supported_backward_dtypes("cpu")):
        return []
    record = Record(entry_name(entry), str(dtype).removeprefix("torch."), "forward mode")
    for sample in samples_of(entry, dtype, limit, grad=True):
        wrong, error = attempt(lambda s=sample: _forward_mode(entry, s))
        if error is not None or wrong != "refused":
            record.add(message(error) if error is not None else wrong)
    return [record]


def _same_variant(variant: Any) -> Any:
    name = getattr(variant, "__name__", "")
    inner = getattr(torch.Tensor, name, None)
    return named(f"Tensor.{name}") if inner is variant else function(variant)


def variants(entry: Any, dtype: torch.dtype, limit: int) -> list[Record]:
    """The method, the in-place method, the operators and the aliases of an entry, and `out=`."""
    name, kind = entry_name(entry), str(dtype).removeprefix("torch.")
    found = []
    pairs = [("method", entry.method_variant, False), ("inplace", entry.inplace_variant, True)]
    for alias in entry.aliases:
        pairs += [("alias", alias.op, False), ("alias", alias.method_variant, False)]
        pairs += [("alias", alias.inplace_variant, True)]
    pairs += [("operator", entry.operator_variant, False)]
    pairs += [("operator", entry.inplace_operator_variant, True)]
    for check, theirs, inplace in pairs:
        if theirs is None:
            continue
        record = next((r for r in found if r.check == check), Record(name, kind, check))
        if record not in found:
            found.append(record)
        samples = samples_of(entry, dtype, limit)
        if inplace:
            samples = (s for s in samples if not s.broadcasts_input)
        ours, missing = attempt(lambda t=theirs: _same_variant(t))
        if missing is not None:
            record.add(message(missing))
        else:
            compare_calls(entry, samples, record, theirs, ours, inplace=inplace)
    return found + (_out(entry, dtype, limit) if entry.supports_out else [])


def _out(entry: Any, dtype: torch.dtype, limit: int) -> list[Record]:
    record = Record(entry_name(entry), str(dtype).removeprefix("torch."), "out")
    for sample in samples_of(entry, dtype, limit):
        wrong, error = attempt(lambda s=sample: _out_difference(entry, s))
        if error is not None or wrong != "refused":
            record.add(message(error) if error is not None else wrong)
    return [record]


def _out_difference(entry: Any, sample: Any) -> str | None:
    twin = Twin(sample)
    (args, kwargs), (mine, keywords) = twin.theirs, twin.ours
    expected, refused = attempt(lambda: entry.op(*args, **kwargs))
    if refused is not None or not all(isinstance(e, torch.Tensor) for e in flattened(expected)):
        return "refused"
    single = isinstance(expected, torch.Tensor)
    theirs = tuple(torch.empty_like(e) for e in flattened(expected))
    outs = Translator()(theirs)
    given = theirs[0] if single else theirs
    if attempt(lambda: entry.op(*args, **kwargs, out=given))[1] is not None:
        return "refused"
    result = entry_function(entry)(*mine, **keywords, out=outs[0] if single else outs)
    for got, out in zip(flattened(result), outs):
        if got is not out:
            return "the result is not what was given as out="
    return difference(outs, theirs, entry) or stride_difference(outs, theirs)


def errors(entry: Any, dtype: torch.dtype, limit: int) -> list[Record]:
    """Calls that must fail, with the type of PyTorch's exception."""
    record = Record(entry_name(entry), str(dtype).removeprefix("torch."), "errors")
    if dtype != torch.float32 or entry.error_inputs_func is None:
        return []
    ours, missing = attempt(lambda: entry_function(entry))
    for bad in entry.error_inputs("cpu"):
        sample = bad.sample_input
        twin, error = attempt(lambda s=sample: Twin(s))
        expected = attempt(lambda s=sample: entry.op(s.input, *s.args, **s.kwargs))[1]
        if expected is None:
            continue
        if missing is None and error is None:
            error = attempt(lambda t=twin: ours(*t.ours[0], **t.ours[1]))[1]
        error = missing or error
        wrong = type(error).__name__ != type(expected).__name__
        told = "nothing is raised" if error is None else message(error)
        record.add(f"{told}, expected {message(expected)}" if wrong else None)
    return [record]


CHECKS: dict[str, Callable[[Any, torch.dtype, int], list[Record]]] = {
    "forward": forward,
    "gradient": gradient,
    "double_gradient": double_gradient,
    "forward_mode": forward_mode,
    "variants": variants,
    "errors": errors,
    "primitives": lambda *arguments: _decomposed(*arguments),
}


def _decomposed(entry: Any, dtype: torch.dtype, limit: int) -> list[Record]:
    from tests.parity import decomposed_database  # which uses this module

    return decomposed_database.primitives(entry, dtype, limit)


def run_check(entry: Any, dtype: torch.dtype, check: str, limit: int) -> list[Record]:
    """One check; what goes wrong in the runner itself becomes a failed sample."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return CHECKS[check](entry, dtype, limit)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            kind = str(dtype).removeprefix("torch.")
            record = Record(entry_name(entry), kind, check)
            record.add(f"runner: {message(error)} at {where.name}:{where.lineno}")
            return [record]
