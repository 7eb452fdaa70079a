// Limits: what one client, and all together, may make the server hold or wait for.
//
// Each is tested at the limit and one beyond. What is beyond is answered with the status named here,
// or, where nobody listens any more, by closing the connection.
#pragma once

#include <cstdint>

namespace moraine {

struct Limits {
  // One connection.
  int64_t header_bytes = 16 << 10;     // request line and fields: 431
  int64_t header_fields = 100;         // 431
  int64_t target_bytes = 4096;         // path and query: 414
  int64_t body_bytes = 16 << 20;       // 413
  int64_t pipelined_bytes = 64 << 10;  // sent ahead of an answer: closed
  int64_t output_bytes = 4 << 20;      // of a stream that its reader does not take: closed
  double handshake_seconds = 10;       // TLS: closed
  double header_seconds = 10;          // from the first byte of a request to its last field: 408
  double body_seconds = 60;            // from there to its last byte: 408
  double idle_seconds = 75;            // without a request: closed
  double write_seconds = 30;           // without a byte taken: closed
  double ping_seconds = 10;            // of silence in a stream, then a comment is sent

  // All of them.
  int64_t connections = 16384;       // the longest idle one is closed, or the new one
  int64_t bodies_bytes = 256 << 20;  // of requests on their way to the engine: 503
  int64_t waiting_requests = 1024;   // read and not yet looked at: 503

  // The content of a request: 400.
  int64_t json_depth = 64;        // arrays and objects in each other
  int64_t json_values = 4 << 20;  // values in all
  int64_t json_members = 1024;    // of one object
  int64_t prompts = 1024;         // of one completion request
  int64_t choices = 128;          // prompts x n, or x best_of
  int64_t stops = 16;             // stop strings
  int64_t stop_bytes = 1024;      // of each
  int64_t top_logprobs = 20;
  // Of an answer's tokens and those beside them, that it may hold before it is written: 40 bytes each while they come,
  // and 540 more as JSON of a conversation, which is made of one answer at a time: 2.3 GB. Room for 20 beside each
  // token of a context of 131,072, which a client asks for that names no max_tokens.
  int64_t answer_logprobs = 4 << 20;
  int64_t logit_biases = 1024;
  int64_t messages = 4096;  // of a conversation
  int64_t tools = 128;
};

}  // namespace moraine
