// SafetensorsSet: fails if a folder of several parts is read wrongly, or a missing or lying part is not
// named.
#include "checkpoint/safetensors/set.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/test_folder.h"
#include "checkpoint/safetensors/writer.h"
#include "testing/places.h"

namespace moraine {
namespace {

using testing::TestFolder;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kPart1 = "model-00001-of-00002.safetensors";
constexpr const char* kPart2 = "model-00002-of-00002.safetensors";

class SafetensorsSets : public ::testing::Test {
 protected:
  void write_part(const std::string& file, const std::string& name, float value) {
    const NamedTensor tensor{name, make_tensor(&value, DType::kF32, {1})};
    write_safetensors(posix_file_system(), folder_.file(file), {&tensor, 1});
  }
  void write_index(const std::string& map) {
    folder_.write(kIndex, R"({"metadata":{"total_size":8},"weight_map":{)" + map + "}}");
  }
  std::string error_of(Code code) {
    try {
      SafetensorsSet::open(posix_file_system(), folder_.path());
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
  }
  TestFolder folder_;
};

TEST_F(SafetensorsSets, OneFileOrItsFolder) {
  const std::string golden = testing::source_path("tests/golden/native-swa");
  const auto of_folder = SafetensorsSet::open(posix_file_system(), golden);
  const auto of_file = SafetensorsSet::open(posix_file_system(), golden + "/model.safetensors");
  EXPECT_EQ(of_folder.entries().size(), 131u);
  EXPECT_EQ(of_file.entries().size(), 131u);
  EXPECT_NE(of_folder.find("model.embed_tokens.weight"), nullptr);
}

TEST_F(SafetensorsSets, PartsOfAnIndex) {
  write_part(kPart1, "b", 1);
  write_part(kPart2, "a", 2);
  write_index(std::string(R"("a":")") + kPart2 + R"(","b":")" + kPart1 + "\"");
  const SafetensorsSet set = SafetensorsSet::open(posix_file_system(), folder_.path());
  ASSERT_EQ(set.entries().size(), 2u);
  EXPECT_EQ(set.entries()[0]->name, "a");
  float value = 0;
  read_as_f32(set.get("a"), &value);
  EXPECT_EQ(value, 2);
  read_as_f32(set.get("b"), &value);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(set.find("c"), nullptr);
  EXPECT_THROW(set.get("c"), Error);
}

TEST_F(SafetensorsSets, NamesWhatIsMissing) {
  EXPECT_NE(error_of(Code::kNotFound).find(kIndex), std::string::npos);
  write_part(kPart2, "a", 2);
  write_index(std::string(R"("a":")") + kPart2 + R"(","b":")" + kPart1 + R"(","c":"third.st")");
  const std::string message = error_of(Code::kNotFound);
  EXPECT_NE(message.find(kPart1), std::string::npos) << message;
  EXPECT_NE(message.find("third.st"), std::string::npos) << message;
  EXPECT_EQ(message.find(kPart2), std::string::npos) << message;
}

TEST_F(SafetensorsSets, NamesAnIndexThatLies) {
  write_part(kPart1, "a", 2);
  write_index(std::string(R"("a":")") + kPart1 + R"(","b":")" + kPart1 + "\"");
  EXPECT_NE(error_of(Code::kCorrupt).find("'b'"), std::string::npos);
  write_index(R"("a":"../model.safetensors")");
  EXPECT_NE(error_of(Code::kInvalidArgument).find("../model"), std::string::npos);
  write_index(R"("a":5)");
  EXPECT_NE(error_of(Code::kCorrupt), "");
  write_index(std::string(R"("a":")") + kPart1 + R"(","a":")" + kPart1 + "\"");
  EXPECT_NE(error_of(Code::kCorrupt).find("twice"), std::string::npos);
  folder_.write(kIndex, "{}");
  EXPECT_NE(error_of(Code::kCorrupt).find("weight_map"), std::string::npos);
}

}  // namespace
}  // namespace moraine
