"""`torch.utils.data`: datasets, samplers, and the loader that makes batches of them."""

from flambeau.runtime import missing as _missing
from flambeau.utils.data.collate import default_collate, default_convert
from flambeau.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from flambeau.utils.data.distributed import DistributedSampler
from flambeau.utils.data.loader import DataLoader, _DatasetKind
from flambeau.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from flambeau.utils.data.worker import WorkerInfo, get_worker_info

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DFIterDataPipe",
    "DataChunk",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterDataPipe",
    "IterableDataset",
    "MapDataPipe",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "WorkerInfo",
    "_DatasetKind",
    "argument_validation",
    "default_collate",
    "default_convert",
    "functional_datapipe",
    "get_worker_info",
    "guaranteed_datapipes_determinism",
    "non_deterministic",
    "random_split",
    "runtime_validation",
    "runtime_validation_disabled",
]

# Distinguishes names of PyTorch that are missing here from misspelt ones.
_PIPES = {
    name: f"flambeau.utils.data.datapipes.{module}"
    for module, names in {
        "datapipe": ("DFIterDataPipe", "DataChunk", "IterDataPipe", "MapDataPipe"),
        "_decorator": (
            "argument_validation",
            "functional_datapipe",
            "guaranteed_datapipes_determinism",
            "non_deterministic",
            "runtime_validation",
            "runtime_validation_disabled",
        ),
    }.items()
    for name in names
}
globals()["__getattr__"] = _missing.getter(
    __name__, _PIPES, ("_utils", "dataloader", "datapipes", "graph", "graph_settings", "stateful")
)
