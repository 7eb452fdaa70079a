#!/usr/bin/env bash
# Every test: set-up, build, structure checks, then the test runner.
#   ./test.sh [preset] [ctest arguments...]     preset: release (default), dev, asan, tsan
set -euo pipefail
cd "$(dirname "$0")"
preset=release
if [ $# -gt 0 ] && [[ $1 != -* ]]; then
  preset=$1
  shift
fi
scripts/setup.sh

# Sets `spent`: the processor time of this script and its children so far, user and system, in seconds.
clock=$(mktemp)
trap 'rm -f "$clock"' EXIT
read_clock() {
  times > "$clock"
  spent=$(awk '{ for (i = 1; i <= 2; ++i) { split($i, t, /[ms]/); sum += 60 * t[1] + t[2] } } END { printf "%.0f", sum }' "$clock")
}
read_clock; begun=$spent
cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset"
read_clock; built=$spent
scripts/check_layers.sh
passed=0
ctest --preset "$preset" --no-tests=error "$@" || passed=$?
read_clock
echo "processor time: build $((built - begun)) s, tests $((spent - built)) s"
exit $passed
