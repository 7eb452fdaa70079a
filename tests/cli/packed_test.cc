// Packed: a model packed for serving, from outside: the same answers as the model it was made from.
//
// Fails if generate or eval print another bit, alone or on ranks, or if a command that needs weights takes packs.
#include <gtest/gtest.h>

#include <map>

#include "base/json.h"
#include "base/test_folder.h"
#include "testing/places.h"
#include "tests/program.h"

namespace moraine {
namespace {

using namespace testing;

class PackedCli : public ::testing::Test {
 protected:
  std::string must(const std::vector<std::string>& args) const {
    const Ended ended = run_program(folder.path(), args);
    EXPECT_EQ(ended.exit_code, 0) << args[0] << ": " << ended.err;
    return ended.out;
  }
  void refused(const std::vector<std::string>& args, const std::string& piece) const {
    const Ended ended = run_program(folder.path(), args);
    EXPECT_EQ(ended.exit_code, 10) << ended.err;
    EXPECT_NE(ended.err.find(piece), std::string::npos) << ended.err;
  }
  std::string file(const std::string& name) const { return folder.file(name); }
  TestFolder folder;
};

TEST_F(PackedCli, AnswersAreThoseOfTheModel) {
  std::string tokens;
  for (int i = 0; i < 60; ++i) tokens += std::to_string(3 + i * 53 % 250) + " ";
  for (const char* name : {"native-tiny", "legacy-tiny"}) {
    const std::string model = source_path(std::string("tests/golden/") + name);
    const std::string packed = file(std::string(name) + "-packed");
    must({"quantize", "--model", model, "--out", packed, "--type", "bf16"});
    refused({"quantize", "--model", model, "--out", packed}, "exists already");
    for (const char* ranks : {"1", "2"}) {
      const auto answers = [&](const std::string& of) {
        return must({"generate", "--model", of, "--tokens", "5 6 7", "--max-tokens", "20", "--json",
                     "--dtype", "bf16", "--ranks", ranks}) +
               must({"eval", "score", "--model", of, "--tokens", tokens, "--json", "--dtype",
                     "bf16", "--ranks", ranks});
      };
      EXPECT_EQ(answers(packed), answers(model)) << name << " on " << ranks;
    }
  }
}

TEST_F(PackedCli, ThePlanSaysWhatIsMapped) {
  const std::string model = source_path("tests/golden/native-tiny"), packed = file("packed");
  must({"quantize", "--model", model, "--out", packed});
  const auto plan = [&](const std::string& of) {
    return parse_json(must({"plan", "memory", "--model", of, "--dtype", "bf16", "--context", "64",
                            "--sequences", "2", "--json"}),
                      "plan");
  };
  const Json whole = plan(model), mapped = plan(packed);
  EXPECT_FALSE(whole.contains("mapped_bytes"));
  int64_t packs = 0, master = 0;
  for (const Json& row : whole["buffers"]) {
    if (row["name"] == "weights.packed") packs += row["bytes"].get<int64_t>();
    if (row["name"] == "weights.master") master += row["bytes"].get<int64_t>();
  }
  EXPECT_GT(packs, 0);
  EXPECT_EQ(mapped["mapped_bytes"].get<int64_t>(), packs);
  EXPECT_EQ(mapped["bytes"].get<int64_t>(), whole["bytes"].get<int64_t>() - packs - master);
  // What ranks take for each other.
  const auto bytes_of = [&](const char* name, const char* placement) {
    const Json of = parse_json(must({"plan", "memory", "--model", model, "--ranks", "3", "--rank",
                                     "2", "--placement", placement, "--json"}),
                               "plan");
    int64_t bytes = 0;
    for (const Json& row : of["buffers"])
      if (row["name"] == name) bytes += row["bytes"].get<int64_t>();
    return bytes;
  };
  EXPECT_EQ(bytes_of("weights.guests", "static"), 0);
  EXPECT_GT(bytes_of("weights.guests", "balanced"), 0);
  EXPECT_GT(bytes_of("experts.low_latency", "static"), 0);
  refused({"plan", "memory", "--model", model, "--ranks", "9"}, "9 ranks for 4 experts");
  refused({"plan", "memory", "--model", model, "--rank", "1"}, "there are ranks 0 to 0");
  refused({"plan", "memory", "--model", model, "--config", "x"}, "one of --config");
  refused({"plan", "memory"}, "--config is missing");
}

std::string data_file(const std::string& folder) {
  for (const std::string& name : posix_file_system().list(folder))
    if (name.ends_with(".safetensors")) return name;
  return "none";
}

TEST_F(PackedCli, WhatNeedsWeightsRefusesPacks) {
  const std::string packed = file("packed");
  must({"quantize", "--model", source_path("tests/golden/native-tiny"), "--out", packed});
  const std::string why = "this is a packed model";
  refused({"export", "--model", packed, "--out", file("x")}, why);
  refused({"import", "--from", packed, "--out", file("x")}, why);
  must({"quantize", "--model", packed, "--out", file("q8"), "--type", "q8", "--no-report"});
  for (const char* type : {"bf16", "q4"})
    refused({"quantize", "--model", file("q8"), "--out", file("x"), "--type", type, "--no-report"},
            "its weights were rounded to integers, which another type does not undo; quantize the "
            "model that it was made from, or one packed as bf16");
  refused({"generate", "--model", packed, "--tokens", "5", "--dtype", "f32"}, "packed for bf16");
  folder.write("x.unchecked.partial", "mine");  // known before anything is computed
  refused(
      {"quantize", "--model", packed, "--out", file("x"), "--type", "q8"},
      file("x.unchecked.partial") + " first, which is a file; wanted a folder, or nothing: remove");
  EXPECT_FALSE(posix_file_system().exists(file("x")));
}

// Every byte of packs is verified before they are packed again, but only once all else is known to be right.
TEST_F(PackedCli, CheapChecksComeBeforeVerifying) {
  const std::string packed = file("packed");
  must({"quantize", "--model", source_path("tests/golden/native-tiny"), "--out", packed});
  const std::string data = packed + "/" + data_file(packed);
  std::string bytes = posix_file_system().read(data);
  bytes[bytes.size() / 2] ^= 1;
  posix_file_system().write_atomic(data, bytes);
  const auto quantize = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"quantize", "--model", packed, "--out"});
    return more;
  };
  refused(
      quantize({file("q8"), "--type", "q8", "--reference", source_path("tests/golden/native-swa")}),
      "of the same model");
  refused(quantize({file("q8"), "--type", "q8", "--input", file("nothing.txt")}), "no tokenizer");
  refused(quantize({data + "/q8", "--type", "q8"}), data + " is no folder; wanted a folder");
  for (const char* more : {"--no-report", "--json"}) {
    const Ended ended = run_program(folder.path(), quantize({file("q8"), "--type", "q8", more}));
    EXPECT_EQ(ended.exit_code, 12) << ended.err;
    EXPECT_NE(ended.err.find("checksum"), std::string::npos) << ended.err;
    EXPECT_EQ(ended.err.find("sample: "), std::string::npos) << ended.err;  // nothing was computed
  }
  EXPECT_FALSE(posix_file_system().exists(file("q8")));
  bytes[bytes.size() / 2] ^= 1;
  posix_file_system().write_atomic(data, bytes);
  const Ended good =
      run_program(folder.path(), quantize({file("q8"), "--type", "q8", "--no-report"}));
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_NE(good.err.find("verify: "), std::string::npos) << good.err;
}

// The sum of sizes of tensors, without tokenizer and manifest.
int64_t data_bytes(const std::string& folder) {
  int64_t bytes = 0;
  for (const std::string& name : posix_file_system().list(folder)) {
    if (name.ends_with(".safetensors"))
      bytes += posix_file_system().file_bytes(folder + "/" + name);
  }
  return bytes;
}

// Its weights have room, what it computes with has none: known before the text is read.
TEST_F(PackedCli, AReferenceThatIsLargerThanMemoryIsRefusedAtOnce) {
  posix_file_system().write_atomic(
      file("long.toml"),
      "[model]\nvocab_size = 64\nhidden = 32\nlayers = 16\nheads = 8\nkv_heads = 8\nhead_dim = "
      "128\nexpert_hidden = 32\nrouter_hidden = 8\nmax_positions = 1048576\n");
  must({"import", "--random", file("long.toml"), "--out", file("long")});
  refused({"quantize", "--model", file("long"), "--out", file("x"), "--type", "q8", "--context",
           "1048576", "--input", file("absent.txt")},
          "keys and values of 33558528 positions take 2");
}

TEST_F(PackedCli, QuantisedModelsSayWhatTheyLost) {
  const std::string model = source_path("tests/golden/native-tiny");
  must({"quantize", "--model", model, "--out", file("bf16")});
  std::map<std::string, Json> lost;
  int64_t bytes =
      INT64_MAX;  // of the type before; inputs of 64 fill half a block, so q8 saves nothing here
  for (const char* type : {"q8", "q6", "q4"}) {
    const std::string out = file(type);
    const auto report = parse_json(
        must({"quantize", "--model", model, "--out", out, "--type", type, "--report-tokens", "500",
              "--calibration-tokens", "700", "--context", "64", "--max-kl", "1", "--json"}),
        "report");
    EXPECT_EQ(report.at("text").get<std::string>(), "samples of the model itself");
    EXPECT_GE(report.at("tokens").get<int64_t>(), 500);
    EXPECT_GT(report.at("kl").get<double>(), 0);
    EXPECT_EQ(report.at("route_flips_by_layer").size(), 3u);
    EXPECT_LT(data_bytes(out), bytes);
    bytes = data_bytes(out);
    const std::string shown = must({"inspect", out});
    EXPECT_NE(shown.find(type), std::string::npos) << shown;
    lost[type] = report;
    const std::string answer =
        must({"generate", "--model", out, "--tokens", "5 6 7", "--max-tokens", "12", "--json"});
    EXPECT_EQ(answer, must({"generate", "--model", out, "--tokens", "5 6 7", "--max-tokens", "12",
                            "--json", "--threads", "1", "--ranks", "2"}));
  }
  for (const char* type : {"q8", "q6"}) {  // of the same text
    EXPECT_EQ(lost[type].at("tokens"), lost["q4"].at("tokens")) << type;
    EXPECT_EQ(lost[type].at("loss_reference"), lost["q4"].at("loss_reference")) << type;
  }
  EXPECT_LT(lost["q8"].at("kl").get<double>(), lost["q4"].at("kl").get<double>());
  EXPECT_LT(lost["q6"].at("kl").get<double>(), lost["q4"].at("kl").get<double>());
  // Other bytes, and less lost: on other samples, of which the two differ by a tenth.
  const auto alone = parse_json(
      must({"quantize", "--model", model, "--out", file("alone"), "--type", "q4", "--report-tokens",
            "500", "--calibration-tokens", "0", "--context", "64", "--max-kl", "1", "--json"}),
      "report");
  const auto data = [&](const char* name) {
    return posix_file_system().read(file(name) + "/data-00000-00000.safetensors");
  };
  EXPECT_EQ(data_bytes(file("alone")), bytes);
  EXPECT_NE(data("alone"), data("q4"));
  EXPECT_LT(lost["q4"].at("kl").get<double>(), alone.at("kl").get<double>());
}

// Calibration and report have parts of a given text, the same ones whatever the type; a short one is divided.
TEST_F(PackedCli, ATextIsDividedBetweenCalibrationAndReport) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "word" + std::to_string(i * i % 97) + (i % 9 ? " " : "\n");
  folder.write("long.txt", text);
  folder.write("one.txt", "few words");
  must({"tokenizer", "train", "--input", file("long.txt"), "--vocab-size", "300", "--out",
        file("tok")});
  folder.write("model.toml",
               "[model]\nvocab_size = 512\nhidden = 32\nlayers = 2\nheads = 4\nkv_heads = 2\n"
               "head_dim = 8\nexperts = 4\nexpert_hidden = 32\nrouter_hidden = 8\n");
  must({"import", "--random", file("model.toml"), "--set", "model.layers=1", "--tokenizer",
        file("tok"), "--seed", "7", "--out", file("m")});
  EXPECT_NE(must({"inspect", file("m")}).find("seed         7\n"), std::string::npos);
  const auto report = [&](const std::string& name, const std::string& type,
                          std::vector<std::string> more) {
    posix_file_system().remove_all(file("out"));
    more.insert(more.begin(),
                {"quantize", "--model", file("m"), "--out", file("out"), "--type", type, "--input",
                 file(name), "--context", "16", "--max-kl", "1", "--json"});
    const Ended ended = run_program(folder.path(), more);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return std::pair(parse_json(ended.out, "report"), ended.err);
  };
  const std::vector<std::string> parts = {"--calibration-tokens", "160", "--report-tokens", "320"};
  const auto [q8, of_q8] = report("long.txt", "q8", parts);
  const auto [q4, of_q4] = report("long.txt", "q4", parts);
  EXPECT_EQ(q8.at("loss_reference"), q4.at("loss_reference"));
  EXPECT_EQ(q4.at("tokens").get<int64_t>(), 320);
  EXPECT_NE(of_q4.find("320 tokens say little"), std::string::npos) << of_q4;
  // Two thirds of what there is, if it is less than what both want.
  const int64_t all =
      report("long.txt", "q8", {"--calibration-tokens", "0"}).first.at("tokens").get<int64_t>();
  const auto [short_text, of_short] =
      report("long.txt", "q4", {"--calibration-tokens", "100000", "--report-tokens", "200000"});
  EXPECT_NEAR(static_cast<double>(short_text.at("tokens").get<int64_t>()),
              2.0 / 3 * static_cast<double>(all), 16);
  EXPECT_FALSE(short_text.at("calibrated_on_it").get<bool>());
  const auto [one, of_one] = report("one.txt", "q4", {});
  EXPECT_TRUE(one.at("calibrated_on_it").get<bool>());
  EXPECT_NE(of_one.find("calibrated on what it is judged by"), std::string::npos) << of_one;
  refused({"import", "--from", file("m"), "--set", "model.layers=1", "--out", file("x")},
          "belong to --random");
}

// They have as many parameters, or the same matrices.
// A directory is held from the beginning, and is given up by who is told to end.
TEST_F(PackedCli, WhatIsToldToEndLeavesNothing) {
  const std::string model = source_path("tests/golden/native-tiny"),
                    shape = source_path("configs/demo.toml");
  const auto told = [&](const TestFolder& output, const std::string& partial, int signal,
                        const std::vector<std::string>& args) {
    Program program(output.path(), args);
    while (!posix_file_system().exists(file(partial + "/lock")) && program.runs()) ::usleep(1000);
    if (args[0] == "quantize") {
      refused(args, "works in it already");
      refused({"quantize", "--model", model, "--out", file("m")}, "works in it already");
    }
    program.send(signal);
    const Ended ended = program.wait();
    EXPECT_EQ(ended.exit_code, 18) << ended.err;
    EXPECT_FALSE(posix_file_system().exists(file("m")));
    EXPECT_FALSE(posix_file_system().exists(file(partial)));
    return ended.err;
  };
  const TestFolder output;
  EXPECT_NE(told(output, "m.unchecked.partial", SIGINT,
                 {"quantize", "--model", model, "--type", "q4", "--report-tokens", "20000000",
                  "--out", file("m")})
                .find("interrupted by SIGINT; what it had written is removed"),
            std::string::npos);
  EXPECT_NE(told(output, "m.partial", SIGTERM,
                 {"import", "--random", shape, "--set", "model.layers=60", "model.vocab_size=512",
                  "data.tokenizer=", "--out", file("m")})
                .find("interrupted by SIGTERM"),
            std::string::npos);
}

TEST_F(PackedCli, AReferenceOfAnotherShapeIsRefused) {
  const auto make = [&](const std::string& name, const std::string& more, int positions = 64) {
    posix_file_system().write_atomic(
        file(name + ".toml"),
        "[model]\nvocab_size = 64\nhidden = 32\nlayers = 1\nattention = \"gqa\"\nhead_dim = 4\n"
        "experts = 4\nexpert_hidden = 32\nrouter_hidden = 8\nmax_positions = " +
            std::to_string(positions) + "\n" + more);
    must({"import", "--random", file(name + ".toml"), "--out", file(name)});
    return file(name);
  };
  const std::string model = make("model", "heads = 8\nkv_heads = 2\n");
  const auto with = [&](const std::string& reference) {
    return std::vector<std::string>{
        "quantize", "--model",         model, "--out",       file("x"), "--type", "q4", "--context",
        "16",       "--report-tokens", "20",  "--reference", reference};
  };
  refused(with(make("fewer", "heads = 9\nkv_heads = 1\n")),
          "it has heads = 9 where the model has heads = 8");
  refused(with(make("two", "heads = 8\nkv_heads = 2\nexperts_per_token = 2\n")),
          "it has experts_per_token = 2 where");
  posix_file_system().rename(model, file("seed-1"));
  must({"import", "--random", file("model.toml"), "--seed", "2", "--out", model});
  refused(with(file("seed-1")), "is not the model's: it is of another step, or another model");
  posix_file_system().remove_all(model);
  posix_file_system().rename(file("seed-1"), model);
  // One with more positions is the same model: the text is read in as many as both have.
  const std::string longer = make("longer", "heads = 8\nkv_heads = 2\n", 128);
  must({"quantize", "--model", model, "--out", file("x"), "--type", "q4", "--report-tokens", "200",
        "--max-kl", "9", "--reference", longer});
  refused({"quantize", "--model", model, "--out", file("y"), "--type", "q4", "--context", "65"},
          "quantize --context 65: the model was made for 64 positions");
}

TEST_F(PackedCli, AModelThatLostTooMuchIsNotPutInPlace) {
  const std::string model = source_path("tests/golden/native-tiny");
  const std::vector<std::string> args = {
      "quantize", "--model",   model, "--out",           file("q4"), "--type",
      "q4",       "--context", "64",  "--report-tokens", "200",      "--calibration-tokens",
      "200"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), args.begin(), args.end());
    return more;
  };
  refused(with({"--max-kl", "0"}), "stays in " + file("q4.unchecked"));
  EXPECT_FALSE(posix_file_system().exists(file("q4")));
  must({"eval", "score", "--model", file("q4.unchecked"), "--tokens", "1 2 3"});
  refused(with({"--max-kl", "1"}), file("q4.unchecked") + " is left of a quantize");
  posix_file_system().rename(file("q4.unchecked"), file("integers"));
  refused(with({"--reference", file("integers")}), "it has packs of integers; wanted the model");
  refused(with({"--input", file("nothing.txt")}), "no tokenizer");
  refused(with({"--max-kl", "-1"}), "wanted 0 or more");
  refused(with({"--reference", source_path("tests/golden/native-swa")}), "of the same model");
  // Another form of the model may stand in for it, and what it needs not measure is not measured.
  must({"quantize", "--model", model, "--out", file("bf16")});
  must(with({"--reference", file("bf16"), "--max-kl", "1", "--head", "bf16", "--down", "q4"}));
  EXPECT_NE(must({"inspect", file("q4")}).find("bf16 [1, 320, "), std::string::npos);
  posix_file_system().remove_all(file("q4"));
  refused(with({"--no-report"}), "nothing is measured with --no-report");
  must({"quantize", "--model", model, "--out", file("q4"), "--type", "q4", "--no-report"});
  posix_file_system().remove_all(file("q4"));
  // A name as shells complete it.
  must({"quantize", "--model", model, "--out", file("q4/"), "--type", "q4", "--context", "64",
        "--report-tokens", "200", "--calibration-tokens", "0", "--max-kl", "1"});
  must({"inspect", file("q4")});
  EXPECT_FALSE(posix_file_system().exists(file("q4.unchecked")));
  refused({"quantize", "--model", model, "--out", file("x"), "--max-kl", "1"},
          "quantize --max-kl: nothing is measured of bf16");
  refused({"quantize", "--model", model, "--out", file("x"), "--type", "q8", "--no-report",
           "--input", file("nothing.txt")},
          "quantize --input: nothing is measured with --no-report");
  // One matrix in integers is enough to be measured.
  refused({"quantize", "--model", model, "--out", file("h"), "--head", "q4", "--context", "64",
           "--report-tokens", "200", "--calibration-tokens", "200", "--max-kl", "0"},
          "stays in " + file("h.unchecked"));
}

}  // namespace
}  // namespace moraine
