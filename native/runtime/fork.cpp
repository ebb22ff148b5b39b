// The effect of a fork on the locks of the core: see the table in fork.h.
#include "runtime/fork.h"

#include <pthread.h>

#include <mutex>
#include <new>

namespace fb {
namespace {

constexpr int kLevels = 4, kMostForgotten = 8;

// Never destroyed: locks may outlive static destructors.
struct Registry {
  std::mutex lock;  // guards the list; the fork takes it before all others
  ForkLock* first = nullptr;
  void (*forget[kMostForgotten])() = {};
  int forgotten = 0;
};

}  // namespace

struct ForkHandlers {
  static Registry& registry();

  static void prepare() {
    registry().lock.lock();
    for (int level = 0; level < kLevels; ++level) {
      for (ForkLock* each = registry().first; each; each = each->next_) {
        if (each->level_ == level) each->take();
      }
    }
  }
  static void give_back() {
    for (ForkLock* each = registry().first; each; each = each->next_) {
      if (each->level_ != kReset) each->release();
    }
    registry().lock.unlock();
  }
  static void in_child() {
    for (ForkLock* each = registry().first; each; each = each->next_) {
      if (each->level_ == kReset) each->reset();
    }
    give_back();
    for (int i = 0; i < registry().forgotten; ++i) registry().forget[i]();
  }
  static void add(ForkLock* lock) {
    const std::lock_guard<std::mutex> guard(registry().lock);
    lock->next_ = registry().first;
    if (lock->next_) lock->next_->previous_ = lock;
    registry().first = lock;
  }
  static void remove(ForkLock* lock) {
    const std::lock_guard<std::mutex> guard(registry().lock);
    (lock->previous_ ? lock->previous_->next_ : registry().first) = lock->next_;
    if (lock->next_) lock->next_->previous_ = lock->previous_;
  }
};

Registry& ForkHandlers::registry() {
  static auto* const made = [] {
    pthread_atfork(prepare, give_back, in_child);
    return new Registry();
  }();
  return *made;
}

ForkLock::ForkLock(int level) : level_(level) { ForkHandlers::add(this); }
ForkLock::~ForkLock() { ForkHandlers::remove(this); }

void in_forked_child(void (*forget)()) {
  Registry& all = ForkHandlers::registry();
  const std::lock_guard<std::mutex> guard(all.lock);
  for (int i = 0; i < all.forgotten; ++i) {
    if (all.forget[i] == forget) return;
  }
  if (all.forgotten < kMostForgotten) all.forget[all.forgotten++] = forget;
}

static SharedLock* first_lock = nullptr;

void take_first_at_fork(SharedLock* lock) {
  if (first_lock) return;
  first_lock = lock;
  pthread_atfork([] { first_lock->lock(); }, [] { first_lock->unlock(); },
                 [] { first_lock->unlock(); });
}

}  // namespace fb
