"""Names of overloads in PyTorch's inner library, for `torch.ops.aten` and dispatch modes.

Per set of overloads the operators that have it. An overload lists its arguments; `#` marks those
that are numbers. An operator that is not here has one overload, "default".
"""

from __future__ import annotations

TABLE: dict[str, str] = {
    ("Tensor(self, other, alpha#) | Scalar(self, other#, alpha#)"): ("add rsub sub"),
    (
        "default(self, mat1, mat2, beta#, alpha#) | dtype(self, mat1, mat2, out_dtype, beta#, "
        "alpha#)"
    ): ("addmm"),
    ("default(self) | dim(self, dim, keepdim) | dims(self, dim, keepdim)"): ("all any"),
    (
        "default(end#, dtype, layout, device, pin_memory) | start(start#, end#, dtype, layout, "
        "device, pin_memory) | start_step(start#, end#, step#, dtype, layout, device, pin_memory)"
    ): ("arange"),
    ("default(self, dim, descending) | stable(self, stable, dim, descending)"): ("argsort"),
    ("default(self) | Sequence(tensors)"): ("atleast_1d atleast_2d atleast_3d"),
    (
        "default(self, batch1, batch2, beta#, alpha#) | dtype(self, batch1, batch2, out_dtype, "
        "beta#, alpha#)"
    ): ("baddbmm"),
    ("default(self, generator) | p(self, p, generator) | Tensor(self, p, generator)"): (
        "bernoulli"
    ),
    ("Tensor(self, p, generator)"): ("bernoulli_"),
    ("Tensor(self, other) | Scalar(self, other#) | Scalar_Tensor(self#, other)"): (
        "bitwise_and bitwise_or bitwise_xor remainder"
    ),
    ("Tensor(self, other) | Tensor_Scalar(self, other#) | Scalar_Tensor(self#, other)"): (
        "bitwise_left_shift bitwise_right_shift"
    ),
    ("default(self, mat2) | dtype(self, mat2, out_dtype)"): ("bmm mm"),
    ("Tensor(self, boundaries, out_int32, right) | Scalar(self#, boundaries, out_int32, right)"): (
        "bucketize"
    ),
    ("default(self, min#, max#) | Tensor(self, min, max)"): ("clamp"),
    ("default(self, max#) | Tensor(self, max)"): ("clamp_max"),
    ("default(self, min#) | Tensor(self, min)"): ("clamp_min"),
    (
        "default(input, weight, bias, stride, padding, dilation, groups) | padding(input, weight, "
        "bias, stride, padding, dilation, groups)"
    ): ("conv1d conv2d conv3d"),
    ("input(input, weight, bias, stride, padding, output_padding, groups, dilation)"): (
        "conv_transpose2d conv_transpose3d"
    ),
    ("default(self, other, non_blocking) | Tensor(self, src) | int(self, src)"): ("copy_"),
    ("Tensor(self, other) | Scalar(self, other#)"): ("copysign fmod ge gt le lt mul"),
    ("default(self, dim) | dim_IntList(self, dim)"): ("count_nonzero"),
    (
        "IntList(log_probs, targets, input_lengths, target_lengths, blank, reduction, "
        "zero_infinity) | Tensor(log_probs, targets, input_lengths, target_lengths, blank, "
        "reduction, zero_infinity)"
    ): ("ctc_loss"),
    ("x(y, x, dim) | dx(y, dx#, dim)"): ("cumulative_trapezoid trapezoid"),
    (
        "Tensor(self, other) | Scalar(self, other#) | Tensor_mode(self, other, rounding_mode) | "
        "Scalar_mode(self, other#, rounding_mode)"
    ): ("div"),
    ("int(self, sections) | array(self, indices)"): ("dsplit hsplit vsplit"),
    ("default(equation, tensors, path) | sublist(a)"): ("einsum"),
    (
        "default(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, "
        "include_last_offset) | padding_idx(weight, indices, offsets, scale_grad_by_freq, mode, "
        "sparse, per_sample_weights, include_last_offset, padding_idx)"
    ): ("embedding_bag"),
    ("memory_format(size, dtype, layout, device, pin_memory, memory_format)"): ("empty"),
    ("Tensor(self, other) | Scalar(self, other#) | Tensor_list(a, b)"): ("eq ne"),
    (
        "default(n, dtype, layout, device, pin_memory) | m(n, m, dtype, layout, device, pin_memory)"
    ): ("eye"),
    ("Scalar(self, value#) | Tensor(self, value)"): ("fill"),
    ("using_ints(self, start_dim, end_dim)"): ("flatten"),
    ("Tensor_Tensor(self, exponent) | Tensor_Scalar(self, exponent#) | Scalar(self#, exponent)"): (
        "float_power pow"
    ),
    ("default(self, other) | Scalar(self, other#)"): ("floor_divide"),
    ("Tensor(self)"): ("frexp"),
    ("default(self) | a(self, a, tau)"): ("geqrf"),
    (
        "scalarint(self, spacing, dim, edge_order) | scalararray(self, spacing#, dim, edge_order) "
        "| array(self, dim, edge_order) | scalarrayint(self, spacing, dim, edge_order) | "
        "scalarrayarray(self, spacing, dim, edge_order)"
    ): ("gradient"),
    ("bins_tensor(self, bins, weight, density) | bin_ct(self, bins, range, weight, density)"): (
        "histogram"
    ),
    (
        "default(self, bins, range, weight, density) | TensorList_bins(self, bins, range, weight, "
        "density)"
    ): ("histogramdd"),
    ("Tensor(self, indices) | Tensor_hacked_twin(self, indices) | list_Tensor(self, el)"): (
        "index"
    ),
    ("int_Scalar(self, dim, index, value#)"): ("index_fill"),
    (
        "default(self, indices, values, accumulate) | hacked_twin(self, indices, values, "
        "accumulate)"
    ): ("index_put"),
    (
        "Tensor_Tensor(elements, test_elements, assume_unique, invert) | Tensor_Scalar(elements, "
        "test_element#, assume_unique, invert) | Scalar_Tensor(element#, test_elements, "
        "assume_unique, invert)"
    ): ("isin"),
    ("default(self, k, dim, keepdim) | values(self, k, dim, keepdim, values, indices)"): (
        "kthvalue"
    ),
    ("Tensor(self, other)"): ("ldexp"),
    ("Scalar(self, end, weight#) | Tensor(self, end, weight)"): ("lerp"),
    (
        "Tensor_Tensor(start, end, steps, dtype, layout, device, pin_memory) | "
        "Tensor_Scalar(start, end#, steps, dtype, layout, device, pin_memory) | "
        "Scalar_Tensor(start#, end, steps, dtype, layout, device, pin_memory) | default(start#, "
        "end#, steps, dtype, layout, device, pin_memory)"
    ): ("linspace"),
    ("int(self, dim, dtype)"): ("log_softmax softmax"),
    (
        "Tensor_Tensor(start, end, steps, base, dtype, layout, device, pin_memory) | "
        "Tensor_Scalar(start, end#, steps, base, dtype, layout, device, pin_memory) | "
        "Scalar_Tensor(start#, end, steps, base, dtype, layout, device, pin_memory)"
    ): ("logspace"),
    ("Scalar(self, mask, value#) | Tensor(self, mask, value)"): ("masked_fill"),
    ("default(self) | a(self)"): ("matrix_H numpy_T"),
    (
        "other(self, other) | default(self) | dim(self, dim, keepdim) | dim_max(self, dim, "
        "keepdim, max, max_values)"
    ): ("max"),
    (
        "default(grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices) | "
        "grad_input(grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, "
        "indices, grad_input)"
    ): ("max_pool2d_with_indices_backward"),
    ("default(self, dtype) | dim(self, dim, keepdim, dtype)"): ("mean"),
    ("default(self) | dim(self, dim, keepdim) | dim_values(self, dim, keepdim, values, indices)"): (
        "median nanmedian"
    ),
    ("default(tensors) | indexing(tensors, indexing)"): ("meshgrid"),
    (
        "other(self, other) | default(self) | dim(self, dim, keepdim) | dim_min(self, dim, "
        "keepdim, min, min_indices)"
    ): ("min"),
    ("default(self, dim, keepdim) | values(self, dim, keepdim, values, indices)"): ("mode"),
    ("int(self, source, destination)"): ("movedim"),
    (
        "default(self, q, dim, keepdim, interpolation) | scalar(self, q, dim, keepdim, "
        "interpolation)"
    ): ("nanquantile quantile"),
    ("default(self, dim, start, length) | Tensor(self, dim, start, length)"): ("narrow"),
    (
        "Scalar(self, p#) | ScalarOpt_dim(self, p, dim, keepdim) | ScalarOpt_dim_dtype(self, p, "
        "dim, keepdim, dtype) | ScalarOpt_dtype(self, p, dtype)"
    ): ("norm"),
    ("Tensor_float(mean, std, generator) | Tensor_Tensor(mean, std, generator)"): ("normal"),
    ("default(self, dtype) | dim_int(self, dim, keepdim, dtype)"): ("prod"),
    ("default(self, some) | Q(self, some, Q, R)"): ("qr"),
    (
        "default(high, size, dtype, layout, device, pin_memory) | low(low, high, size, dtype, "
        "layout, device, pin_memory) | low_generator(low, high, size, generator, dtype, layout, "
        "device, pin_memory)"
    ): ("randint"),
    (
        "default(self, high, dtype, layout, device, pin_memory, memory_format) | Tensor(self, "
        "high, dtype, layout, device, pin_memory, memory_format) | low_dtype(self, low, high, "
        "dtype, layout, device, pin_memory, memory_format) | Tensor_generator(self, high, "
        "generator, dtype, layout, device, pin_memory, memory_format) | low_generator_dtype(self, "
        "low, high, generator, dtype, layout, device, pin_memory, memory_format)"
    ): ("randint_like"),
    ("from(self, from, to, generator) | default(self, generator)"): ("random_"),
    (
        "Tensor(repeats, output_size) | self_Tensor(self, repeats, dim, output_size) | "
        "self_int(self, repeats, dim, output_size)"
    ): ("repeat_interleave"),
    ("Tensor(tensor, other) | Scalar(tensor, other#) | Scalar_Tensor(scalar#, tensor)"): (
        "result_type"
    ),
    ("default(self) | decimals(self, decimals)"): ("round"),
    (
        "value(self, dim, index, value#) | src(self, dim, index, src) | reduce(self, dim, index, "
        "src, reduce) | value_reduce(self, dim, index, value#, reduce)"
    ): ("scatter"),
    (
        "Tensor(sorted_sequence, self, out_int32, right, side, sorter) | Scalar(sorted_sequence, "
        "self#, out_int32, right, side, sorter)"
    ): ("searchsorted"),
    ("int(self, dim, index)"): ("select select_copy"),
    (
        "source_Storage_storage_offset(self, source, storage_offset, size, stride) | "
        "source_Tensor(self, source) | default(self) | source_Storage(self, source) | "
        "source_Tensor_storage_offset(self, source, storage_offset, size, stride)"
    ): ("set_"),
    ("Tensor(self, dim, start, end, step)"): ("slice slice_copy"),
    (
        "default(self, dim, descending) | stable(self, stable, dim, descending) | "
        "values_stable(self, stable, dim, descending, values, indices) | values(self, dim, "
        "descending, values, indices)"
    ): ("sort"),
    (
        "Tensor(self, split_size, dim) | sizes(self, split_size, dim) | default(self, "
        "split_sizes, dim)"
    ): ("split"),
    ("Tensor(self, split_size, dim)"): ("split_copy unsafe_split"),
    ("default(self) | dim(self, dim) | dims(self, dim)"): ("squeeze squeeze_ squeeze_copy"),
    (
        "default(self, unbiased) | dim(self, dim, unbiased, keepdim) | correction(self, dim, "
        "correction, keepdim)"
    ): ("std std_mean var var_mean"),
    (
        "default(self, n_fft, hop_length, win_length, window, normalized, onesided, "
        "return_complex, align_to_window) | center(self, n_fft, hop_length, win_length, window, "
        "center, pad_mode, normalized, onesided, return_complex, align_to_window)"
    ): ("stft"),
    ("dim_IntList(self, dim, keepdim, dtype) | default(self, dtype)"): ("sum"),
    ("default(self, some, compute_uv) | U(self, some, compute_uv, U, S, V)"): ("svd"),
    ("sections(self, sections, dim) | indices(self, indices, dim)"): ("tensor_split"),
    (
        "device(self, device, dtype, non_blocking, copy, memory_format) | dtype(self, dtype, "
        "non_blocking, copy, memory_format) | other(self, other, non_blocking, copy, "
        "memory_format)"
    ): ("to"),
    (
        "default(self, k, dim, largest, sorted) | values(self, k, dim, largest, sorted, values, "
        "indices)"
    ): ("topk"),
    ("int(self, dim0, dim1)"): ("transpose transpose_copy"),
    (
        "default(self, A, upper, transpose, unitriangular) | X(self, A, upper, transpose, "
        "unitriangular, X, M)"
    ): ("triangular_solve"),
    ("int(self, dim)"): ("unbind unbind_copy"),
    ("int(self, dim, sizes)"): ("unflatten"),
    ("default(self, size) | dtype(self, dtype)"): ("view view_copy"),
    (
        "self(condition, self, other) | ScalarOther(condition, self, other#) | "
        "ScalarSelf(condition, self#, other) | Scalar(condition, self#, other#) | "
        "default(condition)"
    ): ("where"),
    (
        "Tensor(self, other) | Scalar_Other(self, other#) | Scalar_Self(self#, other) | "
        "OutTensor(self, other, out) | OutScalar_Self(self#, other, out) | OutScalar_Other(self, "
        "other#, out)"
    ): ("xlogy"),
}
