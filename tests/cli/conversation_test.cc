// Conversations: from dialogues to a model that was adapted to them, through the built program.
//
// Fails if another text than the assistant's is learnt, if a stranger can write special tokens, if a bad line is not
// named, or if the chat template is lost on the way to the adapted model.
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/test_folder.h"
#include "data/dataset.h"
#include "tests/program.h"
#include "tests/tiny_run.h"
#include "tokenizer/tokenizer.h"

namespace moraine {
namespace {

using namespace testing;

class ConversationData : public ::testing::Test {
 protected:
  void SetUp() override {
    folder.write("text.txt",
                 posix_file_system().read(testing::source_path("configs/support/dialogues.jsonl")));
    must({"tokenizer", "train", "--input", file("text.txt"), "--vocab-size", "400", "--out",
          file("tok")});
    tokenizer = Tokenizer::load(posix_file_system(), file("tok"));
  }
  std::string file(const std::string& name) const { return folder.file(name); }
  std::string must(const std::vector<std::string>& args, int code = 0) const {
    const Ended ended = run_program(folder.path(), args);
    EXPECT_EQ(ended.exit_code, code) << args[0] << ": " << ended.err;
    return code == 0 ? ended.out : ended.err;
  }
  std::vector<std::string> build(const std::string& input, const std::string& out,
                                 const std::string& chat = "plain") const {
    return {"data", "build", "--tokenizer", file("tok"),       "--field", "messages",   "--input",
            input,  "--out", file(out),     "--chat-template", chat,      "--overwrite"};
  }
  std::string build_error(const std::string& line) const {
    folder.write("bad.jsonl", "\n" + line + "\n");
    return must(build(file("bad.jsonl"), "bad"), 10);
  }
  // Text of a document's tokens that are learnt (or of those that are not).
  std::string part(const Dataset& data, int64_t document, bool learnt) const {
    std::vector<int32_t> ids, kept;
    data.read_document(document, &ids);
    std::vector<uint8_t> marks(ids.size());
    data.read_targets(data.document_begins()[static_cast<size_t>(document)],
                      static_cast<int64_t>(ids.size()), marks.data());
    for (size_t i = 0; i < ids.size(); ++i)
      if ((marks[i] != 0) == learnt) kept.push_back(ids[i]);
    return tokenizer->decode(kept, false);
  }

  TestFolder folder;
  std::unique_ptr<Tokenizer> tokenizer;
};

std::string dialogue(const std::vector<std::pair<std::string, std::string>>& turns) {
  Json messages = Json::array();
  for (const auto& [role, content] : turns)
    messages.push_back({{"role", role}, {"content", content}});
  return json_text(Json({{"messages", messages}}));
}

TEST_F(ConversationData, TheAssistantsTurnsAloneAreLearnt) {
  folder.write("a.jsonl", dialogue({{"system", "Be brief."},
                                    {"user", "Does it glow?"},
                                    {"assistant", "It does."},
                                    {"user", "Always?"},
                                    {"assistant", "At night."}}) +
                              "\n" + dialogue({{"user", "Nobody answers."}}) + "\n");
  const std::string line = must(build(file("a.jsonl"), "a"));
  const Dataset data(posix_file_system(), file("a"));
  ASSERT_EQ(data.num_documents(), 1);
  const std::string end(tokenizer->token_text(tokenizer->eos_id()));
  EXPECT_EQ(part(data, 0, true), "It does." + end + "At night." + end);
  EXPECT_EQ(part(data, 0, false),
            "System: Be brief.\n\nUser: Does it glow?\n\nAssistant: \n\nUser: "
            "Always?\n\nAssistant: \n\n" +
                end);
  EXPECT_EQ(value_of(line, "targets"), std::to_string(data.num_targets()));
  EXPECT_NE(must({"inspect", file("a")}).find("% of the tokens)"), std::string::npos);
  EXPECT_TRUE(posix_file_system().exists(file("a") + "/chat_template.jinja"));

  // Replaced by plain text, the template goes.
  must({"data", "build", "--tokenizer", file("tok"), "--input", file("text.txt"), "--out",
        file("a"), "--overwrite"});
  EXPECT_FALSE(posix_file_system().exists(file("a") + "/chat_template.jinja"));
  EXPECT_FALSE(Dataset(posix_file_system(), file("a")).marked());
}

TEST_F(ConversationData, StrangersWriteNoSpecialTokens) {
  const std::string end(tokenizer->token_text(tokenizer->eos_id()));
  folder.write("s.jsonl", dialogue({{"user", " end: " + end + " and " + end + " "},
                                    {"assistant", "No."},
                                    {"user", end},
                                    {"assistant", "Neither."}}) +
                              "\n");
  must(build(file("s.jsonl"), "s"));
  const Dataset data(posix_file_system(), file("s"));
  std::vector<int32_t> ids;
  data.read_document(0, &ids);
  // Behind each answer, and at the end.
  EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer->eos_id()), 3);
  EXPECT_EQ(part(data, 0, true), "No." + end + "Neither." + end);
  EXPECT_EQ(tokenizer->decode(ids, false), "User: end: " + end + " and " + end +
                                               "\n\nAssistant: No." + end + "\n\nUser: " + end +
                                               "\n\nAssistant: Neither." + end + "\n\n" + end);
}

// What OpenAI's protocol may write in several ways is what the server makes of it before it asks a template. Without
// that a model learns calls whose arguments are a text in a text, and is asked with others.
TEST_F(ConversationData, MessagesAreThoseThatTheServerShowsATemplate) {
  folder.write("calls.jinja",
               "{% for m in messages %}[{{ m.role }}]{{ m.content }}"
               "{% for c in m.tool_calls %}<call>{{ c.function.arguments | tojson }}{% endfor %}"
               "</end>{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}");
  std::string chat_template = file("calls.jinja");
  const auto text_of = [&](const std::string& line, const std::string& name) {
    folder.write(name + ".jsonl", line + "\n");
    must(build(file(name + ".jsonl"), name, chat_template));
    const Dataset data(posix_file_system(), file(name));
    std::vector<int32_t> ids;
    data.read_document(0, &ids);
    return tokenizer->decode(ids, true);
  };
  EXPECT_EQ(text_of(R"({"messages": [{"role": "developer", "content": "Help."},)"
                    R"({"role": "user", "content": [{"type": "text", "text": "Is it "},)"
                    R"({"type": "text", "text": "on?"}]},)"
                    R"({"role": "assistant", "content": null, "tool_calls": [{"type": "function",)"
                    R"("function": {"name": "look", "arguments": "{\"a\":1}"}}]},)"
                    R"({"role": "tool", "content": "yes"},)"
                    R"({"role": "assistant", "content": "It is.", "tool_calls": []}]})",
                    "openai"),
            "[system]Help.</end>[user]Is it on?</end>[assistant]<call>{\"a\": 1}</end>"
            "[tool]yes</end>[assistant]It is.</end>");
  folder.write(
      "thoughts.jinja",
      "{% for m in messages %}[{{ m.role }}]{{ '<' ~ m.name ~ '>' if m.name }}"
      "{{ '(' ~ m.reasoning_content ~ ')' if m.reasoning_content }}{{ m.content }}"
      "{% for c in m.tool_calls %}<{{ c.type }} {{ c.id }}{{ c.function.name }}>{% endfor %}"
      "</end>{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}");
  chat_template = file("thoughts.jinja");
  EXPECT_EQ(text_of(R"({"messages": [{"role": "user", "name": "", "content": [)"
                    R"({"type": "input_text", "text": "Why?"}]},)"
                    R"({"role": "assistant", "reasoning": "hm", "content": [)"
                    R"({"type": "refusal", "refusal": "No."}],)"
                    R"("tool_calls": [{"function": {"name": "look", "arguments": "{}"}}]}]})",
                    "thoughts"),
            "[user]Why?</end>[assistant](hm)No.<function look></end>");
  folder.write("whole.jinja",
               "{% for m in messages %}[{{ m.role }}]"
               "{{ '(' ~ m.reasoning_content ~ ')' if m.reasoning_content }}{{ m.content }}"
               "{% for c in m.tool_calls %}{{ c | tojson }}{% endfor %}"
               "</end>{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}");
  chat_template = file("whole.jinja");
  EXPECT_EQ(text_of(R"({"messages": [{"role": "user", "content": "Why?"},)"
                    R"({"role": "assistant", "reasoning_content": "", "reasoning": "hm",)"
                    R"("tool_calls": [{"function": {"name": "look"}, "index": 0}]}]})",
                    "whole"),
            "[user]Why?</end>[assistant](hm){\"id\": \"\", \"type\": \"function\", \"function\": "
            "{\"name\": \"look\", \"arguments\": {}}}</end>");
}

TEST_F(ConversationData, BadLinesAreNamed) {
  const auto expect = [&](const std::string& line, const std::string& piece) {
    const std::string error = build_error(line);
    EXPECT_NE(error.find("bad.jsonl, line 2"), std::string::npos) << error;
    EXPECT_NE(error.find(piece), std::string::npos) << error;
  };
  expect("{\"messages\": [", "broken JSON");
  expect("[]", "array");
  expect(R"({"mesages": []})", "nearest is 'mesages'");
  expect(R"({"messages": "hello"})", "want a list");
  expect(R"({"messages": [{"content": "x"}]})", "message 0");
  expect(R"({"messages": [5]})", "message 0");
  expect(R"({"messages": [{"role": "wizard", "content": "x"}]})", "unknown role");
  expect(R"({"messages": [{"role": "user", "content": 5}]})", "content is not text");
  expect(R"({"messages": [{"role": "user"}]})", "message 0 has no \"content\"");
  expect(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant"}]})",
         "message 1 has no \"content\" and no \"tool_calls\"");
  expect(R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
         "part 0 of the content of message 0");
  expect(R"({"messages": [], "tools": 5})", "'tools'");
  EXPECT_NE(build_error(dialogue({{"user", "alone"}})).find("one turn of the assistant"),
            std::string::npos);
  // Whatever the template would make of them: "", or the number.
  folder.write("any.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
  must({"tokenizer", "train", "--input", file("text.txt"), "--vocab-size", "400", "--special",
        "<|im_end|>", "--special", "<|im_start|>", "--out", file("turns")});
  for (const std::string& chat : {std::string("plain"), std::string("chatml"), file("any.jinja")}) {
    for (const char* value : {"42", "4.5", "true", "false", "{\"text\": \"x\"}"}) {
      folder.write("bad.jsonl", dialogue({{"user", "a"}, {"assistant", "b"}}) + "\n" +
                                    R"({"messages": [{"role": "user", "content": "a"}, )" +
                                    R"({"role": "assistant", "content": )" + value + "}]}\n");
      std::vector<std::string> args = build(file("bad.jsonl"), "bad", chat);
      args[3] = file("turns");
      const std::string told = must(args, 10);
      EXPECT_NE(told.find("bad.jsonl, line 2: message 1: content is not text but "),
                std::string::npos)
          << chat << " of " << value << ": " << told;
    }
  }
  const std::string error = must(build(file("text.txt"), "bad"), 10);
  EXPECT_NE(error.find("wanted .jsonl"), std::string::npos) << error;
  folder.write("d.jsonl", dialogue({{"user", "a"}, {"assistant", "b"}}));
  std::vector<std::string> none = build(file("d.jsonl"), "bad");
  none.erase(none.end() - 3, none.end() - 1);
  EXPECT_NE(must(none, 11).find("no chat template"), std::string::npos);
}

// What configs/support/README says, with a model of milliseconds.
TEST_F(ConversationData, FromDialoguesToAnAdaptedModel) {
  const TinyRun tiny(file("tiny"));
  must({"data", "build", "--tokenizer", file("tok"), "--input", file("text.txt"), "--out",
        file("base-data")});
  const std::string common =
      "[train]\nslots = 2\nsequence = 128\nbatch_tokens = 1024\ndtype = \"f32\"\nthreads = 2\n";
  folder.write("base.toml",
               "[model]\nhidden = 32\nlayers = 2\nheads = 2\nkv_heads = 1\nhead_dim = 16\nexperts "
               "= 4\nexpert_hidden = 24\nrouter_hidden = 16\n[data]\ntrain = \"" +
                   file("base-data") + "\"\ntokenizer = \"" + file("tok") + "\"\n" + common +
                   "steps = 3\n");
  must({"train", "--config", file("base.toml"), "--machine", tiny.root() + "/machine.json", "--out",
        file("base")});
  // Who wants plain text is not told to look for a template.
  EXPECT_NE(must({"data", "build", "--model", file("base"), "--input", file("text.txt"), "--out",
                  file("plain")},
                 11)
                .find("for plain text give --tokenizer " + file("base")),
            std::string::npos);
  // The model's own tokenizer, and a template beside the data.
  std::vector<std::string> from_model =
      build(testing::source_path("configs/support/dialogues.jsonl"), "support");
  from_model[2] = "--model", from_model[3] = file("base");
  must(from_model);
  folder.write("adapt.toml", "[data]\ntrain = \"" + file("support") + "\"\n[optimizer]\n" +
                                 "learning_rate = 1e-2\n" + common + "steps = 30\ninit = \"" +
                                 file("base") + "\"\n");
  const auto loss = [&](const std::string& model) {
    return parse_json(must(
        {"eval", "perplexity", "--model", model, "--data", file("support"), "--json"}))["loss"]
        .get<double>();
  };
  const double before = loss(file("base"));
  const std::string done = must({"train", "--config", file("adapt.toml"), "--machine",
                                 tiny.root() + "/machine.json", "--out", file("adapted")});
  EXPECT_LT(loss(file("adapted")), before - 0.5);
  // The way out that is named is one: `--resume never` refuses a folder that holds a run.
  const std::string refused =
      must({"train", "--config", file("adapt.toml"), "--machine", tiny.root() + "/machine.json",
            "--out", file("adapted"), "--set", "optimizer.learning_rate=1e-3"},
           10);
  EXPECT_NE(refused.find("start a new run (another --out, without --resume)"), std::string::npos)
      << refused;
  // The template went along.
  EXPECT_EQ(posix_file_system().read(value_of(done, "checkpoint") + "/chat_template.jinja"),
            posix_file_system().read(file("support") + "/chat_template.jinja"));
  const Json choice =
      parse_json(must({"eval", "choice", "--model", file("adapted"), "--json", "--input",
                       testing::source_path("configs/support/questions.jsonl")}));
  EXPECT_EQ(choice["questions"], 18);
}

}  // namespace
}  // namespace moraine
