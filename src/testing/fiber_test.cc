// Fiber: breaks if a body does not go on where it paused, or an exception of one is seen by another.
#include "testing/fiber.h"

#include <gtest/gtest.h>

#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

namespace moraine {
namespace {

TEST(Fiber, GoesOnWhereItPaused) {
  std::string said;
  std::vector<std::unique_ptr<Fiber>> fibers;
  for (const char name : {'a', 'b', 'c'}) {
    const size_t i = fibers.size();
    fibers.push_back(std::make_unique<Fiber>([&, name, i] {
      for (int turn = 0; turn < 3; ++turn) {
        said += name + std::to_string(turn);
        if (turn < 2) fibers[i]->pause();
      }
    }));
  }
  for (int turn = 0; turn < 3; ++turn) {
    for (const auto& fiber : fibers) fiber->resume();
  }
  EXPECT_EQ(said, "a0b0c0a1b1c1a2b2c2");
  for (const auto& fiber : fibers) EXPECT_TRUE(fiber->has_ended());
}

// Both are in a handler at once, and leave in the order in which they came: as no single stack could.
TEST(Fiber, KeepsItsExceptions) {
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<std::string> heard;
  for (const char* text : {"one", "two"}) {
    const size_t i = fibers.size();
    fibers.push_back(std::make_unique<Fiber>([&, text, i] {
      try {
        try {
          throw std::runtime_error(text);
        } catch (const std::exception& e) {
          fibers[i]->pause();
          EXPECT_EQ(std::uncaught_exceptions(), 0);
          heard.push_back(e.what());
          throw;
        }
      } catch (const std::exception& e) {
        fibers[i]->pause();
        heard.push_back(e.what());
      }
    }));
  }
  for (int turn = 0; turn < 3; ++turn) {
    for (const auto& fiber : fibers) fiber->resume();
  }
  EXPECT_EQ(heard, (std::vector<std::string>{"one", "two", "one", "two"}));
}

}  // namespace
}  // namespace moraine
