// Pre-tokenizer: finds matches, distributes them over pieces, rewrites text.
#include "tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"

namespace moraine {

const char* const kGpt2Pattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

namespace {

struct Segment {
  TextRange range;
  bool match;
};

void find_class(std::string_view text, bool (*in_class)(int32_t), std::vector<TextRange>* matches) {
  for (int64_t at = 0; at < static_cast<int64_t>(text.size());) {
    const int bytes = utf8_bytes_of_lead(text[at]);
    if (in_class(utf8_code_point(text, at))) matches->push_back({at, at + bytes});
    at += bytes;
  }
}

// The matches and the text between them, in order; they cover [0, size).
void fill_gaps(const std::vector<TextRange>& matches, int64_t size, bool invert,
               std::vector<Segment>* segments) {
  int64_t done = 0;
  for (const TextRange& match : matches) {
    if (done < match.begin) segments->push_back({{done, match.begin}, invert});
    segments->push_back({match, !invert});
    done = match.end;
  }
  if (done < size) segments->push_back({{done, size}, invert});
}

// Joins segments as the behaviour says; what remains are the pieces.
void distribute(SplitBehavior behavior, std::vector<Segment>* segments) {
  std::vector<Segment>& s = *segments;
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return;
    case SplitBehavior::kRemoved:
      std::erase_if(s, [](const Segment& x) { return x.match; });
      return;
    default:
      break;
  }
  const bool backward = behavior == SplitBehavior::kMergedWithNext;
  if (backward) std::reverse(s.begin(), s.end());
  size_t kept = 0;
  bool match_before = false;
  for (const Segment segment : s) {
    const bool joins = behavior == SplitBehavior::kContiguous ? segment.match == match_before
                                                              : segment.match && !match_before;
    match_before = segment.match;
    if (!joins || kept == 0) {
      s[kept++] = segment;
    } else if (backward) {
      s[kept - 1].range.begin = segment.range.begin;
    } else {
      s[kept - 1].range.end = segment.range.end;
    }
  }
  s.resize(kept);
  if (backward) std::reverse(s.begin(), s.end());
}

// Working memory of one call of apply.
struct Work {
  std::vector<TextRange> matches;
  std::vector<Segment> segments;
  std::vector<TextPiece> pieces;
};

void cut(const PreTokenizerStep& step, PieceList* list, Work* work) {
  work->pieces.clear();
  for (const TextPiece& piece : list->pieces) {
    const int64_t size = piece.range.end - piece.range.begin;
    const std::string_view text = std::string_view(list->text).substr(piece.range.begin, size);
    work->matches.clear();
    work->segments.clear();
    if (step.regex != nullptr) {
      step.regex->find_all(text, &work->matches);
    } else if (step.in_class != nullptr) {
      find_class(text, step.in_class, &work->matches);
    } else {
      find_all_text(text, step.pattern, &work->matches);
    }
    fill_gaps(work->matches, size, step.invert, &work->segments);
    distribute(step.behavior, &work->segments);
    for (const Segment& segment : work->segments) {
      const TextRange& range = segment.range;
      if (range.begin == range.end) continue;
      const bool first = range.begin == 0;
      work->pieces.push_back({{piece.range.begin + range.begin, piece.range.begin + range.end},
                              first && piece.from_start,
                              !first || piece.may_prefix});
    }
  }
  list->pieces.swap(work->pieces);
}

// Replaces the text of every piece by what `write` appends for it.
template <class Write>
void rewrite(PieceList* list, const Write& write) {
  std::string out;
  out.reserve(list->text.size() + list->pieces.size());
  for (TextPiece& piece : list->pieces) {
    const int64_t begin = static_cast<int64_t>(out.size());
    write(
        piece,
        std::string_view(list->text).substr(piece.range.begin, piece.range.end - piece.range.begin),
        &out);
    piece.range = {begin, static_cast<int64_t>(out.size())};
  }
  list->text = std::move(out);
}

void byte_level(const PreTokenizerStep& step, PieceList* list, Work* work) {
  if (step.prefix_space) {
    rewrite(list, [](const TextPiece& piece, std::string_view text, std::string* out) {
      if (piece.may_prefix && !text.starts_with(' ')) out->push_back(' ');
      out->append(text);
    });
  }
  if (step.regex != nullptr) cut(step, list, work);
  if (step.keep_bytes) return;
  rewrite(list, [](const TextPiece&, std::string_view text, std::string* out) {
    append_byte_characters(text, out);
  });
}

void metaspace(const PreTokenizerStep& step, PieceList* list, Work* work) {
  rewrite(list, [&](const TextPiece& piece, std::string_view text, std::string* out) {
    const bool wanted = step.prepend == PrependScheme::kAlways ||
                        (step.prepend == PrependScheme::kFirst && piece.from_start);
    const bool there = text.starts_with(' ') || text.starts_with(step.pattern);
    if (wanted && piece.may_prefix && !there) out->append(step.pattern);
    for (char c : text) {
      if (c == ' ') {
        out->append(step.pattern);
      } else {
        out->push_back(c);
      }
    }
  });
  if (step.cut) cut(step, list, work);
}

}  // namespace

bool PreTokenizer::removes() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const PreTokenizerStep& step) {
    return step.behavior == SplitBehavior::kRemoved;
  });
}

void PreTokenizer::apply(NormalizedText text, PieceList* list) const {
  list->text = std::move(text.text);
  list->pieces.clear();
  const int64_t size = static_cast<int64_t>(list->text.size());
  if (size == 0) return;
  list->pieces.push_back({{0, size}, text.from_start, text.may_prefix});
  Work work;
  for (const PreTokenizerStep& step : steps_) {
    switch (step.kind) {
      case PreTokenizerStep::Kind::kByteLevel:
        byte_level(step, list, &work);
        break;
      case PreTokenizerStep::Kind::kMetaspace:
        metaspace(step, list, &work);
        break;
      default:
        cut(step, list, &work);
    }
  }
}

}  // namespace moraine
