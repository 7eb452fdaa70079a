// PlanStep: asks the planner, prints a table of meshes and a table of operations.
#include "cli/plan_step.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/pool.h"

namespace moraine {
namespace {

const char* recompute_name(Recompute r) { return r == Recompute::kLayer ? "layer" : "none"; }

double tokens_of_step(const RunConfig& c) {
  const Timeline timeline(c);
  return static_cast<double>(timeline.at(timeline.steps() - 1).batch_tokens);
}

Json plan_json(const MeshPlan& p, double tokens) {
  Json parts = Json::array();
  for (const TimePart& part : p.time.parts)
    parts.push_back({{"name", part.name},
                     {"ms", 1e3 * part.seconds},
                     {"is_communication", part.is_communication}});
  return {{"ranks", p.mesh.ranks},
          {"data", p.mesh.data()},
          {"context", p.mesh.context},
          {"expert", p.mesh.expert},
          {"recompute", recompute_name(p.recompute)},
          {"micro_sequences", p.micro_sequences},
          {"step_ms", 1e3 * p.time.seconds},
          {"tokens_per_s", tokens / p.time.seconds},
          {"compute_ms", 1e3 * p.time.compute},
          {"communication_ms", 1e3 * p.time.communication},
          {"exposed_ms", 1e3 * p.time.exposed},
          {"bytes_received", p.time.bytes_near + p.time.bytes_far},
          {"memory_bytes", p.bytes},
          {"fits", p.fits},
          {"parts", parts}};
}

void print_row(const MeshPlan& p, double tokens) {
  fmt::print("{:>5}{:>6}{:>9}{:>8}{:>11}{:>7}{:>12.1f}{:>11.0f}{:>11.1f}{:>11.1f}{}\n",
             p.mesh.ranks, p.mesh.data(), p.mesh.context, p.mesh.expert,
             recompute_name(p.recompute), p.micro_sequences, 1e3 * p.time.seconds,
             tokens / p.time.seconds, 1e3 * p.time.exposed,
             static_cast<double>(p.bytes) / (1 << 20), p.fits ? "" : "  does not fit");
}

int64_t least_bytes(const std::vector<MeshPlan>& plans) {
  return std::min_element(plans.begin(), plans.end(),
                          [](const MeshPlan& a, const MeshPlan& b) { return a.bytes < b.bytes; })
      ->bytes;
}

std::string source_text(const Machine& m) {
  if (m.measured_utc.empty())
    return "nominal rates, nothing is measured (--machine FILE): trust the order, not the times";
  std::string text = fmt::format("{} threads, {}, measured {}", m.threads, m.isa, m.measured_utc);
  if (m.products.empty()) text += "; no products (`bench gemm --machine`)";
  if (m.comm.ranks == 0) text += "; no messages (`bench comm --machine`)";
  if (m.operations.empty()) text += "; no operations (`bench step --machine`)";
  return text;
}

}  // namespace

void declare_plan_step(Flags& flags, PlanStepFlags* f) {
  flags
      .text("machine", &f->machine_file,
            "step, cluster, shape: machine file of `bench gemm`, `bench comm` and `bench step`; "
            "empty: nominal rates.")
      .integer("threads", &f->threads, "step: of a rank; 0: the cores divided by the ranks.", 0,
               1024)
      .integer("document", &f->document,
               "step: positions of a document; 0: as long as the sequence.", 0, 1 << 30)
      .number("imbalance", &f->imbalance,
              "step, cluster: rows of the rank whose experts have most, over the mean.")
      .number("memory-gib", &f->memory_gib,
              "step, shape: memory of the host, in GiB; 0: any plan fits.")
      .flag("micro", &f->micro, "step: also other numbers of sequences at a time (another answer).")
      .integer("most", &f->most, "step: meshes to print.", 1, 1 << 20);
}

void check_plan_number(const char* flag, double value, double least) {
  constexpr double kMost = 1e9;
  if (value >= least && value <= kMost) return;
  throw_error(Code::kInvalidArgument, "--{} {}: wanted a number from {} to {}", flag, value, least,
              kMost);
}

std::string device_note(const RunConfig& config) {
  if (config.train.device == "cpu") return "";
  return fmt::format(
      "train.device = {}: this is the plan of a CPU, without what a device takes besides "
      "(docs/gpu.md)",
      config.train.device);
}

Machine plan_machine(const std::string& path) {
  return path.empty() ? nominal_machine(usable_cores()) : load_machine(posix_file_system(), path);
}

std::string step_parts_text(const StepTime& time) {
  std::string text = fmt::format("{:<36}{:>12}{:>9}\n", "part of the step", "ms", "share");
  for (const TimePart& part : time.parts)
    text += fmt::format("{:<36}{:>12.3f}{:>7.1f} %\n", part.name, 1e3 * part.seconds,
                        100 * part.seconds / time.seconds);
  return text;
}

void print_plan_step(const PlanStepFlags& f, const RunConfig& config, int ranks, bool json) {
  check_plan_number("imbalance", f.imbalance, 1);
  check_plan_number("memory-gib", f.memory_gib, 0);
  const Machine machine = plan_machine(f.machine_file);
  const MeshSearch search{.micro_sequences = f.micro,
                          .memory_bytes = static_cast<int64_t>(f.memory_gib * (int64_t{1} << 30)),
                          .imbalance = [most = f.imbalance](int64_t) { return most; },
                          .document = f.document};
  const Place place = place_on_machine(machine, ranks, f.threads);
  const std::vector<MeshPlan> plans = plan_meshes(config, place, machine, ranks, search);
  const double tokens = tokens_of_step(config);
  if (json) {
    for (const MeshPlan& p : plans) {
      Json row = plan_json(p, tokens);
      if (const std::string note = device_note(config); !note.empty()) row["note"] = note;
      fmt::print("{}\n", json_text(row));
    }
    return;
  }
  fmt::print("machine: {}\n{} ranks on it, {} threads each; {:.0f} tokens a step\n\n",
             source_text(machine), ranks, place.threads, tokens);
  fmt::print("{:>5}{:>6}{:>9}{:>8}{:>11}{:>7}{:>12}{:>11}{:>11}{:>11}\n", "ranks", "data",
             "context", "expert", "recompute", "micro", "step ms", "tokens/s", "exposed", "MiB");
  const size_t shown = std::min(plans.size(), static_cast<size_t>(f.most));
  for (size_t i = 0; i < shown; ++i) print_row(plans[i], tokens);
  if (shown < plans.size())
    fmt::print("... and {} more (--most {})\n", plans.size() - shown, plans.size());
  if (!plans.front().fits)
    fmt::print("\nno plan fits in --memory-gib {}: the least is {} MiB\n", f.memory_gib,
               least_bytes(plans) >> 20);
  fmt::print(
      "\nthe first: {:.1f} ms, of it {:.1f} exposed communication, {:.1f} if nothing hid it\n{}",
      1e3 * plans.front().time.seconds, 1e3 * plans.front().time.exposed,
      1e3 * plans.front().time.communication, step_parts_text(plans.front().time));
  if (const std::string note = device_note(config); !note.empty()) fmt::print("\n{}\n", note);
}

}  // namespace moraine
