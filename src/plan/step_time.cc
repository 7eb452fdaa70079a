// StepTime: operations at their rates, then each thing that ranks say to each other.
#include "plan/step_time.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "plan/formula.h"

namespace moraine {
namespace {

// Without a measured fit: what the kernels reach of their floors on the machines that were measured.
const OperationFit kNominalProduct = {.call_us = 1, .factor = 1.6};
const OperationFit kNominalOther = {.call_us = 1, .factor = 2};
const OperationFit kNominalBetween = {.call_us = 1, .factor = 0};

// The fit of this operation and type, of as many threads or else the nearest number.
OperationFit fit_of(const StepOperation& o, const Machine& machine, bool bf16, int64_t threads) {
  const OperationFit* best = nullptr;
  const auto away = [&](const OperationFit& fit) { return std::abs(fit.threads - threads); };
  for (const OperationFit& fit : machine.operations) {
    if (fit.name != o.name || fit.bf16 != bf16) continue;
    if (best == nullptr || away(fit) < away(*best)) best = &fit;
  }
  if (best != nullptr) return *best;
  if (o.name == kBetween) return kNominalBetween;
  if (o.product.groups == 0) return kNominalOther;
  return machine.products.empty() ? kNominalProduct : OperationFit{.call_us = 1, .factor = 1};
}

// Messages of one collective on a group of ranks.
struct GroupShape {
  int64_t ranks = 1, near = 1;  // members; of them on this rank's host
  int64_t far() const { return ranks - near; }
};

class Estimate {
 public:
  Estimate(const StepWork& work, const Mesh& mesh, const Place& place, const Machine& machine)
      : w(work), mesh(mesh), place(place), machine(machine) {}
  StepTime run();

 private:
  GroupShape group(int64_t ranks, int64_t stride) const {
    return {ranks, std::clamp<int64_t>(place.ranks_per_host / stride, 1, ranks)};
  }
  GroupShape shared() const { return group(mesh.ranks, 1); }
  GroupShape replicas() const { return group(mesh.ranks / mesh.expert, mesh.expert); }

  void compute();
  double transfer(const GroupShape& g, double bytes, double messages, double times = 1);
  double reduce_seconds(const GroupShape& g, double bytes, double times = 1);
  void wait(const char* name, double seconds);
  void gradients();
  void weights();
  void rows_to_experts();
  void keys();
  void small_sums();
  double backward_seconds() const;

  const StepWork& w;
  const Mesh& mesh;
  const Place& place;
  const Machine& machine;
  StepTime t;
};

void Estimate::compute() {
  const bool bf16 = w.rank.compute == DType::kBF16;
  const double slow = std::max(1, machine.threads) / place.share();
  for (const StepOperation& o : timed_operations(w.rank)) {
    const OperationFit fit = fit_of(o, machine, bf16, place.threads);
    const double seconds = o.calls * fit.call_us * 1e-6 * place.crowding() +
                           fit.factor * base_seconds(o, machine, bf16) * slow;
    const auto same = std::find_if(t.parts.begin(), t.parts.end(),
                                   [&](const TimePart& p) { return p.name == o.name; });
    if (same == t.parts.end()) {
      t.parts.push_back({o.name, seconds});
    } else {
      same->seconds += seconds;
    }
    t.compute += seconds;
  }
}

// `bytes`: that this rank receives from all members together, `messages` from each; all of it `times` times.
double Estimate::transfer(const GroupShape& g, double bytes, double messages, double times) {
  if (g.ranks < 2) return 0;
  const double others = as_factor(g.ranks - 1), near = bytes * as_factor(g.near - 1) / others,
               far = bytes * as_factor(g.far()) / others;
  t.bytes_near += times * near;
  t.bytes_far += times * far;
  const double crowd = place.crowding();
  double seconds = messages * as_factor(g.near - 1) * place.near.latency_seconds * crowd +
                   near / place.near.bytes_per_second * crowd;
  if (g.far() > 0)
    seconds += messages * as_factor(g.far()) * place.far.latency_seconds +
               far * as_factor(place.ranks_per_host) / place.far.bytes_per_second;
  return times * seconds;
}

// Sums in the owner: within a host at the bucket's rate; between hosts halving where it can.
double Estimate::reduce_seconds(const GroupShape& g, double bytes, double times) {
  if (g.ranks < 2 || bytes <= 0) return 0;
  const double received = bytes * as_factor(g.ranks - 1) / as_factor(g.ranks),
               crowd = place.crowding();
  if (g.far() == 0) {
    t.bytes_near += times * received;
    return times * crowd *
           (place.bucket.latency_seconds + received / place.bucket.bytes_per_second);
  }
  const bool halves = std::has_single_bit(static_cast<uint64_t>(g.ranks)) && w.reduce_bytes == 4;
  const double latency = halves ? std::log2(as_factor(g.ranks)) * place.far.latency_seconds : 0;
  return times * latency + transfer(g, received, halves ? 0 : 1, times);
}

void Estimate::wait(const char* name, double seconds) {
  if (seconds <= 0) return;
  t.parts.push_back({name, seconds, true});
  t.communication += seconds;
  t.exposed += seconds;
}

// Of the last micro-batch, during which buckets leave.
double Estimate::backward_seconds() const {
  double seconds = 0;
  for (const TimePart& part : t.parts) {
    if (part.name.find("backward") != std::string::npos || part.name == "cross_entropy")
      seconds += part.seconds;
  }
  return seconds / as_factor(w.rank.slots * w.rank.micro_batches);
}

void Estimate::gradients() {
  const double backward = backward_seconds();
  const bool is_near = shared().far() == 0;  // the same cores: nothing is hidden
  double end = 0, all = 0;
  for (const GradientBucket& b : w.buckets) {
    const double ready = is_near ? 0 : backward * (1 - b.layers_left);
    const double seconds =
        reduce_seconds(shared(), as_factor(b.shared_elements * w.reduce_bytes)) +
        reduce_seconds(replicas(), as_factor(b.expert_elements * w.reduce_bytes));
    end = std::max(end, ready) + seconds;
    all += seconds;
  }
  const double exposed = is_near ? all : std::max(0.0, end - backward);
  wait("ranks: gradients", exposed);
  t.communication += all - exposed;
}

void Estimate::weights() {
  const auto gather = [&](const GroupShape& g, int64_t elements) {
    return transfer(g, 4 * as_factor(elements) * as_factor(g.ranks - 1) / as_factor(g.ranks), 1);
  };
  wait("ranks: weights", gather(shared(), w.rank.parameters - w.rank.expert_parameters) +
                             gather(replicas(), w.rank.expert_parameters));
}

void Estimate::rows_to_experts() {
  const RankWork& r = w.rank;
  if (mesh.expert < 2) return;
  const GroupShape g = group(mesh.expert, 1);
  const double bytes = as_factor(r.rows() * r.model.experts_per_token * r.model.hidden) *
                       as_factor(dtype_bytes(r.compute)) * as_factor(g.ranks - 1) /
                       as_factor(g.ranks) * r.imbalance;
  const double again = r.recompute == Recompute::kLayer ? as_factor(r.model.layers - 1) : 0;
  const double passes =
      as_factor(r.slots * r.micro_batches) * (as_factor(2 * r.model.layers) + again);
  const double forwards =
      as_factor(r.slots * r.micro_batches) * (as_factor(r.model.layers) + again);
  // Rows there and back each pass; counts before each forward one.
  wait("ranks: rows of experts", transfer(g, bytes, 1, 2 * passes) + transfer(g, 0, 1, forwards));
}

void Estimate::keys() {
  const RankWork& r = w.rank;
  if (mesh.context < 2) return;
  const GroupShape g = group(mesh.context, 1);
  const double others = as_factor(g.ranks - 1);
  const double kv = 2 * as_factor(r.rows() * r.model.kv_heads * r.model.head_dim),
               bytes = kv * as_factor(dtype_bytes(r.compute));
  const double again = r.recompute == Recompute::kLayer ? as_factor(r.model.layers - 1) : 0;
  const double batches = as_factor(r.slots * r.micro_batches), layers = as_factor(r.model.layers);
  const double gathers = batches * (2 * layers + again), sums = batches * layers;
  const bool is_ring = r.variant == ContextVariant::kRing;
  const double keys = transfer(g, bytes * others, 1, gathers);
  const double gradients =
      is_ring ? transfer(g, kv * 4 * others, 1, sums * as_factor(g.ranks) / others)  // and home
              : reduce_seconds(g, kv * 4 * as_factor(g.ranks), sums);
  wait("ranks: keys", keys + gradients);
  if (!r.model.cca()) return;
  // Two rows before each of two chunks of each sequence, from a neighbour, and their gradients back.
  const double halo = as_factor(4 * r.sequences * r.model.qkv_width() * dtype_bytes(r.compute));
  wait("ranks: halos", transfer(group(2, 1), halo, 2, gathers));
}

// Votes, losses, counts, blocks of the norm: each a message to every other rank.
void Estimate::small_sums() {
  const GroupShape g = shared();
  const double numbers = as_factor(w.norm_blocks + w.counts);
  wait("ranks: small sums", transfer(g, 8 * numbers * as_factor(g.ranks - 1), 4));
}

StepTime Estimate::run() {
  compute();
  if (mesh.ranks > 1) {
    gradients();
    weights();
    rows_to_experts();
    keys();
    small_sums();
  }
  t.seconds = t.compute + t.exposed;
  std::stable_sort(t.parts.begin(), t.parts.end(),
                   [](const TimePart& a, const TimePart& b) { return a.seconds > b.seconds; });
  return t;
}

}  // namespace

double base_seconds(const StepOperation& o, const Machine& machine, bool bf16) {
  if (o.product.groups > 0) {
    const ProductShape& p = o.product;
    const double gflops = product_gflops(machine, {.is_weight = p.is_weight,
                                                   .bf16 = bf16,
                                                   .rows = p.rows,
                                                   .n = p.n,
                                                   .k = p.k,
                                                   .groups = p.groups});
    return gflops > 0 ? o.flops / (gflops * 1e9) : 0;
  }
  const double gflops = matmul_gflops(machine, bf16),
               gb = std::max(machine.read_gb_s, machine.copy_gb_s);
  return std::max(gflops > 0 ? o.flops / (gflops * 1e9) : 0, gb > 0 ? o.bytes / (gb * 1e9) : 0);
}

std::vector<StepOperation> timed_operations(const RankWork& w) {
  std::vector<StepOperation> all = step_operations(w);
  const double batches = as_factor(w.slots * w.micro_batches);
  StepOperation between{.name = kBetween}, loading{.name = kLoading, .calls = batches};
  for (const StepOperation& o : all) between.calls += o.calls;
  loading.bytes =
      batches * as_factor(w.rows() * w.context) * 8;  // token and target, whole sequences
  all.push_back(between);
  all.push_back(loading);
  return all;
}

StepTime step_time(const StepWork& work, const Mesh& mesh, const Place& place,
                   const Machine& machine) {
  return Estimate(work, mesh, place, machine).run();
}

}  // namespace moraine
