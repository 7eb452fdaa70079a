// PackSource: which part of a flat parameter buffer a packed matrix is made of.
//
// Each matrix that the kernels stream is a run of rows of the flat buffer: q, k and v of a layer stand one behind
// the other there, and so do the experts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/forward_observer.h"
#include "model/parameters.h"

namespace moraine {

struct PackSource {
  std::string name;         // of its parameter; of q, k and v together "<layer>.self_attn.qkv_proj"
  int64_t begin = 0;        // element of the flat buffer; groups * n * k from there on
  int64_t groups = 1;       // held here
  int64_t n = 0, k = 0;     // of each group
  int64_t group_begin = 0;  // the first one held here, of all of them
  int64_t groups_all = 1;
  int64_t layer = -1;                       // -1: the head, the embedding
  std::optional<ServedMatrix> served = {};  // none: it is never quantised

  int64_t count() const { return groups * n * k; }
};

// All of a model, layer by layer, the tied head last.
std::vector<PackSource> pack_sources(const ModelConfig& config, const ParameterTable& table);
// The rows of the head once more, as a packed model may have them for its tokens.
PackSource embedding_source(const ModelConfig& config, const ParameterTable& table);

}  // namespace moraine
