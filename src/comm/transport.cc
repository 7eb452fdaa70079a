// What a transport does if it does nothing else.
#include "comm/transport.h"

namespace moraine {

void Transport::name_channel(int, const std::string&) {}

}  // namespace moraine
