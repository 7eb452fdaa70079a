// Profile: seconds, calls, flops and bytes by operation.
//
// Every operation's dispatch makes an OpTimer with its name (a string literal) and its cost; without a
// profile that is one branch. One thread at a time (operations run one after another).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moraine {

class Profile {
 public:
  struct Row {
    const char* name;
    int64_t calls = 0;
    double seconds = 0;
    double flops = 0;
    double bytes = 0;
  };
  void add(const char* name, double seconds, double flops, double bytes);
  void clear() { rows_.clear(); }
  std::vector<Row> rows() const;  // most seconds first
  double flops() const;

 private:
  std::vector<Row> rows_;
};

class OpTimer {
 public:
  // flops: multiply-adds count two. bytes: compulsory traffic, each operand once.
  OpTimer(Profile* profile, const char* name, double flops, double bytes);
  ~OpTimer();
  OpTimer(const OpTimer&) = delete;
  OpTimer& operator=(const OpTimer&) = delete;

 private:
  Profile* profile_;
  const char* name_;
  double flops_, bytes_, start_ = 0;
};

}  // namespace moraine
