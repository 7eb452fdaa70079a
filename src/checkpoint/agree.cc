// Agree: an outcome is one byte (done or failed), then a text or an Error.
#include "checkpoint/agree.h"

#include <span>

#include "base/error.h"
#include "comm/collectives.h"

namespace moraine {
namespace {

constexpr char kDone = '+';
constexpr char kFailed = '-';
constexpr size_t kNamedFailures = 4;  // more of them say the same

std::string failed(const Error& error) {
  return std::string(1, kFailed) + static_cast<char>(error.code()) + error.what();
}

template <class Action>
std::string outcome(const Action& action) {
  try {
    return kDone + action();
  } catch (const Error& error) {
    return failed(error);
  } catch (const std::bad_alloc&) {
    return failed(Error(Code::kIo, "out of memory"));
  } catch (const std::exception& error) {
    return failed(Error(Code::kIo, error.what()));
  }
}

Error error_of(const std::string& outcome) {
  if (outcome.size() < 2 || outcome[0] != kFailed) {
    return Error(Code::kPeerLost, "a message that is none of this program");
  }
  return Error(static_cast<Code>(outcome[1]), outcome.substr(2));
}

// Throws if any rank failed; else cuts the first bytes off.
void check_all_done(std::vector<std::string>* said) {
  std::string text;
  size_t num_failed = 0;
  Code code = Code::kIo;
  for (size_t rank = 0; rank < said->size(); ++rank) {
    std::string& one = (*said)[rank];
    if (one.starts_with(kDone)) {
      one.erase(0, 1);
      continue;
    }
    const Error error = error_of(one);
    if (num_failed++ == 0) code = error.code();
    if (num_failed > kNamedFailures) continue;
    if (said->size() > 1) text += fmt::format("{}rank {}: ", text.empty() ? "" : "; ", rank);
    text += error.what();
  }
  if (num_failed > kNamedFailures) {
    text += fmt::format("; and {} ranks more", num_failed - kNamedFailures);
  }
  if (num_failed > 0) throw Error(code, text);
}

}  // namespace

std::string broadcast_text(Communicator& comm, const std::string& text) {
  std::string result = text;
  int64_t bytes = static_cast<int64_t>(text.size());
  broadcast(comm, 0, std::as_writable_bytes(std::span(&bytes, 1)));
  result.resize(static_cast<size_t>(bytes));
  if (bytes > 0) broadcast(comm, 0, std::as_writable_bytes(std::span(result)));
  return result;
}

std::string agree(Communicator& comm, const Act& act, const Decide& decide) {
  std::vector<std::string> said = gather(comm, 0, outcome(act));
  std::string answer;
  if (comm.rank() == 0) {
    answer = outcome([&] {
      check_all_done(&said);
      return decide(said);
    });
  }
  answer = broadcast_text(comm, answer);
  if (!answer.starts_with(kDone)) throw error_of(answer);
  return answer.substr(1);
}

}  // namespace moraine
