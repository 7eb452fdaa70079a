// Sanitized: which sanitizer this was compiled with.
#pragma once

#if defined(__SANITIZE_ADDRESS__)  // g++
#define MR_ADDRESS_SANITIZER
#elif defined(__SANITIZE_THREAD__)
#define MR_THREAD_SANITIZER
#elif defined(__has_feature)  // clang
#if __has_feature(address_sanitizer)
#define MR_ADDRESS_SANITIZER
#elif __has_feature(thread_sanitizer)
#define MR_THREAD_SANITIZER
#endif
#endif

namespace moraine {

#if defined(MR_ADDRESS_SANITIZER) || defined(MR_THREAD_SANITIZER)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace moraine
