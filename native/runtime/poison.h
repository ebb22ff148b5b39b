// Marks memory that no kernel may access for AddressSanitizer.
//
// Tensors are allocated from pools, temporaries of a plan from one block, scratch memory is reused:
// an access beyond the end of one would hit memory of the process. In a sanitizer build a red zone
// follows each of them, and unused memory is poisoned. In other builds nothing of this exists.
#pragma once
#include <cstddef>
#include <cstdint>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FB_ADDRESS_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define FB_ADDRESS_SANITIZER 1
#endif

#if defined(FB_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#endif

namespace fb {

#if defined(FB_ADDRESS_SANITIZER)
constexpr int64_t kRedZone = 64;  // one vector register, and the alignment of tensors
inline void poison(const void* at, int64_t nbytes) {
  __asan_poison_memory_region(at, static_cast<size_t>(nbytes));
}
inline void unpoison(const void* at, int64_t nbytes) {
  __asan_unpoison_memory_region(at, static_cast<size_t>(nbytes));
}
#else
constexpr int64_t kRedZone = 0;
inline void poison(const void*, int64_t) {}
inline void unpoison(const void*, int64_t) {}
#endif

}  // namespace fb
