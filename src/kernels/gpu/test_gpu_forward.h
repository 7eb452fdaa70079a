// ExpectForward: one operation on every emulated GPU, against the reference and against itself.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <vector>

#include "kernels/gpu/test_gpu_rig.h"
#include "testing/rig.h"

namespace moraine::gpu {

// A tensor of an operation's arguments.
struct GpuField {
  Tensor* tensor;
  const char* name;  // of an output; null: it is read
};

// Integers have to be the same.
inline void expect_near(const Tensor& got, const Tensor& want, int64_t terms, const char* name) {
  const bool is_float = got.dtype == DType::kF32 || got.dtype == DType::kBF16;
  if (is_float || got.dtype == DType::kF64) {
    testing::expect_close(got, want, testing::tolerance(is_float ? got.dtype : DType::kF32, terms),
                          name);
  } else {
    testing::expect_same_bits(got, want, name);
  }
}

// `fields(args)` lists every tensor of `args`, `on(gpu, args)` or `on(ctx, args)` runs the operation, `reference(args)`
// its formula.
template <class Fields, class On, class Reference>
struct GpuOperation {
  Fields fields;
  On on;
  Reference reference;
  int64_t terms;  // of the longest sum behind any output
};
template <class Fields, class On, class Reference>
GpuOperation(Fields, On, Reference, int64_t) -> GpuOperation<Fields, On, Reference>;

// Outputs hold `args`' numbers before. Returns them, on the host.
template <class Args, class Operation>
Args expect_forward(testing::Rig& host, const Args& args, const Operation& op) {
  Args want = args, first = args;
  for (const GpuField& f : op.fields(want)) {
    if (f.name != nullptr && !f.tensor->empty()) *f.tensor = host.copy(*f.tensor);
  }
  op.reference(want);
  bool is_first = true;
  for (const Emulation& e : all_emulations()) {
    SCOPED_TRACE(emulation_text(e));
    GpuRig rig(e);
    Args got = args;
    for (const GpuField& f : op.fields(got)) *f.tensor = rig.put(*f.tensor);
    if constexpr (std::is_invocable_v<decltype(op.on), Context&, const Args&>) {
      op.on(rig.ctx, got);
    } else {
      op.on(*rig.gpu, got);
    }
    const std::vector<GpuField> g = op.fields(got), w = op.fields(want), one = op.fields(first);
    for (size_t i = 0; i < g.size(); ++i) {
      if (g[i].name == nullptr || g[i].tensor->empty()) continue;
      const Tensor out = rig.get(host, *g[i].tensor);
      if (is_first) {
        expect_near(out, *w[i].tensor, op.terms, g[i].name);
        *one[i].tensor = out;
      } else {
        testing::expect_same_bits(out, *one[i].tensor, g[i].name);
      }
    }
    is_first = false;
  }
  return first;
}

}  // namespace moraine::gpu
