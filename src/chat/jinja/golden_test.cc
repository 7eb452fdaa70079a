// Expressions and chat templates against what Jinja2 makes of them (tools/make_template_golden.py). Fails if any
// operator, filter, test, method, statement or rule of white space differs, or an error is taken for an answer.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/file_system.h"
#include "base/json.h"
#include "chat/jinja/template.h"
#include "testing/places.h"

namespace moraine::jinja {
namespace {

// MORAINE_TEMPLATES names other templates and what Jinja2 makes of them: FOLDER and FOLDER.json.
std::string template_folder() {
  const char* other = std::getenv("MORAINE_TEMPLATES");
  return other != nullptr ? other : testing::source_path("tests/golden/chat_templates");
}

Json golden() {
  const std::string path = template_folder() + ".json";
  return parse_json(posix_file_system().read(path), path);
}

// What `source` gives: as the golden file has it, {"text"} or {"error"}.
void expect_same(const Json& c, const std::string& source, const Json& variables) {
  Template::Tracked result;
  try {
    const Template t(source, "golden", {});
    result = t.has_generation() ? t.render_tracked({&variables})
                                : Template::Tracked{t.render({&variables}), {}};
  } catch (const Error& e) {
    EXPECT_TRUE(c.contains("error")) << source << "\n" << e.what();
    EXPECT_EQ(e.code(), Code::kInvalidArgument);
    EXPECT_NE(std::string(e.what()).find(" line "), std::string::npos) << e.what();
    return;
  }
  if (c.contains("error")) {
    ADD_FAILURE() << source << "\ngave " << result.text << "\nwanted " << c["error"];
    return;
  }
  EXPECT_EQ(result.text, c["text"].get<std::string>()) << source;
  Json targets = Json::array();
  for (const auto& [begin, end] : result.generations) targets.push_back({begin, end});
  EXPECT_EQ(targets, c.value("targets", Json::array())) << source;
}

TEST(TemplateGolden, ExpressionsAreAsInJinja2) {
  const Json all = golden();
  ASSERT_GT(all["expressions"].size(), 200u);
  for (const Json& c : all["expressions"]) {
    expect_same(c, c["source"].get<std::string>(), all["variables"]);
  }
}

TEST(TemplateGolden, ChatTemplatesAreAsInJinja2) {
  const Json all = golden();
  ASSERT_GT(all["templates"].size(), 150u);
  for (const Json& c : all["templates"]) {
    const std::string& name = c["template"].text();
    SCOPED_TRACE(name + " " + json_text(c["variables"]));
    expect_same(c, posix_file_system().read(join_path(template_folder(), name)), c["variables"]);
  }
}

}  // namespace
}  // namespace moraine::jinja
