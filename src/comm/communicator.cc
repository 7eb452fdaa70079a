// Communicator: keeps the ranks of a group and counts its operations.
#include "comm/communicator.h"

#include <algorithm>

#include "base/check.h"
#include "comm/label.h"

namespace moraine {

Communicator::Communicator(Transport& transport, std::vector<int> ranks, int channel,
                           std::string name, double deadline_seconds)
    : transport_(&transport),
      ranks_(std::move(ranks)),
      channel_(channel),
      name_(std::move(name)),
      deadline_(deadline_seconds) {
  MR_CHECK(channel >= 0 && channel < kMaxChannels, "channel=%d", channel);
  MR_CHECK(std::is_sorted(ranks_.begin(), ranks_.end()));
  const auto found = std::find(ranks_.begin(), ranks_.end(), transport.rank());
  MR_CHECK(found != ranks_.end(), "rank %d is not in %s", transport.rank(), name_.c_str());
  rank_ = static_cast<int>(found - ranks_.begin());
  for (const int r : ranks_)
    one_host_ = one_host_ && transport.host_of(r) == transport.host_of(ranks_.front());
  transport.name_channel(channel, name_);
}

uint64_t Communicator::next_label(int operation) {
  return make_label(step_, ++operations_, static_cast<Operation>(operation));
}

}  // namespace moraine
