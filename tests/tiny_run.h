// TinyRun: a training run of milliseconds, on text made on the spot, for tests of whole runs.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/random.h"
#include "data/build_dataset.h"
#include "machine/machine.h"
#include "model/write_model.h"
#include "tests/watched_file_system.h"
#include "train/loop.h"

namespace moraine::testing {

constexpr int64_t kByteVocabulary = 257;  // 256 bytes, then the end of a document

inline void write_file(const std::string& path, const std::string& content) {
  const auto file = posix_file_system().create(path);
  file->append(content.data(), static_cast<int64_t>(content.size()));
  file->close();
}

// `documents` short documents of words from a small vocabulary: a function of `seed`.
inline std::string tiny_text(uint64_t seed, int64_t documents, uint64_t words_min = 4) {
  std::string text;
  uint64_t index = 0;
  for (int64_t d = 0; d < documents; ++d) {
    const uint64_t words = words_min + random_below(30, seed, Stream::kTest, 1, index++);
    text += "{\"text\": \"";
    for (uint64_t w = 0; w < words; ++w) {
      const uint64_t word = random_below(40, seed, Stream::kTest, 2, index++);
      for (uint64_t i = 0; i < 2 + word % 5; ++i)
        text += static_cast<char>('a' + (word * 7 + i * 5) % 26);
      text += ' ';
    }
    text += "\"}\n";
  }
  return text;
}

// A dataset of bytes in `folder`.
inline void build_tiny_dataset(const std::string& folder, uint64_t seed, int64_t documents,
                               uint64_t words_min = 4) {
  const std::string input = folder + ".jsonl";
  write_file(input, tiny_text(seed, documents, words_min));
  BuildOptions options;
  options.inputs = {input};
  options.out = folder;
  options.meaning = {
      .vocabulary_size = kByteVocabulary, .eos_id = 256, .tokenizer_hash = hash_bytes("bytes", 5)};
  options.encode = [](std::string_view text, std::vector<int32_t>* tokens) {
    tokens->clear();
    for (const char c : text) tokens->push_back(static_cast<uint8_t>(c));
  };
  Pool pool(1);
  build_dataset(posix_file_system(), pool, options);
}

// A model directory of initial weights, `change`d.
inline void write_tiny_model(const std::string& folder, ModelConfig config,
                             const std::function<void(const ParameterTable&, float*)>& change) {
  config.vocab_size = kByteVocabulary;
  const ParameterTable table = build_parameters(config);
  std::vector<float> weights(static_cast<size_t>(table.total_count));
  const Tensor master = make_tensor(weights.data(), DType::kF32, {table.total_count});
  initialize_parameters(table, config, 1, master);
  change(table, weights.data());
  write_model_directory(posix_file_system(), folder, {config, weights_in(master), DType::kF32, {}});
}

// What a call of train() came to.
struct Outcome {
  std::optional<RunResult> result;
  std::optional<Error> error;
  std::string log;  // stderr
  std::string hash() const {
    return result ? result->hash : "no result: " + (error ? std::string(error->what()) : "");
  }
};

// A folder with two datasets, a machine file, and runs.
class TinyRun {
 public:
  explicit TinyRun(const std::string& root) : root_(root) {
    FileSystem& fs = posix_file_system();
    fs.make_directories(root);
    build_tiny_dataset(root + "/a", 1, 60);
    build_tiny_dataset(root + "/b", 2, 50);
    Machine machine;
    machine.isa = "test";
    machine.threads = 1;
    machine.f32_gflops = 10, machine.bf16_gflops = 20;
    machine.read_gb_s = machine.copy_gb_s = 10;
    machine.measured_utc = utc_now();
    save_machine(fs, root + "/machine.json", machine);
    // The skip class starts as likely as the experts, and the router with an opinion.
    ModelConfig model = config("[train]\nsteps = 1\n").model;
    model.init_std = 0.2;
    write_tiny_model(root + "/start", model, [&](const ParameterTable& table, float* weights) {
      for (const Parameter& p : table.all) {
        if (p.kind == Parameter::Kind::kBalance) weights[p.offset + model.experts] = 0;
      }
    });
  }

  const std::string& root() const { return root_; }
  std::string out(const std::string& name) const { return root_ + "/" + name; }

  // [train] of `text`, with the model and data of every tiny run.
  std::string toml(const std::string& text) const {
    const std::string model =
        "[model]\nhidden = 32\nlayers = 2\nheads = 2\nkv_heads = 1\nhead_dim = 16\nexperts = "
        "4\nexpert_hidden = 24\nrouter_hidden = 16\n";
    return (text.find("init = ") == std::string::npos ? model : "") + "[data]\ntrain = \"" + root_ +
           "/a\"\nvalid = \"" + root_ +
           "/b\"\n"
           "[report]\nvalid_every_steps = 4\nvalid_tokens = 64\n" +
           text;
  }
  // Whoever tests what ranks check of each other says so: it doubles a step that is saved.
  RunConfig config(const std::string& text) const {
    RunConfig config = read_run_config(SettingsTable::parse(toml(text), "tiny.toml"));
    config.train.verify_every_steps = 0;
    return config;
  }

  // Everything at once: a batch ramp, clipping in each step, skipped tokens, and a second phase
  // with another length, rotary base, rate and mixture. Nine steps, from a model.
  std::string rich(const std::string& dtype, int64_t slots = 4) const {
    return "[train]\ninit = \"" + root_ + "/start\"\nslots = " + std::to_string(slots) +
           "\nsequence = " + std::to_string(128 / slots) +
           "\nbatch_tokens = 512\nthreads = 1\ndtype = \"" + dtype +
           "\"\nclip_norm = 0.1\nramp_tokens = [512]\nramp_batch_tokens = [256]\n"
           "[optimizer]\nlearning_rate = 0.02\nbalance_learning_rate = 0.02\n"
           "[checkpoint]\nevery_steps = 1\nkeep = 100\n"
           "[[phase]]\ntokens = 2048\n"
           "[[phase]]\ntokens = 2048\nsequence = " +
           std::to_string(256 / slots) +
           "\nrope_theta = 50000.0\nlearning_rate = 0.01\n"
           "train = [{path = \"" +
           root_ + "/a\", weight = 1}, {path = \"" + root_ + "/b\", weight = 3}]\n";
  }

  Outcome train(FileSystem& fs, const RunConfig& config, RunOptions options, int ranks) const {
    options.machine_file = root_ + "/machine.json";
    Outcome outcome;
    ::testing::internal::CaptureStderr();
    try {
      outcome.result = moraine::train(fs, config, options, ranks);
    } catch (const Error& e) {
      outcome.error = e;
    }
    outcome.log = ::testing::internal::GetCapturedStderr();
    return outcome;
  }
  Outcome train(FileSystem& fs, const RunConfig& config, const std::string& out,
                const std::atomic<int>* stop = nullptr, const std::string& resume = "auto") const {
    return train(fs, config, options_of(out, stop, resume), 1);
  }
  Outcome train(const RunConfig& config, const std::string& out) const {
    WatchedFileSystem fs(posix_file_system(), [](const std::string&) {});
    return train(fs, config, out);
  }
  Outcome train_on(int ranks, const RunConfig& config, const std::string& out) const {
    WatchedFileSystem fs(posix_file_system(), [](const std::string&) {});
    return train(fs, config, options_of(out, nullptr), ranks);
  }
  // Stops, as by a signal, once `steps` more steps are done.
  Outcome train_steps(const RunConfig& config, const std::string& out, int64_t steps,
                      int ranks = 1) const {
    std::atomic<int> stop{0};
    WatchedFileSystem fs(posix_file_system(), [&](const std::string& path) {
      if (path.ends_with("metrics.jsonl") && --steps == 0) stop = 15;
    });
    return train(fs, config, options_of(out, &stop), ranks);
  }

 private:
  static RunOptions options_of(const std::string& out, const std::atomic<int>* stop,
                               const std::string& resume = "auto") {
    return {.out = out, .resume = resume, .machine_file = "", .stop_signal = stop};
  }

  std::string root_;
};

}  // namespace moraine::testing
