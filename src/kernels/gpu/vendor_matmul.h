// VendorMatmul: a product by the vendor's own library, cuBLASLt or hipBLASLt, to be measured beside ours.
//
//   y[t,n] = sum_k x[t,k] w[n,k], bf16 and row-major, sums in f32
//
// Only `moraine bench gpu` uses it: no product of a model does. These libraries see a matrix column by column, so what
// is [T, n] here is n by T there, without a copy, and they are asked for
//
//   D (n by T, columns n apart) = A^T B, A = w (k by n, columns k apart), B = x (k by T, columns k apart)
//
//   entry             both libraries, behind cublasLt or hipblasLt
//   open              Create
//   close             Destroy
//   make_operation    MatmulDescCreate
//   drop_operation    MatmulDescDestroy
//   set_operation     MatmulDescSetAttribute
//   make_layout       MatrixLayoutCreate
//   drop_layout       MatrixLayoutDestroy
//   make_preference   MatmulPreferenceCreate
//   drop_preference   MatmulPreferenceDestroy
//   set_preference    MatmulPreferenceSetAttribute
//   choose            MatmulAlgoGetHeuristic
//   multiply          Matmul
//
// The algorithm is the library's first choice, with kMatmulWorkspace bytes of the device's memory, for operands that
// begin at multiples of 256 bytes, as what a driver gives does. 0 is success. Nothing of it is needed to build or to
// start.
//
// Errors:   kNotFound: what the loader said, or which entry is missing. kDevice: an entry, and the number it returned.
// Threads:  that of the device's work, whose stream the library is given.
// Source:   vendor_matmul_test.cc compares both vendors' headers, where they are; which: docs/gpu.md.
// State:    on an emulated GPU with a library that plays both; never called with a device behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tensor/tensor.h"

namespace moraine::gpu {

class Gpu;

// What differs between the two: the numbers of what we name.
struct MatmulVendor {
  const char* prefix;    // of the entries
  const char* files[3];  // in the order in which they are tried
  int sums_f32;          // a type of computation
  int transpose_a;       // an attribute of an operation
  int transposed;        // its value
};
constexpr MatmulVendor kCublasLt = {
    .prefix = "cublasLt",
    .files = {"libcublasLt.so.13", "libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so"},
    .sums_f32 = 68,
    .transpose_a = 3,
    .transposed = 1};
constexpr MatmulVendor kHipblasLt = {
    .prefix = "hipblasLt",
    .files = {"libhipblaslt.so.1", "libhipblaslt.so.0", "/opt/rocm/lib/libhipblaslt.so"},
    .sums_f32 = 2,
    .transpose_a = 0,
    .transposed = 112};

// Of both.
constexpr int kMatmulF32 = 0, kMatmulBf16 = 14;  // types of elements
constexpr int kMatmulMostWorkspace = 1;          // an attribute of a preference
constexpr uint64_t kMatmulWorkspace = uint64_t{32} << 20;
constexpr size_t kMatmulResultBytes = 512;  // far above both; it begins with the algorithm

struct MatmulLibrary {
  MatmulVendor vendor;
  std::string file;
  int (*open)(void** handle);
  int (*close)(void* handle);
  int (*make_operation)(void** operation, int computation, int scale_type);
  int (*drop_operation)(void* operation);
  int (*set_operation)(void* operation, int attribute, const void* value, size_t bytes);
  int (*make_layout)(void** layout, int type, uint64_t rows, uint64_t columns, int64_t leading);
  int (*drop_layout)(void* layout);
  int (*make_preference)(void** preference);
  int (*drop_preference)(void* preference);
  int (*set_preference)(void* preference, int attribute, const void* value, size_t bytes);
  int (*choose)(void* handle, void* operation, void* a, void* b, void* c, void* d, void* preference,
                int most, void* results, int* count);
  int (*multiply)(void* handle, void* operation, const void* alpha, const void* a, void* a_layout,
                  const void* b, void* b_layout, const void* beta, const void* c, void* c_layout,
                  void* d, void* d_layout, const void* algorithm, void* workspace, size_t bytes,
                  void* stream);
};

// Opens it for the rest of the process: `file`, or the first of the vendor's own that is there.
MatmulLibrary load_matmul_library(const MatmulVendor& vendor, const std::string& file = "");
// That of a device, which MORAINE_MATMUL_LIBRARY may name; an emulated one has no other.
MatmulLibrary load_matmul_library_of(Gpu& gpu);

// In the memory of the device, and the caller's.
struct VendorProduct {
  Tensor y;  // [T, n] out, bf16
  Tensor x;  // [T, k] bf16
  Tensor w;  // [n, k] bf16
};

class VendorMatmul {
 public:
  // Describes the product and lets the library choose; `gpu` outlives it.
  VendorMatmul(const MatmulLibrary& library, Gpu& gpu, const VendorProduct& product);
  ~VendorMatmul();
  VendorMatmul(const VendorMatmul&) = delete;
  VendorMatmul& operator=(const VendorMatmul&) = delete;

  void run();  // into the device's order of work

 private:
  struct Prepared;
  const std::unique_ptr<Prepared> prepared_;
};

}  // namespace moraine::gpu
