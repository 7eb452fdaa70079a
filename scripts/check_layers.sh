#!/usr/bin/env bash
# Checks the structure of src/: who includes whom, in no circle, first lines, include guards, one file per vendor library.
#   scripts/check_layers.sh [ROOT]     ROOT: a checkout; default: the one this script is in
# Reads text only: builds nothing, needs no more than bash, find, sort and awk.
set -euo pipefail
shopt -s inherit_errexit
cd "${1:-$(dirname "$0")/..}"

# <folder>: every folder that it includes. A folder names only folders on lines above its own, so there is no cycle,
# and only folders that it uses: the table is what is there, not what would be allowed. ARCHITECTURE.md shows the same
# table, cmake/layers.cmake links the same; both are compared below. Tests (*_test.cc, and the test_*.h that only they
# include) may also use `testing` and whatever is below a folder of the row.
layers='
base:
tensor: base
kernels: base tensor
testing: base tensor kernels
comm: base tensor
tokenizer: base
grammar: base tokenizer
chat: base tokenizer
data: base
parallel: base tensor kernels comm
checkpoint: base tensor comm
model: base tensor kernels comm parallel checkpoint
optim: base tensor kernels
machine: base tensor kernels
eval: base kernels comm tokenizer model
infer: base kernels comm tokenizer parallel model
server: base comm tokenizer grammar chat parallel checkpoint model infer
plan: base tensor kernels parallel model machine
train: base tensor kernels comm tokenizer data parallel checkpoint model optim machine infer plan
supervisor: base
chaos: base comm checkpoint supervisor
study: base model train
bench: base tensor kernels comm tokenizer grammar parallel checkpoint model machine infer plan train
cli: base tensor kernels comm tokenizer chat data parallel checkpoint model machine eval infer server plan train supervisor chaos study bench
'

# <how an include begins>: the files or folders (with a slash at the end) that may have it. *_test.cc may include
# any of them: a test makes the foreign inputs that the one file of ours reads.
vendors='
toml++/: base/settings.cc
CLI/: cli/flags.cc
xxh: base/hash.cc
zlib: data/gzip_reader.cc
zstd: data/zstd_reader.cc
pcre2: tokenizer/regex.cc
boost/: server/http_parser.cc server/http_server.cc
openssl/: comm/rails/secret.cc server/api_keys.cc supervisor/http_post.cc
utf8proc: tokenizer/unicode.cc
simdjson: base/json_document.cc
nlohmann/: base/json_text.cc
immintrin: kernels/cpu/linear_amx.cc kernels/cpu/linear_bf16.cc kernels/cpu/linear_quantised_amx.cc kernels/cpu/linear_quantised_avx2.cc kernels/cpu/linear_quantised_lanes.h kernels/cpu/linear_quantised_rows.cc kernels/cpu/linear_quantised_vnni.cc
hwy/: kernels/ optim/
cuda.h: kernels/gpu/driver_table.h
cublasLt: kernels/gpu/vendor_matmul.h
hipblaslt: kernels/gpu/vendor_matmul.h
gtest/: kernels/attention_allowed.h testing/rig.cc testing/two_ways.h
'

# What else may stand in <>: the standard library (no dot, no slash), fmt, sanitizers, and these of the system.
system='sys/ netinet/ arpa/ linux/ net/ fmt/ sanitizer/ cpuid.h cxxabi.h dirent.h dlfcn.h elf.h errno.h fcntl.h ifaddrs.h netdb.h poll.h pthread.h sched.h signal.h stdlib.h ucontext.h unistd.h'

# Files of a folder (x.h and x.cc are one) include each other in no circle, but for these, and what is below a path that
# ends in /: an operation and its backends (kernels, optim), values of a language and what works on them (jinja, ptx),
# and pairs that were not taken apart yet.
circles='kernels/ testing/ptx/ chat/jinja/ model/operations optim/gpu_step infer/sampler server/tool_grammar server/http_exchange supervisor/webhook'

problems=$(
  # Names of C++ that nothing here reads.
  find src tests -type f \( -name '*.hpp' -o -name '*.hh' -o -name '*.hxx' -o -name '*.cpp' -o -name '*.cxx' -o -name '*.c' -o -name '*.C' -o -name '*.in[cl]' -o -name '*.[it]pp' -o -name '*.def' \) |
    sed 's/$/:1: a source file is *.cc, *.h, *.cu or *.cuh/'
  find src \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -size 0 | sed 's/$/:1: empty file/'
  find src \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -size +0 -print | LC_ALL=C sort |
    LAYERS=$layers VENDORS=$vendors SYSTEM=$system CIRCLES=$circles awk '
    BEGIN {
      n = split(ENVIRON["LAYERS"], lines, "\n")
      for (i = 1; i <= n; ++i) {
        if (lines[i] == "") continue
        m = split(lines[i], words, /[: ]+/)
        folder = words[1]
        for (j = 2; j <= m; ++j) {
          if (words[j] == "") continue
          if (!(words[j] in known)) print "scripts/check_layers.sh:1: " folder " names " words[j] ", which is not above it"
          allowed[folder, words[j]] = below[folder, words[j]] = 1
          for (k in known) if ((words[j], k) in below) below[folder, k] = 1
        }
        known[folder] = 1
      }
      n = split(ENVIRON["VENDORS"], lines, "\n")
      for (i = 1; i <= n; ++i) {
        if (lines[i] == "") continue
        m = split(lines[i], words, /: | /)
        vendor[words[1]] = substr(lines[i], length(words[1]) + 3)
        for (j = 2; j <= m; ++j) holder[words[1], words[j]] = 1
      }
    }
    BEGIN { loose_parts = split(ENVIRON["CIRCLES"], loose_part, " ") }
    function loose(node,    i) {
      for (i = 1; i <= loose_parts; ++i) if (loose_part[i] ~ /\/$/ ? index(node, loose_part[i]) == 1 : node == loose_part[i]) return 1
      return 0
    }
    # An edge between two files without their suffixes.
    function add_edge(from, to) {
      sub(/\.[a-z]+$/, "", from)
      sub(/\.[a-z]+$/, "", to)
      if (from != to && !loose(from) && !loose(to)) edges[from, to] = 1
    }
    # What stays when edges to files that include nothing, and from files that nothing includes, are taken away.
    function find_circles(    e, side, ends, begins, again) {
      do {
        again = 0
        split("", ends)
        split("", begins)
        for (e in edges) { split(e, side, SUBSEP); begins[side[1]]; ends[side[2]] }
        for (e in edges) {
          split(e, side, SUBSEP)
          if (side[2] in begins && side[1] in ends) continue
          delete edges[e]
          again = 1
        }
      } while (again)
      for (e in edges) { split(e, side, SUBSEP); print "src/" side[1] ":1: includes " side[2] " in a circle" }
    }
    BEGIN { systems = split(ENVIRON["SYSTEM"], system_part, " ") }
    function problem(line, text) { print path ":" line ": " text }
    function is_system(name,    i) {
      if (name ~ /^[a-z_]+$/) return 1
      for (i = 1; i <= systems; ++i) if (index(name, system_part[i]) == 1) return 1
      return 0
    }
    function check_include(line, name, quoted,    to, v) {
      if (name ~ /(^|\/)\.\.?\// || (quoted && name !~ /\//)) problem(line, "\"" name "\": wanted the whole path below src, \"folder/file.h\"")
      if (quoted && !is_test) add_edge(file, name)
      to = name
      sub(/\/.*/, "", to)
      if (name ~ /\// && to in known) {
        if (to == folder || (is_test && (to == "testing" || (folder, to) in below))) return
        if ((folder, to) in allowed) { used[folder, to] = 1; return }
        problem(line, "src/" folder " may not include \"" name "\" (table in scripts/check_layers.sh)")
        return
      }
      if (is_test) return
      for (v in vendor) {
        if (index(name, v) != 1) continue
        if (!((v, file) in holder || (v, folder "/") in holder)) problem(line, "<" name "> is only for " vendor[v])
        return
      }
      if (!is_system(name)) problem(line, "<" name "> is in no list of scripts/check_layers.sh, of vendors or of the system")
    }
    function check_file(    line, text, guarded, number) {
      file = substr(path, 5)
      folder = file
      sub(/\/.*/, "", folder)
      is_test = file ~ /_(test|fuzz)\.cc$|\/test_[a-z_]*\.h$/
      if (!(folder in known)) problem(1, "src/" folder " is not in the table in scripts/check_layers.sh")
      number = 0
      guarded = file !~ /\.h$/
      while ((getline text < path) > 0) {
        ++number
        if (number == 1 && (text !~ /^\/\/ [A-Za-z0-9`"]/ || length(text) < 20 || text ~ /TODO|FIXME/)) problem(1, "the first line must be a comment that says the idea of the file in a sentence")
        # A header that Highway compiles once for each instruction set has a guard that turns over instead.
        if (text ~ /^#pragma once/ || text ~ /HWY_TARGET_TOGGLE/) guarded = 1
        if (text !~ /^[ \t]*#[ \t]*include[ \t]*[<"]/) continue
        quoted = text ~ /^[^<]*"/
        gsub(/^[^<"]*[<"]|[>"].*$/, "", text)
        check_include(number, text, quoted)
      }
      close(path)
      if (!guarded) problem(1, "#pragma once is missing")
    }
    { path = $0; check_file() }
    END {
      find_circles()
      for (edge in allowed) {
        if (edge in used) continue
        split(edge, side, SUBSEP)
        print "scripts/check_layers.sh:1: the table lets " side[1] " include " side[2] ", and it does not: take it out"
      }
    }
  '

  # The tables of ARCHITECTURE.md and cmake/layers.cmake say the same as the one above.
  LAYERS=$layers awk '
    function fold(folder, list,    n, i, words, out) {  # "name: a b" in the order of the table
      split("", have)
      n = split(list, words, /[ ,`]+/)
      for (i = 1; i <= n; ++i) if (words[i] != "") have[words[i]] = 1
      out = folder ":"
      for (i = 1; i <= count; ++i) if (order[i] in have) { out = out " " order[i]; delete have[order[i]] }
      for (i in have) out = out " " i
      return out
    }
    BEGIN {
      n = split(ENVIRON["LAYERS"], lines, "\n")
      for (i = 1; i <= n; ++i) if (lines[i] != "") { split(lines[i], w, ":"); order[++count] = w[1]; want[w[1]] = w[2] }
      for (i = 1; i <= count; ++i) want[order[i]] = fold(order[i], want[order[i]])
    }
    FILENAME ~ /ARCHITECTURE/ && /^\| `[a-z]+` \| / {
      split($0, cell, "|")
      name = cell[2]
      gsub(/[ `]/, "", name)
      if (name in shown || !(name in want)) { if (!(name in want)) print FILENAME ":" FNR ": src/" name " is not in the table of scripts/check_layers.sh"; next }
      shown[name] = 1
      gsub(/nothing/, "", cell[3])
      if (fold(name, cell[3]) != want[name]) print FILENAME ":" FNR ": says " fold(name, cell[3]) "; scripts/check_layers.sh says " want[name]
    }
    FILENAME ~ /layers.cmake/ && /^ *moraine_layer\(/ {
      line = $0
      gsub(/^ *moraine_layer\(|\)$/, "", line)
      n = split(line, w, " ")
      linked[w[1]] = 1
      for (i = 2; i <= n && w[i] != "LIBRARIES"; ++i) if (w[i] != "DEPENDS") links[w[1]] = links[w[1]] " " w[i]
    }
    FILENAME ~ /layers.cmake/ && /target_link_libraries\(moraine / {
      linked["cli"] = 1
      while (match($0, /mr_[a-z]+/)) {
        links["cli"] = links["cli"] " " substr($0, RSTART + 3, RLENGTH - 3)
        $0 = substr($0, RSTART + RLENGTH)
      }
    }
    END {
      for (i = 1; i <= count; ++i) {
        name = order[i]
        if (!(name in shown)) print "ARCHITECTURE.md:1: the table of layers has no row for src/" name
        if (!(name in linked)) print "cmake/layers.cmake:1: no library of src/" name
        else if (fold(name, links[name]) != want[name]) print "cmake/layers.cmake:1: links " fold(name, links[name]) "; scripts/check_layers.sh says " want[name]
      }
    }
  ' ARCHITECTURE.md cmake/layers.cmake
)

if [ -n "$problems" ]; then
  printf '%s\n' "$problems" >&2
  echo "check_layers: problems: $(printf '%s\n' "$problems" | wc -l)" >&2
  exit 1
fi
echo "check_layers: $(find src \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) | wc -l) files, no problems"
