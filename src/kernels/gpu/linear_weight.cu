// LinearWeight, device side: walk the rows of a group, columns of dy against columns of x, and add.
#include "kernels/gpu/linear_weight.h"
#include "kernels/gpu/tile.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

static_assert(kLinearRows == kLinearOutputs, "dy and x are loaded by one function");
// Of a row in shared memory: the next one begins in other banks.
constexpr int kColumnStride = kLinearOutputs + 8, kColumnShared = kLinearDepth * kColumnStride;

// Outputs [output, output + 64) by inputs [input, input + 64) of a group.
struct WeightBlock {
  int64_t group, row_begin, row_end, output, input;
};

MR_DEVICE WeightBlock weight_block(const LinearWeightArgs& a) {
  const int64_t tiles = (a.n + kLinearOutputs - 1) / kLinearOutputs, group = block_y() / tiles;
  return {group, load(a.rows + group), load(a.rows + (group + 1)),
          block_y() % tiles * kLinearOutputs, block_x() * kLinearOutputs};
}

// Columns [begin, begin + 64) of a matrix [.., width], rows [row, row + 32) of those before row_end; zeros elsewhere.
template <class E>
struct MatrixColumns {
  const E* data;
  int64_t row_end, width, begin;
};
template <class E>
MR_DEVICE void load_columns(Shared<E> to, const MatrixColumns<E>& from, int64_t row, int threads) {
  for (int i = thread(); i < kLinearDepth * kLinearOutputs; i += threads) {
    const int64_t t = row + i / kLinearOutputs, column = from.begin + i % kLinearOutputs;
    const bool inside = t < from.row_end && column < from.width;
    store(to + (i / kLinearOutputs * kColumnStride + i % kLinearOutputs),
          inside ? load(from.data + (t * from.width + column)) : E{});
  }
}

// The gradient of the bias, of the first block of inputs: a thread takes an output.
MR_DEVICE bool has_bias(const LinearWeightArgs& a, const WeightBlock& b) {
  return a.dbias != nullptr && b.input == 0 && thread() < kLinearOutputs;
}
template <class E>
MR_DEVICE float add_bias(float sum, Shared<E> dy) {
  for (int t = 0; t < kLinearDepth; ++t) sum += widen(load(dy + (t * kColumnStride + thread())));
  return sum;
}
MR_DEVICE void store_bias(const LinearWeightArgs& a, const WeightBlock& b, float sum) {
  const int64_t output = b.output + thread(), at = b.group * a.n + output;
  if (has_bias(a, b) && output < a.n) store(a.dbias + at, load(a.dbias + at) + sum);
}

MR_DEVICE void add_weight(const LinearWeightArgs& a, const WeightBlock& b, int row, int column,
                          float v) {
  const int64_t output = b.output + row, input = b.input + column;
  if (output >= a.n || input >= a.k) return;
  float* const at = a.dw + ((b.group * a.n + output) * a.k + input);
  store(at, load(at) + v);
}

// A quarter of the block for each wave: 2 x 2 tiles.
MR_DEVICE void multiply_columns(SumTile (&sum)[2][2], Shared<BF16> dy, Shared<BF16> x) {
  const int quarter = thread() / kWave;
  const Shared<BF16> outputs = dy + quarter / 2 * 2 * kTile, inputs = x + quarter % 2 * 2 * kTile;
  MR_UNROLL for (int begin = 0; begin < kLinearDepth; begin += kTile) {
    LeftTile left[2];
    RightTile right[2];
    MR_UNROLL for (int t = 0; t < 2; ++t) {
      left[t] = left_tile([&](int i, int row) {
        return load(outputs + ((begin + row) * kColumnStride + t * kTile + i));
      });
      right[t] = right_tile([&](int row, int j) {
        return load(inputs + ((begin + row) * kColumnStride + t * kTile + j));
      });
    }
    MR_UNROLL for (int i = 0; i < 2; ++i) {
      MR_UNROLL for (int j = 0; j < 2; ++j) multiply_add(sum[i][j], left[i], right[j]);
    }
  }
}

MR_DEVICE void weight_tiles(const LinearWeightArgs& a) {
  MR_SHARED(BF16, dy, kColumnShared);
  MR_SHARED(BF16, x, kColumnShared);
  const WeightBlock b = weight_block(a);
  if (b.row_begin == b.row_end) return;
  const MatrixColumns<BF16> outputs = {static_cast<const BF16*>(a.dy), b.row_end, a.n, b.output};
  const MatrixColumns<BF16> inputs = {static_cast<const BF16*>(a.x), b.row_end, a.k, b.input};
  SumTile sum[2][2] = {};
  float bias = 0;
  for (int64_t t = b.row_begin; t < b.row_end; t += kLinearDepth) {
    load_columns<BF16>(dy, outputs, t, kLinearWaves * kWave);
    load_columns<BF16>(x, inputs, t, kLinearWaves * kWave);
    sync_block();
    multiply_columns(sum, dy, x);
    if (has_bias(a, b)) bias = add_bias<BF16>(bias, dy);
    sync_block();
  }
  const int quarter = thread() / kWave;
  MR_UNROLL for (int i = 0; i < 4; ++i) {
    const int row = (quarter / 2 * 2 + i / 2) * kTile, column = (quarter % 2 * 2 + i % 2) * kTile;
    each_sum(sum[i / 2][i % 2],
             [&](int r, int c, float v) { add_weight(a, b, row + r, column + c, v); });
  }
  store_bias(a, b, bias);
}

// 4 x 4 elements for each thread.
MR_DEVICE void weight_fused(const LinearWeightArgs& a) {
  MR_SHARED(float, dy, kColumnShared);
  MR_SHARED(float, x, kColumnShared);
  const WeightBlock b = weight_block(a);
  if (b.row_begin == b.row_end) return;
  const MatrixColumns<float> outputs = {static_cast<const float*>(a.dy), b.row_end, a.n, b.output};
  const MatrixColumns<float> inputs = {static_cast<const float*>(a.x), b.row_end, a.k, b.input};
  const int row = thread() / 16 * 4, column = thread() % 16 * 4;
  float sum[4][4] = {};
  float bias = 0;
  for (int64_t begin = b.row_begin; begin < b.row_end; begin += kLinearDepth) {
    load_columns<float>(dy, outputs, begin, kLinearThreadsF32);
    load_columns<float>(x, inputs, begin, kLinearThreadsF32);
    sync_block();
    for (int t = 0; t < kLinearDepth; ++t) {
      float left[4], right[4];
      MR_UNROLL for (int i = 0; i < 4; ++i) {
        left[i] = load(dy + (t * kColumnStride + row + i));
        right[i] = load(x + (t * kColumnStride + column + i));
      }
      MR_UNROLL for (int i = 0; i < 16; ++i) {
        sum[i / 4][i % 4] = fused(left[i / 4], right[i % 4], sum[i / 4][i % 4]);
      }
    }
    if (has_bias(a, b)) bias = add_bias<float>(bias, dy);
    sync_block();
  }
  MR_UNROLL for (int i = 0; i < 16; ++i) {
    add_weight(a, b, row + i / 4, column + i % 4, sum[i / 4][i % 4]);
  }
  store_bias(a, b, bias);
}

MR_KERNEL(linear_weight_bf16, kLinearWaves* kWave, LinearWeightArgs a) { weight_tiles(a); }
MR_KERNEL(linear_weight_f32, kLinearThreadsF32, LinearWeightArgs a) { weight_fused(a); }

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
