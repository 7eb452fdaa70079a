// Program: what people expect of any program: its version, a hint for a mistyped command, manual
// pages, completion, and text to token ids and back.
//
// Fails if a flag of a command is missing in its manual page or in a completion, if a shell does
// not understand its script, if a page is not roff, or if the tokenizer's round trip loses a byte.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/json.h"
#include "base/test_folder.h"
#include "testing/places.h"
#include "tests/program.h"
#include "tests/tiny_run.h"
#include "tokenizer/tokenizer.h"

namespace moraine {
namespace {

using namespace testing;

std::string tokenizer_file(const std::string& name) {
  return source_path("tests/golden/tokenizer/" + name + ".json");
}

bool has_program(const std::string& name) {
  return std::system(("command -v " + name + " >/dev/null 2>&1").c_str()) == 0;
}

class ProgramCli : public ::testing::Test {
 protected:
  std::string must(const std::vector<std::string>& args) const {
    const Ended ended = run_program(folder.path(), args);
    EXPECT_EQ(ended.exit_code, 0) << args[0] << ": " << ended.err;
    return ended.out;
  }
  void expect_error(const std::vector<std::string>& args, int code,
                    const std::string& piece) const {
    const Ended ended = run_program(folder.path(), args);
    EXPECT_EQ(ended.exit_code, code) << ended.err;
    EXPECT_NE(ended.err.find(piece), std::string::npos)
        << "wanted " << piece << "\ngot " << ended.err;
  }
  // What a shell prints for a script; fails if the script fails or prints to stderr.
  std::string shell(const std::string& program, const std::string& script) const {
    folder.write("script", script);
    const std::string out = folder.file("shell.out"), err = folder.file("shell.err");
    const int status =
        std::system((program + " " + folder.file("script") + " >" + out + " 2>" + err).c_str());
    EXPECT_EQ(status, 0) << script;
    EXPECT_EQ(posix_file_system().read(err), "") << script;
    return posix_file_system().read(out);
  }
  // Every --flag that the command's --help lists.
  std::vector<std::string> flags_of(const std::string& command) const {
    std::vector<std::string> flags;
    const std::string help = must({command, "--help"});
    for (size_t at = help.find("\n  --"); at != std::string::npos; at = help.find("\n  --", at + 1))
      flags.push_back(help.substr(at + 3, help.find_first_of(" \n", at + 3) - at - 3));
    EXPECT_GE(flags.size(), 3u) << help;
    return flags;
  }

  TestFolder folder;
};

// As the run that begins with this model: it samples, and so does the model.
TEST_F(ProgramCli, ARandomModelHasTheTokenizerOfItsConfig) {
  const std::string shape =
      "[model]\nhidden = 64\nlayers = 1\nhead_dim = 16\n[data]\ntrain = \"none\"\ntokenizer = \"";
  posix_file_system().make_directories(folder.file("t"));
  folder.write("t/tokenizer.json", posix_file_system().read(tokenizer_file("gpt2")));
  folder.write("folder.toml", shape + folder.file("t") + "\"\n");
  folder.write("file.toml", shape + tokenizer_file("gpt2") + "\"\n");
  folder.write("absent.toml", shape + folder.file("absent") + "\"\n");
  for (const std::string name : {"folder", "file"}) {
    must({"import", "--random", folder.file(name + ".toml"), "--out", folder.file(name)});
    must({"generate", "--model", folder.file(name), "--prompt", "Hi", "--max-tokens", "3"});
  }
  const std::string config = folder.file("absent.toml"), out = folder.file("e");
  expect_error({"import", "--random", config, "--out", out}, 11,
               "data.tokenizer is " + folder.file("absent") + ", and there is no");
  expect_error({"import", "--random", config, "--out", out, "--tokenizer", folder.file("gone")}, 11,
               "--tokenizer is " + folder.file("gone"));
  EXPECT_FALSE(posix_file_system().exists(out));
  must({"import", "--random", config, "--out", out, "--tokenizer", folder.file("t")});
}

// A model of any shape to measure with: the values that training begins with, with and without a tokenizer.
TEST_F(ProgramCli, ARandomModelIsMadeOfAConfig) {
  folder.write("c.toml",
               "[model]\nvocab_size = 600\nhidden = 64\nlayers = 2\nexperts = 4\n"
               "expert_hidden = 32\nhead_dim = 16\n[train]\nseed = 9\n");
  const auto hash = [&](const std::string& model) { return must({"inspect", model, "--hash"}); };
  const std::string config = folder.file("c.toml");
  must({"import", "--random", config, "--out", folder.file("a"), "--dtype", "bf16"});
  must({"import", "--random", config, "--out", folder.file("b"), "--dtype", "bf16", "--seed", "9"});
  must({"import", "--random", config, "--out", folder.file("c"), "--dtype", "bf16", "--seed", "8"});
  EXPECT_EQ(hash(folder.file("a")), hash(folder.file("b")));
  EXPECT_NE(hash(folder.file("a")), hash(folder.file("c")));
  const std::string ids =
      must({"generate", "--model", folder.file("a"), "--tokens", "5 6", "--max-tokens", "3"});
  EXPECT_EQ(std::count(ids.begin(), ids.end(), ' '), 2) << ids;
  // The tokenizer has fewer tokens than the model; then more.
  posix_file_system().make_directories(folder.file("t"));
  folder.write("t/tokenizer.json", posix_file_system().read(tokenizer_file("gpt2")));
  must({"import", "--random", config, "--out", folder.file("d"), "--tokenizer", folder.file("t")});
  must({"generate", "--model", folder.file("d"), "--prompt", "Hi", "--max-tokens", "3"});
  folder.write("small.toml", "[model]\nvocab_size = 20\nhidden = 64\nlayers = 1\n");
  expect_error({"import", "--random", folder.file("small.toml"), "--out", folder.file("e"),
                "--tokenizer", folder.file("t")},
               10, "model.vocab_size is 20");
  folder.write("none.toml", "[model]\nhidden = 64\nlayers = 1\n");
  expect_error({"import", "--random", folder.file("none.toml"), "--out", folder.file("e")}, 10,
               "neither model.vocab_size nor data.tokenizer is given");
  expect_error({"import", "--out", folder.file("e")}, 10, "either --from FOLDER or --random");
  expect_error({"import", "--from", "x", "--seed", "3", "--out", folder.file("e")}, 10,
               "belong to --random");
  expect_error({"import", "--random", config, "--set", "modle.layers=1", "--out", folder.file("e")},
               10, "a model is made of model.*, data.tokenizer and train.seed alone");
  EXPECT_FALSE(posix_file_system().exists(folder.file("e")));
}

TEST_F(ProgramCli, VersionSaysWhatWasBuiltAndWhatIsUsed) {
  setenv("MORAINE_ISA", "baseline", 1);
  const std::string text = must({"--version"});
  unsetenv("MORAINE_ISA");
  EXPECT_EQ(text.substr(0, 8), "moraine ");
  for (const char* piece :
       {"\ncommit: ", "\ncompiler: ", "instruction sets: compiled baseline, ", "; used baseline\n"})
    EXPECT_NE(text.find(piece), std::string::npos) << piece << " in " << text;
  EXPECT_EQ(text.find('@'), std::string::npos) << text;  // every place of the template was filled
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
  // What is used on this machine is one of those that were compiled.
  const std::string here = must({"--version"});
  const size_t used = here.find("; used ") + 7, compiled = here.find("compiled ");
  const std::string name = here.substr(used, here.size() - used - 1);
  EXPECT_NE(here.substr(compiled, used - compiled).find(" " + name), std::string::npos) << here;
}

TEST_F(ProgramCli, AnUnknownCommandIsOneLineWithAHint) {
  const Ended ended = run_program(folder.path(), {"trian"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(ended.err,
            "moraine: no command 'trian'; did you mean train? 'moraine --help' lists the "
            "commands\n");
}

TEST_F(ProgramCli, EveryFlagIsInThePageAndInBothCompletions) {
  const std::string bash = must({"completion", "bash"}), zsh = must({"completion", "zsh"});
  for (const std::string& command : listed_commands(folder.path())) {
    const std::string page = must({"man", command});
    for (const std::string& flag : flags_of(command)) {
      std::string escaped;
      for (const char c : flag) escaped += c == '-' ? std::string("\\-") : std::string(1, c);
      EXPECT_NE(page.find("\n\\fB" + escaped + "\\fR"), std::string::npos) << command << flag;
      const size_t in_bash = bash.find("'" + command + " '*) words='");
      ASSERT_NE(in_bash, std::string::npos);
      const std::string words = bash.substr(in_bash, bash.find(";;", in_bash) - in_bash);
      EXPECT_NE((words + " ").find(flag), std::string::npos) << words;
      const size_t in_zsh = zsh.find("\n    " + command + ")\n");
      ASSERT_NE(in_zsh, std::string::npos);
      const std::string specs = zsh.substr(in_zsh, zsh.find(";;", in_zsh) - in_zsh);
      EXPECT_NE(specs.find(flag + "["), std::string::npos) << specs;
    }
  }
}

TEST_F(ProgramCli, BashCompletes) {
  must({"completion", "bash", "--out", folder.file("moraine.bash")});
  const auto complete = [&](const std::string& line) {  // the last word is the one being typed
    return shell("bash", "source " + folder.file("moraine.bash") + "\nCOMP_WORDS=(" + line +
                             ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_moraine\n"
                             "echo \"${COMPREPLY[*]}\"\n");
  };
  EXPECT_EQ(complete("moraine tra"), "train\n");
  EXPECT_EQ(complete("moraine --v"), "--version\n");
  EXPECT_EQ(complete("/usr/bin/moraine ev"), "eval\n");
  EXPECT_EQ(complete("moraine train --co"), "--config\n");
  EXPECT_EQ(complete("moraine train --config run.toml --res"), "--resume\n");
  EXPECT_EQ(complete("moraine eval ''"), "perplexity choice score compare\n");
  EXPECT_EQ(complete("moraine bench sto"), "storage\n");
  EXPECT_EQ(complete("moraine export --layout n"), "native\n");
  EXPECT_EQ(complete("moraine train --config ''"), "\n");  // file names, by bash itself
  EXPECT_EQ(complete("moraine nothing --x"), "\n");
}

TEST_F(ProgramCli, ZshCompletes) {
  if (!has_program("zsh")) GTEST_SKIP() << "zsh is not installed";
  must({"completion", "zsh", "--out", folder.file("_moraine")});
  shell("zsh -n", posix_file_system().read(folder.file("_moraine")));
  // An interactive shell in a pseudo terminal, with tab pressed after `line`: what the line became.
  const auto complete = [&](const std::string& line) {
    const std::string text = shell("timeout 120 zsh -f", R"(zmodload zsh/zpty
zpty z 'TERM=dumb HOME=)" + folder.path() + R"( zsh -f -i'
zpty -w z 'PS1=; fpath=()" + folder.path() + R"( $fpath); autoload -Uz compinit; compinit -u -D
show() { print -r -- "got:$BUFFER:"; exit }; zle -N show; bindkey "^X" show; print rea""dy'
all= seen=
while zpty -r z seen; do all+=$seen; [[ $all == *ready* ]] && break; done
zpty -w -n z $')" + line + R"(\t\C-x'
while zpty -r z seen; do all+=$seen; [[ $all == *got:moraine*:* ]] && break; done
print -r -- $all
zpty -d z
)");
    const size_t at = text.rfind("got:moraine");
    return at == std::string::npos ? text : text.substr(at + 4, text.find(':', at + 4) - at - 4);
  };
  EXPECT_EQ(complete("moraine tra"), "moraine train ");
  EXPECT_EQ(complete("moraine train --co"), "moraine train --config ");
  EXPECT_EQ(complete("moraine bench sto"), "moraine bench storage ");
  EXPECT_EQ(complete("moraine export --layout nat"), "moraine export --layout native ");
}

TEST_F(ProgramCli, PagesAreRoff) {
  must({"man", "--out", folder.file("man")});
  for (const std::string& command : listed_commands(folder.path())) {
    const std::string page = posix_file_system().read(folder.file("man/moraine-" + command + ".1"));
    EXPECT_EQ(page, must({"man", command}));
    EXPECT_EQ(page.substr(0, 12), ".TH MORAINE\\");
    for (const char* section : {"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS"})
      EXPECT_NE(page.find(std::string("\n.SH ") + section + "\n"), std::string::npos) << section;
  }
  EXPECT_NE(must({"man"}).find("\\fBgenerate\\fR\ncontinue a prompt.\n"), std::string::npos);
  expect_error({"man", "trian"}, 10, "did you mean train?");
  if (!has_program("groff")) GTEST_SKIP() << "groff is not installed: pages were not formatted";
  for (const std::string& page : posix_file_system().list(folder.file("man")))
    shell("groff -man -Tutf8 -ww -z <" + folder.file("man/" + page) + " -", "");
}

TEST_F(ProgramCli, BenchGpuSaysHowFarTheKernelsAreProven) {
  EXPECT_NE(must({"bench", "gpu"}).find("run on an H100; for other devices compiled and emulated"),
            std::string::npos);
  EXPECT_NE(must({"bench", "gpu", "--device", "emulated:sm_80"}).find("attention bf16"),
            std::string::npos);
  // Beside a library that plays the vendor's; without one it says so, and goes on.
  for (const bool there : {true, false}) {
    SCOPED_TRACE(there);
    there ? setenv("MORAINE_MATMUL_LIBRARY", testing::matmul_stand_in().c_str(), 1)
          : unsetenv("MORAINE_MATMUL_LIBRARY");
    const Json beside =
        parse_json(must({"bench", "gpu", "--device", "emulated:cdna3", "--json"}), "bench gpu");
    EXPECT_EQ(beside["library"].is_null(), !there);
    EXPECT_EQ(beside["library_why"].is_null(), there);
    EXPECT_EQ(beside["measured"][0]["library_ms"].is_null(), !there);
    EXPECT_TRUE(beside["measured"][1]["library_ms"].is_null());
    EXPECT_EQ(beside["measured"].size(), 3);
  }
  // A product of its own is not shown as if it were ours.
  setenv("MORAINE_MATMUL_LIBRARY", testing::matmul_stand_in().c_str(), 1);
  setenv("MATMUL_FAIL", "another product", 1);
  EXPECT_NE(must({"bench", "gpu", "--device", "emulated:sm_90"}).find("of its norm away from ours"),
            std::string::npos);
  unsetenv("MATMUL_FAIL");
  unsetenv("MORAINE_MATMUL_LIBRARY");
  const Json said = parse_json(must({"bench", "gpu", "--json"}), "bench gpu");
  // A device, or why there is none; with one there may be no kernels in this program.
  EXPECT_FALSE(said["device"].is_null() && said["why"].is_null());
}

// No rate is asserted: that bytes go on with one of two links cut, and that both are told.
TEST_F(ProgramCli, BenchRailsGoesOnWithLinksThatAreCut) {
  const Ended end = run_program(folder.path(), {"bench", "rails", "--lost-of", "2", "--link-mbit",
                                                "10000", "--rounds", "1", "--json"});
  if (end.exit_code == 13) GTEST_SKIP() << end.err << "no link was cut";
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_NE(end.out.find("\"rails\":2,\"lost\":0"), std::string::npos) << end.out;
  EXPECT_NE(end.out.find("\"rails\":2,\"lost\":1"), std::string::npos) << end.out;
}

// What was asked for is not always there.
TEST_F(ProgramCli, TokenizerTrainSaysHowManyTokensThereAre) {
  folder.write("a.txt", "ab ab\n");
  const Ended end =
      run_program(folder.path(), {"tokenizer", "train", "--input", folder.file("a.txt"),
                                  "--vocab-size", "4096", "--out", folder.file("t")});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  const int64_t tokens = std::stoll(value_of(end.out, "tokens"));
  EXPECT_EQ(tokens, static_cast<int64_t>(
                        Tokenizer::load(posix_file_system(), folder.file("t"))->vocabulary_size()));
  EXPECT_LT(tokens, 4096);
  EXPECT_NE(end.err.find(fmt::format("{} tokens, not 4096", tokens)), std::string::npos) << end.err;
}

// A dataset of the one that was there would fit nothing any more.
TEST_F(ProgramCli, TokenizerTrainReplacesNoneWithoutBeingTold) {
  folder.write("a.txt", "ab ab\n");
  folder.write("b.txt", "cd cd\n");
  const auto args = [&](const std::string& input) {
    return std::vector<std::string>{"tokenizer",    "train", "--input", folder.file(input),
                                    "--vocab-size", "258",   "--out",   folder.file("t")};
  };
  must(args("a.txt"));
  FileSystem& fs = posix_file_system();
  const std::string path = folder.file("t") + "/tokenizer.json", first = fs.read(path);
  expect_error(args("b.txt"), 10, path + " is there already");
  EXPECT_EQ(fs.read(path), first);
  std::vector<std::string> told = args("b.txt");
  told.push_back("--overwrite");
  must(told);
  EXPECT_NE(fs.read(path), first);
  expect_error({"tokenizer", "encode", "--text", "a", "--tokenizer", path, "--overwrite"}, 10,
               "tokenizer encode: --overwrite is for train alone");
}

// A shard was taken for damaged weights, and a dataset that a build left for nothing that is known.
TEST_F(ProgramCli, InspectKnowsShardsAndUnfinishedDatasets) {
  build_tiny_dataset(folder.file("d"), 5, 400);
  FileSystem& fs = posix_file_system();
  const std::string shard = folder.file("d") + "/shard-00000.bin", whole = fs.read(shard);
  const std::string shown = must({"inspect", shard});
  EXPECT_NE(shown.find("ok: 1 shards"), std::string::npos) << shown;
  EXPECT_EQ(parse_json(must({"inspect", shard, "--quick", "--json"}))["kind"], "shard");
  for (const std::string& path : {shard, folder.file("d")}) {
    const Json told = parse_json(must({"inspect", path, "--json"}));
    EXPECT_EQ(told["verified"]["ok"], true) << path;
    EXPECT_EQ(told["verified"]["shards"], 1) << path;
  }
  EXPECT_EQ(must({"inspect", shard, "--hash"}).size(), 33u);
  std::string bad = whole;
  bad[70] = static_cast<char>(bad[70] ^ 1);
  folder.write("d/shard-00000.bin", bad);
  expect_error({"inspect", shard}, 12, "shard-00000.bin");
  folder.write("d/shard-00000.bin", whole.substr(0, whole.size() / 2));
  expect_error({"inspect", shard}, 12, "shard-00000.bin");
  folder.write("d/shard-00000.bin", "");
  expect_error({"inspect", shard}, 10, "neither a shard of a dataset nor a safetensors file");
  expect_error({"inspect", folder.file("d") + "/dataset.json"}, 10, "or the folder of a");
  fs.remove_all(folder.file("d") + "/dataset.json");
  expect_error({"inspect", folder.file("d")}, 11, "no dataset.json");
  folder.write("d/unfinished", "");
  expect_error({"inspect", folder.file("d")}, 11, "has the mark `unfinished` and no dataset.json");
}

// Before a model is looked at: there is none.
TEST_F(ProgramCli, ServeLooksAtItsFlagsFirst) {
  const auto refused = [&](std::vector<std::string> flags, const std::string& piece) {
    flags.insert(flags.begin(), {"serve", "--model", folder.file("none")});
    expect_error(flags, 10, piece);
  };
  refused({"--tls-cert", "no-such.pem"}, "one is missing");
  refused({"--tls-cert", "no-such.pem", "--tls-key", "no-such.key"}, "read the certificate");
  refused({"--host", "nonsense.invalid"}, "no such host");
  refused({"--host", "0.0.0.0"}, "is reached by other machines");
  refused({"--cors-origin", "example"}, "--cors-origin example: wanted an origin");
  refused({"--name", ""}, "--name is empty");
}

// CLI11 would make "PAD" of "[PAD]", and two values of "[a,b]".
TEST_F(ProgramCli, ValuesInBracketsAreTakenAsTheyAre) {
  folder.write("[text]/a.txt", "aa ab ba bb\n");
  const Ended made =
      run_program(folder.path(),
                  {"tokenizer", "train", "--input", folder.file("[text]/a.txt"), "--vocab-size",
                   "300", "--special", "[PAD]", "--special=[a,b]", "--out", folder.file("[out]")});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  // Who names other special tokens loses the one that ends a document, and hears of it.
  EXPECT_NE(made.err.find("none of --special ends a document"), std::string::npos) << made.err;
  const Ended built =
      run_program(folder.path(), {"data", "build", "--tokenizer", folder.file("[out]"), "--input",
                                  folder.file("[text]/a.txt"), "--out", folder.file("data")});
  EXPECT_EQ(built.exit_code, 0) << built.err;
  EXPECT_NE(built.err.find("no token that ends a document"), std::string::npos) << built.err;
  const Json json = parse_json(must({"tokenizer", "encode", "--tokenizer", folder.file("[out]"),
                                     "--text", "[PAD][a,b]", "--json"}));
  EXPECT_EQ(json.at("pieces"), Json({"[PAD]", "[a,b]"}));
  expect_error({"tokenizer", "train", "[x]"}, 10, "unknown argument [x];");
  expect_error({"tokenizer", "train", "--vocab-size", "[5]"}, 10, "[5] is no integer");
  // A number that no integer has room for is not the largest one.
  expect_error({"generate", "--model", "m", "--seed", "9223372036854775808"}, 10,
               "--seed: Value 9223372036854775808 not in range 0 to 9223372036854775807");
}

TEST_F(ProgramCli, TokenizerEncodesAndDecodes) {
  const std::vector<std::string> encode = {"tokenizer", "encode", "--tokenizer",
                                           tokenizer_file("llama3")};
  const std::vector<std::string> decode = {"tokenizer", "decode", "--tokenizer",
                                           tokenizer_file("llama3")};
  const auto with = [](std::vector<std::string> args, const std::vector<std::string>& more) {
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  // Ids from the golden cases of the Hugging Face library.
  EXPECT_EQ(must(with(encode, {"--text", " a"})), "0 260\n");
  EXPECT_EQ(must(with(encode, {"--text", " a", "--ordinary"})), "260\n");
  EXPECT_EQ(must(with(encode, {"--text", ""})), "0\n");
  EXPECT_EQ(must(with(encode, {"--text", " a", "--pieces"})),
            "0 \"<|begin_of_text|>\"\n260 \"\xc4\xa0"
            "a\"\n");
  const Json json = parse_json(must(with(encode, {"--text", " a", "--json"})));
  EXPECT_EQ(json.at("tokens"), Json({0, 260}));
  EXPECT_EQ(json.at("pieces"), Json({"<|begin_of_text|>",
                                     "\xc4\xa0"
                                     "a"}));

  EXPECT_EQ(must(with(decode, {"--tokens", "0 260"})), "<|begin_of_text|> a");
  EXPECT_EQ(must(with(decode, {"--tokens", "0 260", "--skip-special"})), " a");
  EXPECT_EQ(parse_json(must(with(decode, {"--tokens", "0,260", "--json"}))).at("text"),
            "<|begin_of_text|> a");

  // Every byte, UTF-8 or not, through files and through a pipe.
  std::string bytes = "Moraine \xe2\x82\xac\n";
  for (int c = 0; c < 256; ++c) bytes += static_cast<char>(c);
  folder.write("bytes", bytes);
  folder.write("ids", must(with(encode, {"--input", folder.file("bytes"), "--ordinary"})));
  EXPECT_EQ(must(with(decode, {"--input", folder.file("ids")})), bytes);
  const std::string program = moraine_program() + " tokenizer ",
                    which = " --tokenizer " + encode[3];
  EXPECT_EQ(shell("sh", program + "encode --ordinary" + which + " <" + folder.file("bytes") +
                            " | " + program + "decode" + which + "\n"),
            bytes);

  expect_error(with(decode, {"--tokens", "5 x"}), 10, "--tokens: \"x\" is not a token id");
  expect_error(with(decode, {"--tokens", "5 99999"}), 10,
               "token 99999 is not in the vocabulary of");
  expect_error(with(decode, {"--input", folder.file("bytes")}), 10, "input: \"Moraine");
  expect_error(with(encode, {"--text", "a", "--input", folder.file("bytes")}), 10,
               "--text and --input");
  expect_error({"tokenizer", "encode", "--text", "a"}, 10, "--tokenizer is missing");
  expect_error({"tokenizer", "encode", "--text", "a", "--vocab-size", "300"}, 10,
               "tokenizer encode: --vocab-size is for train alone");
  expect_error({"tokenizer", "decode", "--text", "a", "--json"}, 10, "--text is for encode alone");
  expect_error({"tokenizer", "train", "--input", "x", "--vocab-size", "300"}, 10,
               "--out is missing");
}

}  // namespace
}  // namespace moraine
