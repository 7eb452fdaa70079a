// kPairs: two rows of bf16 become words of neighbours along the sum.
#pragma once

#include <cstdint>

namespace moraine::cpu {

// Elements of two vectors of 32, for vpermt2w: word j of vector v is element 16 v + j of the first row below that of
// the second.
alignas(64) inline constexpr uint16_t kPairs[2][32] = {
    {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
     8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
    {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
     24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};

}  // namespace moraine::cpu
