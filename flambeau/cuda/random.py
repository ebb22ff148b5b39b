"""`torch.cuda.random`: the functions of `torch.cuda` that concern random numbers."""

from flambeau import cuda as _cuda

_names = (
    "get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all",
    "seed", "seed_all", "set_rng_state", "set_rng_state_all",
)  # fmt: skip

__all__ = list(_names)
globals().update({name: getattr(_cuda, name) for name in __all__})
