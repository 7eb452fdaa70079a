#!/usr/bin/env bash
# Runs tests of GPU kernels on their PTX, by our interpreter, each launch held bit for bit against the emulation.
#   scripts/ptx_check.sh [--program FILE]... [--filter FILTER] [TARGET...]
#     FILE    a program with such tests; default: those of kernels, optimizers and whole models, which are built
#     FILTER  of googletest; default: Gpu*
#     TARGET  sm_80, sm_90; default: both
# Prints a table: kernel, target, launches, elements that were stored, those that differ, NaNs that both have with other bits.
# Exit: 0; 1 if a test failed or an element differs; 77 where clang 19 is missing: skipped, and it says so.
set -euo pipefail
cd "$(dirname "$0")/.."

programs=()
filter='Gpu*'
targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --program) programs+=("$2"); shift 2 ;;
    --filter) filter=$2; shift 2 ;;
    sm_80 | sm_90) targets+=("$1"); shift ;;
    *) echo "ptx_check: $1: wanted --program FILE, --filter FILTER, sm_80 or sm_90" >&2; exit 2 ;;
  esac
done
[ ${#targets[@]} -gt 0 ] || targets=(sm_80 sm_90)
if ! command -v clang++-19 >/dev/null; then
  echo "ptx_check: SKIPPED: want clang 19 (scripts/setup.sh gpu), found no clang++-19" >&2
  exit 77
fi
if [ ${#programs[@]} -eq 0 ]; then
  cmake --preset release >/dev/null
  cmake --build --preset release --target gpu_test optim_test model_test >&2
  programs=(build/release/gpu_test build/release/optim_test build/release/model_test)
fi

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failed=0
for target in "${targets[@]}"; do
  for program in "${programs[@]}"; do
    MORAINE_PTX_REPORT=$out/report MORAINE_TEST_GPU=ptx:$target "$program" --gtest_filter="$filter" >"$out/log" 2>&1 || { failed=1; tail -n 40 "$out/log" >&2; }
    grep -E '^\[  (PASSED|FAILED)  \]|^C\+\+ exception' "$out/log" | sed "s/^/ptx_check: $target: $(basename "$program"): /" >&2 || true
  done
done
touch "$out/report"
LC_ALL=C sort "$out/report" | awk '
  {
    key = sprintf("%-28s %s", $1, $2)
    if (!(key in launches)) order[++count] = key
    launches[key] += $3; elements[key] += $4; differ[key] += $5; nans[key] += $6
    all += $4; wrong += $5
  }
  END {
    printf "%-28s %-6s %9s %11s %7s %5s\n", "kernel", "target", "launches", "elements", "differ", "NaNs"
    for (i = 1; i <= count; ++i) { k = order[i]; printf "%s  %9d %11d %7d %5d\n", k, launches[k], elements[k], differ[k], nans[k] }
    printf "ptx_check: %d rows, %d elements, %d differ\n", count, all, wrong
    exit wrong > 0 || count == 0
  }' || failed=1
exit $failed
