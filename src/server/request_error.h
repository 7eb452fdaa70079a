// RequestError: what is wrong with a request, with the field and the answer's status.
#pragma once

#include <string>

#include "base/error.h"
#include "server/http_message.h"

namespace moraine {

class RequestError : public Error {
 public:
  // `param`: the field ("messages[2].role"); empty: the request as a whole. `code`: the word that
  // programs compare ("context_length_exceeded"); empty: none.
  RequestError(const std::string& message, std::string param, std::string code = "",
               int status = 400, int64_t retry_seconds = 1)
      : Error(Code::kInvalidArgument, message),
        param_(std::move(param)),
        code_(std::move(code)),
        status_(status),
        retry_seconds_(retry_seconds) {}
  const std::string& param() const { return param_; }
  const std::string& api_code() const { return code_; }
  int status() const { return status_; }
  int64_t retry_seconds() const { return retry_seconds_; }  // retry-after of 429 and 503

 private:
  std::string param_, code_;
  int status_;
  int64_t retry_seconds_;
};

enum class ErrorShape { kOpenAi, kAnthropic };

// {"error": {"message", "type", "param", "code"}}, or {"type": "error", "error": {"type", "message"}};
// the type follows from the status.
std::string error_body(ErrorShape shape, const RequestError& error);
HttpResponse error_response(ErrorShape shape, const RequestError& error);
// Any Error: what is not the client's is 500 without what it says of files and machines.
RequestError request_error_of(const Error& error);

}  // namespace moraine
