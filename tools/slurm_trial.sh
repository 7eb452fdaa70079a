#!/usr/bin/env bash
# A real Slurm of three nodes on this machine, and deploy/supervise_slurm.sbatch on it while ranks, agents and a node are lost.
#   sudo tools/slurm_trial.sh PROGRAM CONFIG OUT
# Each node is a slurmd in a network namespace with names, and a memory for copies (/mnt), of its own. CONFIG is of a run of a minute or less with parallel.replace_seconds and
# supervise.host_seconds; its last hash must be that of a quiet run on one rank. Needs root, and of Debian: slurm-wlm munge iproute2 util-linux. Ends with 77 and
# the reason where one of them is missing.
set -euo pipefail
program=$(realpath "$1") config=$(realpath "$2") out=$3 here=$(dirname "$(realpath "$0")")
for command in slurmctld slurmd sbatch munged ip nsenter; do
  command -v $command >/dev/null || { echo "slurm_trial: there is no $command (Debian: slurm-wlm munge iproute2 util-linux)"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "slurm_trial: needs root, for network namespaces"; exit 77; }
mkdir -p "$out"/{state,log,run,bin}
out=$(realpath "$out") tag=mr$$
export SLURM_CONF=$out/slurm.conf MORAINE=$program MORAINE_HOST_MEMORY=network PATH=$PATH:/usr/sbin
slurm_user=$(id -un)

clean() {
  for file in "$out"/run/*.pid; do [ -e "$file" ] && kill "$(cat "$file")" 2>/dev/null; done
  for process in $(ip netns pids ${tag}c 2>/dev/null; for n in 1 2 3; do ip netns pids $tag$n 2>/dev/null; done); do kill -9 "$process" 2>/dev/null; done
  for host in c 1 2 3; do ip netns del $tag$host 2>/dev/null; done
  rm -rf /tmp/$tag
}
trap 'clean || true' EXIT
ip netns add ${tag}c 2>/dev/null || { echo "slurm_trial: this machine gives no network namespaces"; exit 77; }

# Host N runs a command: `on N COMMAND...`
on() {
  local host=$1
  shift
  nsenter --net=/run/netns/$tag"$host" unshare -m sh -c "mount --bind $out/hosts /etc/hosts && mount -t tmpfs tmpfs /mnt && exec \"\$@\"" sh "$@"
}
printf '127.0.0.1 localhost\n10.81.0.10 %s control\n10.81.0.1 n1\n10.81.0.2 n2\n10.81.0.3 n3\n' "$(hostname)" >"$out/hosts"
ip -n ${tag}c link set lo up
ip -n ${tag}c link add br0 type bridge
ip -n ${tag}c addr add 10.81.0.10/24 dev br0
ip -n ${tag}c link set br0 up
for n in 1 2 3; do
  ip netns add $tag$n
  ip -n $tag$n link set lo up
  ip -n ${tag}c link add port$n type veth peer name eth0 netns $tag$n
  ip -n ${tag}c link set port$n master br0 up
  ip -n $tag$n addr add 10.81.0.$n/24 dev eth0
  ip -n $tag$n link set eth0 up
done

mkdir -p -m 755 /tmp/$tag # names of sockets may be short only
head -c 1024 /dev/urandom >/tmp/$tag/key
chmod 400 /tmp/$tag/key
munged --force --socket=/tmp/$tag/socket --key-file=/tmp/$tag/key --seed-file=/tmp/$tag/seed --log-file="$out/log/munged" --pid-file="$out/run/munged.pid"
cat >"$SLURM_CONF" <<S
ClusterName=moraine
SlurmctldHost=$(hostname)(10.81.0.10)
SlurmUser=$slurm_user
SlurmdUser=$slurm_user
AuthType=auth/munge
AuthInfo=socket=/tmp/$tag/socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
StateSaveLocation=$out/state
SlurmdSpoolDir=/tmp/$tag/%n
SlurmctldPidFile=$out/run/control.pid
SlurmdPidFile=$out/run/%n.pid
SlurmctldLogFile=$out/log/control
SlurmdLogFile=$out/log/%n
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=10
SchedulerParameters=bf_interval=1,sched_interval=1
ReturnToService=2
$(for n in 1 2 3; do echo "NodeName=n$n NodeHostname=$(hostname) NodeAddr=10.81.0.$n Port=$((17000 + n)) CPUs=$(nproc)"; done)
PartitionName=all Nodes=n[1-3] Default=YES State=UP
S
on c slurmctld -i
for n in 1 2 3; do mkdir -p /tmp/$tag/n$n && on $n slurmd -N n$n; done

# Two minutes at most.
until_true() {
  local what=$1
  shift
  for ((i = 0; i < 2400; ++i)); do
    "$@" && return
    sleep 0.05
  done
  echo "slurm_trial: waited too long: $what"
  tail -n 5 "$out"/log/* "$out/job.log" 2>/dev/null | cut -c1-300
  exit 1
}
run=$out/run-of-job
steps() { if [ -e "$run/metrics.jsonl" ]; then wc -l <"$run/metrics.jsonl"; else echo 0; fi; }
is_beyond() { [ "$(steps)" -ge "$1" ]; }
has_said() { grep -aq "$1" "$out/job.log"; }
go_on() { until_true "steps after $1" is_beyond $(($(steps) + 10)); }
idle() { [ "$(on c sinfo -h -o %D -t idle)" = 3 ]; }
until_true "three idle nodes" idle

job=$(on c sbatch --parsable -c1 -o "$out/job.log" "$here/../deploy/supervise_slurm.sbatch" "$config" "$run" --set checkpoint.memory_folder=/mnt)
until_true "the first steps" is_beyond 20
kill -9 "$(cut -d' ' -f1 "$run/supervise/on-n2/rank-1.pid")"
until_true "a replaced rank" has_said "supervise.closed .*fault=killed rank=1 level=replace"
echo "rank 1 was killed: $(grep -a 'fault=killed rank=1 level=replace' "$out/job.log" | sed 's/.*level/level/')"
go_on "a replaced rank"
agent=$(cut -d' ' -f1 "$run/supervise/on-n2/agent.pid") rank=$(cut -d' ' -f1 "$run/supervise/on-n2/rank-1.pid")
kill -9 "$agent"
other_agent() { [ "$(cut -d' ' -f1 "$run/supervise/on-n2/agent.pid")" != "$agent" ]; }
until_true "another agent" other_agent
go_on "another agent"
[ "$(cut -d' ' -f1 "$run/supervise/on-n2/rank-1.pid")" = "$rank" ] || { echo "slurm_trial: rank 1 was started again with its agent"; exit 1; }
echo "the agent of n2 was killed: another one came, and its rank went on"
# What Slurm does before the time limit: ranks save, the job is queued again.
on c scancel --signal=TERM --batch "$job"
is_queued() { [ "$(on c squeue -h -j "$job" -o %T)" = PENDING ]; }
until_true "a job that is queued again" is_queued
saved=$(grep -ao 'saved .*step-[0-9]*' "$out/job.log" | tail -1)
on c scontrol update JobId="$job" StartTime=now+3 # sooner, a node still takes it for the one that has ended
before=$(steps)
until_true "a job that goes on" is_beyond $((before + 20))
echo "the job was told of its end and queued again: ${saved##*/} was saved, and it went on"
ip -n ${tag}c link set port2 down
until_true "a spare that took over" has_said "supervise.closed .*fault=host_lost.* level=host"
echo "n2 was cut off: $(grep -a 'fault=host_lost.*level=host' "$out/job.log" | tail -1 | sed 's/.*level/level/'), its rank is on the spare"
until_true "the end" has_said "^done step="
want=$("$program" train --config "$config" --out "$out/quiet" 2>/dev/null | grep -ao "hash=[0-9a-f]*")
got=$(grep -a "^done step=" "$out/job.log" | grep -ao "hash=[0-9a-f]*" || true)
echo "$got, the quiet run's is $want"
[ "$got" = "$want" ]
