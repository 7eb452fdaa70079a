// PackedModel: a model on disk as the kernels stream it: packs in a mapped file, vectors beside them.
//
// The folder is a checkpoint whose tensors are `packs.<name>` (u8, each at a page of the file) and
// `vectors.<name>` (f32, rounded to the compute type); values say what the packs are (docs/formats/packed.md).
// Nothing is copied but the vectors: a pack is where the file is mapped, and the kernel reads it when it is
// first used. A thread reads ahead of that, in the order of the layers.
//
// Errors: those of Checkpoint; kInvalidArgument for a layout or a format that this program does not know, and for
//         packs of another shape than the config's; kCorrupt for a pack that does not begin at a page.
// Checks: sizes, headers and vectors always. The bytes of packs are not: `moraine inspect` does that.
// Cost:   opening reads manifest, header and vectors; the rest is the disk's speed, once.
// Threads: const calls may run at once.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "kernels/linear.h"
#include "model/pack_source.h"

namespace moraine {

constexpr int64_t kPackPage = 4096;  // packs begin at multiples of it in the file
constexpr const char* kPackPrefix = "packs.";
constexpr const char* kVectorPrefix = "vectors.";
constexpr const char* kPackedLayoutKey = "packed.layout";  // of the manifest's values
constexpr const char* kPackedTypeKey = "packed.type";      // the type that most packs have

// What the elements of a pack are, by the name that files and flags have for it.
struct PackType {
  const char* name;
  WeightFormat format;
  DType compute;  // of the rows that it multiplies
};
const PackType* find_pack_type(std::string_view name);  // null: there is none
// That a manifest's values ask for: "3" with rows for tokens of their own, else "2" if any pack has integers, which
// share a scale by 128 (in "1" by 64), else "1".
const char* packed_layout(const std::map<std::string, std::string>& values);
std::string pack_type_names();  // "f32, bf16, q8, q6, q4"
// Whether tokens have rows of their own beside such a head: one of few bits is not good enough for both.
bool wants_embedding(const PackType& head);
// What one pack of a model of type `model` is.
const PackType& type_of_pack(const PackType& model, const PackSource& source);

// Shape and type of a source's pack; no memory yet.
PackedMatrix pack_shape(const PackSource& source, const PackType& type);
// "bf16 [16, 4096, 2048]": what the manifest's value `packs.<name>` says.
std::string pack_text(const PackSource& source, const PackType& type);
// Of the tensor: the pack's, and zeros up to a page.
int64_t pack_file_bytes(const PackedMatrix& shape);

bool is_packed(const Checkpoint& checkpoint);
// The type that most packs have. Errors: kInvalidArgument for a type that we do not know, or not in this layout.
const PackType& packed_type(const Checkpoint& checkpoint);

class PackedModel {
 public:
  // `config` is that of the directory.
  PackedModel(FileSystem& fs, const std::string& directory, const ModelConfig& config);
  ~PackedModel();
  PackedModel(const PackedModel&) = delete;
  PackedModel& operator=(const PackedModel&) = delete;

  DType compute_dtype() const { return type_->compute; }
  // The groups that are held, in the mapping: read-only, although PackedMatrix cannot say so.
  PackedMatrix pack(const PackSource& source) const;
  // Rows of tokens that are not those of the head, likewise.
  bool has_embedding() const { return embedding_.has_value(); }
  PackedMatrix embedding() const { return pack(*embedding_); }
  // Of a table with all experts or some, [total_count - matrix_count] f32.
  void read_vectors(const ParameterTable& table, const Tensor& vectors) const;
  // There is no pack of integers (kInvalidArgument, with the first one's name).
  void check_weights() const;
  // Every byte is as it was written (kCorrupt). Cost: reads the file.
  void verify(const VerifyProgress& progress = {}) const { checkpoint_.verify(progress); }
  // Elements [begin, begin + out.count()) of the flat buffer of build_parameters(config), as f32: the rounded weights.
  // After check_weights and verify.
  void read_elements(int64_t begin, const Tensor& out) const;
  // Starts the thread, which reads the pack of the embedding, then these, into memory. Once.
  void read_ahead(std::vector<PackSource> sources);

 private:
  PackedMatrix whole(const PackSource& source) const;
  void check_names() const;

  Checkpoint checkpoint_;
  const PackType* type_;
  const ParameterTable table_;
  const std::vector<PackSource> sources_;
  std::optional<PackSource> embedding_;
  std::atomic<bool> stopping_ = false;
  std::thread reader_;
};

}  // namespace moraine
