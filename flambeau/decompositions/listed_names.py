"""Inner operators that are public functions or methods under their own name: `aten.lstm`."""

from __future__ import annotations

from collections.abc import Callable

import flambeau as torch
from flambeau.decompositions.listed import public_calls
from flambeau.ir.lock import late

__all__: list[str] = []

public_calls(
    "_amp_foreach_non_finite_check_and_unscale_ _amp_update_scale_ _assert_async _cast_Byte "
    "_cast_Char _cast_Double _cast_Float _cast_Half _cast_Int _cast_Long _cast_Short "
    "_sample_dirichlet _shape_as_tensor ccol_indices_copy col_indices_copy crow_indices_copy "
    "fake_quantize_per_channel_affine from_file get_autocast_dtype gru_cell hspmm "
    "indices_copy is_autocast_cpu_enabled is_autocast_enabled is_grad_enabled lstm_cell "
    "native_norm resize_as_sparse_ rnn_relu_cell rnn_tanh_cell row_indices_copy gru lstm rnn_relu "
    "rnn_tanh save set_grad_enabled smm sparse_bsc_tensor sparse_bsr_tensor "
    "sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor sspaddmm "
    "sym_constrain_range sym_constrain_range_for_size values_copy dequantize wait",
    lambda name: getattr(torch, name),
)


def _method(name: str) -> Callable[..., object]:
    """The method of this name of whatever the first argument is."""

    def call(self: object, *args: object, **kwargs: object) -> object:
        return getattr(self, name)(*args, **kwargs)

    return call


public_calls(
    "__iand__ __ilshift__ __ior__ __irshift__ __ixor__ __and__ __or__ __xor__ __lshift__ "
    "__rshift__ _autocast_to_full_precision _autocast_to_reduced_precision _indices _nnz _values "
    "backward ccol_indices coalesce col_indices crow_indices dense_dim dim element_size "
    "indices is_coalesced is_contiguous is_pinned is_set_to item pin_memory record_stream "
    "requires_grad_ retain_grad row_indices smm sparse_dim sparse_mask sparse_resize_ "
    "sparse_resize_and_clear_ storage_offset to_dense to_mkldnn to_padded_tensor to_sparse "
    "to_sparse_bsc to_sparse_bsr to_sparse_csc to_sparse_csr",
    _method,
)


def _attribute(name: str) -> Callable[[object], object]:
    """The attribute of this name of the argument."""

    def read(self: object) -> object:
        return getattr(self, name)

    return read


public_calls("_version data is_leaf mH mT output_nr retains_grad", _attribute)

public_calls(
    "_add_batch_dim _remove_batch_dim",
    lambda name: getattr(late("flambeau._C._functorch"), name),
)
