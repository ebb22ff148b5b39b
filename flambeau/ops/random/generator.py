"""The default generator as functions: its seed and its state."""

from __future__ import annotations

from typing import Any

from flambeau.core import tensors
from flambeau.language.definition import function
from flambeau.language.dtypes import report_change
from flambeau.language.schema import Tensor


@function(where="torch")
def manual_seed(seed: int) -> Any:
    """Starts the default generator's stream of a seed; returns the generator.

    Raises:
        ValueError: not a number, or outside of [-2**63, 2**64).

    Example:
        >>> torch.manual_seed(0).initial_seed()
        0
    """
    try:
        number = int(seed)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"[manual_seed] expected an int, got {seed!r}\nhint: any number of 64 bits will do"
        ) from error
    report_change("manual_seed")
    return tensors.seed_generators(number)


@function(where="torch")
def seed() -> int:
    """Seeds the default generator from the system's entropy; returns the seed.

    Example:
        >>> torch.seed() == torch.initial_seed()
        True
    """
    report_change("seed")
    return int(tensors.default_generator.seed())


@function(where="torch")
def initial_seed() -> int:
    """The seed that the default generator's stream started from.

    Example:
        >>> torch.manual_seed(7).initial_seed()
        7
    """
    return int(tensors.default_generator.initial_seed())


@function(where="torch")
def get_rng_state() -> Any:
    """State of the default generator: 5056 bytes, exchangeable with PyTorch's.

    Example:
        >>> torch.get_rng_state().shape
        torch.Size([5056])
    """
    report_change("get_rng_state")
    return tensors.default_generator.get_state()


@function(where="torch")
def set_rng_state(new_state: Tensor) -> None:
    """Continues the default generator from a state.

    Raises:
        RuntimeError: not the bytes of a state.

    Example:
        >>> state = torch.get_rng_state()
        >>> first = torch.rand(2)
        >>> torch.set_rng_state(state)
        >>> torch.equal(torch.rand(2), first)
        True
    """
    report_change("set_rng_state")
    tensors.default_generator.set_state(new_state)
