// Checkpoints: fails if what is read differs from what was written in any bit, if the hash depends
// on the layout or misses a change, or if the same content gives other bytes.
#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "base/error.h"
#include "base/test_folder.h"
#include "checkpoint/history.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors/set.h"
#include "checkpoint/test_checkpoint.h"

namespace moraine {
namespace {

using testing::disk;
using testing::TestCheckpoint;
using testing::TestFolder;

std::string message_of(Code code, const std::function<void()>& action) {
  try {
    action();
    ADD_FAILURE() << "no Error";
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
}

void expect_equal(const Checkpoint& got, const TestCheckpoint& want) {
  EXPECT_EQ(got.entries().size(), want.tensors.size());
  for (const CheckpointTensor& t : want.tensors) {
    std::vector<uint8_t> bytes(static_cast<size_t>(t.tensor.bytes()) + 1);
    Tensor out = t.tensor;
    out.data = bytes.data();
    got.read(t.name, out);
    if (out.bytes() == 0) continue;
    EXPECT_EQ(0, std::memcmp(out.data, t.tensor.data, static_cast<size_t>(out.bytes()))) << t.name;
  }
  for (const CheckpointFile& file : want.files) EXPECT_EQ(got.file(file.name), file.content);
  EXPECT_EQ(got.file_names().size(), want.files.size());
  EXPECT_EQ(got.info().step, want.info.step);
  EXPECT_EQ(got.info().tokens_seen, want.info.tokens_seen);
  EXPECT_EQ(got.info().seed, want.info.seed);
  EXPECT_EQ(got.info().values, want.info.values);
  EXPECT_EQ(got.info().config, want.info.config);
  EXPECT_EQ(got.hash(), want.hash());
  EXPECT_TRUE(got.problems().empty());
}

TEST(Checkpoints, WhatIsWrittenIsReadBack) {
  const TestFolder folder;
  const TestCheckpoint content(1200, 1);
  const std::string root = folder.file("deep/run");
  const CheckpointWritten written = content.write(disk(), root);
  EXPECT_EQ(written.directory, root + "/step-1200");
  EXPECT_EQ(written.hash, content.hash());
  const Checkpoint checkpoint = Checkpoint::open(disk(), written.directory);
  expect_equal(checkpoint, content);
  EXPECT_EQ(checkpoint.bytes(), written.bytes);
  int64_t on_disk = 0;
  for (const std::string& name : disk().list(written.directory)) {
    on_disk += disk().file_bytes(join_path(written.directory, name));
  }
  EXPECT_EQ(written.bytes, on_disk);
  EXPECT_EQ(disk().list(root), (std::vector<std::string>{"step-1200"}));
  EXPECT_TRUE(checkpoint.has("adam.step"));
  EXPECT_FALSE(checkpoint.has("adam"));
}

TEST(Checkpoints, MayBeCopiedAnywhereAndReadByPublicReaders) {
  const TestFolder folder;
  const TestCheckpoint content(7, 1);
  disk().rename(content.write(disk(), folder.path()).directory, folder.file("my-model"));
  expect_equal(Checkpoint::open(disk(), folder.file("my-model")), content);
  const SafetensorsSet set =
      SafetensorsSet::open(disk(), folder.file("my-model/data-00000-00000.safetensors"));
  EXPECT_EQ(set.entries().size(), content.tensors.size());
  for (const SafetensorsEntry* entry : set.entries()) EXPECT_TRUE(can_view(*entry));
}

TEST(Checkpoints, EveryCutIntoFilesReadsTheSame) {
  const TestFolder folder;
  const TestCheckpoint content(5, 3);
  size_t files_max = 0;
  for (const int64_t limit : {1, 8, 16, 17, 40, 100, 150, 300, 1 << 20}) {
    const std::string root = folder.file(std::to_string(limit));
    const CheckpointWritten written = content.write(disk(), root, {.max_file_bytes = limit});
    EXPECT_EQ(written.hash, content.hash());
    const Checkpoint checkpoint = Checkpoint::open(disk(), written.directory, limit % 2 == 0);
    expect_equal(checkpoint, content);
    EXPECT_EQ(checkpoint.hash("weights."),
              Checkpoint::open(disk(), written.directory).hash("weights."));
    files_max = std::max(files_max, disk().list(written.directory).size());
    for (const std::string& name : disk().list(written.directory)) {
      if (!name.starts_with("data-") || limit < 16) continue;  // a row may be larger than that
      const auto file = SafetensorsFile::open(disk(), join_path(written.directory, name));
      EXPECT_LE(file.mapping().bytes() - file.header_bytes(), limit) << name;
    }
    // Any rows, also across parts.
    const Tensor embed = content.tensors[0].tensor;
    for (int64_t begin = 0; begin <= 9; ++begin) {
      for (int64_t end = begin; end <= 9; ++end) {
        std::vector<float> rows(static_cast<size_t>(4 * (end - begin)) + 1, -1.0f);
        checkpoint.read_rows("weights.embed", begin,
                             make_tensor(rows.data(), DType::kF32, {end - begin, 4}));
        ASSERT_EQ(0,
                  std::memcmp(rows.data(), embed.as<float>() + 4 * begin, (rows.size() - 1) * 4));
        ASSERT_EQ(rows.back(), -1.0f);
      }
    }
  }
  EXPECT_GT(files_max, 15u);
}

TEST(Checkpoints, HashSeesEveryChangeAndNothingElse) {
  const TestFolder folder;
  const auto hash = [&](const std::function<void(TestCheckpoint&)>& change) {
    TestCheckpoint content(5, 3);
    change(content);
    const CheckpointWritten written = content.write(disk(), folder.path());
    EXPECT_EQ(Checkpoint::open(disk(), written.directory).hash(), content.hash());
    EXPECT_EQ(written.hash, content.hash());
    return written.hash;
  };
  const Hash128 same = hash([](TestCheckpoint&) {});
  EXPECT_EQ(same, hash([](TestCheckpoint& c) { std::swap(c.tensors[0], c.tensors[3]); }));
  EXPECT_EQ(same, hash([](TestCheckpoint& c) { c.files.clear(); }));
  EXPECT_EQ(same, hash([](TestCheckpoint& c) { c.info.config = "other"; }));
  EXPECT_NE(same, hash([](TestCheckpoint& c) { c.info.step = 6; }));
  EXPECT_NE(same, hash([](TestCheckpoint& c) { c.tensors[1].name += "x"; }));
  EXPECT_NE(same, hash([](TestCheckpoint& c) { std::swap(c.tensors[0].name, c.tensors[3].name); }));
  EXPECT_NE(same, hash([](TestCheckpoint& c) { c.tensors[0].tensor.dtype = DType::kI32; }));
  EXPECT_NE(same, hash([](TestCheckpoint& c) {
              c.tensors[0].tensor = c.tensors[0].tensor.reshaped({4, 9});
            }));
  EXPECT_NE(same, hash([](TestCheckpoint& c) { c.tensors.pop_back(); }));
  EXPECT_NE(same, hash([](TestCheckpoint& c) {
              static_cast<uint8_t*>(c.tensors[5].tensor.data)[5] ^= 1;
            }));
}

TEST(Checkpoints, HashOfAPrefixIsOfThoseTensorsOnly) {
  const TestFolder folder;
  TestCheckpoint a(5, 3), b(6, 3);
  static_cast<uint8_t*>(b.tensors[3].tensor.data)[0] ^= 1;  // adam.m.embed
  const auto first = Checkpoint::open(disk(), a.write(disk(), folder.path()).directory);
  const auto second = Checkpoint::open(disk(), b.write(disk(), folder.path()).directory);
  EXPECT_EQ(first.hash("weights."), second.hash("weights."));
  EXPECT_NE(first.hash("adam."), second.hash("adam."));
  EXPECT_NE(first.hash(""), second.hash(""));
}

// Pins the hash itself: a run of today must compare with one of next year.
TEST(Checkpoints, HashIsOfTheDocumentedLines) {
  const uint8_t bytes[4] = {1, 2, 3, 4};
  const CheckpointTensor tensors[] = {
      {"b", make_tensor(const_cast<uint8_t*>(bytes), DType::kU8, {2, 2})},
      {"a\"", make_tensor(const_cast<uint8_t*>(bytes), DType::kI32, {})}};
  const std::string of_bytes = hash_hex(hash_bytes(bytes, 4));
  const std::string lines =
      "step 12\n\"a\\\"\" i32 [] " + of_bytes + "\n\"b\" u8 [2, 2] " + of_bytes + "\n";
  const Hash128 wanted = hash_bytes(lines.data(), static_cast<int64_t>(lines.size()));
  const TestFolder folder;
  const CheckpointInfo info{.step = 12, .tokens_seen = 0, .seed = 0, .values = {}, .config = ""};
  const CheckpointWritten written =
      write_checkpoint(disk(), folder.path(), {.info = info, .tensors = tensors});
  EXPECT_EQ(written.hash, wanted);
  EXPECT_EQ(Checkpoint::open(disk(), written.directory).hash(), wanted);
}

TEST(Checkpoints, SameContentGivesSameBytes) {
  const TestFolder folder;
  for (const int64_t limit : {32, 1 << 20}) {
    const std::string a =
        TestCheckpoint(5, 3).write(disk(), folder.file("a"), {.max_file_bytes = limit}).directory;
    const std::string b =
        TestCheckpoint(5, 3).write(disk(), folder.file("b"), {.max_file_bytes = limit}).directory;
    ASSERT_EQ(disk().list(a), disk().list(b));
    for (const std::string& name : disk().list(a)) {
      EXPECT_EQ(disk().read(join_path(a, name)), disk().read(join_path(b, name))) << name;
    }
  }
}

// The worked example of docs/formats/checkpoint.md.
TEST(Checkpoints, ManifestIsTheDocumentedOne) {
  const TestFolder folder;
  float values[] = {1, 2, 3, 4, 5, 6};
  const CheckpointTensor tensor{"w", make_tensor(values, DType::kF32, {3, 2})};
  const CheckpointFile file{"config.toml", "[train]\n"};
  const CheckpointInfo info{
      .step = 2, .tokens_seen = 64, .seed = 1, .values = {{"phase", "0"}}, .config = "[train]\n"};
  const std::string directory = write_checkpoint(disk(), folder.path(),
                                                 {.info = info,
                                                  .tensors = {&tensor, 1},
                                                  .files = {&file, 1},
                                                  .options = {.max_file_bytes = 16}})
                                    .directory;
  EXPECT_EQ(disk().read(directory + "/manifest.json"), R"({
"format": "moraine-checkpoint",
"version": 1,
"step": 2,
"tokens_seen": 64,
"seed": 1,
"values": {
  "phase": "0"
},
"config": "[train]\n",
"files": [
  {"name": "config.toml", "bytes": 8, "hash": "5a9906c6e2b08950b6e12eab196376fb"}
],
"data": [
  {"name": "data-00000-00000.safetensors", "bytes": 112, "header_hash": "4477d97a57e8f938d4023ae28f396027"},
  {"name": "data-00000-00001.safetensors", "bytes": 104, "header_hash": "aceeab8ebef44db77274ebb17b3383a3"}
],
"tensors": [
  {"name": "w", "dtype": "f32", "shape": [3, 2], "parts": [{"file": 0, "rows": [0, 2], "hash": "2babafcad3709c7ce3b3073547aa9dc3"}, {"file": 1, "rows": [2, 3], "hash": "c6002540a63ad03a81a25cf30b0b1d97"}]}
],
"manifest_hash": "744672f854634644be9e632e5e3d4ae1"
}
)");
}

TEST(Checkpoints, RefusesWrongRequestsWithWhatIsThere) {
  const TestFolder folder;
  const TestCheckpoint content(5, 3);
  const auto checkpoint = Checkpoint::open(disk(), content.write(disk(), folder.path()).directory);
  float out[64];
  const auto read = [&](const char* name, DType dtype, std::initializer_list<int64_t> dims) {
    const Tensor t = make_tensor(out, dtype, dims);
    return [&checkpoint, name, t] { checkpoint.read(name, t); };
  };
  std::string message =
      message_of(Code::kInvalidArgument, read("weights.embed", DType::kF32, {4, 9}));
  EXPECT_NE(message.find("f32 [9, 4], wanted f32 [4, 9]"), std::string::npos) << message;
  message = message_of(Code::kInvalidArgument, read("weights.embed", DType::kI32, {9, 4}));
  EXPECT_NE(message.find("wanted i32"), std::string::npos) << message;
  message_of(Code::kInvalidArgument, read("weights.embed", DType::kF32, {9}));
  message_of(Code::kInvalidArgument, read("weights.embed", DType::kF32, {9, 4, 1}));
  message_of(Code::kInvalidArgument, read("weights.embed", DType::kF32, {}));
  message_of(Code::kInvalidArgument, read("adam.step", DType::kI64, {1}));
  message = message_of(Code::kNotFound, read("weights.embd", DType::kF32, {9, 4}));
  EXPECT_NE(message.find("'weights.embed'"), std::string::npos) << message;
  for (const int64_t begin : {int64_t{-1}, int64_t{8}, INT64_MAX, INT64_MIN}) {
    message_of(Code::kInvalidArgument, [&] {
      checkpoint.read_rows("weights.embed", begin, make_tensor(out, DType::kF32, {2, 4}));
    });
  }
  message_of(Code::kNotFound, [&] { checkpoint.file("nothing.json"); });
  message_of(Code::kNotFound, [&] { Checkpoint::open(disk(), folder.file("step-9")); });
}

TEST(Checkpoints, SumsOfForgedSizesDoNotWrap) {
  const TestFolder folder;
  const std::string directory = TestCheckpoint(5, 3).write(disk(), folder.path()).directory;
  Manifest manifest = parse_manifest(disk().read(directory + "/manifest.json"));
  ASSERT_GE(manifest.files.size(), 2u);
  for (ManifestFile& file : manifest.files) file.bytes = INT64_MAX - 1;
  disk().write_atomic(directory + "/manifest.json", manifest_text(manifest));
  const auto checkpoint = Checkpoint::open(disk(), directory, /*verify=*/false);
  EXPECT_EQ(checkpoint.bytes(), INT64_MAX);
  int64_t total = 0;
  message_of(Code::kCorrupt,
             [&] { checkpoint.verify([&](int64_t, int64_t all) { total = all; }); });
  EXPECT_EQ(total, INT64_MAX);
}

TEST(Checkpoints, RefusesWhatCanNotBeWritten) {
  const TestFolder folder;
  const auto refused = [&](const std::function<void(TestCheckpoint&)>& change) {
    TestCheckpoint content(5, 3);
    change(content);
    return message_of(Code::kInvalidArgument, [&] { content.write(disk(), folder.path()); });
  };
  refused([](TestCheckpoint& c) { c.tensors[1].name = c.tensors[0].name; });
  const std::string twice = refused([](TestCheckpoint& c) {
    for (int i = 0; i < 2; ++i) c.add("without rows", DType::kF32, {0, 3}, 9);
  });
  EXPECT_NE(twice.find("'without rows' [0, 3] are passed twice"), std::string::npos) << twice;
  refused([](TestCheckpoint& c) { c.tensors[1].name = "__metadata__"; });
  refused([](TestCheckpoint& c) { c.tensors[1].name = "\xff"; });
  refused([](TestCheckpoint& c) { c.info.config = "\xff"; });
  refused([](TestCheckpoint& c) { c.info.step = -1; });
  for (const char* name : {"", ".", "..", "a/b", "manifest.json", "data-1", "config.toml", "a\n"}) {
    refused([&](TestCheckpoint& c) { c.files[1].name = name; });
  }
  EXPECT_TRUE(disk().list(folder.path()).empty());  // no rubble of failed saves either
}

TEST(Checkpoints, ManyTensorsAndNone) {
  const TestFolder folder;
  TestCheckpoint content(5, 3);
  content.tensors.clear();
  expect_equal(Checkpoint::open(disk(), content.write(disk(), folder.path()).directory), content);
  for (int i = 0; i < 3000; ++i) {
    content.add("layer." + std::to_string(i), i % 3 == 0 ? DType::kBF16 : DType::kF32, {i % 5, 3},
                9);
  }
  expect_equal(Checkpoint::open(disk(), content.write(disk(), folder.path()).directory), content);
}

}  // namespace
}  // namespace moraine
