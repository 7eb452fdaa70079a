// A library that plays NCCL for ranks that are threads of one process, with emulated GPUs: for tests.
//
// What a rank sends lies in a box of the process until the other one takes it. A group's sends are done before its
// receives, and who waits for 20 seconds gets an error. collectives_fail names an entry that says an error from then
// on.
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/gpu/runtime.h"  // EmulatedStream

namespace {

using moraine::gpu::EmulatedStream;

struct Id {
  char bytes[128];
};
struct Member {
  std::string id;
  int ranks, rank;
};
using Box = std::deque<std::vector<char>>;

constexpr int kInternalError = 3, kInvalidUsage = 5;

std::mutex mutex;
std::condition_variable changed;
std::map<std::tuple<std::string, int, int>, Box> boxes;  // id, from, to
std::string failing;
int ids = 0;

// Of this thread: what a group has been asked for.
thread_local int depth = 0;
thread_local std::vector<std::function<int()>> sends, receives;

int fails(const char* entry) {
  const std::lock_guard lock(mutex);
  return failing == entry ? kInternalError : 0;
}

int send_now(const void* data, size_t bytes, int peer, const Member& me, const EmulatedStream& s) {
  std::vector<char> content(bytes);
  s.copy_out(s.gpu, content.data(), data, static_cast<int64_t>(bytes));
  const std::lock_guard lock(mutex);
  boxes[{me.id, me.rank, peer}].push_back(std::move(content));
  changed.notify_all();
  return 0;
}

int receive_now(void* data, size_t bytes, int peer, const Member& me, const EmulatedStream& s) {
  std::vector<char> content;
  {
    std::unique_lock lock(mutex);
    Box& box = boxes[{me.id, peer, me.rank}];
    if (!changed.wait_for(lock, std::chrono::seconds(20), [&] { return !box.empty(); }))
      return kInternalError;
    content = std::move(box.front());
    box.pop_front();
  }
  if (content.size() != bytes) return kInvalidUsage;
  s.copy_in(s.gpu, data, content.data(), static_cast<int64_t>(bytes));
  return 0;
}

int end() {
  int error = 0;
  for (auto* list : {&sends, &receives}) {
    for (const auto& operation : *list) error = error != 0 ? error : operation();
    list->clear();
  }
  return error;
}

}  // namespace

extern "C" {

void collectives_fail(const char* entry) {
  const std::lock_guard lock(mutex);
  failing = entry;
}

int ncclGetVersion(int* version) { return *version = 22703, 0; }
int ncclGetUniqueId(Id* id) {
  const std::lock_guard lock(mutex);
  std::memset(id, 0, sizeof *id);
  std::strcpy(id->bytes, ("group " + std::to_string(++ids)).c_str());
  return 0;
}
int ncclCommInitRank(void** comm, int ranks, Id id, int rank) {
  if (const int error = fails("ncclCommInitRank")) return error;
  *comm = new Member{id.bytes, ranks, rank};
  return 0;
}
int ncclCommDestroy(void* comm) {
  delete static_cast<Member*>(comm);
  return 0;
}
int ncclCommAbort(void* comm) { return ncclCommDestroy(comm); }
int ncclCommGetAsyncError(void*, int* error) {
  *error = fails("ncclCommGetAsyncError");
  return 0;
}
const char* ncclGetErrorString(int error) {
  return error == kInternalError ? "internal error" : "invalid usage";
}
int ncclGroupStart() { return ++depth, 0; }
int ncclGroupEnd() { return --depth == 0 ? end() : 0; }
int ncclSend(const void* data, size_t count, int, int peer, void* comm, void* stream) {
  if (const int error = fails("ncclSend")) return error;
  sends.push_back([=] {
    return send_now(data, count, peer, *static_cast<Member*>(comm),
                    *static_cast<EmulatedStream*>(stream));
  });
  return depth == 0 ? end() : 0;
}
int ncclRecv(void* data, size_t count, int, int peer, void* comm, void* stream) {
  receives.push_back([=] {
    return receive_now(data, count, peer, *static_cast<Member*>(comm),
                       *static_cast<EmulatedStream*>(stream));
  });
  return depth == 0 ? end() : 0;
}
int ncclAllGather(const void* mine, void* all, size_t count, int type, void* comm, void* stream) {
  const Member& me = *static_cast<Member*>(comm);
  const bool wrong = fails("wrong place") != 0;
  ncclGroupStart();
  for (int m = 0; m < me.ranks; ++m) {
    const int place = wrong ? me.ranks - 1 - m : m;
    if (const int error = ncclSend(mine, count, type, m, comm, stream)) {
      --depth;
      sends.clear(), receives.clear();
      return error;
    }
    ncclRecv(static_cast<char*>(all) + static_cast<size_t>(place) * count, count, type, m, comm,
             stream);
  }
  return ncclGroupEnd();
}

}  // extern "C"
