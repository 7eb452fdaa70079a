// Sampling fields: ranges as OpenAI's, and of what other servers add.
#include "server/sampling_fields.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <limits>

#include "base/printable.h"
#include "server/request_error.h"

namespace moraine {
namespace {

void read_bias(JsonFields& fields, const ServedModel& model, const Limits& limits,
               Request* request) {
  const Json* bias = fields.object("logit_bias");
  if (bias == nullptr) return;
  if (static_cast<int64_t>(bias->size()) > limits.logit_biases)
    fields.fail("logit_bias", fmt::format("has {} members; at most {} are allowed", bias->size(),
                                          limits.logit_biases));
  const int64_t vocabulary = model.tokenizer->vocabulary_size();
  for (const auto& [key, value] : bias->items()) {
    const bool digits =
        !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
    const int64_t id = digits ? std::stoll(key) : -1;
    if (id < 0 || id >= vocabulary)
      fields.fail("logit_bias", fmt::format("has the member \"{}\"; wanted token ids from 0 to {}",
                                            printable(key, 32), vocabulary - 1));
    if (!value.is_number() || !(value.get<double>() >= -100 && value.get<double>() <= 100))
      fields.fail("logit_bias." + key, "is not a number from -100 to 100");
    request->sampling.logit_bias.emplace_back(static_cast<int32_t>(id), value.get<double>());
  }
}

void read_stop(JsonFields& fields, const Limits& limits, Request* request) {
  request->stop = fields.texts("stop", limits.stops);
  for (size_t i = 0; i < request->stop.size(); ++i) {
    const int64_t bytes = static_cast<int64_t>(request->stop[i].size());
    if (bytes == 0 || bytes > limits.stop_bytes)
      fields.fail(fmt::format("stop[{}]", i),
                  fmt::format("has {} bytes; wanted 1 to {}", bytes, limits.stop_bytes));
  }
}

uint64_t random_seed() {
  uint64_t seed = 0;
  if (getentropy(&seed, sizeof seed) != 0)
    throw_error(Code::kIo, "choose a seed: the system gives no random numbers");
  return seed >> 1;
}

}  // namespace

void read_sampling(JsonFields& fields, const ServedModel& model, const Limits& limits,
                   Request* request) {
  auto& s = request->sampling;
  s.temperature = fields.number("temperature", 1, 0, 2);
  // 0 is allowed in these protocols: the most likely alone.
  s.top_p = std::max(fields.number("top_p", 1, 0, 1), std::numeric_limits<double>::min());
  s.top_k = std::max<int64_t>(fields.integer("top_k", 0, -1, 1 << 24), 0);  // -1: vLLM's for all
  s.min_p = fields.number("min_p", 0, 0, 1);
  s.presence_penalty = fields.number("presence_penalty", 0, -2, 2);
  s.frequency_penalty = fields.number("frequency_penalty", 0, -2, 2);
  s.repetition_penalty = fields.number("repetition_penalty", 1, 0.01, 100);
  const int64_t seed = fields.integer("seed", INT64_MIN, INT64_MIN, INT64_MAX);
  s.seed = seed == INT64_MIN ? random_seed() : static_cast<uint64_t>(seed);
  read_bias(fields, model, limits, request);
  read_stop(fields, limits, request);
  if (!fields.boolean("ignore_eos", false)) request->end_ids = model.end_ids;
}

int64_t answer_room(const ServedModel& model, int64_t prompt_tokens, int64_t wanted,
                    const std::string& field) {
  const int64_t room = model.context - prompt_tokens;
  if (room < std::max<int64_t>(wanted, 0) || (wanted < 0 && room < 1))
    throw RequestError(
        fmt::format("the prompt has {} tokens{}; the model has room for {} in all", prompt_tokens,
                    wanted >= 0 ? fmt::format(" and '{}' is {}", field, wanted) : "",
                    model.context),
        wanted >= 0 ? field : "", "context_length_exceeded");
  return wanted < 0 ? room : wanted;
}

void check_text_fits(const ServedModel& model, const std::string& text, const std::string& field) {
  if (!model.tokenizer->exceeds(text, model.context)) return;
  throw RequestError(fmt::format("the prompt has {} bytes, more than {} tokens can hold; the model "
                                 "has room for {} in all",
                                 text.size(), model.context, model.context),
                     field, "context_length_exceeded");
}

void check_logprobs(const AnswerPlan& plan, const Limits& limits, const std::string& field) {
  if (!plan.format.logprobs) return;
  int64_t most = 0;
  for (const Request& request : plan.prompts) {
    const int64_t tokens =
        (plan.stream ? 0 : request.max_tokens) +
        (request.prompt_logprobs ? static_cast<int64_t>(request.prompt.size()) : 0);
    most += plan.best_of * tokens * (1 + request.top_logprobs);
  }
  if (most <= limits.answer_logprobs) return;
  throw RequestError(
      fmt::format("'{}' asks for up to {} log-probabilities in one answer, those beside each token "
                  "counted; at most {} are allowed{}",
                  field, most, limits.answer_logprobs,
                  plan.stream ? "" : "; wanted fewer tokens or choices, or a stream"),
      field);
}

void check_model(JsonFields& fields, const ServedModel& model) {
  const std::string name = fields.text("model", model.id);
  if (name == model.id || name.empty()) return;
  throw RequestError(
      fmt::format("the model '{}' is not served here; wanted '{}'", printable(name, 128), model.id),
      "model", "model_not_found", 404);
}

}  // namespace moraine
