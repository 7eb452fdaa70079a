// `moraine supervise`: a training run, or any program, that is kept alive.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/process.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/secret_file.h"
#include "plan/reliability.h"
#include "supervisor/agent.h"
#include "supervisor/policy.h"
#include "supervisor/supervise.h"
#include "supervisor/supervise_config.h"
#include "supervisor/useful_share.h"

namespace moraine {
namespace {

struct SuperviseFlags {
  std::string config, out = "runs/default";
  std::vector<std::string> assignments;
  int64_t ranks = 1;
  bool ranks_given = false;
  bool explain = false, document = false;
  std::vector<std::string> command;  // behind --
};

// What can not be passed on is in a file too, and the run goes on.
void pass_on(SupervisePlan* plan) {
  plan->on_out = [](std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size()) std::fflush(stdout);
  };
  plan->on_log = [](std::string_view text) { say_text(text); };
}

// Of one part that is interrupted as often as the run was.
double expect_useful(const UsefulShare& seen, int64_t state_every_steps) {
  constexpr double kNever = 1e12;
  return expect_reliability({.ranks = 1,
                             .ranks_per_host = 1,
                             .rails = 1,
                             .rank_mtbf = seen.watched / static_cast<double>(seen.interruptions),
                             .host_mtbf = kNever,
                             .rail_mtbf = kNever,
                             .detect = 0,
                             .restart = seen.recovery,
                             .save = static_cast<double>(state_every_steps) * seen.between_seconds,
                             .write = 0,
                             .every = static_cast<double>(state_every_steps) * seen.step_seconds})
      .useful;
}

SupervisePlan plan_of_run(const SuperviseFlags& f) {
  SettingsTable settings = SettingsTable::parse(posix_file_system().read(f.config), f.config);
  for (const std::string& assignment : f.assignments) settings.set(assignment);
  if (f.ranks_given) settings.set(fmt::format("supervise.ranks={}", f.ranks));
  SupervisePlan plan;
  const SuperviseConfig config = read_supervise_config(settings);
  plan.options = config.decide;
  plan.show = config.show;
  const int64_t every = plan.show.state_every_steps;
  if (every > 0)
    plan.show.expect_useful = [every](const UsefulShare& seen) {
      return expect_useful(seen, every);
    };
  std::vector<std::string> words = {own_program(), "train", "--config", f.config, "--out", f.out};
  std::vector<std::string> sets = f.assignments;
  for (const std::string& added : added_assignments(settings)) sets.push_back(added);
  for (const std::string& assignment : sets) {
    if (assignment.starts_with("supervise.")) continue;
    words.emplace_back("--set");
    words.push_back(assignment);
  }
  const int64_t ranks = plan.options.ranks;
  if (ranks > 1 && !plan.options.secret_file.empty()) {
    words.emplace_back("--secret-file");
    words.push_back(plan.options.secret_file);
  }
  plan.words = [words, ranks](int rank, const std::string& rendezvous) {
    std::vector<std::string> all = words;
    if (ranks == 1) return all;
    for (const std::string& word :
         {std::string("--rendezvous"), rendezvous, std::string("--rank"), fmt::format("{}", rank),
          std::string("--ranks"), fmt::format("{}", ranks)})
      all.push_back(word);
    return all;
  };
  return plan;
}

SupervisePlan plan_of_program(const SuperviseFlags& f) {
  if (f.ranks_given)
    throw_error(Code::kInvalidArgument, "supervise --ranks: it is of --config; a program is one");
  SettingsTable settings = SettingsTable::parse("", "--set");
  for (const std::string& assignment : f.assignments) settings.set(assignment);
  SupervisePlan plan;
  const SuperviseConfig config = read_supervise_config(settings);
  plan.options = config.decide;
  plan.show = config.show;
  plan.options.ranks = 1;
  plan.options.tells_steps = false;
  const std::string name = f.command[0].substr(f.command[0].rfind('/') + 1);
  plan.options.speaks_codes = name == "moraine";
  const std::vector<std::string> words = f.command;
  plan.words = [words](int, const std::string&) { return words; };
  return plan;
}

// The words before --; those behind go to the program.
std::span<char*> take_command(const CommandLine& line, SuperviseFlags* f) {
  const auto mark = std::find_if(line.words.begin(), line.words.end(),
                                 [](const char* word) { return !std::strcmp(word, "--"); });
  if (mark == line.words.end()) return line.words;
  for (auto word = mark + 1; word != line.words.end(); ++word) f->command.emplace_back(*word);
  if (f->command.empty())
    throw_error(Code::kInvalidArgument, "supervise --: wanted a command behind it");
  return {line.words.begin(), mark};
}

// Other hosts have no part in what this process was started with, but its folder.
void fit_hosts(const SuperviseFlags& f, SupervisePlan* plan) {
  SuperviseOptions& o = plan->options;
  if (o.program.empty()) o.program = own_program();
  check_hosts(o);
  if (std::any_of(o.hosts.begin(), o.hosts.end(), is_this_host))  // ranks here will read it
    check_secret_file("supervise.secret_file", o.secret_file);
  plan->folder = join_path(f.out, "supervise");
  if (std::all_of(o.hosts.begin(), o.hosts.end(), is_this_host)) return;
  plan->folder = std::filesystem::absolute(plan->folder).lexically_normal().string();
  const bool is_plain =
      plan->folder.find_first_of(" \t\n\"'`$&|;<>()*?[]#~\\!{}") == std::string::npos;
  if (!is_plain)
    throw_error(Code::kInvalidArgument,
                "supervise --out: found '{}'; wanted a path that a shell leaves as it is, for the "
                "other hosts",
                plan->folder);
}

// What a supervisor starts on another host; nobody else has a use for it.
void be_agent(const CommandLine& line) {
  CommandLine words = line;
  words.words = line.words.subspan(1);
  std::string folder;
  Flags flags("supervise --agent", "Start and watch ranks on this host, by orders on stdin.");
  flags.required("out", &folder, "Folder of this host's ranks.");
  if (flags.parse(words)) run_agent(folder);
}

void check_flags(const SuperviseFlags& f) {
  if (f.config.empty() == f.command.empty())
    throw_error(
        Code::kInvalidArgument,
        "supervise: wanted one of --config FILE and -- COMMAND...; `--help` lists the flags");
}

}  // namespace

void cmd_supervise(const CommandLine& line) {
  if (!line.words.empty() && !std::strcmp(line.words.front(), "--agent")) return be_agent(line);
  SuperviseFlags f;
  CommandLine words = line;
  words.words = take_command(line, &f);
  Flags flags("supervise",
              "Start the ranks of a training run, here or on several hosts, or any program behind "
              "--, watch "
              "it, and start again what ends, by the table of --explain. May itself be killed and "
              "started again: what it has started goes on.");
  flags.text("config", &f.config, "Config file of a run; its table [supervise] is read here.")
      .list("set", &f.assignments, "key=value that wins over the file.")
      .text("out", &f.out, "Run directory; the supervisor's own files are in supervise/ in it.")
      .integer("ranks", &f.ranks, "Processes of the run; default: supervise.ranks.", 1, 4096)
      .flag("explain", &f.explain, "Print the table of decisions as Markdown and exit.")
      .flag("document", &f.document, "Print the list of config keys as Markdown and exit.");
  if (!flags.parse(words)) return;
  f.ranks_given = flags.given("ranks");
  if (f.explain) return fmt::print("{}", explain_policy());
  if (f.document) return fmt::print("{}", document_supervise_config());
  check_flags(f);
  SupervisePlan plan = f.command.empty() ? plan_of_run(f) : plan_of_program(f);
  fit_hosts(f, &plan);
  pass_on(&plan);
  const SuperviseResult result = supervise(posix_file_system(), plan);
  if (result.exit_code == kExitOk && std::ferror(stdout) != 0)
    throw_error(Code::kIo,
                "write to standard output: the results did not get through; they are in "
                "{}/rank-0.out, or in that of rank 0's host",
                plan.folder);
  if (result.exit_code == kExitOk) return;
  constexpr int kFirst = 10, kLast = 19;
  if (result.exit_code >= kFirst && result.exit_code <= kLast)
    throw_error(static_cast<Code>(result.exit_code - kFirst), "{}", result.reason);
  say("moraine supervise: {}\n", result.reason);
  std::fflush(stdout);
  std::exit(result.exit_code);  // of the program that was supervised
}

}  // namespace moraine
