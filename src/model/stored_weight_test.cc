// StoredWeight: experts packed by compressed-tensors (tests/golden, made by that library) give the weights that it
// unpacks and the logits that the public implementation has with them; every way to share scales; what is refused.
//
// Fails if a value, a nibble, a scale or which elements share it is taken wrongly, in whichever part of a weight, or if
// a shape, a type or a tensor that does not fit is passed over.
#include "model/stored_weight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/json.h"
#include "base/test_folder.h"
#include "model/test_golden_gradients.h"

namespace moraine {
namespace {

using namespace testing;

// Bytes of a tensor in a type that SafetensorsWriter does not write.
struct RawTensor {
  std::string name, type;
  std::vector<int64_t> shape;
  std::string bytes;
};

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// One safetensors file of them in `folder`.
SafetensorsSet set_of(const std::string& folder, const std::vector<RawTensor>& tensors) {
  Json header = Json::object();
  std::string data;
  for (const RawTensor& t : tensors) {
    const size_t begin = data.size();
    data += t.bytes;
    header[t.name] = {
        {"dtype", t.type}, {"shape", t.shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = json_text(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  FileSystem& fs = posix_file_system();
  fs.make_directories(folder);
  fs.write_atomic(join_path(folder, "model.safetensors"), file + text + data);
  return SafetensorsSet::open(fs, folder);
}

std::vector<float> all_of(const StoredWeight& weight, int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  read_stored_weight(weight, 0, count, out.data());
  return out;
}

class PackedGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(PackedGolden, GivesTheWeightsThatTheLibraryUnpacks) {
  const std::string path = source_path("tests/golden/" + std::string(GetParam()));
  const bool legacy = std::string(GetParam()) == "legacy-fp8";
  const SafetensorsFile expected = SafetensorsFile::open(
      posix_file_system(),
      source_path("tests/golden/" + std::string(legacy ? "native-fp8" : GetParam()) +
                  "/expected.safetensors"));
  const ModelDirectory directory = ModelDirectory::open(posix_file_system(), path);
  directory.check_weights();
  const ParameterTable table = build_parameters(directory.config());
  int compared = 0;
  for (const Parameter& p : table.all) {
    const SafetensorsEntry* want = expected.find("weight/" + p.name);
    if (want == nullptr) continue;
    // In pieces that begin inside of a byte, a group and a row.
    std::vector<float> got(static_cast<size_t>(p.count()));
    for (int64_t begin = 0; begin < p.count(); begin += 77) {
      const int64_t count = std::min<int64_t>(77, p.count() - begin);
      directory.read_elements(table, p.offset + begin,
                              make_tensor(got.data() + begin, DType::kF32, {count}));
    }
    ASSERT_EQ(want->bytes, static_cast<int64_t>(got.size() * sizeof(float)));
    EXPECT_EQ(std::memcmp(got.data(), want->data, got.size() * sizeof(float)), 0) << p.name;
    ++compared;
  }
  EXPECT_EQ(compared, 4);  // two matrices in each of two layers
}

INSTANTIATE_TEST_SUITE_P(StoredWeights, PackedGolden,
                         ::testing::Values("native-fp8", "legacy-fp8", "native-mxfp4"),
                         [](const auto& info) {
                           std::string name = info.param;
                           name[name.find('-')] = '_';
                           return name;
                         });

TEST(StoredWeights, PackedModelsComputeWhatThePublicImplementationDoes) {
  for (const char* name : {"native-fp8", "native-mxfp4"}) {
    Golden g(name, Backend::kCpu, DType::kF32, false);
    EXPECT_EQ(g.directory.stored_dtype(), DType::kF32)
        << "most of these small models is not packed";
    EXPECT_LE(relative_distance(g.logits(), g.want("logits")), kF32Logit) << name;
  }
}

// [2 matrices, 130 rows, 200 inputs], and what each way to share scales makes of it.
struct Fp8Case {
  const char* what;
  std::vector<int64_t> shape;                                     // of the scales
  std::function<int64_t(int64_t m, int64_t r, int64_t c)> scale;  // index
};

TEST(StoredWeights, Fp8ScalesAreSharedByAllMatrixRowOrBlock) {
  TestFolder folder;
  constexpr int64_t kRows = 130, kInputs = 200;
  const std::vector<int64_t> dims = {2, kRows, kInputs};
  std::string values;
  for (int64_t i = 0; i < 2 * kRows * kInputs; ++i)
    values += static_cast<char>((i * 7 + i / 251) % 127 + (i % 3 == 0 ? 128 : 0));  // no NaN
  const Fp8Case cases[] = {
      {"all", {}, [](int64_t, int64_t, int64_t) { return 0; }},
      {"all, a list", {1}, [](int64_t, int64_t, int64_t) { return 0; }},
      {"matrix", {2}, [](int64_t m, int64_t, int64_t) { return m; }},
      {"matrix, two", {2, 1}, [](int64_t m, int64_t, int64_t) { return m; }},
      {"matrix, three", {2, 1, 1}, [](int64_t m, int64_t, int64_t) { return m; }},
      {"row", {2, kRows, 1}, [](int64_t m, int64_t r, int64_t) { return m * kRows + r; }},
      {"block", {2, 2, 2}, [](int64_t m, int64_t r, int64_t c) {
         return m * 4 + r / 128 * 2 + c / 128;
       }}};
  for (const Fp8Case& c : cases) {
    int64_t count = 1;
    for (const int64_t n : c.shape) count *= n;
    std::vector<float> scales(static_cast<size_t>(count));
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.001f * static_cast<float>(i + 3);
    const SafetensorsSet set = set_of(
        join_path(folder.path(), c.what),
        {{"w", "F8_E4M3", dims, values}, {"w.weight_scale", "F32", c.shape, bytes_of(scales)}});
    const StoredWeight weight = find_stored_weight(set, "w", dims);
    const std::vector<float> got = all_of(weight, 2 * kRows * kInputs);
    size_t wrong = 0;
    for (int64_t i = 0; i < 2 * kRows * kInputs; ++i) {
      const int bits = static_cast<unsigned char>(values[static_cast<size_t>(i)]);
      const int exponent = bits >> 3 & 15;
      const double magnitude = exponent == 0 ? (bits & 7) * std::pow(2.0, -9)
                                             : (1 + (bits & 7) / 8.0) * std::pow(2.0, exponent - 7);
      const float scale = scales[static_cast<size_t>(
          c.scale(i / (kRows * kInputs), i / kInputs % kRows, i % kInputs))];
      const float want = static_cast<float>(bits & 128 ? -magnitude : magnitude) * scale;
      wrong += got[static_cast<size_t>(i)] != want;
    }
    EXPECT_EQ(wrong, 0u) << c.what;
  }
}

TEST(StoredWeights, EveryValueOfFp8AndMxfp4) {
  TestFolder folder;
  std::string all(256, '\0'), pairs(16, '\0');
  std::iota(all.begin(), all.end(), '\0');
  for (int i = 0; i < 16; ++i) pairs[static_cast<size_t>(i)] = static_cast<char>(i | (15 - i) << 4);
  const SafetensorsSet set = set_of(
      folder.path(), {{"a.weight", "F8_E4M3", {2, 128}, all},
                      {"a.weight_scale", "BF16", {2, 1}, bytes_of<BF16>({to_bf16(1), to_bf16(1)})},
                      {"b.weight_packed", "U8", {1, 16}, pairs},
                      {"b.weight_scale", "F8_E8M0", {1, 1}, std::string(1, char(128))}});
  const std::vector<float> a = all_of(find_stored_weight(set, "a.weight", {2, 128}), 256);
  EXPECT_EQ(a[0x38], 1.0f);
  EXPECT_EQ(a[0x7e], 448.0f);  // the largest
  EXPECT_EQ(a[0x01], 0x1p-9f);
  EXPECT_EQ(a[0xfe], -448.0f);
  EXPECT_TRUE(std::signbit(a[0x80]) && a[0x80] == 0);
  EXPECT_TRUE(std::isnan(a[0x7f]) && std::isnan(a[0xff]));
  const float e2m1[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const std::vector<float> b = all_of(find_stored_weight(set, "b.weight", {1, 32}), 32);
  for (int i = 0; i < 16; ++i) {
    const auto value = [&](int n) { return 2 * (n < 8 ? e2m1[n] : -e2m1[n - 8]); };
    EXPECT_EQ(b[static_cast<size_t>(2 * i)], value(i));
    EXPECT_EQ(b[static_cast<size_t>(2 * i + 1)], value(15 - i));
  }
}

TEST(StoredWeights, WhatDoesNotFitIsNamed) {
  TestFolder folder;
  const std::vector<int64_t> dims = {2, 4, 64};
  const RawTensor fp8{"w", "F8_E4M3", dims, std::string(512, 'a')};
  const RawTensor packed{"w.weight_packed", "U8", {2, 4, 32}, std::string(256, 'a')};
  const RawTensor mx{"w.weight_scale", "U8", {2, 4, 2}, std::string(16, 'a')};
  const auto f32 = [](std::vector<int64_t> shape, int64_t count) {
    return RawTensor{"w.weight_scale", "F32", std::move(shape),
                     bytes_of(std::vector<float>(static_cast<size_t>(count), 1.0f))};
  };
  struct Case {
    std::vector<RawTensor> tensors;
    Code code;
    const char* named;
  };
  const Case cases[] = {
      {{fp8}, Code::kNotFound, "no w.weight_scale"},
      {{fp8, mx}, Code::kInvalidArgument, "w.weight_scale is U8"},
      {{fp8, f32({2, 4, 2}, 16)}, Code::kInvalidArgument, "[2, 4, 1]"},
      {{fp8, f32({4, 1}, 4)}, Code::kInvalidArgument, "w.weight_scale has shape [4, 1]"},
      {{{"w", "F8_E4M3", {2, 4, 32}, std::string(256, 'a')}, f32({2, 4, 1}, 8)},
       Code::kInvalidArgument,
       "w has shape [2, 4, 32]"},
      {{{"w", "F8_E5M2", dims, std::string(512, 'a')}, f32({2, 4, 1}, 8)},
       Code::kInvalidArgument,
       "w is F8_E5M2"},
      {{packed}, Code::kNotFound, "no w.weight_scale"},
      {{packed, f32({2, 4, 2}, 16)}, Code::kInvalidArgument, "w.weight_scale is F32"},
      {{packed, {"w.weight_scale", "U8", {2, 4, 4}, std::string(32, 'a')}},
       Code::kInvalidArgument,
       "w.weight_scale has shape [2, 4, 4]"},
      {{{"w.weight_packed", "U8", {2, 4, 64}, std::string(512, 'a')}, mx},
       Code::kInvalidArgument,
       "w.weight_packed has shape [2, 4, 64]"},
      {{{"w.weight_packed", "I32", {2, 4, 8}, std::string(256, 'a')}, mx},
       Code::kInvalidArgument,
       "w.weight_packed is I32"},
      {{{"v", "U8", {1}, "a"}}, Code::kNotFound, "w"}};
  int number = 0;
  for (const Case& c : cases) {
    const SafetensorsSet set =
        set_of(join_path(folder.path(), std::to_string(number++)), c.tensors);
    try {
      find_stored_weight(set, "w", dims);
      ADD_FAILURE() << c.named;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), c.code) << e.what();
      EXPECT_NE(std::string(e.what()).find(c.named), std::string::npos) << e.what();
    }
  }
  // A vector is never packed.
  const SafetensorsSet set =
      set_of(join_path(folder.path(), "vector"), {{"w", "F8_E4M3", {4}, "aaaa"}, f32({1}, 1)});
  EXPECT_THROW(find_stored_weight(set, "w", {4}), Error);
}

// A public folder that differs from a golden one in its tensors.
struct Changed {
  std::vector<RawTensor> added = {};
  std::vector<std::string> removed = {};
};
std::string error_of(const TestFolder& folder, const std::string& golden, const Changed& change) {
  const std::string from = source_path("tests/golden/" + golden);
  const SafetensorsFile file =
      SafetensorsFile::open(posix_file_system(), from + "/model.safetensors");
  std::vector<RawTensor> tensors = change.added;
  for (const SafetensorsEntry& e : file.entries()) {
    if (std::find(change.removed.begin(), change.removed.end(), e.name) != change.removed.end())
      continue;
    tensors.push_back({e.name, e.type, e.shape,
                       std::string(reinterpret_cast<const char*>(e.data), size_t(e.bytes))});
  }
  set_of(folder.path(), tensors);
  folder.write("config.json", posix_file_system().read(from + "/config.json"));
  try {
    ModelDirectory::open(posix_file_system(), folder.path()).check_weights();
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(StoredWeights, NoTensorIsPassedOver) {
  const TestFolder folder;
  const std::string down = "model.layers.0.mlp.experts.down_proj";
  const RawTensor plain{down + ".weight", "F32", {2, 64, 32}, std::string(2 * 64 * 32 * 4, 'a')};
  const auto refused = [&](const char* golden, const Changed& change, const std::string& named) {
    const std::string what = error_of(folder, golden, change);
    EXPECT_NE(what.find("tensor " + named + " does not belong"), std::string::npos) << what;
  };
  refused("native-fp8", {.added = {plain}}, down + ".weight");
  refused("native-fp8", {.added = {plain}, .removed = {down}}, down + ".weight_scale");
  refused("native-fp8", {.added = {{down + ".weight_packed", "I64", {1}, std::string(8, 'a')}}},
          down + ".weight_packed");
  refused("native-mxfp4", {.added = {plain}}, down + ".weight_packed");
  EXPECT_EQ(error_of(folder, "native-fp8",
                     {.added = {{down + ".input_scale", "F32", {1}, std::string(4, 'a')}}}),
            "");
  EXPECT_NE(error_of(folder, "native-mxfp4", {.removed = {down + ".weight_packed"}})
                .find("no " + down + ", " + down + ".weight or " + down + ".weight_packed"),
            std::string::npos);
}

TEST(StoredWeights, APackedEmbeddingMayHaveItsHeadBesideIt) {
  const TestFolder folder;
  const std::string embedding = "model.embed_tokens";
  const std::vector<float> halves(64, 0.5f), twos(64 * 64, 2.0f), threes(64 * 64, 3.0f);
  const RawTensor fours{embedding + ".weight", "F8_E4M3", {64, 64}, std::string(64 * 64, 0x48)},
      scales{embedding + ".weight_scale", "F32", {64, 1}, bytes_of(halves)};
  const auto with_head = [&](const std::vector<float>& head) {
    return error_of(folder, "native-fp8",
                    {.added = {fours, scales, {"lm_head.weight", "F32", {64, 64}, bytes_of(head)}},
                     .removed = {embedding + ".weight"}});
  };
  EXPECT_EQ(with_head(twos), "");
  EXPECT_NE(with_head(threes).find("only tied heads"), std::string::npos);
}

// Ranks hold some of the experts each.
TEST(StoredWeights, SomeOfTheExpertsAreThoseOfTheWhole) {
  for (const char* name :
       {"native-tiny", "legacy-tiny", "native-swa", "native-fp8", "legacy-fp8", "native-mxfp4"}) {
    const ModelDirectory directory =
        ModelDirectory::open(posix_file_system(), source_path("tests/golden/" + std::string(name)));
    const ModelConfig& c = directory.config();
    const ParameterTable whole = build_parameters(c);
    std::vector<float> all(static_cast<size_t>(whole.total_count));
    directory.read_weights(make_tensor(all.data(), DType::kF32, {whole.total_count}));
    for (int64_t first = 0; first < c.experts; ++first) {
      const ParameterTable some = build_parameters(c, {first, std::min(c.experts, first + 2)});
      std::vector<float> part(static_cast<size_t>(some.total_count));
      directory.read_weights(some, make_tensor(part.data(), DType::kF32, {some.total_count}));
      for (const Parameter& p : some.all) {
        const int64_t skipped = p.row_begin * (p.count() / p.dims[0]);
        ASSERT_EQ(
            std::memcmp(part.data() + p.offset, all.data() + whole.find(p.name)->offset + skipped,
                        static_cast<size_t>(p.count()) * sizeof(float)),
            0)
            << name << " " << p.name << " from expert " << first;
      }
    }
  }
}

}  // namespace
}  // namespace moraine
