// VendorMatmul over a library that plays both vendors', on emulated GPUs: fails if the product is another one
// (operands, leading dimensions, what is transposed, the vendor's numbers), if something does not go back to the
// library, or if what it says, or lacks, is not named; and where a vendor's header is, if a prototype or a number of
// ours is not the header's.
#include "kernels/gpu/vendor_matmul.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/read_beginning.h"
#include "base/test_folder.h"
#include "kernels/gpu/runtime.h"
#include "kernels/gpu/test_same_call.h"
#include "testing/places.h"
#include "testing/rig.h"

// By name alone: they include others of their folder, which CPATH may name.
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#elif __has_include(<hipblaslt/hipblaslt.h>)
#ifndef __HIP_PLATFORM_AMD__
#define __HIP_PLATFORM_AMD__
#endif
#include <hipblaslt/hipblaslt.h>
#endif

namespace moraine::gpu {
namespace {

using testing::matmul_stand_in;
using testing::Rig;

// A function of the stand-in.
template <class F>
F* from_stand_in(const char* name) {
  void* const library = dlopen(matmul_stand_in().c_str(), RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<F*>(dlsym(library, name));
}
void fail_at(const char* entry) { from_stand_in<void(const char*)>("matmul_fail")(entry); }
int alive() { return from_stand_in<int()>("matmul_alive")(); }

struct Played {
  MatmulVendor vendor;
  Emulation emulation;
};
const Played kPlayed[] = {{kCublasLt, {.wave = 32, .rule = MatrixRule::kSm90}},
                          {kHipblasLt, {.wave = 64, .rule = MatrixRule::kCdna3}}};

// Three extents that differ; whole numbers, whose sums bf16 has exactly.
struct Whole {
  static constexpr int64_t T = 5, n = 7, k = 3;
  Whole() {
    for (int64_t i = 0; i < T * k; ++i) x.as<BF16>()[i] = to_bf16(static_cast<float>(i % 5 - 2));
    for (int64_t i = 0; i < n * k; ++i) w.as<BF16>()[i] = to_bf16(static_cast<float>(i % 7 - 3));
    for (int64_t t = 0; t < T; ++t)
      for (int64_t j = 0; j < n; ++j) {
        float sum = 0;
        for (int64_t l = 0; l < k; ++l)
          sum += to_float(x.as<BF16>()[t * k + l]) * to_float(w.as<BF16>()[j * k + l]);
        y.as<BF16>()[t * n + j] = to_bf16(sum);
      }
  }
  Rig rig;
  Tensor x = rig.zeros({T, k}, DType::kBF16), w = rig.zeros({n, k}, DType::kBF16),
         y = rig.zeros({T, n}, DType::kBF16);
};

// The same by the library, in memory of whole.rig.
Tensor by_library(const Played& played, Whole& whole) {
  const std::unique_ptr<Gpu> gpu = emulate_gpu(played.emulation);
  // With room behind them: what is read too far is a wrong result, and no fault.
  const GpuMemory x(*gpu, 4096), w(*gpu, 4096), y(*gpu, 4096);
  gpu->copy_in(x.data(), whole.x.data, whole.x.bytes());
  gpu->copy_in(w.data(), whole.w.data, whole.w.bytes());
  const Tensor got = whole.rig.zeros({Whole::T, Whole::n}, DType::kBF16);
  VendorMatmul product(load_matmul_library(played.vendor, matmul_stand_in()), *gpu,
                       {.y = make_tensor(y.data(), DType::kBF16, {Whole::T, Whole::n}),
                        .x = make_tensor(x.data(), DType::kBF16, {Whole::T, Whole::k}),
                        .w = make_tensor(w.data(), DType::kBF16, {Whole::n, Whole::k})});
  product.run();
  gpu->copy_out(got.data, y.data(), got.bytes());
  return got;
}

std::string error_of(const std::function<void()>& f, Code code) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "";
}

TEST(VendorMatmul, IsTheProductOfRowMajorOperandsAndGivesAllBack) {
  Whole whole;
  for (const Played& played : kPlayed) {
    SCOPED_TRACE(played.vendor.prefix);
    EXPECT_SAME_BITS(by_library(played, whole), whole.y);
    EXPECT_EQ(alive(), 0);
  }
}

TEST(VendorMatmul, WhatTheLibrarySaysIsNamed) {
  Whole whole;
  const std::pair<const char*, const char*> cases[] = {
      {"Create", "cublasLtCreate returned 7; wanted 0"},
      {"Matmul", "cublasLtMatmul returned 7; wanted 0"},
      {"no algorithm", "cublasLtMatmulAlgoGetHeuristic found no algorithm; wanted one"}};
  for (const auto& [entry, says] : cases) {
    fail_at(entry);
    const std::string error = error_of([&] { by_library(kPlayed[0], whole); }, Code::kDevice);
    EXPECT_NE(error.find(says), std::string::npos) << error;
    EXPECT_EQ(alive(), 0);
  }
  fail_at("");
}

TEST(VendorMatmul, ALibraryThatIsNotThereOrLacksAnEntryIsNamed) {
  const auto error = [](const std::string& file) {
    return error_of([&] { load_matmul_library(kHipblasLt, file); }, Code::kNotFound);
  };
  EXPECT_NE(error("no/such.so").find("load hipblasLt: no/such.so: "), std::string::npos);
  EXPECT_EQ(error("libc.so.6"), "load libc.so.6: it has no hipblasLtCreate");
  const testing::TestFolder folder;
  folder.write("cut.so", read_beginning(matmul_stand_in(), 5000));
  const std::string cut = error(folder.file("cut.so"));
  EXPECT_NE(cut.find(folder.file("cut.so") + ": the file is cut: it has 5000 bytes"),
            std::string::npos)
      << cut;
  unsetenv("MORAINE_MATMUL_LIBRARY");
  const std::unique_ptr<Gpu> gpu = emulate_gpu({});
  EXPECT_EQ(error_of([&] { load_matmul_library_of(*gpu); }, Code::kNotFound),
            "an emulated GPU has no library");
}

// What both headers call alike. P, U: how functions and numbers begin.
#define MR_SAME_ENTRY(ours, theirs) \
  static_assert(SameCall<decltype(MatmulLibrary::ours), decltype(&theirs)>::value, #theirs)
#define MR_SAME_LIBRARY(P, U, VENDOR)                                      \
  MR_SAME_ENTRY(open, P##Create);                                          \
  MR_SAME_ENTRY(close, P##Destroy);                                        \
  MR_SAME_ENTRY(make_operation, P##MatmulDescCreate);                      \
  MR_SAME_ENTRY(drop_operation, P##MatmulDescDestroy);                     \
  MR_SAME_ENTRY(set_operation, P##MatmulDescSetAttribute);                 \
  MR_SAME_ENTRY(make_layout, P##MatrixLayoutCreate);                       \
  MR_SAME_ENTRY(drop_layout, P##MatrixLayoutDestroy);                      \
  MR_SAME_ENTRY(make_preference, P##MatmulPreferenceCreate);               \
  MR_SAME_ENTRY(drop_preference, P##MatmulPreferenceDestroy);              \
  MR_SAME_ENTRY(set_preference, P##MatmulPreferenceSetAttribute);          \
  MR_SAME_ENTRY(choose, P##MatmulAlgoGetHeuristic);                        \
  MR_SAME_ENTRY(multiply, P##Matmul);                                      \
  static_assert(VENDOR.transpose_a == U##LT_MATMUL_DESC_TRANSA);           \
  static_assert(VENDOR.transposed == U##_OP_T);                            \
  static_assert(VENDOR.sums_f32 == U##_COMPUTE_32F);                       \
  static_assert(offsetof(P##MatmulHeuristicResult_t, algo) == 0);          \
  static_assert(sizeof(P##MatmulHeuristicResult_t) <= kMatmulResultBytes); \
  static_assert(kMatmulMostWorkspace == U##LT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
#if defined(CUBLAS_VER_MAJOR)
MR_SAME_LIBRARY(cublasLt, CUBLAS, kCublasLt);
static_assert(kMatmulF32 == CUDA_R_32F && kMatmulBf16 == CUDA_R_16BF);
#elif defined(__HIP_PLATFORM_AMD__)
MR_SAME_LIBRARY(hipblasLt, HIPBLAS, kHipblasLt);
static_assert(kMatmulF32 == HIP_R_32F && kMatmulBf16 == HIP_R_16BF);
#endif

}  // namespace
}  // namespace moraine::gpu
