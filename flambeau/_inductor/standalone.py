"""`torch._inductor.standalone_compile`: a compiled `GraphModule` that can be saved."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Callable
from typing import Literal

from flambeau.ir.failure import failure
from flambeau.ir.lock import late

__all__ = ["CompiledArtifact"]

_PARTS = ("module", "options", "programs")
Format = Literal["binary", "unpacked"]


class CompiledArtifact:
    """A compiled `GraphModule`.

    Args:
        module: the module.
        options: as of `torch.compile`.
    """

    def __init__(
        self, module: Callable[..., object], options: dict[str, object] | None = None
    ) -> None:
        self._module, self._options = module, options
        self._compiled: Callable[..., object] = late("flambeau.capture.regions").compile(
            module, options=options
        )

    def __call__(self, *args: object) -> object:
        return self._compiled(*args)

    def save(self, *, path: str, format: Format = "binary") -> None:  # noqa: A002 - PyTorch's name
        """Stores the module and the programs that this process compiled.

        Args:
            path: of a file; of a directory if the format is "unpacked".
            format: "binary" or "unpacked".

        Raises:
            RuntimeError: another format.
        """
        saved = late("flambeau.compiler.artifacts").save_cache_artifacts()
        contents = (
            pickle.dumps(self._module),
            pickle.dumps(self._options),
            b"" if saved is None else saved[0],
        )
        if _packed(format):
            with zipfile.ZipFile(path, "w") as archive:
                for name, content in zip(_PARTS, contents, strict=True):
                    archive.writestr(name, content)
            return
        os.makedirs(path, exist_ok=True)
        for name, content in zip(_PARTS, contents, strict=True):
            with open(os.path.join(path, name), "wb") as file:
                file.write(content)

    @classmethod
    def load(
        cls,
        *,
        path: str,
        format: Format = "binary",  # noqa: A002 - PyTorch's name
    ) -> CompiledArtifact:
        """Reads what `save` stored; its programs are added to the cache.

        The file has a pickle and machine code: it must come from where you trust.

        Args:
            path, format: as of `save`.

        Raises:
            RuntimeError: another format.
        """
        if _packed(format):
            with zipfile.ZipFile(path) as archive:
                contents = [archive.read(name) for name in _PARTS]
        else:
            contents = []
            for name in _PARTS:
                with open(os.path.join(path, name), "rb") as file:
                    contents.append(file.read())
        late("flambeau.compiler.artifacts").load_cache_artifacts(contents[2])
        return cls(pickle.loads(contents[0]), pickle.loads(contents[1]))


def _packed(chosen: str) -> bool:
    if chosen not in ("binary", "unpacked"):
        problem = f"there is no format {chosen!r}"
        raise failure(RuntimeError, "CompiledArtifact", problem, "binary or unpacked")
    return chosen == "binary"
