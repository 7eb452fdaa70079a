// `moraine quantize`: a model packed for serving, in a file that is mapped; what it lost is measured.
#include "base/check_place.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/resident.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/interrupts.h"
#include "cli/progress.h"
#include "cli/quantize_report.h"
#include "cli/quantize_source.h"
#include "cli/quantize_text.h"
#include "cli/text_windows.h"
#include "eval/observed_pass.h"
#include "eval/weight_calibration.h"
#include "infer/page_pool.h"
#include "model/loaded_model.h"
#include "model/model_directory.h"
#include "model/model_place.h"
#include "model/write_packed.h"
#include "tensor/arena.h"

namespace moraine {
namespace {

// What is refused unless told: KL divergence from the model in bf16, nats a token.
constexpr double kMostKlQ8 = 0.02, kMostKlQ4 = 0.1;
constexpr int64_t kMomentsShare = 4;  // of the memory that is free a quarter, for moments of inputs

struct QuantizeFlags {
  std::string from, out, type = "bf16", reference, attention, down, head;
  double max_kl = 0;
  bool has_max_kl = false, has_context = false, no_report = false, json = false;
  int64_t threads = 0;
  TextWanted text = {};

  bool measures() const { return quantises() && !no_report; }
  // What was asked for besides: "down=q4".
  std::vector<std::pair<std::string, std::string>> others() const {
    std::vector<std::pair<std::string, std::string>> given = {
        {"attention", attention}, {"down", down}, {"head", head}};
    std::erase_if(given, [](const auto& other) { return other.second.empty(); });
    return given;
  }
  std::string unchecked() const { return out + ".unchecked"; }
  bool has(const std::string& t) const {
    return type == t || attention == t || down == t || head == t;
  }
  bool calibrates() const { return has("q6") || has("q4"); }
  bool quantises() const { return has("q8") || calibrates(); }
  double most_kl() const { return has_max_kl ? max_kl : has("q4") ? kMostKlQ4 : kMostKlQ8; }
};

void declare(Flags& flags, QuantizeFlags& f) {
  const std::vector<std::string> types = {"", "bf16", "q8", "q6", "q4"};
  flags
      .required("model", &f.from,
                "Checkpoint, run directory, folder in a public layout, or a model packed as bf16.")
      .required("out", &f.out, "Directory to make.")
      .choice(
          "type", &f.type, {"bf16", "q8", "q6", "q4"},
          "Of the packs. bf16: the answers of the model with --dtype bf16, to the bit. q8: 8.1 "
          "bits a weight; q6: experts and head 6.1 bits, attention and rows of tokens as q8; q4: "
          "as q6, but first matrices of experts 4.1 bits.")
      .choice("attention", &f.attention, types, "Another type for attention's projections.")
      .choice("down", &f.down, types, "Another type for second matrices of experts.")
      .choice("head", &f.head, types,
              "Another type for the head; tokens keep rows of 8 bits beside one of fewer.")
      .list("input", &f.text.inputs,
            "Text to calibrate (q6, q4) and to report on: files or folders (.txt .jsonl, also .gz "
            ".zst); default: samples of the model itself.")
      .text("field", &f.text.json_field, "Field of .jsonl lines that holds the text.")
      .text("reference", &f.reference,
            "The same model in another form, to calibrate and report with: what --type bf16 made, "
            "where the model itself does not fit into memory.")
      .integer(
          "calibration-tokens", &f.text.calibration_tokens,
          "Of the text, from its beginning: q6 and q4 calibrate on them, no report is on them; "
          "0: no calibration.",
          0, 1 << 30)
      .integer("report-tokens", &f.text.report_tokens, "Of the text behind those.", 2, 1 << 30)
      .integer("context", &f.text.context, "Positions that the text is read in.", 2, 1 << 20)
      .number("max-kl", &f.max_kl,
              "Refuse a model whose predictions are further from the reference's, in nats a token; "
              "default 0.02, or 0.1 if anything is q4.")
      .flag("no-report", &f.no_report, "Neither calibrate nor measure.")
      .flag("json", &f.json, "Print JSON.")
      .integer("threads", &f.threads, "0: one per usable core.", 0, 1024);
}

// Before minutes are spent.
void check_places(const QuantizeFlags& f) {
  FileSystem& fs = posix_file_system();
  if (fs.kind(f.out) != FileKind::kNothing)
    throw_error(Code::kInvalidArgument,
                "quantize --out {}: it exists already; remove it or choose another name", f.out);
  if (f.measures() && fs.kind(f.unchecked()) != FileKind::kNothing)
    throw_error(Code::kInvalidArgument,
                "quantize --out {}: {} is left of a quantize that lost too much or was stopped; "
                "move it to {} if it will do, else remove it",
                f.out, f.unchecked(), f.out);
  check_folder_place(fs, "quantize --out", parent_path(f.out));
}

// What nobody would heed is refused as well.
void check_values(const QuantizeFlags& f, const Flags& flags) {
  if (f.has_max_kl && !(f.max_kl >= 0))
    throw_error(Code::kInvalidArgument, "quantize --max-kl {}: wanted 0 or more", f.max_kl);
  if (flags.given("field") && !flags.given("input"))
    throw_error(Code::kInvalidArgument, "quantize --field: there is no --input to read it in");
  if (f.measures()) return;
  for (const char* name : {"input", "reference", "max-kl", "field", "calibration-tokens",
                           "report-tokens", "context"}) {
    if (!flags.given(name)) continue;
    throw_error(Code::kInvalidArgument, "quantize --{}: nothing is measured {}; leave it out", name,
                f.quantises() ? "with --no-report" : "of bf16, whose answers are the model's");
  }
}

// Of the model that is packed, or its stand-in, to compute with: in bf16.
LoadOptions reference_options(const QuantizeFlags& f) {
  LoadOptions load;
  load.dtype = "bf16";
  load.threads = f.threads;
  load.tokens = whole_windows(kObservedRows, f.text.context);
  load.positions = f.text.context;
  const int64_t pages = f.text.context / kPageRows + 2;
  load.cache = {.pages = kSamplesAtOnce * pages, .segments = kSamplesAtOnce};
  load.unread =
      "to calibrate and report, make a form that is mapped (quantize --type bf16) and give it as "
      "--reference, or say --no-report";
  return load;
}

// It holds to `weights`.
PackedToWrite packed_of(const QuantizeFlags& f, const QuantizeSource& weights) {
  const ModelDirectory& directory = weights.directory();
  PackedToWrite model = {
      .config = directory.config(),
      .weights = [&weights](int64_t begin, const Tensor& t) { weights.read(begin, t); },
      .type = *find_pack_type(f.type),
      .step = directory.step(),
      .language_files = directory.language_files()};
  const auto another = [&](ServedMatrix matrix, const std::string& type) {
    if (!type.empty()) model.matrix[static_cast<size_t>(matrix)] = find_pack_type(type);
  };
  another(ServedMatrix::kQkv, f.attention);
  another(ServedMatrix::kOutput, f.attention);
  another(ServedMatrix::kDown, f.down);
  another(ServedMatrix::kHead, f.head);
  return model;
}

// Of the matrices that are packed in 6 or 4 bits.
std::unique_ptr<WeightCalibration> calibrate(const QuantizeFlags& f, const QuantizeSource& weights,
                                             LoadedModel& model, const TokenWindows& text) {
  auto line = std::make_shared<std::unique_ptr<ProgressLine>>();
  const auto progress = [line](int64_t part, int64_t parts, int64_t done, int64_t total) {
    if (*line == nullptr)
      *line = std::make_unique<ProgressLine>(
          parts == 1 ? "calibrate" : fmt::format("calibrate {}/{}", part + 1, parts));
    (*line)->update(done, total, "tokens");
    if (done == total) line->reset();
  };
  return std::make_unique<WeightCalibration>(
      EvalModel{model.ctx(), model.model()},
      WeightCalibration::Options{.windows = text.calibration,
                                 .sources = few_bit_sources(packed_of(f, weights)),
                                 .bytes = available_memory_bytes() / kMomentsShare,
                                 .progress = progress});
}

// `calibration`: null: each weight is rounded alone.
void write(const QuantizeFlags& f, const QuantizeSource& weights, ModelPlace& place,
           WeightCalibration* calibration) {
  Pool pool(f.threads > 0 ? static_cast<int>(f.threads) : usable_cores());
  Arena arena(Arena::Mode::kReal);
  Context ctx = make_context(Backend::kCpu, pool, arena);
  ProgressLine progress("quantize");
  PackedToWrite model = packed_of(f, weights);
  model.progress = [&](int64_t done, int64_t total) { progress.update(done, total, "B"); };
  if (calibration != nullptr) {
    model.feedback = [calibration](const PackSource& source, int64_t group) {
      return calibration->factor(source, group);
    };
  }
  write_packed_model(ctx, place, model);
}

void print_coverage(const WeightCalibration& calibration) {
  const InputMoments::Coverage c = calibration.coverage();
  if (c.all == 0) return;
  say("calibrated on {} tokens: {} of {} experts had {} rows or more, the least {}\n",
      calibration.tokens(), c.enough, c.all, kEnoughRows, c.fewest);
}

// What was made, and puts it in its place.
void measure(const QuantizeFlags& f, const ModelDirectory& from, LoadedModel& reference,
             const TokenWindows& text) {
  const std::string made = f.unchecked();
  try {
    report_quantised({.out = f.out,
                      .type = f.type,
                      .others = f.others(),
                      .made = made,
                      .from = from.path(),
                      .parameters = build_parameters(from.config()).total_count,
                      .most_kl = f.most_kl(),
                      .context = f.text.context,
                      .threads = f.threads,
                      .json = f.json},
                     reference, text);
  } catch (const Error& e) {
    if (e.code() != Code::kInterrupted) throw;
    throw_error(Code::kInterrupted,
                "quantize --out {}: interrupted while it was measured; the model is whole, in {}: "
                "move it to {} if it will do, else remove it",
                f.out, made, f.out);
  }
  FileSystem& fs = posix_file_system();
  fs.rename(made, f.out);
  fs.sync_directory(parent_path(f.out));
}

// With what takes no time first: a mistake is not found out minutes later.
void quantise(QuantizeFlags f, const QuantizeSource& weights, ModelPlace& place) {
  const ModelDirectory computes =
      ModelDirectory::open(posix_file_system(), f.reference.empty() ? f.from : f.reference,
                           ModelDirectory::Verify::kAsRead);
  if (!f.reference.empty()) check_reference(weights, computes, f.reference);
  const int64_t positions =
      std::min(computes.config().max_positions, weights.directory().config().max_positions);
  if (f.has_context && f.text.context > positions)
    throw_error(Code::kInvalidArgument,
                "quantize --context {}: the model was made for {} positions (max_positions)",
                f.text.context, positions);
  f.text.context = std::min(f.text.context, positions);
  if (f.text.context < 2)
    throw_error(Code::kInvalidArgument,
                "quantize: the model has one position, and predicts nothing to report on; say "
                "--no-report");
  LoadedModel::check_memory(computes, reference_options(f));
  f.text.calibrates = f.calibrates();
  TokenWindows text;
  if (!f.text.inputs.empty()) text = read_quantize_text(f.text, computes);
  weights.verify();
  if (!f.reference.empty()) QuantizeSource(computes).verify();
  const std::unique_ptr<LoadedModel> reference = LoadedModel::open(computes, reference_options(f));
  if (f.text.inputs.empty()) text = sample_quantize_text(f.text, computes, *reference);
  {
    std::unique_ptr<WeightCalibration> calibration;
    if (!text.calibration.empty()) calibration = calibrate(f, weights, *reference, text);
    if (calibration != nullptr) print_coverage(*calibration);
    write(f, weights, place, calibration.get());
  }
  measure(f, weights.directory(), *reference, text);
}

void print_made(const QuantizeFlags& f, const ModelDirectory& from) {
  const int64_t parameters = build_parameters(from.config()).total_count,
                bytes = folder_bytes(posix_file_system(), f.out);
  if (f.json) {
    Json line = {{"model", f.out},
                 {"type", f.type},
                 {"from", from.path()},
                 {"parameters", parameters},
                 {"bytes", bytes}};
    for (const auto& [name, type] : f.others()) line[name] = type;
    fmt::print("{}\n", json_text(line));
    return;
  }
  std::string types = "type=" + f.type;
  for (const auto& [name, type] : f.others()) types += fmt::format(" {}={}", name, type);
  fmt::print("model={} {} from={} parameters={} bytes={} bits_a_parameter={:.2f}\n", f.out, types,
             from.path(), parameters, bytes,
             8 * static_cast<double>(bytes) / static_cast<double>(parameters));
}

}  // namespace

void cmd_quantize(const CommandLine& line) {
  QuantizeFlags f;
  Flags flags("quantize",
              "Pack a model for generate, chat, eval and serve: it is mapped when it is used, not "
              "read. The model is packed piece by piece; q8, q6 and q4 end with what they lost.");
  declare(flags, f);
  if (!flags.parse(line)) return;
  f.has_max_kl = flags.given("max-kl"), f.has_context = flags.given("context");
  f.out = directory_to_make(f.out);
  check_values(f, flags);
  check_places(f);
  const ModelDirectory directory =
      ModelDirectory::open(posix_file_system(), f.from, ModelDirectory::Verify::kAsRead);
  const QuantizeSource weights(directory);
  check_packed_room(posix_file_system(), f.out, packed_of(f, weights));
  const Interrupts interrupts("quantize --out " + f.out);
  {
    ModelPlace place(posix_file_system(), f.out);
    if (f.measures()) {
      ModelPlace unchecked(posix_file_system(), f.unchecked());
      quantise(f, weights, unchecked);
    } else {
      weights.verify();
      write(f, weights, place, nullptr);
    }
  }
  if (!f.json || !f.measures()) print_made(f, directory);  // else the report's line has said it
}

}  // namespace moraine
