// Forged: checkpoints whose checksums are right and whose values are not, data of another tokenizer,
// and shards that change while a run reads them.
//
// Fails if any of it reaches a check of our own (exit 134), or is trained on.
#include <gtest/gtest.h>

#include <thread>

#include "base/test_folder.h"
#include "checkpoint/manifest.h"
#include "model/model_directory.h"
#include "tests/program.h"
#include "tests/tiny_run.h"

namespace moraine {
namespace {

using namespace testing;

class Forged : public ::testing::Test {
 protected:
  RunConfig config(const std::string& more = "") const {
    return tiny.config(
        "[train]\nslots = 4\nsequence = 32\nbatch_tokens = 128\nthreads = 1\ndtype = "
        "\"f32\"\nsteps = 4\n[checkpoint]\nevery_steps = 2\n" +
        more);
  }
  // Changes the manifest in `directory`, and its hash with it.
  void forge(const std::string& directory, const std::function<void(CheckpointInfo&)>& change) {
    const std::string path = directory + "/manifest.json";
    Manifest manifest = parse_manifest(fs.read(path));
    change(manifest.info);
    write_file(path, manifest_text(manifest));
  }

  TestFolder folder;
  TinyRun tiny{folder.path()};
  FileSystem& fs = posix_file_system();
};

TEST_F(Forged, ValuesOfTheLoop) {
  const std::string out = tiny.out("run");
  const Outcome whole = tiny.train(config(), out);
  ASSERT_TRUE(whole.result) << whole.hash();
  const std::string newest = out + "/step-4", manifest = fs.read(newest + "/manifest.json");
  const auto resumed = [&](const char* key, const std::string& value) {
    forge(newest, [&](CheckpointInfo& info) { info.values[key] = value; });
    const Outcome outcome = tiny.train(config(), out);
    write_file(newest + "/manifest.json", manifest);
    return outcome;
  };
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, std::string>>{{"skips", "0:-1"},
                                                        {"skips", "0:1"},
                                                        {"skips", "0:9e9"},
                                                        {"skips", "0:99999999999999999999"},
                                                        {"skips", "-1:0"},
                                                        {"skips", "7:1"},
                                                        {"skips", ":"},
                                                        {"rollbacks", "-1"},
                                                        {"rollbacks", "1000000000"},
                                                        {"rollbacks", "0x"},
                                                        {"spike", "nonsense"},
                                                        {"spike", "0x0p+0 0x0p+0 -5 0"},
                                                        {"spike", "0x0p+0 0x0p+0 1000 0"},
                                                        {"spike", "0x0p+0 0x0p+0 0 -1"}}) {
    SCOPED_TRACE(std::string(key) + " " + value);
    const Outcome outcome = resumed(key, value);
    ASSERT_TRUE(outcome.error);
    EXPECT_EQ(outcome.error->code(), Code::kCorrupt);
  }
  // As earlier versions wrote it.
  for (const auto& skip :
       std::vector<std::pair<const char*, const char*>>{{"0", "-1"},
                                                        {"0", "1"},
                                                        {"0", "9e9"},
                                                        {"0", "99999999999999999999"},
                                                        {"-1", "0"},
                                                        {"7", "0"},
                                                        {"", "0"},
                                                        {"0", ""}}) {
    SCOPED_TRACE(fmt::format("{} of phase {}", skip.second, skip.first));
    forge(newest, [&](CheckpointInfo& info) {
      info.values.erase("skips");
      info.values["skip_phase"] = skip.first, info.values["skip_sequences"] = skip.second;
    });
    const Outcome outcome = tiny.train(config(), out);
    write_file(newest + "/manifest.json", manifest);
    ASSERT_TRUE(outcome.error);
    EXPECT_EQ(outcome.error->code(), Code::kCorrupt);
  }
  forge(newest, [](CheckpointInfo& info) { info.step = 4000; });
  fs.rename(newest, out + "/step-4000");
  const Outcome later = tiny.train(config(), out);
  ASSERT_TRUE(later.error);  // of the step, or of a run that cannot have been so long
  EXPECT_NE(std::string(later.error->what()).find("step-4000"), std::string::npos)
      << later.error->what();
}

// The first four steps are those of the longer run; the fifth is none of the shorter one. It stopped at a check.
TEST_F(Forged, AStepThatTheRunCannotHaveTakenIsRefusedByALongerOne) {
  const std::string out = tiny.out("run"),
                    rates = "[optimizer]\nschedule = \"constant\"\nwarmup_tokens = 128\n";
  ASSERT_TRUE(tiny.train(config(rates), out).result);
  forge(out + "/step-4", [](CheckpointInfo& info) { info.step = 4000; });
  fs.rename(out + "/step-4", out + "/step-4000");
  RunConfig longer = config(rates);
  longer.train.steps = longer.phases[0].steps = 5000;
  const Outcome later = tiny.train(longer, out);
  ASSERT_TRUE(later.error);
  EXPECT_NE(std::string(later.error->what()).find("step-4000"), std::string::npos)
      << later.error->what();
}

TEST_F(Forged, TheRotaryBaseOfAModel) {
  ModelConfig model = config().model;
  const std::string directory = tiny.out("model");
  write_tiny_model(directory, model, [](const ParameterTable&, float*) {});
  EXPECT_GT(ModelDirectory::open(fs, directory).config().rope_theta, 0);
  for (const char* value : {"-1", "nan", "0", "inf", "", "1e999", "5 apples", "[1]"}) {
    SCOPED_TRACE(value);
    forge(directory, [&](CheckpointInfo& info) { info.values["rope_theta"] = value; });
    try {
      ModelDirectory::open(fs, directory);
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kCorrupt);
      EXPECT_NE(std::string(e.what()).find("rope_theta"), std::string::npos) << e.what();
    }
  }
  forge(directory, [&](CheckpointInfo& info) { info.values["rope_theta"] = "5000000"; });
  EXPECT_EQ(ModelDirectory::open(fs, directory).config().rope_theta, 5e6);
}

TEST_F(Forged, ValidationDataOfAnotherVocabulary) {
  const std::string input = folder.file("wide.jsonl");
  write_file(input, tiny_text(5, 40));
  BuildOptions options;
  options.inputs = {input};
  options.out = folder.file("wide");
  options.meaning = {.vocabulary_size = 1000, .eos_id = 999, .tokenizer_hash = hash_bytes("x", 1)};
  options.encode = [](std::string_view text, std::vector<int32_t>* tokens) {
    tokens->assign(text.size(), 998);
  };
  Pool pool(1);
  build_dataset(fs, pool, options);
  RunConfig c = config();
  c.data.valid = options.out;
  c.report.valid_every_steps = 1;
  const Outcome outcome = tiny.train(c, tiny.out("run"));
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code(), Code::kInvalidArgument);
  EXPECT_NE(std::string(outcome.error->what()).find("data.valid " + options.out), std::string::npos)
      << outcome.error->what();
}

// Cut, and overwritten by other ids that the model knows: between two steps of a run.
TEST_F(Forged, AShardThatChangesDuringARunIsNamedAndNotTrainedOn) {
  write_file(folder.file("run.toml"),
             tiny.toml("[train]\nslots = 4\nsequence = 32\nbatch_tokens = 128\nthreads = 1\ndtype "
                       "= \"f32\"\nsteps = 100000\n"));
  const std::string shard = join_path(tiny.root() + "/a", [&] {
    for (const std::string& name : fs.list(tiny.root() + "/a"))
      if (name.starts_with("shard-")) return name;
    return std::string("none");
  }());
  const std::string bytes = fs.read(shard);
  ASSERT_GT(bytes.size(), 4096u);
  for (const bool cut : {true, false}) {
    SCOPED_TRACE(cut ? "cut" : "overwritten");
    const std::string out = tiny.out(cut ? "cut" : "overwritten");
    Program program(folder.path(), {"train", "--config", folder.file("run.toml"), "--out", out,
                                    "--machine", tiny.root() + "/machine.json"});
    while (!fs.exists(out + "/metrics.jsonl") || fs.file_bytes(out + "/metrics.jsonl") == 0)
      std::this_thread::yield();
    program.send(SIGSTOP);
    const int fd = ::open(shard.c_str(), O_WRONLY);
    ASSERT_GE(fd, 0);
    if (cut) {
      ASSERT_EQ(::ftruncate(fd, 4096), 0);
    } else {
      std::string other = bytes.substr(64, 2000);
      for (size_t i = 0; i < other.size(); i += 2) other[i] = static_cast<char>(other[i] ^ 1);
      ASSERT_EQ(::pwrite(fd, other.data(), other.size(), 64), static_cast<ssize_t>(other.size()));
    }
    ::close(fd);
    program.send(SIGCONT);
    const Ended ended = program.wait();
    EXPECT_EQ(ended.exit_code, 12) << ended.err.substr(ended.err.size() - 2000);
    EXPECT_NE(ended.err.find(": read "), std::string::npos)
        << ended.err;  // by who reads, or by the page that is gone
    EXPECT_NE(ended.err.rfind(shard), std::string::npos) << ended.err;
    write_file(shard, bytes);
  }
}

}  // namespace
}  // namespace moraine
