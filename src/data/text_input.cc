// TextInput: lines from a byte stream, documents from lines.
#include "data/text_input.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/utf8.h"

namespace moraine {
namespace {

constexpr int64_t kBufferBytes = 256 << 10;
constexpr int kFolderDepthMax = 32;  // a loop of links ends here

// The suffix that says what the text is, without that of the compression.
std::string_view text_suffix(std::string_view path) {
  for (const std::string_view packed : {".gz", ".zst"}) {
    if (path.ends_with(packed)) path.remove_suffix(packed.size());
  }
  for (const std::string_view suffix : {".txt", ".jsonl"}) {
    if (path.ends_with(suffix)) return suffix;
  }
  return "";
}

void expand(FileSystem& files, const std::string& path, int depth, std::vector<std::string>* out) {
  if (depth > kFolderDepthMax) {
    throw_error(Code::kInvalidArgument, "read inputs: {} is more than {} folders deep", path,
                kFolderDepthMax);
  }
  for (const std::string& name : files.list(path)) {
    const std::string child = join_path(path, name);
    if (files.is_directory(child)) {
      expand(files, child, depth + 1, out);
    } else if (!text_suffix(child).empty()) {
      out->push_back(child);
    }
  }
}

[[noreturn]] void unknown_suffix(const std::string& path) {
  throw_error(
      Code::kInvalidArgument,
      "read {}: unknown kind of input; want .txt or .jsonl, each optionally with .gz or .zst",
      path);
}

}  // namespace

TextInput::TextInput(FileSystem& files, const std::string& path, const TextInputOptions& options)
    : path_(path), options_(options), stream_(files, path), buffer_(kBufferBytes) {
  const std::string_view suffix = text_suffix(path);
  if (suffix.empty()) unknown_suffix(path);
  is_json_ = suffix == ".jsonl";
  if (options_.whole_lines && !is_json_) {
    throw_error(Code::kInvalidArgument,
                "read {}: wanted .jsonl, optionally with .gz or .zst: one object per line", path);
  }
  if (options_.separator.find('\n') != std::string::npos) {
    throw_error(
        Code::kInvalidArgument,
        "read {}: the separator holds a line end, and is compared with single lines without "
        "their ends: none equals it; give it without (--separator '---')",
        path);
  }
}

bool TextInput::next(std::string* text) {
  text->clear();
  if (finished_) return false;
  if (!started_) {
    started_ = true;
    static constexpr uint8_t kByteOrderMark[3] = {0xEF, 0xBB, 0xBF};
    if (fill() && buffer_end_ >= 3 && std::memcmp(buffer_.data(), kByteOrderMark, 3) == 0) {
      buffer_begin_ = text_offset_ = 3;
    }
  }
  if (is_json_) return next_json(text);
  return options_.separator.empty() ? next_whole(text) : next_separated(text);
}

bool TextInput::next_json(std::string* text) {
  std::string line;
  bool ended;
  while (true) {
    const int64_t begin = text_offset_;
    if (!read_line(&line, &ended)) break;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    document_line_ = lines_;
    const int64_t bad = first_invalid_utf8(line);
    if (bad < 0) {
      *text = options_.whole_lines ? line : json_.field(line, options_.json_field, where(lines_));
      return true;
    }
    check_utf8(line, lines_, begin);
    if (options_.whole_lines) {
      throw_error(Code::kInvalidArgument,
                  "{}: invalid UTF-8 in a line that is read whole; repair it", where());
    }
    if (has_utf8_marks(line)) {
      throw_error(
          Code::kInvalidArgument,
          "{}: holds invalid UTF-8 beside characters from U+10FF00 on, which stand for it while "
          "the line is parsed; repair the line",
          where(lines_));
    }
    line = mark_invalid_utf8(line);
    *text = restore_invalid_utf8(json_.field(line, options_.json_field, where(lines_)));
    return true;
  }
  finished_ = true;
  return false;
}

bool TextInput::next_separated(std::string* text) {
  const int64_t first_line = lines_ + 1, begin = text_offset_;
  document_line_ = first_line;
  std::string line;
  bool ended, any = false;
  while (true) {
    if (!read_line(&line, &ended)) {
      finished_ = true;
      break;
    }
    any = true;
    std::string_view bare = line;
    if (bare.ends_with('\r') && !options_.separator.ends_with('\r')) bare.remove_suffix(1);
    if (bare == options_.separator) break;
    *text += line;
    if (ended) *text += '\n';
    if (static_cast<int64_t>(text->size()) > options_.document_bytes_max) {
      throw_error(
          Code::kInvalidArgument,
          "{}: the document that begins here is longer than {} bytes; divide it by separator lines",
          where(first_line), options_.document_bytes_max);
    }
  }
  if (!any) return false;
  check_utf8(*text, first_line, begin);
  return true;
}

bool TextInput::next_whole(std::string* text) {
  const int64_t begin = text_offset_;
  while (true) {
    text->append(reinterpret_cast<const char*>(buffer_.data()) + buffer_begin_,
                 static_cast<size_t>(buffer_end_ - buffer_begin_));
    text_offset_ += buffer_end_ - buffer_begin_;
    buffer_begin_ = buffer_end_;
    if (static_cast<int64_t>(text->size()) > options_.document_bytes_max) {
      throw_error(Code::kInvalidArgument,
                  "read {}: one document of more than {} bytes; divide it by separator lines, or "
                  "give .jsonl",
                  path_, options_.document_bytes_max);
    }
    if (!fill()) break;
  }
  finished_ = true;
  check_utf8(*text, 1, begin);
  return true;
}

bool TextInput::read_line(std::string* line, bool* ended) {
  line->clear();
  *ended = false;
  bool any = false;
  while (buffer_begin_ < buffer_end_ || fill()) {
    any = true;
    const char* data = reinterpret_cast<const char*>(buffer_.data()) + buffer_begin_;
    const int64_t available = buffer_end_ - buffer_begin_;
    const void* newline = std::memchr(data, '\n', static_cast<size_t>(available));
    const int64_t taken = newline == nullptr ? available : static_cast<const char*>(newline) - data;
    if (static_cast<int64_t>(line->size()) + taken > options_.line_bytes_max) {
      throw_error(Code::kInvalidArgument, "{}: the line is longer than {} bytes; divide it",
                  where(lines_ + 1), options_.line_bytes_max);
    }
    line->append(data, static_cast<size_t>(taken));
    *ended = newline != nullptr;
    buffer_begin_ += taken + (*ended ? 1 : 0);
    text_offset_ += taken + (*ended ? 1 : 0);
    if (*ended) break;
  }
  if (any) ++lines_;
  return any;
}

bool TextInput::fill() {
  buffer_begin_ = 0;
  buffer_end_ = stream_.read(buffer_.data(), static_cast<int64_t>(buffer_.size()));
  return buffer_end_ > 0;
}

void TextInput::check_utf8(const std::string& text, int64_t line, int64_t offset) {
  const int64_t bad = first_invalid_utf8(text);
  if (bad < 0) return;
  if (options_.keep_invalid_utf8) {
    invalid_utf8_bytes_ += count_invalid_utf8(text);
    return;
  }
  line += std::count(text.begin(), text.begin() + bad, '\n');
  throw_error(
      Code::kInvalidArgument,
      "{}: invalid UTF-8, byte {:#04x} at byte {} of the text; convert the file to UTF-8, or keep "
      "such bytes as they are (--keep-invalid-utf8 of data build and tokenizer train)",
      where(line), static_cast<unsigned char>(text[static_cast<size_t>(bad)]), offset + bad);
}

int64_t TextInput::file_offset() const {
  return stream_.file_offset() - (stream_.is_plain() ? buffer_end_ - buffer_begin_ : 0);
}

std::string TextInput::where() const { return where(document_line_); }

std::string TextInput::where(int64_t line) const {
  return fmt::format("read {}, line {}", path_, line);
}

std::vector<std::string> expand_inputs(FileSystem& files, const std::vector<std::string>& paths) {
  std::vector<std::string> expanded;
  for (const std::string& path : paths) {
    if (path.empty())
      throw_error(Code::kInvalidArgument, "an input has an empty name; give a file or a folder");
    if (!files.exists(path)) throw_error(Code::kNotFound, "read {}: no such file or folder", path);
    if (!files.is_directory(path)) {
      if (text_suffix(path).empty()) unknown_suffix(path);
      expanded.push_back(path);
      continue;
    }
    const size_t before = expanded.size();
    expand(files, path, 0, &expanded);
    if (expanded.size() == before) {
      throw_error(Code::kInvalidArgument,
                  "read {}: the folder holds no .txt or .jsonl file (plain, .gz, .zst)", path);
    }
  }
  return expanded;
}

void check_inputs_differ(const std::vector<std::string>& paths) {
  std::map<std::string, std::string> given;  // by the path without links
  for (const std::string& path : paths) {
    std::error_code unknown;  // then by the path as it is: reading it will say why
    std::filesystem::path real = std::filesystem::canonical(path, unknown);
    if (unknown) real = path;
    const auto [first, is_new] = given.emplace(real.string(), path);
    if (is_new) continue;
    throw_error(Code::kInvalidArgument,
                "read {}: the file is among the inputs twice, also as {}; give it once", path,
                first->second);
  }
}

}  // namespace moraine
