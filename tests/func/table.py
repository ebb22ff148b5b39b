"""The op table as transformations see it: which operators, and how their arguments are taken."""

import flambeau
from tests.ops.inputs import arguments, leaves, tensor_builder
from tests.ops.table import TABLE, UNINITIALISED

# What a sample cannot have: sizes or decisions that depend on data.
DATA_DEPENDENT = frozenset(
    "multinomial allclose equal is_nonzero nn.functional.one_hot nonzero argwhere masked_select "
    "unique_consecutive unique _unique2 _unique bincount histc histogram histogramdd".split()
)
# A view of any geometry over the memory of a sample, which is that of the batch.
GEOMETRY = frozenset({"as_strided"})

CHECKED = {
    key: entry
    for key, entry in TABLE.items()
    if not entry.mutating
    and key.rpartition(".")[2] not in UNINITIALISED | DATA_DEPENDENT | GEOMETRY
    and key not in DATA_DEPENDENT
}


def is_tensor(value):
    return isinstance(value, flambeau.Tensor)


def _flat(values):
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        else:
            yield value


def arguments_of(sample, dtype):
    """Arguments, keywords, and the tensors among the arguments."""
    args, kwargs = arguments(sample, tensor_builder(flambeau), dtype)
    return args, kwargs, [x for x in _flat(args) if is_tensor(x)]


def rebuilt(args, tensors):
    """The arguments with other tensors."""
    rest = iter(tensors)

    def change(value):
        if isinstance(value, (list, tuple)):
            return type(value)(change(item) for item in value)
        return next(rest) if is_tensor(value) else value

    return [change(value) for value in args]


def results(value):
    """The tensors of a result."""
    return [x for x in leaves(value) if is_tensor(x)]
