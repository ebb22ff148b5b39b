"""`torch.backends.quantized`: engines of quantized operators; this build has none."""

from flambeau.backends.switches import install

__all__ = ["supported_engines"]

install(__name__, engine="none")
supported_engines = ["none"]


def _check_engine(value: str) -> None:
    if value not in supported_engines:
        raise RuntimeError(
            f"[backends.quantized.engine] {value} is not a valid value for quantized engine\n"
            f"hint: one of {', '.join(supported_engines)}"
        )
