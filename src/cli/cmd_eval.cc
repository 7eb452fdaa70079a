// `moraine eval`: perplexity of text files, log-probabilities of given tokens.
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/progress.h"
#include "cli/tokens_flag.h"
#include "data/text_input.h"
#include "eval/score.h"
#include "model/loaded_model.h"

namespace moraine {
namespace {

struct EvalFlags {
  std::string action, model_path, tokens, text;
  std::vector<std::string> inputs;
  bool json = false, has_tokens = false;
  int64_t context = 0, stride = 0;
  TextInputOptions input;
  LoadOptions load;
};

void score(const EvalFlags& f, const ModelDirectory& directory) {
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(directory.tokenizer_json());
  const std::vector<int32_t> ids = tokens_or_text(f.tokens, f.text, f.has_tokens, tokenizer.get());
  LoadOptions load = f.load;
  load.tokens = load.positions = std::max<int64_t>(1, static_cast<int64_t>(ids.size()));
  const std::unique_ptr<LoadedModel> model = LoadedModel::open(directory, load);
  const std::vector<double> logprobs = score_tokens(model->ctx(), model->model(), ids);
  double total = 0;
  Json list = Json::array();
  for (const double lp : logprobs) {
    list.push_back(std::isnan(lp) ? Json(nullptr) : Json(lp));
    if (!std::isnan(lp)) total += lp;
  }
  if (f.json) {
    fmt::print("{}\n", json_text({{"tokens", ids}, {"logprobs", list}, {"total", total}}));
    return;
  }
  for (size_t i = 0; i < ids.size(); ++i)
    fmt::print("{} {}\n", ids[i],
               std::isnan(logprobs[i]) ? "-" : fmt::format("{:.6f}", logprobs[i]));
  fmt::print("total {:.6f}\n", total);
}

Perplexity file_perplexity(LoadedModel& model, const Tokenizer& tokenizer, const std::string& path,
                           const EvalFlags& f, const PerplexityOptions& options) {
  TextInput input(posix_file_system(), path, f.input);
  Perplexity all;
  std::string document;
  while (input.next(&document)) {
    const std::vector<int32_t> ids = tokenizer.encode_ordinary(document);
    const Perplexity one = document_perplexity(model.ctx(), model.model(), ids,
                                               static_cast<int64_t>(document.size()), options);
    all.tokens += one.tokens;
    all.bytes += one.bytes;
    all.nll += one.nll;
  }
  return all;
}

void perplexity(const EvalFlags& f, const ModelDirectory& directory) {
  if (f.inputs.empty())
    throw_error(Code::kInvalidArgument, "--input is missing: wanted text files");
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(directory.tokenizer_json());
  if (tokenizer == nullptr)
    throw_error(Code::kInvalidArgument, "the model has no tokenizer; text cannot be read");
  PerplexityOptions options;
  options.context = f.context;
  options.stride = f.stride > 0 ? f.stride : std::max<int64_t>(1, f.context / 2);
  if (options.stride > options.context)
    throw_error(Code::kInvalidArgument, "--stride {} is more than --context {}", options.stride,
                options.context);
  LoadOptions load = f.load;
  load.tokens = std::max<int64_t>(options.context, 4096 / options.context * options.context);
  load.positions = options.context;
  const std::unique_ptr<LoadedModel> model = LoadedModel::open(directory, load);
  for (const std::string& path : expand_inputs(posix_file_system(), f.inputs)) {
    ProgressLine progress("eval " + path);
    options.progress = [&](int64_t done, int64_t total) { progress.update(done, total, "tokens"); };
    const Perplexity p = file_perplexity(*model, *tokenizer, path, f, options);
    if (f.json) {
      fmt::print("{}\n", json_text({{"file", path},
                                    {"tokens", p.tokens},
                                    {"bytes", p.bytes},
                                    {"loss", p.loss()},
                                    {"perplexity", p.perplexity()},
                                    {"bits_per_byte", p.bits_per_byte()},
                                    {"context", options.context},
                                    {"stride", options.stride}}));
    } else {
      fmt::print("file={} tokens={} bytes={} loss={:.4f} perplexity={:.3f} bits_per_byte={:.4f}\n",
                 path, p.tokens, p.bytes, p.loss(), p.perplexity(), p.bits_per_byte());
    }
  }
}

}  // namespace

void cmd_eval(const CommandLine& line) {
  EvalFlags f;
  f.context = 512;
  Flags flags("eval",
              "perplexity: loss, perplexity and bits per byte of texts. score: log-probability of "
              "each given token.");
  flags.choice_positional("action", &f.action, {"perplexity", "score"}, "perplexity or score")
      .required("model", &f.model_path, "Checkpoint, run directory, or folder in a public layout.")
      .list("input", &f.inputs,
            "perplexity: text files or folders (.txt .jsonl, each also .gz or .zst).")
      .integer("context", &f.context, "perplexity: positions of a window.", 1, 1 << 24)
      .integer("stride", &f.stride, "perplexity: new tokens of each window; 0: half the context.",
               0, 1 << 24)
      .text("field", &f.input.json_field, "perplexity: field of .jsonl lines that holds the text.")
      .text("tokens", &f.tokens, "score: token ids, \"1 2 3\".")
      .text("text", &f.text, "score: text, instead of --tokens.")
      .text("dtype", &f.load.dtype, "f32 or bf16; default: as the weights are stored.")
      .integer("threads", &f.load.threads, "0: one per usable core.", 0, 1024)
      .flag("json", &f.json, "Print JSON.");
  if (!flags.parse(line)) return;
  f.has_tokens = flags.given("tokens");
  const ModelDirectory directory = ModelDirectory::open(posix_file_system(), f.model_path);
  if (f.action == "score") {
    if (!f.has_tokens && !flags.given("text"))
      throw_error(Code::kInvalidArgument, "score: wanted --tokens \"1 2 3\" or --text TEXT");
    score(f, directory);
  } else {
    perplexity(f, directory);
  }
}

}  // namespace moraine
