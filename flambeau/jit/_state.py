"""`torch.jit._state`: whether `script` and `trace` do anything (`PYTORCH_JIT` in PyTorch)."""

from __future__ import annotations

from flambeau.jit import markers

__all__ = ["EnabledProxy", "disable", "enable"]


class EnabledProxy:
    """The switch; true while scripting and tracing are on."""

    @property
    def enabled(self) -> bool:
        """Whether they are on."""
        return markers.enabled[0]

    @enabled.setter
    def enabled(self, value: bool) -> None:
        markers.enabled[0] = value

    def parse_env(self, name: str, default: bool, true_message: str, false_message: str) -> bool:
        """The switch; environment variables are not read."""
        return self.enabled

    def __bool__(self) -> bool:
        return self.enabled


_enabled = EnabledProxy()


def disable() -> None:
    """`script` and `trace` return what they are called with."""
    _enabled.enabled = False


def enable() -> None:
    """`script` and `trace` work."""
    _enabled.enabled = True
