#!/usr/bin/env bash
# Each source file that changed since COMMIT, alone, by clang, warnings as errors: what the gate would refuse after a quarter of an hour, in
# seconds. The release build has many files in one, where one file's includes serve another.
#   scripts/syntax.sh [COMMIT]     default: what is not committed yet
set -euo pipefail
cd "$(dirname "$0")/.."
{ git diff --name-only --diff-filter=d "${1:-HEAD}"; git ls-files --others --exclude-standard; } | grep -E '^(src|tests)/.*\.cc$' | sort -u |
  xargs -r -P "$(nproc)" -n 1 clang++ -fsyntax-only -std=c++20 -I. -Isrc -DFMT_SHARED -DHWY_DISABLED_TARGETS=6352 -DHWY_SHARED_DEFINE \
    -ffp-contract=off -Wall -Wextra -Werror -Wno-psabi -Wno-format-zero-length -Wno-unknown-pragmas
