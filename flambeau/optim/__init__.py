"""Optimizers: parameter groups in PyTorch's form; every step runs as one Plan."""

from flambeau.optim import lr_scheduler
from flambeau.optim.adagrad import Adagrad
from flambeau.optim.adam import Adam, AdamW
from flambeau.optim.optimizer import Optimizer
from flambeau.optim.sgd import SGD
from flambeau.optim.sparse_adam import SparseAdam

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Optimizer", "SparseAdam", "lr_scheduler"]
