"""The text every Python installation carries: the source of its standard library.

Files are taken in a fixed order; the last tenth of the bytes is held out for validation.
"""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import flambeau as torch
from flambeau import Tensor

SKIP = {"test", "tests", "site-packages", "idlelib", "lib2to3", "__pycache__", "ensurepip"}


def standard_library_files() -> list[Path]:
    """Every `.py` file of the standard library but its tests, sorted by relative path."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found: list[Path] = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in SKIP)
        found.extend(Path(folder) / name for name in files if name.endswith(".py"))
    return sorted(found, key=lambda path: str(path.relative_to(root)))


def load_bytes(limit: int = 8_000_000) -> bytes:
    """The first `limit` bytes of the files, joined by a blank line."""
    parts: list[bytes] = []
    total = 0
    for path in standard_library_files():
        try:
            text = path.read_bytes().replace(b"\r\n", b"\n") + b"\n\n"
        except OSError:
            continue
        parts.append(text)
        total += len(text)
        if total >= limit:
            break
    return b"".join(parts)[:limit]


class ByteText:
    """Random windows of a text.

    Args:
        text: the bytes.
        context: window length T.
    """

    def __init__(self, text: bytes, context: int) -> None:
        self.context = context
        cut = len(text) * 9 // 10
        data = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self.training, self.validation = data[:cut], data[cut:]

    def batch(
        self, batch: int, generator: torch.Generator, validation: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Tokens and next tokens, both (B, T) int64."""
        data = self.validation if validation else self.training
        starts = torch.randint(len(data) - self.context - 1, (batch,), generator=generator)
        offsets = torch.arange(self.context + 1)
        windows = data[starts.unsqueeze(1) + offsets].long()
        return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
