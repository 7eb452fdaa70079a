// Syntax: a parsed template as a tree.
//
// Depth is bounded by Limits::nesting, so that walking and freeing it need no more stack than that.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chat/jinja/function.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/value.h"

namespace moraine::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum class Kind : uint8_t {
    kConstant,   // constant
    kName,       // name, text
    kList,       // items
    kTuple,      // items
    kDict,       // items: key, value, key, value
    kUnary,      // op, items[0]
    kBinary,     // op, items[0], items[1]
    kCompare,    // items[0] ops[0] items[1] ops[1] ...
    kConcat,     // items, joined as texts
    kCondition,  // items[0] if items[1] else items[2]; items[2] may be null
    kAttribute,  // items[0].text
    kItem,       // items[0][items[1]]
    kSlice,      // items[0][items[1]:items[2]:items[3]], 1 to 3 may be null
    kCall,       // items[0](items[1]..., named, *spread, **spread_named)
    kFilter,     // items[0] | text(items[1]..., ...); items[0] is null in {% filter %}
    kTest,       // items[0] is text(items[1]..., ...)
  };
  Kind kind;
  Op op = Op::kAdd;
  int32_t line = 0;
  int32_t depth = 1;  // of this tree
  int32_t name = -1;  // in Syntax::names
  std::string text;
  Value constant;
  std::vector<ExpressionPtr> items;
  std::vector<Op> ops;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr spread, spread_named;
  const BuiltIn* built_in =
      nullptr;  // of kFilter and kTest; null: unknown, an error when it is used
};

// What a value is given to: a name, an attribute of a namespace, or several of these.
struct Target {
  int32_t name = -1;
  std::string attribute;      // of the namespace `name`; empty: the name itself
  std::vector<Target> items;  // not empty: the value is taken apart
};

struct Statement;
using Body = std::vector<Statement>;

struct MacroSyntax {
  std::string name;
  std::vector<int32_t> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
  Body body;
};

struct Statement {
  enum class Kind : uint8_t {
    kText,         // text
    kPrint,        // value
    kIf,           // branches; each with its condition, null: else
    kFor,          // target in value if condition; branches[0] body, branches[1] else
    kSet,          // target = value
    kSetBlock,     // target = branches[0], through the filters of value, which may be null
    kMacro,        // macro, target
    kCallBlock,    // value is the call, macro is what caller() runs
    kFilterBlock,  // branches[0] through value
    kWith,         // withs, branches[0]
    kGeneration,   // branches[0]
    kBreak,
    kContinue,
  };
  struct Branch {
    ExpressionPtr condition;
    Body body;
  };
  Kind kind;
  int32_t line = 0;
  bool recursive = false;
  std::string text = {};
  Target target = {};
  ExpressionPtr value = {}, condition = {};
  std::vector<Branch> branches = {};
  std::vector<std::pair<Target, ExpressionPtr>> withs = {};
  std::unique_ptr<MacroSyntax> macro = {};
};

struct Syntax {
  // The first names are those that the interpreter itself sets.
  enum Name : int32_t { kLoop, kCaller, kVarargs, kKwargs };
  std::vector<std::string> names;
  Body body;
  bool has_generation = false;
};

}  // namespace moraine::jinja
