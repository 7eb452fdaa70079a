// Parser: tokens to the tree that runs.
//
// Source: the grammar of jinja2/parser.py 3.1, read as a specification, with break and continue, and Hugging
//         Face's {% generation %}. What works on several files (extends, include, import, block) is refused.
// Errors: kInvalidArgument with the line and what is there instead of what.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "chat/jinja/lexer.h"
#include "chat/jinja/runtime.h"
#include "chat/jinja/syntax.h"

namespace moraine::jinja {

class Parser {
 public:
  // `rt` is for errors and limits.
  Parser(Runtime& rt, std::vector<Token> tokens);
  Syntax parse();

 private:
  // parse_statement.cc
  Body parse_body(const std::vector<std::string_view>& ends, std::string_view begun);
  Body parse_rest(std::string_view end, std::string_view begun);  // up to the end, and over it
  // The same for what is caught before it is printed: a loop around it can not be left from there.
  Body parse_caught(std::string_view end, std::string_view begun);
  Statement parse_statement();
  Statement parse_if();
  Statement parse_for();
  Statement parse_set();
  Statement parse_macro();
  Statement parse_call_block();
  Statement parse_filter_block();
  Statement parse_with();
  Statement parse_generation();
  Statement parse_leave(Statement::Kind kind);
  void parse_parameters(MacroSyntax* macro);
  void add_text(Body* body);
  Target parse_target(bool with_attribute, bool stops_at_in);
  Target parse_one_target(bool with_attribute);
  Body parse_macro_body(MacroSyntax* macro, std::string_view end, std::string_view begun);

  // parse_expression.cc
  ExpressionPtr parse_tuple(bool parentheses);
  ExpressionPtr parse_expression() { return parse_condition(); }
  ExpressionPtr parse_condition();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filter);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_name();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr value);
  ExpressionPtr parse_subscript(ExpressionPtr value);
  ExpressionPtr parse_filters(ExpressionPtr value);
  ExpressionPtr parse_filter(ExpressionPtr value);
  ExpressionPtr parse_test(ExpressionPtr value);
  ExpressionPtr parse_call(ExpressionPtr value);
  void parse_arguments(Expression* call);

  // A new node; what is put into it with `adopt` counts into its depth.
  ExpressionPtr node(Expression::Kind kind);
  void adopt(Expression* parent, ExpressionPtr child);
  void count_depth(Expression* parent, const Expression* child);
  ExpressionPtr binary(Op op, ExpressionPtr a, ExpressionPtr b);

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void next();
  bool at_sign(std::string_view sign) const;
  bool at_word(std::string_view word) const;
  bool skip_sign(std::string_view sign);
  bool skip_word(std::string_view word);
  void want_sign(std::string_view sign);
  std::string want_name();
  void want_block_end();
  std::string describe(const Token& token) const;
  [[noreturn]] void fail_here(std::string_view wanted);
  int32_t name_index(const std::string& name);

  Runtime& rt_;
  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int64_t nesting_ = 0;
  int64_t loops_ = 0;                 // {% for %} around the place, within the macro
  std::vector<MacroSyntax*> macros_;  // around the place
  std::map<std::string, int32_t> name_indices_;
  Syntax syntax_;
};

}  // namespace moraine::jinja
