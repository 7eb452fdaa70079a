// ThreadRanks: starts the threads and keeps the first Error.
#include "comm/thread_ranks.h"

#include <exception>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/thread.h"
#include "comm/host_transport.h"

namespace moraine {
namespace {

std::exception_ptr run_rank(HostTransport& transport,
                            const std::function<void(Transport& transport)>& body) {
  try {
    body(transport);
    return nullptr;
  } catch (const std::exception& e) {
    transport.fail(e.what());
    return std::current_exception();
  } catch (...) {
    transport.fail("an exception of another type than std::exception");
    return std::current_exception();
  }
}

}  // namespace

void run_thread_ranks(int ranks, const std::function<void(Transport& transport)>& body) {
  MR_CHECK(ranks >= 1, "ranks=%d", ranks);
  const auto region = HostRegion::make_private(ranks);
  std::vector<int> all;
  for (int r = 0; r < ranks; ++r) all.push_back(r);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks));
  const auto rank = [&](int r, const std::function<void(Transport & transport)>& run) {
    HostTransport::Options options;
    options.region = region;
    options.local = r;
    options.ranks = all;
    HostTransport transport(std::move(options));
    errors[static_cast<size_t>(r)] = run_rank(transport, run);
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    try {
      threads.push_back(start_thread("a rank", [&rank, &body, r] { rank(r, body); }));
    } catch (const Error& e) {
      // Those that run wait for this one: it ends in its place, with the error.
      rank(r, [&e](Transport&) { throw e; });
      break;
    }
  }
  for (std::thread& t : threads) t.join();
  const int first =
      region->head().fault.load() == FaultState::kSet ? region->head().fault_rank.load() : -1;
  if (first >= 0 && errors[static_cast<size_t>(first)] != nullptr)
    std::rethrow_exception(errors[static_cast<size_t>(first)]);
  for (const std::exception_ptr& e : errors) {
    if (e != nullptr) std::rethrow_exception(e);
  }
}

}  // namespace moraine
