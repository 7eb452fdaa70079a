// Answer: the small things that all protocols write alike.
#include "server/answer.h"

#include <sys/random.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace moraine {

std::string sse_event(const std::string& event, const Json& data) {
  std::string out;
  if (!event.empty()) out += "event: " + event + "\n";
  out += "data: " + json_text(data) + "\n\n";
  return out;
}

const char* finish_reason(const AnswerChoice& choice, const char* calls) {
  if (choice.finish == Finish::kLength) return "length";
  return choice.call_ids.empty() && choice.reply.calls.empty() ? "stop" : calls;
}

double json_logprob(double logprob) {
  constexpr double kLeast = -9999;  // what OpenAI writes for impossible
  return std::isnan(logprob) ? kLeast : std::max(logprob, kLeast);
}

std::string random_id(const std::string& prefix) {
  static constexpr char kLetters[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789AB";
  unsigned char bytes[24];
  if (getentropy(bytes, sizeof bytes) != 0)
    throw_error(Code::kIo, "name an answer: the system gives no random numbers");
  std::string id = prefix;
  for (unsigned char byte : bytes) id += kLetters[byte % 64];
  return id;
}

}  // namespace moraine
