// SchemaDisjoint: one rule after another.
#include "grammar/schema_disjoint.h"

#include <algorithm>
#include <string>
#include <vector>

#include "grammar/member.h"

namespace moraine {
namespace {

constexpr int64_t kDepthMost = 32;  // schemas within each other, references followed
constexpr int64_t kPairOfSchemasWork = 40, kListedWork = 2;  // units of CompileWork

// One bit for each type; whole numbers are numbers.
enum TypeBits : uint32_t {
  kNull = 1,
  kBoolean = 2,
  kWhole = 4,
  kFraction = 8,
  kText = 16,
  kArray = 32,
  kObject = 64,
  kAllTypes = 127
};

uint32_t bits_of_name(const std::string& name) {
  if (name == "null") return kNull;
  if (name == "boolean") return kBoolean;
  if (name == "integer") return kWhole;
  if (name == "number") return kWhole | kFraction;
  if (name == "string") return kText;
  return name == "array" ? kArray : kObject;
}

uint32_t bits_of_value(const Json& value) {
  if (value.is_null()) return kNull;
  if (value.is_boolean()) return kBoolean;
  if (value.is_number()) return kWhole | kFraction;  // 1.0 is whole too
  if (value.is_string()) return kText;
  return value.is_array() ? kArray : kObject;
}

bool is_nullable(const Json& schema) {
  const Json* nullable = member(schema, "nullable");
  return nullable != nullptr && *nullable == Json(true);
}

// The values that const and enum leave; false if there is neither.
bool values_of(const Json& schema, std::vector<const Json*>* values) {
  if (const Json* only = member(schema, "const")) {
    values->push_back(only);
    return true;
  }
  const Json* list = member(schema, "enum");
  if (list == nullptr || !list->is_array()) return false;
  for (const Json& value : *list) values->push_back(&value);
  return true;
}

uint32_t bits_of_type(const Json& type) {
  if (type.is_string()) return bits_of_name(type.get<std::string>());
  uint32_t bits = 0;
  for (const Json& name : type) {
    if (name.is_string()) bits |= bits_of_name(name.get<std::string>());
  }
  return bits;
}

uint32_t types_of(const Json& schema) {
  const Json* type = member(schema, "type");
  uint32_t bits = type == nullptr ? uint32_t{kAllTypes} : bits_of_type(*type);
  std::vector<const Json*> values;
  if (values_of(schema, &values)) {
    uint32_t of_values = 0;
    for (const Json* value : values) of_values |= bits_of_value(*value);
    bits &= of_values;
  }
  return is_nullable(schema) ? bits | kNull : bits;
}

bool forbids(const Json& schema, const std::string& name) {
  const Json* rest = member(schema, "additionalProperties");
  const Json* declared = member(schema, "properties");
  return rest != nullptr && *rest == Json(false) &&
         (declared == nullptr || !declared->contains(name));
}

// `a` requires a member that `b` can not have, or not with that value.
bool disjoint_members(const Json& a, const Json& b, DisjointSearch& search) {
  const Json *required = member(a, "required"), *mine = member(a, "properties"),
             *theirs = member(b, "properties");
  if (required == nullptr || !required->is_array()) return false;
  for (const Json& json : *required) {
    if (--search.steps <= 0) return false;
    if (!json.is_string()) continue;
    const std::string name = json.get<std::string>();
    if (forbids(b, name)) return true;
    if (mine == nullptr || theirs == nullptr) continue;
    const auto one = mine->find(name), other = theirs->find(name);
    if (one != mine->end() && other != theirs->end() && disjoint_schemas(*one, *other, search))
      return true;
  }
  return false;
}

bool disjoint_values(const Json& a, const Json& b, DisjointSearch& search) {
  std::vector<const Json*> left, right;
  if (!values_of(a, &left) || !values_of(b, &right)) return false;
  for (const Json* x : left) {
    for (const Json* y : right) {
      const bool left = --search.steps > 0 && search.work.spend(copy_work(*x));
      if (!left || *x == *y) return false;
    }
  }
  return true;
}

// What `a` refers to or chooses from has nothing in common with `b`; keywords beside only narrow it.
bool disjoint_inside(const Json& a, const Json& b, DisjointSearch& search) {
  if (is_nullable(a)) return false;
  if (const Json* reference = member(a, "$ref"))
    if (reference->is_string() && disjoint_schemas(search.referenced(*reference), b, search))
      return true;
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const Json* parts = member(a, keyword);
    if (parts == nullptr || !parts->is_array()) continue;
    if (std::all_of(parts->begin(), parts->end(),
                    [&](const Json& part) { return disjoint_schemas(part, b, search); }))
      return true;
  }
  const Json* all = member(a, "allOf");
  return all != nullptr && all->is_array() &&
         std::any_of(all->begin(), all->end(),
                     [&](const Json& part) { return disjoint_schemas(part, b, search); });
}

// What types_of looks through.
int64_t list_work(const Json& schema) {
  int64_t work = 0;
  for (const char* keyword : {"enum", "type"}) {
    const Json* list = member(schema, keyword);
    if (list != nullptr) work += kListedWork * static_cast<int64_t>(list->size());
  }
  return work;
}

bool disjoint_here(const Json& a, const Json& b, DisjointSearch& search) {
  if (!a.is_object() || !b.is_object()) return a == Json(false) || b == Json(false);
  const uint32_t types = types_of(a) & types_of(b);
  if (types == 0) return true;
  const bool both_null = (types & kNull) != 0;
  if (!both_null && disjoint_values(a, b, search)) return true;
  if (types == kObject && (disjoint_members(a, b, search) || disjoint_members(b, a, search)))
    return true;
  return disjoint_inside(a, b, search) || disjoint_inside(b, a, search);
}

}  // namespace

bool disjoint_schemas(const Json& a, const Json& b, DisjointSearch& search) {
  if (--search.steps <= 0 || search.depth == kDepthMost) return false;
  if (!search.work.spend(kPairOfSchemasWork + list_work(a) + list_work(b))) return false;
  ++search.depth;
  const bool disjoint = disjoint_here(a, b, search);
  --search.depth;
  return disjoint;
}

}  // namespace moraine
