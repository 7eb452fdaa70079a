#!/usr/bin/env bash
# Installs every Debian package that building, testing and the demo need. Idempotent; Debian 12 and 13; root or sudo.
#   scripts/setup.sh          build and tests
#   scripts/setup.sh demo     also the texts of the demo
#   scripts/setup.sh gate     also what the gate checks with: clang with its sanitizers and libFuzzer, clang-format
#   scripts/setup.sh gpu      also what GPU kernels are compiled with: clang 19, for AMD and NVIDIA without their own parts
#   scripts/setup.sh package  also what a Debian package is made with
#   scripts/setup.sh fresh    only what scripts/fresh_debian.sh makes its systems with
set -euo pipefail

build=(g++ cmake ninja-build ccache pkg-config
  libhwy-dev libsimdjson-dev nlohmann-json3-dev libtomlplusplus-dev libcli11-dev libfmt-dev
  libpcre2-dev libutf8proc-dev libzstd-dev zlib1g-dev libxxhash-dev libgtest-dev
  libboost-dev libssl-dev  # the server: Beast and Asio are headers only
  openmpi-bin   # loaded at run time by mpirun jobs only
  zsh groff-base)  # completion and manual pages are tested where these are
gate=(clang libclang-rt-dev llvm clang-format)  # llvm: names in the sanitizers' reports
demo=(bible-kjv r-base-core r-cran-janeaustenr cfi-en w3m xz-utils)
package=(dpkg-dev file)  # dpkg-shlibdeps names the libraries; file finds the programs
gpu=(clang-19 lld-19 llvm-19)  # lld links for AMD; llvm reads registers from what was linked
fresh=(debootstrap git)

want=("${build[@]}")
case ${1:-} in
  gate) want+=("${gate[@]}") ;;
  demo) want+=("${demo[@]}") ;;
  gpu) want+=("${gpu[@]}") ;;
  package) want+=("${package[@]}") ;;
  fresh) want=("${fresh[@]}") ;;
esac

missing() {
  local name
  for name in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || printf '%s\n' "$name"
  done
}

as_root=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "setup: not root, and sudo is missing: run as root" >&2; exit 1; }
  as_root=(sudo)
fi
install() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >&2; }

mapfile -t need < <(missing "${want[@]}")
if [ "${#need[@]}" -gt 0 ]; then
  echo "setup: installing ${need[*]}" >&2
  "${as_root[@]}" apt-get update -qq >&2
  install "${need[@]}"
fi

# Opticks, the demo's second held-out text, comes with the sources of Go under a versioned name.
if [ "${1:-}" = demo ] && ! ls /usr/share/go-*/src/testdata/Isaac.Newton-Opticks.txt >/dev/null 2>&1; then
  [ "${#need[@]}" -gt 0 ] || "${as_root[@]}" apt-get update -qq >&2
  source_package=$(apt-cache pkgnames golang- | grep -E '^golang-1\.[0-9]+-src$' | sort -V | tail -n 1 || true)
  if [ -n "$source_package" ]; then install "$source_package"; else echo "setup: no golang source package; the demo goes on without Opticks" >&2; fi
fi
echo "setup: ready" >&2
