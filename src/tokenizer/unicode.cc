// The one file that knows utf8proc.
#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"

namespace moraine {
namespace {

int options_of(NormalForm form) {
  switch (form) {
    case NormalForm::kNfc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    case NormalForm::kNfd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case NormalForm::kNfkc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    case NormalForm::kNfkd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
  }
  return 0;
}

// Below it a character is its own normal form, begins a combining sequence and joins nothing
// before.
int32_t first_affected(NormalForm form) { return form == NormalForm::kNfc ? 0x300 : 0x80; }

int combining_class(int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

// Canonical ordering: each run of combining marks sorted by class, stably. utf8proc's own does this
// by swapping neighbours, which takes hours on a megabyte of marks.
void order_marks(std::vector<utf8proc_int32_t>* text) {
  const auto by_class = [](int32_t a, int32_t b) {
    return combining_class(a) < combining_class(b);
  };
  for (size_t begin = 0; begin < text->size();) {
    size_t end = begin;
    while (end < text->size() && combining_class((*text)[end]) != 0) ++end;
    if (end - begin > 1) {
      std::stable_sort(text->begin() + begin, text->begin() + end, by_class);
    }
    begin = end + 1;
  }
}

void append_normalized(std::string_view text, int options, std::string* out) {
  constexpr int kLongest = 32;  // the longest decomposition of one character is 18 (U+FDFA)
  std::vector<utf8proc_int32_t> points;
  for (int64_t at = 0; at < static_cast<int64_t>(text.size());) {
    utf8proc_int32_t parts[kLongest];
    int last_class = 0;
    const int flags = (options & ~UTF8PROC_COMPOSE) | UTF8PROC_DECOMPOSE;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(utf8_code_point(text, at), parts, kLongest,
                                static_cast<utf8proc_option_t>(flags), &last_class);
    MR_CHECK(count >= 0 && count <= kLongest, "count=%ld", static_cast<long>(count));
    points.insert(points.end(), parts, parts + count);
    at += utf8_bytes_of_lead(text[at]);
  }
  order_marks(&points);
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                               static_cast<utf8proc_option_t>(options));
  for (utf8proc_ssize_t i = 0; i < count; ++i) append_utf8(points[i], out);
}

}  // namespace

std::string normalize_unicode(std::string_view text, NormalForm form) {
  const int32_t affected = first_affected(form);
  const int64_t size = static_cast<int64_t>(text.size());
  std::string out;
  out.reserve(text.size());
  int64_t copied = 0;
  int64_t previous = 0;  // where the character before `at` begins
  for (int64_t at = 0; at < size;) {
    if (utf8_code_point(text, at) < affected) {
      previous = at;
      at += utf8_bytes_of_lead(text[at]);
      continue;
    }
    // The character before may combine with this one; the next unaffected one cannot.
    int64_t end = at;
    while (end < size && utf8_code_point(text, end) >= affected) {
      end += utf8_bytes_of_lead(text[end]);
    }
    const int64_t begin = std::max(previous, copied);
    out.append(text.substr(copied, begin - copied));
    append_normalized(text.substr(begin, end - begin), options_of(form), &out);
    at = copied = previous = end;
  }
  out.append(text.substr(copied));
  return out;
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (int64_t at = 0; at < static_cast<int64_t>(text.size());) {
    const int32_t code_point = utf8_code_point(text, at);
    if (code_point == 0x130) {
      out.append("i\xCC\x87");
    } else {
      append_utf8(utf8proc_tolower(code_point), &out);
    }
    at += utf8_bytes_of_lead(text[at]);
  }
  return out;
}

std::string uppercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (int64_t at = 0; at < static_cast<int64_t>(text.size());) {
    const int32_t code_point = utf8_code_point(text, at);
    if (code_point == 0xDF) {
      out.append("SS");
    } else {
      append_utf8(utf8proc_toupper(code_point), &out);
    }
    at += utf8_bytes_of_lead(text[at]);
  }
  return out;
}

bool is_white_space(int32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_numeric(int32_t c) {
  const utf8proc_category_t category = utf8proc_category(c);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(int32_t c) {
  if (c < 0x80) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  }
  const utf8proc_category_t category = utf8proc_category(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool is_word_character(int32_t c) {
  const utf8proc_category_t category = utf8proc_category(c);
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) return true;
  if (category == UTF8PROC_CATEGORY_PC) return true;
  // Joiners, then the circled and squared letters that are symbols with property Alphabetic.
  return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
         (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

}  // namespace moraine
