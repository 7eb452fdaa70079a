// PlanStep: `moraine plan step`: every feasible mesh with its time and memory, and where the best one's time goes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "machine/machine.h"
#include "train/mesh_plans.h"

namespace moraine {

struct PlanStepFlags {
  std::string machine_file;
  int64_t threads = 0, document = 0, most = 20;
  double imbalance = 1, memory_gib = 0;
  bool micro = false;
};
void declare_plan_step(Flags& flags, PlanStepFlags* f);

// Numbers of flags. Errors: kInvalidArgument, naming the flag.
void check_plan_number(const char* flag, double value, double least);

// That a plan is the CPU's where the config names a device; empty: it names none.
std::string device_note(const RunConfig& config);

// The machine file, or nominal rates of the cores here.
Machine plan_machine(const std::string& path);

// On stdout. config: with vocabulary and type settled.
void print_plan_step(const PlanStepFlags& f, const RunConfig& config, int ranks, bool json);

// The parts of a step as lines of text.
std::string step_parts_text(const StepTime& time);

}  // namespace moraine
