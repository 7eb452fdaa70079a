// Expressions, from the loosest binding to the tightest: if else, or, and, not, comparisons, + -, ~, * / // %,
// **, signs, then attributes, items, calls, filters and tests.
#include <algorithm>
#include <utility>

#include "chat/jinja/parser.h"

namespace moraine::jinja {

ExpressionPtr Parser::node(Expression::Kind kind) {
  ExpressionPtr e = std::make_unique<Expression>();
  e->kind = kind;
  e->line = now().line;
  return e;
}

void Parser::count_depth(Expression* parent, const Expression* child) {
  if (child == nullptr) return;
  parent->depth = std::max(parent->depth, child->depth + 1);
  if (parent->depth > rt_.limits().nesting) {
    rt_.fail("an expression nested deeper than {}", rt_.limits().nesting);
  }
}

void Parser::adopt(Expression* parent, ExpressionPtr child) {
  count_depth(parent, child.get());
  parent->items.push_back(std::move(child));
}

ExpressionPtr Parser::binary(Op op, ExpressionPtr a, ExpressionPtr b) {
  ExpressionPtr e = node(Expression::Kind::kBinary);
  e->op = op;
  e->line = a->line;
  adopt(e.get(), std::move(a));
  adopt(e.get(), std::move(b));
  return e;
}

ExpressionPtr Parser::parse_tuple(bool parentheses) {
  ExpressionPtr tuple = node(Expression::Kind::kTuple);
  bool comma = false;
  while (now().kind != TokenKind::kPrintEnd && now().kind != TokenKind::kBlockEnd &&
         !at_sign(")")) {
    adopt(tuple.get(), parse_expression());
    if (!skip_sign(",")) break;
    comma = true;
  }
  if (!comma && !tuple->items.empty()) return std::move(tuple->items[0]);
  if (tuple->items.empty() && !parentheses) fail_here("an expression");
  return tuple;
}

ExpressionPtr Parser::parse_condition() {
  const Level level(rt_, &nesting_, rt_.limits().nesting, "an expression nested");
  ExpressionPtr value = parse_or();
  while (skip_word("if")) {
    ExpressionPtr e = node(Expression::Kind::kCondition);
    adopt(e.get(), std::move(value));
    adopt(e.get(), parse_or());
    adopt(e.get(), skip_word("else") ? parse_condition() : nullptr);
    value = std::move(e);
  }
  return value;
}

ExpressionPtr Parser::parse_or() {
  ExpressionPtr left = parse_and();
  while (skip_word("or")) left = binary(Op::kOr, std::move(left), parse_and());
  return left;
}

ExpressionPtr Parser::parse_and() {
  ExpressionPtr left = parse_not();
  while (skip_word("and")) left = binary(Op::kAnd, std::move(left), parse_not());
  return left;
}

ExpressionPtr Parser::parse_not() {
  if (!at_word("not")) return parse_compare();
  const Level level(rt_, &nesting_, rt_.limits().nesting, "an expression nested");
  ExpressionPtr e = node(Expression::Kind::kUnary);
  e->op = Op::kNot;
  next();
  adopt(e.get(), parse_not());
  return e;
}

ExpressionPtr Parser::parse_compare() {
  static const std::pair<std::string_view, Op> kSigns[] = {
      {"==", Op::kEqual},        {"!=", Op::kNotEqual}, {"<=", Op::kLessEqual},
      {">=", Op::kGreaterEqual}, {"<", Op::kLess},      {">", Op::kGreater}};
  ExpressionPtr first = parse_sum();
  ExpressionPtr e;
  while (true) {
    Op op = Op::kAdd;
    for (const auto& [sign, meaning] : kSigns) {
      if (at_sign(sign)) op = meaning;
    }
    if (at_word("in")) op = Op::kIn;
    if (at_word("not") && ahead().kind == TokenKind::kName && ahead().text == "in") {
      op = Op::kNotIn;
      next();
    }
    if (op == Op::kAdd) break;
    if (e == nullptr) {
      e = node(Expression::Kind::kCompare);
      adopt(e.get(), std::move(first));
    }
    next();
    e->ops.push_back(op);
    adopt(e.get(), parse_sum());
  }
  return e == nullptr ? std::move(first) : std::move(e);
}

ExpressionPtr Parser::parse_sum() {
  ExpressionPtr left = parse_concat();
  while (at_sign("+") || at_sign("-")) {
    const Op op = at_sign("+") ? Op::kAdd : Op::kSubtract;
    next();
    left = binary(op, std::move(left), parse_concat());
  }
  return left;
}

ExpressionPtr Parser::parse_concat() {
  ExpressionPtr first = parse_product();
  if (!at_sign("~")) return first;
  ExpressionPtr e = node(Expression::Kind::kConcat);
  adopt(e.get(), std::move(first));
  while (skip_sign("~")) adopt(e.get(), parse_product());
  return e;
}

ExpressionPtr Parser::parse_product() {
  static const std::pair<std::string_view, Op> kSigns[] = {
      {"*", Op::kMultiply}, {"/", Op::kDivide}, {"//", Op::kFloorDivide}, {"%", Op::kModulo}};
  ExpressionPtr left = parse_power();
  while (true) {
    const auto* found = std::find_if(std::begin(kSigns), std::end(kSigns),
                                     [&](const auto& s) { return at_sign(s.first); });
    if (found == std::end(kSigns)) return left;
    next();
    left = binary(found->second, std::move(left), parse_power());
  }
}

ExpressionPtr Parser::parse_power() {
  ExpressionPtr left = parse_unary(true);
  while (skip_sign("**")) left = binary(Op::kPower, std::move(left), parse_unary(true));
  return left;
}

ExpressionPtr Parser::parse_unary(bool with_filter) {
  const Level level(rt_, &nesting_, rt_.limits().nesting, "an expression nested");
  ExpressionPtr value;
  if (at_sign("-") || at_sign("+")) {
    value = node(Expression::Kind::kUnary);
    value->op = at_sign("-") ? Op::kNegate : Op::kPlus;
    next();
    adopt(value.get(), parse_unary(false));
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  return with_filter ? parse_filters(std::move(value)) : std::move(value);
}

ExpressionPtr Parser::parse_primary() {
  if (now().kind == TokenKind::kName) return parse_name();
  if (at_sign("[")) return parse_list();
  if (at_sign("{")) return parse_dict();
  if (skip_sign("(")) {
    ExpressionPtr e = parse_tuple(true);
    want_sign(")");
    return e;
  }
  ExpressionPtr e = node(Expression::Kind::kConstant);
  switch (now().kind) {
    case TokenKind::kInteger:
      e->constant = Value::of_int(now().integer);
      next();
      return e;
    case TokenKind::kFloat:
      e->constant = Value::of_float(now().real);
      next();
      return e;
    case TokenKind::kString:
      for (; now().kind == TokenKind::kString; next()) e->text += now().text;
      e->constant = Value::of_text(e->text);
      return e;
    default:
      fail_here("a value");
  }
}

ExpressionPtr Parser::parse_name() {
  const std::string name = now().text;
  ExpressionPtr e = node(Expression::Kind::kConstant);
  next();
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    e->constant = Value::of_bool(name == "true" || name == "True");
  } else if (name == "none" || name == "None") {
    e->constant = Value::none();
  } else {
    e->kind = Expression::Kind::kName;
    e->text = name;
    e->name = name_index(name);
    for (MacroSyntax* macro : macros_) {
      macro->uses_caller |= name == "caller";
      macro->uses_varargs |= name == "varargs";
      macro->uses_kwargs |= name == "kwargs";
    }
  }
  return e;
}

ExpressionPtr Parser::parse_list() {
  ExpressionPtr e = node(Expression::Kind::kList);
  want_sign("[");
  while (!at_sign("]")) {
    if (!e->items.empty()) want_sign(",");
    if (at_sign("]")) break;
    adopt(e.get(), parse_expression());
  }
  want_sign("]");
  return e;
}

ExpressionPtr Parser::parse_dict() {
  ExpressionPtr e = node(Expression::Kind::kDict);
  want_sign("{");
  while (!at_sign("}")) {
    if (!e->items.empty()) want_sign(",");
    if (at_sign("}")) break;
    adopt(e.get(), parse_expression());
    want_sign(":");
    adopt(e.get(), parse_expression());
  }
  want_sign("}");
  return e;
}

ExpressionPtr Parser::parse_postfix(ExpressionPtr value) {
  while (true) {
    if (at_sign(".") || at_sign("[")) {
      value = parse_subscript(std::move(value));
    } else if (at_sign("(")) {
      value = parse_call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr Parser::parse_subscript(ExpressionPtr value) {
  if (skip_sign(".")) {
    ExpressionPtr e = node(Expression::Kind::kAttribute);
    if (now().kind == TokenKind::kInteger) {
      e->kind = Expression::Kind::kItem;
      adopt(e.get(), std::move(value));
      adopt(e.get(), parse_primary());
      return e;
    }
    e->text = want_name();
    adopt(e.get(), std::move(value));
    return e;
  }
  ExpressionPtr e = node(Expression::Kind::kItem);
  want_sign("[");
  adopt(e.get(), std::move(value));
  ExpressionPtr first = at_sign(":") ? nullptr : parse_tuple(false);
  const bool slice = at_sign(":");
  adopt(e.get(), std::move(first));
  if (slice) {
    e->kind = Expression::Kind::kSlice;
    for (int part = 2; part <= 3; ++part) {
      const bool there = skip_sign(":") && !at_sign(":") && !at_sign("]");
      adopt(e.get(), there ? parse_expression() : nullptr);
    }
  }
  want_sign("]");
  return e;
}

ExpressionPtr Parser::parse_filters(ExpressionPtr value) {
  while (true) {
    if (skip_sign("|")) {
      value = parse_filter(std::move(value));
    } else if (at_word("is")) {
      value = parse_test(std::move(value));
    } else if (at_sign("(")) {
      value = parse_call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr Parser::parse_filter(ExpressionPtr value) {
  ExpressionPtr e = node(Expression::Kind::kFilter);
  e->text = want_name();
  e->built_in = find_filter(e->text);
  adopt(e.get(), std::move(value));
  if (at_sign("(")) parse_arguments(e.get());
  return e;
}

ExpressionPtr Parser::parse_test(ExpressionPtr value) {
  ExpressionPtr e = node(Expression::Kind::kTest);
  next();
  const bool negated = skip_word("not");
  e->text = want_name();
  e->built_in = find_test(e->text);
  adopt(e.get(), std::move(value));
  const TokenKind kind = now().kind;
  if (at_sign("(")) {
    parse_arguments(e.get());
  } else if (at_word("is")) {
    fail_here("no second test behind a test");
  } else if (kind == TokenKind::kString || kind == TokenKind::kInteger ||
             kind == TokenKind::kFloat || at_sign("[") || at_sign("{") ||
             (kind == TokenKind::kName && !at_word("else") && !at_word("or") && !at_word("and"))) {
    ExpressionPtr argument = parse_primary();
    adopt(e.get(), parse_postfix(std::move(argument)));
  }
  if (!negated) return e;
  ExpressionPtr no = node(Expression::Kind::kUnary);
  no->op = Op::kNot;
  no->line = e->line;
  adopt(no.get(), std::move(e));
  return no;
}

ExpressionPtr Parser::parse_call(ExpressionPtr value) {
  ExpressionPtr e = node(Expression::Kind::kCall);
  adopt(e.get(), std::move(value));
  parse_arguments(e.get());
  return e;
}

void Parser::parse_arguments(Expression* call) {
  want_sign("(");
  bool first = true;
  while (!at_sign(")")) {
    if (!first) want_sign(",");
    if (at_sign(")")) break;
    first = false;
    if (skip_sign("**")) {
      if (call->spread_named != nullptr) fail_here("one **");
      call->spread_named = parse_expression();
      count_depth(call, call->spread_named.get());
      continue;
    }
    if (call->spread_named != nullptr) fail_here("nothing behind **");
    if (skip_sign("*")) {
      if (call->spread != nullptr) fail_here("one *");
      call->spread = parse_expression();
      count_depth(call, call->spread.get());
    } else if (now().kind == TokenKind::kName && ahead().kind == TokenKind::kSign &&
               ahead().text == "=") {
      const std::string name = want_name();
      next();
      call->named.emplace_back(name, parse_expression());
      count_depth(call, call->named.back().second.get());
    } else {
      if (call->spread != nullptr || !call->named.empty()) fail_here("an argument with its name");
      adopt(call, parse_expression());
    }
  }
  want_sign(")");
}

}  // namespace moraine::jinja
