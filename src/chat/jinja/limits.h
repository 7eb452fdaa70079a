// Limits: how much a template may ask for before it ends with an Error.
//
// A template comes with a model that somebody else published, and what it is fed comes from clients: neither
// decides over time, memory or the stack. Each limit is tested at its value and one past it.
#pragma once

#include <cstdint>

namespace moraine::jinja {

struct Limits {
  int64_t template_bytes = int64_t{1} << 20;  // the largest published one has 20 KB
  int64_t nesting = 100;                      // blocks and operands within each other in the text
  int64_t depth = 400;                        // evaluations within each other while it runs
  int64_t value_depth = 300;      // lists and dicts within each other; kJsonDepth is 256
  int64_t steps = 20'000'000;     // a conversation of 1000 messages takes 200,000
  int64_t range_items = 100'000;  // of range(), as in Jinja's sandbox
  int64_t memory_bytes = int64_t{1}
                         << 28;  // of all values that are made, none is freed before the end
  int64_t output_bytes = int64_t{1}
                         << 26;  // 64 MiB: above what a context of a million tokens holds
};

}  // namespace moraine::jinja
