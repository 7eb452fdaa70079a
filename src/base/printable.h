// Printable: text of unknown origin (names in files, reasons) made fit for one line of a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moraine {

// Control characters and bytes that are not UTF-8 become \xNN, a line end \n; no more than
// `bytes_max` bytes of `text` are looked at, and what is left out is counted.
std::string printable(std::string_view text, int64_t bytes_max = 8192);

}  // namespace moraine
