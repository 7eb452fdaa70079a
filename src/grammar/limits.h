// GrammarLimits: what a schema or a set of tools may ask for.
//
// Everything here is small for real schemas and stops hostile ones. Bounds such as maxLength have
// no limit of their own: they are numbers in the state, not states.
#pragma once

#include <cstdint>

namespace moraine {

struct GrammarLimits {
  int64_t schema_bytes = 256 << 10;       // of a schema as compact JSON
  int64_t schema_depth = 64;              // schemas within schemas, allOf and $ref followed
  int64_t nodes = 16384;                  // parts of all schemas together, after merging
  int64_t alternatives = 65536;           // anyOf, oneOf and type lists, with what they lead to
  int64_t enum_entries = 8192;            // of one enum
  int64_t properties = 4096;              // of one object
  int64_t pattern_bytes = 4096;           // of one pattern
  int64_t automaton_states = 16384;       // of one pattern, format or range of numbers
  int64_t automaton_states_all = 262144;  // of a grammar
  int64_t work = 25'000'000;              // units of CompileWork, of a grammar
  int64_t nesting = 256;                  // arrays and objects within each other in an answer
  int64_t tools = 512;
  int64_t literal_bytes = 4096;  // of each fixed text around a tool call
};

}  // namespace moraine
