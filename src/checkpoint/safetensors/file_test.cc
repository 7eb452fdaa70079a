// Safetensors: fails if a damaged or hostile file is taken, a good one refused or misread, or if
// the writer's bytes change.
#include "checkpoint/safetensors/file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/random.h"
#include "base/test_folder.h"
#include "checkpoint/safetensors/writer.h"
#include "testing/places.h"

namespace moraine {
namespace {

using testing::TestFolder;

const std::string kGolden = testing::source_path("tests/golden/");

std::string with_length(const std::string& header, const std::string& data = "") {
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + data;
}

// The message of the Error that opening `content` gives; empty if it opens.
std::string error_of(const TestFolder& folder, const std::string& content, Code code) {
  folder.write("f.safetensors", content);
  try {
    SafetensorsFile::open(posix_file_system(), folder.file("f.safetensors"));
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
}

TEST(Safetensors, ReadsWhatThePublicLibraryWrote) {
  const SafetensorsFile file =
      SafetensorsFile::open(posix_file_system(), kGolden + "native-tiny/model.safetensors");
  EXPECT_EQ(file.entries().size(), 99u);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.header_bytes(), 8 + 11128);
  const SafetensorsEntry& embed = file.get("model.embed_tokens.weight");
  EXPECT_EQ(embed.type, "F32");
  EXPECT_EQ(embed.shape, (std::vector<int64_t>{320, 64}));
  const Tensor t = view(embed);
  EXPECT_EQ(shape_text(t), "[320, 64]");
  // Normal with deviation 0.2 (tests/golden/README.md): a wrong offset or type would not show that.
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < t.count(); ++i) {
    sum += t.as<float>()[i];
    squares += double{t.as<float>()[i]} * double{t.as<float>()[i]};
  }
  EXPECT_NEAR(sum / 20480, 0, 0.01);
  EXPECT_NEAR(std::sqrt(squares / 20480), 0.2, 0.01);
}

TEST(Safetensors, ReadsEveryGoldenFile) {
  for (const char* model : {"native-tiny", "native-swa", "legacy-tiny", "native-tiny-bf16"}) {
    for (const char* name : {"/model.safetensors", "/expected.safetensors"}) {
      const SafetensorsFile file =
          SafetensorsFile::open(posix_file_system(), kGolden + model + name);
      for (const SafetensorsEntry& entry : file.entries()) {
        EXPECT_TRUE(can_view(entry)) << entry.name;
        if (!is_float_type(entry.type)) continue;
        std::vector<float> values(static_cast<size_t>(entry.count));
        read_as_f32(entry, values.data());
        for (const float v : values) ASSERT_TRUE(std::isfinite(v)) << entry.name;
      }
    }
  }
}

TEST(Safetensors, BfloatGoldenIsTheRoundedFloatGolden) {
  FileSystem& fs = posix_file_system();
  const auto f32 = SafetensorsFile::open(fs, kGolden + "native-tiny/model.safetensors");
  const auto bf16 = SafetensorsFile::open(fs, kGolden + "native-tiny-bf16/model.safetensors");
  int64_t compared = 0;
  for (const SafetensorsEntry& entry : bf16.entries()) {
    if (entry.type != "BF16") continue;
    std::vector<float> got(static_cast<size_t>(entry.count));
    read_as_f32(entry, got.data());
    const Tensor want = view(f32.get(entry.name));
    for (int64_t i = 0; i < entry.count; ++i) {
      ASSERT_EQ(got[static_cast<size_t>(i)], round_bf16(want.as<float>()[i])) << entry.name;
    }
    compared += entry.count;
  }
  EXPECT_GT(compared, 100'000);
}

TEST(Safetensors, HalfPrecisionIsExactForAllValues) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const int fraction = static_cast<int>(bits & 1023);
    const double sign = bits & 0x8000 ? -1 : 1;
    const float got = f16_to_float(static_cast<uint16_t>(bits));
    ASSERT_EQ(std::signbit(got), sign < 0) << bits;
    if (exponent == 31 && fraction != 0) {
      ASSERT_TRUE(std::isnan(got)) << bits;
    } else if (exponent == 31) {
      ASSERT_TRUE(std::isinf(got)) << bits;
    } else if (exponent == 0) {
      ASSERT_EQ(double{got}, sign * std::ldexp(fraction, -24)) << bits;
    } else {
      ASSERT_EQ(double{got}, sign * std::ldexp(1024 + fraction, exponent - 25)) << bits;
    }
  }
}

TEST(Safetensors, ConvertsEachFloatType) {
  const TestFolder folder;
  const double f64[] = {1.5, -0x1p-140, 1.0 + 0x1p-30};
  const uint16_t f16[] = {0x3c00, 0xc000, 0x0001};
  const uint16_t bf16[] = {0x3f80, 0xc000, 0x7f80};
  std::string data(24 + 12, '\0');
  std::memcpy(data.data(), f64, 24);
  std::memcpy(data.data() + 24, f16, 6);
  std::memcpy(data.data() + 30, bf16, 6);
  folder.write("f", with_length(R"({"a":{"dtype":"F64","shape":[3],"data_offsets":[0,24]},)"
                                R"("b":{"dtype":"F16","shape":[3],"data_offsets":[24,30]},)"
                                R"("c":{"dtype":"BF16","shape":[3],"data_offsets":[30,36]}})",
                                data));
  const SafetensorsFile file = SafetensorsFile::open(posix_file_system(), folder.file("f"));
  float out[3];
  read_as_f32(file.get("a"), out);
  EXPECT_EQ(out[0], 1.5f);
  EXPECT_EQ(out[1], -0x1p-140f);
  EXPECT_EQ(out[2], 1.0f);
  read_as_f32(file.get("b"), out);
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], -2.0f);
  EXPECT_EQ(out[2], 0x1p-24f);
  read_as_f32(file.get("c"), out);
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], -2.0f);
  EXPECT_EQ(out[2], std::numeric_limits<float>::infinity());
  EXPECT_FALSE(can_view(file.get("b")));
  EXPECT_THROW(view(file.get("b")), Error);
}

TEST(Safetensors, UnalignedDataIsReadButNotViewed) {
  const TestFolder folder;
  std::string data(5, '\0');
  const float value = 3.25f;
  std::memcpy(data.data() + 1, &value, 4);
  folder.write("f", with_length(R"({"b":{"dtype":"F32","shape":[],"data_offsets":[1,5]},)"
                                R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}       )",
                                data));
  const SafetensorsFile file = SafetensorsFile::open(posix_file_system(), folder.file("f"));
  ASSERT_EQ(file.header_bytes() % 8, 0);
  float out = 0;
  read_as_f32(file.get("b"), &out);
  EXPECT_EQ(out, 3.25f);
  EXPECT_TRUE(can_view(file.get("a")));
  EXPECT_FALSE(can_view(file.get("b")));
  EXPECT_THROW(view(file.get("b")), Error);
  EXPECT_THROW(read_as_f32(file.get("a"), &out), Error);
}

TEST(Safetensors, RefusesEachKindOfDamageByName) {
  const TestFolder folder;
  struct Case {
    const char* header;
    int64_t data_bytes;
    const char* message;
  };
  const Case cases[] = {
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 8, "not JSON"},
      {R"([1])", 0, "does not begin"},
      {R"({"w":5})", 0, "wanted an object"},
      {R"({"w":{"shape":[2],"data_offsets":[0,8]}})", 8, "'dtype' is missing"},
      {R"({"w":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8, "given twice"},
      {R"({"w":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8, "unknown type 'F33'"},
      {R"({"w":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8, "wanted an integer"},
      {R"({"w":{"dtype":"F32","shape":"2","data_offsets":[0,8]}})", 8, "'shape': found a string"},
      {R"({"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "impossible"},
      {R"({"w":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
       "impossible"},
      {R"({"w":{"dtype":"U8","shape":[0,4611686018427387904,4],"data_offsets":[0,0]}})", 0,
       "impossible"},
      {R"({"w":{"dtype":"F32","shape":[1152921504606846977],"data_offsets":[0,4]}})", 4,
       "impossible"},
      {R"({"w":{"dtype":"F4","shape":[1152921504606846975],"data_offsets":[0,4]}})", 4,
       "whole number"},
      {R"({"w":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8]}})", 8, "read "},
      {R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, "needs 12"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8, "do not make a range"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "do not make a range"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})", 8, "do not make a range"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7, "cut"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9, "the file at"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})", 9, "begins at byte"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
       R"("x":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
       12, "tensor 'x' begins at byte"},
      {R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2, "tensor 'w' is given twice"},
      {R"({"__metadata__":{"format":1}})", 0, "wanted a string"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "given twice"},
      {"{\"w\xff\":{}}", 0, "not JSON"},
  };
  for (const Case& c : cases) {
    const std::string message =
        error_of(folder, with_length(c.header, std::string(static_cast<size_t>(c.data_bytes), 'x')),
                 Code::kCorrupt);
    EXPECT_NE(message.find(c.message), std::string::npos) << c.header << "\n -> " << message;
    EXPECT_NE(message.find("f.safetensors"), std::string::npos) << message;
  }
  EXPECT_EQ(error_of(folder, with_length("{}"), Code::kCorrupt), "");
  EXPECT_EQ(error_of(folder, with_length("{}      "), Code::kCorrupt), "");
}

TEST(Safetensors, RefusesLengthsThatLie) {
  const TestFolder folder;
  std::string file = with_length("{}");
  EXPECT_NE(error_of(folder, "", Code::kCorrupt).find("cut"), std::string::npos);
  EXPECT_NE(error_of(folder, file.substr(0, 7), Code::kCorrupt).find("cut"), std::string::npos);
  const uint64_t lengths[] = {3, 100'000'000, 100'000'001, uint64_t{1} << 63, ~uint64_t{0}};
  for (const uint64_t length : lengths) {
    std::memcpy(file.data(), &length, 8);
    EXPECT_NE(error_of(folder, file, Code::kCorrupt), "") << length;
  }
  EXPECT_THROW(SafetensorsFile::open(posix_file_system(), folder.file("absent")), Error);
  EXPECT_THROW(SafetensorsFile::open(posix_file_system(), folder.path()), Error);
}

TEST(Safetensors, DeepNestingIsRefused) {
  const TestFolder folder;
  EXPECT_NE(error_of(folder, with_length("{\"a\":" + std::string(1'000'000, '[')), Code::kCorrupt),
            "");
}

// Random damage: whatever happens, an Error or tensors that lie within the file.
TEST(Safetensors, SurvivesRandomDamage) {
  const TestFolder folder;
  FileSystem& fs = posix_file_system();
  const std::string whole = fs.read(kGolden + "native-tiny-bf16/expected.safetensors");
  const std::string head = whole.substr(0, 2000);
  const char tokens[] = "{}[]\",:0129-eEF8\\\0\xff";
  int opened = 0;
  for (uint64_t round = 0; round < 2000; ++round) {
    // Mostly damage in the header; the data is kept short so that a round is fast.
    std::string file = round % 4 == 0 ? whole : head;
    const uint64_t edits = 1 + random_below(4, 7, Stream::kTest, round, 0);
    for (uint64_t e = 0; e < edits; ++e) {
      const size_t at = random_below(1200, 7, Stream::kTest, round, 10 + 3 * e);
      const uint64_t kind = random_below(4, 7, Stream::kTest, round, 11 + 3 * e);
      const uint64_t value = random_bits(7, Stream::kTest, round, 12 + 3 * e);
      if (kind == 0) file[at] = static_cast<char>(value);
      if (kind == 1) file[at] = tokens[value % (sizeof tokens - 1)];
      if (kind == 2) file.erase(at, 1 + value % 8);
      if (kind == 3) file.insert(at, 1 + value % 8, tokens[value % (sizeof tokens - 1)]);
    }
    folder.write("f", file);
    try {
      const SafetensorsFile read = SafetensorsFile::open(fs, folder.file("f"));
      ++opened;
      for (const SafetensorsEntry& entry : read.entries()) {
        ASSERT_GE(entry.offset, read.header_bytes());
        ASSERT_LE(entry.offset + entry.bytes, read.mapping().bytes());
        if (!is_float_type(entry.type)) continue;
        std::vector<float> values(static_cast<size_t>(entry.count));
        read_as_f32(entry, values.data());
      }
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Code::kCorrupt) << error.what();
    }
  }
  EXPECT_GT(opened, 0);  // damage of a name only
}

class Writing : public ::testing::Test {
 protected:
  NamedTensor make(const std::string& name, DType dtype, std::initializer_list<int64_t> dims) {
    Tensor t = make_tensor(nullptr, dtype, dims);
    memory_.emplace_back(static_cast<size_t>(t.bytes()));
    t.data = memory_.back().data();
    for (size_t i = 0; i < memory_.back().size(); ++i) {
      memory_.back()[i] = static_cast<uint8_t>(i * 7 + memory_.size());
    }
    return {name, t};
  }
  std::vector<std::vector<uint8_t>> memory_;
  TestFolder folder_;
};

TEST_F(Writing, WhatIsWrittenIsReadBack) {
  memory_.reserve(9);
  const NamedTensor tensors[] = {
      make("bytes", DType::kU8, {3}),        make("half", DType::kBF16, {5}),
      make("scalar", DType::kF32, {}),       make("none", DType::kF32, {0, 7}),
      make("long", DType::kI64, {2, 1, 3}),  make("\"quote\"\n\xc3\xa4", DType::kF64, {1}),
      make("int", DType::kI32, {1, 2, 1, 2})};
  write_safetensors(posix_file_system(), folder_.file("f"), tensors);
  const SafetensorsFile file = SafetensorsFile::open(posix_file_system(), folder_.file("f"));
  EXPECT_EQ(file.header_bytes() % 8, 0);
  EXPECT_EQ(file.entries().size(), std::size(tensors));
  for (const NamedTensor& t : tensors) {
    const SafetensorsEntry& entry = file.get(t.name);
    ASSERT_TRUE(can_view(entry)) << t.name;
    EXPECT_EQ(shape_text(view(entry)), shape_text(t.tensor));
    EXPECT_EQ(entry.type, safetensors_type(t.tensor.dtype));
    EXPECT_EQ(entry.bytes, t.tensor.bytes());
    if (entry.bytes > 0) {
      EXPECT_EQ(0, std::memcmp(entry.data, t.tensor.data, static_cast<size_t>(entry.bytes)));
    }
  }
  EXPECT_EQ(file.find("nothing"), nullptr);
  try {
    file.get("scalr");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kNotFound);
    EXPECT_NE(std::string(error.what()).find("'scalar'"), std::string::npos) << error.what();
  }
}

// The public format byte by byte: these bytes may not change.
TEST_F(Writing, BytesAreTheFormat) {
  const uint8_t value[4] = {1, 2, 3, 4};
  const SafetensorsSpec specs[] = {{"w", DType::kU8, {2, 2}}};
  SafetensorsWriter writer(posix_file_system(), folder_.file("f"), specs);
  writer.append(value, 1);
  writer.append(value + 1, 3);
  writer.finish();
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]}}  )";
  ASSERT_EQ(header.size() % 8, 0u);
  const std::string file = posix_file_system().read(folder_.file("f"));
  EXPECT_EQ(file, with_length(header, "\1\2\3\4"));
  EXPECT_EQ(writer.file_bytes(), static_cast<int64_t>(file.size()));
  EXPECT_EQ(writer.header_hash(), hash_bytes(file.data(), static_cast<int64_t>(file.size()) - 4));
}

TEST_F(Writing, RefusesNamesAndOrdersThatReadersWould) {
  FileSystem& fs = posix_file_system();
  const auto refused = [&](std::vector<SafetensorsSpec> specs) {
    try {
      SafetensorsWriter(fs, folder_.file("f"), specs);
      return false;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      return true;
    }
  };
  EXPECT_TRUE(refused({{"a", DType::kU8, {1}}, {"a", DType::kU8, {1}}}));
  EXPECT_TRUE(refused({{"__metadata__", DType::kU8, {1}}}));
  EXPECT_TRUE(refused({{"\xff", DType::kU8, {1}}}));
  EXPECT_TRUE(refused({{"a", DType::kU8, {1}}, {"b", DType::kF32, {1}}}));
  EXPECT_FALSE(refused({{"b", DType::kF32, {1}}, {"a", DType::kU8, {1}}}));
}

TEST_F(Writing, RewritingAGoldenFileKeepsItsTensors) {
  FileSystem& fs = posix_file_system();
  const auto golden = SafetensorsFile::open(fs, kGolden + "native-tiny-bf16/model.safetensors");
  std::vector<NamedTensor> tensors;
  for (const SafetensorsEntry& entry : golden.entries())
    tensors.push_back({entry.name, view(entry)});
  write_safetensors(fs, folder_.file("f"), tensors);
  // Even the file's bytes: order, spelling and padding are those of the public writer.
  EXPECT_EQ(fs.read(folder_.file("f")), fs.read(golden.path()));
}

}  // namespace
}  // namespace moraine
