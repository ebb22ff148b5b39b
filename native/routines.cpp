// Native routines: the algorithms that are not loops over elements (products, sorting, scattering,
// searching, random streams). A Launch names one; the table says what it is handed.
//
// <t> is a dtype name of the IR: bool u8 i8 i16 i32 i64 f16 bf16 f32 f64 c64 c128 ("real" leaves
// out the complex ones). Every tensor operand is contiguous unless strides are passed; indices are
// i64. Strides count elements. Flags are 0 or 1. A `?` operand may be left out of `p`.
//
// name                       p (buffers)                     n (sizes)                s (scalars)
// -------------------------------------------------------------------------------------------------
// matmul_<t>                 a, b, out                       B, M, N, K, then (batch, row, column)
//                                                            strides of a, of b, of out
//     out[B,M,N] = a[B,M,K] x b[B,K,N]; any strides. bool: or of ands. Half types accumulate in f32
//     and round once; integers wrap. K = 0 gives zeros. Order of the sum: see routines_matmul.cpp.
// sort_<t real>              x, values, indices              rows, length, descending
//     Along the last axis of [rows, length]; stable; NaN counts as the largest value.
// argsort_<t real>           x, indices                      rows, length, descending
// topk_<t real>              x, values, indices              rows, length, k, largest
//     The first k of the stable sort (sorted).
// kthvalue_<t real>          x, value, index                 rows, length, k (1 = smallest)
//     value, index: [rows]; NaN counts as the largest; ties: the first of the stable sort.
// mode_<t real>              x, value, index                 rows, length
//     Most frequent value, the smallest of several; index of its last occurrence.
// searchsorted_<t real>      sorted, values, out, sorter?    rows, length, count, right,
//     sorted: [rows, length] (or [length] with            sorted row stride, has_sorter
//     row stride 0), values, out(i64): [rows, count].
// nonzero_count_<t>          x, count                        numel
// nonzero_fill_<t>           x, out                          ndim, sizes...
//     out(i64): [count, ndim], row-major order.
// masked_count               mask, count                     numel            (mask: bool)
// masked_select_<t>          x, mask, out                    numel
// masked_scatter_<t>         out, mask, source, error        numel, source numel
//     error.value = the number needed when the source is too short.
// scatter_<mode>_<t>         out, index, source              ndim, axis, index sizes[ndim],
//     out[.., index[i], ..] (mode)= source[i] in        out strides[ndim], index strides[ndim],
//     row-major order of i; a stride of 0 in the        source strides[ndim]
//     source broadcasts. `out` holds the base.          mode: set add mul max min (NaN wins)
// put_<mode>_<t>             out, source, index...           count, outer, inner, d, D[0..d)
//     out: [outer, D0..Dd-1, inner] holding the base, source: [outer, count, inner], d index
//     tensors of [count]; applied in increasing position, so equal targets are deterministic.
// take_add_<t>               out, source, index              count, outer, inner, 1, D
//     The transpose of `take`; the same as put_add_<t> with d = 1.
// check_index                index, out, error               numel, size, dimension
//     out = index wrapped into [0, size); the first offending element goes to `error`.
// bincount                   x, out                          numel, bins      (x, out: i64)
// bincount_<f32|f64>         x, weights, out                 numel, bins      (x: i64)
// histc_<f32|f64>            x, out                          numel, bins      low, high
// unique_<t real>            sorted, order?, values,         numel, has_order
//                            inverse, counts, total
//     Runs of equal values of `sorted` (NaN differs from itself); inverse[order[i]] = number of the
//     run. values, counts have room for numel; total: [1]. Without order: unique_consecutive.
// sort_rows_<t real>         x, order                        rows, length
//     Stable lexicographic order of the rows.
// unique_rows_<t real>       x, order?, first, inverse,      rows, length, has_order
//                            counts, total                   first: row number of each run's first
// random_uniform_<half|f32|f64>      out, generator          numel            low, high
// random_normal_<half|f32|f64>       out, generator          numel            mean, std
// random_normal_sequential_<float>   out, generator          numel            mean, std
// random_bernoulli_<t real>          out, generator          numel            probability
// random_bernoulli_from_<f32|f64>_<t real>   out, generator, probabilities    numel
// random_randint_<t real>            out, generator          numel            low, high (integers)
// random_full_<t real>               out, generator          numel
// random_from_<t real>               out, generator          numel            low, top (integers;
//                                                                             top included)
// random_exponential_<float>         out, generator          numel            lambda
// random_cauchy_<float>              out, generator          numel            median, sigma
// random_log_normal_<float>          out, generator          numel            mean, std
// random_geometric_<t real, no bool> out, generator          numel            probability
// random_poisson_<float>             out, generator, rates   numel            (rates: f64)
// random_standard_gamma_<float>      out, generator, shapes  numel            (shapes: f64)
// randperm                           out, generator          numel            (out: i64)
//
// Scalars are doubles unless marked "(integers)". `generator` is a ("generator", slot) buffer;
// `error` an ("error", message) buffer: int64 {flag, value, size, dimension}, see docs/design.md.
#include "core.h"
#include "random_binding.h"

namespace fb {

RoutineFunction find_routine(const char* name) { return find_random_routine(name); }

bool init_routines(PyObject*) { return true; }

}  // namespace fb
