// Device: the built server, and `chat`, on an emulated GPU.
//
// Fails if an answer is not that of `generate` on the same GPU to the bit, whoever asks beside it, before and after a
// reload (of a model that is packed as integers), if a client that is gone holds its pages, if the memory of host and
// device is not said, or if what is not there is not refused by name before anything is served.
#include <cstdio>
#include <thread>

#include "tests/serve/serving.h"

namespace moraine {
namespace {

using namespace testing;

class DeviceServer : public ServeTest {
 protected:
  static std::string text_of(const Json& ids) {
    std::string text;
    for (const Json& id : ids) text += json_text(id) + " ";
    return text;
  }
  Json generated(const std::string& model, const Json& prompt) const {
    return parse_json(must({"generate", "--model", file(model), "--dtype", "bf16", "--device",
                            kDevice, "--tokens", text_of(prompt), "--max-tokens", "4",
                            "--temperature", "0", "--threads", "1", "--json"}));
  }
  static Json served(const ServeProgram& server, const Json& prompt) {
    return server.ask(
        "/v1/completions",
        {{"prompt", prompt}, {"max_tokens", 4}, {"temperature", 0}, {"logprobs", 0}})["choices"][0];
  }
  static void expect_same(const Json& choice, const Json& want) {
    EXPECT_EQ(choice["text"], want["text"]);
    EXPECT_EQ(json_text(choice["logprobs"]["token_logprobs"]), json_text(want["logprobs"]));
  }
  void expect_refused(std::vector<std::string> flags,
                      std::initializer_list<const char*> pieces) const {
    flags.insert(flags.begin(), {"serve", "--port", "0", "--context", "64", "--device"});
    const Ended ended = run_program(folder.path(), flags);
    EXPECT_EQ(ended.exit_code, 10) << ended.err;
    EXPECT_EQ(ended.out, "");
    for (const char* piece : pieces)
      EXPECT_NE(ended.err.find(piece), std::string::npos) << piece << "\n" << ended.err;
  }
  // What `chat` says to one line.
  std::string said(const std::string& line) const {
    const std::string command = "echo '" + line + "' | " + moraine_program() + " chat --model " +
                                file("model") + " --dtype bf16 --device " + kDevice +
                                " --context 64 --chat-template chatml --threads 1 --max-tokens 4 "
                                "--temperature 0 2>/dev/null";
    std::FILE* pipe = ::popen(command.c_str(), "r");
    std::string text(256, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), pipe));
    EXPECT_EQ(::pclose(pipe), 0);
    return text;
  }
  static constexpr const char* kDevice = "emulated:sm_90";
};

TEST_F(DeviceServer, AnswersAsGenerateDoesToTheBit) {
  const TinyRun tiny(file("tiny"));  // its machine file
  must({"data", "build", "--tokenizer", file("tok"), "--input", file("a.jsonl"), "--out",
        file("data")});
  folder.write("run.toml",
               "[model]\nhidden = 32\nlayers = 1\nheads = 2\nkv_heads = 1\nhead_dim = 16\n"
               "experts = 2\nexpert_hidden = 16\nrouter_hidden = 16\n[data]\ntrain = \"" +
                   file("data") + "\"\ntokenizer = \"" + file("tok") +
                   "\"\n[train]\nsteps = 2\nsequence = 16\nbatch_tokens = 32\nslots = 1\n"
                   "threads = 1\n[optimizer]\nlearning_rate = 0.5\nmatrices = \"adamw\"\n"
                   "[checkpoint]\nevery_steps = 1\n[report]\nsample_every_steps = 0\n");
  must({"train", "--config", file("run.toml"), "--machine", file("tiny/machine.json"), "--out",
        file("run")});
  const auto quantize = [&](const char* step, const char* type) {
    must({"quantize", "--model", file("run") + step, "--out", file("packed") + step, "--type", type,
          "--no-report"});
  };
  quantize("/step-1", "bf16");
  quantize("/step-2", "q8");
  posix_file_system().rename(file("packed/step-2"), file("later"));
  const ServeProgram server(
      file("serve"),
      {"--model", file("packed"), "--device", kDevice, "--threads", "1", "--context", "128",
       "--sequences", "2", "--rows", "16", "--cache-mib", "1", "--reload-seconds", "0.05"});
  EXPECT_NE(server.log().find("device=\"emulated sm_90, wave 32\" device_bytes="),
            std::string::npos)
      << server.log();
  const Json first = prompt_of(1, 21), second = prompt_of(2, 5),
             want = generated("run/step-1", first);
  Json beside;
  std::thread other([&] { beside = served(server, second); });
  expect_same(served(server, first), want);
  other.join();
  expect_same(beside, generated("run/step-1", second));
  expect_same(served(server, first), want);  // its prefix is known now
  {
    StreamClient gone(server.port(), "/v1/completions", long_answer(3, 100));
    EXPECT_NE(gone.event(), "");
  }
  EXPECT_TRUE(server.comes_to_rest());

  posix_file_system().rename(file("later"), file("packed/step-2"));
  EXPECT_TRUE(server.comes_to("moraine_reloads_total", 1)) << server.log();
  expect_same(served(server, second), generated("packed/step-2", second));
}

// Ranks have experts in the memory of a device each, others after each step.
TEST_F(DeviceServer, RanksAnswerAsOneDoesToTheBit) {
  const auto server =
      serve({"--device", kDevice, "--dtype", "bf16", "--context", "64", "--sequences", "2",
             "--cache-mib", "1", "--ranks", "2", "--placement", "shuffled"});
  const Json prompt = prompt_of(1, 21);
  expect_same(served(*server, prompt), generated("model", prompt));
}

TEST_F(DeviceServer, ChatSaysWhatTheServerSays) {
  const auto server = serve({"--device", kDevice, "--dtype", "bf16", "--context", "64",
                             "--sequences", "1", "--cache-mib", "1"});
  const Json answer = server->ask("/v1/chat/completions",
                                  {{"messages", {{{"role", "user"}, {"content", "ab hov"}}}},
                                   {"max_tokens", 4},
                                   {"temperature", 0}});
  const std::string want = answer["choices"][0]["message"]["content"].get<std::string>();
  EXPECT_EQ(said("ab hov").substr(0, want.size()), want);
  EXPECT_NE(want, "");
}

TEST_F(DeviceServer, WhatIsNotThereIsRefusedByNameAtTheStart) {
  const std::string model = file("model");
  expect_refused({"emulated:plain", "--model", model, "--ranks", "2", "--share-cache"},
                 {"a model on a GPU", "tree_attention", "--device cpu"});
  expect_refused({"emulated:plain", "--model", model, "--ranks", "2", "--low-latency", "on"},
                 {"device emulated:plain", "low latency", "wanted auto or off"});
  expect_refused({"emulated:plain", "--model", model, "--head", "two-stage"},
                 {"a model on a GPU", "linear_forward_panels", "--device cpu"});
  expect_refused({"warp", "--model", model}, {"device warp", "emulated:RULE"});
}

}  // namespace
}  // namespace moraine
