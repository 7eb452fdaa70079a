// Checkpoints: save a run so that loading it continues the run exactly.
//
// A checkpoint is a directory, `step-<n>/`, of one manifest and any number of data files
// (docs/formats/checkpoint.md). It stores named tensors with their global shapes, each in parts of
// whole rows, so a run may load it on a different number of ranks than wrote it.
//
// Commit rule: everything is written to `step-<n>.partial/`, synced, then renamed. A directory
// without the suffix is complete; anything else is rubble from a crash, is ignored, and is removed
// by the next save. A step that exists already is replaced by the same rule (history.h).
//
// Hash: one number over every tensor (name, type, global shape, bytes, in name order) and the step.
// It does not depend on the cut into parts and files, nor on the config or the files carried along.
//
// Knows nothing of the model or the optimizer: it moves names, shapes and bytes.
// Errors:  kNotFound (no such directory, file or name), kInvalidArgument (another shape or type
//          than stored; a version that we do not know), kCorrupt (cut or flipped: says where), kIo.
// Threads: one writer per directory. Const calls of a Checkpoint may run at once.
// Cost:    one pass over the bytes; checksums run at memory speed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/hash.h"
#include "checkpoint/checkpoint_info.h"
#include "checkpoint/tensor_rows.h"
#include "tensor/tensor.h"

namespace moraine {

struct CheckpointTensor {
  std::string name;  // "weights.layers.3.experts.down", unique in the run
  Tensor tensor;
  TensorBytes fill = {};  // if tensor.data is null
};

// Carried along unread, so that the directory is a whole model: tokenizer.json, config.toml.
struct CheckpointFile {
  std::string name;
  std::string content;
};

struct CheckpointOptions {
  // Of tensor data in one file; a single row may exceed it.
  int64_t max_file_bytes = int64_t{4} << 30;
  // Not 0: u8 tensors stand first in a file, each at a multiple of this, which their sizes must be too.
  int64_t page_bytes = 0;
  bool alone = false;  // no other is in the folder: errors say nothing of those before it
};

struct CheckpointWritten {
  std::string directory;
  int64_t bytes = 0;  // of all files
  Hash128 hash;       // = Checkpoint::hash()
};

struct CheckpointContent {
  const CheckpointInfo& info;
  std::span<const CheckpointTensor> tensors;
  std::span<const CheckpointFile> files = {};
  CheckpointOptions options = {};
};
// Writes `root`/step-<info.step>. After an error the checkpoints that were there are untouched.
CheckpointWritten write_checkpoint(FileSystem& fs, const std::string& root,
                                   const CheckpointContent& content);

struct CheckpointEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // global
  int64_t bytes = 0;
  int64_t num_parts = 0;
};

// Called after each part; the last time with done == total.
using VerifyProgress = std::function<void(int64_t done, int64_t total)>;  // bytes

class Checkpoint {
 public:
  // `directory` may have any name. With `verify` every byte is read and checked now; without, only
  // sizes and headers are, and each part is checked when it is first read.
  static Checkpoint open(FileSystem& fs, const std::string& directory, bool verify = true);
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  const std::string& directory() const;
  const CheckpointInfo& info() const;
  int64_t bytes() const;                                // of all files
  const std::vector<CheckpointEntry>& entries() const;  // in name order
  bool has(std::string_view name) const;
  const CheckpointEntry& entry(std::string_view name) const;  // kNotFound, with the nearest name

  // Fills `out`, which must have the stored type and shape; rows: of the first dimension, from
  // `row_begin` on, as many as `out` has. A scalar counts as one row.
  void read(std::string_view name, const Tensor& out) const;
  void read_rows(std::string_view name, int64_t row_begin, const Tensor& out) const;
  // Elements [begin, begin + out.count()), row after row, whatever shape `out` has.
  void read_elements(std::string_view name, int64_t begin, const Tensor& out) const;
  // Every byte that was not checked before: what open does with `verify`.
  void verify(const VerifyProgress& progress = {}) const;

  // A tensor of one part where it lies in its file: not checked, to look at as long as this lives.
  // kInvalidArgument if it has several parts.
  struct Mapped {
    const MappedFile* file;
    int64_t offset, bytes;
    const uint8_t* data() const { return file->data() + offset; }
  };
  Mapped mapped(std::string_view name) const;

  std::vector<std::string> file_names() const;  // carried along
  std::string file(std::string_view name) const;

  // Of the bytes of one tensor, in row order, whatever parts they are in.
  Hash128 tensor_hash(std::string_view name) const;
  Hash128 hash() const;
  Hash128 hash(std::string_view prefix) const;  // tensors whose names begin so; without the step

  // Every damaged part and carried file, each with its place; empty if all is well.
  std::vector<std::string> problems() const;

 private:
  struct State;
  explicit Checkpoint(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace moraine
