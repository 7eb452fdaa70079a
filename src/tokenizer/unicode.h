// Unicode: normal forms and character classes.
//
// The Unicode version is that of the utf8proc library (15 in Debian 12, 16 in Debian 13): younger
// characters are treated as unassigned.
//
// Errors: none; the text must be valid UTF-8 (tokenizer/utf8.h).
// Cost:   linear, up to sorting the combining marks of one run; text without any character that a
//         form could change is only scanned.
// Source: utf8proc; Unicode annex 15 for the forms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moraine {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

std::string normalize_unicode(std::string_view text, NormalForm form);

// Character by character (no final sigma), U+0130 becomes "i" and U+0307.
std::string lowercase(std::string_view text);
// Character by character, where one becomes one; sharp s (U+00DF) becomes "SS".
std::string uppercase(std::string_view text);

bool is_white_space(int32_t code_point);     // property White_Space
bool is_numeric(int32_t code_point);         // Nd, Nl, No
bool is_punctuation(int32_t code_point);     // P*, or any ASCII punctuation
bool is_word_character(int32_t code_point);  // letters, marks, digits, connectors, joiners

}  // namespace moraine
