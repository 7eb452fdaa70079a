// VendorMatmul: looks the entries up, describes a product, and asks for it.
#include "kernels/gpu/vendor_matmul.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/shared_library.h"
#include "kernels/gpu/runtime.h"

namespace moraine::gpu {
namespace {

template <class F>
void find(void* library, const MatmulLibrary& of, const char* name, F*& function) {
  const std::string entry = std::string(of.vendor.prefix) + name;
  void* const found = dlsym(library, entry.c_str());
  if (found == nullptr) throw_error(Code::kNotFound, "load {}: it has no {}", of.file, entry);
  function = reinterpret_cast<F*>(found);
}

// What a library made, which goes back to it.
using Made = std::unique_ptr<void, int (*)(void*)>;

void check(const MatmulLibrary& l, int error, const char* entry) {
  if (error != 0)
    throw_error(Code::kDevice, "{}: {}{} returned {}; wanted 0", l.file, l.vendor.prefix, entry,
                error);
}

}  // namespace

MatmulLibrary load_matmul_library(const MatmulVendor& vendor, const std::string& file) {
  std::vector<std::string> files(std::begin(vendor.files), std::end(vendor.files));
  if (!file.empty()) files = {file};
  MatmulLibrary m = {};
  m.vendor = vendor;
  void* l = nullptr;
  std::string said;
  for (size_t i = 0; i < files.size() && l == nullptr; ++i) {
    m.file = files[i];
    const OpenedLibrary library = open_library(m.file);
    l = library.handle;
    if (l == nullptr)
      said += fmt::format("{}{}: {}", said.empty() ? "" : "; ", m.file, library.why);
  }
  if (l == nullptr)
    throw_error(Code::kNotFound, "load {}: {}; MORAINE_MATMUL_LIBRARY names another file",
                vendor.prefix, said);
  find(l, m, "Create", m.open);
  find(l, m, "Destroy", m.close);
  find(l, m, "MatmulDescCreate", m.make_operation);
  find(l, m, "MatmulDescDestroy", m.drop_operation);
  find(l, m, "MatmulDescSetAttribute", m.set_operation);
  find(l, m, "MatrixLayoutCreate", m.make_layout);
  find(l, m, "MatrixLayoutDestroy", m.drop_layout);
  find(l, m, "MatmulPreferenceCreate", m.make_preference);
  find(l, m, "MatmulPreferenceDestroy", m.drop_preference);
  find(l, m, "MatmulPreferenceSetAttribute", m.set_preference);
  find(l, m, "MatmulAlgoGetHeuristic", m.choose);
  find(l, m, "Matmul", m.multiply);
  return m;
}

MatmulLibrary load_matmul_library_of(Gpu& gpu) {
  const char* const given = std::getenv("MORAINE_MATMUL_LIBRARY");
  const std::string file = given == nullptr ? "" : given;
  if (gpu.number() < 0 && file.empty())
    throw_error(Code::kNotFound, "an emulated GPU has no library");
  return load_matmul_library(gpu.generation().starts_with("sm_") ? kCublasLt : kHipblasLt, file);
}

struct VendorMatmul::Prepared {
  Prepared(const MatmulLibrary& l, Gpu& g, const VendorProduct& p)
      : library(l),
        gpu(g),
        product(p),
        handle(nullptr, l.close),
        operation(nullptr, l.drop_operation),
        a(make_layout(p.w)),
        b(make_layout(p.x)),
        d(make_layout(p.y)) {
    gpu.wait();  // makes the device this thread's
    void* made = nullptr;
    check(l, l.open(&made), "Create");
    handle.reset(made);
    check(l, l.make_operation(&made, l.vendor.sums_f32, kMatmulF32), "MatmulDescCreate");
    operation.reset(made);
    const auto transposed = static_cast<int32_t>(l.vendor.transposed);
    check(l, l.set_operation(operation.get(), l.vendor.transpose_a, &transposed, sizeof transposed),
          "MatmulDescSetAttribute");
    choose();
  }

  // Rows here are columns there.
  Made make_layout(const Tensor& t) const {
    void* made = nullptr;
    check(library,
          library.make_layout(&made, kMatmulBf16, static_cast<uint64_t>(t.dims[1]),
                              static_cast<uint64_t>(t.dims[0]), t.dims[1]),
          "MatrixLayoutCreate");
    return {made, library.drop_layout};
  }

  void choose() {
    void* made = nullptr;
    check(library, library.make_preference(&made), "MatmulPreferenceCreate");
    const Made preference(made, library.drop_preference);
    check(library,
          library.set_preference(made, kMatmulMostWorkspace, &kMatmulWorkspace,
                                 sizeof kMatmulWorkspace),
          "MatmulPreferenceSetAttribute");
    int count = 0;
    check(library,
          library.choose(handle.get(), operation.get(), a.get(), b.get(), d.get(), d.get(), made, 1,
                         chosen.data(), &count),
          "MatmulAlgoGetHeuristic");
    if (count < 1)
      throw_error(Code::kDevice, "{}: {}MatmulAlgoGetHeuristic found no algorithm; wanted one",
                  library.file, library.vendor.prefix);
  }

  const MatmulLibrary library;
  Gpu& gpu;
  const VendorProduct product;
  Made handle, operation, a, b, d;
  alignas(8) std::array<std::byte, kMatmulResultBytes> chosen = {};
  const GpuMemory workspace{gpu, static_cast<int64_t>(kMatmulWorkspace)};
};

VendorMatmul::VendorMatmul(const MatmulLibrary& library, Gpu& gpu, const VendorProduct& product)
    : prepared_([&] {
        const int64_t T = product.x.dims[0], k = product.x.dims[1], n = product.w.dims[0];
        check_shape(product.y, "y", {T, n});
        check_shape(product.x, "x", {T, k});
        check_shape(product.w, "w", {n, k});
        for (const Tensor& t : {product.y, product.x, product.w})
          check_dtype(t, "an operand", DType::kBF16);
        return std::make_unique<Prepared>(library, gpu, product);
      }()) {}

// What the device has under way may need them.
VendorMatmul::~VendorMatmul() {
  try {
    prepared_->gpu.wait();
  } catch (const Error&) {
  }  // whoever waits next is told of a device that is lost
}

void VendorMatmul::run() {
  const Prepared& p = *prepared_;
  const float one = 1, zero = 0;
  check(p.library,
        p.library.multiply(p.handle.get(), p.operation.get(), &one, p.product.w.data, p.a.get(),
                           p.product.x.data, p.b.get(), &zero, p.product.y.data, p.d.get(),
                           p.product.y.data, p.d.get(), p.chosen.data(), p.workspace.data(),
                           kMatmulWorkspace, p.gpu.stream()),
        "Matmul");
}

}  // namespace moraine::gpu
