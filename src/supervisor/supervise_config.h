// SuperviseConfig: the table [supervise] of a run's config file, and what it means for the command of a rank.
#pragma once

#include <string>
#include <vector>

#include "base/settings.h"
#include "supervisor/options.h"

namespace moraine {

// The table [supervise] of `settings`, whether ranks wait for one that is lost (parallel.replace_seconds), and where
// they keep copies in memory.
SuperviseConfig read_supervise_config(const SettingsTable& settings);
// Errors: kInvalidArgument for hosts that ranks, spares or rendezvous do not fit.
void check_hosts(const SuperviseOptions& options);
std::string document_supervise_config();  // Markdown

// Assignments that the supervisor adds for its ranks, each unless the config says otherwise.
std::vector<std::string> added_assignments(const SettingsTable& settings);

}  // namespace moraine
