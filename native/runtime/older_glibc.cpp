// Lets a module that was built beside a new C library be loaded beside an older one, back to glibc
// 2.29: the linker sends calls of functions that glibc versioned anew, without another meaning, to
// their first version (`--wrap`, tools/build_native.py). Those whose results changed (log of
// negative numbers) are not among them: kernels that the user's compiler makes call the same ones.
#include <new>

#if defined(__GLIBC__) && defined(__x86_64__)

// clang-format off
#define FB_FIRST_VERSION(name)                        \
  __asm__(".symver first_" #name "," #name "@GLIBC_2.2.5\n" \
          ".text\n"                                   \
          ".hidden __wrap_" #name "\n"                \
          ".globl __wrap_" #name "\n"                 \
          ".type __wrap_" #name ",@function\n"        \
          "__wrap_" #name ":\n"                       \
          "  endbr64\n"                               \
          "  jmp first_" #name "@PLT\n"               \
          ".size __wrap_" #name ",.-__wrap_" #name);
// clang-format on

FB_FIRST_VERSION(dlclose)
FB_FIRST_VERSION(dlerror)
FB_FIRST_VERSION(dlopen)
FB_FIRST_VERSION(dlsym)
FB_FIRST_VERSION(hypot)
FB_FIRST_VERSION(hypotf)
FB_FIRST_VERSION(pthread_mutex_trylock)
FB_FIRST_VERSION(pthread_rwlock_init)
FB_FIRST_VERSION(pthread_rwlock_rdlock)
FB_FIRST_VERSION(pthread_rwlock_unlock)
FB_FIRST_VERSION(pthread_rwlock_wrlock)
FB_FIRST_VERSION(pthread_rwlockattr_destroy)
FB_FIRST_VERSION(pthread_rwlockattr_init)
FB_FIRST_VERSION(pthread_rwlockattr_setkind_np)
FB_FIRST_VERSION(pthread_sigmask)

#undef FB_FIRST_VERSION

// Of glibc 2.32: libstdc++'s reference counts need no atomic instructions where this is true.
extern "C" char __libc_single_threaded;
char __libc_single_threaded = 0;

// Of GCC 11's libstdc++. What it throws there is a std::bad_alloc, too.
namespace std {
[[noreturn]] void __throw_bad_alloc();
[[noreturn]] void __throw_bad_array_new_length();
void __throw_bad_array_new_length() { __throw_bad_alloc(); }
}  // namespace std

#endif
