// Metrics: the text format of Prometheus, version 0.0.4.
#include "server/metrics.h"

#include <fmt/format.h>

namespace moraine {
namespace {

constexpr double kSeconds[] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                               1,     2.5,  5,     10,   30,  60,   300};
constexpr double kTokenSeconds[] = {0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04,
                                    0.06,  0.1,    0.15,  0.25, 0.5,   1,    2.5};

void describe(const char* name, const char* type, const char* help, std::string* out) {
  *out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void counter(const char* name, const char* help, int64_t value, std::string* out) {
  describe(name, "counter", help, out);
  *out += fmt::format("{} {}\n", name, value);
}

std::string label(const std::string& value) {
  std::string escaped;
  for (char c : value) {
    if (c == '\\' || c == '"') escaped += '\\';
    if (c == '\n')
      escaped += "\\n";
    else
      escaped += c;
  }
  return escaped;
}

}  // namespace

void Histogram::add(double value) {
  size_t bin = 0;
  while (bin < bounds_.size() && value > bounds_[bin]) ++bin;
  ++counts_[bin];
  sum_ += value;
}

void Histogram::write(const std::string& name, std::string* out) const {
  int64_t count = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    count += counts_[i];
    const std::string bound = i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf";
    *out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bound, count);
  }
  *out += fmt::format("{}_sum {}\n{}_count {}\n", name, sum_, name, count);
}

const char* outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk:
      return "ok";
    case Outcome::kInvalid:
      return "invalid";
    case Outcome::kUnauthorized:
      return "unauthorized";
    case Outcome::kOverloaded:
      return "overloaded";
    case Outcome::kCancelled:
      return "cancelled";
    case Outcome::kUnread:
      return "unread";
    case Outcome::kFailed:
      return "failed";
    case Outcome::kDraining:
      return "draining";
  }
  return "failed";
}

Outcome outcome_of_status(int status) {
  if (status < 400) return Outcome::kOk;
  if (status == 401 || status == 403) return Outcome::kUnauthorized;
  if (status == 429) return Outcome::kOverloaded;
  if (status == 503) return Outcome::kDraining;
  return status < 500 ? Outcome::kInvalid : Outcome::kFailed;
}

ServerMetrics::ServerMetrics()
    : first_token_(kSeconds), next_token_(kTokenSeconds), duration_(kSeconds) {}

Outcome outcome_of(Delivery how) {
  if (how == Delivery::kTaken) return Outcome::kOk;
  return how == Delivery::kUnread ? Outcome::kUnread : Outcome::kCancelled;
}

void ServerMetrics::ended(const std::string& endpoint, Outcome outcome, double seconds) {
  std::lock_guard lock(mutex_);
  ++requests_[{endpoint, outcome_name(outcome)}];
  duration_.add(seconds);
}

void ServerMetrics::prompt(int64_t tokens, int64_t cached) {
  std::lock_guard lock(mutex_);
  prompt_tokens_ += tokens;
  cached_tokens_ += cached;
}

void ServerMetrics::first_token(double seconds) {
  std::lock_guard lock(mutex_);
  ++generated_tokens_;
  first_token_.add(seconds);
}

void ServerMetrics::next_token(double seconds) {
  std::lock_guard lock(mutex_);
  ++generated_tokens_;
  next_token_.add(seconds);
}

void ServerMetrics::reloaded(bool well) {
  std::lock_guard lock(mutex_);
  ++(well ? reloads_ : failed_reloads_);
}

int64_t ServerMetrics::ended_total() const {
  std::lock_guard lock(mutex_);
  int64_t total = 0;
  for (const auto& [key, count] : requests_) total += count;
  return total;
}

std::string ServerMetrics::text(std::span<const Gauge> gauges, const std::string& model,
                                const std::string& fingerprint) const {
  std::lock_guard lock(mutex_);
  std::string out;
  describe("moraine_requests_total", "counter", "Requests that ended, by endpoint and outcome.",
           &out);
  for (const auto& [key, count] : requests_)
    out += fmt::format("moraine_requests_total{{endpoint=\"{}\",outcome=\"{}\"}} {}\n",
                       label(key.first), key.second, count);
  counter("moraine_prompt_tokens_total", "Tokens of prompts.", prompt_tokens_, &out);
  counter("moraine_prompt_tokens_cached_total", "Tokens of prompts that the prefix cache had.",
          cached_tokens_, &out);
  counter("moraine_generated_tokens_total", "Tokens of answers.", generated_tokens_, &out);
  counter("moraine_reloads_total", "Newer checkpoints that were taken.", reloads_, &out);
  counter("moraine_reloads_failed_total", "Newer checkpoints that could not be read.",
          failed_reloads_, &out);
  describe("moraine_time_to_first_token_seconds", "histogram",
           "From the whole request to its first token.", &out);
  first_token_.write("moraine_time_to_first_token_seconds", &out);
  describe("moraine_inter_token_seconds", "histogram", "From one token of an answer to the next.",
           &out);
  next_token_.write("moraine_inter_token_seconds", &out);
  describe("moraine_request_seconds", "histogram",
           "From the whole request to the end of its answer.", &out);
  duration_.write("moraine_request_seconds", &out);
  for (const Gauge& gauge : gauges) {
    describe(gauge.name, "gauge", gauge.help, &out);
    out += fmt::format("{} {}\n", gauge.name, gauge.value);
  }
  describe("moraine_model_info", "gauge", "The model that answers now.", &out);
  out += fmt::format("moraine_model_info{{model=\"{}\",fingerprint=\"{}\"}} 1\n", label(model),
                     label(fingerprint));
  return out;
}

}  // namespace moraine
