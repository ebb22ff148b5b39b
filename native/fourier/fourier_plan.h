// The plan of a Fourier transform of one length: its passes, roots of unity and, for a length with
// a large prime factor, the convolution with a chirp that replaces passes.
#pragma once
#include <memory>

#include "fourier/fourier.h"
#include "routines/routines_internal.h"

namespace fb {

struct FourierPass {
  int64_t p, m, stride;
  int64_t roots, first;  // where they begin in the table: for `pass`, and for `first`
};

template <typename R>
struct FourierPlan {
  int64_t n = 0;
  FourierPass passes[64];
  int count = 0;
  std::unique_ptr<Block> memory;
  R* table = nullptr;
  // Of a chirp: the transform of the convolution, and, in `table`, the chirp and its transform.
  std::shared_ptr<const FourierPlan> convolution;
  int64_t nbytes = 0;

  int64_t room() const { return convolution ? convolution->n : n; }  // points that it works on
  FourierParts<R> chirp() const { return {table, table + n}; }
  FourierParts<R> kernel() const { return {table + 2 * n, table + 2 * n + convolution->n}; }
};

// The roots with which half of a spectrum is folded into numbers of half the length, n is even:
// -i exp(-2 pi i k / n) for k = 0 ... n / 4, real parts first.
template <typename R>
struct FourierFold {
  std::unique_ptr<Block> memory;
  R* roots = nullptr;
  int64_t nbytes = 0;
};

// Plans are cached, the most recently used ones up to a bound of bytes. Null when memory is
// exhausted.
template <typename R>
std::shared_ptr<const FourierPlan<R>> fourier_plan(int64_t n);
template <typename R>
std::shared_ptr<const FourierFold<R>> fourier_fold(int64_t n);

// The loops for this machine, or for a lower level of vector units: tests compare their bits.
template <typename R>
const FourierLoops<R>& fourier_loops();
void limit_fourier_level(int level);

// The transform of `lanes` signals in `a`; `b` is as large, plan.room() points. Returns which of
// them has the result.
template <typename R>
FourierParts<R> run_fourier(const FourierPlan<R>& plan, FourierParts<R> a, FourierParts<R> b,
                            int64_t lanes);

}  // namespace fb
