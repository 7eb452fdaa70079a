// HttpLoad: what a running server gives its clients: requests over HTTP, alone and together.
//
// One connection and thread for each request at a time; streamed completions of random prompts (tokens 0 to 255),
// whatever the answers are (ignore_eos). Times are those at which chunks arrive; tokens are what `usage` says.
// A server of ours says in /metrics what it spent: `beside` is the part of the engine's steps that is not the model,
// `http` the processor time of reading requests and writing answers over the time of the steps. "-": another server.
//
// Output: a table on stdout, or with `json` an object per line.
// Errors: those of HttpClient; kIo: an answer that is not 200, with what it says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moraine {

struct HttpLoadOptions {
  std::string url;
  std::string api_key_file;  // its first key is used; "": none
  std::string model;         // "": the first of /v1/models
  int64_t prompt_tokens = 256, new_tokens = 64;
  std::vector<int64_t> concurrency = {1, 4, 16, 64};
  bool json = false;
};

void bench_http_load(const HttpLoadOptions& options);

}  // namespace moraine
