// Manifest: fails if a manifest that lies, with a valid hash, is believed.
#include "checkpoint/manifest.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace moraine {
namespace {

Manifest example() {
  const Hash128 h{1, 2};
  return {.info = {.step = 3, .tokens_seen = 4, .seed = ~uint64_t{0}, .values = {}, .config = ""},
          .files = {{"config.toml", 8, h}},
          .data = {{"data-0", 100, h}, {"data-1", 90, h}},
          .tensors = {{"a", DType::kF32, {}, {{0, 0, 1, h}}},
                      {"b", DType::kBF16, {4, 3}, {{0, 0, 1, h}, {1, 1, 4, h}}}}};
}

// `text` with its hash made right again.
std::string sealed(std::string text) {
  const size_t key = text.rfind("\n\"manifest_hash\"");
  const size_t value = text.rfind("\"\n}\n") - 32;
  return text.replace(value, 32, hash_hex(hash_bytes(text.data(), static_cast<int64_t>(key))));
}

std::string replaced(const std::string& from, const std::string& to) {
  std::string text = manifest_text(example());
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return sealed(text.replace(at, from.size(), to));
}

TEST(Manifests, TextAndBack) {
  const std::string text = manifest_text(example());
  EXPECT_EQ(sealed(text), text);
  const Manifest m = parse_manifest(text);
  EXPECT_EQ(manifest_text(m), text);
  EXPECT_EQ(m.info.seed, ~uint64_t{0});
  EXPECT_EQ(m.tensors[1].parts[1].row_end, 4);
  EXPECT_EQ(m.tensors[1].row_bytes(), 6);
  EXPECT_EQ(m.tensors[0].rows(), 1);
}

TEST(Manifests, EveryFlippedByteAndCutIsSeen) {
  const std::string text = manifest_text(example());
  for (size_t i = 0; i < text.size(); ++i) {
    for (const int mask : {0x01, 0x20, 0x80}) {
      std::string bad = text;
      bad[i] = static_cast<char>(bad[i] ^ mask);
      EXPECT_THROW(parse_manifest(bad), Error) << i;
    }
    EXPECT_THROW(parse_manifest(text.substr(0, i)), Error) << i;
  }
  EXPECT_THROW(parse_manifest(text + "\n"), Error);
}

TEST(Manifests, LiesAreRefused) {
  struct Case {
    const char* from;
    const char* to;
    const char* message;
  };
  const Case cases[] = {
      {"moraine-checkpoint", "other", "format 'other'"},
      {"\"step\": 3", "\"step\": -3", "negative"},
      {"\"step\": 3", "\"step\": 3.5", "'step': found a fraction"},
      {"\"step\": 3", "\"step\": \"3\"", "'step': found a string"},
      {"\"step\": 3", "\"stop\": 3", "'step' is missing"},
      {"\"step\": 3", "\"step\": 3, \"step\": 4", "given twice"},
      {"\"seed\": 18446744073709551615", "\"seed\": -1", "'seed'"},
      {"\"values\": {}", "\"values\": []", "'values'"},
      {"config.toml", "../config.toml", "not allowed"},
      {"config.toml", "manifest.json", "not allowed"},
      {"config.toml", "data-1", "not allowed"},
      {"\"data-0\"", "\"/etc/passwd\"", "not allowed"},
      {"\"data-0\"", "\"data-0/../../x\"", "not allowed"},
      {"\"data-0\"", "\"data-1\"", "listed twice"},
      {"\"bytes\": 100", "\"bytes\": -1", "negative"},
      {"\"a\", \"dtype\": \"f32\"", "\"c\", \"dtype\": \"f32\"", "name order"},
      {"\"a\", \"dtype\": \"f32\"", "\"b\", \"dtype\": \"f32\"", "name order"},
      {"\"dtype\": \"f32\"", "\"dtype\": \"f33\"", "unknown type"},
      {"[4, 3]", "[4, 3, 1, 1, 1]", "impossible"},
      {"[4, 3]", "[4, -3]", "impossible"},
      {"[4, 3]", "[4, 4611686018427387904]", "impossible"},
      {"[4, 3]", "[5, 3]", "parts have 4 rows"},
      {"[1, 4]", "[1, 3]", "parts have 3 rows"},
      {"[1, 4]", "[2, 4]", "where row 1 is next"},
      {"[1, 4]", "[0, 4]", "where row 1 is next"},
      {"[1, 4]", "[1, 0]", "where row 1 is next"},
      {"[1, 4]", "[1, 9223372036854775807]", "parts have"},
      {"[1, 4]", "[1]", "not a range"},
      {"\"file\": 1", "\"file\": 2", "no data file 2"},
      {"\"file\": 1", "\"file\": -1", "negative"},
      {"\"hash\": \"0000000000000001", "\"hash\": \"000000000000000g", "not a hash"},
  };
  for (const Case& c : cases) {
    try {
      parse_manifest(replaced(c.from, c.to));
      ADD_FAILURE() << c.from << " -> " << c.to;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kCorrupt);
      EXPECT_NE(std::string(error.what()).find(c.message), std::string::npos)
          << c.to << " -> " << error.what();
    }
  }
}

TEST(Manifests, AnUnknownVersionIsNamed) {
  try {
    parse_manifest(replaced("\"version\": 1", "\"version\": 2"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);  // not kCorrupt: nobody may fall back over it
    EXPECT_NE(std::string(error.what()).find("version 2"), std::string::npos);
  }
}

}  // namespace
}  // namespace moraine
