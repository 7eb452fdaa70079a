// TOML through toml++; the only file that includes it.
#include "base/settings.h"

#include <fmt/ranges.h>  // fmt::join, in newer versions
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/error.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "base/utf8.h"

namespace moraine {

struct SettingsTable::Node {
  std::shared_ptr<toml::table> root;  // keeps the tree alive
  toml::table* table = nullptr;       // null: absent
  std::string path;                   // "model", "" for the document
  std::string name;                   // file
  FormerKeys former = FormerKeys::kRefused;
  std::shared_ptr<const std::string> text;
  struct Assigned {
    std::string path, value;
  };
  std::vector<Assigned> assigned;  // on the command line

  bool is_assigned(const std::string& key_path) const {
    return std::any_of(assigned.begin(), assigned.end(), [&](const Assigned& each) {
      const size_t n = each.path.size();
      return key_path.starts_with(each.path) &&
             (key_path.size() == n || key_path[n] == '.' || key_path[n] == '[');
    });
  }
};

namespace {

template <class... F>
struct Overload : F... {
  using F::operator()...;
};
template <class... F>
Overload(F...) -> Overload<F...>;

// The library goes down one call deeper for each part of a dotted key when it lets go of a table.
constexpr int64_t kKeyParts = 64;

[[noreturn]] void too_many_parts(const std::string& where) {
  throw_error(Code::kInvalidArgument, "{}: a key with more than {} parts; wanted table.key", where,
              kKeyParts);
}

// Where the string that begins at `text[at]` ends, after its closing quotes; an open one ends with
// the line or the text, where the parser stops too.
size_t after_string(const std::string& text, size_t at) {
  const char quote = text[at];
  const std::string three(3, quote);
  const bool lines = text.compare(at, 3, three) == 0;
  for (size_t i = at + (lines ? 3 : 1); i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"') {
      ++i;
    } else if (lines ? text.compare(i, 3, three) == 0 : text[i] == quote) {
      return i + (lines ? 3 : 1);
    } else if (!lines && text[i] == '\n') {
      return i;
    }
  }
  return text.size();
}

// Before the library sees it.
void check_key_parts(const std::string& text, const std::string& name) {
  int64_t line = 1, dots = 0;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '"' || c == '\'') {
      const size_t end = after_string(text, i);
      line += std::count(text.begin() + static_cast<int64_t>(i),
                         text.begin() + static_cast<int64_t>(end), '\n');
      i = end;
      continue;
    }
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
      continue;
    }
    if (c == '.' && ++dots >= kKeyParts) too_many_parts(fmt::format("{}:{}", name, line));
    if (c == '\n') ++line;
    if (c == '\n' || c == '=' || c == ',' || c == '[' || c == '{') dots = 0;
    ++i;
  }
}

std::string key_path(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

std::string place(const std::string& name, const toml::node* node, const std::string& path) {
  if (node == nullptr || node->source().begin.line == 0) return fmt::format("{}: {}", name, path);
  return fmt::format("{}:{}: {}", name, static_cast<int64_t>(node->source().begin.line), path);
}

std::string range_text(const Field& field) {
  const bool low = std::isfinite(field.min), high = std::isfinite(field.max);
  if (low && high) return fmt::format("from {} to {}", field.min, field.max);
  if (low) return fmt::format("at least {}", field.min);
  if (high) return fmt::format("at most {}", field.max);
  return "any";
}

void check_range(const Field& field, double value, const std::string& where) {
  if (value >= field.min && value <= field.max) return;
  throw_error(Code::kInvalidArgument, "{} = {}: allowed is {}{}{}", where, value, range_text(field),
              field.unit.empty() ? "" : " ", field.unit);
}

[[noreturn]] void wrong_type(const std::string& where, const toml::node& node, const char* wanted) {
  std::ostringstream type;
  type << node.type();
  const std::string name = type.str();
  const bool is_vowel = std::string_view("aeiou").find(name.front()) != std::string_view::npos;
  throw_error(Code::kInvalidArgument, "{}: found {} {}, wanted {}", where, is_vowel ? "an" : "a",
              name, wanted);
}

// One of the field's choices, if it has any.
std::string read_text(const Field& field, const toml::node& node, const std::string& where) {
  if (!node.is_string()) wrong_type(where, node, "text in quotes");
  const std::string value = node.as_string()->get();
  const std::vector<std::string>& names = field.choices;
  if (names.empty() || std::find(names.begin(), names.end(), value) != names.end()) return value;
  std::string allowed;
  for (const std::string& name : names) allowed += (allowed.empty() ? "\"" : ", \"") + name + "\"";
  throw_error(Code::kInvalidArgument, "{} = \"{}\": allowed is one of {}; nearest: \"{}\"", where,
              value, allowed, nearest_name(value, names));
}

void read_field(const Field& field, const toml::node& node, const std::string& where) {
  std::visit(Overload{
                 [&](int64_t* out) {
                   const auto integer = node.as_integer();
                   if (integer == nullptr) wrong_type(where, node, "an integer");
                   check_range(field, static_cast<double>(integer->get()), where);
                   *out = integer->get();
                 },
                 [&](double* out) {
                   if (!node.is_number()) wrong_type(where, node, "a number");
                   const double value = node.value<double>().value_or(NAN);
                   check_range(field, value, where);
                   *out = value;
                 },
                 [&](bool* out) {
                   if (!node.is_boolean()) wrong_type(where, node, "true or false");
                   *out = node.as_boolean()->get();
                 },
                 [&](std::string* out) { *out = read_text(field, node, where); },
                 [&](uint8_t* out) {
                   const auto& names = field.choices;
                   const auto found =
                       std::find(names.begin(), names.end(), read_text(field, node, where));
                   *out = static_cast<uint8_t>(found - names.begin());
                 },
                 [&](std::vector<int64_t>* out) {
                   const toml::array* list = node.as_array();
                   if (list == nullptr) wrong_type(where, node, "a list of integers");
                   out->clear();
                   for (const toml::node& element : *list) {
                     if (!element.is_integer()) wrong_type(where, element, "a list of integers");
                     check_range(field, static_cast<double>(element.as_integer()->get()), where);
                     out->push_back(element.as_integer()->get());
                   }
                 },
                 [&](std::vector<std::string>* out) {
                   const toml::array* list = node.as_array();
                   if (list == nullptr) wrong_type(where, node, "a list of texts");
                   out->clear();
                   for (const toml::node& element : *list) {
                     if (!element.is_string()) wrong_type(where, element, "a list of texts");
                     out->push_back(element.as_string()->get());
                   }
                 },
             },
             field.variable);
}

std::string number_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

// On one line, whatever it holds: the library's own printer breaks lines, and not always so that it reads them.
std::string quoted(const std::string& value) {
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (value.find('\'') == std::string::npos && std::none_of(value.begin(), value.end(), control))
    return "'" + value + "'";
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    if (control(c)) {
      text += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
    } else {
      text += c;
    }
  }
  return text + "\"";
}

std::string value_text(const Field& field) {
  return std::visit(Overload{[](const int64_t* v) { return fmt::format("{}", *v); },
                             [](const double* v) { return number_text(*v); },
                             [](const bool* v) { return std::string(*v ? "true" : "false"); },
                             [](const std::string* v) { return quoted(*v); },
                             [&](const uint8_t* v) { return quoted(field.choices.at(*v)); },
                             [](const std::vector<int64_t>* v) {
                               return fmt::format("[{}]", fmt::join(*v, ", "));
                             },
                             [](const std::vector<std::string>* v) {
                               std::vector<std::string> texts;
                               for (const std::string& each : *v) texts.push_back(quoted(each));
                               return fmt::format("[{}]", fmt::join(texts, ", "));
                             }},
                    field.variable);
}

const char* type_text(const Field& field) {
  return std::visit(
      Overload{[](const int64_t*) { return "integer"; }, [](const double*) { return "number"; },
               [](const bool*) { return "true/false"; }, [](const std::string*) { return "text"; },
               [](const uint8_t*) { return "text"; },
               [](const std::vector<int64_t>*) { return "list of integers"; },
               [](const std::vector<std::string>*) { return "list of texts"; }},
      field.variable);
}

}  // namespace

SettingsTable SettingsTable::parse(const std::string& text, const std::string& name,
                                   FormerKeys former) {
  SettingsTable settings;
  settings.node_ = std::make_shared<Node>();
  settings.node_->name = name;
  settings.node_->former = former;
  settings.node_->text = std::make_shared<const std::string>(text);
  check_key_parts(text, name);
  try {
    settings.node_->root = std::make_shared<toml::table>(toml::parse(text, name));
  } catch (const toml::parse_error& e) {
    throw_error(Code::kInvalidArgument, "{}:{}: {}", name,
                static_cast<int64_t>(e.source().begin.line), std::string(e.description()));
  }
  settings.node_->table = settings.node_->root.get();
  return settings;
}

SettingsTable SettingsTable::table(const std::string& key) const {
  SettingsTable child;
  child.node_ = std::make_shared<Node>(*node_);
  child.node_->path = key_path(node_->path, key);
  child.node_->table = nullptr;
  if (node_->table == nullptr) return child;
  toml::node* found = node_->table->get(key);
  if (found == nullptr) return child;
  if (!found->is_table()) wrong_type(where(key), *found, "a table");
  child.node_->table = found->as_table();
  return child;
}

std::vector<SettingsTable> SettingsTable::tables(const std::string& key) const {
  std::vector<SettingsTable> all;
  toml::node* found = node_->table == nullptr ? nullptr : node_->table->get(key);
  if (found == nullptr) return all;
  toml::array* list = found->as_array();
  if (list == nullptr) wrong_type(where(key), *found, "a list of tables");
  for (size_t i = 0; i < list->size(); ++i) {
    toml::node& element = (*list)[i];
    if (!element.is_table()) wrong_type(where(key), element, "a list of tables");
    SettingsTable child;
    child.node_ = std::make_shared<Node>(*node_);
    child.node_->path = fmt::format("{}[{}]", key_path(node_->path, key), i);
    child.node_->table = element.as_table();
    all.push_back(child);
  }
  return all;
}

bool SettingsTable::has(const std::string& key) const {
  return node_->table != nullptr && node_->table->get(key) != nullptr;
}

bool SettingsTable::is_text(const std::string& key) const {
  return has(key) && node_->table->get(key)->is_string();
}

std::vector<std::string> SettingsTable::keys() const {
  std::vector<std::string> all;
  if (node_->table == nullptr) return all;
  for (const auto& [key, value] : *node_->table) all.emplace_back(key.str());
  return all;
}

std::string SettingsTable::where(const std::string& key) const {
  const std::string path = key_path(node_->path, key);
  if (node_->is_assigned(path)) return "--set " + path;
  const toml::node* found = node_->table == nullptr ? nullptr : node_->table->get(key);
  return place(node_->name, found, path);
}

namespace {

// value: TOML, or bare text.
void assign(toml::table& root, const std::string& path, const std::string& value) {
  toml::table* at = &root;
  size_t begin = 0;
  while (true) {
    const size_t dot = path.find('.', begin);
    const std::string key = path.substr(begin, dot == std::string::npos ? dot : dot - begin);
    if (key.empty()) throw_error(Code::kInvalidArgument, "--set {}={}: empty key", path, value);
    if (dot == std::string::npos) {
      toml::table parsed;
      check_key_parts(value, "--set");
      try {
        parsed = toml::parse("v = " + value, "--set " + path);
      } catch (const toml::parse_error&) {
        parsed.insert_or_assign("v", value);  // bare text
      }
      parsed.get("v")->visit([&](const auto& v) { at->insert_or_assign(key, v); });
      break;
    }
    if (at->get(key) == nullptr) at->insert_or_assign(key, toml::table{});
    toml::node* next = at->get(key);
    if (!next->is_table())
      throw_error(Code::kInvalidArgument, "--set {}={}: {} is not a table", path, value, key);
    at = next->as_table();
    begin = dot + 1;
  }
}

}  // namespace

void SettingsTable::set(const std::string& assignment) {
  const size_t equal = assignment.find('=');
  if (equal == std::string::npos || equal == 0) {
    throw_error(Code::kInvalidArgument,
                "--set {}: wanted key=value, for example train.tokens=1000000", assignment);
  }
  // Configs are text that every checkpoint carries.
  if (const int64_t at = first_invalid_utf8(assignment); at >= 0) {
    throw_error(Code::kInvalidArgument, "--set {}: byte {} begins no character; wanted UTF-8",
                printable(assignment, 256), at);
  }
  const std::string path = assignment.substr(0, equal), value = assignment.substr(equal + 1);
  if (std::count(path.begin(), path.end(), '.') >= kKeyParts)
    too_many_parts("--set " + printable(path, 64));
  // Parsed again: other tables keep what they had, and places keep their lines, which a copy would lose.
  const auto node = std::make_shared<Node>(*node_);
  node->assigned.push_back({.path = path, .value = value});
  node->root = std::make_shared<toml::table>(toml::parse(*node->text, node->name));
  for (const Node::Assigned& each : node->assigned) assign(*node->root, each.path, each.value);
  node->table = node->root.get();
  node_ = node;
}

void SettingsTable::read(const Fields& fields, const std::vector<std::string>& ignore) const {
  if (node_->table == nullptr) return;
  for (const auto& [toml_key, value] : *node_->table) {
    const std::string key(toml_key.str());
    const auto field =
        std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.name == key; });
    if (field != fields.end()) {
      read_field(*field, value, where(key));
      continue;
    }
    if (std::find(ignore.begin(), ignore.end(), key) != ignore.end()) continue;
    const auto renamed = std::find_if(fields.begin(), fields.end(), [&](const Field& f) {
      return !f.former.empty() && f.former == key;
    });
    if (renamed != fields.end() && node_->former == FormerKeys::kRead) {
      read_field(*renamed, value, where(key));
      continue;
    }
    if (renamed != fields.end()) {
      throw_error(Code::kInvalidArgument, "{}: the key is called \"{}\" now: rename it", where(key),
                  key_path(node_->path, renamed->name));
    }
    std::vector<std::string> known = ignore;
    for (const Field& f : fields) known.push_back(f.name);
    std::string remedy = did_you_mean(key, known, {.quote = "\""});
    if (remedy.empty() && !known.empty())
      remedy = fmt::format("; known are {}", fmt::join(known, ", "));
    throw_error(Code::kInvalidArgument, "{}: unknown key{}", where(key), remedy);
  }
}

std::string print_fields(const Fields& fields) {
  std::string text;
  for (const Field& field : fields) text += field.name + " = " + value_text(field) + "\n";
  return text;
}

std::string document_fields(const std::string& table, const Fields& fields) {
  std::string text = "### [" + table +
                     "]\n\n| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n";
  for (const Field& field : fields) {
    std::string allowed = field.choices.empty()
                              ? std::holds_alternative<bool*>(field.variable) ||
                                        std::holds_alternative<std::string*>(field.variable)
                                    ? ""
                                    : range_text(field)
                              : fmt::format("{}", fmt::join(field.choices, ", "));
    if (!field.unit.empty()) allowed += (allowed.empty() ? "" : " ") + field.unit;
    text += fmt::format("| `{}` | {} | `{}` | {} | {} |\n", field.name, type_text(field),
                        value_text(field), allowed, field.help);
  }
  return text + "\n";
}

}  // namespace moraine
