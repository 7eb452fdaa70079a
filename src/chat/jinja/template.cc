// Joins lexer, parser and interpreter.
#include "chat/jinja/template.h"

#include "base/error.h"
#include "chat/jinja/interpreter.h"
#include "chat/jinja/lexer.h"
#include "chat/jinja/parser.h"
#include "chat/jinja/runtime.h"

namespace moraine::jinja {

Template::Template(const std::string& source, const std::string& name, const Limits& limits)
    : source_(source), name_(name), limits_(limits) {
  if (static_cast<int64_t>(source.size()) > limits.template_bytes) {
    throw_error(Code::kInvalidArgument, "chat template {}: {} bytes, at most {}", name,
                source.size(), limits.template_bytes);
  }
  Runtime rt(name_, limits_);
  syntax_ = std::make_unique<const Syntax>(Parser(rt, read_tokens(rt, source_)).parse());
}

Template::~Template() = default;

Template::Tracked Template::run(const std::vector<const Json*>& variables, bool track) const {
  Runtime rt(name_, limits_);
  Dict* all = rt.dict();
  for (const Json* object : variables) {
    if (!object->is_object()) {
      throw_error(Code::kInvalidArgument, "chat template {}: variables are no object", name_);
    }
    for (const auto& [key, value] : object->items()) {
      rt.put(all, Value::of_text(key), rt.import(value));
    }
  }
  Interpreter interpreter(rt, *syntax_);
  if (track) interpreter.want_generations();
  Tracked result;
  result.text = interpreter.run(*all);
  result.generations = interpreter.generations();
  return result;
}

std::string Template::render(const std::vector<const Json*>& variables) const {
  return run(variables, false).text;
}

Template::Tracked Template::render_tracked(const std::vector<const Json*>& variables) const {
  return run(variables, true);
}

bool Template::has_generation() const { return syntax_->has_generation; }

}  // namespace moraine::jinja
