#!/bin/sh
# CUDA toolkits to compile with: prints a line VERSION|INCLUDE|LIB|NVCC for each, NVCC empty where there is no such compiler.
#   tests/cuda/toolkit.sh BUILD
# The machine's own toolkit where it has one: that of CUDA_HOME, of nvcc in PATH, or /usr/local/cuda. Else what requirements.txt
# names of the package index: headers (those of NVTX, too) and runtimes of CUDA 12 and 13, 13's nvcc, in a virtual environment
# under BUILD that is made once. Compiling needs neither a driver nor a device, and the runtime answers that there is none. Exit
# status 1, and the reason on stderr, where no toolkit is to be had.
set -u
here=$(cd "$(dirname "$0")" && pwd)
[ $# = 1 ] || { echo "usage: tests/cuda/toolkit.sh BUILD" >&2; exit 2; }
mkdir -p "$1/cuda" || exit 2
folder=$(cd "$1/cuda" && pwd)
venv=$folder/venv

version_of() { # INCLUDE: such as 12.9
  awk '/^#define CUDART_VERSION / { print int($3 / 1000) "." int($3 % 1000 / 10) }' "$1/cuda_runtime_api.h"
}
first() { # FILE FOLDER...: the first folder that holds the file
  file=$1
  shift
  for candidate; do [ ! -e "$candidate/$file" ] || { echo "$candidate"; return; }; done
}

# ---- the machine's own ----
nvcc=
for candidate in ${CUDA_HOME:+"$CUDA_HOME/bin/nvcc"} "$(command -v nvcc)" /usr/local/cuda/bin/nvcc; do
  if [ -x "$candidate" ]; then
    nvcc=$candidate
    break
  fi
done
if [ -n "$nvcc" ]; then
  # Debian's and conda's lie elsewhere than the vendor's.
  root=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
  beside=$(dirname "$(dirname "$nvcc")")
  machine=$(uname -m)
  include=$(first cuda_runtime_api.h "$root/include" "$root/targets/$machine-linux/include" "$root/targets/sbsa-linux/include" \
    "$beside/include" "$beside/targets/$machine-linux/include" /usr/include)
  lib=$(first libcudart.so "$root/lib64" "$root/lib" "$root/targets/$machine-linux/lib" "$root/targets/sbsa-linux/lib" \
    "$beside/lib64" "$beside/lib" "$beside/targets/$machine-linux/lib" "/usr/lib/$machine-linux-gnu" /usr/lib64)
  if [ -n "$include" ] && [ -n "$lib" ]; then
    echo "$(version_of "$include")|$include|$lib|$nvcc"
    exit 0
  fi
  echo "CUDA: $nvcc has no cuda_runtime_api.h and libcudart.so beside it: that of the package index is taken" >&2
fi

# ---- the package index's ----
skip() {
  echo "CUDA: there is no toolkit here (CUDA_HOME, nvcc in PATH, /usr/local/cuda), and $*" >&2
  exit 1
}
make_venv() {
  rm -rf "$venv"
  python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt" || return
  # As a toolkit has it: one folder of headers, and names that the linker looks for.
  for packages in "$venv"/lib/python3*/site-packages/nvidia; do
    ln -s ../../cuda_nvcc/include/crt "$packages/cuda_runtime/include/crt" &&
      ln -s ../../nvtx/include/nvtx3 "$packages/cuda_runtime/include/nvtx3" &&
      ln -s libcudart.so.12 "$packages/cuda_runtime/lib/libcudart.so" &&
      ln -s libcudart.so.13 "$packages/cu13/lib/libcudart.so" || return
  done
  cp "$here/requirements.txt" "$venv/made-of"
}
command -v python3 >/dev/null 2>&1 || skip "no python3 to get one of the package index with"
if ! cmp -s "$here/requirements.txt" "$venv/made-of" && ! make_venv >&2; then
  rm -rf "$venv"
  skip "no virtual environment could be made (python3-venv, the package index)"
fi
for packages in "$venv"/lib/python3*/site-packages/nvidia; do
  runtime=$packages/cuda_runtime new=$packages/cu13
  echo "$(version_of "$runtime/include")|$runtime/include|$runtime/lib|"
  echo "$(version_of "$new/include")|$new/include|$new/lib|$new/bin/nvcc"
done
