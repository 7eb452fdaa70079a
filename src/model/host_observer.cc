// HostObserver: copies out, shows, and copies in what may have changed.
#include "model/host_observer.h"

#include <algorithm>

#include "kernels/gpu/runtime.h"
#include "kernels/host_copy.h"

namespace moraine {

Tensor HostObserver::fetch(const Tensor& there) {
  bytes_.resize(std::max(bytes_.size(), static_cast<size_t>(there.bytes())));
  Tensor host = there;
  host.data = bytes_.data();
  copy_out(*ctx_, host, there);
  return host;
}

// Bounds of experts' rows are counted on the GPU, others are the host's.
void HostObserver::reads(int64_t layer, ServedMatrix matrix, const Tensor& x,
                         std::span<const int64_t> rows) {
  if (!to_.looks_at_inputs()) return;
  rows_.resize(rows.size());
  if (ctx_->gpu->holds(rows.data())) {
    ctx_->gpu->copy_out(rows_.data(), rows.data(), static_cast<int64_t>(rows.size_bytes()));
  } else {
    rows_.assign(rows.begin(), rows.end());
  }
  to_.reads(layer, matrix, fetch(x), rows_);
}

void HostObserver::chooses(int64_t layer, const Tensor& expert) {
  to_.chooses(layer, fetch(expert));
}

void HostObserver::route(int64_t layer, const Tensor& expert) {
  if (!to_.changes_routes()) return;
  const Tensor host = fetch(expert);
  to_.route(layer, host);
  copy_in(*ctx_, expert, host);
}

}  // namespace moraine
