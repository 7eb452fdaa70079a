// Fuzz: a config in TOML, read by a table of fields of every type; the last line is a --set assignment.
#include "base/settings.h"

#include "testing/fuzz.h"

namespace moraine {

void fuzz_one(std::string_view input) {
  const size_t line = input.rfind('\n');
  const std::string assignment(line == std::string_view::npos ? "" : input.substr(line + 1));
  int64_t whole = 0;
  double real = 0;
  bool yes = false;
  std::string word = "a";
  std::vector<int64_t> list;
  const Fields fields = {
      {.name = "whole", .variable = &whole, .unit = "tokens", .help = "h", .min = 1, .max = 9},
      {.name = "real", .variable = &real, .unit = "", .help = "h", .min = 0, .max = 1},
      {.name = "yes", .variable = &yes, .unit = "", .help = "h"},
      {.name = "word", .variable = &word, .unit = "", .help = "h", .choices = {"a", "b"}},
      {.name = "list", .variable = &list, .unit = "", .help = "h", .min = 0, .max = 9},
  };
  testing::parses_or_throws_error([&] {
    SettingsTable table = SettingsTable::parse(std::string(input.substr(0, line)), "fuzz.toml");
    for (const std::string& key : table.keys()) table.where(key);
    if (!assignment.empty()) table.set(assignment);
    for (const SettingsTable& phase : table.tables("phase")) phase.read(fields);
    table.table("model").read(fields);
    table.read(fields, {"model", "phase"});
    // What was read is printed, and reads back.
    SettingsTable::parse(print_fields(fields), "again").read(fields);
  });
}

}  // namespace moraine
