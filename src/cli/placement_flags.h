// PlacementFlags: who computes which rows of experts, for commands that answer on several ranks.
#pragma once

#include <string>

#include "cli/flags.h"
#include "parallel/serving_placer.h"

namespace moraine {

struct PlacementFlags {
  std::string mode = "static";
  bool within_hosts = false;
  ServingPlacement options = {};

  // Errors: kInvalidArgument for a share that is none.
  ServingPlacement placement() const;
};

void declare_placement(Flags& flags, PlacementFlags* f);

}  // namespace moraine
