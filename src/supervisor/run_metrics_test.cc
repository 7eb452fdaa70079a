// RunMetrics, RunMetricsHttp: fails if a number is wrong, if a client can make the loop wait, or if one that is slow,
// silent or hostile keeps others out.
#include "supervisor/run_metrics.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>

#include "base/error.h"
#include "base/test_page.h"
#include "supervisor/run_metrics_http.h"

namespace moraine {
namespace {

using namespace testing;

TEST(RunMetrics, SaysWhatIsKnownAndNothingElse) {
  SupervisedRun run;
  run.step = 41;
  run.ranks.resize(2);
  run.ranks[0].starts = 3;
  run.ranks[1].starts = 1;
  LedgerEntry e;
  e.fault = RunFault::kKilled;
  e.level = RecoveryLevel::kReplace;
  e.seconds_lost = 1.5;
  const std::vector<LedgerEntry> entries = {e, e};
  const std::string text = run_metrics_text({.run = run,
                                             .letters = "cx",
                                             .generation = 3,
                                             .tokens_per_second = 4096,
                                             .strangers = 7,
                                             .entries = entries});
  for (const char* line :
       {"\nmoraine_step 41\n", "\nmoraine_tokens_per_second 4096\n", "\nmoraine_generation 3\n",
        "\nmoraine_ranks{state=\"step\"} 1\n", "\nmoraine_ranks{state=\"gone\"} 1\n",
        "\nmoraine_ranks{state=\"meeting\"} 0\n", "\nmoraine_restarts_total 2\n",
        "\nmoraine_rails_strangers_total 7\n",
        "\nmoraine_incidents_total{fault=\"killed\",level=\"replace\"} 2\n",
        "\nmoraine_lost_seconds_total{fault=\"killed\",level=\"replace\"} 3\n"})
    EXPECT_EQ(count(text, line), 1) << line << text;
  EXPECT_EQ(count(text, "moraine_loss"), 0);
  const auto loss = [&](double value) {
    return run_metrics_text({.run = run, .letters = "cx", .loss = value, .entries = {}});
  };
  EXPECT_EQ(count(loss(2.5), "\nmoraine_loss 2.5\n"), 1);
  EXPECT_EQ(count(loss(NAN), "\nmoraine_loss NaN\n"), 1) << "the run diverges";
  EXPECT_EQ(count(loss(HUGE_VAL), "\nmoraine_loss +Inf\n"), 1);
  EXPECT_EQ(count(text, "disk"), 0);

  run.readings.push_back({.disk_free = 1000, .nics = {{.name = "a\"\\\nb", .errors = 2}}});
  const std::string host = run_metrics_text({.run = run, .letters = "", .entries = {}});
  EXPECT_EQ(count(host, "\nmoraine_disk_free_bytes 1000\n"), 1);
  EXPECT_EQ(count(host, "memory_available"), 0);
  EXPECT_EQ(count(host, "\nmoraine_nic_errors_total{interface=\"a\\\"\\\\\\nb\"} 2\n"), 1);
}

// A client whose calls do not block.
class TestClient {
 public:
  explicit TestClient(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~TestClient() { ::close(fd_); }
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;
  void send(const std::string& text) const {
    ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  std::string take() {
    char buffer[65536];
    while (true) {
      const ssize_t n = ::recv(fd_, buffer, sizeof buffer, MSG_DONTWAIT);
      if (n > 0) {
        got_.append(buffer, static_cast<size_t>(n));
        continue;
      }
      if (n == 0 || errno != EAGAIN) over_ = true;
      return got_;
    }
  }
  bool is_over() { return take(), over_; }

 private:
  const int fd_;
  std::string got_;
  bool over_ = false;
};

std::string metrics() { return "moraine_step 7\n"; }
const std::string kGet = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

// Until the client has what it gets; the time stands still.
void serve_until_over(RunMetricsHttp& server, TestClient& client,
                      const std::function<std::string()>& text = metrics) {
  constexpr int kMost = 1000000;  // the kernel may take its time
  for (int i = 0; i < kMost && !client.is_over(); ++i) {
    server.serve(0, text);
    ::sched_yield();
  }
}

std::string answer_to(const std::string& request) {
  RunMetricsHttp server(0);
  TestClient client(server.port());
  client.send(request);
  serve_until_over(server, client);
  EXPECT_TRUE(client.is_over()) << request;
  return client.take();
}

TEST(RunMetricsHttp, AnswersAGet) {
  const std::string answer = answer_to(kGet);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\nmoraine_step 7\n")) << answer;
  EXPECT_EQ(count(answer, "Content-Length: 15\r\n"), 1) << answer;
  EXPECT_TRUE(answer_to("GET /metrics?a=b HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200"));
}

TEST(RunMetricsHttp, AnswersNothingElse) {
  EXPECT_TRUE(answer_to("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
  EXPECT_TRUE(answer_to("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
  EXPECT_TRUE(answer_to("rubbish\r\n\r\n").starts_with("HTTP/1.1 400"));
  EXPECT_TRUE(answer_to("\r\n\r\n").starts_with("HTTP/1.1 400"));
  EXPECT_TRUE(answer_to(" \r\n\r\n").starts_with("HTTP/1.1 400"));
  EXPECT_EQ(answer_to(std::string(3 * RunMetricsHttp::kRequestBytes, 'x')), "");
}

TEST(RunMetricsHttp, IsHeardOnLoopbackOnly) {
  RunMetricsHttp server(0);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(server.port()));
  ::inet_pton(AF_INET, "127.0.0.2", &address.sin_addr);  // this machine, another address
  EXPECT_NE(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(fd);
}

TEST(RunMetricsHttp, APortThatIsTakenIsAnError) {
  const RunMetricsHttp server(0);
  try {
    RunMetricsHttp second(server.port());
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kIo);
  }
}

TEST(RunMetricsHttp, ASilentClientIsDropped) {
  RunMetricsHttp server(0);
  TestClient silent(server.port()), slow(server.port());
  std::vector<pollfd> polled;
  double now = 0;
  for (; now < RunMetricsHttp::kClientSeconds; now += 0.1) {
    slow.send("G");
    server.serve(now, metrics);
    EXPECT_FALSE(silent.is_over());
  }
  server.serve(now, metrics);
  EXPECT_TRUE(silent.is_over());
  EXPECT_TRUE(slow.is_over());
  server.add_descriptors(&polled);
  EXPECT_EQ(polled.size(), 1u);
}

// Who holds connections does not keep a scrape out, and costs no more descriptors than there may be.
TEST(RunMetricsHttp, AFloodOfClientsLeavesRoomForAScrape) {
  RunMetricsHttp server(0);
  std::deque<TestClient> flood;
  for (int i = 0; i < 200; ++i) {
    flood.emplace_back(server.port());
    server.serve(0, metrics);
    std::vector<pollfd> polled;
    server.add_descriptors(&polled);
    ASSERT_LE(polled.size(), 1 + RunMetricsHttp::kClientsMost);
  }
  TestClient scrape(server.port());
  scrape.send(kGet);
  serve_until_over(server, scrape);
  EXPECT_TRUE(scrape.take().ends_with("moraine_step 7\n"));
}

// An answer that does not fit into the socket waits for its reader, and the caller does not.
TEST(RunMetricsHttp, AReaderThatDoesNotReadIsDropped) {
  RunMetricsHttp server(0);
  TestClient idle(server.port()), reader(server.port());
  idle.send(kGet);
  reader.send(kGet);
  const auto large = [] { return std::string(32 << 20, 'x'); };
  serve_until_over(server, reader, large);
  EXPECT_GT(reader.take().size(), size_t{32} << 20);
  std::vector<pollfd> polled;
  server.add_descriptors(&polled);
  EXPECT_EQ(polled.size(), 2u);
  server.serve(10, large);
  polled.clear();
  server.add_descriptors(&polled);
  EXPECT_EQ(polled.size(), 1u);
}

TEST(RunMetricsHttp, AClientThatGoesAwayIsForgotten) {
  RunMetricsHttp server(0);
  {
    TestClient gone(server.port());
    gone.send("GET /met");
    server.serve(0, metrics);
  }
  TestClient later(server.port());
  later.send(kGet);
  serve_until_over(server, later);
  std::vector<pollfd> polled;
  server.add_descriptors(&polled);
  EXPECT_EQ(polled.size(), 1u);
}

}  // namespace
}  // namespace moraine
