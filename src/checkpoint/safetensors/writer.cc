// Safetensors writer: the whole header is known before the first byte of data.
#include "checkpoint/safetensors/writer.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include <fmt/ranges.h>  // fmt::join, in newer versions

#include "base/check.h"
#include "base/error.h"
#include "base/json_quote.h"
#include "checkpoint/safetensors/file.h"

namespace moraine {
namespace {

// Not padded.
std::string header_text(std::span<const SafetensorsSpec> specs, const SafetensorsMetadata& metadata,
                        int64_t* data_bytes) {
  std::set<std::string_view> names;
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      text += json_quote(key) + ":" + json_quote(value) + ",";
    }
    text.back() = '}';
  }
  *data_bytes = 0;
  for (const SafetensorsSpec& spec : specs) {
    if (spec.name == "__metadata__" || !names.insert(spec.name).second) {
      throw_error(Code::kInvalidArgument, "name '{}' is given twice or reserved", spec.name);
    }
    int64_t count;
    MR_CHECK(checked_count(spec.shape, &count), "%s", spec.name.c_str());
    if (*data_bytes % dtype_bytes(spec.dtype) != 0) {
      throw_error(Code::kInvalidArgument,
                  "tensor '{}' of {} would begin at byte {}: put wider types first", spec.name,
                  dtype_name(spec.dtype), *data_bytes);
    }
    const int64_t end = *data_bytes + count * dtype_bytes(spec.dtype);
    fmt::format_to(std::back_inserter(text),
                   "{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                   text.size() > 1 ? "," : "", json_quote(spec.name), safetensors_type(spec.dtype),
                   fmt::join(spec.shape, ","), *data_bytes, end);
    *data_bytes = end;
  }
  return text + "}";
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(FileSystem& fs, const std::string& path,
                                     std::span<const SafetensorsSpec> specs,
                                     const SafetensorsMetadata& metadata, int64_t data_alignment) {
  std::string header(8, '\0');
  try {
    header += header_text(specs, metadata, &bytes_left_);
    while (static_cast<int64_t>(header.size()) % data_alignment != 0) header += ' ';
    if (static_cast<int64_t>(header.size()) - 8 > kMaxSafetensorsHeader) {
      throw_error(Code::kInvalidArgument, "{} tensors need a header of {} bytes, the limit is {}",
                  specs.size(), header.size() - 8, kMaxSafetensorsHeader);
    }
  } catch (const Error& error) {
    throw_error(error.code(), "write {}: {}", path, error.what());
  }
  const uint64_t length = header.size() - 8;
  std::memcpy(header.data(), &length, sizeof length);
  const int64_t header_bytes = static_cast<int64_t>(header.size());
  header_hash_ = hash_bytes(header.data(), header_bytes);
  file_bytes_ = header_bytes + bytes_left_;
  file_ = fs.create(path);
  file_->append(header.data(), header_bytes);
}

void SafetensorsWriter::append(const void* data, int64_t bytes) {
  MR_CHECK(bytes >= 0 && bytes <= bytes_left_, "%ld bytes, %ld left", static_cast<long>(bytes),
           static_cast<long>(bytes_left_));
  if (bytes == 0) return;
  file_->append(data, bytes);
  bytes_left_ -= bytes;
}

void SafetensorsWriter::finish() {
  MR_CHECK(bytes_left_ == 0, "%ld bytes are missing", static_cast<long>(bytes_left_));
  file_->sync();
  file_->close();
}

std::vector<size_t> aligned_order(std::span<const SafetensorsSpec> specs) {
  std::vector<size_t> order(specs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const int64_t a_bytes = dtype_bytes(specs[a].dtype), b_bytes = dtype_bytes(specs[b].dtype);
    return a_bytes != b_bytes ? a_bytes > b_bytes : specs[a].name < specs[b].name;
  });
  return order;
}

void write_safetensors(FileSystem& fs, const std::string& path,
                       std::span<const NamedTensor> tensors, const SafetensorsMetadata& metadata) {
  std::vector<SafetensorsSpec> specs, sorted;
  for (const NamedTensor& t : tensors) {
    specs.push_back({t.name, t.tensor.dtype, {t.tensor.dims, t.tensor.dims + t.tensor.rank}});
  }
  const std::vector<size_t> order = aligned_order(specs);
  for (const size_t i : order) sorted.push_back(specs[i]);
  SafetensorsWriter writer(fs, path, sorted, metadata);
  for (const size_t i : order) writer.append(tensors[i].tensor.data, tensors[i].tensor.bytes());
  writer.finish();
}

}  // namespace moraine
