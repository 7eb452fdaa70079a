// TextWindows: documents in order, each cut from its beginning.
#include "cli/text_windows.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/file_system.h"

namespace moraine {
namespace {

// Windows of one document, while tokens are wanted; returns how many are predicted.
int64_t cut(std::span<const int32_t> ids, int64_t context, int64_t wanted,
            std::vector<std::vector<int32_t>>* windows) {
  const int64_t n = std::min(static_cast<int64_t>(ids.size()) - 1, wanted);
  for (int64_t begin = 0; begin < n; begin += context) {
    const int64_t end = std::min(begin + context, n);
    windows->emplace_back(ids.begin() + begin, ids.begin() + end + 1);
  }
  return std::max<int64_t>(n, 0);
}

}  // namespace

std::vector<std::vector<int32_t>> read_windows(std::span<const std::string> paths,
                                               const WindowRule& rule) {
  std::vector<std::vector<int32_t>> windows;
  int64_t wanted = rule.tokens_max > 0 ? rule.tokens_max : std::numeric_limits<int64_t>::max();
  FileSystem& fs = posix_file_system();
  for (const std::string& path : expand_inputs(fs, {paths.begin(), paths.end()})) {
    TextInput input(fs, path, rule.input);
    std::string document;
    while (wanted > 0 && input.next(&document)) {
      std::vector<int32_t> ids = rule.tokenizer.encode_ordinary(document);
      if (rule.begin.put) ids.insert(ids.begin(), rule.begin.id);
      wanted -= cut(ids, rule.context, wanted, &windows);
    }
  }
  if (windows.empty())
    throw_error(Code::kInvalidArgument,
                "{}: no document of two tokens or more in this input; wanted text",
                paths.empty() ? std::string("no input") : paths.front());
  return windows;
}

int64_t predicted_tokens(std::span<const std::vector<int32_t>> windows) {
  int64_t tokens = 0;
  for (const std::vector<int32_t>& ids : windows) tokens += static_cast<int64_t>(ids.size()) - 1;
  return tokens;
}

}  // namespace moraine
