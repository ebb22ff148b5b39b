"""`torch.jit._trace`: names of tracing under PyTorch's private module."""

from flambeau.jit.markers import is_tracing
from flambeau.jit.recording import TracerWarning
from flambeau.jit.tracing import (
    TopLevelTracedModule,
    TracedModule,
    TracingCheckError,
    trace,
    trace_module,
)

__all__ = [
    "TopLevelTracedModule",
    "TracedModule",
    "TracerWarning",
    "TracingCheckError",
    "is_tracing",
    "trace",
    "trace_module",
]
