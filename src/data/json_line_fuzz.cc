// Fuzz: the first line chooses a .jsonl file's limits, the rest is the file.
#include "base/file_system.h"
#include "data/text_input.h"
#include "testing/fuzz.h"

namespace moraine {

void fuzz_one(std::string_view input) {
  static testing::FuzzFile file("text.jsonl");
  TextInputOptions options;
  if (!input.empty()) {
    options.keep_invalid_utf8 = (input[0] & 1) != 0;
    if ((input[0] & 2) != 0) options.line_bytes_max = 64;
    input.remove_prefix(1);
  }
  file.write(input);
  testing::parses_or_throws_error([&] {
    TextInput text(posix_file_system(), file.path(), options);
    int64_t bytes = 0;
    for (std::string document; text.next(&document);)
      bytes += static_cast<int64_t>(document.size());
    // JSON escapes only make a text shorter; an invalid byte may be kept.
    if (bytes > static_cast<int64_t>(input.size())) std::abort();
  });
}

}  // namespace moraine
