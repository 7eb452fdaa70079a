#!/usr/bin/env bash
# The day a GPU is there: builds with the kernels in the program, runs every test of GPU kernels on the device, and
# measures products, beside cuBLASLt or hipBLASLt where one is, and attention. Ends with one page on stdout, which
# belongs into bench/results. MORAINE_MATMUL_LIBRARY names the library's file where it is in no usual place.
#   scripts/gpu_check.sh [RULE]     RULE: how the device's matrix units round: cdna2, cdna3, sm_80, sm_90; default: by name
# Needs a driver, clang 19 and lld 19 (scripts/setup.sh gpu); takes minutes, most of them to build.
# Exit: 0; 1 if a test failed; 77 without a driver: skipped, and it says so.
# It has never run with a device; the programs that it runs have (docs/gpu.md).
set -euo pipefail
cd "$(dirname "$0")/.."

device=
libraries=$(PATH=$PATH:/sbin ldconfig -p)
for library in libcuda.so.1 libamdhip64.so; do
  if grep -q "$library" <<<"$libraries"; then device=$library; fi
done
if [ -z "$device" ]; then
  echo "gpu_check: SKIPPED: no driver on this machine (libcuda.so.1, libamdhip64.so)" >&2
  exit 77
fi

build=build/gpu-check
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMORAINE_GPU_KERNELS=ON >/dev/null
cmake --build "$build" --target moraine gpu_test >&2

page=$("$build/moraine" bench gpu)
name=$(sed -n 's/^device   //p' <<<"$page")
rule=${1:-}
if [ -z "$rule" ]; then
  case $name in
    *H100*|*H200*|*GH200*|*B100*|*B200*) rule=sm_90 ;;
    *A100*|*A800*|*A30*) rule=sm_80 ;;
    *MI300*|*MI325*) rule=cdna3 ;;
    *MI210*|*MI250*) rule=cdna2 ;;
    *) echo "gpu_check: which rule of rounding has ${name:-no device}? give it: cdna2, cdna3, sm_80 or sm_90" >&2; exit 1 ;;
  esac
fi

log=$build/gpu_test.log
failed=0
MORAINE_TEST_GPU=$rule "$build/gpu_test" >"$log" 2>&1 || failed=1
echo "# $(date -u +%F), $name, by the rule of $rule, $(git rev-parse --short=12 HEAD)"
echo "$page"
echo
echo "tests on the device (MORAINE_TEST_GPU=$rule gpu_test): $(grep -c '^\[       OK' "$log" || true) passed, $(grep -c '^\[  FAILED  \].*ms' "$log" || true) failed"
grep '^\[  FAILED  \].*ms' "$log" || true
echo "all of it: $log"
exit $failed
