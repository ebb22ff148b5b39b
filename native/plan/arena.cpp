// The memory of temporaries: one block per run, laid out once per Instance from their lifetimes.
#include <algorithm>

#include "plan/plan_run.h"
#include "runtime/poison.h"

namespace fb {
namespace {

constexpr int64_t kMostTemporary = int64_t{1} << 46;  // bytes: sums stay far from overflow

int64_t align_up(int64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

struct Lifetime {
  size_t buffer;
  int64_t nbytes;
  int32_t first, last;
};

// Launches of one group may run at the same time: a temporary that one of them touches is alive
// during all of them.
void widen_to_groups(const std::vector<Launch>& launches, Lifetime* life) {
  auto same = [&](int32_t a, int32_t b) {
    return launches[a].group >= 0 && launches[a].group == launches[b].group;
  };
  while (life->first > 0 && same(life->first, life->first - 1)) --life->first;
  const int32_t end = static_cast<int32_t>(launches.size()) - 1;
  while (life->last < end && same(life->last, life->last + 1)) ++life->last;
}

}  // namespace

// Best fit by lifetime: the largest first, each into the smallest gap between those that are alive
// at the same time.
bool plan_arena(Instance* instance) {
  const PlanCode* code = instance->code;
  instance->arena_offsets.assign(code->buffers.size(), -1);
  std::vector<Lifetime> lives;
  for (size_t i = 0; i < code->buffers.size(); ++i) {
    const BufferSpec& b = code->buffers[i];
    if (b.kind != BufferSpec::Temporary) continue;
    const int64_t nbytes = instance->registers[b.nbytes];
    if (nbytes > kMostTemporary) {
      PyErr_Format(PyExc_MemoryError, "[%s] a temporary of %lld bytes\nhint: use smaller sizes",
                   instance->plan->name.c_str(), static_cast<long long>(nbytes));
      return false;
    }
    lives.push_back({i, align_up(nbytes > 0 ? nbytes : 1) + kRedZone, b.first, b.last});
    widen_to_groups(code->launches, &lives.back());
  }
  std::stable_sort(lives.begin(), lives.end(),
                   [](const Lifetime& a, const Lifetime& b) { return a.nbytes > b.nbytes; });
  std::vector<std::pair<int64_t, int64_t>> taken;
  for (size_t k = 0; k < lives.size(); ++k) {
    const Lifetime& life = lives[k];
    taken.clear();
    for (size_t j = 0; j < k; ++j) {
      if (lives[j].last < life.first || lives[j].first > life.last) continue;
      const int64_t start = instance->arena_offsets[lives[j].buffer];
      taken.emplace_back(start, start + lives[j].nbytes);
    }
    std::sort(taken.begin(), taken.end());
    int64_t best = -1, best_gap = INT64_MAX, edge = 0;
    for (const auto& [start, end] : taken) {
      const int64_t gap = start - edge;
      if (gap >= life.nbytes && gap < best_gap) {
        best = edge;
        best_gap = gap;
      }
      edge = std::max(edge, end);
    }
    if (best < 0) best = edge;
    instance->arena_offsets[life.buffer] = best;
    instance->arena_bytes = std::max(instance->arena_bytes, best + life.nbytes);
  }
  return true;
}

}  // namespace fb
