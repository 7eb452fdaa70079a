// GpuRig: an emulated GPU beside a Rig of the host: tensors go in, an operation runs, outputs come back.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/pool.h"
#include "kernels/context.h"
#include "kernels/gpu/runtime.h"
#include "kernels/gpu/test_emulations.h"
#include "testing/ptx/ptx_gpu.h"
#include "testing/rig.h"

namespace moraine::gpu {

// MORAINE_TEST_GPU=RULE (scripts/gpu_check.sh): the device of this machine, whose matrix units round so, in place of
// emulations of its generation and of the plain rule. ptx:sm_80 or ptx:sm_90 (scripts/ptx_check.sh): the compiled
// kernels, interpreted, each launch held against the emulation (testing/ptx/ptx_gpu.h).
inline const char* tested_device() { return std::getenv("MORAINE_TEST_GPU"); }
inline std::unique_ptr<Gpu> test_gpu(const Emulation& e) {
  std::string rule = tested_device() == nullptr ? "" : tested_device();
  const bool is_ptx = rule.substr(0, 4) == "ptx:";
  if (is_ptx) rule = rule.substr(4);
  if (rule.empty() || (e.rule != MatrixRule::kPlain && rule != matrix_rule_name(e.rule)))
    return emulate_gpu(e);
  return is_ptx ? testing::make_ptx_gpu({.target = rule}) : open_gpu();
}

class GpuRig {
 public:
  explicit GpuRig(const Emulation& emulation)
      : gpu(test_gpu(emulation)), ctx(make_context(*gpu, pool)) {}

  // A copy in the GPU's memory; empty stays empty.
  Tensor put(const Tensor& host) {
    Tensor t = host;
    if (host.empty() || host.bytes() == 0) return t;
    memory_.emplace_back(*gpu, host.data, host.bytes());
    t.data = memory_.back().data();
    return t;
  }
  // What is there now, in memory of `rig`.
  Tensor get(testing::Rig& rig, const Tensor& device) {
    const Tensor t = rig.zeros({device.count()}, device.dtype);
    Tensor shaped = device;
    shaped.data = t.data;
    if (device.bytes() > 0) gpu->copy_out(t.data, device.data, device.bytes());
    return shaped;
  }

  const std::unique_ptr<Gpu> gpu;
  Pool pool{1};
  Context ctx;

 private:
  std::deque<GpuMemory> memory_;
};

// `run(rig)` returns the output of a kernel; the same bits in all emulations of `emulations`.
template <class F>
void expect_one_result(const std::vector<Emulation>& emulations, const F& run) {
  testing::Rig host;
  Tensor first;
  for (const Emulation& e : emulations) {
    SCOPED_TRACE(emulation_text(e));
    GpuRig rig(e);
    const Tensor got = rig.get(host, run(rig));
    if (first.empty()) first = got;
    testing::expect_same_bits(got, first, "output");
  }
}

// A generation's three orders, on its own wave.
inline std::vector<Emulation> orders_of(MatrixRule rule) {
  std::vector<Emulation> some;
  const int wave = rule == MatrixRule::kCdna2 || rule == MatrixRule::kCdna3 ? 64 : 32;
  for (const Emulation& e : all_emulations(rule)) {
    if (e.wave == wave) some.push_back(e);
  }
  return some;
}

// Hashes of an output, by MatrixRule: one for each generation, no two the same.
using StatedHashes = std::array<const char*, std::size(kMatrixRules)>;

// `got` is on the host.
inline void expect_stated_hash(const Tensor& got, const StatedHashes& stated, MatrixRule rule) {
  if (tested_device() != nullptr && rule == MatrixRule::kPlain) return;  // it has its generation's
  EXPECT_EQ(hash_hex(hash_bytes(got.data, got.bytes())), stated[static_cast<size_t>(rule)])
      << matrix_rule_name(rule);
}

}  // namespace moraine::gpu
