// DataFiles: first the plan of all files, then one pass over the bytes.
#include "checkpoint/data_files.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "checkpoint/safetensors/writer.h"

namespace moraine {
namespace {

constexpr int64_t kHeaderAlignment = 8;
constexpr int64_t kPieceBytes = int64_t{1} << 20;  // hashed and written at once: stays in the cache

int64_t rows_of(const Tensor& t) { return t.rank == 0 ? 1 : t.dims[0]; }
int64_t row_bytes(const Tensor& t) { return rows_of(t) == 0 ? 0 : t.bytes() / rows_of(t); }

struct Piece {
  size_t input = 0;
  int64_t row_begin = 0;  // local rows
  int64_t row_end = 0;
};

std::vector<std::vector<Piece>> plan_files(std::span<const TensorRows> tensors,
                                           std::span<const size_t> order, int64_t max_file_bytes) {
  std::vector<std::vector<Piece>> files;
  int64_t room = 0;
  for (const size_t input : order) {
    const Tensor& t = tensors[input].local;
    int64_t rows_per_piece = rows_of(t);
    if (t.bytes() > max_file_bytes) {
      rows_per_piece = std::max<int64_t>(1, max_file_bytes / row_bytes(t));
    }
    int64_t row = 0;
    do {  // a piece of a cut tensor leaves less room than a row: two of them never share a file
      const int64_t end = std::min(rows_of(t), row + rows_per_piece);
      const int64_t bytes = (end - row) * row_bytes(t);
      if (files.empty() || bytes > room) {
        files.emplace_back();
        room = max_file_bytes;
      }
      files.back().push_back({input, row, end});
      room -= bytes;
      row = end;
    } while (row < rows_of(t));
  }
  return files;
}

class OnePass {
 public:
  OnePass(FileSystem& fs, const std::string& folder, std::span<const TensorRows> tensors,
          int64_t page_bytes)
      : fs_(fs),
        folder_(folder),
        tensors_(tensors),
        page_bytes_(page_bytes),
        wholes_(tensors.size()) {
    result_.parts.resize(tensors.size());
    result_.hashes.resize(tensors.size());
  }

  void write_file(const std::string& name, std::span<const Piece> pieces) {
    std::vector<SafetensorsSpec> specs;
    for (const Piece& piece : pieces) {
      const TensorRows& from = tensors_[piece.input];
      std::vector<int64_t> shape(from.local.dims, from.local.dims + from.local.rank);
      if (!shape.empty()) shape[0] = piece.row_end - piece.row_begin;
      specs.push_back({from.name, from.local.dtype, shape});
    }
    SafetensorsWriter writer(fs_, join_path(folder_, name), specs, pytorch_metadata(),
                             std::max(kHeaderAlignment, page_bytes_));
    for (const Piece& piece : pieces) write_piece(writer, piece);
    writer.finish();
    result_.data.push_back({name, writer.file_bytes(), writer.header_hash()});
  }

  DataFilesWritten take() { return std::move(result_); }

 private:
  void write_piece(SafetensorsWriter& writer, const Piece& piece) {
    const TensorRows& from = tensors_[piece.input];
    const bool whole = piece.row_begin == 0 && piece.row_end == rows_of(from.local);
    std::unique_ptr<Hasher>& all = wholes_[piece.input];  // of a tensor that is cut
    if (!whole && all == nullptr) all = std::make_unique<Hasher>();
    Hasher part;
    if (from.local.data == nullptr) buffer_.resize(static_cast<size_t>(kPieceBytes));
    const int64_t end = piece.row_end * row_bytes(from.local);
    for (int64_t at = piece.row_begin * row_bytes(from.local); at < end; at += kPieceBytes) {
      const int64_t bytes = std::min(kPieceBytes, end - at);
      const uint8_t* data = buffer_.data();
      if (from.local.data == nullptr) {
        from.fill(at, bytes, buffer_.data());
      } else {
        data = static_cast<const uint8_t*>(from.local.data) + at;
      }
      part.add(data, bytes);
      if (!whole) all->add(data, bytes);
      writer.append(data, bytes);
    }
    result_.parts[piece.input].push_back({.file = static_cast<int64_t>(result_.data.size()),
                                          .row_begin = from.row_begin + piece.row_begin,
                                          .row_end = from.row_begin + piece.row_end,
                                          .hash = part.digest()});
    result_.hashes[piece.input] = whole ? part.digest() : all->digest();
  }

  FileSystem& fs_;
  const std::string& folder_;
  std::span<const TensorRows> tensors_;
  const int64_t page_bytes_;
  std::vector<uint8_t> buffer_;  // of a tensor that is not in memory
  std::vector<std::unique_ptr<Hasher>> wholes_;
  DataFilesWritten result_;
};

}  // namespace

DataFilesWritten write_data_files(FileSystem& fs, const std::string& folder, FirstDataFile first,
                                  std::span<const TensorRows> tensors,
                                  const CheckpointOptions& options) {
  MR_CHECK(options.max_file_bytes > 0, "%ld", static_cast<long>(options.max_file_bytes));
  std::vector<SafetensorsSpec> specs;
  for (const TensorRows& t : tensors) {
    MR_CHECK(t.local.data != nullptr || t.fill || t.local.bytes() == 0, "%s is empty",
             t.name.c_str());
    if (options.page_bytes > 0 && t.local.dtype == DType::kU8)
      MR_CHECK(t.local.bytes() % options.page_bytes == 0, "%s: %ld bytes", t.name.c_str(),
               static_cast<long>(t.local.bytes()));
    specs.push_back({t.name, t.local.dtype, {}});
  }
  OnePass pass(fs, folder, tensors, options.page_bytes);
  std::vector<size_t> order = aligned_order(specs);
  if (options.page_bytes > 0) {
    std::stable_partition(order.begin(), order.end(),
                          [&](size_t i) { return specs[i].dtype == DType::kU8; });
  }
  const std::vector<std::vector<Piece>> files = plan_files(tensors, order, options.max_file_bytes);
  for (size_t i = 0; i < files.size(); ++i) {
    pass.write_file(fmt::format("{}{:05}-{:05}.safetensors", kDataPrefix, first.writer,
                                first.index + static_cast<int64_t>(i)),
                    files[i]);
  }
  return pass.take();
}

}  // namespace moraine
