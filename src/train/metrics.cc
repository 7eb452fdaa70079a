// Metrics: writes a line with one append, so that a crash can cut only the last.
#include "train/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"

namespace moraine {
namespace {

// nlohmann writes NaN and infinity as null.
Json to_json(const StepMetrics& m) {
  Json j;
  j["step"] = m.step;
  j["steps_total"] = m.steps_total;
  j["tokens_seen"] = m.tokens_seen;
  j["targets"] = m.targets;
  j["loss"] = m.loss;
  j["gradient_norm"] = m.gradient_norm;
  j["lr"] = m.lr;
  j["tokens_per_s"] = m.tokens_per_s;
  j["percent_of_peak"] = m.percent_of_peak;
  j["step_seconds"] = m.seconds;
  j["seconds_left"] = m.seconds_left;
  j["load_max_over_mean"] = m.load_max_over_mean;
  j["load_entropy"] = m.load_entropy;
  j["skip_rate"] = m.skip_rate;
  if (!std::isnan(m.rank_load_over_mean)) j["rank_load_over_mean"] = m.rank_load_over_mean;
  if (!std::isnan(m.home_load_over_mean)) j["home_load_over_mean"] = m.home_load_over_mean;
  j["dead_experts"] = m.dead_experts;
  if (!std::isnan(m.valid_loss)) j["valid_loss"] = m.valid_loss;
  if (!std::isnan(m.bits_per_byte)) j["valid_bits_per_byte"] = m.bits_per_byte;
  if (!m.layer_loads.empty()) {
    Json layers = Json::array();
    for (const std::vector<float>& layer : m.layer_loads) {
      Json row = Json::array();
      for (const float load : layer)
        row.push_back(std::round(static_cast<double>(load) * 1e3) / 1e3);
      layers.push_back(row);
    }
    j["layer_loads"] = layers;
  }
  return j;
}

double number(const Json& j, const char* key) {
  const auto found = j.find(key);
  return found != j.end() && found->is_number() ? found->get<double>() : StepMetrics::kUnknown;
}

int64_t integer(const Json& j, const char* key) {
  const double value = number(j, key);
  constexpr double kLimit = 9e15;  // below 2^53: exact
  return std::abs(value) <= kLimit ? static_cast<int64_t>(value) : 0;
}

std::vector<std::vector<float>> parse_loads(const Json& j) {
  std::vector<std::vector<float>> loads;
  const auto found = j.find("layer_loads");
  if (found == j.end() || !found->is_array()) return loads;
  for (const Json& row : *found) {
    if (!row.is_array()) return {};
    std::vector<float>& layer = loads.emplace_back();
    for (const Json& load : row) layer.push_back(load.is_number() ? load.get<float>() : 0.0f);
  }
  return loads;
}

// The lines of `text` that end in a line end.
template <class F>
void for_lines(const std::string& text, const F& f) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) return;
    f(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

// The lines of a file of any length, from its end on.
class LinesFromTheEnd {
 public:
  explicit LinesFromTheEnd(const MappedFile& file) : file_(file), begin_(file.bytes()) {}

  // The end of the line before the last one given, in bytes of the file; 0: there is none. `line` has its line end, if
  // it is whole.
  int64_t next(std::string* line) {
    size_t before = last_line_end();
    while (before == std::string::npos && begin_ > 0) {
      prepend_block();
      before = last_line_end();
    }
    const size_t line_begin = before == std::string::npos ? 0 : before + 1;
    const int64_t end = begin_ + static_cast<int64_t>(text_.size());
    *line = text_.substr(line_begin);
    text_.resize(line_begin);
    return end;
  }

 private:
  static constexpr int64_t kBlock = int64_t{1} << 20;
  static constexpr size_t kLineMax = size_t{64} << 20;  // no line of ours: forgotten

  // Before the line that text_ ends with.
  size_t last_line_end() const {
    return text_.size() < 2 ? std::string::npos : text_.rfind('\n', text_.size() - 2);
  }
  void prepend_block() {
    if (text_.size() > kLineMax) text_.clear();
    const int64_t bytes = std::min(begin_, kBlock);
    std::string block(static_cast<size_t>(bytes), '\0');
    begin_ -= bytes;
    file_.read_at(begin_, bytes, block.data());
    text_.insert(0, block);
  }

  const MappedFile& file_;
  int64_t begin_;     // of text_ in the file
  std::string text_;  // not given yet
};

// Where the last line of a step from 1 to `step` ends.
int64_t end_of_step(const MappedFile& file, int64_t step) {
  LinesFromTheEnd lines(file);
  std::string line;
  for (int64_t end = step > 0 ? lines.next(&line) : 0; end > 0; end = lines.next(&line)) {
    if (!line.ends_with('\n')) continue;
    line.pop_back();
    StepMetrics m;
    if (parse_metrics(line, &m) && m.step <= step) return end;
  }
  return 0;
}

}  // namespace

void set_load(StepMetrics* metrics, const Tensor& load, bool skip, bool with_layers) {
  const int64_t L = load.dims[0], C = load.dims[1], E = skip ? C - 1 : C;
  MR_CHECK(E >= 1, "C=%ld", long(C));
  metrics->load_max_over_mean = 0;
  metrics->load_entropy = 0;
  metrics->dead_experts = 0;
  metrics->layer_loads.clear();
  int64_t skipped = 0, chosen = 0;
  for (int64_t l = 0; l < L; ++l) {
    const int64_t* counts = load.as<int64_t>() + l * C;
    int64_t real = 0, most = 0;
    for (int64_t e = 0; e < E; ++e) {
      real += counts[e];
      most = std::max(most, counts[e]);
      metrics->dead_experts += counts[e] == 0;
    }
    chosen += real;
    if (skip) skipped += counts[E];
    const double mean = static_cast<double>(real) / static_cast<double>(E);
    double entropy = 0;
    std::vector<float> layer;
    for (int64_t e = 0; e < E; ++e) {
      const double share =
          real > 0 ? static_cast<double>(counts[e]) / static_cast<double>(real) : 0;
      if (share > 0) entropy -= share * std::log(share);
      layer.push_back(static_cast<float>(share * static_cast<double>(E)));
    }
    metrics->load_entropy += E > 1 ? entropy / std::log(static_cast<double>(E)) : 1;
    if (real > 0)
      metrics->load_max_over_mean =
          std::max(metrics->load_max_over_mean, static_cast<double>(most) / mean);
    if (with_layers) metrics->layer_loads.push_back(layer);
  }
  metrics->load_entropy /= static_cast<double>(std::max<int64_t>(L, 1));
  const int64_t all = chosen + skipped;
  metrics->skip_rate = all > 0 ? static_cast<double>(skipped) / static_cast<double>(all) : 0;
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0 && seconds < 1e10)) return "?";
  const int64_t s = static_cast<int64_t>(seconds + 0.5);
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s % 3600 / 60);
  return fmt::format("{}d{:02}h", s / 86400, s % 86400 / 3600);
}

std::string format_count(double count) {
  if (!std::isfinite(count)) return "?";
  if (count < 999.5) return fmt::format("{:.0f}", count);
  const char* unit = "k";
  count /= 1e3;
  for (const char* next : {"M", "G", "T"}) {
    if (count < 999.5) break;
    count /= 1e3;
    unit = next;
  }
  return fmt::format("{:.{}f}{}", count, count < 9.995 ? 2 : count < 99.95 ? 1 : 0, unit);
}

std::string human_line(const StepMetrics& m) {
  std::string line = m.steps_total > 0 ? fmt::format("step {}/{}", m.step, m.steps_total)
                                       : fmt::format("step {}", m.step);
  const auto add = [&](double value, const std::string& text) {
    if (!std::isnan(value)) line += text;
  };
  line += fmt::format("  loss {:.4f}", m.loss);  // NaN here is news, not absence
  add(m.valid_loss, fmt::format("  valid {:.4f}", m.valid_loss));
  add(m.bits_per_byte, fmt::format("  {:.3f} bits/byte", m.bits_per_byte));
  line += fmt::format("  norm {:.2f}", m.gradient_norm);
  std::string lr = fmt::format("{:.1e}", m.lr);  // 3.0e-04
  const size_t zero = lr.find("e-0");
  if (zero != std::string::npos) lr.erase(zero + 2, 1);
  add(m.lr, "  lr " + lr);
  add(m.seconds, m.seconds < 10 ? fmt::format("  {:.0f} ms", m.seconds * 1e3)
                                : fmt::format("  {:.1f} s", m.seconds));
  add(m.tokens_per_s, fmt::format("  {} tok/s", format_count(m.tokens_per_s)));
  add(m.percent_of_peak, fmt::format("  {:.1f}% of peak", m.percent_of_peak));
  add(m.load_max_over_mean,
      fmt::format("  balance {:.2f} ent {:.2f} skip {:.1f}% dead {}", m.load_max_over_mean,
                  m.load_entropy, m.skip_rate * 100, m.dead_experts));
  add(m.rank_load_over_mean, fmt::format("  ranks {:.2f}", m.rank_load_over_mean));
  add(m.seconds_left, "  left " + format_duration(m.seconds_left));
  return line;
}

std::string metrics_json(const StepMetrics& metrics) { return json_text(to_json(metrics)); }

bool parse_metrics(const std::string& line, StepMetrics* metrics) {
  const Json j = parse_json_or_null(line);
  if (!j.is_object() || std::isnan(number(j, "step")) || integer(j, "step") < 1) return false;
  StepMetrics m;
  m.step = integer(j, "step");
  m.steps_total = integer(j, "steps_total");
  m.tokens_seen = integer(j, "tokens_seen");
  m.loss = number(j, "loss");
  m.gradient_norm = number(j, "gradient_norm");
  m.lr = number(j, "lr");
  m.tokens_per_s = number(j, "tokens_per_s");
  m.percent_of_peak = number(j, "percent_of_peak");
  m.seconds = number(j, "step_seconds");
  m.seconds_left = number(j, "seconds_left");
  m.load_max_over_mean = number(j, "load_max_over_mean");
  m.load_entropy = number(j, "load_entropy");
  m.skip_rate = number(j, "skip_rate");
  m.rank_load_over_mean = number(j, "rank_load_over_mean");
  m.home_load_over_mean = number(j, "home_load_over_mean");
  m.dead_experts = integer(j, "dead_experts");
  m.valid_loss = number(j, "valid_loss");
  m.bits_per_byte = number(j, "valid_bits_per_byte");
  m.layer_loads = parse_loads(j);
  *metrics = std::move(m);
  return true;
}

std::vector<StepMetrics> read_metrics(FileSystem& fs, const std::string& path) {
  std::vector<StepMetrics> all;
  for_lines(fs.read(path), [&](const std::string& line) {
    StepMetrics m;
    if (parse_metrics(line, &m)) all.push_back(std::move(m));
  });
  std::stable_sort(all.begin(), all.end(),
                   [](const StepMetrics& a, const StepMetrics& b) { return a.step < b.step; });
  return all;
}

MetricsWriter::MetricsWriter(FileSystem& fs, const std::string& path, int64_t resumed_step) {
  if (fs.exists(path)) {
    const std::unique_ptr<MappedFile> file = fs.map(path);
    const int64_t kept = end_of_step(*file, resumed_step);
    if (kept < file->bytes()) fs.truncate(path, kept);
  }
  file_ = fs.append_to(path);
}

void MetricsWriter::write(const StepMetrics& metrics) {
  const std::string line = (failed_ ? "\n" : "") + metrics_json(metrics) + "\n";
  try {
    file_->append(line.data(), static_cast<int64_t>(line.size()));
    failed_ = false;
  } catch (const Error& e) {
    if (!failed_) {
      log_event(Level::kWarning, "metrics.failed",
                "code={} reason=\"{}\" remedy=\"training goes on, the next line tries again\"",
                code_name(e.code()), e.what());
    }
    failed_ = true;
  }
}

}  // namespace moraine
