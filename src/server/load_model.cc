// Load model: files, tokens that end an answer, template, engine.
#include "server/load_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "model/model_memory.h"
#include "model/parameters.h"
#include "server/answer.h"
#include "server/chat_prompt.h"
#include "server/engine_generator.h"
#include "server/tool_grammar.h"

namespace moraine {
namespace {

std::string last_part(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const std::string name = path.substr(path.rfind('/') + 1);
  return name.empty() || name == "." || name == ".." ? "model" : name;
}

// Two trainings may both have a step 1200: what the folder says of itself is in the name too.
std::string fingerprint_of(FileSystem& fs, const std::string& folder) {
  for (const char* name : {"manifest.json", "config.json"}) {
    const std::string path = join_path(folder, name);
    if (!fs.exists(path)) continue;
    const std::string text = fs.read(path);
    const std::string hash = hash_hex(hash_bytes(text.data(), static_cast<int64_t>(text.size())));
    return last_part(folder) + "-" + hash.substr(0, 8);
  }
  return last_part(folder);
}

std::unique_ptr<Tokenizer> load_tokenizer(FileSystem& fs, const ModelDirectory& directory,
                                          const std::string& path) {
  if (fs.exists(join_path(directory.path(), "tokenizer.json")))
    return Tokenizer::load(fs, directory.path());
  if (directory.tokenizer_json().empty())
    throw_error(Code::kInvalidArgument, "serve {}: the model has no tokenizer.json", path);
  return Tokenizer::parse(directory.tokenizer_json(), "tokenizer.json");
}

void add_end(int64_t id, const ModelConfig& config, std::vector<int32_t>* ids) {
  if (id < 0 || id >= config.vocab_size) return;
  const int32_t token = static_cast<int32_t>(id);
  if (std::find(ids->begin(), ids->end(), token) == ids->end()) ids->push_back(token);
}

// Public folders may name several ends: {"eos_token_id": [1, 106]}.
void add_generation_ends(FileSystem& fs, const std::string& folder, const ModelConfig& config,
                         std::vector<int32_t>* ids) {
  const std::string path = join_path(folder, "generation_config.json");
  if (!fs.exists(path)) return;
  const Json json = parse_json(fs.read(path), path);
  if (!json.is_object() || !json.contains("eos_token_id")) return;
  const Json& ends = json["eos_token_id"];
  for (const Json& end : ends.is_array() ? ends : Json::array({ends})) {
    if (end.is_number_integer()) add_end(end.get<int64_t>(), config, ids);
  }
}

void add_chat(FileSystem& fs, const ServeModelOptions& options, const std::string& folder,
              const ModelConfig& config, ServedModel* m) {
  try {
    m->chat = ChatTemplate::load(fs, folder, options.chat_template, *m->tokenizer);
  } catch (const Error& e) {
    if (!options.chat_template.empty()) throw;
    m->no_chat = e.what();
    log_event(Level::kWarning, "serve.no_chat", "why=\"{}\"", e.what());
    return;
  }
  m->tool_format = detect_tool_format(m->chat->source());
  const std::string& end = m->chat->end_of_turn();
  const int32_t token = m->tokenizer->id_of(end);
  if (token >= 0)
    add_end(token, config, &m->end_ids);
  else
    m->turn_end = end;
}

// Of the weights of all ranks of this host, if they are read, not mapped.
int64_t weight_bytes(const ModelDirectory& directory, const ServeModelOptions& o, DType compute) {
  if (directory.packed()) return 0;
  const ParameterTable table = build_parameters(directory.config());
  const int64_t ranks = o.ranks == nullptr ? 1 : o.ranks->size(),
                here = o.ranks == nullptr ? 1 : o.ranks->on_this_host();
  const int64_t experts = table.expert_count() / ranks * here;
  return read_model_bytes((table.total_count - table.expert_count()) * here + experts, compute);
}

// Pages of the cache: what was asked for, else full length for all sequences, within the memory.
int64_t pages_of(const ServeModelOptions& o, const ModelDirectory& directory, DType compute,
                 int64_t context) {
  const ModelConfig& config = directory.config();
  const int64_t members = o.ranks != nullptr && o.share_cache ? o.ranks->size() : 1;
  const int64_t page_rows = kPageRows * members, each = (context + page_rows - 1) / page_rows;
  const int64_t bytes = page_bytes(config, compute, page_rows, members);
  const int64_t here = o.ranks == nullptr ? 1 : o.ranks->on_this_host();
  const int64_t free = available_device_bytes(o.device),
                left = free - weight_bytes(directory, o, compute);
  const int64_t most = (left > 0 ? std::min(free / 4, left / 2) : free / 4) / here;
  const int64_t pages =
      o.cache_mib > 0 ? (o.cache_mib << 20) / bytes : std::min(each * o.sequences, most / bytes);
  if (pages < each)
    throw_error(Code::kInvalidArgument,
                "serve {}: the cache has {} pages of {} bytes, one request of {} positions needs "
                "{}; wanted a {}shorter --context{}",
                o.path, pages, bytes, context, each,
                o.cache_mib > 0 ? "larger --cache-mib or a " : "",
                o.cache_mib > 0 || directory.packed()
                    ? ""
                    : ", or a model that `moraine quantize` has packed, which is mapped");
  return pages;
}

// Alone, or each rank its part.
std::shared_ptr<Generator> make_generator(const ModelDirectory& directory,
                                          const ServeModelOptions& o, const VersionPlan& plan,
                                          std::shared_ptr<const Tokenizer> tokenizer) {
  EngineOptions engine{.sequences = o.sequences,
                       .interleave_rows = o.interleave_rows,
                       .tpot_seconds = o.tpot_seconds,
                       .waiting_requests = o.queue_requests,
                       .waiting_tokens = o.queue_tokens,
                       .waiting_seconds = o.queue_seconds,
                       .heard = o.heard};
  const auto log_memory = [](const LoadedModel& model) {
    const Arena& arena = model.arena();
    log_event(Level::kInfo, "serve.memory",
              "taken_bytes={} mapped_bytes={} device=\"{}\" device_bytes={}", arena.bytes(),
              arena.mapped_bytes(), model.device(), model.device_bytes());
  };
  if (o.ranks == nullptr || o.ranks->size() == 1) {
    LoadOptions load = load_options(plan, o.threads);
    load.head = o.head;
    std::unique_ptr<LoadedModel> model = LoadedModel::open(directory, load);
    log_memory(*model);
    return std::make_shared<EngineGenerator>(std::move(model), std::move(tokenizer), engine,
                                             o.failed);
  }
  std::shared_ptr<StepRanks> version = o.ranks->begin(plan);
  std::unique_ptr<LoadedModel> model = o.ranks->load(*version, [&](int64_t host_free) {
    const ModelRanks ranks = version->of_model(directory.config(), plan.share_cache);
    LoadOptions load = load_options(plan, o.ranks->threads(), {ranks, host_free});
    load.head = o.head;
    return LoadedModel::open(directory, load);
  });
  log_memory(*model);
  engine.ranks = &version->steps;
  return std::make_shared<EngineGenerator>(std::move(model), std::move(tokenizer), engine, o.failed,
                                           std::move(version));
}

}  // namespace

std::shared_ptr<const ServedModel> load_served_model(FileSystem& fs, const ServeModelOptions& o) {
  const ModelDirectory directory = ModelDirectory::open(fs, o.path);
  const ModelConfig& config = directory.config();
  auto m = std::make_shared<ServedModel>();
  m->id = o.name.empty() ? last_part(o.path) : o.name;
  m->fingerprint = fingerprint_of(fs, directory.path());
  m->created = static_cast<int64_t>(unix_seconds());
  m->context = o.context > 0 ? o.context : config.max_positions;
  m->tokenizer = load_tokenizer(fs, directory, o.path);
  m->special_texts = SpecialTexts(*m->tokenizer);
  add_end(config.eos_id, config, &m->end_ids);
  add_end(m->tokenizer->eos_id(), config, &m->end_ids);
  add_generation_ends(fs, directory.path(), config, &m->end_ids);
  const int64_t bos = config.bos_id >= 0 ? config.bos_id : m->tokenizer->bos_id();
  m->start_id = static_cast<int32_t>(bos >= 0 ? bos : m->end_ids.empty() ? -1 : m->end_ids.front());
  add_chat(fs, o, directory.path(), config, m.get());
  m->token_trie = tool_token_trie(*m->tokenizer, config.vocab_size, m->tool_format);
  const int64_t grammar_bytes = o.grammar_mib << 20;
  m->grammars = std::make_shared<GrammarCache>(
      GrammarCacheBytes{.grammars = grammar_bytes / 4, .masks = grammar_bytes - grammar_bytes / 4});
  const DType compute = o.dtype.empty()     ? directory.compute_dtype()
                        : o.dtype == "bf16" ? DType::kBF16
                                            : DType::kF32;
  const VersionPlan plan = {.path = directory.path(),
                            .dtype = o.dtype,
                            .device = o.device,
                            .rows = std::min(o.rows, o.sequences * m->context),
                            .positions = m->context,
                            .pages = pages_of(o, directory, compute, m->context),
                            .sequences = o.sequences,
                            .share_cache = o.share_cache,
                            .low_latency = o.low_latency,
                            .placement = o.placement};
  m->generator = make_generator(directory, o, plan, m->tokenizer);
  log_event(Level::kInfo, "serve.loaded",
            "model={} fingerprint={} pages={} context={} chat={} grammar_mib={}", m->id,
            m->fingerprint, plan.pages, m->context, m->chat == nullptr ? "none" : m->chat->name(),
            o.grammar_mib);
  return m;
}

}  // namespace moraine
