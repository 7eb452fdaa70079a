// `moraine chat`: a conversation in the terminal.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <mutex>
#include <random>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "kernels/gpu/open_device.h"
#include "server/chat_prompt.h"
#include "server/load_model.h"

namespace moraine {
namespace {

volatile std::sig_atomic_t stop_asked = 0;
void on_interrupt(int) { stop_asked = 1; }

struct ChatFlags {
  ServeModelOptions model;
  SamplingOptions sampling;
  std::string system;
  int64_t max_tokens = 512, seed = -1;
};

void declare(Flags& flags, ChatFlags& f) {
  flags.required("model", &f.model.path, "Checkpoint, run directory, or folder in a public layout.")
      .text("system", &f.system, "System message that the conversation begins with.")
      .text("chat-template", &f.model.chat_template,
            "chatml, plain, or a file in Jinja; default: the model's own.")
      .integer("max-tokens", &f.max_tokens, "New tokens of an answer at most.", 1, 1 << 24)
      .number("temperature", &f.sampling.temperature, "0: always the most likely token.")
      .integer("top-k", &f.sampling.top_k, "Only the k most likely; 0: all.", 0, 1 << 24)
      .number("top-p", &f.sampling.top_p, "Only the most likely that together reach p; 1: all.")
      .number("min-p", &f.sampling.min_p,
              "Only those at least min-p times as likely as the first; 0: all.")
      .integer("seed", &f.seed, "Of the draws; -1: another one for each answer.", -1, INT64_MAX)
      .text("dtype", &f.model.dtype, "f32 or bf16; default: as the weights are stored.")
      .integer("context", &f.model.context, "Positions of the conversation; 0: the model's.", 0,
               1 << 30)
      .text("device", &f.model.device, gpu::kDeviceHelp)
      .integer("threads", &f.model.threads, "0: one per usable core.", 0, 1024);
}

// What the engine's thread says of an answer, taken up by this one.
class Inbox {
 public:
  Listener listener() {
    Listener l;
    l.on_token = [this](const TokenPiece& piece) { put(piece.text); };
    l.on_finish = [this](const Ended& ended) {
      put(ended.text);
      const std::lock_guard<std::mutex> lock(mutex_);
      finish_ = ended.finish;
      error_ = ended.error;
      done_ = true;
      changed_.notify_one();
    };
    return l;
  }
  // Waits a moment for more; false: the answer is complete and all of it taken.
  bool take(std::string* text) {
    constexpr std::chrono::milliseconds kLook(50);  // how soon Ctrl-C is seen
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, kLook, [&] { return done_ || !text_.empty(); });
    text->swap(text_);
    text_.clear();
    return !done_ || !text->empty();
  }
  Finish finish() const { return finish_; }
  const std::string& error() const { return error_; }

 private:
  void put(const std::string& text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    text_ += text;
    changed_.notify_one();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_, error_;
  Finish finish_ = Finish::kStop;
  bool done_ = false;
};

class Talk {
 public:
  Talk(const ChatFlags& flags, std::shared_ptr<const ServedModel> model)
      : flags_(flags), model_(std::move(model)) {
    begin();
  }

  void begin() {
    conversation_ = Conversation();
    if (!flags_.system.empty())
      conversation_.messages.push_back({{"role", "system"}, {"content", flags_.system}});
  }
  void say(const std::string& text) {
    conversation_.messages.push_back({{"role", "user"}, {"content", text}});
    answer();
  }
  // The last answer again, with other draws.
  void retry() {
    Json& messages = conversation_.messages;
    if (messages.empty() || messages.back()["role"] != "assistant") return;
    messages.erase(messages.size() - 1);
    answer();
  }

 private:
  // Printed as it comes. What can not be answered is taken back, so that the next message can be.
  void answer() {
    std::string text;
    try {
      text = stream();
    } catch (const Error& e) {
      if (e.code() != Code::kInvalidArgument && e.code() != Code::kOverloaded) throw;
      conversation_.messages.erase(conversation_.messages.size() - 1);
      say_error(e.what());
      return;
    }
    conversation_.messages.push_back({{"role", "assistant"}, {"content", text}});
  }

  std::string stream() {
    const ChatPrompt prompt =
        chat_prompt(*model_->chat, conversation_, *model_->tokenizer, model_->special_texts);
    Request request;
    request.prompt = prompt.tokens;
    request.sampling = flags_.sampling;
    request.sampling.seed =
        flags_.seed >= 0 ? static_cast<uint64_t>(flags_.seed) : std::random_device()();
    request.end_ids = model_->end_ids;
    if (!model_->turn_end.empty()) request.stop.push_back(model_->turn_end);
    const int64_t room = model_->context - static_cast<int64_t>(request.prompt.size());
    if (room < 1 && !is_answered())
      throw_error(Code::kInvalidArgument,
                  "the first message takes {} positions with what the template puts around it, and "
                  "there are {}; shorten it, or give a larger --context",
                  request.prompt.size(), model_->context);
    if (room < 1)
      throw_error(Code::kInvalidArgument,
                  "the conversation fills the {} positions there are; begin a new one with /new",
                  model_->context);
    request.max_tokens = std::min(flags_.max_tokens, room);
    Inbox inbox;
    stop_asked = 0;
    const int64_t id = model_->generator->submit(std::move(request), inbox.listener());
    std::string all, piece;
    while (inbox.take(&piece)) {
      all += piece;
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
      if (stop_asked) model_->generator->cancel(id);
    }
    std::fputs(all.ends_with('\n') ? "" : "\n", stdout);
    std::fflush(stdout);
    if (inbox.finish() == Finish::kError) throw_error(Code::kInvalidArgument, "{}", inbox.error());
    if (inbox.finish() == Finish::kLength) say_error("(cut at --max-tokens, or no position left)");
    return all;
  }

  bool is_answered() const {
    return std::any_of(conversation_.messages.begin(), conversation_.messages.end(),
                       [](const Json& message) { return message["role"] == "assistant"; });
  }

  static void say_error(const std::string& text) { fmt::print(stderr, "{}\n", text); }

  const ChatFlags& flags_;
  const std::shared_ptr<const ServedModel> model_;
  Conversation conversation_;
};

// A line of standard input. False: there is no more, or Ctrl-C was pressed while none was typed.
bool read_line(bool terminal, std::string* line) {
  if (terminal) fmt::print(stderr, "> ");
  stop_asked = 0;
  if (!std::getline(std::cin, *line)) return false;
  if (line->ends_with('\r')) line->pop_back();
  return true;
}

// "/exit " and "/nwe" are meant as commands, "/usr is full" is not.
bool is_command(const std::string& text) {
  return text.size() > 1 && text[0] == '/' &&
         std::all_of(text.begin() + 1, text.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

}  // namespace

void cmd_chat(const CommandLine& line) {
  ChatFlags f;
  f.sampling.temperature = 0.8;
  f.sampling.top_p = 0.95;
  f.model.sequences = 1;
  Flags flags(
      "chat",
      "Talk with a model: each line is a message. /new begins again, /retry asks for another "
      "answer, /exit or the end of the input ends; Ctrl-C stops an answer.");
  declare(flags, f);
  if (!flags.parse(line)) return;
  check_sampling(f.sampling, INT64_MAX);  // all but what the vocabulary decides
  const std::shared_ptr<const ServedModel> model = load_served_model(posix_file_system(), f.model);
  check_sampling(f.sampling, model->tokenizer->vocabulary_size());
  if (model->chat == nullptr)
    throw_error(Code::kInvalidArgument, "chat with {}: {}", f.model.path, model->no_chat);
  struct sigaction action = {};
  action.sa_handler = on_interrupt;  // no SA_RESTART: a read that waits ends
  sigaction(SIGINT, &action, nullptr);
  Talk talk(f, model);
  const bool terminal = isatty(STDIN_FILENO) == 1;
  for (std::string text; read_line(terminal, &text);) {
    const std::string command = text.substr(0, text.find_last_not_of(" \t") + 1);
    if (command == "/exit") break;
    if (command == "/new") {
      talk.begin();
    } else if (command == "/retry") {
      talk.retry();
    } else if (is_command(command)) {
      fmt::print(stderr,
                 "{} is no command: /new, /retry and /exit are; a space before it sends it\n",
                 command);
    } else if (!text.empty()) {
      talk.say(text);
    }
  }
  model->generator->stop();
}

}  // namespace moraine
