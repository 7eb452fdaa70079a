// Fails if a choice is given other tokens, another sum or another place than lm-evaluation-harness gives it, if
// grouping changes a bit, or if a bad line gets past its own line number.
#include "eval/choice.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "eval/score.h"
#include "model/loaded_model.h"
#include "testing/places.h"
#include "tokenizer/train.h"

namespace moraine {
namespace {

// 256 bytes, <eos>, <bos> and merges of a few words; `adds_bos`: a post-processor that puts <bos> in front.
std::unique_ptr<Tokenizer> make_tokenizer(bool adds_bos, bool has_bos = true) {
  Pool pool(1);
  int left = 50;
  const auto next = [&](std::string* text) {
    *text = "the cat sat on the mat; the dog ate the hat.";
    return left-- > 0;
  };
  BpeTrainOptions options;
  options.vocab_size = 300;
  options.special_tokens = {"<eos>"};
  if (has_bos) options.special_tokens.push_back("<bos>");
  Json json = parse_json(train_bpe(next, options, pool, [](const BpeTrainProgress&) {}));
  if (adds_bos) {
    const Json special = {{"SpecialToken", {{"id", "<bos>"}, {"type_id", 0}}}};
    const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    json["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single", Json::array({special, text})},
        {"pair", Json::array({special, text})},
        {"special_tokens",
         {{"<bos>",
           {{"id", "<bos>"}, {"ids", Json::array({1})}, {"tokens", Json::array({"<bos>"})}}}}}};
  }
  return Tokenizer::parse(json_text(json), "tokenizer.json");
}

EncodeRule rule_of(const Tokenizer& tokenizer, BeginChoice choice = BeginChoice::kNo,
                   int64_t tokens_max = 100) {
  return {.tokenizer = &tokenizer,
          .begin = find_text_begin(ModelConfig{}, &tokenizer, choice),
          .tokens_max = tokens_max};
}

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void expect_refused(const std::function<void()>& act, const std::vector<std::string>& pieces) {
  try {
    act();
    ADD_FAILURE() << "not refused: " << pieces[0];
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kInvalidArgument);
    for (const std::string& piece : pieces)
      EXPECT_NE(std::string(e.what()).find(piece), std::string::npos) << e.what();
  }
}

TEST(Continuation, SpaceAtTheEndOfTheContextMovesOver) {
  const auto tokenizer = make_tokenizer(false);
  const EncodeRule rule = rule_of(*tokenizer);
  const std::vector<int32_t> context = tokenizer->encode("the cat", false);
  const std::vector<int32_t> whole = tokenizer->encode("the cat sat", false);
  for (const auto& [before, after] :
       std::vector<std::pair<std::string, std::string>>{{"the cat", " sat"}, {"the cat ", "sat"}}) {
    const Continuation c = encode_continuation(rule, before, after, "here");
    EXPECT_EQ(c.ids, whole);
    EXPECT_EQ(c.context_tokens, static_cast<int64_t>(context.size()));
  }
  // All that Python calls space: a no-break space, an ideographic one, line ends.
  for (const char* space : {"\xC2\xA0", "\xE3\x80\x80", "\n\t ", "\x1C", "\xE2\x80\xA8"}) {
    const Continuation c = encode_continuation(rule, std::string("the cat") + space, "sat", "here");
    EXPECT_EQ(c.ids, tokenizer->encode(std::string("the cat") + space + "sat", false));
    EXPECT_EQ(c.context_tokens, static_cast<int64_t>(context.size())) << space;
  }
  // A zero-width space is none.
  EXPECT_GT(encode_continuation(rule, "the cat\xE2\x80\x8B", "sat", "here").context_tokens,
            static_cast<int64_t>(context.size()));
}

TEST(Continuation, TheWholeIsEncodedAtOnce) {
  const auto tokenizer = make_tokenizer(false);
  const EncodeRule rule = rule_of(*tokenizer);
  // "the" is one token, "th" is at least one: "e" melts into it.
  ASSERT_EQ(tokenizer->encode("the", false).size(), 1u);
  expect_refused([&] { encode_continuation(rule, "th", "e", "read f.jsonl, line 7"); },
                 {"read f.jsonl, line 7", "\"e\"", "--delimiter"});
  const Continuation c =
      encode_continuation(rule, "the cat sat on th", "e dog ate the hat", "here");
  EXPECT_EQ(c.ids, tokenizer->encode("the cat sat on the dog ate the hat", false));
  EXPECT_EQ(c.context_tokens,
            static_cast<int64_t>(tokenizer->encode("the cat sat on th", false).size()));
}

TEST(Continuation, AnEmptyContextIsTheTokenThatBeginsOrEndsAText) {
  const auto tokenizer = make_tokenizer(false), without = make_tokenizer(false, false);
  const std::vector<int32_t> cat = tokenizer->encode("cat", false);
  EXPECT_EQ(encode_continuation(rule_of(*tokenizer), "", "cat", "").ids, joined({1}, cat));
  EXPECT_EQ(encode_continuation(rule_of(*without), "", "cat", "").ids,
            joined({0}, without->encode("cat", false)));
  EXPECT_EQ(encode_continuation(rule_of(*tokenizer), "", "cat", "").context_tokens, 1);
  EXPECT_EQ(encode_continuation(rule_of(*tokenizer), " ", "cat", "").ids,
            joined({1}, tokenizer->encode(" cat", false)));
  // Put in front anyway, or in the text itself: once.
  EXPECT_EQ(encode_continuation(rule_of(*tokenizer, BeginChoice::kYes), "", "cat", "").ids,
            joined({1}, cat));
  EXPECT_EQ(encode_continuation(rule_of(*tokenizer), "", "<bos>cat", "").ids, joined({1}, cat));
  EncodeRule none = rule_of(*tokenizer);
  none.begin.id = -1;
  expect_refused([&] { encode_continuation(none, "", "cat", "line 3"); }, {"line 3", "empty"});
}

TEST(Continuation, BeginsAsTheTokenizerDoesUnlessToldOtherwise) {
  const auto adds = make_tokenizer(true), plain = make_tokenizer(false);
  for (const auto& [tokenizer, choice, put] :
       std::vector<std::tuple<const Tokenizer*, BeginChoice, bool>>{
           {adds.get(), BeginChoice::kAuto, true},
           {adds.get(), BeginChoice::kNo, false},
           {plain.get(), BeginChoice::kAuto, false},
           {plain.get(), BeginChoice::kYes, true}}) {
    EXPECT_EQ(rule_of(*tokenizer, choice).begin.put, put);
    const Continuation c = encode_continuation(rule_of(*tokenizer, choice), "the", " cat", "");
    EXPECT_EQ(c.ids.front() == 1, put);
    EXPECT_EQ(c.context_tokens, put ? 2 : 1);
  }
  const auto none = make_tokenizer(false, false);
  expect_refused([&] { rule_of(*none, BeginChoice::kYes); }, {"--bos yes"});
  ModelConfig config;
  config.bos_id = 7;  // the config knows better than the names of tokens
  EXPECT_EQ(find_text_begin(config, plain.get(), BeginChoice::kYes).id, 7);
  EXPECT_EQ(find_text_begin(config, nullptr, BeginChoice::kAuto).put, false);
}

TEST(Continuation, TooLongLosesTheBeginningOfTheContext) {
  const auto tokenizer = make_tokenizer(false);
  const std::string context = "the cat sat on the mat; the dog";
  const Continuation all = encode_continuation(rule_of(*tokenizer), context, " ate", "");
  const int64_t n = static_cast<int64_t>(all.ids.size()), own = n - all.context_tokens;
  for (int64_t room = own + 1; room <= n; ++room) {
    const Continuation cut =
        encode_continuation(rule_of(*tokenizer, BeginChoice::kNo, room), context, " ate", "line 9");
    EXPECT_EQ(cut.tokens_cut, n - room);
    EXPECT_EQ(cut.context_tokens, all.context_tokens - (n - room));
    EXPECT_EQ(cut.ids, std::vector<int32_t>(all.ids.end() - room, all.ids.end()));
  }
  expect_refused(
      [&] {
        encode_continuation(rule_of(*tokenizer, BeginChoice::kNo, own), context, " ate", "line 9");
      },
      {"line 9", "--max-length"});
}

class Scored : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Types, Scored, ::testing::Values("f32", "bf16"));

TEST_P(Scored, SumsOfTokensHoweverManyAtOnce) {
  const auto load = [&](int64_t tokens, int64_t threads) {
    LoadOptions options;
    options.dtype = GetParam();
    options.threads = threads;
    options.tokens = tokens;
    options.positions = 64;
    return LoadedModel::open(
        ModelDirectory::open(posix_file_system(), testing::source_path("tests/golden/native-tiny")),
        options);
  };
  const auto tokenizer = make_tokenizer(false);
  std::vector<Continuation> all;
  for (const char* context : {"the cat", "the cat sat on the mat; the", "", "Q: 1+1? A:"})
    for (const char* choice : {" sat", " the dog ate the hat", ".", " 2"})
      all.push_back(encode_continuation(rule_of(*tokenizer), context, choice, ""));
  const auto one = load(64, 1);
  std::vector<double> want;
  for (const Continuation& c : all) {
    const std::vector<double> logprobs = score_tokens({one->ctx(), one->model()}, c.ids);
    double sum = 0;
    for (size_t i = static_cast<size_t>(c.context_tokens); i < logprobs.size(); ++i)
      sum += logprobs[i];
    want.push_back(sum);
  }
  for (const int64_t tokens : {64, 65, 100, 1000}) {
    const auto m = load(tokens, 2);
    int64_t last = -1;
    const auto progress = [&](int64_t done, int64_t total) {
      EXPECT_GT(done, last);
      EXPECT_EQ(total, 16);
      last = done;
    };
    EXPECT_EQ(score_continuations({m->ctx(), m->model()}, all, progress), want) << tokens;
    EXPECT_EQ(last, 16);
  }
}

ChoiceQuestion question(const std::vector<std::string>& choices, int64_t answer) {
  return {.context = "", .choices = choices, .answer = answer, .where = ""};
}

TEST(Choice, AccuracyAndItsError) {
  // The first of equals counts; length is in characters, not bytes.
  const std::vector<ChoiceQuestion> questions = {
      question({"a", "bb"}, 0),                  // -2, -2: first; -2, -1: second
      question({"a", "bb"}, 1),                  // -2, -3: first; -2, -1.5: second
      question({"\xC3\xA4\xC3\xB6", "ccc"}, 0),  // -2, -2.7: first; -1, -0.9: second
      question({"x", "y", "z"}, 2)};             // -3, -2, -1: third
  const std::vector<double> logprobs = {-2, -2, -2, -3, -2, -2.7, -3, -2, -1};
  const ChoiceResult r = choose(questions, logprobs);
  EXPECT_EQ(r.questions, 4);
  EXPECT_DOUBLE_EQ(r.acc.mean, 0.75);
  EXPECT_DOUBLE_EQ(r.acc.stderr_of_mean, 0.25);  // sqrt((3/16 + 9/16) / 3) / 2
  EXPECT_DOUBLE_EQ(r.acc_norm.mean, 0.5);
  EXPECT_DOUBLE_EQ(r.acc_norm.stderr_of_mean, std::sqrt(1.0 / 3) / 2);
  const ChoiceResult single = choose(std::span(questions).first(1), std::span(logprobs).first(2));
  EXPECT_EQ(single.acc.mean, 1);
  EXPECT_TRUE(std::isnan(single.acc.stderr_of_mean));
}

TEST(Choice, TheDelimiterIsScoredAndNotCounted) {
  const auto tokenizer = make_tokenizer(false);
  const std::vector<ChoiceQuestion> questions = {
      {.context = "the cat", .choices = {"sat", "ate"}, .answer = 0, .where = "line 1"}};
  const ChoiceRequests r = encode_questions(rule_of(*tokenizer), questions, " ");
  EXPECT_EQ(r.continuations[0].ids, tokenizer->encode("the cat sat", false));
  EXPECT_EQ(r.continuations[1].ids, tokenizer->encode("the cat ate", false));
  EXPECT_EQ(r.truncated, 0);
  const int64_t n = r.tokens_max;
  const ChoiceRequests cut =
      encode_questions(rule_of(*tokenizer, BeginChoice::kNo, n - 1), questions, " ");
  EXPECT_GE(cut.truncated, 1);
  EXPECT_EQ(cut.first_truncated, "line 1");
  EXPECT_EQ(cut.tokens_max, n - 1);
}

TEST(ChoiceQuestion, LinesAndTheirFaults) {
  const ChoiceQuestion q = parse_choice_question(
      R"({"id": 5, "context": "a\n", "choices": ["b", "c"], "answer": 1})", "line 4");
  EXPECT_EQ(q.context, "a\n");
  EXPECT_EQ(q.choices, (std::vector<std::string>{"b", "c"}));
  EXPECT_EQ(q.answer, 1);
  EXPECT_EQ(q.where, "line 4");
  for (const auto& [line, piece] : std::vector<std::pair<std::string, std::string>>{
           {"", ""},
           {"[1]", "an array"},
           {R"({"context": "a", "choices": ["b", "c"]})", "'answer'"},
           {R"({"choices": ["b", "c"], "answer": 0})", "'context'"},
           {R"({"context": 1, "choices": ["b", "c"], "answer": 0})", "'context'"},
           {R"({"context": "a", "choices": "bc", "answer": 0})", "'choices'"},
           {R"({"context": "a", "choices": ["b", 2], "answer": 0})", "'choices'"},
           {R"({"context": "a", "choices": ["b"], "answer": 0})", "1 choices"},
           {R"({"context": "a", "choices": ["b", ""], "answer": 0})", "choice 1 has no text"},
           {R"({"context": "a", "choices": ["b", "c"], "answer": 2})", "wanted 0 to 1"},
           {R"({"context": "a", "choices": ["b", "c"], "answer": -1})", "answer -1"},
           {R"({"context": "a", "choices": ["b", "c"], "answer": "A"})", "'answer'"},
           {R"({"context": "a", "choices": ["b", "c"], "answer": 1.5})", "'answer'"}}) {
    const std::string& text = line;
    expect_refused([&] { parse_choice_question(text, "read f, line 4"); },
                   {"read f, line 4: ", piece, R"(wanted {"context")"});
  }
}

}  // namespace
}  // namespace moraine
