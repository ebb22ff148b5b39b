"""What worker processes know of themselves, under PyTorch's private module name."""

from flambeau.utils.data.worker import WorkerInfo, get_worker_info

__all__ = ["WorkerInfo", "get_worker_info"]
