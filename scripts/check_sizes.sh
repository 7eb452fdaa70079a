#!/usr/bin/env bash
# Checks the sizes that the house style asks for: lines of files and functions, plain parameters, nesting, columns.
#   scripts/check_sizes.sh [ROOT]     ROOT: a checkout; default: the one this script is in
# What is larger for a reason stands in scripts/size_exceptions.txt, with the size it may have; an entry that is
# no longer needed is a problem too. Reads text only: bash, find, sort and awk.
# Nesting counts if, for, while, switch, do, try and catch, with braces or without; a lambda is no level of its own. A file
# of tests may have one more: the loop over its cases.
set -euo pipefail
shopt -s inherit_errexit
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/..}"
export LC_ALL=C

problems=$(
  find src tests \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -size +0 | sort | xargs awk -f "$here/scan_code.awk" |
    EXCEPTIONS="$here/size_exceptions.txt" awk '
    BEGIN {
      limit["header"] = 200; limit["source"] = 600; limit["function"] = 70; limit["parameters"] = 5; limit["nesting"] = 3
      while ((getline line < ENVIRON["EXCEPTIONS"]) > 0) {
        if (line ~ /^(#|$)/) continue
        n = split(line, word, " ")
        if (n < 4 || !(word[1] in limit) || word[3] !~ /^[0-9]+$/) { print "scripts/size_exceptions.txt:1: want KIND NAME SIZE REASON: " line; continue }
        allowed[word[1], word[2]] = word[3]
        listed[word[1], word[2]] = word[1] " " word[2]
      }
    }
    # Its name behind the file of `place` (file:line), without a suffix: header and source list one function once.
    function named(name, place) {
      sub(/\.[a-z]+:[0-9]+$/, "", place)
      return place ":" name
    }
    # What nesting in `file` is listed under: its function, its file or the folder of its file.
    function listing(name, file,    folder) {
      folder = file
      sub(/[^\/]*$/, "", folder)
      return ("nesting", folder) in allowed ? folder : ("nesting", file) in allowed ? file : named(name, file ":1")
    }
    function look(what, name, size, place, text) {
      if (size <= limit[what]) return
      if ((what, name) in allowed) {
        used[what, name] = 1
        if (size <= allowed[what, name]) return
        text = text " (its exception says " allowed[what, name] ")"
      }
      print place ": " text
    }
    $1 == "BROKEN" { print $2 ": scripts/scan_code.awk cannot read it: " $0 }
    $1 == "FILE" { k = $3 ~ /\.h$/ ? "header" : "source"; look(k, $3, $2, $3 ":1", $2 " lines; a " k " has at most " limit[k]) }
    $1 == "FUNCTION" && $4 !~ /^TEST/ { look("function", named($4, $5), $2, $5, $4 " has " $2 " lines; a function has at most " limit["function"]) }
    $1 == "FUNCTION" && $4 ~ /^TEST/ { sub(/:[0-9]+$/, "", $5); look("function", $5, $2, $5, "a test has " $2 " lines; a function has at most " limit["function"]) }
    $1 == "MACRO" { look("function", named($4, $5), $2, $5, "the macro " $4 " has " $2 " lines; a function has at most " limit["function"]) }
    ($1 == "FUNCTION" || $1 == "DECLARED" || $1 == "LAMBDA" || $1 == "MACRO") && $4 !~ /^TEST/ { look("parameters", named($4, $5), $3, $5, $4 " takes " $3 " parameters; past " limit["parameters"] " they are a struct") }
    $1 == "NESTING" {
      file = $4
      sub(/:[0-9]+$/, "", file)
      if ($2 <= limit["nesting"] + (file ~ /_test\.cc$/)) next
      look("nesting", listing($3 ~ /^TEST/ ? file : $3, file), $2, $4, $3 " nests " $2 " deep; a function at most " limit["nesting"] ", one of tests " limit["nesting"] + 1)
    }
    END { for (i in listed) if (!(i in used)) print "scripts/size_exceptions.txt:1: no longer needed: " listed[i] }
  '
  # Code ends at column 100, which the formatter sees to; comments that hold formulas and tables at 120.
  find src tests \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -size +0 | sort | xargs awk '
    /^ *\/\// && length($0) > 120 { print FILENAME ":" FNR ": a comment of " length($0) " columns; at most 120" }
  '
)
if [ -n "$problems" ]; then
  printf '%s\n' "$problems" >&2
  echo "check_sizes: problems: $(printf '%s\n' "$problems" | wc -l)" >&2
  exit 1
fi
echo "check_sizes: $(find src tests \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) | wc -l) files, no problems"
