// Room in the cache of Plans: what goes when it is full, and how its tables follow.
#include "plan/plan_cache.h"

#include <iterator>
#include <utility>

namespace fb {

uint64_t hash_words(const uint64_t* words, size_t count) {
  constexpr uint64_t kA = 0x9e3779b97f4a7c15, kB = 0xd1b54a32d192ed03;
  uint64_t h = count * kA;
  size_t i = 0;
  for (; i + 2 <= count; i += 2) {
    const auto product = static_cast<unsigned __int128>(words[i] ^ h ^ kA) * (words[i + 1] ^ kB);
    h = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64) ^ (h << 7 | h >> 57);
  }
  if (i < count) h = (h ^ words[i]) * kB;
  h ^= h >> 29;
  return h * kA ^ h >> 32;
}

void PlanCache::place(Entry* entry) {
  size_t at = entry->hash & mask_;
  while (slots_[at].entry) at = (at + 1) & mask_;
  slots_[at] = {entry->hash, entry};
}

void PlanCache::rebuild(size_t slots) {
  slots_.assign(slots, Slot{});
  mask_ = slots - 1;
  for (const auto& entry : order_) place(entry.get());
}

void PlanCache::remember(std::unique_ptr<Entry> entry) {
  if (find(entry->words.data(), entry->words.size(), entry->hash)) return;
  const Entries gone = take_less_used_entries();
  order_.push_back(std::move(entry));
  if (slots_.empty()) {
    rebuild(16);
  } else if (order_.size() * 2 > slots_.size()) {
    rebuild(slots_.size() * 2);
  } else {
    place(order_.back().get());
  }
}

void PlanCache::begin_period() {
  for (const auto& entry : order_) entry->used = false;
}

PlanCache::Entries PlanCache::take_less_used_entries() {
  Entries gone;
  if (order_.size() < limits_.entries) return gone;
  size_t unused = 0;
  for (const auto& entry : order_) unused += !entry->used;
  const size_t half = (order_.size() + 1) / 2;
  // Where too few are unused the oldest of the others go, too.
  size_t used = half - std::min(half, unused);
  Entries kept;
  for (auto& entry : order_) {
    const bool goes = gone.size() < half && (!entry->used || used > 0);
    used -= goes && entry->used;
    (goes ? gone : kept).push_back(std::move(entry));
  }
  order_ = std::move(kept);
  begin_period();
  rebuild(slots_.size());
  return gone;
}

void PlanCache::know(Key key, Ref<Plan> plan) {
  const Evicted gone = make_room(key);
  plan->cache = this;
  classes_[std::move(key)].push_back(std::move(plan));
  ++plans_;
}

PlanCache::Evicted PlanCache::make_room(const Key& key) {
  std::vector<const Plan*> candidates;
  const auto same = classes_.find(key);
  if (same != classes_.end() && same->second.size() >= limits_.in_class) {
    for (const auto& plan : same->second) candidates.push_back(plan.get());
  } else if (plans_ >= limits_.plans) {
    for (const auto& [_, plans] : classes_) {
      for (const auto& plan : plans) candidates.push_back(plan.get());
    }
  }
  return candidates.empty() ? Evicted{} : take(less_used_half(std::move(candidates)));
}

// A plan is used where one of its keys is; of those that are equal in this the older ones go.
std::unordered_set<const Plan*> PlanCache::less_used_half(std::vector<const Plan*> plans) const {
  std::unordered_set<const Plan*> used;
  for (const auto& entry : order_) {
    if (entry->used && entry->instance) used.insert(entry->instance->plan);
  }
  std::sort(plans.begin(), plans.end(), [&](const Plan* a, const Plan* b) {
    return std::pair(used.count(a), a->id) < std::pair(used.count(b), b->id);
  });
  return {plans.begin(), plans.begin() + static_cast<std::ptrdiff_t>((plans.size() + 1) / 2)};
}

PlanCache::Evicted PlanCache::take(const std::unordered_set<const Plan*>& plans) {
  Evicted gone;
  for (auto at = classes_.begin(); at != classes_.end();) {
    std::vector<Ref<Plan>> kept;
    for (auto& plan : at->second) {
      (plans.count(plan.get()) > 0 ? gone.plans : kept).push_back(std::move(plan));
    }
    at->second = std::move(kept);
    at = at->second.empty() ? classes_.erase(at) : std::next(at);
  }
  disown(gone.plans);
  plans_ -= gone.plans.size();
  Entries others;
  for (auto& entry : order_) {
    const bool goes = entry->instance && plans.count(entry->instance->plan) > 0;
    (goes ? gone.entries : others).push_back(std::move(entry));
  }
  order_ = std::move(others);
  begin_period();
  if (!slots_.empty()) rebuild(slots_.size());
  return gone;
}

std::vector<Ref<Instance>> PlanCache::renew(const Plan* plan) {
  std::vector<Ref<Instance>> stale;
  for (const auto& entry : order_) {
    const Instance* instance = entry->instance.get();
    if (!instance || instance->plan != plan || !instance->code) continue;
    auto fresh = steal(instance_renewed(instance));
    if (fresh) stale.push_back(std::exchange(entry->instance, std::move(fresh)));
  }
  return stale;
}

void PlanCache::disown(const std::vector<Ref<Plan>>& plans) const {
  for (const auto& plan : plans) {
    if (plan->cache == this) plan->cache = nullptr;
  }
}

PlanCache::~PlanCache() {
  for (const auto& [_, plans] : classes_) disown(plans);
}

void PlanCache::clear() {
  const Entries entries = std::exchange(order_, {});
  const Classes classes = std::exchange(classes_, {});
  for (const auto& [_, plans] : classes) disown(plans);
  slots_.clear();
  mask_ = 0;
  plans_ = 0;
}

void PlanCache::set_limits(Limits limits) {
  limits_ = limits;
  clear();
}

int PlanCache::visit(visitproc visit, void* arg) const {
  for (const auto& [_, plans] : classes_) {
    for (const auto& plan : plans) Py_VISIT(plan.get());
  }
  return 0;
}

}  // namespace fb
