// Json: a JSON value that is built, or read and changed.
//
// Lists in braces mean what they mean in JavaScript: {{"prompt", "a"}, {"n", 3}}, a list of pairs that begin with a
// text, is an object, {1, 2} is an array. Json::array({...}) and Json::object({...}) say it where it could be either.
//
// Types:    null, boolean, integer (int64_t or uint64_t), double, string, array, object. An object keeps its members in
//           the order in which they came. Numbers are equal if they have the same value, whatever their types; objects
//           if they have the same members in the same order.
// Aliasing: references to what is in an array or object end when it gets longer or shorter.
// Errors:   kCorrupt for a value of another kind than asked for, and for an element or member that is absent. Where
//           something is put into a null, it becomes an array or an object.
// Cost:     16 bytes, and what the string or the list needs. A member is found in O(log members); of a small object, by
//           comparing names. Copies are deep. Copying, comparing, printing and freeing recurse once for each level.
//           A hundred files include this one, so all that is longer than a line is in json.cc.
// Threads:  const calls from any thread.
//
// Large documents, and those whose members may be given twice, are read with base/json_document.h.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_iterator.h"

namespace moraine {

struct JsonMember;

class Json {
 public:
  enum class Kind { kNull, kBoolean, kInteger, kUnsigned, kFloat, kString, kArray, kObject };

  using Iterator = JsonIterator<Json>;
  using ConstIterator = JsonIterator<const Json>;

  Json() noexcept {}
  Json(std::nullptr_t) noexcept {}
  Json(std::same_as<bool> auto value) noexcept : kind_(Kind::kBoolean) { payload_.boolean = value; }
  Json(int value) noexcept : Json(static_cast<long long>(value)) {}
  Json(long value) noexcept : Json(static_cast<long long>(value)) {}
  Json(long long value) noexcept : kind_(Kind::kInteger) { payload_.integer = value; }
  Json(unsigned value) noexcept : Json(static_cast<unsigned long long>(value)) {}
  Json(unsigned long value) noexcept : Json(static_cast<unsigned long long>(value)) {}
  Json(unsigned long long value) noexcept : kind_(Kind::kUnsigned) { payload_.natural = value; }
  Json(double value) noexcept : kind_(Kind::kFloat) { payload_.real = value; }
  Json(std::string text);
  Json(std::string_view text);
  Json(const char* text);
  Json(std::initializer_list<Json> list);
  template <class T>
  Json(const std::vector<T>& values) : Json(array()) {
    for (const T& value : values) push_back(value);
  }
  Json(const Json& other);
  Json(Json&& other) noexcept { swap(other); }
  Json& operator=(Json other) noexcept { return swap(other), *this; }
  ~Json();
  static Json array(std::initializer_list<Json> elements = {});
  static Json object(std::initializer_list<Json> members = {});

  Kind kind() const { return kind_; }
  const char* type_name() const;  // "null", "boolean", "number", "string", "array", "object"
  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_boolean() const { return kind_ == Kind::kBoolean; }
  bool is_number_integer() const { return kind_ == Kind::kInteger || is_number_unsigned(); }
  bool is_number_unsigned() const { return kind_ == Kind::kUnsigned; }
  bool is_number_float() const { return kind_ == Kind::kFloat; }
  bool is_number() const { return is_number_integer() || is_number_float(); }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_array() const { return kind_ == Kind::kArray; }
  bool is_object() const { return kind_ == Kind::kObject; }

  // As bool, int32_t, int64_t, uint64_t, float, double, std::string, Json, or std::vector of int32_t, int64_t, double
  // or std::string. Numbers are converted as static_cast does.
  template <class T>
  T get() const {
    T value{};
    read(&value);
    return value;
  }
  std::string& text();
  const std::string& text() const;

  // How many elements or members: of null none, of a scalar one.
  size_t size() const;
  bool empty() const { return size() == 0; }
  Iterator begin() { return {this, 0}; }
  Iterator end() { return {this, size()}; }
  ConstIterator begin() const { return {this, 0}; }
  ConstIterator end() const { return {this, size()}; }
  const std::vector<JsonMember>& items() const;  // of an object; of null none

  // What stands at `index`, in an object by order.
  Json& element(size_t index);
  const Json& element(size_t index) const;
  Json& operator[](std::integral auto index) { return element(static_cast<size_t>(index)); }
  const Json& operator[](std::integral auto index) const {
    return element(static_cast<size_t>(index));
  }
  const Json& at(std::integral auto index) const { return element(static_cast<size_t>(index)); }
  Json& back() { return element(size() - 1); }
  const Json& back() const { return element(size() - 1); }

  // The member of this name. operator[] adds a null if there is none; find gives end(), and value `otherwise`.
  Json& operator[](std::string_view name);
  const Json& operator[](std::string_view name) const { return at(name); }
  const Json& at(std::string_view name) const;
  bool contains(std::string_view name) const { return member(name) != nullptr; }
  Iterator find(std::string_view name) { return {this, index_of(name)}; }
  ConstIterator find(std::string_view name) const { return {this, index_of(name)}; }
  template <class T>
  T value(std::string_view name, const T& otherwise) const {
    const Json* found = expect(Kind::kObject).member(name);
    return found == nullptr ? otherwise : found->get<T>();
  }
  std::string value(std::string_view name, const char* otherwise) const;

  void push_back(Json value) { emplace_back(std::move(value)); }
  Json& emplace_back(Json value);
  void update(const Json& other);       // its members go over those that are here
  size_t erase(std::string_view name);  // how many went: 0 or 1
  void erase(std::integral auto index) { erase_index(static_cast<size_t>(index)); }
  void erase(Iterator at) { erase_index(at.index()); }

  bool less_than(const Json& other) const;  // of two numbers
  friend bool operator==(const Json& a, const Json& b) { return same(a, b); }
  friend std::ostream& operator<<(std::ostream& out, const Json& json) { return json.print(out); }

 private:
  struct Object;

  void read(bool* value) const;
  void read(int32_t* value) const;
  void read(int64_t* value) const;
  void read(uint64_t* value) const;
  void read(float* value) const;
  void read(double* value) const;
  void read(std::string* value) const;
  void read(Json* value) const;
  void read(std::vector<int32_t>* values) const;
  void read(std::vector<int64_t>* values) const;
  void read(std::vector<double>* values) const;
  void read(std::vector<std::string>* values) const;
  template <class T>
  void read_number(T* value) const;
  template <class T>
  void read_elements(std::vector<T>* values) const;
  static bool same(const Json& a, const Json& b);
  static Json take(const Json& listed);
  std::ostream& print(std::ostream& out) const;
  void swap(Json& other) noexcept;
  const Json& expect(Kind kind) const;  // *this
  Json* become(Kind kind);              // this; a null becomes an empty `kind`
  const Json* member(std::string_view name) const;
  size_t index_of(std::string_view name) const;  // size(): absent
  void erase_index(size_t index);

  union Payload {
    bool boolean;
    int64_t integer;
    uint64_t natural;
    double real;
    std::string* text;
    std::vector<Json>* array;
    Object* object;
  };
  // Mutable, because the elements of a list in braces are const, and the value made of it takes what they hold.
  mutable Kind kind_ = Kind::kNull;
  mutable Payload payload_{};
};

struct JsonMember {
  std::string name;
  Json value;
  bool operator==(const JsonMember&) const = default;
};

// Errors: kCorrupt with `name` and what is no JSON: the byte where the text stops being it, a
// number that no double holds, arrays and objects nested deeper than kJsonDepth.
// Of a member that is given twice the last value counts.
inline constexpr int64_t kJsonDepth = 256;
Json parse_json(std::string_view text, const std::string& name = "the text");
Json parse_json_or_null(std::string_view text);  // null where parse_json would throw

// The text; indent -1: on one line. Bytes that are not UTF-8 become U+FFFD and numbers that are not finite null, so
// writing never fails. A double has the digits that bring it back.
std::string json_text(const Json& json, int indent = -1);
// Appends the text of one string, quoted, as json_text writes it.
void append_json_string(std::string_view text, std::string* out);

}  // namespace moraine
