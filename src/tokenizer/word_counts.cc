// Word counts: counts groups of texts apart, then adds them up in order.
#include "tokenizer/word_counts.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/utf8.h"

namespace moraine {
namespace {

constexpr int64_t kGroupBytes = int64_t{1} << 20;
constexpr int64_t kGroupsInBatch = 16;

struct Group {
  std::vector<std::string> texts;
  int64_t bytes = 0;
  WordCounts counts;
  std::exception_ptr failure;
};

bool batch_is_full(const std::vector<Group>& groups) {
  return static_cast<int64_t>(groups.size()) == kGroupsInBatch &&
         groups.back().bytes >= kGroupBytes;
}

void count_valid(std::string_view text, const PreTokenizer& pre_tokenizer, PieceList* list,
                 WordCounts* counts) {
  pre_tokenizer.apply({.text = std::string(text)}, list);
  for (const TextPiece& piece : list->pieces) {
    const TextRange r = piece.range;
    counts->add(std::string_view(list->text).substr(r.begin, r.end - r.begin), 1);
  }
}

// Text between special tokens.
void count_part(std::string_view text, const PreTokenizer& pre_tokenizer, PieceList* list,
                WordCounts* counts) {
  while (!text.empty()) {
    const int64_t valid = valid_utf8_prefix(text);
    if (valid > 0) count_valid(text.substr(0, valid), pre_tokenizer, list, counts);
    text.remove_prefix(std::min<size_t>(text.size(), valid + 1));
  }
}

void count_group(const WordCutter& cutter, Group* group) {
  const auto& [pre_tokenizer, special_tokens] = cutter;
  PieceList list;
  for (const std::string& text : group->texts) {
    const std::string_view view = text;
    int64_t done = 0;
    TextPart found;
    while (!special_tokens.empty() && special_tokens.find(view, done, &found)) {
      count_part(view.substr(done, found.range.begin - done), pre_tokenizer, &list, &group->counts);
      done = found.range.end;
    }
    count_part(view.substr(done), pre_tokenizer, &list, &group->counts);
  }
}

}  // namespace

void WordCounts::add(std::string_view word, int64_t count) {
  const int32_t index = words_.find(word);
  if (index >= 0) {
    counts_[index] += count;
  } else {
    words_.insert(word, static_cast<int32_t>(counts_.size()));
    counts_.push_back(count);
  }
}

void WordCounts::add_all(const WordCounts& other) {
  for (int64_t i = 0; i < other.size(); ++i) add(other.word(i), other.count(i));
}

void WordCounts::forget_rare(int64_t words_most) {
  for (int64_t least = 2; size() > words_most; ++least) {
    WordCounts kept;
    for (int64_t i = 0; i < size(); ++i) {
      if (counts_[i] >= least) kept.add(word(i), counts_[i]);
    }
    *this = std::move(kept);
  }
}

WordCounts count_words(const std::function<bool(std::string*)>& next, const WordCutter& cutter,
                       Pool& pool, const std::function<void(int64_t bytes)>& progress) {
  WordCounts counts;
  int64_t bytes = 0;
  for (bool more = true; more;) {
    std::vector<Group> groups;
    std::string text;
    while (!batch_is_full(groups) && (more = next(&text))) {
      if (groups.empty() || groups.back().bytes >= kGroupBytes) groups.emplace_back();
      groups.back().bytes += static_cast<int64_t>(text.size());
      groups.back().texts.push_back(std::move(text));
      text.clear();
    }
    pool.parallel_for(static_cast<int64_t>(groups.size()), [&](int64_t task, int) {
      Group& group = groups[task];
      try {
        count_group(cutter, &group);
      } catch (...) {
        group.failure = std::current_exception();
      }
    });
    for (const Group& group : groups) {
      if (group.failure) std::rethrow_exception(group.failure);
      counts.add_all(group.counts);
      bytes += group.bytes;
    }
    counts.forget_rare(WordCounts::kWordsMost);
    progress(bytes);
  }
  return counts;
}

}  // namespace moraine
