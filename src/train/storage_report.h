// StorageReport: what a run asks of its storage, against what the disk under its data can do.
//
// The disk is measured once, early in the run, with real reads beside those of training
// (report.probe_storage turns it off). docs/model.md, storage.
#pragma once

#include "train/run.h"

namespace moraine {

// Prints it. Errors are warnings.
void print_storage(const Run& run, const StepPlan& plan, double step_seconds);

}  // namespace moraine
