// The one cache of Plans: of an op's calls, and of recorded streams.
//
// Two levels. An exact key leads to an Instance, a plan at sizes; the class of a key leads to plans
// whose guards are tried on the sizes. One eviction: of more than a limit the half that was not
// used lately goes. With a plan go all keys that lead to it, and with its last reference all that
// Python knows of it (Plan::origin), so nothing has to be told to forget.
#pragma once
#include <algorithm>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "core.h"

namespace fb {

uint64_t hash_words(const uint64_t* words, size_t count);

class PlanCache {
 public:
  using Key = std::vector<uint64_t>;
  struct Limits {
    size_t entries;   // exact keys
    size_t plans;     // in all classes; more means static values that never repeat
    size_t in_class;  // plans of one class; more means guards that never repeat
  };
  struct Entry {
    uint64_t hash;
    Key words;
    Ref<Instance> instance;        // null: it is known that there is no plan
    bool used = false;             // since the last eviction; in the cache line that a hit reads
    std::vector<Ref<>> keep = {};  // objects whose identity is in the key
  };

  explicit PlanCache(Limits limits) : limits_(limits) {}
  ~PlanCache();
  PlanCache(const PlanCache&) = delete;
  PlanCache& operator=(const PlanCache&) = delete;

  // The entry of an exact key, borrowed; null: there is none.
  Entry* find(const uint64_t* words, size_t count, uint64_t hash) const {
    if (slots_.empty()) return nullptr;
    for (size_t at = hash & mask_; slots_[at].entry; at = (at + 1) & mask_) {
      if (slots_[at].hash != hash) continue;
      Entry* e = slots_[at].entry;
      if (e->words.size() == count && std::equal(words, words + count, e->words.data())) {
        if (!e->used) e->used = true;
        return e;
      }
    }
    return nullptr;
  }
  // What `instantiate` makes of the newest plan of a class that it makes something of.
  template <typename Instantiate>
  Instance* find_in_class(const Key& key, Instantiate&& instantiate) const {
    const auto known = classes_.find(key);
    if (known == classes_.end()) return nullptr;
    for (size_t i = known->second.size(); i-- > 0;) {
      if (Instance* found = instantiate(known->second[i].get())) return found;
    }
    return nullptr;
  }
  // The following may run code of Python at their end, when the tables are whole again.
  void know(Key key, Ref<Plan> plan);
  // Where the key is known by now its instance stays.
  void remember(std::unique_ptr<Entry> entry);
  // New Instances for the entries of a plan whose code changed. Returns the old ones, which the
  // caller drops when it has done all that it does.
  std::vector<Ref<Instance>> renew(const Plan* plan);
  void clear();
  void set_limits(Limits limits);

  size_t entries() const { return order_.size(); }
  size_t plans() const { return plans_; }
  int visit(visitproc visit, void* arg) const;

 private:
  struct Slot {
    uint64_t hash = 0;
    Entry* entry = nullptr;
  };
  struct KeyHash {
    size_t operator()(const Key& words) const { return hash_words(words.data(), words.size()); }
  };
  using Classes = std::unordered_map<Key, std::vector<Ref<Plan>>, KeyHash>;
  using Entries = std::vector<std::unique_ptr<Entry>>;
  struct Evicted {  // what is given up, until nothing of the cache is touched any more
    std::vector<Ref<Plan>> plans;
    Entries entries;
  };

  void place(Entry* entry);
  void rebuild(size_t slots);
  Evicted make_room(const Key& key);
  std::unordered_set<const Plan*> less_used_half(std::vector<const Plan*> plans) const;
  Evicted take(const std::unordered_set<const Plan*>& plans);
  Entries take_less_used_entries();
  void begin_period();
  void disown(const std::vector<Ref<Plan>>& plans) const;

  Limits limits_;
  std::vector<Slot> slots_;  // open addressing
  size_t mask_ = 0;
  Entries order_;  // oldest first
  Classes classes_;
  size_t plans_ = 0;
};

}  // namespace fb
