// ChoiceQuestion: three keys of one object.
#include "eval/choice_question.h"

#include "base/error.h"
#include "base/json_document.h"

namespace moraine {
namespace {

constexpr const char* kWanted =
    R"(wanted {"context": "...", "choices": ["...", "..."], "answer": 0})";

ChoiceQuestion read_question(const JsonValue& root, const std::string& where) {
  ChoiceQuestion question{.context = std::string(root.text("context")),
                          .choices = {},
                          .answer = root.integer("answer"),
                          .where = where};
  root.at("choices").elements([&](int64_t i, const JsonValue& choice) {
    question.choices.emplace_back(choice.text());
    if (question.choices.back().empty())
      throw_error(Code::kInvalidArgument, "choice {} has no text, wanted some to score", i);
  });
  const int64_t n = static_cast<int64_t>(question.choices.size());
  if (n < 2) throw_error(Code::kInvalidArgument, "{} choices, wanted two or more", n);
  if (question.answer < 0 || question.answer >= n) {
    throw_error(Code::kInvalidArgument,
                "answer {} is not the index of one of {} choices, wanted 0 to {}", question.answer,
                n, n - 1);
  }
  return question;
}

}  // namespace

ChoiceQuestion parse_choice_question(std::string_view line, const std::string& where) {
  try {
    const JsonDocument document(line);
    if (!document.root().is_object())
      throw_error(Code::kInvalidArgument, "the line is {}", document.root().kind());
    return read_question(document.root(), where);
  } catch (const Error& e) {
    throw_error(Code::kInvalidArgument, "{}: {}; {}", where, e.what(), kWanted);
  }
}

}  // namespace moraine
