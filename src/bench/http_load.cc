// HttpLoad: threads that ask, and the server's own account before and after.
#include "bench/http_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/json.h"
#include "base/quantile.h"
#include "base/random.h"
#include "base/thread.h"
#include "bench/http_client.h"

namespace moraine {
namespace {

// Seconds since the server's start.
struct Spent {
  double steps = 0, model = 0, http = 0;
};

struct Load {
  int64_t concurrency = 1;
  int64_t prompt_tokens = 0, answer_tokens = 0;
  double seconds = 0;
  std::vector<double> first_ms = {}, between_ms = {};
  std::optional<Spent> spent = {};
};

// The first line that is neither empty nor a comment, as the server reads it.
std::string first_key(const std::string& path) {
  if (path.empty()) return "";
  std::istringstream lines(posix_file_system().read(path));
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty() && line.front() != '#') return line;
  }
  throw_error(Code::kInvalidArgument, "--api-key-file {}: no key in it", path);
}

// The number of a line "name value"; none if there is no such line.
std::optional<double> metric(const std::string& page, const char* name) {
  const size_t at = page.find(fmt::format("\n{} ", name));
  if (at == std::string::npos) return {};
  const char* begin = page.data() + page.find(' ', at) + 1;
  double value = 0;
  if (std::from_chars(begin, page.data() + page.size(), value).ec != std::errc()) return {};
  return value;
}

class Clients {
 public:
  Clients(const HttpLoadOptions& options)
      : o_(options), server_(parse_server_url(options.url)), key_(first_key(options.api_key_file)) {
    HttpClient client(server_, key_);
    model_ = o_.model.empty() ? first_model(client) : o_.model;
  }
  const std::string& model() const { return model_; }
  Load run(int64_t concurrency);

 private:
  std::string first_model(HttpClient& client) const;
  std::optional<Spent> spent() const;
  std::string request(uint64_t seed) const;
  void ask_until_none_is_left(Load* load);
  void ask(HttpClient& client, Load* load);

  const HttpLoadOptions& o_;
  const ServerUrl server_;
  const std::string key_;
  std::string model_;
  std::mutex mutex_;  // of the load, and:
  int64_t to_ask_ = 0;
  uint64_t next_ = 0;  // seed: no two requests are the same
  std::exception_ptr failure_;
};

[[noreturn]] void refuse(const ServerUrl& server, const HttpClient::Answer& answer) {
  const Json body = parse_json_or_null(answer.body);
  const bool says = body.is_object() && body.contains("error") && body["error"].is_object() &&
                    body["error"].contains("message") && body["error"]["message"].is_string();
  throw_error(Code::kIo, "{} answers {}: {}", server.text, answer.status,
              says ? body["error"]["message"].get<std::string>() : answer.body.substr(0, 200));
}

std::string Clients::first_model(HttpClient& client) const {
  const HttpClient::Answer answer = client.get("/v1/models");
  if (answer.status != 200) refuse(server_, answer);
  const Json body = parse_json_or_null(answer.body);
  if (body.is_object() && body.contains("data") && body["data"].is_array() &&
      !body["data"].empty() && body["data"][0].is_object() && body["data"][0].contains("id") &&
      body["data"][0]["id"].is_string())
    return body["data"][0]["id"].get<std::string>();
  throw_error(Code::kIo, "{}: /v1/models names no model; wanted --model", server_.text);
}

std::optional<Spent> Clients::spent() const {
  HttpClient client(server_, key_);
  const HttpClient::Answer page = client.get("/metrics");
  const auto steps = metric(page.body, "moraine_engine_step_seconds"),
             model = metric(page.body, "moraine_engine_model_seconds"),
             http = metric(page.body, "moraine_http_processor_seconds");
  if (page.status != 200 || !steps || !model || !http) return {};
  return Spent{.steps = *steps, .model = *model, .http = *http};
}

std::string Clients::request(uint64_t seed) const {
  Json prompt = Json::array();
  for (int64_t i = 0; i < o_.prompt_tokens; ++i)
    prompt.push_back(random_below(256, seed, Stream::kTest, 0, static_cast<uint64_t>(i)));
  return json_text({{"model", model_},
                    {"prompt", prompt},
                    {"max_tokens", o_.new_tokens},
                    {"ignore_eos", true},
                    {"seed", seed},
                    {"stream", true},
                    {"stream_options", {{"include_usage", true}}}});
}

void Clients::ask(HttpClient& client, Load* load) {
  uint64_t seed;
  {
    const std::lock_guard lock(mutex_);
    seed = next_++;
  }
  const std::string body = request(seed);
  const double begin = now_seconds();
  std::vector<double> heard;
  const HttpClient::Answer answer =
      client.post("/v1/completions", body, [&](std::string_view piece) {
        if (piece.find("\"choices\":[{") != std::string_view::npos) heard.push_back(now_seconds());
      });
  if (answer.status != 200) refuse(server_, answer);
  const size_t at = answer.body.rfind("\"completion_tokens\":");
  int64_t tokens = 0;
  if (at != std::string::npos) {
    const char* digits =
        answer.body.data() + at + std::string_view("\"completion_tokens\":").size();
    std::from_chars(digits, answer.body.data() + answer.body.size(), tokens);
  }
  if (heard.empty() || tokens == 0)
    throw_error(Code::kIo, "{}: an answer without tokens: {}", server_.text,
                answer.body.substr(0, 200));
  const std::lock_guard lock(mutex_);
  load->prompt_tokens += o_.prompt_tokens;
  load->answer_tokens += tokens;
  load->first_ms.push_back(1e3 * (heard.front() - begin));
  for (size_t i = 1; i < heard.size(); ++i)
    load->between_ms.push_back(1e3 * (heard[i] - heard[i - 1]));
}

void Clients::ask_until_none_is_left(Load* load) {
  try {
    HttpClient client(server_, key_);
    for (;;) {
      {
        const std::lock_guard lock(mutex_);
        if (to_ask_ == 0 || failure_) return;
        --to_ask_;
      }
      ask(client, load);
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

Load Clients::run(int64_t concurrency) {
  Load load{.concurrency = concurrency};
  to_ask_ = std::max<int64_t>(4, 2 * concurrency);
  const std::optional<Spent> before = spent();
  const double begin = now_seconds();
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < concurrency; ++i)
    threads.push_back(start_thread("ask a server", [&] { ask_until_none_is_left(&load); }));
  for (std::thread& t : threads) t.join();
  load.seconds = now_seconds() - begin;
  if (failure_) std::rethrow_exception(failure_);
  const std::optional<Spent> after = spent();
  if (before && after)
    load.spent = Spent{.steps = after->steps - before->steps,
                       .model = after->model - before->model,
                       .http = after->http - before->http};
  return load;
}

void print(const Load& l, bool json) {
  const auto between = [&](double p) { return quantile_of(l.between_ms, p); };
  const double first = quantile_of(l.first_ms, 0.5),
               prefill = static_cast<double>(l.prompt_tokens) / l.seconds,
               tokens = static_cast<double>(l.answer_tokens) / l.seconds;
  const bool known = l.spent && l.spent->steps > 0;
  const double beside = known ? 100 * (1 - l.spent->model / l.spent->steps) : 0,
               http = known ? 100 * l.spent->http / l.spent->steps : 0;
  if (json) {
    Json line = {{"bench", "serve"},
                 {"name", "http"},
                 {"concurrency", l.concurrency},
                 {"prompt_tokens_per_s", prefill},
                 {"tokens_per_s", tokens},
                 {"first_token_ms_median", first},
                 {"between_ms_p50", between(0.5)},
                 {"between_ms_p95", between(0.95)},
                 {"between_ms_p99", between(0.99)}};
    if (known) line["beside_percent"] = beside, line["http_percent"] = http;
    fmt::print("{}\n", json_text(line));
    return;
  }
  fmt::print("{:>5} {:>9.0f} {:>9.1f} {:>6.1f}ms {:>6.2f}ms {:>6.2f}ms {:>6.2f}ms {:>8} {:>8}\n",
             l.concurrency, prefill, tokens, first, between(0.5), between(0.95), between(0.99),
             known ? fmt::format("{:.1f}%", beside) : "-",
             known ? fmt::format("{:.1f}%", http) : "-");
}

}  // namespace

void bench_http_load(const HttpLoadOptions& o) {
  Clients clients(o);
  if (!o.json) {
    fmt::print("{}, {}: {} prompt tokens, {} new ones\n", o.url, clients.model(), o.prompt_tokens,
               o.new_tokens);
    fmt::print("{:>5} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n", "conc", "prefill/s",
               "tokens/s", "first", "p50", "p95", "p99", "beside", "http");
  }
  for (const int64_t n : o.concurrency) print(clients.run(n), o.json);
}

}  // namespace moraine
