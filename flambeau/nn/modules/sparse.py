"""Embeddings: tables whose rows are looked up by index."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.autograd import no_grad
from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn import init
from flambeau.nn.messages import problem
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter

__all__ = ["Embedding", "EmbeddingBag"]


def _padding(name: str, padding_idx: int | None, rows: int) -> int | None:
    """The padding row as a non-negative number."""
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        text = "Padding_idx must be within num_embeddings"
        if name == "EmbeddingBag":
            text = "padding_idx must be within num_embeddings"
        raise AssertionError(problem(name, text, f"there are {rows} rows"))
    return padding_idx % rows


class Embedding(Module):
    """A table of vectors, looked up by index.

    Args:
        num_embeddings, embedding_dim: rows and width of the table.
        padding_idx: a row that starts as zeros and receives no gradient.
        max_norm, norm_type: rows longer than this are shortened when looked up.
        scale_grad_by_freq, sparse: as in `F.embedding`.

    Shape: `(*)` indices -> `(*, embedding_dim)`. The table starts normal(0, 1).

    Example:
        >>> nn.Embedding(10, 3)(torch.tensor([2, 0])).shape
        torch.Size([2, 3])
    """

    __constants__ = ["num_embeddings", "embedding_dim", "padding_idx", "max_norm", "norm_type",
                     "scale_grad_by_freq", "sparse"]  # fmt: skip
    freeze: bool

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Any = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = _padding("Embedding", padding_idx, num_embeddings)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        if _weight is None:
            table = torch.empty((num_embeddings, embedding_dim), device=device, dtype=dtype)
            self.weight = Parameter(table, requires_grad=not _freeze)
            self.reset_parameters()
        else:
            if list(_weight.shape) != [num_embeddings, embedding_dim]:
                text = "Shape of weight does not match num_embeddings and embedding_dim"
                raise AssertionError(problem("Embedding", text, "use from_pretrained"))
            self.weight = Parameter(_weight, requires_grad=not _freeze)

    def reset_parameters(self) -> None:
        """Draws a new table."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self) -> None:
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(self, input: Any) -> Any:
        """Rows of the table."""
        if self.max_norm is None and not (self.scale_grad_by_freq or self.sparse):
            return F.embedding(input, self.weight, self.padding_idx)
        return F.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    def extra_repr(self) -> str:
        """The sizes, and what differs from the defaults."""
        return f"{self.num_embeddings}, {self.embedding_dim}" + _options(self)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Any,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Any:
        """An embedding with a given table, frozen unless `freeze` is False."""
        _check_table(embeddings)
        rows, columns = embeddings.shape
        return cls(
            num_embeddings=rows,
            embedding_dim=columns,
            _weight=embeddings,
            _freeze=freeze,
            padding_idx=padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            sparse=sparse,
        )


def _check_table(embeddings: Any) -> None:
    if embeddings.dim() != 2:
        text = "Embeddings parameter is expected to be 2-dimensional"
        raise AssertionError(problem("from_pretrained", text, "(rows, width)"))


def _options(module: Any) -> str:
    """Options that differ from the defaults, as they stand in the text of a module."""
    text = ""
    if module.padding_idx is not None:
        text += f", padding_idx={module.padding_idx}"
    if module.max_norm is not None:
        text += f", max_norm={module.max_norm}"
    if module.norm_type != 2:
        text += f", norm_type={module.norm_type}"
    if module.scale_grad_by_freq:
        text += f", scale_grad_by_freq={module.scale_grad_by_freq}"
    if module.sparse:
        text += ", sparse=True"
    return text


class EmbeddingBag(Module):
    """Sums, means or maxima of bags of embeddings, without the single rows in between.

    Args:
        num_embeddings, embedding_dim: rows and width of the table.
        mode: "sum", "mean" or "max".
        include_last_offset: the last offset is the end of the last bag.
        padding_idx: a row that counts in no bag.

    Example:
        >>> nn.EmbeddingBag(10, 3)(torch.tensor([[0, 1]])).shape
        torch.Size([1, 3])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Any = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.padding_idx = _padding("EmbeddingBag", padding_idx, num_embeddings)
        if _weight is None:
            table = torch.empty((num_embeddings, embedding_dim), device=device, dtype=dtype)
            self.weight = Parameter(table)
            self.reset_parameters()
        else:
            if list(_weight.shape) != [num_embeddings, embedding_dim]:
                text = "Shape of weight does not match num_embeddings and embedding_dim"
                raise AssertionError(problem("EmbeddingBag", text, "use from_pretrained"))
            self.weight = Parameter(_weight)
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset

    def reset_parameters(self) -> None:
        """Draws a new table."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(self, input: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        """One vector per bag."""
        bag = getattr(F, "embedding_bag", None)
        if bag is None:
            text = "embedding_bag is not supported"
            raise NotImplementedError(problem("EmbeddingBag", text, "Embedding, then sum(1)"))
        return bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        """The sizes, and what differs from the defaults."""
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq:
            text += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        text += f", mode={self.mode!r}"
        return text if self.padding_idx is None else text + f", padding_idx={self.padding_idx}"

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Any,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> Any:
        """An embedding bag with a given table, frozen unless `freeze` is False."""
        _check_table(embeddings)
        rows, columns = embeddings.shape
        module = cls(
            num_embeddings=rows,
            embedding_dim=columns,
            _weight=embeddings,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            mode=mode,
            sparse=sparse,
            include_last_offset=include_last_offset,
            padding_idx=padding_idx,
        )
        module.weight.requires_grad = not freeze
        return module
