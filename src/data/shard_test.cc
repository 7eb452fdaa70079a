// Shards: what was written is read; no cut, flip or forged field gets past the checks.
#include "data/shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/error.h"
#include "base/random.h"
#include "data/test_dataset.h"
#include "testing/rig.h"

namespace moraine {
namespace {

constexpr TokenMeaning kNarrow{.vocabulary_size = 65536, .eos_id = 0, .tokenizer_hash = {1, 2}};
constexpr TokenMeaning kWide{.vocabulary_size = 65537, .eos_id = -1, .tokenizer_hash = {3, 4}};

using Documents = std::vector<std::vector<int32_t>>;

Documents random_documents(uint64_t seed, int64_t count, int64_t length_max, int64_t vocabulary) {
  Documents documents;
  for (int64_t d = 0; d < count; ++d) {
    const uint64_t n = random_below(static_cast<uint64_t>(length_max) + 1, seed, Stream::kTest, 0,
                                    static_cast<uint64_t>(d));
    documents.emplace_back();
    for (uint64_t i = 0; i < n; ++i) {
      documents.back().push_back(
          static_cast<int32_t>(random_below(static_cast<uint64_t>(vocabulary), seed, Stream::kTest,
                                            static_cast<uint64_t>(d) + 1, i)));
    }
    if (n > 0)
      documents.back().back() = static_cast<int32_t>(vocabulary - 1);  // the largest id, too
  }
  return documents;
}

class ShardTest : public ::testing::Test {
 protected:
  ShardSummary write(const Documents& documents, const TokenMeaning& meaning) {
    ShardWriter writer(files_, path_, meaning);
    int64_t bytes = 0;
    for (const auto& document : documents) writer.add_document(document, bytes += 3);
    const int64_t before = writer.file_bytes();
    const ShardSummary summary = writer.finish();
    EXPECT_EQ(before, summary.file_bytes);
    EXPECT_EQ(files_.file_bytes(path_), summary.file_bytes);
    EXPECT_FALSE(files_.exists(path_ + ".partial"));
    return summary;
  }
  // Opens and reads everything; the message if it is kCorrupt, "" if all is well.
  std::string damage() {
    try {
      const TokenShard shard(files_, path_);
      std::vector<int32_t> tokens(static_cast<size_t>(shard.summary().tokens));
      shard.read(0, shard.summary().tokens, tokens.data());
      for (const int32_t token : tokens) EXPECT_LT(token, shard.meaning().vocabulary_size);
      shard.verify();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kCorrupt) << error.what();
      EXPECT_NE(std::string(error.what()).find(path_), std::string::npos) << error.what();
      return error.what();
    }
    return "";
  }
  void overwrite(const std::string& content) { testing::write_file(files_, path_, content); }

  FileSystem& files_ = posix_file_system();
  testing::TempFolder folder_;
  std::string path_ = join_path(folder_.path(), "s.bin");
};

TEST_F(ShardTest, RoundTripIn16And32Bits) {
  for (const TokenMeaning& meaning : {kNarrow, kWide}) {
    const Documents documents = random_documents(7, 300, 1000, meaning.vocabulary_size);
    const ShardSummary written = write(documents, meaning);
    const TokenShard shard(files_, path_);
    EXPECT_EQ(shard.meaning(), meaning);
    EXPECT_EQ(shard.summary().hash, written.hash);
    ASSERT_EQ(shard.summary().documents, 300);
    EXPECT_EQ(meaning.token_bytes(), meaning == kNarrow ? 2 : 4);
    int64_t begin = 0, bytes = 0, source = 0;
    for (size_t d = 0; d < documents.size(); ++d) {
      const int64_t n = static_cast<int64_t>(documents[d].size()), i = static_cast<int64_t>(d);
      ASSERT_EQ(shard.token_begin(i), begin);
      ASSERT_EQ(shard.source_begin(i), source);
      std::vector<int32_t> got(documents[d].size());
      shard.prefetch(begin, n);
      shard.read(begin, n, got.data());
      ASSERT_EQ(got, documents[d]) << "document " << d;
      begin += n;
      source += bytes += 3;
    }
    EXPECT_EQ(shard.token_begin(300), begin);
    EXPECT_EQ(shard.summary().tokens, begin);
    EXPECT_EQ(shard.summary().source_bytes, source);
    shard.verify();
  }
}

TEST_F(ShardTest, SizesAroundTheBlockBorder) {
  for (const int64_t tokens :
       {0, 1, 32736 - 1, 32736, 32736 + 1, 65504}) {  // 64 + 2 * 32736 = 65536
    write({std::vector<int32_t>(static_cast<size_t>(tokens), 5)}, kNarrow);
    EXPECT_EQ(damage(), "") << tokens;
  }
  write({}, kNarrow);
  EXPECT_EQ(damage(), "");
}

TEST_F(ShardTest, AnyCutIsCorrupt) {
  write(random_documents(3, 20, 60, kWide.vocabulary_size), kWide);
  const std::string whole = files_.read(path_);
  for (size_t size = 0; size < whole.size();
       size += size < 200 || size + 200 > whole.size() ? 1 : 53) {
    overwrite(whole.substr(0, size));
    EXPECT_NE(damage(), "") << "cut to " << size;
  }
  overwrite(whole + std::string(1, '\0'));
  EXPECT_NE(damage(), "");
}

TEST_F(ShardTest, AnyFlippedBitIsCorrupt) {
  write(random_documents(4, 40, 3000, kNarrow.vocabulary_size), kNarrow);  // two blocks
  const std::string whole = files_.read(path_);
  ASSERT_GT(whole.size(), size_t{kShardBlockBytes} + 1000);
  for (uint64_t i = 0; i < 700; ++i) {
    // The first and last 128 bytes one by one, then anywhere.
    const uint64_t at = i < 128   ? i
                        : i < 256 ? whole.size() - 1 - (i - 128)
                                  : random_below(whole.size(), 1, Stream::kTest, 0, i);
    std::string bad = whole;
    bad[at] = static_cast<char>(bad[at] ^ (1 << random_below(8, 1, Stream::kTest, 1, i)));
    overwrite(bad);
    EXPECT_NE(damage(), "") << "flip in byte " << at;
  }
}

TEST_F(ShardTest, DamageIsNamedAndSparesTheOtherBlocks) {
  write({std::vector<int32_t>(100000, 7)}, kNarrow);
  std::string bad = files_.read(path_);
  bad[70000] = static_cast<char>(bad[70000] ^ 1);  // in block 1
  overwrite(bad);
  const TokenShard shard(files_, path_);
  std::vector<int32_t> tokens(1000);
  shard.read(0, 1000, tokens.data());  // block 0 is sound
  EXPECT_EQ(tokens, std::vector<int32_t>(1000, 7));
  EXPECT_NE(damage().find("at byte 65536: the checksum of block 1"), std::string::npos) << damage();
}

TEST_F(ShardTest, APlausibleDocumentTableIsCheckedBeforeItIsUsed) {
  const ShardSummary summary = write(random_documents(5, 10, 50, 1000), kNarrow);
  std::string bad = files_.read(path_);
  // Still ascending.
  bad[static_cast<size_t>(ShardLayout({10, summary.tokens, 2}).documents_begin) + 5 * 16 + 8] ^= 1;
  overwrite(bad);
  EXPECT_THROW(TokenShard(files_, path_), Error);
}

// Rebuilds every checksum after `forge` changed a field: what a hostile author would do.
std::string reseal(std::string file,
                   const std::function<void(ShardHeader*, ShardDocument*, ShardTrailer*)>& forge,
                   int64_t documents_begin) {
  ShardHeader header;
  ShardTrailer trailer;
  const size_t trailer_begin = file.size() - sizeof trailer;
  std::memcpy(&header, file.data(), sizeof header);
  std::memcpy(&trailer, file.data() + trailer_begin, sizeof trailer);
  const int64_t D = static_cast<int64_t>(trailer.num_documents);
  std::vector<ShardDocument> documents(static_cast<size_t>(D) + 1);
  std::memcpy(documents.data(), file.data() + documents_begin,
              documents.size() * sizeof(ShardDocument));
  forge(&header, documents.data(), &trailer);
  header.header_hash = ShardHash::of(hash_bytes(&header, offsetof(ShardHeader, header_hash)));
  std::memcpy(file.data(), &header, sizeof header);
  std::memcpy(file.data() + documents_begin, documents.data(),
              documents.size() * sizeof(ShardDocument));
  const int64_t blocks_begin = documents_begin + (D + 1) * int64_t{sizeof(ShardDocument)};
  int64_t at = blocks_begin;
  for (int64_t begin = 0; begin < blocks_begin; begin += kShardBlockBytes, at += 16) {
    const ShardHash hash = ShardHash::of(
        hash_bytes(file.data() + begin, std::min(kShardBlockBytes, blocks_begin - begin)));
    std::memcpy(file.data() + at, &hash, sizeof hash);
  }
  Hasher hasher;
  hasher.add(file.data() + blocks_begin, static_cast<int64_t>(trailer_begin) - blocks_begin);
  hasher.add(&trailer, offsetof(ShardTrailer, table_hash));
  trailer.table_hash = ShardHash::of(hasher.digest());
  std::memcpy(file.data() + trailer_begin, &trailer, sizeof trailer);
  return file;
}

TEST_F(ShardTest, ForgedFieldsWithFittingChecksumsAreRefused) {
  const Documents documents = random_documents(5, 10, 50, 1000);
  const TokenMeaning meaning{.vocabulary_size = 1000, .eos_id = 3, .tokenizer_hash = {1, 2}};
  const ShardSummary summary = write(documents, meaning);
  const std::string whole = files_.read(path_);
  const ShardLayout layout({summary.documents, summary.tokens, 2});
  using H = ShardHeader*;
  using D = ShardDocument*;
  using T = ShardTrailer*;
  overwrite(reseal(
      whole, [](H, D, T) {}, layout.documents_begin));
  ASSERT_EQ(damage(), "");  // resealing itself is right
  const std::vector<std::function<void(H, D, T)>> forgeries = {
      [](H h, D, T) { h->version = kShardVersionMarked; },  // there are no marks
      [](H h, D, T) { h->version = 3; },
      [](H h, D, T) { h->token_bytes = 4; },
      [](H h, D, T) { h->token_bytes = 0; },
      [](H h, D, T) { h->block_bytes = 0; },
      [](H h, D, T) { h->vocabulary_size = 0; },
      [](H h, D, T) { h->vocabulary_size = ~uint64_t{0}; },
      [](H h, D, T) { h->vocabulary_size = 999; },    // the largest id is 999
      [](H h, D, T) { h->vocabulary_size = 70000; },  // would be 32 bits
      [](H h, D, T) { h->eos_id = 1000; },
      [](H h, D, T) { h->eos_id = -2; },
      [](H, D, T t) { t->num_documents = ~uint64_t{0}; },
      [](H, D, T t) { t->num_documents -= 1; },
      [](H, D, T t) { t->num_tokens = uint64_t{1} << 63; },
      [](H, D, T t) { t->num_tokens += 8; },
      [](H, D, T t) { t->source_bytes = ~uint64_t{0}; },
      [](H, D, T t) { t->source_bytes += 1; },
      [](H, D, T t) { t->file_bytes += 1; },
      [](H, D, T t) { t->num_targets = 1; },
      [](H, D d, T) { d[0].token_begin = 1; },
      [](H, D d, T) { d[1].token_begin = ~uint64_t{0}; },
      [](H, D d, T) { d[5].token_begin = d[6].token_begin + 1; },
      [](H, D d, T) { d[5].source_begin = d[6].source_begin + 1; },
      [](H, D d, T) { d[10].token_begin += 1; },
  };
  for (size_t i = 0; i < forgeries.size(); ++i) {
    overwrite(reseal(whole, forgeries[i], layout.documents_begin));
    EXPECT_NE(damage(), "") << "forgery " << i;
  }
}

// The worked example of docs/formats/shard.md, byte for byte: a second reader is written from that
// page.
TEST_F(ShardTest, WorkedExampleOfTheFormatPage) {
  const TokenMeaning meaning{.vocabulary_size = 257, .eos_id = 256, .tokenizer_hash = {1, 2}};
  ShardWriter writer(files_, path_, meaning);
  writer.add_document(std::vector<int32_t>{72, 105, 256}, 2);
  writer.finish();
  std::string hex;
  for (const char c : files_.read(path_))
    hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  EXPECT_EQ(hex,
            "4d4f525348415244010000000200000001010000000000000001000000000100"
            "01000000000000000200000000000000fff0ea7176b82f508adfcefba9d01b6e"
            "4800690000010000000000000000000000000000000000000300000000000000"
            "0200000000000000a8906d1b4554c5647ea53172252c025e4d4f525348454e44"
            "010000000000000003000000000000000200000000000000b800000000000000"
            "0000000000000000967379b3bbe3ee7e0111c7fcb348e559");
}

std::vector<uint8_t> random_marks(uint64_t seed, size_t count) {
  std::vector<uint8_t> marks(count);
  for (size_t i = 0; i < count; ++i) marks[i] = random_below(3, seed, Stream::kTest, 9, i) == 0;
  return marks;
}

TEST_F(ShardTest, MarksAreReadAsWrittenAndCounted) {
  for (const TokenMeaning& meaning : {kNarrow, kWide}) {
    const Documents documents = random_documents(8, 60, 9000, meaning.vocabulary_size);
    ShardWriter writer(files_, path_, meaning, /*marked=*/true);
    std::vector<uint8_t> all;
    for (size_t d = 0; d < documents.size(); ++d) {
      const std::vector<uint8_t> marks = random_marks(d, documents[d].size());
      writer.add_document(documents[d], 1, marks);
      all.insert(all.end(), marks.begin(), marks.end());
    }
    const int64_t before = writer.file_bytes();
    const ShardSummary written = writer.finish();
    EXPECT_EQ(before, files_.file_bytes(path_));
    const int64_t targets = std::count(all.begin(), all.end(), 1);
    EXPECT_EQ(written.targets, targets);
    EXPECT_EQ(damage(), "");
    const TokenShard shard(files_, path_);
    EXPECT_TRUE(shard.summary().marked);
    EXPECT_EQ(shard.summary().targets, targets);
    const int64_t n = shard.summary().tokens;
    std::vector<uint8_t> got(static_cast<size_t>(n));
    shard.read_targets(0, n, got.data());
    EXPECT_EQ(got, all);
    for (const auto& [begin, count] : std::vector<std::pair<int64_t, int64_t>>{
             {0, 0}, {1, 1}, {63, 2}, {7, 1000}, {n - 1, 1}, {n / 2, 100}}) {
      std::vector<uint8_t> part(static_cast<size_t>(count));
      shard.read_targets(begin, count, part.data());
      EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + begin)) << begin;
    }
    // The tokens beside them are whole.
    std::vector<int32_t> tokens(documents[5].size());
    shard.read(shard.token_begin(5), static_cast<int64_t>(tokens.size()), tokens.data());
    EXPECT_EQ(tokens, documents[5]);
  }
  // Without marks every token is a target.
  write({{1, 2, 3}}, kNarrow);
  const TokenShard plain(files_, path_);
  std::vector<uint8_t> got(3);
  plain.read_targets(0, 3, got.data());
  EXPECT_EQ(got, std::vector<uint8_t>(3, 1));
  EXPECT_EQ(plain.summary().targets, 3);
  EXPECT_FALSE(plain.summary().marked);
}

TEST_F(ShardTest, DamagedMarksAreCorrupt) {
  const std::vector<int32_t> tokens(1000, 7);
  ShardWriter writer(files_, path_, kNarrow, true);
  writer.add_document(tokens, 1, random_marks(1, 1000));
  const ShardSummary summary = writer.finish();
  const std::string whole = files_.read(path_);
  const ShardLayout layout({.documents = 1, .tokens = 1000, .token_bytes = 2, .marked = true});
  for (int64_t at = layout.marks_begin; at < layout.documents_begin; ++at) {
    std::string bad = whole;
    bad[static_cast<size_t>(at)] ^= 4;
    overwrite(bad);
    EXPECT_NE(damage(), "") << at;
  }
  for (size_t size = 0; size < whole.size(); size += 37) {
    overwrite(whole.substr(0, size));
    EXPECT_NE(damage(), "") << "cut to " << size;
  }
  // With checksums that fit: another count, marks behind the last token, a version without marks.
  const int64_t targets = summary.targets;
  using H = ShardHeader*;
  using D = ShardDocument*;
  using T = ShardTrailer*;
  const std::vector<std::function<void(H, D, T)>> forgeries = {
      [](H, D, T t) { t->num_targets += 1; }, [](H, D, T t) { t->num_targets = 1001; },
      [](H, D, T t) { t->num_targets = ~uint64_t{0}; },
      [](H h, D, T) { h->version = kShardVersion; }};
  overwrite(reseal(
      whole, [](H, D, T) {}, layout.documents_begin));
  ASSERT_EQ(damage(), "");
  for (const auto& forge : forgeries) {
    overwrite(reseal(whole, forge, layout.documents_begin));
    EXPECT_NE(damage(), "");
  }
  std::string bad = whole;
  bad[static_cast<size_t>(layout.documents_begin) - 1] = 1;
  overwrite(reseal(
      bad, [](H, D, T) {}, layout.documents_begin));
  EXPECT_NE(damage().find(fmt::format("the trailer says {}", targets)), std::string::npos)
      << damage();
}

// The second worked example of docs/formats/shard.md.
TEST_F(ShardTest, WorkedExampleWithMarks) {
  const TokenMeaning meaning{.vocabulary_size = 257, .eos_id = 256, .tokenizer_hash = {1, 2}};
  ShardWriter writer(files_, path_, meaning, true);
  writer.add_document(std::vector<int32_t>{72, 105, 256}, 2, std::vector<uint8_t>{0, 1, 1});
  const ShardSummary summary = writer.finish();
  EXPECT_EQ(summary.file_bytes, 192);
  const std::string file = files_.read(path_);
  const auto hex = [&](size_t begin, size_t end) {
    std::string text;
    for (size_t i = begin; i < end; ++i)
      text += fmt::format("{:02x}", static_cast<unsigned char>(file[i]));
    return text;
  };
  EXPECT_EQ(hex(8, 12), "02000000");
  EXPECT_EQ(hex(64, 80), "48006900000100000600000000000000");
  EXPECT_EQ(hex(160, 176), "c0000000000000000200000000000000");
}

TEST_F(ShardTest, MissingFileAndFolder) {
  try {
    TokenShard shard(files_, path_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kNotFound);
  }
  EXPECT_THROW(TokenShard(files_, folder_.path()), Error);
}

}  // namespace
}  // namespace moraine
