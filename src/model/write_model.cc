// Tensors that are made while a checkpoint is written; the checkpoint is then renamed to what was asked for.
#include "model/write_model.h"

#include <fmt/format.h>

#include <cstring>

#include "base/error.h"
#include "base/file_lock.h"
#include "base/saturate.h"
#include "model/model_directory.h"  // kWeightPrefix

namespace moraine {
namespace {

// Of headers and manifest: about 300 bytes for a tensor, and some.
constexpr int64_t kBytesPerTensor = 1024, kBytesBeside = int64_t{1} << 20;

// What to remove: what a killed write of the same model has left, if anything.
std::string room_to_make(FileSystem& fs, const std::string& directory) {
  for (const char* end : {".partial", ".unchecked.partial"})
    if (fs.exists(directory + end)) return fmt::format("remove {}{}", directory, end);
  return "make room";
}

// Of what is no folder, also behind a link.
const char* name_of_kind(FileSystem& fs, const std::string& path) {
  switch (fs.kind(path)) {
    case FileKind::kLink:
      return fs.exists(path) ? "a link to what is no folder" : "a link to nothing";
    case FileKind::kPipe:
      return "a pipe";
    case FileKind::kSocket:
      return "a socket";
    case FileKind::kDevice:
      return "a device";
    default:
      return "a file";
  }
}

}  // namespace

void check_partial(FileSystem& fs, const std::string& directory) {
  const std::string root = directory + ".partial";
  if (fs.is_directory(root) || fs.kind(root) == FileKind::kNothing) return;
  throw_error(
      Code::kInvalidArgument,
      "write model {}: it is written to {} first, which is {}; wanted a folder, or nothing: "
      "remove it or choose another name",
      directory, root, name_of_kind(fs, root));
}

void check_room(FileSystem& fs, const std::string& directory, const DirectoryContent& content) {
  int64_t wanted = kBytesBeside;
  for (const CheckpointTensor& t : content.tensors)
    wanted = add_saturated(wanted, t.tensor.bytes() + kBytesPerTensor);
  for (const CheckpointFile& file : content.files)
    wanted = add_saturated(wanted, static_cast<int64_t>(file.content.size()));
  std::string at = parent_path(directory);
  while (!fs.exists(at)) at = parent_path(at);
  const int64_t free = fs.free_bytes(at);
  if (free >= wanted) return;
  throw_error(Code::kIo,
              "write model {}: it takes {} bytes, the disk has {}; {}, or choose another disk",
              directory, wanted, free, room_to_make(fs, directory));
}

namespace {

// One parameter, in the stored type.
TensorBytes stored_bytes(const ModelToWrite& model, const Parameter& p, DType dtype) {
  return [&model, begin = p.offset, dtype](int64_t offset, int64_t bytes, void* out) {
    const int64_t width = dtype_bytes(dtype), count = bytes / width;
    MR_CHECK(offset % width == 0 && bytes % width == 0, "[%ld, +%ld)", long(offset), long(bytes));
    if (dtype == DType::kF32)
      return model.weights(begin + offset / width, make_tensor(out, dtype, {count}));
    std::vector<float> wide(static_cast<size_t>(count));
    model.weights(begin + offset / width, make_tensor(wide.data(), DType::kF32, {count}));
    for (int64_t i = 0; i < count; ++i)
      static_cast<BF16*>(out)[i] = to_bf16(wide[static_cast<size_t>(i)]);
  };
}

}  // namespace

void count_progress(DirectoryContent& content,
                    const std::function<void(int64_t done, int64_t total)>& progress) {
  if (!progress) return;
  int64_t total = 0;
  for (const CheckpointTensor& t : content.tensors) total += t.tensor.bytes();
  const auto done = std::make_shared<int64_t>(0);
  for (CheckpointTensor& t : content.tensors) {
    t.fill = [=, &progress, fill = std::move(t.fill)](int64_t offset, int64_t bytes, void* out) {
      fill(offset, bytes, out);
      *done += bytes;
      progress(*done, total);
    };
  }
}

std::string directory_to_make(std::string name) {
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  if (name.empty())
    throw_error(Code::kInvalidArgument,
                "write model: the name of its directory is empty; give one");
  return name;
}

void write_directory(FileSystem& fs, const std::string& name, const DirectoryContent& content) {
  const std::string directory = directory_to_make(name);
  if (fs.kind(directory) != FileKind::kNothing)
    throw_error(Code::kInvalidArgument,
                "write model {}: it exists already; remove it or choose another name", directory);
  check_partial(fs, directory);
  check_room(fs, directory, content);
  // A checkpoint is written under its step's name; a model directory has its own.
  const std::string root = directory + ".partial";
  fs.make_durable_directories(root);
  const std::unique_ptr<FileLock> lock = FileLock::take(root, "write model " + directory);
  for (const std::string& name : fs.list(root)) {  // what a killed one leaves
    if (name.starts_with("step-") || name == kLockName) continue;
    throw_error(Code::kInvalidArgument,
                "write model {}: {} holds {}, which is none of ours; remove it or choose another "
                "name",
                directory, root, name);
  }
  try {
    const CheckpointWritten written = write_checkpoint(fs, root,
                                                       {.info = content.info,
                                                        .tensors = content.tensors,
                                                        .files = content.files,
                                                        .options = content.options});
    fs.rename(written.directory, directory);
  } catch (const Error&) {
    fs.remove_all(root);
    throw;
  }
  fs.sync_directory(parent_path(directory));
  fs.remove_all(root);
}

void write_model_directory(FileSystem& fs, const std::string& directory,
                           const ModelToWrite& model) {
  ModelConfig printed = model.config;
  DirectoryContent content{.info = {}, .tensors = {}, .files = model.language_files, .options = {}};
  content.info.seed = model.seed;
  content.info.config = "[model]\n" + print_fields(model_fields(printed));
  const ParameterTable table = build_parameters(model.config);
  for (const Parameter& p : table.all) {
    Tensor t = view(p, make_tensor(nullptr, DType::kF32, {table.total_count}));
    if (p.kind != Parameter::Kind::kBalance) t.dtype = model.dtype;
    content.tensors.push_back({kWeightPrefix + p.name, t, stored_bytes(model, p, t.dtype)});
  }
  count_progress(content, model.progress);
  write_directory(fs, directory, content);
}

WeightSource weights_in(const Tensor& master) {
  return [from = master.as<float>()](int64_t begin, const Tensor& out) {
    std::memcpy(out.data, from + begin, static_cast<size_t>(out.bytes()));
  };
}

}  // namespace moraine
