// A library that plays cuBLASLt and hipBLASLt on emulated GPUs: for tests.
//
// It multiplies what it is told to multiply, column by column, in double, and refuses what either of them would not
// take, or what is not a plain product of bf16. matmul_fail, or MATMUL_FAIL of the environment, names an entry that
// returns an error, or what else is wrong; matmul_alive counts what was made and not given back.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/gpu/runtime.h"  // EmulatedStream
#include "tensor/dtype.h"

namespace {

using moraine::BF16;
using moraine::gpu::EmulatedStream;

// Both vendors' numbers, written here once more.
struct Cublas {
  enum : int {
    kInvalid = 7,
    kNone = 0,
    kTransposed = 1,
    kTransposeA = 3,
    kTransposeB = 4,
    kF32 = 68
  };
  struct Algorithm {
    uint64_t data[8];
  };
};
struct Hipblas {
  enum : int {
    kInvalid = 3,
    kNone = 111,
    kTransposed = 112,
    kTransposeA = 0,
    kTransposeB = 1,
    kF32 = 2
  };
  struct Algorithm {
    uint64_t data[2];
    size_t most_workspace;
  };
};
template <class Vendor>
struct Result {
  typename Vendor::Algorithm algorithm;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Result<Cublas>) == 96 && sizeof(Result<Hipblas>) == 56);

struct Operation {
  int transpose_a, transpose_b;
};
struct Layout {
  int64_t rows, columns, leading;
};
struct Operand {
  const void* data;
  Layout layout;
  bool transposed;
};

constexpr uint64_t kAlgorithm = 0x616c676f;
constexpr size_t kWorkspace = 4096;  // as much as it wants
const char* const wanted_failure = std::getenv("MATMUL_FAIL");
std::string failing = wanted_failure == nullptr ? "" : wanted_failure;
int alive = 0;

template <class T>
int make(void** made, const T& value) {
  ++alive;
  *made = new T(value);
  return 0;
}
template <class T>
int drop(void* made) {
  --alive;
  delete static_cast<T*>(made);
  return 0;
}

// What lies in the device's memory, from its first element to its last.
std::vector<float> content_of(const Operand& o, const EmulatedStream& s) {
  std::vector<BF16> there(
      static_cast<size_t>((o.layout.columns - 1) * o.layout.leading + o.layout.rows));
  s.copy_out(s.gpu, there.data(), o.data, static_cast<int64_t>(there.size() * sizeof(BF16)));
  std::vector<float> content;
  for (const BF16 value : there) content.push_back(to_float(value));
  return content;
}

void multiply(const Operand& a, const Operand& b, void* d, const Layout& to,
              const EmulatedStream& s) {
  const std::vector<float> left = content_of(a, s), right = content_of(b, s);
  std::vector<BF16> out(static_cast<size_t>((to.columns - 1) * to.leading + to.rows));
  s.copy_out(s.gpu, out.data(), d, static_cast<int64_t>(out.size() * sizeof(BF16)));
  const int64_t depth = a.transposed ? a.layout.rows : a.layout.columns;
  const auto at = [](const Operand& o, int64_t row, int64_t column) {
    return static_cast<size_t>(o.transposed ? column + row * o.layout.leading
                                            : row + column * o.layout.leading);
  };
  for (int64_t j = 0; j < to.columns; ++j) {
    for (int64_t i = 0; i < to.rows; ++i) {
      double sum = failing == "another product" ? 1 : 0;
      for (int64_t l = 0; l < depth; ++l)
        sum += static_cast<double>(left[at(a, i, l)]) * static_cast<double>(right[at(b, l, j)]);
      out[static_cast<size_t>(i + j * to.leading)] = moraine::to_bf16(static_cast<float>(sum));
    }
  }
  s.copy_in(s.gpu, d, out.data(), static_cast<int64_t>(out.size() * sizeof(BF16)));
}

// What both libraries want of shapes; C is D here.
template <class Vendor>
bool fits(const Operation& o, const Layout& a, const Layout& b, const Layout& d) {
  const bool ta = o.transpose_a == Vendor::kTransposed, tb = o.transpose_b == Vendor::kTransposed;
  return (ta ? a.columns : a.rows) == d.rows && (tb ? b.rows : b.columns) == d.columns &&
         (ta ? a.rows : a.columns) == (tb ? b.columns : b.rows);
}

template <class Vendor>
int make_operation(void** operation, int computation, int scale) {
  if (computation != Vendor::kF32 || scale != 0) return Vendor::kInvalid;
  return make(operation, Operation{Vendor::kNone, Vendor::kNone});
}

template <class Vendor>
int set_operation(void* operation, int attribute, const void* value, size_t bytes) {
  if (bytes != sizeof(int32_t)) return Vendor::kInvalid;
  int32_t given = 0;
  std::memcpy(&given, value, bytes);
  if (given != Vendor::kNone && given != Vendor::kTransposed) return Vendor::kInvalid;
  auto& o = *static_cast<Operation*>(operation);
  if (attribute == Vendor::kTransposeA) return o.transpose_a = given, 0;
  if (attribute == Vendor::kTransposeB) return o.transpose_b = given, 0;
  return Vendor::kInvalid;
}

template <class Vendor>
int make_layout(void** layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  const Layout l = {static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading};
  if (type != 14 || l.rows < 1 || l.columns < 1 || leading < l.rows) return Vendor::kInvalid;
  return make(layout, l);
}

// A preference is the bytes of workspace that it allows.
template <class Vendor>
int set_preference(void* preference, int attribute, const void* value, size_t bytes) {
  if (attribute != 1 || bytes != sizeof(uint64_t)) return Vendor::kInvalid;
  std::memcpy(preference, value, bytes);
  return 0;
}

template <class Vendor>
int choose(const Operation& o, const Layout* const (&l)[4], uint64_t most, void* results) {
  if (l[2] != l[3] || !fits<Vendor>(o, *l[0], *l[1], *l[3]) || most < kWorkspace)
    return Vendor::kInvalid;
  Result<Vendor> result = {};
  result.algorithm.data[1] = kAlgorithm;
  result.workspace = kWorkspace;
  std::memcpy(results, &result, sizeof result);
  return 0;
}

// The factors, and the algorithm that was chosen.
template <class Vendor>
bool is_plain(const void* alpha, const void* beta, const void* algorithm) {
  float one = 0, zero = 1;
  std::memcpy(&one, alpha, sizeof one);
  std::memcpy(&zero, beta, sizeof zero);
  typename Vendor::Algorithm given;
  std::memcpy(&given, algorithm, sizeof given);
  return one == 1 && zero == 0 && given.data[1] == kAlgorithm;
}

// All of it is there.
void use(void* workspace, size_t bytes, const EmulatedStream& s) {
  const std::vector<char> zeros(kWorkspace);
  s.copy_in(s.gpu, static_cast<char*>(workspace) + bytes - kWorkspace, zeros.data(), kWorkspace);
}

template <class T>
const T& as(const void* made) {
  return *static_cast<const T*>(made);
}

int fails(const char* entry, int error) { return failing == entry ? error : 0; }

}  // namespace

// Both libraries have the same entries.
#define MR_PLAY(PREFIX, VENDOR)                                                                    \
  int PREFIX##Create(void** handle) {                                                              \
    if (const int error = fails("Create", VENDOR::kInvalid)) return error;                         \
    return make(handle, int{});                                                                    \
  }                                                                                                \
  int PREFIX##Destroy(void* handle) { return drop<int>(handle); }                                  \
  int PREFIX##MatmulDescCreate(void** made, int computation, int scale) {                          \
    return make_operation<VENDOR>(made, computation, scale);                                       \
  }                                                                                                \
  int PREFIX##MatmulDescDestroy(void* made) { return drop<Operation>(made); }                      \
  int PREFIX##MatmulDescSetAttribute(void* made, int attribute, const void* value, size_t bytes) { \
    return set_operation<VENDOR>(made, attribute, value, bytes);                                   \
  }                                                                                                \
  int PREFIX##MatrixLayoutCreate(void** made, int type, uint64_t rows, uint64_t columns,           \
                                 int64_t leading) {                                                \
    return make_layout<VENDOR>(made, type, rows, columns, leading);                                \
  }                                                                                                \
  int PREFIX##MatrixLayoutDestroy(void* made) { return drop<Layout>(made); }                       \
  int PREFIX##MatmulPreferenceCreate(void** made) { return make(made, uint64_t{}); }               \
  int PREFIX##MatmulPreferenceDestroy(void* made) { return drop<uint64_t>(made); }                 \
  int PREFIX##MatmulPreferenceSetAttribute(void* made, int attribute, const void* value,           \
                                           size_t bytes) {                                         \
    return set_preference<VENDOR>(made, attribute, value, bytes);                                  \
  }                                                                                                \
  int PREFIX##MatmulAlgoGetHeuristic(void*, void* o, void* a, void* b, void* c, void* d,           \
                                     void* most, int wanted, void* results, int* count) {          \
    *count = wanted == 1 && failing != "no algorithm" ? 1 : 0;                                     \
    return choose<VENDOR>(as<Operation>(o),                                                        \
                          {&as<Layout>(a), &as<Layout>(b), &as<Layout>(c), &as<Layout>(d)},        \
                          as<uint64_t>(most), results);                                            \
  }                                                                                                \
  int PREFIX##Matmul(void*, void* operation, const void* alpha, const void* a, void* la,           \
                     const void* b, void* lb, const void* beta, const void* c, void* lc, void* d,  \
                     void* ld, const void* algorithm, void* workspace, size_t bytes,               \
                     void* stream) {                                                               \
    if (const int error = fails("Matmul", VENDOR::kInvalid)) return error;                         \
    const Operation o = as<Operation>(operation);                                                  \
    const Operand left = {a, as<Layout>(la), o.transpose_a == VENDOR::kTransposed},                \
                  right = {b, as<Layout>(lb), o.transpose_b == VENDOR::kTransposed};               \
    const auto& s = as<EmulatedStream>(stream);                                                    \
    if (c != d || lc != ld || bytes < kWorkspace ||                                                \
        !fits<VENDOR>(o, left.layout, right.layout, as<Layout>(ld)) ||                             \
        !is_plain<VENDOR>(alpha, beta, algorithm))                                                 \
      return VENDOR::kInvalid;                                                                     \
    use(workspace, bytes, s);                                                                      \
    multiply(left, right, d, as<Layout>(ld), s);                                                   \
    return 0;                                                                                      \
  }

extern "C" {

void matmul_fail(const char* entry) { failing = entry; }
int matmul_alive() { return alive; }
MR_PLAY(cublasLt, Cublas)
MR_PLAY(hipblasLt, Hipblas)

}  // extern "C"
