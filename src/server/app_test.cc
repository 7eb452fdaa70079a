// App: who may ask and what, over real sockets: keys, origins, methods, drain, cancellation, overload, accounting.
// Fails if a request is let in that should not be, is answered in another shape than clients expect, or
// is not accounted for exactly once.
#include "server/app.h"

#include <gtest/gtest.h>

#include "server/test_server.h"

namespace moraine {
namespace {

using testing::SseStream;
using testing::TestClient;
using testing::TestServer;

const std::string kKey = "secret-key-of-sixteen";
const std::string kOther = "another-key-of-sixteen";

ApiKeys two_keys() {
  char path[] = "/tmp/moraine-keys-XXXXXX";
  const int fd = ::mkstemp(path);
  const std::string text = "# two\n" + kKey + "\n\n" + kOther + "\r\n";
  EXPECT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ::close(fd);
  ApiKeys keys = ApiKeys::load(posix_file_system(), path);
  ::unlink(path);
  return keys;
}

TEST(App, AnswersTheSmallEndpoints) {
  TestServer server;
  TestClient client(server.port());
  EXPECT_EQ(client.get("/health").body, "{\"status\":\"ok\"}");
  const auto ready = client.get("/ready");
  EXPECT_EQ(ready.status, 200);
  EXPECT_NE(ready.head.find("x-moraine-model: step-1\r\n"), std::string::npos);
  const Json models = parse_json(client.get("/v1/models").body, "models");
  EXPECT_EQ(models["data"][0]["id"], "tiny");
  EXPECT_EQ(client.get("/v1/models/tiny").status, 200);
  EXPECT_EQ(client.get("/v1/models/%74i%6Ey").status, 200);  // as clients write "org/model"
  EXPECT_EQ(client.get("/v1/models/other").status, 404);
  EXPECT_EQ(client.get("/v1/models/tiny%").status, 404);
  EXPECT_EQ(parse_json(client.get("/tokenizer_info").body, "i")["eos_token"], "<|endoftext|>");
  const auto page = client.get("/");
  EXPECT_NE(page.head.find("content-type: text/html; charset=utf-8\r\n"), std::string::npos);
  EXPECT_NE(client.get("/page.css").head.find("text/css"), std::string::npos);
  EXPECT_EQ(client.get("/page./../app.cc").status, 404);
  const Json tokens = server.post_json("/tokenize", {{"prompt", "Hello <|end|>"}});
  EXPECT_EQ(tokens["count"], tokens["tokens"].size());
  EXPECT_EQ(server.post_json("/detokenize", {{"tokens", tokens["tokens"]}})["prompt"],
            "Hello <|end|>");
  const Json plain =
      server.post_json("/tokenize", {{"content", "<|end|>"}, {"parse_special_tokens", false}});
  EXPECT_GT(plain["count"].get<int>(), 1);
}

TEST(App, OriginsAreWhatBrowsersSend) {
  for (const char* good : {"*", "null", "https://example.org", "http://[::1]:8080"})
    EXPECT_TRUE(is_origin(good)) << good;
  for (const char* bad :
       {"", "example", "example.org:80", "https://", "://a", "https://a/", "https://a, https://b"})
    EXPECT_FALSE(is_origin(bad)) << bad;
}

TEST(App, WhatCanNotBeListenedWithIsToldBefore) {
  EXPECT_NO_THROW(check_host("127.0.0.1"));
  EXPECT_NO_THROW(check_tls({}));
  const auto refused = [](const auto& check, const std::string& piece) {
    try {
      check();
      ADD_FAILURE() << piece;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kInvalidArgument);
      EXPECT_NE(std::string(e.what()).find(piece), std::string::npos) << e.what();
    }
  };
  refused([] { check_host("nonsense.invalid"); }, "no such host");
  HttpOptions options;
  options.tls_cert = "no-such.pem";
  refused([&] { check_tls(options); }, "one is missing");
  options.tls_key = "no-such.key";
  refused([&] { check_tls(options); }, "read the certificate no-such.pem");
}

TEST(App, RefusesWhatIsNotThere) {
  TestServer server;
  TestClient client(server.port());
  EXPECT_EQ(client.get("/nothing").status, 404);
  const auto wrong = client.get("/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_NE(wrong.head.find("allow: POST, OPTIONS\r\n"), std::string::npos);
  client.send(
      "POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\ncontent-length: "
      "0\r\n\r\n");
  EXPECT_EQ(client.answer().status, 415);
  client.send("BREW /health HTTP/1.1\r\nhost: localhost\r\n\r\n");
  EXPECT_EQ(client.answer().status, 405);
  // A part of a method's name is no method: it would be let in without the checks of POST.
  TestClient part(server.port());
  part.send(
      "POS /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-length: 15\r\n\r\n{\"prompt\": \"a\"}");
  EXPECT_EQ(part.answer().status, 405);
  client.send("HEAD /health HTTP/1.1\r\nhost: localhost\r\n\r\n");
  EXPECT_NE(client.until("\r\n\r\n").find("200 OK"), std::string::npos);
}

TEST(App, KeysAreAskedForEverywhereButHealth) {
  AppOptions options;
  options.keys = two_keys();
  TestServer server(std::move(options));
  TestClient client(server.port());
  EXPECT_EQ(client.get("/health").status, 200);
  EXPECT_EQ(client.get("/ready").status, 200);
  EXPECT_EQ(client.get("/metrics").status, 401);
  EXPECT_EQ(client.post("/tokenize", "{\"prompt\":\"a\"}").status, 401);
  TestClient second(server.port());
  for (const std::string& field :
       {"authorization: Bearer " + kKey, "authorization: bearer " + kOther, "x-api-key: " + kKey})
    EXPECT_EQ(second.post("/tokenize", "{\"prompt\":\"a\"}", field + "\r\n").status, 200) << field;
  const std::vector<std::string> wrong = {"authorization: Bearer " + kKey + "x",
                                          "authorization: Bearer ", "authorization: Basic " + kKey,
                                          "x-api-key: " + kKey.substr(1), "x-api-key: # two"};
  for (const std::string& field : wrong) {
    TestClient third(server.port());
    EXPECT_EQ(third.post("/tokenize", "{\"prompt\":\"a\"}", field + "\r\n").status, 401) << field;
  }
}

TEST(App, EachKeyHasASaltOfItsOwn) {
  AppOptions options;
  options.keys = two_keys();
  TestServer server(std::move(options));
  for (const std::string& key : {kKey, kOther, kKey})
    EXPECT_EQ(
        server.post("/v1/completions", {{"prompt", "a"}}, "x-api-key: " + key + "\r\n").status,
        200);
  const auto& requests = server.generator->requests;
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_NE(requests[0].salt, "");
  EXPECT_NE(requests[0].salt, requests[1].salt);
  EXPECT_EQ(requests[0].salt, requests[2].salt);
  EXPECT_EQ(requests[0].salt.find(kKey), std::string::npos);
}

TEST(App, PagesOfOtherOriginsAreRefused) {
  AppOptions options;
  options.cors_origins = {"https://good.example"};
  TestServer server(std::move(options));
  const Json body = {{"prompt", "a"}};
  EXPECT_EQ(server.post("/tokenize", body, "origin: https://bad.example\r\n").status, 403);
  EXPECT_EQ(server.post("/tokenize", body, "origin: http://localhost\r\n").status, 200);  // its own
  const auto good = server.post("/tokenize", body, "origin: https://good.example\r\n");
  EXPECT_EQ(good.status, 200);
  EXPECT_NE(good.head.find("access-control-allow-origin: https://good.example\r\n"),
            std::string::npos);
  TestClient client(server.port());
  client.send(
      "OPTIONS /v1/completions HTTP/1.1\r\nhost: localhost\r\norigin: https://good.example\r\n"
      "access-control-request-method: POST\r\n"
      "access-control-request-headers: content-type, x-stainless-lang\r\n\r\n");
  const auto preflight = client.answer();
  EXPECT_EQ(preflight.status, 204);
  EXPECT_NE(preflight.head.find("access-control-allow-methods: POST, OPTIONS\r\n"),
            std::string::npos);
  EXPECT_NE(preflight.head.find("access-control-allow-headers: authorization"), std::string::npos);
  EXPECT_NE(preflight.head.find(", content-type, x-stainless-lang\r\n"), std::string::npos);
}

TEST(App, ANameThatIsNotThisMachineIsRefusedOnLoopback) {
  TestServer server;
  TestClient client(server.port());
  client.send("GET /v1/models HTTP/1.1\r\nhost: evil.example:80\r\n\r\n");
  EXPECT_EQ(client.answer().status, 403);
  for (const char* host : {"localhost:1", "127.0.0.1", "[::1]:80"}) {
    client.send(std::string("GET /v1/models HTTP/1.1\r\nhost: ") + host + "\r\n\r\n");
    EXPECT_EQ(client.answer().status, 200) << host;
  }
}

TEST(App, OverloadIs429WithRetryAfter) {
  TestServer server;
  server.generator->refusal = QueueFull("the queue is full; try again in 17 s", 17);
  const auto answer = server.post("/v1/completions", {{"prompt", "a"}});
  EXPECT_EQ(answer.status, 429);
  EXPECT_NE(answer.head.find("retry-after: 17\r\n"), std::string::npos);
  const Json error = parse_json(answer.body, "answer")["error"];
  EXPECT_EQ(error["type"], "rate_limit_error");
  EXPECT_EQ(error["message"], "the queue is full; try again in 17 s");
}

TEST(App, AnAnswerThatIsRefusedHalfWayIsForgotten) {
  TestServer server;
  std::shared_ptr<const ServedModel> model = server.model("step-2");
  server.app->model().replace(model);
  server.generator->allow(0);
  server.generator->refusal = QueueFull("the queue is full", 1);
  server.generator->takes = 2;
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", "a"}, {"n", 3}}).status, 429);
  EXPECT_EQ(server.generator->cancelled.size(), 2u);
  server.app->model().replace(server.model("step-3"));
  server.stop();
  EXPECT_EQ(model.use_count(), 1) << "the request still has it";
}

TEST(App, AVanishedClientCancelsEveryChoice) {
  for (const bool stream : {false, true}) {
    for (const int64_t tokens : {0, 3}) {
      TestServer server;
      server.generator->allow(tokens);
      TestClient client(server.port());
      const std::string body =
          json_text({{"prompt", "a"}, {"n", 3}, {"stream", stream}, {"max_tokens", 100}});
      client.send_post("/v1/completions", body);
      server.generator->wait([&] { return server.generator->requests.size() == 3; });
      if (stream && tokens > 0) client.until("data: ");
      client.close();
      server.generator->wait([&] { return server.generator->cancelled.size() == 3; });
      EXPECT_EQ(server.generator->live(), 0);
    }
  }
}

TEST(App, EveryRequestIsAccountedOnce) {
  TestServer server;
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", "a"}}).status, 200);
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", 1}}).status, 400);
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", "a"}, {"stream", true}}).status, 200);
  EXPECT_EQ(TestClient(server.port()).get("/nothing").status, 404);
  TestClient broken(server.port());
  broken.send("nonsense\r\n\r\n");
  EXPECT_EQ(broken.answer().status, 400);
  TestClient client(server.port());
  const std::string text = client.get("/metrics").body;
  const auto has = [&](const std::string& line) {
    EXPECT_NE(text.find(line + "\n"), std::string::npos) << line << "\n" << text;
  };
  has("moraine_requests_total{endpoint=\"/v1/completions\",outcome=\"ok\"} 2");
  has("moraine_requests_total{endpoint=\"/v1/completions\",outcome=\"invalid\"} 1");
  has("moraine_requests_total{endpoint=\"other\",outcome=\"invalid\"} 2");
  has("# TYPE moraine_time_to_first_token_seconds histogram");
  has("moraine_time_to_first_token_seconds_count 2");
  has("moraine_prompt_tokens_total 2");
  has("moraine_prompt_tokens_per_second 1500");
  has("moraine_queue_seconds 2.5");
  has("moraine_requests_in_flight 1");  // this one
  EXPECT_EQ(server.app->metrics().ended_total(), 6);
}

// Of more bytes than the system takes for a client that does not read.
void ask_for_much(TestServer* server, TestClient* client, bool stream) {
  for (int i = 0; i < 8; ++i) server->generator->script += server->generator->script;  // 900 tokens
  client->send_post("/v1/chat/completions",
                    json_text({{"messages", Json::array({{{"role", "user"}, {"content", "a"}}})},
                               {"stream", stream},
                               {"logprobs", true},
                               {"top_logprobs", 20},
                               {"n", 12},
                               {"max_tokens", 900}}));
}

// The first line of an endpoint in moraine_requests_total, behind `outcome="`, once there is one.
std::string outcomes_of(TestServer* server, const std::string& endpoint) {
  const std::string line = "moraine_requests_total{endpoint=\"" + endpoint + "\",outcome=\"";
  for (;;) {
    const std::string text = TestClient(server->port()).get("/metrics").body;
    const size_t at = text.find(line);
    if (at == std::string::npos) continue;
    const size_t begin = at + line.size();
    return text.substr(begin, text.find('\n', begin) - begin);
  }
}

std::string chat_outcomes(TestServer* server) {
  return outcomes_of(server, "/v1/chat/completions");
}

// It had ended in the engine; what waited for its reader was thrown away.
TEST(App, AnAnswerThatNobodyReadsIsCountedAsUnread) {
  for (const bool stream : {true, false}) {
    AppOptions options;
    options.http.limits.output_bytes = 256 << 20;
    options.http.limits.write_seconds = 0.2;
    TestServer server(std::move(options));
    TestClient client(server.port(), /*receive_bytes=*/4096);
    ask_for_much(&server, &client, stream);
    EXPECT_EQ(chat_outcomes(&server), "unread\"} 1") << stream;
  }
}

// In the midst of what it was sent; a whole answer was written by then.
TEST(App, AnAnswerWhoseClientGoesIsCountedAsCancelled) {
  for (const bool stream : {true, false}) {
    AppOptions options;
    options.http.limits.output_bytes = 256 << 20;
    TestServer server(std::move(options));
    TestClient client(server.port(), /*receive_bytes=*/4096);
    ask_for_much(&server, &client, stream);
    client.until("\r\n\r\n");
    client.reset();
    EXPECT_EQ(chat_outcomes(&server), "cancelled\"} 1") << stream;
  }
}

// What is no answer of the model counts as one.
TEST(App, ASmallAnswerThatNobodyReadsIsCountedAsUnread) {
  AppOptions options;
  options.http.limits.write_seconds = 0.2;
  TestServer server(std::move(options));
  TestClient client(server.port(), /*receive_bytes=*/4096);
  client.send_post("/tokenize", json_text({{"prompt", std::string(8 << 20, 'a')}}));
  EXPECT_EQ(outcomes_of(&server, "/tokenize"), "unread\"} 1");
}

TEST(App, DrainingFinishesStreamsAndRefusesNewRequests) {
  TestServer server;
  server.generator->allow(1);
  TestClient client(server.port());
  const std::string body = json_text({{"prompt", "a"}, {"stream", true}, {"max_tokens", 100}});
  client.send_post("/v1/completions", body);
  client.until("data: ");
  server.app->http().drain();
  TestClient late(server.port());
  while (!server.app->http().draining()) std::this_thread::yield();
  EXPECT_EQ(late.get("/health").status, 200);
  TestClient other(server.port());
  EXPECT_EQ(other.get("/ready").status, 503);
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", "a"}}).status, 503);
  server.generator->allow(-1);
  EXPECT_NE(client.all().find("data: [DONE]"), std::string::npos);
  server.stop();
  EXPECT_EQ(server.cut, 0);
}

TEST(App, AnAnswerIsOfOneVersion) {
  TestServer server;
  server.generator->allow(1);
  TestClient client(server.port());
  const std::string body = json_text({{"prompt", "a"}, {"stream", true}, {"max_tokens", 100}});
  client.send_post("/v1/completions", body);
  const std::string head = client.until("\r\n\r\n");
  client.until("data: ");
  server.app->model().replace(server.model("step-2"));
  server.generator->allow(-1);
  const std::string rest = client.until("[DONE]");
  EXPECT_NE(head.find("x-moraine-model: step-1"), std::string::npos);
  EXPECT_NE(rest.find("step-1"), std::string::npos);
  EXPECT_EQ(rest.find("step-2"), std::string::npos);
  EXPECT_EQ(server.post_json("/v1/completions", {{"prompt", "a"}})["system_fingerprint"], "step-2");
}

TEST(ApiKeys, FilesWithoutGoodKeysAreRefused) {
  for (const char* text : {"", "# nothing\n", "short\n", "with a space in the key\n"}) {
    char path[] = "/tmp/moraine-keys-XXXXXX";
    const int fd = ::mkstemp(path);
    EXPECT_GE(::write(fd, text, strlen(text)), 0);
    ::close(fd);
    EXPECT_THROW(ApiKeys::load(posix_file_system(), path), Error) << text;
    ::unlink(path);
  }
}

}  // namespace
}  // namespace moraine
