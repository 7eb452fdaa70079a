// Gives arguments their places and names what does not fit.
#include "chat/jinja/function.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "chat/jinja/operators.h"

namespace moraine::jinja {
namespace {

struct Parameter {
  std::string_view name;
  bool needed;
};

std::vector<Parameter> parameters_of(std::string_view text) {
  std::vector<Parameter> list;
  bool needed = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word == "|") {
      needed = false;
    } else {
      list.push_back({word, needed});
    }
  }
  MR_CHECK(list.size() <= Bound::kMost);
  return list;
}

}  // namespace

Bound bind_arguments(Runtime& rt, const BuiltIn& f, const Arguments& a) {
  const std::vector<Parameter> parameters = parameters_of(f.parameters);
  Bound bound;
  if (a.items.size() > parameters.size()) {
    rt.fail("{}() takes at most {} arguments, {} are given", f.name, parameters.size(),
            a.items.size());
  }
  for (size_t i = 0; i < a.items.size(); ++i) {
    bound.values[i] = a.items[i];
    bound.given[i] = true;
  }
  for (const auto& [name, value] : a.named) {
    size_t i = 0;
    while (i < parameters.size() && parameters[i].name != name) ++i;
    if (i == parameters.size()) rt.fail("{}() has no argument '{}'", f.name, name);
    if (bound.given[i]) rt.fail("{}() is given '{}' twice", f.name, name);
    bound.values[i] = value;
    bound.given[i] = true;
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].needed && !bound.given[i]) {
      rt.fail("{}() wants the argument '{}'", f.name, parameters[i].name);
    }
  }
  return bound;
}

Value call_built_in(Runtime& rt, const BuiltIn& f, const Value& self, const Arguments& a) {
  rt.step();
  if (f.raw != nullptr) return f.raw(rt, self, a);
  return f.run(rt, self, bind_arguments(rt, f, a));
}

void fail_unknown(Runtime& rt, const char* what, std::string_view name) {
  rt.fail("there is no {} '{}'", what, name);
}

std::string_view text_argument(Runtime& rt, const BuiltIn& f, const Bound& a, int index) {
  if (!a.values[index].is(Kind::kText)) {
    rt.fail("{}() wants a text, not '{}'", f.name, kind_name(a.values[index]));
  }
  return a.values[index].text;
}

}  // namespace moraine::jinja
