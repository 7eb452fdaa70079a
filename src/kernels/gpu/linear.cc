// Linear, host side.
#include "kernels/linear.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/ceil_div.h"
#include "kernels/gpu/linear.h"
#include "kernels/gpu/linear_quantised.h"
#include "kernels/gpu/runtime.h"
#include "kernels/quantised.h"

namespace moraine::gpu {
namespace {

// How many rows every group has, of bounds in the host's memory; -1: not all have as many.
int64_t equal_rows(std::span<const int64_t> rows) {
  for (size_t g = 1; g < rows.size(); ++g) {
    if (rows[g] - rows[g - 1] != rows[1] - rows[0]) return -1;
  }
  return rows[1] - rows[0];
}

static_assert(kQuantisedInputs == kQuantisedBlock && kQuantisedColumns == kPackPanel);
static_assert(gpu::kQuantisedRun == moraine::kQuantisedRun);

// By the pack's format, and of rows in f32, of bf16 with outputs of f32, of bf16.
constexpr const char* kKernels[4][3] = {
    {"linear_f32", "", ""},
    {"linear_q8_f32", "linear_q8_bf16_to_f32", "linear_q8_bf16"},
    {"linear_q6_f32", "linear_q6_bf16_to_f32", "linear_q6_bf16"},
    {"linear_q4_f32", "linear_q4_bf16_to_f32", "linear_q4_bf16"}};
// By ProductSize, and of outputs of f32, of bf16.
constexpr const char* kTileKernels[3][2] = {{"linear_bf16_to_f32_narrow", "linear_bf16_narrow"},
                                            {"linear_bf16_to_f32", "linear_bf16"},
                                            {"linear_bf16_to_f32_large", "linear_bf16_large"}};

struct LinearLaunch {
  const char* kernel;
  int rows, outputs, threads;  // of a block
};

LinearLaunch linear_launch(Gpu& gpu, const GroupedLinearForward& a, ProductSize size) {
  const bool narrow_x = a.x.dtype == DType::kBF16, narrow_y = a.y.dtype == DType::kBF16;
  if (narrow_x && a.w.format == WeightFormat::kPlain) {
    const ProductShape s = product_shape(size);
    return {kTileKernels[static_cast<int>(size)][narrow_y ? 1 : 0], s.rows, s.columns,
            s.waves() * gpu.wave()};
  }
  return {kKernels[static_cast<int>(a.w.format)][narrow_x ? 1 + static_cast<int>(narrow_y) : 0],
          kLinearRows, kLinearOutputs,
          a.w.format == WeightFormat::kPlain ? kLinearThreadsF32 : kQuantisedThreads};
}

}  // namespace

void pack_matrix(Gpu& gpu, const PackMatrix& a) {
  const PackedMatrix& p = a.packed;
  if (p.groups * p.n * p.k == 0) return;
  MR_CHECK(p.format == WeightFormat::kPlain, "the CPU makes quantised packs");
  const PackArgs args = {
      .packed = p.data, .w = a.w.as<float>(), .groups = p.groups, .n = p.n, .k = p.k};
  const bool narrow = p.dtype == DType::kBF16;
  if (a.transpose) {
    gpu.launch(narrow ? "pack_transposed_bf16" : "pack_transposed_f32",
               {.blocks_x = ceil_div(p.n, kPackSquare) * ceil_div(p.k, kPackSquare),
                .blocks_y = p.groups,
                .threads = kPackThreads},
               &args);
  } else {
    gpu.launch(narrow ? "pack_bf16" : "pack_f32",
               {.blocks_x = ceil_div(p.groups * p.n * p.k, kPackThreads),
                .blocks_y = 1,
                .threads = kPackThreads},
               &args);
  }
}

void grouped_linear_forward(Gpu& gpu, const GroupedLinearForward& a) {
  if (a.x.dims[0] == 0 || a.w.n == 0) return;
  grouped_linear_forward(gpu, a, product_size(a.w.groups, a.x.dims[0], a.w.n));
}

void grouped_linear_forward(Gpu& gpu, const GroupedLinearForward& a, ProductSize size) {
  const int64_t T = a.x.dims[0], groups = a.w.groups;
  const bool there = gpu.holds(a.rows.data());
  const int64_t equal = there ? -1 : equal_rows(a.rows);
  const void* rows = there ? a.rows.data() : nullptr;
  if (!there && equal < 0)
    rows = gpu.list(a.rows.data(), static_cast<int64_t>(a.rows.size_bytes()));
  const LinearArgs args = {.y = a.y.data,
                           .x = a.x.data,
                           .w = a.w.data,
                           .bias = static_cast<const float*>(a.bias.data),
                           .rows = static_cast<const int64_t*>(rows),
                           .group_rows = equal,
                           .groups = groups,
                           .n = a.w.n,
                           .k = a.w.k};
  const LinearLaunch l = linear_launch(gpu, a, size);
  // A group ends in a tile of its own.
  const int64_t row_tiles = ceil_div(T, l.rows) + std::min(groups, T) - 1;
  gpu.launch(l.kernel,
             {.blocks_x = ceil_div(a.w.n, l.outputs), .blocks_y = row_tiles, .threads = l.threads},
             &args);
}

void linear_forward(Gpu& gpu, const LinearForward& a) {
  const int64_t rows[2] = {0, a.x.dims[0]};
  grouped_linear_forward(gpu, {.y = a.y, .x = a.x, .w = a.w, .bias = a.bias, .rows = rows});
}

void grouped_linear_backward_input(Gpu& gpu, const GroupedLinearBackwardInput& a) {
  grouped_linear_forward(gpu, {.y = a.dx, .x = a.dy, .w = a.w, .bias = {}, .rows = a.rows});
}

void linear_backward_input(Gpu& gpu, const LinearBackwardInput& a) {
  linear_forward(gpu, {.y = a.dx, .x = a.dy, .w = a.w, .bias = {}});
}

}  // namespace moraine::gpu
