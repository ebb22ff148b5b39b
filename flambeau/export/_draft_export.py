"""`draft_export`: an export that goes on where data decide a branch, or a size does not vary.

Where a condition depends on data, the part of the graph that there is computes it on the example;
the program is that of the outcome, and checks it at each call. Where the program contradicts what
its author said of sizes, they vary as far as the program allows. A report lists both.
"""

from __future__ import annotations

import enum
import logging
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import flambeau as torch
from flambeau._dynamo.exc import UserError
from flambeau.export._environment import DimEnvironment
from flambeau.export.dynamic_shapes import Dim, _DimHint, int_oo
from flambeau.fx import Interpreter
from flambeau.fx.experimental._shape_env import text_of
from flambeau.fx.node import Node, map_arg
from flambeau.ir.size import SizeExpr
from flambeau.ir.size_program import eq, not_
from flambeau.runtime.symbolic import SymBool, SymInt, SymNode
from flambeau.utils import _pytree as pytree
from flambeau.utils._python_dispatch import _disable_current_modes

__all__ = ["DraftExportReport", "FailureReport", "FailureType", "draft_export"]

Value = Any  # an argument of a module
log = logging.getLogger(__name__)
_PACKAGE = str(Path(torch.__file__).parent)


class FailureType(enum.IntEnum):
    """Why a program is not the one that was meant."""

    MISSING_FAKE_KERNEL = 1
    DATA_DEPENDENT_ERROR = 2
    GUARD_ADDED = 3
    MISMATCHED_FAKE_KERNEL = 4

    def __str__(self) -> str:
        return self.name


class FailureReport:
    """One of these reasons.

    Attributes:
        failure_type: its kind.
        data: "expr", the condition; where data decide it "result", "occurrences" and "user_stack",
            else "new_dynamic_shapes".
        xfail: whether it was expected.
    """

    def __init__(
        self, failure_type: FailureType, data: dict[str, Value], xfail: bool = False
    ) -> None:
        self.failure_type, self.data, self.xfail = failure_type, data, xfail

    def __repr__(self) -> str:
        return (
            f"FailureReport(failure_type={self.failure_type}, xfail={self.xfail}, data={self.data})"
        )

    def print(self, str_to_filename: dict[int, str]) -> str:
        """The reason as text, with an alternative.

        Args:
            str_to_filename: names of the files in stacks, by number.
        """
        data = self.data
        if self.failure_type is FailureType.GUARD_ADDED:
            return (
                f"Guard Added.\n    The program needs more of sizes than was said: {data['expr']}\n"
                "    These sizes vary now as far as the program allows:\n"
                f"    dynamic_shapes = {data['new_dynamic_shapes']}\n"
            )
        places = "".join(
            f"\n        File {str_to_filename[x['filename']]}, lineno {x['line']}, in {x['name']}"
            f"\n            {x['loc']}"
            for x in data["user_stack"]
        )
        return (
            f"Data dependent error.\n    Data decide the value of `{data['expr']}`, "
            f"{data['occurrences']} time(s):{places}\n"
            f"    The program is that of the example, `{data['result']}`, and checks it.\n"
            "    torch._check(...) says what holds; torch.cond records both branches.\n"
        )


class DraftExportReport:
    """The problems of a draft.

    Attributes:
        failures: reasons why the program is not the one that was meant.
        str_to_filename: names of the files in stacks, by number.
    """

    def __init__(self, failures: list[FailureReport], str_to_filename: dict[int, str]) -> None:
        self.failures, self.str_to_filename = failures, str_to_filename

    def successful(self) -> bool:
        """Whether `export` does the same."""
        return all(failure.xfail for failure in self.failures)

    def __repr__(self) -> str:
        return f"DraftExportReport({self.failures})"

    def __str__(self) -> str:
        if self.successful():
            return "draft_export found no problem: use torch.export.export."
        lines = [f"draft_export found {len(self.failures)} problem(s); the program is specialised."]
        for number, failure in enumerate(self.failures, 1):
            lines.append(f"{number}. {failure.print(self.str_to_filename)}")
        return "\n".join(lines)


class DraftEnvironment(DimEnvironment):
    """Symbols for sizes, and values of the example where data decide a branch.

    Attributes:
        decisions: per place in the program and condition a failure.
        files: numbers of files.
    """

    def __init__(self) -> None:
        super().__init__()
        self.decisions: dict[Value, FailureReport] = {}
        self.files: dict[str, int] = {}
        self._values: dict[Node, Value] = {}
        self._trace: Value = None

    def begin(self, trace: Value) -> None:
        """Notes the run whose symbols these are."""
        self._trace = trace

    def decide(self, condition: Value) -> bool:
        """The truth of a condition; where data decide it, that in the example, which is checked."""
        if self.environment.known(condition) is not None or not self.depends_on_data(condition):
            return super().decide(condition)
        answer = bool(self._real(SymBool(SymNode(condition, self, bool))))
        self._note(condition, answer)
        self.expect_true(condition if answer else not_(condition))
        return answer

    def guard_value(self, expression: Value) -> Value:
        """The value in the example, guarded or checked."""
        resolved = self.resolve(expression)
        if not isinstance(resolved, SizeExpr) or not self.depends_on_data(resolved):
            return super().guard_value(expression)
        value = int(self._real(SymInt(SymNode(resolved, self, int))))
        self._note(resolved, value)
        self.expect_true(eq(resolved, value))
        return value

    def _note(self, expression: Value, result: Value) -> None:
        stack = [x for x in traceback.extract_stack() if not x.filename.startswith(_PACKAGE)]
        key = text_of(self.resolve(expression)), *[(x.filename, x.lineno) for x in stack]
        failure = self.decisions.get(key)
        if failure is not None:
            failure.data["occurrences"] += 1
            return
        shown = [
            {
                "filename": self.files.setdefault(x.filename, len(self.files)),
                "line": x.lineno, "name": x.name, "loc": x.line,
            }
            for x in stack[-1:]
        ]  # fmt: skip
        data = {"expr": key[0], "result": result, "occurrences": 1, "user_stack": shown}
        self.decisions[key] = FailureReport(FailureType.DATA_DEPENDENT_ERROR, data)

    def _real(self, number: Value) -> Value:
        """The value of a number in the example."""
        last = self.recorder.proxy(number).node
        with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.random.fork_rng():
            for node in last.graph.nodes:
                if node not in self._values:
                    self._values[node] = self._computed(node)
                if node is last:
                    break
        return self._values[last]

    def _computed(self, node: Node) -> Value:
        trace, root = self._trace, self._trace.tracer.root
        if node.op == "placeholder":
            position = len(self._values)  # placeholders are first
            tensors = [state.tensor for state in trace.state]
            value = [*tensors, *trace.values][position]
            return value.detach().clone() if isinstance(value, torch.Tensor) else value
        if node.op == "get_attr":
            value = getattr(root, str(node.target))
            return value.detach().clone() if isinstance(value, torch.Tensor) else value
        args, kwargs = (map_arg(x, self._values.__getitem__) for x in (node.args, node.kwargs))
        return Interpreter(root, graph=node.graph).call_function(node.target, args, kwargs)


def draft_export(
    mod: torch.nn.Module,
    args: tuple[Value, ...],
    kwargs: Mapping[str, Value] | None = None,
    *,
    dynamic_shapes: Value = None,
    preserve_module_call_signature: tuple[str, ...] = (),
    strict: bool = False,
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> Value:
    """Exports a module as `export` does, and goes on where that would raise.

    Branches on data are those of the example: the program checks them at each call. If a program
    needs more of a size than was said of it, sizes vary as far as the program allows. The
    program's `_report` lists both, and is logged.

    Args:
        mod: the module.
        args, kwargs: its arguments: the example.
        dynamic_shapes: which sizes vary.
        preserve_module_call_signature: as of `export`.
        strict, prefer_deferred_runtime_asserts_over_guards: without effect.

    Raises:
        NotImplementedError: data decide a size of a tensor, and Python needs its value.

    Example:
        >>> class Positive(nn.Module):
        ...     def forward(self, x):
        ...         return x + 1 if x.sum() > 0 else x - 1
        >>> program = torch.export.draft_export(Positive(), (torch.ones(2),))
        >>> program._report.successful(), program.module()(torch.ones(2))
        (False, tensor([2., 2.]))
    """
    from flambeau.export import _exported

    failures: list[FailureReport] = []
    env = DraftEnvironment()
    try:
        program = _exported(mod, args, kwargs, dynamic_shapes, preserve_module_call_signature, env)
    except UserError as error:
        problems = [x[4:] for x in str(error).splitlines() if x.startswith("  - ")]
        if not problems:
            raise
        env, shapes = DraftEnvironment(), pytree.tree_map(_automatic, dynamic_shapes)
        program = _exported(mod, args, kwargs, shapes, preserve_module_call_signature, env)
        for problem in problems:
            data = {"expr": problem, "new_dynamic_shapes": shapes}
            failures.append(FailureReport(FailureType.GUARD_ADDED, data))
    files = {number: name for name, number in env.files.items()}
    program._report = DraftExportReport([*env.decisions.values(), *failures], files)
    log.log(logging.INFO if program._report.successful() else logging.WARNING, program._report)
    return program


def _automatic(said: Value) -> Value:
    """A statement about a size without a name."""
    if isinstance(said, Dim):
        most = None if said.max == int_oo else said.max
        return Dim.AUTO(min=said.min, max=most)
    if isinstance(said, _DimHint) and said.kind == "DYNAMIC":
        return Dim.AUTO(min=said.min, max=said.max)
    return said
