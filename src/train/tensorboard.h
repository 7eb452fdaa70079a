// Tensorboard: scalars of a run as event files that TensorBoard opens.
//
// A file is a sequence of TFRecords (length, its checksum, data, its checksum; CRC32C, masked); the
// data of each is an Event protocol buffer: first the file version, then one event per step with
// all its scalars. A resumed run starts a new file with a session start at its first step, on which
// TensorBoard forgets what older files say of that step and later ones.
//
// Errors:   kIo from the disk.
// Threads:  one at a time.
// Source:   TensorFlow's event.proto, summary.proto, record_writer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/file_system.h"
#include "train/metrics.h"

namespace moraine {

struct Scalar {
  std::string tag;  // "train/loss"
  double value;
};

class EventWriter {
 public:
  // Starts a file in `folder` (made if absent). wall_seconds: time since 1970, names the file and
  // orders it.
  EventWriter(FileSystem& fs, const std::string& folder, int64_t resumed_step, double wall_seconds);

  // After one that can not be written (events.failed is logged) nothing is written any more.
  void write(int64_t step, double wall_seconds, std::span<const Scalar> scalars);
  void write(const StepMetrics& metrics, double wall_seconds);  // the known numbers
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::unique_ptr<WritableFile> file_;  // null: given up
};

uint32_t crc32c(const void* data, int64_t bytes);  // Castagnoli, as in RFC 3720

}  // namespace moraine
