#!/usr/bin/env bash
# The chat page in a real browser, against the built program: tools/check_page.py on a model of seconds.
#   tools/check_page.sh [MORAINE]     MORAINE: the program; default: build/release/moraine
# Exit 77, and a line that says so, where Chromium, Python or the package that drives it cannot be had.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
moraine=$(realpath "${1:-$here/build/release/moraine}")
venv=${MORAINE_BROWSER:-$here/build/browser}
skip() { echo "check_page: SKIPPED: $1" >&2; exit 77; }

chromium=$(command -v chromium) || skip "no chromium (Debian: chromium)"
command -v python3 >/dev/null || skip "no python3"
if [ ! -e "$venv/ready" ]; then
  python3 -m venv "$venv" >/dev/null 2>&1 || skip "python3 makes no virtual environment (Debian: python3-venv)"
  timeout 300 "$venv/bin/pip" install -q --disable-pip-version-check playwright==1.65.2 >/dev/null 2>&1 || skip "pip reaches no packages"
  touch "$venv/ready"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat "$here"/docs/*.md > text.txt
"$moraine" tokenizer train --input text.txt --vocab-size 500 --out tok >/dev/null 2>&1
"$moraine" data build --tokenizer tok --input text.txt --out data >/dev/null 2>&1
printf '%s\n' '[model]' 'hidden = 64' 'layers = 2' 'heads = 4' 'kv_heads = 2' 'head_dim = 16' 'experts = 4' 'expert_hidden = 64' 'router_hidden = 16' \
  'max_positions = 4096' '[data]' 'train = "data"' 'tokenizer = "tok"' '[train]' 'slots = 1' 'sequence = 128' 'batch_tokens = 1024' 'steps = 10' 'dtype = "f32"' > run.toml
"$moraine" train --config run.toml --out run >/dev/null 2>&1
"$venv/bin/python" "$here/tools/check_page.py" "$moraine" run "$chromium"
