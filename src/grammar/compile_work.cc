// What one value costs, and the refusal.
#include "grammar/compile_work.h"

#include "base/error.h"

namespace moraine {
namespace {

constexpr int64_t kScalarWork = 2, kTextWork = 8, kListWork = 10, kMemberWork = 12;
constexpr int64_t kBytesCopied = 64;  // in one unit

}  // namespace

void CompileWork::refuse(const std::string& place) const {
  throw_error(Code::kInvalidArgument,
              "schema {}: compiling it takes more than {} units of work, which is the limit; leave "
              "out some of anyOf, "
              "oneOf, allOf and $ref within each other or with keywords beside them, shorten long "
              "enums that these "
              "repeat, or write patterns with smaller repetitions",
              place, most_);
}

int64_t copy_work(const Json& value) {
  if (value.is_string())
    return kTextWork + static_cast<int64_t>(value.text().size()) / kBytesCopied;
  if (value.is_array()) {
    int64_t work = kListWork;
    for (const Json& element : value) work += copy_work(element);
    return work;
  }
  if (!value.is_object()) return kScalarWork;
  int64_t work = kListWork;
  for (const auto& [name, member] : value.items())
    work += kMemberWork + static_cast<int64_t>(name.size()) / kBytesCopied + copy_work(member);
  return work;
}

}  // namespace moraine
