// HTTP over real sockets: limits at the limit and one beyond, half requests, slow and vanished clients, draining.
// Fails if a client can hold more than a limit says, if an answer is lost or mixed with another, or if
// one client's behaviour reaches another.
#include "server/http_server.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "server/test_echo.h"

namespace moraine {
namespace {

using testing::Echo;
using testing::TestClient;

std::string get(const std::string& path, const std::string& fields = "") {
  return "GET " + path + " HTTP/1.1\r\nhost: a\r\n" + fields + "\r\n";
}

TEST(HttpServer, AnswersAndKeepsTheConnection) {
  Echo echo;
  TestClient client(echo.port());
  EXPECT_EQ(client.get("/a?x=1").body, "GET /a ");
  EXPECT_EQ(client.post("/b", "text").body, "POST /b text");
  EXPECT_EQ(client.get("/c").body, "GET /c ");
  EXPECT_EQ(echo.counts().accepted, 1);
}

TEST(HttpServer, TakesChunkedBodiesInPiecesOfOneByte) {
  Echo echo;
  TestClient client(echo.port());
  const std::string text =
      "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: "
      "chunked\r\n\r\n3;k=v\r\nabc\r\n2\r\nde\r\n0\r\n"
      "trailer: x\r\n\r\n";
  for (char c : text) client.send(std::string_view(&c, 1));
  EXPECT_EQ(client.answer().body, "POST /x abcde");
}

TEST(HttpServer, PipelinedRequestsAreAnsweredInOrder) {
  Echo echo;
  TestClient client(echo.port());
  std::string all;
  for (int i = 0; i < 100; ++i) all += get("/" + std::to_string(i));
  client.send(all);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(client.answer().body, "GET /" + std::to_string(i) + " ");
}

TEST(HttpServer, PipelinedBytesHaveALimit) {
  Limits limits;
  limits.pipelined_bytes = 1000;
  Echo echo(limits);
  TestClient client(echo.port());
  client.send(get("/hold"));
  echo.began.get_future().wait();
  client.send(std::string(1000, 'x'));
  client.send("y");
  echo.gone.get_future().wait();
  EXPECT_EQ(client.all(), "");
}

TEST(HttpServer, HeadHasTheLengthAndNoBody) {
  Echo echo;
  TestClient client(echo.port());
  client.send("HEAD /abc HTTP/1.1\r\nhost: a\r\n\r\n" + get("/next"));
  const std::string head = client.until("\r\n\r\n");
  EXPECT_NE(head.find("content-length: 10\r\n"), std::string::npos) << head;
  EXPECT_EQ(client.answer().body, "GET /next ");
}

TEST(HttpServer, ExpectContinueIsAnsweredBeforeTheBody) {
  Echo echo;
  TestClient client(echo.port());
  client.send("POST /x HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n");
  EXPECT_EQ(client.until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ab");
  EXPECT_EQ(client.answer().body, "POST /x ab");
  client.send(
      "POST /refused HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n");
  EXPECT_EQ(client.answer().status, 401);
}

TEST(HttpServer, WhatIsNoRequestIsRefused) {
  Echo echo;
  const std::vector<std::pair<std::string, int>> cases = {
      {"nonsense\r\n\r\n", 400},
      {"GET /x HTTP/1.1\r\n\r\n", 400},            // no host
      {"GET x HTTP/1.1\r\nhost: a\r\n\r\n", 400},  // no path
      {"GET /x HTTP/2.0\r\nhost: a\r\n\r\n", 505},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"GET /x HTTP/1.1\nhost: a\n\n", 0},  // bare line feeds; 0: whatever the parser calls it
      {"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: x\r\n\r\n", 400},
      {"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab", 400},
      {"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", 0},
      {"POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\n", 501},
      {"POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400},
      {"POST /x HTTP/1.1\r\nhost: a\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\n", 415},
      {"POST /x HTTP/1.1\r\nhost: a\r\nexpect: else\r\ncontent-length: 1\r\n\r\n", 417},
      {"POST /x HTTP/1.1\r\nhost: a\r\nna me: v\r\n\r\n", 400},
  };
  for (const auto& [text, status] : cases) {
    TestClient client(echo.port());
    client.send(text);
    const int got = client.answer().status;
    EXPECT_TRUE(status == 0 ? got >= 400 : got == status) << got << " for " << text;
    EXPECT_EQ(client.all(), "") << text;  // and closed
  }
  TestClient client(echo.port());
  EXPECT_EQ(client.get("/fine").status, 200);
}

TEST(HttpServer, LimitsOfTheHeader) {
  Limits limits;
  limits.header_bytes = 1000;
  limits.header_fields = 10;
  limits.target_bytes = 100;
  Echo echo(limits);
  const auto status = [&](const std::string& text) {
    TestClient client(echo.port());
    client.send(text);
    return client.answer().status;
  };
  const auto padded = [&](size_t bytes) {
    const std::string bare = get("/", "x: \r\n");
    return get("/", "x: " + std::string(bytes - bare.size(), 'v') + "\r\n");
  };
  EXPECT_EQ(status(padded(1000)), 200);
  EXPECT_EQ(status(padded(1001)), 431);
  std::string fields;
  for (int i = 0; i < 9; ++i) fields += "x: y\r\n";  // and host
  EXPECT_EQ(status(get("/", fields)), 200);
  EXPECT_EQ(status(get("/", fields + "x: y\r\n")), 431);
  EXPECT_EQ(status(get("/" + std::string(99, 'a'))), 200);
  EXPECT_EQ(status(get("/" + std::string(100, 'a'))), 414);
}

TEST(HttpServer, AFloodOfHeadersInSmallPiecesIsRefused) {
  Limits limits;
  limits.header_bytes = 1000;
  limits.header_fields = 1 << 20;
  Echo echo(limits);
  TestClient client(echo.port());
  client.send("GET / HTTP/1.1\r\nhost: a\r\n");
  for (int i = 0; i < 200 && client.send("x: y\r\n"); ++i) std::this_thread::yield();
  EXPECT_EQ(client.answer().status, 431);
}

TEST(HttpServer, LimitsOfTheBody) {
  Limits limits;
  limits.body_bytes = 5000;
  Echo echo(limits);
  TestClient client(echo.port());
  EXPECT_EQ(client.post("/", std::string(5000, 'x')).status, 200);
  EXPECT_EQ(client.post("/", std::string(5001, 'x')).status, 413);
  TestClient chunked(echo.port());
  chunked.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n");
  for (int i = 0; i < 5; ++i) chunked.send("3e8\r\n" + std::string(1000, 'x') + "\r\n");
  chunked.send("1\r\nx\r\n");
  EXPECT_EQ(chunked.answer().status, 413);
  TestClient endless(echo.port());
  endless.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1;");
  endless.send(std::string(20'000, 'e'));
  EXPECT_EQ(endless.answer().status, 400);
}

TEST(HttpServer, BodiesOfAllTogetherHaveALimit) {
  Limits limits;
  limits.bodies_bytes = 10000;
  Echo echo(limits);
  TestClient half(echo.port());
  half.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 6000\r\n\r\n" + std::string(5999, 'x'));
  while (echo.counts().bodies_bytes < 5999) std::this_thread::yield();
  TestClient other(echo.port());
  EXPECT_EQ(other.post("/", std::string(4002, 'x')).status, 503);
  TestClient fits(echo.port());
  EXPECT_EQ(fits.post("/", std::string(4001, 'x')).status, 200);
  half.send("x");
  EXPECT_EQ(half.answer().status, 200);
  EXPECT_EQ(echo.counts().bodies_bytes, 0);
}

// It was counted until its answer was complete, which may be minutes.
TEST(HttpServer, ABodyThatTheHandlerHasTakenCountsNoMore) {
  Limits limits;
  limits.bodies_bytes = 10000;
  Echo echo(limits);
  TestClient held(echo.port());
  held.send("POST /hold HTTP/1.1\r\nhost: a\r\ncontent-length: 6000\r\n\r\n" +
            std::string(6000, 'x'));
  echo.began.get_future().wait();
  EXPECT_EQ(echo.counts().bodies_bytes, 0);
  EXPECT_EQ(echo.body.size(), 6000u);
  TestClient other(echo.port());
  EXPECT_EQ(other.post("/", std::string(9000, 'x')).status, 200);
  echo.held->respond({.body = "late"});
  echo.held = nullptr;
  EXPECT_EQ(held.answer().body, "late");
}

TEST(HttpServer, HalfRequestsEndByTime) {
  Limits limits;
  limits.header_seconds = limits.body_seconds = 0.05;
  Echo echo(limits);
  TestClient header(echo.port()), body(echo.port());
  header.send("GET / HTTP/1.1\r\nho");
  body.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\n\r\nabc");
  EXPECT_EQ(header.answer().status, 408);
  EXPECT_EQ(body.answer().status, 408);
  limits.idle_seconds = 0.05;
  Echo hasty(limits);
  EXPECT_EQ(TestClient(hasty.port()).all(), "");
}

TEST(HttpServer, AHeaderThatComesLineByLineDoesNotGetMoreTime) {
  Limits limits;
  limits.header_seconds = 0.2;
  Echo echo(limits);
  TestClient client(echo.port());
  client.send("GET / HTTP/1.1\r\n");
  std::atomic<bool> ended = false;
  std::thread drip([&] {
    for (int i = 0; i < 100'000 && !ended && client.send("x: y\r\n"); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });
  const int status = client.answer().status;
  ended = true;
  drip.join();
  EXPECT_EQ(status, 408);
}

TEST(HttpServer, AStreamIsChunkedAndHasPings) {
  Limits limits;
  limits.ping_seconds = 0.01;
  Echo echo(limits);
  TestClient client(echo.port());
  EXPECT_NE(echo.begin_stream(client).find("transfer-encoding: chunked\r\n"), std::string::npos);
  EXPECT_EQ(client.until("\n\n\r\n"), "8\r\n: ping\n\n\r\n");
  echo.held->write("data: x\n\n");
  echo.held->end();
  EXPECT_NE(client.until("0\r\n\r\n").find("9\r\ndata: x\n\n\r\n0\r\n\r\n"), std::string::npos);
  EXPECT_EQ(client.get("/next").body, "GET /next ");
}

TEST(HttpServer, WhatIsQueuedRunsInItsOrderWhenSomebodyWakesTheThread) {
  Echo echo;
  std::promise<std::string> all;
  std::string order;
  echo.server->queue([&] { order += "a"; });
  echo.server->queue([&] {
    order += "b";
    echo.server->post([&] {
      order += "d";
      echo.server->queue([&] { all.set_value(order + "e"); });
    });
  });
  echo.server->queue([&] { order += "c"; });
  echo.server->wake();
  EXPECT_EQ(all.get_future().get(), "abcde");
  EXPECT_EQ(echo.ask([&] { return order; }), "abcd");
  // However often what runs queues more, and nobody wakes the thread again.
  std::promise<void> done;
  std::function<void(int)> chain = [&](int left) {
    if (left == 0) return done.set_value();
    echo.server->queue([&chain, left] { chain(left - 1); });
  };
  echo.server->post([&] { chain(50); });
  done.get_future().get();
}

TEST(HttpServer, PiecesThatAreWrittenTogetherArriveAsTheyWereWritten) {
  Limits limits;
  limits.output_bytes = 64 << 20;
  for (const char* version : {"1.0", "1.1"}) {
    Echo echo(limits);
    TestClient client(echo.port());
    client.send(std::string("GET /stream HTTP/") + version +
                "\r\nhost: a\r\nconnection: close\r\n\r\n");
    echo.began.get_future().wait();
    std::string want;
    for (int i = 0; i < 50; ++i) {
      // Small ones go at once; the large one, more than sockets hold, does not, and those behind it wait for it.
      const std::string piece(i == 20 ? 24 << 20 : 26, static_cast<char>('a' + i % 26));
      echo.held->write(piece);
      want += piece;
      if (i % 7 == 0) echo.counts();
    }
    echo.held->end();
    const std::string all = client.all();
    std::string got = all.substr(all.find("\r\n\r\n") + 4);
    if (std::string(version) == "1.1") {
      std::string joined;
      for (size_t at = 0; at < got.size();) {
        const size_t bytes = std::stoul(got.substr(at, 8), nullptr, 16);
        at = got.find("\r\n", at) + 2;
        joined += got.substr(at, bytes);
        at += bytes + 2;
      }
      got = joined;
    }
    EXPECT_TRUE(got == want) << version << ": " << got.size() << " bytes";
  }
}

// Fails if tokens are sent one by one, or if one that nothing follows is kept.
TEST(HttpServer, PiecesThatComeFastGoOutTogether) {
  for (const bool more_time : {false, true}) {
    Echo echo({}, 30, more_time ? 0.001 : 1e6);
    TestClient client(echo.port());
    echo.begin_stream(client);
    echo.held->write("first");
    EXPECT_EQ(client.until("first\r\n"), "5\r\nfirst\r\n");
    echo.held->write("second");
    echo.held->write("third");
    echo.counts();  // what was written before has been looked at
    if (!more_time) {
      EXPECT_FALSE(client.has_bytes());
      echo.held->end();
    }
    EXPECT_EQ(client.until("third\r\n"), "6\r\nsecond\r\n5\r\nthird\r\n");
  }
}

// Fails if the io thread is woken for each step although no stream may send yet, and if it then forgets what came.
TEST(HttpServer, WhatIsQueuedWhileStreamsRestWaitsWithThem) {
  for (const bool more_time : {false, true}) {
    Echo echo({}, 30, more_time ? 0.001 : 1e6);
    TestClient client(echo.port());
    echo.begin_stream(client);
    std::atomic<int> heard{0}, rounds{0};  // rounds: of the io thread
    const auto pass_rounds = [&] {
      for (const int until = rounds + 2; rounds < until;) std::this_thread::yield();
    };
    echo.server->every(0.0005, [&] { ++rounds; });
    echo.server->queue([&] { ++heard; });
    echo.server->wake();  // nothing rests yet
    while (heard == 0) std::this_thread::yield();
    echo.held->write("first");
    client.until("first\r\n");
    pass_rounds();  // it rests now, and looks at nothing any more
    echo.server->queue([&] { ++heard; });
    echo.server->wake();
    if (!more_time) {
      pass_rounds();
      EXPECT_EQ(heard, 1);
      echo.counts();  // whatever is posted takes along what was queued
    }
    while (heard == 1) std::this_thread::yield();
  }
}

TEST(HttpServer, StreamsSendAsOftenAsTheirShareOfTheTimeAllows) {
  Echo echo({}, 30, 1e6, 1e12);
  TestClient client(echo.port());
  client.send(get("/stream"));
  echo.began.get_future().wait();
  for (const char* piece : {"first", "second", "third"}) {
    echo.held->write(piece);
    EXPECT_NE(client.until(std::string(piece) + "\r\n"), "");
  }
}

TEST(HttpServer, StreamsRestWithinTheTargetOfTheirTokens) {
  EXPECT_EQ(stream_seconds_within(0.02, 0), 0.02);
  EXPECT_EQ(stream_seconds_within(0.02, 0.06), 0.02);
  EXPECT_EQ(stream_seconds_within(0.02, 0.015), 0.0075);
}

TEST(HttpServer, AStreamForHttp10EndsWithTheConnection) {
  Echo echo;
  TestClient client(echo.port());
  client.send("GET /stream HTTP/1.0\r\n\r\n");
  echo.began.get_future().wait();
  echo.held->write("data: x\n\n");
  echo.held->end();
  const std::string all = client.all();
  EXPECT_EQ(all.find("chunked"), std::string::npos);
  EXPECT_EQ(all.substr(all.find("\r\n\r\n")), "\r\n\r\ndata: x\n\n");
}

TEST(HttpServer, AVanishedClientIsToldAtOnce) {
  for (const char* path : {"/hold", "/stream"}) {
    for (const bool reset : {false, true}) {
      Echo echo;
      TestClient client(echo.port());
      client.send(get(path));
      echo.began.get_future().wait();
      if (reset)
        client.reset();
      else
        client.close();
      echo.gone.get_future().wait();
      EXPECT_EQ(echo.counts().working, 0);
    }
  }
}

TEST(HttpServer, ASlowReaderIsClosedAtTheLimitOfItsBuffer) {
  Limits limits;
  limits.output_bytes = 100'000;
  limits.write_seconds = 1e6;
  Echo echo(limits);
  TestClient slow(echo.port(), 4096);
  slow.send(get("/stream"));
  echo.began.get_future().wait();
  std::future<void> gone = echo.gone.get_future();
  int64_t written = 0;
  while (gone.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    echo.held->write(std::string(10'000, 'x'));
    written += echo.counts().working * 10'000;
    ASSERT_LT(written, 1 << 30);
  }
  TestClient other(echo.port());
  EXPECT_EQ(other.get("/fine").status, 200);
}

// Fails if what is written on the io thread goes out in another order, or if its writer hears in its midst, where it
// does not expect it, that the client is closed.
TEST(HttpServer, WhatIsWrittenOnTheIoThreadIsInOrderAndInterruptsNobody) {
  Limits limits;
  limits.output_bytes = 1000;
  Echo echo(limits);
  TestClient client(echo.port());
  echo.begin_stream(client);
  echo.ask([&] {
    for (const char* piece : {"a", "b", "c"}) echo.held->write(piece);
    return 0;
  });
  EXPECT_EQ(client.until("c\r\n"), "1\r\na\r\n1\r\nb\r\n1\r\nc\r\n");
  echo.ask([&] { return echo.held->write(std::string(5000, 'z')), 0; });  // one may be longer
  EXPECT_EQ(client.until("z\r\n"), "1388\r\n" + std::string(5000, 'z') + "\r\n");
  std::future<void> gone = echo.gone.get_future();
  const bool interrupted = echo.ask([&] {
    echo.held->write(std::string(1001, 'x'));
    echo.held->write("y");  // behind more than the limit
    echo.held->end();       // an answer with a hole in it is not whole
    return gone.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  });
  EXPECT_FALSE(interrupted);
  gone.wait();
  const std::string all = client.all();
  EXPECT_EQ(all.find('y'), std::string::npos);
  EXPECT_FALSE(all.ends_with("0\r\n\r\n")) << all;
}

TEST(HttpServer, AReaderThatTakesNothingIsClosedByTime) {
  Limits limits;
  limits.output_bytes = 100 << 20;
  limits.write_seconds = 0.05;
  Echo echo(limits);
  TestClient slow(echo.port(), 4096);
  slow.send(get("/stream"));
  echo.began.get_future().wait();
  echo.held->write(std::string(32 << 20, 'x'));
  echo.gone.get_future().wait();
}

TEST(HttpServer, ADroppedExchangeAnswers500) {
  Echo echo;
  TestClient client(echo.port());
  EXPECT_EQ(client.get("/drop").status, 500);
}

TEST(HttpServer, TheLongestIdleConnectionMakesRoom) {
  Limits limits;
  limits.connections = 2;
  Echo echo(limits);
  TestClient busy(echo.port());
  busy.send(get("/hold"));
  echo.began.get_future().wait();
  TestClient idle(echo.port());
  EXPECT_EQ(idle.get("/a").status, 200);
  TestClient third(echo.port());
  EXPECT_EQ(third.get("/b").status, 200);
  EXPECT_EQ(idle.all(), "");  // closed for the third
  EXPECT_EQ(echo.counts().connections, 2);
  echo.held->respond({.body = "done"});
  EXPECT_EQ(busy.answer().body, "done");
}

TEST(HttpServer, OneMoreConnectionIsClosedIfAllAreAtWork) {
  Limits limits;
  limits.connections = 1;
  Echo echo(limits);
  TestClient busy(echo.port());
  busy.send(get("/hold"));
  echo.began.get_future().wait();
  TestClient more(echo.port());
  EXPECT_EQ(more.all(), "");
  EXPECT_EQ(echo.counts().connections, 1);
  echo.held->respond({.body = "done"});
  EXPECT_EQ(busy.answer().body, "done");
}

TEST(HttpServer, TenThousandConnectionsOpenedAndDropped) {
  Echo echo;
  for (int i = 0; i < 10'000; ++i) {
    TestClient client(echo.port());
    ASSERT_TRUE(client.connected()) << i;
    if (i % 3 == 1) client.send("GET / HT");
    if (i % 3 == 2) client.send(get("/"));
    if (i % 2) client.reset();
  }
  TestClient client(echo.port());
  EXPECT_EQ(client.get("/fine").status, 200);
  while (echo.counts().connections > 1) std::this_thread::yield();
}

TEST(HttpServer, DrainingFinishesWhatIsUnderWayAndRefusesTheRest) {
  auto echo = std::make_unique<Echo>();
  TestClient idle(echo->port()), client(echo->port());
  EXPECT_EQ(idle.get("/a").status, 200);
  client.send(get("/stream"));
  echo->began.get_future().wait();
  echo->server->drain();
  EXPECT_EQ(idle.all(), "");
  TestClient late(echo->port());
  EXPECT_EQ(late.get("/a").status, 503);
  echo->held->write("data: last\n\n");
  echo->held->end();
  EXPECT_NE(client.all().find("data: last"), std::string::npos);
  echo->thread.join();
  EXPECT_EQ(echo->cut, 0);
  echo->thread = std::thread([] {});
}

TEST(HttpServer, DrainingEndsByTime) {
  auto echo = std::make_unique<Echo>(Limits{}, 0.05);
  TestClient client(echo->port());
  client.send(get("/stream"));
  echo->began.get_future().wait();
  echo->server->drain();
  echo->gone.get_future().wait();
  echo->thread.join();
  EXPECT_EQ(echo->cut, 1);
  echo->thread = std::thread([] {});
}

}  // namespace
}  // namespace moraine
