"""`torch.fx`: programs as graphs of calls that Python code can read and change.

`symbolic_trace` runs a function with proxies and records its operations. The graph can be changed,
and its `GraphModule` runs Python source generated from it, over the same operators as before.
"""

from flambeau.fx import immutable_collections
from flambeau.fx._symbolic_trace import PH, ProxyableClassMeta, Tracer, symbolic_trace, wrap
from flambeau.fx.graph import CodeGen, Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.interpreter import Interpreter, Transformer
from flambeau.fx.node import Node, has_side_effect, map_arg
from flambeau.fx.proxy import Proxy
from flambeau.fx.subgraph_rewriter import replace_pattern
from flambeau.ir.lock import late as _late
from flambeau.runtime import missing as _missing

__all__ = [
    "Graph",
    "GraphModule",
    "Interpreter",
    "Node",
    "Proxy",
    "Tracer",
    "Transformer",
    "has_side_effect",
    "map_arg",
    "replace_pattern",
    "symbolic_trace",
    "wrap",
]

_SUBMODULES = ("annotate", "config", "experimental", "operator_schemas", "passes", "tensor_type",
               "traceback")  # fmt: skip


def __getattr__(name: str) -> object:
    """Submodules are loaded when they are used."""
    if name not in _SUBMODULES:
        _missing.refuse(__name__, name)
    return _late(f"flambeau.fx.{name}")


_PUBLIC = (CodeGen, PH, ProxyableClassMeta, immutable_collections)
