// BuiltInTemplates: templates for models that come without one, chosen by name.
#pragma once

#include <string>
#include <string_view>

namespace moraine {

// The text of "chatml" or "plain"; empty if there is none of this name.
std::string_view built_in_template(std::string_view name);
inline constexpr const char* kBuiltInTemplates = "chatml, plain";  // for messages

}  // namespace moraine
