// NamedFile: what can be said of a name before the disk is asked.
#include "base/named_file.h"

#include "base/error.h"

namespace moraine {

std::string read_named_file(FileSystem& fs, const std::string& what, const std::string& path) {
  if (fs.is_directory(path))
    throw_error(Code::kInvalidArgument, "{} {}: this is a folder; wanted the name of a file", what,
                path);
  if (!fs.exists(path))
    throw_error(Code::kNotFound, "{} {}: there is no such file; look for a mistake in its name",
                what, path);
  return fs.read(path);
}

}  // namespace moraine
