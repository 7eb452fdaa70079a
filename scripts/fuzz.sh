#!/usr/bin/env bash
# Feeds damaged input to every parser of foreign bytes, with clang's libFuzzer and the address and undefined-behaviour sanitizers.
#   scripts/fuzz.sh [SECONDS] [PARSER...]     SECONDS for each (default 3600); PARSER: settings, tokenizer, shard, ...; default: all
# Starts from tests/fuzz/PARSER, keeps what it learns in build/fuzz/PARSER, puts what fails into build/fuzz/found, with the line that
# repeats it. Exit: 0; 1 if anything was found; 77 where clang has no libFuzzer: skipped, and it says so.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-3600}
[ $# -eq 0 ] || shift

probe=$(mktemp -d)
trap 'rm -rf "$probe"' EXIT
echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' > "$probe/a.cc"
if ! clang++ -fsanitize=fuzzer,address,undefined "$probe/a.cc" -o "$probe/a" 2>/dev/null; then
  echo "fuzz: SKIPPED: no clang++ with libFuzzer (Debian: clang, libclang-rt-dev)" >&2
  exit 77
fi

cmake --preset asan >/dev/null
cmake --build --preset asan --target fuzz_programs
mkdir -p build/fuzz/found
export ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1

parsers=("$@")
[ ${#parsers[@]} -gt 0 ] || mapfile -t parsers < <(find build/asan/fuzz -name '*_fuzz' -printf '%f\n' | sed 's/_fuzz$//' | LC_ALL=C sort)

# Two at a time would fight for the cores of a small machine, so as many as there are cores, and each for the whole time.
run() { # parser
  local corpus=build/fuzz/$1 log=build/fuzz/$1.log
  mkdir -p "$corpus"
  if build/asan/fuzz/"$1"_fuzz -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -malloc_limit_mb=1024 -max_len=65536 \
      -print_final_stats=1 -artifact_prefix="build/fuzz/found/$1-" "$corpus" "tests/fuzz/$1" > "$log" 2>&1; then
    printf 'fuzz: %-18s %s inputs, nothing found\n' "$1" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
  else
    grep -E 'ERROR|SUMMARY|MR_CHECK|what\(\)|runtime error' "$log" | head -n 5 >&2
    echo "fuzz: $1: FOUND: build/asan/fuzz/$1_fuzz $(sed -n 's/.*Test unit written to //p' "$log" | head -n 1)   (log: $log)" >&2
    return 1
  fi
}
export -f run
export seconds
printf '%s\n' "${parsers[@]}" | xargs -P "$(nproc)" -I{} bash -c 'run "$1"' _ {} || { echo "fuzz: there are findings" >&2; exit 1; }
