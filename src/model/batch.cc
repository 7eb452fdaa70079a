// Batch: segments and positions from the borders of documents.
#include "model/batch.h"

namespace moraine {

void set_documents(Batch& batch, const std::vector<int64_t>& segment_begin) {
  const int64_t T = batch.tokens();
  MR_CHECK(T == 0 || (!segment_begin.empty() && segment_begin.front() == 0));
  batch.segments.clear();
  for (size_t i = 0; i < segment_begin.size(); ++i) {
    const int64_t begin = segment_begin[i];
    const int64_t end = i + 1 < segment_begin.size() ? segment_begin[i + 1] : T;
    MR_CHECK(begin < end && end <= T, "segment %ld: rows [%ld, %ld) of %ld", long(i), long(begin),
             long(end), long(T));
    batch.segments.push_back(
        {.row_begin = begin, .rows = end - begin, .position_begin = 0, .key_begin = begin});
    for (int64_t t = begin; t < end; ++t)
      batch.position.as<int32_t>()[t] = static_cast<int32_t>(t - begin);
  }
}

}  // namespace moraine
