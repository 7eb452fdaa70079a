// ExpertGather: one all_gather of consecutive rows, or their puts.
#include "parallel/expert_gather.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "comm/collectives.h"

namespace moraine {

ExpertGather::ExpertGather(Communicator& comm, int64_t num_experts, const GatherPlaces& places)
    : comm_(&comm),
      shape_{.experts = num_experts,
             .members = comm.size(),
             .slots = places.slots,
             .hosts = places.hosts},
      shuffled_(places.shuffled) {
  if (num_experts < comm.size())
    throw_error(Code::kInvalidArgument, "{} ranks for {} experts: wanted at most as many ranks",
                comm.size(), num_experts);
  const auto layers = static_cast<size_t>(places.layers);
  guests_.assign(layers, no_guests(shape_));
  routes_.assign(layers, split_routes(shape_, guests_[0]));
  cost_.assign(static_cast<size_t>(comm.size()), 1);
  take_work();
}

// Who computes what ---------------------------------------------------------------------------------

void ExpertGather::set_guests(int64_t layer, const GuestTable& guests) {
  guests_[static_cast<size_t>(layer)] = guests;
  routes_[static_cast<size_t>(layer)] = split_routes(shape_, guests);
}

void ExpertGather::stage(Arena& arena, DType dtype, int64_t rows, int64_t width) {
  choices_ = StagedRows(arena, "gather.choices", DType::kI32, rows, 1);
  if (shape_.slots > 0) groups_ = StagedRows(arena, "gather.groups", DType::kI32, rows, 1);
  answers_ = StagedRows(arena, "gather.answers", dtype, rows, width);
}

Tensor ExpertGather::split(Context& ctx, int64_t layer, const Tensor& expert, const Tensor& out) {
  const SplitRoutes& routes = routes_[static_cast<size_t>(layer)];
  const Tensor chosen = choices_.copy_out(ctx, expert, 0, expert.dims[0]);
  count(layer, chosen);
  if (shuffled_)
    shuffle_rows(shape_, routes, rows_, splits_++, &split_);
  else
    split_rows(shape_, routes, rows_, cost_, &split_);
  add_work();
  if (shape_.slots == 0) return expert;
  const Tensor group = out.rows(0, expert.dims[0]);
  const auto choices = static_cast<size_t>(expert.count());
  rows_to_groups(shape_, routes, split_, {chosen.as<int32_t>(), choices},
                 {groups_.place(group).as<int32_t>(), choices});
  groups_.copy_in(ctx, group, 0, group.dims[0]);
  return group;
}

void ExpertGather::count(int64_t layer, const Tensor& expert) {
  rows_.assign(static_cast<size_t>(shape_.experts), 0);
  const int32_t* of = expert.as<int32_t>();
  for (int64_t i = 0; i < expert.count(); ++i) {
    MR_CHECK(of[i] >= 0 && of[i] <= shape_.experts, "expert %d of %ld", of[i],
             long(shape_.experts));
    if (of[i] < shape_.experts) ++rows_[static_cast<size_t>(of[i])];
  }
  for (int64_t e = 0; e < shape_.experts; ++e)
    work_.expert_work[static_cast<size_t>(layer * shape_.experts + e)] +=
        work_of_rows(rows_[static_cast<size_t>(e)]);
}

void ExpertGather::add_work() {
  int64_t busiest = 0, home_busiest = 0;
  for (int64_t m = 0; m < shape_.members; ++m) {
    int64_t work = 0, home = 0;
    for (int64_t g = shape_.group_begin(m); g < shape_.group_begin(m + 1); ++g)
      work += work_of_rows(split_.rows[static_cast<size_t>(g)]);
    for (int64_t e = shape_.begin(m); e < shape_.begin(m + 1); ++e)
      home += work_of_rows(rows_[static_cast<size_t>(e)]);
    busiest = std::max(busiest, work);
    home_busiest = std::max(home_busiest, home);
    work_.home_all += home;
  }
  work_.busiest += busiest;
  work_.home_busiest += home_busiest;
}

void ExpertGather::computed(double seconds) {
  choices_.on_device() ? void(launched_seconds_ = seconds) : add_time(seconds);
}

void ExpertGather::add_time(double seconds) {
  const int64_t me = comm_->rank();
  int64_t rows = 0, work = 0;
  for (int64_t g = shape_.group_begin(me); g < shape_.group_begin(me + 1); ++g) {
    rows += split_.rows[static_cast<size_t>(g)];
    work += work_of_rows(split_.rows[static_cast<size_t>(g)]);
  }
  work_.work += work;
  work_.seconds += seconds;
  if (rows < kTimedRows) return;
  const double each = seconds / static_cast<double>(work);
  double& least = work_.least_row_seconds;
  least = least == 0 ? each : std::min(least, each);
}

GatherWork ExpertGather::take_work() {
  GatherWork fresh;
  fresh.expert_work.assign(routes_.size() * static_cast<size_t>(shape_.experts), 0);
  std::swap(work_, fresh);
  return fresh;
}

// Answers -------------------------------------------------------------------------------------------

// A member's groups stand where its experts would, among as many experts: m G / P = m E / P + m C.
SlotShape ExpertGather::slot_shape(int64_t rows, int64_t width, DType dtype) const {
  return {.experts = groups(), .rows = rows, .width = width, .dtype = dtype, .same_rows = true};
}

void ExpertGather::add_slots(int64_t rows, int64_t width, DType dtype) {
  slots_ = std::make_unique<ExpertSlots>(*comm_, slot_shape(rows, width, dtype));
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

void ExpertGather::gather(Context& ctx, const Tensor& y, const Tensor& rows) {
  if (takes_slots(y)) {
    slots_->share(rows);
    slots_->answers();  // where y is
    return;
  }
  const int64_t* begin = rows.as<int64_t>();
  const int64_t N = begin[groups()], D = y.dims[1], mine = begin[group_begin(comm_->rank())],
                next = begin[group_begin(comm_->rank() + 1)];
  Shares shares;
  for (int m = 0; m < comm_->size(); ++m)
    shares.push_back({{begin[group_begin(m)] * D, begin[group_begin(m + 1)] * D}});
  const double begin_seconds = now_seconds();
  const Tensor here = answers_.copy_out(ctx, y, mine, next);
  if (answers_.on_device()) add_time(launched_seconds_ + now_seconds() - begin_seconds);
  all_gather(*comm_, here.rows(0, N).reshaped({N * D}), shares);
  answers_.copy_in(ctx, y, 0, mine);
  answers_.copy_in(ctx, y, next, N);
}

}  // namespace moraine
