"""Sharded safetensors checkpoints: an index in JSON names the file of each tensor.

Large models are stored as several safetensors files and `model.safetensors.index.json`, whose
entry "weight_map" maps names of tensors to names of files in the same folder.
"""

from __future__ import annotations

import json
import os
from typing import Any

from flambeau.serialization import container
from flambeau.serialization.sources import Source, damaged, opened

__all__ = ["read"]

_LARGEST_INDEX = 2**28


def read(path: Any, source: Source, restore: Any, mmap: bool) -> dict[str, Any]:
    """The tensors of all files that an index names.

    Args:
        path: of the index.
        source: its bytes.
        restore: (storage, location) to the storage to use.
        mmap: whether files are mapped.

    Raises:
        RuntimeError: no index, or one that does not fit its files.
    """
    if source.size > _LARGEST_INDEX:
        raise damaged("it is no index of tensors")
    try:
        index = json.loads(source.read(0, source.size).decode())
    except (ValueError, RecursionError) as error:
        raise damaged(f"the index cannot be read, {error}") from error
    files = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(files, dict) or not all(_is_name(name) for name in files.values()):
        raise damaged("the index names no files of its own folder")
    folder = os.path.dirname(os.fspath(path))
    parts: dict[str, dict[str, Any]] = {}
    for name in sorted(set(files.values())):
        with opened(os.path.join(folder, name), mmap) as part:
            parts[name] = container.read(part, restore, False)
    missing = [name for name, file in files.items() if name not in parts[file]]
    if missing:
        raise damaged(f"{files[missing[0]]} does not hold {missing[0]!r}, as the index says")
    return {name: parts[file][name] for name, file in files.items()}


def _is_name(value: Any) -> bool:
    """Whether a value is the name of a file in the same folder."""
    return isinstance(value, str) and bool(value) and os.path.basename(value) == value
