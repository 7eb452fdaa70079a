#!/usr/bin/env bash
# Prints how many tokens the demo trains on: about ten minutes of this machine, measured once and kept.
#   scripts/demo_tokens.sh MORAINE CONFIG RUN     MORAINE: the program; RUN: the run directory, which gets `demo_tokens`
# The number on stdout, the reasons on stderr. A run that goes on gets the number that it began with: the same bits.
set -euo pipefail
moraine=$1 config=$2 run=$3
kept=$run/demo_tokens
minutes=10
# Least: half a pass over the text; less makes no words. Most: from there on more passes gain nothing.
least=1000000 most=6000000

# Prints $1, which $2 holds, if it is a number of tokens.
number() {
  if ! [[ $1 =~ ^[1-9][0-9]{0,14}$ ]]; then
    echo "demo: $2 holds \"$1\", not a number of tokens; \`rm -r $run\` begins anew" >&2
    exit 1
  fi
  echo "$1"
}

if [ -s "$kept" ]; then
  number "$(cat "$kept")" "$kept"
  echo "as this run began: $(cat "$kept") tokens ($kept)" >&2
  exit
fi
if [ -s "$run/config.toml" ]; then # begun before there was a choice
  number "$(awk '/^\[/ { table = $1 } table == "[train]" && $1 == "tokens" { gsub("_", "", $3); print $3 }' "$run/config.toml")" "$run/config.toml"
  exit
fi
rate=$("$moraine" bench train --config "$config" --steps 4 --json | awk '
  !found && match($0, /"tokens_per_s":[0-9.]+/) { printf "%.0f", substr($0, RSTART + 15, RLENGTH - 15); found = 1 }')
if [ -z "$rate" ] || [ "$rate" -le 0 ]; then
  echo "demo: \`$moraine bench train\` gave no rate" >&2
  exit 1
fi
fit=$((rate * minutes * 60 / 100000 * 100000))
tokens=$((fit < least ? least : fit > most ? most : fit))
mkdir -p "$run"
echo "$tokens" >"$kept.partial"
mv "$kept.partial" "$kept"

thousand() { awk -v n="$1" 'BEGIN { printf "%.1f", n / 1000 }'; }
million() { awk -v n="$1" 'BEGIN { printf "%.1f M", n / 1e6 }'; }
time_of() { awk -v n="$1" -v rate="$rate" 'BEGIN { printf "%.0f minutes", n / rate / 60 }'; }
{
  echo "this machine trains on $(thousand "$rate") thousand tokens/s (4 steps of the demo model)"
  echo "chosen: $(million "$tokens") tokens, about $(time_of "$tokens"); wanted $minutes minutes, $(million $least) to $(million $most) tokens"
  if [ "$tokens" -lt "$most" ]; then
    echo "more is better: 2 M tokens end near 1.74 bits per byte on Persuasion, 6 M near 1.57; here 6 M take $(time_of $most):"
    echo "  rm -r $run && MORAINE_DEMO_SET=train.tokens=6000000 ./demo.sh"
  else
    echo "more would not be better: from 4 M tokens on, without the decay at the end, held-out text gains nothing"
  fi
  echo "kept in $kept, so that a run that is interrupted goes on to the same bits"
} >&2
echo "$tokens"
