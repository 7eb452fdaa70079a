// SavedRows: computes a rank's rows from offsets in the flat buffer.
#include "train/saved_rows.h"

#include <algorithm>

#include "model/model_directory.h"

namespace moraine {
namespace {

using Kind = Parameter::Kind;

TensorRows rows_of(const Parameter& p, const Tensor& master, int64_t begin, int64_t end) {
  return {.name = kWeightPrefix + p.name,
          .local = view(p, master).rows(begin, end),
          .shape = p.global_dims(),
          .row_begin = p.row_begin + begin};
}

// The first row that starts at or after element `at` of the flat buffer.
int64_t row_at(const Parameter& p, int64_t at) {
  const int64_t row = p.count() / p.dims[0];
  return std::clamp<int64_t>((at - p.offset + row - 1) / row, 0, p.dims[0]);
}

// Every parameter's state has the parameter's name and one more word.
const Parameter& owner(const ParameterTable& table, const std::string& name) {
  const Parameter* p = table.find(name.substr(0, name.rfind('.')));
  MR_CHECK(p != nullptr, "%s", name.c_str());
  return *p;
}

}  // namespace

std::vector<TensorRows> weights_to_write(const ParameterTable& table, const Tensor& master,
                                         const Mesh& mesh) {
  const int64_t copies = mesh.ranks / mesh.expert, copy = mesh.rank / mesh.expert;
  // Elements that every rank has, laid end to end: before the experts, and after.
  const int64_t shared = table.total_count - table.expert_count();
  const auto border = [&](int64_t rank) {
    const int64_t at = shared / mesh.ranks * rank;
    return rank == mesh.ranks        ? table.total_count
           : at < table.expert_begin ? at
                                     : at + table.expert_count();
  };
  std::vector<TensorRows> tensors;
  for (const Parameter& p : table.all) {
    int64_t begin = row_at(p, border(mesh.rank)), end = row_at(p, border(mesh.rank + 1));
    if (p.kind == Kind::kExperts) {
      begin = p.dims[0] * copy / copies;
      end = p.dims[0] * (copy + 1) / copies;
    }
    if (begin < end) tensors.push_back(rows_of(p, master, begin, end));
  }
  return tensors;
}

std::vector<TensorRows> weights_to_read(const ParameterTable& table, const Tensor& master) {
  std::vector<TensorRows> tensors;
  for (const Parameter& p : table.all) tensors.push_back(rows_of(p, master, 0, p.dims[0]));
  return tensors;
}

std::vector<TensorRows> optimizer_rows(const ParameterTable& table,
                                       const std::vector<OptimizerTensor>& state, const Mesh& mesh,
                                       bool writes) {
  std::vector<TensorRows> tensors;
  for (const OptimizerTensor& t : state) {
    const Parameter& p = owner(table, t.name);
    if (p.kind == Kind::kBalance && writes && mesh.rank != 0) continue;
    const int64_t row = p.count() / p.dims[0];  // elements
    TensorRows s{.name = "optimizer." + t.name,
                 .local = t.tensor,
                 .shape = p.global_dims(),
                 .row_begin = t.element_begin};
    if (p.kind == Kind::kBalance) {
      s.shape = {t.tensor.dims[0], t.tensor.dims[1]};
    } else if (t.tensor.rank == 1) {  // AdamW: element after element
      s.shape = {p.kind == Kind::kExperts ? p.rows_all * row : t.elements_all};
      s.row_begin += p.row_begin * row;
    } else if (p.kind == Kind::kExperts) {  // momentum, expert after expert
      s.local = t.tensor.reshaped({t.tensor.count() / row, p.dims[1], p.dims[2]});
      s.row_begin = p.row_begin + t.element_begin / row;
    }
    tensors.push_back(s);
  }
  return tensors;
}

}  // namespace moraine
