// Decoder: applies the steps to one token's text, then Strip to the output as it grows.
#include "tokenizer/decoder.h"

#include <algorithm>
#include <utility>

#include "base/hex.h"
#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/normalizer.h"

namespace moraine {
namespace {

// The byte that "<0x4A>" names, or -1.
int named_byte(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || !text.ends_with('>')) return -1;
  const int high = hex_digit(text[3]), low = hex_digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::string replaced(const DecoderStep& step, const std::string& text) {
  std::vector<TextRange> matches;
  if (step.regex == nullptr) {
    find_all_text(text, step.pattern, &matches);
  } else if (valid_utf8_prefix(text) == static_cast<int64_t>(text.size())) {
    step.regex->find_all(text, &matches);
  }
  std::string out;
  int64_t copied = 0;
  for (const TextRange& match : matches) {
    out.append(text, copied, match.begin - copied).append(step.content);
    copied = match.end;
  }
  return out.append(text, copied);
}

std::string stripped(const DecoderStep& step, std::string_view text) {
  for (int64_t i = 0; i < step.start && text.starts_with(step.content); ++i) {
    text.remove_prefix(step.content.size());
  }
  for (int64_t i = 0; i < step.stop && text.ends_with(step.content); ++i) {
    text.remove_suffix(step.content.size());
  }
  return std::string(text);
}

std::string apply_step(const DecoderStep& step, std::string text, bool first) {
  switch (step.kind) {
    case DecoderStep::Kind::kByteLevel: {
      std::string bytes;
      const bool valid = valid_utf8_prefix(text) == static_cast<int64_t>(text.size());
      return valid && append_character_bytes(text, &bytes) ? bytes : text;
    }
    case DecoderStep::Kind::kByteFallback: {
      const int byte = named_byte(text);
      return byte < 0 ? text : std::string(1, static_cast<char>(byte));
    }
    case DecoderStep::Kind::kMetaspace: {
      DecoderStep spaces{.kind = DecoderStep::Kind::kReplace,
                         .pattern = step.pattern,
                         .regex = nullptr,
                         .content = first && step.first_dropped ? "" : " "};
      return replaced(spaces, text);
    }
    case DecoderStep::Kind::kReplace:
      return replaced(step, text);
    case DecoderStep::Kind::kStrip:
      return stripped(step, text);
    case DecoderStep::Kind::kFuse:
      return text;
  }
  return text;
}

}  // namespace

bool Decoder::output_stripped() const {
  const auto is_fuse = [](const DecoderStep& step) {
    return step.kind == DecoderStep::Kind::kFuse;
  };
  return !steps_.empty() && steps_.back().kind == DecoderStep::Kind::kStrip &&
         std::any_of(steps_.begin(), steps_.end(), is_fuse);
}

bool Decoder::settled(const DecoderState& state) const {
  if (state.tokens == 0 || !output_stripped()) return state.tokens > 0;
  return !state.at_start && steps_.back().stop == 0;
}

void Decoder::decode(std::string_view token, DecoderState* state, std::string* out) const {
  const bool first = state->tokens++ == 0;
  std::string text;
  if (separate_tokens && !first) text.push_back(' ');
  text.append(token);
  bool fused = false;
  for (const DecoderStep& step : steps_) {
    if (step.kind == DecoderStep::Kind::kFuse) fused = true;
    if (fused && step.kind == DecoderStep::Kind::kStrip) {
      strip_output(step, text, state, out);
      return;  // it is the last step
    }
    text = apply_step(step, std::move(text), first);
  }
  out->append(text);
}

void Decoder::strip_output(const DecoderStep& step, std::string_view text, DecoderState* state,
                           std::string* out) const {
  while (state->at_start && state->stripped < step.start && text.starts_with(step.content)) {
    text.remove_prefix(step.content.size());
    ++state->stripped;
  }
  if (text.empty()) return;
  state->at_start = false;
  if (step.stop == 0) {
    out->append(text);
    return;
  }
  // Hold back what might be the end of the output.
  state->held.append(text);
  std::string_view rest = state->held;
  for (int64_t i = 0; i < step.stop && rest.ends_with(step.content); ++i) {
    rest.remove_suffix(step.content.size());
  }
  out->append(rest);
  state->held.erase(0, rest.size());
}

}  // namespace moraine
