// Metrics: counters, gauges and histograms, written in the text format of Prometheus.
//
// Every request ends in exactly one outcome of moraine_requests_total. Names and units: docs/serving.md.
// Threads: any.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/http_exchange.h"

namespace moraine {

// Counts of values up to each bound.
class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds)
      : bounds_(bounds.begin(), bounds.end()), counts_(bounds.size() + 1) {}
  void add(double value);
  void write(const std::string& name, std::string* out) const;  // without HELP and TYPE

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;
  double sum_ = 0;
};

// How a request ended.
enum class Outcome {
  kOk,
  kInvalid,
  kUnauthorized,
  kOverloaded,
  kCancelled,  // the client went
  kUnread,     // the client did not read the answer, and was closed
  kFailed,
  kDraining
};
const char* outcome_name(Outcome outcome);  // "ok", "invalid", ...
Outcome outcome_of_status(int status);
Outcome outcome_of(Delivery how);  // of an answer that is none of an error

class ServerMetrics {
 public:
  ServerMetrics();
  void ended(const std::string& endpoint, Outcome outcome, double seconds);
  void prompt(int64_t tokens, int64_t cached);
  void first_token(double seconds);
  void next_token(double seconds);
  void reloaded(bool well);

  // Values that are read when somebody asks: {name, help, value}.
  struct Gauge {
    const char* name;
    const char* help;
    double value;
  };
  std::string text(std::span<const Gauge> gauges, const std::string& model,
                   const std::string& fingerprint) const;
  int64_t ended_total() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, int64_t> requests_;  // endpoint, outcome
  int64_t prompt_tokens_ = 0, cached_tokens_ = 0, generated_tokens_ = 0;
  int64_t reloads_ = 0, failed_reloads_ = 0;
  Histogram first_token_, next_token_, duration_;
};

}  // namespace moraine
