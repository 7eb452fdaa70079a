// ChoiceQuestion: one multiple-choice question of a .jsonl line.
//
//   {"context": "Water boils at", "choices": [" 100 degrees", " 10 degrees"], "answer": 0}
//
// Unknown keys are ignored.
// Errors: kInvalidArgument, with `where` in front: no JSON object; a key that is absent or of another kind; fewer than
//         two choices; a choice without text; an answer that is not the index of a choice, counted from 0.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moraine {

struct ChoiceQuestion {
  std::string context;
  std::vector<std::string> choices;
  int64_t answer = 0;  // index into choices
  std::string where;   // "read FILE, line N"
};

ChoiceQuestion parse_choice_question(std::string_view line, const std::string& where);

}  // namespace moraine
