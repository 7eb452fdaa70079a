// BenchMasks: answers drawn from masks, with a clock around each mask.
#include "bench/masks.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/quantile.h"
#include "base/random.h"
#include "grammar/grammar_cache.h"
#include "infer/engine.h"
#include "infer/token_filter.h"
#include "model/loaded_model.h"
#include "tokenizer/tokenizer.h"

namespace moraine {
namespace {

constexpr int64_t kAnswers = 32, kTokensMost = 400;

struct Case {
  const char* name;
  const char* schema;
};
constexpr Case kCases[] = {
    {"nested", R"({"type":"object","properties":{
       "name":{"type":"string","minLength":1,"maxLength":40},"age":{"type":"integer","minimum":0,"maximum":150},
       "address":{"type":"object","properties":{"street":{"type":"string","maxLength":60},
         "city":{"type":"string","minLength":2,"maxLength":30},"zip":{"type":"string","pattern":"^\\d{5}$"}},
         "required":["street","city","zip"],"additionalProperties":false},
       "tags":{"type":"array","items":{"type":"string","maxLength":20},"minItems":1,"maxItems":8},
       "orders":{"type":"array","maxItems":5,"items":{"type":"object","properties":{
         "id":{"type":"integer","minimum":1},"note":{"type":"string","maxLength":120},
         "price":{"type":"number","minimum":0}},"required":["id","note","price"],"additionalProperties":false}}},
       "required":["name","age","address","tags","orders"],"additionalProperties":false})"},
    {"patterns", R"({"type":"object","properties":{
       "code":{"type":"string","pattern":"^[A-Z]{3}-[0-9]{4}$"},"id":{"type":"string","format":"uuid"},
       "words":{"type":"string","pattern":"^(\\w+ ?)+$","minLength":8,"maxLength":80},
       "free":{"type":"string","pattern":"^[^<>]*$"},"mail":{"type":"string","format":"email"},
       "day":{"type":"string","format":"date"}},
       "required":["code","id","words","free","mail","day"],"additionalProperties":false})"},
    {"open",
     R"({"type":"object","properties":{"name":{"type":"string"},"value":{}},"required":["name","value"]})"},
    {"choices", R"({"type":"array","minItems":2,"maxItems":6,"items":{"anyOf":[
       {"type":"object","properties":{"kind":{"const":"text"},"text":{"type":"string","maxLength":80}},
        "required":["kind","text"],"additionalProperties":false},
       {"type":"object","properties":{"kind":{"const":"number"},"value":{"type":"number"}},
        "required":["kind","value"],"additionalProperties":false},
       {"type":"string","maxLength":40},{"type":"null"}]}})"}};

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// A grammar with a clock, in microseconds.
class TimedFilter final : public TokenFilter {
 public:
  TimedFilter(SharedGrammar grammar, const TokenTrie& trie, std::vector<double>* times)
      : state_(std::move(grammar), trie), times_(*times) {}
  void allowed(std::span<uint64_t> mask) override {
    const double begin = now_seconds();
    state_.allowed(mask);
    times_.push_back(1e6 * (now_seconds() - begin));
  }
  bool may_end() const override { return state_.may_end(); }
  bool must_end() const override { return state_.must_end(); }
  void accept(int32_t token) override { state_.accept(token); }

 private:
  GrammarState state_;
  std::vector<double>& times_;
};

int32_t draw(const std::vector<uint64_t>& mask, int64_t vocabulary, uint64_t seed, uint64_t step) {
  std::vector<std::pair<double, int32_t>> sums;
  double sum = 0;
  for (int32_t id = 0; id < vocabulary; ++id) {
    if ((mask[static_cast<size_t>(id / 64)] >> (id % 64) & 1) == 0) continue;
    sums.emplace_back(sum += 1 / (10.0 + id), id);
  }
  if (sums.empty()) return -1;
  const double at = sum * random_uniform(seed, Stream::kTest, step, 0);
  const auto found = std::upper_bound(sums.begin(), sums.end(), std::pair(at, int32_t{0}));
  return found == sums.end() ? sums.back().second : found->second;
}

void answer(const SharedGrammar& grammar, const TokenTrie& trie, uint64_t seed,
            std::vector<double>* times) {
  TimedFilter filter(grammar, trie, times);
  std::vector<uint64_t> mask(static_cast<size_t>(trie.mask_words()));
  for (uint64_t step = 0; step < kTokensMost && !filter.must_end(); ++step) {
    std::fill(mask.begin(), mask.end(), 0);
    filter.allowed(mask);
    const int32_t token = draw(mask, trie.vocab_size(), seed, step);
    if (token < 0) return;
    filter.accept(token);
  }
}

void print_alone(const Case& c, const TokenTrie& trie, bool json) {
  GrammarCache grammars({});
  const double begin = now_seconds();
  const SharedGrammar grammar = grammars.of_schema(parse_json(c.schema, c.name));
  const double compile_ms = 1e3 * (now_seconds() - begin);
  std::vector<double> first, later;
  answer(grammar, trie, 0, &first);
  for (uint64_t seed = 1; seed < kAnswers; ++seed) answer(grammar, trie, seed, &later);
  for (const bool is_first : {true, false}) {
    const std::vector<double>& times = is_first ? first : later;
    const double most = *std::max_element(times.begin(), times.end());
    if (json) {
      fmt::print("{}\n", json_text({{"bench", "masks"},
                                    {"name", c.name},
                                    {"first", is_first},
                                    {"compile_ms", compile_ms},
                                    {"tokens", times.size()},
                                    {"mean_us", mean(times)},
                                    {"p50_us", quantile_of(times, 0.5)},
                                    {"p99_us", quantile_of(times, 0.99)},
                                    {"most_us", most}}));
    } else {
      fmt::print("{:<10} {:<6} {:>9.2f} {:>7} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f}\n", c.name,
                 is_first ? "first" : "later", compile_ms, times.size(), mean(times),
                 quantile_of(times, 0.5), quantile_of(times, 0.99), most);
    }
  }
}

// Answers of a schema, `concurrency` at a time: their masks against the steps.
void print_engine(const Case& c, const BenchMasksOptions& o, LoadedModel& model,
                  const TokenTrie& trie, int64_t concurrency) {
  Engine engine(model.ctx(), model.model(), model.cache(), nullptr, {.sequences = concurrency});
  GrammarCache grammars({});
  const SharedGrammar grammar = grammars.of_schema(parse_json(c.schema, c.name));
  std::vector<double> times;
  int64_t running = 0, submitted = 0;
  const auto vocabulary = static_cast<uint64_t>(trie.vocab_size());
  const auto submit = [&] {
    Request r;
    for (uint64_t i = 0; i < 16; ++i) {
      r.prompt.push_back(static_cast<int32_t>(
          random_below(vocabulary, 2, Stream::kTest, static_cast<uint64_t>(submitted), i)));
    }
    r.max_tokens = o.new_tokens;
    r.sampling.seed = static_cast<uint64_t>(submitted++);
    r.filter = std::make_shared<TimedFilter>(grammar, trie, &times);
    ++running;
    engine.submit(std::move(r),
                  {.on_prompt = {}, .on_token = {}, .on_finish = [&](const Ended&) { --running; }});
  };
  const int64_t all = std::max<int64_t>(8, 2 * concurrency);
  while (submitted < all || running > 0) {
    while (submitted < all && running < concurrency) submit();
    engine.step();
  }
  const EngineStats stats = engine.stats();
  const double step_ms = 1e3 * stats.step_seconds / static_cast<double>(stats.steps),
               masks_ms = 1e-3 * mean(times) * static_cast<double>(times.size()) /
                          static_cast<double>(stats.steps);
  if (o.json) {
    fmt::print("{}\n", json_text({{"bench", "masks"},
                                  {"name", c.name},
                                  {"concurrency", concurrency},
                                  {"step_ms", step_ms},
                                  {"masks_ms", masks_ms},
                                  {"share_percent", 100 * masks_ms / step_ms},
                                  {"mask_us_mean", mean(times)},
                                  {"mask_us_p99", quantile_of(times, 0.99)}}));
    return;
  }
  fmt::print("{:<10} {:>6} {:>9.3f} {:>9.3f} {:>8.1f}% {:>9.1f} {:>9.1f}\n", c.name, concurrency,
             step_ms, masks_ms, 100 * masks_ms / step_ms, mean(times), quantile_of(times, 0.99));
}

}  // namespace

void bench_masks(const BenchMasksOptions& o) {
  if (o.model_path.empty() && o.tokenizer.empty())
    throw_error(Code::kInvalidArgument,
                "bench masks: --model and --tokenizer are missing: wanted one of them");
  FileSystem& fs = posix_file_system();
  std::unique_ptr<LoadedModel> model;
  const int64_t most = *std::max_element(o.concurrency.begin(), o.concurrency.end());
  if (!o.model_path.empty()) {
    const ModelDirectory directory = ModelDirectory::open(fs, o.model_path);
    LoadOptions load;
    load.dtype = o.dtype;
    load.threads = o.threads;
    load.tokens = std::max<int64_t>(512, most);
    load.positions = std::min(directory.config().max_positions, 16 + o.new_tokens + kPageRows);
    load.cache = {.pages = most * ((16 + o.new_tokens) / kPageRows + 2), .segments = most};
    model = LoadedModel::open(directory, load);
  }
  const std::unique_ptr<Tokenizer> tokenizer =
      Tokenizer::load(fs, o.tokenizer.empty() ? o.model_path : o.tokenizer);
  const TokenTrie trie(
      *tokenizer, model == nullptr ? tokenizer->vocabulary_size() : model->config().vocab_size);
  if (!o.json)
    fmt::print("vocabulary of {}\n{:<10} {:<6} {:>9} {:>7} {:>9} {:>9} {:>9} {:>9}\n",
               trie.vocab_size(), "masks", "answer", "comp. ms", "tokens", "mean us", "p50", "p99",
               "most");
  for (const Case& c : kCases) print_alone(c, trie, o.json);
  if (model == nullptr) return;
  if (!o.json)
    fmt::print("{:<10} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "engine", "conc", "step ms",
               "masks ms", "share", "mask us", "p99");
  for (const Case& c : kCases) {
    for (const int64_t n : o.concurrency) print_engine(c, o, *model, trie, n);
  }
}

}  // namespace moraine
