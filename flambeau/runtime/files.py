"""`torch.from_file`: tensors over the bytes of a file."""

from __future__ import annotations

import mmap
import os
from typing import Any, NoReturn

from flambeau import _core

__all__ = ["from_file"]


def _unable(text: str, filename: str, hint: str) -> NoReturn:
    raise RuntimeError(f"[from_file] unable to {text.format(f'<{filename}>')}\nhint: {hint}")


def _mapped(filename: str, shared: bool, nbytes: int) -> mmap.mmap:
    """The first bytes of a file; a shared one is made, and grows, as needed."""
    flags = os.O_RDWR | os.O_CREAT if shared else os.O_RDONLY
    try:
        descriptor = os.open(filename, flags, 0o600)
    except OSError as error:
        mode = "read-write" if shared else "read-only"
        reason = f"{error.strerror} ({error.errno})"
        _unable(f"open file {{}} in {mode} mode: {reason}", filename, "shared=True makes a file")
    try:
        there = os.fstat(descriptor).st_size
        if there < nbytes and not shared:
            _unable(
                f"map file {{}}: its size <{there}> is smaller than the required mapping size "
                f"<{nbytes}>",
                filename,
                "size is a number of elements",
            )
        if there < nbytes:
            os.ftruncate(descriptor, nbytes)
        access = mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY
        return mmap.mmap(descriptor, nbytes, access=access)
    finally:
        os.close(descriptor)


def mapped_storage(filename: Any, shared: bool, nbytes: int) -> Any:
    """An untyped storage over the first bytes of a file.

    Raises:
        RuntimeError: the file cannot be opened, or is too short and not shared.
    """
    if nbytes == 0:
        return _core.UntypedStorage(0)
    buffer = _mapped(os.fspath(filename), bool(shared), nbytes)
    return _core.storage_from_buffer(buffer, shared=bool(shared))


def from_file(
    filename: str,
    shared: bool | None = None,
    size: int | None = 0,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = False,
    requires_grad: bool = False,
) -> Any:
    """A tensor of one dimension over the first bytes of a file, which is mapped into memory.

    Args:
        filename: of the file.
        shared: what is written goes to the file, and other processes see it; the file is made or
            enlarged as needed. Otherwise what is written stays here.
        size: number of elements.
        dtype: of the elements; the default floating dtype where None.
        layout, device: strided, on the CPU.
        pin_memory: has no effect.
        requires_grad: whether operations on it are recorded.

    Raises:
        RuntimeError: the file cannot be opened, or is too short; another layout or device.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "numbers")
        >>> _ = torch.from_file(path, shared=True, size=2).fill_(3)
        >>> torch.from_file(path, size=2)
        tensor([3., 3.])
    """
    kind = _core.get_default_dtype() if dtype is None else dtype
    if layout not in (None, _core.strided) or _core.device(device or "cpu").type != "cpu":
        raise RuntimeError(
            f"[from_file] no layout {layout} on {device}\nhint: strided tensors on the CPU"
        )
    count = 0 if size is None else int(size)
    if count < 0:
        _unable(f"map {count} elements of file {{}}", filename, "a number of elements")
    if count == 0:
        tensor = _core.tensor_empty((0,), kind)
    else:
        storage = mapped_storage(filename, bool(shared), count * kind.itemsize)
        tensor = _core.tensor_from_storage(storage, kind, (count,), (1,))
    return tensor.requires_grad_() if requires_grad else tensor
