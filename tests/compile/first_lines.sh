#!/usr/bin/env bash
# Takes each example out of the repository, as its reader does: into a folder that holds the header and what the example includes
# from examples/, and nothing else. There the command of its first line is run, word for word.
#   tests/compile/first_lines.sh [NAME...]           compilers only look at what they are given: no object, no link; 0.1 s each
#   tests/compile/first_lines.sh --run [NAME...]     compiles, links and runs each as its comment says, beside the winds; what it
#                                                    reads else is made by tools/make_gallery.c. OPT=-O0 stands in -O2's place
# NAME is an example's file. What the machine has no compiler, header or library for is named and skipped.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
whole=no passed=0 failed=0 skipped=0
if [ "${1:-}" = --run ]; then
  whole=yes
  shift
fi
[ $# -gt 0 ] || set -- "$root"/examples/[0-9]*.*
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

ok() { passed=$((passed + 1)) && echo "$name: $1"; }
skip() { skipped=$((skipped + 1)) && echo "$name: skipped, $1"; }
bad() {
  failed=$((failed + 1))
  echo "FAILED: $name: $1"
  tail -n 25 "$work/log"
}

# The command of the first line: behind //, !, # or between /* and */.
first_line() { sed -n -e '1s|^/\* *\(.*[^ ]\) *\*/ *$|\1|' -e '1s|^[/!#][/]* *||' -e 1p "$1"; }

# What a command needs that this machine has not; nothing is printed where all is there.
lacks() {
  local word needs
  for word in $1; do
    case $word in
      cc | c++ | nvcc | mpicc | mpifort | rustc | julia)
        command -v "$word" >/dev/null 2>&1 || { echo "there is no $word"; return; }
        ;;
    esac
  done
  needs=$(sed -n '2s|^/\* Needs <\([^>]*\)>: .*|\1|p' "$2")
  [ "$needs" != mpi.h ] || return
  if [ -n "$needs" ] && ! echo "#include <$needs>" | cc -E -x c - >/dev/null 2>&1; then echo "there is no $needs"; fi
}

# The same command, with which the compilers look at all that is included and make nothing. Rust reads its modules, and no C.
only_look() {
  local word command=
  for word in $1; do
    case $word in
      cc | c++ | mpicc) word="$word -E" ;;
      mpifort) word='mpifort -fsyntax-only' ;;
      rustc) word='rustc --emit=metadata' ;;
    esac
    command="$command $word"
  done
  echo "$command"
}

# The archives that some examples read; made once.
gallery() {
  [ ! -d "$work/gallery" ] || return 0
  cc -O1 -o "$work/make_gallery" "$root/tools/make_gallery.c" -lm && "$work/make_gallery" "$work/gallery" >/dev/null
}

run_example() { # as the comment says; $work/log has what it prints
  local data=$work/gallery launch=
  case $name in
    09_* | 11_* | 12_*) gallery >"$work/log" 2>&1 || { bad 'its archive cannot be made'; return; } ;;
  esac
  case $name in
    09_*) set -- "$data/weather.zarr" "$data/weather.json" ;;
    11_*) set -- "$data/forecasts.zarr" ;;
    12_*) set -- "$data/cells.zarr" ;;
    15_*) launch='mpirun -n 4' ;;
    16_*) launch='mpirun -n 2' ;;
  esac
  [ -z "$launch" ] || [ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  [ -z "$launch" ] || launch="$launch --oversubscribe"
  if $launch "./${name%.*}" "$@" >"$work/log" 2>&1 </dev/null; then
    ok 'compiled, and ran'
  else
    bad 'it was compiled, and fails'
  fi
}

for file in "$@"; do
  name=${file##*/}
  file=$root/examples/$name
  command=$(first_line "$file")
  case $name in *.jl) command="cc -shared -fPIC -O2 -D_GNU_SOURCE -DINSITU_IMPLEMENTATION -x c insitubatch.h -o libinsitubatch.so \
-luring -lcurl -llz4 -lzstd -lpthread && $command" ;; esac
  lack=$(lacks "$command" "$file")
  [ -z "$lack" ] || { skip "$lack"; continue; }

  mkdir -p "$work/${name%%_*}/examples" && cd "$work/${name%%_*}" || exit 1
  cp "$root/insitubatch.h" . && cp "$file" examples/
  case $name in
    *.cpp) cp "$root/examples/insitubatch.hpp" examples/ ;;
    *.f90 | *.rs | *.jl) mkdir examples/bindings && cp "$root/examples/bindings/insitubatch.${name##*.}" examples/bindings/ ;;
  esac
  if [ $whole = no ]; then
    case $name in
      *.cu | *.jl) skip 'its compiler cannot only look at it'; continue ;;
    esac
    if bash -c "$(only_look "$command")" >"$work/log" 2>&1; then ok 'all that it includes is there'; else bad "$command"; fi
    continue
  fi
  mkdir examples/data && cp -r "$root/examples/data/winds.zarr" examples/data/
  if ! bash -c "${command// -O2 / ${OPT:--O2} }" >"$work/log" 2>&1; then bad "$command"; continue; fi
  case $name in
    *.jl) ok 'ran' ;; # its command runs it
    *) run_example ;;
  esac
done
if [ $skipped = 0 ]; then echo "$passed passed, $failed failed"; else echo "$passed passed, $failed failed, $skipped skipped"; fi
[ $failed = 0 ]
