// Limits, messages and training marks of templates; what they print is in golden_test.cc. Fails if a limit is one off,
// if a template of a stranger runs away, or if an error does not say where.
#include "chat/jinja/template.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error.h"

namespace moraine::jinja {
namespace {

std::string render(const std::string& source, const Limits& limits = {},
                   const Json& variables = Json::object()) {
  return Template(source, "t.jinja", limits).render({&variables});
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kInvalidArgument);
    return e.what();
  }
  return "";
}

std::string error_of(const std::string& source, const Limits& limits = {},
                     const Json& variables = Json::object()) {
  return message_of([&] { render(source, limits, variables); });
}

std::string times(int64_t n, const std::string& text) {
  std::string out;
  for (int64_t i = 0; i < n; ++i) out += text;
  return out;
}

TEST(TemplateLimits, TemplateBytes) {
  const Limits limits{.template_bytes = 10};
  EXPECT_EQ(render(times(10, "a"), limits), times(10, "a"));
  EXPECT_NE(error_of(times(11, "a"), limits).find("at most 10"), std::string::npos);
}

TEST(TemplateLimits, OutputBytes) {
  const Limits limits{.output_bytes = 10};
  EXPECT_EQ(render("{% for i in range(10) %}a{% endfor %}", limits), times(10, "a"));
  EXPECT_NE(error_of("{% for i in range(11) %}a{% endfor %}", limits).find("more than 10 bytes"),
            std::string::npos);
}

TEST(TemplateLimits, RangeItems) {
  const Limits limits{.range_items = 5};
  EXPECT_EQ(render("{{ range(5)|length }}", limits), "5");
  EXPECT_NE(error_of("{{ range(6)|length }}", limits).find("more than 5"), std::string::npos);
  EXPECT_NE(error_of("{{ range(-9223372036854775807, 9223372036854775807) }}"), "");
}

TEST(TemplateLimits, Steps) {
  // Found by trying: the limit that is just enough, and the one below it.
  const std::string source = "{% for i in range(50) %}{{ i }}{% endfor %}";
  int64_t enough = 1;
  while (!error_of(source, {.steps = enough}).empty()) ++enough;
  EXPECT_GT(enough, 100);
  EXPECT_NE(error_of(source, {.steps = enough - 1}).find("steps"), std::string::npos);
  EXPECT_EQ(error_of(source, {.steps = enough}), "");
}

TEST(TemplateLimits, Memory) {
  const std::string source = "{% set x = 'a' * 1000 %}{% set y = x ~ x %}{{ y|length }}";
  int64_t enough = 1;
  while (!error_of(source, {.memory_bytes = enough}).empty()) ++enough;
  EXPECT_GT(enough, 3000);
  EXPECT_NE(error_of(source, {.memory_bytes = enough - 1}).find("bytes"), std::string::npos);
}

TEST(TemplateLimits, NestingOfTheText) {
  const Limits limits{.nesting = 20};
  const auto blocks = [](int64_t n) { return times(n, "{% if 1 %}") + times(n, "{% endif %}"); };
  EXPECT_EQ(error_of(blocks(18), limits), "");
  EXPECT_NE(error_of(blocks(20), limits).find("deeper than 20"), std::string::npos);
  const auto sum = [](int64_t n) { return "{{ 1" + times(n, " + 1") + " }}"; };
  // A constant is one, what is printed could be a tuple, which is one more.
  EXPECT_EQ(render(sum(18), limits), "19");
  EXPECT_NE(error_of(sum(19), limits).find("deeper than 20"), std::string::npos);
  for (const char* open : {"(", "[", "{1:", "not ", "-", "1 if ", "x[", "f(", "a|f("}) {
    EXPECT_NE(error_of("{{ " + times(100000, open)), "") << open;
  }
  for (const char* more : {"|upper", ".a", "[0]", "()", " + 1", " ** 1", " and 1"}) {
    EXPECT_NE(error_of("{{ x" + times(50000, more) + " }}"), "") << more;
  }
  EXPECT_NE(error_of("{% set " + times(100000, "(") + " = 1 %}"), "");
}

TEST(TemplateLimits, DepthWhileRunning) {
  const std::string macro = "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}";
  EXPECT_EQ(error_of(macro + "{{ f(20) }}"), "");
  EXPECT_NE(error_of(macro + "{{ f(1000000) }}").find("deeper than 400"), std::string::npos);
  int64_t enough = 1;
  while (!error_of(macro + "{{ f(20) }}", {.depth = enough}).empty()) ++enough;
  EXPECT_NE(error_of(macro + "{{ f(20) }}", {.depth = enough - 1}), "");
  EXPECT_NE(error_of("{% for i in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}"), "");
  EXPECT_NE(
      error_of("{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}"),
      "");
}

TEST(TemplateLimits, DepthOfValues) {
  const auto nest = [](int64_t n) {
    return "{% set ns = namespace(x=[]) %}{% for i in range(" + std::to_string(n) +
           ") %}{% set ns.x = [ns.x] %}{% endfor %}";
  };
  const Limits limits{.value_depth = 10};
  EXPECT_EQ(error_of(nest(10) + "{{ ns.x }}{{ ns.x|tojson }}", limits), "");
  EXPECT_NE(error_of(nest(11) + "{{ ns.x }}", limits), "");
  EXPECT_NE(error_of(nest(11) + "{{ ns.x|tojson }}", limits), "");
  EXPECT_NE(error_of(nest(90000) + "{{ ns.x == [ns.x] }}"), "");
  EXPECT_NE(error_of("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}"), "");
  Json deep = 1;
  for (int i = 0; i < 400; ++i) deep = Json::array({deep});
  EXPECT_NE(error_of("{{ x }}", {}, {{"x", deep}}).find("nested deeper"), std::string::npos);
}

TEST(TemplateLimits, HostileTemplatesEndAsErrors) {
  const char* const kHostile[] = {
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{{ 'a' * 99999999999 }}",
      "{{ [1] * 99999999999 }}",
      "{{ 'a'|center(99999999999) }}",
      "{{ 'a\n' | indent(99999999999) }}",
      "{{ [1]|tojson(indent=99999999999) }}",
      "{{ '%999999999d' % 1 }}",
      "{{ '%.999999999f' % 1 }}",
      "{{ 1|round(999999999) }}",
      "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x "
      "%}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% "
      "endfor %}",
      "{{ 9223372036854775807 + 1 }}",
      "{{ (-9223372036854775807 - 1) // -1 }}",
      "{{ 99 ** 99 }}",
      "{{ -(-9223372036854775807 - 1) }}",
      "{{ (-9223372036854775807 - 1)|abs }}",
      "{{ 99999999999999999999 }}",
      "{{ 'aaaa'.replace('', 'b' * 9999999) * 999 }}",
      "{{ range(99999)|batch(1)|map('list')|list * 999 }}",
      "{{ strftime_now('%c' * 999) }}",
      "{{ [1, 'a']|sort }}",
      "{{ [[]]|map('nonsense') }}",
      "{{ {[1]: 2} }}",
      "{{ '\\ud800' }}",
      "{{ '\\U99999999' }}",
      "\xff",
      "{{ '\xc3' }}",
  };
  for (const char* source : kHostile) EXPECT_NE(error_of(source), "") << source;
}

TEST(TemplateErrors, SayTheLineAndTheName) {
  EXPECT_EQ(error_of("a\n\n{{ x|nonsense }}"),
            "chat template t.jinja line 3: there is no filter 'nonsense'");
  EXPECT_EQ(error_of("\n{% if x is odder %}{% endif %}"),
            "chat template t.jinja line 2: there is no test 'odder'");
  EXPECT_EQ(error_of("{{ f(1) }}"), "chat template t.jinja line 1: there is no function 'f'");
  EXPECT_EQ(error_of("{{ 'a'.f(1) }}"), "chat template t.jinja line 1: there is no method 'f'");
  EXPECT_EQ(error_of("\n\n\n{% do x %}"), "chat template t.jinja line 4: there is no tag 'do'");
  EXPECT_EQ(error_of("{% if 1 %}\n\n"),
            "chat template t.jinja line 2: {% if %} of line 1 has no {% endif %}");
  EXPECT_EQ(error_of("a\n{{ x.y.z }}"), "chat template t.jinja line 2: 'x' is undefined");
  EXPECT_EQ(
      error_of("{{ raise_exception('no \x1b[31m system') }}"),
      "chat template t.jinja line 1: the template refuses this conversation: no \\x1b[31m system");
}

TEST(TemplateGeneration, ByteRangesAreTracked) {
  const Json none = Json::object();
  const Template t("é{% generation %}ab{% endgeneration %}c{% generation %}{% endgeneration %}",
                   "t");
  EXPECT_TRUE(t.has_generation());
  const Template::Tracked r = t.render_tracked({&none});
  EXPECT_EQ(r.text, "éabc");
  EXPECT_EQ(r.generations, (std::vector<std::pair<int64_t, int64_t>>{{2, 4}}));
  const Template within("{% set x %}{% generation %}a{% endgeneration %}{% endset %}{{ x }}", "t");
  EXPECT_EQ(within.render({&none}), "a");
  EXPECT_NE(message_of([&] { within.render_tracked({&none}); }).find("{% generation %}"),
            std::string::npos);
}

TEST(TemplateTime, NowIsADate) {
  EXPECT_EQ(render("{{ strftime_now('%Y-%m-%d')|length }}{{ strftime_now('') }}"), "10");
}

}  // namespace
}  // namespace moraine::jinja
