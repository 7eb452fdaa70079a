// Groups: a run that outlives its ranks.
//
//   meet     all that are there, and who takes the place of the lost, form a group (comm/rails_transport.h)
//   go on    from the newest state that is whole: a copy in the hosts' memory, else a checkpoint on disk, of all
//            ranks or of none; the steps since are taken again
//   lost     a rank dies, hangs beyond its deadline, or fails: all others leave what they are doing, and meet again
//
// The bits are those of the undisturbed run, as after any resume. Survivors keep their process, their memory and the
// data they have mapped (run_kept.h). A group that had to shrink grows again at the next step after somebody came.
//
// Errors: those of train(); kPeerLost if nobody can be met, or if groups are lost again and again without a step.
#pragma once

#include "comm/rails_transport.h"
#include "train/run.h"

namespace moraine {

RunResult train_in_groups(FileSystem& fs, const RunConfig& config, const RunOptions& options,
                          RailsJob& job);

}  // namespace moraine
