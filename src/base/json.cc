// A tag beside a word; strings, arrays and objects lie behind a pointer. Large objects have an index.
#include "base/json.h"

#include <map>
#include <ostream>

#include "base/error.h"

namespace moraine {
namespace {

// Up to here comparing all names is quicker than an index, and needs no memory.
constexpr size_t kMembersWithoutIndex = 16;

bool below_zero(const Json& number) {
  return !number.is_number_unsigned() && number.get<int64_t>() < 0;
}

bool same_number(const Json& a, const Json& b) {
  if (a.is_number_float() || b.is_number_float()) return a.get<double>() == b.get<double>();
  return below_zero(a) == below_zero(b) && a.get<uint64_t>() == b.get<uint64_t>();
}

}  // namespace

struct Json::Object {
  std::vector<JsonMember> members;
  std::map<std::string, size_t, std::less<>> index;  // of all members, if they are many

  // members.size(): absent.
  size_t find(std::string_view name) const {
    if (index.empty()) {
      size_t at = 0;
      while (at < members.size() && members[at].name != name) ++at;
      return at;
    }
    const auto found = index.find(name);
    return found == index.end() ? members.size() : found->second;
  }

  Json& add(std::string_view name) {
    members.push_back({std::string(name), Json()});
    if (index.empty() && members.size() > kMembersWithoutIndex) {
      for (size_t i = 0; i < members.size(); ++i) index.emplace(members[i].name, i);
    } else if (!index.empty()) {
      index.emplace(name, members.size() - 1);
    }
    return members.back().value;
  }

  void erase(size_t at) {
    if (!index.empty()) index.erase(members[at].name);
    for (auto& [name, i] : index) i -= i > at;
    members.erase(members.begin() + static_cast<std::ptrdiff_t>(at));
  }
};

Json::Json(std::string text) : kind_(Kind::kString) {
  payload_.text = new std::string(std::move(text));
}
Json::Json(std::string_view text) : Json(std::string(text)) {}
Json::Json(const char* text) : Json(std::string(text)) {}

Json::Json(std::initializer_list<Json> list) {
  bool pairs = true;
  for (const Json& each : list) {
    pairs = pairs && each.is_array() && each.size() == 2 && each.element(0).is_string();
  }
  *this = pairs ? object(list) : array(list);
}

Json::Json(const Json& other) : payload_(other.payload_) {
  if (other.is_string()) payload_.text = new std::string(*other.payload_.text);
  if (other.is_array()) payload_.array = new std::vector<Json>(*other.payload_.array);
  if (other.is_object()) payload_.object = new Object(*other.payload_.object);
  kind_ = other.kind_;
}

Json::~Json() {
  if (is_string()) delete payload_.text;
  if (is_array()) delete payload_.array;
  if (is_object()) delete payload_.object;
}

Json Json::array(std::initializer_list<Json> elements) {
  Json json;
  std::vector<Json>& array = *json.become(Kind::kArray)->payload_.array;
  array.reserve(elements.size());
  for (const Json& each : elements) array.push_back(take(each));
  return json;
}

Json Json::object(std::initializer_list<Json> members) {
  Json json;
  json.become(Kind::kObject);
  for (const Json& each : members) {
    const std::string& name = each.expect(Kind::kArray).element(0).text();
    if (json.member(name) == nullptr) json[name] = take(each.element(1));
  }
  return json;
}

Json Json::take(const Json& listed) {
  Json json;
  std::swap(json.kind_, listed.kind_);
  std::swap(json.payload_, listed.payload_);
  return json;
}

void Json::swap(Json& other) noexcept {
  std::swap(kind_, other.kind_);
  std::swap(payload_, other.payload_);
}

const char* Json::type_name() const {
  switch (kind_) {
    case Kind::kNull:
      return "null";
    case Kind::kBoolean:
      return "boolean";
    case Kind::kString:
      return "string";
    case Kind::kArray:
      return "array";
    case Kind::kObject:
      return "object";
    default:
      return "number";
  }
}

const Json& Json::expect(Kind kind) const {
  if (kind_ == kind) return *this;
  Json wanted;
  wanted.become(kind);
  throw_error(Code::kCorrupt, "read JSON: found {}, wanted {}", type_name(), wanted.type_name());
}

Json* Json::become(Kind kind) {
  if (!is_null()) {
    expect(kind);
    return this;
  }
  if (kind == Kind::kString) payload_.text = new std::string();
  if (kind == Kind::kArray) payload_.array = new std::vector<Json>();
  if (kind == Kind::kObject) payload_.object = new Object();
  kind_ = kind;
  return this;
}

// Values.

template <class T>
void Json::read_number(T* value) const {
  switch (kind_) {
    case Kind::kInteger:
      *value = static_cast<T>(payload_.integer);
      return;
    case Kind::kUnsigned:
      *value = static_cast<T>(payload_.natural);
      return;
    case Kind::kFloat:
      *value = static_cast<T>(payload_.real);
      return;
    default:
      throw_error(Code::kCorrupt, "read JSON: found {}, wanted number", type_name());
  }
}

template <class T>
void Json::read_elements(std::vector<T>* values) const {
  for (const Json& each : *expect(Kind::kArray).payload_.array) values->push_back(each.get<T>());
}

void Json::read(bool* value) const { *value = expect(Kind::kBoolean).payload_.boolean; }
void Json::read(int32_t* value) const { read_number(value); }
void Json::read(int64_t* value) const { read_number(value); }
void Json::read(uint64_t* value) const { read_number(value); }
void Json::read(float* value) const { read_number(value); }
void Json::read(double* value) const { read_number(value); }
void Json::read(std::string* value) const { *value = text(); }
void Json::read(Json* value) const { *value = *this; }
void Json::read(std::vector<int32_t>* values) const { read_elements(values); }
void Json::read(std::vector<int64_t>* values) const { read_elements(values); }
void Json::read(std::vector<double>* values) const { read_elements(values); }
void Json::read(std::vector<std::string>* values) const { read_elements(values); }

std::string& Json::text() { return *expect(Kind::kString).payload_.text; }
const std::string& Json::text() const { return *expect(Kind::kString).payload_.text; }

bool Json::less_than(const Json& other) const {
  if (is_number_float() || other.is_number_float()) return get<double>() < other.get<double>();
  if (below_zero(*this) != below_zero(other)) return below_zero(*this);
  return get<uint64_t>() <
         other.get<uint64_t>();  // also of two below zero: their bits are in order
}

bool Json::same(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return same_number(a, b);
  if (a.kind_ != b.kind_) return false;
  switch (a.kind_) {
    case Kind::kBoolean:
      return a.payload_.boolean == b.payload_.boolean;
    case Kind::kString:
      return *a.payload_.text == *b.payload_.text;
    case Kind::kArray:
      return *a.payload_.array == *b.payload_.array;
    case Kind::kObject:
      return a.payload_.object->members == b.payload_.object->members;
    default:
      return true;
  }
}

std::ostream& Json::print(std::ostream& out) const { return out << json_text(*this); }

// Elements and members.

size_t Json::size() const {
  if (is_array()) return payload_.array->size();
  if (is_object()) return payload_.object->members.size();
  return is_null() ? 0 : 1;
}

const std::vector<JsonMember>& Json::items() const {
  static const std::vector<JsonMember> kNone;
  return is_null() ? kNone : expect(Kind::kObject).payload_.object->members;
}

const Json& Json::element(size_t index) const {
  if (index >= size()) {
    throw_error(Code::kCorrupt, "read JSON: element {} of {} with {}", index, type_name(), size());
  }
  if (is_array()) return (*payload_.array)[index];
  return is_object() ? payload_.object->members[index].value : *this;
}

Json& Json::element(size_t index) {
  return const_cast<Json&>(static_cast<const Json*>(this)->element(index));
}

const Json* Json::member(std::string_view name) const {
  if (!is_object()) return nullptr;
  const size_t at = payload_.object->find(name);
  return at == size() ? nullptr : &payload_.object->members[at].value;
}

size_t Json::index_of(std::string_view name) const {
  return is_object() ? payload_.object->find(name) : size();
}

const Json& Json::at(std::string_view name) const {
  const Json* found = expect(Kind::kObject).member(name);
  if (found == nullptr) throw_error(Code::kCorrupt, "read JSON: '{}' is missing", name);
  return *found;
}

std::string Json::value(std::string_view name, const char* otherwise) const {
  return value(name, std::string(otherwise));
}

Json& Json::operator[](std::string_view name) {
  Object& object = *become(Kind::kObject)->payload_.object;
  const size_t at = object.find(name);
  return at == object.members.size() ? object.add(name) : object.members[at].value;
}

Json& Json::emplace_back(Json value) {
  return become(Kind::kArray)->payload_.array->emplace_back(std::move(value));
}

void Json::update(const Json& other) {
  for (const auto& [name, value] : other.items()) (*this)[name] = value;
}

size_t Json::erase(std::string_view name) {
  const Object& object = *expect(Kind::kObject).payload_.object;
  const size_t at = object.find(name);
  if (at == object.members.size()) return 0;
  erase_index(at);
  return 1;
}

void Json::erase_index(size_t index) {
  element(index);  // there is one
  if (is_object()) return payload_.object->erase(index);
  std::vector<Json>& array = *expect(Kind::kArray).payload_.array;
  array.erase(array.begin() + static_cast<std::ptrdiff_t>(index));
}

}  // namespace moraine
