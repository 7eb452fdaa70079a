// Opens a vendor's driver and looks its entries up.
#include "kernels/gpu/driver_table.h"

#include <dlfcn.h>

#include "base/error.h"
#include "base/shared_library.h"

namespace moraine::gpu {
namespace {

// One entry of the table: where it goes, and its name in both columns.
struct DriverEntry {
  void (*set)(DriverTable& table, void* entry);
  const char* names[2];
};

template <auto Member>
void set(DriverTable& table, void* entry) {
  table.*Member = reinterpret_cast<std::remove_reference_t<decltype(table.*Member)>>(entry);
}

constexpr DriverEntry kEntries[] = {
    {set<&DriverTable::init>, {"cuInit", "hipInit"}},
    {set<&DriverTable::device_count>, {"cuDeviceGetCount", "hipGetDeviceCount"}},
    {set<&DriverTable::device>, {"cuDeviceGet", "hipDeviceGet"}},
    {set<&DriverTable::device_name>, {"cuDeviceGetName", "hipDeviceGetName"}},
    {set<&DriverTable::device_attribute>, {"cuDeviceGetAttribute", "hipDeviceGetAttribute"}},
    {set<&DriverTable::retain_context>, {"cuDevicePrimaryCtxRetain", "hipDevicePrimaryCtxRetain"}},
    {set<&DriverTable::use_context>, {"cuCtxSetCurrent", "hipCtxSetCurrent"}},
    {set<&DriverTable::load_module>, {"cuModuleLoadData", "hipModuleLoadData"}},
    {set<&DriverTable::find_function>, {"cuModuleGetFunction", "hipModuleGetFunction"}},
    {set<&DriverTable::launch>, {"cuLaunchKernel", "hipModuleLaunchKernel"}},
    {set<&DriverTable::memory_info>, {"cuMemGetInfo_v2", "hipMemGetInfo"}},
    {set<&DriverTable::take>, {"cuMemAlloc_v2", "hipMalloc"}},
    {set<&DriverTable::give_back>, {"cuMemFree_v2", "hipFree"}},
    {set<&DriverTable::take_pinned>, {"cuMemHostAlloc", "hipHostMalloc"}},
    {set<&DriverTable::give_back_pinned>, {"cuMemFreeHost", "hipHostFree"}},
    {set<&DriverTable::copy_in>, {"cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync"}},
    {set<&DriverTable::copy_out>, {"cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync"}},
    {set<&DriverTable::make_stream>, {"cuStreamCreate", "hipStreamCreateWithFlags"}},
    {set<&DriverTable::wait_stream>, {"cuStreamSynchronize", "hipStreamSynchronize"}},
    {set<&DriverTable::make_event>, {"cuEventCreate", "hipEventCreateWithFlags"}},
    {set<&DriverTable::record_event>, {"cuEventRecord", "hipEventRecord"}},
    {set<&DriverTable::wait_event>, {"cuEventSynchronize", "hipEventSynchronize"}},
    {set<&DriverTable::event_ms>, {"cuEventElapsedTime", "hipEventElapsedTime"}},
    {set<&DriverTable::error_name>, {"cuGetErrorName", "hipDrvGetErrorName"}},
};
static_assert(std::size(kEntries) * sizeof(void*) == sizeof(DriverTable), "an entry is missing");

}  // namespace

std::optional<DriverTable> load_driver(const DriverVendor& vendor, std::string& why) {
  const OpenedLibrary library = open_library(vendor.library);
  if (library.handle == nullptr) {
    why = fmt::format("{}: {}: {}", vendor.name, vendor.library, library.why);
    return std::nullopt;
  }
  DriverTable table = {};
  for (const DriverEntry& entry : kEntries) {
    const char* const name = entry.names[vendor.second ? 1 : 0];
    void* const found = dlsym(library.handle, name);
    if (found == nullptr) {
      why = fmt::format("{}: {} has no {}", vendor.name, vendor.library, name);
      return std::nullopt;
    }
    entry.set(table, found);
  }
  return table;
}

}  // namespace moraine::gpu
