// BenchInference: steps as an engine makes them (infer/rank_steps.h), without one.
#include "bench/inference.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/random.h"
#include "bench/put_line.h"
#include "infer/head_pass.h"
#include "infer/rank_steps.h"
#include "kernels/peak.h"
#include "kernels/profile.h"
#include "machine/machine.h"
#include "model/forward_observer.h"
#include "model/loaded_model.h"
#include "train/time_split.h"

namespace moraine {
namespace {

// The packs that a step reads, and how many experts were wanted.
class PacksRead : public ForwardObserver {
 public:
  explicit PacksRead(const Model& model) : model_(model) {}

  void reads(int64_t, ServedMatrix, const Tensor&, std::span<const int64_t>) override {}
  void chooses(int64_t layer, const Tensor& expert) override {
    const LayerWeights& w = model_.weights().layers[static_cast<size_t>(layer)];
    const int32_t* chosen = expert.as<int32_t>();
    std::set<int32_t> wanted(chosen, chosen + expert.count());
    wanted.erase(static_cast<int32_t>(model_.config().experts));  // skipping reads nothing
    const double experts = static_cast<double>(wanted.size());
    bytes_ += experts / static_cast<double>(w.gate_up.forward.groups) *
              (bytes(w.gate_up) + bytes(w.down));
  }

  // Of the step that was seen, with what every step reads but the head.
  double step_bytes() const {
    double sum = bytes_;
    for (const LayerWeights& w : model_.weights().layers) {
      for (const MatrixPack* pack : {&w.qkv, &w.conv_grouped, &w.o, &w.router_down, &w.router_fc1,
                                     &w.router_fc2, &w.router_out})
        sum += bytes(*pack);
      if (model_.config().dense()) sum += bytes(w.gate_up) + bytes(w.down);
    }
    return sum;
  }

 private:
  static double bytes(const MatrixPack& pack) {
    return pack.forward.data == nullptr ? 0 : static_cast<double>(packed_bytes(pack.forward));
  }

  const Model& model_;
  double bytes_ = 0;
};

class Sequences {
 public:
  Sequences(const BenchInferenceOptions& o, int64_t rows, int64_t sequences, int64_t positions)
      : pages_(positions / kPageRows + 1) {
    const ModelDirectory directory = ModelDirectory::open(posix_file_system(), o.model_path);
    if (positions > directory.config().max_positions) {
      throw_error(Code::kInvalidArgument,
                  "{} positions, those of steps included: the model {} was made for {} "
                  "(max_positions); lower --prompts, or --context or --steps",
                  positions, o.model_path, directory.config().max_positions);
    }
    LoadOptions load;
    load.dtype = o.dtype;
    load.threads = o.threads;
    load.tokens = rows;
    load.positions = positions;
    load.cache = {.pages = sequences * pages_, .segments = sequences};
    load.head = o.head;
    model = LoadedModel::open(directory, load);
    head_ = std::make_unique<HeadPass>(arena_, model->ctx(), model->model());
  }

  // `rows` tokens of each of n sequences, from `position` on; the last rows' logits, as a server wants them.
  void step(int64_t n, int64_t rows, int64_t position) {
    Step step;
    const auto V = static_cast<uint64_t>(model->config().vocab_size);
    for (int64_t s = 0; s < n; ++s) {
      step.segments.push_back({.row_begin = s * rows,
                               .rows = rows,
                               .position_begin = position,
                               .key_begin = s * pages_});
      for (int64_t i = 0; i < rows; ++i) {
        step.token.push_back(static_cast<int32_t>(random_below(V, 1, Stream::kTest, next_++, 0)));
        step.position.push_back(static_cast<int32_t>(position + i));
      }
      for (int64_t page = 0; page < pages_; ++page)
        step.pages.push_back(static_cast<int32_t>(s * pages_ + page));
    }
    const Tensor hidden = compute_step(model->ctx(), model->model(), model->cache(), step);
    const HeadRow row = {.position = position + rows, .sampling = &greedy_, .counts = &no_counts_};
    head_->run(hidden.rows(n * rows - n, n * rows),
               std::vector<HeadRow>(static_cast<size_t>(n), row));
  }

  // A step of a token of each. Returns the bytes that it reads: packs, and n sequences' keys and values before
  // `position`.
  double run_counted_step(int64_t n, int64_t position) {
    const HeadStats before = head_->stats();
    PacksRead packs(model->model());
    model->model().observe(&packs);
    step(n, 1, position);
    model->model().observe(nullptr);
    const ModelConfig& c = model->config();
    const int64_t keys =
        2 * c.kv_heads * c.head_dim * c.layers * dtype_bytes(model->model().options().compute);
    return packs.step_bytes() + head_bytes(before) + static_cast<double>(n * position * keys);
  }

  // Panels that second stages read, as a part of the head, since the last call; 1 where there were none.
  double take_panel_share() {
    const HeadStats before = std::exchange(told_, head_->stats());
    const auto all = static_cast<double>(told_.panels_all - before.panels_all);
    return all == 0 ? 1 : static_cast<double>(told_.panels - before.panels) / all;
  }

  bool bf16() const { return model->model().options().compute == DType::kBF16; }

  std::unique_ptr<LoadedModel> model;

 private:
  // Of the call since `before`.
  double head_bytes(const HeadStats& before) const {
    const HeadStats& s = head_->stats();
    const auto bytes = static_cast<double>(packed_bytes(model->model().weights().head.forward));
    const bool staged = s.two_stage > before.two_stage || s.abandoned > before.abandoned;
    const double copy =
        staged ? static_cast<double>(packed_bytes(model->model().coarse_head().pack)) : 0;
    if (s.full > before.full) return copy + bytes;
    return copy + bytes * static_cast<double>(s.panels - before.panels) /
                      static_cast<double>(s.panels_all - before.panels_all);
  }

  int64_t pages_;  // of a sequence
  uint64_t next_ = 0;
  Arena arena_{Arena::Mode::kReal};  // of head_
  std::unique_ptr<HeadPass> head_;
  HeadStats told_;
  const SamplingOptions greedy_ = {.temperature = 0};
  const TokenCounts no_counts_;
};

// What took how long, beside the machine's limits of the same moments.
struct Measured {
  double seconds = 0;  // decode: of a step, the median
  std::vector<Profile::Row> rows = {};
  RankLimits limits = {};
  double flops_s() const {
    double flops = 0;
    for (const Profile::Row& row : rows) flops += row.flops;
    return flops / seconds;
  }
  // What arithmetic asks of the time.
  double peak_share() const { return arithmetic_seconds(rows, limits) / seconds; }
  // What flops or bytes, whichever bind, ask of each operation's time.
  double floor_share() const {
    const TimeSplit split = split_time(rows, limits);
    return (split.flops_bound_floor + split.bytes_bound_floor) / split.seconds;
  }
};

// Seconds of f(), its operations, and the mean of the limits before and after it. Of bytes the limit is of reads, as in
// DecodeRounds.
template <class F>
Measured measure(Sequences& sequences, const F& f) {
  Context& ctx = sequences.model->ctx();
  Measured m;
  const auto add_half_of_limits = [&] {
    const Machine machine = measure_machine_quick(*ctx.pool);
    const RankLimits limits = rank_limits(machine, ctx.pool->threads(), sequences.bf16());
    m.limits.flops_s += 0.5 * limits.flops_s;
    m.limits.bytes_s += 0.5 * 1e9 * machine.read_gb_s;
    m.limits.integer_ops_s += 0.5 * limits.integer_ops_s;
  };
  add_half_of_limits();
  Profile profile;
  ctx.profile = &profile;
  m.seconds = f();
  ctx.profile = nullptr;
  m.rows = profile.rows();
  add_half_of_limits();
  return m;
}

void tell(const BenchInferenceOptions& o, const std::string& line, int64_t done, int64_t total) {
  if (o.progress) o.progress(line, done, total);
}

struct Decoded : Measured {
  double bytes = 0;         // of the last step
  double gb_s = 0;          // the median step's
  double memory_share = 0;  // the median round's: of what memory gave just before and after it
};

// Steps in rounds of a few, with the limits between them: memory that others use as well gives twice as much in one
// second as in the next, so each round is held against its own. The limit is of reads: weights are not written.
class DecodeRounds {
 public:
  explicit DecodeRounds(Sequences& sequences)
      : sequences_(sequences),
        ctx_(sequences.model->ctx()),
        buffer_(arena_.take("bench.stream", "scratch", DType::kU8, {kBufferBytes})) {}

  Decoded run(int64_t n, const BenchInferenceOptions& o) {
    Decoded d;
    Profile profile;
    std::vector<double> seconds, rates, shares, flops = {peak()}, integers = {integer_peak()},
                                                reads = {read()};
    const std::string line = fmt::format("decode {}", n);
    tell(o, line, 0, o.steps);
    for (int64_t i = 0, round = 0; i < o.steps; ++round) {
      const int64_t end = std::max(i + 1, (round + 1) * o.steps / kRounds);
      std::vector<double> here;
      ctx_.profile = &profile;
      for (; i < end; ++i) {
        const double begin = now_seconds();
        d.bytes = sequences_.run_counted_step(n, o.context + i);
        seconds.push_back(now_seconds() - begin);
        tell(o, line, i + 1, o.steps);
        here.push_back(d.bytes / seconds.back() * 1e-9);
      }
      ctx_.profile = nullptr;
      flops.push_back(peak());
      integers.push_back(integer_peak());
      reads.push_back(read());
      shares.push_back(spread_of(here).median / (0.5 * (reads.end()[-2] + reads.back())));
      rates.insert(rates.end(), here.begin(), here.end());
    }
    d.seconds = spread_of(seconds).median;
    d.rows = profile.rows();
    d.limits = {.flops_s = 1e9 * spread_of(flops).median,
                .bytes_s = 1e9 * spread_of(reads).median,
                .integer_ops_s = 1e9 * spread_of(integers).median};
    d.gb_s = spread_of(rates).median;
    d.memory_share = spread_of(shares).median;
    return d;
  }

 private:
  static constexpr int64_t kRounds = 8;
  static constexpr int64_t kBufferBytes = int64_t{256} << 20;  // 8 times a 32 MiB cache
  static constexpr double kSeconds = 0.01;                     // eleven bursts at least

  double read() { return measure_stream(*ctx_.pool, StreamKind::kRead, buffer_, kSeconds).median; }
  double peak() { return measure_matmul_gflops(*ctx_.pool, sequences_.bf16(), kSeconds); }
  double integer_peak() { return measure_peak(*ctx_.pool, PeakKind::kInt8, kSeconds).median; }

  Sequences& sequences_;
  Context& ctx_;
  Arena arena_{Arena::Mode::kReal};
  Tensor buffer_;
};

void check(const BenchInferenceOptions& o, const std::vector<int64_t>& counts) {
  if (o.model_path.empty())
    throw_error(Code::kInvalidArgument, "--model is missing: wanted a model directory");
  if (counts.empty() || *std::min_element(counts.begin(), counts.end()) < 1)
    throw_error(Code::kInvalidArgument, "wanted counts of 1 or more");
}

}  // namespace

void bench_prefill(const BenchInferenceOptions& o) {
  check(o, o.prompts);
  const int64_t longest = *std::max_element(o.prompts.begin(), o.prompts.end());
  Sequences sequences(o, std::min(o.rows, longest), 1, longest);
  sequences.step(1, std::min(o.rows, longest), 0);  // memory is touched
  for (const int64_t tokens : o.prompts) {
    const Measured m = measure(sequences, [&] {
      const std::string line = fmt::format("prefill {}", tokens);
      tell(o, line, 0, tokens);
      const double begin = now_seconds();
      for (int64_t at = 0; at < tokens; at += o.rows) {
        const int64_t rows = std::min(o.rows, tokens - at);
        sequences.step(1, rows, at);
        tell(o, line, at + rows, tokens);
      }
      return now_seconds() - begin;
    });
    const double rate = static_cast<double>(tokens) / m.seconds, flops_s = m.flops_s();
    if (o.json) {
      put_now(json_text({{"bench", "prefill"},
                         {"tokens", tokens},
                         {"first_token_ms", 1e3 * m.seconds},
                         {"tokens_per_s", rate},
                         {"gflop_per_s", 1e-9 * flops_s},
                         {"peak_gflop_per_s", 1e-9 * m.limits.flops_s},
                         {"peak_integer_gop_per_s", 1e-9 * m.limits.integer_ops_s},
                         {"peak_share", m.peak_share()}}));
    } else {
      put_now(fmt::format("{:<8} {:>8} {:>10} {:>10} {:>10} {:>9}\n", "prefill", "tokens", "first",
                          "tokens/s", "GFLOP/s", "of peak") +
              fmt::format("{:<8} {:>8} {:>8.1f}ms {:>10.1f} {:>10.1f} {:>8.1f}%\n{}", "", tokens,
                          1e3 * m.seconds, rate, 1e-9 * flops_s, 100 * m.peak_share(),
                          time_table(m.rows, m.limits)));
    }
  }
}

void bench_decode(const BenchInferenceOptions& o) {
  check(o, o.sequences);
  const int64_t most = *std::max_element(o.sequences.begin(), o.sequences.end());
  Sequences sequences(o, most, most, o.context + o.steps + 2);
  DecodeRounds rounds(sequences);
  for (const int64_t n : o.sequences) {
    sequences.step(n, 1, o.context);  // memory is touched
    const Decoded d = rounds.run(n, o);
    const double tokens = static_cast<double>(n) / d.seconds, panels = sequences.take_panel_share();
    if (o.json) {
      put_now(json_text({{"bench", "decode"},
                         {"sequences", n},
                         {"context", o.context},
                         {"step_ms", 1e3 * d.seconds},
                         {"tokens_per_s", tokens},
                         {"step_bytes", d.bytes},
                         {"gb_s", d.gb_s},
                         {"memory_share", d.memory_share},
                         {"floor_share", d.floor_share()},
                         {"head_panel_share", panels},
                         {"read_gb_s", 1e-9 * d.limits.bytes_s}}));
    } else {
      put_now(
          fmt::format("{:<8} {:>9} {:>10} {:>10} {:>10} {:>10} {:>9} {:>9} {:>12}\n", "decode",
                      "sequences", "step", "tokens/s", "MB a step", "GB/s", "of memory", "of floor",
                      "head panels") +
          fmt::format("{:<8} {:>9} {:>8.2f}ms {:>10.1f} {:>10.1f} {:>10.2f} {:>8.1f}% {:>8.1f}% "
                      "{:>11.2f}%\n{}",
                      "", n, 1e3 * d.seconds, tokens, d.bytes * 1e-6, d.gb_s, 100 * d.memory_share,
                      100 * d.floor_share(), 100 * panels, time_table(d.rows, d.limits)));
    }
  }
}

}  // namespace moraine
