// `moraine eval`: perplexity of texts and datasets, accuracy on multiple choice, log-probabilities of given tokens,
// two models compared.
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/comparison.h"
#include "cli/flags.h"
#include "cli/on_ranks.h"
#include "cli/progress.h"
#include "cli/text_windows.h"
#include "cli/tokens_flag.h"
#include "comm/all_ranks.h"
#include "data/dataset.h"
#include "data/text_input.h"
#include "eval/choice.h"
#include "eval/observed_pass.h"
#include "eval/score.h"
#include "kernels/gpu/open_device.h"
#include "model/loaded_model.h"
#include "parallel/host_memory.h"
#include "parallel/rank_threads.h"

namespace moraine {
namespace {

constexpr int64_t kContext = 512;
constexpr int64_t kRowsAtOnce = 4096;  // enough for every core; memory of activations grows with it

struct EvalFlags {
  std::string action, model_path, reference_path, tokens, text, bos = "auto", delimiter;
  std::vector<std::string> inputs, data;
  bool json = false, has_tokens = false;
  int64_t context = 0, stride = 0, max_length = 0, tokens_max = 32768;
  TextInputOptions input;
  LoadOptions load;
  RankFlags on_ranks;
  // Of this rank:
  Communicator* ranks = nullptr;  // null: alone
  bool first = true;              // it prints
};

// The model, in this rank's part. `rows`: of all ranks, in whole windows of `window` rows.
std::unique_ptr<LoadedModel> open_model(const EvalFlags& f, const ModelDirectory& directory,
                                        int64_t rows, int64_t window) {
  LoadOptions load = f.load;
  load.positions = window;
  load.ranks.rows = f.ranks;
  if (f.ranks != nullptr) {
    load.threads = rank_threads(load.threads, *f.ranks);
    load.host_free = free_before_taking(*f.ranks);
    rows = (rows + f.ranks->size() - 1) / f.ranks->size();
  }
  load.tokens = whole_windows(rows, window);
  std::unique_ptr<LoadedModel> model = LoadedModel::open(directory, load);
  model->connect();
  return model;
}

void score(const EvalFlags& f, const ModelDirectory& directory) {
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(directory.tokenizer_json());
  const std::vector<int32_t> ids = tokens_or_text(f.tokens, f.text, f.has_tokens, tokenizer.get());
  const int64_t rows = std::max<int64_t>(1, static_cast<int64_t>(ids.size()));
  const std::unique_ptr<LoadedModel> model = open_model(f, directory, rows, rows);
  const std::vector<double> logprobs = score_tokens({model->ctx(), model->model(), f.ranks}, ids);
  if (!f.first) return;
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

// --------------------------------------------------------------------------------- perplexity

struct PerplexityRun {
  const EvalFlags& flags;
  LoadedModel& model;
  const Tokenizer* tokenizer;  // null: only datasets
  TextBegin begin;
  PerplexityOptions options;
};

Perplexity file_perplexity(const PerplexityRun& run, const std::string& path) {
  TextInput input(posix_file_system(), path, run.flags.input);
  ProgressLine progress("eval " + path, run.flags.first);
  const int64_t file_bytes = posix_file_system().file_bytes(path);
  int64_t before = 0;  // bytes of the file that earlier documents took
  PerplexityOptions options = run.options;
  options.progress = [&](int64_t done, int64_t total) {
    const double share = static_cast<double>(done) / static_cast<double>(total);
    const double here = share * static_cast<double>(input.file_offset() - before);
    progress.update(before + static_cast<int64_t>(here), file_bytes, "B");
  };
  PerplexityMeter meter({run.model.ctx(), run.model.model(), run.flags.ranks}, options);
  std::string document;
  while (input.next(&document)) {
    std::vector<int32_t> ids = run.tokenizer->encode_ordinary(document);
    if (run.begin.put) ids.insert(ids.begin(), run.begin.id);
    meter.add(
        {.ids = ids, .bytes = static_cast<int64_t>(document.size()), .has_begin = run.begin.put});
    before = input.file_offset();
  }
  return meter.finish();
}

// What the tokens that are scored stand for, special ones for nothing: as validation in training counts it.
int64_t bytes_of_targets(const Tokenizer* tokenizer, const std::vector<int32_t>& ids,
                         const std::vector<uint8_t>& is_target) {
  int64_t bytes = 0;
  for (size_t i = 0; i < ids.size() && tokenizer != nullptr; ++i) {
    if (is_target[i] == 0) continue;
    bytes += static_cast<int64_t>(
        tokenizer->decode(std::span<const int32_t>(&ids[i], 1), /*skip_special=*/true).size());
  }
  return bytes;
}

// Every document of a dataset, as its tokens stand there; only its targets are scored.
Perplexity dataset_perplexity(const PerplexityRun& run, const Dataset& dataset) {
  ProgressLine progress("eval " + dataset.folder(), run.flags.first);
  int64_t before = 0;
  PerplexityOptions options = run.options;
  options.progress = [&](int64_t done, int64_t) {
    progress.update(std::min(before + done, dataset.num_tokens()), dataset.num_tokens(), "tokens");
  };
  PerplexityMeter meter({run.model.ctx(), run.model.model(), run.flags.ranks}, options);
  std::vector<int32_t> ids;
  std::vector<uint8_t> is_target;  // empty: all
  for (int64_t d = 0; d < dataset.num_documents(); ++d) {
    dataset.read_document(d, &ids);
    int64_t bytes = dataset.document_source_bytes(d);
    if (dataset.marked()) {
      is_target.resize(ids.size());
      dataset.read_targets(dataset.document_begins()[static_cast<size_t>(d)],
                           static_cast<int64_t>(ids.size()), is_target.data());
      bytes = bytes_of_targets(run.tokenizer, ids, is_target);
    }
    const bool has_begin = run.begin.put && !ids.empty();
    // A conversation may begin with that token already.
    if (has_begin && ids.front() != run.begin.id) {
      ids.insert(ids.begin(), run.begin.id);
      if (dataset.marked()) is_target.insert(is_target.begin(), 0);
    }
    meter.add({.ids = ids, .bytes = bytes, .has_begin = has_begin, .is_target = is_target});
    before += dataset.document_tokens(d);
  }
  return meter.finish();
}

// Ids of another tokenizer would give a number that means nothing.
void check_meaning(const Dataset& dataset, const std::string& tokenizer_json, int64_t vocab_size) {
  const TokenMeaning& meaning = dataset.manifest().meaning;
  const Hash128 hash =
      hash_bytes(tokenizer_json.data(), static_cast<int64_t>(tokenizer_json.size()));
  if (!tokenizer_json.empty() && !(meaning.tokenizer_hash == hash)) {
    throw_error(Code::kInvalidArgument,
                "eval --data {}: it was built with another tokenizer than the model's; build it "
                "again with the model directory as --tokenizer",
                dataset.folder());
  }
  if (meaning.vocabulary_size > vocab_size) {
    throw_error(Code::kInvalidArgument,
                "eval --data {}: its vocabulary has {} tokens, the model's {}; build it with the "
                "model's tokenizer",
                dataset.folder(), meaning.vocabulary_size, vocab_size);
  }
}

void print_perplexity(const PerplexityRun& run, const char* kind, const std::string& path,
                      const Perplexity& p) {
  if (!run.flags.first) return;
  // Of no token there is no mean.
  const auto exact = [&](double x) { return p.tokens == 0 ? Json(nullptr) : Json(x); };
  const auto digits = [&](double x, int count) {
    return p.tokens == 0 ? std::string("N/A") : fmt::format("{:.{}f}", x, count);
  };
  if (run.flags.json) {
    fmt::print("{}\n", json_text({{kind, path},
                                  {"documents", p.documents},
                                  {"tokens", p.tokens},
                                  {"bytes", p.bytes},
                                  {"loss", exact(p.loss())},
                                  {"perplexity", exact(p.perplexity())},
                                  {"bits_per_byte", exact(p.bits_per_byte())},
                                  {"context", run.options.context},
                                  {"stride", run.options.stride},
                                  {"bos", run.begin.put}}));
  } else {
    fmt::print("{}={} tokens={} bytes={} loss={} perplexity={} bits_per_byte={} bos={}\n", kind,
               path, p.tokens, p.bytes, digits(p.loss(), 4), digits(p.perplexity(), 3),
               digits(p.bits_per_byte(), 4), run.begin.put ? "yes" : "no");
  }
}

void perplexity(const EvalFlags& f, const ModelDirectory& directory) {
  if (f.inputs.empty() && f.data.empty()) {
    throw_error(Code::kInvalidArgument,
                "--input is missing: wanted text files, or datasets with --data");
  }
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(directory.tokenizer_json());
  if (tokenizer == nullptr && !f.inputs.empty())
    throw_error(Code::kInvalidArgument, "the model has no tokenizer; text cannot be read");
  std::vector<std::unique_ptr<Dataset>> datasets;
  for (const std::string& folder : f.data) {
    datasets.push_back(std::make_unique<Dataset>(posix_file_system(), folder));
    check_meaning(*datasets.back(), directory.tokenizer_json(), directory.config().vocab_size);
  }
  PerplexityOptions options;
  options.context =
      f.context > 0 ? f.context : std::min(kContext, directory.config().max_positions);
  options.stride = f.stride > 0 ? f.stride : std::max<int64_t>(1, options.context / 2);
  if (options.stride > options.context)
    throw_error(Code::kInvalidArgument, "--stride {} is more than --context {}", options.stride,
                options.context);
  const TextBegin begin =
      find_text_begin(directory.config(), tokenizer.get(), parse_begin_choice(f.bos));
  const std::unique_ptr<LoadedModel> model = open_model(f, directory, kRowsAtOnce, options.context);
  const PerplexityRun run{f, *model, tokenizer.get(), begin, options};
  if (!f.inputs.empty()) {
    for (const std::string& path : expand_inputs(posix_file_system(), f.inputs))
      print_perplexity(run, "file", path, file_perplexity(run, path));
  }
  for (const std::unique_ptr<Dataset>& dataset : datasets)
    print_perplexity(run, "data", dataset->folder(), dataset_perplexity(run, *dataset));
}

// ------------------------------------------------------------------------------------- choice

std::vector<ChoiceQuestion> read_questions(const std::string& path) {
  TextInputOptions options;
  options.whole_lines = true;
  TextInput input(posix_file_system(), path, options);
  std::vector<ChoiceQuestion> questions;
  std::string line;
  while (input.next(&line)) questions.push_back(parse_choice_question(line, input.where()));
  if (questions.empty())
    throw_error(Code::kInvalidArgument, "read {}: no question in it, wanted one on each line",
                path);
  return questions;
}

void print_choice(const EvalFlags& f, const std::string& path, const ChoiceResult& result,
                  int64_t truncated, bool bos) {
  if (!f.first) return;
  const auto exact = [](double x) { return std::isnan(x) ? Json(nullptr) : Json(x); };
  if (f.json) {
    fmt::print("{}\n", json_text({{"file", path},
                                  {"questions", result.questions},
                                  {"acc", result.acc.mean},
                                  {"acc_stderr", exact(result.acc.stderr_of_mean)},
                                  {"acc_norm", result.acc_norm.mean},
                                  {"acc_norm_stderr", exact(result.acc_norm.stderr_of_mean)},
                                  {"truncated", truncated},
                                  {"delimiter", f.delimiter},
                                  {"bos", bos}}));
    return;
  }
  const auto digits = [](double x) {
    return std::isnan(x) ? std::string("N/A") : fmt::format("{:.4f}", x);
  };
  fmt::print(
      "file={} questions={} acc={} acc_stderr={} acc_norm={} acc_norm_stderr={} "
      "truncated={} bos={}\n",
      path, result.questions, digits(result.acc.mean), digits(result.acc.stderr_of_mean),
      digits(result.acc_norm.mean), digits(result.acc_norm.stderr_of_mean), truncated,
      bos ? "yes" : "no");
}

void choice(const EvalFlags& f, const ModelDirectory& directory) {
  if (f.inputs.empty())
    throw_error(Code::kInvalidArgument, "--input is missing: wanted .jsonl files of questions");
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(directory.tokenizer_json());
  if (tokenizer == nullptr)
    throw_error(Code::kInvalidArgument, "the model has no tokenizer; text cannot be read");
  const int64_t positions = directory.config().max_positions;
  const int64_t max_length = f.max_length > 0 ? f.max_length : positions;
  if (max_length > positions) {
    throw_error(Code::kInvalidArgument, "--max-length {}: the model was made for {} positions",
                max_length, positions);
  }
  // As the harness: one position is kept for a token that the server is asked to add.
  const EncodeRule rule{
      .tokenizer = tokenizer.get(),
      .begin = find_text_begin(directory.config(), tokenizer.get(), parse_begin_choice(f.bos)),
      .tokens_max = max_length - 1};
  std::vector<std::string> paths;
  std::vector<std::vector<ChoiceQuestion>> questions;
  std::vector<ChoiceRequests> requests;
  int64_t longest = 1;
  for (const std::string& path : expand_inputs(posix_file_system(), f.inputs)) {
    paths.push_back(path);
    questions.push_back(read_questions(path));
    requests.push_back(encode_questions(rule, questions.back(), f.delimiter));
    longest = std::max(longest, requests.back().tokens_max - 1);
    if (requests.back().truncated > 0 && f.first) {
      say("eval {}: {} of {} choices are longer than {} tokens and lose the beginning of their "
          "context, the first one at: {}\n",
          path, requests.back().truncated, requests.back().continuations.size(), rule.tokens_max,
          requests.back().first_truncated);
    }
  }
  const std::unique_ptr<LoadedModel> model = open_model(f, directory, kRowsAtOnce, longest);
  for (size_t i = 0; i < paths.size(); ++i) {
    std::vector<double> logprobs;
    {
      ProgressLine progress("eval " + paths[i], f.first);
      logprobs = score_continuations(
          {model->ctx(), model->model(), f.ranks}, requests[i].continuations,
          [&](int64_t done, int64_t total) { progress.update(done, total, "choices"); });
    }
    print_choice(f, paths[i], choose(questions[i], logprobs), requests[i].truncated,
                 rule.begin.put);
  }
}

// ------------------------------------------------------------------------------------ compare

// Both in this process: their weights are in memory together, or mapped.
void compare(const EvalFlags& f, const ModelDirectory& directory) {
  if (f.ranks != nullptr)
    throw_error(Code::kInvalidArgument, "eval compare: computes on one rank; leave --ranks out");
  if (f.reference_path.empty() || f.inputs.empty())
    throw_error(
        Code::kInvalidArgument,
        "eval compare: wanted --reference DIR, the model to compare with, and --input TEXT");
  const ModelDirectory reference = ModelDirectory::open(posix_file_system(), f.reference_path);
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(reference.tokenizer_json());
  if (tokenizer == nullptr)
    throw_error(Code::kInvalidArgument, "{} has no tokenizer; text cannot be read",
                f.reference_path);
  const int64_t positions =
      std::min(directory.config().max_positions, reference.config().max_positions);
  const int64_t context = f.context > 0 ? f.context : std::min(kContext, positions);
  const std::vector<std::vector<int32_t>> windows = read_windows(
      f.inputs,
      {.tokenizer = *tokenizer,
       .begin = find_text_begin(reference.config(), tokenizer.get(), parse_begin_choice(f.bos)),
       .context = context,
       .tokens_max = f.tokens_max,
       .input = f.input});
  const std::unique_ptr<LoadedModel> first = open_model(f, reference, kObservedRows, context),
                                     other = open_model(f, directory, kObservedRows, context);
  const Comparison result = compare_models(*first, *other, windows);
  fmt::print("{}", f.json ? json_text(comparison_json(result)) + "\n" : comparison_text(result));
  if (std::isnan(result.kl))
    throw_error(Code::kDiverged, "eval compare: {}; take another checkpoint", not_numbers(result));
}

// Every rank reads the same inputs, and computes its part of their windows.
void eval_on(Transport& transport, EvalFlags f, const ModelDirectory& directory) {
  Communicator ranks(transport, all_ranks(transport), 0, "windows", f.on_ranks.deadline_seconds);
  if (transport.size() > 1) f.ranks = &ranks;
  f.first = transport.rank() == 0;
  if (f.action == "choice") {
    choice(f, directory);
  } else if (f.action == "score") {
    score(f, directory);
  } else if (f.action == "compare") {
    compare(f, directory);
  } else {
    perplexity(f, directory);
  }
}

}  // namespace

void cmd_eval(const CommandLine& line) {
  EvalFlags f;
  Flags flags("eval",
              "perplexity: loss, perplexity and bits per byte of texts and datasets. choice: "
              "accuracy on multiple-choice questions. score: log-probability of each given token. "
              "compare: how far the predictions are from another model's.");
  flags
      .choice_positional("action", &f.action, {"perplexity", "choice", "score", "compare"},
                         "perplexity, choice, score or compare")
      .required("model", &f.model_path, "Checkpoint, run directory, or folder in a public layout.")
      .text("reference", &f.reference_path,
            "compare: the model whose predictions are taken as right, as --model.")
      .heeded_by("compare")
      .list("input", &f.inputs,
            "perplexity, compare: text files or folders (.txt .jsonl, each also .gz or .zst). "
            "choice: "
            ".jsonl of {\"context\", \"choices\", \"answer\"}, answer counted from 0.")
      .heeded_by("perplexity, compare, choice")
      .list("data", &f.data, "perplexity: datasets that data build made with this tokenizer.")
      .heeded_by("perplexity")
      .integer("context", &f.context,
               "perplexity, compare: positions of a window; 0: 512, or what the model has.", 0,
               1 << 24)
      .heeded_by("perplexity, compare")
      .integer("stride", &f.stride, "perplexity: new tokens of each window; 0: half the context.",
               0, 1 << 24)
      .heeded_by("perplexity")
      .text("field", &f.input.json_field,
            "perplexity, compare: field of .jsonl lines that holds the text.")
      .heeded_by("perplexity, compare")
      .choice(
          "bos", &f.bos, {"auto", "yes", "no"},
          "perplexity, compare, choice: put the token that begins a text in front; auto: if the "
          "tokenizer does.")
      .heeded_by("perplexity, compare, choice")
      .text("delimiter", &f.delimiter, "choice: text between context and choice.")
      .heeded_by("choice")
      .integer("max-length", &f.max_length,
               "choice: positions of context, choice and one token more; 0: as the model has.", 0,
               1 << 24)
      .heeded_by("choice")
      .integer("max-tokens", &f.tokens_max, "compare: tokens of the text; 0: all.", 0,
               int64_t{1} << 40)
      .heeded_by("compare")
      .text("tokens", &f.tokens, "score: token ids, \"1 2 3\".")
      .heeded_by("score")
      .text("text", &f.text, "score: text, instead of --tokens.")
      .heeded_by("score")
      .text("dtype", &f.load.dtype, "f32 or bf16; default: as the weights are stored.")
      .text("device", &f.load.device, gpu::kDeviceHelp)
      .integer("threads", &f.load.threads, "0: one per usable core.", 0, 1024)
      .flag("json", &f.json, "Print JSON.");
  declare_ranks_with_deadline(flags, "eval", &f.on_ranks);
  if (!flags.parse(line)) return;
  f.has_tokens = flags.given("tokens");
  if (f.has_tokens && flags.given("text"))
    throw_error(Code::kInvalidArgument, "--tokens and --text: wanted one of them");
  if (f.action == "score" && !f.has_tokens && !flags.given("text"))
    throw_error(Code::kInvalidArgument, "score: wanted --tokens \"1 2 3\" or --text TEXT");
  const ModelDirectory directory = ModelDirectory::open(posix_file_system(), f.model_path);
  on_ranks("eval", f.on_ranks, [&](Transport& transport) { eval_on(transport, f, directory); });
}

}  // namespace moraine
