// Transport: what the optional operations do where a transport does not define them.
#include "comm/transport.h"

namespace moraine {

void Transport::drop(Incoming&) {}
void Transport::withdraw(const SendTicket&, const std::string&) {}
void Transport::name_channel(int, const std::string&) {}

}  // namespace moraine
