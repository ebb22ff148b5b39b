"""`torch.distributed.rpc` in a build without communication: `is_available()` is False."""

from __future__ import annotations

import types

from flambeau.runtime import missing as _missing
from flambeau.runtime.absent import Absent

_absent = Absent("distributed.rpc", RuntimeError, "this build has no distributed back end yet")
_functions = {
    **_absent.answers(is_available=False),
    **_absent.refusals(
        "init_rpc shutdown rpc_sync rpc_async remote get_worker_info enable_gpu_profiling"
    ),
}
_types = _absent.types("RRef WorkerInfo BackendType RpcBackendOptions TensorPipeRpcBackendOptions")
globals().update(_functions | _types)
api = types.SimpleNamespace(UNSET_RPC_TIMEOUT=-1.0)

__all__ = [*_functions, *_types]

globals()["__getattr__"] = _missing.getter(__name__)
