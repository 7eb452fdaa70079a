// Options through CLI11; the only file that includes it.
#include "cli/flags.h"

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/nearest.h"

namespace moraine {

struct Flags::State {
  CLI::App app;
  std::vector<std::string> names;
  State(const std::string& summary, const std::string& command) : app(summary, command) {}
};

namespace {

const char* kExitCodes =
    "Exit codes: 0 done; 2 usage; 10 invalid argument; 11 not found; 12 corrupt; 13 disk; 14 "
    "diverged; 15 peer lost;\n"
    "16 timeout; 17 device; 18 interrupted, state saved: run again to go on. stdout: results; "
    "stderr: the rest.";

std::string flag_name(const std::string& name) { return "--" + name; }

}  // namespace

Flags::Flags(const std::string& command, const std::string& summary)
    : state_(std::make_unique<State>(summary, "moraine " + command)) {
  state_->app.footer(kExitCodes);
  state_->app.set_help_flag("--help", "Print this and exit.");
}

Flags::~Flags() = default;

Flags& Flags::text(const std::string& name, std::string* variable, const std::string& help) {
  state_->names.push_back(flag_name(name));
  state_->app.add_option(flag_name(name), *variable, help)->capture_default_str();
  return *this;
}

Flags& Flags::required(const std::string& name, std::string* variable, const std::string& help) {
  state_->names.push_back(flag_name(name));
  state_->app.add_option(flag_name(name), *variable, help)->required();
  return *this;
}

Flags& Flags::choice(const std::string& name, std::string* variable,
                     std::vector<std::string> choices, const std::string& help) {
  state_->names.push_back(flag_name(name));
  state_->app.add_option(flag_name(name), *variable, help)
      ->check(CLI::IsMember(std::move(choices)))
      ->capture_default_str();
  return *this;
}

Flags& Flags::integer(const std::string& name, int64_t* variable, const std::string& help,
                      int64_t min, int64_t max) {
  state_->names.push_back(flag_name(name));
  state_->app.add_option(flag_name(name), *variable, help)
      ->check(CLI::Range(min, max))
      ->capture_default_str();
  return *this;
}

Flags& Flags::number(const std::string& name, double* variable, const std::string& help) {
  state_->names.push_back(flag_name(name));
  state_->app.add_option(flag_name(name), *variable, help)->capture_default_str();
  return *this;
}

Flags& Flags::flag(const std::string& name, bool* variable, const std::string& help) {
  state_->names.push_back(flag_name(name));
  state_->app.add_flag(flag_name(name), *variable, help);
  return *this;
}

Flags& Flags::list(const std::string& name, std::vector<std::string>* variable,
                   const std::string& help) {
  state_->names.push_back(flag_name(name));
  state_->app.add_option(flag_name(name), *variable, help);
  return *this;
}

Flags& Flags::positional(const std::string& name, std::string* variable, const std::string& help) {
  state_->app.add_option(name, *variable, help)->required();
  return *this;
}

Flags& Flags::choice_positional(const std::string& name, std::string* variable,
                                std::vector<std::string> choices, const std::string& help) {
  state_->app.add_option(name, *variable, help)
      ->required()
      ->check(CLI::IsMember(std::move(choices)));
  return *this;
}

bool Flags::parse(std::span<char*> args) {
  std::vector<std::string> reversed(args.rbegin(), args.rend());  // CLI11 takes them from the back
  try {
    state_->app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", state_->app.help());
    return false;
  } catch (const CLI::ExtrasError&) {
    for (const std::string& extra : state_->app.remaining()) {
      const std::string name = extra.substr(0, extra.find('='));
      throw_error(Code::kInvalidArgument,
                  "unknown argument {}; did you mean {}? `--help` lists them", extra,
                  nearest_name(name, state_->names));
    }
    throw_error(Code::kInvalidArgument, "unknown argument; `--help` lists them");
  } catch (const CLI::ParseError& e) {
    throw_error(Code::kInvalidArgument, "{}; `--help` lists the flags", e.what());
  }
  return true;
}

bool Flags::given(const std::string& name) const { return state_->app.count(flag_name(name)) > 0; }

}  // namespace moraine
