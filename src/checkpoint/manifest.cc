// Manifest: to text and back, refusing whatever contradicts itself.
#include "checkpoint/manifest.h"

#include <algorithm>
#include <set>

#include <fmt/ranges.h>  // fmt::join, in newer versions

#include "base/check.h"
#include "base/error.h"
#include "base/json_document.h"
#include "base/json_quote.h"
#include "checkpoint/safetensors/file.h"
#include "checkpoint/safetensors/set.h"

namespace moraine {
namespace {

constexpr DType kDTypes[] = {DType::kF64, DType::kF32, DType::kBF16,
                             DType::kI64, DType::kI32, DType::kU8};

// The last bytes of a manifest: kHashKey, 32 hex digits, kHashEnd.
constexpr std::string_view kHashKey = "\n\"manifest_hash\": \"";
constexpr std::string_view kHashEnd = "\"\n}\n";
constexpr size_t kHexDigits = 32;
constexpr size_t kTailBytes = kHashKey.size() + kHexDigits + kHashEnd.size();

template <class Item, class Format>
void append_list(std::string* text, const char* key, const std::vector<Item>& items,
                 const Format& format) {
  *text += fmt::format("\"{}\": [", key);
  for (size_t i = 0; i < items.size(); ++i) *text += (i == 0 ? "\n  " : ",\n  ") + format(items[i]);
  *text += items.empty() ? "],\n" : "\n],\n";
}

std::string tensor_text(const ManifestTensor& t) {
  std::string text = fmt::format("{{\"name\": {}, \"dtype\": \"{}\", \"shape\": [{}], \"parts\": [",
                                 json_quote(t.name), dtype_name(t.dtype), fmt::join(t.shape, ", "));
  for (size_t i = 0; i < t.parts.size(); ++i) {
    const ManifestPart& p = t.parts[i];
    text += fmt::format("{}{{\"file\": {}, \"rows\": [{}, {}], \"hash\": \"{}\"}}", i ? ", " : "",
                        p.file, p.row_begin, p.row_end, hash_hex(p.hash));
  }
  return text + "]}";
}

Hash128 hash_member(const JsonValue& object, std::string_view key) {
  Hash128 hash;
  if (!parse_hash(std::string(object.text(key)), &hash)) {
    throw_error(Code::kCorrupt, "'{}' is not a hash", key);
  }
  return hash;
}

int64_t natural(const JsonValue& object, std::string_view key) {
  const int64_t value = object.integer(key);
  if (value < 0) throw_error(Code::kCorrupt, "'{}' is negative: {}", key, value);
  return value;
}

// Checks the end of the text and returns what its hash covers.
void check_hash(std::string_view text) {
  if (text.size() < kTailBytes) throw_error(Code::kCorrupt, "{} bytes: it is cut", text.size());
  const std::string_view body = text.substr(0, text.size() - kTailBytes);
  const std::string_view tail = text.substr(body.size());
  if (!tail.starts_with(kHashKey) || !tail.ends_with(kHashEnd)) {
    throw_error(Code::kCorrupt, "does not end with its hash: it is cut or damaged");
  }
  const std::string wanted(tail.substr(kHashKey.size(), kHexDigits));
  const std::string found = hash_hex(hash_bytes(body.data(), static_cast<int64_t>(body.size())));
  if (found != wanted) {
    throw_error(Code::kCorrupt, "its content has hash {}, it says {}: damaged", found, wanted);
  }
}

CheckpointInfo parse_info(const JsonValue& root) {
  CheckpointInfo info;
  info.step = natural(root, "step");
  info.tokens_seen = natural(root, "tokens_seen");
  info.seed = root.unsigned_integer("seed");
  info.config = root.text("config");
  root.at("values").members([&](std::string_view key, const JsonValue& value) {
    info.values[std::string(key)] = value.text();
  });
  return info;
}

// A name that is unique in the directory; `data` says which of the two kinds it must be.
std::string file_name(const JsonValue& item, bool data, std::set<std::string>* seen) {
  const std::string name(item.text("name"));
  if (!is_plain_file_name(name) || name == kManifestName || name.starts_with(kDataPrefix) != data) {
    throw_error(Code::kCorrupt, "file name '{}' is not allowed here", name);
  }
  if (!seen->insert(name).second) throw_error(Code::kCorrupt, "file '{}' is listed twice", name);
  return name;
}

ManifestPart parse_part(const JsonValue& value) {
  ManifestPart part;
  part.file = natural(value, "file");
  const JsonValue rows = value.at("rows");
  if (rows.count() != 2) throw_error(Code::kCorrupt, "'rows' is not a range");
  rows.elements([&](int64_t i, const JsonValue& row) {
    (i == 0 ? part.row_begin : part.row_end) = row.integer();
  });
  part.hash = hash_member(value, "hash");
  return part;
}

ManifestTensor parse_tensor(const JsonValue& value, int64_t num_data) {
  ManifestTensor t;
  t.name = value.text("name");
  try {
    if (!parse_dtype(value.text("dtype"), &t.dtype)) {
      throw_error(Code::kCorrupt, "unknown type '{}'", value.text("dtype"));
    }
    value.at("shape").elements(
        [&](int64_t, const JsonValue& extent) { t.shape.push_back(extent.integer()); });
    int64_t count, bytes;
    if (t.shape.size() > static_cast<size_t>(Tensor::kMaxRank) || !checked_count(t.shape, &count) ||
        __builtin_mul_overflow(count, dtype_bytes(t.dtype), &bytes)) {
      throw_error(Code::kCorrupt, "shape {} is impossible", shape_text(t.shape));
    }
    int64_t rows = 0;
    value.at("parts").elements([&](int64_t, const JsonValue& item) {
      const ManifestPart part = parse_part(item);
      if (part.file >= num_data) throw_error(Code::kCorrupt, "no data file {}", part.file);
      if (part.row_begin != rows || part.row_end < rows) {
        throw_error(Code::kCorrupt, "part of rows [{}, {}) where row {} is next", part.row_begin,
                    part.row_end, rows);
      }
      rows = part.row_end;
      t.parts.push_back(part);
    });
    if (rows != t.rows() || t.parts.empty()) {
      throw_error(Code::kCorrupt, "parts have {} rows, shape {} has {}", rows, shape_text(t.shape),
                  t.rows());
    }
  } catch (const Error& error) {
    throw_error(error.code(), "tensor '{}': {}", t.name, error.what());
  }
  return t;
}

}  // namespace

int64_t ManifestTensor::count() const {
  int64_t n;
  MR_CHECK(checked_count(shape, &n), "%s", name.c_str());
  return n;
}

int64_t ManifestTensor::row_bytes() const {
  int64_t bytes = dtype_bytes(dtype);
  for (size_t i = 1; i < shape.size(); ++i) bytes *= shape[i];
  return bytes;
}

std::vector<int64_t> ManifestTensor::part_shape(const ManifestPart& part) const {
  std::vector<int64_t> result = shape;
  if (!result.empty()) result[0] = part.row_end - part.row_begin;
  return result;
}

bool parse_dtype(std::string_view name, DType* dtype) {
  for (const DType candidate : kDTypes) {
    if (name != dtype_name(candidate)) continue;
    *dtype = candidate;
    return true;
  }
  return false;
}

std::string manifest_text(const Manifest& manifest) {
  const CheckpointInfo& info = manifest.info;
  std::string text = fmt::format(
      "{{\n\"format\": \"{}\",\n\"version\": {},\n\"step\": {},\n\"tokens_seen\": {},\n\"seed\": "
      "{},\n",
      kManifestFormat, kManifestVersion, info.step, info.tokens_seen, info.seed);
  std::string values;
  for (const auto& [key, value] : info.values) {
    values +=
        fmt::format("{}\n  {}: {}", values.empty() ? "" : ",", json_quote(key), json_quote(value));
  }
  text += fmt::format("\"values\": {{{}{}}},\n\"config\": {},\n", values,
                      values.empty() ? "" : "\n", json_quote(info.config));
  append_list(&text, "files", manifest.files, [](const ManifestFile& f) {
    return fmt::format("{{\"name\": {}, \"bytes\": {}, \"hash\": \"{}\"}}", json_quote(f.name),
                       f.bytes, hash_hex(f.hash));
  });
  append_list(&text, "data", manifest.data, [](const ManifestData& d) {
    return fmt::format("{{\"name\": {}, \"bytes\": {}, \"header_hash\": \"{}\"}}",
                       json_quote(d.name), d.bytes, hash_hex(d.header));
  });
  append_list(&text, "tensors", manifest.tensors, tensor_text);
  text.pop_back();  // the line end belongs to the hash's key
  const Hash128 hash = hash_bytes(text.data(), static_cast<int64_t>(text.size()));
  return fmt::format("{}{}{}{}", text, kHashKey, hash_hex(hash), kHashEnd);
}

Manifest parse_manifest(std::string_view text) {
  check_hash(text);
  const JsonDocument document(text);
  const JsonValue root = document.root();
  if (root.text("format") != kManifestFormat) {
    throw_error(Code::kCorrupt, "format '{}', wanted '{}'", root.text("format"), kManifestFormat);
  }
  if (root.integer("version") != kManifestVersion) {
    throw_error(Code::kInvalidArgument,
                "version {}, this program knows version {}: use the program that wrote it",
                root.integer("version"), kManifestVersion);
  }
  Manifest manifest;
  manifest.info = parse_info(root);
  std::set<std::string> seen;
  root.at("files").elements([&](int64_t, const JsonValue& item) {
    manifest.files.push_back({.name = file_name(item, false, &seen),
                              .bytes = natural(item, "bytes"),
                              .hash = hash_member(item, "hash")});
  });
  root.at("data").elements([&](int64_t, const JsonValue& item) {
    manifest.data.push_back({.name = file_name(item, true, &seen),
                             .bytes = natural(item, "bytes"),
                             .header = hash_member(item, "header_hash")});
  });
  root.at("tensors").elements([&](int64_t, const JsonValue& item) {
    manifest.tensors.push_back(parse_tensor(item, static_cast<int64_t>(manifest.data.size())));
    const size_t n = manifest.tensors.size();
    if (n > 1 && manifest.tensors[n - 2].name >= manifest.tensors[n - 1].name) {
      throw_error(Code::kCorrupt, "tensor '{}' is not in name order", manifest.tensors[n - 1].name);
    }
  });
  return manifest;
}

}  // namespace moraine
