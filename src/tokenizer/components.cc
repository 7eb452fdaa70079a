// Components: one reader for each kind of component; a Sequence calls it again.
#include "tokenizer/components.h"

#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace moraine {
namespace {

[[noreturn]] void unsupported(const JsonValue& view, std::string_view kind, std::string_view type,
                              std::string_view known) {
  throw_error(Code::kInvalidArgument, "read {}: the {} \"{}\" is not supported; supported are {}",
              view.place(), kind, type, known);
}

bool flag(const JsonValue& view, std::string_view key, bool absent) {
  JsonValue value;
  return view.find(key, &value) ? value.boolean() : absent;
}

std::string wanted_text(const JsonValue& view, std::string_view key) {
  const JsonValue value = view.at(key);
  const std::string text(value.text());
  if (text.empty()) throw_error(Code::kCorrupt, "read {}: it is empty", value.place());
  return text;
}

std::string one_character(const JsonValue& view, std::string_view key) {
  const std::string text = wanted_text(view, key);
  if (utf8_bytes_of_lead(text[0]) != static_cast<int>(text.size())) {
    throw_error(Code::kCorrupt, "read {}: \"{}\" is not one character", view.at(key).place(), text);
  }
  return text;
}

// {"String": ...} or {"Regex": ...}
void read_pattern(const JsonValue& view, std::string* pattern, std::unique_ptr<Regex>* regex) {
  const JsonValue choice = view.at("pattern");
  JsonValue value;
  if (choice.find("String", &value)) {
    *pattern = wanted_text(choice, "String");
  } else {
    *regex =
        std::make_unique<Regex>(std::string(choice.at("Regex").text()), "read " + choice.place());
  }
}

SplitBehavior behavior_of(const JsonValue& value) {
  const std::string_view name = value.text();
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  unsupported(value, "behavior", name,
              "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

PrependScheme prepend_scheme(const JsonValue& view) {
  JsonValue value;
  if (!view.find("prepend_scheme", &value)) {
    // Files older than 2024 say it with a flag.
    return flag(view, "add_prefix_space", true) ? PrependScheme::kAlways : PrependScheme::kNever;
  }
  const std::string_view name = value.text();
  if (name == "always") return PrependScheme::kAlways;
  if (name == "never") return PrependScheme::kNever;
  if (name == "first") return PrependScheme::kFirst;
  unsupported(value, "prepend_scheme", name, "always, first, never");
}

PreTokenizerStep split_step(const JsonValue& view) {
  PreTokenizerStep step{.kind = PreTokenizerStep::Kind::kText};
  read_pattern(view, &step.pattern, &step.regex);
  if (step.regex != nullptr) step.kind = PreTokenizerStep::Kind::kRegex;
  step.behavior = behavior_of(view.at("behavior"));
  step.invert = flag(view, "invert", false);
  return step;
}

PreTokenizerStep class_step(bool (*in_class)(int32_t), SplitBehavior behavior) {
  return {.kind = PreTokenizerStep::Kind::kClass, .in_class = in_class, .behavior = behavior};
}

PreTokenizerStep metaspace_step(const JsonValue& view) {
  return {.kind = PreTokenizerStep::Kind::kMetaspace,
          .pattern = one_character(view, "replacement"),
          .behavior = SplitBehavior::kMergedWithNext,
          .prepend = prepend_scheme(view),
          .cut = flag(view, "split", true)};
}

void read_decoder_steps(const JsonValue& view, bool* fused, Decoder* decoder) {
  const std::string_view type = view.at("type").text();
  if (type == "Sequence") {
    view.at("decoders").elements([&](int64_t, const JsonValue& each) {
      read_decoder_steps(each, fused, decoder);
    });
    return;
  }
  DecoderStep step{.kind = DecoderStep::Kind::kFuse};
  if (type == "ByteLevel") {
    step.kind = DecoderStep::Kind::kByteLevel;
  } else if (type == "ByteFallback") {
    step.kind = DecoderStep::Kind::kByteFallback;
  } else if (type == "Replace") {
    step.kind = DecoderStep::Kind::kReplace;
    read_pattern(view, &step.pattern, &step.regex);
    step.content = std::string(view.at("content").text());
  } else if (type == "Metaspace") {
    step.kind = DecoderStep::Kind::kMetaspace;
    step.pattern = one_character(view, "replacement");
    step.first_dropped = prepend_scheme(view) != PrependScheme::kNever;
  } else if (type == "Strip") {
    step.kind = DecoderStep::Kind::kStrip;
    step.content = one_character(view, "content");
    step.start = view.at("start").integer();
    step.stop = view.at("stop").integer();
  } else if (type != "Fuse") {
    unsupported(view, "decoder", type,
                "ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Sequence, Strip");
  }
  const bool strip = step.kind == DecoderStep::Kind::kStrip;
  const bool fuse = step.kind == DecoderStep::Kind::kFuse;
  // A step on the whole output cannot run token by token, but for a Strip at the end.
  if (decoder->output_stripped() || (*fused && !strip && !fuse)) {
    unsupported(view, "decoder order with", type, "one Strip as the only step after Fuse");
  }
  *fused = *fused || fuse;
  decoder->add(std::move(step));
}

void read_ids(const JsonValue& view, std::vector<int32_t>* ids) {
  view.elements([&](int64_t, const JsonValue& value) {
    const int64_t id = value.integer();
    if (id < 0 || id > INT32_MAX) {
      throw_error(Code::kCorrupt, "read {}: {} is not a token id", value.place(), id);
    }
    ids->push_back(static_cast<int32_t>(id));
  });
}

void read_template(const JsonValue& view, std::vector<int32_t>* before,
                   std::vector<int32_t>* after) {
  int64_t sequences = 0;
  const JsonValue single = view.at("single");
  single.elements([&](int64_t, const JsonValue& piece) {
    JsonValue value;
    if (piece.find("Sequence", &value)) {
      if (value.at("id").text() != "A") {
        throw_error(Code::kCorrupt, "read {}: the template for one text names text B",
                    single.place());
      }
      ++sequences;
      return;
    }
    const std::string_view name = piece.at("SpecialToken").at("id").text();
    read_ids(view.at("special_tokens").at(name).at("ids"), sequences == 0 ? before : after);
  });
  if (sequences != 1) {
    throw_error(Code::kCorrupt, "read {}: the template names the text {} times, wanted once",
                single.place(), sequences);
  }
}

// ["</s>", 2]
void read_named_id(const JsonValue& view, std::vector<int32_t>* ids) {
  view.elements([&](int64_t index, const JsonValue& value) {
    if (index != 1) return;
    const int64_t id = value.integer();
    if (id < 0 || id > INT32_MAX) {
      throw_error(Code::kCorrupt, "read {}: {} is not a token id", value.place(), id);
    }
    ids->push_back(static_cast<int32_t>(id));
  });
}

}  // namespace

void read_normalizer(const JsonValue& view, Normalizer* normalizer) {
  const std::string_view type = view.at("type").text();
  using Kind = NormalizerStep::Kind;
  if (type == "Sequence") {
    view.at("normalizers").elements([&](int64_t, const JsonValue& each) {
      read_normalizer(each, normalizer);
    });
    return;
  }
  NormalizerStep step{.kind = Kind::kForm};
  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    step.form = type == "NFC"    ? NormalForm::kNfc
                : type == "NFD"  ? NormalForm::kNfd
                : type == "NFKC" ? NormalForm::kNfkc
                                 : NormalForm::kNfkd;
  } else if (type == "Lowercase") {
    step.kind = Kind::kLowercase;
  } else if (type == "Replace") {
    step.kind = Kind::kReplace;
    read_pattern(view, &step.pattern, &step.regex);
    step.content = std::string(view.at("content").text());
  } else if (type == "Prepend") {
    step.kind = Kind::kPrepend;
    step.content = std::string(view.at("prepend").text());
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    step.left = view.at("strip_left").boolean();
    step.right = view.at("strip_right").boolean();
  } else if (type == "ByteLevel") {
    step.kind = Kind::kByteLevel;
  } else {
    unsupported(view, "normalizer", type,
                "ByteLevel, Lowercase, NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence, Strip");
  }
  normalizer->add(std::move(step));
}

void read_pre_tokenizer(const JsonValue& view, PreTokenizer* pre_tokenizer) {
  const std::string_view type = view.at("type").text();
  using Kind = PreTokenizerStep::Kind;
  if (type == "Sequence") {
    view.at("pretokenizers").elements([&](int64_t, const JsonValue& each) {
      read_pre_tokenizer(each, pre_tokenizer);
    });
  } else if (type == "Split") {
    pre_tokenizer->add(split_step(view));
  } else if (type == "ByteLevel") {
    PreTokenizerStep step{.kind = Kind::kByteLevel};
    step.prefix_space = view.at("add_prefix_space").boolean();
    if (flag(view, "use_regex", true)) {
      step.regex = std::make_unique<Regex>(kGpt2Pattern, "pre-tokenizer ByteLevel");
    }
    pre_tokenizer->add(std::move(step));
  } else if (type == "Digits") {
    pre_tokenizer->add(class_step(is_numeric, view.at("individual_digits").boolean()
                                                  ? SplitBehavior::kIsolated
                                                  : SplitBehavior::kContiguous));
  } else if (type == "Punctuation") {
    JsonValue value;
    pre_tokenizer->add(class_step(is_punctuation, view.find("behavior", &value)
                                                      ? behavior_of(value)
                                                      : SplitBehavior::kIsolated));
  } else if (type == "WhitespaceSplit") {
    pre_tokenizer->add(class_step(is_white_space, SplitBehavior::kRemoved));
  } else if (type == "Metaspace") {
    pre_tokenizer->add(metaspace_step(view));
  } else {
    unsupported(view, "pre-tokenizer", type,
                "ByteLevel, Digits, Metaspace, Punctuation, Sequence, Split, WhitespaceSplit");
  }
}

void read_decoder(const JsonValue& view, Decoder* decoder) {
  bool fused = false;
  read_decoder_steps(view, &fused, decoder);
}

void read_post_processor(const JsonValue& view, std::vector<int32_t>* before,
                         std::vector<int32_t>* after) {
  const std::string_view type = view.at("type").text();
  if (type == "ByteLevel") return;  // changes offsets only
  if (type == "Sequence") {
    view.at("processors").elements([&](int64_t, const JsonValue& each) {
      read_post_processor(each, before, after);
    });
    return;
  }
  if (!before->empty() || !after->empty()) {
    unsupported(view, "post-processor", "Sequence", "a Sequence with one that adds tokens");
  }
  if (type == "TemplateProcessing") {
    read_template(view, before, after);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    read_named_id(view.at("cls"), before);
    read_named_id(view.at("sep"), after);
  } else {
    unsupported(view, "post-processor", type,
                "BertProcessing, ByteLevel, RobertaProcessing, Sequence, TemplateProcessing");
  }
}

}  // namespace moraine
