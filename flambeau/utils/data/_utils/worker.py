"""What worker processes know of themselves, under PyTorch's private module name."""

from flambeau.utils.data.worker import WorkerInfo, get_worker_info
from flambeau.utils.data.worker import generate_state as _generate_state

__all__ = ["WorkerInfo", "_generate_state", "get_worker_info"]
