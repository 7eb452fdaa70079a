// SecretFile: looks at what is there before it is read.
#include "cli/secret_file.h"

#include <cctype>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/file_system.h"
#include "base/read_beginning.h"

namespace moraine {

std::string read_secret_file(const char* what, const std::string& path) {
  if (path.empty()) return "";
  FileSystem& fs = posix_file_system();
  if (!fs.exists(path)) throw_error(Code::kNotFound, "{} {}: there is no such file", what, path);
  if (fs.is_directory(path))  // a disk that fails would be tried again and again
    throw_error(Code::kInvalidArgument, "{} {}: it is a folder; wanted a file", what, path);
  const std::string text = read_beginning(path, kSecretLongest + 1);
  if (text.size() > kSecretLongest)
    throw_error(Code::kInvalidArgument, "{} {}: it has more than {} bytes; wanted {} to {}", what,
                path, kSecretLongest, kSecretShortest, kSecretLongest);
  size_t size = text.size();
  while (size > 0 && std::isspace(static_cast<unsigned char>(text[size - 1]))) --size;
  if (size < kSecretShortest)
    throw_error(Code::kInvalidArgument,
                "{} {}: it has {} bytes; wanted at least {}, the same on every host", what, path,
                size, kSecretShortest);
  return text.substr(0, size);
}

void check_secret_file(const char* what, const std::string& path) {
  std::error_code none;
  const std::filesystem::file_status status = std::filesystem::status(path, none);
  if (std::filesystem::is_other(status) && !std::filesystem::is_character_file(status))
    throw_error(Code::kInvalidArgument,
                "{} {}: it is a pipe or the like, which can be read once; wanted a file", what,
                path);
  read_secret_file(what, path);
}

}  // namespace moraine
