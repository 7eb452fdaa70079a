// Loader: any order of reading gives the same rows; every target comes once an epoch; shares are
// kept.
#include "data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <thread>

#include "base/error.h"
#include "base/random.h"
#include "data/test_dataset.h"
#include "testing/rig.h"

namespace moraine {
namespace {

constexpr TokenMeaning kMeaning{.vocabulary_size = 1000000, .eos_id = 0, .tokenizer_hash = {1, 2}};

class LoaderTest : public ::testing::Test {
 protected:
  // Token t of document d is base + (its number in the dataset), so that every token is unique.
  std::string make(const std::string& name, const std::vector<int64_t>& lengths, int32_t base) {
    std::vector<int64_t> begins = {0};
    for (const int64_t n : lengths) begins.push_back(begins.back() + n);
    const std::string path = join_path(folder_.path(), name);
    testing::write_dataset(files_, path, kMeaning,
                           {lengths, 17, [&](int64_t d, int64_t t) {
                              return base +
                                     static_cast<int32_t>(begins[static_cast<size_t>(d)] + t);
                            }});
    return path;
  }
  static SequenceBatch read(const Loader& loader, int64_t first, int64_t count) {
    SequenceBatch batch;
    loader.read(first, count, &batch);
    return batch;
  }

  FileSystem& files_ = posix_file_system();
  testing::TempFolder folder_;
};

void expect_equal(const SequenceBatch& a, const SequenceBatch& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.targets, b.targets);
  EXPECT_EQ(a.segment_begin, b.segment_begin);
  EXPECT_EQ(a.num_targets, b.num_targets);
}

// The rules of loader.h that hold for any batch of this test's data (token + 1 follows token).
void expect_well_formed(const SequenceBatch& batch, int64_t count, int64_t S) {
  ASSERT_EQ(static_cast<int64_t>(batch.tokens.size()), count * S);
  ASSERT_EQ(batch.targets.size(), batch.tokens.size());
  ASSERT_FALSE(batch.segment_begin.empty());
  ASSERT_EQ(batch.segment_begin.front(), 0);
  int64_t targets = 0;
  for (size_t s = 0; s < batch.segment_begin.size(); ++s) {
    const int64_t begin = batch.segment_begin[s];
    const int64_t end = s + 1 < batch.segment_begin.size() ? batch.segment_begin[s + 1] : count * S;
    ASSERT_LT(begin, end);
    ASSERT_EQ(begin / S, (end - 1) / S) << "a segment crosses a sequence";
    const bool padding = batch.targets[static_cast<size_t>(begin)] < 0;
    for (int64_t row = begin; row < end; ++row) {
      const size_t r = static_cast<size_t>(row);
      if (padding) {
        ASSERT_EQ(batch.tokens[r], 0);
        ASSERT_EQ(batch.targets[r], -1);
        continue;
      }
      ++targets;
      ASSERT_EQ(batch.targets[r], batch.tokens[r] + 1);
      ASSERT_TRUE(row == begin || batch.tokens[r] == batch.targets[r - 1]);
    }
    ASSERT_TRUE(!padding || end % S == 0) << "padding ends a sequence";
  }
  ASSERT_EQ(targets, batch.num_targets);
}

TEST_F(LoaderTest, EveryTargetOnceAnEpoch) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const std::vector<int64_t> lengths = testing::mixed_lengths(seed, 150, 40);
    const Loader loader(files_, {.sources = {{make(fmt::format("d{}", seed), lengths, 100)}},
                                 .sequence = 64,
                                 .seed = seed});
    std::map<int32_t, int> want;
    int32_t token = 100;
    for (const int64_t n : lengths) {
      for (int64_t t = 0; t < n; ++t, ++token) {
        if (t > 0) want[token] = 1;
      }
    }
    EXPECT_EQ(loader.total_tokens(), token - 100);
    int64_t first = 0;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      const int64_t count = loader.plan(0, epoch)->num_sequences();
      const SequenceBatch batch = read(loader, first, count);
      expect_well_formed(batch, count, 64);
      std::map<int32_t, int> got;
      for (const int32_t target : batch.targets) {
        if (target >= 0) ++got[target];
      }
      EXPECT_EQ(got, want) << "seed " << seed << " epoch " << epoch;
      first += count;
      EXPECT_EQ(loader.epochs_at(first), std::vector<double>{static_cast<double>(epoch + 1)});
    }
  }
}

TEST_F(LoaderTest, RandomAccessIsSequentialReading) {
  const LoaderOptions options{.sources = {{make("a", testing::mixed_lengths(1, 60, 50), 0), 3},
                                          {make("b", testing::mixed_lengths(2, 40, 50), 10000), 2},
                                          {make("c", {9}, 20000), 1}},  // a few epochs in one read
                              .sequence = 32,
                              .seed = 9};
  const Loader loader(files_, options);
  const int64_t count = 600, S = 32;
  const SequenceBatch all = read(loader, 0, count);
  expect_well_formed(all, count, S);
  EXPECT_GT(loader.epochs_at(count)[0], 1);
  EXPECT_EQ(loader.epochs_at(count)[2], 100);
  for (uint64_t i = 0; i < 200; ++i) {
    const int64_t first = static_cast<int64_t>(random_below(590, 1, Stream::kTest, 0, i));
    const int64_t n = 1 + static_cast<int64_t>(random_below(9, 1, Stream::kTest, 1, i));
    const Loader fresh(files_, options);  // nothing remembered from the reads before
    const Loader& from = i % 4 == 0 ? fresh : loader;
    if (i % 3 == 0) from.prefetch(first, n);
    const SequenceBatch part = read(from, first, n);
    ASSERT_TRUE(std::equal(part.tokens.begin(), part.tokens.end(), all.tokens.begin() + first * S));
    ASSERT_TRUE(
        std::equal(part.targets.begin(), part.targets.end(), all.targets.begin() + first * S));
    std::vector<int64_t> segments;
    for (const int64_t row : all.segment_begin) {
      if (row >= first * S && row < (first + n) * S) segments.push_back(row - first * S);
    }
    ASSERT_EQ(part.segment_begin, segments);
  }
}

TEST_F(LoaderTest, ThreadsReadTheSame) {
  const LoaderOptions options{.sources = {{make("a", testing::mixed_lengths(1, 60, 50), 0)}},
                              .sequence = 32};
  const Loader loader(files_, options), alone(files_, options);
  std::vector<SequenceBatch> got(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < got.size(); ++t) {
    threads.emplace_back([&, t] {
      // Epochs are entered in different orders, so plans leave the cache while others hold them.
      for (int64_t i = 0; i < 40; ++i)
        loader.read((i * 97 * static_cast<int64_t>(t + 1)) % 700, 3, &got[t]);
      loader.read(static_cast<int64_t>(t) * 100, 100, &got[t]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < got.size(); ++t)
    expect_equal(got[t], read(alone, static_cast<int64_t>(t) * 100, 100));
}

TEST_F(LoaderTest, MixtureSharesAndOwnEpochs) {
  const Loader loader(files_,
                      {.sources = {{make("a", testing::mixed_lengths(1, 90, 50), 0), 0.5},
                                   {make("b", testing::mixed_lengths(2, 90, 50), 10000), 0.3},
                                   {make("c", testing::mixed_lengths(3, 90, 50), 20000), 0.2}},
                       .sequence = 48,
                       .seed = 4});
  const int64_t count = 1000;
  const SequenceBatch all = read(loader, 0, count);
  std::vector<int64_t> drawn(3, 0);
  for (int64_t i = 0; i < count; ++i)
    ++drawn[static_cast<size_t>(all.tokens[static_cast<size_t>(i * 48)] / 10000)];
  EXPECT_NEAR(static_cast<double>(drawn[0]), 500, 1.5);
  EXPECT_NEAR(static_cast<double>(drawn[1]), 300, 1.5);
  EXPECT_NEAR(static_cast<double>(drawn[2]), 200, 1.5);
  const std::vector<double> epochs = loader.epochs_at(count);
  for (size_t s = 0; s < 3; ++s) {
    int64_t sequences = drawn[s], epoch = 0;
    while (sequences >= loader.plan(static_cast<int64_t>(s), epoch)->num_sequences()) {
      sequences -= loader.plan(static_cast<int64_t>(s), epoch++)->num_sequences();
    }
    const double part =
        static_cast<double>(sequences) /
        static_cast<double>(loader.plan(static_cast<int64_t>(s), epoch)->num_sequences());
    EXPECT_DOUBLE_EQ(epochs[s], static_cast<double>(epoch) + part);
  }
}

TEST_F(LoaderTest, ANewPhaseGoesOnWhereTheLastOneStopped) {
  const std::string a = make("a", testing::mixed_lengths(1, 90, 50), 0);
  const std::string b = make("b", testing::mixed_lengths(2, 70, 50), 10000);
  const Loader whole(files_, {.sources = {{a}}, .sequence = 48, .seed = 4});
  for (const int64_t stop : {1, 37, 120, 333}) {
    const Loader phase(files_,
                       {.sources = {{b, 1}, {a, 1}},  // another place in the list, another mixture
                        .sequence = 48,
                        .seed = 4,
                        .start_epochs = {0.25, whole.epochs_at(stop)[0]}});
    EXPECT_EQ(phase.epochs_at(0)[1], whole.epochs_at(stop)[0]);
    const SequenceBatch mixed = read(phase, 0, 40);
    SequenceBatch ours;
    for (int64_t i = 0; i < 40; ++i) {
      const auto begin = mixed.tokens.begin() + i * 48;
      if (*begin < 10000) ours.tokens.insert(ours.tokens.end(), begin, begin + 48);
    }
    EXPECT_EQ(ours.tokens, read(whole, stop, 20).tokens) << "stop " << stop;
  }
}

// Whether the start is in what is left out, before or behind it, and over the end of an epoch.
TEST_F(LoaderTest, WhatIsLeftOutIsPassedOver) {
  const std::string path = make("d", testing::mixed_lengths(3, 150, 40), 100);
  const Loader whole(files_, {.sources = {{path}}, .sequence = 64});
  const int64_t epoch = whole.plan(0, 0)->num_sequences(), count = 2 * epoch;
  ASSERT_GT(epoch, 12);
  const auto at = [&](int64_t n) { return whole.epochs_at(n)[0]; };
  const std::vector<EpochRange> left_out = {
      {at(3), at(6)}, {at(8), at(9)}, {at(epoch - 1), at(epoch + 2)}};
  for (const int64_t start : {int64_t{0}, int64_t{3}, int64_t{4}, int64_t{6}, epoch, epoch + 5}) {
    SCOPED_TRACE(start);
    const Loader loader(
        files_,
        {.sources = {{path}}, .sequence = 64, .start_epochs = {at(start)}, .left_out = {left_out}});
    int64_t n = 0;
    for (int64_t i = start; i < count; ++i) {
      if (std::any_of(left_out.begin(), left_out.end(), [&](const EpochRange& range) {
            return at(i) >= range.begin && at(i) < range.end;
          }))
        continue;
      EXPECT_EQ(loader.epochs_at(n)[0], at(i));
      expect_equal(read(loader, n++, 1), read(whole, i, 1));
    }
  }
}

TEST_F(LoaderTest, DatasetsOfEqualShapeHaveTheirOwnOrder) {
  const std::vector<int64_t> lengths(64, 17);
  const Loader a(files_, {.sources = {{make("a", lengths, 0)}}, .sequence = 16});
  const Loader b(files_, {.sources = {{make("b", lengths, 10000)}}, .sequence = 16});
  std::vector<int32_t> from_a = read(a, 0, 64).tokens, from_b = read(b, 0, 64).tokens;
  for (int32_t& token : from_b) token -= 10000;
  EXPECT_NE(from_a, from_b);
}

TEST_F(LoaderTest, DatasetSmallerThanOneSequence) {
  const Loader loader(files_,
                      {.sources = {{make("tiny", {3, 1, 0, 4}, 5)}}, .sequence = 100, .seed = 1});
  const SequenceBatch batch = read(loader, 0, 5);  // five epochs
  expect_well_formed(batch, 5, 100);
  EXPECT_EQ(batch.num_targets, 5 * 5);
  EXPECT_EQ(batch.segment_begin.size(), 5u * 3);
  EXPECT_EQ(loader.epochs_at(5), std::vector<double>{5});
}

TEST_F(LoaderTest, WithoutPackingOnePieceASequence) {
  const Loader loader(
      files_,
      {.sources = {{make("p", {30, 20, 90}, 0)}}, .sequence = 40, .seed = 1, .pack = false});
  const int64_t count = loader.plan(0, 0)->num_sequences();
  EXPECT_GE(count, 5);
  const SequenceBatch batch = read(loader, 0, count);
  expect_well_formed(batch, count, 40);
  for (int64_t i = 0; i < count; ++i) {
    int64_t segments = 0;
    for (const int64_t row : batch.segment_begin) segments += row / 40 == i;
    EXPECT_LE(segments, 2);  // the piece and the padding
  }
}

// Marks change targets and nothing else: rows, segments and packing are those of the documents' lengths.
TEST_F(LoaderTest, OnlyMarkedTokensAreTargets) {
  const std::vector<int64_t> lengths = testing::mixed_lengths(5, 120, 60);
  const auto is_target = [](int64_t d, int64_t t) { return d % 5 != 0 && (t / 3) % 2 == 1; };
  const std::string folder = join_path(folder_.path(), "marked");
  files_.make_directories(folder);
  DatasetManifest manifest;
  manifest.meaning = kMeaning;
  int32_t next = 0;
  std::map<int32_t, int> wanted;  // times a token should be a target
  for (size_t d = 0; d < lengths.size();) {
    const std::string name = fmt::format("shard-{:05}.bin", manifest.shards.size());
    ShardWriter writer(files_, join_path(folder, name), kMeaning, true);
    for (int i = 0; i < 17 && d < lengths.size(); ++i, ++d) {
      std::vector<int32_t> tokens;
      std::vector<uint8_t> marks;
      for (int64_t t = 0; t < lengths[d]; ++t) {
        marks.push_back(is_target(static_cast<int64_t>(d), t));
        if (marks.back() != 0 && t > 0) wanted[next] = 1;
        tokens.push_back(next++);
      }
      writer.add_document(tokens, 1, marks);
    }
    manifest.shards.push_back({name, writer.finish()});
  }
  write_manifest(files_, folder, manifest);
  const Dataset dataset(files_, folder);
  EXPECT_TRUE(dataset.marked());
  EXPECT_EQ(read_manifest(files_, folder).targets, dataset.num_targets());
  const Loader loader(files_, {.sources = {{folder}}, .sequence = 64, .seed = 3});
  const int64_t count = loader.plan(0, 0)->num_sequences();
  const SequenceBatch batch = read(loader, 0, count);
  std::map<int32_t, int> got;
  int64_t targets = 0;
  for (size_t row = 0; row < batch.tokens.size(); ++row) {
    if (batch.targets[row] < 0) continue;
    EXPECT_EQ(batch.targets[row], batch.tokens[row] + 1);
    ++got[batch.targets[row]];
    ++targets;
  }
  EXPECT_EQ(got, wanted);
  EXPECT_EQ(targets, batch.num_targets);
  EXPECT_LT(targets, loader.plan(0, 0)->positions / 2);
  // The same documents unmarked are cut and packed alike.
  PlanOptions options{.sequence = 64, .seed = 3 ^ dataset.hash().low, .pack = true};
  std::vector<int64_t> begins = {0};
  for (const int64_t n : lengths) begins.push_back(begins.back() + n);
  const EpochPlan plain = plan_epoch(begins, options, 0);
  EXPECT_EQ(plain.num_sequences(), count);
  EXPECT_EQ(plain.sequence_begin, loader.plan(0, 0)->sequence_begin);
}

TEST_F(LoaderTest, BadOptionsAndDataAreErrors) {
  const std::string a = make("a", {30, 20}, 0), empty = make("e", {}, 0),
                    ones = make("o", {1, 1}, 0);
  const std::string twin = make("a2", {30, 20}, 0);
  const std::string other = join_path(folder_.path(), "other");
  testing::write_dataset(files_, other, {.vocabulary_size = 5},
                         {{9}, 1, [](int64_t, int64_t) { return 1; }});
  const auto code = [&](const LoaderOptions& options) {
    try {
      const Loader loader(files_, options);
    } catch (const Error& error) {
      return error.code();
    }
    return Code::kDevice;  // none of those expected
  };
  EXPECT_EQ(code({.sources = {{a}}, .sequence = 8}), Code::kDevice);
  EXPECT_EQ(code({.sources = {}, .sequence = 8}), Code::kInvalidArgument);
  EXPECT_EQ(code({.sources = {{a}}, .sequence = 0}), Code::kInvalidArgument);
  EXPECT_EQ(code({.sources = {{a, 0}}, .sequence = 8}), Code::kInvalidArgument);
  EXPECT_EQ(code({.sources = {{a}}, .sequence = 8, .start_epochs = {1, 2}}),
            Code::kInvalidArgument);
  EXPECT_EQ(code({.sources = {{a}}, .sequence = 8, .start_epochs = {-1}}), Code::kInvalidArgument);
  EXPECT_EQ(code({.sources = {{a}}, .sequence = 8, .left_out = {{}, {}}}), Code::kInvalidArgument);
  EXPECT_EQ(code({.sources = {{a}}, .sequence = 8, .start_epochs = {std::nan("")}}),
            Code::kInvalidArgument);
  EXPECT_EQ(code({.sources = {{empty}}, .sequence = 8}), Code::kInvalidArgument);
  EXPECT_EQ(code({.sources = {{ones}}, .sequence = 8}), Code::kInvalidArgument);
  EXPECT_EQ(code({.sources = {{a}, {twin}}, .sequence = 8}), Code::kInvalidArgument);
  EXPECT_EQ(code({.sources = {{a}, {other}}, .sequence = 8}), Code::kInvalidArgument);
  EXPECT_EQ(code({.sources = {{join_path(folder_.path(), "none")}}, .sequence = 8}),
            Code::kNotFound);
}

TEST_F(LoaderTest, DamageIsFoundWhileReading) {
  const std::string path = make("damaged", {50000, 50000}, 0);
  const std::string shard = join_path(path, "shard-00000.bin");
  std::string bytes = files_.read(shard);
  bytes[200000] = static_cast<char>(bytes[200000] ^ 8);
  files_.write_atomic(shard, bytes);
  const Loader loader(files_, {.sources = {{path}}, .sequence = 128});
  try {
    read(loader, 0, loader.plan(0, 0)->num_sequences());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kCorrupt);
    EXPECT_NE(std::string(error.what()).find("at byte 196608"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace moraine
