#!/usr/bin/env bash
# Demo corpus: public-domain English text out of Debian packages, divided into documents.
#
#   scripts/demo_corpus.sh [--xz] [--force] OUT_DIR
#
#   OUT_DIR/train/bible/*.txt      the King James Bible, one file per book
#   OUT_DIR/train/austen/*.txt     five Austen novels, one file per chapter; line breaks as in the source
#   OUT_DIR/train/cfi/*.txt        "Copyright does not exist", one file per page
#   OUT_DIR/heldout/persuasion.txt never trained on: same author; exactly what the package holds
#   OUT_DIR/heldout/opticks.txt    never trained on: other domain (left out if no golang-*-src is installed)
#   OUT_DIR/manifest.json          package versions, SHA-256, byte counts; OUT_DIR/SHA256SUMS has every file
#
# Runs again only if a package changed, a file is damaged, or --force is given. --xz prints how many bits a byte
# of the held-out text costs `xz -9e` once it has seen the training text: the number a model must beat.
# Exit: 0; 1 with the apt-get line if a package is missing; 2 for wrong arguments.
set -euo pipefail
export LC_ALL=C.UTF-8 TZ=UTC
umask 022

format_version=1 # part of the manifest: a new way to divide the text makes old folders out of date
with_xz=no force=no out=

usage() {
  sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"
}

for argument in "$@"; do
  case $argument in
    --xz) with_xz=yes ;;
    --force) force=yes ;;
    --help) usage; exit 0 ;;
    -*) echo "demo_corpus: unknown flag $argument; want --xz, --force or --help" >&2; exit 2 ;;
    *) [ -z "$out" ] || { echo "demo_corpus: more than one folder: $out, $argument" >&2; exit 2; }; out=$argument ;;
  esac
done
[ -n "$out" ] || { usage >&2; exit 2; }
out=${out%/}

# The version of an installed package; empty if it is not installed.
version_of() {
  dpkg-query -W -f '${db:Status-Abbrev} ${Version}\n' "$1" 2>/dev/null | sed -n 's/^ii *//p' | head -n 1
}

missing=
for package in bible-kjv bible-kjv-text r-cran-janeaustenr cfi-en w3m; do
  [ -n "$(version_of "$package")" ] || missing="$missing $package"
done
[ "$with_xz" = no ] || [ -n "$(version_of xz-utils)" ] || missing="$missing xz-utils"
if [ -n "$missing" ]; then
  echo "demo_corpus: missing packages; run: apt-get install$missing" >&2
  exit 1
fi

# Opticks lies in the test data of the Go sources, whatever their version.
opticks= opticks_package=
for package in $(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' 'golang-*-src' 2>/dev/null |
                 sed -n 's/^ii *//p' | sort -V); do
  file=$(dpkg-query -L "$package" | grep -E '/src/testdata/.*Opticks\.txt$' | head -n 1 || true)
  if [ -n "$file" ] && [ -r "$file" ]; then opticks=$file opticks_package=$package; fi
done
if [ -z "$opticks" ]; then
  echo "demo_corpus: no golang-*-src package with Opticks is installed; going on without heldout/opticks.txt" >&2
fi

sources="format=$format_version bible-kjv-text=$(version_of bible-kjv-text) \
r-cran-janeaustenr=$(version_of r-cran-janeaustenr) cfi-en=$(version_of cfi-en) \
opticks=$opticks_package=${opticks_package:+$(version_of "$opticks_package")}"

up_to_date() {
  [ "$force" = no ] && [ -f "$out/manifest.json" ] && [ -f "$out/SHA256SUMS" ] &&
    grep -qF "\"sources\": \"$sources\"" "$out/manifest.json" &&
    (cd "$out" && sha256sum --status -c SHA256SUMS)
}

# One file per book; the verse number leaves, each verse stays a line.
extract_bible() { # folder
  bible -f 'gen1:1-rev22:21' | awk -v folder="$1" '
    { at = index($0, " "); reference = substr($0, 1, at - 1); verse = substr($0, at + 1)
      if (!match(reference, /[0-9]+:[0-9]+$/)) { print "strange line: " $0 > "/dev/stderr"; exit 1 }
      book = substr(reference, 1, RSTART - 1); chapter = substr(reference, RSTART); sub(/:.*/, "", chapter)
      if (book != last) {
        if (file != "") close(file)
        file = sprintf("%s/%02d-%s.txt", folder, ++books, tolower(book)); last = book; last_chapter = chapter
      } else if (chapter != last_chapter) { print "" > file; last_chapter = chapter }
      print verse > file }
    END { if (books != 66) { print "found " books " books, want 66" > "/dev/stderr"; exit 1 } }'
}

# Each novel as one file, untouched; Persuasion apart.
extract_novels() { # folder
  (cd "$1" && Rscript --vanilla -e '
    books <- janeaustenr::austen_books()
    for (book in levels(books$book)) {
      name <- gsub("[^a-z]+", "-", tolower(gsub("&", "and", book)))
      connection <- file(paste0(name, ".txt"), "wb")
      writeLines(enc2utf8(as.character(books$text[books$book == book])), connection, useBytes = TRUE)
      close(connection)
    }')
}

# A chapter heading begins a new file; all files together are the novel, byte for byte.
divide_novel() { # novel folder
  local name; name=$(basename "$1" .txt)
  awk -v base="$2/$name" '
    BEGIN { file = sprintf("%s-%02d.txt", base, 0) }
    /^(CHAPTER|Chapter) ([0-9]+|[IVXL]+)\.?$/ { close(file); file = sprintf("%s-%02d.txt", base, ++chapters) }
    { print > file }
    END { if (chapters < 10) { print FILENAME ": found " chapters " chapters" > "/dev/stderr"; exit 1 } }' "$1"
  # Title and author alone are not a document: they go before the first chapter.
  cat "$2/$name-00.txt" "$2/$name-01.txt" > "$2/first" && rm "$2/$name-00.txt" && mv "$2/first" "$2/$name-01.txt"
  cat "$2/$name"-*.txt | cmp - "$1"
}

# One file per page, without the frame that every page has, nor pages that are only lists of links.
extract_cfi() { # folder
  local page name
  for page in $(dpkg-query -L cfi-en | grep -E '\.html?$' | sort -V); do
    name=$(basename "$page" | sed 's/\.html\{0,1\}$//; s/web$//')
    case $name in index | mainindex) continue ;; esac
    w3m -dump -T text/html -I UTF-8 -O UTF-8 -cols 9999 "$page" < /dev/null | tr -s ' ' |
      sed -e 's/^ //; s/ *$//' -e '/^bg image(.*)$/d' -e '/^[][arrow ]*INDEX[][arrow ]*$/d' \
          -e '/^Design and formatting by /d' -e '/^\[Image[0-9]*\]$/d' | cat -s | sed '1{/^$/d}' > "$1/$name.txt"
  done
  [ "$(find "$1" -name '*.txt' | wc -l)" -ge 15 ] || { echo "demo_corpus: cfi-en holds too few pages" >&2; exit 1; }
}

# "name": {package, version, files, bytes, sha256 of all files in name order}
describe() { # name package path...
  local name=$1 package=$2; shift 2
  printf '    "%s": {"package": "%s", "version": "%s", "files": %d, "bytes": %d, "sha256": "%s"}' "$name" "$package" \
    "$(version_of "$package")" "$#" "$(cat "$@" | wc -c)" "$(cat "$@" | sha256sum | cut -d ' ' -f 1)"
}

write_manifest() { # folder
  (
    cd "$1"
    {
      printf '{\n  "sources": "%s",\n  "train": {\n' "$sources"
      describe bible bible-kjv-text train/bible/*.txt; printf ',\n'
      describe austen r-cran-janeaustenr train/austen/*.txt; printf ',\n'
      describe cfi cfi-en train/cfi/*.txt
      printf '\n  },\n  "heldout": {\n'
      describe persuasion r-cran-janeaustenr heldout/persuasion.txt
      if [ -f heldout/opticks.txt ]; then
        printf ',\n'; describe opticks "$opticks_package" heldout/opticks.txt
      fi
      printf '\n  }\n}\n'
    } > manifest.json
    find train heldout -type f | sort | xargs sha256sum > SHA256SUMS
  )
}

if up_to_date; then
  echo "demo_corpus: $out is up to date" >&2
else
  if [ -e "$out" ] && [ ! -f "$out/manifest.json" ] && [ -n "$(ls -A "$out" 2>/dev/null)" ]; then
    echo "demo_corpus: $out exists and is not a demo corpus; choose another folder" >&2
    exit 2
  fi
  partial=$out.partial
  rm -rf "$partial"
  mkdir -p "$partial/train/bible" "$partial/train/austen" "$partial/train/cfi" "$partial/heldout" "$partial/novels"
  trap 'rm -rf "$partial"' EXIT
  extract_bible "$partial/train/bible"
  extract_novels "$partial/novels"
  mv "$partial/novels/persuasion.txt" "$partial/heldout/persuasion.txt"
  for novel in "$partial"/novels/*.txt; do divide_novel "$novel" "$partial/train/austen"; done
  rm -r "$partial/novels"
  extract_cfi "$partial/train/cfi"
  [ -z "$opticks" ] || cat "$opticks" > "$partial/heldout/opticks.txt"
  write_manifest "$partial"
  rm -rf "$out"
  mv "$partial" "$out"
  trap - EXIT
fi

cat "$out/manifest.json"

if [ "$with_xz" = yes ]; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  cat "$out"/train/bible/*.txt "$out"/train/austen/*.txt "$out"/train/cfi/*.txt > "$scratch/train"
  corpus=$(xz -9e -c "$scratch/train" | wc -c)
  for file in "$out"/heldout/*.txt; do
    both=$(cat "$scratch/train" "$file" | xz -9e -c | wc -c)
    awk -v name="$(basename "$file")" -v cost="$((both - corpus))" -v bytes="$(wc -c < "$file")" \
      'BEGIN { printf "%s: xz -9e primed with the training text: %.3f bits per byte\n", name, 8 * cost / bytes }'
  done
fi
