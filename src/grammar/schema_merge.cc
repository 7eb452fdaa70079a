// Keyword by keyword; what is in one schema only is taken over.
#include "grammar/schema_merge.h"

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "grammar/ids_hash.h"

namespace moraine {
namespace {

constexpr int64_t kMergeWork = 200;  // units of CompileWork, beside what is copied and compared

constexpr const char* kTypes[] = {"null",   "boolean", "integer", "number",
                                  "string", "array",   "object"};

Json both_of(const Json& a, const Json& b) {
  if (a == b || b == Json(true)) return a;
  if (a == Json(true)) return b;
  if (a == Json(false) || b == Json(false)) return false;
  return {{"allOf", Json::array({a, b})}};
}

const Json& member(const Json& object, const char* key, const Json& otherwise) {
  const auto found = object.find(key);
  return found == object.end() ? otherwise : *found;
}

void merge_members(const Json& a, const Json& b, Json* out) {
  static const Json kNone = Json::object(), kAny = true;
  const Json &pa = member(a, "properties", kNone), &pb = member(b, "properties", kNone);
  const Json &ra = member(a, "additionalProperties", kAny),
             &rb = member(b, "additionalProperties", kAny);
  if (!pa.is_object() || !pb.is_object()) return;  // refused where it is compiled
  Json all = Json::object();
  for (const auto& [name, schema] : pa.items()) {
    const auto other = pb.find(name);
    all[name] = both_of(schema, other == pb.end() ? rb : *other);
  }
  for (const auto& [name, schema] : pb.items()) {
    if (!pa.contains(name)) all[name] = both_of(schema, ra);
  }
  if (a.contains("properties") || b.contains("properties")) (*out)["properties"] = std::move(all);
  if (a.contains("additionalProperties") || b.contains("additionalProperties")) {
    (*out)["additionalProperties"] = both_of(ra, rb);
  }
}

void merge_items(const Json& a, const Json& b, const std::string& place, Json* out) {
  const auto has = [](const Json& s) { return s.contains("items") || s.contains("prefixItems"); };
  if (!has(a) && !has(b)) return;
  const ItemSchemas ia = item_schemas(a, place), ib = item_schemas(b, place);
  Json first = Json::array();
  for (size_t i = 0; i < std::max(ia.first.size(), ib.first.size()); ++i) {
    first.push_back(both_of(i < ia.first.size() ? ia.first[i] : ia.others,
                            i < ib.first.size() ? ib.first[i] : ib.others));
  }
  out->erase("additionalItems");
  (*out)["prefixItems"] = std::move(first);
  (*out)["items"] = both_of(ia.others, ib.others);
}

// False if no type is left.
bool merge_types(const Json& a, const Json& b, const std::string& place, Json* out) {
  if (!a.contains("type") && !b.contains("type")) return true;
  const std::vector<std::string> ta = schema_types(a, place), tb = schema_types(b, place);
  Json both = Json::array();
  const auto has = [](const std::vector<std::string>& types, const std::string& type) {
    return std::find(types.begin(), types.end(), type) != types.end();
  };
  for (const std::string& type : schema_types(Json::object(), place)) {
    const bool in_a = has(ta, type) || (type == "integer" && has(ta, "number"));
    const bool in_b = has(tb, type) || (type == "integer" && has(tb, "number"));
    if (in_a && in_b) both.push_back(type);
  }
  if (has(ta, "number") && has(tb, "number")) {  // which holds integers
    both.erase(std::find(both.begin(), both.end(), Json("integer")));
  }
  (*out)["type"] = both;
  return !both.empty();
}

// Values that are equal have equal hashes, and so have large numbers that are not.
size_t hash_of_value(const Json& value) {
  const std::hash<std::string> of_text;
  if (value.is_number()) return std::hash<double>()(value.get<double>());
  if (value.is_string()) return of_text(value.text());
  size_t hash = static_cast<size_t>(value.kind());
  if (value.is_boolean()) return mix_hash(hash, value.get<bool>() ? 1 : 0);
  if (value.is_array()) {
    for (const Json& element : value) hash = mix_hash(hash, hash_of_value(element));
  }
  if (value.is_object()) {
    for (const auto& [name, member] : value.items())
      hash = mix_hash(mix_hash(hash, of_text(name)), hash_of_value(member));
  }
  return hash;
}

// Values to be found in. What is compared is counted, as many may have one hash.
class ValueSet {
 public:
  ValueSet(const std::string& place, CompileWork& work) : place_(place), work_(work) {}
  // False if it is there already.
  bool add(const Json& value) {
    const size_t hash = hash_of_value(value);
    if (has(value, hash)) return false;
    values_.emplace(hash, &value);
    return true;
  }
  bool has(const Json& value) const { return has(value, hash_of_value(value)); }

 private:
  bool has(const Json& value, size_t hash) const {
    const auto [begin, end] = values_.equal_range(hash);
    for (auto at = begin; at != end; ++at) {
      work_.spend_at(copy_work(value), place_);
      if (*at->second == value) return true;
    }
    return false;
  }
  const std::string& place_;
  CompileWork& work_;
  std::unordered_multimap<size_t, const Json*> values_;
};

void merge_enums(const Json& a, const Json& b, ValueSet in_b, Json* out) {
  const auto has = [](const Json& s) { return s.contains("const") || s.contains("enum"); };
  if (!has(a) || !has(b)) return;
  const auto values = [](const Json& s) {
    return s.contains("const") ? Json::array({s["const"]}) : s["enum"];
  };
  const Json va = values(a), vb = values(b);
  for (const Json& value : vb) in_b.add(value);
  Json both = Json::array();
  for (const Json& value : va) {
    if (in_b.has(value)) both.push_back(value);
  }
  out->erase("const");
  (*out)["enum"] = std::move(both);
}

void merge_required(const Json& a, const Json& b, ValueSet known, Json* out) {
  if (!a.contains("required") || !b.contains("required")) return;
  const Json &ra = a["required"], &rb = b["required"];
  if (!ra.is_array() || !rb.is_array()) return;
  Json all = ra;
  for (const Json& name : ra) known.add(name);
  for (const Json& name : rb) {
    if (known.add(name)) all.push_back(name);
  }
  (*out)["required"] = std::move(all);
}

bool merged_elsewhere(const std::string& key) {
  static constexpr const char* kKeys[] = {"properties",      "additionalProperties",
                                          "items",           "prefixItems",
                                          "additionalItems", "type",
                                          "const",           "enum",
                                          "required"};
  return std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
}

bool is_lower_bound(const std::string& key) {
  return key == "minimum" || key == "exclusiveMinimum" || key == "minLength" || key == "minItems";
}
bool is_upper_bound(const std::string& key) {
  return key == "maximum" || key == "exclusiveMaximum" || key == "maxLength" || key == "maxItems";
}

bool is_note(const std::string& key) {
  return key == "title" || key == "description" || key == "default" || key == "examples" ||
         key == "deprecated" || key == "readOnly" || key == "writeOnly" || key.starts_with('$') ||
         key.starts_with("x-");
}

}  // namespace

std::vector<std::string> schema_types(const Json& schema, const std::string& place) {
  const auto type = schema.find("type");
  std::vector<std::string> types;
  if (type == schema.end()) return {std::begin(kTypes), std::end(kTypes)};
  for (const Json& name : type->is_array() ? *type : Json::array({*type})) {
    const std::string text = name.is_string() ? name.get<std::string>() : json_text(name);
    if (std::find(std::begin(kTypes), std::end(kTypes), text) == std::end(kTypes)) {
      throw_error(Code::kInvalidArgument,
                  "{}: type is '{}', want null, boolean, integer, number, string, array or object",
                  place, printable(text, 100));
    }
    if (std::find(types.begin(), types.end(), text) == types.end()) types.push_back(text);
  }
  return types;
}

ItemSchemas item_schemas(const Json& schema, const std::string& place) {
  ItemSchemas out;
  const auto prefix = schema.find("prefixItems"), items = schema.find("items");
  if (items != schema.end() && items->is_array()) {
    if (prefix != schema.end()) {
      throw_error(Code::kInvalidArgument, "{}: items is a list beside prefixItems", place);
    }
    out.first = *items;
    if (schema.contains("additionalItems")) out.others = schema["additionalItems"];
    return out;
  }
  if (prefix != schema.end()) out.first = *prefix;
  if (items != schema.end()) out.others = *items;
  if (!out.first.is_array()) {
    throw_error(Code::kInvalidArgument, "{}: prefixItems is not a list of schemas", place);
  }
  return out;
}

Json merge_schemas(const Json& a, const Json& b, const std::string& place, CompileWork& work) {
  work.spend_at(kMergeWork + 3 * (copy_work(a) + copy_work(b)), place);
  if (a == b || b == Json(true)) return a;
  if (a == Json(true)) return b;
  if (a == Json(false) || b == Json(false)) return false;
  Json out = a;
  for (const auto& [key, value] : b.items()) {
    if (!out.contains(key)) {
      out[key] = value;
    } else if (out[key] == value || merged_elsewhere(key) || is_note(key)) {
      continue;
    } else if (is_lower_bound(key) && value.is_number() && out[key].is_number()) {
      if (out[key].less_than(value)) out[key] = value;
    } else if (is_upper_bound(key) && value.is_number() && out[key].is_number()) {
      if (value.less_than(out[key])) out[key] = value;
    } else {
      throw_error(Code::kInvalidArgument,
                  "{}: {} stands in two schemas that must hold together, which is not supported; "
                  "write them as one",
                  place, printable(key, 100));
    }
  }
  if (out.contains("anyOf") && out.contains("oneOf")) {
    throw_error(Code::kInvalidArgument,
                "{}: anyOf and oneOf that must hold together are not supported; write them as one",
                place);
  }
  merge_members(a, b, &out);
  merge_items(a, b, place, &out);
  merge_enums(a, b, ValueSet(place, work), &out);
  merge_required(a, b, ValueSet(place, work), &out);
  return merge_types(a, b, place, &out) ? out : Json(false);
}

}  // namespace moraine
