// What a packed model must hold is made from its config; the manifest and the file are held against it.
#include "model/packed_model.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/printable.h"
#include "base/thread.h"
#include "checkpoint/safetensors/file.h"
#include "kernels/quantised.h"

namespace moraine {
namespace {

constexpr PackType kPackTypes[] = {{"f32", WeightFormat::kPlain, DType::kF32},
                                   {"bf16", WeightFormat::kPlain, DType::kBF16},
                                   {"q8", WeightFormat::kQ8, DType::kBF16},
                                   {"q6", WeightFormat::kQ6, DType::kBF16},
                                   {"q4", WeightFormat::kQ4, DType::kBF16}};

constexpr const char* kEmbeddingKey = "packs.model.embed_tokens.embedding";
constexpr int64_t kReadAheadBytes = int64_t{8} << 20;  // between two looks at whether to stop

std::string value_of(const Checkpoint& checkpoint, const std::string& key) {
  const auto found = checkpoint.info().values.find(key);
  return found == checkpoint.info().values.end() ? "" : found->second;
}

// In a value of the manifest: its first word. Null: none that we know.
const PackType* find_type_in(const std::string& text) {
  return find_pack_type(text.substr(0, text.find(' ')));
}

const PackType& type_of_pack(const Checkpoint& checkpoint, const std::string& key,
                             const std::string& text) {
  const PackType* type = find_type_in(text);
  if (type != nullptr) return *type;
  throw_error(Code::kInvalidArgument,
              "open packed model {}: {} is \"{}\", a format that this program does not know; it "
              "knows {}",
              checkpoint.directory(), key, printable(text), pack_type_names());
}

}  // namespace

const PackType* find_pack_type(std::string_view name) {
  const auto found = std::find_if(std::begin(kPackTypes), std::end(kPackTypes),
                                  [&](const PackType& type) { return name == type.name; });
  return found == std::end(kPackTypes) ? nullptr : found;
}

bool wants_embedding(const PackType& head) { return has_few_bits(head.format); }

// Attention's projections are few and what they lose is lost for all positions; an error of a second matrix goes into
// the residual stream as it is, one of a token's row into all of it. The router and the convolutions are small, and
// what they decide cannot be undone.
const PackType& type_of_pack(const PackType& model, const PackSource& source) {
  if (model.format == WeightFormat::kPlain) return model;
  if (!source.served) return *find_pack_type("bf16");
  const ServedMatrix matrix = *source.served;
  if (model.format == WeightFormat::kQ8 || matrix == ServedMatrix::kGateUp) return model;
  const bool few = matrix == ServedMatrix::kDown || matrix == ServedMatrix::kHead;
  return *find_pack_type(few ? "q6" : "q8");
}

std::string pack_type_names() {
  std::string names;
  for (const PackType& type : kPackTypes)
    names += (names.empty() ? "" : ", ") + std::string(type.name);
  return names;
}

PackedMatrix pack_shape(const PackSource& source, const PackType& type) {
  PackedMatrix shape;
  shape.dtype = type.compute;
  shape.groups = source.groups;
  shape.n = source.n;
  shape.k = source.k;
  shape.format = type.format;
  return shape;
}

std::string pack_text(const PackSource& source, const PackType& type) {
  return fmt::format("{} [{}, {}, {}]", type.name, source.groups_all, source.n, source.k);
}

int64_t pack_file_bytes(const PackedMatrix& shape) {
  return (packed_bytes(shape) + kPackPage - 1) / kPackPage * kPackPage;
}

bool is_packed(const Checkpoint& checkpoint) {
  return checkpoint.info().values.contains(kPackedLayoutKey);
}

const char* packed_layout(const std::map<std::string, std::string>& values) {
  if (values.contains(kEmbeddingKey)) return "3";
  for (const auto& [key, text] : values) {
    const PackType* type = key.starts_with(kPackPrefix) ? find_type_in(text) : nullptr;
    if (type != nullptr && type->format != WeightFormat::kPlain) return "2";
  }
  return "1";
}

const PackType& packed_type(const Checkpoint& checkpoint) {
  const std::string layout = value_of(checkpoint, kPackedLayoutKey),
                    known = packed_layout(checkpoint.info().values);
  if (layout != known) {
    throw_error(
        Code::kInvalidArgument,
        "open packed model {}: layout \"{}\", this program knows \"{}\" of such packs: make "
        "it anew with `moraine quantize` from the directory that it was made from",
        checkpoint.directory(), printable(layout), known);
  }
  return type_of_pack(checkpoint, kPackedTypeKey, value_of(checkpoint, kPackedTypeKey));
}

PackedModel::PackedModel(FileSystem& fs, const std::string& directory, const ModelConfig& config)
    : checkpoint_(Checkpoint::open(fs, directory, /*verify=*/false)),
      type_(&packed_type(checkpoint_)),
      table_(build_parameters(config)),
      sources_(pack_sources(config, table_)) {
  for (const PackSource& source : sources_) whole(source);
  if (checkpoint_.info().values.contains(kEmbeddingKey)) {
    embedding_ = embedding_source(config, table_);
    whole(*embedding_);
  }
  check_names();
}

PackedModel::~PackedModel() {
  stopping_ = true;
  if (reader_.joinable()) reader_.join();
}

// With the manifest and the file held against what the config wants.
PackedMatrix PackedModel::whole(const PackSource& source) const {
  PackSource all = source;
  all.groups = source.groups_all;
  const std::string name = kPackPrefix + source.name, text = value_of(checkpoint_, name);
  const CheckpointEntry& entry = checkpoint_.entry(name);
  const PackType& type = type_of_pack(checkpoint_, name, text);
  PackedMatrix shape = pack_shape(all, type);
  if (text != pack_text(source, type) || type.compute != type_->compute) {
    throw_error(Code::kInvalidArgument, "open packed model {}: {} is \"{}\", wanted \"{}\" for {}",
                checkpoint_.directory(), name, printable(text), pack_text(source, type),
                "its config");
  }
  if (entry.dtype != DType::kU8 || entry.shape != std::vector<int64_t>{pack_file_bytes(shape)}) {
    throw_error(Code::kCorrupt, "open packed model {}: {} is {} {}, wanted u8 [{}]",
                checkpoint_.directory(), name, dtype_name(entry.dtype), shape_text(entry.shape),
                pack_file_bytes(shape));
  }
  const Checkpoint::Mapped at = checkpoint_.mapped(name);
  if (at.offset % kPackPage != 0) {
    throw_error(Code::kCorrupt,
                "open packed model {}: {} begins at byte {} of its file, wanted a multiple of {}",
                checkpoint_.directory(), name, at.offset, kPackPage);
  }
  shape.data = const_cast<uint8_t*>(at.data());
  return shape;
}

void PackedModel::check_names() const {
  std::set<std::string> vectors;
  for (const Parameter& p : table_.all) {
    if (p.offset < table_.matrix_count) continue;
    const CheckpointEntry& entry = checkpoint_.entry(kVectorPrefix + p.name);
    vectors.insert(entry.name);
    if (entry.dtype == DType::kF32 && entry.shape == p.dims) continue;
    throw_error(Code::kInvalidArgument, "open packed model {}: {} is {} {}, wanted f32 {}",
                checkpoint_.directory(), entry.name, dtype_name(entry.dtype),
                shape_text(entry.shape), shape_text(p.dims));
  }
  std::set<std::string> packs;
  for (const PackSource& source : sources_) packs.insert(kPackPrefix + source.name);
  if (embedding_.has_value()) packs.insert(kPackPrefix + embedding_->name);
  for (const CheckpointEntry& entry : checkpoint_.entries()) {
    if (packs.contains(entry.name) || vectors.contains(entry.name)) continue;
    throw_error(Code::kInvalidArgument,
                "open packed model {}: tensor {} does not belong to a packed model",
                checkpoint_.directory(), printable(entry.name));
  }
}

PackedMatrix PackedModel::pack(const PackSource& source) const {
  PackedMatrix held = whole(source);
  held.data = packed_group(held, source.group_begin);
  held.groups = source.groups;
  return held;
}

void PackedModel::read_vectors(const ParameterTable& table, const Tensor& vectors) const {
  for (const Parameter& p : table.all) {
    if (p.offset < table.matrix_count) continue;
    const int64_t begin = p.offset - table.matrix_count;
    checkpoint_.read_elements(kVectorPrefix + p.name, 0, vectors.rows(begin, begin + p.count()));
  }
}

void PackedModel::check_weights() const {
  for (const PackSource& source : sources_) {
    if (whole(source).format == WeightFormat::kPlain) continue;
    throw_error(
        Code::kInvalidArgument,
        "read weights of packed model {}: {} is \"{}\": its weights were rounded to integers, "
        "which another type does not undo; quantize the model that it was made from, or "
        "one packed as bf16",
        checkpoint_.directory(), source.name, value_of(checkpoint_, kPackPrefix + source.name));
  }
}

void PackedModel::read_elements(int64_t begin, const Tensor& out) const {
  const int64_t end = begin + out.count();
  for (const PackSource& source : sources_) {
    const int64_t from = std::max(begin, source.begin),
                  to = std::min(end, source.begin + source.count());
    if (from >= to) continue;
    const PackedMatrix packed = whole(source);
    std::vector<float> row(static_cast<size_t>(source.k));
    for (int64_t at = from; at < to;) {
      const int64_t index = (at - source.begin) / source.k, first = (at - source.begin) % source.k,
                    count = std::min(source.k - first, to - at);
      read_packed_row(packed, index / source.n, index % source.n, row.data());
      std::copy_n(row.data() + first, count, out.as<float>() + at - begin);
      at += count;
    }
  }
  for (const Parameter& p : table_.all) {
    if (p.offset < table_.matrix_count) continue;
    const int64_t from = std::max(begin, p.offset), to = std::min(end, p.offset + p.count());
    if (from < to)
      checkpoint_.read_elements(kVectorPrefix + p.name, from - p.offset,
                                out.rows(from - begin, to - begin));
  }
}

void PackedModel::read_ahead(std::vector<PackSource> sources) {
  MR_CHECK(!reader_.joinable());
  if (embedding_) sources.insert(sources.begin(), *embedding_);
  reader_ = start_thread("read a packed model ahead", [this, sources = std::move(sources)] {
    for (const PackSource& source : sources) {
      const PackedMatrix held = pack(source);
      const Checkpoint::Mapped at = checkpoint_.mapped(kPackPrefix + source.name);
      const int64_t begin = static_cast<uint8_t*>(held.data) - at.file->data();
      const int64_t end = begin + packed_bytes(held);
      for (int64_t from = begin; from < end && !stopping_; from += kReadAheadBytes)
        at.file->populate(from, std::min(kReadAheadBytes, end - from));
    }
  });
}

}  // namespace moraine
