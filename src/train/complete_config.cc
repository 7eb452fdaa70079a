// The data's manifest and the model's directory say the rest.
#include "train/complete_config.h"

#include <fmt/format.h>

#include "base/error.h"
#include "checkpoint/history.h"
#include "data/dataset.h"
#include "model/model_directory.h"
#include "train/config_difference.h"

namespace moraine {
namespace {

// [model] of a run that starts from a model is the model's own.
void adopt_model(FileSystem& fs, RunConfig& c) {
  ModelConfig given = c.model, unset;
  c.model = ModelDirectory::open(fs, c.train.init).config();
  const std::string difference =
      first_difference(print_fields(model_fields(c.model)), print_fields(model_fields(given)));
  if (difference.empty() || print_fields(model_fields(given)) == print_fields(model_fields(unset)))
    return;
  throw_error(Code::kInvalidArgument,
              "train.init = {}: {}; the shape comes with the model: leave [model] out",
              c.train.init, difference);
}

}  // namespace

bool adopt_own_model(FileSystem& fs, const std::string& out, RunConfig& c) {
  const std::vector<int64_t> steps = list_checkpoints(fs, out);
  const std::string saved = join_path(out, "config.toml");
  if (steps.empty() || !fs.exists(saved)) return false;
  RunConfig own;
  try {
    own = read_saved_config(fs.read(saved), saved);
  } catch (const Error&) {
    return false;  // it is written anew; the checkpoint has the config that counts
  }
  if (own.train.init != c.train.init) return false;  // check_same_run will say so
  c.model = own.model;
  if (c.data.tokenizer.empty() && fs.exists(join_path(out, "tokenizer.json")))
    c.data.tokenizer = out;
  return true;
}

void check_positions(const RunConfig& c) {
  const auto check = [&](const std::string& name, int64_t sequence) {
    if (sequence <= c.model.max_positions) return;
    throw_error(Code::kInvalidArgument,
                "{} = {}: the model is for documents of at most model.max_positions = {}{}; wanted "
                "shorter sequences or a larger max_positions",
                name, sequence, c.model.max_positions,
                c.train.init.empty() ? "" : fmt::format(" (of train.init = {})", c.train.init));
  };
  check("train.sequence", c.train.sequence);
  for (size_t i = 0; i < c.phases.size(); ++i)
    check(fmt::format("phase[{}].sequence", i), c.phases[i].sequence);
}

RunConfig complete_config(FileSystem& fs, RunConfig c, bool has_own_model) {
  if (!c.train.init.empty() && !has_own_model) adopt_model(fs, c);
  if (c.phases.front().train.empty()) return c;
  const TokenMeaning meaning = read_manifest(fs, c.phases.front().train.front().path).meaning;
  if (c.model.vocab_size == 0) c.model.vocab_size = meaning.vocabulary_size;
  if (c.model.vocab_size < meaning.vocabulary_size) {
    throw_error(Code::kInvalidArgument,
                "model.vocab_size = {}: the data has tokens up to {}; wanted at least {} (or 0: as "
                "the data)",
                c.model.vocab_size, meaning.vocabulary_size - 1, meaning.vocabulary_size);
  }
  if (c.model.eos_id < 0) c.model.eos_id = meaning.eos_id;
  check_model_config(c.model, "model");
  return c;
}

}  // namespace moraine
