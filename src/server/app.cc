// App: the table of endpoints, and what holds for all of them.
#include "server/app.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "base/clock.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/thread.h"
#include "server/chat.h"
#include "server/completions.h"
#include "server/json_fields.h"
#include "server/messages.h"
#include "server/responses.h"
#include "server/small_endpoints.h"

namespace moraine {
namespace {

constexpr const char* kGet = "GET, HEAD, OPTIONS";
constexpr const char* kPost = "POST, OPTIONS";

// The key of a request: "Authorization: Bearer KEY" or "x-api-key: KEY".
std::string_view key_of(const HttpRequest& head) {
  const std::string_view field = head.field("authorization");
  constexpr std::string_view kBearer = "bearer ";
  if (field.size() > kBearer.size() && lower_case(field.substr(0, kBearer.size())) == kBearer)
    return field.substr(kBearer.size());
  return head.field("x-api-key");
}

// "localhost" of "localhost:8080", "::1" of "[::1]:8080".
std::string host_name(std::string_view host) {
  if (!host.empty() && host[0] == '[') return std::string(host.substr(1, host.find(']') - 1));
  return lower_case(host.substr(0, host.find(':')));
}

// Whether `method` is one of "GET, HEAD, OPTIONS", not a part of one.
bool lists(std::string_view methods, std::string_view method) {
  return fmt::format(", {},", methods).find(fmt::format(" {},", method)) != std::string::npos;
}

// "org/model" of "org%2Fmodel", as clients write a name into a path.
std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool two = text[i] == '%' && i + 2 < text.size();
    const int high = two ? hex_digit(text[i + 1]) : -1, low = two ? hex_digit(text[i + 2]) : -1;
    if (high >= 0 && low >= 0) i += 2;
    out += high >= 0 && low >= 0 ? static_cast<char>(high * 16 + low) : text[i];
  }
  return out;
}

const char* page_type(const std::string& name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  return name.ends_with(".svg") ? "image/svg+xml" : "application/octet-stream";
}

bool is_json(std::string_view type) {
  const std::string name = lower_case(type.substr(0, type.find(';')));
  return name == "application/json" || name == "application/json ";
}

}  // namespace

// Exactly one of the functions is there.
struct App::Route {
  const char* path;
  const char* methods;  // for the Allow field
  bool open;            // without a key, also while draining
  HttpResponse (App::*at_once)(const HttpRequest& request);
  Json (*small)(const Json& body, const ServedModel& model, const Limits& limits);
  AnswerPlan (*plan)(const Json& body, const ModelPtr& model, const Limits& limits);
  ErrorShape errors = ErrorShape::kOpenAi;
};

std::span<const App::Route> App::routes() {
  static constexpr Route kRoutes[] = {
      {"/health", kGet, true, &App::health, nullptr, nullptr},
      {"/ready", kGet, true, &App::ready, nullptr, nullptr},
      {"/", kGet, true, &App::page, nullptr, nullptr},
      {"/metrics", kGet, false, &App::metrics_page, nullptr, nullptr},
      {"/v1/models", kGet, false, &App::models, nullptr, nullptr},
      {"/tokenizer_info", kGet, false, &App::tokenizer_page, nullptr, nullptr},
      {"/tokenize", kPost, false, nullptr, &tokenize, nullptr},
      {"/detokenize", kPost, false, nullptr, &detokenize, nullptr},
      {"/v1/completions", kPost, false, nullptr, nullptr, &plan_completions},
      {"/v1/chat/completions", kPost, false, nullptr, nullptr, &plan_chat},
      {"/v1/responses", kPost, false, nullptr, nullptr, &plan_responses},
      {"/v1/messages", kPost, false, nullptr, nullptr, &plan_messages, ErrorShape::kAnthropic},
      {"/v1/messages/count_tokens", kPost, false, nullptr, &count_message_tokens, nullptr,
       ErrorShape::kAnthropic},
  };
  return kRoutes;
}

const App::Route* App::route_of(const std::string& path) {
  for (const Route& route : routes()) {
    if (path == route.path) return &route;
    if (path.starts_with("/v1/models/") && route.at_once == &App::models) return &route;
    if (path.starts_with("/page.") && route.at_once == &App::page) return &route;
  }
  return nullptr;
}

bool is_origin(const std::string& text) {
  if (text == "*" || text == "null") return true;
  const size_t slashes = text.find("://");
  if (slashes == std::string::npos || slashes == 0) return false;
  const std::string host = text.substr(slashes + 3);
  return !host.empty() && host.find_first_of("/?#@, \t") == std::string::npos;
}

App::App(AppOptions options, std::shared_ptr<const ServedModel> model)
    : options_(std::move(options)),
      model_(std::move(model)),
      started_(now_seconds()),
      page_files_(page_files()) {
  HttpHooks hooks;
  hooks.admit = [this](const HttpRequest& head) { return admit(head); };
  hooks.handle = [this](std::shared_ptr<HttpExchange> exchange) { handle(exchange); };
  hooks.refuse = [this](int status, const std::string& message) { return refuse(status, message); };
  hooks.extra_fields = [this](const std::string& origin) { return extra_fields(origin); };
  http_ = std::make_unique<HttpServer>(options_.http, std::move(hooks));
  worker_ = std::make_unique<Worker>(options_.http.limits.waiting_requests);
}

App::~App() = default;

bool App::allowed_origin(const std::string& origin) const {
  return std::any_of(options_.cors_origins.begin(), options_.cors_origins.end(),
                     [&](const std::string& each) { return each == "*" || each == origin; });
}

HttpFields App::extra_fields(const std::string& origin) const {
  if (origin.empty() || !allowed_origin(origin)) return {};
  return {{"access-control-allow-origin", origin},
          {"access-control-expose-headers", "x-moraine-model, retry-after"},
          {"vary", "origin"}};
}

bool App::same_origin(const HttpRequest& head) const {
  const std::string_view origin = head.field("origin");
  const size_t slashes = origin.find("//");
  return slashes != std::string_view::npos && origin.substr(slashes + 2) == head.field("host");
}

// Why a request is not let in; nothing if it is.
std::optional<RequestError> App::objection(const HttpRequest& head, const Route* route) const {
  const bool preflight = head.method == "OPTIONS";
  if (options_.keys.none() && http_->loopback() && !head.field("host").empty() &&
      !is_loopback(host_name(head.field("host"))))
    return RequestError(
        "the request's host field names another machine, which a server without keys on a loopback "
        "address refuses; wanted localhost, or start it with --api-key-file",
        "", "host_not_allowed", 403);
  if (route == nullptr)
    return RequestError("there is nothing at " + head.path.substr(0, 128), "", "not_found", 404);
  if (preflight) return std::nullopt;
  if (!lists(route->methods, head.method))
    return RequestError(fmt::format("{} takes {}", route->path, route->methods), "",
                        "method_not_allowed", 405);
  if (!route->open && http_->draining())
    return RequestError("the server is shutting down", "", "draining", 503);
  if (!route->open && !options_.keys.none() && !options_.keys.allow(key_of(head)))
    return RequestError("wanted a valid API key: Authorization: Bearer KEY", "", "invalid_api_key",
                        401);
  if (head.method != "POST") return std::nullopt;
  const std::string origin(head.field("origin"));
  if (!origin.empty() && !same_origin(head) && !allowed_origin(origin))
    return RequestError("pages of this origin may not ask; --cors-origin allows one", "",
                        "origin_not_allowed", 403);
  if (!is_json(head.field("content-type")))
    return RequestError("wanted the field content-type: application/json", "",
                        "unsupported_media_type", 415);
  return std::nullopt;
}

std::optional<HttpResponse> App::admit(const HttpRequest& head) {
  const Route* route = route_of(head.path);
  const std::optional<RequestError> error = objection(head, route);
  if (!error) return std::nullopt;
  HttpResponse response =
      error_response(route == nullptr ? ErrorShape::kOpenAi : route->errors, *error);
  if (error->status() == 405) response.fields.emplace_back("allow", route->methods);
  metrics_.ended(route == nullptr ? "other" : route->path, outcome_of_status(error->status()), 0);
  return response;
}

HttpResponse App::refuse(int status, const std::string& message) {
  metrics_.ended("other", status == 503 ? Outcome::kOverloaded : outcome_of_status(status), 0);
  return error_response(ErrorShape::kOpenAi, RequestError(message, "", "", status));
}

void App::handle(const ExchangePtr& exchange) {
  const double begun = now_seconds();
  const HttpRequest& request = exchange->request();
  const Route& route = *route_of(request.path);
  if (request.method == "OPTIONS" || route.at_once != nullptr) {
    HttpResponse response =
        request.method == "OPTIONS" ? preflight(request) : (this->*route.at_once)(request);
    metrics_.ended(route.path, outcome_of_status(response.status), now_seconds() - begun);
    return exchange->respond(std::move(response));
  }
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  exchange->on_gone([gone](Delivery) { *gone = true; });
  const bool taken = worker_->post([this, exchange, &route, begun, gone] {
    if (*gone) return metrics_.ended(route.path, Outcome::kCancelled, now_seconds() - begun);
    answer(exchange, route, begun);
  });
  if (taken) return;
  metrics_.ended(route.path, Outcome::kOverloaded, now_seconds() - begun);
  exchange->respond(error_response(
      route.errors,
      RequestError("too many requests wait; try again later", "", "overloaded", 503)));
}

// On the worker: whatever is wrong with a request is its answer.
void App::answer(const ExchangePtr& exchange, const Route& route, double begun) {
  try {
    if (route.plan != nullptr) return generate(exchange, route, begun);
    const ModelPtr model = model_.get();
    const Json body = parse_body(exchange->take_body(), options_.http.limits);
    HttpResponse response{.body = json_text(route.small(body, *model, options_.http.limits)),
                          .fields = model_fields(*model)};
    return exchange->respond(std::move(response), [this, &route, begun](Delivery how) {
      metrics_.ended(route.path, outcome_of(how), now_seconds() - begun);
    });
  } catch (const Error& e) {
    const RequestError error = request_error_of(e);
    metrics_.ended(route.path, outcome_of_status(error.status()), now_seconds() - begun);
    exchange->respond(error_response(route.errors, error));
  } catch (const std::bad_alloc&) {
    const RequestError error("there is no memory for this request", "", "out_of_memory", 500);
    metrics_.ended(route.path, Outcome::kFailed, now_seconds() - begun);
    exchange->respond(error_response(route.errors, error));
  }
}

void App::generate(const ExchangePtr& exchange, const Route& route, double begun) {
  const ModelPtr model = model_.get();
  const Json body = parse_body(exchange->take_body(), options_.http.limits);
  AnswerPlan plan = route.plan(body, model, options_.http.limits);
  const std::string salt =
      options_.keys.none() ? "" : ApiKeys::salt_of(key_of(exchange->request()));
  for (Request& request : plan.prompts) request.salt = salt;
  plan.format.errors = route.errors;
  JobParts parts{
      .model = model,
      .exchange = exchange,
      .post = [http = http_.get()](std::function<void()> f) { http->post(std::move(f)); },
      .queue = [http = http_.get()](std::function<void()> f) { http->queue(std::move(f)); },
      .worker = worker_.get(),
      .metrics = &metrics_,
      .endpoint = route.path,
      .begun = begun};
  Job::start(std::move(parts), std::move(plan));
}

namespace {

// What a page asks to send; nothing if that is no list of names. Client libraries add fields of their own.
std::string asked_fields(const HttpRequest& request) {
  constexpr size_t kMost = 2048;
  const std::string_view asked = request.field("access-control-request-headers");
  const bool is_list = std::all_of(asked.begin(), asked.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == ',' || c == ' ';
  });
  return is_list && !asked.empty() && asked.size() <= kMost ? ", " + std::string(asked) : "";
}

}  // namespace

// Which origins may ask is decided elsewhere; of those any field.
HttpResponse App::preflight(const HttpRequest& request) {
  HttpResponse response{.status = 204, .content_type = ""};
  response.fields = {{"access-control-allow-methods", route_of(request.path)->methods},
                     {"access-control-allow-headers",
                      "authorization, content-type, x-api-key, anthropic-version, anthropic-beta" +
                          asked_fields(request)},
                     {"access-control-max-age", "600"},
                     {"allow", route_of(request.path)->methods}};
  return response;
}

HttpResponse App::health(const HttpRequest&) { return {.body = "{\"status\":\"ok\"}"}; }

HttpResponse App::ready(const HttpRequest&) {
  if (http_->draining()) return {.status = 503, .body = "{\"status\":\"draining\"}"};
  const ModelPtr model = model_.get();
  return {
      .body = json_text(
          {{"status", "ready"}, {"model", model->id}, {"system_fingerprint", model->fingerprint}}),
      .fields = model_fields(*model)};
}

HttpResponse App::tokenizer_page(const HttpRequest&) {
  return {.body = json_text(tokenizer_info(*model_.get()))};
}

HttpResponse App::models(const HttpRequest& request) {
  const ModelPtr model = model_.get();
  constexpr std::string_view kOne = "/v1/models/";
  if (!request.path.starts_with(kOne)) return {.body = json_text(models_list(*model))};
  const std::string id = percent_decoded(std::string_view(request.path).substr(kOne.size()));
  if (id == model->id) return {.body = json_text(model_object(*model))};
  return error_response(ErrorShape::kOpenAi,
                        RequestError("the model served here is '" + model->id + "'", "model",
                                     "model_not_found", 404));
}

// "/" is index.html; what it names stands beside it: "/page.css".
HttpResponse App::page(const HttpRequest& request) {
  const std::string name = request.path == "/" ? "index.html" : request.path.substr(1);
  for (const PageFile& file : page_files_) {
    if (file.name != name) continue;
    HttpResponse response{.content_type = page_type(name), .body = std::string(file.content)};
    response.fields = {{"cache-control", "no-cache"},
                       {"x-content-type-options", "nosniff"},
                       {"x-frame-options", "DENY"},
                       {"content-security-policy",
                        "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'"}};
    return response;
  }
  return error_response(ErrorShape::kOpenAi,
                        RequestError("there is no such file", "", "not_found", 404));
}

HttpResponse App::metrics_page(const HttpRequest&) {
  const HttpCounts counts = http_->counts();
  const ModelPtr model = model_.get();
  const GeneratorStats stats = model->generator->stats();
  const GrammarCache::Stats grammars = model->grammars->stats();
  const MaskCache::Stats masks = model->grammars->mask_stats();
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  const ServerMetrics::Gauge gauges[] = {
      {"moraine_connections", "Connections that are open.", number(counts.connections)},
      {"moraine_requests_in_flight", "Requests whose answer is not complete.",
       number(counts.working)},
      {"moraine_requests_unread", "Requests that wait to be looked at.",
       number(worker_->waiting())},
      {"moraine_body_bytes", "Bytes of request bodies that are held.", number(counts.bodies_bytes)},
      {"moraine_queue_requests", "Requests that wait for the engine.", number(stats.queued)},
      {"moraine_queue_prompt_tokens", "Tokens of the prompts that wait for the engine.",
       number(stats.queued_tokens)},
      {"moraine_prompt_tokens_per_second",
       "Prompt tokens that the engine gets through while more wait; 0: not known yet.",
       stats.prompt_rate},
      {"moraine_queue_seconds", "Estimate until the prompts that are there are computed.",
       stats.prompt_seconds},
      {"moraine_engine_steps", "Steps of the engine since it was loaded.", number(stats.steps)},
      {"moraine_engine_step_seconds", "Time in them.", stats.step_seconds},
      {"moraine_engine_model_seconds", "Of that in the model: layers and logits.",
       stats.model_seconds},
      {"moraine_http_processor_seconds",
       "Processor time of the threads that read requests and write answers.",
       thread_seconds() + worker_->processor_seconds()},
      {"moraine_head_rows_two_stage", "Tokens that were drawn from a head in two stages.",
       number(stats.head_rows_two_stage)},
      {"moraine_head_rows_full", "Rows whose logits were all computed.",
       number(stats.head_rows_full)},
      {"moraine_head_first_stages_abandoned", "First stages after which all were computed.",
       number(stats.head_abandoned)},
      {"moraine_head_panel_share", "Part of the head that second stages read, mean.",
       stats.head_panel_share},
      {"moraine_expert_rank_load_over_mean",
       "Work of experts (rows, 8 at least of each that has any) at the busiest rank over the mean, "
       "of "
       "recent steps.",
       stats.experts.rank_load_over_mean},
      {"moraine_expert_home_load_over_mean", "The same if no expert were on further ranks.",
       stats.experts.home_load_over_mean},
      {"moraine_expert_guests", "Experts on further ranks, of all layers.",
       number(stats.experts.guests)},
      {"moraine_expert_placements", "Times that other experts were put on further ranks.",
       number(stats.experts.placed)},
      {"moraine_expert_bytes_sent", "Weights that the first rank sent for that.",
       number(stats.experts.bytes_sent)},
      {"moraine_preemptions", "Requests that gave their pages to older ones.",
       number(stats.preemptions)},
      {"moraine_running_requests", "Requests that the engine works on.", number(stats.running)},
      {"moraine_cache_pages_used", "Pages of the key and value cache in use.",
       number(stats.pages_used)},
      {"moraine_cache_pages", "Pages of the key and value cache.", number(stats.pages_total)},
      {"moraine_grammars_compiled", "Schemas and sets of tools that were compiled.",
       number(grammars.compiled)},
      {"moraine_grammar_bytes", "Memory of those that are kept.", number(grammars.bytes)},
      {"moraine_mask_bytes", "Memory of token masks that answers share.", number(masks.bytes)},
      {"moraine_masks_found", "Masks that an answer before had made.", number(masks.found)},
      {"moraine_masks_missed", "Masks that had to be made.", number(masks.missed)},
      {"moraine_uptime_seconds", "Since the start.", now_seconds() - started_},
  };
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
          .body = metrics_.text(gauges, model->id, model->fingerprint)};
}

}  // namespace moraine
