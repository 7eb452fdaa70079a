// VerifyFiles: size, header, then the bytes of each part.
#include "checkpoint/verify_files.h"

#include "base/error.h"
#include "checkpoint/file_bytes.h"
#include "checkpoint/safetensors/file.h"
#include "checkpoint/safetensors/set.h"

namespace moraine {
namespace {

struct OwnPart {
  const ManifestTensor* tensor = nullptr;
  const ManifestPart* part = nullptr;
};

void check_size(FileSystem& fs, const std::string& path, const std::string& name, int64_t wanted) {
  if (!fs.exists(path)) throw_error(Code::kNotFound, "{}: there is no such file", name);
  const int64_t found = fs.file_bytes(path);
  if (found == wanted) return;
  throw_error(Code::kCorrupt, "{} has {} bytes, the manifest says {}", name, found, wanted);
}

void check_part(const SafetensorsFile& file, const std::string& name, const OwnPart& own,
                bool verify_bytes) {
  const ManifestTensor& t = *own.tensor;
  const SafetensorsEntry* entry = file.find(t.name);
  if (entry == nullptr || entry->type != safetensors_type(t.dtype) ||
      entry->shape != t.part_shape(*own.part)) {
    throw_error(Code::kCorrupt, "{}: it does not hold rows [{}, {}) of tensor '{}', {} {}", name,
                own.part->row_begin, own.part->row_end, t.name, dtype_name(t.dtype),
                shape_text(t.shape));
  }
  if (!verify_bytes) return;
  Hasher hasher;
  add_file_bytes(file.mapping(), entry->offset, entry->bytes, &hasher);
  if (hasher.digest() == own.part->hash) return;
  throw_error(Code::kCorrupt, "{}: tensor '{}', rows [{}, {}), bytes [{}, {}): wrong checksum",
              name, t.name, own.part->row_begin, own.part->row_end, entry->offset,
              entry->offset + entry->bytes);
}

void check_data(FileSystem& fs, const std::string& path, const ManifestData& data,
                const std::vector<OwnPart>& parts, bool verify_bytes) {
  check_size(fs, path, data.name, data.bytes);
  const SafetensorsFile file = SafetensorsFile::open(fs, path);
  if (file.header_hash() != data.header) {
    throw_error(Code::kCorrupt, "{}: the checksum of its header is wrong", data.name);
  }
  for (const OwnPart& part : parts) check_part(file, data.name, part, verify_bytes);
  if (file.entries().size() == parts.size()) return;
  throw_error(Code::kCorrupt, "{} holds {} tensors, the manifest says {}", data.name,
              file.entries().size(), parts.size());
}

void check_carried(FileSystem& fs, const std::string& path, const ManifestFile& file,
                   bool verify_bytes) {
  check_size(fs, path, file.name, file.bytes);
  if (!verify_bytes) return;
  const std::string content = fs.read(path);
  if (hash_bytes(content.data(), static_cast<int64_t>(content.size())) == file.hash) return;
  throw_error(Code::kCorrupt, "{}: its checksum is wrong", file.name);
}

template <class Action>
std::string problem_of(const std::string& name, const Action& action) {
  try {
    action();
    return "";
  } catch (const Error& error) {
    const std::string what = error.what();
    return what.starts_with(name) ? what : name + ": " + what;
  }
}

}  // namespace

std::vector<FileState> verify_files(FileSystem& fs, const std::string& directory,
                                    const Manifest& manifest, bool verify_bytes) {
  std::vector<std::vector<OwnPart>> parts(manifest.data.size());
  for (const ManifestTensor& t : manifest.tensors) {
    for (const ManifestPart& p : t.parts) parts[static_cast<size_t>(p.file)].push_back({&t, &p});
  }
  std::vector<FileState> states;
  for (size_t i = 0; i < manifest.data.size(); ++i) {
    const ManifestData& data = manifest.data[i];
    states.push_back(
        {data.name, data.bytes, static_cast<int64_t>(parts[i].size()), problem_of(data.name, [&] {
           check_data(fs, join_path(directory, data.name), data, parts[i], verify_bytes);
         })});
  }
  for (const ManifestFile& file : manifest.files) {
    states.push_back({file.name, file.bytes, 0, problem_of(file.name, [&] {
                        check_carried(fs, join_path(directory, file.name), file, verify_bytes);
                      })});
  }
  return states;
}

}  // namespace moraine
