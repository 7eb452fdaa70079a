// LoadModel: a model directory as a version that can be served.
//
// Errors: those of ModelDirectory, LoadedModel and Tokenizer; kInvalidArgument for a model without a
//         tokenizer, or a cache that holds no answer.
// Cost:   reads the weights; takes their memory and the cache's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/file_system.h"
#include "infer/step_rows.h"
#include "server/serve_ranks.h"
#include "server/served_model.h"

namespace moraine {

struct ServeModelOptions {
  std::string path;                           // checkpoint, run, or folder in a public layout
  std::string name;                           // in /v1/models; empty: the last part of the path
  std::string dtype;                          // "f32", "bf16", or "": as the weights are stored
  std::string head = "auto";                  // as LoadOptions::head
  std::string chat_template;                  // as ChatTemplate::load's choice
  std::string device = "cpu";                 // as LoadOptions::device
  int64_t threads = 0;                        // 0: one per usable core
  int64_t context = 0;                        // positions of prompt and answer; 0: the model's
  int64_t sequences = 16;                     // requests that run at once
  int64_t rows = kStepRows;                   // of a step
  int64_t interleave_rows = kInterleaveRows;  // as EngineOptions::interleave_rows
  // Keys and values; 0: all sequences at full length, at most a quarter of the memory and half of what weights leave.
  int64_t cache_mib = 0;
  int64_t queue_requests = 256;
  int64_t queue_tokens = 262144;  // of prompts
  double queue_seconds = 30;      // of prompt work before a request
  double tpot_seconds = 0;
  int64_t grammar_mib = 64;  // compiled schemas, a quarter of it, and masks that answers share
  std::function<void()> failed = {};  // the engine ended by an error
  std::function<void()> heard = {};   // as EngineOptions::heard
  ServeRanks* ranks = nullptr;        // that compute along; null: none
  bool share_cache = false;           // they divide the cache by position
  std::string low_latency = "auto";   // as LoadOptions::low_latency
  ServingPlacement placement = {};    // likewise
};

std::shared_ptr<const ServedModel> load_served_model(FileSystem& fs,
                                                     const ServeModelOptions& options);

}  // namespace moraine
