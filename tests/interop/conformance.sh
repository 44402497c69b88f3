#!/bin/sh
# What insitubatch.h makes of the archives, numcodecs fixtures and blosc chunks under a directory: a line for each that differs or
# is refused, then 'N passed, N failed, N refused' and how many of the passed equal what another implementation reads. That is
# zarr-python and numcodecs where a Python has them: those of make test-interop, if that was run, and the system's.
#   tests/interop/conformance.sh BUILD DIR
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$1 dir=$2
if [ ! -d "$dir" ]; then
  echo "conformance: there is no directory '$dir': give one with DIR=" >&2
  exit 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

if ! timeout 900 "$build/conformance" --list "$dir" >"$work/list"; then
  echo "failed: $dir: listing it ended without a result"
  echo "0 passed, 1 failed, 0 refused"
  exit 1
fi
[ -s "$work/list" ] || echo "conformance: nothing to read was found under $dir"
mkdir "$work/references"
any=no
for python in "$build/interop/v2/bin/python" "$build/interop/v3/bin/python" python3; do
  command -v "$python" >/dev/null 2>&1 || continue
  if [ $any = yes ] && [ "$python" = python3 ]; then continue; fi
  if timeout 900 "$python" "$here/conformance.py" "$work/list" "$work/references" 2>"$work/error"; then
    any=yes
  else
    echo "conformance: $python did not get through: $(tail -n 1 "$work/error")"
  fi
done
[ $any = yes ] || echo "conformance: there is no python3: arrays are read twice, by insitu_read and in batches, and compared"
"$build/conformance" "$work/list" "$work/references" "$build/linked/insitu"
