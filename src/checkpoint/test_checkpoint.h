// TestCheckpoint: a small checkpoint whose every byte is a function of a seed.
#pragma once

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "base/random.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/content_hash.h"

namespace moraine::testing {

inline FileSystem& disk() { return posix_file_system(); }

class TestCheckpoint {
 public:
  TestCheckpoint(int64_t step, uint64_t seed) {
    info = {.step = step,
            .tokens_seen = step * 100,
            .seed = ~uint64_t{0} - seed,
            .values = {{"loop", "phase 1"}, {"loss", "2.5 \"\n\xc3\xa9"}},
            .config = "[train]\nseed = 1\n"};
    files = {{"config.toml", "[train]\n"}, {"tokenizer.json", "{\"a\": 1}"}};
    add("weights.embed", DType::kF32, {9, 4}, seed);
    add("weights.layers.0.o", DType::kBF16, {3, 5}, seed);
    add("adam.step", DType::kI64, {}, seed);
    add("adam.m.embed", DType::kF32, {9, 4}, seed);
    add("empty", DType::kF32, {0, 3}, seed);
    add("flags", DType::kU8, {2, 1, 1, 3}, seed);
  }
  TestCheckpoint(const TestCheckpoint&) = delete;
  TestCheckpoint& operator=(const TestCheckpoint&) = delete;

  void add(const std::string& name, DType dtype, const std::vector<int64_t>& dims, uint64_t seed) {
    Tensor t = make_tensor(nullptr, dtype, {});
    t.rank = static_cast<int>(dims.size());
    std::copy(dims.begin(), dims.end(), t.dims);
    memory_.emplace_back(static_cast<size_t>((t.bytes() + 7) / 8));
    for (size_t i = 0; i < memory_.back().size(); ++i) {
      memory_.back()[i] = random_bits(seed, Stream::kTest, memory_.size(), i);
    }
    t.data = memory_.back().data();
    tensors.push_back({name, t});
  }
  CheckpointWritten write(FileSystem& fs, const std::string& root,
                          const CheckpointOptions& options = {}) const {
    return write_checkpoint(fs, root,
                            {.info = info, .tensors = tensors, .files = files, .options = options});
  }
  // What Checkpoint::hash() must be, from memory alone.
  Hash128 hash() const {
    std::vector<CheckpointTensor> in_order = tensors;
    std::sort(in_order.begin(), in_order.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    ContentHash hash;
    hash.add_step(info.step);
    for (const CheckpointTensor& at : in_order) {
      const Tensor& t = at.tensor;
      hash.add_tensor(at.name, dtype_name(t.dtype), std::vector<int64_t>(t.dims, t.dims + t.rank),
                      hash_bytes(t.data, t.bytes()));
    }
    return hash.digest();
  }

  CheckpointInfo info;
  std::vector<CheckpointTensor> tensors;
  std::vector<CheckpointFile> files;

 private:
  std::deque<std::vector<uint64_t>> memory_;
};

}  // namespace moraine::testing
