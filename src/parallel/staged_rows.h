// StagedRows: rows that ranks exchange and that lie in a device's memory, in pinned memory of the host on their way.
//
//   copy_out   rows of a tensor; when it returns they are here, and the device has done all that was asked of it: what
//              was here before was read. Of moves it returns all the rows that there is room for here, or the tensor
//              itself; of rows what place does
//   start_out  the same, and nobody waits yet
//   place      where rows arrive for a tensor
//   copy_in    rows that have arrived, in the device's order of work
//
// Rows are where they are in the tensor, or where moves say. Without a device they are the tensor's own, and nothing is
// copied.
//
// Errors:  kDevice.
// Cost:    a wait for the device in each copy_out.
#pragma once

#include <span>
#include <string>

#include "kernels/context.h"

namespace moraine {

// Rows of a tensor, and where they are here.
struct StagedMove {
  int64_t there = 0, here = 0, count = 0;
};

class StagedRows {
 public:
  StagedRows() = default;
  // For tensors of at most this size.
  StagedRows(Arena& arena, const std::string& name, DType dtype, int64_t rows, int64_t width);

  bool on_device() const { return !host_.empty(); }
  Tensor start_out(Context& ctx, const Tensor& there, std::span<const StagedMove> moves);
  Tensor copy_out(Context& ctx, const Tensor& there, std::span<const StagedMove> moves);
  Tensor copy_out(Context& ctx, const Tensor& there, int64_t begin, int64_t end);
  Tensor place(const Tensor& there) const;
  void copy_in(Context& ctx, const Tensor& there, std::span<const StagedMove> moves);
  void copy_in(Context& ctx, const Tensor& there, int64_t begin, int64_t end);

 private:
  Tensor rows_like(const Tensor& there) const;

  Tensor host_;  // [rows, width]; empty: no device
};

}  // namespace moraine
