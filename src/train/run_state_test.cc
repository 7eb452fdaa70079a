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
  state.step = 5, state.skip_sequences = 4, state.skip_phase = 1, state.rollbacks = 2;
  state.loss = 1.0 / 3;
  state.verified_step = 4;
  CheckpointInfo info;
  write_state(state, &info);
  const RunState back = read_state(info, config, timeline);
  EXPECT_EQ(back.step, 5);
  EXPECT_EQ(back.skip_sequences, 4);
  EXPECT_EQ(back.skip_phase, 1);
  EXPECT_EQ(back.rollbacks, 2);
  EXPECT_EQ(back.verified_step, 4);
  EXPECT_EQ(back.loss, 1.0 / 3);
  EXPECT_EQ(back.spike.save(), state.spike.save());
  EXPECT_EQ(back.skip(timeline.at(5)), 4);
  EXPECT_EQ(back.skip(timeline.at(0)), 0);
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
  write_state({.spike = SpikeDetector(0)}, &good);
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
  EXPECT_EQ(code([](CheckpointInfo& i) { i.values["skip_phase"] = "2"; }), Code::kCorrupt);
  EXPECT_EQ(code([](CheckpointInfo& i) { i.values["skip_phase"] = "-1"; }), Code::kCorrupt);
  EXPECT_EQ(code([](CheckpointInfo& i) { i.values["skip_sequences"] = "1"; }), Code::kCorrupt);
  EXPECT_EQ(code([](CheckpointInfo& i) { i.values["spike"] = ""; }), Code::kCorrupt);
  EXPECT_EQ(code([](CheckpointInfo& i) { i.step = 9; }), Code::kCorrupt);
}

}  // namespace
}  // namespace moraine
