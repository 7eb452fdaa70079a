// DriverTable: the entries of a vendor's driver that we call, with prototypes of our own.
//
//   entry             NVIDIA, libcuda.so.1         AMD, libamdhip64.so
//   init              cuInit                       hipInit
//   device_count      cuDeviceGetCount             hipGetDeviceCount
//   device            cuDeviceGet                  hipDeviceGet
//   device_name       cuDeviceGetName              hipDeviceGetName
//   device_attribute  cuDeviceGetAttribute         hipDeviceGetAttribute
//   retain_context    cuDevicePrimaryCtxRetain     hipDevicePrimaryCtxRetain
//   use_context       cuCtxSetCurrent              hipCtxSetCurrent
//   load_module       cuModuleLoadData             hipModuleLoadData
//   find_function     cuModuleGetFunction          hipModuleGetFunction
//   launch            cuLaunchKernel               hipModuleLaunchKernel
//   memory_info       cuMemGetInfo_v2              hipMemGetInfo
//   take              cuMemAlloc_v2                hipMalloc
//   give_back         cuMemFree_v2                 hipFree
//   take_pinned       cuMemHostAlloc               hipHostMalloc
//   give_back_pinned  cuMemFreeHost                hipHostFree
//   copy_in           cuMemcpyHtoDAsync_v2         hipMemcpyHtoDAsync
//   copy_out          cuMemcpyDtoHAsync_v2         hipMemcpyDtoHAsync
//   make_stream       cuStreamCreate               hipStreamCreateWithFlags
//   wait_stream       cuStreamSynchronize          hipStreamSynchronize
//   make_event        cuEventCreate                hipEventCreateWithFlags
//   record_event      cuEventRecord                hipEventRecord
//   wait_event        cuEventSynchronize           hipEventSynchronize
//   event_ms          cuEventElapsedTime           hipEventElapsedTime
//   error_name        cuGetErrorName               hipDrvGetErrorName
//
// Handles are pointers in both; CUdeviceptr is an integer of their size, which every ABI we build for passes alike.
// 0 is success in both. Nothing of a vendor is needed to build or to start.
//
// Errors:   none is thrown: what the loader said of the library, or which entry it lacks.
// Source:   cuda.h of 13.0 (runtime_test.cc compares, where that header is), hip_runtime_api.h of 5.2.3.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace moraine::gpu {

struct DriverTable {
  int (*init)(unsigned flags);
  int (*device_count)(int* count);
  int (*device)(int* device, int index);
  int (*device_name)(char* name, int bytes, int device);
  int (*device_attribute)(int* value, int attribute,
                          int device);  // numbers of attributes are a vendor's own
  int (*retain_context)(void** context, int device);
  int (*use_context)(void* context);
  int (*load_module)(void** module, const void* image);
  int (*find_function)(void** function, void* module, const char* name);
  int (*launch)(void* function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
                void* stream, void** arguments, void** extra);
  int (*memory_info)(size_t* free, size_t* all);
  int (*take)(void** memory, size_t bytes);
  int (*give_back)(void* memory);
  int (*take_pinned)(void** memory, size_t bytes, unsigned flags);
  int (*give_back_pinned)(void* memory);
  int (*copy_in)(void* device, const void* host, size_t bytes, void* stream);
  int (*copy_out)(void* host, const void* device, size_t bytes, void* stream);
  int (*make_stream)(void** stream, unsigned flags);
  int (*wait_stream)(void* stream);
  int (*make_event)(void** event, unsigned flags);
  int (*record_event)(void* event, void* stream);
  int (*wait_event)(void* event);
  int (*event_ms)(float* ms, void* begin, void* end);
  int (*error_name)(int error, const char** name);
};

struct DriverVendor {
  const char* name;     // "NVIDIA"
  const char* library;  // "libcuda.so.1"
  bool second;          // its column in the table of names
};
constexpr DriverVendor kNvidiaDriver = {"NVIDIA", "libcuda.so.1", false};
constexpr DriverVendor kAmdDriver = {"AMD", "libamdhip64.so", true};

// Opens the library for the rest of the process and fills the table; nothing, and `why`, where there is none.
std::optional<DriverTable> load_driver(const DriverVendor& vendor, std::string& why);

}  // namespace moraine::gpu
