"""`torch._higher_order_ops`: operators that take functions: `cond`, `while_loop`, `scan`, `map`.

They run as the Python control flow that they stand for, differentiable and inside of compiled
regions: a branch is chosen when its condition is known. `make_fx` records each as one node.
"""

from __future__ import annotations

from typing import Any

from flambeau._higher_order_ops.associative_scan import associative_scan
from flambeau._higher_order_ops.cond import cond
from flambeau._higher_order_ops.invoke_subgraph import invoke_subgraph
from flambeau._higher_order_ops.map import map  # noqa: A004 - PyTorch's name
from flambeau._higher_order_ops.scan import scan
from flambeau._higher_order_ops.while_loop import while_loop
from flambeau.ir.lock import late as _late
from flambeau.runtime import missing as _missing

__all__ = [
    "associative_scan", "cond", "flex_attention", "invoke_subgraph", "map", "scan", "while_loop",
]  # fmt: skip

_HOMES = {"flex_attention": "flambeau.nn.attention.flex_attention"}
_refusing = _missing.getter(__name__)


def __getattr__(name: str) -> Any:
    if name == "flex_attention":
        return getattr(_late(_HOMES[name]), name)
    return _refusing(name)
