#!/usr/bin/env bash
# Checks what the documents say against the tree, as far as a script can.
#   scripts/check_docs.sh [ROOT]     ROOT: a checkout; default: the one this script is in
#
#   links     every file that a document links to is there, with the heading behind #; every page of docs is linked from
#             docs/README.md; a path of this tree in `` is there too
#   tests     every test that a document names (`Suite.Name`) exists
#   prints    only the files that CONTRIBUTING.md allows to print do
#   disk      only the files that file_system.h's rule allows to open files do
#   events    every event that is logged has its row in docs/operations.md, and the other way round
#   letters   every letter in the shape behind a tensor is in docs/notation.md
set -euo pipefail
shopt -s inherit_errexit
cd "${1:-$(dirname "$0")/..}"
export LC_ALL=C

# Who prints by itself: the log, a failed check, the signal handler of cut files, commands, benchmarks.
printers='src/base/log.cc src/base/check.cc src/base/mapped_ranges.cc src/cli/ src/bench/'
# Who lets the log print text for a person: commands, the console of a run with its report on storage.
speakers='src/base/log. src/cli/ src/train/console.cc src/train/storage_report.cc'
# Who opens files past base/file_system.h, and why: what another process writes (supervisor), damage (chaos), O_DIRECT (probe), dropping pages (bench), shared memory of ranks, the kernel's own files,
# locks, descriptors that were closed, and what has no end (read_beginning).
openers='src/base/file_system.cc src/base/file_lock.cc src/base/read_beginning.cc src/base/process.cc src/base/resident.cc src/data/storage_probe.cc src/bench/ src/comm/ src/base/heartbeat.cc src/base/child_process.cc src/base/process_stat.cc src/chaos/ src/supervisor/local_ranks.cc src/supervisor/remote_host.cc src/supervisor/log_tail.cc'

documents=$(find . -name '*.md' -not -path './build/*' -not -path './runs/*' -not -path './out/*' -not -path './data/*' -not -path './.git/*' | sort)
sources=$(find src tests \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -size +0 | sort)
# Code that is part of the program: no tests, nothing that only tests include.
program=$(grep '^src/' <<<"$sources" | grep -vE '_test\.cc$|_fuzz\.cc$|/test_[a-z_]*\.h$|^src/testing/|faulty_file_system|unsynced_state')

# File:line of code lines (no comments) in $program that match, less the allowed files.
uses() { # regex, allowed files or folders, what is wrong
  # shellcheck disable=SC2086
  awk -v regex="$1" -v allowed="$2" -v text="$3" '
    BEGIN { n = split(allowed, a, " ") }
    { line = $0; sub(/^ *\/\/.*/, "", line); sub(/  \/\/ .*/, "", line) }
    line ~ regex {
      for (i = 1; i <= n; ++i) if (index(FILENAME, a[i]) == 1) next
      print FILENAME ":" FNR ": " text
    }' $program
}

problems=$(
  # A heading is linked to by its words in small letters, with - between them.
  # shellcheck disable=SC2086
  headings=$(awk '
    FNR == 1 { code = 0 }
    /^ *```/ { code = !code }
    !code && /^#+ / {
      text = tolower($0)
      sub(/^#+ +/, "", text)
      gsub(/\]\([^)]*\)/, "", text)
      gsub(/[^a-z0-9_ -]/, "", text)
      gsub(/ /, "-", text)
      print FILENAME "#" text
    }' $documents)
  # shellcheck disable=SC2086
  awk '
    {
      text = $0
      while (match(text, /\]\([^) ]+\)/)) {
        target = substr(text, RSTART + 2, RLENGTH - 3)
        text = substr(text, RSTART + RLENGTH)
        if (target ~ /^(https?:|mailto:)/) continue
        folder = FILENAME
        sub(/[^\/]*$/, "", folder)
        print FILENAME ":" FNR "\t" (target ~ /^#/ ? FILENAME : folder) target "\t" target
      }
      text = $0
      while (match(text, /`(\.ci|cmake|configs|deploy|docs|scripts|src|tests|tools)\/[A-Za-z0-9_.\/-]+`/)) {
        target = substr(text, RSTART + 1, RLENGTH - 2)
        text = substr(text, RSTART + RLENGTH)
        print FILENAME ":" FNR "\t./" target "\t" target
      }
    }' $documents |
    while IFS=$'\t' read -r place path target; do
      [ -e "${path%%#*}" ] || echo "${place#./}: names $target, which is not there"
      case $path in *.md#*)
        file=$(realpath --relative-to=. "${path%%#*}")
        grep -qxF -- "./$file#${path#*#}" <<<"$headings" || echo "${place#./}: links to $target, and there is no such heading" ;;
      esac
    done

  find docs -name '*.md' -not -path docs/README.md | LC_ALL=C sort | while read -r page; do
    grep -qE "\]\(${page#docs/}[)#]" docs/README.md || echo "docs/README.md:1: does not link to $page"
  done

  tests=$(sed -nE 's/^TEST(_F|_P)?\(([A-Za-z0-9_]+), *([A-Za-z0-9_]+)\).*/\2.\3/p' $sources)
  # shellcheck disable=SC2086
  grep -noE '`[A-Z][A-Za-z0-9]+\.[A-Z][A-Za-z0-9]+`' $documents /dev/null |
    while IFS=: read -r file line name; do
      name=${name//\`/}
      grep -qxF -- "$name" <<<"$tests" || echo "${file#./}:$line: there is no test $name"
    done

  uses '(^|[^A-Za-z_.])(std::)?(v?f?printf|puts|fputs|fputc|putc|putchar|perror)\(|std::(cout|cerr|clog)|fmt::print|fwrite\(.*std(out|err)|write\((STD|[012],)' "$printers" \
    'only base/log.h prints, and those that CONTRIBUTING.md names (scripts/check_docs.sh has the list)'
  uses '(^|[^A-Za-z_.])say(_text)?\(' "$speakers" \
    'only commands and the console of a run say text; what a run tells is an event (scripts/check_docs.sh has the list)'
  uses '(^|[^A-Za-z_.>])(::open|(::)?(openat|open64|creat|shm_open|memfd_create|mkstemp)|(std::)?(fopen|freopen|fdopen|tmpfile))\(|(^|[^A-Za-z_.>:])open\([^)]*O_[A-Z]|std::(basic_)?([io]?fstream|filebuf)' "$openers" \
    'files are opened by base/file_system.h (scripts/check_docs.sh has the list of exceptions)'

  # Events: the name behind log_event(level, or that a caller of a logging helper hands over.
  # shellcheck disable=SC2086
  logged=$(cat $program | tr '\n' ' ' | grep -oE 'log_event\( *[^,]*, *("[a-z_.]+"|[^"(;]*"[a-z_]+\.[a-z_]+"[^,;]*)' | grep -oE '"[a-z_]+\.[a-z_]+"' | tr -d '"' | sort -u)
  listed=$(sed -nE 's/^\| `([a-z]+\.[a-z_]+)` \| [IWE] \|.*/\1/p' docs/operations.md | sort -u)
  comm -23 <(printf '%s\n' "$logged") <(printf '%s\n' "$listed") | sed 's/.*/docs\/operations.md:1: the event & is logged and has no row/'
  comm -13 <(printf '%s\n' "$logged") <(printf '%s\n' "$listed") | while read -r name; do
    # shellcheck disable=SC2086
    grep -qF "\"$name\"" $program || echo "docs/operations.md:1: nothing logs the event $name"
  done

  known=$(sed -nE 's/^\| ([A-Za-z, ]{1,9}) \|.*/\1/p' docs/notation.md | tr -d ' ' | tr ',' '\n')
  # shellcheck disable=SC2086
  awk -v known="$known" '
    BEGIN { n = split(known, a, "\n"); for (i = 1; i <= n; ++i) have[a[i]] = 1 }
    /(Tensor|float|BF16|double)[ &*]+[a-z_0-9, ]+[;,)].*\/\/ \[/ {
      text = $0
      sub(/.*\/\/ \[/, "", text)
      sub(/\].*/, "", text)
      gsub(/[a-z_A-Z0-9]+\(.*/, "", text)
      n = split(text, word, /[^A-Za-z_0-9]+/)
      for (i = 1; i <= n; ++i) {
        w = word[i]
        sub(/^[0-9]+/, "", w)
        if (w ~ /^([A-Za-z]|[A-Z][a-z])$/ && !(w in have)) print FILENAME ":" FNR ": the letter " w " is not in docs/notation.md"
      }
    }' $(grep '\.h$' <<<"$program")
)

if [ -n "$problems" ]; then
  printf '%s\n' "$problems" >&2
  echo "check_docs: problems: $(printf '%s\n' "$problems" | wc -l)" >&2
  exit 1
fi
echo "check_docs: $(wc -l <<<"$documents") documents, no problems"
