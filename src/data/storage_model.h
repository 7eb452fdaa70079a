// StorageModel: how many page reads a second a training run asks of its storage.
//
//   sigma   = 1 + m / (s * b / P)         scatter: pages touched, over pages of data
//   iops    = sigma * G * s * b / (P * t)
//   t_break = sigma * G * s * b / (P * I)  step time below which storage is the limit
//
// G sequences per step, s tokens per sequence, b bytes per token, P bytes per page, t seconds per
// step, I page reads a second the device can do, m extra pages touched per sequence.
//
// Cost:   pure functions. m for our shards: each piece of a sequence begins and ends inside a page,
//         so one more page per piece; sigma lies in [1, 2] for packed shards of long documents, [2,
//         8] for scattered ones.
// Errors: kInvalidArgument: a value that is not positive (m: negative) or not finite.
// Source: ZAYA1-8B technical report, appendix B. Example there: G = s = P = 4096, b = 4,
//         t = 2.5 s, I = 70,000: 64 MiB and 16,384 pages a step, 6,554 * sigma iops,
//         t_break = 0.234 * sigma seconds.
#pragma once

#include <string>

namespace moraine {

struct StoragePattern {
  double sequences_per_step = 0;        // G
  double tokens_per_sequence = 0;       // s
  double bytes_per_token = 2;           // b
  double page_bytes = 4096;             // P
  double step_seconds = 0;              // t
  double extra_pages_per_sequence = 1;  // m
  double iops_max = 70000;              // I
};

struct StorageNeed {
  double sigma = 0;
  double bytes_per_step = 0, pages_per_step = 0;  // of data, without scatter
  double iops = 0;                                // needed
  double bytes_per_second = 0;                    // needed: iops * P
  double break_step_seconds = 0;                  // t_break
  double share = 0;                               // iops / I: above 1 storage is the limit
};

StorageNeed storage_need(const StoragePattern& pattern);
std::string storage_need_text(const StoragePattern& pattern,
                              const StorageNeed& need);  // for people

}  // namespace moraine
