#!/usr/bin/env bash
# A fresh Debian in a folder: the commands of README on it, then the package on one that never saw a compiler.
#   scripts/fresh_debian.sh 12|13 [STEP...]     steps: demo (with few tokens), test, package; default: all three
# Clones what is committed. Root only: without it the script says so and ends with 77. Takes as long as a cold build, demo
# and tests; about 4 GB under MORAINE_FRESH (default /var/tmp/moraine-fresh), kept for a look and made anew by the next run.
# Packages come from where this system's own apt takes Debian from. MORAINE_FRESH_CCACHE=FOLDER is the compiler cache of the
# systems: a second run, after a fix, then compiles only what the fix touched.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
  12) suite=bookworm ;;
  13) suite=trixie ;;
  *) echo "usage: scripts/fresh_debian.sh 12|13 [demo|test|package ...]" >&2; exit 2 ;;
esac
shift
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(demo test package)
if [ "$(id -u)" != 0 ]; then
  echo "fresh_debian: SKIPPED, NOTHING WAS TESTED: a system in a folder needs root" >&2
  exit 77
fi
scripts/setup.sh fresh

say() { printf '\n== Debian %s: %s\n' "$suite" "$1"; }
place=${MORAINE_FRESH:-/var/tmp/moraine-fresh}/$suite
mirror=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' | awk '$1 == "Debian" { print $2; exit }')
cache=${MORAINE_FRESH_CCACHE:+$(mkdir -p "$MORAINE_FRESH_CCACHE" && cd "$MORAINE_FRESH_CCACHE" && pwd)}
[ -n "$mirror" ] || { echo "fresh_debian: apt of this system knows no Debian archive" >&2; exit 1; }

# Runs "$@" in the system $1. Its mounts and processes are in namespaces of their own, so nothing outlives the command.
inside() {
  local root=$1
  shift
  cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
  unshare --mount --pid --fork --kill-child -- bash -euc '
    root=$1 cache=$2; shift 2
    mount -t proc proc "$root/proc"
    mount -t sysfs -o ro sysfs "$root/sys"
    mkdir -p "$root/dev/shm" "$root/dev/pts"
    mount -t tmpfs tmpfs "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"  # zsh completes in a terminal
    if [ -n "$cache" ]; then
      mkdir -p "$root/root/.cache/ccache"
      mount --bind "$cache" "$root/root/.cache/ccache"
    fi
    cd /
    exec env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin ${http_proxy:+http_proxy="$http_proxy"} \
      ${https_proxy:+https_proxy="$https_proxy"} chroot "$root" "$@"' - "$root" "$cache" "$@"
}

bare=$place/bare built=$place/built
if [ ! -e "$bare.done" ]; then
  say "a minimal system"
  rm -rf "$bare"
  mkdir -p "$bare"
  debootstrap --variant=minbase --include=git "$suite" "$bare" "$mirror"
  touch "$bare.done"
fi

for step in "${steps[@]}"; do
  if [ ! -e "$built.done" ] || [ "$(cat "$built.done")" != "$(git rev-parse HEAD)" ]; then
    say "the tree, at $(git rev-parse --short HEAD)"
    rm -rf "$built" "$built.done"
    cp -a "$bare" "$built"
    git clone --quiet --no-hardlinks . "$built/moraine"
    git rev-parse HEAD > "$built.done"
  fi
  say "$step"
  case $step in
    demo) inside "$built" bash -c 'cd /moraine && MORAINE_DEMO_SET="train.tokens=200000" ./demo.sh' ;;
    test) inside "$built" bash -c 'cd /moraine && ./test.sh' ;;
    package)
      inside "$built" bash -euc '
        cd /moraine
        scripts/setup.sh package
        cmake --preset release -DMORAINE_TESTS=OFF -B build/demo >/dev/null
        cmake --build build/demo --target package'
      rm -rf "$place/user"
      cp -a "$bare" "$place/user"
      cp "$built"/moraine/build/demo/moraine_*.deb "$place/user/root/moraine.deb"
      cp -a "$built/moraine/tests/golden/native-tiny" "$place/user/root/model"
      inside "$place/user" bash -euc '
        cd /root
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ./moraine.deb
        moraine --version
        moraine inspect /root/model
        moraine generate --model /root/model --tokens "1 2 3" --max-tokens 8 --temperature 0
        ls /usr/share/doc/moraine/copyright /usr/share/moraine/configs/demo.toml /usr/share/moraine/deploy/slurm.sbatch' ;;
    *) echo "fresh_debian: no step '$step': demo, test, package" >&2; exit 2 ;;
  esac
done
say "${steps[*]}: passed"
