// ExpertGather: one all_gather of consecutive rows.
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

void ExpertGather::gather(const Tensor& y, const Tensor& rows) {
  const int64_t* begin = rows.as<int64_t>();
  const int64_t N = begin[num_experts_], D = y.dims[1];
  Shares shares;
  for (int m = 0; m < comm_->size(); ++m)
    shares.push_back({{begin[begin_of(m)] * D, begin[begin_of(m + 1)] * D}});
  all_gather(*comm_, y.rows(0, N).reshaped({N * D}), shares);
}

}  // namespace moraine
