"""Names of overloads in PyTorch's inner library, for `torch.ops.aten` and dispatch modes.

Per set of overloads the operators that have it. An overload lists its arguments; `#` marks those
that are numbers. An operator that is not here has one overload, "default".
"""

from __future__ import annotations

TABLE: dict[str, str] = {
    "Tensor(self, other, alpha#) | Scalar(self, other#, alpha#)": "add sub",
    "default(self, mat1, mat2, beta#, alpha#) | dtype(self, mat1, mat2, out_dtype, beta#, alpha#)":
        "addmm",
    "default(self) | dim(self, dim, keepdim) | dims(self, dim, keepdim)": "all any",
    "default(end#, dtype, layout, device, pin_memory) | start(start#, end#, dtype, layout, "
    "device, pin_memory) | start_step(start#, end#, step#, dtype, layout, device, pin_memory)":
        "arange",
    "default(self, dim, descending) | stable(self, stable, dim, descending)": "argsort",
    "default(self) | Sequence(tensors)": "atleast_1d atleast_2d atleast_3d",
    "default(self, batch1, batch2, beta#, alpha#) | dtype(self, batch1, batch2, out_dtype, "
    "beta#, alpha#)": "baddbmm",
    "default(self, generator) | p(self, p, generator) | Tensor(self, p, generator)": "bernoulli",
    "Tensor(self, p, generator)": "bernoulli_",
    "Tensor(self, other) | Scalar(self, other#) | Scalar_Tensor(self#, other)": "remainder",
    "default(self, mat2) | dtype(self, mat2, out_dtype)": "bmm mm",
    "default(self, min#, max#) | Tensor(self, min, max)": "clamp",
    "default(self, max#) | Tensor(self, max)": "clamp_max",
    "default(self, min#) | Tensor(self, min)": "clamp_min",
    "default(input, weight, bias, stride, padding, dilation, groups) | padding(input, weight, "
    "bias, stride, padding, dilation, groups)": "conv1d conv2d conv3d",
    "default(self, other, non_blocking) | Tensor(self, src) | int(self, src)": "copy_",
    "Tensor(self, other) | Scalar(self, other#)": "copysign fmod ge gt le lt mul",
    "default(self, dim) | dim_IntList(self, dim)": "count_nonzero",
    "Tensor(self, other) | Scalar(self, other#) | Tensor_mode(self, other, rounding_mode) | "
    "Scalar_mode(self, other#, rounding_mode)": "div",
    "default(equation, tensors, path) | sublist(a)": "einsum",
    "default(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, "
    "include_last_offset) | padding_idx(weight, indices, offsets, scale_grad_by_freq, mode, "
    "sparse, per_sample_weights, include_last_offset, padding_idx)": "embedding_bag",
    "Tensor(self, other) | Scalar(self, other#) | Tensor_list(a, b)": "eq ne",
    "default(n, dtype, layout, device, pin_memory) | m(n, m, dtype, layout, device, pin_memory)":
        "eye",
    "default(self, other) | Scalar(self, other#)": "floor_divide",
    "Tensor(self)": "frexp",
    "default(self) | a(self, a, tau)": "geqrf",
    "scalarint(self, spacing, dim, edge_order) | scalararray(self, spacing#, dim, edge_order) | "
    "array(self, dim, edge_order) | scalarrayint(self, spacing, dim, edge_order) | "
    "scalarrayarray(self, spacing, dim, edge_order)": "gradient",
    "default(self, bins, range, weight, density) | TensorList_bins(self, bins, range, weight, "
    "density)": "histogramdd",
    "Tensor(self, indices) | Tensor_hacked_twin(self, indices) | list_Tensor(self, el)": "index",
    "int_Scalar(self, dim, index, value#)": "index_fill",
    "default(self, indices, values, accumulate) | hacked_twin(self, indices, values, accumulate)":
        "index_put",
    "default(self, k, dim, keepdim) | values(self, k, dim, keepdim, values, indices)": "kthvalue",
    "Tensor(self, other)": "ldexp",
    "Tensor_Tensor(start, end, steps, dtype, layout, device, pin_memory) | Tensor_Scalar(start, "
    "end#, steps, dtype, layout, device, pin_memory) | Scalar_Tensor(start#, end, steps, dtype, "
    "layout, device, pin_memory) | default(start#, end#, steps, dtype, layout, device, "
    "pin_memory)": "linspace",
    "Tensor_Tensor(start, end, steps, base, dtype, layout, device, pin_memory) | "
    "Tensor_Scalar(start, end#, steps, base, dtype, layout, device, pin_memory) | "
    "Scalar_Tensor(start#, end, steps, base, dtype, layout, device, pin_memory)": "logspace",
    "default(self) | a(self)": "matrix_H numpy_T",
    "other(self, other) | default(self) | dim(self, dim, keepdim) | dim_max(self, dim, keepdim, "
    "max, max_values)": "max",
    "default(grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices) | "
    "grad_input(grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices, "
    "grad_input)": "max_pool2d_with_indices_backward",
    "default(self, dtype) | dim(self, dim, keepdim, dtype)": "mean",
    "default(self) | dim(self, dim, keepdim) | dim_values(self, dim, keepdim, values, indices)":
        "median nanmedian",
    "default(tensors) | indexing(tensors, indexing)": "meshgrid",
    "other(self, other) | default(self) | dim(self, dim, keepdim) | dim_min(self, dim, keepdim, "
    "min, min_indices)": "min",
    "default(self, dim, keepdim) | values(self, dim, keepdim, values, indices)": "mode",
    "int(self, source, destination)": "movedim",
    "default(self, q, dim, keepdim, interpolation) | scalar(self, q, dim, keepdim, interpolation)":
        "nanquantile quantile",
    "default(self, dim, start, length) | Tensor(self, dim, start, length)": "narrow",
    "Scalar(self, p#) | ScalarOpt_dim(self, p, dim, keepdim) | ScalarOpt_dim_dtype(self, p, dim, "
    "keepdim, dtype) | ScalarOpt_dtype(self, p, dtype)": "norm",
    "Tensor_float(mean, std, generator) | Tensor_Tensor(mean, std, generator)": "normal",
    "default(self, dtype) | dim_int(self, dim, keepdim, dtype)": "prod",
    "default(self, some) | Q(self, some, Q, R)": "qr",
    "default(high, size, dtype, layout, device, pin_memory) | low(low, high, size, dtype, "
    "layout, device, pin_memory) | low_generator(low, high, size, generator, dtype, layout, "
    "device, pin_memory)": "randint",
    "default(self, high, dtype, layout, device, pin_memory, memory_format) | Tensor(self, high, "
    "dtype, layout, device, pin_memory, memory_format) | low_dtype(self, low, high, dtype, "
    "layout, device, pin_memory, memory_format) | Tensor_generator(self, high, generator, dtype, "
    "layout, device, pin_memory, memory_format) | low_generator_dtype(self, low, high, "
    "generator, dtype, layout, device, pin_memory, memory_format)": "randint_like",
    "from(self, from, to, generator) | default(self, generator)": "random_",
    "Tensor(tensor, other) | Scalar(tensor, other#) | Scalar_Tensor(scalar#, tensor)":
        "result_type",
    "default(self) | decimals(self, decimals)": "round",
    "source_Storage_storage_offset(self, source, storage_offset, size, stride) | "
    "source_Tensor(self, source) | default(self) | source_Storage(self, source) | "
    "source_Tensor_storage_offset(self, source, storage_offset, size, stride)": "set_",
    "default(self, dim, descending) | stable(self, stable, dim, descending) | "
    "values_stable(self, stable, dim, descending, values, indices) | values(self, dim, "
    "descending, values, indices)": "sort",
    "Tensor(self, split_size, dim) | sizes(self, split_size, dim) | default(self, split_sizes, "
    "dim)": "split",
    "default(self) | dim(self, dim) | dims(self, dim)": "squeeze squeeze_ squeeze_copy",
    "default(self, unbiased) | dim(self, dim, unbiased, keepdim) | correction(self, dim, "
    "correction, keepdim)": "std std_mean var var_mean",
    "default(self, n_fft, hop_length, win_length, window, normalized, onesided, return_complex, "
    "align_to_window) | center(self, n_fft, hop_length, win_length, window, center, pad_mode, "
    "normalized, onesided, return_complex, align_to_window)": "stft",
    "dim_IntList(self, dim, keepdim, dtype) | default(self, dtype)": "sum",
    "default(self, some, compute_uv) | U(self, some, compute_uv, U, S, V)": "svd",
    "sections(self, sections, dim) | indices(self, indices, dim)": "tensor_split",
    "device(self, device, dtype, non_blocking, copy, memory_format) | dtype(self, dtype, "
    "non_blocking, copy, memory_format) | other(self, other, non_blocking, copy, memory_format)":
        "to",
    "default(self, k, dim, largest, sorted) | values(self, k, dim, largest, sorted, values, "
    "indices)": "topk",
    "default(self, A, upper, transpose, unitriangular) | X(self, A, upper, transpose, "
    "unitriangular, X, M)": "triangular_solve",
    "default(self, size) | dtype(self, dtype)": "view view_copy",
    "self(condition, self, other) | ScalarOther(condition, self, other#) | ScalarSelf(condition, "
    "self#, other) | Scalar(condition, self#, other#) | default(condition)": "where",
    "Tensor(self, other) | Scalar_Other(self, other#) | Scalar_Self(self#, other) | "
    "OutTensor(self, other, out) | OutScalar_Self(self#, other, out) | OutScalar_Other(self, "
    "other#, out)": "xlogy",
}  # fmt: skip
