#!/bin/sh
# Makes tests/data/stores/ anew: zarr-python 2 writes the v2 stores, zarr-python 3 and tensorstore the v3 ones, and zarr-python 3
# reads all of them back.
# The result is in the repository, so no test needs this; it needs Python 3.11 or later with venv, and the package index.
#   sh tests/data/make_stores.sh [folder]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/stores}
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
for v in v2 v3; do
  "$python" -m venv "$work/$v"
  "$work/$v/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements-$v.txt"
done
"$work/v3/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements-tensorstore.txt"
"$work/v2/bin/python" "$here/make_stores.py" write "$work/stores"
"$work/v3/bin/python" "$here/make_stores.py" write "$work/stores"
"$work/v3/bin/python" "$here/make_stores.py" check "$work/stores"
rm -rf "$out"
mv "$work/stores" "$out"
echo "$out: $(find "$out" -type f | wc -l) files, $(find "$out" -type f -exec cat {} + | wc -c) bytes"
