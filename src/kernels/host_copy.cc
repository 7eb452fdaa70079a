// HostCopy: a memcpy, or the GPU's.
#include "kernels/host_copy.h"

#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/fault_point.h"
#include "kernels/gpu/runtime.h"

namespace moraine {
namespace {

void check_pair(const Tensor& a, const Tensor& b) {
  MR_CHECK(a.dtype == b.dtype && a.count() == b.count(), "%s %s and %s %s", dtype_name(a.dtype),
           shape_text(a).c_str(), dtype_name(b.dtype), shape_text(b).c_str());
}

}  // namespace

void copy_in(Context& ctx, const Tensor& there, const Tensor& host) {
  check_pair(there, host);
  if (host.bytes() == 0 || there.data == host.data) return;
  if (ctx.backend == Backend::kGpu) return ctx.gpu->copy_in(there.data, host.data, host.bytes());
  std::memcpy(there.data, host.data, static_cast<size_t>(host.bytes()));
}

void copy_out(Context& ctx, const Tensor& host, const Tensor& there) {
  check_pair(there, host);
  if (host.bytes() == 0 || there.data == host.data) return;
  if (ctx.backend == Backend::kGpu) return ctx.gpu->copy_out(host.data, there.data, host.bytes());
  std::memcpy(host.data, there.data, static_cast<size_t>(host.bytes()));
}

void fault_tensor(Context& ctx, const char* name, const Tensor& there) {
  if (!fault_bytes_is_set.load(std::memory_order_relaxed)) return;
  if (ctx.backend != Backend::kGpu)
    return call_fault_bytes(
        name, {static_cast<std::byte*>(there.data), static_cast<size_t>(there.bytes())});
  std::vector<std::byte> host(static_cast<size_t>(there.bytes()));
  ctx.gpu->copy_out(host.data(), there.data, there.bytes());
  call_fault_bytes(name, host);
  ctx.gpu->copy_in(there.data, host.data(), there.bytes());
}

}  // namespace moraine
