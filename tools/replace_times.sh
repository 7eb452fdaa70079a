#!/usr/bin/env bash
# What it takes to replace a rank: 8 ranks on two hosts (network namespaces of this machine, two links), one killed again and again.
#   sudo tools/replace_times.sh PROGRAM CONFIG OUT [KILLS] [moraine supervise arguments...]
# Prints the phases of each incident from the ledger, and the medians. Needs root, ip (iproute2) and python3.
set -euo pipefail
program=$(realpath "$1") config=$(realpath "$2") out=$3 kills=${4:-10}
shift $(($# < 4 ? $# : 4))
mkdir -p "$out"
out=$(realpath "$out")
a=mr-a b=mr-b

clean() {
  pkill -9 -f "supervise .*--out $out" || true
  pkill -9 -f "train .*--out $out" || true
  ip netns del $a 2>/dev/null || true
  ip netns del $b 2>/dev/null || true
}
trap clean EXIT
clean
for side in $a $b; do
  ip netns add $side
  ip -n $side link set lo up
done
for rail in 0 1; do
  ip -n $a link add rail$rail type veth peer name rail$rail netns $b
  ip -n $a addr add 10.79.$rail.1/24 dev rail$rail
  ip -n $b addr add 10.79.$rail.2/24 dev rail$rail
  ip -n $a link set rail$rail up
  ip -n $b link set rail$rail up
done

# Each host has a memory of its own for copies.
launch='["ip", "netns", "exec", "{host}", "unshare", "-m", "sh", "-c", "mount -t tmpfs tmpfs /mnt && exec \"$0\" \"$@\""]'
export MORAINE_HOST_MEMORY=network
"$program" supervise --config "$config" --out "$out" --ranks 8 --set "supervise.hosts=[\"$a\", \"$b\"]" --set "supervise.launch=$launch" \
  --set supervise.rendezvous=10.79.0.1:7070 --set 'parallel.rails=["10.79.0.0/24", "10.79.1.0/24"]' --set checkpoint.memory_folder=/mnt \
  --set supervise.restarts=1000000 --set supervise.backoff_seconds=0.01 "$@" >"$out/supervise.out" 2>"$out/supervise.err" &
supervisor=$!
steps() { [ -e "$out/metrics.jsonl" ] && wc -l <"$out/metrics.jsonl" || echo 0; }
for ((kill = 0; kill < kills; ++kill)); do
  before=$(steps)
  while kill -0 $supervisor 2>/dev/null && [ "$(steps)" -lt $((before + 4)) ]; do sleep 0.1; done
  kill -0 $supervisor 2>/dev/null || break
  read -r pid _ < <(cat "$out"/supervise/on-*/rank-$((kill * 5 % 8)).pid)
  kill -9 "$pid" || true
done
wait $supervisor || true
python3 - "$out/supervise/ledger.jsonl" <<'P'
import json, statistics, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
rows = [r for r in rows if r.get('phases', {}).get('first_step') is not None]
names = ['detection', 'decision', 'respawn', 'meeting', 'loading', 'first_step']
print(f"{'rank':>4} {'lost s':>7} " + ' '.join(f'{n:>10}' for n in names))
for r in rows:
    print(f"{r['rank']:>4} {r['seconds_lost']:>7.2f} " + ' '.join(f"{r['phases'].get(n, 0):>10.3f}" for n in names))
if rows:
    print(f"{'':>4} {statistics.median(r['seconds_lost'] for r in rows):>7.2f} " +
          ' '.join(f"{statistics.median(r['phases'].get(n, 0) for r in rows):>10.3f}" for n in names) + '  median')
P
tail -1 "$out/supervise.out"
