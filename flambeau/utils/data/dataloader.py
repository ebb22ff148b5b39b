"""`torch.utils.data.dataloader`: the loader under the module name that PyTorch gives it."""
# ruff: noqa: F401 - re-exports, standard modules among them

import functools
import itertools
import logging
import multiprocessing as python_multiprocessing
import os
import queue
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from flambeau.utils.data import _utils
from flambeau.utils.data.collate import default_collate, default_convert
from flambeau.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe
from flambeau.utils.data.dataset import Dataset, IterableDataset
from flambeau.utils.data.loader import (
    DataLoader,
    _BaseDataLoaderIter,
    _DatasetKind,
    _InfiniteConstantSampler,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)
from flambeau.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler
from flambeau.utils.data.worker import get_worker_info

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

_T = TypeVar("_T")
_collate_fn_t = Callable[[list[_T]], Any]

logger = logging.getLogger(__name__)
