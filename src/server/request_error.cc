// Request error: the two shapes in which clients expect errors.
#include "server/request_error.h"

#include "base/json.h"
#include "base/log.h"
#include "infer/queue_limit.h"

namespace moraine {
namespace {

const char* openai_type(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 429) return "rate_limit_error";
  if (status >= 500) return "server_error";
  return "invalid_request_error";
}

const char* anthropic_type(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 404) return "not_found_error";
  if (status == 413) return "request_too_large";
  if (status == 429) return "rate_limit_error";
  if (status == 503) return "overloaded_error";
  if (status >= 500) return "api_error";
  return "invalid_request_error";
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

}  // namespace

std::string error_body(ErrorShape shape, const RequestError& error) {
  if (shape == ErrorShape::kAnthropic) {
    const std::string where = error.param().empty() ? "" : error.param() + ": ";
    return json_text(
        {{"type", "error"},
         {"error", {{"type", anthropic_type(error.status())}, {"message", where + error.what()}}}});
  }
  return json_text({{"error",
                     {{"message", error.what()},
                      {"type", openai_type(error.status())},
                      {"param", text_or_null(error.param())},
                      {"code", text_or_null(error.api_code())}}}});
}

HttpResponse error_response(ErrorShape shape, const RequestError& error) {
  HttpResponse response{.status = error.status(), .body = error_body(shape, error)};
  if (error.status() == 429 || error.status() == 503)
    response.fields.emplace_back("retry-after", std::to_string(error.retry_seconds()));
  if (error.status() == 401) response.fields.emplace_back("www-authenticate", "Bearer");
  return response;
}

RequestError request_error_of(const Error& error) {
  if (const auto* known = dynamic_cast<const RequestError*>(&error)) return *known;
  if (const auto* full = dynamic_cast<const QueueFull*>(&error))
    return RequestError(full->what(), "", "overloaded", 429, full->retry_seconds());
  if (error.code() == Code::kInvalidArgument) return RequestError(error.what(), "");
  if (error.code() == Code::kOverloaded) return RequestError(error.what(), "", "overloaded", 429);
  log_event(Level::kError, "serve.failed", "code={} what=\"{}\"", code_name(error.code()),
            error.what());
  return RequestError("the server failed at this request; its log says why", "", "internal_error",
                      500);
}

}  // namespace moraine
