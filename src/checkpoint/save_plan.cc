// SavePlan: pieces of all ranks are sorted by name and row, then each must begin where the one
// before it ended.
#include "checkpoint/save_plan.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "checkpoint/message_text.h"
#include "checkpoint/safetensors/file.h"

namespace moraine {
namespace {

int64_t rows_of(const std::vector<int64_t>& shape) { return shape.empty() ? 1 : shape[0]; }

std::string hash_of_text(const std::string& text) {
  return hash_hex(hash_bytes(text.data(), static_cast<int64_t>(text.size())));
}

// A piece and where it came from.
struct Placed {
  const PlannedRows* piece = nullptr;
  int rank = 0;
  size_t index = 0;  // in the rank's list
};

std::vector<Placed> sorted_pieces(std::span<const SavePlan> plans) {
  std::vector<Placed> all;
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    for (size_t i = 0; i < plans[rank].pieces.size(); ++i) {
      all.push_back({&plans[rank].pieces[i], static_cast<int>(rank), i});
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Placed& a, const Placed& b) {
    if (a.piece->name != b.piece->name) return a.piece->name < b.piece->name;
    if (a.piece->row_begin != b.piece->row_begin) return a.piece->row_begin < b.piece->row_begin;
    return a.piece->row_end < b.piece->row_end;
  });
  return all;
}

// [begin, end) of the pieces of one tensor.
size_t end_of_tensor(std::span<const Placed> all, size_t begin) {
  size_t end = begin;
  while (end < all.size() && all[end].piece->name == all[begin].piece->name) ++end;
  return end;
}

void check_facts(std::span<const SavePlan> plans) {
  for (size_t rank = 1; rank < plans.size(); ++rank) {
    const std::vector<SharedFact>&mine = plans[rank].facts, &first = plans[0].facts;
    if (mine.size() != first.size()) {
      throw_error(Code::kPeerLost, "rank {} is another program than rank 0", rank);
    }
    for (size_t i = 0; i < first.size(); ++i) {
      if (mine[i].what == first[i].what && mine[i].value == first[i].value) continue;
      throw_error(Code::kPeerLost,
                  "rank {} saves with {} {}, rank 0 with {} {}: they are not one checkpoint", rank,
                  mine[i].what, mine[i].value, first[i].what, first[i].value);
    }
  }
}

void check_piece(const Placed& placed) {
  const PlannedRows& p = *placed.piece;
  int64_t count = 0;
  if (p.shape.size() > static_cast<size_t>(Tensor::kMaxRank) || !checked_count(p.shape, &count) ||
      p.row_begin < 0 || p.row_end < p.row_begin || p.row_end > rows_of(p.shape)) {
    throw_error(Code::kInvalidArgument, "rank {} passes rows [{}, {}) of '{}' {}", placed.rank,
                p.row_begin, p.row_end, p.name, shape_text(p.shape));
  }
}

void check_tiling(std::span<const Placed> pieces) {
  const PlannedRows& first = *pieces[0].piece;
  int64_t next = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const PlannedRows& p = *pieces[i].piece;
    if (p.dtype != first.dtype || p.shape != first.shape) {
      throw_error(Code::kInvalidArgument, "'{}' is {} {} on rank {}, {} {} on rank {}", p.name,
                  dtype_name(first.dtype), shape_text(first.shape), pieces[0].rank,
                  dtype_name(p.dtype), shape_text(p.shape), pieces[i].rank);
    }
    const bool again = p.row_begin < next || (i > 0 && rows_of(p.shape) == 0);
    if (again) {
      const int before = pieces[i - 1].rank, rank = pieces[i].rank;
      throw_error(Code::kInvalidArgument, "rows [{}, {}) of '{}' {} are passed {}", p.row_begin,
                  std::min(next, p.row_end), p.name, shape_text(p.shape),
                  before == rank ? fmt::format("twice by rank {}", rank)
                                 : fmt::format("by rank {} and rank {}", before, rank));
    }
    if (p.row_begin > next) break;
    next = p.row_end;
  }
  const auto above = std::find_if(pieces.begin(), pieces.end(),
                                  [&](const Placed& p) { return p.piece->row_begin > next; });
  const int64_t end = above == pieces.end() ? rows_of(first.shape) : above->piece->row_begin;
  if (next < end) {
    throw_error(Code::kInvalidArgument, "rows [{}, {}) of '{}' {} are passed by no rank", next, end,
                first.name, shape_text(first.shape));
  }
}

}  // namespace

std::vector<SharedFact> shared_facts(const CheckpointInfo& info,
                                     std::span<const CheckpointFile> files) {
  std::string values, carried;
  for (const auto& [key, value] : info.values) {
    values += fmt::format("{}:{}={}:{};", key.size(), key, value.size(), value);
  }
  for (const CheckpointFile& f : files) carried += f.name + "\n" + hash_of_text(f.content) + "\n";
  return {{"step", fmt::format("{}", info.step)},
          {"tokens seen", fmt::format("{}", info.tokens_seen)},
          {"seed", fmt::format("{}", info.seed)},
          {"a config of hash", hash_of_text(info.config)},
          {"values of hash", hash_of_text(values)},
          {"carried files of hash", hash_of_text(carried)}};
}

void check_plans(std::span<const SavePlan> plans) {
  check_facts(plans);
  const std::vector<Placed> all = sorted_pieces(plans);
  for (const Placed& placed : all) check_piece(placed);
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = end_of_tensor(all, begin);
    check_tiling(std::span(all).subspan(begin, end - begin));
    begin = end;
  }
}

Manifest assemble_manifest(const CheckpointInfo& info, std::span<const SavePlan> plans,
                           std::span<const DataFilesWritten> written) {
  Manifest manifest{.info = info, .files = {}, .data = {}, .tensors = {}};
  std::vector<int64_t> first_file;
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    first_file.push_back(static_cast<int64_t>(manifest.data.size()));
    const DataFilesWritten& w = written[rank];
    manifest.data.insert(manifest.data.end(), w.data.begin(), w.data.end());
    if (w.parts.size() != plans[rank].pieces.size()) {
      throw_error(Code::kPeerLost, "rank {} wrote {} pieces, it announced {}", rank, w.parts.size(),
                  plans[rank].pieces.size());
    }
  }
  const std::vector<Placed> all = sorted_pieces(plans);
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = end_of_tensor(all, begin);
    const PlannedRows& piece = *all[begin].piece;
    ManifestTensor tensor{piece.name, piece.dtype, piece.shape, {}};
    int64_t next = 0;
    for (const Placed& placed : std::span(all).subspan(begin, end - begin)) {
      const size_t rank = static_cast<size_t>(placed.rank);
      for (ManifestPart part : written[rank].parts[placed.index]) {
        if (part.row_begin != next || part.row_end < next || part.file < 0 ||
            part.file >= static_cast<int64_t>(written[rank].data.size())) {
          throw_error(Code::kPeerLost, "rank {} wrote rows [{}, {}) of '{}', row {} is next", rank,
                      part.row_begin, part.row_end, piece.name, next);
        }
        next = part.row_end;
        part.file += first_file[rank];
        tensor.parts.push_back(part);
      }
    }
    if (next != tensor.rows() || tensor.parts.empty()) {
      throw_error(Code::kPeerLost, "'{}' was written up to row {} of {}", piece.name, next,
                  tensor.rows());
    }
    manifest.tensors.push_back(std::move(tensor));
    begin = end;
  }
  return manifest;
}

std::string plan_text(const SavePlan& plan) {
  MessageWriter out;
  out.put(static_cast<int64_t>(plan.facts.size()));
  for (const SharedFact& fact : plan.facts) {
    out.put(fact.what);
    out.put(fact.value);
  }
  out.put(static_cast<int64_t>(plan.pieces.size()));
  for (const PlannedRows& p : plan.pieces) {
    out.put(p.name);
    out.put(dtype_name(p.dtype));
    out.put(static_cast<int64_t>(p.shape.size()));
    for (const int64_t extent : p.shape) out.put(extent);
    out.put(p.row_begin);
    out.put(p.row_end);
  }
  return out.take();
}

SavePlan parse_plan(std::string_view text) {
  MessageReader in(text);
  SavePlan plan;
  plan.facts.resize(static_cast<size_t>(in.count()));
  for (SharedFact& fact : plan.facts) {
    fact.what = in.string();
    fact.value = in.string();
  }
  plan.pieces.resize(static_cast<size_t>(in.count()));
  for (PlannedRows& p : plan.pieces) {
    p.name = in.string();
    const std::string type = in.string();
    if (!parse_dtype(type, &p.dtype)) {
      throw_error(Code::kPeerLost, "a message with the unknown type '{}'", type);
    }
    p.shape.resize(static_cast<size_t>(in.count()));
    for (int64_t& extent : p.shape) extent = in.number();
    p.row_begin = in.number();
    p.row_end = in.number();
  }
  in.end();
  return plan;
}

std::string written_text(const DataFilesWritten& written) {
  MessageWriter out;
  out.put(static_cast<int64_t>(written.data.size()));
  for (const ManifestData& d : written.data) {
    out.put(d.name);
    out.put(d.bytes);
    out.put(d.header);
  }
  out.put(static_cast<int64_t>(written.parts.size()));
  for (size_t i = 0; i < written.parts.size(); ++i) {
    out.put(written.hashes[i]);
    out.put(static_cast<int64_t>(written.parts[i].size()));
    for (const ManifestPart& part : written.parts[i]) {
      out.put(part.file);
      out.put(part.row_begin);
      out.put(part.row_end);
      out.put(part.hash);
    }
  }
  return out.take();
}

DataFilesWritten parse_written(std::string_view text) {
  MessageReader in(text);
  DataFilesWritten written;
  written.data.resize(static_cast<size_t>(in.count()));
  for (ManifestData& d : written.data) {
    d.name = in.string();
    d.bytes = in.number();
    d.header = in.hash();
  }
  written.parts.resize(static_cast<size_t>(in.count()));
  written.hashes.resize(written.parts.size());
  for (size_t i = 0; i < written.parts.size(); ++i) {
    written.hashes[i] = in.hash();
    written.parts[i].resize(static_cast<size_t>(in.count()));
    for (ManifestPart& part : written.parts[i]) {
      part.file = in.number();
      part.row_begin = in.number();
      part.row_end = in.number();
      part.hash = in.hash();
    }
  }
  in.end();
  return written;
}

std::vector<int> divide_by_bytes(std::span<const int64_t> bytes, int ranks) {
  MR_CHECK(ranks > 0, "ranks=%d", ranks);
  std::vector<size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
  std::vector<int64_t> taken(static_cast<size_t>(ranks), 0);
  std::vector<int> owner(bytes.size());
  for (const size_t i : order) {
    const auto least = std::min_element(taken.begin(), taken.end());
    *least += bytes[i] + 1;  // empty ones are spread as well
    owner[i] = static_cast<int>(least - taken.begin());
  }
  return owner;
}

}  // namespace moraine
