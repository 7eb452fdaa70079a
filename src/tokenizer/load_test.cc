// Damaged and foreign tokenizer.json files: always an Error that names the place, never a crash.
// Fails if a check is missing before an id, a length or a component is used.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error.h"
#include "base/file_system.h"
#include "base/json.h"
#include "base/random.h"
#include "tokenizer/test_golden.h"

namespace moraine {
namespace {

std::string golden_json(const std::string& style) {
  return posix_file_system().read(testing::golden_path(style));
}

// Loads, and if that works, encodes: an Error is fine, anything else is not.
bool survives(const std::string& json) {
  try {
    const auto tokenizer = Tokenizer::parse(json, "damaged");
    const std::vector<int32_t> ids = tokenizer->encode("The end, <|end|> 12 \xFF é\n", true);
    for (const int32_t id : ids) EXPECT_LT(id, tokenizer->vocabulary_size());
    tokenizer->decode(ids, false);
    return true;
  } catch (const Error& e) {
    EXPECT_TRUE(e.code() == Code::kCorrupt || e.code() == Code::kInvalidArgument) << e.what();
    return false;
  }
}

TEST(LoadDamaged, CutAnywhere) {
  for (const char* style : {"gemma3", "falcon"}) {
    const std::string json = golden_json(style);
    for (size_t at = 0; at < json.size(); at += 1 + at / 25) {
      EXPECT_FALSE(survives(json.substr(0, at))) << style << " cut at " << at;
    }
  }
}

TEST(LoadDamaged, FlippedBytes) {
  for (const char* style : {"gemma3", "llama3", "splits", "metaspace_first"}) {
    const std::string json = golden_json(style);
    for (uint64_t seed = 0; seed < 150; ++seed) {
      std::string damaged = json;
      for (uint64_t i = 0; i <= seed % 3; ++i) {
        // Half of them in the first part, where the components are.
        const uint64_t span = seed % 2 == 0 ? 3500 : json.size();
        damaged[random_below(span, seed, Stream::kTest, 3, i)] =
            static_cast<char>(random_below(256, seed, Stream::kTest, 4, i));
      }
      survives(damaged);
    }
  }
}

// Every value of the document, one after the other, replaced by something of another type.
void each_value(Json* value, const std::function<void()>& changed) {
  static const Json kStrange[] = {nullptr,       7, -1, 1e300, "x", "", true, Json::array(),
                                  Json::object()};
  if ((value->is_array() || value->is_object()) && value->size() < 40) {
    for (Json& child : *value) each_value(&child, changed);
  }
  const Json kept = *value;
  for (const Json& strange : kStrange) {
    *value = strange;
    changed();
  }
  *value = kept;
}

TEST(LoadDamaged, WrongTypes) {
  for (const char* style : {"gemma3", "llama2", "splits", "metaspace_first", "falcon", "llama3"}) {
    Json root = parse_json(golden_json(style), style);
    root["model"]["vocab"] = Json::object({{"a", 0}, {"b", 1}, {"ab", 2}, {"<unk>", 3}});
    root["model"]["merges"] = Json::array({"a b"});
    root["added_tokens"] = Json::array({root["added_tokens"].back()});
    root["added_tokens"][0]["id"] = 4;
    root["post_processor"] = nullptr;
    ASSERT_TRUE(survives(json_text(root))) << style;
    each_value(&root, [&] { survives(json_text(root)); });
  }
}

// A change to the gpt2 file, and a word that the message must contain.
struct Damage {
  const char* word;
  std::function<void(Json*)> change;
};

const Damage kDamages[] = {
    {"4194304", [](Json* j) { (*j)["model"]["vocab"]["zzz"] = 1'000'000'000; }},
    {"4194304", [](Json* j) { (*j)["model"]["vocab"]["zzz"] = -5; }},
    {"integer", [](Json* j) { (*j)["model"]["vocab"]["zzz"] = 1e30; }},
    {"same id", [](Json* j) { (*j)["model"]["vocab"]["zzz"] = 7; }},
    {"vocabulary lacks", [](Json* j) { (*j)["model"]["merges"].push_back("zz yy"); }},
    {"vocabulary lacks",
     [](Json* j) {
       (*j)["model"]["merges"].push_back({"a", "ðŁ"});
     }},
    {"two halves", [](Json* j) { (*j)["model"]["merges"].push_back("abc"); }},
    {"two halves", [](Json* j) { (*j)["model"]["merges"].push_back("a b c"); }},
    {"two halves",
     [](Json* j) {
       (*j)["model"]["merges"].push_back({"a", "b", "c"});
     }},
    {"two halves",
     [](Json* j) {
       (*j)["model"]["merges"].push_back({"", "b"});
     }},
    {"vocab", [](Json* j) { (*j)["model"].erase("vocab"); }},
    {"model", [](Json* j) { j->erase("model"); }},
    {"Unigram", [](Json* j) { (*j)["model"]["type"] = "Unigram"; }},
    {"dropout", [](Json* j) { (*j)["model"]["dropout"] = 0.1; }},
    {"end_of_word_suffix", [](Json* j) { (*j)["model"]["end_of_word_suffix"] = "</w>"; }},
    {"next free", [](Json* j) { (*j)["added_tokens"][1]["id"] = 999; }},
    {"in the vocabulary", [](Json* j) { (*j)["added_tokens"][0]["id"] = 3; }},
    {"there twice",
     [](Json* j) {
       Json tokens = Json::array();
       for (const Json& token : (*j)["added_tokens"]) {
         tokens.push_back(token);
         if (tokens.size() == 2) tokens.push_back(token);
       }
       tokens[2]["id"] = tokens[1]["id"].get<int>() + 1;
       (*j)["added_tokens"] = tokens;
     }},
    {"Precompiled",
     [](Json* j) {
       (*j)["normalizer"] = {{"type", "Precompiled"}};
     }},
    {"UnicodeScripts",
     [](Json* j) {
       (*j)["pre_tokenizer"] = {{"type", "UnicodeScripts"}};
     }},
    {"WordPiece",
     [](Json* j) {
       (*j)["decoder"] = {{"type", "WordPiece"}};
     }},
    {"Nonsense",
     [](Json* j) {
       (*j)["post_processor"] = {{"type", "Nonsense"}};
     }},
    {"2.0", [](Json* j) { (*j)["version"] = "2.0"; }},
    {"regular expression",
     [](Json* j) {
       (*j)["pre_tokenizer"] = {{"type", "Split"},
                                {"pattern", {{"Regex", "(a"}}},
                                {"behavior", "Isolated"},
                                {"invert", false}};
     }},
    {"post-processor",
     [](Json* j) {
       (*j)["post_processor"] = {
           {"type", "BertProcessing"}, {"cls", {"x", 5}}, {"sep", {"y", 9999}}};
     }},
    {"after Fuse",
     [](Json* j) {
       (*j)["decoder"] = {{"type", "Sequence"},
                          {"decoders", {{{"type", "Fuse"}}, {{"type", "ByteFallback"}}}}};
     }},
};

TEST(LoadDamaged, NamesWhatIsWrong) {
  for (const Damage& damage : kDamages) {
    Json json = parse_json(golden_json("gpt2"), "gpt2");
    damage.change(&json);
    try {
      Tokenizer::parse(json_text(json), "the file");
      ADD_FAILURE() << "no error about " << damage.word;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(damage.word), std::string::npos)
          << e.what() << ", wanted " << damage.word;
      EXPECT_NE(std::string(e.what()).find("read "), std::string::npos) << e.what();
    }
  }
}

TEST(LoadDamaged, DeepAndRepeated) {
  std::string deep;
  for (int i = 0; i < 5000; ++i) deep += R"({"type":"Sequence","normalizers":[)";
  EXPECT_FALSE(survives(R"({"model":{"vocab":{},"merges":[]},"normalizer":)" + deep));
  std::string closed = deep;
  for (int i = 0; i < 5000; ++i) closed += "]}";
  EXPECT_FALSE(survives(R"({"model":{"vocab":{},"merges":[]},"normalizer":)" + closed + "}"));
  EXPECT_FALSE(survives(R"({"model":{"vocab":{"a":0,"a":1},"merges":[]}})"));
  EXPECT_TRUE(survives(R"({"model":{"vocab":{},"merges":[]}})"));
}

// A few lines that ask for gigabytes, or for hours.
TEST(LoadDamaged, GreedyNormalizersAndTokensAreRefused) {
  Json json = parse_json(golden_json("gpt2"), "gpt2");
  const Json twice = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  const auto error_of = [&](const std::string& text) -> std::string {
    try {
      Tokenizer::parse(json_text(json), "greedy")->encode(text, false);
      return "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kInvalidArgument);
      return e.what();
    }
  };
  Json steps = Json::array();
  for (int i = 0; i < 27; ++i) steps.push_back(twice);
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
  EXPECT_NE(error_of("a").find("64 times"), std::string::npos);
  json["normalizer"] = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1 << 20, 'b')}};
  EXPECT_NE(error_of(std::string(10'000, 'a')).find("64 times"), std::string::npos);
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array({twice, twice})}};
  EXPECT_EQ(error_of(std::string(10'000, 'a')), "no error");

  json["normalizer"] = nullptr;
  Json token = json["added_tokens"].back();
  token["id"] = token["id"].get<int>() + 1;
  token["content"] = std::string(257, 'a');
  json["added_tokens"].push_back(token);
  EXPECT_NE(error_of("a").find("257 bytes, the limit is 256"), std::string::npos);
  json["added_tokens"].back()["content"] = std::string(256, 'a');
  EXPECT_EQ(error_of("a"), "no error");
}

TEST(LoadDamaged, ARepeatedMergeHasItsLastRank) {
  const auto tokenizer = Tokenizer::parse(
      R"({"model":{"vocab":{"a":0,"b":1,"c":2,"ab":3,"bc":4},"merges":["a b","b c","a b"]}})", "x");
  EXPECT_EQ(tokenizer->encode("abc", false), (std::vector<int32_t>{0, 4}));
}

}  // namespace
}  // namespace moraine
