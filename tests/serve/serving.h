// Serving: the built `moraine serve` on a tiny model, and what a client sees of it over a socket.
#pragma once

#include <gtest/gtest.h>
#include <algorithm>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/test_folder.h"
#include "tests/program.h"
#include "tests/serve/stream_client.h"
#include "tests/tiny_run.h"

namespace moraine::testing {

// Waits until `what` holds; false if it never does. No test depends on how long it takes.
inline bool eventually(const std::function<bool()>& what) {
  for (int tries = 0; tries < 30'000; ++tries) {
    if (what()) return true;
    ::usleep(2000);
  }
  return false;
}

// The number behind `name` in a page of metrics: of one line, or the sum over the labels of it.
inline double metric_in(const std::string& page, const std::string& name) {
  double sum = 0;
  for (size_t at = 0; (at = page.find("\n" + name, at)) != std::string::npos; ++at) {
    const std::string line = page.substr(at + 1, page.find('\n', at + 1) - at - 1);
    const char next = line[name.size()];
    if (next == ' ' || next == '{' || name.back() == '}')
      sum += std::stod(line.substr(line.rfind(' ')));
  }
  return sum;
}

// The program, from the line that says where it listens to its end.
class ServeProgram {
 public:
  // `folder` takes its output.
  ServeProgram(const std::string& folder, std::vector<std::string> args) : folder_(folder) {
    posix_file_system().make_directories(folder);
    args.insert(args.begin(), {"serve", "--port", "0"});
    program_.emplace(folder, args);
    const auto listens = [&] {
      siginfo_t ended{};
      ::waitid(P_PID, static_cast<id_t>(program_->pid()), &ended, WEXITED | WNOHANG | WNOWAIT);
      const std::string out = output("child.out");
      const size_t at = out.find("127.0.0.1:");
      if (at != std::string::npos && out.back() == '\n') port_ = std::stol(out.substr(at + 10));
      return port_ > 0 || ended.si_pid != 0;
    };
    if (!eventually(listens) || port_ == 0)
      throw_error(Code::kIo, "the server does not start: {}", output("child.err"));
  }

  int64_t port() const { return port_; }
  pid_t pid() const { return program_->pid(); }
  Ended end(int signal = SIGTERM) {
    program_->send(signal);
    return program_->wait();
  }
  std::string log() const { return output("child.err"); }

  TestClient::Answer post(const std::string& path, const Json& body) const {
    return TestClient(port_).post(path, json_text(body));
  }
  // The answer, which must be a good one.
  Json ask(const std::string& path, const Json& body) const {
    const TestClient::Answer answer = post(path, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return parse_json_or_null(answer.body);
  }
  std::vector<Json> stream(const std::string& path, Json body) const {
    body["stream"] = true;
    const TestClient::Answer answer = post(path, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return events_of(answer.body);
  }
  std::string metrics() const { return TestClient(port_).get("/metrics").body; }
  double metric(const std::string& name) const { return metric_in(metrics(), name); }
  bool comes_to(const std::string& name, double value) const {
    return eventually([&] { return metric(name) == value; });
  }
  // Nothing runs, nothing waits.
  bool comes_to_rest() const {
    return eventually([&] {
      const std::string page = metrics();
      return metric_in(page, "moraine_running_requests") == 0 &&
             metric_in(page, "moraine_queue_requests") == 0 &&
             metric_in(page, "moraine_cache_pages_used") == 0 &&
             metric_in(page, "moraine_requests_unread") == 0;
    });
  }

 private:
  std::string output(const std::string& name) const {
    const std::string path = folder_ + "/" + name;
    return posix_file_system().exists(path) ? posix_file_system().read(path) : "";
  }
  std::string folder_;
  std::optional<Program> program_;
  int64_t port_ = 0;
};

// A model of initial weights with a tokenizer of 300 tokens, of which 0 ends a text and 2 a turn.
class ServeTest : public ::testing::Test {
 protected:
  static constexpr int64_t kPositions = 32768;

  void SetUp() override {
    folder.write("a.jsonl", tiny_text(7, 200));
    must({"tokenizer", "train", "--input", file("a.jsonl"), "--vocab-size", "300", "--special",
          "<|endoftext|>", "--special", "<|im_start|>", "--special", "<|im_end|>", "--out",
          file("tok")});
    write_model(32);
  }
  // What serve() starts with from here on.
  void write_model(int64_t hidden) const {
    posix_file_system().remove_all(file("model"));
    ModelConfig config;
    config.hidden = hidden, config.layers = 2, config.heads = 2, config.kv_heads = 1;
    config.head_dim = 16, config.experts = 4, config.expert_hidden = 24, config.router_hidden = 16;
    config.vocab_size = 300, config.max_positions = kPositions, config.init_std = 0.2;
    config.eos_id = 0;
    const ParameterTable table = build_parameters(config);
    std::vector<float> weights(static_cast<size_t>(table.total_count));
    const Tensor master = make_tensor(weights.data(), DType::kF32, {table.total_count});
    initialize_parameters(table, config, 1, master);
    const CheckpointFile tokenizer = {"tokenizer.json",
                                      posix_file_system().read(file("tok") + "/tokenizer.json")};
    write_model_directory(posix_file_system(), file("model"),
                          {.config = config,
                           .weights = weights_in(master),
                           .dtype = DType::kF32,
                           .language_files = {&tokenizer, 1}});
  }
  std::string file(const std::string& name) const { return folder.file(name); }
  std::string must(const std::vector<std::string>& args) const {
    const Ended ended = run_program(folder.path(), args);
    EXPECT_EQ(ended.exit_code, 0) << args[0] << ": " << ended.err;
    return ended.out;
  }
  // Started on the tiny model; `more` flags.
  std::unique_ptr<ServeProgram> serve(std::vector<std::string> more = {}) {
    if (std::find(more.begin(), more.end(), "--cache-mib") == more.end())
      more.insert(more.end(), {"--cache-mib", "64"});
    more.insert(more.begin(),
                {"--model", file("model"), "--threads", "1", "--chat-template", "chatml"});
    return std::make_unique<ServeProgram>(file("serve" + std::to_string(++servers_)), more);
  }
  // Token ids: a function of `seed`.
  static Json prompt_of(uint64_t seed, int64_t tokens) {
    Json ids = Json::array();
    for (int64_t i = 0; i < tokens; ++i)
      ids.push_back(1 + random_below(299, seed, Stream::kTest, 3, static_cast<uint64_t>(i)));
    return ids;
  }
  // A stream of so many tokens, whatever they are.
  static Json long_answer(uint64_t seed, int64_t tokens) {
    return {
        {"prompt", prompt_of(seed, 4)},
        {"max_tokens", tokens},
        {"ignore_eos", true},
        {"seed", seed},
        {"stream", true},
    };
  }

  TestFolder folder;

 private:
  int servers_ = 0;
};

}  // namespace moraine::testing
