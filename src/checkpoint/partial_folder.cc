// PartialFolder: each file is synced before the manifest that names it.
#include "checkpoint/partial_folder.h"

#include <set>

#include "base/error.h"
#include "checkpoint/safetensors/set.h"

namespace moraine {
namespace {

ManifestFile write_file(FileSystem& fs, const std::string& folder, const std::string& name,
                        const std::string& content) {
  const int64_t bytes = static_cast<int64_t>(content.size());
  const std::unique_ptr<WritableFile> file = fs.create(join_path(folder, name));
  file->append(content.data(), bytes);
  file->sync();
  file->close();
  return {name, bytes, hash_bytes(content.data(), bytes)};
}

}  // namespace

void check_checkpoint_request(const CheckpointInfo& info, std::span<const CheckpointFile> files) {
  if (info.step < 0 || info.tokens_seen < 0) {
    throw_error(Code::kInvalidArgument, "step {} and tokens_seen {} must not be negative",
                info.step, info.tokens_seen);
  }
  std::set<std::string_view> names;
  for (const CheckpointFile& file : files) {
    if (!is_plain_file_name(file.name) || file.name == kManifestName ||
        file.name.starts_with(kDataPrefix) || !names.insert(file.name).second) {
      throw_error(Code::kInvalidArgument, "file name '{}' is reserved, not plain or given twice",
                  file.name);
    }
  }
}

std::vector<ManifestFile> write_carried_files(FileSystem& fs, const std::string& folder,
                                              std::span<const CheckpointFile> files) {
  std::vector<ManifestFile> written;
  for (const CheckpointFile& f : files) {
    written.push_back(write_file(fs, folder, f.name, f.content));
  }
  return written;
}

int64_t write_manifest(FileSystem& fs, const std::string& folder, const Manifest& manifest) {
  const std::string text = manifest_text(manifest);
  if (static_cast<int64_t>(text.size()) > kMaxManifestBytes) {
    throw_error(Code::kInvalidArgument, "manifest of {} bytes, the limit is {}", text.size(),
                kMaxManifestBytes);
  }
  int64_t bytes = write_file(fs, folder, kManifestName, text).bytes;
  for (const ManifestData& d : manifest.data) bytes += d.bytes;
  for (const ManifestFile& f : manifest.files) bytes += f.bytes;
  fs.sync_directory(folder);
  return bytes;
}

void drop_partial(FileSystem& fs, const std::string& folder) {
  try {
    fs.remove_all(folder);
  } catch (const Error&) {
  }
}

}  // namespace moraine
