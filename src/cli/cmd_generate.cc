// `moraine generate`: continues a prompt.
#include <fmt/ranges.h>  // fmt::join, in newer versions

#include <cstdio>

#include "base/error.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/tokens_flag.h"
#include "infer/generate.h"
#include "model/loaded_model.h"

namespace moraine {
namespace {

void print_json(const GenerateResult& result) {
  const Json answer = {{"tokens", result.tokens},
                       {"text", result.text},
                       {"logprobs", result.logprobs},
                       {"finish_reason", result.finish_reason}};
  fmt::print("{}\n", json_text(answer));
}

}  // namespace

void cmd_generate(const CommandLine& line) {
  std::string model_path, prompt, tokens;
  bool json = false;
  int64_t seed = 0, chunk = 512, context = 0;
  LoadOptions load;
  Request request;
  Flags flags("generate",
              "Continue a prompt. The answer depends on model, prompt, options and seed alone.");
  flags.required("model", &model_path, "Checkpoint, run directory, or folder in a public layout.")
      .text("prompt", &prompt, "Text to continue.")
      .text("tokens", &tokens, "Token ids to continue, \"1 2 3\", instead of --prompt.")
      .integer("max-tokens", &request.max_tokens, "New tokens at most.", 0, 1 << 24)
      .number("temperature", &request.sampling.temperature, "0: always the most likely token.")
      .integer("top-k", &request.sampling.top_k, "Only the k most likely; 0: all.", 0, 1 << 24)
      .number("top-p", &request.sampling.top_p,
              "Only the most likely that together reach p; 1: all.")
      .number("min-p", &request.sampling.min_p,
              "Only those at least min-p times as likely as the first; 0: all.")
      .integer("seed", &seed, "Of the draws.", 0, INT64_MAX)
      .list("stop", &request.stop, "Text before which the answer ends; may be repeated.")
      .text("dtype", &load.dtype, "f32 or bf16; default: as the weights are stored.")
      .integer("chunk", &chunk, "Rows of the prompt computed at a time; changes no bit.", 1,
               1 << 20)
      .integer("context", &context, "Positions kept at most; 0: prompt and answer.", 0, 1 << 30)
      .integer("threads", &load.threads, "0: one per usable core.", 0, 1024)
      .flag("json", &json, "Print {tokens, text, logprobs, finish_reason}.");
  if (!flags.parse(line)) return;
  if (!flags.given("prompt") && !flags.given("tokens"))
    throw_error(Code::kInvalidArgument, "wanted --prompt TEXT or --tokens \"1 2 3\"");
  request.sampling.seed = static_cast<uint64_t>(seed);

  FileSystem& fs = posix_file_system();
  const ModelDirectory directory = ModelDirectory::open(fs, model_path);
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(directory.tokenizer_json());
  request.prompt = tokens_or_text(tokens, prompt, flags.given("tokens"), tokenizer.get());
  const int64_t eos = directory.config().eos_id >= 0 || tokenizer == nullptr
                          ? directory.config().eos_id
                          : tokenizer->eos_id();
  check_sampling(request.sampling, directory.config().vocab_size);
  if (eos >= 0) request.end_ids = {static_cast<int32_t>(eos)};
  if (request.prompt.empty() && eos >= 0)
    request.prompt = {
        static_cast<int32_t>(directory.config().bos_id >= 0 ? directory.config().bos_id : eos)};
  load.tokens =
      std::max<int64_t>(1, std::min<int64_t>(chunk, static_cast<int64_t>(request.prompt.size())));
  load.positions =
      context > 0 ? context : static_cast<int64_t>(request.prompt.size()) + request.max_tokens + 1;
  load.positions = std::min(load.positions, directory.config().max_positions);
  load.cache.pages = (load.positions + kPageRows - 1) / kPageRows;
  const std::unique_ptr<LoadedModel> model = LoadedModel::open(directory, load);
  std::function<void(const std::string&)> on_text;
  if (!json && tokenizer != nullptr) {
    on_text = [](const std::string& piece) {
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
    };
    if (!flags.given("tokens")) on_text(prompt);
  }
  const GenerateResult result =
      generate(model->ctx(), model->model(), model->cache(), tokenizer.get(), request, on_text);
  if (json) {
    print_json(result);
  } else {
    fmt::print("{}\n",
               tokenizer == nullptr ? fmt::format("{}", fmt::join(result.tokens, " ")) : "");
  }
}

}  // namespace moraine
