// TestAttentionParts: parts of every kind, their tensors, and how near the reference they must come.
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "kernels/attention_allowed.h"
#include "kernels/attention_part.h"
#include "kernels/ref/element.h"
#include "testing/rig.h"

namespace moraine::testing {

// One part per segment: segments in ascending rows of q, their positions counted from the part.
struct PartCase {
  int64_t T, R, H, K, d, window;
  std::vector<Segment> segments;
  std::vector<int64_t> keys;
};

inline const std::vector<PartCase>& part_cases() {
  static const std::vector<PartCase> all = {
      {1, 1, 1, 1, 8, 0, {{0, 1, 0, 0}}, {1}},         // smallest
      {40, 40, 2, 1, 16, 0, {{0, 40, 0, 0}}, {40}},    // a part that is the whole
      {30, 50, 4, 2, 24, 0, {{0, 30, 50, 0}}, {50}},   // all rows see all keys
      {30, 50, 4, 2, 24, 0, {{0, 30, 33, 5}}, {17}},   // a part that ends inside a group
      {60, 90, 3, 1, 17, 0, {{0, 60, 20, 3}}, {80}},   // ends at the last row's own position
      {60, 90, 3, 1, 17, 0, {{0, 60, 20, 3}}, {41}},   // ends below it: the diagonal, then all
      {70, 64, 2, 2, 33, 40, {{0, 70, 50, 1}}, {60}},  // a window leaves the part behind
      {70, 64, 2, 2, 33, 7, {{0, 70, 61, 2}}, {61}},   // most rows see no key
      {50, 64, 2, 1, 16, 3, {{0, 50, 200, 0}}, {64}},  // no row sees one
      {90, 200, 4, 2, 32, 0, {{5, 20, 70, 10}, {40, 31, 120, 10}}, {60, 60}},  // share keys
      {90, 200, 4, 2, 32, 90, {{5, 20, 70, 10}, {40, 31, 120, 10}}, {60, 47}},
      {90, 200, 4, 2, 32, 0, {{5, 20, 7, 10}, {40, 31, 12, 21}}, {27, 43}},  // frames 11 apart
      {260, 300, 2, 1, 64, 0, {{0, 130, 170, 0}, {130, 129, 299, 1}}, {170, 299}},  // many blocks
      {150, 300, 2, 1, 128, 130, {{0, 150, 150, 0}}, {290}},
  };
  return all;
}

// Tensors of one case: outputs and sums start as noise.
struct PartProblem {
  PartProblem(Rig& rig, const PartCase& c, DType dtype, DType wide, uint64_t seed) : c(&c) {
    q = rig.normal({c.T, c.H, c.d}, dtype, seed + 1, 1.5);
    k = rig.normal({c.R, c.K, c.d}, dtype, seed + 2, 1.5);
    v = rig.normal({c.R, c.K, c.d}, dtype, seed + 3);
    do_ = rig.normal({c.T, c.H, c.d}, dtype, seed + 4);
    o = rig.normal({c.T, c.H, c.d}, wide, seed + 5);
    lse = rig.normal({c.T, c.H}, wide, seed + 6);
    dq = rig.normal({c.T, c.H, c.d}, wide, seed + 7);
    dk = rig.normal({c.R, c.K, c.d}, wide, seed + 8);
    dv = rig.normal({c.R, c.K, c.d}, wide, seed + 9);
    delta = rig.normal({c.T, c.H}, wide, seed + 10);
    whole_lse = rig.normal({c.T, c.H}, wide, seed + 11);
    for (int64_t i = 0; i < whole_lse.count(); ++i) {  // as if other parts held most of the weight
      ref::set(whole_lse, i, 8 + ref::get(whole_lse, i));
    }
  }
  AttentionPartForward forward() const {
    return {.o = o,
            .lse = lse,
            .q = q,
            .k = k,
            .v = v,
            .segments = c->segments,
            .keys = c->keys,
            .window = c->window,
            .scale = scale()};
  }
  AttentionPartBackward backward() const {
    return {.dq = dq,
            .dk = dk,
            .dv = dv,
            .do_ = do_,
            .q = q,
            .k = k,
            .v = v,
            .lse = whole_lse,
            .delta = delta,
            .segments = c->segments,
            .keys = c->keys,
            .window = c->window,
            .scale = scale()};
  }
  float scale() const { return static_cast<float>(1 / std::sqrt(double(c->d))); }

  const PartCase* c;
  Tensor q, k, v, do_, o, lse, dq, dk, dv, delta, whole_lse;
};

// A tensor as f64 less another: what was added to it.
inline Tensor difference(Rig& rig, const Tensor& after, const Tensor& before) {
  const Tensor d = rig.copy_as(after, DType::kF64);
  for (int64_t e = 0; e < d.count(); ++e) ref::set(d, e, ref::get(d, e) - ref::get(before, e));
  return d;
}

// What a part leaves.
struct PartOutputs {
  Tensor o, lse, dq, dk, dv;
};

// How far from the reference a part may be, of `want`, which ran through ref/: its outputs are f64, and its gradients
// were added to `before`.
class PartAllowed {
 public:
  PartAllowed(Rig& rig, const PartProblem& want, std::span<const Tensor, 3> before)
      : rig_(rig),
        want_(want),
        before_{before[0], before[1], before[2]},
        of_part_(allowed(want, want.lse)),
        of_whole_(allowed(want, want.whole_lse)) {}

  void expect(const PartOutputs& got) const {
    expect_allowed(got.o, want_.o, of_part_.o, "o");
    for (int64_t i = 0; i < got.lse.count(); ++i) {  // -inf where -inf, else close
      const double w = ref::get(want_.lse, i), g = ref::get(got.lse, i);
      ASSERT_TRUE(w == g || std::abs(w - g) <= 0x1.0p-19 * (1 + std::abs(w))) << i << " " << g;
    }
    expect_added(got.dq, want_.dq, before_[0], of_whole_.dq, "dq");
    expect_added(got.dk, want_.dk, before_[1], of_whole_.dk, "dk");
    expect_added(got.dv, want_.dv, before_[2], of_whole_.dv, "dv");
  }

 private:
  static AttentionAllowed allowed(const PartProblem& want, const Tensor& lse) {
    const PartCase& c = *want.c;
    return AttentionAllowed(
        {.q = want.q,
         .k = want.k,
         .v = want.v,
         .do_ = want.do_,
         .lse = lse,
         .delta = want.delta,
         .scale = want.scale()},
        1, [&](const auto& f) { for_visible_pairs(c.segments, c.keys, c.window, f); });
  }
  void expect_added(const Tensor& got, const Tensor& want, const Tensor& before,
                    std::vector<AttentionAllowed::Error> sum, const char* what) const {
    for (int64_t e = 0; e < got.count(); ++e)  // one rounding of the sum with what was there
      sum[static_cast<size_t>(e)].linear += 0x1.0p-22 * std::abs(ref::get(before, e));
    expect_allowed(difference(rig_, got, before), difference(rig_, want, before), sum, what);
  }

  Rig& rig_;
  const PartProblem& want_;
  const Tensor before_[3];
  const AttentionAllowed of_part_, of_whole_;
};

}  // namespace moraine::testing
