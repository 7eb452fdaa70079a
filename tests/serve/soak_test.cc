// Soak: mixed load for some seconds, good clients and bad ones.
//
// Fails if a request is not accounted for by its outcome, if a stream does not end, if anything is still held when all
// are gone, or if memory grows with the number of requests.
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "tests/serve/serving.h"

namespace moraine {
namespace {

using namespace testing;

constexpr double kSeconds = 12;
constexpr int kClients = 6;
// What one half may leave behind that the other did not: pieces of freed memory that the allocator keeps.
constexpr int64_t kGrowthBytes = 6 << 20;

// What the clients saw. A cancelled request may have ended before the server heard of its client's end.
struct Seen {
  std::map<std::string, int64_t> outcomes;  // "ok", "invalid", "overloaded", "gone", "half"
  std::vector<std::string> surprises;
};

class SoakClient {
 public:
  SoakClient(int64_t port, uint64_t seed, Seen* seen, std::mutex* mutex)
      : port_(port), seed_(seed), seen_(*seen), mutex_(*mutex) {}

  void run(const std::atomic<bool>& stop) {
    while (!stop) one();
  }

 private:
  uint64_t pick(uint64_t below) { return random_below(below, seed_, Stream::kTest, 4, draw_++); }
  void saw(const std::string& outcome) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++seen_.outcomes[outcome];
  }
  void surprise(const std::string& what) {
    const std::lock_guard<std::mutex> lock(mutex_);
    seen_.surprises.push_back(what);
  }
  Json request() {
    Json ids = Json::array();
    // Short ones mostly; some share their beginning with others.
    const uint64_t tokens = 1 + pick(pick(8) == 0 ? 1500 : 60), base = pick(3);
    for (uint64_t i = 0; i < tokens; ++i)
      ids.push_back(base == 0 ? 1 + pick(299) : 1 + (i * 7 + base) % 299);
    Json request = {{"prompt", std::move(ids)}, {"max_tokens", 1 + pick(60)}, {"seed", pick(1000)}};
    if (pick(4) == 0) request["logprobs"] = pick(4);
    if (pick(6) == 0) request["n"] = 1 + pick(3);
    if (pick(6) == 0) request["stop"] = {"a", "hov"};
    return request;
  }
  void one() {
    switch (pick(10)) {
      case 0:
        return cancelled();
      case 1:
        return bad();
      case 2:
        return half();
      case 3:
        return conversation();
      case 4:
      case 5:
      case 6:
        return streamed();
      default:
        return whole();
    }
  }
  void judge(const TestClient::Answer& answer, bool good) {
    if (good)
      saw("ok");
    else if (answer.status == 429 || answer.status == 503)
      saw("overloaded");
    else
      surprise(std::to_string(answer.status) + ": " + answer.body.substr(0, 300));
  }
  void whole() {
    const TestClient::Answer answer =
        TestClient(port_).post("/v1/completions", json_text(request()));
    judge(answer, answer.status == 200 && parse_json(answer.body)["choices"].size() > 0);
  }
  void streamed() {
    Json body = request();
    body["stream"] = true;
    const TestClient::Answer answer = TestClient(port_).post("/v1/completions", json_text(body));
    judge(answer, answer.status == 200 && answer.body.ends_with("data: [DONE]\n\n"));
  }
  void conversation() {
    const Json body = {{"messages", {{{"role", "user"}, {"content", "hov joty"}}}},
                       {"max_tokens", 40},
                       {"seed", pick(1000)},
                       {"response_format", {{"type", "json_object"}}}};
    const TestClient::Answer answer =
        TestClient(port_).post("/v1/chat/completions", json_text(body));
    judge(answer, answer.status == 200);
  }
  void cancelled() {
    Json body = request();
    body["max_tokens"] = 2000;
    body["stream"] = true;
    StreamClient stream(port_, "/v1/completions", body);
    for (uint64_t events = pick(6); events > 0 && !stream.event().empty(); --events) {
    }
    if (pick(2) == 0) stream.client.reset();
    saw("gone");
  }
  void bad() {
    const std::string bodies[] = {"{", R"({"prompt": 5})", R"({"prompt": "a", "max_tokenz": 3})",
                                  R"({"prompt": [1, 2, 300]})", R"({"prompt": "a", "n": 0})"};
    const TestClient::Answer answer = TestClient(port_).post("/v1/completions", bodies[pick(5)]);
    if (answer.status == 400)
      saw("invalid");
    else
      judge(answer, false);
  }
  void half() {
    TestClient client(port_);
    const std::string text =
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: "
        "application/json\r\ncontent-length: 5000\r\n\r\n{\"prompt\": \"a";
    client.send(text.substr(0, 1 + pick(text.size())));
    saw("half");
  }

  const int64_t port_;
  const uint64_t seed_;
  uint64_t draw_ = 0;
  Seen& seen_;
  std::mutex& mutex_;
};

int64_t resident_bytes(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/status";
  const std::string text = posix_file_system().read(path);
  const size_t at = text.find("VmRSS:");
  return at == std::string::npos ? 0 : std::stol(text.substr(at + 6)) * 1024;
}

using Soak = ServeTest;

TEST_F(Soak, EveryRequestIsAccountedForAndNothingIsKept) {
  // A cache so small that the first half touches all of it: what grows then is kept by somebody.
  const auto server = serve({"--sequences", "4", "--rows", "128", "--queue-requests", "3",
                             "--context", "4096", "--cache-mib", "4"});
  Seen seen;
  std::mutex mutex;
  const auto load = [&](uint64_t half) {
    std::atomic<bool> stop{false};
    std::vector<std::thread> clients;
    for (uint64_t c = 0; c < kClients; ++c) {
      clients.emplace_back(
          [&, c] { SoakClient(server->port(), half * kClients + c, &seen, &mutex).run(stop); });
    }
    const double end = now_seconds() + kSeconds / 2;
    while (now_seconds() < end) ::usleep(20'000);
    stop = true;
    for (std::thread& client : clients) client.join();
    EXPECT_TRUE(server->comes_to_rest()) << server->metrics();
    EXPECT_TRUE(server->comes_to("moraine_connections", 1));
    EXPECT_TRUE(server->comes_to("moraine_body_bytes", 0));
  };
  load(0);
  const int64_t first = resident_bytes(server->pid());
  load(1);
  const int64_t second = resident_bytes(server->pid());
  EXPECT_GT(first, 0);
  if (kLimitsMemory) {
    EXPECT_LE(second, first + kGrowthBytes);
  }

  for (size_t i = 0; i < seen.surprises.size() && i < 5; ++i) ADD_FAILURE() << seen.surprises[i];
  const std::string page = server->metrics();
  const auto count = [&](const std::string& outcome) {
    double sum = 0;
    for (const char* endpoint : {"/v1/completions", "/v1/chat/completions"})
      sum += metric_in(page, std::string("moraine_requests_total{endpoint=\"") + endpoint +
                                 "\",outcome=\"" + outcome + "\"}");
    return static_cast<int64_t>(sum);
  };
  const auto& o = seen.outcomes;
  const auto of = [&](const char* name) { return o.contains(name) ? o.at(name) : 0; };
  std::printf("soak: ok %ld, invalid %ld, refused %ld, gone %ld, half %ld; resident %ld, %ld MiB\n",
              long(of("ok")), long(of("invalid")), long(of("overloaded")), long(of("gone")),
              long(of("half")), long(first >> 20), long(second >> 20));
  EXPECT_GT(of("ok"), 20);
  EXPECT_EQ(count("failed"), 0);
  EXPECT_EQ(count("invalid"), of("invalid"));
  // Those that went are cancelled, or were refused or complete before it was known.
  EXPECT_LE(of("ok"), count("ok"));
  EXPECT_LE(of("overloaded"), count("overloaded"));
  EXPECT_EQ(count("ok") + count("overloaded") + count("cancelled"),
            of("ok") + of("overloaded") + of("gone"));
  const Ended ended = server->end();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
}

}  // namespace
}  // namespace moraine
