#!/bin/sh
# Builds tests for aarch64 and runs them under qemu's user emulation, which has no io_uring: all IO goes over epoll. Needs no root
# and installs nothing: the libraries' aarch64 packages are unpacked below FOLDER. Without the tools or the packages it says so and
# skips.
#   tests/compile/aarch64.sh FOLDER TEST...      FLAGS, LIBS: the compiler's; ALONE: tests that are not linked with one object of
#                                                the header (tests/support/inside.awk), but compile it
set -u
work=$1
shift
packages='liblz4-dev libzstd-dev liburing-dev zlib1g-dev libdeflate-dev libdeflate0 libbz2-dev libbz2-1.0 libsnappy-dev libsnappy1v5
  libssl-dev libssl3 libstdc++6 libcmocka-dev libcmocka0'
libs=usr/lib/aarch64-linux-gnu

skip() {
  echo "test-aarch64: skipped, $1"
  exit 0
}
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
  command -v $tool >/dev/null 2>&1 || skip "there is no $tool"
done

# A package index and packages of the same sources, as a machine of that kind would see them.
fetch() {
  apt=$work/apt
  rm -rf "$apt" "$work/new" # of a run that was stopped: packages of another version, perhaps
  mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" "$apt/debs" && : >"$apt/status" || return 1
  options="-q -o Dir::State=$apt/state -o Dir::State::status=$apt/status -o Dir::Cache=$apt/cache -o APT::Sandbox::User=$(id -un)
    -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Acquire::Languages=none"
  # shellcheck disable=SC2086  # lists
  apt-get $options update && (cd "$apt/debs" && apt-get $options download $packages) || return 1
  rm -rf "$work/root"
  for deb in "$apt"/debs/*.deb; do dpkg-deb -x "$deb" "$work/new" || return 1; done
  mv "$work/new" "$work/root" && rm -rf "$apt"
}
mkdir -p "$work" && work=$(cd "$work" && pwd) || exit 1
if [ ! -d "$work/root" ]; then
  command -v apt-get >/dev/null 2>&1 || skip "the libraries are fetched with apt-get"
  echo "test-aarch64: fetching $packages for arm64"
  fetch >"$work/log" 2>&1 || { tail -n 3 "$work/log"; skip "apt-get has no packages for arm64"; }
fi

here=$(cd "$(dirname "$0")/../.." && pwd)
support=$here/tests/support
cross() { # OUT ARGUMENT...
  out=$1
  shift
  # shellcheck disable=SC2086  # flags are a list
  aarch64-linux-gnu-gcc "$@" -I"$here" -I"$here/tests" -I"$support" -isystem "$work/root/usr/include" ${FLAGS:-} -o "$out"
}
inside() { # MODE FILE...: what tests/support/inside.awk makes of them
  mode=$1
  shift
  awk -v folder="$support/" -v mode="$mode" -f "$support/inside.awk" "$@"
}
programs=
inside object "$here/insitubatch.h" >"$work/inside.c" &&
  cross "$work/inside.o" -c -DINSITU_IMPLEMENTATION -Wno-maybe-uninitialized "$work/inside.c" || exit 1
for name in "$@"; do
  set -- "$here"/tests/*/"$name.c"
  case " ${ALONE:-} " in
    *" $name "*) ;;
    *)
      mkdir -p "$work/$name.inside"
      inside header "$here/insitubatch.h" "$1" >"$work/$name.inside/insitubatch.h" || exit 1
      set -- -I"$work/$name.inside" "$@" "$work/inside.o"
      ;;
  esac
  # shellcheck disable=SC2086  # libraries are a list
  cross "$work/$name" "$@" -L"$work/root/$libs" -Wl,-rpath-link,"$work/root/$libs" ${LIBS:-} || exit 1
  programs="$programs $work/$name"
done
export INSITU_IO=epoll TEST_EMULATED=1 TEST_TIMEOUT=600
export TEST_WRAPPER="qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=$work/root/$libs"
# shellcheck disable=SC2086  # a list
exec "$here/tests/run" $programs
