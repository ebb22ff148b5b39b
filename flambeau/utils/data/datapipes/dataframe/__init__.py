"""Data pipes of data frames (pandas, or what `set_df_wrapper` names)."""

from flambeau.utils.data.datapipes.dataframe.dataframes import (
    CaptureDataFrame,
    DFIterDataPipe,
)
from flambeau.utils.data.datapipes.dataframe.datapipes import DataFramesAsTuplesPipe

__all__ = ["CaptureDataFrame", "DFIterDataPipe", "DataFramesAsTuplesPipe"]
