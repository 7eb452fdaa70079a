// GradientNorm: numbers all blocks once; a step squares the owned ones, gathers and adds.
#include "train/gradient_norm.h"

#include <algorithm>

namespace moraine {

GradientNorm::GradientNorm(const ParameterTable& table)
    : table_(&table), places_(table.all.size()) {
  int64_t next = 0;
  for (const bool experts : {false, true}) {
    for (size_t i = 0; i < table.all.size(); ++i) {
      const Parameter& p = table.all[i];
      if ((p.kind == Parameter::Kind::kExperts) != experts) continue;
      const int64_t units = experts ? p.rows_all : 1, held = experts ? p.dims[0] : 1;
      const int64_t blocks = (p.count() / held + kShareBlock - 1) / kShareBlock;
      places_[i] = {.first = next, .per_unit = blocks, .unit_begin = p.row_begin};
      next += units * blocks;
    }
  }
  all_.resize(static_cast<size_t>(next));
}

void GradientNorm::own(const std::vector<ParameterSpec>& specs,
                       const std::vector<OwnedRange>& owned) {
  for (const OwnedRange& r : owned) {
    const ParameterSpec& s = specs[static_cast<size_t>(r.spec)];
    const Parameter* p = table_->find(s.name);
    const Place& place = places_[static_cast<size_t>(p - table_->all.data())];
    const int64_t per = p->kind == Parameter::Kind::kExperts ? p->count() / p->dims[0] : p->count();
    for (int64_t at = r.begin; at < r.end;) {
      const int64_t unit = (at - s.offset) / per, in_unit = (at - s.offset) % per;
      MR_CHECK(in_unit % kShareBlock == 0, "%s: %ld", s.name.c_str(), long(in_unit));
      const int64_t end = std::min(at + kShareBlock, s.offset + (unit + 1) * per);
      MR_CHECK(end <= r.end, "%s: [%ld, %ld)", s.name.c_str(), long(r.begin), long(r.end));
      ranges_.push_back({at, end});
      index_.push_back(place.first + (place.unit_begin + unit) * place.per_unit +
                       in_unit / kShareBlock);
      at = end;
    }
  }
  sums_.resize(ranges_.size());
}

double GradientNorm::sum_of_squares(Context& ctx, const Tensor& gradients, Communicator& world) {
  squares_of_ranges(ctx, {.sums = sums_, .x = gradients, .ranges = ranges_});
  std::fill(all_.begin(), all_.end(), 0.0);
  for (size_t j = 0; j < index_.size(); ++j) all_[static_cast<size_t>(index_[j])] = sums_[j];
  all_reduce_disjoint(world, all_);
  double total = 0;
  for (const double sum : all_) total += sum;
  return total;
}

}  // namespace moraine
