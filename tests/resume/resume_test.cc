// Resume: a run that was stopped anywhere, any number of times, ends in the bits of the undisturbed
// run.
//
// Fails if any number that the answer depends on is missing from checkpoints, or depends on
// threads, recomputation, validation, or on how many processes the run took.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "base/file_lock.h"
#include "base/test_folder.h"
#include "base/test_text.h"
#include "checkpoint/history.h"
#include "model/model_directory.h"
#include "tests/tiny_run.h"
#include "train/complete_config.h"

namespace moraine {
namespace {

using namespace testing;

class Resume : public ::testing::TestWithParam<const char*> {
 protected:
  TestFolder folder;
  TinyRun tiny{folder.path()};
};
INSTANTIATE_TEST_SUITE_P(Types, Resume, ::testing::Values("f32", "bf16"));

TEST_P(Resume, AfterEachStepFromItsCheckpoint) {
  const RunConfig config = tiny.config(tiny.rich(GetParam()));
  const std::string out = tiny.out("run");
  const Outcome whole = tiny.train(config, out);
  ASSERT_TRUE(whole.result) << whole.hash();
  const int64_t steps = whole.result->step;
  EXPECT_EQ(steps, 9);
  for (int64_t s = steps - 1; s >= 1; --s) {
    remove_checkpoints_after(posix_file_system(), out, s);
    const Outcome again = tiny.train(config, out);
    EXPECT_EQ(again.hash(), whole.hash()) << "resumed after step " << s;
    EXPECT_NE(
        again.log.find("checkpoint.loaded directory=" + out + "/step-" + std::to_string(s) + " "),
        std::string::npos)
        << again.log;
  }
}

TEST_P(Resume, StoppedBySignalAfterEveryStep) {
  RunConfig config = tiny.config(tiny.rich(GetParam()));
  const Outcome whole = tiny.train(config, tiny.out("whole"));
  config.checkpoint = {.every_steps = 1000, .keep = 1, .permanent_every_steps = 0};
  for (int stops = 1;; ++stops) {
    const Outcome part = tiny.train_steps(config, tiny.out("parts"), 1);
    if (part.result) {
      EXPECT_EQ(part.hash(), whole.hash());
      EXPECT_EQ(part.result->loss, whole.result->loss);
      EXPECT_EQ(stops, 9);
      break;
    }
    ASSERT_EQ(part.error->code(), Code::kInterrupted) << part.error->what();
    ASSERT_LE(stops, 9);
  }
}

TEST_P(Resume, ThreadsRecomputationAndReportsChangeNoBit) {
  const RunConfig config = tiny.config(tiny.rich(GetParam()));
  const std::string want = tiny.train(config, tiny.out("whole")).hash();
  RunConfig other = config;
  other.train.threads = 2;
  EXPECT_EQ(tiny.train(other, tiny.out("threads")).hash(), want);
  other.train.recompute = Recompute::kLayer;
  EXPECT_EQ(tiny.train(other, tiny.out("recompute")).hash(), want);
  // All of them change in the middle.
  other.report.valid_every_steps = 0;
  const std::string out = tiny.out("mixed");
  EXPECT_FALSE(tiny.train_steps(config, out, 4).result);
  EXPECT_FALSE(tiny.train_steps(other, out, 3).result);
  EXPECT_EQ(tiny.train(config, out).hash(), want);
}

TEST_P(Resume, FinishedRunAnswersAgain) {
  const RunConfig config = tiny.config(tiny.rich(GetParam()));
  const Outcome whole = tiny.train(config, tiny.out("run")),
                again = tiny.train(config, tiny.out("run"));
  EXPECT_EQ(again.hash(), whole.hash());
  EXPECT_EQ(again.result->loss, whole.result->loss);
}

class ResumeF32 : public Resume {};
INSTANTIATE_TEST_SUITE_P(Types, ResumeF32, ::testing::Values("f32"));

// The configuration above is only worth its name if clipping, skipping, ramp and phases really
// happen.
TEST_P(ResumeF32, RichRunIsRich) {
  const RunConfig config = tiny.config(tiny.rich("f32"));
  ASSERT_TRUE(tiny.train(config, tiny.out("run")).result);
  const std::string metrics = posix_file_system().read(tiny.out("run") + "/metrics.jsonl");
  double skipped = 0, lines = 0;
  for (size_t at = metrics.find("\"skip"); at != std::string::npos;
       at = metrics.find("\"skip", at + 1)) {
    skipped = std::max(skipped, std::strtod(metrics.c_str() + metrics.find(':', at) + 1, nullptr));
  }
  for (size_t at = metrics.find("\"gradient_norm\""); at != std::string::npos;
       at = metrics.find("\"gradient_norm\"", at + 1)) {
    EXPECT_GT(std::strtod(metrics.c_str() + at + 16, nullptr), config.train.clip_norm);
    ++lines;
  }
  EXPECT_EQ(lines, 9) << metrics;
  EXPECT_GT(skipped, 0) << metrics;
  const auto differs = [&](const std::function<void(RunConfig&)>& change) {
    RunConfig other = config;
    change(other);
    tiny.train(other, tiny.out("other"));
    const std::string hash = tiny.train(other, tiny.out("other")).hash();
    posix_file_system().remove_all(tiny.out("other"));
    return hash;
  };
  const std::string want = tiny.train(config, tiny.out("run")).hash();
  EXPECT_NE(differs([](RunConfig& c) { c.train.clip_norm = 0; }), want);
  EXPECT_NE(differs([](RunConfig& c) { c.train.seed = 2; }), want);
  EXPECT_NE(differs([](RunConfig& c) { c.phases[1].rope_theta = 0; }), want);
  EXPECT_NE(differs([](RunConfig& c) { c.phases[1].learning_rate = 0; }), want);
  EXPECT_NE(differs([](RunConfig& c) { c.phases[1].train[1].weight = 1; }), want);
}

// Real reads beside those of training: once, and not for who does not want them.
TEST_P(ResumeF32, StorageIsProbedUnlessTurnedOff) {
  RunConfig config = tiny.config(tiny.rich("f32"));
  const auto probed = [&](const std::string& out) {
    const std::string log = tiny.train(config, tiny.out(out)).log;
    return log.find("\nstorage: ") != std::string::npos ||
           log.find("storage.not_measured") != std::string::npos;
  };
  EXPECT_TRUE(probed("probed"));
  config.report.probe_storage = false;
  EXPECT_FALSE(probed("left"));
}

// Sequences of validation may be longer than those of every phase.
TEST_P(ResumeF32, ShortPhasesValidateLongSequences) {
  const RunConfig c = tiny.config(
      "[train]\nslots = 2\nsequence = 128\nbatch_tokens = 256\nthreads = 1\nmicro_sequences = "
      "1\n[[phase]]\ntokens = 1024\nsequence = 32\nbatch_tokens = 128\n");
  const Outcome whole = tiny.train(c, tiny.out("run"));
  ASSERT_TRUE(whole.result) << whole.hash();
  EXPECT_NE(whole.log.find("valid"), std::string::npos);
}

TEST_P(ResumeF32, RefusesMoreMemoryThanThereIs) {
  RunConfig config = tiny.config("[train]\nsteps = 1\nslots = 1\nsequence = 8\nbatch_tokens = 8\n");
  config.model.hidden = 1 << 16;  // terabytes of weights and state
  config.model.expert_hidden = 1 << 16;
  const Outcome refused = tiny.train(config, tiny.out("run"));
  ASSERT_TRUE(refused.error);
  EXPECT_EQ(refused.error->code(), Code::kInvalidArgument);
  // Before anything is planned or made for it.
  const std::string message = refused.error->what();
  EXPECT_NE(message.find("the weights of the model alone are"), std::string::npos) << message;
  EXPECT_NE(message.find("MiB are available"), std::string::npos) << message;
}

TEST_P(ResumeF32, RefusesAnotherConfigOrOtherData) {
  const RunConfig config = tiny.config(tiny.rich("f32"));
  const std::string out = tiny.out("run");
  ASSERT_FALSE(tiny.train_steps(config, out, 2).result);
  RunConfig other = config;
  other.optimizer.learning_rate = 0.03;
  const Outcome refused = tiny.train(other, out);
  ASSERT_TRUE(refused.error);
  EXPECT_EQ(refused.error->code(), Code::kInvalidArgument);
  EXPECT_NE(
      std::string(refused.error->what())
          .find("the run has `learning_rate = 0.02`, this config says `learning_rate = 0.03`"),
      std::string::npos)
      << refused.error->what();

  other = config;  // the same numbers, other text
  build_tiny_dataset(tiny.root() + "/c", 3, 60);
  other.data.train[0].path = other.phases[0].train[0].path = other.phases[1].train[0].path =
      tiny.root() + "/c";
  const Outcome other_data = tiny.train(other, out);
  ASSERT_TRUE(other_data.error);
  EXPECT_NE(std::string(other_data.error->what()).find("training data has other content"),
            std::string::npos)
      << other_data.error->what();

  RunOptions never;
  never.out = out;
  never.resume = "never";
  never.machine_file = tiny.root() + "/machine.json";
  EXPECT_THROW(train(posix_file_system(), config, never), Error);
}

// The same data elsewhere, and a named checkpoint of another folder.
// The machine file of tiny runs says that bf16 is the faster type.
TEST_P(ResumeF32, AutoTakesTheFasterTypeAndKeepsTheRuns) {
  const RunConfig f32 = tiny.config(tiny.rich("f32")), automatic = tiny.config(tiny.rich("auto"));
  const Outcome fresh = tiny.train(automatic, tiny.out("auto"));
  EXPECT_EQ(fresh.hash(), tiny.train(tiny.config(tiny.rich("bf16")), tiny.out("bf16")).hash());
  EXPECT_NE(fresh.log.find("run.dtype dtype=bf16"), std::string::npos) << fresh.log;
  const std::string saved = posix_file_system().read(tiny.out("auto") + "/config.toml");
  EXPECT_NE(saved.find("\ndtype = 'bf16'"), std::string::npos) << saved;
  const std::string want = tiny.train(f32, tiny.out("f32")).hash(), out = tiny.out("mixed");
  EXPECT_FALSE(tiny.train_steps(f32, out, 4).result);
  EXPECT_EQ(tiny.train(automatic, out).hash(), want);
  // The run's own file may be damaged or left behind; its checkpoints say it too.
  for (const bool damaged : {true, false}) {
    const std::string again = tiny.out(damaged ? "damaged" : "gone");
    EXPECT_FALSE(tiny.train_steps(f32, again, 4).result);
    posix_file_system().remove_all(again + "/config.toml");
    if (damaged) posix_file_system().write_atomic(again + "/config.toml", "x");
    EXPECT_EQ(tiny.train(automatic, again).hash(), want);
  }
}

TEST_P(ResumeF32, MovedDataAndNamedCheckpoint) {
  const RunConfig config = tiny.config(tiny.rich("f32"));
  const std::string want = tiny.train(config, tiny.out("run")).hash();
  FileSystem& fs = posix_file_system();
  fs.rename(tiny.root() + "/a", tiny.root() + "/moved");
  RunConfig moved = config;
  moved.data.train[0].path = moved.phases[0].train[0].path = moved.phases[1].train[0].path =
      tiny.root() + "/moved";
  EXPECT_EQ(tiny.train(fs, moved, tiny.out("second"), nullptr, tiny.out("run") + "/step-3").hash(),
            want);
}

// Whoever goes back to a checkpoint, and removes the later ones, has left what is in memory too.
TEST_P(ResumeF32, ANamedCheckpointLeavesNoCopyInMemory) {
  RunConfig config = tiny.config(tiny.rich("f32"));
  config.checkpoint.memory_folder = tiny.out("memory");
  config.checkpoint.memory_every_steps = 1;
  config.checkpoint.every_steps = 100;
  FileSystem& fs = posix_file_system();
  fs.make_directories(config.checkpoint.memory_folder);
  const std::string out = tiny.out("run");
  ASSERT_FALSE(tiny.train_steps(config, out, 4).result);
  ASSERT_FALSE(tiny.train_steps(config, out, 3).result);
  remove_checkpoints_after(fs, out, 4);
  EXPECT_NE(tiny.train_steps(config, out, 1).log.find("directory=" + tiny.out("memory")),
            std::string::npos);
  remove_checkpoints_after(fs, out, 4);
  config.checkpoint.memory_every_steps = 100;
  RunConfig short_of_time = config;
  short_of_time.train.time_limit_seconds = 1e-9;
  ASSERT_FALSE(tiny.train(fs, short_of_time, out, nullptr, out + "/step-4").result);
  const Outcome again = tiny.train(config, out);
  EXPECT_NE(again.log.find("directory=" + out + "/step-4"), std::string::npos) << again.log;
}

// Of a rank whose host is gone, until its lease ends. Where nobody starts ranks anew, a person is told at once.
TEST_P(ResumeF32, ALockThatOutlivesItsHostIsWaitedFor) {
  RunConfig config = tiny.config(tiny.rich("f32"));
  config.parallel.deadline_seconds = 1;
  FileSystem& fs = posix_file_system();
  const std::string out = tiny.out("run");
  fs.make_directories(out);
  std::unique_ptr<FileLock> lock = FileLock::take(out, "train");
  const auto run = [&](bool replaced, bool watched) {
    RunOptions options;
    options.out = out;
    options.is_watched = watched;
    if (replaced) options.has_newcomers = [] { return false; };
    return tiny.train(fs, config, options, 1);
  };
  EXPECT_EQ(run(false, false).error.value().code(), Code::kInvalidArgument);
  EXPECT_EQ(run(true, false).error.value().code(), Code::kTimeout);
  EXPECT_EQ(run(false, true).error.value().code(), Code::kTimeout);
  config.parallel.deadline_seconds = 200;
  std::thread lease([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    lock.reset();
  });
  EXPECT_TRUE(run(false, true).result);
  lease.join();
}

// A run is no checkpoint: the message names one, and the other way.
TEST_P(ResumeF32, ResumingARunNamesItsNewestCheckpoint) {
  const RunConfig config = tiny.config(tiny.rich("f32"));
  const std::string run = tiny.out("run");
  ASSERT_FALSE(tiny.train_steps(config, run, 4).result);
  const Outcome refused = tiny.train(posix_file_system(), config, tiny.out("second"), nullptr, run);
  ASSERT_TRUE(refused.error);
  EXPECT_EQ(refused.error->code(), Code::kInvalidArgument);
  const std::string message = refused.error->what();
  EXPECT_NE(message.find("--resume " + run + ": it is a run"), std::string::npos) << message;
  EXPECT_NE(message.find(run + "/step-4 is the newest"), std::string::npos) << message;
  EXPECT_NE(message.find("--out " + run + " with --resume auto"), std::string::npos) << message;
}

// A checkpoint of 0.2.0 has its config in the keys of then.
TEST_P(ResumeF32, ARunSavedWithFormerKeysGoesOn) {
  const RunConfig config = tiny.config(tiny.rich("f32"));
  const std::string want = tiny.train(config, tiny.out("whole")).hash(), out = tiny.out("run");
  ASSERT_FALSE(tiny.train_steps(config, out, 4).result);
  FileSystem& fs = posix_file_system();
  const auto put_back = [&](const std::string& path) {
    std::string text = fs.read(path);
    const std::string now = "\\nreduce_dtype = ", then = "\\nwire = ";
    const size_t at = text.find(now);
    ASSERT_NE(at, std::string::npos) << path;
    text.replace(at, now.size(), then);
    const size_t key = text.rfind("\n\"manifest_hash\"");
    text.replace(text.size() - 36, 32,
                 hash_hex(hash_bytes(text.data(), static_cast<int64_t>(key))));
    fs.create(path)->append(text.data(), static_cast<int64_t>(text.size()));
  };
  for (const int64_t step : list_checkpoints(fs, out))
    put_back(checkpoint_path(fs, out, step) + "/manifest.json");
  EXPECT_EQ(tiny.train(config, out).hash(), want);
}

TEST_P(ResumeF32, TimeLimitStopsAndGoesOn) {
  RunConfig config = tiny.config(tiny.rich("f32"));
  const std::string want = tiny.train(config, tiny.out("whole")).hash();
  config.train.time_limit_seconds = 1e-9;
  const Outcome limited = tiny.train(config, tiny.out("run"));
  ASSERT_TRUE(limited.error);
  EXPECT_EQ(limited.error->code(), Code::kInterrupted);
  EXPECT_NE(std::string(limited.error->what()).find("time limit after step 0 of 9"),
            std::string::npos)
      << limited.error->what();
  config.train.time_limit_seconds = 0;
  EXPECT_EQ(tiny.train(config, tiny.out("run")).hash(), want);
}

// The model of a run computes what the run computed: its validation is the reference.
TEST_P(ResumeF32, ModelOfARunHasTheBaseOfItsPhase) {
  ASSERT_TRUE(tiny.train(tiny.config(tiny.rich("f32")), tiny.out("run")).result);
  EXPECT_EQ(
      ModelDirectory::open(posix_file_system(), tiny.out("run") + "/step-5").config().rope_theta,
      10000);
  EXPECT_EQ(ModelDirectory::open(posix_file_system(), tiny.out("run")).config().rope_theta, 50000);
}

// ------------------------------------------------------------------------------------- a longer run

// Eight steps to 2048 tokens; the last half of WSD decays, from step 5 on.
std::string length(const std::string& train, const std::string& optimizer) {
  return "[train]\nslots = 2\nsequence = 32\nbatch_tokens = 256\nthreads = 1\ndtype = \"f32\"\n" +
         train + "[optimizer]\nlearning_rate = 0.02\ndecay_fraction = 0.5\n" + optimizer +
         "[checkpoint]\nevery_steps = 1\nkeep = 100\n";
}

class LongerRun : public ResumeF32 {
 protected:
  RunConfig config(const std::string& train,
                   const std::string& optimizer = "warmup_tokens = 512\n") {
    return tiny.config(length(train, optimizer));
  }
  // Goes on from `from` into a folder of its own.
  Outcome go_on(const RunConfig& c, const std::string& from, const std::string& out) {
    return tiny.train(posix_file_system(), c, tiny.out(out), nullptr, from);
  }
};
INSTANTIATE_TEST_SUITE_P(Types, LongerRun, ::testing::Values("f32"));

TEST_P(LongerRun, HasTheBitsOfOneThatWasAsLongFromTheStart) {
  const RunConfig shorter = config("tokens = 2048\n"), longer = config("tokens = 4096\n");
  const Outcome whole = tiny.train(longer, tiny.out("whole"));
  ASSERT_TRUE(whole.result) << whole.hash();
  EXPECT_EQ(whole.result->step, 16);
  // Stopped before its decay, and given another length there.
  ASSERT_FALSE(tiny.train_steps(shorter, tiny.out("stopped"), 4).result);
  EXPECT_EQ(tiny.train(longer, tiny.out("stopped")).hash(), whole.hash());
  // Steps count the same tokens. Or shorter: a decay may begin at any time.
  EXPECT_EQ(go_on(config("steps = 16\n"), tiny.out("whole") + "/step-3", "steps").hash(),
            whole.hash());
  const Outcome cut = tiny.train(shorter, tiny.out("run"));
  EXPECT_EQ(go_on(shorter, tiny.out("whole") + "/step-4", "cut").hash(), cut.hash());
  EXPECT_NE(cut.hash(), whole.hash());
}

TEST_P(LongerRun, AConstantRateGoesOnFromTheEnd) {
  const std::string constant = "schedule = \"constant\"\nwarmup_tokens = 512\n";
  const std::string want =
      tiny.train(config("tokens = 3072\n", constant), tiny.out("whole")).hash();
  ASSERT_TRUE(tiny.train(config("tokens = 2048\n", constant), tiny.out("run")).result);
  EXPECT_EQ(tiny.train(config("tokens = 3072\n", constant), tiny.out("run")).hash(), want);
}

TEST_P(LongerRun, TheRefusalNamesTheCheckpointFromWhichItWouldBe) {
  const RunConfig longer = config("tokens = 4096\n");
  const std::string want = tiny.train(longer, tiny.out("whole")).hash(), out = tiny.out("run");
  ASSERT_TRUE(tiny.train(config("tokens = 2048\n"), out).result);  // to the end of its decay
  const Outcome refused = tiny.train(longer, out);
  ASSERT_TRUE(refused.error);
  EXPECT_EQ(refused.error->code(), Code::kInvalidArgument);
  const std::string text = refused.error->what();
  // Step 5 begins where the decay does, and still has the whole rate.
  EXPECT_NE(text.find("step 6 has 1 of the learning rate"), std::string::npos) << text;
  EXPECT_NE(text.find("--resume " + out + "/step-5 with another --out"), std::string::npos) << text;
  EXPECT_EQ(go_on(longer, out + "/step-5", "second").hash(), want);
  const Outcome named = go_on(longer, out + "/step-6", "third");
  ASSERT_TRUE(named.error);
  EXPECT_NE(std::string(named.error->what()).find("--resume " + out + "/step-5 with"),
            std::string::npos)
      << named.error->what();

  for (int step = 1; step <= 5; ++step)
    posix_file_system().remove_all(out + "/step-" + std::to_string(step));
  const Outcome late = tiny.train(longer, out);
  ASSERT_TRUE(late.error);
  EXPECT_NE(std::string(late.error->what()).find("no checkpoint of such a step is left"),
            std::string::npos)
      << late.error->what();
}

TEST_P(LongerRun, AWarmUpThatFollowsTheLengthIsNamed) {
  const std::string fraction = "warmup_fraction = 0.25\n";
  const std::string out = tiny.out("run");
  ASSERT_FALSE(tiny.train_steps(config("tokens = 2048\n", fraction), out, 3).result);
  const Outcome refused = tiny.train(config("tokens = 4096\n", fraction), out);
  ASSERT_TRUE(refused.error);
  EXPECT_NE(std::string(refused.error->what()).find("optimizer.warmup_tokens = 512"),
            std::string::npos)
      << refused.error->what();
  EXPECT_EQ(tiny.train(config("tokens = 4096\n"), out).hash(),
            tiny.train(config("tokens = 4096\n"), tiny.out("whole")).hash());
}

TEST_P(LongerRun, NoShorterThanItsPastAndNoOtherBatch) {
  const std::string out = tiny.out("run");
  ASSERT_FALSE(tiny.train_steps(config("tokens = 2048\n"), out, 4).result);
  const Outcome short_one = tiny.train(config("tokens = 768\n"), out);
  ASSERT_TRUE(short_one.error);
  const std::string text = short_one.error->what();
  for (const char* piece : {"taken 4 steps", "it would have 3", "cannot be made shorter"})
    EXPECT_NE(text.find(piece), std::string::npos) << text;
  RunConfig other = config("tokens = 4096\n");
  other.train.batch_tokens = 512;
  EXPECT_NE(tiny.train(other, out).hash().find("batch_tokens"), std::string::npos);
}

// ------------------------------------------------------------------------------------------ slots

// Random tokens; a function of the step and the sequence.
void read_tokens(const StepPlan& plan, int64_t first, int64_t count, SequenceBatch* out) {
  out->tokens.clear();
  out->targets.clear();
  out->segment_begin.clear();
  for (int64_t s = 0; s < count; ++s) {
    out->segment_begin.push_back(s * plan.sequence);
    for (int64_t i = 0; i < plan.sequence; ++i) {
      const uint64_t index = static_cast<uint64_t>((first + s) * plan.sequence + i);
      out->tokens.push_back(static_cast<int32_t>(
          random_below(257, 1, Stream::kTest, static_cast<uint64_t>(plan.step), index)));
      out->targets.push_back(static_cast<int32_t>(
          random_below(257, 2, Stream::kTest, static_cast<uint64_t>(plan.step), index)));
    }
  }
  out->num_targets = count * plan.sequence;
}

struct SlotSums {
  std::vector<double> losses = std::vector<double>(4);
  int64_t targets = 0;
};

// Two owners of two slots each, merged by one addition, against one owner of four.
TEST_P(Resume, SlotsInOneGoOrSplitGiveTheSameBits) {
  RunConfig config = tiny.config(tiny.rich(GetParam()));
  config = complete_config(posix_file_system(), config);
  const Timeline timeline(config);
  Pool pool(2);
  Arena arena(Arena::Mode::kReal);
  PlannedRanks alone;
  Trainer trainer(arena, pool, config, timeline, alone.ranks());
  trainer.initialize(7);
  trainer.refresh();
  const int64_t count = trainer.model().table().total_count;
  SlotTree all(arena, 4, count), left(arena, 2, count), right(arena, 2, count);
  for (const int64_t step : {int64_t{0}, int64_t{5}, int64_t{8}}) {
    const StepPlan plan = timeline.at(step);
    const auto read = [&](int64_t first, int64_t n, SequenceBatch* out) {
      read_tokens(plan, first, n, out);
    };
    const auto add_slots = [&](int64_t begin, int64_t end, SlotTree& tree, SlotSums& sums) {
      for (int64_t slot = begin; slot < end; ++slot) {
        const SlotSum sum =
            trainer.backward_slot(plan, slot, read, {tree.begin_slot(trainer.ctx())});
        tree.add(trainer.ctx());
        sums.losses[static_cast<size_t>(slot)] = sum.loss;
        sums.targets += sum.targets;
      }
    };
    SlotSums one, split;
    std::memset(trainer.load().data, 0, static_cast<size_t>(trainer.load().bytes()));
    trainer.enter_phase(plan.phase);
    add_slots(0, 4, all, one);
    const std::vector<int64_t> load(trainer.load().as<int64_t>(),
                                    trainer.load().as<int64_t>() + trainer.load().count());
    std::memset(trainer.load().data, 0, static_cast<size_t>(trainer.load().bytes()));
    add_slots(2, 4, right, split);  // in any order
    add_slots(0, 2, left, split);
    const float *whole = all.root().as<float>(), *l = left.root().as<float>(),
                *r = right.root().as<float>();
    int64_t different = 0, not_zero = 0;
    for (int64_t i = 0; i < count; ++i) {
      const float sum = l[i] + r[i];
      different += std::memcmp(&sum, &whole[i], 4) != 0;
      not_zero += sum != 0;
    }
    EXPECT_EQ(different, 0) << "step " << step;
    EXPECT_GT(not_zero, count / 4);
    EXPECT_EQ(one.losses, split.losses);
    EXPECT_EQ(one.targets, split.targets);
    EXPECT_EQ(std::vector<int64_t>(trainer.load().as<int64_t>(),
                                   trainer.load().as<int64_t>() + trainer.load().count()),
              load);
  }
}

}  // namespace
}  // namespace moraine
