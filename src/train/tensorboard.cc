// Protocol buffers by hand: three messages, five field types.
#include "train/tensorboard.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"

namespace moraine {
namespace {

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = make_crc_table();

template <class T>
void append_little_endian(std::string* out, T value) {
  for (size_t i = 0; i < sizeof value; ++i)
    out->push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

// A checksum of data that holds checksums would be weak, hence the mask.
uint32_t masked_crc(const std::string& data) {
  const uint32_t crc = crc32c(data.data(), static_cast<int64_t>(data.size()));
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

std::string record(const std::string& data) {
  std::string out;
  append_little_endian(&out, static_cast<uint64_t>(data.size()));
  append_little_endian(&out, masked_crc(out));
  out += data;
  append_little_endian(&out, masked_crc(data));
  return out;
}

// One message under construction.
struct Message {
  std::string bytes;

  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
    bytes.push_back(static_cast<char>(value));
  }
  void key(int field, int wire) { varint(static_cast<uint64_t>(field << 3 | wire)); }
  void add_integer(int field, int64_t value) {
    key(field, 0);
    varint(static_cast<uint64_t>(value));
  }
  void add_double(int field, double value) {
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    key(field, 1);
    append_little_endian(&bytes, bits);
  }
  void add_bytes(int field, const std::string& value) {
    key(field, 2);
    varint(value.size());
    bytes += value;
  }
  void add_float(int field, float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    key(field, 5);
    append_little_endian(&bytes, bits);
  }
};

// Field numbers of event.proto and summary.proto.
constexpr int kEventWallTime = 1, kEventStep = 2, kEventFileVersion = 3, kEventSummary = 5,
              kEventSessionLog = 7;
constexpr int kSummaryValue = 1, kValueTag = 1, kValueSimple = 2;
constexpr int kSessionStatus = 1, kSessionStart = 1;

void append(WritableFile& file, const Message& event) {
  const std::string bytes = record(event.bytes);
  file.append(bytes.data(), static_cast<int64_t>(bytes.size()));
}

}  // namespace

uint32_t crc32c(const void* data, int64_t bytes) {
  const uint8_t* p = static_cast<const uint8_t*>(data);
  uint32_t crc = ~0u;
  for (int64_t i = 0; i < bytes; ++i) crc = kCrcTable[(crc ^ p[i]) & 0xff] ^ crc >> 8;
  return ~crc;
}

EventWriter::EventWriter(FileSystem& fs, const std::string& folder, int64_t resumed_step,
                         double wall_seconds) {
  MR_CHECK(resumed_step >= 0, "resumed_step=%ld", long(resumed_step));
  fs.make_directories(folder);
  // TensorBoard reads files in the order of their names: never reuse a second.
  int64_t second = static_cast<int64_t>(wall_seconds);
  do {
    path_ = join_path(folder, fmt::format("events.out.tfevents.{:010}.moraine", second++));
  } while (fs.exists(path_));
  file_ = fs.create(path_);

  Message version;
  version.add_double(kEventWallTime, wall_seconds);
  version.add_bytes(kEventFileVersion, "brain.Event:2");
  append(*file_, version);

  if (resumed_step == 0) return;
  Message start, session;
  session.add_integer(kSessionStatus, kSessionStart);
  start.add_double(kEventWallTime, wall_seconds);
  start.add_integer(kEventStep, resumed_step + 1);
  start.add_bytes(kEventSessionLog, session.bytes);
  append(*file_, start);
}

void EventWriter::write(int64_t step, double wall_seconds, std::span<const Scalar> scalars) {
  Message event, summary;
  for (const Scalar& scalar : scalars) {
    Message value;
    value.add_bytes(kValueTag, scalar.tag);
    value.add_float(kValueSimple, static_cast<float>(scalar.value));
    summary.add_bytes(kSummaryValue, value.bytes);
  }
  event.add_double(kEventWallTime, wall_seconds);
  event.add_integer(kEventStep, step);
  event.add_bytes(kEventSummary, summary.bytes);
  if (file_ == nullptr) return;
  try {
    append(*file_, event);
  } catch (const Error& e) {
    // Readers stop at a record that is cut: nothing after it would be seen.
    file_.reset();
    log_event(Level::kWarning, "events.failed",
              "code={} reason=\"{}\" remedy=\"training goes on, metrics.jsonl has the numbers\"",
              code_name(e.code()), e.what());
  }
}

void EventWriter::write(const StepMetrics& m, double wall_seconds) {
  std::vector<Scalar> scalars = {
      {"train/loss", m.loss},
      {"train/gradient_norm", m.gradient_norm},
      {"train/lr", m.lr},
      {"train/tokens_seen", static_cast<double>(m.tokens_seen)},
      {"valid/loss", m.valid_loss},
      {"valid/bits_per_byte", m.bits_per_byte},
      {"speed/tokens_per_s", m.tokens_per_s},
      {"speed/percent_of_peak", m.percent_of_peak},
      {"speed/step_seconds", m.seconds},
      {"experts/load_max_over_mean", m.load_max_over_mean},
      {"experts/load_entropy", m.load_entropy},
      {"experts/skip_rate", m.skip_rate},
      {"experts/rank_load_over_mean", m.rank_load_over_mean},
      {"experts/home_load_over_mean", m.home_load_over_mean},
  };
  if (!std::isnan(m.load_max_over_mean))
    scalars.push_back({"experts/dead", static_cast<double>(m.dead_experts)});
  // A loss that is NaN is news: TensorBoard marks it.
  std::erase_if(scalars,
                [](const Scalar& s) { return std::isnan(s.value) && s.tag != "train/loss"; });
  write(m.step, wall_seconds, scalars);
}

}  // namespace moraine
