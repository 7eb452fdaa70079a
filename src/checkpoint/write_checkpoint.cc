// Writing a checkpoint: data files, carried files, manifest, then one rename that makes it count.
#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/content_hash.h"
#include "checkpoint/data_files.h"
#include "checkpoint/history.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors_set.h"

namespace moraine {
namespace {

std::vector<int64_t> shape_of(const Tensor& t) { return {t.dims, t.dims + t.rank}; }

std::vector<size_t> name_order(std::span<const CheckpointTensor> tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return tensors[a].name < tensors[b].name; });
  return order;
}

void check_request(const CheckpointInfo& info, std::span<const CheckpointTensor> tensors,
                   std::span<const CheckpointFile> files) {
  if (info.step < 0 || info.tokens_seen < 0) {
    throw_error(Code::kInvalidArgument, "step {} and tokens_seen {} must not be negative",
                info.step, info.tokens_seen);
  }
  std::set<std::string_view> names;
  for (const CheckpointTensor& t : tensors) {
    if (!names.insert(t.name).second) {
      throw_error(Code::kInvalidArgument, "tensor '{}' is given twice", t.name);
    }
  }
  names.clear();
  for (const CheckpointFile& file : files) {
    if (!is_plain_file_name(file.name) || file.name == kManifestName ||
        file.name.starts_with(kDataPrefix) || !names.insert(file.name).second) {
      throw_error(Code::kInvalidArgument, "file name '{}' is reserved, not plain or given twice",
                  file.name);
    }
  }
}

// Makes `root` so that a power cut can not take it away again.
void make_root(FileSystem& fs, const std::string& root) {
  std::vector<std::string> made;
  for (std::string at = root; !fs.exists(at); at = parent_path(at)) made.push_back(at);
  fs.make_directories(root);
  for (const std::string& path : made) fs.sync_directory(parent_path(path));
}

ManifestFile write_file(FileSystem& fs, const std::string& folder, const std::string& name,
                        const std::string& content) {
  const int64_t bytes = static_cast<int64_t>(content.size());
  const std::unique_ptr<WritableFile> file = fs.create(join_path(folder, name));
  file->append(content.data(), bytes);
  file->sync();
  file->close();
  return {name, bytes, hash_bytes(content.data(), bytes)};
}

CheckpointWritten write_partial(FileSystem& fs, const std::string& folder,
                                const CheckpointInfo& info,
                                std::span<const CheckpointTensor> tensors,
                                std::span<const CheckpointFile> files,
                                const CheckpointOptions& options) {
  fs.make_directories(folder);
  std::vector<TensorRows> rows;
  for (const CheckpointTensor& t : tensors) rows.push_back({t.name, t.tensor, 0});
  const DataFilesWritten written = write_data_files(fs, folder, 0, rows, options.max_file_bytes);

  Manifest manifest{.info = info, .files = {}, .data = written.data, .tensors = {}};
  for (const CheckpointFile& f : files) {
    manifest.files.push_back(write_file(fs, folder, f.name, f.content));
  }
  ContentHash hash;
  hash.add_step(info.step);
  for (const size_t i : name_order(tensors)) {
    const Tensor& t = tensors[i].tensor;
    manifest.tensors.push_back({tensors[i].name, t.dtype, shape_of(t), written.parts[i]});
    hash.add_tensor(tensors[i].name, dtype_name(t.dtype), shape_of(t), written.hashes[i]);
  }
  const std::string text = manifest_text(manifest);
  if (static_cast<int64_t>(text.size()) > kMaxManifestBytes) {
    throw_error(Code::kInvalidArgument, "manifest of {} bytes, the limit is {}", text.size(),
                kMaxManifestBytes);
  }
  CheckpointWritten result{.directory = "", .bytes = 0, .hash = hash.digest()};
  result.bytes = write_file(fs, folder, kManifestName, text).bytes;
  for (const ManifestData& d : manifest.data) result.bytes += d.bytes;
  for (const ManifestFile& f : manifest.files) result.bytes += f.bytes;
  fs.sync_directory(folder);
  return result;
}

// After an error: gives the disk back. If even that fails, the next save does it.
void drop_partial(FileSystem& fs, const std::string& folder) {
  try {
    fs.remove_all(folder);
  } catch (const Error&) {
  }
}

}  // namespace

CheckpointWritten write_checkpoint(FileSystem& fs, const std::string& root,
                                   const CheckpointInfo& info,
                                   std::span<const CheckpointTensor> tensors,
                                   std::span<const CheckpointFile> files,
                                   const CheckpointOptions& options) {
  const std::string partial = partial_path(root, info.step);
  try {
    check_request(info, tensors, files);
    make_root(fs, root);
    clear_rubble(fs, root);
    CheckpointWritten result = write_partial(fs, partial, info, tensors, files, options);
    commit_checkpoint(fs, root, info.step);
    result.directory = checkpoint_path(fs, root, info.step);
    return result;
  } catch (const Error& error) {
    drop_partial(fs, partial);
    throw_error(error.code(), "save checkpoint step-{} in {}: {}; the checkpoints before it stay",
                info.step, root, error.what());
  }
}

Hash128 checkpoint_hash(int64_t step, std::span<const CheckpointTensor> tensors) {
  ContentHash hash;
  hash.add_step(step);
  for (const size_t i : name_order(tensors)) {
    const Tensor& t = tensors[i].tensor;
    hash.add_tensor(tensors[i].name, dtype_name(t.dtype), shape_of(t),
                    hash_bytes(t.data, t.bytes()));
  }
  return hash.digest();
}

}  // namespace moraine
