// BuildDataset: turn text files into a dataset of token shards.
//
// Documents are numbered in the order of the inputs. With valid_fraction = 0 the dataset is `out`
// itself; else document i goes to `out`/valid if random_uniform(seed, kDataSplit, 0, i) <
// valid_fraction, else to `out`/train. Each document is its tokens, then the end id if there is
// one. Empty documents are dropped.
//
// With `encode_line` a document is a whole line of .jsonl, and the shards mark which of its tokens are targets (a
// conversation: what the assistant says). The end id is put behind a document that does not end with it, as no target.
// Documents without any target are dropped.
//
// A dataset that is replaced stays whole until the new one is: new shards and a new template take
// other names, the manifest's rename is the change, and the former files go last. Of a split both halves are
// complete before the first is changed.
//
// Order:  the files depend on inputs and options only, not on the thread count; the names of shards
//         also on which are there.
// Errors: those of text_input.h; kInvalidArgument: `out` holds a dataset already (and not
//         overwrite), no documents at all or none in one half of the split, a token outside the
//         vocabulary; kIo. The manifests are written last: after an error the folder holds the
//         dataset that it held before, if any; what a killed build leaves, the next one clears.
// Cost:   tokenisation runs on all threads of the pool, reading and writing on the caller; memory
//         is a batch of documents (16 MiB of text or one document) with its tokens. A dataset
//         that is replaced takes its room on the disk until the end.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/pool.h"
#include "data/dataset.h"
#include "data/text_input.h"

namespace moraine {

// Replaces *tokens by the tokens of a text, without special ones. Called from many threads; may
// throw.
using Encoder = std::function<void(std::string_view text, std::vector<int32_t>* tokens)>;

struct EncodedLine {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> is_target;  // as long as tokens; not 0: a target
  int64_t source_bytes = 0;        // of the text behind the tokens
};

// What one line of .jsonl is as tokens. Called from many threads; may throw: file and line are put in front of an
// Error's message.
using LineEncoder = std::function<void(std::string_view line, EncodedLine* encoded)>;

struct BuildProgress {
  int64_t bytes_done = 0, bytes_total = 0;  // of the input files, as they lie on disk
  int64_t documents = 0, tokens = 0;
};

struct BuildOptions {
  // Files, or folders (all inputs below, by name); no file twice.
  std::vector<std::string> inputs = {};
  std::string out = {};  // folder
  TextInputOptions text = {};
  TokenMeaning meaning = {};  // of the tokenizer behind `encode`
  Encoder encode = {};        // this, or
  LineEncoder encode_line = {};
  int64_t shard_bytes = int64_t{256}
                        << 20;  // a shard ends with the first document that reaches this
  double valid_fraction = 0;    // in [0, 1)
  uint64_t seed = 0;            // of the split
  bool overwrite = false;       // replace a dataset that is there
  std::function<void(const BuildProgress&)> progress = {};  // optional; called after each batch
  std::string chat_template = {};  // that goes with the conversations; empty: none
};

struct BuildResult {
  DatasetManifest train, valid;  // valid has no shards without a split
  int64_t empty_documents = 0;
  int64_t documents_without_target = 0;  // only with encode_line
  int64_t invalid_utf8_bytes = 0;
};

BuildResult build_dataset(FileSystem& files, Pool& pool, const BuildOptions& options);

}  // namespace moraine
