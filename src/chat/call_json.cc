// A state machine over the bytes of one object.
#include "chat/call_json.h"

#include "base/error.h"
#include "base/json.h"

namespace moraine {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// The text of a JSON string. False if it is none.
bool decode(const std::string& json, std::string* text) {
  try {
    const Json value = parse_json(json, "call");
    if (!value.is_string()) return false;
    *text = value.get<std::string>();
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

CallJson::CallJson(const Options& options, const std::string& name)
    : options_(options), state_(State::kValue), alone_(true), name_(name) {
  has_name_ = true;
  key_ = "arguments";
}

void CallJson::take(char c) {
  switch (state_) {
    case State::kOpen:
      if (!is_space(c)) state_ = c == '{' ? State::kKey : State::kBroken;
      return;
    case State::kKey:
      if (value_.empty()) {
        if (is_space(c)) return;
        if (c == '}' && first_) state_ = State::kBroken;  // {}: no name
        if (c != '"') state_ = State::kBroken;
        value_ = c;
        return;
      }
      value_ += c;
      if (c == '"' && !escaped_) {
        state_ = decode(value_, &key_) ? State::kColon : State::kBroken;
        value_.clear();
        const bool known = key_ == "name" || key_ == "type" || key_ == "id" || is_arguments();
        if (options_.only_known_members && !known) state_ = State::kBroken;
      }
      escaped_ = c == '\\' && !escaped_;
      return;
    case State::kColon:
      if (!is_space(c)) state_ = c == ':' ? State::kValue : State::kBroken;
      return;
    case State::kValue:
      if (!is_space(c)) begin_value(c);
      return;
    case State::kInValue:
      return in_value(c);
    case State::kAfter:
      if (is_space(c)) return;
      first_ = false;
      state_ = c == ',' ? State::kKey : State::kBroken;
      if (c == '}') {
        state_ = has_name_ ? State::kDone : State::kBroken;
        if (done()) begin();
        if (done() && !has_arguments_) arguments_ = "{}";
      }
      return;
    default:
      return;
  }
}

void CallJson::begin_value(char c) {
  state_ = State::kInValue;
  value_.clear();
  depth_ = 0;
  quoted_ = escaped_ = false;
  const bool object = is_arguments() && c == '{';
  if (alone_ && c != '{') state_ = State::kBroken;
  if (is_arguments() && has_arguments_) state_ = State::kBroken;
  if (broken()) return;
  has_arguments_ |= is_arguments();
  if (object && has_name_) begin();
  in_value(c);
}

void CallJson::in_value(char c) {
  const bool scalar = depth_ == 0 && !quoted_ && !value_.empty();
  if (scalar && (c == ',' || c == '}' || is_space(c))) {
    end_value();
    if (!broken() && !done()) take(c);
    return;
  }
  value_ += c;
  // Of an object the bytes go on at once.
  if (is_arguments() && value_[0] == '{') arguments_ += c;
  if (quoted_) {
    if (c == '"' && !escaped_) quoted_ = false;
    escaped_ = c == '\\' && !escaped_;
  } else if (c == '"') {
    quoted_ = true;
  } else if (c == '{' || c == '[') {
    ++depth_;
  } else if (c == '}' || c == ']') {
    --depth_;
  }
  const bool closes = c == '}' || c == ']' || c == '"';
  if (closes && depth_ <= 0 && !quoted_) end_value();
}

void CallJson::end_value() {
  state_ = alone_ ? State::kDone : State::kAfter;
  if (key_ == "name") {
    if (has_name_ || !decode(value_, &name_) || name_.empty()) state_ = State::kBroken;
    if (options_.names != nullptr && !options_.names->empty() && !options_.names->contains(name_)) {
      state_ = State::kBroken;
    }
    has_name_ = true;
    // The arguments came first.
    if (!broken() && has_arguments_) begin();
  } else if (is_arguments() && value_[0] != '{') {
    if (value_[0] == '"' && !decode(value_, &arguments_)) state_ = State::kBroken;
    if (value_[0] != '"') arguments_ = value_ == "null" ? "{}" : value_;
    if (!broken() && has_name_) begin();
  }
  value_.clear();
}

void CallJson::begin() { begun_ = true; }

std::string CallJson::more_arguments() {
  if (!begun_) return "";
  std::string more = arguments_.substr(given_);
  given_ = arguments_.size();
  return more;
}

std::string CallJson::problem() const {
  try {
    if (parse_json(arguments_, "the arguments").is_object()) return "";
    return "the arguments are no JSON object";
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace moraine
