// Fuzz: requests of every endpoint, from the bytes of a connection to what the engine would be asked.
//
// The first byte chooses the endpoint; 255: the bytes are those of a connection.
#include "server/chat.h"
#include "server/chat_prompt.h"
#include "server/completions.h"
#include "server/http_parser.h"
#include "server/json_fields.h"
#include "server/messages.h"
#include "server/responses.h"
#include "server/small_endpoints.h"
#include "testing/fuzz.h"
#include "tokenizer/train.h"

namespace moraine {
namespace {

std::string tokenizer_json() {
  Pool pool(1);
  bool given = false;
  const auto next = [&](std::string* text) {
    *text = "some words, some more words";
    return !std::exchange(given, true);
  };
  return train_bpe(next, {.vocab_size = 270, .special_tokens = {"<|end|>", "<|x|>"}}, pool,
                   [](const BpeTrainProgress&) {});
}

std::shared_ptr<const ServedModel> make_model() {
  auto m = std::make_shared<ServedModel>();
  m->id = "m";
  m->context = 100000;
  m->tokenizer = Tokenizer::parse(tokenizer_json(), "fuzz");
  m->end_ids = {0};
  m->start_id = 0;
  m->special_texts = SpecialTexts(*m->tokenizer);
  m->chat = ChatTemplate::parse(
      "{% for m in messages %}<|end|>{{ m.role }}{{ m.content }}{% endfor %}{{ tools | tojson }}",
      "fuzz", Json::object());
  m->tool_format = ToolFormat::kHermes;
  return m;
}

void feed_connection(std::string_view bytes, const Limits& limits) {
  HttpParser parser(limits);
  while (!bytes.empty()) {
    const int64_t used = parser.feed(bytes.substr(0, 1 + bytes.size() / 2));
    if (used == 0 && parser.feed(bytes) == 0) return;
    bytes.remove_prefix(static_cast<size_t>(
        std::min<int64_t>(std::max<int64_t>(used, 1), static_cast<int64_t>(bytes.size()))));
  }
}

}  // namespace

void fuzz_one(std::string_view input) {
  static const std::shared_ptr<const ServedModel> model = make_model();
  if (input.empty()) return;
  Limits limits;
  limits.json_values = 10000;
  const int endpoint = static_cast<uint8_t>(input[0]);
  input.remove_prefix(1);
  if (endpoint == 255) return feed_connection(input, limits);
  testing::parses_or_throws_error([&] {
    const Json body = parse_body(std::string(input), limits);
    switch (endpoint % 7) {
      case 0:
        plan_completions(body, model, limits);
        return;
      case 1:
        plan_chat(body, model, limits);
        return;
      case 2:
        plan_responses(body, model, limits);
        return;
      case 3:
        plan_messages(body, model, limits);
        return;
      case 4:
        count_message_tokens(body, *model, limits);
        return;
      case 5:
        tokenize(body, *model, limits);
        return;
      default:
        detokenize(body, *model, limits);
        return;
    }
  });
}

}  // namespace moraine
