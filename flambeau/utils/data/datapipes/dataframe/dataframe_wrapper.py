"""Access to data frames for pipes, through a class that other libraries may replace."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

from flambeau.ir.failure import failure

__all__ = [
    "PandasWrapper", "concat", "create_dataframe", "default_wrapper", "get_columns",
    "get_df_wrapper", "get_item", "get_len", "is_column", "is_dataframe", "iterate",
    "set_df_wrapper",
]  # fmt: skip


def _pandas() -> Any:
    if importlib.util.find_spec("pandas") is None:
        problem = "DataFrames prototype requires pandas to function"
        raise failure(ModuleNotFoundError, "datapipes", problem, "pip install pandas")
    import pandas

    return pandas


class PandasWrapper:
    """Data frames of pandas."""

    @classmethod
    def create_dataframe(cls, data: Any, columns: Any) -> Any:
        """A data frame of rows."""
        return _pandas().DataFrame(data, columns=columns)

    @classmethod
    def is_dataframe(cls, data: Any) -> bool:
        """Whether an object is a data frame."""
        return isinstance(data, _pandas().DataFrame)

    @classmethod
    def is_column(cls, data: Any) -> bool:
        """Whether an object is a column."""
        return isinstance(data, _pandas().Series)

    @classmethod
    def iterate(cls, data: Any) -> Iterator[Any]:
        """The rows of a data frame as tuples."""
        return iter(data.itertuples(index=False))

    @classmethod
    def concat(cls, buffer: Any) -> Any:
        """Data frames below each other."""
        return _pandas().concat(buffer)

    @classmethod
    def get_item(cls, data: Any, idx: int) -> Any:
        """A data frame of one row."""
        return data[idx : idx + 1]

    @classmethod
    def get_len(cls, df: Any) -> int:
        """The number of rows."""
        return len(df.index)

    @classmethod
    def get_columns(cls, df: Any) -> list[Any]:
        """The columns' names."""
        return list(df.columns.values.tolist())


default_wrapper: Any = PandasWrapper


def get_df_wrapper() -> Any:
    """The class that works on data frames."""
    return default_wrapper


def set_df_wrapper(wrapper: Any) -> None:
    """Chooses a class with the methods of `PandasWrapper`."""
    global default_wrapper
    default_wrapper = wrapper


def create_dataframe(data: Any, columns: Any = None) -> Any:
    """A data frame of rows."""
    return default_wrapper.create_dataframe(data, columns)


def is_dataframe(data: Any) -> bool:
    """Whether an object is a data frame."""
    return bool(default_wrapper.is_dataframe(data))


def get_columns(data: Any) -> Any:
    """The columns' names."""
    return default_wrapper.get_columns(data)


def is_column(data: Any) -> bool:
    """Whether an object is a column."""
    return bool(default_wrapper.is_column(data))


def concat(buffer: Any) -> Any:
    """Data frames below each other."""
    return default_wrapper.concat(buffer)


def iterate(data: Any) -> Iterator[Any]:
    """The rows of a data frame as tuples."""
    return iter(default_wrapper.iterate(data))


def get_item(data: Any, idx: int) -> Any:
    """A data frame of one row."""
    return default_wrapper.get_item(data, idx)


def get_len(df: Any) -> int:
    """The number of rows."""
    return int(default_wrapper.get_len(df))
