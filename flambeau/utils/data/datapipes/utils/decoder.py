"""Decoders of the content of files, by the extensions of their names."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.ir.failure import failure
from flambeau.utils.data.datapipes.utils.common import StreamWrapper

__all__ = [
    "Decoder",
    "ImageHandler",
    "MatHandler",
    "audiohandler",
    "basichandlers",
    "extension_extract_fn",
    "handle_extension",
    "imagehandler",
    "mathandler",
    "videohandler",
]

_IMAGES = ("jpg", "jpeg", "png", "ppm", "pgm", "pbm", "pnm")
# kind, dtype of elements, mode of Pillow
_IMAGE_KINDS = {
    f"{kind}{mode}{'' if dtype == 'float' else '8'}": (kind, dtype, mode)
    for kind in ("", "torch", "pil")
    for dtype in ("float", "uint8")
    for mode in ("l", "rgb", "rgba")
    if not (kind == "pil" and dtype == "uint8")
}
_IMAGE_KINDS |= {"torch": ("torch", "float", "rgb"), "pil": ("pil", None, "rgb")}  # type: ignore
_IMAGE_KINDS |= {f"pil{mode}": ("pil", None, mode) for mode in ("l", "rgb", "rgba")}  # type: ignore


def basichandlers(extension: str, data: bytes) -> Any:
    """Texts, JSON, numbers and tensors; None for other extensions.

    Pickles are read as `torch.load` reads them: only what is safe.
    """
    if extension in ("txt", "text", "transcript"):
        return data.decode("utf-8")
    if extension in ("cls", "cls2", "class", "count", "index", "inx", "id"):
        return int(data)
    if extension in ("json", "jsn"):
        return json.loads(data)
    if extension in ("pyd", "pickle", "pt"):
        return torch.load(io.BytesIO(data))
    return None


def handle_extension(extensions: str, f: Callable[[bytes], Any]) -> Callable[..., Any]:
    """A handler that calls `f(content)` for some extensions, and returns None for others.

    Example:
        >>> handle_extension("up", bytes.upper)("a.up", b"x")
        b'X'
    """
    endings = extensions.lower().split()

    def handler(extension: str, data: bytes) -> Any:
        key = extension.lower().split(".")
        for ending in endings:
            parts = ending.split(".")
            if len(parts) <= len(key) and key[-len(parts) :] == parts:
                return f(data)
        return None

    return handler


class ImageHandler:
    """Decodes images with Pillow.

    Args:
        imagespec: "pil", "torchrgb", "rgb8" ...: the type of the result, its colours, and whether
            its elements are bytes.

    Raises:
        AssertionError: another specification.
    """

    def __init__(self, imagespec: str) -> None:
        if imagespec not in _IMAGE_KINDS:
            problem = f"unknown image specification: {imagespec}"
            raise failure(AssertionError, "datapipe", problem, f"one of {sorted(_IMAGE_KINDS)}")
        self.imagespec = imagespec

    def __call__(self, extension: str, data: bytes) -> Any:
        """The image; None for other extensions."""
        if extension.lower() not in _IMAGES:
            return None
        try:
            import numpy
            from PIL import Image
        except ImportError as error:
            problem = "images need NumPy and Pillow"
            raise failure(ModuleNotFoundError, "datapipe", problem, "install them") from error
        kind, dtype, mode = _IMAGE_KINDS[self.imagespec]
        image = Image.open(io.BytesIO(data))
        image.load()
        image = image.convert(mode.upper())
        if kind == "pil":
            return image
        array = numpy.asarray(image)
        if dtype == "float":
            array = array.astype("float32") / 255
        if kind != "torch":
            return array
        tensor = torch.tensor(array)
        return tensor.permute(2, 0, 1) if array.ndim == 3 else tensor


def imagehandler(imagespec: str) -> ImageHandler:
    """A handler of images, see `ImageHandler`."""
    return ImageHandler(imagespec)


def videohandler(extension: str, data: bytes) -> Any:
    """Refuses videos; None for other extensions.

    Raises:
        NotImplementedError: torchvision's readers need PyTorch's own extension.
    """
    if extension not in ("mp4", "ogv", "mjpeg", "avi", "mov", "h264", "mpg", "webm", "wmv"):
        return None
    raise NotImplementedError("[datapipe] videos are not decoded\nhint: pass a handler of your own")


def audiohandler(extension: str, data: bytes) -> Any:
    """Refuses audio files; None for other extensions.

    Raises:
        NotImplementedError: torchaudio's readers need PyTorch's own extension.
    """
    if extension not in ("flac", "mp3", "sox", "wav", "m4a", "ogg", "wma"):
        return None
    raise NotImplementedError("[datapipe] audio is not decoded\nhint: pass a handler of your own")


class MatHandler:
    """Decodes Matlab's files with SciPy.

    Args:
        loadmat_kwargs: of `scipy.io.loadmat`.
    """

    def __init__(self, **loadmat_kwargs: Any) -> None:
        self.loadmat_kwargs = loadmat_kwargs

    def __call__(self, extension: str, data: bytes) -> Any:
        """The file's variables; None for other extensions."""
        if extension != "mat":
            return None
        import scipy.io

        return scipy.io.loadmat(io.BytesIO(data), **self.loadmat_kwargs)


def mathandler(**loadmat_kwargs: Any) -> MatHandler:
    """A handler of Matlab's files, see `MatHandler`."""
    return MatHandler(**loadmat_kwargs)


def extension_extract_fn(pathname: str) -> str:
    """The extension of a path, without the dot."""
    return os.path.splitext(pathname)[1].removeprefix(".")


class Decoder:
    """Decodes the files of a dict, or of pairs (name, content), with the first handler that can.

    Args:
        handler: functions (key, content) -> decoded content or None.
        key_fn: name -> key.
    """

    def __init__(
        self, *handler: Callable[..., Any], key_fn: Callable[[str], str] = extension_extract_fn
    ) -> None:
        self.handlers, self.key_fn = list(handler), key_fn

    def add_handler(self, *handler: Callable[..., Any]) -> None:
        """Adds handlers, which are tried after those before."""
        self.handlers += handler

    def decode1(self, key: str, data: Any) -> Any:
        """One content, decoded or as it is."""
        if not data:
            return data
        for handler in self.handlers:
            decoded = handler(key, data)
            if decoded is not None:
                return decoded
        return data

    def decode(self, data: Any) -> dict[str, Any]:
        """All of them; names that begin with "_" hold text."""
        entries = data.items() if isinstance(data, dict) else [data]
        results: dict[str, Any] = {}
        for name, content in entries:
            if name.startswith("_"):
                if isinstance(content, bytes):
                    content = content.decode("utf-8")
                results[name] = content
                continue
            stream = isinstance(content, (io.IOBase, StreamWrapper))
            results[name] = self.decode1(self.key_fn(name), content.read() if stream else content)
            if stream:
                content.close()
        return results

    def __call__(self, data: Any) -> dict[str, Any]:
        """`decode`."""
        return self.decode(data)
