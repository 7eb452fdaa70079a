// ContextCost: the formulas of the header, term by term.
#include "parallel/context_cost.h"

#include <algorithm>

#include "base/check.h"

namespace moraine {

ContextChoice choose_context_variant(const ContextCost& c) {
  MR_CHECK(c.ranks >= 1 && c.bytes_per_second > 0 && c.flops_per_second > 0 &&
           c.bytes_per_second_memory > 0);
  const double C = static_cast<double>(c.ranks);
  const double work =
      static_cast<double>(c.pairs) * static_cast<double>(c.heads * c.head_dim) / c.flops_per_second;
  const double forward = 4 * work, backward = 14 * work;
  const int64_t elements = 2 * c.tokens * c.kv_heads * c.head_dim, hops = c.ranks - 1;
  const int64_t kv = elements * c.element_bytes, dkv = elements * int64_t{sizeof(float)};
  const auto message = [&](int64_t bytes) {
    return c.alpha_seconds + static_cast<double>(bytes) / c.bytes_per_second;
  };
  const auto exposed = [&](double seconds, double attention) {
    return c.overlap ? std::max(0.0, seconds - attention / C) : seconds;
  };
  const double merge = 2 * C * 3 * sizeof(float) *
                       static_cast<double>(c.tokens * c.heads * c.head_dim) /
                       c.bytes_per_second_memory;
  ContextChoice choice;
  choice.ring_bytes = hops * 2 * kv + (hops > 0 ? c.ranks : 0) * dkv;
  choice.all_gather_bytes = hops * (2 * kv + dkv);
  choice.all_gather_buffers = c.ranks * (kv + dkv);
  choice.ring_seconds = forward + backward + merge + (C - 1) * exposed(message(kv), forward) +
                        (C - 1) * exposed(message(kv), backward) +
                        (hops > 0 ? C * message(dkv) : 0);
  choice.all_gather_seconds = forward + backward + (C - 1) * (2 * message(kv) + message(dkv));
  const bool fits = c.most_bytes == 0 || choice.all_gather_buffers <= c.most_bytes;
  choice.variant = fits && choice.all_gather_seconds <= choice.ring_seconds
                       ? ContextVariant::kAllGather
                       : ContextVariant::kRing;
  return choice;
}

}  // namespace moraine
