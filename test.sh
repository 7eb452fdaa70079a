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
cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset"
scripts/check_layers.sh
ctest --preset "$preset" --no-tests=error "$@"
