// A checkpoint or another folder, renamed to what was asked for.
#include "model/model_place.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/saturate.h"

namespace moraine {
namespace {

// Of headers and manifest: about 300 bytes for a tensor, and some.
constexpr int64_t kBytesPerTensor = 1024, kBytesBeside = int64_t{1} << 20;
constexpr const char* kMade = "made";  // what `fill` fills, in `<directory>.partial`

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

void check_partial(FileSystem& fs, const std::string& directory) {
  const std::string root = directory + ".partial";
  if (fs.is_directory(root) || fs.kind(root) == FileKind::kNothing) return;
  throw_error(
      Code::kInvalidArgument,
      "write model {}: it is written to {} first, which is {}; wanted a folder, or nothing: "
      "remove it or choose another name",
      directory, root, name_of_kind(fs, root));
}

// What a killed one has left.
void clear(FileSystem& fs, const std::string& directory, const std::string& root) {
  const auto is_ours = [](const std::string& name) {
    return name.starts_with("step-") || name == kMade || name == kLockName;
  };
  for (const std::string& name : fs.list(root)) {
    if (is_ours(name)) continue;
    throw_error(Code::kInvalidArgument,
                "write model {}: {} holds {}, which is none of ours; remove it or choose another "
                "name",
                directory, root, name);
  }
  for (const std::string& name : fs.list(root)) {
    if (name != kLockName) fs.remove_all(join_path(root, name));
  }
}

}  // namespace

ModelPlace::ModelPlace(FileSystem& fs, const std::string& name)
    : fs_(fs), directory_(directory_to_make(name)), root_(directory_ + ".partial") {
  const FileKind kind = fs.kind(directory_);
  if (kind != FileKind::kNothing && !(kind == FileKind::kFolder && fs.list(directory_).empty()))
    throw_error(Code::kInvalidArgument,
                "write model {}: it exists already; remove it or choose another name", directory_);
  check_partial(fs, directory_);
  fs.make_durable_directories(root_);
  lock_ = FileLock::take(root_, "write model " + directory_);
  clear(fs, directory_, root_);
}

ModelPlace::~ModelPlace() {
  try {
    fs_.remove_all(root_);
  } catch (const Error&) {  // the next one will
  }
}

void ModelPlace::write(const DirectoryContent& content) {
  CheckpointOptions options = content.options;
  options.alone = true;
  // A checkpoint is written under its step's name; a model directory has its own.
  const CheckpointWritten written = write_checkpoint(fs_, root_,
                                                     {.info = content.info,
                                                      .tensors = content.tensors,
                                                      .files = content.files,
                                                      .options = options});
  put_in_place(written.directory);
}

void ModelPlace::write(const std::function<void(const std::string& folder)>& fill) {
  const std::string made = join_path(root_, kMade);
  fs_.make_directories(made);
  fill(made);
  fs_.sync_directory(made);
  put_in_place(made);
}

void ModelPlace::put_in_place(const std::string& made) {
  fs_.rename(made, directory_);
  fs_.sync_directory(parent_path(directory_));
}

std::string directory_to_make(std::string name) {
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  if (name.empty())
    throw_error(Code::kInvalidArgument,
                "write model: the name of its directory is empty; give one");
  return name;
}

void check_room(FileSystem& fs, const std::string& directory, const DirectoryContent& content) {
  int64_t wanted = kBytesBeside;
  for (const CheckpointTensor& t : content.tensors)
    wanted = add_saturated(wanted, t.tensor.bytes() + kBytesPerTensor);
  for (const CheckpointFile& file : content.files)
    wanted = add_saturated(wanted, static_cast<int64_t>(file.content.size()));
  check_room(fs, directory, wanted);
}

void check_room(FileSystem& fs, const std::string& directory, int64_t wanted) {
  std::string at = parent_path(directory);
  while (!fs.exists(at)) at = parent_path(at);
  const int64_t free = fs.free_bytes(at);
  if (free >= wanted) return;
  throw_error(Code::kIo,
              "write model {}: it takes {} bytes, the disk has {}; {}, or choose another disk",
              directory, wanted, free, room_to_make(fs, directory));
}

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

void write_directory(FileSystem& fs, const std::string& name, const DirectoryContent& content) {
  const std::string directory = directory_to_make(name);
  check_room(fs, directory, content);
  ModelPlace(fs, directory).write(content);
}

}  // namespace moraine
