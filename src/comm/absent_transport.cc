// AbsentTransport: says who it is, and moves nothing.
#include "comm/absent_transport.h"

#include "base/check.h"

namespace moraine {
namespace {

class AbsentTransport : public Transport {
 public:
  AbsentTransport(int ranks, int rank) : ranks_(ranks), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return ranks_; }
  int host_of(int) const override { return 0; }
  std::string name() const override { return "absent"; }
  SendTicket send(int, int, uint64_t, ConstBytes, double) override { return absent<SendTicket>(); }
  void wait_sent(const SendTicket&, double) override { absent<int>(); }
  void receive(int, int, uint64_t, Bytes, double) override { absent<int>(); }
  Incoming open(int, int, uint64_t, int64_t, double) override { return absent<Incoming>(); }
  ConstBytes next(Incoming&, int64_t, Bytes, double) override { return absent<ConstBytes>(); }
  void close(Incoming&) override { absent<int>(); }
  void fail(const std::string&) override {}

 private:
  template <class T>
  T absent() const {
    MR_CHECK(ranks_ < 0, "a planned rank has nobody to talk to");
    return T();
  }
  int ranks_, rank_;
};

}  // namespace

std::unique_ptr<Transport> make_absent_transport(int ranks, int rank) {
  return std::make_unique<AbsentTransport>(ranks, rank);
}

}  // namespace moraine
