// PlacementFlags: the names of a run's config.
#include "cli/placement_flags.h"

#include "base/error.h"

namespace moraine {

ServingPlacement PlacementFlags::placement() const {
  if (!(options.gate >= 0 && options.gate <= 1))
    throw_error(Code::kInvalidArgument, "--placement-gate {}: wanted a share, 0 to 1",
                options.gate);
  ServingPlacement placement = options;
  placement.mode = placement_mode(mode);
  placement.across_hosts = !within_hosts;
  return placement;
}

void declare_placement(Flags& flags, PlacementFlags* f) {
  flags
      .choice("placement", &f->mode, {"static", "balanced", "shuffled"},
              "Of several ranks: which compute the rows of an expert: the one that holds it; with "
              "busy experts others as well; or, to show that no bit depends on it, any at random.")
      .integer("expert-slots", &f->options.slots,
               "Experts of each layer that a rank can have beside its own; takes memory unless "
               "--placement is static.",
               1, 65536)
      .integer("placement-every-steps", &f->options.every_steps,
               "How often a balanced placement is planned.", 1, 1 << 30)
      .number("placement-gate", &f->options.gate,
              "A layer's placement changes if that saves more than this share of the busiest "
              "rank's time in its experts, after what it costs to send weights.")
      .flag("placement-within-hosts", &f->within_hosts,
            "Experts are computed on the host of the rank that holds them only.");
}

}  // namespace moraine
