"""`torch.optim._multi_tensor`: optimizers with `foreach=True`, under the older module."""

from __future__ import annotations

import functools
from typing import Any

import flambeau.optim as _optim

__all__ = [
    "ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop",
    "SGD",
]  # fmt: skip


def partialclass(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """A class whose constructor has some arguments already."""

    class NewCls(cls):  # type: ignore[misc]
        __doc__ = cls.__doc__
        __init__ = functools.partialmethod(cls.__init__, *args, **kwargs)

    return NewCls


ASGD = partialclass(_optim.ASGD, foreach=True)
Adadelta = partialclass(_optim.Adadelta, foreach=True)
Adagrad = partialclass(_optim.Adagrad, foreach=True)
Adam = partialclass(_optim.Adam, foreach=True)
AdamW = partialclass(_optim.AdamW, foreach=True)
Adamax = partialclass(_optim.Adamax, foreach=True)
NAdam = partialclass(_optim.NAdam, foreach=True)
RAdam = partialclass(_optim.RAdam, foreach=True)
RMSprop = partialclass(_optim.RMSprop, foreach=True)
Rprop = partialclass(_optim.Rprop, foreach=True)
SGD = partialclass(_optim.SGD, foreach=True)
