// Fails if a pack's bytes are not what docs/formats/packed.md says, on any instruction set, for one pack or for
// both made at once; or if something is written outside them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/linear.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using testing::for_each_isa;
using testing::Rig;

struct PackShape {
  int64_t groups, n, k;
};

// One, whole tiles, one more or less than these, and more than what passes the caches by.
constexpr PackShape kPackShapes[] = {{1, 1, 1},   {2, 32, 32},    {3, 33, 31}, {1, 7, 100},
                                     {2, 96, 64}, {1, 64, 1025},  {4, 77, 51}, {1, 130, 3},
                                     {0, 32, 32}, {1, 1205, 1811}};
constexpr uint8_t kAround = 0xa5;

// Element (j, i) of a group's logical n x k as a word's half or a word.
uint32_t bits_of(float value, DType dtype) {
  return dtype == DType::kBF16 ? to_bf16(value).bits : std::bit_cast<uint32_t>(value);
}

// Word s of column j of panel p holds elements (32 p + j, s) in f32, (32 p + j, 2 s) and the next in bf16.
std::vector<uint32_t> words_wanted(const PackShape& shape, const Tensor& w, DType dtype,
                                   bool transpose) {
  const int64_t per = dtype == DType::kBF16 ? 2 : 1, steps = (shape.k + per - 1) / per,
                panels = (shape.n + kPackPanel - 1) / kPackPanel;
  std::vector<uint32_t> words(static_cast<size_t>(shape.groups * panels * steps * kPackPanel));
  for (int64_t g = 0; g < shape.groups; ++g) {
    for (int64_t j = 0; j < shape.n; ++j) {
      for (int64_t i = 0; i < shape.k; ++i) {
        const int64_t from =
            transpose ? (g * shape.k + i) * shape.n + j : (g * shape.n + j) * shape.k + i;
        const int64_t panel = g * panels + j / kPackPanel,
                      at = (panel * steps + i / per) * kPackPanel + j % kPackPanel;
        words[static_cast<size_t>(at)] |= bits_of(w.as<float>()[from], dtype) << (16 * (i % per));
      }
    }
  }
  return words;
}

// Memory for a pack, `offset` bytes behind a cache line, marked all around.
struct Guarded {
  Guarded(Rig& rig, const PackShape& s, DType dtype, int64_t offset)
      : bytes(rig.zeros({packed_bytes(dtype, s.groups, s.n, s.k) + 128 + offset}, DType::kU8)),
        pack{.dtype = dtype, .groups = s.groups, .n = s.n, .k = s.k},
        begin(64 + offset) {
    std::fill_n(bytes.as<uint8_t>(), bytes.count(), kAround);
    pack.data = bytes.as<uint8_t>() + begin;
  }

  void expect(const std::vector<uint32_t>& words) const {
    const uint8_t* all = bytes.as<uint8_t>();
    const int64_t end = begin + packed_bytes(pack);
    for (int64_t i = 0; i < begin; ++i) ASSERT_EQ(all[i], kAround) << i;
    for (int64_t i = end; i < bytes.count(); ++i) ASSERT_EQ(all[i], kAround) << i;
    ASSERT_EQ(static_cast<size_t>(end - begin), words.size() * sizeof(uint32_t));
    const auto* made = reinterpret_cast<const uint32_t*>(all + begin);
    const size_t bytes_made = words.size() * sizeof(uint32_t);
    if (bytes_made == 0 || std::memcmp(made, words.data(), bytes_made) == 0) return;
    for (size_t i = 0; i < words.size(); ++i) ASSERT_EQ(made[i], words[i]) << i;
  }

  Tensor bytes;
  PackedMatrix pack;
  int64_t begin;
};

Tensor odd_values(Rig& rig, const PackShape& s) {
  const Tensor w = rig.normal({s.groups * s.n, s.k}, DType::kF32, 1);
  const float odd[] = {-0.0f,
                       std::numeric_limits<float>::infinity(),
                       std::bit_cast<float>(0x7f800001u),
                       std::bit_cast<float>(0x00000001u),
                       std::bit_cast<float>(0x3f808000u),
                       std::bit_cast<float>(0x3f818000u),
                       std::bit_cast<float>(0x7f7fffffu)};
  int64_t at = 0;
  for (const float value : odd) {
    if (at < w.count()) w.as<float>()[at] = value;
    at += 41;
  }
  return w;
}

TEST(LinearPack, WordsLieWhereTheFormatSays) {
  for_each_isa([](Isa cap) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const PackShape& s : kPackShapes) {
        for (const int64_t offset : {0, 16}) {
          SCOPED_TRACE(fmt::format("{} {} groups={} n={} k={} offset={}", isa_name(cap),
                                   dtype_name(dtype), s.groups, s.n, s.k, offset));
          Rig rig;
          const Tensor w = odd_values(rig, s);
          const PackShape turned = {s.groups, s.k, s.n};
          const std::vector<uint32_t> words = words_wanted(s, w, dtype, false),
                                      turned_words = words_wanted(turned, w, dtype, true);
          const Guarded alone(rig, s, dtype, offset), both(rig, s, dtype, offset),
              turned_alone(rig, turned, dtype, offset), turned_both(rig, turned, dtype, offset);
          pack_matrix(rig.ctx, {.packed = alone.pack, .w = w, .transpose = false});
          const Tensor same = w.reshaped({s.groups * s.n, s.k});
          pack_matrix(rig.ctx, {.packed = turned_alone.pack, .w = same, .transpose = true});
          pack_matrix(
              rig.ctx,
              {.packed = both.pack, .w = w, .transpose = false, .transposed = turned_both.pack});
          for (const Guarded* g : {&alone, &both}) g->expect(words);
          for (const Guarded* g : {&turned_alone, &turned_both}) g->expect(turned_words);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  });
}

// The other way about: the pack is the transpose's, and `transposed` the matrix as it lies.
TEST(LinearPack, ATransposeAndItsTransposeAtOnce) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Rig rig;
    const PackShape s = {2, 45, 67}, turned = {2, 67, 45};
    const Tensor w = odd_values(rig, s);
    const Guarded plain(rig, s, dtype, 0), other(rig, turned, dtype, 0);
    pack_matrix(rig.ctx,
                {.packed = other.pack, .w = w, .transpose = true, .transposed = plain.pack});
    plain.expect(words_wanted(s, w, dtype, false));
    other.expect(words_wanted(turned, w, dtype, true));
  }
}

// Without vectors, and with another backend, the same two packs.
TEST(LinearPack, TheReferenceMakesBothToo) {
  Rig slow(Backend::kRef);
  const int64_t n = 5, k = 7;
  const Tensor w = slow.normal({n, k}, DType::kF64, 1), one = slow.zeros({n, k}, DType::kF64),
               two = slow.zeros({k, n}, DType::kF64);
  pack_matrix(
      slow.ctx,
      {.packed = {.data = one.data, .dtype = DType::kF64, .groups = 1, .n = n, .k = k},
       .w = w,
       .transpose = false,
       .transposed = {.data = two.data, .dtype = DType::kF64, .groups = 1, .n = k, .k = n}});
  EXPECT_SAME_BITS(one, w);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < k; ++i)
      EXPECT_EQ(two.as<double>()[i * n + j], w.as<double>()[j * k + i]);
  }
}

// A pack on disk is written in pieces: packs of whole panels one behind the other are the pack of the whole.
TEST(LinearPack, PiecesOfWholePanelsAreThePack) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Rig rig;
    const PackShape s = {3, 77, 51};
    const Tensor w = rig.normal({s.groups * s.n, s.k}, DType::kF32, 1);
    std::vector<uint32_t> pieces;
    for (int64_t row = 0; row < s.groups * s.n;) {
      const int64_t rows = std::min<int64_t>(64, s.n - row % s.n);
      const Guarded piece(rig, {1, rows, s.k}, dtype, 0);
      pack_matrix(rig.ctx,
                  {.packed = piece.pack, .w = w.rows(row, row + rows), .transpose = false});
      const auto* words = static_cast<const uint32_t*>(piece.pack.data);
      pieces.insert(pieces.end(), words, words + packed_bytes(piece.pack) / 4);
      row += rows;
    }
    EXPECT_EQ(pieces, words_wanted(s, w, dtype, false));
  }
}

}  // namespace
}  // namespace moraine
