// Settings: a table of named fields that reads TOML, prints TOML and documents itself.
//
// A part of the program declares its fields once (name, variable, unit, range, help); reading, validation,
// the effective config, and docs/configuration.md come from that declaration.
//
// Errors: kInvalidArgument with the key, its place in the file, what was found and what is allowed; an
//         unknown key names the nearest known one.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace moraine {

struct Field {
  using Variable = std::variant<int64_t*, double*, bool*, std::string*, std::vector<int64_t>*>;
  std::string name;  // key inside its table
  Variable variable;
  std::string unit;                                       // "tokens", "seconds", "" for none
  std::string help;                                       // one sentence
  double min = -std::numeric_limits<double>::infinity();  // for numbers (and each list element)
  double max = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices = {};  // for text; empty: any
};

using Fields = std::vector<Field>;

// One table of a parsed TOML document. A value, cheap to copy; an absent table is empty.
class SettingsTable {
 public:
  // `name` is for messages ("run.toml").
  static SettingsTable parse(const std::string& text, const std::string& name);

  SettingsTable table(const std::string& key) const;  // absent: empty; wrong type: Error
  std::vector<SettingsTable> tables(
      const std::string& key) const;  // [[key]], or a list of inline tables
  bool has(const std::string& key) const;
  bool is_text(const std::string& key) const;
  std::vector<std::string> keys() const;
  std::string where(const std::string& key) const;  // "run.toml:12: model.hidden"

  // Sets one value from the command line, "train.tokens=1000"; the value is TOML, or bare text. Only this
  // copy and the tables taken from it afterwards see it.
  void set(const std::string& assignment);

  // Reads every key of this table into the fields' variables; a key that is neither a field nor in `ignore`
  // is an error.
  void read(const Fields& fields, const std::vector<std::string>& ignore = {}) const;

  struct Node;  // hides the library

 private:
  std::shared_ptr<Node> node_;
};

std::string print_fields(const Fields& fields);                               // key = value lines
std::string document_fields(const std::string& table, const Fields& fields);  // a Markdown table

}  // namespace moraine
