#!/usr/bin/env bash
# Checks that no two types of the program have one name: the linker merges their inline functions, silently.
#   scripts/check_types.sh [ROOT]     ROOT: a checkout; default: the one this script is in
# Types in anonymous namespaces are their file's own. Test programs are looked at together with the program.
set -euo pipefail
shopt -s inherit_errexit
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/..}"
export LC_ALL=C

types=$(find src tests \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -size +0 | sort | xargs awk -f "$here/scan_code.awk" | grep '^TYPE ')
problems=$(awk '$2 in place { print $3 ": " $2 " is also the name of another type, at " place[$2] } { place[$2] = $3 }' <<<"$types")
if [ -n "$problems" ]; then
  printf '%s\n' "$problems" >&2
  echo "check_types: problems: $(printf '%s\n' "$problems" | wc -l)" >&2
  exit 1
fi
echo "check_types: $(wc -l <<<"$types") types, no name twice"
