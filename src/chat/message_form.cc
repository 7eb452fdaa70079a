// MessageForm: parts of content and arguments of calls.
#include "chat/message_form.h"

namespace moraine {

std::string_view text_member(std::string_view part_type) {
  if (part_type == "text" || part_type == "input_text" || part_type == "output_text") return "text";
  return part_type == "refusal" ? "refusal" : "";
}

Json call_arguments(const std::string& text) {
  Json arguments = parse_json_or_null(text);
  if (!arguments.is_object()) arguments = text;
  return arguments;
}

Json served_call(const std::string& id, const std::string& name, const Json& arguments) {
  return {{"id", id},
          {"type", "function"},
          {"function",
           {{"name", name},
            {"arguments", arguments.is_null()     ? Json::object()
                          : arguments.is_string() ? call_arguments(arguments.text())
                                                  : arguments}}}};
}

}  // namespace moraine
