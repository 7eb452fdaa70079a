// Schema: a JSON Schema as nodes of a grammar.
//
// What is taken, refused and ignored: docs/structured_output.md. References are followed within the
// document only. Memory and time are bounded by GrammarLimits, whatever the schema; time as CompileWork, all
// documents together.
//
// Errors: kInvalidArgument with the place in the schema (#/properties/a), the keyword and the
//         limit; also where no value at all is allowed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "grammar/compile_work.h"
#include "grammar/nodes.h"
#include "grammar/pattern.h"
#include "grammar/schema_merge.h"

namespace moraine {

class SchemaCompiler {
 public:
  // Nodes are added to `out`, which must outlive this. Identical parts of several schemas are one.
  SchemaCompiler(GrammarNodes* out, const GrammarLimits& limits)
      : out_(out), limits_(limits), work_(limits.work) {}

  // The node of a document. `name` begins every place in messages. `strict`: oneOf is refused where a value might
  // satisfy two of its alternatives; else it is read as anyOf there.
  int32_t compile_document(const Json& schema, const std::string& name, bool strict = false);
  // The node of a schema inside a document, which its references are in.
  struct Part {
    const Json& document;
    const Json& schema;
    std::string name;  // begins every place in messages
    bool strict = false;
  };
  int32_t compile_part(const Part& part);
  void check_bytes(const Json& schema, const std::string& name) const;
  // Text as it is, without quotes: of pattern, format and length in `schema`, and in `also`, the same in every call,
  // of whose texts each is the beginning of a longer one.
  struct BareText {
    int32_t node;
    bool may_be_empty;
  };
  BareText bare_text(const Json& schema, const Automaton& also, const std::string& name);
  int32_t automaton(Automaton automaton, const std::string& name);

  // `path`: where it stands, for the message that a limit is passed.
  int32_t any_value(const std::string& path);
  int32_t any_object(const std::string& path);
  // Exactly this text; not of a value.
  int32_t literal(const std::string& text, const std::string& path);
  int32_t add_node(GrammarNode node, const std::string& path);

  // Once all is there: sets least_nesting, and makes kAny flat. `name` as above.
  void finish(int32_t root, const std::string& name);

 private:
  struct Place {
    std::string path;
    int64_t depth = 0;
    Place at(const std::string& part) const;
  };
  [[noreturn]] static void refuse(const std::string& path, const std::string& what);
  int32_t compile(const Json& schema, const Place& place);
  int32_t compile_checked(const Json& schema, const Place& place);
  int32_t compile_reference(const std::string& reference, const Place& place);
  int32_t compile_choice(const Json& schema, const char* keyword, const Place& place);
  void check_one_of(const Json& alternatives, const Place& place);
  int32_t compile_enum(const Json& schema, const Place& place);
  int32_t compile_types(const Json& schema, const Place& place);
  int32_t compile_type(const std::string& type, const Json& schema, const Place& place);
  int32_t compile_bare_text(const Json& schema, const Automaton& also, const Place& place);
  int32_t compile_string(const Json& schema, const Place& place);
  int32_t compile_number(const Json& schema, bool whole, const Place& place);
  int32_t compile_array(const Json& schema, const Place& place);
  int32_t compile_object(const Json& schema, const Place& place);

  Json resolve(const Json& schema, const Place& place);
  const Json& referenced(const std::string& reference, const Place& place);
  void check_keywords(const Json& schema, const Place& place);
  std::vector<std::string> names_of_members(const Json& declared, const Json& required,
                                            const Place& place);
  ItemSchemas items_of(const Json& schema, const Place& place);
  int64_t bound(const Json& schema, const char* keyword, int64_t otherwise,
                const Place& place) const;
  std::vector<std::string> patterns_of(const Json& schema, const Place& place) const;
  Automaton compile_patterns(const std::vector<std::string>& patterns, TextForm form,
                             const Place& place);
  Automaton string_automaton(const Json& schema, const Place& place);
  Automaton both_of(const Automaton& a, const Automaton& b, const Place& place);
  int32_t add_any(std::vector<int32_t> parts, const std::string& path);
  int32_t add_automaton(Automaton automaton, const Place& place);
  void flatten(const std::string& name);
  void find_least_nesting(const std::string& name);

  GrammarNodes* out_;
  const GrammarLimits limits_;
  const Json* document_ = nullptr;
  bool strict_ = false;
  std::map<std::string, int32_t> references_;  // of this document
  std::map<std::string, int32_t> known_;       // parts that are the same wherever they stand
  CompileWork work_;
  int64_t states_ = 0;
};

}  // namespace moraine
