// ExpertGather: one all_gather of consecutive rows, or their puts.
#include "parallel/expert_gather.h"

#include "base/error.h"
#include "comm/collectives.h"

namespace moraine {

ExpertGather::ExpertGather(Communicator& comm, int64_t num_experts)
    : comm_(&comm), num_experts_(num_experts) {
  if (num_experts >= comm.size()) return;
  throw_error(Code::kInvalidArgument, "{} ranks for {} experts: wanted at most as many ranks",
              comm.size(), num_experts);
}

void ExpertGather::add_slots(int64_t rows, int64_t width, DType dtype) {
  slots_ = std::make_unique<ExpertSlots>(*comm_, SlotShape{.experts = num_experts_,
                                                           .rows = rows,
                                                           .width = width,
                                                           .dtype = dtype,
                                                           .same_rows = true});
}

void ExpertGather::use_slots(int64_t rows) {
  MR_CHECK(rows >= 0 && (rows == 0 || (slots_ != nullptr && rows <= slots_->shape().rows)),
           "%ld rows", long(rows));
  slot_rows_ = rows;
}

void ExpertGather::settle() {
  if (slots_ != nullptr) slots_->settle();
}

Tensor ExpertGather::place(const Tensor& y) {
  return takes_slots(y) ? slots_->place(y.dims[0]) : y;
}

void ExpertGather::gather(const Tensor& y, const Tensor& rows) {
  if (takes_slots(y)) {
    slots_->share(rows);
    slots_->answers();  // where y is
    return;
  }
  const int64_t* begin = rows.as<int64_t>();
  const int64_t N = begin[num_experts_], D = y.dims[1];
  Shares shares;
  for (int m = 0; m < comm_->size(); ++m)
    shares.push_back({{begin[expert_begin(m)] * D, begin[expert_begin(m + 1)] * D}});
  all_gather(*comm_, y.rows(0, N).reshaped({N * D}), shares);
}

}  // namespace moraine
