// `moraine serve`: answers requests over HTTP until it is told to stop.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/on_ranks.h"
#include "cli/placement_flags.h"
#include "comm/mpi_transport.h"
#include "kernels/gpu/open_device.h"
#include "server/app.h"
#include "server/load_model.h"
#include "server/reload.h"

namespace moraine {
namespace {

struct ServeFlags {
  ServeModelOptions model;
  HttpOptions http;
  std::string key_file;
  std::vector<std::string> cors_origins;
  bool insecure_public = false;
  double tpot_ms = 0, reload_seconds = 5, ping_seconds = Limits{}.ping_seconds,
         stream_ms = HttpOptions{}.stream_seconds * 1000;
  int64_t body_mib = Limits{}.body_bytes >> 20;
  RankFlags ranks;
  PlacementFlags placement;
};

void declare_model(Flags& flags, ServeFlags& f) {
  flags
      .required(
          "model", &f.model.path,
          "Checkpoint, run directory, or folder in a public layout. Of a run, newer checkpoints "
          "are taken as they appear.")
      .text("name", &f.model.name, "Name of the model; default: the last part of --model.")
      .text("chat-template", &f.model.chat_template,
            "chatml, plain, or a file in Jinja; default: the model's own.")
      .text("dtype", &f.model.dtype, "f32 or bf16; default: as the weights are stored.")
      .choice(
          "head", &f.model.head, {"auto", "full", "two-stage"},
          "How tokens are drawn whose log-probability nobody asks for: from all logits, or in two "
          "stages, with a copy of the head in 8 bits; the same tokens. auto: two-stage where the "
          "head is large.")
      .text("device", &f.model.device, gpu::kDeviceHelp)
      .integer("threads", &f.model.threads, "0: one per usable core.", 0, 1024)
      .integer("context", &f.model.context, "Positions of prompt and answer; 0: the model's.", 0,
               1 << 30)
      .integer("sequences", &f.model.sequences, "Requests that are computed at once.", 1, 4096)
      .integer("rows", &f.model.rows, "Rows of one step at most; changes no bit.", 1, 1 << 20)
      .integer("interleave-rows", &f.model.interleave_rows,
               "Rows of prompts in a step in which answers go on, at most; likewise.", 1, 1 << 20)
      .integer("cache-mib", &f.model.cache_mib,
               "Memory of keys and values; 0: for all sequences at full length, at most a quarter "
               "of the memory that is free and half of what the weights leave, of a GPU's as much "
               "as that takes.",
               0, 1 << 30)
      .integer("grammar-mib", &f.model.grammar_mib,
               "Memory of compiled schemas and of token masks that answers of one schema share.", 1,
               1 << 20)
      .integer("queue-requests", &f.model.queue_requests,
               "Requests that may wait; more are answered 429. 0: no limit.", 0, 1 << 20)
      .integer("queue-tokens", &f.model.queue_tokens,
               "Prompt tokens that may wait; more are answered 429. 0: no limit.", 0, 1LL << 40)
      .number("queue-seconds", &f.model.queue_seconds,
              "Seconds of prompt work that may be before a request, at the rate that is measured; "
              "with more it is answered 429. 0: no limit.")
      .number("tpot-ms", &f.tpot_ms,
              "Milliseconds per output token to stay under for 95 % of tokens; 0: none.");
  declare_divided_model(flags, &f.model.share_cache, &f.model.low_latency);
  flags.number("reload-seconds", &f.reload_seconds,
               "How often a run is looked at for a newer checkpoint; 0: never.");
}

void declare_http(Flags& flags, ServeFlags& f) {
  flags.text("host", &f.http.host, "Address to listen on.")
      .integer("port", &f.http.port, "0: a free one.", 0, 65535)
      .text("api-key-file", &f.key_file, "One key on a line; without it anybody may ask.")
      .text("tls-cert", &f.http.tls_cert, "Certificate chain, PEM.")
      .text("tls-key", &f.http.tls_key, "Its private key, PEM.")
      .list("cors-origin", &f.cors_origins,
            "Origin whose pages may ask (\"https://example.org\", \"*\"); may be repeated.")
      .flag("insecure-public", &f.insecure_public,
            "Listen on an address that other machines reach although there is no --api-key-file.")
      .number("drain-seconds", &f.http.drain_seconds,
              "After SIGTERM or SIGINT: how long answers may take to complete.")
      .integer("max-connections", &f.http.limits.connections, "Connections at once.", 1, 1 << 20)
      .integer("max-body-mib", &f.body_mib, "Size of a request.", 1, 1024)
      .number("ping-seconds", &f.ping_seconds, "Silence in a stream before a ping.")
      .number("stream-interval-ms", &f.stream_ms,
              "Many streams wait at most so long, and half of --tpot-ms, so that tokens of several "
              "steps go out together. 0: each token.");
}

constexpr double kMostSeconds = 1e9;  // thirty years: clocks count nanoseconds in 64 bits

void check(const Flags& flags, const ServeFlags& f) {
  if (f.model.rows < f.model.sequences)
    throw_error(Code::kInvalidArgument,
                "--rows {}: each of --sequences {} has a row of a step; wanted as many at least",
                f.model.rows, f.model.sequences);
  for (const auto& [name, seconds] :
       {std::pair("queue", f.model.queue_seconds), std::pair("reload", f.reload_seconds),
        std::pair("drain", f.http.drain_seconds), std::pair("ping", f.ping_seconds)}) {
    if (seconds > kMostSeconds)
      throw_error(Code::kInvalidArgument, "--{}-seconds {}: wanted {} at most", name, seconds,
                  kMostSeconds);
  }
  if (flags.given("name") && f.model.name.empty())
    throw_error(Code::kInvalidArgument, "--name is empty; wanted a name, or no --name");
  for (const std::string& origin : f.cors_origins) {
    if (!is_origin(origin))
      throw_error(Code::kInvalidArgument,
                  "--cors-origin {}: wanted an origin as browsers send it, scheme and host "
                  "(\"https://example.org\"), or \"*\"",
                  printable(origin, 128));
  }
  if (!(f.tpot_ms >= 0) || !(f.model.queue_seconds >= 0) || !(f.reload_seconds >= 0) ||
      !(f.http.drain_seconds >= 0) || !(f.ping_seconds > 0) ||
      !(f.stream_ms >= 0 && f.stream_ms <= 1000))
    throw_error(
        Code::kInvalidArgument,
        "--tpot-ms, --queue-seconds, --reload-seconds and --drain-seconds: wanted 0 or more; "
        "--ping-seconds: more than 0; --stream-interval-ms: 0 to 1000");
  check_host(f.http.host);
  if (is_loopback(f.http.host) || !f.key_file.empty() || f.insecure_public) return;
  throw_error(Code::kInvalidArgument,
              "--host {} is reached by other machines, and anybody there could ask: wanted "
              "--api-key-file, or --insecure-public if that is meant",
              f.http.host);
}

// The first rank answers, the others compute along.
void serve_on(Transport& transport, ServeFlags f) {
  std::signal(SIGPIPE, SIG_IGN);  // a log that nobody reads any more is no reason to end
  FileSystem& fs = posix_file_system();
  ServeRanks ranks(transport, f.model.threads, f.ranks.deadline_seconds);
  if (!ranks.first()) {
    // A process of its own: the first one drains, and then ends it.
    if (started_by_mpi() || !f.ranks.rendezvous.empty()) {
      std::signal(SIGTERM, SIG_IGN);
      std::signal(SIGINT, SIG_IGN);
    }
    return ranks.follow(fs);
  }
  check_tls(f.http);  // before the model is loaded, which may take long
  f.model.ranks = &ranks;
  AppOptions options{.http = f.http, .keys = {}, .cors_origins = f.cors_origins};
  if (!f.key_file.empty()) options.keys = ApiKeys::load(fs, f.key_file);
  std::atomic<App*> running = nullptr;
  std::atomic<bool> failed{false};
  f.model.failed = [&] {
    failed = true;
    if (App* app = running) app->http().drain();
  };
  f.model.heard = [&] {
    if (App* app = running) app->http().wake();
  };
  App app(std::move(options),
          load_served_model(fs, f.model));  // who else held it would keep it for ever
  running = &app;
  Reload reload(fs,
                {.path = f.model.path,
                 .seconds = f.reload_seconds,
                 .load = [&] { return load_served_model(fs, f.model); }},
                app.model(), app.metrics());
  std::printf("listening on %s\n", app.http().url().c_str());
  std::fflush(stdout);
  const int64_t cut = app.run();
  reload.stop();
  log_event(Level::kInfo, "serve.ended", "requests={} cut={}", app.metrics().ended_total(), cut);
  if (failed) throw_error(Code::kDevice, "the engine ended by an error; the log says which");
  if (cut > 0)
    throw_error(Code::kInterrupted, "{} cut off after {} seconds of draining",
                cut == 1 ? "1 request was" : fmt::format("{} requests were", cut),
                f.http.drain_seconds);
}

}  // namespace

void cmd_serve(const CommandLine& line) {
  ServeFlags f;
  f.http.port = 8080;
  Flags flags(
      "serve",
      "Answer requests over HTTP in the protocols of OpenAI (completions, chat, responses) and "
      "Anthropic (messages). docs/serving.md describes the endpoints and limits.");
  declare_model(flags, f);
  declare_http(flags, f);
  declare_ranks_with_deadline(flags, "serve", &f.ranks);
  declare_placement(flags, &f.placement);
  if (!flags.parse(line)) return;
  check(flags, f);
  f.model.tpot_seconds = f.tpot_ms / 1000;
  f.model.placement = f.placement.placement();
  f.http.limits.body_bytes = f.body_mib << 20;
  f.http.limits.ping_seconds = f.ping_seconds;
  f.http.stream_seconds = stream_seconds_within(f.stream_ms / 1000, f.model.tpot_seconds);
  f.http.handle_signals = true;

  on_ranks("serve", f.ranks, [&](Transport& transport) { serve_on(transport, f); });
}

}  // namespace moraine
