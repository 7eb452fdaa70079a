// HttpLoad: fails if `bench serve --url` counts other tokens than the server gave, or if a server that is none, refuses
// or needs a key is not named.
#include <sstream>

#include "tests/serve/serving.h"

namespace moraine {
namespace {

using namespace testing;

class HttpLoad : public ServeTest {
 protected:
  Ended measure(const std::string& url, std::vector<std::string> more = {},
                const char* prompt_tokens = "20") const {
    more.insert(more.begin(), {"bench", "serve", "--url", url, "--prompt-tokens", prompt_tokens,
                               "--new-tokens", "9", "--concurrency", "1,3", "--json"});
    return run_program(folder.path(), more);
  }
  static std::string url_of(const ServeProgram& server) {
    return "http://127.0.0.1:" + std::to_string(server.port());
  }
};

TEST_F(HttpLoad, IsWhatTheServerCounts) {
  const auto server = serve();
  const Ended ended = measure(url_of(*server));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  std::istringstream lines(ended.out);
  int64_t rows = 0;
  for (std::string line; std::getline(lines, line); ++rows) {
    const Json row = parse_json(line);
    EXPECT_EQ(row["concurrency"], rows == 0 ? 1 : 3);
    for (const char* field : {"tokens_per_s", "first_token_ms_median", "http_percent"})
      EXPECT_GT(row[field].get<double>(), 0) << line;
    EXPECT_GE(row["beside_percent"].get<double>(), 0) << line;
    EXPECT_LE(row["beside_percent"].get<double>(), 100) << line;
  }
  EXPECT_EQ(rows, 2);
  // Four requests alone, six by three.
  EXPECT_EQ(server->metric("moraine_prompt_tokens_total"), 10 * 20);
  EXPECT_EQ(server->metric("moraine_generated_tokens_total"), 10 * 9);
}

TEST_F(HttpLoad, NamesWhatRefuses) {
  folder.write("keys", "# ours\n0123456789abcdef\n");
  folder.write("other", "fedcba9876543210\n");
  const auto server = serve({"--api-key-file", file("keys")});
  EXPECT_EQ(measure(url_of(*server), {"--api-key-file", file("keys")}).exit_code, 0);
  const auto says = [&](const Ended& ended, const std::string& what) {
    EXPECT_NE(ended.exit_code, 0);
    EXPECT_NE(ended.err.find(what), std::string::npos) << ended.err;
  };
  says(measure(url_of(*server)), "answers 401");
  says(measure(url_of(*server), {"--api-key-file", file("other")}), "answers 401");
  says(measure(url_of(*server), {"--api-key-file", file("keys"), "--model", "no-such"}), "no-such");
  says(measure(url_of(*server), {"--api-key-file", file("keys")}, "40000"), "answers 400");
  says(measure(url_of(*server), {"--dtype", "f32"}), "--dtype");
  server->end();
  says(measure(url_of(*server)), "no connection");
  for (const char* url : {"127.0.0.1:1", "https://localhost", "http://", "http://a:0", "http://a:x",
                          "http://a/v1", "http://[::1", "http://u@a"})
    says(measure(url), "wanted http://HOST:PORT");
}

}  // namespace
}  // namespace moraine
