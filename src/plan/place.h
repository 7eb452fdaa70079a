// Place: where ranks compute, and over which links they speak.
//
// A rank computes with its share of a host's cores. Ranks of one host copy from each other's memory, with those same
// cores; between hosts a network moves bytes while cores compute, at a rate that all ranks of a host share.
//
// Units: seconds, bytes per second.
#pragma once

#include <cstdint>

#include "machine/machine.h"

namespace moraine {

struct Link {
  double latency_seconds = 0;   // of a message
  double bytes_per_second = 0;  // of a large message between two ranks
};

struct Place {
  int64_t ranks_per_host = 1;
  int64_t cores = 1;    // of a host, that ranks may use
  int64_t threads = 1;  // of a rank
  Link near;            // between ranks of a host
  Link bucket;          // a reduce-scatter in a host, by bytes that a rank receives
  Link far = {};        // between hosts; `bytes_per_second` of all rails of a host together

  // Cores that one rank has, and by how much ranks outnumber cores.
  double share() const;
  double crowding() const;
};

// Ranks on the measured machine: all of its threads are cores. Without measured messages: nominal ones.
Place place_on_machine(const Machine& machine, int64_t ranks, int64_t threads = 0);

// Rates for who has measured nothing, so that a choice is no accident of a moment: half a core's products, a host's
// memory. `threads`: its cores.
Machine nominal_machine(int threads);

}  // namespace moraine
