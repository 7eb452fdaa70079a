// Profile: seconds, calls, flops and bytes by operation, and by what is around operations.
//
// Every operation's dispatch makes an OpTimer with its name (a string literal) and its cost; without a
// profile that is one branch. A span that encloses others (a phase of a step) has a timer of its own. A
// row's `seconds` are those of the span itself, without the spans inside it: the rows of all that ran
// inside one span add up to that span's `seconds_whole`, whatever encloses what.
//
// A device does its work later than it is asked for it: settle() is what waits for it, so that an operation's seconds
// are those of its own work; that takes away what work and asking overlap.
//
// Cost:    two readings of the clock for each span.
// Threads: one at a time (operations run one after another).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace moraine {

// What a span is: arithmetic, waiting for or sending to other ranks, or a part of a step that
// encloses other spans.
enum class Span : uint8_t { kOperation, kRanks, kPhase };

class Profile {
 public:
  struct Row {
    const char* name;
    Span span = Span::kOperation;
    int64_t calls = 0;
    double seconds = 0;        // its own
    double seconds_whole = 0;  // with the spans inside
    double flops = 0;
    double integer_ops = 0;  // the part of flops that is multiply-adds of integers
    double bytes = 0;
  };
  // One call. Enclosing spans end later, so they come after what they enclose.
  struct Event {
    const char* name;
    Span span = Span::kOperation;
    double begin = 0;  // now_seconds()
    double seconds = 0;
    double flops = 0, integer_ops = 0, bytes = 0;
  };

  // inside: seconds of the spans that the event encloses.
  void add(const Event& event, double inside);
  void clear() { rows_.clear(); }
  // From now on events go here, too, while its capacity lasts; null: they do not.
  void record(std::vector<Event>* events) { events_ = events; }

  // Called at the end of each operation, before the clock is read; null: nothing is. What it throws is dropped: it must
  // be met again by whoever waits next.
  void settle(std::function<void()> wait) { settle_ = std::move(wait); }

  std::vector<Row> rows() const;  // most seconds first
  double flops() const;

 private:
  friend class OpTimer;

  std::vector<Row> rows_;
  std::vector<Event>* events_ = nullptr;
  std::function<void()> settle_;
  double inside_ = 0;  // seconds of the spans that have ended inside the innermost one that has not
};

class OpTimer {
 public:
  // flops: multiply-adds count two. bytes: compulsory traffic, each operand once. integers: what the flops are of.
  OpTimer(Profile* profile, const char* name, double flops, double bytes, bool integers = false);
  // What is no arithmetic; bytes: that move between ranks, where they are known.
  OpTimer(Profile* profile, Span span, const char* name, double bytes = 0);
  ~OpTimer();
  OpTimer(const OpTimer&) = delete;
  OpTimer& operator=(const OpTimer&) = delete;

 private:
  void begin();
  void settle() const;

  Profile* profile_;
  Profile::Event event_;
  double inside_before_ = 0;
};

}  // namespace moraine
