"""Optimizers: parameter groups in PyTorch's form; one plan steps every parameter of a kind."""

from flambeau.optim import lr_scheduler
from flambeau.optim.adagrad import Adagrad
from flambeau.optim.adam import Adam, AdamW
from flambeau.optim.optimizer import Optimizer
from flambeau.optim.sgd import SGD
from flambeau.optim.sparse_adam import SparseAdam
from flambeau.runtime import missing as _missing

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Optimizer", "SparseAdam", "lr_scheduler"]

# A name of PyTorch that is not here yet is told from a misspelt one.
globals()["__getattr__"] = _missing.getter(__name__)
