#!/usr/bin/env bash
# Runs a built program under Bochs, an emulator of a Sapphire Rapids: AVX-512 with VNNI and BF16, and AMX, on a machine without them.
#   tools/amx_under_bochs.sh BOCHS PROGRAM [ARGUMENT...]
#   tools/amx_under_bochs.sh ~/Bochs build/release/kernels_test --gtest_filter='Quantised.*'
# BOCHS: a checkout of github.com/bochs-emu/Bochs, or its address for git. Prints what PROGRAM prints and ends with its exit status; with
# 77 and the reason where something is missing, with 124 where MORAINE_BOCHS_SECONDS (7200) were not enough. MORAINE_BOCHS_FILES: further
# programs, files and folders (tests/golden, for most tests of models); all lie where they lie here, and PROGRAM runs in its own folder. One that
# is no binary is a script for busybox's sh. MORAINE_* and GTEST_* of the environment are those of the guest too. The emulator and the guest are
# made in MORAINE_BOCHS (default: build/bochs) the first time.
#
# The guest is Debian's kernel on one core with 2 GiB of memory, the program in its first file system, and no network. It does 50 to 200 million
# instructions a second and ten times fewer of AVX-512 and AMX: boots in 20 seconds; choose few tests. Its clock counts instructions.
# Bochs of 2026-08 can't boot Linux with AMX, nor multiply signed bytes: bochs_amx.patch says what is mended.
set -euo pipefail
skip() { echo "amx_under_bochs: $1" >&2; exit 77; }
[ $# -ge 2 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
source=$1 program=$(realpath "$2") here=$(dirname "$(realpath "$0")")
commit=783b58fd6d9bae598a07c59719122322fa0edce6 # that bochs_amx.patch is for
shift 2
made=${MORAINE_BOCHS:-$here/../build/bochs}
mkdir -p "$made" && made=$(realpath "$made")
for command in g++ make patch git apt-get cpio strip xorriso; do
  command -v $command >/dev/null || skip "there is no $command (Debian: g++ make patch git cpio binutils xorriso)"
done

# The emulator. Its makefiles do not see every header, so a build is begun anew whenever the patch is another.
version=$(sha256sum "$here/bochs_amx.patch" | cut -c1-16)
if [ ! -e "$made/emulator-$version" ]; then
  rm -rf "$made"/{source,emulator-*}
  echo "amx_under_bochs: building Bochs (minutes)" >&2
  if [ -d "$source/bochs" ]; then
    cp -r "$source/bochs" "$made/source"
  else
    rm -rf "$made/clone" && git init -q "$made/clone"
    git -C "$made/clone" fetch -q --depth 1 "$source" $commit && git -C "$made/clone" checkout -q FETCH_HEAD || skip "git has no commit $commit of $source"
    mv "$made/clone/bochs" "$made/source" && rm -rf "$made/clone"
  fi
  patch -s -d "$made/source" -p2 <"$here/bochs_amx.patch" || skip "bochs_amx.patch is for commit $commit of Bochs"
  (cd "$made/source" && CFLAGS=-O3 CXXFLAGS=-O3 ./configure --enable-x86-64 --enable-avx --enable-evex --enable-amx --enable-long-phy-address \
    --enable-memtype --enable-monitor-mwait --enable-all-optimizations --disable-docbook --with-nogui && make -j"$(nproc)" bochs) >"$made/build.log" 2>&1 ||
    skip "Bochs does not build: $made/build.log"
  touch "$made/emulator-$version"
fi

# The guest's kernel and boot loader, of Debian packages that need not be installed.
if [ ! -e "$made/debian/ready" ]; then
  rm -rf "$made/debian" && mkdir -p "$made/debian"
  kernel=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p')
  (cd "$made/debian" && apt-get download -q "$kernel" busybox-static isolinux syslinux-common >/dev/null 2>&1 && for package in *.deb; do dpkg -x "$package" .; done) ||
    skip "apt-get downloads none of linux-image-cloud-amd64 busybox-static isolinux syslinux-common"
  rm "$made"/debian/*.deb && touch "$made/debian/ready"
fi

run=$(mktemp -d "$made/run-XXXXXX")
emulator=
trap '[ -z "$emulator" ] || kill "$emulator" 2>/dev/null || true; rm -rf "$run"' EXIT
root=$run/root
mkdir -p "$root"/{bin,proc,sys,dev,tmp} "$run/disc/isolinux"
cp "$(find "$made/debian" -name busybox -type f -perm -1 | head -1)" "$root/bin/"
add() {
  mkdir -p "$root$(dirname "$1")" && cp -r "$1" "$root$1"
  strip "$root$1" 2>/dev/null || return 0
  { ldd "$1" 2>/dev/null || true; } | { grep -o '/[^ ]*' || true; } | while read -r library; do
    mkdir -p "$root$(dirname "$library")" && cp -L "$library" "$root$library"
  done
}
for file in "$program" ${MORAINE_BOCHS_FILES:-}; do add "$(realpath "$file")"; done
{
  for name in "${!MORAINE_@}" "${!GTEST_@}"; do [[ $name == MORAINE_BOCHS* ]] || printf 'export %s=%q\n' "$name" "${!name}"; done
  [ "$(head -c 4 "$program" | tail -c 3)" = ELF ] || printf 'sh '
  printf '%q ' "$program" "$@"
} >"$root/command"
cat >"$root/init" <<INIT
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp
mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t devtmpfs dev /dev
mkdir -p /dev/shm && mount -t tmpfs shm /dev/shm
cd "$(dirname "$program")"
stty -opost
echo GUEST-BEGINS
sh /command </dev/null
printf '\nGUEST-ENDS %d\n' \$?
sleep 2 # the serial line is slower than this
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet) >"$run/disc/initrd"
cp "$made"/debian/boot/vmlinuz-* "$run/disc/vmlinuz"
cp "$(find "$made/debian" -name isolinux.bin)" "$(find "$made/debian" -path '*bios/ldlinux.c32')" "$run/disc/isolinux/"
printf 'default l\nlabel l\nkernel /vmlinuz\nappend initrd=/initrd console=ttyS0,115200 loglevel=1 mitigations=off nokaslr nowatchdog panic=0\n' >"$run/disc/isolinux/isolinux.cfg"
xorriso -as mkisofs -quiet -o "$run/disc.iso" -b isolinux/isolinux.bin -c isolinux/boot.cat -no-emul-boot -boot-load-size 4 -boot-info-table "$run/disc" 2>"$run/disc.log" ||
  { cat "$run/disc.log" >&2; exit 1; }
cat >"$run/bochsrc" <<RC
display_library: nogui
cpu: model=sapphire_rapids, count=1, ips=200000000, cpuid_freq=ips, reset_on_triple_fault=0
memory: guest=2048, host=2048
romimage: file=$made/source/bios/BIOS-bochs-latest
vgaromimage: file=$made/source/bios/VGABIOS-lgpl/VGABIOS-lgpl-latest.bin
ata0-master: type=cdrom, path=$run/disc.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=$run/serial
log: $run/log
panic: action=fatal
error: action=ignore
info: action=ignore
clock: sync=none
RC
: >"$run/serial"
"$made/source/bochs" -q -f "$run/bochsrc" </dev/null >"$run/out" 2>&1 &
emulator=$!
tail -n +1 -f --pid=$emulator "$run/serial" | sed -u '0,/^GUEST-BEGINS/d; /^GUEST-ENDS/,$d' &
printer=$!
for ((waited = 0; ; ++waited)); do
  if ! kill -0 $emulator 2>/dev/null || grep -aqE '^GUEST-ENDS|Kernel panic' "$run/serial"; then break; fi
  [ $waited -lt "${MORAINE_BOCHS_SECONDS:-7200}" ] || { echo "amx_under_bochs: the program has not ended" >&2; exit 124; }
  sleep 1
done
sleep 2 # for what is still to be printed
kill $emulator 2>/dev/null || true
wait $printer || true
status=$(sed -n 's/^GUEST-ENDS \([0-9]*\).*/\1/p' "$run/serial")
[ -n "$status" ] || { tail -n 20 "$run/serial" "$run/log" >&2; echo "amx_under_bochs: the guest died" >&2; exit 1; }
exit "$status"
