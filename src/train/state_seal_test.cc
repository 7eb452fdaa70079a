// StateSeal: any bit that changes between two steps is found, and a step's own changes are none.
#include "train/state_seal.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "train/trainer.h"

namespace moraine {
namespace {

RunConfig tiny_config(const std::string& optimizer = "muon") {
  return read_run_config(SettingsTable::parse(
      "[model]\nhidden = 32\nlayers = 1\nheads = 2\nkv_heads = 1\nhead_dim = 16\nexperts = 2\n"
      "expert_hidden = 24\nrouter_hidden = 16\nvocab_size = 64\n[data]\ntrain = \"a\"\n"
      "[train]\nslots = 1\nsequence = 8\nbatch_tokens = 8\nsteps = 4\nthreads = 2\n"
      "[optimizer]\nmatrices = \"" +
          optimizer + "\"\n",
      "test.toml"));
}

void read_tokens(int64_t first, int64_t count, SequenceBatch* out) {
  *out = {};
  for (int64_t i = 8 * first; i < 8 * (first + count); ++i) {
    out->tokens.push_back(static_cast<int32_t>(i * 7 % 64));
    out->targets.push_back(static_cast<int32_t>(i * 5 % 64));
    if (i % 8 == 0) out->segment_begin.push_back(i - 8 * first);
  }
  out->num_targets = 8 * count;
}

// Without a quarrel about spikes.
void take_step(Trainer& trainer, const Timeline& timeline, int64_t step) {
  SpikeDetector no_spikes(0);
  EXPECT_FALSE(trainer.step(timeline.at(step), 1, read_tokens, no_spikes).bad);
}

void expect_refused(const std::string& name, const std::function<void()>& f) {
  try {
    f();
    ADD_FAILURE() << name;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kRankDiverged);
    EXPECT_EQ(std::string(e.what()).find("optimizer state") != std::string::npos,
              name.starts_with("optimizer."))
        << name << ": " << e.what();
    EXPECT_EQ(std::string(e.what()).find("weights") == std::string::npos,
              name.starts_with("optimizer."))
        << name << ": " << e.what();
  }
}

struct TinyTrainer {
  explicit TinyTrainer(const std::string& optimizer) : config(tiny_config(optimizer)) {
    trainer.check_state();  // nothing is known of it yet
    trainer.initialize(1);
    trainer.refresh();
  }

  RunConfig config;
  Timeline timeline{config};
  Arena arena{Arena::Mode::kReal};
  Pool pool{2};
  PlannedRanks alone;
  Trainer trainer{arena, pool, config, timeline, alone.ranks()};
};

TEST(StateSeal, EveryTensorThatIsSavedIsWatched) {
  for (const char* optimizer : {"muon", "adamw"}) {
    TinyTrainer t(optimizer);
    Trainer& trainer = t.trainer;
    trainer.check_state();
    for (int64_t step = 0; step < 2; ++step) {  // what refresh has closed, and what a step has
      int kinds = 0;
      for (const TensorRows& rows : trainer.saved_rows()) {
        auto* bytes = static_cast<uint8_t*>(rows.local.data);
        for (const int64_t at : {int64_t{0}, rows.local.bytes() - 1}) {
          bytes[at] ^= 1;
          expect_refused(rows.name, [&] { trainer.check_state(); });
          bytes[at] ^= 1;
        }
        kinds |= rows.name.starts_with("optimizer.") ? 1 : 2;
        trainer.check_state();
      }
      EXPECT_EQ(kinds, 3);
      take_step(trainer, t.timeline, step);
    }
  }
}

TEST(StateSeal, AStepFindsWhatHasChangedSinceTheOneBefore) {
  for (const char* optimizer : {"muon", "adamw"}) {
    const size_t tensors = TinyTrainer(optimizer).trainer.saved_rows().size();
    for (size_t i = 0; i < tensors; ++i) {
      TinyTrainer t(optimizer);
      take_step(t.trainer, t.timeline, 0);
      const TensorRows rows = t.trainer.saved_rows()[i];
      static_cast<uint8_t*>(rows.local.data)[rows.local.bytes() / 2] ^= 0x20;
      expect_refused(rows.name, [&] { take_step(t.trainer, t.timeline, 1); });
    }
  }
}

TEST(StateHash, NoBitDependsOnThreadsAndEachByteCounts) {
  std::vector<uint8_t> bytes((3 << 20) + 5);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7);
  const Tensor whole = make_tensor(bytes.data(), DType::kU8, {static_cast<int64_t>(bytes.size())});
  Hash128 first;
  for (const int threads : {1, 3}) {
    Pool pool(threads);
    Context ctx;
    ctx.pool = &pool;
    StateHash hash(std::span(&whole, 1));
    const Hash128 now = hash.digest(ctx);
    if (threads == 1) first = now;
    EXPECT_EQ(now, first);
    for (const size_t at : {size_t{0}, size_t{1} << 20, bytes.size() - 1}) {
      bytes[at] ^= 0x80;
      EXPECT_FALSE(hash.digest(ctx) == first) << at;
      bytes[at] ^= 0x80;
    }
  }
}

}  // namespace
}  // namespace moraine
