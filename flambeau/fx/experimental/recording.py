"""Records of the queries of a `ShapeEnv`: they are empty, as `ShapeEnv` is here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "FakeTensorMeta",
    "NotEqualError",
    "ShapeEnvEvent",
    "record_shapeenv_event",
    "replay_shape_env_events",
    "shape_env_check_state_equal",
]


@dataclass
class ShapeEnvEvent:
    """A call of a method of a `ShapeEnv`.

    Attributes:
        f: the method.
        args: its arguments.
        kwargs: likewise, by name.
        name: its name.
    """

    f: Callable[..., Any]
    args: list[Any] | None = None
    kwargs: dict[str, Any] | None = None
    tracked_fakes: list[Any] | None = None
    name: str | None = field(default=None)

    def run(self, shape_env: Any = None) -> Any:
        """Makes the call again.

        Args:
            shape_env: takes the place of the first argument.
        """
        args = list(self.args or ())
        if shape_env is not None and args:
            args[0] = shape_env
        return self.f(*args, **(self.kwargs or {}))


@dataclass
class FakeTensorMeta:
    """Sizes of a tensor without data.

    Attributes:
        tensor_size: its sizes.
        tensor_stride: its strides.
        tensor_storage_offset: its offset.
        is_nested: whether its samples differ in size.
    """

    tensor_size: tuple[Any, ...]
    tensor_stride: tuple[Any, ...]
    tensor_storage_offset: Any
    is_nested: bool

    def size(self) -> tuple[Any, ...]:
        """Its sizes."""
        return self.tensor_size

    def stride(self) -> tuple[Any, ...]:
        """Its strides."""
        return self.tensor_stride

    def storage_offset(self) -> Any:
        """Its offset."""
        return self.tensor_storage_offset

    def dim(self) -> int:
        """Its number of dimensions."""
        return len(self.tensor_size)

    @staticmethod
    def from_fake(fake: Any) -> FakeTensorMeta:
        """Describes a fake tensor."""
        return FakeTensorMeta(fake.size(), fake.stride(), fake.storage_offset(), fake.is_nested)


def record_shapeenv_event(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator of methods of `ShapeEnv`; it changes nothing.

    Args:
        options: PyTorch's.
    """
    return lambda method: method


def replay_shape_env_events(events: list[ShapeEnvEvent]) -> Any:
    """Makes recorded calls again.

    Args:
        events: the calls; the first one makes the `ShapeEnv`.
    """
    shape_env = events[0].run()
    for event in events[1:]:
        event.run(shape_env)
    return shape_env


def shape_env_check_state_equal(
    env1: Any, env2: Any, non_state_variable_names: Any, map_value: Callable[[str, Any], Any]
) -> None:
    """Raises unless two environments are equal.

    Args:
        env1: one.
        env2: the other.
        non_state_variable_names: attributes that are left out.
        map_value: maps a value before it is compared.

    Raises:
        NotEqualError: they differ.
    """
    states = [
        {k: map_value(k, v) for k, v in vars(env).items() if k not in non_state_variable_names}
        for env in (env1, env2)
    ]
    different = [key for key in states[0] if states[0][key] != states[1].get(key)]
    if different:
        raise NotEqualError("field values don't match:", [(k, states[0][k], states[1].get(k))
                                                          for k in different])  # fmt: skip


class NotEqualError(Exception):
    """Two environments differ.

    Args:
        msg: what was compared.
        mismatched: attribute, value, other value.
    """

    def __init__(self, msg: str, mismatched: list[tuple[str, Any, Any]]) -> None:
        lines = [f"{name}: {left} != {right}" for name, left, right in mismatched]
        super().__init__("\n".join([msg, *lines]))
