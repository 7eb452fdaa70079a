// The ledger is read as it was written, also after a crash in the middle of a line.
#include "supervisor/ledger.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace moraine {
namespace {

LedgerEntry entry_of(int64_t id) {
  LedgerEntry e;
  e.id = id;
  e.fault = RunFault::kHang;
  e.rank = 3;
  e.host = "h1";
  e.evidence.emplace_back("no beat for \"31\" s\n");
  e.decision = "start rank 3";
  e.level = RecoveryLevel::kReplace;
  e.step = 17;
  e.begin = 100, e.end = 102.5;
  e.seconds_lost = 2.5;
  e.phases = {{"detection", 1}, {"respawn", 1.5}};
  return e;
}

class LedgerTest : public ::testing::Test {
 protected:
  void SetUp() override { fs_.remove_all(path_); }
  std::string text() { return fs_.read(path_); }
  FileSystem& fs_ = posix_file_system();
  const std::string path_ = ::testing::TempDir() + "moraine_ledger.jsonl";
};

TEST_F(LedgerTest, IsReadAsItWasWritten) {
  append_to_ledger(fs_, path_, entry_of(1), 1e9);
  append_to_ledger(fs_, path_, entry_of(2), 1e9);
  const std::vector<LedgerEntry> read = read_ledger(text(), path_);
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].begin_unix, 1e9 + 100);
  LedgerEntry want = entry_of(2);
  want.begin_unix = 1e9 + 100, want.end_unix = 1e9 + 102.5;
  EXPECT_EQ(ledger_line(read[1]), ledger_line(want));
  EXPECT_NE(text().find("\"utc_begin\":\"2001-09-09T01:48:20.000Z\""), std::string::npos) << text();
}

TEST_F(LedgerTest, ALineThatWasCutIsLeftOutAndSwallowsNoOther) {
  append_to_ledger(fs_, path_, entry_of(1), 0);
  append_to_ledger(fs_, path_, entry_of(2), 0);
  const int64_t whole = fs_.file_bytes(path_);
  for (int64_t cut = 1; cut < 20; ++cut) {
    fs_.truncate(path_, whole - cut);
    // Without its line end alone the line is whole.
    EXPECT_EQ(read_ledger(text(), path_).size(), cut == 1 ? 2u : 1u);
  }
  append_to_ledger(fs_, path_, entry_of(3), 0);
  const std::vector<LedgerEntry> read = read_ledger(text(), path_);
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[1].id, 3);
}

TEST_F(LedgerTest, OfTwoLinesWithOneIdTheLaterCounts) {
  append_to_ledger(fs_, path_, entry_of(1), 0);
  LedgerEntry again = entry_of(1);
  again.step = 18;
  append_to_ledger(fs_, path_, again, 0);
  const std::vector<LedgerEntry> read = read_ledger(text(), path_);
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].step, 18);
}

TEST_F(LedgerTest, WhatIsNoEntryIsCorrupt) {
  try {
    read_ledger("{\"id\": 1, \"fault\": \"none\"}\n", path_);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kCorrupt);
  }
}

}  // namespace
}  // namespace moraine
