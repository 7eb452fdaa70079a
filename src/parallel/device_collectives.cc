// DeviceCollectives: groups of sends and receives, then sums.
#include "parallel/device_collectives.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "comm/agree.h"
#include "comm/share_rounds.h"
#include "comm/waited.h"
#include "kernels/elementwise.h"
#include "kernels/gpu/runtime.h"

namespace moraine {
namespace {

// 4 MiB: far above what a message costs, and a few dozen MiB of scratch among eight ranks.
constexpr int64_t kPieceElements = 1 << 20;

constexpr std::chrono::microseconds kBetweenLooks(20);

int64_t piece_elements(int64_t elements) { return std::min(kPieceElements, elements); }

// Each member's ranges in pieces: round k moves everybody's k-th.
Shares in_pieces(const Shares& merged, int64_t most) {
  Shares pieces(merged.size());
  for (size_t m = 0; m < merged.size(); ++m) {
    for (const Range& r : merged[m]) {
      for (int64_t at = r.begin; at < r.end; at += most)
        pieces[m].push_back({at, std::min(at + most, r.end)});
    }
  }
  return pieces;
}

// The tree of collectives.h; the sum ends in addends[own]. An addition has the same bits both ways.
void add_in_tree(Context& ctx, std::vector<Tensor> addends, size_t own) {
  const void* const kept = addends[own].data;
  for (size_t stride = 1; stride < addends.size(); stride *= 2) {
    for (size_t i = 0; i + stride < addends.size(); i += 2 * stride) {
      Tensor &left = addends[i], &right = addends[i + stride];
      if (right.data == kept) std::swap(left, right);
      add_into(ctx, left, right);
    }
  }
}

Tensor part(const Tensor& data, Range r) { return data.rows(r.begin, r.end); }

}  // namespace

DeviceCollectives::DeviceCollectives(const CollectiveLibrary& library, gpu::Gpu& gpu,
                                     Communicator& comm)
    : library_(library), gpu_(&gpu), comm_(&comm), opened_(nullptr, library.abort) {
  struct {
    CollectiveId id;
    int error;
  } made = {};
  if (comm.rank() == 0) made.error = library_.make_id(&made.id);
  made = value_of_first(comm, made);
  check(made.error, "ncclGetUniqueId");
  gpu.wait();  // makes the device this thread's
  void* opened = nullptr;
  check(library_.open(&opened, comm.size(), made.id, comm.rank()), "ncclCommInitRank");
  opened_.reset(opened);
  try_links();
}

// All ranks are there and do the same.
void DeviceCollectives::begin_work() {
  opened_.get_deleter() = library_.abort;
  try {
    barrier(*comm_);
  } catch (...) {
    abort();
    throw;
  }
}

void DeviceCollectives::check(int error, const char* entry) {
  if (error == 0) return;
  const std::string text =
      fmt::format("links of devices: {}: {}", entry, library_.error_text(error));
  if (error == kCollectiveRemoteError) give_up(text);
  abort();
  comm_->transport().fail(text);
  throw_error(Code::kDevice,
              "{}; NCCL_DEBUG=WARN tells more; parallel.device_links = \"host\" needs no library",
              text);
}

// The library's work under way ends, so that nobody waits for it on the way out.
void DeviceCollectives::abort() {
  if (opened_ != nullptr) library_.abort(opened_.release());
}

// What others are in the middle of ends as well.
void DeviceCollectives::give_up(const std::string& reason) {
  abort();
  comm_->transport().fail(reason);
  throw_error(Code::kPeerLost, "{}", reason);
}

// Every rank's number, by the library, before anything depends on it.
void DeviceCollectives::try_links() {
  const auto ranks = static_cast<size_t>(comm_->size());
  const int64_t mine = comm_->rank();
  std::vector<int64_t> all(ranks);
  const gpu::GpuMemory from(*gpu_, &mine, sizeof mine),
      to(*gpu_, static_cast<int64_t>(ranks * sizeof mine));
  check(library_.all_gather(from.data(), to.data(), sizeof mine, kCollectiveBytes, opened_.get(),
                            gpu_->stream()),
        "ncclAllGather");
  wait();
  gpu_->copy_out(all.data(), to.data(), static_cast<int64_t>(ranks * sizeof mine));
  for (size_t r = 0; r < ranks; ++r) {
    if (all[r] != static_cast<int64_t>(r))
      throw_error(Code::kDevice,
                  "links of devices: ncclAllGather brought {} from rank {}, which sent {}; "
                  "parallel.device_links = \"host\" needs no library",
                  all[r], r, r);
  }
}

int64_t DeviceCollectives::scratch_bytes(int ranks, int64_t elements) {
  return (ranks - 1) * piece_elements(elements) * 4;
}

void DeviceCollectives::send(const Tensor& data, Range r, int member) {
  const Tensor t = part(data, r);
  check(library_.send(t.data, static_cast<size_t>(t.bytes()), kCollectiveBytes, member,
                      opened_.get(), gpu_->stream()),
        "ncclSend");
}

void DeviceCollectives::receive(const Tensor& data, Range r, int member) {
  const Tensor t = part(data, r);
  check(library_.receive(t.data, static_cast<size_t>(t.bytes()), kCollectiveBytes, member,
                         opened_.get(), gpu_->stream()),
        "ncclRecv");
}

void DeviceCollectives::reduce_scatter(Context& ctx, const Tensor& data, const Shares& shares,
                                       const Tensor& scratch) {
  check_shares(shares, comm_->size(), data.count());
  begin_work();
  const int ranks = comm_->size(), me = comm_->rank();
  const int64_t piece = piece_elements(data.count());
  MR_CHECK(scratch.bytes() >= scratch_bytes(ranks, data.count()));
  const Tensor room = make_tensor(scratch.data, DType::kF32, {(ranks - 1) * piece});
  const Shares pieces = in_pieces(merge_shares(shares), piece);
  for (size_t round = 0; static_cast<int64_t>(round) < round_count(pieces); ++round) {
    const auto piece_of = [&](int m) {
      const std::vector<Range>& theirs = pieces[static_cast<size_t>(m)];
      return round < theirs.size() ? theirs[round] : Range{};
    };
    const Range own = piece_of(me);
    const int64_t count = own.end - own.begin;
    std::vector<Tensor> addends;
    check(library_.begin_group(), "ncclGroupStart");
    for (int m = 0; m < ranks; ++m) {
      const Range theirs = piece_of(m);
      const int64_t at = (m - (m > me)) * piece;
      if (count > 0) addends.push_back(m == me ? part(data, own) : room.rows(at, at + count));
      if (m == me) continue;
      if (theirs.end > theirs.begin) send(data, theirs, m);
      if (count > 0) receive(room, {at, at + count}, m);
    }
    check(library_.end_group(), "ncclGroupEnd");
    if (count > 0) add_in_tree(ctx, addends, static_cast<size_t>(me));
  }
}

void DeviceCollectives::all_gather(const Tensor& data, const Shares& shares) {
  check_shares(shares, comm_->size(), data.count());
  begin_work();
  const Shares merged = merge_shares(shares);
  const std::vector<Range>& mine = merged[static_cast<size_t>(comm_->rank())];
  for (size_t round = 0; static_cast<int64_t>(round) < round_count(merged); ++round) {
    check(library_.begin_group(), "ncclGroupStart");
    for (int m = 0; m < comm_->size(); ++m) {
      if (m == comm_->rank()) continue;
      const std::vector<Range>& theirs = merged[static_cast<size_t>(m)];
      if (round < mine.size()) send(data, mine[round], m);
      if (round < theirs.size()) receive(data, theirs[round], m);
    }
    check(library_.end_group(), "ncclGroupEnd");
  }
}

void DeviceCollectives::wait() {
  const CommHandle done =
      waiter_.submit([gpu = gpu_, mark = gpu_->mark()] { gpu->wait_for(mark); });
  for (Waited waited(now_seconds());;) {
    int error = 0;
    check(library_.async_error(opened_.get(), &error), "ncclCommGetAsyncError");
    if (error != 0 && error != kCollectiveInProgress)
      give_up(fmt::format("links of devices: the library says of its work: {}",
                          library_.error_text(error)));
    if (done.done()) break;
    if (waited.look(now_seconds()) > comm_->deadline())
      give_up(fmt::format("links of devices: not done in {:.1f} seconds: a rank or a link is lost",
                          comm_->deadline()));
    std::this_thread::sleep_for(kBetweenLooks);
  }
  CommHandle(done).wait();  // throws what went wrong
  opened_.get_deleter() = library_.close;
}

namespace {

// What a rank has: a library, or why not.
struct Found {
  std::optional<CollectiveLibrary> library;
  std::string reason;
};

Found find_library(DeviceLinks links, gpu::Gpu& gpu) {
  const bool emulated = gpu.number() < 0;
  if (emulated && links == DeviceLinks::kAuto) return {{}, "an emulated GPU"};
  const std::string file = collective_library_file(gpu.generation(), emulated);
  if (file.empty()) return {{}, "an emulated GPU has no library"};
  try {
    return {load_collective_library(file), ""};
  } catch (const Error& e) {
    return {{}, e.what()};
  }
}

// Ranks of a host that have one device together: no library takes that.
std::string shared_device(Communicator& comm, gpu::Gpu& gpu) {
  const std::vector<std::string> places = all_gather_text(
      comm, gpu.number() < 0 ? ""
                             : fmt::format("device {} of host {}", gpu.number(),
                                           comm.transport().host_of(comm.transport().rank())));
  for (size_t r = 0; r < places.size(); ++r) {
    const auto first = std::find(places.begin(), places.end(), places[r]);
    const auto other = static_cast<size_t>(first - places.begin());
    if (other < r && !places[r].empty())
      return fmt::format("ranks {} and {} share {}", other, r, places[r]);
  }
  return "";
}

}  // namespace

std::unique_ptr<DeviceCollectives> open_device_links(DeviceLinks links, gpu::Gpu& gpu,
                                                     Communicator& comm, std::string* reason) {
  if (links == DeviceLinks::kHost || comm.size() == 1) return nullptr;
  Found found = find_library(links, gpu);
  const std::vector<std::string> reasons = all_gather_text(comm, found.reason);
  *reason = shared_device(comm, gpu);
  for (size_t r = 0; r < reasons.size() && reason->empty(); ++r) {
    if (!reasons[r].empty()) *reason = fmt::format("rank {}: {}", r, reasons[r]);
  }
  if (reason->empty()) return std::make_unique<DeviceCollectives>(*found.library, gpu, comm);
  if (links == DeviceLinks::kAuto) return nullptr;
  barrier(comm);  // everybody has seen it, and ends with this error
  throw_error(Code::kInvalidArgument,
              "parallel.device_links = \"library\": {}; \"host\" goes over the host's memory",
              *reason);
}

}  // namespace moraine
