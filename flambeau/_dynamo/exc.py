"""`torch._dynamo.exc`: errors of `torch.compile` under PyTorch's names."""

from __future__ import annotations

from flambeau.capture.errors import TorchDynamoException, Unsupported


class InternalTorchDynamoError(TorchDynamoException):
    """An error of the compiler itself."""


class RestartAnalysis(TorchDynamoException):
    """PyTorch's analysis starts again; never raised here."""


class SkipFrame(TorchDynamoException):
    """PyTorch leaves a function uncompiled; never raised here."""


class TorchRuntimeError(TorchDynamoException):
    """An operator failed during PyTorch's analysis; here it raises its own error."""


class InvalidBackend(TorchDynamoException):
    """There is no backend of this name.

    Args:
        name: the name.
    """

    def __init__(self, name: str) -> None:
        super().__init__(
            f"Invalid backend: {name!r}, see `torch._dynamo.list_backends()` for available backends"
        )


class ResetRequired(TorchDynamoException):
    """PyTorch's settings changed between compilations; never raised here."""


class ShortenTraceback(TorchDynamoException):
    """An error whose traceback leaves out the compiler's lines."""


class BackendCompilerFailed(ShortenTraceback):
    """A backend raised."""


class RecompileError(TorchDynamoException):
    """A function was compiled again though that was forbidden."""


class UserError(TorchDynamoException):
    """A program uses the compiler wrongly."""


class UncapturedHigherOrderOpError(TorchDynamoException):
    """A function passed to an operator cannot be captured."""


class CondOpArgsMismatchError(TorchDynamoException):
    """The branches of `torch.cond` differ in what they return."""


class InfiniteGeneratorError(TorchDynamoException):
    """A generator does not end; never raised here."""


class PackageError(TorchDynamoException):
    """A compiled program cannot be stored."""


class StepUnsupported(TorchDynamoException):
    """PyTorch stops compiling at this line; never raised here."""


class UnsafeScriptObjectError(TorchDynamoException):
    """A script object is part of a region; never raised here."""


class ObservedException(TorchDynamoException):
    """An exception of the program in PyTorch's analysis; here programs raise their own."""


class FailOnRecompileLimitHit(Exception):  # noqa: N818 - PyTorch's name
    """A function was compiled more often than `recompile_limit`; never raised here."""


__all__ = [
    name
    for name, value in dict(globals()).items()
    if isinstance(value, type) and issubclass(value, Exception)
]


def unimplemented(msg: str, *args: object, **kwargs: object) -> None:
    """Raises: this cannot be part of a region.

    Raises:
        Unsupported: always.
    """
    raise Unsupported(msg)
