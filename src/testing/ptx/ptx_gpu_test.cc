// A compiled kernel, interpreted, against the emulation: fails if a bit of it differs, or if a fault that was put into
// its PTX goes unseen. Skipped where clang 19 is missing.
//
// One kernel: all of them run so by scripts/ptx_check.sh, a selection by the test check.ptx.
#include "testing/ptx/ptx_gpu.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error.h"
#include "kernels/gpu/linear.h"
#include "kernels/linear.h"
#include "testing/rig.h"

namespace moraine::testing {
namespace {

constexpr int64_t kRows = 34, kOutputs = 20;

struct ProductCase {
  DType dtype = DType::kBF16;
  int64_t depth = 40;  // of bf16 operands of a multiple of 8 are read in chunks, others by elements
};

// A product by PTX that `edit` has changed; what was said of it.
std::string error_of(const std::string& target,
                     const std::function<std::string(const std::string&)>& edit,
                     const ProductCase& c = {}) {
  const std::unique_ptr<gpu::Gpu> device = make_ptx_gpu({.target = target, .edit = edit});
  Rig rig;
  const Tensor x = rig.normal({kRows, c.depth}, c.dtype, 1),
               w = rig.normal({kOutputs, c.depth}, c.dtype, 2);
  const gpu::GpuMemory x_there(*device, x.data, x.bytes()), w_there(*device, w.data, w.bytes()),
      y_there(*device, kRows * kOutputs * 4);
  try {
    gpu::linear_forward(
        *device,
        {.y = make_tensor(y_there.data(), DType::kF32, {kRows, kOutputs}),
         .x = make_tensor(x_there.data(), c.dtype, {kRows, c.depth}),
         .w = {.data = w_there.data(), .dtype = c.dtype, .groups = 1, .n = kOutputs, .k = c.depth},
         .bias = {}});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The text with `from` of every kernel replaced.
std::function<std::string(const std::string&)> replaced(const std::string& from,
                                                        const std::string& to) {
  return [=](const std::string& text) {
    std::string out;
    size_t at = 0, next = 0;
    while ((next = text.find(from, at)) != std::string::npos) {
      out += text.substr(at, next - at) + to;
      at = next + from.size();
    }
    EXPECT_GT(at, 0u) << "no " << from << " in the PTX";
    return out + text.substr(at);
  };
}

// Of linear_f32 every second barrier goes, from the first or from the second on.
std::function<std::string(const std::string&)> without_barriers(int from) {
  return [from](std::string text) {
    const std::string barrier = "bar.sync 0;";
    int count = 0;
    size_t at = text.find(".entry linear_f32(");
    EXPECT_NE(at, std::string::npos);
    for (; (at = text.find(barrier, at)) != std::string::npos; ++at)
      if (count++ % 2 == from) text.replace(at, barrier.size(), "");
    return text;
  };
}

// The second and the third register of a's fragment change places: rows 8 to 15 and columns 8 to 15.
std::string exchanged_registers(const std::string& text) {
  std::string out = text;
  size_t at = 0;
  while ((at = out.find("mma.sync.", at)) != std::string::npos) {
    const size_t a = out.find("}, {", at) + 4, first = out.find(", ", a) + 2,
                 second = out.find(", ", first) + 2, end = out.find(", ", second);
    const std::string one = out.substr(first, second - 2 - first),
                      other = out.substr(second, end - second);
    out.replace(first, end - first, other + ", " + one);
    at = end;
  }
  return out;
}

TEST(PtxGpu, TheCompiledProductHasTheBitsOfItsEmulationAndFaultsInItAreSeen) {
  if (!can_compile_ptx()) GTEST_SKIP() << kNoPtxCompiler;
  const auto same = [](const std::string& text) { return text; };
  EXPECT_EQ(error_of("sm_80", same), "");
  EXPECT_EQ(error_of("sm_90", same), "");
  const std::string layout = error_of("sm_80", exchanged_registers);
  EXPECT_NE(layout.find("linear_bf16_to_f32 for sm_80: 680 of 680 elements differ"),
            std::string::npos)
      << layout;
  // In f32 a barrier before operands are read, one before they are written anew.
  const ProductCase f32 = {.dtype = DType::kF32};
  const std::string before = error_of("sm_80", without_barriers(0), f32),
                    after = error_of("sm_80", without_barriers(1), f32);
  EXPECT_NE(before.find("was never written"), std::string::npos) << before;
  EXPECT_NE(after.find("race on byte"), std::string::npos) << after;
  const std::string narrow =
      error_of("sm_80", replaced("ld.global.u16 \t%rs", "ld.global.s8 \t%rs"), {.depth = 41});
  EXPECT_NE(narrow.find("elements differ"), std::string::npos) << narrow;
  // In bf16 chunks are there for others behind the wait of who copied them and a barrier.
  const std::string barrier = error_of("sm_80", replaced("bar.sync 0;", "")),
                    wait = error_of("sm_80", replaced("wait_group 1;", "wait_group 2;")),
                    transposed =
                        error_of("sm_80", replaced("m8n8.x4.shared", "m8n8.x4.trans.shared"));
  EXPECT_NE(barrier.find("was never written"), std::string::npos) << barrier;
  EXPECT_NE(wait.find("elements differ"), std::string::npos) << wait;
  EXPECT_NE(transposed.find("elements differ"), std::string::npos) << transposed;
  const std::string unknown = error_of("sm_80", replaced("bar.sync 0;", "bar.arrive 0, 128;"));
  EXPECT_NE(unknown.find("`bar.arrive`: no such opcode"), std::string::npos) << unknown;
}

}  // namespace
}  // namespace moraine::testing
