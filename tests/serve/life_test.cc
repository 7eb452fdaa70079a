// Life: what a server does when the model, its clients or its own time change.
//
// Fails if a newer checkpoint is not taken or changes an answer that has begun, if a stream is cut by SIGTERM, or if
// a client that is gone still holds pages or a place.
#include <cstdlib>
#include <ostream>

#include "tests/serve/serving.h"

namespace moraine {
namespace {

using namespace testing;

using Life = ServeTest;
constexpr int64_t kLong = 30'000;  // tokens: seconds, if nobody ends it

// Reads a stream of /v1/completions to its end; `chunks` has what was read before.
void read_rest(StreamClient& stream, std::vector<Json>* chunks) {
  for (std::string event; !(event = stream.event()).empty();) {
    for (Json& json : events_of(event + "\n\n")) chunks->push_back(std::move(json));
  }
}

struct Newer {
  const char* folder;              // "run", or "packed": what `quantize` makes of its checkpoints
  std::vector<std::string> flags;  // ranks, or none
};
void PrintTo(const Newer& n, std::ostream* out) {
  *out << n.folder << (n.flags.empty() ? "" : " of two ranks");
}
class NewerCheckpoint : public ServeTest, public ::testing::WithParamInterface<Newer> {};
INSTANTIATE_TEST_SUITE_P(Ranks, NewerCheckpoint,
                         ::testing::Values(Newer{"run", {}}, Newer{"run", {"--ranks", "2"}},
                                           Newer{"packed", {}}, Newer{"packed", {"--ranks", "2"}}));

TEST_P(NewerCheckpoint, IsTakenBetweenRequests) {
  Machine machine;
  machine.isa = "test";
  machine.threads = 1;
  machine.f32_gflops = 10, machine.bf16_gflops = 20;
  machine.read_gb_s = machine.copy_gb_s = 10;
  machine.measured_utc = utc_now();
  save_machine(posix_file_system(), file("machine.json"), machine);
  must({"data", "build", "--tokenizer", file("tok"), "--input", file("a.jsonl"), "--out",
        file("data")});
  folder.write(
      "run.toml",
      "[model]\nhidden = 32\nlayers = 2\nheads = 2\nkv_heads = 1\nhead_dim = 16\nexperts = "
      "4\nexpert_hidden = 24\nrouter_hidden = 16\nmax_positions = 8192\n[data]\ntrain = \"" +
          file("data") + "\"\ntokenizer = \"" + file("tok") +
          "\"\n[train]\nslots = 2\nsequence = 32\nbatch_tokens = 128\nsteps = 2\nthreads = 1\n"
          "[checkpoint]\nevery_steps = 1\n");
  must({"train", "--config", file("run.toml"), "--machine", file("machine.json"), "--out",
        file("run")});
  FileSystem& fs = posix_file_system();
  ASSERT_TRUE(fs.exists(file("run/step-2/manifest.json")));
  const std::string root = file(GetParam().folder);
  const bool packed = root != file("run");
  for (const char* step : {"/step-1", "/step-2"}) {
    if (packed) must({"quantize", "--model", file("run") + step, "--out", root + step});
  }
  fs.rename(root + "/step-2", file("later"));

  std::vector<std::string> flags = GetParam().flags;
  for (const char* flag : {"--threads", "1", "--cache-mib", "64", "--reload-seconds", "0.05"})
    flags.push_back(flag);
  flags.insert(flags.end(), {"--model", root});
  ServeProgram server(file("serve"), flags);
  Json request = long_answer(5, 5000);
  StreamClient stream(server.port(), "/v1/completions", request);
  std::vector<Json> chunks = events_of(stream.event() + "\n\n");
  ASSERT_EQ(chunks.size(), 1u);
  const std::string old = chunks[0]["system_fingerprint"].get<std::string>();
  EXPECT_TRUE(old.starts_with("step-1-")) << old;
  const Json small = {{"prompt", "ab hov"}, {"max_tokens", 30}, {"seed", 1}, {"logprobs", 0}};
  const Json before = server.ask("/v1/completions", small);
  EXPECT_EQ(before["system_fingerprint"], old);

  fs.rename(file("later"), root + "/step-2");
  EXPECT_TRUE(server.comes_to("moraine_reloads_total", 1)) << server.log();
  const Json after = server.ask("/v1/completions", small);
  const std::string now = after["system_fingerprint"].get<std::string>();
  EXPECT_TRUE(now.starts_with("step-2-")) << now;
  EXPECT_NE(after["choices"], before["choices"]);

  read_rest(stream, &chunks);
  EXPECT_TRUE(stream.whole);
  for (const Json& chunk : chunks) ASSERT_EQ(chunk["system_fingerprint"], old);
  const Json streamed = choices_of(chunks)[0];
  EXPECT_EQ(streamed["finish_reason"], "length");
  // It is what the old checkpoint alone says.
  ServeProgram alone(file("alone"), {"--model", file("run/step-1"), "--threads", "2"});
  request["stream"] = false;
  const Json whole = alone.ask("/v1/completions", request);
  EXPECT_EQ(whole["system_fingerprint"] == old, !packed);
  EXPECT_EQ(whole["choices"][0]["text"], streamed["text"]);
  EXPECT_EQ(server.end().exit_code, 0);
}

TEST_F(Life, SigtermLetsAStreamComplete) {
  const auto server = serve();
  Json request = long_answer(6, 5000);
  StreamClient stream(server->port(), "/v1/completions", request);
  std::vector<Json> chunks = events_of(stream.event() + "\n\n");
  ASSERT_EQ(chunks.size(), 1u);
  ASSERT_EQ(::kill(server->pid(), SIGTERM), 0);
  read_rest(stream, &chunks);
  EXPECT_TRUE(stream.whole);
  const Json streamed = choices_of(chunks)[0];
  EXPECT_EQ(streamed["finish_reason"], "length");
  const Ended ended = server->end();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.err.find("cut=0"), std::string::npos) << ended.err;
  const auto other = serve();
  request["stream"] = false;
  EXPECT_EQ(other->ask("/v1/completions", request)["choices"][0]["text"], streamed["text"]);
}

TEST_F(Life, ASecondSignalCutsAndSaysSo) {
  const auto server = serve();
  StreamClient stream(server->port(), "/v1/completions", long_answer(6, kLong));
  ASSERT_NE(stream.event(), "");
  ASSERT_EQ(::kill(server->pid(), SIGTERM), 0);
  // Refused, so the first signal has been heard.
  ASSERT_TRUE(eventually([&] { return TestClient(server->port()).get("/ready").status != 200; }));
  const Ended ended = server->end(SIGINT);
  EXPECT_EQ(ended.exit_code, 18) << ended.err;
}

TEST_F(Life, ClientsThatVanishHoldNothing) {
  // One at once, and a prompt of 30000 tokens takes 3750 steps, the later ones over ever more keys: nothing here waits
  // for its end.
  const auto server = serve({"--sequences", "1", "--rows", "8", "--queue-requests", "1"});
  const auto ask_long = [&](uint64_t seed) {
    Json request = long_answer(seed, 50);
    request["prompt"] = prompt_of(seed, 30'000);
    return request;
  };
  const std::string cancelled =
      "moraine_requests_total{endpoint=\"/v1/completions\",outcome=\"cancelled\"}";
  // In the middle of an answer; with a reset; in its prompt.
  for (int i = 0; i < 3; ++i) {
    Json request = long_answer(static_cast<uint64_t>(i), kLong);
    if (i == 2) request = ask_long(9);
    StreamClient stream(server->port(), "/v1/completions", request);
    if (i < 2)
      ASSERT_NE(stream.event(), "");
    else
      ASSERT_TRUE(server->comes_to("moraine_running_requests", 1));
    i == 1 ? stream.client.reset() : stream.client.close();
    EXPECT_TRUE(server->comes_to(cancelled, i + 1));
    EXPECT_TRUE(server->comes_to_rest()) << server->metrics();
  }
  // In the queue; a whole answer is no different.
  StreamClient first(server->port(), "/v1/completions", ask_long(8));
  ASSERT_TRUE(server->comes_to("moraine_running_requests", 1));
  {
    Json request = long_answer(3, kLong);
    request["stream"] = false;
    StreamClient second(server->port(), "/v1/completions", request);
    ASSERT_TRUE(server->comes_to("moraine_queue_requests", 1)) << server->metrics();
    const TestClient::Answer refused =
        server->post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 2}});
    EXPECT_EQ(refused.status, 429) << refused.body;
    EXPECT_NE(refused.head.find("retry-after: "), std::string::npos) << refused.head;
  }
  EXPECT_TRUE(server->comes_to("moraine_queue_requests", 0));
  EXPECT_TRUE(server->comes_to(cancelled, 4));
  EXPECT_EQ(server->metric("moraine_running_requests"), 1);
  first.client.close();
  EXPECT_TRUE(server->comes_to_rest()) << server->metrics();
  EXPECT_EQ(server->metric("moraine_connections"), 1);
  EXPECT_EQ(server->end().exit_code, 0);
}

// A pipe behind stderr that nobody reads.
TEST_F(Life, ALogThatNobodyReadsEndsNothing) {
  run_shell(
      folder.path(),
      "cd '" + folder.path() +
          "'; { sh -c 'echo $$ > pid; exec \"$0\" serve --model model --threads 1 --cache-mib 64 "
          "--chat-template chatml --port 0 > out' \"$M\"; echo $? > code; } 2>&1 | { exec <&-; "
          "until [ -s out ] || [ -s code ]; do sleep 0.01; done; kill \"$(cat pid)\"; }");
  EXPECT_NE(posix_file_system().read(file("out")).find("127.0.0.1:"), std::string::npos);
  EXPECT_EQ(posix_file_system().read(file("code")), "0\n");
}

TEST_F(Life, Encrypted) {
  if (std::system("openssl version >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "NOT TESTED: there is no command openssl; encryption was not looked at";
  const Ended made = run_shell(folder.path(),
                               "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 "
                               "-nodes -days 2 -subj /CN=localhost -keyout " +
                                   file("key.pem") + " -out " + file("cert.pem"));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const auto server = serve({"--tls-cert", file("cert.pem"), "--tls-key", file("key.pem")});
  const std::string body = R"({"prompt":"ab","max_tokens":5,"stream":true})";
  const Ended got = run_shell(
      folder.path(),
      "printf 'POST /v1/completions HTTP/1.1\\r\\nhost: localhost\\r\\nconnection: close\\r\\n"
      "content-type: application/json\\r\\ncontent-length: " +
          std::to_string(body.size()) + "\\r\\n\\r\\n" + body +
          "' | openssl s_client -quiet -verify_return_error -servername localhost -CAfile " +
          file("cert.pem") + " -connect 127.0.0.1:" + std::to_string(server->port()));
  EXPECT_NE(got.out.find("HTTP/1.1 200"), std::string::npos) << got.out << got.err;
  EXPECT_NE(got.out.find("data: [DONE]"), std::string::npos) << got.out << got.err;
  // Plain text at this port is no request, and harms nobody.
  EXPECT_NE(TestClient(server->port()).get("/health").status, 200);
  EXPECT_EQ(server->end().exit_code, 0);
}

}  // namespace
}  // namespace moraine
