// Functions of one lane, and a template that does one for all lanes that take part.
#include "testing/ptx/operations.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>
#include <type_traits>
#include <utility>

#include "testing/ptx/warp.h"

namespace moraine::testing {
namespace {

// ------------------------------------------------------------------------------- one lane

// What f32 arithmetic makes of a NaN.
float canonical(float v) { return v != v ? std::bit_cast<float>(0x7fffffffu) : v; }
double canonical(double v) { return v; }
template <class T>
requires std::is_integral_v<T> T canonical(T v) { return v; }

template <class T>
T add(T a, T b) {
  return canonical(static_cast<T>(a + b));
}
template <class T>
T sub(T a, T b) {
  return canonical(static_cast<T>(a - b));
}
template <class T>
T mul(T a, T b) {
  return canonical(static_cast<T>(a * b));
}
template <class T>
T mad(T a, T b, T c) {
  return static_cast<T>(a * b + c);
}
uint32_t dot_of_four(uint32_t a, uint32_t b, uint32_t c) {
  for (int shift = 0; shift < 32; shift += 8) {
    const int32_t left = static_cast<int8_t>(a >> shift & 0xff),
                  right = static_cast<int8_t>(b >> shift & 0xff);
    c += static_cast<uint32_t>(left * right);
  }
  return c;
}
template <class Wide, class T>
Wide mul_wide(T a, T b) {
  return static_cast<Wide>(a) * static_cast<Wide>(b);
}
float fma_f32(float a, float b, float c) { return canonical(std::fma(a, b, c)); }
template <class T>
T divide(T a, T b) {
  return canonical(a / b);
}
template <class T>
T reciprocal(T a) {
  return canonical(T{1} / a);
}
template <class T>
T square_root(T a) {
  return canonical(std::sqrt(a));
}
template <class T>
T quotient(T a, T b) {
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a));
  return static_cast<T>(a / b);
}
template <class T>
T remainder_of(T a, T b) {
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return 0;
  return static_cast<T>(a % b);
}
template <class T>
T negate(T a) {
  return static_cast<T>(0 - a);
}
uint32_t negate_f32(uint32_t a) { return a ^ 0x80000000u; }
uint32_t absolute_f32(uint32_t a) { return a & 0x7fffffffu; }
template <class T>
T smaller(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T larger(T a, T b) {
  return a < b ? b : a;
}
// One NaN: the other one; -0 is below +0.
float larger_f32(float a, float b) {
  if (a != a) return canonical(b);
  if (b != b) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a < b ? b : a;
}

template <class T>
T bit_and(T a, T b) {
  return static_cast<T>(a & b);
}
template <class T>
T bit_or(T a, T b) {
  return static_cast<T>(a | b);
}
template <class T>
T bit_xor(T a, T b) {
  return static_cast<T>(a ^ b);
}
template <class T>
T bit_not(T a) {
  return static_cast<T>(~a);
}
bool both(bool a, bool b) { return a && b; }
bool either(bool a, bool b) { return a || b; }
template <class T>
T shift_left(T a, uint32_t by) {
  return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << by);
}
template <class T>
T shift_right(T a, uint32_t by) {
  constexpr uint32_t kMost = 8 * sizeof(T) - 1;
  if (by > kMost) return std::is_signed_v<T> ? static_cast<T>(a >> kMost) : T{0};
  return static_cast<T>(a >> by);
}
uint32_t field_u32(uint32_t a, uint32_t b, uint32_t c) {
  const uint32_t position = b & 0xff, length = c & 0xff;
  if (position > 31 || length == 0) return 0;
  const uint32_t v = a >> position;
  return length > 31 ? v : v & ((1u << length) - 1);
}

template <class T>
T same(T a) {
  return a;
}
template <class T>
T chosen(T a, T b, bool first) {
  return first ? a : b;
}

template <class T>
bool equal(T a, T b) {
  return a == b;
}
template <class T>
bool different(T a, T b) {
  return a != b;
}
template <class T>
bool below(T a, T b) {
  return a < b;
}
template <class T>
bool at_most(T a, T b) {
  return a <= b;
}
template <class T>
bool above(T a, T b) {
  return a > b;
}
template <class T>
bool at_least(T a, T b) {
  return a >= b;
}
bool below_or_nan(float a, float b) { return !(a >= b); }
bool at_most_or_nan(float a, float b) { return !(a > b); }
bool numbers(float a, float b) { return a == a && b == b; }

// From the low bits of a register of In, read as Narrow, to Out, whose sign is kept.
template <class Out, class Narrow, class In>
Out convert(In a) {
  return static_cast<Out>(static_cast<Narrow>(a));
}
template <class Out, class In>
Out round_to(In a) {
  return canonical(static_cast<Out>(a));
}
int64_t truncate_f32(float a) {
  if (a != a) return 0;
  if (a >= 0x1p63f) return INT64_MAX;
  return a <= -0x1p63f ? INT64_MIN : static_cast<int64_t>(a);
}

// ------------------------------------------------------------------------------- all lanes

template <class T>
struct LaneRow {
  const T* row;
  LaneRow(PtxWarp& w, int32_t slot) : row(w.row<T>(slot)) {}
  T operator[](int lane) const { return row[lane]; }
};
template <>
struct LaneRow<bool> {
  uint32_t mask;
  LaneRow(PtxWarp& w, int32_t slot) : mask(w.predicate(slot)) {}
  bool operator[](int lane) const { return (mask >> lane & 1u) != 0; }
};

template <class F>
void write_predicate(uint32_t& to, uint32_t lanes, const F& value) {
  uint32_t mask = 0;
  for (int lane = 0; lane < kPtxLanes; ++lane)
    if (lanes >> lane & 1u) mask |= static_cast<uint32_t>(value(lane)) << lane;
  to = (to & ~lanes) | mask;
}
template <class D, class F>
void write_row(D* to, uint32_t lanes, const F& value) {
  for (int lane = 0; lane < kPtxLanes; ++lane)
    if (lanes >> lane & 1u) to[lane] = value(lane);
}

template <auto kFunction, class D, class... S, size_t... I>
void each_lane(PtxWarp& w, const PtxInstruction& in, uint32_t lanes, D (*)(S...),
               std::index_sequence<I...>) {
  const std::tuple<LaneRow<S>...> from = {LaneRow<S>(w, in.slots[1 + I])...};
  const auto value = [&](int lane) { return kFunction(std::get<I>(from)[lane]...); };
  if constexpr (std::is_same_v<D, bool>) {
    write_predicate(w.predicate(in.slots[0]), lanes, value);
  } else {
    write_row(w.row<D>(in.slots[0]), lanes, value);
  }
}

template <auto kFunction, class D, class... S>
constexpr PtxOperation operation(std::string_view name, D (*)(S...)) {
  const auto width = [](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    return std::is_same_v<T, bool> ? 0 : static_cast<int32_t>(sizeof(T));
  };
  PtxOperation o = {.name = name, .run = nullptr, .operands = 1 + sizeof...(S), .bytes = {}};
  o.bytes = {width(static_cast<D*>(nullptr)), width(static_cast<S*>(nullptr))...};
  o.run = [](PtxWarp& w, const PtxInstruction& in, uint32_t lanes) {
    each_lane<kFunction>(w, in, lanes, static_cast<D (*)(S...)>(nullptr),
                         std::index_sequence_for<S...>());
  };
  return o;
}
template <auto kFunction>
constexpr PtxOperation row(std::string_view name) {
  return operation<kFunction>(name, kFunction);
}

// Whole numbers: a divisor of 0 has no result.
template <auto kFunction>
PtxOperation divided(std::string_view name) {
  PtxOperation o = row<kFunction>(name);
  o.run = [](PtxWarp& w, const PtxInstruction& in, uint32_t lanes) {
    using T = decltype(kFunction(1, 1));
    for (int lane = 0; lane < kPtxLanes; ++lane)
      if ((lanes >> lane & 1u) && w.row<T>(in.slots[2])[lane] == 0)
        fail_ptx(w, in, lane, "division by zero");
    row<kFunction>("").run(w, in, lanes);
  };
  return o;
}

using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;

const PtxOperation kOperations[] = {
    row<add<u16>>("add.s16"),
    row<add<u32>>("add.s32"),
    row<add<u64>>("add.s64"),
    row<add<float>>("add.rn.f32"),
    row<add<double>>("add.rn.f64"),
    row<sub<u16>>("sub.s16"),
    row<sub<u32>>("sub.s32"),
    row<sub<u64>>("sub.s64"),
    row<sub<float>>("sub.rn.f32"),
    row<sub<double>>("sub.rn.f64"),
    row<mul<u32>>("mul.lo.s32"),
    row<mul<u64>>("mul.lo.s64"),
    row<mul<float>>("mul.rn.f32"),
    row<mul<double>>("mul.rn.f64"),
    row<mul_wide<u32, u16>>("mul.wide.u16"),
    row<mul_wide<s32, s16>>("mul.wide.s16"),
    row<mul_wide<u64, u32>>("mul.wide.u32"),
    row<mul_wide<s64, s32>>("mul.wide.s32"),
    row<mad<u32>>("mad.lo.s32"),
    row<mad<u64>>("mad.lo.s64"),
    row<dot_of_four>("dp4a.s32.s32"),
    row<fma_f32>("fma.rn.f32"),
    row<divide<float>>("div.rn.f32"),
    row<divide<double>>("div.rn.f64"),
    row<reciprocal<float>>("rcp.rn.f32"),
    row<reciprocal<double>>("rcp.rn.f64"),
    row<square_root<float>>("sqrt.rn.f32"),
    row<square_root<double>>("sqrt.rn.f64"),
    divided<quotient<u32>>("div.u32"),
    divided<quotient<s64>>("div.s64"),
    divided<quotient<u64>>("div.u64"),
    divided<remainder_of<u32>>("rem.u32"),
    divided<remainder_of<s64>>("rem.s64"),
    row<negate<u64>>("neg.s64"),
    row<negate_f32>("neg.f32"),
    row<absolute_f32>("abs.f32"),
    row<smaller<s64>>("min.s64"),
    row<larger<s32>>("max.s32"),
    row<larger<u32>>("max.u32"),
    row<larger<s64>>("max.s64"),
    row<larger_f32>("max.f32"),
    row<both>("and.pred"),
    row<either>("or.pred"),
    row<bit_and<u16>>("and.b16"),
    row<bit_and<u32>>("and.b32"),
    row<bit_and<u64>>("and.b64"),
    row<bit_or<u16>>("or.b16"),
    row<bit_or<u32>>("or.b32"),
    row<bit_or<u64>>("or.b64"),
    row<bit_xor<u32>>("xor.b32"),
    row<bit_not<u32>>("not.b32"),
    row<bit_not<u64>>("not.b64"),
    row<shift_left<u16>>("shl.b16"),
    row<shift_left<u32>>("shl.b32"),
    row<shift_left<u64>>("shl.b64"),
    row<shift_right<u16>>("shr.u16"),
    row<shift_right<u32>>("shr.u32"),
    row<shift_right<u64>>("shr.u64"),
    row<shift_right<s16>>("shr.s16"),
    row<shift_right<s32>>("shr.s32"),
    row<shift_right<s64>>("shr.s64"),
    row<field_u32>("bfe.u32"),
    row<same<bool>>("mov.pred"),
    row<same<u16>>("mov.u16"),
    row<same<u32>>("mov.u32"),
    row<same<u32>>("mov.b32"),
    row<same<u32>>("mov.f32"),
    row<same<u64>>("mov.u64"),
    row<same<u64>>("mov.b64"),
    row<same<u64>>("mov.f64"),
    row<same<u64>>("cvta.to.global.u64"),  // addresses are the same in all spaces here
    row<same<u64>>("cvta.global.u64"),
    row<same<u64>>("cvta.shared.u64"),
    row<same<u64>>("cvta.to.shared.u64"),
    row<chosen<u32>>("selp.b32"),
    row<chosen<u32>>("selp.f32"),
    row<chosen<u64>>("selp.b64"),
    row<chosen<u64>>("selp.u64"),
    row<equal<u16>>("setp.eq.b16"),
    row<different<u16>>("setp.ne.s16"),
    row<below<s16>>("setp.lt.s16"),
    row<equal<u32>>("setp.eq.s32"),
    row<different<u32>>("setp.ne.s32"),
    row<below<s32>>("setp.lt.s32"),
    row<at_most<s32>>("setp.le.s32"),
    row<above<s32>>("setp.gt.s32"),
    row<at_least<s32>>("setp.ge.s32"),
    row<below<u32>>("setp.lt.u32"),
    row<at_most<u32>>("setp.le.u32"),
    row<above<u32>>("setp.gt.u32"),
    row<equal<u64>>("setp.eq.s64"),
    row<different<u64>>("setp.ne.s64"),
    row<below<s64>>("setp.lt.s64"),
    row<at_most<s64>>("setp.le.s64"),
    row<above<s64>>("setp.gt.s64"),
    row<at_least<s64>>("setp.ge.s64"),
    row<below<u64>>("setp.lt.u64"),
    row<equal<float>>("setp.eq.f32"),
    row<below<float>>("setp.lt.f32"),
    row<above<float>>("setp.gt.f32"),
    row<below_or_nan>("setp.ltu.f32"),
    row<at_most_or_nan>("setp.leu.f32"),
    row<numbers>("setp.num.f32"),
    row<convert<s16, s8, u32>>("cvt.s8.s32"),  // a register of 16 bits holds it with its sign
    row<convert<s16, s8, u64>>("cvt.s8.s64"),
    row<convert<s16, s8, u16>>("cvt.s16.s8"),
    row<convert<s32, s8, u32>>("cvt.s32.s8"),
    row<convert<s64, s8, u64>>("cvt.s64.s8"),
    row<convert<s32, s16, u16>>("cvt.s32.s16"),
    row<convert<s64, s16, u16>>("cvt.s64.s16"),
    row<convert<s64, s32, u32>>("cvt.s64.s32"),
    row<convert<u16, u16, u32>>("cvt.u16.u32"),
    row<convert<u16, u16, u64>>("cvt.u16.u64"),
    row<convert<u32, u16, u16>>("cvt.u32.u16"),
    row<convert<u64, u16, u16>>("cvt.u64.u16"),
    row<convert<u64, u32, u32>>("cvt.u64.u32"),
    row<convert<u32, u32, u64>>("cvt.u32.u64"),
    row<round_to<float, s32>>("cvt.rn.f32.s32"),
    row<round_to<float, s64>>("cvt.rn.f32.s64"),
    row<round_to<float, double>>("cvt.rn.f32.f64"),
    row<round_to<double, s32>>("cvt.rn.f64.s32"),
    row<round_to<double, float>>("cvt.f64.f32"),
    row<truncate_f32>("cvt.rzi.s64.f32"),
};

}  // namespace

void ptx_split_b32(PtxWarp& w, const PtxInstruction& in, uint32_t lanes) {
  for (int lane = 0; lane < kPtxLanes; ++lane) {
    if (!(lanes >> lane & 1u)) continue;
    const uint32_t v = w.row<uint32_t>(in.slots[2])[lane];
    w.row<uint16_t>(in.slots[0])[lane] = static_cast<uint16_t>(v);
    w.row<uint16_t>(in.slots[1])[lane] = static_cast<uint16_t>(v >> 16);
  }
}

void ptx_join_b32(PtxWarp& w, const PtxInstruction& in, uint32_t lanes) {
  for (int lane = 0; lane < kPtxLanes; ++lane) {
    if (!(lanes >> lane & 1u)) continue;
    const uint32_t low = w.row<uint16_t>(in.slots[1])[lane],
                   high = w.row<uint16_t>(in.slots[2])[lane];
    w.row<uint32_t>(in.slots[0])[lane] = low | high << 16;
  }
}

const PtxOperation* find_ptx_operation(std::string_view name) {
  const auto* const at = std::find_if(std::begin(kOperations), std::end(kOperations),
                                      [&](const PtxOperation& o) { return o.name == name; });
  return at == std::end(kOperations) ? nullptr : at;
}

}  // namespace moraine::testing
