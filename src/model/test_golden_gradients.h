// TestGoldenGradients: a golden model that computes on the host, and its gradients by name beside the public
// implementation's.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "kernels/ref/element.h"
#include "model/test_golden.h"

namespace moraine::testing {

// A golden model, loaded for one backend and compute type.
struct Golden : GoldenFile {
  Golden(const std::string& name, Backend backend, DType compute, bool training,
         Recompute recompute = Recompute::kNone)
      : GoldenFile(name, backend), arena(Arena::Mode::kReal) {
    const DType wide = compute == DType::kF64 ? DType::kF64 : DType::kF32;
    master = rig.copy_as(weights, wide);
    gradients = rig.zeros({weights.count()}, wide);
    model = std::make_unique<Model>(arena, directory.config(),
                                    ModelOptions{.compute = compute,
                                                 .tokens = rows * length,
                                                 .positions = 64,
                                                 .training = training,
                                                 .recompute = recompute},
                                    master);
    model->refresh(rig.ctx);
  }

  Tensor logits() {
    const Tensor hidden = model->forward(rig.ctx, batch());
    return rig.copy(model->logits(rig.ctx, hidden));
  }

  Arena arena;
  Tensor master, gradients;
  std::unique_ptr<Model> model;
};

// How much larger the parts of a gradient are than the whole, a part for each target: what an error of the parts, of
// their own size, is beside the whole. Alike: sum of |part| by element, over |whole|. Independent: root of the sum of
// squares of the parts' norms, over the whole's.
struct Condition {
  double alike = 0, independent = 0;
};
using Conditions = std::map<std::string, Condition>;

// Of the first `documents`; 0: of all. Leaves their gradients in g, which is a Golden or has the same members.
template <class G>
Conditions conditions_of(G& g, int64_t documents = 0) {
  const Batch batch = g.batch(documents);
  const Tensor target = g.rig.copy(g.target.rows(0, batch.tokens())),
               asked = g.target.rows(0, batch.tokens());
  const auto add = [&](Conditions& sums) {
    for (const Parameter& p : g.model->table().all) {
      const Tensor t = view(p, g.gradients);
      for (int64_t i = 0; i < t.count(); ++i) {
        const double size = std::abs(ref::get(t, i));
        sums[p.name].alike += size;
        sums[p.name].independent += size * size;
      }
    }
  };
  const auto run = [&] {
    std::memset(g.gradients.data, 0, static_cast<size_t>(g.gradients.bytes()));
    g.model->loss_and_gradients(g.rig.ctx, batch, asked, {g.gradients}, {});
  };
  Conditions parts, whole;
  for (int64_t t = 0; t < target.count(); ++t) {
    if (target.as<int32_t>()[t] < 0) continue;
    std::fill_n(asked.as<int32_t>(), target.count(), -1);
    asked.as<int32_t>()[t] = target.as<int32_t>()[t];
    run();
    add(parts);
  }
  std::memcpy(asked.data, target.data, static_cast<size_t>(target.bytes()));
  run();
  add(whole);
  for (auto& [name, sum] : whole) {
    sum = {.alike = parts[name].alike / sum.alike,
           .independent = std::sqrt(parts[name].independent / sum.independent)};
  }
  return whole;
}

// A tensor's norm averages the cancellation of its entries; one of a few entries (a key temperature) has it in full.
constexpr int64_t kFew = 8;

// `gradients`: of the sum of losses, in the host's memory. Without conditions those of few entries count as others.
inline void expect_golden_gradients(GoldenFile& file, const ParameterTable& table,
                                    const Tensor& gradients, const Conditions& conditions) {
  const double positions = static_cast<double>(file.targets());
  for (const Parameter& p : table.all) {
    if (p.kind == Parameter::Kind::kBalance) continue;
    const Tensor got = file.rig.copy(view(p, gradients));
    const auto found = conditions.find(p.name);
    const double spread = got.count() < kFew && found != conditions.end() ? found->second.alike : 1;
    for (int64_t i = 0; i < got.count(); ++i) ref::set(got, i, ref::get(got, i) / positions);
    const Tensor want = file.want("grad/" + p.name);
    if (rms(want) == 0) {
      EXPECT_EQ(rms(got), 0) << p.name;
    } else {
      EXPECT_LE(relative_distance(got, want), spread * kF32Gradient) << p.name << ": " << spread;
    }
  }
}

}  // namespace moraine::testing
