// Describe: fails if `inspect` shows other tensors, totals, hashes or damage than there are.
#include "checkpoint/describe.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "base/test_folder.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/faulty_file_system.h"
#include "checkpoint/history.h"
#include "checkpoint/safetensors/file.h"
#include "checkpoint/safetensors/writer.h"
#include "checkpoint/test_checkpoint.h"
#include "checkpoint/test_ranks.h"
#include "testing/places.h"

namespace moraine {
namespace {

using testing::disk;
using testing::TestCheckpoint;
using testing::TestFolder;

const std::string kTiny = testing::source_path("tests/golden/native-tiny");

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Describe, ACheckpoint) {
  const TestFolder folder;
  const TestCheckpoint content(1200, 1);
  const std::string directory =
      content.write(disk(), folder.path(), {.max_file_bytes = 64}).directory;
  const Description d = describe(disk(), directory);
  EXPECT_EQ(d.kind, "checkpoint");
  EXPECT_EQ(d.step, 1200);
  ASSERT_EQ(d.tensors.size(), 6u);
  EXPECT_EQ(d.tensors[0].name, "adam.m.embed");
  EXPECT_EQ(d.tensors[0].count, 36);
  EXPECT_EQ(d.tensors[0].bytes, 144);
  EXPECT_EQ(d.tensors[0].num_parts, 3);
  EXPECT_TRUE(d.problems.empty());
  EXPECT_EQ(d.hash, hash_hex(content.hash()));
  EXPECT_EQ(content_hash_hex(disk(), directory), d.hash);
  ASSERT_EQ(d.totals.size(), 5u);
  EXPECT_EQ(d.totals[0].prefix, "adam.*");
  EXPECT_EQ(d.totals[0].num_tensors, 2);
  EXPECT_EQ(d.totals[0].bytes, 144 + 8);
  EXPECT_EQ(d.totals.back().prefix, "all");
  EXPECT_EQ(d.totals.back().bytes, 144 + 8 + 0 + 6 + 144 + 30);

  const std::string text = description_text(d);
  EXPECT_TRUE(contains(text, "1200")) << text;
  EXPECT_TRUE(contains(text, "[9, 4]")) << text;
  EXPECT_TRUE(contains(text, "verified: every byte")) << text;
  EXPECT_TRUE(contains(text, "hash: " + d.hash)) << text;

  const Json json = parse_json(description_json(d), "description");
  EXPECT_EQ(json["hash"], d.hash);
  EXPECT_EQ(json["tensors"].size(), 6u);
  EXPECT_EQ(json["tensors"][0]["shape"], parse_json("[9, 4]"));
  EXPECT_EQ(json["totals"][0]["elements"], 37);
  EXPECT_EQ(json["seed"], content.info.seed);
  EXPECT_EQ(json["config"], content.info.config);
  EXPECT_TRUE(json["problems"].empty());
}

TEST(Describe, DamageIsListedNotThrown) {
  const TestFolder folder;
  const std::string directory = TestCheckpoint(3, 1).write(disk(), folder.path()).directory;
  folder.write("step-3/tokenizer.json", "{\"a\": 2}");
  const std::string data = directory + "/data-00000-00000.safetensors";
  std::string content = disk().read(data);
  content.back() = static_cast<char>(content.back() ^ 1);
  folder.write("step-3/data-00000-00000.safetensors", content);
  const Description d = describe(disk(), directory);
  ASSERT_EQ(d.problems.size(), 2u);
  EXPECT_TRUE(contains(d.problems[0], "'flags'")) << d.problems[0];
  EXPECT_TRUE(contains(d.problems[1], "tokenizer.json")) << d.problems[1];
  EXPECT_EQ(d.hash, "");
  EXPECT_TRUE(contains(description_text(d), "DAMAGED"));
  EXPECT_EQ(parse_json(description_json(d), "description")["problems"].size(), 2u);
  EXPECT_THROW(content_hash_hex(disk(), directory), Error);

  const Description quick = describe(disk(), directory, {.verify = false, .hash = false});
  EXPECT_TRUE(quick.problems.empty());
  EXPECT_FALSE(contains(description_text(quick), "verified"));
}

TEST(Describe, WhoWroteADistributedCheckpointAndWhichFileIsDamaged) {
  const TestFolder folder;
  const TestCheckpoint content(3, 1);
  const testing::Dealt dealt = testing::deal(content.tensors, 3, 1);
  testing::run_ranks(3, [&](Communicator& comm) {
    testing::write_dealt(comm, disk(), folder.path(), {content, dealt});
  });
  const std::string directory = folder.file("step-3");
  const Description whole = describe(disk(), directory);
  EXPECT_EQ(whole.num_writers, 3);
  EXPECT_EQ(whole.hash, hash_hex(content.hash()));
  ASSERT_EQ(whole.file_rows.size(), 5u);
  int64_t parts = 0;
  for (const FileRow& f : whole.file_rows) {
    EXPECT_EQ(f.state, "ok");
    EXPECT_EQ(f.bytes, disk().file_bytes(join_path(directory, f.name)));
    parts += f.num_parts;
  }
  int64_t want = 0;
  for (const TensorRow& t : whole.tensors) want += t.num_parts;
  EXPECT_EQ(parts, want);
  EXPECT_TRUE(contains(description_text(whole), "written by   3 ranks"));
  EXPECT_EQ(parse_json(description_json(whole), "description")["writers"], 3);

  // One file flipped in its header, one missing: both are named, the rest is shown.
  const std::string flipped = "data-00000-00000.safetensors", lost = "data-00002-00000.safetensors";
  std::string bytes = disk().read(join_path(directory, flipped));
  bytes[20] = static_cast<char>(bytes[20] ^ 1);
  folder.write("step-3/" + flipped, bytes);
  disk().remove_all(join_path(directory, lost));
  for (const bool verify : {true, false}) {
    const Description d = describe(disk(), directory, {.verify = verify, .hash = verify});
    ASSERT_EQ(d.problems.size(), 2u);
    EXPECT_TRUE(contains(d.problems[0], flipped)) << d.problems[0];
    EXPECT_TRUE(contains(d.problems[1], lost)) << d.problems[1];
    EXPECT_EQ(d.tensors.size(), 6u);
    EXPECT_EQ(d.hash, "");
    for (const FileRow& f : d.file_rows) {
      const bool damaged = f.name == flipped || f.name == lost;
      EXPECT_EQ(f.state, damaged ? "DAMAGED" : verify ? "ok" : "present") << f.name;
    }
    EXPECT_TRUE(contains(description_text(d), "DAMAGED:\n  " + flipped)) << description_text(d);
    EXPECT_EQ(parse_json(description_json(d), "description")["problems"].size(), 2u);
  }
}

TEST(Describe, AWeightFileAndItsFolder) {
  const Description d = describe(disk(), kTiny);
  EXPECT_EQ(d.kind, "safetensors");
  EXPECT_EQ(d.tensors.size(), 99u);
  EXPECT_EQ(d.totals.back().bytes, 785748 - 8 - 11128);
  EXPECT_EQ(d.totals[0].prefix, "model.embed_tokens.*");  // names differ only after "model."
  EXPECT_EQ(describe(disk(), kTiny + "/model.safetensors").hash, d.hash);
  EXPECT_TRUE(contains(description_text(d), "model.embed_tokens.weight"));
  EXPECT_EQ(parse_json(description_json(d), "description")["tensors"].size(), 99u);
}

// The same tensors have one hash, whether in a weight file or (but for the step) in a checkpoint.
TEST(Describe, HashOfAWeightFileIsThatOfTheSameTensorsInACheckpoint) {
  const TestFolder folder;
  const TestCheckpoint content(3, 1);
  const std::string directory = content.write(disk(), folder.path()).directory;
  std::vector<NamedTensor> tensors;
  for (const CheckpointTensor& t : content.tensors) tensors.push_back({t.name, t.tensor});
  write_safetensors(disk(), folder.file("w.safetensors"), tensors);
  EXPECT_EQ(content_hash_hex(disk(), folder.file("w.safetensors")),
            hash_hex(Checkpoint::open(disk(), directory).hash("")));
}

TEST(Describe, ARunFolder) {
  const TestFolder folder;
  const CheckpointWritten written = TestCheckpoint(3, 1).write(disk(), folder.path());
  TestCheckpoint(4, 1).write(disk(), folder.path());
  mark_last_good(disk(), folder.path(), 3);
  folder.write("step-4/config.toml", "x");
  const Description d = describe(disk(), folder.path());
  EXPECT_EQ(d.kind, "run");
  ASSERT_EQ(d.checkpoints.size(), 2u);
  EXPECT_EQ(d.checkpoints[0].bytes, written.bytes);
  EXPECT_EQ(d.checkpoints[0].state, "ok");
  EXPECT_TRUE(contains(d.checkpoints[1].state, "config.toml")) << d.checkpoints[1].state;
  EXPECT_EQ(d.problems.size(), 1u);
  EXPECT_TRUE(contains(description_text(d), "last good"));
  EXPECT_EQ(parse_json(description_json(d), "description")["last_good"], 3);
  EXPECT_THROW(content_hash_hex(disk(), folder.path()), Error);
}

// Removes step 1, as retention does, when a file of it is opened.
class PruningFileSystem : public testing::FaultyFileSystem {
 public:
  explicit PruningFileSystem(const std::string& root) : FaultyFileSystem(disk()), root_(root) {}
  std::unique_ptr<MappedFile> map(const std::string& path) override {
    if (path.find("/step-1/") != std::string::npos) remove_checkpoint(disk(), root_, 1);
    return disk().map(path);
  }

 private:
  const std::string root_;
};

TEST(Describe, WhatARunRemovesMeanwhileIsNotDamaged) {
  const TestFolder folder;
  TestCheckpoint(1, 1).write(disk(), folder.path());
  TestCheckpoint(2, 2).write(disk(), folder.path());
  PruningFileSystem fs(folder.path());
  const Description run = describe(fs, folder.path());
  EXPECT_TRUE(run.problems.empty()) << run.problems[0];
  ASSERT_EQ(run.checkpoints.size(), 1u);
  EXPECT_EQ(run.checkpoints[0].step, 2);

  const std::string step_1 = TestCheckpoint(1, 1).write(disk(), folder.path()).directory;
  try {
    describe(fs, step_1);
    ADD_FAILURE() << "it is gone";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kNotFound) << error.what();
    EXPECT_TRUE(contains(error.what(), "removed while it was looked at")) << error.what();
  }
}

TEST(Describe, NothingToDescribe) {
  const TestFolder folder;
  for (const std::string& path : {folder.path(), folder.file("absent")}) {
    try {
      describe(disk(), path);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kNotFound);
      EXPECT_TRUE(contains(error.what(), path)) << error.what();
    }
  }
  folder.write("notes.txt", "no weights at all");
  EXPECT_THROW(describe(disk(), folder.file("notes.txt")), Error);
}

TEST(Describe, NamesOfStrangersMoveNoCursor) {
  const TestFolder folder;
  float value = 1;
  const NamedTensor tensor{"a\x1b[2J\n", make_tensor(&value, DType::kF32, {1})};
  write_safetensors(disk(), folder.file("f"), {&tensor, 1});
  const Description d = describe(disk(), folder.file("f"));
  EXPECT_FALSE(contains(description_text(d), "\x1b"));
  EXPECT_EQ(parse_json(description_json(d), "description")["tensors"][0]["name"], tensor.name);
}

// One long name widens no column, many files and problems are matched by name, and sums of forged
// sizes do not wrap.
TEST(Describe, StrangersDoNotDecideHowLongItIs) {
  Description d;
  d.kind = "checkpoint";
  d.tensors.resize(300);
  d.tensors[7].name = std::string(1 << 20, 'x');
  d.file_rows.push_back({std::string(250, 'f'), 1, 1, "ok"});
  EXPECT_LT(description_text(d).size(), size_t{100'000});
  EXPECT_TRUE(contains(description_text(d), "more bytes)"));

  std::vector<TensorRow> rows(3);
  for (TensorRow& row : rows) {
    row.name = "a.b";
    row.count = row.bytes = INT64_MAX - 1;
  }
  EXPECT_EQ(totals_by_prefix(rows).back().bytes, INT64_MAX);
  EXPECT_EQ(totals_by_prefix(rows).back().count, INT64_MAX);
}

}  // namespace
}  // namespace moraine
