// Hosts of the supervisor's settings: what fits and what is said of the rest.
#include "supervisor/supervise_config.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace moraine {
namespace {

SuperviseOptions read(const std::string& text) {
  return read_supervise_config(SettingsTable::parse("[supervise]\n" + text, "test")).decide;
}

std::string problem_of(const std::string& text) {
  try {
    check_hosts(read(text));
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(SuperviseHosts, OneThatFitsIsTaken) {
  for (const char* text :
       {"", "ranks = 3", "ranks = 4\nhosts = ['a', 'b']\nrendezvous = '{host}:1'",
        "ranks = 4\nhosts = ['localhost', 'b', 'u@c']\nspares = 1\nrendezvous = '10.0.0.1:1'",
        "hosts = ['a', 'b']\nspares = 1"})
    EXPECT_EQ(problem_of(text), "") << text;
}

// A host that is given up after host_seconds is not waited for any longer by ranks, unless the config says so.
TEST(SuperviseHosts, WithSparesRanksArePatientForAsLongAsASilentHostIs) {
  const auto holds = [](const std::string& parallel, int spares) {
    std::string found;
    const std::string text = fmt::format(
        "[supervise]\nhosts = ['a', 'b']\nspares = {}\nhost_seconds = 7\n[parallel]\n{}", spares,
        parallel);
    for (const std::string& set : added_assignments(SettingsTable::parse(text, "test"))) {
      if (set.find("hold") != std::string::npos || set.find("retry") != std::string::npos)
        found += set + " ";
    }
    return found;
  };
  EXPECT_EQ(holds("", 0), "");
  EXPECT_EQ(holds("", 1),
            "parallel.hold_seconds=7 parallel.retry_attempts=1 parallel.retry_interval_seconds=0 ");
  EXPECT_EQ(holds("hold_seconds = 3", 1),
            "parallel.retry_attempts=1 parallel.retry_interval_seconds=0 ");
  EXPECT_EQ(holds("retry_attempts = 2", 1),
            "parallel.hold_seconds=3.5 parallel.retry_interval_seconds=0 ");
  EXPECT_EQ(holds("retry_attempts = 2\nretry_interval_seconds = 1", 1),
            "parallel.hold_seconds=2.5 ");
  EXPECT_EQ(holds("retry_interval_seconds = 9", 1),
            "parallel.hold_seconds=0.5 parallel.retry_attempts=1 ");
  EXPECT_EQ(holds("hold_seconds = 3\nretry_attempts = 9\nretry_interval_seconds = 1", 1), "");
}

// Else each of its ranks would say so, by keys that nobody set.
TEST(SuperviseHosts, MorePatienceThanRanksHaveIsRefusedBeforeAnyIsStarted) {
  const auto problem = [](const std::string& supervise, const std::string& parallel) {
    const std::string text =
        fmt::format("[supervise]\nhosts = ['a', 'b']\n{}\n[parallel]\n{}", supervise, parallel);
    try {
      added_assignments(SettingsTable::parse(text, "test"));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  struct Case {
    const char *supervise, *parallel;
    bool fits;
  };
  for (const Case& c : {
           Case{"ranks = 2\nspares = 1", "deadline_seconds = 15", false},
           Case{"ranks = 2\nspares = 1", "deadline_seconds = 20", true},
           Case{"ranks = 2\nspares = 1\nhost_seconds = 400", "", false},
           Case{"ranks = 2\nspares = 1\nhost_seconds = 300", "", true},
           Case{"ranks = 2\nspares = 1\nhost_seconds = 400", "deadline_seconds = 400", true},
           Case{"ranks = 2\nspares = 1\nhost_seconds = 400", "hold_seconds = 15", true},
           Case{"ranks = 2\nspares = 1", "retry_attempts = 3\nretry_interval_seconds = 100", false},
           Case{"ranks = 1\nspares = 1", "deadline_seconds = 15", true},  // waits for nobody
           Case{"ranks = 2", "deadline_seconds = 15", true},
       }) {
    const std::string said = problem(c.supervise, c.parallel);
    EXPECT_EQ(said.empty(), c.fits) << c.supervise << ", " << c.parallel << ": " << said;
    EXPECT_EQ(said.find("supervise.host_seconds: found") == 0, !c.fits) << said;
  }
}

TEST(SuperviseHosts, WhatDoesNotFitIsSaid) {
  struct Case {
    const char *text, *part;
  };
  for (const Case& c : {
           Case{"spares = 1", "supervise.spares: found 1 of 1 hosts"},
           Case{"ranks = 3\nhosts = ['a', 'b']\nrendezvous = 'a:1'",
                "supervise.ranks: found 3 for 2 hosts"},
           Case{"ranks = 2\nhosts = ['a', 'b']", "supervise.rendezvous: found ''"},
           Case{"ranks = 2\nhosts = ['a', 'b']\nrendezvous = 'a:'", "found 'a:'"},
           Case{"ranks = 2\nhosts = ['', 'b']\nrendezvous = '{host}:1'", "wanted hosts by names"},
           Case{"ranks = 2\nhosts = ['', 'localhost']", "found 'localhost' twice"},
           Case{"ranks = 1\nrendezvous = 'nonsense'", "supervise.rendezvous: found 'nonsense'"},
           Case{"ranks = 2\nrendezvous = 'a:b'", "supervise.rendezvous: found 'a:b'"},
           Case{"ranks = 2\nrendezvous = 'a:65536'", "supervise.rendezvous: found 'a:65536'"},
           Case{"ranks = 2\nrendezvous = 'a:0'", "supervise.rendezvous: found 'a:0'"},
           Case{"hosts = ['a; rm']", "found 'a; rm'"},
           Case{"hosts = ['-oProxyCommand=x']", "found '-oProxyCommand=x'"},
           Case{"hosts = ['a']\nlaunch = []", "supervise.launch: found no word"},
           Case{"hosts = ['a']\nprogram = '/my programs/moraine'", "supervise.program: found"},
       })
    EXPECT_NE(problem_of(c.text).find(c.part), std::string::npos) << problem_of(c.text);
}

}  // namespace
}  // namespace moraine
