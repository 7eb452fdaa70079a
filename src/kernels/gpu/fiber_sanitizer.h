// FiberSanitizer: tells the address sanitizer which stack a thread is on; nothing in other builds.
// The thread sanitizer would want a thread of its own for each fiber; a build with it has no emulated GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MR_FIBER_SANITIZER 1
#endif
#if __has_feature(thread_sanitizer)
#define MR_NO_FIBERS 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define MR_FIBER_SANITIZER 1
#endif

#ifdef MR_FIBER_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
inline void __asan_unpoison_memory_region(const volatile void*, size_t) {}
inline void __sanitizer_start_switch_fiber(void**, const void*, size_t) {}
inline void __sanitizer_finish_switch_fiber(void*, const void**, size_t*) {}
#endif

namespace moraine::gpu {

#ifdef MR_NO_FIBERS
inline constexpr bool kFibersRun = false;
#else
inline constexpr bool kFibersRun = true;
#endif

class FiberSanitizer {
 public:
  // Of the fiber. Clears the marks of one that was given up there.
  void take_stack(uint8_t* data, int64_t bytes) {
    data_ = data;
    bytes_ = static_cast<size_t>(bytes);
    inside_ = nullptr;
    __asan_unpoison_memory_region(data_, bytes_);
  }
  // Before and after a switch to the fiber, outside and inside.
  void enters() { __sanitizer_start_switch_fiber(&outside_, data_, bytes_); }
  void entered() { __sanitizer_finish_switch_fiber(inside_, &thread_data_, &thread_bytes_); }
  // Before and after a switch from the fiber, inside and outside.
  void leaves() { __sanitizer_start_switch_fiber(&inside_, thread_data_, thread_bytes_); }
  void leaves_for_good() { __sanitizer_start_switch_fiber(nullptr, thread_data_, thread_bytes_); }
  void left() { __sanitizer_finish_switch_fiber(outside_, nullptr, nullptr); }

 private:
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
  const void* thread_data_ = nullptr;
  size_t thread_bytes_ = 0;
  void *inside_ = nullptr, *outside_ = nullptr;  // the sanitizer's own
};

}  // namespace moraine::gpu
