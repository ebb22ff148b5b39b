"""Operations on data frames that are noted now and applied to each frame of a pipe later."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

from flambeau.ir.failure import failure
from flambeau.utils.data.datapipes._decorator import functional_datapipe
from flambeau.utils.data.datapipes.dataframe.structures import DataChunkDF
from flambeau.utils.data.datapipes.datapipe import DFIterDataPipe, IterDataPipe

__all__ = [
    "Capture", "CaptureA", "CaptureAdd", "CaptureCall", "CaptureControl", "CaptureDataFrame",
    "CaptureDataFrameWithDataPipeOps", "CaptureF", "CaptureGetAttr", "CaptureGetItem",
    "CaptureInitial", "CaptureLikeMock", "CaptureMul", "CaptureSetItem", "CaptureSub",
    "CaptureVariable", "CaptureVariableAssign", "DataFrameTracedOps", "DataFrameTracer",
    "disable_capture", "get_val",
]  # fmt: skip


class CaptureControl:
    """Whether operations are noted at all."""

    disabled = False


def disable_capture() -> None:
    """Stops noting operations."""
    CaptureControl.disabled = True


def _new_context() -> dict[str, Any]:
    return {"operations": [], "variables": [], "schema_df": None}


def get_val(capture: Any) -> Any:
    """The value that a noted expression has now; other objects are their own values."""
    return capture.execute() if isinstance(capture, Capture) else capture


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) else str(value)


class Capture:
    """An expression that is noted.

    Args:
        schema_df: a data frame with the columns of those to come, or None.
    """

    def __init__(self, schema_df: Any = None) -> None:
        self.ctx = {**_new_context(), "schema_df": schema_df}

    def __str__(self) -> str:
        return self._ops_str()

    def _ops_str(self) -> str:
        return "\n".join(str(each) for each in self.ctx["operations"])

    def __getattr__(self, attrname: str) -> Any:
        if attrname in ("ctx", "kwargs") or attrname.startswith("__"):
            raise AttributeError(attrname)
        if attrname in ("_ctx", "kwarg", "kwargs"):
            raise RuntimeError("no access!")
        return CaptureGetAttr(self, attrname, ctx=self.ctx)

    def __getitem__(self, key: Any) -> Capture:
        return CaptureGetItem(self, key, ctx=self.ctx)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.ctx["operations"].append(CaptureSetItem(self, key, value, ctx=self.ctx))

    def __add__(self, add_val: Any) -> Capture:
        return _assigned(CaptureAdd(self, add_val, ctx=self.ctx), self.ctx)

    def __sub__(self, add_val: Any) -> Capture:
        return _assigned(CaptureSub(self, add_val, ctx=self.ctx), self.ctx)

    def __mul__(self, add_val: Any) -> Capture:
        return _assigned(CaptureMul(self, add_val, ctx=self.ctx), self.ctx)

    def __call__(self, *args: Any, **kwargs: Any) -> Capture:
        """Notes a call."""
        call = CaptureCall(self, ctx=self.ctx, args=args, kwargs=kwargs)
        return _assigned(call, self.ctx)

    def _is_context_empty(self) -> bool:
        return not self.ctx["operations"] and not self.ctx["variables"]

    def apply_ops_2(self, dataframe: Any) -> None:
        """Runs what was noted on a data frame."""
        self.ctx["variables"][0].calculated_value = dataframe
        for each in self.ctx["operations"]:
            each.execute()

    @property
    def columns(self) -> Any:
        """The columns of the data frame that defines the schema."""
        self.apply_ops_2(self.ctx["schema_df"])
        return self.execute().columns

    def execute(self) -> Any:
        """The value; of an expression without one an error.

        Raises:
            RuntimeError: always, here.
        """
        raise failure(RuntimeError, "Capture", "the expression has no value", "DataFrameTracer")


def _assigned(value: Capture, ctx: dict[str, Any]) -> Capture:
    variable = CaptureVariable(value, ctx=ctx)
    ctx["operations"].append(CaptureVariableAssign(variable=variable, value=value, ctx=ctx))
    return variable


class CaptureF(Capture):
    """An expression with named parts.

    Args:
        ctx: what is noted.
        kwargs: the parts.
    """

    def __init__(self, ctx: Any = None, **kwargs: Any) -> None:
        self.ctx = _new_context() if ctx is None else ctx
        self.kwargs = kwargs


class CaptureA(CaptureF):
    """An attribute of a function's argument."""

    def __str__(self) -> str:
        return f"{self.kwargs['name']}"

    def execute(self) -> Any:
        """The value."""
        return self.kwargs["real_attribute"]


class CaptureVariableAssign(CaptureF):
    """A variable that gets a value."""

    def __str__(self) -> str:
        return f"{self.kwargs['variable']} = {self.kwargs['value']}"

    def execute(self) -> None:
        """Computes the value."""
        self.kwargs["variable"].calculated_value = self.kwargs["value"].execute()


class CaptureVariable(Capture):
    """A variable.

    Args:
        value: what it was assigned.
        ctx: what is noted.
    """

    names_idx = 0

    def __init__(self, value: Any, ctx: dict[str, Any]) -> None:
        if CaptureControl.disabled:
            raise RuntimeError("Attempting to create capture variable with capture off")
        self.ctx, self.value = ctx, value
        self.name = f"var_{CaptureVariable.names_idx}"
        self.calculated_value: Any = None
        CaptureVariable.names_idx += 1
        ctx["variables"].append(self)

    def __str__(self) -> str:
        return self.name

    def execute(self) -> Any:
        """The value it has now."""
        return self.calculated_value

    def apply_ops(self, dataframe: Any) -> Any:
        """Its value after what was noted ran on a data frame."""
        self.apply_ops_2(dataframe)
        return self.calculated_value


class CaptureInitial(CaptureVariable):
    """The variable that represents each data frame.

    Args:
        schema_df: a data frame with the columns of those to come, or None.
    """

    def __init__(self, schema_df: Any = None) -> None:
        super().__init__(None, {**_new_context(), "schema_df": schema_df})
        self.name = f"input_{self.name}"


class CaptureDataFrame(CaptureInitial):
    """A data frame that is noted."""


class _Binary(Capture):
    _sign = ""
    _function: Callable[[Any, Any], Any] = staticmethod(operator.add)

    def __init__(self, left: Any, right: Any, ctx: dict[str, Any]) -> None:
        self.ctx, self.left, self.right = ctx, left, right

    def __str__(self) -> str:
        return f"{self.left} {self._sign} {self.right}"

    def execute(self) -> Any:
        """The value."""
        return self._function(get_val(self.left), get_val(self.right))


class CaptureAdd(_Binary):
    """A sum."""

    _sign = "+"


class CaptureSub(_Binary):
    """A difference."""

    _sign, _function = "-", staticmethod(operator.sub)


class CaptureMul(_Binary):
    """A product."""

    _sign, _function = "*", staticmethod(operator.mul)


class CaptureGetItem(Capture):
    """An item of a value.

    Args:
        left: the value.
        key: of the item.
        ctx: what is noted.
    """

    def __init__(self, left: Any, key: Any, ctx: dict[str, Any]) -> None:
        self.ctx, self.left, self.key = ctx, left, key

    def __str__(self) -> str:
        return f"{self.left}[{_shown(self.key)}]"

    def execute(self) -> Any:
        """The value."""
        return get_val(self.left)[get_val(self.key)]


class CaptureSetItem(Capture):
    """An item that is set.

    Args:
        left: whose item.
        key: of the item.
        value: the new one.
        ctx: what is noted.
    """

    def __init__(self, left: Any, key: Any, value: Any, ctx: dict[str, Any]) -> None:
        self.ctx, self.left, self.key, self.value = ctx, left, key, value

    def __str__(self) -> str:
        return f"{self.left}[{_shown(self.key)}] = {_shown(self.value)}"

    def execute(self) -> None:
        """Sets it."""
        get_val(self.left)[get_val(self.key)] = get_val(self.value)


class CaptureGetAttr(Capture):
    """An attribute of a value.

    Args:
        src: the value.
        name: of the attribute.
        ctx: what is noted.
    """

    def __init__(self, src: Any, name: str, ctx: dict[str, Any]) -> None:
        self.ctx, self.src, self.name = ctx, src, name

    def __str__(self) -> str:
        return f"{self.src}.{self.name}"

    def execute(self) -> Any:
        """The value."""
        return getattr(get_val(self.src), self.name)


class CaptureCall(Capture):
    """A call.

    Args:
        callable: what is called.
        ctx: what is noted.
        kwargs: `args` and `kwargs` of the call.
    """

    def __init__(self, callable: Any, ctx: Any = None, **kwargs: Any) -> None:  # noqa: A002
        self.ctx = _new_context() if ctx is None else ctx
        self.callable, self.kwargs = callable, kwargs

    def __str__(self) -> str:
        args = [_shown(value) for value in self.kwargs["args"]]
        args += [f"{name}={_shown(value)}" for name, value in self.kwargs["kwargs"].items()]
        return f"{self.callable}({', '.join(args)})"

    def execute(self) -> Any:
        """The value."""
        args = [get_val(value) for value in self.kwargs["args"]]
        named = {name: get_val(value) for name, value in self.kwargs["kwargs"].items()}
        return get_val(self.callable)(*args, **named)


class CaptureLikeMock:
    """A `with` block in which a function is noted instead of called.

    Args:
        name: of the function, with its module.
    """

    def __init__(self, name: str) -> None:
        from importlib import import_module

        module, _, self.attribute = name.rpartition(".")
        self.target = import_module(module)

    def __enter__(self) -> None:
        self._before = getattr(self.target, self.attribute)
        before = self._before

        def noted(*args: Any, **kwargs: Any) -> Any:
            first = next((value for value in args if isinstance(value, Capture)), None)
            if first is None:
                return before(*args, **kwargs)
            function = CaptureA(ctx=first.ctx, name=self.attribute, real_attribute=before)
            return function(*args, **kwargs)

        setattr(self.target, self.attribute, noted)

    def __exit__(self, *exception: object) -> None:
        setattr(self.target, self.attribute, self._before)


class CaptureDataFrameWithDataPipeOps(CaptureDataFrame):
    """A data frame that is noted, and a pipe of the frames that come of it."""

    def as_datapipe(self) -> Any:
        """The pipe of computed data frames."""
        return DataFrameTracedOps(self.ctx["variables"][0].source_datapipe, self)

    def raw_iterator(self) -> Any:
        """The computed data frames."""
        return iter(self.as_datapipe())

    def __iter__(self) -> Any:
        return iter(self._dataframes_as_tuples())

    def batch(
        self, batch_size: int = 10, drop_last: bool = False, wrapper_class: Any = None
    ) -> Any:
        """Batches of rows."""
        rows = self._dataframes_per_row()._dataframes_concat(batch_size)
        return rows.batch(
            batch_size=1, drop_last=drop_last, wrapper_class=wrapper_class or DataChunkDF
        )

    def groupby(self, *args: Any, **kwargs: Any) -> Any:
        """Groups of rows."""
        return self._dataframes_as_tuples().groupby(*args, **kwargs)

    def shuffle(self, *args: Any, **kwargs: Any) -> Any:
        """Rows in random order."""
        return self._dataframes_shuffle(*args, **kwargs)

    def filter(self, *args: Any, **kwargs: Any) -> Any:
        """Rows for which a function is true."""
        return self._dataframes_filter(*args, **kwargs)

    def collate(self, *args: Any, **kwargs: Any) -> Any:
        """Raises: batches of data frames are no tensors.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("Can't collate unbatched DataFrames stream\nhint: .batch(...) first")

    def __getattr__(self, attrname: str) -> Any:
        if attrname in DFIterDataPipe.functions or attrname in IterDataPipe.functions:
            pipe = self.as_datapipe()
            function = IterDataPipe.functions[attrname]

            def apply(*args: Any, **kwargs: Any) -> Any:
                return function(pipe, *args, **kwargs)

            return apply
        return super().__getattr__(attrname)


@functional_datapipe("trace_as_dataframe")
class DataFrameTracer(CaptureDataFrameWithDataPipeOps, IterDataPipe):  # type: ignore[type-arg,misc]
    """A pipe of data frames as one data frame whose operations are noted.

    Args:
        source_datapipe: yields data frames.
        schema_df: a data frame with their columns; the first one where it is None.
    """

    def __init__(self, source_datapipe: Any, schema_df: Any = None) -> None:
        self.__dict__["source_datapipe"] = source_datapipe
        if schema_df is None:
            schema_df = next(iter(source_datapipe))
        CaptureInitial.__init__(self, schema_df)

    def set_shuffle_settings(self, *args: Any, **kwargs: Any) -> None:
        """Accepts settings of shuffling."""

    def is_shardable(self) -> bool:
        """False: the pipe is not divided among processes."""
        return False


class DataFrameTracedOps(DFIterDataPipe):
    """The data frames that come of a noted expression.

    Args:
        source_datapipe: yields data frames.
        output_var: the expression.
    """

    def __init__(self, source_datapipe: Any, output_var: Any) -> None:
        self.source_datapipe, self.output_var = source_datapipe, output_var

    def __iter__(self) -> Iterator[Any]:
        for frame in self.source_datapipe:
            yield self.output_var.apply_ops(frame)
