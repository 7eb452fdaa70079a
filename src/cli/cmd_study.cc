// `moraine study`: blocks compared at equal compute.
#include <csignal>

#include "base/error.h"
#include "base/log.h"
#include "base/named_file.h"
#include "base/process.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "study/study.h"
#include "train/complete_config.h"

namespace moraine {
namespace {

struct StudyFlags {
  std::string config, match = "expert_hidden";
  std::vector<std::string> assignments, vary, variants;
  BudgetOptions budget;
  StudyOptions study;
  bool dry_run = false, json = false;
};

std::atomic<int> study_signal{0};

extern "C" void on_study_signal(int signal) { study_signal.store(signal); }

void listen_for_study_signals() {
  for (const int signal : {SIGTERM, SIGINT}) std::signal(signal, on_study_signal);
  if (std::signal(SIGHUP, on_study_signal) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);  // nohup
}

std::vector<StudyConfig> study_configs(FileSystem& fs, StudyFlags& f) {
  SettingsTable settings =
      SettingsTable::parse(read_named_file(fs, "study --config", f.config), f.config);
  // What a comparison has no use for; the config and --set win.
  for (const char* quiet :
       {"report.sample_every_steps=0", "report.probe_storage=false", "checkpoint.keep=1"}) {
    const std::string word = quiet;
    const size_t dot = word.find('.'), equals = word.find('=');
    if (!settings.table(word.substr(0, dot)).has(word.substr(dot + 1, equals - dot - 1)))
      settings.set(word);
  }
  for (const std::string& assignment : f.assignments) settings.set(assignment);
  f.budget.match = f.match == "hidden" ? MatchedWidth::kHidden
                   : f.match == "none" ? MatchedWidth::kNone
                                       : MatchedWidth::kExpertHidden;
  const auto read = [&fs](const SettingsTable& table) {
    return complete_config(fs, read_run_config(table));
  };
  return equal_compute(read, settings, read_variants(f.vary, f.variants), f.budget);
}

// A variant that fails is a result; that all runs fail is none.
void check_any_ended(const std::vector<VariantResult>& results) {
  const StudyOutcome* first = nullptr;
  bool same = true;
  size_t runs = 0;
  for (const VariantResult& r : results) {
    for (const StudyOutcome& o : r.outcomes) {
      if (o.why.empty()) return;
      if (first == nullptr) first = &o;
      same = same && o.code == first->code;
      ++runs;
    }
  }
  if (first == nullptr) return;
  const int lowest = exit_code(Code::kInvalidArgument), code = first->code - lowest;
  const bool is_ours = same && code >= 0 && code <= static_cast<int>(Code::kRankDiverged);
  throw_error(is_ours ? static_cast<Code>(code) : Code::kInvalidArgument,
              "study: all {} runs failed, so nothing was compared; the first: {}", runs,
              first->why);
}

}  // namespace

void cmd_study(const CommandLine& line) {
  StudyFlags f;
  f.study.out = "runs/study";
  Flags flags("study",
              "Compare variants of a config at equal compute: widths are solved so that every "
              "variant asks for the same "
              "flops, all are trained on the same data with several seeds, and a table and a page "
              "say how their "
              "held-out loss differs. Run it again to go on.");
  flags.text("config", &f.config, "Config of the base; it must say how long a run is.")
      .list("set", &f.assignments, "key=value that wins over the file, for all variants.")
      .list("vary", &f.vary, "KEY=A,B: one factor, a variant for each value; again for another.")
      .list("variant", &f.variants,
            "\"NAME: key=value, key=value\": one variant, by name; again for another.")
      .text("out", &f.study.out, "Folder of the runs, study.json and study.html.")
      .integer("seeds", &f.study.seeds, "Runs of each variant, from train.seed on.", 1, 1000)
      .choice("match", &f.match, {"expert_hidden", "hidden", "none"},
              "The width that is solved so that flops per token match the base's.")
      .number("flops", &f.budget.flops, "Training flops of each run; 0: as many as the base takes.")
      .integer("side-by-side", &f.study.side_by_side, "Runs at once; they divide the cores.", 1,
               256)
      .text("machine", &f.study.machine_file,
            "Machine file of `moraine bench`; empty: every run measures briefly.")
      .flag("dry-run", &f.dry_run, "Print what would be run, and exit.")
      .flag("json", &f.json, "Print the result as one JSON object.");
  if (!flags.parse(line)) return;
  if (f.config.empty())
    throw_error(Code::kInvalidArgument, "study: --config is missing: wanted a TOML file");
  if (f.vary.empty() && f.variants.empty())
    throw_error(
        Code::kInvalidArgument,
        "study: nothing to compare: wanted --vary KEY=A,B or --variant \"NAME: key=value\"");
  if (!(f.budget.flops >= 0 && f.budget.flops < 1e30))
    throw_error(Code::kInvalidArgument, "study --flops {}: wanted 0 to 1e30", f.budget.flops);
  FileSystem& fs = posix_file_system();
  const std::vector<StudyConfig> studies = study_configs(fs, f);
  if (studies.size() < 2)
    throw_error(Code::kInvalidArgument,
                "study: every variant is the base in other words; wanted one that differs");
  std::vector<VariantResult> results;
  if (f.dry_run) {
    results = study_results(
        studies,
        std::vector<std::vector<StudyOutcome>>(
            studies.size(), std::vector<StudyOutcome>(static_cast<size_t>(f.study.seeds))));
  } else {
    f.study.program = own_program();
    f.study.stop_signal = &study_signal;
    listen_for_study_signals();
    f.study.tell = [](const std::string& text) { say("{}\n", text); };
    results = run_study(fs, studies, f.study);
  }
  fmt::print("{}", f.json ? study_json(results) + "\n" : study_table_text(results));
  for (const VariantResult& r : results) {
    for (const StudyOutcome& o : r.outcomes)
      if (!o.why.empty()) say("{} seed {}: {}\n", r.study.variant.name, o.seed, o.why);
  }
  if (f.dry_run) return;
  say("page: {}\n", join_path(f.study.out, "study.html"));
  check_any_ended(results);
}

}  // namespace moraine
