// SafetensorsWriter: writing a weight file that every public reader opens, the same bytes each
// time.
//
// Header keys and data stand in the order given; the header is padded with spaces, so that the data
// begin at a multiple of 8, or of what the caller wants. Public readers that map a file need each
// tensor at a multiple of its element size: give wider types first (aligned_order), else the
// constructor refuses.
//
// Errors: kIo; kInvalidArgument for names that occur twice, are reserved or not UTF-8, for an order that
//         leaves a tensor unaligned and for a header over the format's limit. Appending another
//         number of bytes than announced is the caller's bug.
// Cost:   one pass over the bytes; nothing is held but the header.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/hash.h"
#include "tensor/tensor.h"

namespace moraine {

struct SafetensorsSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

using SafetensorsMetadata = std::map<std::string, std::string>;
// Without this the Hugging Face loader refuses a file.
inline SafetensorsMetadata pytorch_metadata() { return {{"format", "pt"}}; }

class SafetensorsWriter {
 public:
  SafetensorsWriter(FileSystem& fs, const std::string& path, std::span<const SafetensorsSpec> specs,
                    const SafetensorsMetadata& metadata = pytorch_metadata(),
                    int64_t data_alignment = 8);

  // The next bytes of the data, in the order of the specs; any cut into pieces.
  void append(const void* data, int64_t bytes);
  // Syncs, then closes. All bytes must have been appended.
  void finish();

  int64_t file_bytes() const { return file_bytes_; }           // of the finished file
  const Hash128& header_hash() const { return header_hash_; }  // of length field and header

 private:
  std::unique_ptr<WritableFile> file_;
  int64_t bytes_left_ = 0;
  int64_t file_bytes_ = 0;
  Hash128 header_hash_;
};

// Positions of `specs`, wider element types first, then by name: the order of the public writer.
std::vector<size_t> aligned_order(std::span<const SafetensorsSpec> specs);

// A whole file from tensors in memory, in aligned_order.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};
void write_safetensors(FileSystem& fs, const std::string& path,
                       std::span<const NamedTensor> tensors,
                       const SafetensorsMetadata& metadata = pytorch_metadata());

}  // namespace moraine
