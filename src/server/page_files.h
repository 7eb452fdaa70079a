// PageFiles: the files of src/server/page, compiled into the program.
#pragma once

#include <string_view>
#include <vector>

namespace moraine {

struct PageFile {
  std::string_view name;  // "index.html"
  std::string_view content;
};

std::vector<PageFile> page_files();

}  // namespace moraine
