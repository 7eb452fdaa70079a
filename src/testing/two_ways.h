// TwoWays: checks of an operation's forward and backward together, for kernel tests.
//
// A test has a struct Data of arguments for both directions, in its own anonymous namespace, and
//
//   std::vector<Output> outputs(Data& data)    every output that is not absent, with its name
//   void run(Context& ctx, Data& data)         both directions
//
// The templates here find those two by their argument. Outputs hold numbers before the run, so that
// a backend which overwrites where it should add, or leaves something out, is seen.
#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "kernels/segment.h"
#include "testing/rig.h"

namespace moraine::testing {

struct Output {
  Tensor* tensor;
  const char* name;
};

// Those of `all` that are there.
inline std::vector<Output> present(std::initializer_list<Output> all) {
  std::vector<Output> some;
  for (const Output& o : all) {
    if (!o.tensor->empty()) some.push_back(o);
  }
  return some;
}

// Runs on copies of the outputs: `data` stays as it was.
template <class Data>
Data run_copy(Rig& rig, Data data, Context& ctx) {
  for (const Output& o : outputs(data)) *o.tensor = rig.copy(*o.tensor);
  run(ctx, data);
  return data;
}

// `terms`: of the longest sum behind any output (tolerance).
template <class Data>
void expect_close_outputs(Data got, Data want, int64_t terms) {
  const std::vector<Output> g = outputs(got), w = outputs(want);
  ASSERT_EQ(g.size(), w.size());
  for (size_t i = 0; i < g.size(); ++i) {
    expect_close(*g[i].tensor, *w[i].tensor, tolerance(g[i].tensor->dtype, terms), g[i].name);
  }
}

template <class Data>
void expect_same_outputs(Data got, Data want) {
  const std::vector<Output> g = outputs(got), w = outputs(want);
  ASSERT_EQ(g.size(), w.size());
  for (size_t i = 0; i < g.size(); ++i) expect_same_bits(*g[i].tensor, *w[i].tensor, g[i].name);
}

template <class Data>
void expect_finite_outputs(Data got) {
  for (const Output& o : outputs(got)) expect_finite(*o.tensor, o.name);
}

// make_data(rig): the same bits from one thread and from three.
template <class F>
void expect_threads_change_nothing(const F& make_data) {
  Rig one(Backend::kCpu, 1), three(Backend::kCpu, 3);
  const auto data = make_data(one);
  expect_same_outputs(run_copy(one, data, three.ctx), run_copy(one, data, one.ctx));
}

// Segments of whole documents of these lengths, one behind the other.
inline std::vector<Segment> documents(const std::vector<int64_t>& lengths) {
  std::vector<Segment> segments;
  int64_t row = 0;
  for (const int64_t n : lengths) {
    segments.push_back({.row_begin = row, .rows = n, .position_begin = 0, .key_begin = row});
    row += n;
  }
  return segments;
}

}  // namespace moraine::testing
