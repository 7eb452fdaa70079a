// TestServer: the whole server in this process, with a generator that says what a test tells it to.
#pragma once

#include <condition_variable>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/file_system.h"
#include "base/json.h"
#include "infer/queue_limit.h"
#include "server/app.h"
#include "server/chat_prompt.h"
#include "server/request_error.h"
#include "server/test_client.h"
#include "testing/places.h"

namespace moraine::testing {

inline constexpr const char* kChat = "/v1/chat/completions";
inline constexpr const char* kCompletions = "/v1/completions";

// Answers each request with the tokens of `script`, cut by max_tokens and stop strings; `tokens_each` at most
// until released, then the rest.
class FakeGenerator : public Generator {
 public:
  explicit FakeGenerator(std::shared_ptr<const Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)), thread_([this] { run(); }) {}
  ~FakeGenerator() override { stop(); }

  int64_t submit(Request request, Listener listener) override {
    std::lock_guard lock(mutex_);
    if (refusal && takes == 0) {
      for (auto& [id, live] : live_) begin(live);  // by now it has begun with those that it took
      throw *refusal;
    }
    if (refusal) --takes;
    const int64_t id = ++last_id_;
    requests.push_back(request);
    std::string said = script;
    std::string stopped;
    for (const std::string& stop : request.stop) {
      if (said.find(stop) == std::string::npos) continue;
      said = said.substr(0, said.find(stop));
      stopped = stop;
    }
    if (request.special_text) special_text = true;
    Live live{.request = request,
              .listener = std::move(listener),
              .answer = tokenizer_->encode(said, false)};
    live.stopped = stopped;
    live.limited = static_cast<int64_t>(live.answer.size()) > request.max_tokens;
    if (live.limited) live.answer.resize(static_cast<size_t>(request.max_tokens));
    live_.emplace(id, std::move(live));
    changed_.notify_all();
    return id;
  }
  void cancel(int64_t id) override {
    std::lock_guard lock(mutex_);
    if (live_.erase(id) > 0) cancelled.insert(id);
    changed_.notify_all();
  }
  GeneratorStats stats() const override {
    std::lock_guard lock(mutex_);
    return {
        .running = static_cast<int64_t>(live_.size()), .prompt_rate = 1500, .prompt_seconds = 2.5};
  }
  void stop() override {
    {
      std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  void listen(std::function<void()> f) {
    std::lock_guard lock(mutex_);
    heard_ = std::move(f);
  }
  // How many tokens of each answer may come; -1: all.
  void allow(int64_t tokens) {
    std::lock_guard lock(mutex_);
    allowed_ = tokens;
    changed_.notify_all();
  }
  template <class F>
  void wait(F f) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, f);
  }
  int64_t live() const { return stats().running; }

  std::string script = "Hello world, this is text.";
  std::optional<QueueFull> refusal;
  int64_t takes = 0;    // so many, before it refuses
  std::string failure;  // said instead of an end
  // Under the mutex, or when nothing runs.
  std::vector<Request> requests;
  std::set<int64_t> cancelled;
  bool special_text = false;

 private:
  struct Live {
    Request request;
    Listener listener;
    std::vector<int32_t> answer;
    bool limited = false, began = false;
    std::string stopped{};
    size_t said = 0;
  };
  TokenScore score(const Request& request, int32_t id) const {
    TokenScore score{.chosen = {.token = id, .logprob = -0.5 - id}, .top = {}};
    for (int32_t k = 0; k < request.top_logprobs; ++k) score.top.push_back({k + 40, -1.0 - k});
    return score;
  }
  TokenPiece piece(const Request& request, int32_t id) const {
    return {.score = score(request, id),
            .text = tokenizer_->decode(std::span(&id, 1), !request.special_text)};
  }
  void begin(Live& live) {
    PromptDone done{.cached_tokens = 1, .scores = {}};
    if (live.request.prompt_logprobs) {
      for (size_t i = 1; i < live.request.prompt.size(); ++i)
        done.scores.push_back(score(live.request, live.request.prompt[i]));
    }
    live.listener.on_prompt(done);
    live.began = true;
  }
  // One step of one request; false if nothing is to do.
  bool step() {
    for (auto& [id, live] : live_) {
      if (!live.began) return begin(live), true;
      if (allowed_ >= 0 && static_cast<int64_t>(live.said) >= allowed_) continue;
      if (live.said < live.answer.size()) {
        live.listener.on_token(piece(live.request, live.answer[live.said++]));
        return true;
      }
      const Finish finish = !failure.empty() ? Finish::kError
                            : live.limited   ? Finish::kLength
                                             : Finish::kStop;
      live.listener.on_finish({.finish = finish,
                               .text = "",
                               .error = failure,
                               .stop = live.limited ? "" : live.stopped});
      live_.erase(id);
      return true;
    }
    return false;
  }
  void run() {
    std::unique_lock lock(mutex_);
    while (!ending_) {
      const bool worked = step();
      if (worked && heard_) heard_();
      if (!worked) changed_.wait(lock);
    }
    live_.clear();
  }

  const std::shared_ptr<const Tokenizer> tokenizer_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, Live> live_;
  std::function<void()> heard_;  // as EngineOptions::heard
  int64_t last_id_ = 0, allowed_ = -1;
  bool ending_ = false;
  std::thread thread_;
};

class TestServer {
 public:
  explicit TestServer(AppOptions options = {}) {
    tokenizer =
        Tokenizer::load(posix_file_system(), source_path("tests/golden/tokenizer/qwen.json"));
    generator = std::make_shared<FakeGenerator>(tokenizer);
    app = std::make_unique<App>(std::move(options), model("step-1"));
    generator->listen([this] { app->http().wake(); });
    thread_ = std::thread([this] { cut = app->run(); });
  }
  ~TestServer() { stop(); }
  std::shared_ptr<ServedModel> model(const std::string& fingerprint) const {
    auto m = std::make_shared<ServedModel>();
    m->id = "tiny";
    m->fingerprint = fingerprint;
    m->context = 1000;
    m->tokenizer = tokenizer;
    m->end_ids = {0};
    m->start_id = 0;
    m->generator = generator;
    m->special_texts = SpecialTexts(*tokenizer);
    m->token_trie = std::make_shared<TokenTrie>(*tokenizer, tokenizer->vocabulary_size());
    m->tool_format = ToolFormat::kHermes;
    m->chat = ChatTemplate::parse(
        "{% for m in messages %}<|end|>{{ m.role }}\n{{ m.content }}{% endfor %}"
        "{% if tools %}{{ tools | tojson }}{% endif %}"
        "{% if add_generation_prompt %}<|end|>assistant\n{% endif %}",
        "test", Json::object());
    return m;
  }
  void stop() {
    if (!thread_.joinable()) return;
    generator->allow(-1);
    app->http().drain();
    thread_.join();
    generator->stop();
  }
  int64_t port() const { return app->http().port(); }
  TestClient::Answer post(const std::string& path, const Json& body,
                          const std::string& fields = "") {
    return TestClient(port()).post(path, json_text(body), fields);
  }
  Json post_json(const std::string& path, const Json& body) {
    return parse_json(post(path, body).body, "answer");
  }
  Json error(const std::string& path, const Json& body) {
    const TestClient::Answer answer = post(path, body);
    Json json = parse_json(answer.body, "answer");
    json["status"] = answer.status;
    return json;
  }

  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<FakeGenerator> generator;
  std::unique_ptr<App> app;
  int64_t cut = 0;

 private:
  std::thread thread_;
};

// The JSON objects of a stream's data lines, and its names of events.
struct SseStream {
  explicit SseStream(const std::string& bytes) {
    size_t at = 0;
    while (at < bytes.size()) {
      size_t end = bytes.find('\n', at);
      if (end == std::string::npos) end = bytes.size();
      const std::string line = bytes.substr(at, end - at);
      if (line == "data: [DONE]")
        done = true;
      else if (line.starts_with("data: "))
        data.push_back(parse_json(line.substr(6), "event"));
      else if (line.starts_with("event: "))
        events.push_back(line.substr(7));
      else if (line.starts_with(":"))
        ++pings;
      else if (!line.empty())
        other.push_back(line);
      at = end + 1;
    }
  }
  std::vector<Json> data;
  std::vector<std::string> events, other;
  int pings = 0;
  bool done = false;
};

}  // namespace moraine::testing
