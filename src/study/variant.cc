// Variant: words into keys and values.
#include "study/variant.h"

#include <cctype>
#include <string_view>

#include "base/error.h"

namespace moraine {
namespace {

std::string trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())))
    text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())))
    text.remove_suffix(1);
  return std::string(text);
}

// At commas that stand in no bracket, brace or quote.
std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> parts;
  int depth = 0;
  char quote = 0;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == quote) quote = 0;
      continue;
    }
    if (c == '"' || c == '\'') quote = c;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (c != ',' || depth > 0) continue;
    parts.push_back(trimmed(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  parts.push_back(trimmed(text.substr(begin)));
  return parts;
}

void check_assignment(const std::string& assignment, const std::string& flag) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == assignment.size())
    throw_error(Code::kInvalidArgument, "study {}: \"{}\": wanted key=value", flag, assignment);
}

void vary(const std::string& word, std::vector<Variant>& all) {
  const std::string flag = fmt::format("--vary {}", word);
  check_assignment(word, flag);
  const std::string key = trimmed(word.substr(0, word.find('=')));
  const size_t dot = key.rfind('.');
  const std::string last = dot == std::string::npos ? key : key.substr(dot + 1);
  for (const std::string& value : parts_of(std::string_view(word).substr(word.find('=') + 1))) {
    check_assignment(fmt::format("{}={}", key, value), flag);
    all.push_back({.name = fmt::format("{}={}", last, value),
                   .assignments = {fmt::format("{}={}", key, value)}});
  }
}

Variant named_variant(const std::string& word) {
  const size_t colon = word.find(':');
  const std::string name =
      trimmed(std::string_view(word).substr(0, colon == std::string::npos ? 0 : colon));
  if (name.empty())
    throw_error(Code::kInvalidArgument,
                "study --variant {}: wanted a name, a colon, and key=value once or more, separated "
                "by commas",
                word);
  Variant v{.name = name, .assignments = parts_of(std::string_view(word).substr(colon + 1))};
  for (const std::string& assignment : v.assignments)
    check_assignment(assignment, fmt::format("--variant {}", word));
  return v;
}

}  // namespace

std::string variant_folder(const Variant& variant) {
  std::string folder;
  for (const char c : variant.name) {
    const bool plain =
        std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '=';
    folder += plain ? c : '_';
  }
  return folder.front() == '.' ? "_" + folder : folder;
}

std::vector<Variant> read_variants(const std::vector<std::string>& vary_words,
                                   const std::vector<std::string>& named) {
  std::vector<Variant> all = {{.name = "base", .assignments = {}}};
  for (const std::string& word : vary_words) vary(word, all);
  for (const std::string& word : named) all.push_back(named_variant(word));
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (variant_folder(all[i]) != variant_folder(all[k])) continue;
      throw_error(
          Code::kInvalidArgument,
          "study: two variants are called \"{}\" and \"{}\", whose folder would be {}; give "
          "one of them another name (--variant NAME: key=value)",
          all[k].name, all[i].name, variant_folder(all[i]));
    }
  }
  return all;
}

}  // namespace moraine
