// The one file that knows PCRE2.
#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <new>

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "tokenizer/regex_syntax.h"

namespace moraine {
namespace {

// Steps of backtracking allowed: a floor for short texts, then so many for each byte.
constexpr int64_t kStepsLeast = 10'000'000;
constexpr int64_t kStepsPerByte = 64;
constexpr int64_t kShownMost = 200;  // bytes of a pattern in a message
constexpr size_t kJitStackFirst = size_t{64} << 10, kJitStackMost = size_t{32} << 20;
constexpr uint32_t kHeapLimitKib = 512 << 10;

std::string message_of(int error) {
  unsigned char text[256];
  pcre2_get_error_message(error, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

// What one call of find_all needs besides the code.
struct Search {
  explicit Search(const pcre2_code* code, int64_t text_bytes)
      : match(pcre2_match_data_create_from_pattern(code, nullptr)),
        context(pcre2_match_context_create(nullptr)) {
    if (match == nullptr || context == nullptr) throw std::bad_alloc();
    const int64_t steps = std::max(kStepsLeast, kStepsPerByte * text_bytes);
    pcre2_set_match_limit(context, static_cast<uint32_t>(std::min<int64_t>(steps, UINT32_MAX)));
    pcre2_set_heap_limit(context, kHeapLimitKib);
  }
  ~Search() {
    pcre2_match_data_free(match);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
  Search(const Search&) = delete;
  Search& operator=(const Search&) = delete;

  void grow_stack() {
    stack = pcre2_jit_stack_create(kJitStackFirst, kJitStackMost, nullptr);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }

  pcre2_match_data* match;
  pcre2_match_context* context;
  pcre2_jit_stack* stack = nullptr;
};

}  // namespace

struct Regex::Compiled {
  pcre2_code* code = nullptr;
  bool jit = false;
  std::string what;

  ~Compiled() { pcre2_code_free(code); }
};

Regex::Regex(const std::string& pattern, const std::string& what, bool jit)
    : compiled_(std::make_unique<Compiled>()) {
  const std::string translated = oniguruma_to_pcre2(pattern, what);
  compiled_->what = what;
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  compiled_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (compiled_->code == nullptr) {
    throw_error(Code::kInvalidArgument,
                "{}: the regular expression «{}» is not usable: {} (at byte {} of its translation "
                "«{}»)",
                what, printable(pattern, kShownMost), message_of(error), offset,
                printable(translated, kShownMost));
  }
  compiled_->jit = jit && pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE) == 0;
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

void Regex::find_all(std::string_view text, std::vector<TextRange>* matches) const {
  const int64_t size = static_cast<int64_t>(text.size());
  if (size == 0) return;
  Search search(compiled_->code, size);
  const PCRE2_SPTR subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* span = pcre2_get_ovector_pointer(search.match);
  int64_t from = 0;
  int64_t last_end = -1;  // where the last accepted match ended
  while (from <= size) {
    // PCRE2_NO_UTF_CHECK: the caller promises valid text.
    const int found =
        compiled_->jit
            ? pcre2_jit_match(compiled_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK,
                              search.match, search.context)
            : pcre2_match(compiled_->code, subject, text.size(), from,
                          PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, search.match, search.context);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found == PCRE2_ERROR_JIT_STACKLIMIT && search.stack == nullptr) {
      search.grow_stack();
      continue;
    }
    if (found < 0) {
      throw_error(Code::kInvalidArgument,
                  "{}: the regular expression gave up on the text after byte {}: {}",
                  compiled_->what, from, message_of(found));
    }
    const int64_t begin = static_cast<int64_t>(span[0]), end = static_cast<int64_t>(span[1]);
    if (begin == end && end == last_end) {
      if (from >= size) break;
      from += utf8_bytes_of_lead(text[from]);
      continue;
    }
    matches->push_back({begin, end});
    from = last_end = end;
  }
}

}  // namespace moraine
