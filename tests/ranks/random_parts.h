// RandomParts: one run in parts of one to three steps, each on ranks and experts of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>

#include "base/random.h"
#include "tests/tiny_run.h"

namespace moraine::testing {

using Draw = std::function<int64_t(uint64_t n, uint64_t what)>;  // below n; what: 4 and more

struct RandomParts {
  Outcome last;
  std::string story;  // seed, then ranks x expert of every part: for messages
};

// Trains into the folder `random<seed>` until a part ends otherwise than by an interruption, at
// most ten; 1 to 8 ranks, experts over up to 4 of them. config_of says the rest of a part.
inline RandomParts train_in_random_parts(
    TinyRun& tiny, uint64_t seed,
    const std::function<RunConfig(int64_t expert, const Draw& draw)>& config_of) {
  const std::string out = tiny.out("random" + std::to_string(seed));
  RandomParts run{{}, "seed " + std::to_string(seed) + ":"};
  for (uint64_t part = 0; part < 10; ++part) {
    const Draw draw = [&](uint64_t n, uint64_t what) {
      return static_cast<int64_t>(random_below(n, seed, Stream::kTest, what, part));
    };
    const int ranks = 1 << draw(4, 1);
    const int64_t expert = std::min<int64_t>(ranks, 1 << draw(3, 2));
    run.story += " " + std::to_string(ranks) + "x" + std::to_string(expert);
    run.last = tiny.train_steps(config_of(expert, draw), out, 1 + draw(3, 3), ranks);
    if (!run.last.error || run.last.error->code() != Code::kInterrupted) break;
  }
  return run;
}

}  // namespace moraine::testing
