#!/usr/bin/env bash
# What finds that which the tests of the release build can not, each part with its time.
#   scripts/gate.sh [PART...]     default: all of them, cheap ones first, which .ci/run does before it runs the tests
#
#   text      check_*.sh: layers, sizes, double type names, format, claims of the documents
#   fuzz      every fuzz program for a few seconds (hours: scripts/fuzz.sh)
#   parsers   address and undefined-behaviour sanitizers, by clang, warnings as errors: what reads foreign bytes
#   address   the same: model, train, cli
#   thread    thread sanitizer: comm, parallel
#   headers   every header alone
#   clang     what the parts before it did not compile, by clang, warnings as errors (only the syntax)
#   gpu       the GPU kernels: compiled for every target (scripts/gpu_compile.sh), and emulated under the address sanitizer
# Without names, what MORAINE_GATE_MINUTES (40) have no room for is left out, and that is said: a part that would begin later, and one
# that is not done three minutes after them. .ci/run gives a slow machine fewer: it needs its time for the tests.
# Where clang is missing or is not that of Debian 12, the parts that need it say so, and what is theirs is not looked at.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc)
program_seconds=1500  # of one sanitized test program, on a slow machine too: a hang is a failure with a name

# Instrumented code is 2 to 20 times slower. What is left out runs in the release build: the same code at every one of thousands of
# places (which the fuzz programs do here), finite differences of whole models, and, for threads, ranks that are processes.
parser_programs=(base tokenizer data checkpoint)  # most of it is compiled for the fuzz programs
address_programs=(model train cli)
address_filter='-*AtAnyCall*:*EveryFlippedByte*:*EveryCut*:*DamageOfAnyFile*:*AnErrorOnOneRank*:*RandomDamage*:*AMegabyte*'
address_filter+=':Checkpoints.ManyTensors*:DatasetTest.AFullDisk*:DatasetTest.ThreadCount*:DatasetTest.Split*:BpeModel.LongRuns*'
address_filter+=':Train.ThreadsChangeNothing:ModelGradient.*:ContextModel.Repetition*:Shard.PartsTile*:SlotTree.Sums*'
# What runs on an emulated GPU has a part of its own.
address_filter+=':Gpu*:DeviceCli.*'
# Of whole models on it the cheap ones: kernels and emulator are looked at one by one. Of kernels, not many rows by every rule: the
# same few loads and barriers again and again.
gpu_filter='-GpuAttention.Matches*:GpuAttention.Every*:GpuAttention.ARow*:GpuLinear.Matches*:GpuLinear.Every*:GpuLinear.ARow*:Tile.Exp*'
gpu_filter+=':GpuAttentionBackward.Matches*:GpuAttentionBackward.Every*:GpuAttentionBackward.AD*:GpuLinearBackward.Matches*'
gpu_filter+=':GpuLinearBackward.Every*:GpuLinearBackward.AG*:GpuMatmul.Matches*:GpuMatmul.Every*:GpuAttentionPart.Matches*:GpuAttentionPart.APart*'
gpu_model_filter='GpuModel.NoLayer*:GpuModel.WhatHasNoKernel*:DeviceCli.AnEmulatedGpuScores*'
thread_programs=(comm parallel)
# The last two launch kernels on an emulated GPU, whose fibers this sanitizer does not know.
thread_filter='-Mpi.*:Process*:ContextAttention.DevicesGive*:DeviceCollectives.HaveThe*'

export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1

clang_ready() {
  local version
  version=$(clang++ --version 2>/dev/null | sed -n 's/.*clang version \([0-9]*\).*/\1/p' | head -n 1)
  [ "$version" = 14 ] && return
  echo "gate: SKIPPED: $1 wants clang 14 (Debian 12), found ${version:-none}" >&2
  return 1
}

text() {
  local check status
  for check in layers sizes types format docs; do
    status=0
    scripts/check_$check.sh || status=$?
    [ $status -eq 0 ] || [ $status -eq 77 ] || return $status
  done
}

sanitized() { # preset, filter, program...
  local preset=$1 filter=$2 program status targets=()
  shift 2
  for program in "$@"; do targets+=("${program}_test"); done
  cmake --preset "$preset" -DCMAKE_COMPILE_WARNING_AS_ERROR=ON >/dev/null
  cmake --build --preset "$preset" --target "${targets[@]}" -- -k 0  # every finding at once
  for program in "${targets[@]}"; do
    echo "gate: $preset: $program"
    status=0
    timeout --foreground --kill-after=10 "$program_seconds" "build/$preset/$program" --gtest_brief=1 --gtest_filter="$filter" || status=$?
    [ $status -ne 124 ] && [ $status -ne 137 ] || echo "gate: $preset: $program: not done after $program_seconds s: it hangs, or needs a smaller filter" >&2
    [ $status -eq 0 ] || return 1
  done
}

parsers() { clang_ready parsers || return 0; sanitized asan "$address_filter" "${parser_programs[@]}"; }
address() { clang_ready address || return 0; sanitized asan "$address_filter" "${address_programs[@]}"; }
thread() { clang_ready thread || return 0; sanitized tsan "$thread_filter" "${thread_programs[@]}"; }
fuzz() { clang_ready fuzz || return 0; scripts/fuzz.sh "${MORAINE_FUZZ_SECONDS:-5}"; }

# Of every file of the asan tree that has no object yet, the syntax. Files that a build makes are left out where none has made them.
clang() {
  clang_ready clang || return 0
  cmake --preset asan -DCMAKE_COMPILE_WARNING_AS_ERROR=ON >/dev/null
  cmake --build --preset asan --target headers_loops headers_calm headers_test  # precompiled
  awk '
    /"directory":/ { folder = $0; gsub(/^ *"directory": "|",?$/, "", folder) }
    /"command":/ {
      command = $0
      sub(/^ *"command": "/, "", command); sub(/",?$/, "", command); gsub(/\\"/, "\"", command); gsub(/\\\\/, "\\", command)
      object = command; sub(/.* -o /, "", object); sub(/ .*/, "", object)
      if (object ~ /headers_alone/) next
      if ((getline line < (folder "/" object)) >= 0) { close(folder "/" object); next }
      sub(/^[^ ]*ccache /, "", command)
      sub(/ -o [^ ]*/, "", command)
      source = command; sub(/.* -c /, "", source)
      if ((getline line < source) < 0) next
      close(source)
      printf "%s%c", "cd " folder " && " command " -fsyntax-only", 0
    }' build/asan/compile_commands.json |
    xargs -0 -P "$jobs" -I{} bash -c '{}'
}

# Without a compiler, without ptxas or without clang 14 what is missing is said, and the rest runs.
gpu() {
  local status=0
  scripts/gpu_compile.sh || status=$?
  [ $status -eq 0 ] || [ $status -eq 77 ] || return $status
  clang_ready gpu || return 0
  # With the compiled kernels in the program, where they can be.
  cmake --preset asan -DMORAINE_GPU_KERNELS="$([ $status -eq 0 ] && echo ON || echo OFF)" >/dev/null
  # A stack of its own for what returns, for each of thousands of fibers, would take nine tenths of the time.
  local -x ASAN_OPTIONS=$ASAN_OPTIONS:detect_stack_use_after_return=0
  sanitized asan "$gpu_filter" gpu
  sanitized asan "$gpu_model_filter" model cli
}

headers() {
  cmake --preset release >/dev/null
  cmake --build --preset release --target headers_alone
}

# Processor seconds of everything that this script started and that has ended.
children_seconds() { awk -v ticks="$(getconf CLK_TCK)" '{ printf "%d", ($16 + $17) / ticks }' "/proc/$$/stat"; }

for part in "$@"; do  # by name: whatever it takes
  begin=$(date +%s)
  before=$(children_seconds)
  echo "gate: $part"
  "$part"
  echo "gate: $part: done in $(($(date +%s) - begin)) s, $(($(children_seconds) - before)) s of processor time"
done
[ $# -eq 0 ] || exit 0

minutes=${MORAINE_GATE_MINUTES:-40}
for part in text fuzz parsers address thread headers clang gpu; do
  if [ $SECONDS -ge $((60 * minutes)) ]; then
    echo "gate: SKIPPED: $part: $((SECONDS / 60)) minutes are over, of MORAINE_GATE_MINUTES=$minutes; scripts/gate.sh $part runs it" >&2
    continue
  fi
  status=0
  timeout --kill-after=10 $((60 * (minutes + 3) - SECONDS)) scripts/gate.sh "$part" || status=$?
  [ $status -eq 0 ] || [ $status -eq 124 ] || exit $status
  [ $status -eq 0 ] ||
    echo "gate: SKIPPED: the rest of $part: not done in time, of MORAINE_GATE_MINUTES=$minutes; scripts/gate.sh $part runs it" >&2
done
