"""`python -m bench [part ...]`: runs the named parts, or all of them."""

from __future__ import annotations

import importlib
import sys

PARTS = (
    "dispatch",
    "first_call",
    "first_step",
    "throughput",
    "tiers",
    "rest",
    "products",
    "linalg",
    "attention",
    "flex_decoding",
    "autotune",
    "convolution",
    "compile_time",
    "growth",
    "compiled_layers",
    "streams",
    "demo_model",
    "whole_models",
    "compiled",
    "footprint",
    "packages",
    "checkpoints",
    "roofline",
    "accuracy",
    "operator_database",
)


def main() -> None:
    """Runs each part in turn."""
    chosen = sys.argv[1:] or list(PARTS)
    unknown = [name for name in chosen if name not in PARTS]
    if unknown:
        raise SystemExit(f"[bench] unknown part {unknown[0]!r}\nhint: one of {', '.join(PARTS)}")
    for name in chosen:
        sys.argv = [name]  # what stands there belongs to the part where it is run alone
        importlib.import_module(f"bench.{name}").main()


if __name__ == "__main__":
    main()
