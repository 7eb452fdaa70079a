// QuantizeSource: reads by elements or from packs.
#include "cli/quantize_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "cli/progress.h"

namespace moraine {
namespace {

void check_same_model(const ModelConfig& model, const ModelConfig& reference,
                      const std::string& path) {
  const auto parts = [](const ModelConfig& c) {
    std::vector<std::string> texts = {fmt::format("experts_per_token = {}", c.experts_per_token),
                                      fmt::format("heads = {}", c.heads),
                                      fmt::format("kv_heads = {}", c.kv_heads)};
    for (const PackSource& s : pack_sources(c, build_parameters(c)))
      texts.push_back(fmt::format("{} [{}, {}, {}]", s.name, s.groups, s.n, s.k));
    return texts;
  };
  const std::vector<std::string> wanted = parts(model), found = parts(reference);
  const auto [want, got] = std::mismatch(wanted.begin(), wanted.end(), found.begin(), found.end());
  if (want == wanted.end() && got == found.end()) return;
  throw_error(Code::kInvalidArgument,
              "quantize --reference {}: it has {} where the model has {}; wanted another form of "
              "the same model",
              path, got == found.end() ? "nothing" : *got,
              want == wanted.end() ? "nothing" : *want);
}

void check_is_whole(const PackedModel& reference, const std::string& path) {
  try {
    reference.check_weights();
  } catch (const Error& e) {
    if (e.code() != Code::kInvalidArgument) throw;
    throw_error(
        Code::kInvalidArgument,
        "quantize --reference {}: it has packs of integers; wanted the model itself, or one "
        "packed with --type bf16",
        path);
  }
}

constexpr int64_t kSampled = 256;  // first elements of a parameter

// Of each parameter the first elements, as bf16 holds them: what any form has.
void check_same_weights(const QuantizeSource& model, const QuantizeSource& reference,
                        const std::string& path) {
  for (const Parameter& p : build_parameters(model.directory().config()).all) {
    const int64_t count = std::min(kSampled, p.count());
    std::vector<float> want(static_cast<size_t>(count)), got(want);
    const auto read = [&](const QuantizeSource& of, std::vector<float>& to) {
      of.read(p.offset, make_tensor(to.data(), DType::kF32, {count}));
    };
    read(model, want), read(reference, got);
    const bool same = std::equal(want.begin(), want.end(), got.begin(), [](float a, float b) {
      return to_bf16(a).bits == to_bf16(b).bits;
    });
    if (same) continue;
    throw_error(Code::kInvalidArgument,
                "quantize --reference {}: its {} is not the model's: it is of another step, or "
                "another model; wanted another form of the same weights",
                path, p.name);
  }
}

}  // namespace

QuantizeSource::QuantizeSource(const ModelDirectory& directory)
    : directory_(directory),
      table_(build_parameters(directory.config())),
      packed_(directory.packed() ? directory.open_packed() : nullptr) {
  packed_ ? packed_->check_weights() : directory.check_weights();
}

void QuantizeSource::verify() const {
  if (!packed_) return;
  ProgressLine progress("verify");
  packed_->verify([&](int64_t done, int64_t total) { progress.update(done, total, "B"); });
}

void QuantizeSource::read(int64_t begin, const Tensor& out) const {
  packed_ ? packed_->read_elements(begin, out) : directory_.read_elements(table_, begin, out);
}

void check_reference(const QuantizeSource& model, const ModelDirectory& reference,
                     const std::string& path) {
  check_same_model(model.directory().config(), reference.config(), path);
  if (reference.packed()) check_is_whole(*reference.open_packed(), path);
  check_same_weights(model, QuantizeSource(reference), path);
}

}  // namespace moraine
