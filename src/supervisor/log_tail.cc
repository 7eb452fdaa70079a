// Reads the end of a file that another process writes.
#include "supervisor/log_tail.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/printable.h"

namespace moraine {
namespace {

// The word up to the next space, which is taken off too.
std::string_view take_word(std::string_view* text) {
  const std::string_view word = text->substr(0, text->find(' '));
  text->remove_prefix(std::min(text->size(), word.size() + 1));
  return word;
}

// key=value or key="value with spaces"
bool take_field(std::string_view* text, std::pair<std::string, std::string>* field) {
  while (!text->empty() && text->front() == ' ') text->remove_prefix(1);
  const size_t equals = text->find('=');
  if (equals == std::string_view::npos) return false;
  field->first = std::string(text->substr(0, equals));
  text->remove_prefix(equals + 1);
  if (text->empty() || text->front() != '"') {
    field->second = std::string(take_word(text));
    return true;
  }
  text->remove_prefix(1);
  size_t end = text->find("\" ");  // a text may have quotes of its own
  if (end == std::string_view::npos) end = text->empty() ? 0 : text->size() - 1;
  field->second = std::string(text->substr(0, end));
  text->remove_prefix(std::min(text->size(), end + 1));
  return true;
}

}  // namespace

std::optional<LogEvent> parse_log_line(std::string_view line) {
  constexpr size_t kUtcBytes = 24;  // 2026-01-02T03:04:05.678Z
  const std::string_view utc = take_word(&line);
  if (utc.size() != kUtcBytes || utc[10] != 'T' || utc.back() != 'Z') return std::nullopt;
  if (!take_word(&line).starts_with("rank=")) return std::nullopt;
  const std::string_view level = take_word(&line);
  if (level != "I" && level != "W" && level != "E") return std::nullopt;
  LogEvent event;
  event.level = static_cast<Level>(level.front());
  event.name = std::string(take_word(&line));
  event.text = std::string(line);
  std::pair<std::string, std::string> field;
  while (take_field(&line, &field)) event.fields.push_back(field);
  return event;
}

LogTail::LogTail(std::string path, int64_t offset) : path_(std::move(path)), offset_(offset) {}

std::string LogTail::read(bool whole_lines) {
  constexpr size_t kBytesMax = 1 << 20;  // a flood is read bit by bit
  const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return "";
  std::string text(kBytesMax, '\0');
  ssize_t n = 0;
  do n = ::pread(fd, text.data(), text.size(), offset_);
  while (n < 0 && errno == EINTR);
  ::close(fd);
  text.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  if (whole_lines && text.size() < kBytesMax) text.resize(text.rfind('\n') + 1);  // npos + 1 is 0
  offset_ += static_cast<int64_t>(text.size());
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin)
      last_.push_back(printable(std::string_view(text).substr(begin, end - begin), 512));
    if (last_.size() > kLinesKept) last_.pop_front();
    begin = end + 1;
  }
  return text;
}

}  // namespace moraine
