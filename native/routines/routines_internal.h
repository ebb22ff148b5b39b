// Shared by the routine files: the registry's entries and access to a launch's arguments.
#pragma once
#include <string>

#include "core.h"

namespace fb {

struct RoutineEntry {
  std::string name;
  RoutineFunction function;
};
using RoutineList = std::vector<RoutineEntry>;
#if defined(__GNUC__)
#define FB_ONCE __attribute__((cold))  // runs when the core is loaded: small, not fast
#else
#define FB_ONCE
#endif
// At the end of a file: its routines are in the registry, which nothing else has to name.
struct RoutineRegistration {
  explicit RoutineRegistration(void (*add)(RoutineList* list));
};

constexpr const char* kOutOfMemory = "out of memory: a native routine got no workspace";

template <typename T>
T* pointer(const RoutineContext& c, int i) {
  return reinterpret_cast<T*>(c.p[i]);
}

// The half types as distinct C++ types: their bits alone do not say how to compare or add them.
struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

inline float to_float(BFloat16 x) { return bfloat16_to_float(x.bits); }
inline float to_float(Half x) { return half_to_float(x.bits); }
inline BFloat16 to_bfloat16(float x) { return {float_to_bfloat16(x)}; }
inline Half to_half(float x) { return {float_to_half(x)}; }

// parallel_for over a C++ callable (begin, end).
template <typename Body>
void parallel(int64_t count, int64_t grain, const Body& body) {
  parallel_for(
      count, grain,
      [](void* context, int64_t begin, int64_t end, int) {
        (*static_cast<const Body*>(context))(begin, end);
      },
      const_cast<void*>(static_cast<const void*>(&body)));
}

// A block from the caching allocator, released at the end of its scope.
class Block {
 public:
  explicit Block(int64_t nbytes) : nbytes_(nbytes > 0 ? nbytes : 64) {
    data_ = block_allocate(nbytes_);
  }
  ~Block() {
    if (data_) block_free(data_, nbytes_);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  bool ok() const { return data_ != nullptr; }

 private:
  void* data_;
  int64_t nbytes_;
};

}  // namespace fb
