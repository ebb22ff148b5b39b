// Discrete Fourier transforms of any length along one axis: of complex numbers, of real ones, and
// of half a spectrum to real ones.
//
// Real numbers of even length are taken in pairs as complex ones of half the length (Van Loan,
// Computational Frameworks for the Fast Fourier Transform, 4.3). A signal is computed by one
// thread, alone or as one lane of several, by the same operations: its bits depend on nothing else.
#include <atomic>

#include "fourier/fourier_plan.h"

namespace fb {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kShort = 48;                // points below which rows are done in lanes
constexpr int64_t kCache = int64_t{1} << 20;  // bytes that the lanes of a block may take

int64_t grain_of(int64_t work) { return work > 32768 ? 1 : 32768 / (work + 1) + 1; }

// Signals of `n` points, `outer` times `inner` of them; those of an inner row lie side by side.
struct Signals {
  int64_t outer, n, inner;

  int64_t total() const { return outer * inner; }
};

// Some neighbouring signals: numbers `first` and following of an outer row (or, with inner = 1, of
// all), and where the first of them begins in points.
struct Group {
  int64_t outer, inner, lanes;
};

template <typename R>
struct Work {
  FourierParts<R> a, b;
};

// Calls body(group, work) for groups of signals, in parallel. `room`: points of a signal's work.
template <typename R, typename Body>
const char* each_group(const Signals& signals, int64_t room, bool odd, const Body& body) {
  const bool rows = signals.inner == 1;
  const int64_t line = rows ? signals.outer : signals.inner;
  int64_t lanes = kLanes;
  while (lanes > 4 && room * lanes * 4 * int64_t{sizeof(R)} > kCache) lanes /= 2;
  if (rows && !(room <= kShort || (odd && room <= 4096 && line >= lanes))) lanes = 1;
  lanes = std::min(lanes, line);
  const int64_t groups = (line + lanes - 1) / lanes, lines = rows ? 1 : signals.outer;
  const int64_t part = (room * lanes + 31) / 16 * 16 + 16;
  std::atomic<bool> fine{true};
  parallel(groups * lines, grain_of(24 * room * lanes), [&](int64_t begin, int64_t end) {
    Block memory(4 * part * int64_t{sizeof(R)});
    if (!memory.ok()) {
      fine = false;
      return;
    }
    R* p = memory.as<R>();
    const Work<R> work = {{p, p + part}, {p + 2 * part, p + 3 * part}};
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % groups * lanes, count = std::min(lanes, line - first);
      if (rows) {
        body(Group{first, 0, count}, work);
      } else {
        body(Group{i / groups, first, count}, work);
      }
    }
  });
  return fine ? nullptr : kOutOfMemory;
}

// How the points of signals of complex (2) or real (1) numbers lie, `n` to a signal.
FourierLayout layout(const Signals& signals, int64_t n, int64_t parts) {
  return {signals.inner * parts, signals.inner == 1 ? n * parts : parts};
}
template <typename R>
R* start(const RoutineContext& c, int which, const Signals& signals, const Group& group, int64_t n,
         int64_t parts) {
  return pointer<R>(c, which) + (group.outer * n * signals.inner + group.inner) * parts;
}
template <typename R>
FourierParts<R> swapped(FourierParts<R> x, bool swap) {
  return swap ? FourierParts<R>{x.im, x.re} : x;
}
template <typename R>
FourierParts<R> other(const Work<R>& work, FourierParts<R> x) {
  return x.re == work.a.re || x.re == work.a.im ? work.b : work.a;
}

// n: outer, length, inner, inverse; s: factor of the results.
template <typename R>
const char* fft(const RoutineContext& c) {
  const Signals signals = {c.n[0], c.n[1], c.n[2]};
  const bool inverse = c.n[3];
  const int64_t n = signals.n;
  const R scale = static_cast<R>(c.s[0].d);
  if (signals.total() == 0 || n == 0) return nullptr;
  const auto plan = fourier_plan<R>(n);
  if (!plan) return kOutOfMemory;
  const FourierLoops<R>& loops = fourier_loops<R>();
  const FourierLayout at = layout(signals, n, 2);
  return each_group<R>(signals, plan->room(), n % 2, [&](const Group& g, const Work<R>& work) {
    // The inverse: real and imaginary parts are exchanged before and after.
    loops.load(start<R>(c, 0, signals, g, n, 2), at, 1, n, g.lanes, swapped(work.a, inverse));
    const FourierParts<R> found = run_fourier<R>(*plan, work.a, work.b, g.lanes);
    loops.store(swapped(found, inverse), start<R>(c, 1, signals, g, n, 2), at, 1, n, g.lanes, scale,
                scale);
  });
}

template <typename R>
void fold_ends(FourierParts<R> x, FourierParts<R> y, int64_t half, int64_t lanes) {
  for (int64_t l = 0; l < lanes; ++l) {
    const R re = x.re[l], im = x.im[l];
    y.re[l] = re + im;
    y.re[half * lanes + l] = re - im;
    y.im[l] = y.im[half * lanes + l] = R(0);
  }
}

// n: outer, length, inner, inverse, whether all of the spectrum; s: factor of the results.
template <typename R>
const char* real_fft(const RoutineContext& c) {
  const Signals signals = {c.n[0], c.n[1], c.n[2]};
  const int64_t n = signals.n, half = n / 2, count = c.n[4] ? n : half + 1;
  const bool even = n % 2 == 0;
  const R scale = static_cast<R>(c.s[0].d), imaginary = c.n[3] ? -scale : scale;
  if (signals.total() == 0 || n == 0) return nullptr;
  const auto plan = fourier_plan<R>(even ? half : n);
  const auto fold = even ? fourier_fold<R>(n) : nullptr;
  if (!plan || (even && !fold)) return kOutOfMemory;
  const FourierLoops<R>& loops = fourier_loops<R>();
  FourierLayout from = layout(signals, n, 1);
  if (even) from.point *= 2;
  const FourierLayout to = layout(signals, count, 2);
  const int64_t room = std::max(plan->room(), n + 1);
  return each_group<R>(signals, room, !even, [&](const Group& g, const Work<R>& work) {
    loops.load(start<R>(c, 0, signals, g, n, 1), from, even ? signals.inner : 0, even ? half : n,
               g.lanes, work.a);
    FourierParts<R> found = run_fourier<R>(*plan, work.a, work.b, g.lanes);
    if (even) {
      const FourierParts<R> folded = other(work, found);
      loops.fold(found, folded, half, g.lanes, fold->roots, R(0.5), R(0.5), R(0.5));
      fold_ends(found, folded, half, g.lanes);
      found = folded;
    } else {
      std::fill_n(found.im, g.lanes, R(0));
    }
    if (count == n && n > 1) loops.mirror(found, n, g.lanes);
    loops.store(found, start<R>(c, 1, signals, g, count, 2), to, 1, count, g.lanes, scale,
                imaginary);
  });
}

template <typename R>
void unfold_ends(FourierParts<R> x, FourierParts<R> y, int64_t half, int64_t lanes) {
  for (int64_t l = 0; l < lanes; ++l) {
    const R first = x.re[l], last = x.re[half * lanes + l];
    y.re[l] = first + last;
    y.im[l] = first - last;
  }
}

// n: outer, length of the result, inner, inverse; s: factor of the results.
template <typename R>
const char* half_fft(const RoutineContext& c) {
  const Signals signals = {c.n[0], c.n[1], c.n[2]};
  const int64_t n = signals.n, half = n / 2, count = half + 1;
  const bool even = n % 2 == 0, forward = !c.n[3];
  const R scale = static_cast<R>(c.s[0].d);
  if (signals.total() == 0 || n == 0) return nullptr;
  const auto plan = fourier_plan<R>(even ? half : n);
  const auto fold = even ? fourier_fold<R>(n) : nullptr;
  if (!plan || (even && !fold)) return kOutOfMemory;
  const FourierLoops<R>& loops = fourier_loops<R>();
  const FourierLayout from = layout(signals, count, 2);
  FourierLayout to = layout(signals, n, 1);
  if (even) to.point *= 2;
  const int64_t room = std::max(plan->room(), n + 1);
  return each_group<R>(signals, room, !even, [&](const Group& g, const Work<R>& work) {
    FourierParts<R> x = work.a;
    loops.load(start<R>(c, 0, signals, g, count, 2), from, 1, count, g.lanes, x);
    if (forward) {
      for (int64_t i = 0; i < count * g.lanes; ++i) x.im[i] = -x.im[i];
    }
    if (even) {
      loops.fold(x, work.b, half, g.lanes, fold->roots, R(1), R(1), R(-1));
      unfold_ends(x, work.b, half, g.lanes);
      x = work.b;
    } else {
      std::fill_n(x.im, g.lanes, R(0));
      loops.mirror(x, n, g.lanes);
    }
    const FourierParts<R> free = swapped(other(work, x), true);
    FourierParts<R> found = swapped(run_fourier<R>(*plan, swapped(x, true), free, g.lanes), true);
    loops.store(found, start<R>(c, 1, signals, g, n, 1), to, even ? signals.inner : 0,
                even ? half : n, g.lanes, scale, scale);
  });
}

// n: the highest level of vector units that transforms use.
const char* fourier_level(const RoutineContext& c) {
  limit_fourier_level(static_cast<int>(c.n[0]));
  return nullptr;
}

FB_ONCE void add_fourier_routines(RoutineList* list) {
  list->push_back({"fourier_level", fourier_level});
  list->push_back({"fft_c64", fft<float>});
  list->push_back({"fft_c128", fft<double>});
  list->push_back({"real_fft_f32", real_fft<float>});
  list->push_back({"real_fft_f64", real_fft<double>});
  list->push_back({"half_fft_c64", half_fft<float>});
  list->push_back({"half_fft_c128", half_fft<double>});
}

const RoutineRegistration registration{add_fourier_routines};

}  // namespace

}  // namespace fb
