// Training on emulated GPUs: fails if a run leaves the CPU's by more than rounding comes to, if a generation has more
// than one result, also on several ranks with one each, if a run that was stopped ends in other bits than the unbroken
// one, or if what is not there is not refused by name at the start.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <sstream>

#include "base/fault_point.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/test_folder.h"
#include "checkpoint/history.h"
#include "model/parameters.h"
#include "testing/places.h"
#include "tests/tiny_run.h"
#include "train/run_mesh.h"

namespace moraine {
namespace {

using namespace testing;

class DeviceRun : public ::testing::Test {
 protected:
  // Two steps of `slots` slots, clipped, of the smallest model that has every part.
  RunConfig config(const std::string& device, const std::string& dtype, int64_t slots) const {
    return small(device,
                 fmt::format("[train]\nslots = {}\nsequence = 16\nbatch_tokens = {}\nthreads = 1\n"
                             "steps = 2\nclip_norm = 0.1\ndtype = \"{}\"\n"
                             "[optimizer]\nlearning_rate = {}\nnewton_schulz_steps = {}\n"
                             "[checkpoint]\nevery_steps = 1\nkeep = 9\n",
                             slots, 16 * slots, dtype, kRate, kNewtonSchulzSteps));
  }
  // `text`: all but the model.
  RunConfig small(const std::string& device, const std::string& text) const {
    RunConfig c = tiny.config(text);
    ModelConfig& m = c.model;
    m.hidden = 16, m.heads = 2, m.kv_heads = 1, m.head_dim = 8;
    m.experts = 2, m.expert_hidden = 8, m.router_hidden = 8, m.init_std = 0.2;
    c.report.valid_every_steps = 0;
    c.train.device = device;
    return c;
  }
  // Of each line of metrics.jsonl.
  std::vector<Json> metrics(const std::string& name) const {
    std::istringstream lines(posix_file_system().read(tiny.out(name) + "/metrics.jsonl"));
    std::vector<Json> all;
    for (std::string line; std::getline(lines, line);) all.push_back(parse_json(line, "metrics"));
    return all;
  }
  static void expect_refused(const Outcome& outcome, std::initializer_list<const char*> pieces) {
    ASSERT_TRUE(outcome.error);
    EXPECT_EQ(outcome.error->code(), Code::kInvalidArgument);
    for (const char* piece : pieces)
      EXPECT_NE(std::string(outcome.error->what()).find(piece), std::string::npos)
          << piece << "\n"
          << outcome.error->what();
  }

  static constexpr double kRate = 2e-3;
  static constexpr int kNewtonSchulzSteps = 2;
  TestFolder folder;
  TinyRun tiny{folder.path()};
};

// Each is within 2e-6 of the loss, and 4 * 1.3e-5 of the gradient, of the public implementation's
// (model/test_golden.h). In the second step the weights are apart as well: those that Muon moves by as much of their
// way as gradients are apart, and as bf16 operands tip over (optim/gpu_step_test.cc), grown by the polynomial's slope
// at zero; of those that AdamW moves the ones that may have the other sign, a share of all as small as the distance of
// the gradients, with that share of the gradient's square.
TEST_F(DeviceRun, FollowsTheCpuWithinRounding) {
  RunConfig on_cpu = config("cpu", "f32", 1), on_gpu = config("emulated:plain", "f32", 1);
  on_cpu.model.layers = on_gpu.model.layers =
      1;  // products in f32 are what an emulator is slowest at
  const Outcome cpu = tiny.train(on_cpu, tiny.out("cpu")),
                gpu = tiny.train(on_gpu, tiny.out("gpu"));
  ASSERT_TRUE(gpu.result) << gpu.hash();
  EXPECT_NE(gpu.hash(), cpu.hash());  // so it was not the CPU
  const std::vector<Json> want = metrics("cpu"), got = metrics("gpu");
  ASSERT_EQ(got.size(), want.size());
  const double gradients = 2 * 4 * 1.3e-5, tips = 2 * 0x1p-8 * std::sqrt(0x1p-12),
               slope = std::pow(3.4445, kNewtonSchulzSteps),
               elements = static_cast<double>(count_parameters(on_gpu.model).total);
  double apart = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double norm = want[i]["gradient_norm"].get<double>();
    EXPECT_NEAR(got[i]["loss"].get<double>(), want[i]["loss"].get<double>(),
                2 * 2e-6 + apart * norm);
    if (i == 0) {
      EXPECT_NEAR(got[i]["gradient_norm"].get<double>(), norm, gradients * norm);
    }
    apart += kRate * std::sqrt(elements) * (0.2 * slope * (gradients + tips) + 2 * gradients);
  }
}

// Of the state after two steps in bf16.
struct Stated {
  const char *device, *hash;
};
constexpr Stated kStated[] = {{"emulated:cdna3", "b29b8f13aac37ed5434a09525535f130"},
                              {"emulated:sm_90", "bfc6a2036d47de3ab3fec0a757456811"}};

TEST_F(DeviceRun, AGenerationHasOneAnswer) {
  for (const Stated& s : kStated)
    EXPECT_EQ(tiny.train(config(s.device, "bf16", 2), tiny.out(s.device)).hash(), s.hash)
        << s.device;
}

// The part after the stop is verified, computes layers again and validates: no bit of that.
TEST_F(DeviceRun, AStoppedRunEndsInTheBitsOfTheUnbrokenOne) {
  const Stated& s = kStated[1];
  const RunConfig c = config(s.device, "bf16", 2);
  const Outcome first = tiny.train_steps(c, tiny.out("run"), 1);
  ASSERT_TRUE(first.error) << first.hash();
  ASSERT_EQ(first.error->code(), Code::kInterrupted) << first.error->what();
  RunConfig other = c;
  other.train.verify_every_steps = 1;
  other.train.recompute = Recompute::kLayer;
  other.report.valid_every_steps = 1;
  other.report.valid_tokens = 16;
  const Outcome rest = tiny.train(other, tiny.out("run"));
  EXPECT_EQ(rest.hash(), s.hash);
  EXPECT_NE(rest.log.find("checkpoint.loaded"), std::string::npos) << rest.log;
  // Each has its own bits: a run stays where it began.
  const RunConfig elsewhere = config(kStated[0].device, "bf16", 2);
  expect_refused(tiny.train(elsewhere, tiny.out("run")),
                 {"device", kStated[0].device, "a run must go on as it began"});
}

// Of the state after two steps of four slots, on any number of ranks.
constexpr Stated kStatedOfRanks[] = {{"emulated:cdna3", "d632a4270f7806d62db6ce273a268a2b"},
                                     {"emulated:sm_90", "67d017ebf997b9b78d0fe0eccf2f81dc"}};

class DeviceRanks : public DeviceRun {
 protected:
  // Gradients leave in several buckets.
  RunConfig of_ranks(const std::string& device) const {
    RunConfig c = config(device, "bf16", 4);
    c.model.layers = 1, c.train.sequence = 8, c.train.batch_tokens = 32;
    c.parallel.bucket_bytes = 1;
    return c;
  }
};

TEST_F(DeviceRanks, AGenerationHasOneAnswerOnAnyNumberOfThem) {
  for (const Stated& s : kStatedOfRanks) {
    const RunConfig c = of_ranks(s.device);
    const std::string name = s.device;
    EXPECT_EQ(tiny.train(c, tiny.out(name + "1")).hash(), s.hash) << name;
    EXPECT_EQ(tiny.train_on(4, c, tiny.out(name + "4")).hash(), s.hash) << name;
  }
}

TEST_F(DeviceRanks, StoppedOnTwoAndResumedOnOneAndTheOtherWayRound) {
  for (size_t i = 0; i < 2; ++i) {
    const Stated& s = kStatedOfRanks[i];
    const int before = i == 0 ? 2 : 1, after = 3 - before;
    RunConfig c = of_ranks(s.device);
    c.train.verify_every_steps = before == 2 ? 1 : 0;
    const Outcome first = tiny.train_steps(c, tiny.out(s.device), 1, before);
    ASSERT_TRUE(first.error) << first.hash();
    ASSERT_EQ(first.error->code(), Code::kInterrupted) << first.error->what();
    EXPECT_EQ(tiny.train_on(after, c, tiny.out(s.device)).hash(), s.hash) << s.device;
  }
}

// The same bits over a library's links; and what it says, or that it is not there, ends the run with a remedy.
TEST_F(DeviceRanks, ALibraryMovesTheSameBits) {
  const Stated& s = kStatedOfRanks[1];
  RunConfig c = of_ranks(s.device);
  c.parallel.device_links = DeviceLinks::kLibrary;
  expect_refused(tiny.train_on(2, c, tiny.out("none")),
                 {"parallel.device_links = \"library\"", "rank 0: an emulated GPU has no library",
                  "\"host\""});
  setenv("MORAINE_COLLECTIVE_LIBRARY", collectives_stand_in().c_str(), 1);
  const Outcome two = tiny.train_on(2, c, tiny.out("two"));
  unsetenv("MORAINE_COLLECTIVE_LIBRARY");
  EXPECT_EQ(two.hash(), s.hash);
  EXPECT_NE(two.log.find("device.links ranks=2 by=library"), std::string::npos) << two.log;
}

TEST_F(DeviceRanks, WhatOnlyTheCpuDoesIsRefusedByItsKey) {
  const auto refused = [&](const char* key, const std::function<void(RunConfig&)>& change) {
    RunConfig c = of_ranks("emulated:plain");
    change(c);
    expect_refused(tiny.train_on(2, c, tiny.out("refused")),
                   {"train.device = emulated:plain", key, "wanted", "train.device = cpu"});
  };
  refused("parallel.plan = \"auto\"", [](RunConfig& c) { c.parallel.plan = PlanChoice::kAuto; });
  refused("parallel.plan = \"shuffled\"",
          [](RunConfig& c) { c.parallel.plan = PlanChoice::kShuffled; });
}

// `gpu` says nothing of the generation: the checkpoint does.
TEST_F(DeviceRun, ARunStaysWithItsGeneration) {
  RunConfig c = config("emulated:cdna3", "bf16", 1);
  c.model.layers = 1, c.train.sequence = c.train.batch_tokens = 4;
  const std::string out = tiny.out("run");
  ASSERT_TRUE(tiny.train_steps(c, out, 1).error);
  const std::string manifest = checkpoint_path(posix_file_system(), out, 1) + "/manifest.json";
  std::string text = posix_file_system().read(manifest);
  const size_t at = text.find("cdna3", text.find("device.generation")),
               end = text.find("\n\"manifest_hash\"");
  ASSERT_NE(at, std::string::npos) << text;
  text.replace(at, 5, "cdna2");  // as if another one had computed it
  const std::string hash = hash_hex(hash_bytes(text.data(), static_cast<int64_t>(end)));
  text.replace(text.find(": \"", end) + 3, hash.size(), hash);
  write_file(manifest, text);
  expect_refused(tiny.train(c, out), {"a GPU of generation cdna2", "here is cdna3", "--out"});
}

// A bit of a device's memory that flips between two steps is found before the next update.
TEST_F(DeviceRun, ABitOfItsMemoryThatFlipsIsFound) {
  RunConfig c = config("emulated:sm_90", "bf16", 1);
  c.model.layers = 1, c.train.sequence = c.train.batch_tokens = 4;
  c.train.verify_every_steps = 100;
  int seen = 0;
  set_fault_bytes([&](const char* name, std::span<std::byte> bytes) {
    if (std::string(name) == "step.weights" && ++seen == 2) bytes[5] ^= std::byte{4};
  });
  const Outcome outcome = tiny.train(c, tiny.out("flipped"));
  set_fault_bytes(nullptr);
  ASSERT_TRUE(outcome.error) << outcome.hash();
  EXPECT_EQ(outcome.error->code(), Code::kRankDiverged) << outcome.error->what();
}

// Two micro-batches to a slot, then sequences of another length, rotary base and rate, whose layers are computed again
// or not: it ends in the same bits, stopped at the border or not.
TEST_F(DeviceRun, PhasesAndMicroBatchesEndInOneAnswer) {
  const auto config_of = [&](const char* recompute) {
    return small("emulated:cdna2",
                 fmt::format("[train]\nslots = 1\nsequence = 16\nbatch_tokens = 32\nthreads = 1\n"
                             "micro_sequences = 1\nclip_norm = 0.1\ndtype = \"bf16\"\n"
                             "[optimizer]\nmatrices = \"adamw\"\n[checkpoint]\nevery_steps = 1\n"
                             "[[phase]]\ntokens = 32\n"
                             "[[phase]]\ntokens = 32\nsequence = 32\nrope_theta = 50000.0\n"
                             "learning_rate = 0.01\nrecompute = \"{}\"\n",
                             recompute));
  };
  const Outcome whole = tiny.train(config_of("layer"), tiny.out("whole"));
  ASSERT_TRUE(whole.result) << whole.hash();
  const RunConfig kept = config_of("none");
  ASSERT_EQ(tiny.train_steps(kept, tiny.out("parts"), 1).error->code(), Code::kInterrupted);
  EXPECT_EQ(tiny.train(kept, tiny.out("parts")).hash(), whole.hash());
}

// The events of a run, and how it ended.
std::vector<std::string> what_happened(const Outcome& outcome) {
  std::vector<std::string> all;
  std::istringstream lines(outcome.log);
  for (std::string line; std::getline(lines, line);) {
    for (const char* event : {"step.bad", "run.rolled_back"}) {
      const size_t at = line.find(event);
      if (at == std::string::npos) continue;
      all.push_back(line.substr(at, line.find(' ', line.find("step=", at)) - at));
    }
  }
  all.push_back(outcome.error ? code_name(outcome.error->code()) : "ended");
  return all;
}

// A decay that multiplies weights by a million makes them larger than numbers are. No index that a kernel makes of such
// is wrong, and the run goes back to a checkpoint, once, then gives up.
TEST_F(DeviceRun, NumbersThatAreNoneRollBackAsOnTheCpu) {
  const auto happened = [&](const char* device) {
    RunConfig c =
        small(device,
              "[train]\nslots = 1\nsequence = 16\nbatch_tokens = 16\nthreads = 1\nsteps = 6\n"
              "dtype = \"bf16\"\n[optimizer]\nmatrices = \"adamw\"\n"
              "learning_rate = 10.0\nweight_decay = 10.0\nwarmup_fraction = 0.0\n[spike]\npolicy = "
              "\"rollback\"\nrollbacks_max = 1\n"
              "[checkpoint]\nevery_steps = 1\n");
    c.model.init_std = 1e12, c.optimizer.learning_rate = 900, c.optimizer.weight_decay = 900;
    return what_happened(tiny.train(c, tiny.out(device)));
  };
  const std::vector<std::string> want = happened("cpu");
  EXPECT_GE(want.size(), 4u) << want.back();
  EXPECT_EQ(happened("emulated:sm_80"), want);
}

TEST_F(DeviceRun, WhatIsNotThereIsRefusedByName) {
  const RunConfig c = config("emulated:plain", "bf16", 2);
  RunConfig wrong = c;
  wrong.train.device = "warp";
  expect_refused(tiny.train(wrong, tiny.out("warp")), {"device warp", "emulated:RULE"});
  // Who measures steps, or plans them, computes on the CPU.
  Pool pool(1);
  Arena arena(Arena::Mode::kReal);
  PlannedRanks ranks(run_mesh(c, 1, 0));
  RunConfig complete = c;
  complete.model.vocab_size = kByteVocabulary;
  Outcome trainer;
  try {
    const Trainer on_cpu(arena, pool, complete, Timeline(complete), ranks.ranks());
  } catch (const Error& e) {
    trainer.error = e;
  }
  expect_refused(trainer, {"train.device = emulated:plain", "`moraine train` alone"});
}

}  // namespace
}  // namespace moraine
