// Fails if a checkpoint whose tensors are made on the way has other bytes than one from memory, if elements are read
// from the wrong part, or if a page is not where a mapping could use it.
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "base/test_folder.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors/file.h"
#include "checkpoint/test_checkpoint.h"

namespace moraine {
namespace {

using testing::disk;
using testing::TestCheckpoint;
using testing::TestFolder;

TEST(CheckpointStream, TensorsMadeOnTheWayGiveTheSameFiles) {
  TestFolder folder;
  TestCheckpoint content(3, 5);
  content.add("large", DType::kF32, {700, 1000}, 6);  // several pieces
  for (const int64_t max_file_bytes : {int64_t{1} << 30, int64_t{1} << 20}) {
    const CheckpointOptions options{.max_file_bytes = max_file_bytes};
    const CheckpointWritten want = content.write(disk(), folder.file("memory"), options);
    std::vector<CheckpointTensor> streamed = content.tensors;
    int64_t next = 0;
    for (CheckpointTensor& t : streamed) {
      const uint8_t* from = static_cast<const uint8_t*>(t.tensor.data);
      const bool large = t.name == "large";
      t.tensor.data = nullptr;
      t.fill = [&next, from, large](int64_t offset, int64_t bytes, void* out) {
        if (large) {
          EXPECT_EQ(offset, next);
          next = offset + bytes;
        }
        std::memcpy(out, from + offset, static_cast<size_t>(bytes));
      };
    }
    const CheckpointWritten got = write_checkpoint(
        disk(), folder.file("stream"),
        {.info = content.info, .tensors = streamed, .files = content.files, .options = options});
    EXPECT_EQ(got.hash, want.hash);
    EXPECT_EQ(next, 4 * 700 * 1000);
    ASSERT_EQ(disk().list(got.directory), disk().list(want.directory));
    for (const std::string& name : disk().list(want.directory)) {
      EXPECT_EQ(disk().read(join_path(got.directory, name)),
                disk().read(join_path(want.directory, name)))
          << name;
    }
    folder.clear();
  }
}

TEST(CheckpointStream, AnErrorOnTheWayLeavesNothing) {
  const TestFolder folder;
  TestCheckpoint content(3, 5);
  content.tensors[0].tensor.data = nullptr;
  content.tensors[0].fill = [](int64_t, int64_t, void*) {
    throw_error(Code::kCorrupt, "the source is damaged");
  };
  try {
    content.write(disk(), folder.path());
    FAIL() << "no Error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kCorrupt);
    EXPECT_NE(std::string(e.what()).find("the source is damaged"), std::string::npos) << e.what();
  }
  EXPECT_TRUE(disk().list(folder.path()).empty());
}

TEST(CheckpointStream, ElementsAreThoseOfTheWholeTensor) {
  const TestFolder folder;
  TestCheckpoint content(3, 5);
  content.add("cut", DType::kF32, {20, 3, 5}, 6);  // in parts of four rows
  const CheckpointWritten written =
      content.write(disk(), folder.path(), {.max_file_bytes = 4 * 4 * 15});
  const Checkpoint checkpoint = Checkpoint::open(disk(), written.directory, false);
  const float* want = content.tensors.back().tensor.as<float>();
  for (int64_t begin = 0; begin < 300; begin += 7) {
    for (const int64_t count : {0, 1, 61, 150}) {
      if (begin + count > 300) continue;
      std::vector<float> got(static_cast<size_t>(count) + 1, -1);
      checkpoint.read_elements("cut", begin, make_tensor(got.data(), DType::kF32, {count}));
      EXPECT_EQ(std::memcmp(got.data(), want + begin, static_cast<size_t>(4 * count)), 0) << begin;
      EXPECT_EQ(got.back(), -1);
    }
  }
  float value;
  const Tensor one = make_tensor(&value, DType::kF32, {1});
  EXPECT_THROW(checkpoint.read_elements("cut", 300, one), Error);
  EXPECT_THROW(checkpoint.read_elements("cut", -1, one), Error);
  EXPECT_THROW(checkpoint.read_elements("flags", 0, one), Error);
  EXPECT_THROW(checkpoint.mapped("cut"), Error);
  EXPECT_GT(checkpoint.entry("cut").num_parts, 1);
}

TEST(CheckpointStream, PagesStandFirstAndAtTheirPlaces) {
  const TestFolder folder;
  constexpr int64_t kPage = 4096;
  TestCheckpoint content(3, 5);
  std::erase_if(content.tensors,
                [](const CheckpointTensor& t) { return t.tensor.dtype == DType::kU8; });
  for (const char* name : {"z", "a", "m"}) content.add(name, DType::kU8, {3 * kPage}, 7);
  const CheckpointWritten written = content.write(disk(), folder.path(), {.page_bytes = kPage});
  const Checkpoint checkpoint = Checkpoint::open(disk(), written.directory);
  EXPECT_EQ(checkpoint.hash(), content.hash());
  for (const CheckpointTensor& t : content.tensors) {
    const Checkpoint::Mapped at = checkpoint.mapped(t.name);
    ASSERT_EQ(at.bytes, t.tensor.bytes());
    EXPECT_EQ(std::memcmp(at.data(), t.tensor.data, static_cast<size_t>(at.bytes)), 0);
    if (t.tensor.dtype != DType::kU8) continue;
    EXPECT_EQ(at.offset % kPage, 0) << t.name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(at.data()) % kPage, 0u) << t.name;
    at.file->populate(at.offset, at.bytes);
  }
}

}  // namespace
}  // namespace moraine
