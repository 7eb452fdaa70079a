// SchemaDisjoint: whether no value can satisfy two schemas, as far as that is easily seen.
//
//   different types          const and enum count with the types of their values
//   different const or enum
//   two objects              one requires a member that both declare, with disjoint schemas, or that the other forbids
//   anyOf, oneOf, $ref       followed
//
// What is not seen is no proof of the opposite. By the words of JSON Schema, without what this program means by
// keywords of one type.
// Cost: bounded by kDisjointSteps and by the work that is left, after which nothing is seen any more.
#pragma once

#include <cstdint>
#include <functional>

#include "base/json.h"
#include "grammar/compile_work.h"

namespace moraine {

inline constexpr int64_t kDisjointSteps = 1 << 16;

struct DisjointSearch {
  // The schema that a $ref names; it has passed the checks of its keywords.
  std::function<const Json&(const Json& reference)> referenced;
  CompileWork& work;
  int64_t steps = kDisjointSteps;  // left
  int64_t depth = 0;
};
bool disjoint_schemas(const Json& a, const Json& b, DisjointSearch& search);

}  // namespace moraine
