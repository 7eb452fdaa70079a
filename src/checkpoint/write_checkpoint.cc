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
#include "checkpoint/partial_folder.h"

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
  check_checkpoint_request(info, files);
  std::set<std::string_view> names;
  for (const CheckpointTensor& t : tensors) {
    if (!names.insert(t.name).second) {
      throw_error(Code::kInvalidArgument, "tensor '{}' is given twice", t.name);
    }
  }
}

CheckpointWritten write_partial(FileSystem& fs, const std::string& folder,
                                const CheckpointInfo& info,
                                std::span<const CheckpointTensor> tensors,
                                std::span<const CheckpointFile> files,
                                const CheckpointOptions& options) {
  fs.make_directories(folder);
  std::vector<TensorRows> rows;
  for (const CheckpointTensor& t : tensors) rows.push_back({t.name, t.tensor, 0});
  const DataFilesWritten written = write_data_files(fs, folder, {}, rows, options.max_file_bytes);

  Manifest manifest{.info = info, .files = {}, .data = written.data, .tensors = {}};
  manifest.files = write_carried_files(fs, folder, files);
  ContentHash hash;
  hash.add_step(info.step);
  for (const size_t i : name_order(tensors)) {
    const Tensor& t = tensors[i].tensor;
    manifest.tensors.push_back({tensors[i].name, t.dtype, shape_of(t), written.parts[i]});
    hash.add_tensor(tensors[i].name, dtype_name(t.dtype), shape_of(t), written.hashes[i]);
  }
  return {.directory = "", .bytes = write_manifest(fs, folder, manifest), .hash = hash.digest()};
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
    make_durable_folder(fs, root);
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

}  // namespace moraine
