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
    {"linear_f32", "linear_bf16_to_f32", "linear_bf16"},
    {"linear_q8_f32", "linear_q8_bf16_to_f32", "linear_q8_bf16"},
    {"linear_q6_f32", "linear_q6_bf16_to_f32", "linear_q6_bf16"},
    {"linear_q4_f32", "linear_q4_bf16_to_f32", "linear_q4_bf16"}};

const char* kernel_of(const GroupedLinearForward& a) {
  const bool narrow = a.x.dtype == DType::kBF16;
  return kKernels[static_cast<int>(a.w.format)]
                 [narrow ? 1 + static_cast<int>(a.y.dtype == DType::kBF16) : 0];
}

int threads_of(const GroupedLinearForward& a, int wave) {
  if (a.w.format != WeightFormat::kPlain) return kQuantisedThreads;
  return a.x.dtype == DType::kBF16 ? kLinearWaves * wave : kLinearThreadsF32;
}

}  // namespace

void pack_matrix(Gpu& gpu, const PackMatrix& a) {
  const PackedMatrix& p = a.packed;
  const int64_t count = p.groups * p.n * p.k;
  if (count == 0) return;
  MR_CHECK(p.format == WeightFormat::kPlain, "the CPU makes quantised packs");
  const PackArgs args = {.packed = p.data,
                         .w = a.w.as<float>(),
                         .groups = p.groups,
                         .n = p.n,
                         .k = p.k,
                         .transpose = a.transpose};
  gpu.launch(p.dtype == DType::kBF16 ? "pack_bf16" : "pack_f32",
             {.blocks_x = ceil_div(count, kPackThreads), .blocks_y = 1, .threads = kPackThreads},
             &args);
}

void grouped_linear_forward(Gpu& gpu, const GroupedLinearForward& a) {
  const int64_t T = a.x.dims[0], groups = a.w.groups;
  if (T == 0 || a.w.n == 0) return;
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
  // A group ends in a tile of its own.
  const int64_t row_tiles = ceil_div(T, kLinearRows) + std::min(groups, T) - 1;
  gpu.launch(kernel_of(a),
             {.blocks_x = ceil_div(a.w.n, kLinearOutputs),
              .blocks_y = row_tiles,
              .threads = threads_of(a, gpu.wave())},
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
