// TextInput: the documents of one .txt or .jsonl file, each optionally .gz or .zst.
//
// A line of .jsonl is a document: the string at `json_field`; blank lines are skipped. A .txt file
// is one document, or, with `separator`, one between each pair of lines that equal it (the
// separator lines belong to none). Bytes are passed on unchanged, but for a byte order mark at the
// start of the file. A document may be empty; the caller decides what that means.
//
// Errors: kNotFound, kIo. kCorrupt: damaged compression. kInvalidArgument: unknown suffix; a
//         separator that holds a line end, as no line equals it; broken
//         JSON, missing field, invalid UTF-8 (each with path, line and byte offset); a line or
//         document above its limit, so a small hostile file cannot take all memory.
// Cost:   memory is the longest document, twice.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/byte_stream.h"
#include "data/json_line.h"

namespace moraine {

// Encoding one takes up to 24 times its bytes of memory (a text that is one word): no kilobytes of a
// compressed file may ask for more than 3 GB.
constexpr int64_t kLineBytesMax = int64_t{128} << 20;  // no honest line of text is longer
constexpr int64_t kDocumentBytesMax = int64_t{128} << 20;

struct TextInputOptions {
  std::string json_field = "text";
  std::string separator = "";  // .txt: a line equal to this divides documents; "" divides nothing
  // .jsonl: the document is the line itself, unparsed; other files are refused.
  bool whole_lines = false;
  bool keep_invalid_utf8 = false;          // pass such bytes on and count them, instead of an Error
  int64_t line_bytes_max = kLineBytesMax;  // .jsonl lines, and .txt lines with a separator
  int64_t document_bytes_max = kDocumentBytesMax;  // .txt
};

class TextInput {
 public:
  TextInput(FileSystem& files, const std::string& path, const TextInputOptions& options);

  // Reads the next document into `text`; false at the end, `text` is then empty.
  bool next(std::string* text);

  std::string where() const;  // of the document that next gave, for messages: "read FILE, line 7"
  int64_t file_offset()
      const;  // bytes of the file consumed; of a compressed one, up to a buffer more
  int64_t invalid_utf8_bytes() const { return invalid_utf8_bytes_; }  // kept so far

 private:
  bool next_json(std::string* text);
  bool next_separated(std::string* text);
  bool next_whole(std::string* text);
  bool read_line(std::string* line, bool* ended);  // without its newline; `ended`: it had one
  bool fill();
  void check_utf8(const std::string& text, int64_t line, int64_t offset);
  std::string where(int64_t line) const;

  std::string path_;
  TextInputOptions options_;
  ByteStream stream_;
  JsonLine json_;
  bool is_json_ = false, started_ = false, finished_ = false;
  std::vector<uint8_t> buffer_;
  int64_t buffer_begin_ = 0, buffer_end_ = 0;  // bytes of buffer_ not yet passed on
  int64_t lines_ = 0;                          // lines read
  int64_t document_line_ = 1;                  // where the last document began
  int64_t text_offset_ = 0;                    // decompressed bytes passed on
  int64_t invalid_utf8_bytes_ = 0;
};

// Replaces each folder in `paths` by the input files in it and below, sorted by name. Errors:
// kNotFound; kInvalidArgument for a folder without any input file or a file with an unknown suffix.
std::vector<std::string> expand_inputs(FileSystem& files, const std::vector<std::string>& paths);

// Errors: kInvalidArgument: two of these paths lead to one file, as a folder and a file in it do.
void check_inputs_differ(const std::vector<std::string>& paths);

}  // namespace moraine
