// Safetensors: reading a public weight file, trusting nothing in it.
//
//   u64 n (little-endian) | n bytes of JSON, {"name": {"dtype", "shape", "data_offsets"}, ...} | data
//
// The tensors' bytes cover the data part without gaps. The file is mapped: entries are views.
//
// Types:   all of the format's types are known by size; only those of DType can be viewed, and any
//          float type of 16 bits or more can be read as f32.
// Errors:  kNotFound, kIo; kCorrupt with the file and the tensor's name for a cut file, a header
//          that is too long, no JSON or incomplete, an unknown type, a shape that overflows or does
//          not match its bytes, gaps, overlaps and duplicate names. kInvalidArgument for a
//          conversion that is not offered.
// Cost:    opening is linear in the header, at most kMaxSafetensorsHeader bytes.
// Threads: const calls may run at once. A file that another process cuts while it is mapped stops
//          us with SIGBUS: nobody writes into a finished weight file.
// Source:  the safetensors project's description of its format and the limits of its reader.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/hash.h"
#include "tensor/tensor.h"

namespace moraine {

constexpr int64_t kMaxSafetensorsHeader = 100'000'000;  // bytes; the limit of the public readers

struct SafetensorsEntry {
  std::string name;
  std::string type;            // as in the file: "F32", "BF16", "F8_E4M3"
  std::vector<int64_t> shape;  // empty for a scalar
  int64_t count = 0;           // elements
  int64_t bytes = 0;
  int64_t offset = 0;             // of the first byte in the file
  const uint8_t* data = nullptr;  // in the mapping; may be at an odd address in foreign files
  std::string_view file;          // path, for messages
};

class SafetensorsFile {
 public:
  static SafetensorsFile open(FileSystem& fs, const std::string& path);
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();

  const std::string& path() const;
  const std::vector<SafetensorsEntry>& entries() const;       // in the order of their bytes
  const SafetensorsEntry* find(std::string_view name) const;  // nullptr if absent
  const SafetensorsEntry& get(std::string_view name) const;   // kNotFound, with the nearest name
  const std::map<std::string, std::string>& metadata() const;
  const MappedFile& mapping() const;
  Hash128 header_hash() const;   // of the length and the header
  int64_t header_bytes() const;  // length field and header: where the tensors begin

 private:
  struct State;
  explicit SafetensorsFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// True if the type is one of DType, the rank fits Tensor and the address suits the type.
bool can_view(const SafetensorsEntry& entry);
// The entry as a Tensor on the mapped memory: read-only, although Tensor cannot say so.
Tensor view(const SafetensorsEntry& entry);

// The DType of a type's name, false if there is none; and back.
bool dtype_of_safetensors(std::string_view type, DType* dtype);
const char* safetensors_type(DType dtype);

// Fills out[0, entry.count). F16, BF16 and F32 exactly, F64 rounded to nearest.
void read_as_f32(const SafetensorsEntry& entry, float* out);
bool is_float_type(std::string_view type);  // one of the four that read_as_f32 takes

float f16_to_float(uint16_t bits);  // exact

// Elements of a shape; false on a negative extent, or if the product, zeros left out, passes 2^60:
// so neither bytes nor bytes of a row can overflow.
bool checked_count(std::span<const int64_t> shape, int64_t* count);
std::string shape_text(std::span<const int64_t> shape);  // "[4, 64]"

}  // namespace moraine
