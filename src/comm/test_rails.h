// TestRails: ranks as threads of a test, each with rails of its own to all others, over addresses of this host.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/rails/rail_address.h"
#include "comm/rails_transport.h"

namespace moraine {

inline RailsOptions test_rails(int rank, int ranks, int rails, const std::string& rendezvous) {
  RailsOptions options;
  options.rank = rank;
  options.ranks = ranks;
  options.rendezvous = rendezvous;
  for (int i = 0; i < rails; ++i)
    options.rails.push_back(fmt::format("127.0.{}.{}", i + 1, rank + 1));
  options.start_seconds = 60;
  return options;
}

// Calls body on every rank; each rank's Error text, "" if it ended well.
inline std::vector<std::string> run_with_rails(
    int ranks, const std::function<RailsOptions(int rank)>& options_of,
    const std::function<void(Transport& transport)>& body) {
  setenv("MORAINE_HOST_MEMORY", "off", 1);
  std::vector<std::string> texts(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      std::unique_ptr<Transport> transport;
      try {
        transport = open_rails_transport(options_of(r));
        body(*transport);
      } catch (const std::exception& e) {
        texts[static_cast<size_t>(r)] = e.what();
        if (transport != nullptr) transport->fail(e.what());
      }
    });
  }
  for (std::thread& t : threads) t.join();
  unsetenv("MORAINE_HOST_MEMORY");
  return texts;
}

inline std::vector<std::string> run_on_rails(
    int ranks, int rails, const std::function<void(Transport& transport)>& body) {
  const std::string rendezvous = free_local_address();
  const auto options_of = [&](int rank) { return test_rails(rank, ranks, rails, rendezvous); };
  return run_with_rails(ranks, options_of, body);
}

}  // namespace moraine
