// StateSeal: any bit that changes between two steps is found, and a step's own changes are none.
#include "train/state_seal.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "train/trainer.h"

namespace moraine {
namespace {

RunConfig tiny_config() {
  return read_run_config(SettingsTable::parse(
      "[model]\nhidden = 32\nlayers = 1\nheads = 2\nkv_heads = 1\nhead_dim = 16\nexperts = 2\n"
      "expert_hidden = 24\nrouter_hidden = 16\nvocab_size = 64\n[data]\ntrain = \"a\"\n"
      "[train]\nslots = 1\nsequence = 8\nbatch_tokens = 8\nsteps = 4\nthreads = 2\n",
      "test.toml"));
}

TEST(StateSeal, EveryTensorThatIsSavedIsWatched) {
  const RunConfig config = tiny_config();
  const Timeline timeline(config);
  Arena arena(Arena::Mode::kReal);
  Pool pool(2);
  PlannedRanks alone;
  Trainer trainer(arena, pool, config, timeline, alone.ranks());
  trainer.check_state();  // nothing is known of it yet
  trainer.initialize(1);
  trainer.refresh();
  trainer.check_state();
  int kinds = 0;
  for (const TensorRows& t : trainer.saved_rows()) {
    auto* bytes = static_cast<uint8_t*>(t.local.data);
    uint8_t& last = bytes[t.local.bytes() - 1];
    last ^= 1;
    try {
      trainer.check_state();
      ADD_FAILURE() << t.name;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kRankDiverged);
      const bool is_state = t.name.starts_with("optimizer.");
      EXPECT_EQ(std::string(e.what()).find("optimizer state") != std::string::npos, is_state)
          << t.name << ": " << e.what();
      kinds |= is_state ? 1 : 2;
    }
    last ^= 1;
    trainer.check_state();
  }
  EXPECT_EQ(kinds, 3);
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
