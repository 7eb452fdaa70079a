// Plan: the commands of a plan as a user gives them, and that train takes what they say.
//
// Fails if a command refuses a config that train takes, if what `shape` writes does not train, or a mistake is not
// told by name.
#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "base/json.h"
#include "base/test_folder.h"
#include "machine/machine.h"
#include "tests/program.h"
#include "tests/tiny_run.h"

namespace moraine {
namespace {

using namespace testing;

class PlanCli : public ::testing::Test {
 protected:
  PlanCli() {
    build_tiny_dataset(file("data"), 5, 400);
    folder.write(
        "run.toml",
        "[model]\nhidden = 32\nlayers = 2\nheads = 2\nkv_heads = 1\nhead_dim = 16\nexperts "
        "= 4\nexpert_hidden = 24\nrouter_hidden = 16\n[data]\ntrain = \"" +
            file("data") +
            "\"\n[train]\nslots = 4\nsequence = 32\nbatch_tokens = 256\nsteps = 2\n"
            "[report]\nsample_every_steps = 0\nvalid_every_steps = 0\n");
    Machine m;
    m.isa = "test";
    m.threads = 2;
    m.f32_gflops = 10, m.bf16_gflops = 20;
    m.read_gb_s = m.copy_gb_s = 10;
    m.measured_utc = "2026-01-02T03:04:05Z";
    save_machine(posix_file_system(), file("m.json"), m);
    folder.write("cluster.toml",
                 "[host]\nmachine = \"m.json\"\nranks = 2\n[stragglers]\nmtbf_hours = 9\n");
  }
  std::string file(const std::string& name) const { return folder.file(name); }
  Ended plan(const std::string& action, const std::vector<std::string>& more) const {
    std::vector<std::string> args = {"plan",           action,      "--config",
                                     file("run.toml"), "--machine", file("m.json")};
    args.insert(args.end(), more.begin(), more.end());
    return run_program(folder.path(), args, 0);
  }
  std::vector<Json> lines(const std::string& action, const std::vector<std::string>& more) const {
    const Ended ended = plan(action, more);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    std::vector<Json> all;
    std::istringstream text(ended.out);
    for (std::string line; std::getline(text, line);) all.push_back(parse_json(line));
    return all;
  }
  void refused(const std::string& action, const std::vector<std::string>& more,
               const std::string& why) const {
    const Ended ended = plan(action, more);
    EXPECT_EQ(ended.exit_code, 10) << action;
    EXPECT_NE(ended.err.find(why), std::string::npos) << ended.err;
  }
  std::string train(const std::string& config, const std::string& out,
                    const std::vector<std::string>& more) const {
    std::vector<std::string> args = {"train",        "--config", config,   "--machine",
                                     file("m.json"), "--out",    file(out)};
    args.insert(args.end(), more.begin(), more.end());
    const Ended ended = run_program(folder.path(), args, 0);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    err_ = ended.err;
    const size_t at = ended.out.find("hash=");
    return at == std::string::npos ? "" : ended.out.substr(at, 37);
  }

  TestFolder folder;
  mutable std::string err_;
};

// What `train` would refuse at its start; and a plan of a CPU says that it is one.
TEST_F(PlanCli, ADevicesConfigIsRefusedAsByTrainOrPlannedForACpuWhichIsSaid) {
  const std::vector<std::string> device = {"--set", "train.device=\"emulated:cdna3\""};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), device.begin(), device.end());
    return more;
  };
  for (const char* action : {"memory", "step"}) {
    refused(action, with({"--set", "parallel.plan=\"auto\""}), "parallel.plan = \"auto\" works on");
    refused(action,
            with({"--ranks", "2", "--set", "parallel.expert=2", "--set",
                  "parallel.device_links=\"library\""}),
            "parallel.expert = 2 goes over the host");
    for (const Json& row : lines(action, with({"--json"})))
      EXPECT_NE(row["note"].get<std::string>().find("this is the plan of a CPU"),
                std::string::npos);
    for (const Json& row : lines(action, {"--json"})) EXPECT_FALSE(row.contains("note"));
    EXPECT_NE(plan(action, device).out.find("\ntrain.device = emulated:cdna3: this is the plan"),
              std::string::npos);
  }
}

// Of a run with phases the one that takes most, unless another is asked for.
TEST_F(PlanCli, MemoryIsThatOfThePhaseThatTakesMost) {
  EXPECT_FALSE(lines("memory", {"--json"}).at(0).contains("phase"));
  folder.write("run.toml",
               std::regex_replace(folder.read("run.toml"), std::regex("\nsteps = 2\n"), "\n") +
                   "[[phase]]\ntokens = 512\nsequence = 64\n"
                   "[[phase]]\ntokens = 512\nsequence = 16\nrecompute = \"layer\"\n");
  const Json most = lines("memory", {"--json"}).at(0);
  EXPECT_EQ(most["phase"], 1);
  ASSERT_EQ(most["phases_bytes"].size(), 2u);
  EXPECT_EQ(most["bytes"], most["phases_bytes"][0]);
  EXPECT_GT(most["phases_bytes"][0].get<int64_t>(), most["phases_bytes"][1].get<int64_t>());
  const Json second = lines("memory", {"--json", "--phase", "2"}).at(0);
  EXPECT_EQ(second["phase"], 2);
  EXPECT_EQ(second["bytes"], most["phases_bytes"][1]);
  refused("memory", {"--phase", "3"}, "phases 1 to 2");
}

TEST_F(PlanCli, StepListsMeshesBestFirstWithTheMemoryThatMemoryPrints) {
  const std::vector<Json> plans = lines("step", {"--ranks", "4", "--json"});
  ASSERT_GT(plans.size(), 8u);
  double last = 0;
  for (const Json& p : plans) {
    EXPECT_GE(p["step_ms"].get<double>(), last);
    last = p["step_ms"].get<double>();
    const std::string expert = std::to_string(p["expert"].get<int64_t>()),
                      context = std::to_string(p["context"].get<int64_t>());
    const Json memory =
        lines("memory", {"--ranks", "4", "--json", "--set", "parallel.expert=" + expert, "--set",
                         "parallel.context=" + context, "--set",
                         "train.recompute=" + p["recompute"].get<std::string>()})
            .front();
    EXPECT_EQ(p["memory_bytes"], memory["bytes"]) << expert << " " << context;
  }
  EXPECT_NE(plan("step", {"--ranks", "2"}).out.find("part of the step"), std::string::npos);
  EXPECT_EQ(plan("step", {"--memory-gib", "8"}).out.find("no plan fits"), std::string::npos);
  EXPECT_NE(plan("step", {"--memory-gib", "0.001"}).out.find("no plan fits in --memory-gib 0.001"),
            std::string::npos);
}

TEST_F(PlanCli, AutoTrainsToTheSameBitsAndSaysWhy) {
  const std::string given = train(file("run.toml"), "given", {});
  ASSERT_NE(given, "");
  EXPECT_EQ(train(file("run.toml"), "auto", {"--ranks", "4", "--set", "parallel.plan=auto"}),
            given);
  EXPECT_NE(err_.find("run.plan ranks=4"), std::string::npos) << err_;
  EXPECT_NE(err_.find("reason="), std::string::npos) << err_;
}

TEST_F(PlanCli, ShapeWritesAConfigThatTrains) {
  const std::vector<Json> shapes = lines(
      "shape", {"--parameters", "1000000", "--no-measure", "--json", "--out", file("shaped.toml")});
  ASSERT_FALSE(shapes.empty());
  EXPECT_NEAR(shapes.front()["parameters"].get<double>(), 1000000, 50000);
  EXPECT_NE(train(file("shaped.toml"), "shaped", {}), "");
  // A file that is there is not replaced unasked, the run's own config least of all.
  const std::string shaped = posix_file_system().read(file("shaped.toml"));
  const std::vector<std::string> half = {"--parameters", "500000", "--no-measure", "--out"};
  for (const char* there : {"run.toml", "shaped.toml"}) {
    std::vector<std::string> more = half;
    more.push_back(file(there));
    refused("shape", more, "this file is there already");
  }
  EXPECT_EQ(posix_file_system().read(file("shaped.toml")), shaped);
  EXPECT_FALSE(lines("shape", {"--parameters", "500000", "--no-measure", "--json", "--out",
                               file("shaped.toml"), "--overwrite"})
                   .empty());
  EXPECT_NE(posix_file_system().read(file("shaped.toml")), shaped);
}

TEST_F(PlanCli, ClusterMarksWhatIsExtrapolatedAndWritesThePage) {
  const std::vector<Json> sizes =
      lines("cluster", {"--cluster", file("cluster.toml"), "--sizes", "1,2,48", "--interruptions",
                        "200", "--chart", file("page.html"), "--json"});
  ASSERT_EQ(sizes.size(), 3u);
  EXPECT_EQ(sizes[2]["ranks_used"], 32);
  EXPECT_TRUE(sizes[2]["is_extrapolated"].get<bool>());
  EXPECT_LT(sizes[2]["simulated_useful"].get<double>(), 1);
  const std::string page = posix_file_system().read(file("page.html"));
  EXPECT_NE(page.find("<svg"), std::string::npos);
  EXPECT_NE(page.find("extrapolated"), std::string::npos);
}

TEST_F(PlanCli, MistakesAreToldByName) {
  refused("step", {"--ranks", "3"}, "train.slots = 4 does not divide");
  refused("step", {"--imbalance", "0.5"}, "--imbalance 0.5");
  refused("step", {"--imbalance", "nan"}, "--imbalance nan");
  refused("step", {"--memory-gib", "1e30"}, "--memory-gib 1e+30");
  refused("shape", {"--hours", "-1"}, "--hours -1");
  refused("reliability", {"--rank-mtbf-hours", "-2"}, "--rank-mtbf-hours -2");
  refused("reliability", {"--save-seconds", "nan"}, "--save-seconds nan");
  refused("shape", {}, "one budget");
  refused("shape", {"--parameters", "10"}, "no shape has 10 parameters");
  refused("cluster", {}, "--cluster is missing");
  refused("cluster", {"--cluster", file("cluster.toml"), "--sizes", "8,,9"}, "--sizes 8,,9");
  refused("cluster", {"--cluster", file("cluster.toml"), "--sizes", "0"}, "--sizes 0");
  folder.write("bad.toml", "[host]\nmachine = \"m.json\"\nrank = 2\n");
  refused("cluster", {"--cluster", file("bad.toml")}, "did you mean");
  folder.write("m.json", "{");
  const Ended damaged = plan("step", {});
  EXPECT_EQ(damaged.exit_code, 12);  // kCorrupt
  EXPECT_NE(damaged.err.find("m.json"), std::string::npos) << damaged.err;
}

}  // namespace
}  // namespace moraine
