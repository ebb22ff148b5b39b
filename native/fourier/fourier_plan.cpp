// Plans of Fourier transforms, their cache and their execution.
//
// A length whose prime factors are small is transformed by Stockham's self-sorting passes, one per
// factor (Van Loan, Computational Frameworks for the Fast Fourier Transform, 1.7); any other by
// Bluestein's convolution with a chirp (4.2.3). Roots of unity are computed in double precision.
#include "fourier/fourier_plan.h"

#include <atomic>
#include <cmath>
#include <map>
#include <mutex>

#include "runtime/fork.h"
#include "runtime/processor.h"

namespace fb {
namespace {

constexpr int64_t kMostBytes = int64_t{64} << 20;  // of all cached plans of a type
constexpr double kPi = 3.14159265358979323846;

std::atomic<int> most_level{2};

struct Root {
  double re, im;
};

// exp(-2 pi i k / n): sine and cosine of at most an eighth of the circle, so exact at the quarters.
Root root(int64_t k, int64_t n) {
  k %= n;
  const int64_t eighth = 8 * k / n, quarter = (eighth + 1) / 2;
  const double angle = 2 * kPi * (static_cast<double>(4 * k - quarter * n) / 4 / n);
  const double c = std::cos(angle), s = std::sin(angle);
  switch (quarter % 4) {
    case 0:
      return {c, -s};
    case 1:
      return {-s, -c};
    case 2:
      return {-c, s};
    default:
      return {s, c};
  }
}

// The factors in the order of their passes: powers of two first, so that later strides are whole
// vectors. 1 if there is a large prime factor.
int64_t factors_of(int64_t n, FourierPass* passes, int* count) {
  *count = 0;
  int twos = 0;
  for (; n % 2 == 0; n /= 2) ++twos;
  const auto add = [&](int64_t p) { passes[(*count)++].p = p; };
  if (twos == 1) add(2);
  const int fours = twos == 1 ? 0 : twos % 3 == 1 ? 2 : twos % 3 == 2 ? 1 : 0;
  for (int i = 0; i < (twos - 2 * fours) / 3; ++i) add(8);
  for (int i = 0; i < fours; ++i) add(4);
  for (int64_t p : {5, 3, 7, 11, 13, 17, 19, 23, 29, 31}) {
    for (; n % p == 0; n /= p) add(p);
  }
  return n;
}

// The least length of at least `n` points that is fast: 2^k times 1, 3, 5, 9 or 15.
int64_t fast_length(int64_t n) {
  int64_t best = 0;
  for (int64_t odd : {1, 3, 5, 9, 15}) {
    int64_t size = odd * 8;
    while (size < n) size *= 2;
    if (!best || size < best) best = size;
  }
  return best;
}

template <typename Made>
bool reserve(Made* made, int64_t nbytes) {
  made->memory.reset(new Block(nbytes));
  made->nbytes = nbytes;
  return made->memory->ok();
}

// Whether `first` computes it where signals are alone.
bool begins(const FourierPass& pass) { return pass.stride == 1 && pass.p <= kLargestUnrolled; }

template <typename R>
bool fill_passes(FourierPlan<R>* plan) {
  const int64_t n = plan->n;
  int64_t total = 0, stride = 1;
  for (int i = 0; i < plan->count; ++i) {
    FourierPass& pass = plan->passes[i];
    pass.stride = stride;
    stride *= pass.p;
    pass.m = n / stride;
    const int64_t count = 2 * (pass.p - 1) * pass.m;
    pass.first = total;
    if (begins(pass)) total += count;
    pass.roots = total;
    if (pass.p > kLargestUnrolled) total += 2 * pass.p;
    total += count;
  }
  if (!reserve(plan, total * int64_t{sizeof(R)})) return false;
  plan->table = plan->memory->template as<R>();
  Block whole(n * int64_t{sizeof(Root)});
  if (!whole.ok()) return false;
  Root* roots = whole.as<Root>();
  for (int64_t k = 0; k < n; ++k) roots[k] = root(k, n);
  for (int i = 0; i < plan->count; ++i) {
    const FourierPass& pass = plan->passes[i];
    R *at = plan->table + pass.roots, *first = plan->table + pass.first;
    if (pass.p > kLargestUnrolled) {
      for (int64_t k = 0; k < pass.p; ++k) {
        const Root w = root(k, pass.p);
        at[k] = static_cast<R>(w.re);
        at[pass.p + k] = static_cast<R>(-w.im);
      }
      at += 2 * pass.p;
    }
    for (int64_t j = 0; j < pass.m; ++j) {
      for (int64_t r = 1; r < pass.p; ++r) {
        const Root w = roots[j * r * pass.stride];
        *at++ = static_cast<R>(w.re);
        *at++ = static_cast<R>(w.im);
        if (!begins(pass)) continue;
        first[2 * (r - 1) * pass.m + j] = static_cast<R>(w.re);
        first[(2 * (r - 1) + 1) * pass.m + j] = static_cast<R>(w.im);
      }
    }
  }
  return true;
}

// jk = (j^2 + k^2 - (j - k)^2) / 2 makes the transform a convolution with a chirp.
template <typename R>
bool fill_chirp(FourierPlan<R>* plan) {
  const int64_t n = plan->n;
  plan->convolution = fourier_plan<R>(fast_length(2 * n - 1));
  if (!plan->convolution) return false;
  // The transform of the kernel is computed in double precision: its errors would come twice.
  const auto exact = fourier_plan<double>(plan->convolution->n);
  const int64_t size = plan->convolution->n;
  Block memory(4 * size * int64_t{sizeof(double)});
  if (!exact || !memory.ok()) return false;
  if (!reserve(plan, 2 * (n + size) * int64_t{sizeof(R)})) return false;
  plan->table = plan->memory->template as<R>();
  const FourierParts<R> chirp = plan->chirp(), kernel = plan->kernel();
  double* work = memory.as<double>();
  const FourierParts<double> a = {work, work + size}, b = {work + 2 * size, work + 3 * size};
  std::fill_n(work, 2 * size, 0.0);
  for (int64_t k = 0, square = 0; k < n; square = (square + 2 * k + 1) % (2 * n), ++k) {
    const Root w = root(square, 2 * n);
    chirp.re[k] = static_cast<R>(w.re);
    chirp.im[k] = static_cast<R>(w.im);
    const int64_t other = k ? size - k : 0;
    a.re[k] = a.re[other] = w.re / static_cast<double>(size);
    a.im[k] = a.im[other] = -w.im / static_cast<double>(size);
  }
  const FourierParts<double> found = run_fourier(*exact, a, b, 1);
  for (int64_t k = 0; k < size; ++k) {
    kernel.re[k] = static_cast<R>(found.re[k]);
    kernel.im[k] = static_cast<R>(found.im[k]);
  }
  plan->nbytes += plan->convolution->nbytes;
  return true;
}

template <typename R>
bool fill(FourierPlan<R>* plan, int64_t n) {
  plan->n = n;
  if (factors_of(n, plan->passes, &plan->count) == 1) return fill_passes(plan);
  plan->count = 0;
  return fill_chirp(plan);
}

template <typename R>
bool fill(FourierFold<R>* fold, int64_t n) {
  const int64_t count = n / 4 + 1;
  if (!reserve(fold, 2 * count * int64_t{sizeof(R)})) return false;
  fold->roots = fold->memory->template as<R>();
  for (int64_t k = 0; k < count; ++k) {
    const Root w = root(k, n);
    fold->roots[k] = static_cast<R>(w.im);
    fold->roots[count + k] = static_cast<R>(-w.re);
  }
  return true;
}

// ---------------------------------------------------------------------------------------- cache

template <typename Made>
struct Cache {
  struct Entry {
    std::shared_ptr<const Made> made;
    int64_t used = 0;
  };
  ForkSafe<std::mutex> lock{1};
  std::map<int64_t, Entry> entries;
  int64_t nbytes = 0, uses = 0;
};
// Never destroyed: threads may transform while the process ends.
template <typename Made>
Cache<Made>& cache() {
  static auto* const made = new Cache<Made>();
  return *made;
}

// Makes room; what is dropped is freed by the caller, without the lock.
template <typename Made>
void drop_oldest(Cache<Made>* cache, std::vector<std::shared_ptr<const Made>>* dropped) {
  while (cache->nbytes > kMostBytes && cache->entries.size() > 1) {
    auto oldest = cache->entries.begin();
    for (auto each = oldest; each != cache->entries.end(); ++each) {
      if (each->second.used < oldest->second.used) oldest = each;
    }
    cache->nbytes -= oldest->second.made->nbytes;
    dropped->push_back(std::move(oldest->second.made));
    cache->entries.erase(oldest);
  }
}

template <typename Made>
std::shared_ptr<const Made> kept(int64_t n) {
  Cache<Made>& all = cache<Made>();
  using Guard = std::lock_guard<ForkSafe<std::mutex>>;
  {
    const Guard guard(all.lock);
    const auto found = all.entries.find(n);
    if (found != all.entries.end()) {
      found->second.used = ++all.uses;
      return found->second.made;
    }
  }
  auto made = std::make_shared<Made>();
  if (!fill(made.get(), n)) return nullptr;
  std::vector<std::shared_ptr<const Made>> dropped;
  const Guard guard(all.lock);
  auto& entry = all.entries[n];
  if (!entry.made) {
    entry.made = made;
    all.nbytes += made->nbytes;
  }
  entry.used = ++all.uses;
  drop_oldest(&all, &dropped);
  return made;
}

// ------------------------------------------------------------------------------------ execution

template <typename R>
FourierParts<R> run_chirp(const FourierPlan<R>& plan, FourierParts<R> a, FourierParts<R> b,
                          int64_t lanes) {
  const FourierLoops<R>& loops = fourier_loops<R>();
  const int64_t n = plan.n, size = plan.convolution->n;
  loops.multiply(a, b, plan.chirp(), n, lanes);
  std::fill_n(b.re + n * lanes, (size - n) * lanes, R(0));
  std::fill_n(b.im + n * lanes, (size - n) * lanes, R(0));
  const auto other_of = [&](FourierParts<R> x) { return x.re == a.re || x.re == a.im ? a : b; };
  FourierParts<R> found = run_fourier(*plan.convolution, b, a, lanes);
  FourierParts<R> free = other_of(found).re == a.re ? b : a;
  loops.multiply(found, free, plan.kernel(), size, lanes);
  // The inverse transform: real and imaginary parts are exchanged before and after.
  found = run_fourier<R>(*plan.convolution, {free.im, free.re}, {found.im, found.re}, lanes);
  found = {found.im, found.re};
  free = other_of(found).re == a.re ? b : a;
  loops.multiply(found, free, plan.chirp(), n, lanes);
  return free;
}

}  // namespace

template <typename R>
std::shared_ptr<const FourierPlan<R>> fourier_plan(int64_t n) {
  return kept<FourierPlan<R>>(n);
}
template <typename R>
std::shared_ptr<const FourierFold<R>> fourier_fold(int64_t n) {
  return kept<FourierFold<R>>(n);
}

void limit_fourier_level(int level) { most_level = level; }

template <typename R>
const FourierLoops<R>& fourier_loops() {
#if defined(__x86_64__)
  const int level = std::min(vector_level(), most_level.load(std::memory_order_relaxed));
  if (level == 2) return fourier_loops_avx512<R>();
  if (level == 1) return fourier_loops_avx2<R>();
#endif
  return fourier_loops_baseline<R>();
}

template <typename R>
FourierParts<R> run_fourier(const FourierPlan<R>& plan, FourierParts<R> a, FourierParts<R> b,
                            int64_t lanes) {
  if (plan.convolution) return run_chirp(plan, a, b, lanes);
  const FourierLoops<R>& loops = fourier_loops<R>();
  for (int i = 0; i < plan.count; ++i) {
    const FourierPass& pass = plan.passes[i];
    if (lanes == 1 && begins(pass)) {
      loops.first(a, b, pass.p, pass.m, plan.table + pass.first);
    } else {
      loops.pass(a, b, pass.p, pass.m, pass.stride * lanes, plan.table + pass.roots);
    }
    std::swap(a, b);
  }
  return a;
}

#define FB_FOURIER_FOR(R)                                                             \
  template std::shared_ptr<const FourierPlan<R>> fourier_plan(int64_t n);             \
  template std::shared_ptr<const FourierFold<R>> fourier_fold(int64_t n);             \
  template const FourierLoops<R>& fourier_loops();                                    \
  template FourierParts<R> run_fourier(const FourierPlan<R>& plan, FourierParts<R> a, \
                                       FourierParts<R> b, int64_t lanes);
FB_FOURIER_FOR(float)
FB_FOURIER_FOR(double)
#undef FB_FOURIER_FOR

}  // namespace fb
