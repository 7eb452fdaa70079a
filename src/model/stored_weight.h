// StoredWeight: how a public checkpoint stores one weight: as floats, or as FP8 or MXFP4 beside their scales.
//
//   floats  NAME: F64, F32, F16 or BF16, in the weight's shape
//   fp8     NAME or BASE.weight: F8_E4M3, in the weight's shape; BASE.weight_scale: F32, F16 or BF16, one for all,
//           per matrix, per row, or per 128 rows and 128 inputs; told by its shape. Beside it BASE.input_scale
//   mxfp4   BASE.weight_packed: U8, two E2M1 values in a byte, the first one in its low half;
//           BASE.weight_scale: U8 or F8_E8M0, a power of two per 32 inputs
//
// BASE is NAME without ".weight". A weight is [rows, inputs], with experts [experts, rows, inputs]; its elements are
// value * scale in f32: exact for mxfp4, and for fp8 with scales in bf16 or f16.
//
// A set may have more tensors than weights use: those that one does are its values and scales.
// Errors: kNotFound for a weight or its scales that are not there; kInvalidArgument with the tensor's name for a
//         shape or a type that is none of these.
// Cost:   finding it is a few lookups by name; reading is a table's lookup and a product per element.
// Source: compressed-tensors 0.20, formats float-quantized and mxfp4-pack-quantized: those of the published
//         ZAYA1-8B-FP8-Experts and ZAYA1-8B-MXFP4-Experts; OCP Microscaling Formats 1.0 for E2M1 and E8M0.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/safetensors/set.h"

namespace moraine {

struct StoredWeight {
  enum class Form : uint8_t { kFloats, kFp8, kMxfp4 };
  Form form = Form::kFloats;
  const SafetensorsEntry* values = nullptr;
  const SafetensorsEntry* scales = nullptr;  // none: floats
  // Of activations, which are not made FP8 here: not used.
  const SafetensorsEntry* input_scale = nullptr;
  int64_t rows = 1, inputs = 1;  // of one matrix
  int64_t shared_rows = 1;       // that share a scale, and inputs that do
  int64_t shared_inputs = 1;
  int64_t scales_per_matrix = 0;  // 0: the matrices share one
};

StoredWeight find_stored_weight(const SafetensorsSet& set, const std::string& name,
                                const std::vector<int64_t>& dims);

// Fills out[0, count) with elements [begin, begin + count).
void read_stored_weight(const StoredWeight& weight, int64_t begin, int64_t count, float* out);

}  // namespace moraine
