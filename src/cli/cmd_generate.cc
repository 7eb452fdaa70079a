// `moraine generate`: continues a prompt.
#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/on_ranks.h"
#include "cli/placement_flags.h"
#include "cli/tokens_flag.h"
#include "infer/generate.h"
#include "infer/rank_steps.h"
#include "infer/step_rows.h"
#include "kernels/gpu/open_device.h"
#include "model/loaded_model.h"
#include "parallel/host_memory.h"
#include "parallel/rank_threads.h"

namespace moraine {
namespace {

void print_json(const GenerateResult& result) {
  const Json answer = {{"tokens", result.tokens},
                       {"text", result.text},
                       {"logprobs", result.logprobs},
                       {"finish_reason", result.finish_reason}};
  fmt::print("{}\n", json_text(answer));
}

struct GenerateFlags {
  std::string model_path, prompt, tokens;
  bool json = false, has_tokens = false, share_cache = false;
  int64_t seed = 0, chunk = kStepRows, context = 0;
  LoadOptions load;
  Request request;
  RankFlags ranks;
  PlacementFlags placement;
};

void declare(Flags& flags, GenerateFlags& f) {
  SamplingOptions& sampling = f.request.sampling;
  flags.required("model", &f.model_path, "Checkpoint, run directory, or folder in a public layout.")
      .text("prompt", &f.prompt, "Text to continue.")
      .text("tokens", &f.tokens, "Token ids to continue, \"1 2 3\", instead of --prompt.")
      .integer("max-tokens", &f.request.max_tokens, "New tokens at most.", 0, 1 << 24)
      .number("temperature", &sampling.temperature, "0: always the most likely token.")
      .integer("top-k", &sampling.top_k, "Only the k most likely; 0: all.", 0, 1 << 24)
      .number("top-p", &sampling.top_p, "Only the most likely that together reach p; 1: all.")
      .number("min-p", &sampling.min_p,
              "Only those at least min-p times as likely as the first; 0: all.")
      .integer("seed", &f.seed, "Of the draws.", 0, INT64_MAX)
      .list("stop", &f.request.stop, "Text before which the answer ends; may be repeated.")
      .text("dtype", &f.load.dtype, "f32 or bf16; default: as the weights are stored.")
      .choice("head", &f.load.head, {"auto", "full", "two-stage"},
              "As of `serve`. A copy takes seconds to make, and pays for itself after a hundred "
              "tokens; "
              "with --json log-probabilities are printed, and all logits computed.")
      .integer("chunk", &f.chunk, "Rows of the prompt computed at a time; changes no bit.", 1,
               1 << 20)
      .integer("context", &f.context, "Positions kept at most; 0: prompt and answer.", 0, 1 << 30)
      .text("device", &f.load.device, gpu::kDeviceHelp)
      .integer("threads", &f.load.threads, "0: one per usable core.", 0, 1024);
  declare_divided_model(flags, &f.share_cache, &f.load.low_latency);
  flags.flag("json", &f.json, "Print {tokens, text, logprobs, finish_reason}.");
  declare_ranks_with_deadline(flags, "generate", &f.ranks);
  declare_placement(flags, &f.placement);
}

// What the model's files add to the request, and the memory that it needs.
void complete(const ModelDirectory& directory, const Tokenizer* tokenizer, GenerateFlags& f) {
  const ModelConfig& config = directory.config();
  Request& request = f.request;
  request.sampling.seed = static_cast<uint64_t>(f.seed);
  request.prompt = tokens_or_text(f.tokens, f.prompt, f.has_tokens, tokenizer);
  const int64_t eos =
      config.eos_id >= 0 || tokenizer == nullptr ? config.eos_id : tokenizer->eos_id();
  check_sampling(request.sampling, config.vocab_size);
  if (eos >= 0) request.end_ids = {static_cast<int32_t>(eos)};
  if (request.prompt.empty() && eos >= 0)
    request.prompt = {static_cast<int32_t>(config.bos_id >= 0 ? config.bos_id : eos)};
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  f.load.tokens = std::max<int64_t>(1, std::min(f.chunk, prompt_tokens));
  f.load.positions = f.context > 0 ? f.context : prompt_tokens + request.max_tokens + 1;
  f.load.positions = std::min(f.load.positions, config.max_positions);
}

void generate_on(Transport& transport, const ModelDirectory& directory, const Tokenizer* tokenizer,
                 const GenerateFlags& f) {
  StepRanks ranks(transport, 0, f.ranks.deadline_seconds);
  const bool alone = transport.size() == 1;
  LoadOptions load = f.load;
  load.ranks = ranks.of_model(directory.config(), f.share_cache);
  load.threads = rank_threads(load.threads, ranks.steps);
  if (!alone) load.host_free = free_before_taking(ranks.steps);
  const int64_t page_rows = kPageRows * (load.ranks.cache == nullptr ? 1 : transport.size());
  load.cache.pages = (load.positions + page_rows - 1) / page_rows;
  const std::unique_ptr<LoadedModel> model = LoadedModel::open(directory, load);
  model->connect();
  if (transport.rank() > 0)
    return follow_steps(ranks.steps, model->ctx(), model->model(), model->cache());
  std::function<void(const std::string&)> on_text;
  // The prompt goes first, and nothing of a request that is refused.
  std::string unprinted = f.has_tokens ? "" : f.prompt;
  if (!f.json) {
    on_text = [&](const std::string& piece) {
      const std::string text = std::exchange(unprinted, {}) + piece;
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    };
  }
  const GenerateResult result = generate(
      {model->ctx(), model->model(), model->cache(), tokenizer, alone ? nullptr : &ranks.steps},
      f.request, on_text);
  if (on_text) on_text("");
  f.json ? print_json(result) : fmt::print("\n");
}

}  // namespace

void cmd_generate(const CommandLine& line) {
  GenerateFlags f;
  f.load.low_latency = "auto";
  Flags flags("generate",
              "Continue a prompt. The answer depends on model, prompt, options and seed alone.");
  declare(flags, f);
  if (!flags.parse(line)) return;
  f.has_tokens = flags.given("tokens");
  f.request.logprobs = f.json;  // else nobody sees them
  f.load.placement = f.placement.placement();
  if (!flags.given("prompt") && !f.has_tokens)
    throw_error(Code::kInvalidArgument, "wanted --prompt TEXT or --tokens \"1 2 3\"");
  if (flags.given("prompt") && f.has_tokens)
    throw_error(Code::kInvalidArgument, "--prompt and --tokens: wanted one of them");
  const ModelDirectory directory = ModelDirectory::open(posix_file_system(), f.model_path);
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(directory.tokenizer_json());
  complete(directory, tokenizer.get(), f);
  on_ranks("generate", f.ranks,
           [&](Transport& transport) { generate_on(transport, directory, tokenizer.get(), f); });
}

}  // namespace moraine
