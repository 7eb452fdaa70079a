// Views, slices and shape checks.
#include "tensor/tensor.h"

namespace moraine {

Tensor make_tensor(void* data, DType dtype, std::initializer_list<int64_t> dims) {
  MR_CHECK(dims.size() <= Tensor::kMaxRank);
  Tensor t;
  t.data = data;
  t.dtype = dtype;
  for (const int64_t dim : dims) t.dims[t.rank++] = dim;
  return t;
}

Tensor Tensor::rows(int64_t begin, int64_t end) const {
  MR_CHECK(rank >= 1);
  MR_CHECK(begin >= 0 && begin <= end && end <= dims[0], "rows [%ld, %ld) of %ld", long(begin),
           long(end), long(dims[0]));
  Tensor t = *this;
  t.dims[0] = 1;
  const int64_t row_bytes = t.bytes();
  if (data != nullptr) t.data = static_cast<char*>(data) + begin * row_bytes;
  t.dims[0] = end - begin;
  return t;
}

Tensor Tensor::reshaped(std::initializer_list<int64_t> new_dims) const {
  const Tensor t = make_tensor(data, dtype, new_dims);
  MR_CHECK(t.count() == count(), "%s to %s", shape_text(*this).c_str(), shape_text(t).c_str());
  return t;
}

std::string shape_text(const Tensor& t) {
  std::string text = "[";
  for (int i = 0; i < t.rank; ++i) text += (i > 0 ? ", " : "") + std::to_string(t.dims[i]);
  return text + "]";
}

void check_shape(const Tensor& t, const char* name, std::initializer_list<int64_t> dims) {
  const Tensor wanted = make_tensor(t.data, t.dtype, dims);
  bool same = t.rank == wanted.rank;
  for (int i = 0; same && i < t.rank; ++i) same = t.dims[i] == wanted.dims[i];
  MR_CHECK(same, "%s has shape %s, wanted %s", name, shape_text(t).c_str(),
           shape_text(wanted).c_str());
}

void check_dtype(const Tensor& t, const char* name, DType dtype) {
  MR_CHECK(t.dtype == dtype, "%s is %s, wanted %s", name, dtype_name(t.dtype), dtype_name(dtype));
}

}  // namespace moraine
