// Where a template comes from, and which bytes of a conversation the assistant said. Fails if a file is overlooked, a
// missing template is replaced silently, or a target is one byte off.
#include "chat/chat_template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>

#include "base/error.h"
#include "testing/places.h"

namespace moraine {
namespace {

const char* const kTokenizer = R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
  "added_tokens": [{"id": 1, "content": "<s>", "special": true}, {"id": 2, "content": "</s>", "special": true}]})";
const char* const kChatTokenizer = R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
  "added_tokens": [{"id": 1, "content": "<|im_start|>", "special": true}, {"id": 2, "content": "<|im_end|>", "special": true}]})";

class ChatTemplateTest : public ::testing::Test {
 protected:
  ChatTemplateTest() {
    folder_ = (std::filesystem::path(::testing::TempDir()) / "chat_template_XXXXXX").string();
    if (mkdtemp(folder_.data()) == nullptr) std::abort();
  }
  ~ChatTemplateTest() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) {
    fs_.write_atomic(join_path(folder_, name), text);
  }
  std::unique_ptr<ChatTemplate> load(const std::string& choice = "",
                                     const char* tokenizer = kTokenizer) {
    return ChatTemplate::load(fs_, folder_, choice, *Tokenizer::parse(tokenizer, "t"));
  }
  Error error_of(const std::function<void()>& f) {
    try {
      f();
    } catch (const Error& e) {
      return e;
    }
    ADD_FAILURE() << "no error";
    return Error(Code::kIo, "");
  }

  FileSystem& fs_ = posix_file_system();
  std::string folder_;
};

Conversation talk(const std::string& messages, const std::string& tools = "null") {
  Conversation c;
  c.messages = parse_json(messages);
  c.tools = parse_json(tools);
  return c;
}

const char* const kTwo =
    R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "é"},
  {"role": "user", "content": "r"}, {"role": "assistant", "content": "b "}])";

// The text with [ ] around the targets.
std::string marked(const TrainingText& t) {
  std::string out;
  int64_t at = 0;
  for (const TargetRange& r : t.targets) {
    out += t.text.substr(at, r.begin - at) + "[" + t.text.substr(r.begin, r.end - r.begin) + "]";
    at = r.end;
  }
  return out + t.text.substr(at);
}

TEST_F(ChatTemplateTest, ComesFromItsOwnFileFirst) {
  write("tokenizer_config.json",
        R"({"chat_template": "config", "bos_token": {"content": "<s>"}, "eos_token": "</s>"})");
  EXPECT_EQ(load()->render(Conversation()), "config");
  write("chat_template.jinja", "{{ bos_token }}{{ eos_token }}{{ tools is none }}{{ x }}");
  Conversation c;
  c.variables = {{"x", 5}};
  EXPECT_EQ(load()->render(c), "<s></s>True5");
  write("mine.jinja", "mine");
  EXPECT_EQ(load(join_path(folder_, "mine.jinja"))->render(c), "mine");
}

TEST_F(ChatTemplateTest, ListsOfTemplatesHaveOneForTools) {
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "d"},
    {"name": "tool_use", "template": "t"}]})");
  EXPECT_EQ(load()->render(talk("[]")), "d");
  EXPECT_EQ(load()->render(talk("[]", "[]")), "d");
  EXPECT_EQ(load()->render(talk("[]", R"([{"name": "f"}])")), "t");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "d"}]})");
  EXPECT_NE(std::string(error_of([&] { load(); }).what()).find("it has: rag"), std::string::npos);
  write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_EQ(error_of([&] { load(); }).code(), Code::kCorrupt);
}

TEST_F(ChatTemplateTest, NoneIsAnErrorWithTheRemedy) {
  const Error e = error_of([&] { load(); });
  EXPECT_EQ(e.code(), Code::kNotFound);
  EXPECT_NE(std::string(e.what()).find("--chat-template FILE"), std::string::npos);
  EXPECT_NE(std::string(e.what()).find("chatml, plain"), std::string::npos);
  EXPECT_EQ(error_of([&] { load("nowhere.jinja"); }).code(), Code::kNotFound);
  EXPECT_EQ(error_of([&] { load("chatml"); }).code(), Code::kInvalidArgument);
}

TEST_F(ChatTemplateTest, BuiltInTemplatesSayWhatTheAssistantSaid) {
  EXPECT_EQ(marked(load("chatml", kChatTokenizer)->render_training(talk(kTwo))),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[é<|im_end|>]\n"
            "<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\n[b <|im_end|>]\n");
  EXPECT_EQ(load("chatml", kChatTokenizer)->end_of_turn(), "<|im_end|>");
  EXPECT_EQ(marked(load("plain")->render_training(talk(kTwo))),
            "<s>User: q\n\nAssistant: [é</s>]\n\nUser: r\n\nAssistant: [b</s>]\n\n");
  const Conversation tools = talk(kTwo, R"([{"name": "f"}])");
  EXPECT_NE(load("chatml", kChatTokenizer)->render(tools).find("<tools>\n{\"name\": \"f\"}\n"),
            std::string::npos);
  EXPECT_NE(
      std::string(error_of([&] { load("plain")->render(tools); }).what()).find("has no tools"),
      std::string::npos);
}

TEST_F(ChatTemplateTest, CallsOfToolsAreTargetsToo) {
  const Conversation c =
      talk(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": null,
    "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}, {"role": "tool", "content": "2"},
    {"role": "assistant", "content": "two"}])");
  EXPECT_EQ(marked(load("chatml", kChatTokenizer)->render_training(c)),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[\n<tool_call>\n{\"name\": "
            "\"f\", \"arguments\": "
            "{\"a\": "
            "1}}\n</"
            "tool_call><|im_end|>]\n<|im_start|>tool\n2<|im_end|>\n<|im_start|>assistant\n[two<|im_"
            "end|>]\n");
}

std::unique_ptr<ChatTemplate> published(const std::string& name) {
  const std::string path = testing::source_path("tests/golden/chat_templates/" + name + ".jinja");
  return ChatTemplate::parse(posix_file_system().read(path), name,
                             {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
}

TEST_F(ChatTemplateTest, GenerationBlocksMarkTargets) {
  EXPECT_EQ(marked(published("zaya1")->render_training(talk(kTwo))),
            "<s><|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[é<|im_end|>]\n"
            "<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\n[b <|im_end|>]\n");
}

TEST_F(ChatTemplateTest, PrefixesMarkTargetsOfTheOthers) {
  EXPECT_EQ(marked(published("gemma")->render_training(talk(kTwo))),
            "<s><start_of_turn>user\nq<end_of_turn>\n<start_of_turn>model\n[é<end_of_turn>]\n"
            "<start_of_turn>user\nr<end_of_turn>\n<start_of_turn>model\n[b<end_of_turn>]\n");
  EXPECT_EQ(marked(published("mistral")->render_training(talk(kTwo))),
            "<s>[INST] q[/INST][ é</s>][INST] r[/INST][ b</s>]");
  EXPECT_EQ(marked(published("olmo")->render_training(talk(kTwo))),
            "<s><|user|>\nq\n<|assistant|>\n[é</s>]\n<|user|>\nr\n<|assistant|>\n[b </s>]");
  EXPECT_EQ(published("gemma")->end_of_turn(), "<end_of_turn>");
  EXPECT_EQ(published("llama3")->end_of_turn(), "<|eot_id|>");
  EXPECT_EQ(published("mistral")->end_of_turn(), "</s>");
}

TEST_F(ChatTemplateTest, ATemplateThatRewritesEarlierTurnsIsRefused) {
  const Error e = error_of([&] { published("qwen3")->render_training(talk(kTwo)); });
  EXPECT_EQ(e.code(), Code::kInvalidArgument);
  EXPECT_NE(std::string(e.what()).find("{% generation %}"), std::string::npos) << e.what();
  EXPECT_NE(std::string(e.what()).find("writes earlier turns otherwise"), std::string::npos);
  // With one answer at the end it goes.
  const Conversation one =
      talk(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])");
  EXPECT_EQ(marked(published("qwen3")->render_training(one)),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[<think>\n\n</"
            "think>\n\na<|im_end|>]\n");
}

TEST_F(ChatTemplateTest, MessagesOfStrangersAreErrors) {
  const std::unique_ptr<ChatTemplate> t = load("plain");
  for (const char* messages : {"5", "[5]", "[{}]", R"([{"role": "x"}])", R"([{"role": "user"}])",
                               R"([{"role": ["user"], "content": {}}])"}) {
    EXPECT_EQ(error_of([&] { t->render(talk(messages)); }).code(), Code::kInvalidArgument)
        << messages;
  }
  Conversation c = talk("[]");
  c.variables = 5;
  EXPECT_EQ(error_of([&] { t->render(c); }).code(), Code::kInvalidArgument);
}

TEST(PromptOpensReasoning, OnlyAtItsEnd) {
  EXPECT_TRUE(prompt_opens_reasoning("assistant\n<think>\n"));
  EXPECT_FALSE(prompt_opens_reasoning("assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(prompt_opens_reasoning("user: what is <think>?\nassistant\n"));
}

}  // namespace
}  // namespace moraine
