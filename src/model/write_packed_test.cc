// Fails if errors of a group's weights are fed back by another group's factor, or by none.
#include "model/write_packed.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/test_folder.h"
#include "checkpoint/test_checkpoint.h"
#include "kernels/error_feedback.h"
#include "kernels/quantised.h"
#include "testing/places.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using testing::disk;
using testing::Rig;
using testing::TestFolder;

// Which groups are asked for, in which order, and that all of a group's rows have its factor: of the head, which is
// larger than a piece, too.
TEST(WritePacked, ErrorsOfAGroupAreFedBackByItsFactor) {
  const TestFolder folder;
  ModelConfig c;
  c.vocab_size = 140000, c.hidden = 64, c.layers = 2, c.experts = 3, c.head_dim = 16;
  c.expert_hidden = 32, c.router_hidden = 8, c.max_positions = 64;
  const ParameterTable table = build_parameters(c);
  const InitialValues values{table, c, 3};
  Rig rig(Backend::kCpu, 2);
  const auto factor_of = [&](const PackSource& source, int64_t group) {
    const Tensor factor = rig.zeros({feedback_factor_count(source.k)}, DType::kF32);
    for (int64_t i = 0; i < source.k * source.k; ++i) {
      const int64_t j = i / source.k, input = i % source.k;  // of one block
      if (j == input) factor.as<float>()[i] = 1;
      if (j == input + 1) factor.as<float>()[i] = 0.25f * static_cast<float>(group + 1);
    }
    return factor;
  };
  PackedToWrite model = {
      .config = c,
      .weights = [&](int64_t begin, const Tensor& t) { initialize_elements(values, begin, t); },
      .type = *find_pack_type("q4"),
      .language_files = {}};
  std::vector<std::string> asked, expected;
  model.feedback = [&](const PackSource& source, int64_t group) {
    const std::string here = source.name + " " + std::to_string(group);  // of every piece
    if (asked.empty() || asked.back() != here) asked.push_back(here);
    return factor_of(source, group);
  };
  write_packed_model(rig.ctx, disk(), folder.file("m"), model);
  const PackedModel packed(disk(), folder.file("m"), c);
  for (const PackSource& source : few_bit_sources(model)) {
    for (int64_t group = 0; group < source.groups; ++group) {
      SCOPED_TRACE(source.name + " " + std::to_string(group));
      expected.push_back(source.name + " " + std::to_string(group));
      const PackedMatrix pack = packed.pack(source);
      for (const int64_t n : {int64_t{0}, source.n - 33, source.n - 1}) {
        const Tensor w = rig.zeros({1, source.k}, DType::kF32);
        initialize_elements(values, source.begin + (group * source.n + n) * source.k,
                            w.reshaped({source.k}));
        feed_back_errors(rig.ctx, {.w = w,
                                   .scales = rig.zeros({1, 1}, DType::kF32),
                                   .factor = factor_of(source, group),
                                   .format = pack.format,
                                   .errors = rig.zeros({source.k}, DType::kF32),
                                   .scratch = rig.zeros({feedback_scratch_bytes()}, DType::kU8)});
        std::vector<float> row(static_cast<size_t>(source.k));
        read_packed_row(pack, group, n, row.data());
        EXPECT_TRUE(std::equal(row.begin(), row.end(), w.as<float>())) << n;
      }
    }
  }
  EXPECT_EQ(asked, expected);
}

}  // namespace
}  // namespace moraine
