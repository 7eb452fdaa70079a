// LoadedModel: a model read from disk, ready to compute: threads, memory, weights.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"
#include "kernels/gpu/gpu_arena_memory.h"
#include "model/model.h"
#include "model/model_directory.h"
#include "model/model_memory.h"
#include "model/packed_model.h"
#include "parallel/slot_choice.h"

namespace moraine {

// Ranks that compute a model together, each for its own; null: it is not divided so. All open it together.
struct ModelRanks {
  Communicator* rows = nullptr;     // have the other rows of a batch, and the other experts
  Communicator* experts = nullptr;  // compute the same rows, and hold the other experts
  Communicator* cache =
      nullptr;  // compute the same rows, and hold the other positions of the cache
  Communicator* guests = nullptr;  // those of `experts`, for weights that travel; null: none do
};

struct LoadOptions {
  std::string
      dtype;  // "f32", "bf16", or "": as the weights are stored; of a packed model that alone
  int64_t threads = 0;    // 0: one per usable core
  int64_t tokens = 512;   // most rows of a forward pass
  int64_t positions = 0;  // longest document; 0: the model's max_positions
  CacheOptions cache;     // no pages: none; page_rows and members are those of one rank
  ModelRanks ranks = {};
  // Of ranks: bytes that were free on this host before one of them took any (parallel/host_memory.h), held against what
  // all of this host take; 0: as it is now.
  int64_t host_free = 0;
  // How logits are computed for who asks the engine for tokens alone: "full", "two-stage" (with a copy of the head in
  // 8 bits, if it is f32 or bf16), or "auto": in two stages where the head has kLargeHeadBytes and the copy is at most
  // a quarter of the memory that is free, and has room beside all else. The answer is the same. Of ranks only the first
  // has a copy.
  std::string head = "full";
  // What computes: "cpu", or a GPU (kernels/gpu/open_device.h), for each rank its own of one generation. Then weights,
  // activations and the cache are in its memory, all logits are computed ("auto" is "full"), and what has no kernel
  // there is refused by name before a weight is read.
  std::string device = "cpu";
  // Of ranks that divide experts. "on" gives the answers of few rows from rank to rank with low latency, "off" by
  // collectives, "auto" does what is faster here (parallel/slot_choice.h). On a GPU "auto" is "off". No bit depends on
  // it.
  std::string low_latency = "off";
  // What to do where weights that are to be read have no room, for the message.
  std::string unread = "`moraine quantize` makes a form that is mapped when it is used";
  ServingPlacement placement = {};  // who computes which rows of experts; no bit depends on it
};

inline constexpr int64_t kLargeHeadBytes = int64_t{64} << 20;

// Bytes that are free where a device computes; of one with a memory of its own not known, and more than there are.
int64_t available_device_bytes(const std::string& device);

//
// Threads: one at a time, also of a GPU: who loads it hands it on. Models of two LoadedModels, on one device too, may
//          compute at once.
class LoadedModel {
 public:
  // Errors: those of ModelDirectory; kInvalidArgument for a dtype or a length that the model cannot take, more ranks
  // than experts, what a GPU has no kernel for, or more than the host's memory has room for; kDevice without the GPU
  // that was asked for.
  static std::unique_ptr<LoadedModel> open(const ModelDirectory& directory,
                                           const LoadOptions& options);
  // The same, without reading weights or taking memory: what arena() lists. It computes nothing.
  static std::unique_ptr<LoadedModel> plan(const ModelDirectory& directory,
                                           const LoadOptions& options);
  // Whether there is room for what is planned, as open() asks first; of a GPU's memory nobody asks. Returns the head to
  // open it with: "auto" is no copy that there is no room for.
  static std::string check_memory(const ModelDirectory& directory, const LoadOptions& options);

  // Whether all ranks' devices are of one generation, else kInvalidArgument; then the slots of options.low_latency, of
  // which there are none without the call. Collective, once all have opened it; of one that computes alone, nothing.
  void connect();

  Context& ctx() { return ctx_; }
  Model& model() { return *model_; }
  Cache& cache() { return cache_; }
  const ModelConfig& config() const { return model_->config(); }
  const Arena& arena() const { return arena_; }
  std::string device() const;  // that computes: "cpu", or a GPU's name
  // Of arena().bytes(), what is in its memory; the rest is in the host's.
  int64_t device_bytes() const;

 private:
  LoadedModel(const LoadOptions& options, Arena::Mode mode);
  Tensor read_master(const ModelDirectory& directory, const ParameterTable& table);
  GatheredRows gathered_rows() const;
  void check_generations() const;
  ModelMemory memory_of_host() const;
  void divide_experts(const LoadOptions& options, const ModelConfig& config);
  static std::unique_ptr<LoadedModel> make(const ModelDirectory& directory,
                                           const LoadOptions& options, Arena::Mode mode);
  Pool pool_;
  std::unique_ptr<gpu::Gpu> gpu_;  // null: the CPU, as the next
  std::unique_ptr<gpu::GpuArenaMemory> gpu_memory_;
  Arena arena_;
  Communicator* ranks_;  // some of options.ranks; null: alone
  Context ctx_;
  std::unique_ptr<PackedModel> packed_;  // null: weights are made of a master buffer in the arena
  std::unique_ptr<ExpertExchange> exchange_;
  std::unique_ptr<ExpertGather> gather_;
  std::string low_latency_;
  std::unique_ptr<ServingGuests> guests_;  // null: experts stay at home
  std::unique_ptr<ServingPlacer> placer_;  // null: experts are not divided
  std::unique_ptr<Model> model_;
  Cache cache_;
};

}  // namespace moraine
