// Reading a checkpoint: the manifest says what must be there, every file is held against it.
#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "base/nearest.h"
#include "base/saturate.h"
#include "checkpoint/content_hash.h"
#include "checkpoint/file_bytes.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors/file.h"

namespace moraine {

struct Checkpoint::State {
  std::string directory;
  Manifest manifest;
  int64_t bytes = 0;
  std::vector<CheckpointEntry> entries;
  std::vector<SafetensorsFile> data;
  FileSystem* fs = nullptr;
  std::vector<int64_t> first_part;               // of each tensor, in `checked`
  std::unique_ptr<std::atomic<bool>[]> checked;  // parts whose bytes have been hashed and are right

  void open_manifest();
  void open_data();
  void check_entries();
  const SafetensorsEntry& part_entry(const ManifestTensor& t, const ManifestPart& part) const;
  void check_part(size_t tensor, size_t part) const;
  void read_bytes(size_t tensor, int64_t begin, int64_t bytes, void* out) const;
  std::string read_file(const ManifestFile& file) const;
  void check_all(const VerifyProgress& progress) const;
  size_t position(std::string_view name) const;
  Hash128 tensor_hash(size_t tensor) const;
};

void Checkpoint::State::open_manifest() {
  const std::string path = join_path(directory, kManifestName);
  if (!fs->is_directory(directory)) {
    throw_error(Code::kNotFound, "there is no such directory");
  }
  const int64_t size = fs->file_bytes(path);
  if (size > kMaxManifestBytes) {
    throw_error(Code::kCorrupt, "{} has {} bytes, the limit is {}", kManifestName, size,
                kMaxManifestBytes);
  }
  const std::string text = fs->read(path);
  try {
    manifest = parse_manifest(text);
  } catch (const Error& error) {
    throw_error(error.code(), "{}: {}", kManifestName, error.what());
  }
  bytes = static_cast<int64_t>(text.size());
  for (const ManifestFile& f : manifest.files) bytes = add_saturated(bytes, f.bytes);
  for (const ManifestData& d : manifest.data) bytes = add_saturated(bytes, d.bytes);
  for (const ManifestTensor& t : manifest.tensors) {
    entries.push_back({.name = t.name,
                       .dtype = t.dtype,
                       .shape = t.shape,
                       .bytes = t.count() * dtype_bytes(t.dtype),
                       .num_parts = static_cast<int64_t>(t.parts.size())});
  }
}

void Checkpoint::State::open_data() {
  for (const ManifestData& wanted : manifest.data) {
    const std::string path = join_path(directory, wanted.name);
    const int64_t found = fs->file_bytes(path);
    if (found != wanted.bytes) {
      throw_error(Code::kCorrupt, "{} has {} bytes, the manifest says {}", wanted.name, found,
                  wanted.bytes);
    }
    data.push_back(SafetensorsFile::open(*fs, path));
    const SafetensorsFile& file = data.back();
    if (file.header_hash() != wanted.header) {
      throw_error(Code::kCorrupt, "{}: the checksum of its header is wrong", wanted.name);
    }
  }
}

// Each part is an entry of its file, of the right shape; and no file has entries besides.
void Checkpoint::State::check_entries() {
  std::vector<size_t> num_entries(data.size(), 0);
  int64_t num_parts = 0;
  for (const ManifestTensor& t : manifest.tensors) {
    first_part.push_back(num_parts);
    num_parts += static_cast<int64_t>(t.parts.size());
    for (const ManifestPart& part : t.parts) {
      const size_t file = static_cast<size_t>(part.file);
      const SafetensorsEntry* entry = data[file].find(t.name);
      if (entry == nullptr || entry->type != safetensors_type(t.dtype) ||
          entry->shape != t.part_shape(part)) {
        throw_error(Code::kCorrupt, "{}: it does not hold rows [{}, {}) of tensor '{}', {} {}",
                    manifest.data[file].name, part.row_begin, part.row_end, t.name,
                    dtype_name(t.dtype), shape_text(t.shape));
      }
      ++num_entries[file];
    }
  }
  for (size_t i = 0; i < data.size(); ++i) {
    if (num_entries[i] != data[i].entries().size()) {
      throw_error(Code::kCorrupt, "{} holds {} tensors, the manifest says {}",
                  manifest.data[i].name, data[i].entries().size(), num_entries[i]);
    }
  }
  checked = std::make_unique<std::atomic<bool>[]>(static_cast<size_t>(num_parts));
}

const SafetensorsEntry& Checkpoint::State::part_entry(const ManifestTensor& t,
                                                      const ManifestPart& part) const {
  return data[static_cast<size_t>(part.file)].get(t.name);
}

// Hashes a part, once.
void Checkpoint::State::check_part(size_t tensor, size_t part) const {
  std::atomic<bool>& done = checked[static_cast<size_t>(first_part[tensor]) + part];
  if (done.load(std::memory_order_acquire)) return;
  const ManifestTensor& t = manifest.tensors[tensor];
  const ManifestPart& p = t.parts[part];
  const SafetensorsEntry& entry = part_entry(t, p);
  Hasher hasher;
  add_file_bytes(data[static_cast<size_t>(p.file)].mapping(), entry.offset, entry.bytes, &hasher);
  if (hasher.digest() != p.hash) {
    throw_error(
        Code::kCorrupt, "{}: tensor '{}', rows [{}, {}), bytes [{}, {}): checksum {}, wanted {}",
        manifest.data[static_cast<size_t>(p.file)].name, t.name, p.row_begin, p.row_end,
        entry.offset, entry.offset + entry.bytes, hash_hex(hasher.digest()), hash_hex(p.hash));
  }
  done.store(true, std::memory_order_release);
}

// Bytes of a tensor, counted over its parts.
void Checkpoint::State::read_bytes(size_t tensor, int64_t begin, int64_t bytes, void* out) const {
  const ManifestTensor& t = manifest.tensors[tensor];
  uint8_t* to = static_cast<uint8_t*>(out);
  for (size_t i = 0; i < t.parts.size(); ++i) {
    const ManifestPart& part = t.parts[i];
    const int64_t part_begin = part.row_begin * t.row_bytes();
    const int64_t from = std::max(part_begin, begin);
    const int64_t end = std::min(part.row_end * t.row_bytes(), begin + bytes);
    if (from >= end) continue;
    check_part(tensor, i);
    data[static_cast<size_t>(part.file)].mapping().read_at(
        part_entry(t, part).offset + (from - part_begin), end - from, to + (from - begin));
  }
}

std::string Checkpoint::State::read_file(const ManifestFile& file) const {
  const std::string path = join_path(directory, file.name);
  const int64_t found = fs->file_bytes(path);
  if (found != file.bytes) {
    throw_error(Code::kCorrupt, "{} has {} bytes, the manifest says {}", file.name, found,
                file.bytes);
  }
  std::string content = fs->read(path);
  if (hash_bytes(content.data(), static_cast<int64_t>(content.size())) != file.hash) {
    throw_error(Code::kCorrupt, "{}: its checksum is wrong", file.name);
  }
  return content;
}

void Checkpoint::State::check_all(const VerifyProgress& progress) const {
  int64_t done = 0, total = 0;
  for (const CheckpointEntry& e : entries) total = add_saturated(total, e.bytes);
  for (const ManifestFile& file : manifest.files) total = add_saturated(total, file.bytes);
  const auto add = [&](int64_t checked_bytes) {
    done += checked_bytes;
    if (progress) progress(done, total);
  };
  for (size_t t = 0; t < manifest.tensors.size(); ++t) {
    for (size_t part = 0; part < manifest.tensors[t].parts.size(); ++part) {
      check_part(t, part);
      add(part_entry(manifest.tensors[t], manifest.tensors[t].parts[part]).bytes);
    }
  }
  for (const ManifestFile& file : manifest.files) {
    read_file(file);
    add(file.bytes);
  }
}

size_t Checkpoint::State::position(std::string_view name) const {
  const auto at = std::lower_bound(
      entries.begin(), entries.end(), name,
      [](const CheckpointEntry& entry, std::string_view wanted) { return entry.name < wanted; });
  if (at == entries.end() || at->name != name) return entries.size();
  return static_cast<size_t>(at - entries.begin());
}

Hash128 Checkpoint::State::tensor_hash(size_t tensor) const {
  const ManifestTensor& t = manifest.tensors[tensor];
  for (size_t part = 0; part < t.parts.size(); ++part) check_part(tensor, part);
  if (t.parts.size() == 1) return t.parts[0].hash;
  Hasher whole;
  for (const ManifestPart& part : t.parts) {
    const SafetensorsEntry& entry = part_entry(t, part);
    add_file_bytes(data[static_cast<size_t>(part.file)].mapping(), entry.offset, entry.bytes,
                   &whole);
  }
  return whole.digest();
}

Checkpoint::Checkpoint(std::unique_ptr<State> state) : state_(std::move(state)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

// Runs `action`, and names the checkpoint if it fails.
template <class Action>
static auto naming(const std::string& directory, const Action& action) {
  try {
    return action();
  } catch (const Error& error) {
    throw_error(error.code(), "load checkpoint {}: {}", directory, error.what());
  } catch (const std::bad_alloc&) {
    throw_error(Code::kInvalidArgument, "load checkpoint {}: out of memory", directory);
  }
}

Checkpoint Checkpoint::open(FileSystem& fs, const std::string& directory, bool verify) {
  auto state = std::make_unique<State>();
  state->directory = directory;
  state->fs = &fs;
  naming(directory, [&] {
    state->open_manifest();
    state->open_data();
    state->check_entries();
    if (verify) state->check_all({});
  });
  return Checkpoint(std::move(state));
}

const std::string& Checkpoint::directory() const { return state_->directory; }
const CheckpointInfo& Checkpoint::info() const { return state_->manifest.info; }
int64_t Checkpoint::bytes() const { return state_->bytes; }
const std::vector<CheckpointEntry>& Checkpoint::entries() const { return state_->entries; }
bool Checkpoint::has(std::string_view name) const {
  return state_->position(name) < state_->entries.size();
}

const CheckpointEntry& Checkpoint::entry(std::string_view name) const {
  const size_t at = state_->position(name);
  if (at < state_->entries.size()) return state_->entries[at];
  std::vector<std::string> names;
  for (const CheckpointEntry& e : state_->entries) names.push_back(e.name);
  throw_error(Code::kNotFound, "load checkpoint {}: no tensor '{}'; the nearest name is '{}'",
              directory(), name, nearest_name(name, names));
}

void Checkpoint::read(std::string_view name, const Tensor& out) const {
  const CheckpointEntry& e = entry(name);
  const std::span<const int64_t> shape(out.dims, static_cast<size_t>(out.rank));
  if (e.dtype != out.dtype ||
      !std::equal(shape.begin(), shape.end(), e.shape.begin(), e.shape.end())) {
    throw_error(Code::kInvalidArgument, "load checkpoint {}: '{}' is {} {}, wanted {} {}",
                directory(), name, dtype_name(e.dtype), shape_text(e.shape), dtype_name(out.dtype),
                shape_text(shape));
  }
  read_rows(name, 0, out);
}

void Checkpoint::read_rows(std::string_view name, int64_t row_begin, const Tensor& out) const {
  const CheckpointEntry& e = entry(name);
  const size_t tensor = static_cast<size_t>(&e - state_->entries.data());
  const ManifestTensor& t = state_->manifest.tensors[tensor];
  const int64_t rows = out.rank == 0 ? 1 : out.dims[0];
  std::vector<int64_t> row_shape(out.dims, out.dims + out.rank);
  if (out.rank > 0 && !t.shape.empty()) row_shape[0] = t.shape[0];
  if (e.dtype != out.dtype || row_shape != t.shape || row_begin < 0 || rows < 0 ||
      row_begin > t.rows() - rows) {
    throw_error(Code::kInvalidArgument,
                "load checkpoint {}: '{}' is {} {}, wanted {} {} from row {} on", directory(), name,
                dtype_name(e.dtype), shape_text(e.shape), dtype_name(out.dtype), shape_text(out),
                row_begin);
  }
  naming(directory(), [&] {
    state_->read_bytes(tensor, row_begin * t.row_bytes(), rows * t.row_bytes(), out.data);
  });
}

void Checkpoint::read_elements(std::string_view name, int64_t begin, const Tensor& out) const {
  const CheckpointEntry& e = entry(name);
  const size_t tensor = static_cast<size_t>(&e - state_->entries.data());
  const int64_t width = dtype_bytes(e.dtype);
  if (e.dtype != out.dtype || begin < 0 || out.count() > e.bytes / width - begin) {
    throw_error(Code::kInvalidArgument,
                "load checkpoint {}: '{}' is {} {}, wanted {} elements {} from {} on", directory(),
                name, dtype_name(e.dtype), shape_text(e.shape), out.count(), dtype_name(out.dtype),
                begin);
  }
  naming(directory(), [&] { state_->read_bytes(tensor, begin * width, out.bytes(), out.data); });
}

void Checkpoint::verify(const VerifyProgress& progress) const {
  naming(directory(), [&] { state_->check_all(progress); });
}

Checkpoint::Mapped Checkpoint::mapped(std::string_view name) const {
  const CheckpointEntry& e = entry(name);
  const ManifestTensor& t =
      state_->manifest.tensors[static_cast<size_t>(&e - state_->entries.data())];
  if (t.parts.size() != 1) {
    throw_error(Code::kInvalidArgument, "load checkpoint {}: '{}' has {} parts, wanted one",
                directory(), name, t.parts.size());
  }
  const SafetensorsEntry& at = state_->part_entry(t, t.parts[0]);
  return {.file = &state_->data[static_cast<size_t>(t.parts[0].file)].mapping(),
          .offset = at.offset,
          .bytes = at.bytes};
}

std::vector<std::string> Checkpoint::file_names() const {
  std::vector<std::string> names;
  for (const ManifestFile& file : state_->manifest.files) names.push_back(file.name);
  return names;
}

std::string Checkpoint::file(std::string_view name) const {
  for (const ManifestFile& file : state_->manifest.files) {
    if (file.name == name) return naming(directory(), [&] { return state_->read_file(file); });
  }
  throw_error(Code::kNotFound, "load checkpoint {}: it carries no file '{}'", directory(), name);
}

Hash128 Checkpoint::tensor_hash(std::string_view name) const {
  const size_t at = static_cast<size_t>(&entry(name) - state_->entries.data());
  return naming(directory(), [&] { return state_->tensor_hash(at); });
}

Hash128 Checkpoint::hash() const {
  ContentHash hash;
  hash.add_step(info().step);
  naming(directory(), [&] {
    for (size_t i = 0; i < state_->entries.size(); ++i) {
      const CheckpointEntry& e = state_->entries[i];
      hash.add_tensor(e.name, dtype_name(e.dtype), e.shape, state_->tensor_hash(i));
    }
  });
  return hash.digest();
}

Hash128 Checkpoint::hash(std::string_view prefix) const {
  ContentHash hash;
  naming(directory(), [&] {
    for (size_t i = 0; i < state_->entries.size(); ++i) {
      const CheckpointEntry& e = state_->entries[i];
      if (!e.name.starts_with(prefix)) continue;
      hash.add_tensor(e.name, dtype_name(e.dtype), e.shape, state_->tensor_hash(i));
    }
  });
  return hash.digest();
}

std::vector<std::string> Checkpoint::problems() const {
  std::vector<std::string> result;
  const auto attempt = [&](const auto& action) {
    try {
      action();
    } catch (const Error& error) {
      result.push_back(error.what());
    }
  };
  for (size_t t = 0; t < state_->entries.size(); ++t) {
    for (size_t part = 0; part < state_->manifest.tensors[t].parts.size(); ++part) {
      attempt([&] { state_->check_part(t, part); });
    }
  }
  for (const ManifestFile& file : state_->manifest.files) {
    attempt([&] { state_->read_file(file); });
  }
  return result;
}

}  // namespace moraine
