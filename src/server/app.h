// App: which request goes where, who may ask, and how each one is accounted for.
//
//   io thread   routes, keys, origins; /health, /ready, /metrics, /v1/models, the page; the writing of streams
//   worker      bodies: JSON, templates, tokens, schemas; whole answers
//   engine      what Generator has
//
// Without keys and on a loopback address, a host field that names another machine is refused: a web page
// could otherwise reach the server by a name that it turns to 127.0.0.1. An origin field that is neither the
// server's own nor a --cors-origin is refused where something would be computed.
// Errors:  as HttpServer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/answer.h"
#include "server/api_keys.h"
#include "server/http_server.h"
#include "server/job.h"
#include "server/metrics.h"
#include "server/page_files.h"
#include "server/served_model.h"
#include "server/worker.h"

namespace moraine {

struct AppOptions {
  HttpOptions http;
  ApiKeys keys;
  std::vector<std::string> cors_origins;  // "https://example.org", or "*"
};

// Whether `text` may be one of cors_origins: "*", "null", or scheme://host with or without :port, as browsers send it.
bool is_origin(const std::string& text);

class App {
 public:
  App(AppOptions options, std::shared_ptr<const ServedModel> model);
  ~App();

  HttpServer& http() { return *http_; }
  CurrentModel& model() { return model_; }
  ServerMetrics& metrics() { return metrics_; }
  // Until the server is drained; returns how many requests were cut off.
  int64_t run() { return http_->run(); }

 private:
  struct Route;
  using ExchangePtr = std::shared_ptr<HttpExchange>;
  using ModelPtr = std::shared_ptr<const ServedModel>;

  static std::span<const Route> routes();
  static const Route* route_of(const std::string& path);
  std::optional<HttpResponse> admit(const HttpRequest& head);
  std::optional<RequestError> objection(const HttpRequest& head, const Route* route) const;
  bool same_origin(const HttpRequest& head) const;
  bool allowed_origin(const std::string& origin) const;
  HttpFields extra_fields(const std::string& origin) const;
  HttpResponse refuse(int status, const std::string& message);
  void handle(const ExchangePtr& exchange);

  // The endpoints. On the io thread, and on the worker.
  HttpResponse preflight(const HttpRequest& request);
  HttpResponse health(const HttpRequest& request);
  HttpResponse ready(const HttpRequest& request);
  HttpResponse metrics_page(const HttpRequest& request);
  HttpResponse models(const HttpRequest& request);
  HttpResponse tokenizer_page(const HttpRequest& request);
  HttpResponse page(const HttpRequest& request);
  void answer(const ExchangePtr& exchange, const Route& route, double begun);
  void generate(const ExchangePtr& exchange, const Route& route, double begun);

  const AppOptions options_;
  CurrentModel model_;
  ServerMetrics metrics_;
  const double started_;
  const std::vector<PageFile> page_files_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<Worker> worker_;  // ends first: its tasks use the others
};

}  // namespace moraine
