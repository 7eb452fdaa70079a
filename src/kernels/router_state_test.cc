// RouterState: fails if a term of the depth average, of RMSNorm or of their gradients is lost, if a
// backend overwrites where it should add, or if a row's bits depend on the batch or the threads.
#include "kernels/router_state.h"

#include <gtest/gtest.h>

#include "kernels/check_tensor.h"
#include "kernels/ref/element.h"
#include "kernels/test_backends.h"
#include "testing/two_ways.h"

namespace moraine {
namespace {

using namespace testing;

struct StateCase {
  int64_t T, R;
  DType dtype;
  bool first, later;  // no s_prev; ds is given
};

constexpr StateCase kStateCases[] = {
    {1, 1, DType::kF32, false, true},       // smallest
    {3, 31, DType::kF32, true, true},       // the first layer; no vector width divides R
    {65, 64, DType::kBF16, false, true},    // one past a block of rows
    {131, 20, DType::kBF16, false, false},  // the last layer
    {5, 17, DType::kF32, true, false},      // the only layer
    {70, 256, DType::kBF16, false, true},   // the width of the model
    {0, 64, DType::kBF16, false, true},     // no rows
};

struct StateData {
  RouterStateForward forward;
  RouterStateBackward backward;
};

StateData make_data(Rig& rig, const StateCase& c) {
  const DType wide = wide_dtype(c.dtype);
  const auto rows = [&](bool present, DType dtype, uint64_t seed) {
    return present ? rig.normal({c.T, c.R}, dtype, seed) : Tensor();
  };
  StateData data;
  data.forward = {.s = rows(true, wide, 1),
                  .x = rows(true, c.dtype, 2),
                  .rstd = rig.normal({c.T}, wide, 3),
                  .y = rows(true, wide, 4),
                  .s_prev = rows(!c.first, wide, 5),
                  .gamma = c.first ? Tensor() : rig.normal({c.R}, wide, 6),
                  .norm = rig.normal({c.R}, wide, 7),
                  .eps = 1e-2f};  // large, so that leaving it out shows
  RouterStateForward truth = data.forward;
  truth.s = rig.copy(truth.s);
  truth.x = rig.copy(truth.x);
  truth.rstd = rig.copy(truth.rstd);
  ref::router_state_forward(truth);
  data.backward = {.dy = rows(true, c.dtype, 8),
                   .ds_prev = rows(!c.first, wide, 9),
                   .dgamma = c.first ? Tensor() : rig.normal({c.R}, wide, 10),
                   .dnorm = rig.normal({c.R}, wide, 11),
                   .dx = rows(true, c.dtype, 12),
                   .ds = rows(c.later, wide, 13),
                   .s = truth.s,
                   .rstd = truth.rstd,
                   .s_prev = data.forward.s_prev,
                   .gamma = data.forward.gamma,
                   .norm = data.forward.norm};
  return data;
}

std::vector<Output> outputs(StateData& data) {
  auto& [forward, backward] = data;
  return present({{&forward.s, "s"},
                  {&forward.x, "x"},
                  {&forward.rstd, "rstd"},
                  {&backward.dy, "dy"},
                  {&backward.ds_prev, "ds_prev"},
                  {&backward.dgamma, "dgamma"},
                  {&backward.dnorm, "dnorm"}});
}

void run(Context& ctx, StateData& data) {
  router_state_forward(ctx, data.forward);
  router_state_backward(ctx, data.backward);
}

TEST(RouterState, EveryIsaMatchesTheReference) {
  for (const StateCase& c : kStateCases) {
    Rig rig, slow(Backend::kRef);
    const StateData data = make_data(rig, c);
    const StateData want = run_copy(rig, data, slow.ctx);
    for_each_isa([&](Isa isa) {
      SCOPED_TRACE(std::string(isa_name(isa)) + " T=" + std::to_string(c.T) +
                   " R=" + std::to_string(c.R));
      expect_close_outputs(run_copy(rig, data, rig.ctx), want, c.T + c.R);
    });
  }
}

TEST(RouterState, ThreadsDoNotChangeTheBits) {
  const StateCase c = {200, 72, DType::kBF16, false, true};
  expect_threads_change_nothing([&](Rig& rig) { return make_data(rig, c); });
}

TEST(RouterState, RowsDoNotDependOnTheBatch) {
  const StateCase c = {70, 72, DType::kBF16, false, true};
  Rig rig;
  const StateData data = make_data(rig, c);
  const StateData all = run_copy(rig, data, rig.ctx);
  for (const int64_t t : {int64_t{0}, int64_t{1}, int64_t{64}, int64_t{69}}) {
    StateData one = data;
    for (Tensor* tensor :
         {&one.forward.s, &one.forward.x, &one.forward.rstd, &one.forward.y, &one.forward.s_prev,
          &one.backward.dy, &one.backward.ds_prev, &one.backward.dx, &one.backward.ds,
          &one.backward.s, &one.backward.rstd, &one.backward.s_prev}) {
      *tensor = tensor->rows(t, t + 1);
    }
    one = run_copy(rig, one, rig.ctx);
    EXPECT_SAME_BITS(one.forward.x, all.forward.x.rows(t, t + 1));
    EXPECT_SAME_BITS(one.forward.s, all.forward.s.rows(t, t + 1));
    EXPECT_SAME_BITS(one.backward.dy, all.backward.dy.rows(t, t + 1));
    EXPECT_SAME_BITS(one.backward.ds_prev, all.backward.ds_prev.rows(t, t + 1));
  }
}

TEST(RouterState, TheStateGradientMayBeInPlace) {
  const StateCase c = {67, 40, DType::kBF16, false, true};
  for (const Backend backend : {Backend::kRef, Backend::kCpu}) {
    Rig rig(backend);
    const StateData data = make_data(rig, c);
    const StateData apart = run_copy(rig, data, rig.ctx);
    StateData shared = data;
    shared.backward.ds_prev = shared.backward.ds;
    router_state_backward(rig.ctx, shared.backward);
    EXPECT_SAME_BITS(shared.backward.ds_prev, apart.backward.ds_prev);
  }
}

TEST(RouterState, ReferenceGradientsMatchFiniteDifferences) {
  for (StateCase c : kStateCases) {
    if (c.T == 0 || c.R > 100) continue;
    c.T = std::min<int64_t>(c.T, 7);
    c.dtype = DType::kF64;
    Rig rig(Backend::kRef);
    StateData data = make_data(rig, c);
    RouterStateBackward& b = data.backward;
    b.dnorm = rig.zeros({c.R}, DType::kF64);
    if (!c.first) b.dgamma = rig.zeros({c.R}, DType::kF64);
    router_state_backward(rig.ctx, b);
    const auto loss = [&] {
      router_state_forward(rig.ctx, data.forward);
      return weighted(b.dx, data.forward.x) + weighted(b.ds, data.forward.s);
    };
    expect_gradient(data.forward.y, b.dy, loss, "y");
    expect_gradient(data.forward.norm, b.dnorm, loss, "norm");
    if (c.first) continue;
    expect_gradient(data.forward.s_prev, b.ds_prev, loss, "s_prev");
    expect_gradient(data.forward.gamma, b.dgamma, loss, "gamma");
  }
}

}  // namespace
}  // namespace moraine
