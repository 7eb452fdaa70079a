// Stored: what a run has stored, on disk and in memory, is told as it is whole, or removed as the run goes back.
// report_save and remove_stored_after are collective.
#pragma once

#include <functional>

#include "train/run.h"

namespace moraine {

// Reports a background save that has finished, or failed.
void report_save(Run& run, bool wait);
// What follows a checkpoint that is whole, on rank 0: none of it takes the checkpoint back.
void after_save(const std::function<void()>& act);
// What was stored after `step`: every rank its part of copies in memory; on disk, which all share, one rank alone.
void remove_stored_after(Run& run, int64_t step, bool on_disk);
// What a call of MemoryCopy came to, if it is worth telling; rank 0.
void report_refused(const Run& run, const std::string& warning);

}  // namespace moraine
