// Buckets: in which pieces gradients leave while backward still runs.
//
// Backward goes from the last layer down; a bucket is the matrices of one or more neighbouring
// layers, closed as soon as it has bucket_bytes. The rest (embedding, vectors) leaves at the end.
// A pure function of the table: every rank has the same.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/collectives.h"
#include "model/parameters.h"

namespace moraine {

struct Bucket {
  int64_t layer = 0;      // complete after this layer's backward
  Range shared, experts;  // of the flat buffer
};

std::vector<Bucket> gradient_buckets(const ParameterTable& table, int64_t layers,
                                     int64_t bucket_bytes);
// What no bucket has: [0, first layer's matrices) and the vectors.
std::vector<Range> rest_of_gradients(const ParameterTable& table, int64_t layers);

}  // namespace moraine
