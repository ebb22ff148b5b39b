"""Masked tensors: elements that are there, and elements that are not.

A masked tensor holds *data* and a bool *mask* of its size and layout; elements with mask False are
not part of the tensor, whatever the data hold there. Operators come to `__torch_function__`, and
`masked.dispatch` composes the result of operators on data and masks. The data stand for it in the
graph of gradients, and a gradient has its tensor's mask.

Data may be strided or sparse (COO and CSR); then data and mask store the same indices.
"""

from __future__ import annotations

import warnings
from typing import Any, NoReturn

import flambeau as torch
from flambeau.autograd.composite import GEOMETRY, Composite, Wrapper, hollow, refuse_methods
from flambeau.core.tensors import Tensor
from flambeau.ir.lock import importing, late

LAYOUTS = (torch.strided, torch.sparse_coo, torch.sparse_csr)
DTYPES = (torch.float16, torch.float32, torch.float64, torch.bool, torch.int8, torch.int16,
          torch.int32, torch.int64)  # fmt: skip


class MaskedTensor(Wrapper):
    """A tensor of which the elements whose mask is False do not take part.

    Args:
        data: strided, COO or CSR, of any shape; copied. A float but no bfloat16, a signed int, or
            bool.
        mask: bool, of the shape and layout of the data; copied.
        requires_grad: whether gradients are wanted.

    Raises:
        TypeError: data or mask is no plain tensor, or of another dtype or layout.
        ValueError: the shapes differ.

    Example:
        >>> mask = torch.tensor([True, False, True])
        >>> torch.masked.MaskedTensor(torch.tensor([1.0, 2.0, 3.0]), mask) * 2
        MaskedTensor(
          [  2.0000,       --,   6.0000]
        )
    """

    _mask: Any
    _made_by = ("MaskedTensor", "torch.masked.masked_tensor(data, mask)")
    _composed_in = "flambeau.masked"
    _called = ("masked tensor", "x.to_tensor(value), or x.get_data()")

    def __new__(cls, data: Any, mask: Any, requires_grad: bool = False) -> Tensor:
        """Copies data and mask; neither is differentiated through."""
        check(data, mask)
        announce(data, 3)
        values, places = aligned(data.detach(), mask.detach())
        return masked(values.clone(), places.clone()).requires_grad_(requires_grad)

    # ------------------------------------------------------------------ data and mask
    def get_data(self) -> Tensor:
        """The data, with whatever they hold where the mask is False; differentiable.

        Example:
            >>> x = torch.masked.masked_tensor(torch.ones(2), torch.tensor([True, False]))
            >>> x.get_data()
            tensor([1., 1.])
        """
        if self._kept.requires_grad and self.layout is torch.strided:
            return self._kept.view_as(self._kept)
        return self._kept

    def get_mask(self) -> Tensor:
        """The mask: bool, True for what is there.

        Example:
            >>> torch.masked.masked_tensor(torch.ones(1), torch.tensor([True])).get_mask()
            tensor([True])
        """
        return self._mask

    def to_tensor(self, value: float) -> Tensor:
        """A dense tensor that has *value* where the mask is False; differentiable.

        Example:
            >>> x = torch.masked.masked_tensor(torch.ones(2), torch.tensor([True, False]))
            >>> x.to_tensor(0)
            tensor([1., 0.])
        """
        dense = self.to_dense()
        filling = torch.tensor(value, dtype=self.dtype, device=self.device)
        return dense._kept.masked_fill(~dense._mask, filling)

    def to_dense(self) -> Tensor:
        """A masked tensor with strided data and mask."""
        return masked(self._kept.to_dense(), self._mask.to_dense())

    def to_sparse_coo(self) -> Tensor:
        """A masked tensor of layout `torch.sparse_coo`; it stores the unmasked elements."""
        return self.to_sparse(layout=torch.sparse_coo)

    def to_sparse_csr(self) -> Tensor:
        """A masked tensor of layout `torch.sparse_csr`; it stores the unmasked elements."""
        return self.to_sparse(layout=torch.sparse_csr)

    def to_sparse(self, sparse_dim: int | None = None, *, layout: Any = torch.sparse_coo) -> Tensor:
        """A masked tensor of a sparse layout; it stores the elements whose mask is True.

        Args:
            sparse_dim: every dimension, if it is given.
            layout: `torch.sparse_coo` or `torch.sparse_csr`.

        Raises:
            TypeError: the layout is another.

        Example:
            >>> x = torch.masked.masked_tensor(torch.ones(2, 2), torch.eye(2) > 0)
            >>> x.to_sparse().get_data().indices()
            tensor([[0, 1],
                    [0, 1]])
        """
        if layout not in LAYOUTS[1:] or sparse_dim not in (None, self.dim()):
            raise TypeError(
                f"[to_sparse] masked tensors cannot have the layout {layout} with {sparse_dim} "
                "sparse dimensions\nhint: to_sparse_coo() or to_sparse_csr()"
            )
        dense = self.to_dense()
        places = dense._mask.to_sparse(layout=layout)
        return masked(dense._kept.sparse_mask(places), places)

    # ------------------------------------------------------------------ what kind of tensor
    @property
    def layout(self) -> Any:
        """The layout of the data: `torch.strided`, `torch.sparse_coo` or `torch.sparse_csr`."""
        return self._kept.layout

    @property
    def is_sparse(self) -> bool:
        """Whether the layout is `torch.sparse_coo`."""
        return self.layout is torch.sparse_coo

    def is_sparse_coo(self) -> bool:
        """Whether the layout is `torch.sparse_coo`."""
        return self.layout is torch.sparse_coo

    def is_sparse_csr(self) -> bool:  # type: ignore[override]  # a method, as in PyTorch
        """Whether the layout is `torch.sparse_csr`."""
        return self.layout is torch.sparse_csr

    def stride(self, dim: int | None = None) -> Any:
        """The strides of the data."""
        return self._kept.stride() if dim is None else self._kept.stride(dim)

    def is_contiguous(self, memory_format: Any = torch.contiguous_format) -> bool:
        """Whether the data are."""
        return bool(self._kept.is_contiguous(memory_format=memory_format))

    # ------------------------------------------------------------------ gradients: the data's
    def _like(self, values: Any) -> Tensor:
        return masked(values, self._mask)

    def _on_tape(self) -> Any:
        data = self._kept
        return data._on_tape() if isinstance(data, Composite) else data

    def _gradient(self, values: Any) -> Any:
        """A gradient of the data, with zeros for what is not there."""
        data = self._kept
        if values is None:
            return None
        if isinstance(data, Composite):
            return self._like(values if isinstance(values, Composite) else data._gradient(values))
        return self._like(torch.where(self._mask, values, 0))

    def _values_of_gradient(self, gradient: Any) -> Any:
        with importing:
            from flambeau.masked.pointwise import require_same

        if isinstance(gradient, MaskedTensor):
            require_same("backward", self, gradient)
            gradient = gradient._kept
        data = self._kept
        if isinstance(data, Composite):
            return data._values_of_gradient(gradient)
        if tuple(gradient.shape) != tuple(self.shape):
            raise RuntimeError(
                f"[backward] a gradient of shape {tuple(gradient.shape)} does not fit a tensor of "
                f"shape {tuple(self.shape)}\nhint: a gradient has its tensor's shape"
            )
        return torch.where(self._mask, gradient, 0)

    def share_memory_(self) -> Tensor:
        """Moves data and mask where other processes see them."""
        for part in (self._kept, self._mask):
            part.share_memory_()
        return self

    # ------------------------------------------------------------------ one element
    def _only_element(self) -> Any:
        dense = self.to_dense()
        if not dense._mask.item():
            raise ValueError("[item] the element is masked out\nhint: x.to_tensor(value).item()")
        return dense._kept.item()

    def _number(self, name: str) -> Any:
        if self.numel() != 1:
            raise ValueError(
                f"[{name}] only one element tensors can be converted to Python scalars\n"
                "hint: reduce it first"
            )
        return self.item()

    def __float__(self) -> float:
        return float(self._number("float"))

    def __int__(self) -> int:
        return int(self._number("int"))

    def __index__(self) -> int:
        return int(self.to_dense()._kept.__index__())

    # ------------------------------------------------------------------ Python's protocols
    def __setitem__(self, key: Any, value: Any) -> None:
        with importing:
            from flambeau.masked.dispatch import refuse

        refuse("setitem", "write to the data before they are masked, or use torch.where")

    def __iter__(self) -> Any:
        return iter(self.unbind(0))

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        del protocol
        leaf = self.requires_grad and self.is_leaf
        return rebuild, (self._kept.detach(), self._mask, leaf)

    def __deepcopy__(self, memo: dict[Any, Any]) -> Tensor:
        if id(self) not in memo:
            copied = masked(self._kept.detach().clone(), self._mask.clone())
            memo[id(self)] = copied.requires_grad_(self.requires_grad)
        return memo[id(self)]


def _refuse(name: str, tensor: Composite) -> NoReturn:
    del tensor
    late("flambeau.masked.dispatch").refuse(name)
    raise AssertionError(name)


refuse_methods(
    MaskedTensor,
    "_indices _nnz _values ccol_indices coalesce col_indices crow_indices dense_dim indices "
    "is_coalesced row_indices sparse_dim sparse_mask sparse_resize_ sparse_resize_and_clear_ "
    "to_sparse_bsc to_sparse_bsr to_sparse_csc values to_padded_tensor " + GEOMETRY,
    _refuse,
)


# ------------------------------------------------------------------------------ making them
def masked(data: Any, mask: Any) -> Tensor:
    """A masked tensor of parts that fit each other."""
    tensor = hollow(MaskedTensor, data.dtype, data.shape)
    tensor._kept, tensor._mask = data, mask
    return tensor


def check(data: Any, mask: Any) -> None:
    """Raises where data and mask do not make a masked tensor."""
    for what, value in (("data", data), ("mask", mask)):
        if not isinstance(value, torch.Tensor) or isinstance(value, MaskedTensor):
            raise TypeError(
                f"[masked_tensor] {what} must be a Tensor, got {type(value).__name__}\n"
                "hint: torch.tensor(...), or get_data() of a masked tensor"
            )
    if data.layout is not mask.layout or data.layout not in LAYOUTS:
        raise TypeError(
            "[masked_tensor] data and mask must have the same layout, strided, sparse_coo or "
            f"sparse_csr; got {data.layout} and {mask.layout}\nhint: mask.to_sparse(), to_dense()"
        )
    if mask.dtype is not torch.bool:
        raise TypeError(
            f"[masked_tensor] mask must have dtype bool, got {mask.dtype}\nhint: mask.bool()"
        )
    if data.dtype not in DTYPES:
        raise TypeError(
            f"[masked_tensor] {data.dtype} is not supported in MaskedTensor\n"
            "hint: data.to(torch.float32)"
        )
    if tuple(data.shape) != tuple(mask.shape):
        raise ValueError(
            f"[masked_tensor] data.size() must equal mask.size(): {tuple(data.shape)} and "
            f"{tuple(mask.shape)}\nhint: mask.expand_as(data)"
        )


def announce(data: Any, depth: int) -> None:
    """The warnings of PyTorch; `depth` frames from here is the user's line."""
    warnings.warn(
        "The PyTorch API of MaskedTensors is in prototype stage and will change in the near "
        "future.",
        UserWarning,
        stacklevel=depth,
    )
    if data.requires_grad:
        warnings.warn(
            "It is not recommended to create a MaskedTensor with a tensor that requires_grad: it "
            "is detached. Use as_masked_tensor to differentiate through it.",
            UserWarning,
            stacklevel=depth,
        )


def aligned(data: Any, mask: Any) -> tuple[Any, Any]:
    """Data and mask that store the same indices."""
    if data.layout is torch.strided:
        return data, mask
    if data.layout is torch.sparse_coo:
        data, mask = data.coalesce(), mask.coalesce()
    return data.sparse_mask(mask), mask


def rebuild(data: Any, mask: Any, requires_grad: bool) -> Tensor:
    """Rebuilds a masked tensor from a file; its parts are checked."""
    check(data, mask)
    return masked(*aligned(data, mask)).requires_grad_(requires_grad)
