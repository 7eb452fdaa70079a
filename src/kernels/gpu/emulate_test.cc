// Emulate: fails if a fault that stands in test_faults.h is not found in some order of threads, is found where it is
// not, or is not said with the lines of both sides.
#include "kernels/gpu/emulate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "kernels/gpu/test_emulations.h"

namespace moraine::gpu {

EmulatedEntry test_kernel(int wave, const std::string& name) {
  for (const EmulatedEntry& entry : wave == 32 ? test_kernels_wave32() : test_kernels_wave64()) {
    if (name == entry.name) return entry;
  }
  MR_CHECK(false, "no test kernel %s", name.c_str());
  return {};
}

namespace {

// What the emulator says of a kernel with its fault; empty if nothing.
std::string said(const Emulation& e, const std::string& name, bool fault) {
  float y[kFaultThreads] = {};
  const FaultArgs args = {.y = y, .fault = fault};
  try {
    emulate(e, test_kernel(e.wave, name), {.blocks_x = 2, .threads = kFaultThreads}, &args);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kDevice);
    return error.what();
  }
  return "";
}

// In every order and wave; each of `parts` is in the message.
void expect_found(const std::string& name, const std::vector<std::string>& parts) {
  for (const Emulation& e : all_emulations()) {
    SCOPED_TRACE(name + ", " + emulation_text(e));
    EXPECT_EQ(said(e, name, false), "");
    const std::string message = said(e, name, true);
    for (const std::string& part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << "said: " << message;
    }
  }
}

TEST(Emulate, ABarrierThatIsMissingIsARace) {
  expect_found("read_before_barrier", {"emulated kernel read_before_barrier, block ",
                                       "race on shared s[", "test_faults.h:"});
  expect_found("write_before_barrier", {"race on shared s[", " at test_faults.h:"});
  expect_found("two_writers",
               {"race on shared s[7]", "wrote at test_faults.h:", "writes at test_faults.h:"});
}

TEST(Emulate, AWaveBarrierThatIsMissingIsARace) {
  expect_found("no_wave_barrier", {"race on shared s["});
  expect_found("shuffle_is_no_barrier", {"race on shared s["});
  expect_found("wave_barrier_only", {"race on shared s["});
}

TEST(Emulate, ThreadsThatDoNotMeetAreNamedWithTheirLines) {
  expect_found("barrier_in_a_branch",
               {"threads do not meet: 0 waits for the block at test_faults.h:",
                " waits for the block at test_faults.h:"});
  expect_found("early_return", {"threads do not meet: ", "5 has ended"});
  expect_found("shuffle_in_a_branch",
               {"threads do not meet: 0 waits for the wave at test_faults.h:", "has ended"});
}

TEST(Emulate, AnIndexOutsideIsNamed) {
  expect_found("outside", {"shared s[128] of 128: thread 127 reads at test_faults.h:"});
  expect_found("before_the_array", {"shared s[-1] of 128: thread 0 writes at test_faults.h:"});
  expect_found("never_written", {"was never written: thread ", " reads at test_faults.h:"});
  expect_found("too_much_shared", {"49168 bytes in all, at most 49152"});
}

TEST(Emulate, ACopyIsThereForOthersBehindItsWaitAndABarrier) {
  expect_found("no_barrier_behind_a_copy", {"race on shared s[", "test_faults.h:"});
  for (const Emulation& e : all_emulations()) {
    for (const bool fault : {false, true}) {
      float y[kFaultThreads] = {};
      const FaultArgs args = {.y = y, .fault = fault};
      emulate(e, test_kernel(e.wave, "no_wait_for_a_copy"),
              {.blocks_x = 1, .threads = kFaultThreads}, &args);
      for (const float v : y) EXPECT_EQ(std::isnan(v), fault) << emulation_text(e);
    }
  }
}

TEST(Emulate, BothLinesOfARaceAreThose) {
  const std::string message = said({.wave = 32}, "two_writers", true);
  const size_t wrote = message.find("thread 0 wrote at "),
               writes = message.find("thread 1 writes at ");
  ASSERT_NE(wrote, std::string::npos) << message;
  ASSERT_NE(writes, std::string::npos) << message;
}

}  // namespace
}  // namespace moraine::gpu
