#!/usr/bin/env bash
# The main job on real text: set-up, build, corpus, tokenizer, shards, training, evaluation, a sample.
# May be interrupted at any point: run it again and it goes on where it was.
set -euo pipefail
cd "$(dirname "$0")"
begun=$SECONDS
say() { printf '\n== %s  (%dm%02ds)\n' "$1" $(((SECONDS - begun) / 60)) $(((SECONDS - begun) % 60)); }
fresh() { [ -e "$1" ] && [ "$1" -nt "$2" ]; }

say "set-up"
scripts/setup.sh demo
say "build"
cmake --preset release -DMORAINE_TESTS=OFF -B build/demo >/dev/null
cmake --build build/demo --target moraine
moraine=build/demo/moraine
out=runs/demo
begun=$SECONDS

say "corpus: King James Bible, five Austen novels, one modern book; Persuasion and Opticks held out"
scripts/demo_corpus.sh data/demo/text >/dev/null
if ! fresh data/demo/tokenizer/tokenizer.json data/demo/text/manifest.json; then
  say "tokenizer"
  "$moraine" tokenizer train --input data/demo/text/train --vocab-size 4096 --out data/demo/tokenizer --overwrite
fi
build_data() {  # NAME INPUT
  fresh "data/demo/$1/dataset.json" data/demo/tokenizer/tokenizer.json && return
  "$moraine" data build --tokenizer data/demo/tokenizer --input "$2" --out "data/demo/$1" --overwrite
}
say "shards"
build_data train data/demo/text/train
build_data valid data/demo/text/heldout/persuasion.txt

set_keys=${MORAINE_DEMO_SET:-}
if [[ $set_keys != *train.tokens=* && $set_keys != *train.steps=* ]]; then
  say "how long to train"
  tokens=$(scripts/demo_tokens.sh "$moraine" configs/demo.toml "$out")
  set_keys="train.tokens=$tokens $set_keys"
fi
say "training; Ctrl-C saves, ./demo.sh goes on"
# shellcheck disable=SC2086
"$moraine" train --config configs/demo.toml --out "$out" --set $set_keys

say "held-out texts, never trained on"
"$moraine" eval perplexity --model "$out" --input data/demo/text/heldout
echo "(xz -9e primed with the same corpus: Persuasion 2.14, Opticks 1.94 bits per byte)"

say "a sample"
"$moraine" generate --model "$out" --prompt "It is a truth universally acknowledged, that" --max-tokens 120 --temperature 0.7 --top-p 0.95 --seed 7

cat <<EOF

The run is in $out: report.html (open it), metrics.jsonl, tensorboard/, step-*/ (checkpoints that are whole models).
Next:
  $moraine serve --model $out          # then open http://127.0.0.1:8080, or point an OpenAI client at it
  $moraine generate --model $out --prompt "My dear Mr. Darcy," --temperature 0.8
  $moraine inspect $out
  $moraine bench train --config configs/demo.toml
  $moraine export --model $out --layout native --out $out/hf          # for Hugging Face transformers
  $moraine data build --tokenizer $out --input YOUR_TEXT --out data/mine \\
    && $moraine train --config configs/adapt.toml --out runs/mine      # adapt the model to your own text
EOF
