#!/usr/bin/env bash
# Every case of the fault matrix (docs/chaos.md), one line each, then a table of them. Takes minutes.
#   tools/fault_matrix.sh [SEED] [BUILD FOLDER]
# SEED (1) decides at which pass of a state the fault comes, and which rank is lost first where a second one follows.
# Ends with 1 if any case ended other than it should; what it said stays in the file that is named last.
set -euo pipefail
cd "$(dirname "$0")/.."
seed=${1:-1}
build=${2:-build/release}
log=$(mktemp -t fault-matrix-XXXXXX.log)
failed=0
MORAINE_FAULT_MATRIX=all MORAINE_FAULT_MATRIX_SEED=$seed "$build/ranks_test" --gtest_filter='FaultMatrix.*' 2>&1 |
  tee "$log" | grep --line-buffered -aE '^[a-z_]+\.[a-z_]+.*  (equal|BAD)$' || failed=$?

# "<operation>.<state> ...: rank R killed" or, of two faults, "...; <operation>.<state>: rank R killed".
grep -aE '^[a-z_]+\.[a-z_]+.*  (equal|BAD)$' "$log" | awk '
  {
    bad = $NF == "BAD"; seconds = $(NF - 2)
    text = $0; sub(/  +[0-9.]+ s  (equal|BAD)$/, "", text)
    second = text ~ /; /
    last = text; sub(/.*; /, "", last)
    operation = last; sub(/\..*/, "", operation)
    if (second) operation = operation " (second fault)"
    how = text ~ /forgotten/ ? "forgotten" : text ~ /killed$/ ? "killed" : "stopped"
    if (!(operation in known)) { known[operation] = 1; order[++operations] = operation }
    ++count[operation, how]; ++all; bads += bad; wrong[operation] += bad
    if (seconds > longest[operation]) longest[operation] = seconds
  }
  END {
    printf "\n%-24s %7s %8s %10s %6s %9s\n", "operation", "killed", "stopped", "forgotten", "bad", "longest s"
    for (i = 1; i <= operations; ++i) {
      o = order[i]
      printf "%-24s %7d %8d %10d %6d %9.1f\n", o, count[o, "killed"], count[o, "stopped"], count[o, "forgotten"], wrong[o], longest[o]
    }
    printf "%d cases, %d bad\n", all, bads
  }'
echo "$log"
exit "$failed"  # also of a crash, or of a line that says BAD
