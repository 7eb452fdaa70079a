// Member: a member of a JSON object, if there is one.
#pragma once

#include "base/json.h"

namespace moraine {

// nullptr without one, and of what is no object.
inline const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto at = object.find(key);
  return at == object.end() ? nullptr : &*at;
}

}  // namespace moraine
