// Gelu, device side: the left tail of the normal distribution as density times a polynomial.
#include "kernels/gpu/element.h"
#include "kernels/gpu/exp.h"
#include "kernels/gpu/gelu.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

constexpr float kGeluCentre = 3.75f;
constexpr float kGeluFar = 14.5f;  // e^(-x^2/2) is 0 in f32 from here on
constexpr float kDensityAtZero = 0.3989422804f;

// e^(-x^2/2), 0 <= x <= kGeluFar. The square of the upper 12 bits is exact; the rest goes through a series.
MR_DEVICE float bell(float x) {
  const float upper = from_bits(bits_of(x) & 0xfffff000u);
  const float rest = -0.5f * (x + upper) * (x - upper);
  const float series = fused(fused(rest, 1.0f / 6, 0.5f) * rest, rest, rest);
  const float whole = exp_nonpositive(-0.5f * (upper * upper));
  return fused(whole, series, whole);
}

// Phi(x), and e^(-x^2/2) for the density.
struct Normal {
  float below, bell;
};

// (x + c) R(x) as a polynomial of t = (x - c) / (x + c).
MR_DEVICE Normal normal_at(float x) {
  const float size = x < 0 ? -x : x, near = size > kGeluFar ? kGeluFar : size;
  const float inverse = 1.0f / (near + kGeluCentre), t = (near - kGeluCentre) * inverse;
  float fit = fused(4.4344972049e-04f, t, 5.0962864180e-04f);
  fit = fused(fit, t, -4.1690178329e-03f);
  fit = fused(fit, t, 1.2000736323e-03f);
  fit = fused(fit, t, 3.7492506378e-02f);
  fit = fused(fit, t, -1.5152083511e-01f);
  fit = fused(fit, t, 3.5293960425e-01f);
  fit = fused(fit, t, -5.8818827766e-01f);
  fit = fused(fit, t, 7.5029407421e-01f);
  const float height = bell(near), tail = height * (fit * inverse);
  return {x < 0 ? tail : 1.0f - tail, height};
}

template <class E>
MR_DEVICE void gelu_element(const GeluArgs& a) {
  const int64_t i = element();
  if (i >= a.count) return;
  const float x = widen(load(static_cast<const E*>(a.x) + i));
  store(static_cast<E*>(a.y) + i, narrow_to<E>(x * normal_at(x).below));
}

MR_KERNEL(gelu_f32, kElementThreads, GeluArgs a) { gelu_element<float>(a); }
MR_KERNEL(gelu_bf16, kElementThreads, GeluArgs a) { gelu_element<BF16>(a); }

template <class E>
MR_DEVICE void gelu_gradient(const GeluBackwardArgs& a) {
  const int64_t i = element();
  if (i >= a.count) return;
  const float x = widen(load(static_cast<const E*>(a.x) + i));
  const float dy = widen(load(static_cast<const E*>(a.dy) + i));
  const Normal normal = normal_at(x);
  const float slope = fused(x, normal.bell * kDensityAtZero, normal.below);
  store(static_cast<E*>(a.dx) + i, narrow_to<E>(dy * slope));
}

MR_KERNEL(gelu_backward_f32, kElementThreads, GeluBackwardArgs a) { gelu_gradient<float>(a); }
MR_KERNEL(gelu_backward_bf16, kElementThreads, GeluBackwardArgs a) { gelu_gradient<BF16>(a); }

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
