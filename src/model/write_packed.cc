// Rows of a pack are read, packed and handed on in pieces of whole panels.
#include "model/write_packed.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "kernels/ceil_div.h"
#include "kernels/elementwise.h"
#include "kernels/error_feedback.h"
#include "kernels/quantised.h"

namespace moraine {
namespace {

constexpr int64_t kPieceElements = int64_t{8} << 20;  // 32 MiB of f32

const PackType& type_of(const PackedToWrite& model, const PackSource& source) {
  const PackType* another =
      source.served ? model.matrix[static_cast<size_t>(*source.served)] : nullptr;
  return another != nullptr ? *another : type_of_pack(model.type, source);
}

// The bytes of one pack, from the first to the last.
class PackStream {
 public:
  PackStream(Context& ctx, const PackedToWrite& model, const PackSource& source)
      : ctx_(ctx),
        model_(model),
        source_(source),
        shape_(pack_shape(source, type_of(model, source))) {}

  void read(int64_t offset, int64_t bytes, void* out) {
    MR_CHECK(offset == given_, "byte %ld after %ld", long(offset), long(given_));
    given_ += bytes;
    copy(bytes, static_cast<uint8_t*>(out));
    if (given_ < pack_file_bytes(shape_)) return;
    rows_ = errors_ = scales_ = std::vector<float>();  // the next pack has its own
    piece_ = scratch_ = std::vector<uint8_t>();
  }

 private:
  void copy(int64_t bytes, uint8_t* to) {
    while (bytes > 0) {
      if (piece_at_ == piece_.size() && !next_piece()) {
        std::memset(to, 0, static_cast<size_t>(bytes));  // up to the page's end
        return;
      }
      const int64_t left = static_cast<int64_t>(piece_.size() - piece_at_);
      const int64_t count = std::min(bytes, left);
      std::memcpy(to, piece_.data() + piece_at_, static_cast<size_t>(count));
      piece_at_ += static_cast<size_t>(count);
      to += count, bytes -= count;
    }
  }

  bool next_piece() {
    const int64_t n = source_.n, k = source_.k, all = source_.groups * n;
    piece_at_ = 0;
    piece_.clear();
    if (row_ == all) return false;
    const int64_t most = std::max<int64_t>(1, kPieceElements / (kPackPanel * k)) * kPackPanel;
    const int64_t count = std::min(most, n - row_ % n);
    rows_.resize(static_cast<size_t>(count * k));
    const Tensor rows = make_tensor(rows_.data(), DType::kF32, {count, k});
    model_.weights(source_.begin + row_ * k, rows.reshaped({count * k}));
    if (shape_.format != WeightFormat::kPlain && !all_finite(ctx_, rows)) {
      throw_error(Code::kCorrupt,
                  "quantise {}: a weight of rows {} to {} is infinite or NaN, and has no integer; "
                  "take another checkpoint, or pack as bf16",
                  source_.name, row_, row_ + count - 1);
    }
    PackedMatrix piece = shape_;
    piece.groups = 1;
    piece.n = count;
    piece_.resize(static_cast<size_t>(packed_bytes(piece)));
    piece.data = piece_.data();
    const Tensor scales = feed_back(rows);
    pack_matrix(ctx_, {.packed = piece, .w = rows, .transpose = false, .scales = scales});
    row_ += count;
    return true;
  }

  // Rows of one group become multiples of the scales that are returned; or are left as they are, without any.
  Tensor feed_back(const Tensor& rows) {
    if (!model_.feedback || !has_few_bits(shape_.format)) return {};
    const Tensor factor = model_.feedback(source_, row_ / source_.n);
    if (factor.empty()) return {};
    const int64_t count = rows.dims[0], blocks = ceil_div(source_.k, kQuantisedBlock);
    errors_.resize(static_cast<size_t>(rows.count()));
    scales_.resize(static_cast<size_t>(count * blocks));
    scratch_.resize(static_cast<size_t>(feedback_scratch_bytes()));
    const Tensor scales = make_tensor(scales_.data(), DType::kF32, {count, blocks});
    feed_back_errors(
        ctx_, {.w = rows,
               .scales = scales,
               .factor = factor,
               .format = shape_.format,
               .errors = make_tensor(errors_.data(), DType::kF32, {rows.count()}),
               .scratch = make_tensor(scratch_.data(), DType::kU8, {feedback_scratch_bytes()})});
    return scales;
  }

  Context& ctx_;
  const PackedToWrite& model_;
  const PackSource source_;
  const PackedMatrix shape_;
  int64_t row_ = 0, given_ = 0;
  std::vector<float> rows_, errors_, scales_;
  std::vector<uint8_t> piece_, scratch_;
  size_t piece_at_ = 0;
};

// A vector as the kernels compute with it.
TensorBytes vector_bytes(const PackedToWrite& model, const Parameter& p) {
  const bool round = model.type.compute == DType::kBF16 && p.kind != Parameter::Kind::kBalance;
  return [&model, begin = p.offset, round](int64_t offset, int64_t bytes, void* out) {
    const int64_t count = bytes / 4;
    float* values = static_cast<float*>(out);
    model.weights(begin + offset / 4, make_tensor(values, DType::kF32, {count}));
    for (int64_t i = 0; round && i < count; ++i) values[i] = round_bf16(values[i]);
  };
}

// `bytes_of`: of a pack.
DirectoryContent content_of(const PackedToWrite& model,
                            const std::function<TensorBytes(const PackSource&)>& bytes_of) {
  ModelConfig printed = model.config;
  DirectoryContent content{.info = {},
                           .tensors = {},
                           .files = model.language_files,
                           .options = {.max_file_bytes = INT64_MAX, .page_bytes = kPackPage}};
  content.info.step = model.step;
  content.info.config = "[model]\n" + print_fields(model_fields(printed));
  content.info.values = {{kPackedTypeKey, model.type.name}};
  const ParameterTable table = build_parameters(model.config);
  std::vector<PackSource> sources = pack_sources(model.config, table);
  if (wants_embedding(type_of(model, sources.back())))
    sources.push_back(embedding_source(model.config, table));
  for (const PackSource& source : sources) {
    const std::string name = kPackPrefix + source.name;
    const PackType& type = type_of(model, source);
    content.info.values[name] = pack_text(source, type);
    const int64_t bytes = pack_file_bytes(pack_shape(source, type));
    content.tensors.push_back({name, make_tensor(nullptr, DType::kU8, {bytes}), bytes_of(source)});
  }
  content.info.values[kPackedLayoutKey] = packed_layout(content.info.values);
  for (const Parameter& p : table.all) {
    if (p.offset < table.matrix_count) continue;
    const Tensor t = view(p, make_tensor(nullptr, DType::kF32, {table.total_count}));
    content.tensors.push_back({kVectorPrefix + p.name, t, vector_bytes(model, p)});
  }
  return content;
}

}  // namespace

std::vector<PackSource> few_bit_sources(const PackedToWrite& model) {
  std::vector<PackSource> sources;
  for (PackSource& source : pack_sources(model.config, build_parameters(model.config))) {
    if (has_few_bits(type_of(model, source).format)) sources.push_back(std::move(source));
  }
  std::sort(sources.begin(), sources.end(),
            [](const PackSource& a, const PackSource& b) { return a.name < b.name; });
  return sources;
}

void check_packed_room(FileSystem& fs, const std::string& directory, const PackedToWrite& model) {
  check_room(fs, directory, content_of(model, [](const PackSource&) { return TensorBytes(); }));
}

void write_packed_model(Context& ctx, ModelPlace& place, const PackedToWrite& model) {
  DirectoryContent content = content_of(model, [&](const PackSource& source) -> TensorBytes {
    const auto stream = std::make_shared<PackStream>(ctx, model, source);
    return [stream](int64_t offset, int64_t count, void* out) { stream->read(offset, count, out); };
  });
  count_progress(content, model.progress);
  place.write(content);
}

void write_packed_model(Context& ctx, FileSystem& fs, const std::string& directory,
                        const PackedToWrite& model) {
  check_packed_room(fs, directory, model);
  ModelPlace place(fs, directory);
  write_packed_model(ctx, place, model);
}

}  // namespace moraine
