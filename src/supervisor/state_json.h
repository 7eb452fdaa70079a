// StateJson: structs to JSON and back, from one list of their fields.
//
// A struct names its fields once, in a template each_field(visit, value) beside it that calls visit("name", field) for
// each. Fields may be numbers, bools, enums, texts, such structs, and vectors of them. Reading leaves alone what is
// absent, so a later version may add fields. Numbers must be finite, but for a FreeNumber, which may be any.
#pragma once

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace moraine {

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};

// A loss that is none (NaN), infinite or beyond all use is told as a text: JSON has no such numbers, and who reads a
// line refuses large ones (host_wire.cc).
struct FreeNumber {
  static constexpr double kMost = 1e9;
  double value = 0;
};

inline double number_in(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') throw_error(Code::kCorrupt, "found no number in a text");
  return value;
}

template <class T>
Json state_to_json(const T& value);
template <class T>
void state_from_json(const Json& json, T* value);

struct StateWriter {
  Json json = Json::object();
  template <class T>
  void operator()(std::string_view name, const T& field) {
    json[name] = state_to_json(field);
  }
};

struct StateReader {
  const Json& json;
  template <class T>
  void operator()(std::string_view name, T& field) {
    if (json.contains(name)) state_from_json(json.at(name), &field);
  }
};

template <class T>
Json state_to_json(const T& value) {
  if constexpr (IsVector<T>::value) {
    Json list = Json::array();
    for (const auto& element : value) list.push_back(state_to_json(element));
    return list;
  } else if constexpr (std::is_enum_v<T>) {
    return Json(static_cast<int64_t>(value));
  } else if constexpr (std::is_same_v<T, FreeNumber>) {
    if (std::abs(value.value) < FreeNumber::kMost) return Json(value.value);
    return Json(std::isnan(value.value) ? std::string("nan") : fmt::format("{}", value.value));
  } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
    return Json(value);
  } else {
    StateWriter writer;
    T copy = value;
    each_field(writer, copy);
    return writer.json;
  }
}

template <class T>
void state_from_json(const Json& json, T* value) {
  if constexpr (IsVector<T>::value) {
    value->clear();
    for (const Json& element : json) state_from_json(element, &value->emplace_back());
  } else if constexpr (std::is_enum_v<T>) {
    *value = static_cast<T>(json.get<int64_t>());
  } else if constexpr (std::is_same_v<T, FreeNumber>) {
    if (json.is_null())  // as a NaN was told before
      value->value = std::numeric_limits<double>::quiet_NaN();
    else
      value->value = json.is_string() ? number_in(json.get<std::string>()) : json.get<double>();
  } else if constexpr (std::is_same_v<T, double>) {
    *value = json.is_null() ? 0 : json.get<double>();
  } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
    *value = json.get<T>();
  } else {
    StateReader reader{json};
    each_field(reader, *value);
  }
}

}  // namespace moraine
