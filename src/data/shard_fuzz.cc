// Fuzz: a token shard; its checksums are made to fit, or nothing behind them would be looked at.
#include "data/shard.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/file_system.h"
#include "data/shard_format.h"
#include "testing/fuzz.h"

namespace moraine {
namespace {

void open_and_read(const std::string& path) {
  testing::parses_or_throws_error([&] {
    const TokenShard shard(posix_file_system(), path);
    shard.verify();
    std::vector<int32_t> tokens(static_cast<size_t>(shard.summary().tokens));
    shard.read(0, shard.summary().tokens, tokens.data());
    std::vector<uint8_t> is_target(tokens.size());
    shard.read_targets(0, shard.summary().tokens, is_target.data());
    for (const int32_t id : tokens) {
      if (id < 0 || id >= shard.meaning().vocabulary_size) std::abort();
    }
    for (int64_t i = 0; i < shard.summary().documents; ++i) {
      if (shard.token_begin(i) > shard.token_begin(i + 1)) std::abort();
    }
  });
}

// Header, block table and trailer of an otherwise arbitrary file, as a hostile author would make them.
void seal(std::string& file) {
  ShardHeader header;
  ShardTrailer trailer;
  std::memcpy(&header, file.data(), sizeof header);
  std::memcpy(header.magic, kShardMagic, sizeof header.magic);
  if (header.version != kShardVersionMarked) header.version = kShardVersion;
  header.header_hash = ShardHash::of(hash_bytes(&header, offsetof(ShardHeader, header_hash)));
  std::memcpy(file.data(), &header, sizeof header);
  const int64_t end = static_cast<int64_t>(file.size() - sizeof trailer);
  std::memcpy(&trailer, file.data() + end, sizeof trailer);
  std::memcpy(trailer.magic, kShardEndMagic, sizeof trailer.magic);
  trailer.file_bytes = file.size();
  if (trailer.num_documents > file.size() || trailer.num_tokens > file.size()) return;
  const ShardLayout layout({.documents = static_cast<int64_t>(trailer.num_documents),
                            .tokens = static_cast<int64_t>(trailer.num_tokens),
                            .token_bytes = header.token_bytes == 4 ? 4 : 2,
                            .marked = header.version == kShardVersionMarked});
  if (layout.file_bytes != static_cast<int64_t>(file.size())) return;
  int64_t at = layout.blocks_begin;
  for (int64_t begin = 0; begin < layout.blocks_begin; begin += kShardBlockBytes, at += 16) {
    const ShardHash hash = ShardHash::of(
        hash_bytes(file.data() + begin, std::min(kShardBlockBytes, layout.blocks_begin - begin)));
    std::memcpy(file.data() + at, &hash, sizeof hash);
  }
  Hasher hasher;
  hasher.add(file.data() + layout.blocks_begin, end - layout.blocks_begin);
  hasher.add(&trailer, offsetof(ShardTrailer, table_hash));
  trailer.table_hash = ShardHash::of(hasher.digest());
  std::memcpy(file.data() + end, &trailer, sizeof trailer);
}

}  // namespace

void fuzz_one(std::string_view input) {
  static testing::FuzzFile path("shard.bin");
  path.write(input);
  open_and_read(path.path());
  if (input.size() < sizeof(ShardHeader) + sizeof(ShardTrailer)) return;
  std::string file(input);
  seal(file);
  path.write(file);
  open_and_read(path.path());
}

}  // namespace moraine
