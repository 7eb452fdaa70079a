// CallJson: a call as a JSON object, {"name": ..., "arguments": {...}}, read byte by byte.
//
// The arguments are given on as they come once the name is known. Also takes "parameters" for "arguments",
// arguments that are JSON within a string, and other members, which are passed over.
// Errors: none; `broken` says that it is no such object.
#pragma once

#include <cstdint>
#include <set>
#include <string>

namespace moraine {

class CallJson {
 public:
  struct Options {
    bool only_known_members = false;  // any other member: broken
    const std::set<std::string>* names =
        nullptr;  // where given and not empty: any other name: broken
  };
  explicit CallJson(const Options& options) : options_(options) {}
  // The name was read before; what follows is the arguments' value alone.
  CallJson(const Options& options, const std::string& name);

  // Takes one byte that belongs to the object. Not after done or broken.
  void take(char c);

  bool done() const { return state_ == State::kDone; }
  bool broken() const { return state_ == State::kBroken; }
  bool begun() const { return begun_; }  // the name is known, and that it is a call
  const std::string& name() const { return name_; }
  // What was added to the arguments' text since the last time; only once begun.
  std::string more_arguments();
  // Of a done call: empty, or what is wrong with the arguments.
  std::string problem() const;

 private:
  enum class State { kOpen, kKey, kColon, kValue, kInValue, kAfter, kDone, kBroken };
  void begin_value(char c);
  void in_value(char c);
  void end_value();
  void begin();
  bool is_arguments() const { return key_ == "arguments" || key_ == "parameters"; }

  const Options options_;
  State state_ = State::kOpen;
  bool alone_ = false;  // the arguments' value only
  bool first_ = true;   // no member yet
  bool begun_ = false;
  bool has_name_ = false;
  bool has_arguments_ = false;
  int64_t depth_ = 0;  // brackets within the value
  bool quoted_ = false, escaped_ = false;
  std::string key_, value_;  // as JSON text
  std::string name_;
  std::string arguments_;
  size_t given_ = 0;  // of arguments_
};

}  // namespace moraine
