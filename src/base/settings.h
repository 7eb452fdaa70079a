// Settings: a table of named fields that reads TOML, prints TOML and documents itself.
//
// A part of the program declares its fields once (name, variable, unit, range, help); reading, validation,
// the effective config, and docs/configuration.md come from that declaration.
//
// Errors: kInvalidArgument with the key, its place in the file, what was found and what is allowed; an
//         unknown key names a known one that is near, or all.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace moraine {

// One of a field's choices: the enumerators of a choice count from 0 in the order of their names.
template <class E>
concept Choice = std::is_enum_v<E> && std::is_same_v<std::underlying_type_t<E>, uint8_t>;

struct Field {
  using Variable = std::variant<int64_t*, double*, bool*, std::string*, std::vector<int64_t>*,
                                std::vector<std::string>*, uint8_t*>;
  std::string name;  // key inside its table
  Variable variable;
  std::string unit;                                       // "tokens", "seconds", "" for none
  std::string help;                                       // one sentence
  double min = -std::numeric_limits<double>::infinity();  // for numbers (and each list element)
  double max = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices = {};  // for text (empty: any) and enums
  std::string former = {};  // the key of an earlier version (FormerKeys); "": there was none
};

using Fields = std::vector<Field>;

// The field of an enum: text in the file, one of `names` in the order of the enumerators.
template <Choice E>
Field choice_field(std::string name, E* variable, std::string help, std::vector<std::string> names,
                   std::string former = {}) {
  return {.name = std::move(name),
          .variable = reinterpret_cast<uint8_t*>(variable),
          .unit = "",
          .help = std::move(help),
          .min = 0,
          .max = 0,
          .choices = std::move(names),
          .former = std::move(former)};
}

// What people write must have the keys of now; what an earlier version has saved, the program reads.
enum class FormerKeys : uint8_t { kRefused, kRead };

// One table of a parsed TOML document. A value, cheap to copy; an absent table is empty.
class SettingsTable {
 public:
  // `name` is for messages ("run.toml").
  static SettingsTable parse(const std::string& text, const std::string& name,
                             FormerKeys former = FormerKeys::kRefused);

  SettingsTable table(const std::string& key) const;  // absent: empty; wrong type: Error
  std::vector<SettingsTable> tables(
      const std::string& key) const;  // [[key]], or a list of inline tables
  bool has(const std::string& key) const;
  bool is_text(const std::string& key) const;
  std::vector<std::string> keys() const;
  // "run.toml:12: model.hidden", or "--set model.hidden".
  std::string where(const std::string& key) const;

  // Sets one value from the command line, "train.tokens=1000"; the value is TOML, or bare text. Only this
  // copy and the tables taken from it afterwards see it.
  void set(const std::string& assignment);

  // Reads every key of this table into the fields' variables; a key that is neither a field nor in `ignore`
  // is an error, and so is a field's former key unless the document may have it.
  void read(const Fields& fields, const std::vector<std::string>& ignore = {}) const;

  struct Node;  // hides the library

 private:
  std::shared_ptr<Node> node_;
};

std::string print_fields(const Fields& fields);                               // key = value lines
std::string document_fields(const std::string& table, const Fields& fields);  // a Markdown table

}  // namespace moraine
