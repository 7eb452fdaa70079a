// Statements: what stands in {% %}, and the parser's own small steps.
#include <algorithm>
#include <utility>

#include "chat/jinja/parser.h"

namespace moraine::jinja {

Parser::Parser(Runtime& rt, std::vector<Token> tokens) : rt_(rt), tokens_(std::move(tokens)) {
  for (const char* name : {"loop", "caller", "varargs", "kwargs"}) name_index(name);
  rt_.at_line(now().line);
}

Syntax Parser::parse() {
  syntax_.body = parse_body({}, "");
  return std::move(syntax_);
}

void Parser::next() {
  if (at_ + 1 < tokens_.size()) ++at_;
  rt_.at_line(now().line);
}

bool Parser::at_sign(std::string_view sign) const {
  return now().kind == TokenKind::kSign && now().text == sign;
}

bool Parser::at_word(std::string_view word) const {
  return now().kind == TokenKind::kName && now().text == word;
}

bool Parser::skip_sign(std::string_view sign) {
  if (!at_sign(sign)) return false;
  next();
  return true;
}

bool Parser::skip_word(std::string_view word) {
  if (!at_word(word)) return false;
  next();
  return true;
}

void Parser::want_sign(std::string_view sign) {
  if (!skip_sign(sign)) fail_here(fmt::format("'{}'", sign));
}

std::string Parser::want_name() {
  if (now().kind != TokenKind::kName) fail_here("a name");
  const std::string name = now().text;
  next();
  return name;
}

void Parser::want_block_end() {
  if (now().kind != TokenKind::kBlockEnd) fail_here("the end of the tag");
  next();
}

std::string Parser::describe(const Token& token) const {
  switch (token.kind) {
    case TokenKind::kData:
      return "text";
    case TokenKind::kPrintBegin:
      return "{{";
    case TokenKind::kPrintEnd:
      return "}}";
    case TokenKind::kBlockBegin:
      return "{%";
    case TokenKind::kBlockEnd:
      return "%}";
    case TokenKind::kEnd:
      return "the end of the template";
    default:
      return fmt::format("'{}'", token.text.substr(0, 100));
  }
}

void Parser::fail_here(std::string_view wanted) {
  rt_.fail("found {}, wanted {}", describe(now()), wanted);
}

int32_t Parser::name_index(const std::string& name) {
  const auto [place, added] =
      name_indices_.emplace(name, static_cast<int32_t>(syntax_.names.size()));
  if (added) syntax_.names.push_back(name);
  return place->second;
}

void Parser::add_text(Body* body) {
  Statement s{.kind = Statement::Kind::kText, .line = now().line};
  s.text = now().text;
  body->push_back(std::move(s));
  next();
}

// Statements until a tag that begins with one of `ends`, which is left at its name.
Body Parser::parse_body(const std::vector<std::string_view>& ends, std::string_view begun) {
  const Level level(rt_, &nesting_, rt_.limits().nesting, "blocks nested");
  const int32_t line = tokens_[at_ > 0 ? at_ - 1 : 0].line;  // of the tag before
  Body body;
  while (now().kind != TokenKind::kEnd) {
    if (now().kind == TokenKind::kData) {
      add_text(&body);
    } else if (now().kind == TokenKind::kPrintBegin) {
      Statement s{.kind = Statement::Kind::kPrint, .line = now().line};
      next();
      s.value = parse_tuple(false);
      if (now().kind != TokenKind::kPrintEnd) fail_here("}}");
      next();
      body.push_back(std::move(s));
    } else {
      next();  // {%
      if (std::any_of(ends.begin(), ends.end(), [&](auto end) { return at_word(end); })) {
        return body;
      }
      body.push_back(parse_statement());
      want_block_end();
    }
  }
  if (!ends.empty()) {
    rt_.fail("{{% {} %}} of line {} has no {{% {} %}}", begun, line, ends.back());
  }
  return body;
}

Body Parser::parse_rest(std::string_view end, std::string_view begun) {
  want_block_end();
  Body body = parse_body({end}, begun);
  next();
  return body;
}

Body Parser::parse_caught(std::string_view end, std::string_view begun) {
  const int64_t loops = std::exchange(loops_, 0);
  Body body = parse_rest(end, begun);
  loops_ = loops;
  return body;
}

Statement Parser::parse_statement() {
  if (now().kind != TokenKind::kName) fail_here("the name of a tag");
  const std::string name = now().text;
  if (name == "if") return parse_if();
  if (name == "for") return parse_for();
  if (name == "set") return parse_set();
  if (name == "macro") return parse_macro();
  if (name == "call") return parse_call_block();
  if (name == "filter") return parse_filter_block();
  if (name == "with") return parse_with();
  if (name == "generation") return parse_generation();
  if (name == "break") return parse_leave(Statement::Kind::kBreak);
  if (name == "continue") return parse_leave(Statement::Kind::kContinue);
  if (name == "print") {
    Statement s{.kind = Statement::Kind::kPrint, .line = now().line};
    next();
    s.value = parse_expression();
    return s;
  }
  if (name == "extends" || name == "include" || name == "import" || name == "from" ||
      name == "block") {
    rt_.fail("the tag '{}' joins several templates, and a chat template is one", name);
  }
  fail_unknown(rt_, "tag", name);
}

Statement Parser::parse_if() {
  Statement s{.kind = Statement::Kind::kIf, .line = now().line};
  do {
    next();  // if, elif
    ExpressionPtr condition = parse_tuple(false);
    want_block_end();
    s.branches.push_back({std::move(condition), parse_body({"elif", "else", "endif"}, "if")});
  } while (at_word("elif"));
  if (skip_word("else"))
    s.branches.push_back({nullptr, parse_rest("endif", "else")});
  else
    next();
  return s;
}

Statement Parser::parse_for() {
  Statement s{.kind = Statement::Kind::kFor, .line = now().line};
  next();
  s.target = parse_target(false, true);
  if (!skip_word("in")) fail_here("'in'");
  // The condition behind the items belongs to the loop, so it is none of the expression.
  ExpressionPtr items = node(Expression::Kind::kTuple);
  bool comma = false;
  do {
    adopt(items.get(), parse_or());
    comma |= at_sign(",");
  } while (skip_sign(","));
  s.value = comma ? std::move(items) : std::move(items->items[0]);
  if (skip_word("if")) s.condition = parse_expression();
  s.recursive = skip_word("recursive");
  want_block_end();
  ++loops_;
  s.branches.push_back({nullptr, parse_body({"else", "endfor"}, "for")});
  --loops_;
  if (skip_word("else"))
    s.branches.push_back({nullptr, parse_rest("endfor", "else")});
  else
    next();
  return s;
}

Statement Parser::parse_set() {
  Statement s{.kind = Statement::Kind::kSet, .line = now().line};
  next();
  s.target = parse_target(true, false);
  if (skip_sign("=")) {
    s.value = parse_tuple(false);
    return s;
  }
  s.kind = Statement::Kind::kSetBlock;
  while (skip_sign("|")) s.value = parse_filter(std::move(s.value));
  s.branches.push_back({nullptr, parse_caught("endset", "set")});
  return s;
}

void Parser::parse_parameters(MacroSyntax* macro) {
  want_sign("(");
  while (!at_sign(")")) {
    if (!macro->parameters.empty()) want_sign(",");
    macro->parameters.push_back(name_index(want_name()));
    if (skip_sign("=")) {
      macro->defaults.push_back(parse_expression());
    } else if (!macro->defaults.empty()) {
      fail_here("'=': a parameter behind one with a default");
    }
  }
  want_sign(")");
}

Body Parser::parse_macro_body(MacroSyntax* macro, std::string_view end, std::string_view begun) {
  macros_.push_back(macro);
  Body body = parse_caught(end, begun);
  macros_.pop_back();
  return body;
}

Statement Parser::parse_macro() {
  Statement s{.kind = Statement::Kind::kMacro, .line = now().line};
  s.macro = std::make_unique<MacroSyntax>();
  next();
  s.macro->name = want_name();
  s.target.name = name_index(s.macro->name);
  parse_parameters(s.macro.get());
  s.macro->body = parse_macro_body(s.macro.get(), "endmacro", "macro");
  return s;
}

Statement Parser::parse_call_block() {
  Statement s{.kind = Statement::Kind::kCallBlock, .line = now().line};
  s.macro = std::make_unique<MacroSyntax>();
  s.macro->name = "caller";
  next();
  if (at_sign("(")) parse_parameters(s.macro.get());
  s.value = parse_expression();
  if (s.value->kind != Expression::Kind::kCall) fail_here("a call");
  s.macro->body = parse_macro_body(s.macro.get(), "endcall", "call");
  return s;
}

Statement Parser::parse_filter_block() {
  Statement s{.kind = Statement::Kind::kFilterBlock, .line = now().line};
  next();
  do {
    s.value = parse_filter(std::move(s.value));
  } while (skip_sign("|"));
  s.branches.push_back({nullptr, parse_caught("endfilter", "filter")});
  return s;
}

Statement Parser::parse_with() {
  Statement s{.kind = Statement::Kind::kWith, .line = now().line};
  next();
  while (now().kind != TokenKind::kBlockEnd) {
    if (!s.withs.empty()) want_sign(",");
    Target target = parse_target(false, false);
    want_sign("=");
    s.withs.emplace_back(std::move(target), parse_expression());
  }
  s.branches.push_back({nullptr, parse_rest("endwith", "with")});
  return s;
}

Statement Parser::parse_generation() {
  Statement s{.kind = Statement::Kind::kGeneration, .line = now().line};
  next();
  syntax_.has_generation = true;
  s.branches.push_back({nullptr, parse_caught("endgeneration", "generation")});
  return s;
}

Statement Parser::parse_leave(Statement::Kind kind) {
  if (loops_ == 0) rt_.fail("'{}' outside of a loop", now().text);
  Statement s{.kind = kind, .line = now().line};
  next();
  return s;
}

Target Parser::parse_one_target(bool with_attribute) {
  const Level level(rt_, &nesting_, rt_.limits().nesting, "names nested");
  if (skip_sign("(")) {
    Target target = parse_target(with_attribute, false);
    want_sign(")");
    return target;
  }
  Target target;
  const std::string name = want_name();
  if (name == "true" || name == "false" || name == "none" || name == "True" || name == "False" ||
      name == "None" || name == "loop") {
    rt_.fail("can not assign to '{}'", name);
  }
  target.name = name_index(name);
  if (with_attribute && skip_sign(".")) target.attribute = want_name();
  return target;
}

Target Parser::parse_target(bool with_attribute, bool stops_at_in) {
  Target first = parse_one_target(with_attribute);
  if (!at_sign(",")) return first;
  Target all;
  all.items.push_back(std::move(first));
  while (skip_sign(",")) {
    if (at_sign(")") || at_sign("=") || (stops_at_in && at_word("in"))) break;
    all.items.push_back(parse_one_target(with_attribute));
  }
  return all;
}

}  // namespace moraine::jinja
