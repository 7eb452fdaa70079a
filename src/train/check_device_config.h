// CheckDeviceConfig: what of a config a run on a device refuses, by its key, before anything is opened.
//
// Errors: kInvalidArgument: the key, and what is wanted.
#pragma once

#include <string>

#include "train/run_config.h"

namespace moraine {

// What links of devices do not do where so many ranks divide the experts; empty: nothing of that.
std::string host_alone(const RunConfig& c, int64_t expert);

// REQUIRES: a completed config, so that all phases are there. One for the CPU passes.
void check_device_config(const RunConfig& c, int64_t ranks);

}  // namespace moraine
