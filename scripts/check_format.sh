#!/usr/bin/env bash
# Checks that clang-format would change nothing. The form is that of version 14 (Debian 12): others differ in places.
#   scripts/check_format.sh [--fix]
# Exit: 0; 1 for a file in another form; 77 where clang-format is missing or of another version: skipped, and it says so.
set -euo pipefail
cd "$(dirname "$0")/.."
want=14
program=$(command -v clang-format-$want || command -v clang-format || true)
found=$([ -z "$program" ] || "$program" --version | sed -n 's/.*version \([0-9]*\).*/\1/p')
if [ "$found" != "$want" ]; then
  echo "check_format: SKIPPED: want clang-format $want, found ${found:-none}" >&2
  exit 77
fi
mapfile -t files < <(find src tests \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) | LC_ALL=C sort)
if [ "${1:-}" = --fix ]; then
  "$program" -i "${files[@]}"
  exit
fi
if off=$(grep -nE '//.*clang-format off|/\*.*clang-format off' "${files[@]}"); then
  printf '%s: the formatter is not switched off\n' "$(cut -d: -f1,2 <<<"$off")" >&2
  exit 1
fi
if ! problems=$(printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 50 "$program" --dry-run --Werror 2>&1); then
  grep 'error:' <<<"$problems" >&2 || printf '%s\n' "$problems" >&2
  echo "check_format: run scripts/check_format.sh --fix" >&2
  exit 1
fi
echo "check_format: ${#files[@]} files, no problems"
