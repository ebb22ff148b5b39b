// The locks of the core, and what becomes of them when the process forks.
//
// A child has only the thread that forked; a lock that another thread held would stay held in it
// for ever. So every lock of the core is a ForkSafe, which registers itself (a test holds that):
//
//   lock                                level  in the child
//   generators (random_binding.cpp)     0      taken by the fork: the stream is consistent
//   packed copies (prepacked.cpp)       1      taken
//   plans of Fourier transforms         1      taken
//   uses of LAPACK (lapack.cpp)         -      taken before all others, see take_first_at_fork
//   small, then large blocks            2, 3   taken
//   gradients of leaves (engine_nodes)  -      reset: a holder may wait for the GIL, which the
//                                              forking thread has; what is half added is the user's
//   thread pool (threads.cpp)           -      reset, and the pool is forgotten with its workers
//   profiles (profile.cpp)              -      reset, and the profile is forgotten
//
// A lock that the fork takes is never held by a thread that waits for the GIL. Locks are taken in
// the order of their levels, by the fork as by all others. Python's side: flambeau/ir/lock.py.
#pragma once
#include <pthread.h>
#include <unistd.h>

#include <new>

namespace fb {

constexpr int kReset = -1;  // instead of a level: free in the child, whoever held it

class ForkLock {
 public:
  explicit ForkLock(int level);
  virtual ~ForkLock();
  ForkLock(const ForkLock&) = delete;
  ForkLock& operator=(const ForkLock&) = delete;

 private:
  friend struct ForkHandlers;
  virtual void take() = 0;
  virtual void release() = 0;
  virtual void reset() = 0;
  const int level_;
  ForkLock *previous_ = nullptr, *next_ = nullptr;
};

template <typename Mutex>
class ForkSafe final : public ForkLock {
 public:
  explicit ForkSafe(int level) : ForkLock(level) {}
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  bool try_lock() { return mutex_.try_lock(); }

 private:
  void take() override { mutex_.lock(); }
  void release() override { mutex_.unlock(); }
  void reset() override { new (&mutex_) Mutex(); }
  Mutex mutex_;
};

// A shared lock. An exclusive waiter precedes new shared owners, so that a fork does not wait for
// ever.
class SharedLock {
 public:
  SharedLock() { start(); }
  void lock() {
    pthread_rwlock_wrlock(&lock_);
    process_ = getpid();
  }
  // A forked child constructs the lock anew: its count includes waiting threads of the parent.
  void unlock() {
    if (process_ == getpid()) {
      pthread_rwlock_unlock(&lock_);
    } else {
      start();
    }
  }
  void lock_shared() { pthread_rwlock_rdlock(&lock_); }
  void unlock_shared() { pthread_rwlock_unlock(&lock_); }

 private:
  void start() {
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
#if defined(__GLIBC__)
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
#endif
    pthread_rwlock_init(&lock_, &attributes);
    pthread_rwlockattr_destroy(&attributes);
  }
  pthread_rwlock_t lock_;
  pid_t process_ = 0;
};

// Makes forks take a lock before the handlers of all libraries that are loaded now, whose functions
// run only under that lock: no other thread is inside of them then. Once in a process.
void take_first_at_fork(SharedLock* lock);

// Calls `forget` in each forked child, after all locks are free. At most 8 of them.
void in_forked_child(void (*forget)());

}  // namespace fb
