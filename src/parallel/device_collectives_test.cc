// DeviceCollectives over a library that plays NCCL, on emulated GPUs: fails if a sum has other bits than the host's
// collectives give it, if a range does not come to its place, if what the library says, or lacks, is not named, or if
// ranks that were stopped for longer than their deadline give up.
#include "parallel/device_collectives.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/random.h"
#include "base/read_beginning.h"
#include "base/test_folder.h"
#include "comm/all_ranks.h"
#include "comm/test_stopped.h"
#include "comm/thread_ranks.h"
#include "kernels/gpu/runtime.h"
#include "testing/places.h"

namespace moraine {
namespace {

using testing::collectives_stand_in;

constexpr int64_t kCount = 1000;

// Uneven, with gaps, a member without any, and two ranges that touch.
Shares some_shares(int ranks) {
  Shares shares(static_cast<size_t>(ranks));
  shares[0] = {{3, 10}, {10, 17}, {700, 701}};
  if (ranks > 1) shares[1] = {{20, 300}, {990, 1000}};
  if (ranks > 2) shares[static_cast<size_t>(ranks - 1)] = {{400, 650}};
  return shares;
}

std::vector<float> values_of(int rank) {
  std::vector<float> values;
  for (uint64_t i = 0; i < kCount; ++i)
    values.push_back(
        static_cast<float>(random_uniform(1, Stream::kTest, static_cast<uint64_t>(rank), i) - 0.5));
  return values;
}

Tensor flat(void* data) { return make_tensor(data, DType::kF32, {kCount}); }

// One rank with a device of its own.
struct RankWithDevice {
  explicit RankWithDevice(Transport& t, double deadline = 60)
      : gpu(gpu::emulate_gpu({})),
        pool(1),
        ctx(make_context(*gpu, pool)),
        comm(t, all_ranks(t), 0, "shared", deadline) {}

  std::unique_ptr<gpu::Gpu> gpu;
  Pool pool;
  Context ctx;
  Communicator comm;
};

// The first error of the ranks that is not because of another's.
std::string error_of(int ranks, const std::function<void(Transport&)>& body) {
  try {
    run_thread_ranks(ranks, body);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

void fail_at(const char* entry) {
  void* const library = dlopen(collectives_stand_in().c_str(), RTLD_NOW | RTLD_LOCAL);
  reinterpret_cast<void (*)(const char*)>(dlsym(library, "collectives_fail"))(entry);
}

TEST(DeviceCollectives, HaveTheBitsOfTheHostsCollectives) {
  for (const int ranks : {2, 3, 5, 8}) {
    run_thread_ranks(ranks, [ranks](Transport& t) {
      RankWithDevice r(t);
      std::vector<float> want = values_of(t.rank()), got = want;
      reduce_scatter(r.comm, flat(want.data()), some_shares(ranks));
      DeviceCollectives links(load_collective_library(collectives_stand_in()), *r.gpu, r.comm);
      const gpu::GpuMemory there(*r.gpu, got.data(), kCount * 4),
          scratch(*r.gpu, DeviceCollectives::scratch_bytes(ranks, kCount));
      links.reduce_scatter(r.ctx, flat(there.data()), some_shares(ranks),
                           make_tensor(scratch.data(), DType::kU8,
                                       {DeviceCollectives::scratch_bytes(ranks, kCount)}));
      links.wait();
      r.gpu->copy_out(got.data(), there.data(), kCount * 4);
      EXPECT_EQ(got, want) << "rank " << t.rank() << " of " << ranks;
      all_gather(r.comm, flat(want.data()), some_shares(ranks));
      links.all_gather(flat(there.data()), some_shares(ranks));
      links.wait();
      r.gpu->copy_out(got.data(), there.data(), kCount * 4);
      EXPECT_EQ(got, want) << "rank " << t.rank() << " of " << ranks;
    });
  }
}

// A GPU whose work is done when the test says so.
class HeldGpu final : public gpu::Gpu {
 public:
  explicit HeldGpu(StopBoard& board) : board_(board) {}
  std::string name() const override { return gpu_->name(); }
  int wave() const override { return gpu_->wave(); }
  void* stream() override { return gpu_->stream(); }
  void* take(int64_t bytes) override { return gpu_->take(bytes); }
  void give_back(void* memory) override { gpu_->give_back(memory); }
  bool holds(const void* memory) const override { return gpu_->holds(memory); }
  void copy_in(void* device, const void* host, int64_t bytes) override {
    gpu_->copy_in(device, host, bytes);
  }
  void copy_out(void* host, const void* device, int64_t bytes) override {
    gpu_->copy_out(host, device, bytes);
  }
  void clear(void* device, int64_t bytes) override { gpu_->clear(device, bytes); }
  void launch(const char* kernel, const gpu::Grid& grid, const void* arguments) override {
    gpu_->launch(kernel, grid, arguments);
  }
  void wait() override { gpu_->wait(); }
  void wait_for(int64_t /*mark*/) override {
    ++board_.waiting;
    board_.await_go();
  }

 private:
  StopBoard& board_;
  const std::unique_ptr<gpu::Gpu> gpu_ = gpu::emulate_gpu({});
};

TEST(DeviceCollectives, RanksThatAreStoppedForLongerThanTheirDeadlineGoOn) {
  constexpr int kRanks = 2;
  const auto wait = [](StopBoard& board) {
    run_thread_ranks(kRanks, [&board](Transport& t) {
      HeldGpu gpu(board);
      Communicator comm(t, all_ranks(t), 0, "shared", kStoppedDeadline);
      DeviceCollectives(load_collective_library(collectives_stand_in()), gpu, comm);  // tries it
    });
  };
  testing::expect_to_go_on_when_stopped({wait}, kRanks);
}

TEST(DeviceCollectives, WhatTheLibrarySaysIsNamed) {
  const auto open = [](Transport& t) {
    RankWithDevice r(t);
    DeviceCollectives(load_collective_library(collectives_stand_in()), *r.gpu, r.comm);
  };
  const struct {
    const char *fails, *said;
  } cases[] = {{"ncclCommInitRank", "ncclCommInitRank: internal error"},
               {"ncclSend", "ncclAllGather: internal error"},
               {"ncclCommGetAsyncError", "the library says of its work: internal error"},
               {"wrong place", "ncclAllGather brought"}};
  for (const auto& c : cases) {
    fail_at(c.fails);
    EXPECT_NE(error_of(2, open).find(c.said), std::string::npos) << error_of(2, open);
  }
  fail_at("");
  EXPECT_EQ(error_of(2, open), "");
}

TEST(DeviceCollectives, ALibraryThatIsNotThereIsNamedWithWhatToDo) {
  const auto error_of_file = [](const std::string& file) -> std::string {
    try {
      load_collective_library(file);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kNotFound);
      return e.what();
    }
    return "";
  };
  EXPECT_NE(error_of_file("libno-such.so.2").find("parallel.device_links = \"host\""),
            std::string::npos);
  EXPECT_NE(error_of_file("libc.so.6").find("libc.so.6: it has no ncclGetVersion"),
            std::string::npos);
  const testing::TestFolder folder;
  folder.write("cut.so", read_beginning(collectives_stand_in(), 5000));
  EXPECT_EQ(error_of_file(folder.file("cut.so"))
                .find("load " + folder.file("cut.so") + ": the file is cut: it has 5000 bytes"),
            0U);
  EXPECT_EQ(collective_library_file("sm_90", false), "libnccl.so.2");
  EXPECT_EQ(collective_library_file("cdna3", false), "librccl.so.1");
  EXPECT_EQ(collective_library_file("cdna3", true), "");
}

TEST(DeviceCollectives, WhoChoosesTakesTheLibraryWhereAllRanksHaveIt) {
  const auto opened = [](DeviceLinks links, std::string* reason) {
    bool by_library = false;
    run_thread_ranks(2, [&](Transport& t) {
      RankWithDevice r(t);
      std::string why;
      const std::unique_ptr<DeviceCollectives> l = open_device_links(links, *r.gpu, r.comm, &why);
      if (t.rank() == 0) by_library = l != nullptr, *reason = why;
    });
    return by_library;
  };
  std::string reason;
  EXPECT_FALSE(opened(DeviceLinks::kHost, &reason));
  EXPECT_EQ(reason, "");
  EXPECT_FALSE(opened(DeviceLinks::kAuto, &reason));
  EXPECT_EQ(reason, "rank 0: an emulated GPU");
  setenv("MORAINE_COLLECTIVE_LIBRARY", collectives_stand_in().c_str(), 1);
  EXPECT_TRUE(opened(DeviceLinks::kLibrary, &reason));
  setenv("MORAINE_COLLECTIVE_LIBRARY", "libno-such.so.2", 1);
  const std::string missing = error_of(2, [&](Transport& t) {
    RankWithDevice r(t);
    std::string why;
    open_device_links(DeviceLinks::kLibrary, *r.gpu, r.comm, &why);
  });
  unsetenv("MORAINE_COLLECTIVE_LIBRARY");
  EXPECT_NE(missing.find("rank 0: load libno-such.so.2"), std::string::npos) << missing;
}

}  // namespace
}  // namespace moraine
