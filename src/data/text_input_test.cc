// Text input: documents come out whole, apart and byte for byte; damage is named with its place.
#include "data/text_input.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>

#include "base/error.h"
#include "base/random.h"
#include "base/utf8.h"
#include "data/test_dataset.h"
#include "testing/rig.h"

namespace moraine {
namespace {

std::string gzip(const std::string& text) {
  std::string out(compressBound(text.size()) + 64, '\0');
  z_stream z{};
  EXPECT_EQ(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  const size_t n = ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3);
  EXPECT_FALSE(ZSTD_isError(n));
  out.resize(n);
  return out;
}

class TextInputTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& content) {
    const std::string path = join_path(folder_.path(), name);
    testing::write_file(files_, path, content);
    return path;
  }
  std::vector<std::string> read(const std::string& path, const TextInputOptions& options = {}) {
    TextInput input(files_, path, options);
    std::vector<std::string> documents;
    std::string text;
    while (input.next(&text)) documents.push_back(text);
    EXPECT_FALSE(input.next(&text));  // the end stays the end
    invalid_ = input.invalid_utf8_bytes();
    return documents;
  }
  // The message of the Error that reading throws; its code must be `code`.
  std::string failure(const std::string& path, Code code, const TextInputOptions& options = {}) {
    try {
      read(path, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    ADD_FAILURE() << path << " was read without an error";
    return "";
  }

  FileSystem& files_ = posix_file_system();
  testing::TempFolder folder_;
  int64_t invalid_ = 0;
};

using Texts = std::vector<std::string>;

TEST_F(TextInputTest, TxtIsOneDocumentUnchanged) {
  const std::string text = "one\r\n\n two\f\nlast without newline";
  EXPECT_EQ(read(write("a.txt", text)), Texts{text});
  EXPECT_EQ(read(write("bom.txt", "\xEF\xBB\xBFhello\n")), Texts{"hello\n"});
  EXPECT_EQ(read(write("empty.txt", "")), Texts{""});
}

TEST_F(TextInputTest, SeparatorLinesDivideATxt) {
  const TextInputOptions options{.separator = "\f"};
  EXPECT_EQ(read(write("a.txt", "a\nb\n\f\nc\n\f\r\nd\f\ne"), options),
            (Texts{"a\nb\n", "c\n", "d\f\ne"}));
  EXPECT_EQ(read(write("b.txt", "\f\na\n\f\n"), options), (Texts{"", "a\n"}));
  EXPECT_EQ(read(write("c.txt", ""), options), Texts{});
}

TEST_F(TextInputTest, JsonlLineIsADocument) {
  const std::string lines =
      "{\"id\": 1, \"text\": \"a\\n\\u00e9\\u0000b\"}\n\n  "
      "\r\n{\"text\":\"\"}\r\n{\"text\":\"last\"}";
  EXPECT_EQ(read(write("a.jsonl", lines)), (Texts{std::string("a\n\xC3\xA9\0b", 6), "", "last"}));
  EXPECT_EQ(read(write("b.jsonl", "{\"body\":\"x\",\"text\":3}\n"), {.json_field = "body"}),
            Texts{"x"});
}

TEST_F(TextInputTest, CompressedFilesReadAsPlainOnes) {
  std::string text;  // more than one buffer, and not repetitive
  for (uint64_t i = 0; i < 200000; ++i)
    text += static_cast<char>(' ' + random_below(90, 1, Stream::kTest, 0, i));
  EXPECT_EQ(read(write("a.txt.gz", gzip(text))), Texts{text});
  EXPECT_EQ(read(write("a.txt.zst", zstd(text))), Texts{text});
  EXPECT_EQ(read(write("two.txt.gz", gzip("one ") + gzip(text))), Texts{"one " + text});
  EXPECT_EQ(read(write("two.txt.zst", zstd("one ") + zstd(text))), Texts{"one " + text});
  EXPECT_EQ(read(write("l.jsonl.gz", gzip("{\"text\":\"x\"}\n"))), Texts{"x"});
  EXPECT_EQ(read(write("none.txt.gz", "")), Texts{""});
}

TEST_F(TextInputTest, CutOrFlippedCompressionIsCorrupt) {
  std::string text;
  for (uint64_t i = 0; i < 3000; ++i)
    text += static_cast<char>(' ' + random_below(90, 2, Stream::kTest, 0, i));
  for (const bool gz : {true, false}) {
    const std::string packed = gz ? gzip(text) : zstd(text);
    const std::string name = gz ? "cut.txt.gz" : "cut.txt.zst";
    for (size_t size = 1; size < packed.size(); size += 97) {
      const std::string message = failure(write(name, packed.substr(0, size)), Code::kCorrupt);
      EXPECT_NE(message.find(name), std::string::npos) << message;
      EXPECT_NE(message.find("cut off at byte"), std::string::npos) << message;
    }
    failure(write(name, packed + "rubbish that is no member"), Code::kCorrupt);
  }
  std::string flipped = gzip(text);
  flipped[flipped.size() / 2] ^= 4;  // gzip has a checksum; the zstd made here has none
  failure(write("flip.txt.gz", flipped), Code::kCorrupt);
}

TEST_F(TextInputTest, BadJsonNamesFileAndLine) {
  const auto expect = [&](const std::string& line, const std::string& part) {
    const std::string message =
        failure(write("b.jsonl", "{\"text\":\"ok\"}\n\n" + line + "\n"), Code::kInvalidArgument);
    EXPECT_NE(message.find("b.jsonl, line 3"), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect("{\"text\":\"cut", "broken JSON");
  expect("{\"text\":\"a\"} {\"text\":\"b\"}", "broken JSON");
  expect("{\"text\":\"\\ud800\"}", "broken JSON");
  expect("[1]", "an array");
  expect("{\"texts\":\"a\"}", "nearest is 'texts'");
  expect("{\"text\":null}", "null");
  expect(std::string(5000, '['), "broken JSON");  // deep nesting ends in an error, not in the stack
}

TEST_F(TextInputTest, InvalidUtf8IsNamedOrKept) {
  const std::string bad = "line one\nab\xFF\xC0\x80z";
  const std::string message = failure(write("a.txt", bad), Code::kInvalidArgument);
  EXPECT_NE(message.find("line 2"), std::string::npos) << message;
  EXPECT_NE(message.find("byte 11 of"), std::string::npos) << message;
  EXPECT_NE(message.find("0xff"), std::string::npos) << message;
  EXPECT_EQ(read(write("a.txt", bad), {.keep_invalid_utf8 = true}), Texts{bad});
  EXPECT_EQ(invalid_, 3);

  const std::string line = "{\"text\":\"a\xE9\\n\xC3\xA9\x80\"}\n";
  const std::string second =
      failure(write("a.jsonl", "{\"text\":\"\"}\n" + line), Code::kInvalidArgument);
  EXPECT_NE(second.find("line 2: invalid UTF-8, byte 0xe9 at byte 22 of"), std::string::npos)
      << second;
  EXPECT_EQ(read(write("a.jsonl", line), {.keep_invalid_utf8 = true}),
            Texts{"a\xE9\n\xC3\xA9\x80"});
  EXPECT_EQ(invalid_, 2);
  failure(write("a.jsonl", "{\"text\":\"\xE9\\uDBFF\\uDFE9\"}\n"), Code::kInvalidArgument,
          {.keep_invalid_utf8 = true});
}

TEST_F(TextInputTest, LimitsHoldAtTheLimitAndOneAbove) {
  const TextInputOptions options{.line_bytes_max = 20, .document_bytes_max = 30};
  const std::string line = "{\"text\":\"123456789\"}";
  ASSERT_EQ(line.size(), 20u);
  EXPECT_EQ(read(write("a.jsonl", line + "\n" + line), options), (Texts{"123456789", "123456789"}));
  EXPECT_NE(failure(write("a.jsonl", line + "\n " + line), Code::kInvalidArgument, options)
                .find("line 2"),
            std::string::npos);
  EXPECT_EQ(read(write("a.txt", std::string(30, 'x')), options).size(), 1u);
  failure(write("a.txt", std::string(31, 'x')), Code::kInvalidArgument, options);
  TextInputOptions divided = options;
  divided.separator = "--";
  EXPECT_EQ(read(write("b.txt", "0123456789\n--\n0123456789\n"), divided).size(), 2u);
  failure(write("b.txt", "0123456789\n0123456789\n0123456789\n"), Code::kInvalidArgument, divided);
  // A bomb: 64 MiB of zeros in 64 KiB of gzip stop at the limit.
  failure(write("bomb.jsonl.gz", gzip(std::string(64 << 20, '0'))), Code::kInvalidArgument,
          {.line_bytes_max = 1 << 20});
}

// It never matched, and made one document of the file.
TEST_F(TextInputTest, ASeparatorThatNoLineEqualsIsRefused) {
  const std::string path = write("s.txt", "one\n---\ntwo\n");
  for (const char* separator : {"---\n", "\n", "\n---", "---\r\n", "a\nb"}) {
    TextInputOptions options;
    options.separator = separator;
    EXPECT_NE(failure(path, Code::kInvalidArgument, options).find("give it without"),
              std::string::npos);
  }
  TextInputOptions options;
  options.separator = "---";
  EXPECT_EQ(read(path, options), (Texts{"one\n", "two\n"}));
}

TEST_F(TextInputTest, InputsAreFoundInFolders) {
  files_.make_directories(join_path(folder_.path(), "x/deep"));
  const std::string b = write("x/b.txt", "b"), a = write("x/deep/a.jsonl.zst", ""),
                    readme = write("x/README", "");
  EXPECT_EQ(expand_inputs(files_, {join_path(folder_.path(), "x"), b}), (Texts{b, a, b}));
  EXPECT_THROW(expand_inputs(files_, {readme}), Error);
  EXPECT_THROW(expand_inputs(files_, {join_path(folder_.path(), "none")}), Error);
  EXPECT_THROW(TextInput(files_, readme, {}), Error);
  files_.make_directories(join_path(folder_.path(), "void"));
  EXPECT_THROW(expand_inputs(files_, {join_path(folder_.path(), "void")}), Error);
}

TEST_F(TextInputTest, OneFileTwiceIsRefusedByBothNames) {
  files_.make_directories(join_path(folder_.path(), "two/deep"));
  const std::string two = join_path(folder_.path(), "two"), a = write("two/a.txt", "a"),
                    b = write("two/deep/b.txt", "a"), link = join_path(folder_.path(), "link.txt");
  std::filesystem::create_symlink(a, link);
  check_inputs_differ(expand_inputs(files_, {two}));  // equal texts are two files
  check_inputs_differ({link, b});
  for (const std::string& again : {a, two + "/deep/../a.txt", link, two}) {
    try {
      check_inputs_differ(expand_inputs(files_, {two, again}));
      ADD_FAILURE() << again;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("also as " + a + ";"), std::string::npos)
          << error.what();
    }
  }
}

TEST(Utf8Test, MarksAreUndoneOnRandomBytes) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::string text;
    const uint64_t size = random_below(40, seed, Stream::kTest, 0, 0);
    for (uint64_t i = 0; i < size; ++i) {
      static constexpr unsigned char kBytes[] = {'a',  0x80, 0xBF, 0xC3, 0xE0, 0xA0,
                                                 0xED, 0xF0, 0x90, 0xF5, 0xFF, '"'};
      text += static_cast<char>(kBytes[random_below(sizeof kBytes, seed, Stream::kTest, 1, i)]);
    }
    const std::string marked = mark_invalid_utf8(text);
    EXPECT_EQ(first_invalid_utf8(marked), -1) << "seed " << seed;
    EXPECT_EQ(restore_invalid_utf8(marked), text) << "seed " << seed;
    EXPECT_EQ(first_invalid_utf8(text) < 0, count_invalid_utf8(text) == 0) << "seed " << seed;
  }
}

}  // namespace
}  // namespace moraine
