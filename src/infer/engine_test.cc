// Fails if company, arrival, chunks, pages, prefix hits, preemption or cancellation change a bit of an answer,
// if pages are lost, if a salt's prefix is found by another, or if a bad request is not refused by name.
#include "infer/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <map>
#include <thread>

#include "base/error.h"
#include "base/random.h"
#include "infer/test_engine.h"
#include "infer/token_filter.h"
#include "model/loaded_model.h"
#include "testing/places.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

struct EngineShape {
  std::string dtype = "f32";
  int64_t threads = 1, rows = 64, pages = 64, page_rows = 16, sequences = 16;
};

std::unique_ptr<LoadedModel> load(const EngineShape& shape, const char* name = "native-tiny") {
  LoadOptions o;
  o.dtype = shape.dtype;
  o.threads = shape.threads;
  o.tokens = shape.rows;
  o.positions = 128;
  o.cache = {.pages = shape.pages, .segments = shape.sequences, .page_rows = shape.page_rows};
  const std::string path = testing::source_path(std::string("tests/golden/") + name);
  return LoadedModel::open(ModelDirectory::open(posix_file_system(), path), o);
}

Heard alone(LoadedModel& m, const Request& request, const Tokenizer* tokenizer = nullptr) {
  return testing::alone(m.ctx(), m.model(), m.cache(), request, tokenizer);
}

// Random requests arrive at random steps; some are cancelled. Those that end are what they are alone.
void mix(const EngineShape& shape, uint64_t seed, int64_t requests, EngineStats* total) {
  SCOPED_TRACE(::testing::Message()
               << shape.dtype << " rows " << shape.rows << " pages " << shape.pages << " of "
               << shape.page_rows << " sequences " << shape.sequences << " seed " << seed);
  const auto m = load(shape), quiet = load({.dtype = shape.dtype, .rows = 128, .sequences = 1});
  Engine engine(m->ctx(), m->model(), m->cache(), nullptr, {.sequences = shape.sequences});
  std::map<int64_t, Heard> heard;
  std::map<int64_t, Request> asked;
  int64_t submitted = 0;
  for (uint64_t step = 0;
       submitted < requests || engine.stats().running > 0 || engine.stats().waiting > 0; ++step) {
    const auto draw = [&](uint64_t n, uint64_t index) {
      return random_below(n, seed, Stream::kTest, 1000 + step, index);
    };
    while (submitted < requests && draw(3, static_cast<uint64_t>(submitted)) == 0) {
      const Request r = make_request(seed * 100 + static_cast<uint64_t>(submitted));
      asked[submitted] = r;
      heard[submitted].id = engine.submit(r, listen(heard[submitted]));
      ++submitted;
    }
    if (submitted > 0 && draw(23, 99) == 0)
      engine.cancel(static_cast<int64_t>(draw(static_cast<uint64_t>(submitted), 98)));
    engine.step();
  }
  for (auto& [number, answer] : heard) {
    EXPECT_EQ(answer.ends, 1);
    if (answer.finish == "cancelled") {
      EXPECT_LE(static_cast<int64_t>(answer.tokens.size()), asked[number].max_tokens);
      continue;
    }
    expect_same(answer, alone(*quiet, asked[number]));
  }
  expect_idle(engine);
  const EngineStats stats = engine.stats();
  total->preemptions += stats.preemptions;
  total->cached_tokens += stats.cached_tokens;
  total->evictions += stats.evictions;
  total->finished[2] += stats.finished[2];
}

TEST(Engine, CompanyChangesNoBit) {
  EngineStats total;
  const EngineShape shapes[] = {
      {.dtype = "f32", .rows = 64},
      {.dtype = "bf16", .rows = 17, .sequences = 5},
      {.dtype = "bf16", .threads = 2, .rows = 128, .pages = 9},  // few pages: preemption
      {.dtype = "f32", .rows = 33, .pages = 2, .page_rows = 64, .sequences = 4},
      {.dtype = "bf16", .rows = 16, .pages = 8, .sequences = 16},
  };
  uint64_t seed = 1;
  for (const EngineShape& shape : shapes) mix(shape, seed++, 24, &total);
  // None of the ways was missed.
  EXPECT_GT(total.preemptions, 0);
  EXPECT_GT(total.cached_tokens, 0);
  EXPECT_GT(total.evictions, 0);
  EXPECT_GT(total.finished[2], 0);
}

// Prompt and answer have the log-probabilities of one whole forward pass, which is the trainer's.
TEST(Engine, LogprobsAreTheScorersToTheBit) {
  for (const char* dtype : {"f32", "bf16"}) {
    const auto m = load({.dtype = dtype, .rows = 128});
    Request r = make_request(8);
    r.logprobs = r.prompt_logprobs = true;
    r.max_tokens = 30;
    const Heard heard = alone(*load({.dtype = dtype, .rows = 7, .sequences = 2}), r);
    std::vector<int32_t> ids = r.prompt;
    ids.insert(ids.end(), heard.tokens.begin(), heard.tokens.end());
    const std::vector<double> want = scores_of(m->ctx(), m->model(), ids);
    ASSERT_EQ(heard.prompt.size(), r.prompt.size() - 1);
    for (size_t i = 0; i < want.size(); ++i) {
      const size_t stride = static_cast<size_t>(1 + r.top_logprobs);
      const double got = i < heard.prompt.size()
                             ? heard.prompt[i]
                             : heard.logprobs[(i - heard.prompt.size()) * stride];
      EXPECT_EQ(got, want[i]) << dtype << " " << i;
    }
  }
}

TEST(Engine, EverySplitOfAPromptIsFoundAndChangesNothing) {
  const auto m = load({.dtype = "bf16", .rows = 40}), quiet = load({.dtype = "bf16", .rows = 128});
  Request r = make_request(8);
  r.prompt.resize(70, 9);
  r.prompt_logprobs = false;
  r.max_tokens = 12;
  const Heard want = alone(*quiet, r);
  for (size_t split = 1; split < r.prompt.size(); ++split) {
    Engine engine(m->ctx(), m->model(), m->cache(), nullptr, {});
    Request first = r;
    first.prompt.resize(split);
    first.max_tokens = 0;
    Heard before, after;
    engine.submit(first, listen(before));
    while (engine.step()) continue;
    EXPECT_EQ(before.finish, "length");
    engine.submit(r, listen(after));
    while (engine.step()) continue;
    EXPECT_EQ(after.cached, static_cast<int64_t>(split));  // also where it ends inside a page
    expect_same(after, want);
  }
}

// A request that needs every page of the cache, of which one holds a known end that would have to be copied.
TEST(Engine, ARequestOfTheWholeCacheBeginsWhateverIsKnown) {
  const auto m = load({.rows = 64, .pages = 3}), quiet = load({.rows = 128});
  for (const size_t known : {5, 16, 20, 33, 47}) {
    Engine engine(m->ctx(), m->model(), m->cache(), nullptr, {});
    Request r = make_request(8);
    r.prompt.assign(44, 9);
    r.prompt_logprobs = false;
    r.max_tokens = 4;
    Request first = r;
    first.prompt.resize(std::min(known, r.prompt.size()));
    first.max_tokens = 0;
    Heard before, after;
    engine.submit(first, listen(before));
    while (engine.step()) continue;
    engine.submit(r, listen(after));
    while (engine.step()) continue;
    EXPECT_EQ(after.ends, 1) << known;
    expect_same(after, alone(*quiet, r));
    expect_idle(engine);
  }
}

// What a request leaves behind is found up to its last computed token: the next turn of a conversation begins
// there.
TEST(Engine, AConversationGoesOnWhereItEnded) {
  const auto m = load({.rows = 64});
  Engine engine(m->ctx(), m->model(), m->cache(), nullptr, {});
  Request r = make_request(3);
  r.prompt_logprobs = false;
  r.max_tokens = 20;
  Heard first, second;
  engine.submit(r, listen(first));
  while (engine.step()) continue;
  Request next = r;
  next.prompt.insert(next.prompt.end(), first.tokens.begin(), first.tokens.end());
  const auto computed = static_cast<int64_t>(next.prompt.size()) - 1;
  for (int32_t i = 0; i < 9; ++i) next.prompt.push_back(40 + i);
  engine.submit(next, listen(second));
  while (engine.step()) continue;
  EXPECT_EQ(second.cached, computed);
  expect_same(second, alone(*load({.rows = 128}), next));
}

TEST(Engine, TwoSaltsNeverShareAPrefix) {
  const auto m = load({});
  Engine engine(m->ctx(), m->model(), m->cache(), nullptr, {});
  Request r = make_request(5);
  r.prompt.resize(60, 4);
  r.prompt_logprobs = false;
  for (const auto& [salt, cached] : std::vector<std::pair<std::string, int64_t>>{
           {"one", 0}, {"two", 0}, {"", 0}, {"one", 48}, {"two", 48}, {"", 48}}) {
    r.salt = salt;
    Heard heard;
    engine.submit(r, listen(heard));
    while (engine.step()) continue;
    EXPECT_EQ(heard.cached, cached) << salt;
  }
}

TEST(Engine, AFollowerFindsItsLeadersPrompt) {
  const auto m = load({});
  Engine engine(m->ctx(), m->model(), m->cache(), nullptr, {.sequences = 8});
  Request r = make_request(5);
  r.prompt.resize(66, 4);
  r.prompt_logprobs = false;
  std::vector<Heard> heard(5);
  const int64_t leader = engine.submit(r, listen(heard[0]));
  r.follows = leader;
  for (size_t i = 1; i < heard.size(); ++i) {
    r.sampling.choice = static_cast<int64_t>(i);
    engine.submit(r, listen(heard[i]));
  }
  while (engine.step()) continue;
  for (size_t i = 1; i < heard.size(); ++i) EXPECT_EQ(heard[i].cached, 64);
  // A leader that is cancelled holds nobody up.
  Heard gone, waits;
  r.prompt[0] += 1;
  r.follows = -1;
  r.follows = engine.submit(r, listen(gone));
  engine.submit(r, listen(waits));
  engine.cancel(r.follows);
  while (engine.step()) continue;
  EXPECT_EQ(gone.finish, "cancelled");
  EXPECT_EQ(waits.finish, "length");
  expect_idle(engine);
}

TEST(Engine, CancellingFreesAtOnce) {
  const auto m = load({.rows = 16, .pages = 12, .sequences = 2});
  Engine engine(m->ctx(), m->model(), m->cache(), nullptr, {.sequences = 2});
  Request r = make_request(5);
  r.prompt.resize(60, 4);
  r.max_tokens = 60;
  Heard decoding, prefilling, queued;
  engine.submit(r, listen(decoding));
  for (int i = 0; i < 8; ++i) engine.step();
  EXPECT_GT(decoding.tokens.size(), 1u);
  r.prompt[0] = 77;
  engine.submit(r, listen(prefilling));
  engine.submit(r, listen(queued));
  engine.step();
  engine.step();
  EXPECT_EQ(prefilling.cached, -1);  // in the middle of it
  EXPECT_EQ(engine.stats().waiting, 1);
  for (const int64_t id : {2, 1, 0, 0, 17}) engine.cancel(id);
  EXPECT_FALSE(engine.step());
  for (const Heard* h : {&decoding, &prefilling, &queued}) {
    EXPECT_EQ(h->finish, "cancelled");
    EXPECT_EQ(h->ends, 1);
  }
  expect_idle(engine);
}

TEST(Engine, ARequestFitsItsLimits) {
  const auto m = load({});  // 128 positions
  Engine engine(m->ctx(), m->model(), m->cache(), nullptr, {});
  struct LimitCase {
    size_t prompt;
    int64_t max_tokens, top_logprobs;
    bool fits;
  };
  for (const LimitCase& c : std::vector<LimitCase>{{127, 1, 0, true},
                                                   {127, 2, 0, false},
                                                   {128, 0, 0, true},
                                                   {128, 1, 0, false},
                                                   {129, 0, 0, false},
                                                   {1, 127, 0, true},
                                                   {1, INT64_MAX, 0, false},
                                                   {1, -1, 0, false},
                                                   {0, 1, 0, false},
                                                   {1, 1, kMostTopLogprobs, true},
                                                   {1, 1, kMostTopLogprobs + 1, false}}) {
    Request r;
    r.prompt.assign(c.prompt, 5);
    r.max_tokens = c.max_tokens;
    r.top_logprobs = c.top_logprobs;
    Heard heard;
    try {
      engine.submit(r, listen(heard));
      EXPECT_TRUE(c.fits) << c.prompt << " " << c.max_tokens;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kInvalidArgument);
      EXPECT_FALSE(c.fits) << e.what();
      continue;
    }
    while (engine.step()) continue;
    EXPECT_EQ(static_cast<int64_t>(heard.tokens.size()), c.max_tokens);
  }
  expect_idle(engine);
}

TEST(Engine, TheQueueHasLimits) {
  const auto m = load({});
  Engine engine(m->ctx(), m->model(), m->cache(), nullptr,
                {.waiting_requests = 3, .waiting_tokens = 100});
  const auto ask = [&](size_t tokens) {
    Request r = make_request(1);
    r.prompt.assign(tokens, 5);
    r.max_tokens = 2;
    engine.submit(r, {});
  };
  const auto refused = [&](size_t tokens, const char* piece) {
    try {
      ask(tokens);
      ADD_FAILURE() << piece;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kOverloaded);
      EXPECT_NE(std::string(e.what()).find(piece), std::string::npos) << e.what();
    }
  };
  ask(60);
  ask(40);
  refused(1, "100 prompt tokens are waiting, and 1 more");
  while (engine.step()) continue;
  ask(110);  // alone it may be longer than the queue
  refused(1, "110 prompt tokens");
  while (engine.step()) continue;
  for (int i = 0; i < 3; ++i) ask(2);
  refused(1, "3 requests are waiting");
  while (engine.step()) continue;
  expect_idle(engine);
}

// Prompts and choices of one request are not in each other's way, and those of one prompt count it once.
TEST(Engine, ARequestIsLetInAsAWhole) {
  const auto m = load({.sequences = 2});
  Engine engine(m->ctx(), m->model(), m->cache(), nullptr,
                {.sequences = 2, .waiting_requests = 3, .waiting_tokens = 100});
  Request r = make_request(1);
  r.prompt.assign(60, 5);
  r.prompt_logprobs = false;
  r.max_tokens = 1;
  Request other = r;
  other.let_in = true;
  other.follows = engine.submit(r, {});
  for (int i = 0; i < 7; ++i) engine.submit(other, {});  // eight choices
  EXPECT_EQ(engine.stats().waiting, 8);
  EXPECT_EQ(engine.stats().waiting_tokens, 60);
  EXPECT_THROW(engine.submit(r, {}), QueueFull) << "eight wait";
  while (engine.step()) EXPECT_EQ(engine.stats().waiting_tokens, 0) << "only choices still wait";

  r.others_tokens = 60;  // two prompts: longer than the queue, which is empty
  engine.submit(r, {});
  other.follows = -1;
  engine.submit(other, {});
  EXPECT_EQ(engine.stats().waiting_tokens, 120);
  while (engine.step()) continue;

  r.prompt.assign(20, 6);
  r.others_tokens = 0;
  engine.submit(r, {});
  r.others_tokens = 61;
  EXPECT_THROW(engine.submit(r, {}), QueueFull) << "81 tokens behind 20: the others count";
  r.others_tokens = 60;
  engine.submit(r, {});
  while (engine.step()) continue;
  expect_idle(engine);
}

// Who hears the end of an answer, and asks again at once, finds the queue as it then is.
TEST(Engine, TheQueueIsShorterBeforeAnEndIsHeard) {
  const auto m = load({.sequences = 2});
  Engine engine(m->ctx(), m->model(), m->cache(), nullptr, {.sequences = 2});
  Request r = make_request(1);
  r.max_tokens = 1;
  int64_t ends = 0;
  Listener listener;
  listener.on_finish = [&](const Ended&) {
    ++ends;
    EXPECT_EQ(engine.stats().waiting, ends <= 2 ? 1 : 0);
    EXPECT_EQ(engine.stats().waiting_tokens, ends <= 2 ? std::ssize(r.prompt) : 0);
    EXPECT_EQ(engine.stats().prompt_work > 0, ends <= 2);
  };
  r.prompt.assign(20, 5);
  for (int i = 0; i < 3; ++i) engine.submit(r, listener);
  while (engine.step()) continue;
  EXPECT_EQ(ends, 3);
  expect_idle(engine);
}

// The limit in seconds is so low that any rate passes it: what is asked is what counts as work before a request.
TEST(Engine, TheQueueIsBoundedInSecondsOfWork) {
  const auto m = load({.rows = 16, .sequences = 2});
  Engine engine(m->ctx(), m->model(), m->cache(), nullptr,
                {.sequences = 2, .waiting_seconds = 1e-9});
  const auto ask = [&](int32_t token, bool let_in = false, int64_t follows = -1) {
    Request r = make_request(1);
    r.prompt.assign(48, token);
    r.prompt_logprobs = false;
    r.max_tokens = 12;
    r.let_in = let_in;
    r.follows = follows;
    return engine.submit(r, {});
  };
  const auto end = [&] {
    while (engine.step()) continue;
  };
  for (int32_t i = 0; i < 4; ++i) ask(10 + i);  // no rate is known yet
  EXPECT_EQ(engine.stats().prompt_rate, 0);
  EXPECT_EQ(engine.stats().prompt_work, 4 * 48);
  end();
  EXPECT_GT(engine.stats().prompt_rate, 0) << "after eight steps their cost is known";
  EXPECT_EQ(engine.stats().prompt_work, 0);

  const int64_t first = ask(20);  // nothing is before it
  EXPECT_THROW(ask(21), QueueFull);
  ask(21, /*let_in=*/true);
  ask(20, true, first);
  EXPECT_EQ(engine.stats().prompt_work, 2 * 48) << "a follower costs nothing";
  engine.step();
  EXPECT_EQ(engine.stats().prompt_work, 2 * 48 - 16) << "a step of 16 rows";
  EXPECT_THROW(ask(22), QueueFull) << "a prompt that has begun is before it too";
  end();
  for (int32_t i = 0; i < 2; ++i) ask(30 + i, true);
  while (engine.stats().waiting > 0 || engine.stats().prompt_work > 0) engine.step();
  ask(20);  // both seats are taken
  engine.step();
  EXPECT_EQ(engine.stats().prompt_work, 16) << "two of its three pages are in the cache";
  EXPECT_THROW(ask(23), QueueFull);
  end();
  expect_idle(engine);
}

// Tokens of one residue only, by turns; the answer may end after six.
struct Turns : TokenFilter {
  int64_t taken = 0;
  bool may = false;
  void allowed(std::span<uint64_t> mask) override {
    for (int64_t i = taken % 7; i < 320; i += 7)
      mask[static_cast<size_t>(i / 64)] |= uint64_t{1} << (i % 64);
  }
  bool may_end() const override { return may || taken >= 6; }
  bool must_end() const override { return taken == 9; }
  void accept(int32_t token) override {
    EXPECT_EQ(token % 7, taken % 7);
    ++taken;
  }
};

TEST(Engine, AFilterDecidesWhatMayCome) {
  const auto m = load({.rows = 64});
  Engine engine(m->ctx(), m->model(), m->cache(), nullptr, {.sequences = 4});
  Request r = make_request(5);
  r.prompt_logprobs = false;
  r.max_tokens = 50;
  r.end_ids = {0, 7, 14, 3};  // some of them in the filter's mask: not before it may end
  Heard filtered, free;
  engine.submit(r, listen(free));
  r.filter = std::make_shared<Turns>();
  engine.submit(r, listen(filtered));
  while (engine.step()) continue;
  EXPECT_EQ(filtered.finish, "stop");
  EXPECT_GE(filtered.tokens.size(), 6u);
  EXPECT_LE(filtered.tokens.size(), 9u);
  struct Nothing : Turns {
    void allowed(std::span<uint64_t>) override {}
    bool may_end() const override { return false; }
  };
  Heard stuck;
  r.filter = std::make_shared<Nothing>();
  engine.submit(r, listen(stuck));
  while (engine.step()) continue;
  EXPECT_EQ(stuck.finish, "error");
  EXPECT_NE(stuck.error, "");
  expect_idle(engine);
}

TEST(Engine, SaysOnceForAllOfAStepThatListenersWereCalled) {
  const auto m = load({.sequences = 4});
  int64_t times = 0, tokens = 0, ends = 0, told = 0;  // told: before the call
  Engine engine(m->ctx(), m->model(), m->cache(), nullptr, {.sequences = 4, .heard = [&] {
                                                              ++times;
                                                              told = tokens + ends;
                                                            }});
  const auto listener = [&] {
    return Listener{.on_prompt = {},
                    .on_token = [&](const TokenPiece&) { ++tokens; },
                    .on_finish = [&](const Ended&) { ++ends; }};
  };
  for (int32_t i = 0; i < 4; ++i) {
    Request request = make_request(static_cast<uint64_t>(i));
    request.prompt = {3, 4, 5 + i};
    request.max_tokens = 3;
    engine.submit(request, listener());
  }
  int64_t steps = 0;
  for (; engine.step(); ++steps) EXPECT_EQ(told, tokens + ends);
  EXPECT_EQ(tokens, 12);
  EXPECT_EQ(ends, 4);
  EXPECT_EQ(times, steps);  // a token in each
  engine.cancel(engine.submit(make_request(1), listener()));
  EXPECT_FALSE(engine.step());
  EXPECT_EQ(times, steps + 1);
  EXPECT_EQ(ends, 5);
  EXPECT_FALSE(engine.step());
  EXPECT_EQ(times, steps + 1);  // nothing was said
}

TEST(Engine, RunsOnItsThreadUntilItIsStopped) {
  const auto m = load({});
  Engine engine(m->ctx(), m->model(), m->cache(), nullptr, {.sequences = 4});
  std::thread thread([&] { engine.run(); });
  std::vector<std::thread> clients;
  std::atomic<int64_t> ended = 0, tokens = 0;
  for (uint64_t c = 0; c < 3; ++c) {
    clients.emplace_back([&, c] {
      for (uint64_t i = 0; i < 5; ++i) {
        Listener l;
        l.on_token = [&](const TokenPiece&) { ++tokens; };
        l.on_finish = [&](const Ended&) { ++ended; };
        const int64_t id = engine.submit(make_request(c * 10 + i), l);
        if (i % 3 == 2) engine.cancel(id);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  Heard last;
  Request r = make_request(1);
  r.max_tokens = 100;
  r.prompt.resize(10, 4);
  engine.submit(r, listen(last));
  engine.stop();
  thread.join();
  EXPECT_EQ(ended, 15);
  EXPECT_EQ(last.ends, 1);
  expect_idle(engine);
  EXPECT_THROW(engine.submit(r, {}), Error);
}

TEST(Engine, PromptsBesideAnswersComeInFewerRows) {
  const auto m = load({.rows = 64, .sequences = 4}), quiet = load({.rows = 128});
  Engine engine(m->ctx(), m->model(), m->cache(), nullptr, {.sequences = 4, .interleave_rows = 8});
  Request first = make_request(1), second = make_request(2), third = make_request(3);
  first.prompt.assign(50, 5), second.prompt.assign(29, 6), third.prompt.assign(11, 7);
  first.max_tokens = second.max_tokens = third.max_tokens = 20;
  Heard before, beside, behind;
  engine.submit(first, listen(before));
  engine.step();
  EXPECT_EQ(engine.stats().rows, 50);  // nobody waits for it
  engine.submit(second, listen(beside));
  engine.submit(third, listen(behind));
  for (int64_t chunk = 1; chunk <= 4; ++chunk) {  // in the last both have a part
    engine.step();
    EXPECT_EQ(engine.stats().rows, 50 + 9 * chunk);
  }
  while (engine.step()) continue;
  expect_same(before, alone(*quiet, first));
  expect_same(beside, alone(*quiet, second));
  expect_same(behind, alone(*quiet, third));
  expect_idle(engine);
}

// A hostile target: chunks become small, but everything ends, with the same bits.
TEST(Engine, ALatencyTargetChangesNoBit) {
  const auto m = load({.rows = 64, .sequences = 4}), quiet = load({.rows = 128});
  for (const double target : {1e-9, 1e-4, 1.0}) {
    Engine engine(m->ctx(), m->model(), m->cache(), nullptr,
                  {.sequences = 4, .tpot_seconds = target});
    std::vector<Heard> heard(12);
    for (size_t i = 0; i < heard.size(); ++i) engine.submit(make_request(i), listen(heard[i]));
    while (engine.step()) continue;
    for (size_t i = 0; i < heard.size(); ++i) expect_same(heard[i], alone(*quiet, make_request(i)));
    expect_idle(engine);
  }
}

}  // namespace
}  // namespace moraine
