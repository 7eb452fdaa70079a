// What a transport does if it does nothing else.
#include "comm/transport.h"

namespace moraine {

void Transport::drop(Incoming&) {}
void Transport::withdraw(const SendTicket&, const std::string&) {}
void Transport::name_channel(int, const std::string&) {}

}  // namespace moraine
