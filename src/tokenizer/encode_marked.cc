// EncodeMarked: finds where tokens begin by decoding them again.
#include "tokenizer/encode_marked.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "tokenizer/decoder.h"

namespace moraine {
namespace {

bool in_ranges(std::span<const ByteRange> ranges, int64_t at) {
  for (const ByteRange& range : ranges) {
    if (at >= range.begin && at < range.end) return true;
  }
  return false;
}

std::vector<int32_t> encode_part(const Tokenizer& tokenizer, std::string_view text, bool ordinary) {
  return ordinary ? tokenizer.encode_ordinary(text) : tokenizer.encode(text, false);
}

// Where each token begins in `text`; false if the tokens are not those bytes.
bool find_begins(const Tokenizer& tokenizer, std::string_view text, const std::vector<int32_t>& ids,
                 std::vector<int64_t>* begins) {
  DecoderState state;
  std::string bytes;
  begins->clear();
  for (const int32_t id : ids) {
    begins->push_back(static_cast<int64_t>(bytes.size()));
    tokenizer.decode_next(id, /*skip_special=*/false, &state, &bytes);
  }
  if (bytes == text) return true;
  // Some tokenizers put a space in front of every text.
  if (bytes.size() != text.size() + 1 || bytes.front() != ' ' ||
      std::string_view(bytes).substr(1) != text)
    return false;
  for (int64_t& begin : *begins) begin = std::max<int64_t>(0, begin - 1);
  return true;
}

class Marker {
 public:
  Marker(const Tokenizer& tokenizer, std::string_view text, std::span<const ByteRange> targets)
      : tokenizer_(tokenizer), text_(text), targets_(targets) {}

  void add(ByteRange part, bool ordinary) {
    if (part.begin == part.end) return;
    const std::string_view bytes = part_of(part);
    const std::vector<int32_t> ids = encode_part(tokenizer_, bytes, ordinary);
    std::vector<int64_t> begins;
    if (find_begins(tokenizer_, bytes, ids, &begins) && !crossed(begins, part)) {
      for (size_t i = 0; i < ids.size(); ++i)
        push(ids[i], in_ranges(targets_, part.begin + begins[i]));
      return;
    }
    add_by_sides(part, ordinary);
  }
  MarkedTokens take() { return std::move(result_); }

 private:
  // Whether a border of a target inside of the part is not where some token begins. begins: ascending, in the part.
  bool crossed(const std::vector<int64_t>& begins, ByteRange part) const {
    for (const ByteRange& range : targets_) {
      for (const int64_t border : {range.begin, range.end}) {
        if (border <= part.begin || border >= part.end) continue;
        if (!std::binary_search(begins.begin(), begins.end(), border - part.begin)) return true;
      }
    }
    return false;
  }
  std::string_view part_of(ByteRange part) const {
    return text_.substr(static_cast<size_t>(part.begin),
                        static_cast<size_t>(part.end - part.begin));
  }
  void push(int32_t id, bool target) {
    result_.ids.push_back(id);
    result_.is_target.push_back(target ? 1 : 0);
  }
  void add_by_sides(ByteRange part, bool ordinary) {
    for (int64_t begin = part.begin; begin < part.end;) {
      int64_t end = part.end;
      for (const ByteRange& range : targets_) {
        for (const int64_t border : {range.begin, range.end}) {
          if (border > begin) end = std::min(end, border);
        }
      }
      const bool target = in_ranges(targets_, begin);
      for (const int32_t id : encode_part(tokenizer_, part_of({begin, end}), ordinary))
        push(id, target);
      begin = end;
    }
  }

  const Tokenizer& tokenizer_;
  const std::string_view text_;
  const std::span<const ByteRange> targets_;
  MarkedTokens result_;
};

void check_ranges(std::span<const ByteRange> ranges, int64_t size) {
  int64_t last = 0;
  for (const ByteRange& range : ranges) {
    MR_CHECK(range.begin >= last && range.end >= range.begin && range.end <= size);
    last = range.end;
  }
}

}  // namespace

MarkedTokens encode_marked(const Tokenizer& tokenizer, std::string_view text,
                           std::span<const ByteRange> targets,
                           std::span<const ByteRange> ordinary) {
  const int64_t size = static_cast<int64_t>(text.size());
  check_ranges(targets, size);
  check_ranges(ordinary, size);
  Marker marker(tokenizer, text, targets);
  int64_t done = 0;
  for (const ByteRange& range : ordinary) {
    marker.add({done, range.begin}, false);
    marker.add(range, true);
    done = range.end;
  }
  marker.add({done, size}, false);
  return marker.take();
}

}  // namespace moraine
