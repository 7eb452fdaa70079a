// SameCall: whether a prototype of ours has as many arguments as a vendor's, of the same sizes, as is its result.
#pragma once

#include <array>

namespace moraine::gpu {

template <class Ours, class Theirs>
struct SameCall;
template <class R, class... A, class S, class... B>
struct SameCall<R (*)(A...), S (*)(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) != sizeof...(B)) return false;
    return sizeof(R) == sizeof(S) && std::array{sizeof(A)...} == std::array{sizeof(B)...};
  }();
};

}  // namespace moraine::gpu
