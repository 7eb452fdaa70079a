// A state machine over what is held back: each step takes bytes from its front or waits for more.
//
//   lead -> reasoning -> content <-> call: the tag is read
//                          call -> json, elements of [TOOL_CALLS] -> after -> content
//                               -> xml: name, parameters, value   -> after -> content
// What is decided never depends on where the text was cut: a step waits while what is there could still be the
// beginning of something else.
#include "chat/tool_calls.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "chat/call_json.h"

namespace moraine {
namespace {

constexpr size_t kNameBytes = 256;  // of a function or a parameter in the XML form

bool is_json_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// How many bytes at the end of `text` may begin `mark`.
size_t partial_mark(std::string_view text, std::string_view mark) {
  for (size_t n = std::min(text.size(), mark.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == mark.substr(0, n)) return n;
  }
  return 0;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<uint8_t>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out;
}

const Json* member(const Json* object, const char* key) {
  if (object == nullptr || !object->is_object() || !object->contains(key)) return nullptr;
  return &(*object)[key];
}

// Of each function, the parameters that are not declared as strings only.
struct DeclaredTools {
  std::set<std::string> names;
  std::map<std::string, std::set<std::string>> values;

  explicit DeclaredTools(const Json& tools) {
    if (!tools.is_array()) return;
    for (const Json& tool : tools) {
      const Json* f = member(&tool, "function") != nullptr ? member(&tool, "function") : &tool;
      const Json* name = member(f, "name");
      if (name == nullptr || !name->is_string()) continue;
      names.insert(name->get<std::string>());
      const Json* properties = member(member(f, "parameters"), "properties");
      if (properties == nullptr || !properties->is_object()) continue;
      for (const auto& [key, schema] : properties->items()) {
        const Json* type = member(&schema, "type");
        if (type == nullptr || *type == "string") continue;
        values[name->get<std::string>()].insert(key);
      }
    }
  }
};

// A parameter that is no string, as JSON text.
std::string json_value(std::string_view text) {
  while (!text.empty() && is_json_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_json_space(text.back())) text.remove_suffix(1);
  if (text == "True") return "true";
  if (text == "False") return "false";
  if (text == "None") return "null";
  try {
    parse_json(std::string(text), "value");
    return std::string(text);
  } catch (const Error&) {
    return '"' + escaped(text) + '"';
  }
}

}  // namespace

class ReplyParser::State {
 public:
  explicit State(const ReplyOptions& options) : options_(options), declared_(options.tools) {
    mode_ = options.starts_in_reasoning ? Mode::kReasoning
            : options.reasoning         ? Mode::kLead
                                        : Mode::kContent;
    const ToolFormat f = options.format;
    if (f == ToolFormat::kZaya) marks_ = {"<zyphra_tool_call>"};
    if (f == ToolFormat::kHermes || f == ToolFormat::kQwenCoder) marks_ = {"<tool_call>"};
    if (f == ToolFormat::kZaya || f == ToolFormat::kQwenCoder) marks_.push_back("<function=");
    if (f == ToolFormat::kLlama) marks_ = {"<|python_tag|>"};
    if (f == ToolFormat::kMistral) marks_ = {"[TOOL_CALLS]"};
    if (f == ToolFormat::kZaya) close_ = "</zyphra_tool_call>";
    if (f == ToolFormat::kHermes || f == ToolFormat::kQwenCoder) close_ = "</tool_call>";
  }

  std::vector<ReplyDelta> feed(std::string_view piece) {
    held_ += piece;
    while (step(false)) {
    }
    return std::exchange(deltas_, {});
  }

  std::vector<ReplyDelta> finish() {
    while (step(true)) {
    }
    return std::exchange(deltas_, {});
  }

 private:
  enum class Mode {
    kLead,
    kReasoning,
    kContent,
    kCall,
    kJson,
    kXml,
    kXmlBody,
    kXmlValue,
    kAfter,
    kMistral,
    kEnd
  };
  using Kind = ReplyDelta::Kind;

  void emit(Kind kind, std::string text) {
    const bool call = kind != Kind::kContent && kind != Kind::kReasoning;
    if (text.empty() && kind != Kind::kToolEnd) return;
    deltas_.push_back({kind, std::move(text), call ? calls_ - 1 : -1});
  }
  void drop(size_t bytes) { held_.erase(0, bytes); }
  bool starts_with(std::string_view mark) const { return held_.compare(0, mark.size(), mark) == 0; }
  // The whole of what is held may be the beginning of `mark`.
  bool may_become(std::string_view mark) const {
    return held_.size() < mark.size() && mark.substr(0, held_.size()) == held_;
  }
  size_t count_space() const {
    size_t n = 0;
    while (n < held_.size() && is_json_space(held_[n])) ++n;
    return n;
  }

  // True: something was taken, or the mode changed.
  bool step(bool last) {
    switch (mode_) {
      case Mode::kLead:
        return step_lead(last);
      case Mode::kReasoning:
        return step_reasoning(last);
      case Mode::kContent:
        return step_content(last);
      case Mode::kCall:
        return step_call(last);
      case Mode::kMistral:
        return step_mistral(last);
      case Mode::kJson:
        return step_json(last);
      case Mode::kXml:
        return step_xml(last);
      case Mode::kXmlBody:
        return step_xml_body(last);
      case Mode::kXmlValue:
        return step_xml_value(last);
      case Mode::kAfter:
        return step_after(last);
      case Mode::kEnd:
        return false;
    }
    return false;
  }

  bool step_lead(bool last) {
    static constexpr std::string_view kThink = "<think>";
    const size_t space = count_space();
    const std::string_view rest = std::string_view(held_).substr(space);
    if (!last && rest.size() < kThink.size() && kThink.substr(0, rest.size()) == rest) return false;
    if (rest.substr(0, kThink.size()) == kThink) {
      drop(space + kThink.size());
      mode_ = Mode::kReasoning;
    } else {
      mode_ = Mode::kContent;
    }
    return true;
  }

  bool step_reasoning(bool last) {
    static constexpr std::string_view kEnd = "</think>";
    if (!reasoned_) {  // white space before the first word
      drop(count_space());
      reasoned_ = !held_.empty();
    }
    const size_t found = held_.find(kEnd);
    if (found == held_.npos) {
      size_t safe = last ? held_.size() : held_.size() - partial_mark(held_, kEnd);
      while (!last && safe > 0 && is_json_space(held_[safe - 1])) --safe;
      emit(Kind::kReasoning, held_.substr(0, safe));
      drop(safe);
      if (last) mode_ = Mode::kEnd;
      return false;
    }
    size_t end = found;
    while (end > 0 && is_json_space(held_[end - 1])) --end;
    emit(Kind::kReasoning, held_.substr(0, end));
    drop(found + kEnd.size());
    mode_ = Mode::kContent;
    drop_space_ = true;
    return true;
  }

  // Content, of which white space waits until it is known what follows.
  void add_content(std::string_view text) {
    if (drop_space_) {
      while (!text.empty() && is_json_space(text.front())) text.remove_prefix(1);
    }
    if (text.empty()) return;
    size_t end = text.size();
    while (end > 0 && is_json_space(text[end - 1])) --end;
    if (end > 0) {
      emit(Kind::kContent, space_ + std::string(text.substr(0, end)));
      space_.clear();
      drop_space_ = false;
      said_ = true;
    }
    space_ += text.substr(end);
  }

  bool step_content(bool last) {
    // The whole answer as JSON; only where nothing was said before it.
    if (options_.format == ToolFormat::kLlama && !said_) {
      const size_t space = count_space();
      if (space == held_.size() && !last) return false;
      if (space < held_.size() && held_[space] == '{') {
        begin_call("", space);
        return begin_json();
      }
    }
    size_t found = held_.npos;
    std::string_view mark;
    for (const std::string_view m : marks_) {
      const size_t at = held_.find(m);
      if (at < found) {
        found = at;
        mark = m;
      }
    }
    if (found == held_.npos) {
      size_t partial = 0;
      for (const std::string_view m : marks_) partial = std::max(partial, partial_mark(held_, m));
      const size_t safe = last ? held_.size() : held_.size() - partial;
      add_content(std::string_view(held_).substr(0, safe));
      drop(safe);
      if (last) {
        emit(Kind::kContent, std::exchange(space_, ""));
        mode_ = Mode::kEnd;
      }
      return false;
    }
    add_content(std::string_view(held_).substr(0, found));
    drop(found);
    if (mark == "<function=") {
      begin_call("", 0);
      mode_ = Mode::kXml;
    } else {
      begin_call(mark, 0);
      mode_ = options_.format == ToolFormat::kMistral ? Mode::kMistral : Mode::kCall;
    }
    return true;
  }

  // What is read from here is kept until it is known to be a call.
  void begin_call(std::string_view mark, size_t space) {
    read_ = space_ + std::string(mark) + held_.substr(mark.size(), space);
    space_.clear();
    drop(mark.size() + space);
    array_ = false;
  }

  // It was no call: what was read is content.
  bool give_up() {
    const bool keeps_space = !drop_space_;
    std::string text = std::exchange(read_, "");
    mode_ = Mode::kContent;
    said_ = true;  // no second look for an answer that is JSON
    if (keeps_space || !text.empty()) add_content(text);
    return true;
  }

  void take_to_read(size_t bytes) {
    read_ += held_.substr(0, bytes);
    drop(bytes);
  }

  bool step_call(bool last) {
    take_to_read(count_space());
    if (held_.empty()) return last ? give_up() : false;
    if (held_[0] == '{') return begin_json();
    if (held_[0] == '<' && options_.format != ToolFormat::kLlama) {
      mode_ = Mode::kXml;
      return true;
    }
    return give_up();
  }

  bool begin_json() {
    CallJson::Options o;
    const bool untagged = options_.format == ToolFormat::kLlama;
    o.only_known_members = untagged;
    o.names = untagged ? &declared_.names : nullptr;
    json_.emplace(o);
    mode_ = Mode::kJson;
    begun_ = false;
    return true;
  }

  void begin_tool(const std::string& name) {
    ++calls_;
    begun_ = true;
    read_.clear();
    space_.clear();
    emit(Kind::kToolBegin, name);
  }

  void end_tool(const std::string& problem) {
    emit(Kind::kToolEnd, problem);
    drop_space_ = true;
    begun_ = false;
    said_ = true;
  }

  bool step_json(bool last) {
    size_t n = 0;
    while (n < held_.size() && !json_->done() && !json_->broken()) json_->take(held_[n++]);
    if (!begun_) read_ += held_.substr(0, n);
    drop(n);
    if (json_->begun() && !begun_) begin_tool(json_->name());
    emit_arguments();
    if (json_->broken()) {
      if (!begun_) return give_up();
      end_tool("it is no JSON object");
      mode_ = Mode::kContent;
      return true;
    }
    if (json_->done()) {
      end_tool(json_->problem());
      mode_ = Mode::kAfter;
      return true;
    }
    if (!last) return false;
    if (!begun_) return give_up();
    end_tool("the text ends within the call");
    mode_ = Mode::kEnd;
    return false;
  }

  void emit_arguments() {
    if (begun_) emit(Kind::kToolArguments, json_->more_arguments());
  }

  // Behind a call: its closing tag, or the next one.
  bool step_after(bool last) {
    drop(count_space());
    const bool llama = options_.format == ToolFormat::kLlama;
    const bool mistral = options_.format == ToolFormat::kMistral;
    if (held_.empty() && !last) return false;
    if (mistral && array_ && !held_.empty() && (held_[0] == ',' || held_[0] == ']')) {
      const bool more = held_[0] == ',';
      drop(1);
      if (!more) {
        mode_ = Mode::kContent;
        return true;
      }
      read_ = ",";
      return begin_json();
    }
    if (llama && !held_.empty() && (held_[0] == ';' || held_[0] == '{')) {
      read_ = held_[0] == ';' ? ";" : "";
      if (held_[0] == ';') drop(1);
      mode_ = Mode::kCall;
      return true;
    }
    // A function without its tag may have the closing one all the same. One that the end cuts is no content either.
    if (may_become(close_) && !last) return false;
    if (starts_with(close_) || may_become(close_)) drop(std::min(close_.size(), held_.size()));
    mode_ = Mode::kContent;
    return true;
  }

  // Behind [TOOL_CALLS]: a list, or a name with [ARGS] and an object.
  bool step_mistral(bool last) {
    take_to_read(count_space());
    if (held_.empty()) return last ? give_up() : false;
    if (held_[0] == '[') {
      take_to_read(1);
      array_ = true;
      return begin_json();
    }
    const size_t brace = held_.find('{');
    if (brace == held_.npos) return held_.size() > 2 * kNameBytes || last ? give_up() : false;
    if (brace > 2 * kNameBytes) return give_up();
    std::string name = held_.substr(0, std::min(held_.find('['), brace));
    while (!name.empty() && is_json_space(name.back())) name.pop_back();
    if (name.empty()) return give_up();
    take_to_read(brace);
    json_.emplace(CallJson::Options{}, name);
    mode_ = Mode::kJson;
    begun_ = false;
    return true;
  }

  // <function=NAME>
  bool step_xml(bool last) {
    static constexpr std::string_view kOpen = "<function=";
    if (may_become(kOpen) && !last) return false;
    if (!starts_with(kOpen)) return give_up();
    const size_t end = held_.find('>');
    if (std::min(end, held_.size()) > kOpen.size() + kNameBytes) return give_up_xml();
    if (end == held_.npos) return last ? give_up_xml() : false;
    function_ = held_.substr(kOpen.size(), end - kOpen.size());
    const bool odd = function_.empty() || function_.find_first_of("<\n\"") != function_.npos;
    if (odd) return give_up_xml();
    drop(end + 1);
    begin_tool(function_);
    parameters_ = 0;
    mode_ = Mode::kXmlBody;
    return true;
  }

  // The mark itself goes to the content, so that it is not found again.
  bool give_up_xml() {
    take_to_read(std::min<size_t>(held_.size(), 10));
    return give_up();
  }

  bool step_xml_body(bool last) {
    static constexpr std::string_view kParameter = "<parameter=", kEnd = "</function>";
    drop(count_space());
    const bool may =
        may_become(kParameter) || may_become(kEnd) || (!close_.empty() && may_become(close_));
    if (starts_with(kEnd) || (!close_.empty() && starts_with(close_))) {
      if (starts_with(kEnd)) drop(kEnd.size());
      emit(Kind::kToolArguments, parameters_ == 0 ? "{}" : "}");
      end_tool("");
      mode_ = Mode::kAfter;
      return true;
    }
    const size_t end = held_.find('>');
    const bool long_name = std::min(end, held_.size()) > kParameter.size() + kNameBytes;
    const bool parameter = starts_with(kParameter) && !long_name;
    if (may || (parameter && end == held_.npos)) {
      if (!last) return false;
      held_.clear();  // a piece of a tag is no content
      end_tool("the text ends within the call");
      mode_ = Mode::kEnd;
      return false;
    }
    if (!parameter) {
      end_tool("it holds text that is neither <parameter=...> nor </function>");
      mode_ = Mode::kContent;
      return true;
    }
    const std::string key = held_.substr(kParameter.size(), end - kParameter.size());
    drop(end + 1);
    emit(Kind::kToolArguments, (parameters_++ == 0 ? "{\"" : ", \"") + escaped(key) + "\": ");
    const auto values = declared_.values.find(function_);
    text_value_ = values == declared_.values.end() || !values->second.contains(key);
    value_begun_ = false;
    mode_ = Mode::kXmlValue;
    return true;
  }

  bool step_xml_value(bool last) {
    static constexpr std::string_view kEnd = "</parameter>", kLineEnd = "\n</parameter>";
    if (!value_begun_) {  // one line end belongs to the tag
      if (held_.empty() && !last) return false;
      if (!held_.empty() && held_[0] == '\n') drop(1);
      value_begun_ = true;
      if (text_value_) emit(Kind::kToolArguments, "\"");
    }
    const size_t found = held_.find(kEnd);
    if (found == held_.npos) {
      // What the end cuts of the tag is not part of the value.
      const size_t partial = std::max(partial_mark(held_, kEnd), partial_mark(held_, kLineEnd));
      const std::string value = held_.substr(0, held_.size() - partial);
      if (text_value_) {
        emit(Kind::kToolArguments, escaped(value));
        drop(value.size());
      }
      if (!last) return false;
      if (!text_value_) emit(Kind::kToolArguments, value);
      held_.clear();
      end_tool("the text ends within the call");
      mode_ = Mode::kEnd;
      return false;
    }
    const size_t end = found > 0 && held_[found - 1] == '\n' ? found - 1 : found;
    const std::string value = held_.substr(0, end);
    emit(Kind::kToolArguments, text_value_ ? escaped(value) + "\"" : json_value(value));
    drop(found + kEnd.size());
    mode_ = Mode::kXmlBody;
    return true;
  }

  const ReplyOptions options_;
  const DeclaredTools declared_;
  std::vector<std::string_view> marks_;  // what begins a call
  std::string_view close_;               // what ends one
  Mode mode_;
  std::string held_;   // not taken yet
  std::string space_;  // white space behind the content so far
  std::string read_;   // of what may be a call
  std::vector<ReplyDelta> deltas_;
  std::optional<CallJson> json_;
  std::string function_;
  int64_t calls_ = 0;
  int64_t parameters_ = 0;
  bool said_ = false;  // something that is no white space
  bool reasoned_ = false;
  bool drop_space_ = false;  // white space before the next content
  bool begun_ = false;       // kToolBegin was given
  bool array_ = false;       // in the list of [TOOL_CALLS]
  bool text_value_ = true, value_begun_ = false;
};

ToolFormat detect_tool_format(std::string_view source) {
  const auto has = [&](std::string_view mark) { return source.find(mark) != source.npos; };
  if (has("<zyphra_tool_call>")) return ToolFormat::kZaya;
  if (has("[TOOL_CALLS]")) return ToolFormat::kMistral;
  if (has("<tool_call>")) return has("<function=") ? ToolFormat::kQwenCoder : ToolFormat::kHermes;
  if (has("<|python_tag|>")) return ToolFormat::kLlama;
  const bool llama = has("<|start_header_id|>") && has("\"parameters\": ");
  return llama ? ToolFormat::kLlama : ToolFormat::kNone;
}

const char* tool_format_name(ToolFormat format) {
  static const char* const kNames[] = {"none", "zaya", "hermes", "qwen-coder", "llama", "mistral"};
  return kNames[static_cast<int>(format)];
}

ReplyParser::ReplyParser(const ReplyOptions& options) : state_(std::make_unique<State>(options)) {}
ReplyParser::~ReplyParser() = default;
std::vector<ReplyDelta> ReplyParser::feed(std::string_view piece) { return state_->feed(piece); }
std::vector<ReplyDelta> ReplyParser::finish() { return state_->finish(); }

void add_to_reply(const std::vector<ReplyDelta>& deltas, Reply* reply) {
  for (const ReplyDelta& d : deltas) {
    switch (d.kind) {
      case ReplyDelta::Kind::kContent:
        reply->content += d.text;
        break;
      case ReplyDelta::Kind::kReasoning:
        reply->reasoning += d.text;
        break;
      case ReplyDelta::Kind::kToolBegin:
        reply->calls.push_back({d.text, "", "the text ends within the call"});
        break;
      case ReplyDelta::Kind::kToolArguments:
        reply->calls.back().arguments += d.text;
        break;
      case ReplyDelta::Kind::kToolEnd:
        reply->calls.back().problem = d.text;
        break;
    }
  }
}

Reply parse_reply(std::string_view text, const ReplyOptions& options) {
  ReplyParser parser(options);
  Reply reply;
  add_to_reply(parser.feed(text), &reply);
  add_to_reply(parser.finish(), &reply);
  return reply;
}

}  // namespace moraine
