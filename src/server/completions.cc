// Completions: the fields of the request.
#include "server/completions.h"

#include <fmt/format.h>

#include "server/completions_format.h"
#include "server/json_fields.h"
#include "server/sampling_fields.h"

namespace moraine {
namespace {

// Prompts as token ids, each with its text as it was given ("" for ids).
struct Prompts {
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::string> texts;
};

class PromptReader {
 public:
  PromptReader(JsonFields& fields, const ServedModel& model, const Limits& limits)
      : fields_(fields),
        model_(model),
        limits_(limits),
        add_(fields.boolean("add_special_tokens", true)),
        parse_(fields.boolean("parse_special_tokens", true)) {}

  Prompts read() {
    const Json& prompt = fields_.need("prompt");
    if (prompt.is_string()) {
      add_text("prompt", prompt.get<std::string>());
    } else if (!prompt.is_array() || prompt.empty()) {
      fields_.fail("prompt", fmt::format("is {}; wanted a string, or a non-empty array of strings, "
                                         "of token ids or of arrays of token ids",
                                         prompt.is_array() ? "empty" : kind_of(prompt)));
    } else if (prompt[0].is_number()) {
      add_ids("prompt", prompt);
    } else {
      read_many(prompt);
    }
    return std::move(prompts_);
  }

 private:
  void read_many(const Json& prompt) {
    if (static_cast<int64_t>(prompt.size()) > limits_.prompts)
      fields_.fail("prompt", fmt::format("has {} elements; at most {} are allowed", prompt.size(),
                                         limits_.prompts));
    for (size_t i = 0; i < prompt.size(); ++i) {
      const std::string name = fmt::format("prompt[{}]", i);
      if (prompt[i].is_string())
        add_text(name, prompt[i].get<std::string>());
      else if (prompt[i].is_array())
        add_ids(name, prompt[i]);
      else
        fields_.fail(name, fmt::format("is {}; wanted a string or an array of token ids",
                                       kind_of(prompt[i])));
    }
  }
  void add_text(const std::string& name, const std::string& text) {
    check_text_fits(model_, text, name);
    std::vector<int32_t> ids = parse_ ? model_.tokenizer->encode(text, add_)
                                      : model_.tokenizer->encode_ordinary(text, add_);
    if (ids.empty()) {
      if (model_.start_id < 0) fields_.fail(name, "is empty, and the model has no start token");
      ids.push_back(model_.start_id);
    }
    prompts_.ids.push_back(std::move(ids));
    prompts_.texts.push_back(text);
  }
  void add_ids(const std::string& name, const Json& array) {
    if (array.empty()) fields_.fail(name, "has no token ids");
    const int64_t vocabulary = model_.tokenizer->vocabulary_size();
    std::vector<int32_t> ids;
    for (const Json& id : array) {
      if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= vocabulary)
        fields_.fail(fmt::format("{}[{}]", name, ids.size()),
                     fmt::format("is no token id; wanted an integer from 0 to {}", vocabulary - 1));
      ids.push_back(id.get<int32_t>());
    }
    prompts_.texts.push_back(model_.tokenizer->decode(ids, /*skip_special=*/false));
    prompts_.ids.push_back(std::move(ids));
  }

  JsonFields& fields_;
  const ServedModel& model_;
  const Limits& limits_;
  const bool add_, parse_;
  Prompts prompts_;
};

void check_choices(JsonFields& fields, const AnswerPlan& plan, int64_t prompts,
                   const Limits& limits) {
  if (plan.best_of < plan.n)
    fields.fail("best_of", fmt::format("is {}; wanted at least 'n', {}", plan.best_of, plan.n));
  if (plan.stream && plan.best_of != plan.n)
    fields.fail("best_of", "is larger than 'n', which a stream can not be");
  if (prompts * plan.best_of > limits.choices)
    fields.fail(plan.best_of > 1 ? (plan.best_of > plan.n ? "best_of" : "n") : "prompt",
                fmt::format("asks for {} answers in all; at most {} are allowed",
                            prompts * plan.best_of, limits.choices));
}

}  // namespace

AnswerPlan plan_completions(const Json& body, const std::shared_ptr<const ServedModel>& model,
                            const Limits& limits) {
  JsonFields fields(body, "");
  check_model(fields, *model);
  AnswerPlan plan;
  plan.n = fields.integer("n", 1, 1, limits.choices);
  plan.best_of = fields.integer("best_of", plan.n, 1, limits.choices);
  plan.stream = fields.boolean("stream", false);
  Request common;
  read_sampling(fields, *model, limits, &common);
  CompletionsFormat format{.model = model};
  format.echo = fields.boolean("echo", false);
  format.logprobs = fields.integer("logprobs", -1, 0, limits.top_logprobs);
  format.include_usage = read_stream_options(fields, plan.stream);
  const int64_t max_tokens = fields.integer("max_tokens", 16, format.echo ? 0 : 1, INT32_MAX);
  common.top_logprobs = std::max<int64_t>(format.logprobs, 0);
  common.special_text = !fields.boolean("skip_special_tokens", true);
  common.prompt_logprobs = format.echo && format.logprobs >= 0;
  Prompts prompts = PromptReader(fields, *model, limits).read();
  fields.refuse("suffix", "text can only be continued, not filled in", "");
  fields.refuse("use_beam_search", "tokens are drawn one after another", false);
  fields.ignore({"user", "metadata", "store", "service_tier", "safety_identifier",
                 "prompt_cache_key", "cache_prompt"});
  fields.done();
  check_choices(fields, plan, static_cast<int64_t>(prompts.ids.size()), limits);
  for (std::vector<int32_t>& ids : prompts.ids) {
    Request& request = plan.prompts.emplace_back(common);
    request.max_tokens =
        answer_room(*model, static_cast<int64_t>(ids.size()), max_tokens, "max_tokens");
    request.prompt = std::move(ids);
  }
  format.prompt_texts = std::move(prompts.texts);
  plan.format = completions_format(std::move(format));
  check_logprobs(plan, limits, "logprobs");
  return plan;
}

}  // namespace moraine
