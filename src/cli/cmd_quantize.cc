// `moraine quantize`: a model packed for serving, in a file that is mapped.
#include "base/error.h"
#include "base/pool.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/progress.h"
#include "model/model_directory.h"
#include "model/write_packed.h"
#include "tensor/arena.h"

namespace moraine {

void cmd_quantize(const CommandLine& line) {
  std::string from, out, type;
  int64_t threads = 0;
  Flags flags("quantize",
              "Pack a model for generate, chat, eval and serve: it is mapped when it is used, not "
              "read. The model is never held in memory.");
  flags.required("model", &from, "Checkpoint, run directory, or folder in a public layout.")
      .required("out", &out, "Directory to make.")
      .choice("type", &type, {"bf16"},
              "Of the packs. bf16: the answers of the model with --dtype bf16, to the bit.")
      .integer("threads", &threads, "0: one per usable core.", 0, 1024);
  type = "bf16";
  if (!flags.parse(line)) return;
  FileSystem& fs = posix_file_system();
  const ModelDirectory directory = ModelDirectory::open(fs, from, ModelDirectory::Verify::kAsRead);
  directory.check_weights();
  const ModelConfig& config = directory.config();
  const ParameterTable table = build_parameters(config);
  Pool pool(threads > 0 ? static_cast<int>(threads) : usable_cores());
  Arena arena(Arena::Mode::kReal);
  Context ctx = make_context(Backend::kCpu, pool, arena);
  ProgressLine progress("quantize");
  write_packed_model(
      ctx, fs, out,
      {.config = config,
       .weights = [&](int64_t begin, const Tensor& t) { directory.read_elements(table, begin, t); },
       .type = *find_pack_type(type),
       .step = directory.step(),
       .language_files = directory.language_files(),
       .progress = [&](int64_t done, int64_t total) { progress.update(done, total, "B"); }});
  fmt::print("model={} type={} parameters={}\n", out, type, table.total_count);
}

}  // namespace moraine
