// Normalizer: one function for each step.
#include "tokenizer/normalizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"

namespace moraine {
namespace {

// A few Replace steps can double a text each.
int64_t longest_of(int64_t bytes) { return 64 * bytes + 4096; }

void check_growth(int64_t bytes, int64_t longest) {
  if (bytes <= longest) return;
  throw_error(
      Code::kInvalidArgument,
      "normalize text: the tokenizer's normalizer makes {} bytes of it, the limit is {} (64 "
      "times its length); wanted another tokenizer.json",
      bytes, longest);
}

void replace(const NormalizerStep& step, int64_t longest, NormalizedText* t) {
  std::vector<TextRange> matches;
  if (step.regex != nullptr) {
    step.regex->find_all(t->text, &matches);
  } else {
    find_all_text(t->text, step.pattern, &matches);
  }
  if (matches.empty()) return;
  // New characters count as coming from the last one they replace.
  const TextRange first = matches[0];
  if (first.begin == 0 && first.end > 0) {
    const bool one_character = utf8_previous(t->text, first.end) == 0;
    if (!one_character || step.content.empty()) t->from_start = false;
  }
  std::string out;
  const size_t most = t->text.size() + matches.size() * step.content.size();
  int64_t removed = 0;
  for (const TextRange& match : matches) removed += match.end - match.begin;
  check_growth(static_cast<int64_t>(most) - removed, longest);
  out.reserve(most);
  int64_t copied = 0;
  for (const TextRange& match : matches) {
    out.append(t->text, copied, match.begin - copied);
    out.append(step.content);
    copied = match.end;
  }
  out.append(t->text, copied);
  t->text = std::move(out);
}

void strip(const NormalizerStep& step, NormalizedText* t) {
  std::string_view text = t->text;
  if (step.left) {
    while (!text.empty() && is_white_space(utf8_code_point(text, 0))) {
      text.remove_prefix(utf8_bytes_of_lead(text[0]));
      t->from_start = false;
    }
  }
  while (step.right && !text.empty()) {
    const int64_t last = utf8_previous(text, static_cast<int64_t>(text.size()));
    if (!is_white_space(utf8_code_point(text, last))) break;
    text = text.substr(0, last);
  }
  t->text = std::string(text);
}

void apply_step(const NormalizerStep& step, int64_t longest, NormalizedText* t) {
  switch (step.kind) {
    case NormalizerStep::Kind::kForm:
      t->text = normalize_unicode(t->text, step.form);
      return;
    case NormalizerStep::Kind::kLowercase:
      t->text = lowercase(t->text);
      return;
    case NormalizerStep::Kind::kReplace:
      replace(step, longest, t);
      return;
    case NormalizerStep::Kind::kStrip:
      strip(step, t);
      return;
    case NormalizerStep::Kind::kPrepend:
      if (!t->text.empty() && t->may_prefix) t->text.insert(0, step.content);
      return;
    case NormalizerStep::Kind::kByteLevel: {
      std::string out;
      append_byte_characters(t->text, &out);
      t->text = std::move(out);
      return;
    }
  }
}

// Normalizer::shrinks_most of one step.
int64_t shrinks(const NormalizerStep& step) {
  switch (step.kind) {
    case NormalizerStep::Kind::kForm:
      // A composed character of 2 bytes stands for three of 4 bytes at most, one of 3 bytes for four.
      return 6;
    case NormalizerStep::Kind::kLowercase:
      return 4;  // a character for a character
    case NormalizerStep::Kind::kReplace: {
      if (step.regex != nullptr || step.content.empty()) return 0;
      const auto found = static_cast<int64_t>(step.pattern.size()),
                 put = static_cast<int64_t>(step.content.size());
      return std::max<int64_t>(1, (found + put - 1) / put);
    }
    case NormalizerStep::Kind::kStrip:
    case NormalizerStep::Kind::kPrepend:
    case NormalizerStep::Kind::kByteLevel:
      return 1;
  }
  return 0;
}

}  // namespace

int64_t Normalizer::shrinks_most() const {
  int64_t times = 1;
  for (const NormalizerStep& step : steps_) {
    times *= shrinks(step);
    if (times > (int64_t{1} << 20)) return 0;
  }
  return times;
}

bool Normalizer::strips() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const NormalizerStep& step) {
    return step.kind == NormalizerStep::Kind::kStrip;
  });
}

bool Normalizer::maps_bytes() const {
  const auto maps = [](const NormalizerStep& step) {
    return step.kind == NormalizerStep::Kind::kByteLevel;
  };
  return std::any_of(steps_.begin(), steps_.end(), maps);
}

void Normalizer::apply(NormalizedText* text) const {
  const int64_t longest = longest_of(static_cast<int64_t>(text->text.size()));
  for (const NormalizerStep& step : steps_) {
    apply_step(step, longest, text);
    check_growth(static_cast<int64_t>(text->text.size()), longest);
  }
}

void find_all_text(std::string_view text, std::string_view pattern,
                   std::vector<TextRange>* matches) {
  for (size_t at = text.find(pattern); at != std::string_view::npos;
       at = text.find(pattern, at + pattern.size())) {
    matches->push_back({static_cast<int64_t>(at), static_cast<int64_t>(at + pattern.size())});
  }
}

}  // namespace moraine
