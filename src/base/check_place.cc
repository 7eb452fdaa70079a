// CheckPlace: by opening a file to append to it.
#include "base/check_place.h"

#include "base/error.h"

namespace moraine {
namespace {

void try_file(FileSystem& fs, const std::string& what, const std::string& place,
              const std::string& file) {
  try {
    const bool there = fs.exists(file);
    fs.append_to(file)->close();
    if (!there) fs.remove_all(file);
  } catch (const Error& e) {
    throw_error(e.code(), "{} {}: {}; wanted a place that can be written to", what, place,
                e.what());
  }
}

}  // namespace

void check_file_place(FileSystem& fs, const std::string& what, const std::string& path) {
  const std::string place = fs.end_of_links(path), folder = parent_path(place);
  if (fs.is_directory(path))
    throw_error(Code::kInvalidArgument, "{} {}: this is a folder; wanted the name of a file", what,
                path);
  if (fs.is_special(path))
    throw_error(Code::kInvalidArgument,
                "{} {}: this is a device, a pipe or a socket; wanted the name of a file", what,
                path);
  if (!fs.is_directory(folder))
    throw_error(Code::kInvalidArgument,
                "{} {}: there is no folder {}; make it, or choose another place", what, path,
                folder);
  try_file(fs, what, path, place + ".partial");  // the name that write_atomic makes first
}

void check_folder_place(FileSystem& fs, const std::string& what, const std::string& folder) {
  std::string at = folder;
  while (!fs.exists(at) && at != parent_path(at)) at = parent_path(at);
  if (!fs.is_directory(at))
    throw_error(Code::kInvalidArgument,
                "{} {}: {} is no folder; wanted a folder, or a name where one can be made", what,
                folder, at);
  try_file(fs, what, folder, join_path(at, "place.partial"));
}

}  // namespace moraine
