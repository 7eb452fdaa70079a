// StoredWeight: which tensors make a weight, and value times scale.
#include "model/stored_weight.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <string_view>

#include "base/error.h"
#include "tensor/dtype.h"

namespace moraine {
namespace {

constexpr int64_t kBlock = 128;  // rows and inputs that share a scale of fp8, where it is by blocks
constexpr int64_t kShared = 32;  // inputs that share a scale of mxfp4
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Sign, four bits of exponent (bias 7), three of fraction; no infinities, NaN where these seven are ones.
float from_e4m3(int bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  if (exponent == 15 && fraction == 7) return kNan;
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(fraction), -9)
                              : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  return (bits & 128) != 0 ? -magnitude : magnitude;
}

const std::array<float, 256>& e4m3_values() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> v{};
    for (int i = 0; i < 256; ++i) v[static_cast<size_t>(i)] = from_e4m3(i);
    return v;
  }();
  return values;
}

constexpr std::array<float, 16> kE2m1 = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                         -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

template <class T>
T value_at(const SafetensorsEntry& entry, int64_t i) {
  T value;
  std::memcpy(&value, entry.data + i * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

// A byte of U8 or F8_E8M0, as mxfp4 has them.
float power_of_two(int byte) { return byte == 255 ? kNan : std::ldexp(1.0f, byte - 127); }

float scale_at(const StoredWeight& w, int64_t i) {
  const SafetensorsEntry& scales = *w.scales;
  if (w.form == StoredWeight::Form::kMxfp4) return power_of_two(scales.data[i]);
  if (scales.type == "F32") return value_at<float>(scales, i);
  if (scales.type == "BF16") return to_float(value_at<BF16>(scales, i));
  return f16_to_float(value_at<uint16_t>(scales, i));
}

std::string base_of(const std::string& name) {
  constexpr std::string_view kEnd = ".weight";
  return name.ends_with(kEnd) ? name.substr(0, name.size() - kEnd.size()) : name;
}

void expect_shape(const SafetensorsEntry& entry, const std::vector<int64_t>& wanted) {
  if (entry.shape == wanted) return;
  throw_error(Code::kInvalidArgument, "{}: {} has shape {}, config.json says {}", entry.file,
              entry.name, shape_text(entry.shape), shape_text(wanted));
}

const SafetensorsEntry& scales_of(const SafetensorsSet& set, const SafetensorsEntry& values,
                                  const std::string& base) {
  const std::string name = base + ".weight_scale";
  const SafetensorsEntry* scales = set.find(name);
  if (scales != nullptr) return *scales;
  throw_error(Code::kNotFound, "{}: {} is {}, and there is no {} to scale it by", values.file,
              values.name, values.type, name);
}

void expect_type(const SafetensorsEntry& scales, std::initializer_list<const char*> types) {
  std::string wanted;
  for (const char* type : types) {
    if (scales.type == type) return;
    wanted += (wanted.empty() ? "" : " or ") + std::string(type);
  }
  throw_error(Code::kInvalidArgument, "{}: {} is {}; scales of this kind are {}", scales.file,
              scales.name, scales.type, wanted);
}

// The weight's dims with `rows` rows and `inputs` inputs in a matrix.
std::vector<int64_t> with_matrix(std::vector<int64_t> dims, int64_t rows, int64_t inputs) {
  dims[dims.size() - 2] = rows;
  dims[dims.size() - 1] = inputs;
  return dims;
}

// What shares a scale, from the shape of the scales.
void set_fp8_sharing(StoredWeight& w, const std::vector<int64_t>& dims) {
  const std::vector<int64_t>& shape = w.scales->shape;
  const int64_t block_rows = (w.rows + kBlock - 1) / kBlock;
  const int64_t block_inputs = (w.inputs + kBlock - 1) / kBlock;
  w.shared_rows = w.rows, w.shared_inputs = w.inputs;  // one for all, or for a matrix
  if (w.scales->count == 1) return;
  if (dims.size() == 3 && shape[0] == dims[0] && w.scales->count == dims[0]) {
    w.scales_per_matrix = 1;
  } else if (shape == with_matrix(dims, w.rows, 1)) {
    w.shared_rows = 1, w.scales_per_matrix = w.rows;
  } else if (shape == with_matrix(dims, block_rows, block_inputs)) {
    w.shared_rows = kBlock, w.shared_inputs = kBlock;
    w.scales_per_matrix = block_rows * block_inputs;
  } else {
    throw_error(Code::kInvalidArgument,
                "{}: {} has shape {}; scales of {} are one, one for each matrix, {} (for each "
                "row) or {} (for {} x {})",
                w.scales->file, w.scales->name, shape_text(shape), w.values->name,
                shape_text(with_matrix(dims, w.rows, 1)),
                shape_text(with_matrix(dims, block_rows, block_inputs)), kBlock, kBlock);
  }
}

StoredWeight as_fp8(const SafetensorsSet& set, const SafetensorsEntry& values,
                    const std::string& base, const std::vector<int64_t>& dims) {
  expect_shape(values, dims);
  StoredWeight w{.form = StoredWeight::Form::kFp8,
                 .values = &values,
                 .scales = &scales_of(set, values, base),
                 .input_scale = set.find(base + ".input_scale"),
                 .rows = dims[dims.size() - 2],
                 .inputs = dims.back()};
  expect_type(*w.scales, {"F32", "BF16", "F16"});
  set_fp8_sharing(w, dims);
  return w;
}

StoredWeight as_mxfp4(const SafetensorsSet& set, const SafetensorsEntry& values,
                      const std::string& base, const std::vector<int64_t>& dims) {
  const int64_t rows = dims[dims.size() - 2], inputs = dims.back();
  if (values.type != "U8" || inputs % kShared != 0) {
    throw_error(Code::kInvalidArgument,
                "{}: {} is {} for a weight of {}; packed weights are read as mxfp4 alone: U8, of "
                "whole groups of {} inputs",
                values.file, values.name, values.type, shape_text(dims), kShared);
  }
  expect_shape(values, with_matrix(dims, rows, inputs / 2));
  const SafetensorsEntry& scales = scales_of(set, values, base);
  expect_type(scales, {"U8", "F8_E8M0"});
  expect_shape(scales, with_matrix(dims, rows, inputs / kShared));
  return {.form = StoredWeight::Form::kMxfp4,
          .values = &values,
          .scales = &scales,
          .rows = rows,
          .inputs = inputs,
          .shared_rows = 1,
          .shared_inputs = kShared,
          .scales_per_matrix = rows * (inputs / kShared)};
}

// Elements [begin, end), which share a scale.
void read_run(const StoredWeight& w, float scale, int64_t begin, int64_t end, float* out) {
  const uint8_t* data = w.values->data;
  if (w.form == StoredWeight::Form::kFp8) {
    const std::array<float, 256>& values = e4m3_values();
    for (int64_t i = begin; i < end; ++i) *out++ = values[data[i]] * scale;
    return;
  }
  for (int64_t i = begin; i < end; ++i) {
    const int two = data[i / 2];
    *out++ = kE2m1[static_cast<size_t>(i % 2 == 0 ? two & 15 : two >> 4)] * scale;
  }
}

void read_floats(const SafetensorsEntry& entry, int64_t begin, int64_t count, float* out) {
  const int64_t width = entry.count == 0 ? 0 : entry.bytes / entry.count;
  SafetensorsEntry part = entry;
  part.count = count;
  part.bytes = count * width;
  part.offset += begin * width;
  part.data += begin * width;
  read_as_f32(part, out);
}

}  // namespace

StoredWeight find_stored_weight(const SafetensorsSet& set, const std::string& name,
                                const std::vector<int64_t>& dims) {
  const std::string base = base_of(name), values = base + ".weight", packed = values + "_packed";
  const bool matrix = dims.size() >= 2;
  const SafetensorsEntry* plain = set.find(name);
  if (plain == nullptr && matrix) {
    plain = set.find(values);
    if (const SafetensorsEntry* fours = set.find(packed); plain == nullptr && fours != nullptr)
      return as_mxfp4(set, *fours, base, dims);
  }
  if (plain == nullptr) {
    if (const SafetensorsEntry* scales = set.find(values + "_scale"); scales != nullptr) {
      throw_error(Code::kNotFound, "{}: {} is there, and no {}, {} or {} that it could scale",
                  scales->file, scales->name, name, values, packed);
    }
    plain = &set.get(name);  // says what is near
  }
  if (plain->type == "F8_E4M3" && matrix) return as_fp8(set, *plain, base, dims);
  expect_shape(*plain, dims);
  if (!is_float_type(plain->type)) {
    throw_error(Code::kInvalidArgument,
                "{}: {} is {}; supported are F32, F16, BF16 and F64, and matrices in F8_E4M3 with "
                "a weight_scale",
                plain->file, plain->name, plain->type);
  }
  return {.values = plain};
}

void read_stored_weight(const StoredWeight& w, int64_t begin, int64_t count, float* out) {
  if (w.form == StoredWeight::Form::kFloats) return read_floats(*w.values, begin, count, out);
  const int64_t in_row = (w.inputs + w.shared_inputs - 1) / w.shared_inputs;
  const int64_t matrix = w.rows * w.inputs;
  for (const int64_t all = begin + count; begin < all;) {
    const int64_t row = begin % matrix / w.inputs, input = begin % w.inputs;
    // To the end of what shares the scale, of the row, or of what is wanted.
    const int64_t shared = w.shared_inputs - input % w.shared_inputs;
    const int64_t end = std::min({all, begin + shared, begin + w.inputs - input});
    const int64_t scale = begin / matrix * w.scales_per_matrix + row / w.shared_rows * in_row +
                          input / w.shared_inputs;
    read_run(w, scale_at(w, scale), begin, end, out);
    out += end - begin;
    begin = end;
  }
}

}  // namespace moraine
