// AbsentTransport: a rank alone, or among others that are not there.
//
// Collectives of a group of one send nothing and pass. With more ranks it is for planning memory and
// placement: moving anything is a bug.
#pragma once

#include <memory>

#include "comm/transport.h"

namespace moraine {

std::unique_ptr<Transport> make_absent_transport(int ranks = 1, int rank = 0);

}  // namespace moraine
