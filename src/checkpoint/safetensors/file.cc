// Safetensors reader: the header is parsed, then every claim in it is checked against the file.
#include "checkpoint/safetensors/file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <unordered_map>

#include <fmt/ranges.h>  // fmt::join, in newer versions

#include "base/error.h"
#include "base/json_document.h"
#include "base/memory_error.h"
#include "base/nearest.h"

namespace moraine {

static_assert(std::endian::native == std::endian::little, "the format is little-endian, as we are");

namespace {

struct TypeRow {
  const char* name;
  int bits;  // of one element
};
constexpr TypeRow kTypes[] = {
    {"F64", 64},    {"F32", 32},        {"F16", 16},        {"BF16", 16},   {"I64", 64},
    {"I32", 32},    {"I16", 16},        {"I8", 8},          {"U64", 64},    {"U32", 32},
    {"U16", 16},    {"U8", 8},          {"BOOL", 8},        {"C64", 64},    {"F8_E4M3", 8},
    {"F8_E5M2", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F8_E8M0", 8}, {"F4", 4},
    {"F6_E2M3", 6}, {"F6_E3M2", 6}};

struct TypeName {
  const char* name;
  DType dtype;
};
constexpr TypeName kTypeNames[] = {{"F64", DType::kF64},   {"F32", DType::kF32},
                                   {"BF16", DType::kBF16}, {"I64", DType::kI64},
                                   {"I32", DType::kI32},   {"U8", DType::kU8}};

constexpr int64_t kMaxElements = INT64_MAX / 8;  // so that bytes of the widest type fit, too
constexpr int64_t kLengthBytes = 8;              // the u64 before the header

std::vector<int64_t> integers(const JsonValue& object, std::string_view key) {
  std::vector<int64_t> result;
  object.at(key).elements(
      [&](int64_t, const JsonValue& item) { result.push_back(item.integer()); });
  return result;
}

// Bytes of `count` elements of `type`; throws if the type is unknown or the size is not a whole number of bytes.
int64_t type_bytes(const std::string& type, int64_t count) {
  for (const TypeRow& row : kTypes) {
    if (type != row.name) continue;
    if (row.bits % 8 == 0) return count * (row.bits / 8);
    int64_t bits;
    if (__builtin_mul_overflow(count, int64_t{row.bits}, &bits) || bits % 8 != 0) {
      throw_error(Code::kCorrupt, "{} elements of {} are not a whole number of bytes", count, type);
    }
    return bits / 8;
  }
  throw_error(Code::kCorrupt, "unknown type '{}'", type);
}

SafetensorsEntry parse_entry(std::string_view name, const JsonValue& value, int64_t data_begin,
                             const MappedFile& file) {
  SafetensorsEntry entry;
  entry.name = name;
  entry.type = value.text("dtype");
  entry.shape = integers(value, "shape");
  if (!checked_count(entry.shape, &entry.count)) {
    throw_error(Code::kCorrupt, "shape {} is impossible", shape_text(entry.shape));
  }
  entry.bytes = type_bytes(entry.type, entry.count);
  const std::vector<int64_t> offsets = integers(value, "data_offsets");
  const int64_t data_bytes = file.bytes() - data_begin;
  if (offsets.size() != 2 || offsets[0] < 0 || offsets[1] < offsets[0]) {
    throw_error(Code::kCorrupt, "data_offsets do not make a range");
  }
  if (offsets[1] > data_bytes) {
    throw_error(Code::kCorrupt, "its bytes end at {} of {} bytes of data: the file is cut",
                offsets[1], data_bytes);
  }
  if (offsets[1] - offsets[0] != entry.bytes) {
    throw_error(Code::kCorrupt, "has {} bytes, but {} of {} needs {}", offsets[1] - offsets[0],
                entry.type, shape_text(entry.shape), entry.bytes);
  }
  entry.offset = data_begin + offsets[0];
  entry.data = file.data() + entry.offset;
  return entry;
}

// The entries, sorted by their bytes, must cover the data part exactly.
void check_coverage(const std::vector<SafetensorsEntry>& entries, int64_t begin, int64_t end) {
  int64_t at = begin;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.offset != at) {
      throw_error(Code::kCorrupt,
                  "tensor '{}' begins at byte {}, but the bytes before it end at {}", entry.name,
                  entry.offset, at);
    }
    at += entry.bytes;
  }
  if (at != end) {
    throw_error(Code::kCorrupt, "the tensors end at byte {}, the file at {}", at, end);
  }
}

template <class E, class F>
void convert(const uint8_t* data, int64_t count, float* out, const F& to_f32) {
  for (int64_t i = 0; i < count; ++i) {
    E value;
    std::memcpy(&value, data + i * static_cast<int64_t>(sizeof value), sizeof value);
    out[i] = to_f32(value);
  }
}

}  // namespace

struct SafetensorsFile::State {
  std::string path;
  std::unique_ptr<MappedFile> file;
  int64_t header_bytes = 0;
  Hash128 header_hash;
  std::vector<SafetensorsEntry> entries;
  std::unordered_map<std::string_view, size_t> index;  // name -> position in entries
  std::map<std::string, std::string> metadata;

  int64_t read_length() const;
  void parse();
};

// The length of the JSON header, within the file and the limit.
int64_t SafetensorsFile::State::read_length() const {
  if (file->bytes() < kLengthBytes) {
    throw_error(Code::kCorrupt, "{} bytes are not a safetensors file: it is cut or something else",
                file->bytes());
  }
  uint64_t length;
  file->read_at(0, kLengthBytes, &length);
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeader)) {
    throw_error(Code::kCorrupt,
                "header of {} bytes, the limit is {}: it is no safetensors file, or damaged",
                length, kMaxSafetensorsHeader);
  }
  if (static_cast<int64_t>(length) > file->bytes() - kLengthBytes) {
    throw_error(Code::kCorrupt, "header of {} bytes in a file of {}: it is cut", length,
                file->bytes());
  }
  return static_cast<int64_t>(length);
}

void SafetensorsFile::State::parse() {
  const int64_t length = read_length();
  header_bytes = kLengthBytes + length;
  std::string header(static_cast<size_t>(header_bytes), '\0');
  file->read_at(0, header_bytes, header.data());
  header_hash = hash_bytes(header.data(), header_bytes);
  const std::string_view text = std::string_view(header).substr(kLengthBytes);
  if (!text.starts_with('{')) throw_error(Code::kCorrupt, "the header does not begin with {{");
  const JsonDocument document(text);
  bool metadata_seen = false;
  document.root().members([&](std::string_view name, const JsonValue& value) {
    if (name == "__metadata__") {
      if (metadata_seen) throw_error(Code::kCorrupt, "'__metadata__' is given twice");
      metadata_seen = true;
      value.members([&](std::string_view key, const JsonValue& item) {
        metadata[std::string(key)] = item.text();
      });
      return;
    }
    try {
      entries.push_back(parse_entry(name, value, header_bytes, *file));
    } catch (const Error& error) {
      throw_error(error.code(), "tensor '{}': {}", name, error.what());
    }
    entries.back().file = path;
  });
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
  });
  check_coverage(entries, header_bytes, file->bytes());
  index.reserve(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!index.emplace(entries[i].name, i).second) {
      throw_error(Code::kCorrupt, "tensor '{}' is given twice", entries[i].name);
    }
  }
}

SafetensorsFile::SafetensorsFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;
SafetensorsFile::~SafetensorsFile() = default;

SafetensorsFile SafetensorsFile::open(FileSystem& fs, const std::string& path) {
  auto state = std::make_unique<State>();
  state->path = path;
  state->file = fs.map(path);
  with_memory_for(path, [&] {
    try {
      state->parse();
    } catch (const Error& error) {
      throw_error(error.code(), "read {}: {}", path, error.what());
    }
  });
  return SafetensorsFile(std::move(state));
}

const std::string& SafetensorsFile::path() const { return state_->path; }
const std::vector<SafetensorsEntry>& SafetensorsFile::entries() const { return state_->entries; }
const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return state_->metadata;
}
const MappedFile& SafetensorsFile::mapping() const { return *state_->file; }
Hash128 SafetensorsFile::header_hash() const { return state_->header_hash; }
int64_t SafetensorsFile::header_bytes() const { return state_->header_bytes; }

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = state_->index.find(name);
  return found == state_->index.end() ? nullptr : &state_->entries[found->second];
}

const SafetensorsEntry& SafetensorsFile::get(std::string_view name) const {
  const SafetensorsEntry* entry = find(name);
  if (entry != nullptr) return *entry;
  std::vector<std::string> names;
  for (const SafetensorsEntry& e : state_->entries) names.push_back(e.name);
  throw_error(Code::kNotFound, "read {}: no tensor '{}'; the nearest name is '{}'", path(), name,
              nearest_name(name, names));
}

bool dtype_of_safetensors(std::string_view type, DType* dtype) {
  for (const TypeName& row : kTypeNames) {
    if (type != row.name) continue;
    *dtype = row.dtype;
    return true;
  }
  return false;
}

const char* safetensors_type(DType dtype) {
  for (const TypeName& row : kTypeNames) {
    if (dtype == row.dtype) return row.name;
  }
  MR_CHECK(false, "dtype %d", static_cast<int>(dtype));
}

bool can_view(const SafetensorsEntry& entry) {
  DType dtype;
  return dtype_of_safetensors(entry.type, &dtype) &&
         entry.shape.size() <= static_cast<size_t>(Tensor::kMaxRank) &&
         reinterpret_cast<uintptr_t>(entry.data) % static_cast<uintptr_t>(dtype_bytes(dtype)) == 0;
}

Tensor view(const SafetensorsEntry& entry) {
  if (!can_view(entry)) {
    throw_error(Code::kInvalidArgument,
                "read {}: tensor '{}' is {} {} at byte {}; a view needs a type of ours, at most {} "
                "dimensions and an aligned address",
                entry.file, entry.name, entry.type, shape_text(entry.shape), entry.offset,
                Tensor::kMaxRank);
  }
  Tensor t;
  t.data = const_cast<uint8_t*>(entry.data);
  dtype_of_safetensors(entry.type, &t.dtype);
  t.rank = static_cast<int>(entry.shape.size());
  std::copy(entry.shape.begin(), entry.shape.end(), t.dims);
  return t;
}

bool is_float_type(std::string_view type) {
  return type == "F64" || type == "F32" || type == "F16" || type == "BF16";
}

void read_as_f32(const SafetensorsEntry& entry, float* out) {
  if (entry.type == "F32") {
    if (entry.bytes > 0) std::memcpy(out, entry.data, static_cast<size_t>(entry.bytes));
  } else if (entry.type == "BF16") {
    convert<BF16>(entry.data, entry.count, out, to_float);
  } else if (entry.type == "F16") {
    convert<uint16_t>(entry.data, entry.count, out, f16_to_float);
  } else if (entry.type == "F64") {
    convert<double>(entry.data, entry.count, out, [](double v) { return static_cast<float>(v); });
  } else {
    throw_error(Code::kInvalidArgument, "read {}: tensor '{}' is {}, wanted F64, F32, F16 or BF16",
                entry.file, entry.name, entry.type);
  }
}

float f16_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = bits >> 10 & 0x1fu;
  const uint32_t fraction = bits & 0x3ffu;
  uint32_t result;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, exact in float
    result = std::bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1p-24f);
  } else if (exponent == 31) {  // infinity or NaN
    result = 0x7f800000u | fraction << 13;
  } else {
    result = (exponent + 127 - 15) << 23 | fraction << 13;
  }
  return std::bit_cast<float>(result | sign);
}

bool checked_count(std::span<const int64_t> shape, int64_t* count) {
  int64_t product = 1;  // of the extents that are not zero
  bool empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) return false;
    empty = empty || extent == 0;
    if (extent > 0 && __builtin_mul_overflow(product, extent, &product)) return false;
  }
  *count = empty ? 0 : product;
  return product <= kMaxElements;
}

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace moraine
