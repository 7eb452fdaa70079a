// QkNormRope in double: one head of one row at a time.
#include "kernels/qk_norm_rope.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/ref/element.h"

namespace moraine::ref {
namespace {

using Head = std::vector<double>;  // d values

constexpr double kTiny = 1e-12;

struct Shape {
  int64_t T, H, K, d, N, rotary;
  int64_t repeat() const { return H / K; }
};

Head head_of(const Tensor& t, int64_t begin, int64_t d) {
  Head head(static_cast<size_t>(d));
  for (int64_t j = 0; j < d; ++j) head[j] = get(t, begin + j);
  return head;
}

void set_head(const Tensor& t, int64_t begin, const Head& head) {
  for (size_t j = 0; j < head.size(); ++j) set(t, begin + static_cast<int64_t>(j), head[j]);
}

// sign +1 rotates by the angle of the position, -1 back: the transpose.
void rotate(Head& head, const Tensor& rope, int64_t position, int64_t rotary, double sign) {
  const int64_t half = rotary / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double cosine = get(rope, (position * half + i) * 2);
    const double sine = sign * get(rope, (position * half + i) * 2 + 1);
    const double first = head[i], second = head[i + half];
    head[i] = first * cosine - second * sine;
    head[i + half] = second * cosine + first * sine;
  }
}

// mq[h] of the header.
Head mean_q(const Shape& s, const Tensor& qkv, int64_t t, int64_t h) {
  Head m = head_of(qkv, t * s.N + h * s.d, s.d);
  const Head pk = head_of(qkv, t * s.N + (s.H + h / s.repeat()) * s.d, s.d);
  for (int64_t j = 0; j < s.d; ++j) m[j] = (m[j] + pk[j]) / 2;
  return m;
}

// a_q[h] for head < H, else a_k[head - H]: the convolutions' output plus the mean.
Head before_norm(const Shape& s, const Tensor& qkv, const Tensor& z, int64_t t, int64_t head) {
  Head a = head_of(z, (head * s.T + t) * s.d, s.d);
  const int64_t begin = head < s.H ? head : (head - s.H) * s.repeat();
  const int64_t count = head < s.H ? 1 : s.repeat();
  for (int64_t h = begin; h < begin + count; ++h) {
    const Head m = mean_q(s, qkv, t, h);
    for (int64_t j = 0; j < s.d; ++j) a[j] += m[j] / static_cast<double>(count);
  }
  return a;
}

double norm(const Head& a) {
  double sum = 0;
  for (double v : a) sum += v * v;
  return std::sqrt(sum);
}

}  // namespace

void rope_table(const RopeTable& a) {
  const int64_t P = a.table.dims[0], half = a.table.dims[1];
  for (int64_t p = 0; p < P; ++p) {
    for (int64_t i = 0; i < half; ++i) {
      const double exponent = -static_cast<double>(i) / static_cast<double>(half);
      const double angle = static_cast<double>(p) * std::pow(a.theta, exponent);
      set(a.table, (p * half + i) * 2, std::cos(angle));
      set(a.table, (p * half + i) * 2 + 1, std::sin(angle));
    }
  }
}

void qk_norm_rope_forward(const QkNormRopeForward& a) {
  const Shape s = {a.q.dims[0], a.q.dims[1],   a.k.dims[1],
                   a.q.dims[2], a.qkv.dims[1], 2 * a.rope.dims[1]};
  for (int64_t t = 0; t < s.T; ++t) {
    for (int64_t head = 0; head < s.H + s.K; ++head) {
      const bool query = head < s.H;
      const int64_t g = head - s.H;
      Head out;
      if (a.z.empty()) {
        out = head_of(a.qkv, t * s.N + head * s.d, s.d);
      } else {
        out = before_norm(s, a.qkv, a.z, t, head);
        const double n = std::sqrt(static_cast<double>(s.d)) / std::max(norm(out), kTiny);
        set(query ? a.nq : a.nk, query ? t * s.H + head : t * s.K + g, n);
        for (double& v : out) v *= query ? n : n * get(a.temp, g);
      }
      rotate(out, a.rope, a.position.as<int32_t>()[t], s.rotary, 1);
      set_head(query ? a.q : a.k, (query ? t * s.H + head : t * s.K + g) * s.d, out);
    }
  }
}

void qk_norm_rope_backward(const QkNormRopeBackward& a) {
  const Shape s = {a.dq.dims[0], a.dq.dims[1],   a.dk.dims[1],
                   a.dq.dims[2], a.dqkv.dims[1], 2 * a.rope.dims[1]};
  std::vector<double> dtemp(static_cast<size_t>(s.K));
  for (int64_t t = 0; t < s.T; ++t) {
    std::vector<Head> da(static_cast<size_t>(s.H + s.K));  // gradient of a_q | a_k
    for (int64_t head = 0; head < s.H + s.K; ++head) {
      const bool query = head < s.H;
      const int64_t g = head - s.H, at = query ? t * s.H + head : t * s.K + g;
      Head dy = head_of(query ? a.dq : a.dk, at * s.d, s.d);
      rotate(dy, a.rope, a.position.as<int32_t>()[t], s.rotary, -1);
      if (a.z.empty()) {
        set_head(a.dqkv, t * s.N + head * s.d, dy);
        continue;
      }
      const Head before = before_norm(s, a.qkv, a.z, t, head);
      const double length = norm(before), n = get(query ? a.nq : a.nk, at);
      const double temp = query ? 1 : get(a.temp, g);
      double dot = 0;  // before . dy
      for (int64_t j = 0; j < s.d; ++j) dot += before[j] * dy[j];
      if (!query) dtemp[g] += dot * n;
      // Below tiny the length is a constant: no second term.
      const double along = length < kTiny ? 0 : dot / (length * length);
      for (int64_t j = 0; j < s.d; ++j) dy[j] = temp * n * (dy[j] - before[j] * along);
      set_head(a.dz, (head * s.T + t) * s.d, dy);
      da[head] = dy;
    }
    if (a.z.empty()) continue;
    for (int64_t g = 0; g < s.K; ++g) {
      Head dpk(static_cast<size_t>(s.d));
      for (int64_t h = g * s.repeat(); h < (g + 1) * s.repeat(); ++h) {
        for (int64_t j = 0; j < s.d; ++j) {
          const double dmq = da[h][j] + da[s.H + g][j] / static_cast<double>(s.repeat());
          set(a.dqkv, t * s.N + h * s.d + j, dmq / 2);
          dpk[j] += dmq / 2;
        }
      }
      set_head(a.dqkv, t * s.N + (s.H + g) * s.d, dpk);
    }
  }
  for (int64_t g = 0; g < s.K && !a.dtemp.empty(); ++g) add(a.dtemp, g, dtemp[g]);
}

}  // namespace moraine::ref
