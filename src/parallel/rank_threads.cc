// RankThreads: ranks tell each other which cores they may use.
#include "parallel/rank_threads.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/pool.h"
#include "comm/collectives.h"

namespace moraine {

int rank_threads(int64_t wanted, Communicator& world) {
  const Transport& transport = world.transport();
  const std::string mine =
      fmt::format("host {} cores {}", transport.host_of(transport.rank()), core_mask());
  const std::vector<std::string> all = all_gather_text(world, mine);
  const int sharing = static_cast<int>(std::count(all.begin(), all.end(), mine));
  return wanted > 0 ? static_cast<int>(wanted) : std::max(1, usable_cores() / sharing);
}

}  // namespace moraine
