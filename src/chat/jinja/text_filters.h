// TextFilters: what the tables of filters and methods call for texts.
//
// Filters take any value and print it; methods are called on texts only.
#pragma once

#include <string_view>

#include "chat/jinja/function.h"

namespace moraine::jinja {

Value filter_upper(Runtime& rt, const Value& self, const Bound& a);
Value filter_lower(Runtime& rt, const Value& self, const Bound& a);
Value filter_capitalize(Runtime& rt, const Value& self, const Bound& a);
Value filter_title(Runtime& rt, const Value& self, const Bound& a);
Value filter_string(Runtime& rt, const Value& self, const Bound& a);
Value filter_trim(Runtime& rt, const Value& self, const Bound& a);
Value filter_replace(Runtime& rt, const Value& self, const Bound& a);
Value filter_indent(Runtime& rt, const Value& self, const Bound& a);
Value filter_center(Runtime& rt, const Value& self, const Bound& a);
Value filter_wordcount(Runtime& rt, const Value& self, const Bound& a);
Value filter_int(Runtime& rt, const Value& self, const Bound& a);
Value filter_float(Runtime& rt, const Value& self, const Bound& a);

Value method_title(Runtime& rt, const Value& self, const Bound& a);
Value method_lstrip(Runtime& rt, const Value& self, const Bound& a);
Value method_rstrip(Runtime& rt, const Value& self, const Bound& a);
Value method_split(Runtime& rt, const Value& self, const Bound& a);
Value method_rsplit(Runtime& rt, const Value& self, const Bound& a);
Value method_splitlines(Runtime& rt, const Value& self, const Bound& a);
Value method_startswith(Runtime& rt, const Value& self, const Bound& a);
Value method_endswith(Runtime& rt, const Value& self, const Bound& a);
Value method_find(Runtime& rt, const Value& self, const Bound& a);
Value method_rfind(Runtime& rt, const Value& self, const Bound& a);
Value method_index(Runtime& rt, const Value& self, const Bound& a);
Value method_count(Runtime& rt, const Value& self, const Bound& a);
Value method_join(Runtime& rt, const Value& self, const Bound& a);
Value method_format(Runtime& rt, const Value& self, const Arguments& a);
Value method_remove_end(Runtime& rt, const Value& self, const Bound& a, bool start);
// `what`: "isdigit", "isupper", ...
Value method_is(Runtime& rt, const Value& self, std::string_view what);

}  // namespace moraine::jinja
