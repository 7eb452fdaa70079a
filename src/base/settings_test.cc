// Settings: fails if a typo, a wrong type or an impossible value in a config is taken silently, or its
// message does not name the place and what is allowed.
#include "base/settings.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace moraine {
namespace {

enum class Block : uint8_t { kScaled, kPlain };

struct Example {
  int64_t hidden = 256;
  double rate = 0.5;
  bool tied = true;
  std::string kind = "cca";
  std::vector<int64_t> list = {1};
  std::vector<std::string> names;
  Block block = Block::kPlain;
};

Fields fields(Example& e) {
  return {{"hidden", &e.hidden, "channels", "Model width.", 1, 1e6},
          {"rate", &e.rate, "", "A rate.", 0, 1},
          {"tied", &e.tied, "", "Tied."},
          {"kind", &e.kind, "", "Kind.", 0, 0, {"cca", "gqa"}},
          {"list", &e.list, "", "List.", 0, 9},
          {"names", &e.names, "", "Names."},
          choice_field("block", &e.block, "Block.", {"scaled", "plain"})};
}

std::string parse_error(const std::string& text) {
  Example e;
  try {
    SettingsTable::parse(text, "run.toml").table("model").read(fields(e));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    return error.what();
  }
  return "no error";
}

TEST(Settings, ReadsWhatItPrints) {
  Example e;
  SettingsTable::parse(
      "[model]\nhidden = 64\nrate = 1\ntied = false\nkind = \"gqa\"\nlist = [2, 3]\n"
      "names = [\"a b\", 'it\"s']\n",
      "a")
      .table("model")
      .read(fields(e));
  EXPECT_EQ(e.names, (std::vector<std::string>{"a b", "it\"s"}));
  EXPECT_EQ(e.hidden, 64);
  EXPECT_EQ(e.rate, 1.0);
  EXPECT_FALSE(e.tied);
  Example again;
  SettingsTable::parse("[model]\n" + print_fields(fields(e)), "b")
      .table("model")
      .read(fields(again));
  EXPECT_EQ(print_fields(fields(again)), print_fields(fields(e)));
}

TEST(Settings, AnEnumIsReadAndPrintedByName) {
  Example e;
  EXPECT_NE(print_fields(fields(e)).find("block = 'plain'\n"), std::string::npos);
  SettingsTable::parse("[model]\nblock = \"scaled\"\n", "run.toml").table("model").read(fields(e));
  EXPECT_EQ(e.block, Block::kScaled);
  const std::string error = parse_error("[model]\nblock = \"scald\"\n");
  EXPECT_NE(error.find("allowed is one of \"scaled\", \"plain\"; nearest: \"scaled\""),
            std::string::npos)
      << error;
  EXPECT_NE(parse_error("[model]\nblock = 0\n").find("wanted text in quotes"), std::string::npos);
  EXPECT_NE(
      document_fields("model", fields(e)).find("| `block` | text | `'scaled'` | scaled, plain |"),
      std::string::npos);
}

TEST(Settings, ErrorsNamePlaceAndRemedy) {
  EXPECT_EQ(parse_error("[model]\nhiden = 3"),
            "run.toml:2: model.hiden: unknown key; did you mean \"hidden\"?");
  EXPECT_EQ(parse_error("[model]\n\nhidden = \"x\""),
            "run.toml:3: model.hidden: found a string, wanted an integer");
  EXPECT_EQ(parse_error("[model]\nhidden = 1.5"),
            "run.toml:2: model.hidden: found a floating-point, wanted an integer");
  EXPECT_EQ(parse_error("[model]\nhidden = 0"),
            "run.toml:2: model.hidden = 0: allowed is from 1 to 1000000 channels");
  EXPECT_EQ(parse_error("[model]\nrate = nan"),
            "run.toml:2: model.rate = nan: allowed is from 0 to 1");
  EXPECT_EQ(
      parse_error("[model]\nkind = \"gqaa\""),
      "run.toml:2: model.kind = \"gqaa\": allowed is one of \"cca\", \"gqa\"; nearest: \"gqa\"");
  EXPECT_EQ(parse_error("[model]\nlist = [1, \"a\"]"),
            "run.toml:2: model.list: found a string, wanted a list of integers");
  EXPECT_EQ(parse_error("[model]\nnames = [\"a\", 1.5]"),
            "run.toml:2: model.names: found a floating-point, wanted a list of texts");
  EXPECT_EQ(parse_error("[model]\nkind = 3"),
            "run.toml:2: model.kind: found an integer, wanted text in quotes");
  EXPECT_NE(parse_error("model = 3").find("wanted a table"), std::string::npos);
  EXPECT_NE(parse_error("[model\n").find("run.toml:1"), std::string::npos);
}

TEST(Settings, CommandLineWins) {
  SettingsTable settings = SettingsTable::parse("[model]\nhidden = 3\n", "run.toml");
  settings.set("model.hidden=7");
  settings.set("model.kind=gqa");
  settings.set("model.list=[4, 5]");
  Example e;
  settings.table("model").read(fields(e));
  EXPECT_EQ(e.hidden, 7);
  EXPECT_EQ(e.kind, "gqa");
  EXPECT_EQ(e.list, (std::vector<int64_t>{4, 5}));
  EXPECT_THROW(settings.set("model.hidden"), Error);
  EXPECT_THROW(settings.set("model.hidden.x=3"), Error);
}

TEST(Settings, WhatTheCommandLineSaysIsNotBlamedOnTheFile) {
  const auto error_of = [](const std::string& assignment, const std::string& text = "") {
    SettingsTable settings = SettingsTable::parse(text, "run.toml");
    settings.set(assignment);
    Example e;
    try {
      settings.table("model").read(fields(e));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(error_of("model.hiden=3"), "--set model.hiden: unknown key; did you mean \"hidden\"?");
  EXPECT_EQ(error_of("model.hidden=x", "[model]\nhidden = 3\n"),
            "--set model.hidden: found a string, wanted an integer");
  EXPECT_EQ(error_of("model={hidden = 0}"),
            "--set model.hidden = 0: allowed is from 1 to 1000000 channels");
  EXPECT_EQ(error_of("model.hidden=3", "[model]\nhiddens = 3\n"),
            "run.toml:2: model.hiddens: unknown key; did you mean \"hidden\"?");
}

// The library recurses once for each part of a key, when it takes a table down too.
TEST(Settings, KeysOfManyPartsAreRefused) {
  std::string key = "a";
  for (int i = 0; i < 300'000; ++i) key += ".a";
  for (const std::string& text : {key + " = 1\n", "[" + key + "]\n", "x = {" + key + " = 1}\n",
                                  "x = '''\n'''\ny = \"\\\"\"\n" + key + " = 1\n"}) {
    const std::string error = parse_error(text);
    EXPECT_NE(error.find("more than 64 parts"), std::string::npos) << error.substr(0, 100);
    EXPECT_LT(error.size(), 200u);
  }
  SettingsTable settings = SettingsTable::parse("", "run.toml");
  EXPECT_THROW(settings.set(key + "=1"), Error);
  EXPECT_THROW(settings.set("a={" + key + "=1}"), Error);
  // Dots that part no keys.
  const std::string dots(200, '.');
  std::string list = "1.5";
  for (int i = 0; i < 100; ++i) list += ", 1.5";
  SettingsTable::parse(
      "# " + dots + "\na = \"" + dots + "\"\nb = '''\n" + dots + "\n'''\nc = [" + list + "]\n",
      "run.toml");
}

TEST(Settings, WhatIsNotUtf8IsRefused) {
  SettingsTable settings = SettingsTable::parse("", "run.toml");
  try {
    settings.set("report.sample_prompt=\xff");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()),
              "--set report.sample_prompt=\\xff: byte 21 begins no character; wanted UTF-8");
  }
  EXPECT_NE(parse_error("a = \"\xff\"\n").find("run.toml:1"), std::string::npos);
}

}  // namespace
}  // namespace moraine
