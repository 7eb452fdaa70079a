// Gather of strings: each length, then each text, is sent straight to the member that wants it.
#include <cstring>

#include "comm/collectives.h"
#include "comm/exchange.h"

namespace moraine {
namespace {

ConstBytes text_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

void send_text(Exchange& exchange, int member, const int64_t& length, const std::string& text) {
  exchange.send(member, std::as_bytes(std::span(&length, 1)));
  exchange.send(member, text_bytes(text));
}

std::string receive_text(Exchange& exchange, int member) {
  int64_t length = 0;
  exchange.receive(member, std::as_writable_bytes(std::span(&length, 1)));
  std::string text(static_cast<size_t>(length), '\0');
  exchange.receive(member, std::as_writable_bytes(std::span(text.data(), text.size())));
  return text;
}

}  // namespace

std::vector<std::string> gather(Communicator& comm, int root, const std::string& mine) {
  Exchange exchange(comm, Operation::kGather);
  const int64_t length = static_cast<int64_t>(mine.size());
  std::vector<std::string> all;
  if (comm.rank() == root) {
    for (int m = 0; m < comm.size(); ++m)
      all.push_back(m == root ? mine : receive_text(exchange, m));
  } else {
    send_text(exchange, root, length, mine);
  }
  exchange.wait_sent();
  return all;
}

std::vector<std::string> all_gather_text(Communicator& comm, const std::string& mine) {
  Exchange exchange(comm, Operation::kAllGatherText);
  const int64_t length = static_cast<int64_t>(mine.size());
  std::vector<std::string> all(static_cast<size_t>(comm.size()));
  for (int i = 1; i < comm.size(); ++i) send_text(exchange, member_after(comm, i), length, mine);
  for (int i = 1; i < comm.size(); ++i) {
    const int m = member_before(comm, i);
    all[static_cast<size_t>(m)] = receive_text(exchange, m);
  }
  all[static_cast<size_t>(comm.rank())] = mine;
  exchange.wait_sent();
  return all;
}

}  // namespace moraine
