"""`torch.nested`: how nested tensors are made, and how they are made dense."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.core.tensors import Tensor
from flambeau.core.warned import warn_once
from flambeau.nested import padded
from flambeau.nested.ragged import Ragged, ragged_from_lengths, ragged_of
from flambeau.nested.tensor import JaggedTensor, NestedTensor, jagged, strided


def nested_tensor(
    tensor_list: Sequence[Any],
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A nested tensor, a leaf, with copies of samples.

    Args:
        tensor_list: B tensors (or nested lists of numbers) of one number of dimensions. With
            `layout=torch.jagged` they differ in at most one dimension.
        dtype, device: of the result; those of the first sample where None.
        layout: `torch.strided` (default) or `torch.jagged`.
        requires_grad: whether the result requires a gradient.
        pin_memory: accepted; there is no pinned memory on CPUs.

    Shape: samples `(n_i, *)` -> `(B, n, *)`, n a symbol.

    Raises:
        TypeError: no list is given.
        RuntimeError: samples do not fit each other, or the layout is another.

    Example:
        >>> torch.nested.nested_tensor([[1, 2], [3]], layout=torch.jagged).offsets()
        tensor([0, 2, 3])
    """
    del pin_memory
    if not isinstance(tensor_list, (list, tuple)):
        raise TypeError(
            "[nested_tensor] Only lists (List[Tensor] and List[List...[Scalar]]) are accepted in "
            "nested_tensor\nhint: as_nested_tensor takes a tensor"
        )
    parts = [_as_part(item, dtype, device) for item in tensor_list]
    result = _joined([part.detach() for part in parts], layout, copy=True)
    return result.requires_grad_(requires_grad)


def _as_part(item: Any, dtype: Any, device: Any) -> Any:
    if isinstance(item, torch.Tensor):
        return item.to(device=device, dtype=dtype) if dtype or device else item
    return torch.tensor(item, dtype=dtype, device=device)


def as_nested_tensor(ts: Any, dtype: Any = None, device: Any = None, layout: Any = None) -> Tensor:
    """A nested tensor of samples, to which gradients flow back.

    Args:
        ts: a list or tuple of B tensors, a dense tensor (its rows are the samples), or a nested
            tensor.
        dtype, device: of the result.
        layout: `torch.strided` (default) or `torch.jagged`.

    Shape: `(n_i, *)` -> `(B, n, *)`; `(B, n, *)` -> the same.

    Raises:
        TypeError: neither is given.
        RuntimeError: samples do not fit each other.

    Example:
        >>> x = torch.ones(2, requires_grad=True)
        >>> torch.nested.as_nested_tensor([x, x[:1]], layout=torch.jagged).sum().backward()
        >>> x.grad
        tensor([2., 1.])
    """
    if isinstance(ts, NestedTensor):
        if layout in (None, ts.layout):
            return ts.to(device=device, dtype=dtype) if dtype or device else ts
        ts = ts._parts()
    if isinstance(ts, torch.Tensor):
        ts = ts.unbind(0) if ts.dim() else None
    if not isinstance(ts, (list, tuple)) or not all(isinstance(t, torch.Tensor) for t in ts):
        raise TypeError(
            "[as_nested_tensor] as_nested_tensor(): Expected first argument to be a tensor or a "
            "list / tuple of tensors\nhint: nested_tensor takes lists of numbers"
        )
    return _joined([_as_part(t, dtype, device) for t in ts], layout, copy=False)


def _joined(parts: Sequence[Any], layout: Any, copy: bool) -> Any:
    del copy  # joining copies
    if layout not in (None, torch.strided, torch.jagged):
        raise RuntimeError(
            f"[nested_tensor] Specified layout is unsupported for nested tensors: {layout}\n"
            "hint: torch.jagged or torch.strided"
        )
    return _jagged_of(parts) if layout is torch.jagged else strided_of(parts)


def strided_of(parts: Sequence[Any]) -> Tensor:
    """Samples in the layout `torch.strided`."""
    warn_once(
        "The PyTorch API of nested tensors is in prototype stage and will change in the near "
        "future."
    )
    for i, part in enumerate(parts):
        if part.dim() != parts[0].dim():
            raise RuntimeError(
                "[nested_tensor] All Tensors given to nested_tensor must have the same dimension. "
                f"Found dimension {part.dim()} for Tensor at index {i} and dimension "
                f"{parts[0].dim()} for Tensor at index 0.\nhint: unsqueeze() them"
            )
    if not parts:
        return strided(torch.empty(0), ())
    flat = torch.cat([part.to(parts[0].dtype).reshape(-1) for part in parts])
    return strided(flat, [tuple(part.shape) for part in parts])


def _jagged_of(parts: Sequence[Any]) -> Tensor:
    _check_parts(parts)
    shapes = [tuple(part.shape) for part in parts]
    varying = [d for d in range(len(shapes[0])) if len({s[d] for s in shapes}) > 1]
    if len(varying) > 1:
        raise RuntimeError(
            "[nested_tensor] Cannot represent given tensor list as a nested tensor with the jagged "
            "layout. Note that the jagged layout only allows for a single ragged dimension. For "
            "example: (B, *, D_0, D_1, ..., D_N), with ragged * dim.\nhint: layout=torch.strided"
        )
    d = varying[0] if varying else 0
    ragged = ragged_from_lengths([s[d] for s in shapes], parts[0].device)
    return jagged(torch.cat(list(parts), d), ragged, d + 1)


def _check_parts(parts: Sequence[Any]) -> None:
    if not parts:
        text = "Cannot construct a nested tensor from an empty tensor list"
    elif len({part.dtype for part in parts}) > 1:
        text = "When constructing a nested tensor, all tensors in list must have the same dtype"
    elif len({str(part.device) for part in parts}) > 1:
        text = "When constructing a nested tensor, all tensors in list must be on the same device"
    elif len({part.dim() for part in parts}) > 1:
        text = "When constructing a nested tensor, all tensors in list must have the same dim"
    elif parts[0].dim() == 0:
        text = "Cannot construct a nested tensor from a list of zero-dim tensors"
    else:
        return
    raise RuntimeError(f"[nested_tensor] {text}\nhint: look at the samples' shapes and dtypes")


def nested_tensor_from_jagged(
    values: Tensor,
    offsets: Tensor | None = None,
    lengths: Tensor | None = None,
    jagged_dim: int | None = None,
    min_seqlen: int | None = None,
    max_seqlen: int | None = None,
) -> Tensor:
    """A jagged tensor over values that exist: a view, gradients reach them.

    Args:
        values: `(total, *)`: samples behind each other along dimension `jagged_dim - 1`.
        offsets: (B + 1) integers: where samples begin, and the end of the last.
        lengths: (B) integers. With offsets: samples may be shorter, with holes between them;
            without: samples lie behind each other.
        jagged_dim: the ragged dimension of the result; 1 by default.
        min_seqlen, max_seqlen: the extreme lengths, where the caller knows them: else they are read
            from the offsets when something needs them.

    Shape: `(total, *)` -> `(B, n, *)`, n a symbol that represents these offsets.

    Offsets and lengths are read, and then checked, when something first needs them on the host.

    Raises:
        TypeError: values, offsets or lengths are no tensor.
        AssertionError: offsets and lengths have other sizes.
        ValueError: jagged_dim is less than 1.
        IndexError: jagged_dim is none of the dimensions.
        RuntimeError: neither offsets nor lengths are given, or an extreme length is negative. When
            they are read: a sample's length is negative, or it ends beyond the values.

    Example:
        >>> x = torch.nested.nested_tensor_from_jagged(torch.arange(4.0), torch.tensor([0, 1, 4]))
        >>> x.unbind()
        (tensor([0.]), tensor([1., 2., 3.]))
    """
    _check_tensors(values=values, offsets=offsets, lengths=lengths)
    if offsets is None:
        if lengths is None:
            raise RuntimeError(
                "[nested_tensor_from_jagged] nested_tensor_from_jagged(): At least one of offsets "
                "or lengths is required.\nhint: pass offsets"
            )
        offsets, lengths = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)), None
    _check_sizes(offsets, lengths)
    dim = _jagged_dim(jagged_dim, values.dim())
    for extreme in (min_seqlen, max_seqlen):
        if extreme is not None and not 0 <= extreme < 1 << 63:
            raise RuntimeError(
                f"[nested_tensor_from_jagged] {extreme} is no length\n"
                "hint: min_seqlen and max_seqlen are numbers of rows"
            )
    ragged = ragged_of(offsets, lengths, min_seqlen, max_seqlen).within(values.shape[dim - 1])
    return jagged(values.view_as(values) if values.requires_grad else values, ragged, dim)


def _check_tensors(**given: Any) -> None:
    for name, value in given.items():
        if not isinstance(value, torch.Tensor) and (value is not None or name == "values"):
            raise TypeError(
                f"[nested_tensor_from_jagged] argument '{name}' must be Tensor, not "
                f"{type(value).__name__}\nhint: torch.tensor({name})"
            )


def _check_sizes(offsets: Any, lengths: Any) -> None:
    if offsets.dim() != 1:
        text = f"offsets must be 1D, but got {offsets.dim()}D"
    elif not offsets.shape[0]:
        raise RuntimeError(
            "[nested_tensor_from_jagged] offsets have no element\nhint: one more than samples"
        )
    elif lengths is None or tuple(lengths.shape) == (offsets.shape[0] - 1,):
        return
    else:
        text = (
            f"offsets and lengths batch sizes must match: offsets.shape[0] - 1 = "
            f"{offsets.shape[0] - 1}, lengths.shape = {tuple(lengths.shape)}"
        )
    raise AssertionError(f"[nested_tensor_from_jagged] {text}\nhint: offsets (B + 1), lengths (B)")


def _jagged_dim(dim: int | None, ndim: int) -> int:
    """The ragged dimension, which is none of the batch."""
    ragged = 1 if dim is None else dim
    if ragged < 1:
        raise ValueError(
            f"[nested_tensor_from_jagged] Expected jagged_dim >=1, but got {ragged}.\n"
            "hint: dimension 0 counts the samples"
        )
    if ragged > ndim:
        raise IndexError(
            f"[nested_tensor_from_jagged] jagged_dim={ragged} is none of the dimensions 1 .. "
            f"{ndim} of the result\nhint: values have no batch dimension"
        )
    return ragged


def narrow(
    tensor: Tensor, dim: int, start: Any, length: Any, layout: Any = torch.strided
) -> Tensor:
    """Per row of a dense tensor, `length` elements of a dimension from `start` on: a view.

    Args:
        tensor: `(B, N, *)`.
        dim: the dimension that is narrowed; 1 with `layout=torch.jagged`.
        start: int or (B) integers.
        length: int or (B) integers.
        layout: of the result; with `torch.strided` start and length are ints.

    Shape: `(B, N, *)` -> `(B, n, *)`; of layout jagged, with holes between samples.

    Raises:
        AssertionError: the tensor has fewer than two dimensions.
        IndexError: it has no row.
        RuntimeError: dim or types do not fit the layout. Of layout jagged, when start and length
            are first read: they leave their row.

    Example:
        >>> x = torch.arange(8).view(2, 4)
        >>> torch.nested.narrow(x, 1, 1, torch.tensor([2, 1]), layout=torch.jagged).unbind()
        (tensor([1, 2]), tensor([5]))
    """
    if layout is torch.strided:
        if isinstance(start, torch.Tensor) or isinstance(length, torch.Tensor):
            raise RuntimeError(
                "[narrow] start and length must be integers for the strided layout NT impl\n"
                "hint: layout=torch.jagged takes tensors"
            )
        return strided_of(tensor.narrow(dim, start, length).unbind(0))
    if layout is not torch.jagged:
        raise RuntimeError(
            f"[narrow] Specified layout is unsupported for nested narrow: {layout}\n"
            "hint: torch.jagged or torch.strided"
        )
    if dim != 1:
        raise RuntimeError(
            "[narrow] jagged layout only supports dim=1\nhint: transpose the dimension to 1"
        )
    if tensor.dim() < 2:
        raise AssertionError(
            "[narrow] tensor must at least be 2D for the nested narrow op to work\nhint: (B, N, *)"
        )
    batch, rows = tensor.shape[:2]
    if batch == 0:
        raise IndexError("[narrow] there is no row to narrow\nhint: (B, N, *), B at least 1")
    starts = _per_row(start, batch, tensor.device)
    counts = _per_row(length, batch, tensor.device)
    begin = torch.arange(0, batch * rows, max(rows, 1), device=tensor.device)[:batch] + starts
    offsets = torch.cat([begin, begin[-1:] + counts[-1:]])
    return jagged(tensor.flatten(0, 1), Ragged(offsets, counts).within(rows, rows), 1)


def _per_row(value: Any, batch: int, device: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device=device, dtype=torch.int64).expand(batch)
    return torch.full((batch,), value, dtype=torch.int64, device=device)


def masked_select(tensor: Tensor, mask: Tensor) -> Tensor:
    """Per row of a dense tensor, the elements that a mask selects.

    Args:
        tensor: `(*, N)`, dense.
        mask: bool, broadcast against it.

    Shape: `(B, N)` -> `(B, n)` of layout jagged; leading dimensions are joined to B.

    Raises:
        RuntimeError: a tensor is nested, or the mask is not bool.

    Example:
        >>> x = torch.tensor([[1, 2], [3, 4]])
        >>> torch.nested.masked_select(x, x > 1).unbind()
        (tensor([2]), tensor([3, 4]))
    """
    if isinstance(tensor, NestedTensor) or tensor.layout is not torch.strided:
        raise RuntimeError(
            "[masked_select] torch.nested.masked_select requires a strided tensor, found "
            f"{tensor.layout}\nhint: it makes nested tensors of dense ones"
        )
    mask = mask.expand(tensor.shape)
    values = tensor.masked_select(mask)
    counts = mask.sum(-1).reshape(-1)
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    return jagged(values, Ragged(offsets), 1)


def to_padded_tensor(
    input: Tensor, padding: float, output_size: Sequence[int] | None = None, out: Any = None
) -> Tensor:
    """A dense tensor in which shorter samples are filled up.

    Args:
        input: nested.
        padding: the value behind the end of a sample.
        output_size: sizes of the result, at least those needed; by default the largest of each
            dimension.
        out: takes the result.

    Shape: `(B, n, *)` -> `(B, largest n, *)`.

    Raises:
        NotImplementedError: `input` is not nested.
        RuntimeError: `output_size` is too small.

    Example:
        >>> x = torch.nested.nested_tensor([[1.0, 2.0], [3.0]])
        >>> torch.nested.to_padded_tensor(x, 0.0)
        tensor([[1., 2.],
                [3., 0.]])
    """
    if not isinstance(input, NestedTensor):
        raise NotImplementedError(
            f"[to_padded_tensor] not implemented for dense tensors, dtype {input.dtype}\n"
            "hint: they need no padding; torch.nested.nested_tensor makes nested ones"
        )
    if isinstance(input, JaggedTensor):
        result = padded.to_dense(input, padding)
    else:
        result = padded.stacked(input._parts(), padding)
    if output_size is not None:
        result = padded.enlarged(result, padding, tuple(output_size))
    return result if out is None else out.resize_(result.shape).copy_(result)
