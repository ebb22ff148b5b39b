"""Values that Python and the core define: what may be done with them runs no code of users."""

from __future__ import annotations

import itertools
import types
from collections import OrderedDict, defaultdict, deque

from flambeau import _core
from flambeau._core import Tensor
from flambeau.nn.parameter import Parameter

ITERTOOLS: frozenset[type] = frozenset(
    {
        itertools.chain, itertools.accumulate, itertools.starmap, itertools.count,
        itertools.takewhile, itertools.dropwhile, itertools.filterfalse, itertools.islice,
        itertools.cycle, itertools.pairwise, itertools.combinations, itertools.permutations,
        itertools.combinations_with_replacement, itertools.compress, itertools.product,
        itertools.zip_longest, itertools.repeat, map, filter, type(iter(deque())),
    }
)  # fmt: skip
TENSORS = frozenset({Tensor, Parameter})
ATOMS = frozenset(
    {
        types.NoneType, bool, int, float, complex, str, bytes, types.EllipsisType, range,
        types.NotImplementedType, _core.dtype, _core.device, _core.Size, _core.memory_format,
        _core.layout,
    }
)  # fmt: skip
DICTS: frozenset[type] = frozenset({dict, OrderedDict, defaultdict})
CONTAINERS: frozenset[type] = frozenset({tuple, list, set, frozenset, deque, *DICTS})
ITERATORS = frozenset(
    {
        type(iter(())), type(iter([])), type(iter({})), type(iter({}.values())),
        type(iter({}.items())), type(iter("")), type(iter("é")), type(iter(range(0))),
        type(iter(range(1 << 70))), type(iter(set())), type(reversed([])), enumerate, zip, reversed,
        type({}.keys()), type({}.values()), type({}.items()), type(OrderedDict().items()),
        type(OrderedDict().values()), type(OrderedDict().keys()),
    }
) | ITERTOOLS  # fmt: skip
GUARDS = frozenset({_core.no_grad, _core.enable_grad, _core.set_grad_enabled, _core.inference_mode})
BY_IDENTITY = frozenset({type, types.FunctionType, types.ModuleType, _core.Op, *GUARDS})
NATIVE_ATTRIBUTES = ITERATORS | GUARDS | {slice}
TENSOR_FACTS = frozenset(
    "shape ndim itemsize nbytes dtype device layout is_cpu is_cuda is_mps is_xpu is_sparse "
    "is_sparse_csr is_quantized is_mkldnn is_meta requires_grad T H mT mH".split()
)
TENSOR_METHODS = frozenset(
    "size stride dim ndimension numel nelement element_size storage_offset is_contiguous "
    "is_floating_point is_complex is_signed is_conj is_neg get_device detach".split()
)


def is_struct(kind: type) -> bool:
    """Whether a type is a native tuple with names, as operators with several results give."""
    return issubclass(kind, tuple) and "n_sequence_fields" in kind.__dict__


def hashes(value: object) -> bool:
    """Whether hashing and comparing a value runs no code of users."""
    kind = type(value)
    if isinstance(value, (tuple, frozenset)) and kind in (tuple, frozenset):
        return all(hashes(item) for item in value)
    if kind is float or kind is complex:
        return bool(value == value)  # the identity of a NaN has no guard
    return kind in ATOMS or kind in BY_IDENTITY


def compares(value: object) -> bool:
    """Whether comparing a value with a like one runs no code of users, and no operators."""
    kind = type(value)
    if isinstance(value, (list, set, tuple)) and kind in (list, set, tuple):
        return all(compares(item) for item in value)
    if isinstance(value, dict) and kind is dict:
        return all(hashes(k) and compares(v) for k, v in value.items())
    return hashes(value)


def shows(value: object) -> bool:
    """Whether the text of a value needs no code of users, and no names of theirs."""
    kind = type(value)
    if isinstance(value, (tuple, list, set, frozenset)) and kind in (tuple, list, set, frozenset):
        return all(shows(item) for item in value)
    if isinstance(value, dict) and kind is dict:
        return all(shows(k) and shows(v) for k, v in value.items())
    return kind in ATOMS
