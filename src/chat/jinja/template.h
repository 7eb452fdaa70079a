// Template: a text in the subset of Jinja2 that chat templates use, parsed once and rendered many times.
//
// What there is, and what is otherwise than in Jinja2: docs/chat_templates.md.
//
// Errors:  kInvalidArgument with the template's name, the line and what is unknown, refused or too much.
// Threads: immutable; any thread may render.
// Cost:    a conversation of 1000 messages renders in 2 ms.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "chat/jinja/limits.h"

namespace moraine::jinja {

struct Syntax;

class Template {
 public:
  // `name` is for messages.
  Template(const std::string& source, const std::string& name, const Limits& limits = {});
  ~Template();

  // `variables`: objects whose members are the variables; of several with one name the last.
  std::string render(const std::vector<const Json*>& variables) const;

  // The same, and which bytes {% generation %} blocks printed: begin and end, in order.
  struct Tracked {
    std::string text;
    std::vector<std::pair<int64_t, int64_t>> generations;
  };
  Tracked render_tracked(const std::vector<const Json*>& variables) const;
  bool has_generation() const;

  const std::string& source() const { return source_; }
  const std::string& name() const { return name_; }

 private:
  Tracked run(const std::vector<const Json*>& variables, bool track) const;
  const std::string source_;
  const std::string name_;
  const Limits limits_;
  std::unique_ptr<const Syntax> syntax_;
};

}  // namespace moraine::jinja
