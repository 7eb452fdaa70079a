// Docs: the commands, flags and config keys that the documents name are those of the program.
//
// Fails if a document tells somebody to type what the program refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "base/test_folder.h"
#include "testing/places.h"
#include "tests/program.h"

namespace moraine {
namespace {

using namespace testing;

using Words = std::set<std::string>;

struct Document {
  std::string name, text;
};

std::vector<Document> documents() {
  FileSystem& fs = posix_file_system();
  std::vector<std::string> names = {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"};
  for (const std::string folder : {"docs", "docs/formats"}) {
    for (const std::string& name : fs.list(source_path(folder)))
      if (name.ends_with(".md")) names.push_back(folder + "/" + name);
  }
  std::vector<Document> all;
  for (const std::string& name : names) {
    // A line that goes on behind a backslash is one line.
    all.push_back(
        {name, std::regex_replace(fs.read(source_path(name)), std::regex(R"(\\\n)"), " ")});
  }
  return all;
}

// Every match of `regex` in `text`: its groups, the whole one first.
std::vector<std::vector<std::string>> matches(const std::string& text, const std::string& regex) {
  const std::regex compiled(regex);
  std::vector<std::vector<std::string>> all;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), compiled);
       at != std::sregex_iterator(); ++at) {
    all.emplace_back(at->begin(), at->end());
  }
  return all;
}

Words flags_in(const std::string& text) {
  Words flags;
  for (const auto& m : matches(text, R"((^|[^A-Za-z0-9-])(--[a-z][a-z0-9-]*))")) flags.insert(m[2]);
  return flags;
}

// The words of `wanted` that `known` has not.
std::string missing(const Words& wanted, const Words& known) {
  std::string text;
  for (const std::string& word : wanted)
    if (!known.contains(word)) text += " " + word;
  return text;
}

class Docs : public ::testing::Test {
 protected:
  Docs() {
    std::vector<std::string> commands = listed_commands(folder.path());
    commands.insert(commands.end(), {"man", "completion"});  // for packagers
    for (const std::string& command : commands)
      flags[command] = flags_in(run_program(folder.path(), {command, "--help"}).out);
    flags["supervise"].insert("--agent");  // what one supervisor says to another
  }
  TestFolder folder;
  std::map<std::string, Words> flags;  // by command
};

TEST_F(Docs, EveryCommandTakesTheFlagsThatAreShown) {
  int64_t seen = 0;
  for (const Document& d : documents()) {
    for (const auto& m : matches(d.text, R"(moraine ([a-z]+)([^`\n|&;#]*))")) {
      const auto command = flags.find(m[1]);
      if (command == flags.end()) continue;                         // "moraine is ..."; see below
      const std::string words = m[2].substr(0, m[2].find(" -- "));  // behind it is another program
      EXPECT_EQ(missing(flags_in(words), command->second), "") << d.name << ": " << m[0];
      ++seen;
    }
    for (const auto& m : matches(d.text, R"(`moraine ([a-z]+))"))
      EXPECT_TRUE(flags.contains(m[1])) << d.name << ": " << m[0];
  }
  EXPECT_GT(seen, 120);
}

TEST_F(Docs, EveryFlagIsOneOfSomeCommand) {
  Words all = {"--version"};
  for (const auto& [command, its] : flags) all.insert(its.begin(), its.end());
  for (const Document& d : documents()) {
    for (const auto& m : matches(d.text, R"(`(--[a-z][a-z0-9-]*)[^`\n]*`)"))
      EXPECT_TRUE(all.contains(m[1])) << d.name << ": " << m[0];
  }
}

// docs/configuration.md itself is held to the declarations (RunConfig.DocumentedKeysAreThePage).
TEST_F(Docs, EveryKeyIsInTheConfig) {
  Words keys;
  std::string table;
  const std::string page = posix_file_system().read(source_path("docs/configuration.md"));
  for (const auto& m : matches(page, R"(\n(#+ .*\[([a-z_]+)\].*|\| `([a-z_0-9]+)` \|))")) {
    if (!m[2].empty()) table = m[2];
    if (!m[3].empty()) keys.insert(table + "." + m[3]);
  }
  EXPECT_GT(keys.size(), 80u);
  for (const Document& d : documents()) {
    // Of tables that have no events and no tensors of their name.
    for (const auto& m : matches(d.text, R"(`((train|optimizer|parallel|spike)\.[a-z_0-9]+)[` ])"))
      EXPECT_TRUE(keys.contains(m[1])) << d.name << ": " << m[0];
  }
}

}  // namespace
}  // namespace moraine
