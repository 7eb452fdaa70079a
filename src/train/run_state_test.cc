// What a checkpoint tells of a run, back again; and what no run wrote.
#include "train/run_state.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"

namespace moraine {
namespace {

RunConfig two_phases() {
  return read_run_config(SettingsTable::parse(
      "[model]\n[data]\ntrain = \"a\"\n[train]\nslots = 1\nsequence = 8\nbatch_tokens = 16\n"
      "[spike]\nrollbacks_max = 3\n[[phase]]\ntokens = 64\n[[phase]]\ntokens = 64\n",
      "test.toml"));
}

TEST(RunState, ComesBackFromACheckpointAsItWas) {
  const RunConfig config = two_phases();
  const Timeline timeline(config);
  RunState state{.spike = SpikeDetector(0)};
  state.spike.observe(1.0 / 3, 1);
  state.step = 5, state.skips = {{1, 8}, {0, 12}, {1, 4}}, state.rollbacks = 3;
  state.loss = 1.0 / 3;
  state.verified_step = 4;
  CheckpointInfo info;
  write_state(state, &info);
  const RunState back = read_state(info, config, timeline);
  EXPECT_EQ(back.step, 5);
  EXPECT_EQ(info.values["skips"], "1:8 0:12 1:4");
  EXPECT_EQ(back.skips, state.skips);
  EXPECT_EQ(back.rollbacks, 3);
  EXPECT_EQ(back.verified_step, 4);
  EXPECT_EQ(back.loss, 1.0 / 3);
  EXPECT_EQ(back.spike.save(), state.spike.save());
}

// It kept the skip of one phase, and its later phases began as if there were none.
TEST(RunState, ACheckpointOfAnEarlierVersionHasOneSkip) {
  const RunConfig config = two_phases();
  const auto skips_at = [&](int64_t step, const char* phase) {
    CheckpointInfo info;
    write_state({.spike = SpikeDetector(0), .step = step, .rollbacks = 2}, &info);
    info.values.erase("skips");
    info.values["skip_sequences"] = "4";
    info.values["skip_phase"] = phase;
    return read_state(info, config, Timeline(config)).skips;
  };
  EXPECT_EQ(skips_at(3, "0"), (Skips{{0, 4}}));
  EXPECT_EQ(skips_at(3, "1"), (Skips{{1, 4}}));
  EXPECT_EQ(skips_at(5, "1"), (Skips{{1, 4}}));
  EXPECT_EQ(skips_at(5, "0"), Skips());
  EXPECT_EQ(skips_at(8, "1"), Skips());
}

TEST(RunState, ACheckpointOfAnEarlierVersionIsTakenAsVerified) {
  const RunConfig config = two_phases();
  CheckpointInfo info;
  write_state({.spike = SpikeDetector(0), .step = 5, .verified_step = 4}, &info);
  info.values.erase("verified_step");
  EXPECT_EQ(read_state(info, config, Timeline(config)).verified_step, 5);
}

TEST(RunState, WhatNoRunWroteIsCorrupt) {
  const RunConfig config = two_phases();
  const Timeline timeline(config);
  CheckpointInfo good;
  write_state({.spike = SpikeDetector(0), .rollbacks = 1}, &good);
  const auto code = [&](const std::function<void(CheckpointInfo&)>& change) {
    CheckpointInfo info = good;
    change(info);
    try {
      read_state(info, config, timeline);
    } catch (const Error& e) {
      return e.code();
    }
    return Code::kInvalidArgument;
  };
  EXPECT_EQ(code([](CheckpointInfo& i) { i.values.erase("rollbacks"); }), Code::kCorrupt);
  EXPECT_EQ(code([](CheckpointInfo& i) { i.values["rollbacks"] = "4"; }), Code::kCorrupt);
  EXPECT_EQ(code([](CheckpointInfo& i) { i.values["verified_step"] = "1"; }), Code::kCorrupt);
  EXPECT_EQ(code([](CheckpointInfo& i) { i.values["rollbacks"] = "one"; }), Code::kCorrupt);
  const auto of_skips = [&](const char* text) {
    return code([&](CheckpointInfo& i) { i.values["skips"] = text; });
  };
  EXPECT_EQ(of_skips("0:8"), Code::kInvalidArgument);  // no error
  EXPECT_EQ(of_skips("0:8 1:1"), Code::kCorrupt);      // of one rollback
  good.values["rollbacks"] = "3";
  EXPECT_EQ(of_skips("0:8 1:1"), Code::kInvalidArgument);
  EXPECT_EQ(of_skips("1:1 0:24 1:23"), Code::kInvalidArgument);
  for (const char* text :
       {"0:25", "2:1", "-1:1", "0:-1", "0", "0:", ":1", ":", "x", " ", "0:1 ", " 0:1", "0:1  1:1",
        "0:1 0:1", "0:4 1:1 0:21", "1:1 0:1 1:1 0:1", "00:1", "0:1,1:1"})
    EXPECT_EQ(of_skips(text), Code::kCorrupt) << text;
  const auto of_one_skip = [&](const char* phase, const char* sequences) {
    return code([&](CheckpointInfo& i) {
      i.values.erase("skips");
      i.values["skip_phase"] = phase, i.values["skip_sequences"] = sequences;
    });
  };
  EXPECT_EQ(of_one_skip("1", "24"), Code::kInvalidArgument);  // no error
  EXPECT_EQ(of_one_skip("2", "1"), Code::kCorrupt);
  EXPECT_EQ(of_one_skip("-1", "1"), Code::kCorrupt);
  EXPECT_EQ(of_one_skip("1", "25"), Code::kCorrupt);
  EXPECT_EQ(code([](CheckpointInfo& i) { i.values["spike"] = ""; }), Code::kCorrupt);
  EXPECT_EQ(code([](CheckpointInfo& i) { i.step = 9; }), Code::kCorrupt);
}

}  // namespace
}  // namespace moraine
