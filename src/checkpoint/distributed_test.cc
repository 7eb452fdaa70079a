// Distributed checkpoints: fails if the cut of tensors over ranks can be seen in what is loaded or in
// the hash, if a rank that saves something else or rows that do not tile go unseen, or if the ranks
// do not all get the same outcome.
#include "checkpoint/distributed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/test_folder.h"
#include "checkpoint/faulty_file_system.h"
#include "checkpoint/history.h"
#include "checkpoint/test_ranks.h"

namespace moraine {
namespace {

using testing::deal;
using testing::Dealt;
using testing::disk;
using testing::FaultyFileSystem;
using testing::RankErrors;
using testing::run_ranks;
using testing::TestCheckpoint;
using testing::TestFolder;
using testing::write_dealt;

// Tensors of random types and shapes, some empty, some scalars.
void add_random(TestCheckpoint* content, uint64_t seed) {
  constexpr DType kTypes[] = {DType::kF64, DType::kF32, DType::kBF16,
                              DType::kI64, DType::kI32, DType::kU8};
  uint64_t draw = 0;
  const auto below = [&](uint64_t n) { return random_below(n, seed, Stream::kTest, 5, draw++); };
  const uint64_t count = 1 + below(8);
  for (uint64_t i = 0; i < count; ++i) {
    std::vector<int64_t> dims(below(5));
    for (size_t d = 0; d < dims.size(); ++d) dims[d] = static_cast<int64_t>(below(d == 0 ? 12 : 5));
    content->add("random." + std::to_string(i * 7 % 11), kTypes[below(6)], dims, seed + i);
  }
}

// Each rank reads random rows of every tensor.
void expect_loads_anywhere(const std::string& directory, const TestCheckpoint& want, int ranks,
                           uint64_t seed) {
  const RankErrors errors = run_ranks(ranks, [&](Communicator& comm) {
    const Checkpoint loaded = Checkpoint::open(disk(), directory, comm.rank() == 0);
    for (const CheckpointTensor& t : want.tensors) {
      const int64_t rows = t.tensor.rank == 0 ? 1 : t.tensor.dims[0];
      const uint64_t from = static_cast<uint64_t>(comm.rank());
      const int64_t begin = static_cast<int64_t>(
          random_below(static_cast<uint64_t>(rows) + 1, seed, Stream::kTest, from, 1));
      Tensor out = t.tensor.rank == 0 ? t.tensor : t.tensor.rows(begin, rows);
      const auto* expected = static_cast<const uint8_t*>(out.data);  // null without rows
      std::vector<uint8_t> memory(static_cast<size_t>(out.bytes()) + 1);
      out.data = memory.data();
      loaded.read_rows(t.name, t.tensor.rank == 0 ? 0 : begin, out);
      EXPECT_TRUE(std::equal(memory.begin(), memory.end() - 1, expected)) << t.name;
    }
    EXPECT_EQ(checkpoint_hash_distributed(comm, loaded), want.hash());
  });
  for (const auto& error : errors) EXPECT_FALSE(error.has_value()) << error->what();
}

TEST(Distributed, AnyCutOverAnyRanksIsTheSameCheckpointOnAnyOther) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const int ranks = 1 + static_cast<int>(random_below(8, seed, Stream::kTest, 1, 0));
    const int readers = 1 + static_cast<int>(random_below(8, seed, Stream::kTest, 1, 1));
    const int64_t file_bytes =
        1 + static_cast<int64_t>(random_below(600, seed, Stream::kTest, 1, 2));
    SCOPED_TRACE(fmt::format("seed {}: {} writers, {} readers, files of {}", seed, ranks, readers,
                             file_bytes));
    const TestFolder folder;
    TestCheckpoint content(static_cast<int64_t>(seed), seed);
    add_random(&content, seed);
    const Dealt dealt = deal(content.tensors, ranks, seed);
    FaultyFileSystem fast(disk());
    const RankErrors errors = run_ranks(ranks, [&](Communicator& comm) {
      const CheckpointWritten written =
          write_dealt(comm, fast, folder.path(), {content, dealt}, {.max_file_bytes = file_bytes});
      EXPECT_EQ(written.hash, content.hash());
      EXPECT_EQ(written.directory, folder.file(fmt::format("step-{}", seed)));
      EXPECT_EQ(written.bytes, Checkpoint::open(disk(), written.directory).bytes());
    });
    for (const auto& error : errors) ASSERT_FALSE(error.has_value()) << error->what();
    const std::string directory = folder.file(fmt::format("step-{}", seed));
    const Checkpoint loaded = Checkpoint::open(disk(), directory);
    EXPECT_EQ(loaded.hash(), content.hash());
    EXPECT_EQ(loaded.info().values, content.info.values);
    EXPECT_EQ(loaded.file("tokenizer.json"), content.files[1].content);
    expect_loads_anywhere(directory, content, readers, seed);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(Distributed, OneRankWritesTheBytesOfTheSingleWriter) {
  const TestFolder folder;
  const TestCheckpoint content(3, 1);
  const std::string alone =
      content.write(disk(), folder.file("alone"), {.max_file_bytes = 100}).directory;
  std::string shared;
  run_ranks(1, [&](Communicator& comm) {
    std::vector<TensorRows> all;
    for (const CheckpointTensor& t : content.tensors) {
      all.push_back({t.name, t.tensor, {t.tensor.dims, t.tensor.dims + t.tensor.rank}, 0});
    }
    shared =
        write_dealt(comm, disk(), folder.file("shared"), {content, {all}}, {.max_file_bytes = 100})
            .directory;
  });
  ASSERT_EQ(disk().list(alone), disk().list(shared));
  for (const std::string& name : disk().list(alone)) {
    EXPECT_EQ(disk().read(join_path(alone, name)), disk().read(join_path(shared, name))) << name;
  }
}

TEST(Distributed, EveryRankWritesItsOwnRows) {
  const TestFolder folder;
  TestCheckpoint content(3, 1);
  Dealt dealt(3);
  for (const CheckpointTensor& t : content.tensors) {
    const std::vector<int64_t> shape(t.tensor.dims, t.tensor.dims + t.tensor.rank);
    if (t.name != "weights.embed") {
      dealt[0].push_back({t.name, t.tensor, shape, 0});
      continue;
    }
    dealt[1].push_back({t.name, t.tensor.rows(0, 4), shape, 0});
    dealt[2].push_back({t.name, t.tensor.rows(4, 9), shape, 4});
  }
  run_ranks(3, [&](Communicator& comm) {
    write_dealt(comm, disk(), folder.path(), {content, dealt});
  });
  const auto bytes = [&](const char* name) { return disk().file_bytes(folder.file(name)); };
  EXPECT_EQ(bytes("step-3/data-00002-00000.safetensors"),
            bytes("step-3/data-00001-00000.safetensors") + 16);  // one row more
}

// Saves with one rank changed by `change`; all ranks must get one Error that says `wanted`.
struct Difference {
  const char* name;
  std::function<void(CheckpointInfo&, std::vector<TensorRows>&, std::vector<CheckpointFile>&)>
      change;  // on rank 1 of 3
  Code code;
  std::vector<std::string> wanted;
};

void expect_refused(const Difference& difference) {
  SCOPED_TRACE(difference.name);
  const TestFolder folder;
  const TestCheckpoint old_one(2, 5), content(3, 1);
  old_one.write(disk(), folder.path());
  Dealt dealt(3);
  for (const CheckpointTensor& t : content.tensors) {
    const std::vector<int64_t> shape(t.tensor.dims, t.tensor.dims + t.tensor.rank);
    if (t.name == "weights.embed") {
      dealt[0].push_back({t.name, t.tensor.rows(0, 3), shape, 0});
      dealt[1].push_back({t.name, t.tensor.rows(3, 5), shape, 3});
      dealt[2].push_back({t.name, t.tensor.rows(5, 9), shape, 5});
    } else {
      dealt[2].push_back({t.name, t.tensor, shape, 0});
    }
  }
  const RankErrors errors = run_ranks(3, [&](Communicator& comm) {
    CheckpointInfo info = content.info;
    std::vector<TensorRows> mine = dealt[static_cast<size_t>(comm.rank())];
    std::vector<CheckpointFile> files = content.files;
    if (comm.rank() == 1) difference.change(info, mine, files);
    write_checkpoint_distributed(comm, disk(), folder.path(),
                                 {.info = info, .tensors = mine, .files = files});
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), difference.code);
    for (const std::string& wanted : difference.wanted) {
      EXPECT_NE(std::string(error->what()).find(wanted), std::string::npos)
          << wanted << " in: " << error->what();
    }
  }
  EXPECT_EQ(disk().list(folder.path()), (std::vector<std::string>{"step-2"}));
  // The ranks are in step still: the next save works.
  const RankErrors again = run_ranks(3, [&](Communicator& comm) {
    write_dealt(comm, disk(), folder.path(), {content, dealt});
  });
  for (const auto& error : again) EXPECT_FALSE(error.has_value()) << error->what();
  EXPECT_EQ(Checkpoint::open(disk(), folder.file("step-3")).hash(), content.hash());
}

TEST(Distributed, AMixtureIsRefusedOnAllRanksWithItsName) {
  using Info = CheckpointInfo;
  using Tensors = std::vector<TensorRows>;
  using Files = std::vector<CheckpointFile>;
  const Difference differences[] = {
      {"another step",
       [](Info& info, Tensors&, Files&) { info.step = 4; },
       Code::kPeerLost,
       {"rank 1 saves with step 4, rank 0 with step 3"}},
      {"another config",
       [](Info& info, Tensors&, Files&) { info.config += "x"; },
       Code::kPeerLost,
       {"rank 1 saves with a config of hash"}},
      {"other values",
       [](Info& info, Tensors&, Files&) { info.values["loop"] = "phase 2"; },
       Code::kPeerLost,
       {"rank 1 saves with values"}},
      {"another seed",
       [](Info& info, Tensors&, Files&) { ++info.seed; },
       Code::kPeerLost,
       {"rank 1 saves with seed"}},
      {"other tokens",
       [](Info& info, Tensors&, Files&) { ++info.tokens_seen; },
       Code::kPeerLost,
       {"rank 1 saves with tokens seen 301, rank 0 with tokens seen 300"}},
      {"other files",
       [](Info&, Tensors&, Files& files) { files[0].content += " "; },
       Code::kPeerLost,
       {"rank 1 saves with carried files"}},
      {"a gap",
       [](Info&, Tensors& t, Files&) { t.clear(); },
       Code::kInvalidArgument,
       {"rows [3, 5) of 'weights.embed' [9, 4] are passed by no rank"}},
      {"a gap below the end of a piece",
       [](Info&, Tensors& t, Files&) { t[0].local = t[0].local.rows(0, 1); },
       Code::kInvalidArgument,
       {"rows [4, 5) of 'weights.embed'", "no rank"}},
      {"rows twice",
       [](Info&, Tensors& t, Files&) { t[0].row_begin = 2; },
       Code::kInvalidArgument,
       {"rows [2, 3) of 'weights.embed' [9, 4] are passed by rank 0 and rank 1"}},
      {"one piece twice",
       [](Info&, Tensors& t, Files&) { t.push_back(t[0]); },
       Code::kInvalidArgument,
       {"rows [3, 5)", "twice by rank 1"}},
      {"another type",
       [](Info&, Tensors& t, Files&) { t[0].local.dtype = DType::kI32; },
       Code::kInvalidArgument,
       {"'weights.embed' is f32 [9, 4] on rank 0, i32 [9, 4] on rank 1"}},
      {"another shape",
       [](Info&, Tensors& t, Files&) { t[0].shape[0] = 10; },
       Code::kInvalidArgument,
       {"'weights.embed'", "[10, 4]", "rank 1"}},
      {"rows beyond the end",
       [](Info&, Tensors& t, Files&) { t[0].row_begin = 8; },
       Code::kInvalidArgument,
       {"rank 1 passes rows [8, 10) of 'weights.embed' [9, 4]"}},
      {"columns",
       [](Info&, Tensors& t, Files&) { t[0].local.dims[1] = 2; },
       Code::kInvalidArgument,
       {"rank 1: ", "'weights.embed' [9, 4]", "[2, 2]"}},
      {"a reserved file",
       [](Info&, Tensors&, Files& f) { f[0].name = "data-x"; },
       Code::kInvalidArgument,
       {"rank 1: ", "data-x"}},
  };
  for (const Difference& difference : differences) {
    expect_refused(difference);
    if (HasFailure()) return;
  }
}

// The example of docs/formats/checkpoint.md.
TEST(Distributed, TheManifestIsTheDocumentedOne) {
  const TestFolder folder;
  float w[] = {1, 2, 3, 4, 5, 6}, b[] = {7, 8};
  const std::vector<TensorRows> dealt[] = {
      {{"w", make_tensor(w, DType::kF32, {2, 2}), {3, 2}, 0}},
      {{"b", make_tensor(b, DType::kF32, {2}), {2}, 0},
       {"w", make_tensor(w + 4, DType::kF32, {1, 2}), {3, 2}, 2}}};
  const CheckpointInfo info{.step = 7, .tokens_seen = 64, .seed = 1, .values = {}, .config = ""};
  run_ranks(2, [&](Communicator& comm) {
    write_checkpoint_distributed(
        comm, disk(), folder.path(),
        {.info = info, .tensors = dealt[static_cast<size_t>(comm.rank())]});
  });
  const std::string manifest = disk().read(folder.file("step-7/manifest.json"));
  const std::string wanted = R"("data": [
  {"name": "data-00000-00000.safetensors", "bytes": 112, "header_hash": "4477d97a57e8f938d4023ae28f396027"},
  {"name": "data-00001-00000.safetensors", "bytes": 168, "header_hash": "c2e7f599072c6dcc97b0141a45cea24b"}
],
"tensors": [
  {"name": "b", "dtype": "f32", "shape": [2], "parts": [{"file": 1, "rows": [0, 2], "hash": "65b9e416f2c8736cc66aac697e67b317"}]},
  {"name": "w", "dtype": "f32", "shape": [3, 2], "parts": [{"file": 0, "rows": [0, 2], "hash": "2babafcad3709c7ce3b3073547aa9dc3"}, {"file": 1, "rows": [2, 3], "hash": "c6002540a63ad03a81a25cf30b0b1d97"}]}
],
)";
  EXPECT_NE(manifest.find(wanted), std::string::npos) << manifest;
  EXPECT_EQ(hash_hex(Checkpoint::open(disk(), folder.file("step-7")).hash()),
            "c774a63b755f62f6480a5300ed8758d8");
}

TEST(Distributed, TheFolderMustBeSharedByAllRanks) {
  const TestFolder folder;
  const TestCheckpoint content(3, 1);
  const Dealt dealt = deal(content.tensors, 2, 4);
  ASSERT_FALSE(dealt[1].empty());
  const RankErrors errors = run_ranks(2, [&](Communicator& comm) {
    write_dealt(comm, disk(), folder.file(fmt::format("host{}", comm.rank())), {content, dealt});
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), Code::kIo);
    EXPECT_NE(std::string(error->what()).find("data-00001-00000.safetensors: rank 1 wrote"),
              std::string::npos)
        << error->what();
  }
  EXPECT_EQ(list_checkpoints(disk(), folder.file("host0")), std::vector<int64_t>());
}

TEST(Distributed, RanksThatReadAnotherCheckpointAreFound) {
  const TestFolder folder;
  TestCheckpoint(3, 1).write(disk(), folder.path());
  TestCheckpoint(4, 1).write(disk(), folder.path());
  const RankErrors errors = run_ranks(3, [&](Communicator& comm) {
    const Checkpoint checkpoint =
        Checkpoint::open(disk(), folder.file(comm.rank() == 2 ? "step-4" : "step-3"));
    checkpoint_hash_distributed(comm, checkpoint);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error.has_value());
    EXPECT_NE(std::string(error->what()).find("rank 2 reads step 4"), std::string::npos)
        << error->what();
  }
}

TEST(DistributedSavers, AllRanksGetTheSameResultsAndOldOnesAreDropped) {
  const TestFolder folder;
  constexpr int kRanks = 4;
  std::vector<std::vector<int64_t>> removed(kRanks);
  FaultyFileSystem fast(disk());
  const RankErrors errors = run_ranks(kRanks, [&](Communicator& comm) {
    DistributedSaver saver(comm, fast, folder.path(), {.retention = {.keep = 2}, .checkpoint = {}});
    EXPECT_TRUE(saver.idle());
    EXPECT_EQ(saver.wait(), std::nullopt);
    for (int64_t step = 1; step <= 5; ++step) {
      const TestCheckpoint content(step, 1);
      const Dealt dealt = deal(content.tensors, kRanks, static_cast<uint64_t>(step));
      saver.start(content.info, dealt[static_cast<size_t>(comm.rank())], content.files);
      std::optional<SaveResult> result;
      if (comm.rank() % 2 == 0) result = saver.wait();
      while (!result) {
        result = saver.poll();
        std::this_thread::yield();
      }
      EXPECT_EQ(result->step, step);
      EXPECT_EQ(result->written.hash, content.hash());
      EXPECT_EQ(result->warning, "");
      std::vector<int64_t>& list = removed[static_cast<size_t>(comm.rank())];
      list.insert(list.end(), result->removed.begin(), result->removed.end());
      EXPECT_TRUE(saver.idle());
    }
  });
  for (const auto& error : errors) EXPECT_FALSE(error.has_value()) << error->what();
  for (const auto& list : removed) EXPECT_EQ(list, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(list_checkpoints(disk(), folder.path()), (std::vector<int64_t>{4, 5}));
}

TEST(DistributedSavers, AFullDiskOnOneRankIsAnErrorOnAllAndTheNextSaveWorks) {
  const TestFolder folder;
  constexpr int kRanks = 3;
  const TestCheckpoint one(1, 1), two(2, 2), three(3, 3);
  const Dealt dealt[] = {deal(one.tensors, kRanks, 1), deal(two.tensors, kRanks, 2),
                         deal(three.tensors, kRanks, 3)};
  ASSERT_FALSE(dealt[1][2].empty());
  const RankErrors errors = run_ranks(kRanks, [&](Communicator& comm) {
    const size_t rank = static_cast<size_t>(comm.rank());
    FaultyFileSystem fs(disk());
    DistributedSaver saver(comm, fs, folder.path(), {});
    saver.start(one.info, dealt[0][rank], one.files);
    EXPECT_EQ(saver.wait()->step, 1);
    if (rank == 2) fs.disk_full(20);
    saver.start(two.info, dealt[1][rank], two.files);
    try {
      saver.wait();
      ADD_FAILURE() << "no Error on rank " << rank;
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_EQ(error.code(), Code::kIo);
      EXPECT_NE(message.find("rank 2: write "), std::string::npos) << message;
      EXPECT_NE(message.find("data-00002-00000.safetensors: No space left"), std::string::npos)
          << message;
      EXPECT_NE(message.find("the checkpoints before it stay"), std::string::npos) << message;
    }
    EXPECT_TRUE(saver.idle());
    fs.disk_full(-1);
    saver.start(three.info, dealt[2][rank], three.files);
    EXPECT_EQ(saver.wait()->step, 3);
  });
  for (const auto& error : errors) EXPECT_FALSE(error.has_value()) << error->what();
  EXPECT_EQ(disk().list(folder.path()), (std::vector<std::string>{"step-1", "step-3"}));
  EXPECT_EQ(Checkpoint::open(disk(), folder.file("step-3")).hash(), three.hash());
}

}  // namespace
}  // namespace moraine
