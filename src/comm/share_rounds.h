// ShareRounds: how ranges of a flat buffer become messages that both sides know without asking.
//
// Neighbouring ranges of a member are one message; round k moves each member's k-th message. A
// member posts round k only when it has taken all of round k - 1, so no ring fills up.
#pragma once

#include "comm/collectives.h"

namespace moraine {

// Per member: ascending, not empty, no two that touch.
Shares merge_shares(const Shares& shares);
int64_t round_count(const Shares& merged);
// What of the shares lies in `part`.
Shares cut_shares(const Shares& shares, Range part);

// A wrong share is the caller's bug.
void check_shares(const Shares& shares, int members, int64_t count);

}  // namespace moraine
