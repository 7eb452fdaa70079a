#!/usr/bin/env bash
# Checks that no two types of the program have one name: the linker merges their inline functions, silently. And no two
# things in the anonymous namespaces of one folder, whose files are compiled together (cmake/batches.cmake).
#   scripts/check_types.sh [ROOT]     ROOT: a checkout; default: the one this script is in
# Types in anonymous namespaces are their file's own. Test programs are looked at together with the program, but for those names.
# Functions of one name may differ in the types of their parameters; whether two files meet in one run of the compiler does not count.
set -euo pipefail
shopt -s inherit_errexit
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/..}"
export LC_ALL=C

scanned=$(find src tests \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -size +0 | sort | xargs awk -f "$here/scan_code.awk")
types=$(grep '^TYPE ' <<<"$scanned")
problems=$(awk '$2 in place { print $3 ": " $2 " is also the name of another type, at " place[$2] } { place[$2] = $3 }' <<<"$types")

# Files that are compiled alone (cmake/batches.cmake) have names of their own.
alone=$(find src tests -name '*.cc' -print0 | xargs -0 grep -lE 'hwy/foreach_target.h|define MR_GPU_WAVE' || true)
own=$(awk -v alone="$alone" '
  BEGIN { n = split(alone, list, "\n"); for (i = 1; i <= n; ++i) is_alone[list[i]] = 1 }
  $1 != "OWN" { next }
  { file = $4; sub(/:[0-9]+$/, "", file) }
  file !~ /\.cc$/ || file ~ /_(bench|fuzz)\.cc$/ || file in is_alone { next }
  {
    folder = file
    if (!sub(/^src\//, "", folder)) { sub(/^tests\//, "", folder); folder = "tests/" folder }
    match(folder, file ~ /^tests/ ? "^tests/[^/]*" : "^[^/]*")
    folder = substr(folder, 1, RLENGTH) (file ~ /_test\.cc$/ ? " tests" : "")
    what = $0; sub(/^OWN [^ ]* [^ ]* [^ ]* /, "", what)
    print folder "|" $2 "|" $3 "|" $4 "|" file "|" what
  }' <<<"$scanned")
doubles=$(awk -F'|' '
  {
    key = $1 "|" $2 "|" $3
    for (i = 1; i <= count[key]; ++i) {
      if (file[key, i] == $5) continue
      both_functions = what[key, i] ~ /^\(/ && $6 ~ /^\(/
      both_aliases = what[key, i] ~ /^=/ && $6 ~ /^=/
      if (both_functions ? what[key, i] == $6 : !(both_aliases && what[key, i] == $6)) {
        print $4 ": " $3 " is also a name in an anonymous namespace of this folder, at " place[key, i]
        break
      }
    }
    i = ++count[key]
    file[key, i] = $5; place[key, i] = $4; what[key, i] = $6
  }' <<<"$own")
if [ -n "$problems$doubles" ]; then
  printf '%s\n' "$problems" "$doubles" | grep . >&2
  echo "check_types: problems: $(printf '%s\n' "$problems" "$doubles" | grep -c .)" >&2
  exit 1
fi
echo "check_types: $(wc -l <<<"$types") types and $(wc -l <<<"$own") names of files, no name twice"
