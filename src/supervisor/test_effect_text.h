// EffectText: an effect of the supervisor as a line, to compare two of them.
#pragma once

#include <fmt/format.h>

#include <string>

#include "supervisor/run_effect.h"

namespace moraine::testing {

inline std::string effect_text(const RunEffect& effect) {
  if (const auto* e = std::get_if<StartRank>(&effect))
    return fmt::format("start rank={} host={} start={}", e->rank, e->host, e->start);
  if (const auto* e = std::get_if<SignalRank>(&effect))
    return fmt::format("signal rank={} pid={} signal={}", e->rank, e->pid, e->signal);
  if (const auto* e = std::get_if<WriteLedger>(&effect)) return ledger_line(e->entry);
  if (const auto* e = std::get_if<RaiseAlert>(&effect)) return fmt::format("alert {}", e->text);
  if (const auto* e = std::get_if<WriteLog>(&effect))
    return fmt::format("log {} {}", e->name, e->fields);
  const auto& e = std::get<FinishRun>(effect);
  return fmt::format("finish exit={} {}", e.exit_code, e.reason);
}

}  // namespace moraine::testing
