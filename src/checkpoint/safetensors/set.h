// SafetensorsSet: the tensors of a public model folder, whether in one file or in many.
//
// Opens a file, or in a folder `model.safetensors`, else the parts that
// `model.safetensors.index.json` names in its weight_map.
//
// Errors: kNotFound if the folder has neither (names both) or parts are missing (names them all);
//         kCorrupt for a damaged index or part, and for a tensor that is not in the part that the
//         index says; kInvalidArgument for an index that points out of its folder.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors/file.h"

namespace moraine {

class SafetensorsSet {
 public:
  static SafetensorsSet open(FileSystem& fs, const std::string& path);

  const std::vector<const SafetensorsEntry*>& entries() const { return entries_; }  // by name
  const SafetensorsEntry* find(std::string_view name) const;  // nullptr if absent
  const SafetensorsEntry& get(std::string_view name) const;   // kNotFound, with the nearest name
  const std::vector<SafetensorsFile>& files() const { return files_; }

 private:
  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::vector<const SafetensorsEntry*> entries_;
};

// A name that stays in its folder: not empty, no separator, no control character, not "." or "..".
bool is_plain_file_name(std::string_view name);

}  // namespace moraine
