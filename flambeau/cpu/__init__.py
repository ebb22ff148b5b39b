"""`torch.cpu`: the CPU under the names that accelerators' modules have. Work is never pending."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from flambeau.cpu import amp

__all__ = [
    "Event", "Stream", "StreamContext", "amp", "current_device", "current_stream", "device_count",
    "is_available", "is_initialized", "set_device", "stream", "synchronize",
]  # fmt: skip


class Stream:
    """Counterpart of an accelerator's queue of work; has no effect.

    Args:
        priority: has no effect.
    """

    def __init__(self, priority: int = -1) -> None:
        """Ignores the priority."""

    def wait_stream(self, stream: Any) -> None:
        """Nothing is pending."""

    def record_event(self) -> None:
        """Nothing is pending."""

    def wait_event(self, event: Any) -> None:
        """Nothing is pending."""


class Event:
    """Counterpart of a point in an accelerator's queue of work; always reached."""

    def query(self) -> bool:
        """True."""
        return True

    def record(self, stream: Any = None) -> None:
        """Nothing is pending."""

    def synchronize(self) -> None:
        """Nothing is pending."""

    def wait(self, stream: Any = None) -> None:
        """Nothing is pending."""


_default = Stream()
_current = _default


class StreamContext(AbstractContextManager[None]):
    """Makes a stream the current one for a `with` block.

    Args:
        stream: the stream, or None for no change.
    """

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self._before = _default

    def __enter__(self) -> None:
        """The stream becomes the current one."""
        global _current
        self._before = _current
        _current = self.stream or _current

    def __exit__(self, *exception: object) -> None:
        """The stream before is the current one again."""
        global _current
        _current = self._before


def stream(stream: Stream) -> StreamContext:
    """`StreamContext` of a stream."""
    return StreamContext(stream)


def current_stream(device: Any = None) -> Stream:
    """The current stream."""
    return _current


def current_device() -> str:
    """The name of the only device.

    Example:
        >>> torch.cpu.current_device()
        'cpu'
    """
    return "cpu"


def set_device(device: Any) -> None:
    """Has no effect: there is one device."""


def device_count() -> int:
    """1."""
    return 1


def is_available() -> bool:
    """True."""
    return True


def is_initialized() -> bool:
    """True."""
    return True


def synchronize(device: Any = None) -> None:
    """Returns at once: calls wait for their results."""


_FLAGS = {
    "sse4_1": "sse4_1", "sse4_2": "sse4_2", "fma3": "fma", "avx512_f": "avx512f",
    "avx512_bw": "avx512bw", "avx512_cd": "avx512cd", "avx512_dq": "avx512dq",
    "avx512_vl": "avx512vl", "avx512_ifma": "avx512ifma", "avx512_vbmi": "avx512vbmi",
    "lzcnt": "abm", "sha": "sha_ni", "sse3": "pni",
}  # fmt: skip
_SAME = (
    "sse sse2 ssse3 sse4a avx avx2 f16c aes bmi bmi2 popcnt clflush clflushopt clwb avx512_vnni "
    "avx512_vbmi2 avx512_bitalg avx512_vpopcntdq avx512_bf16 avx512_fp16 avx_vnni amx_tile "
    "amx_int8 amx_bf16"
).split()


def get_capabilities() -> dict[str, Any]:
    """Instruction sets and sizes of this machine's CPU, by PyTorch's names.

    Example:
        >>> torch.cpu.get_capabilities()["num_logical_cores"] >= 1
        True
    """
    import os
    import platform

    flags: set[str] = set()
    name = ""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() in ("flags", "Features"):
                    flags = set(value.split())
                elif key.strip() == "model name":
                    name = value.strip()
    except OSError:
        pass
    named = {**{word: word for word in _SAME}, **_FLAGS}
    return {
        "architecture": platform.machine(),
        "cpu_name": name,
        "num_logical_cores": os.cpu_count() or 1,
        **{public: flag in flags for public, flag in named.items()},
    }
