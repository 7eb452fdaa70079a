// Optimizer: sorts the parameters by rule once, so that a step is three calls.
#include "optim/optimizer.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/check_tensor.h"
#include "kernels/host_copy.h"

namespace moraine {
namespace {

using Rule = ParameterSpec::Rule;

void check_option(const char* name, double found, bool good, const char* wanted) {
  if (!good)
    throw_error(Code::kInvalidArgument, "optimizer: {} is {}, wanted {}", name, found, wanted);
}

bool fraction(double x) { return x >= 0 && x < 1; }  // false for NaN

void check_specs(std::span<const ParameterSpec> specs) {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const ParameterSpec& s : specs) {
    MR_CHECK(s.offset >= 0 && s.count >= 0, "%s", s.name.c_str());
    const bool shaped = s.rule == Rule::kMuon || s.rule == Rule::kBalance;
    MR_CHECK(!shaped || s.count == s.matrices * s.rows * s.cols, "%s: %ld x %ld x %ld is not %ld",
             s.name.c_str(), long(s.matrices), long(s.rows), long(s.cols), long(s.count));
    if (s.count > 0) ranges.emplace_back(s.offset, s.offset + s.count);
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    MR_CHECK(ranges[i - 1].second <= ranges[i].first, "parameters overlap at %ld",
             long(ranges[i].first));
  }
}

// Keeps what the share owns; state offsets become those of the share's own, smaller buffers.
OptimizerLayout restrict(const OptimizerLayout& whole, const OptimizerShare& share) {
  OptimizerLayout own = whole;
  own.matrices.clear(), own.matrix_spec.clear(), own.ranges.clear(), own.range_spec.clear();
  own.momentum_elements = own.adamw_elements = 0;
  MR_CHECK(std::is_sorted(share.matrices.begin(), share.matrices.end()));
  for (const int64_t index : share.matrices) {
    MuonMatrix matrix = whole.matrices.at(static_cast<size_t>(index));
    matrix.momentum_offset = own.momentum_elements;
    own.momentum_elements += matrix.rows * matrix.cols;
    own.matrices.push_back(matrix);
    own.matrix_spec.push_back(whole.matrix_spec[static_cast<size_t>(index)]);
  }
  for (size_t i = 0; i < whole.ranges.size(); ++i) {
    AdamWRange range = whole.ranges[i];
    const int64_t begin = std::max(range.state_offset, share.adamw_begin);
    const int64_t end = std::min(range.state_offset + range.count, share.adamw_end);
    if (begin >= end) continue;
    range.offset += begin - range.state_offset;
    range.count = end - begin;
    range.state_offset = own.adamw_elements;
    own.adamw_elements += range.count;
    own.ranges.push_back(range);
    own.range_spec.push_back(whole.range_spec[i]);
  }
  return own;
}

// Elements [begin, begin + count) of a flat state buffer.
Tensor view(const Tensor& flat, int64_t begin, std::initializer_list<int64_t> dims) {
  uint8_t* data = static_cast<uint8_t*>(flat.data);
  return make_tensor(data == nullptr ? nullptr : data + begin * dtype_bytes(flat.dtype), flat.dtype,
                     dims);
}

std::string fold_digits(const std::string& name) {
  std::string folded;
  for (const char c : name) {
    const bool digit = c >= '0' && c <= '9';
    const bool in_number = !folded.empty() && (folded.back() == '.' || folded.back() == '*');
    if (!digit || !in_number)
      folded += c;
    else if (folded.back() == '.')
      folded += '*';
  }
  return folded;
}

struct TableRow {
  std::string name, rule, lr, decay;
  int64_t tensors = 0, elements = 0;
};

TableRow table_row(const ParameterSpec& s, const OptimizerOptions& o) {
  TableRow row{.name = fold_digits(s.name), .rule = "frozen", .lr = "-", .decay = "-"};
  const auto fill = [&](const char* rule, double lr, double decay) {
    row.rule = rule;
    row.lr = fmt::format("{:.3g}", lr * s.lr_scale);
    if (s.weight_decay && decay > 0) row.decay = fmt::format("{:.3g}", decay);
  };
  if (s.rule == Rule::kMuon) fill("muon", o.muon.lr, o.muon.weight_decay);
  if (s.rule == Rule::kAdamW) fill("adamw", o.adamw.lr, o.adamw.weight_decay);
  if (s.rule == Rule::kBalance) fill("balance", o.balance.lr, 0);
  return row;
}

}  // namespace

void check_options(const OptimizerOptions& options) {
  const MuonOptions& m = options.muon;
  const AdamWOptions& a = options.adamw;
  const BalanceOptions& b = options.balance;
  check_option("muon learning rate", m.lr, m.lr >= 0 && m.lr < 1e3, "0 to 1000");
  check_option("muon momentum", m.momentum, fraction(m.momentum), "0 or more, below 1");
  check_option("muon weight decay", m.weight_decay, m.weight_decay >= 0 && m.weight_decay < 1e3,
               "0 to 1000");
  check_option("muon Newton-Schulz steps", m.ns_steps, m.ns_steps >= 1 && m.ns_steps <= 20,
               "1 to 20");
  const auto float_type = [](DType type) { return type == DType::kF32 || type == DType::kBF16; };
  if (!float_type(m.ns_dtype) || !float_type(m.momentum_dtype)) {
    throw_error(Code::kInvalidArgument, "optimizer: muon types are {} and {}, wanted f32 or bf16",
                dtype_name(m.ns_dtype), dtype_name(m.momentum_dtype));
  }
  check_option("adamw learning rate", a.lr, a.lr >= 0 && a.lr < 1e3, "0 to 1000");
  check_option("adamw beta1", a.beta1, fraction(a.beta1), "0 or more, below 1");
  check_option("adamw beta2", a.beta2, fraction(a.beta2), "0 or more, below 1");
  check_option("adamw eps", a.eps, a.eps >= 1e-30 && a.eps < 1, "1e-30 to 1");
  check_option("adamw weight decay", a.weight_decay, a.weight_decay >= 0 && a.weight_decay < 1e3,
               "0 to 1000");
  check_option("balance learning rate", b.lr, b.lr >= 0 && b.lr < 1e3, "0 to 1000");
  check_option("balance beta1", b.beta1, fraction(b.beta1), "0 or more, below 1");
  check_option("balance beta2", b.beta2, fraction(b.beta2), "0 or more, below 1");
  check_option("balance eps", b.eps, b.eps >= 1e-30 && b.eps < 1, "1e-30 to 1");
}

OptimizerLayout optimizer_layout(std::span<const ParameterSpec> specs) {
  check_specs(specs);
  OptimizerLayout layout;
  for (size_t i = 0; i < specs.size(); ++i) {
    const ParameterSpec& s = specs[i];
    const int64_t index = static_cast<int64_t>(i), matrix = s.rows * s.cols;
    if (s.rule == Rule::kMuon) {
      for (int64_t k = 0; k < s.matrices; ++k) {
        layout.matrices.push_back({.offset = s.offset + k * matrix,
                                   .momentum_offset = layout.momentum_elements,
                                   .rows = s.rows,
                                   .cols = s.cols,
                                   .lr_scale = s.lr_scale,
                                   .weight_decay = s.weight_decay});
        layout.matrix_spec.push_back(index);
        layout.momentum_elements += matrix;
      }
    } else if (s.rule == Rule::kAdamW) {
      layout.ranges.push_back({.offset = s.offset,
                               .state_offset = layout.adamw_elements,
                               .count = s.count,
                               .lr_scale = s.lr_scale,
                               .weight_decay = s.weight_decay});
      layout.range_spec.push_back(index);
      layout.adamw_elements += s.count;
    } else if (s.rule == Rule::kBalance) {
      MR_CHECK(layout.balance_rows == 0 || layout.balance_cols == s.cols, "%s", s.name.c_str());
      layout.balance_spec.push_back(index);
      layout.balance_rows += s.matrices * s.rows;
      layout.balance_cols = s.cols;
    }
  }
  return layout;
}

Optimizer::Optimizer(std::span<const ParameterSpec> specs, const OptimizerOptions& options,
                     int threads, Arena& arena, const OptimizerShare& share)
    : specs_(specs.begin(), specs.end()), options_(options), layout_(optimizer_layout(specs)) {
  check_options(options);
  if (!share.everything) layout_ = restrict(layout_, share);
  momentum_ = arena.take("optimizer.momentum", "optimizer", options.muon.momentum_dtype,
                         {layout_.momentum_elements});
  m_ = arena.take("optimizer.adamw_m", "optimizer", DType::kF32, {layout_.adamw_elements});
  v_ = arena.take("optimizer.adamw_v", "optimizer", DType::kF32, {layout_.adamw_elements});
  balance_m_ = arena.take("optimizer.balance_m", "optimizer", DType::kF32,
                          {layout_.balance_rows, layout_.balance_cols});
  balance_v_ = arena.take("optimizer.balance_v", "optimizer", DType::kF32,
                          {layout_.balance_rows, layout_.balance_cols});
  balance_m_host_ = balance_m_, balance_v_host_ = balance_v_;
  if (arena.on_device()) {
    for (Tensor* t : {&bias_host_, &balance_m_host_, &balance_v_host_})
      *t = arena.take_host("optimizer.balance_host", "optimizer", DType::kF32,
                           {layout_.balance_rows, layout_.balance_cols});
  }
  const int at_once = arena.on_device() ? 1 : threads;  // matrices
  scratch_ = arena.take("optimizer.scratch", "scratch", DType::kU8,
                        {muon_scratch_bytes(layout_.matrices, options.muon.ns_dtype, at_once)});
}

void Optimizer::step(Context& ctx, const OptimizerStep& a) {
  MR_CHECK(a.step >= 1, "step=%ld", long(a.step));
  muon_step(ctx, {.weights = a.weights,
                  .momentum = momentum_,
                  .scratch = scratch_,
                  .gradients = a.gradients,
                  .matrices = layout_.matrices,
                  .gradient_scale = a.gradient_scale,
                  .lr = options_.muon.lr * a.lr_scale,
                  .options = options_.muon});
  adamw_step(ctx, {.weights = a.weights,
                   .m = m_,
                   .v = v_,
                   .gradients = a.gradients,
                   .ranges = layout_.ranges,
                   .gradient_scale = a.gradient_scale,
                   .lr = options_.adamw.lr * a.lr_scale,
                   .step = a.step,
                   .options = options_.adamw,
                   .seen = a.seen});
  if (layout_.balance_rows > 0) balance(ctx, a);
}

void Optimizer::balance(Context& ctx, const OptimizerStep& a) {
  check_tensor(a.load, "load", DType::kI64, {layout_.balance_rows, layout_.balance_cols});
  copy_out(ctx, balance_m_host_, balance_m_);
  copy_out(ctx, balance_v_host_, balance_v_);
  int64_t row = 0;
  for (const int64_t index : layout_.balance_spec) {
    const ParameterSpec& s = specs_[static_cast<size_t>(index)];
    const int64_t rows = s.matrices * s.rows;
    const Tensor there = view(a.weights, s.offset, {rows, s.cols}),
                 bias = bias_host_.empty() ? there : bias_host_.rows(row, row + rows);
    copy_out(ctx, bias, there);
    balance_step({.bias = bias,
                  .m = balance_m_host_.rows(row, row + rows),
                  .v = balance_v_host_.rows(row, row + rows),
                  .load = a.load.rows(row, row + rows),
                  .lr = options_.balance.lr * s.lr_scale,
                  .step = a.step,
                  .options = options_.balance});
    copy_in(ctx, there, bias);
    row += rows;
  }
  copy_in(ctx, balance_m_, balance_m_host_);
  copy_in(ctx, balance_v_, balance_v_host_);
}

std::vector<OptimizerTensor> Optimizer::state() const {
  std::vector<OptimizerTensor> all;
  for (size_t i = 0; i < layout_.matrices.size();) {  // neighbours of one parameter are one tensor
    const MuonMatrix& first = layout_.matrices[i];
    const int64_t spec = layout_.matrix_spec[i], matrix = first.rows * first.cols;
    const ParameterSpec& s = specs_[static_cast<size_t>(spec)];
    int64_t n = 1;
    while (i + static_cast<size_t>(n) < layout_.matrices.size() &&
           layout_.matrix_spec[i + static_cast<size_t>(n)] == spec &&
           layout_.matrices[i + static_cast<size_t>(n)].offset == first.offset + n * matrix) {
      ++n;
    }
    const Tensor tensor = s.matrices == 1
                              ? view(momentum_, first.momentum_offset, {s.rows, s.cols})
                              : view(momentum_, first.momentum_offset, {n, s.rows, s.cols});
    all.push_back({.name = s.name + ".momentum",
                   .tensor = tensor,
                   .element_begin = first.offset - s.offset,
                   .elements_all = s.count});
    i += static_cast<size_t>(n);
  }
  for (size_t i = 0; i < layout_.ranges.size(); ++i) {
    const AdamWRange& range = layout_.ranges[i];
    const ParameterSpec& s = specs_[static_cast<size_t>(layout_.range_spec[i])];
    const int64_t begin = range.offset - s.offset;
    all.push_back({s.name + ".m", view(m_, range.state_offset, {range.count}), begin, s.count});
    all.push_back({s.name + ".v", view(v_, range.state_offset, {range.count}), begin, s.count});
  }
  int64_t row = 0;
  for (const int64_t index : layout_.balance_spec) {
    const ParameterSpec& s = specs_[static_cast<size_t>(index)];
    const int64_t rows = s.matrices * s.rows;
    all.push_back({s.name + ".m", balance_m_.rows(row, row + rows), 0, s.count});
    all.push_back({s.name + ".v", balance_v_.rows(row, row + rows), 0, s.count});
    row += rows;
  }
  return all;
}

double Optimizer::flops() const {
  double total = 0;
  for (const MuonMatrix& m : layout_.matrices)
    total += muon_flops(m.rows, m.cols, options_.muon.ns_steps);
  return total;
}

std::string optimizer_table(std::span<const ParameterSpec> specs, const OptimizerOptions& options) {
  std::vector<TableRow> rows;
  int64_t total = 0;
  size_t width = 9;
  for (const ParameterSpec& s : specs) {
    TableRow row = table_row(s, options);
    const auto same = [&](const TableRow& r) {
      return r.name == row.name && r.rule == row.rule && r.lr == row.lr && r.decay == row.decay;
    };
    auto found = std::find_if(rows.begin(), rows.end(), same);
    if (found == rows.end()) found = rows.insert(rows.end(), row);
    ++found->tensors;
    found->elements += s.count;
    total += s.count;
    width = std::max(width, row.name.size());
  }
  const auto line = [&](const std::string& name, const std::string& rule,
                        const std::string& tensors, const std::string& elements,
                        const std::string& lr, const std::string& decay) {
    return fmt::format("  {:<{}}  {:<8} {:>7} {:>14} {:>10} {:>6}\n", name, width, rule, tensors,
                       elements, lr, decay);
  };
  std::string text = line("parameter", "rule", "tensors", "elements", "lr", "decay");
  for (const TableRow& r : rows) {
    text +=
        line(r.name, r.rule, std::to_string(r.tensors), std::to_string(r.elements), r.lr, r.decay);
  }
  return text + line("total", "", std::to_string(specs.size()), std::to_string(total), "", "");
}

}  // namespace moraine
