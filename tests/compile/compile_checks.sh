#!/bin/sh
# Compiles insitubatch.h in every supported mode, and inspects what comes out. What the machine has no compiler for is named and
# skipped.
#   tests/compile/compile_checks.sh          INSITU_HEADER_DIR: where insitubatch.h lies (the repository's root)
# shellcheck disable=SC2086  # flags and libraries are lists
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
include=${INSITU_HEADER_DIR:-$root}
gcc=${CC:-cc} gxx=${CXX:-c++}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work" || exit 1
passed=0 failed=0 skipped=0
# Of indentation that misleads, clang warns: gcc's search for it takes as long as a compile without optimization
warnings='-Wall -Wextra -Wno-misleading-indentation -Wshadow -Wconversion -Werror'
gnu='-std=gnu11 -D_GNU_SOURCE'
libs='-luring -lcurl -llz4 -lzstd -lpthread -lm'
features=$(sed -n 's/^FEATURES *= *//p' "$root/Makefile") # one by one, and all

ok() { passed=$((passed + 1)); }
bad() { # name; the log is in $work/log
  echo "FAILED: $1"
  head -n 25 log
  failed=$((failed + 1))
}
skip() {
  echo "skipped: $1"
  skipped=$((skipped + 1))
}
check() { # name command...
  name=$1
  shift
  if "$@" >log 2>&1; then ok; else bad "$name: $*"; return 1; fi
}
run() { # a program that was just linked, unless that failed
  if [ -x "$1" ]; then check "runs" "./$1"; fi
}
compile() { # name, compiler, flags, files and libraries
  compiler=$2 flags=$3 name=$1
  shift 3
  check "$name" $compiler $flags -I"$include" "$@"
}

cat >declare.c <<'END'
#include "insitubatch.h"
#include "insitubatch.h"
insitu_error declared(insitu_status status);
insitu_error declared(insitu_status status) {
  insitu_error error;
  error.status = status;
  error.message[0] = 0;
  return error;
}
END
cp declare.c declare.cpp
cat >implement.c <<'END'
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "insitubatch.h"
END
printf '%s\n' '#define _GNU_SOURCE' >own_define.c
cat implement.c >>own_define.c
cat >use.c <<'END'
#include <stdio.h>
#include "insitubatch.h"
int main(void) {
  return puts(insitu_status_name(INSITU_OK)) < 0;
}
END
cp use.c use.cpp
cat >static_one.c <<'END'
#define INSITU_STATIC
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
const char *one(void);
const char *one(void) {
  return insitu_status_name(INSITU_OK);
}
END
cat >static_main.c <<'END'
#include <string.h>
const char *one(void);
const char *two(void);
int main(void) {
  return strcmp(one(), two());
}
END
cat >lto_main.c <<'END'
#include <string.h>
#include "insitubatch.h"
const char *one(void);
int main(void) {
  return strcmp(one(), insitu_status_name(INSITU_OK));
}
END

for order in before after; do
  {
    echo '#define STB_DS_IMPLEMENTATION'
    echo '#define INSITU_IMPLEMENTATION'
    if [ $order = before ]; then echo '#include <stb/stb_ds.h>'; fi
    echo '#include "insitubatch.h"'
    if [ $order = after ]; then echo '#include <stb/stb_ds.h>'; fi
    echo 'int main(void) { int *own = NULL; arrput(own, 1); return arrlen(own) != 1 || !insitu_status_name(INSITU_OK); }'
  } >stb_$order.c
done

have() { command -v "${1%% *}" >/dev/null 2>&1; }
compilers="$gcc"
if have clang && [ "$gcc" != clang ]; then compilers="$compilers clang"; else skip "clang: not installed (or CC is clang)"; fi
last=${compilers##* } # clang, where there is one: without optimization, that takes half of gcc's time

for c in $compilers; do
  case $c in clang*) x=clang++ ;; *) x=$gxx ;; esac
  have "$x" || { skip "C++ with $x: not installed"; x=; }

  for std in c11 c17; do compile "declarations" "$c" "-std=$std -pedantic $warnings" -c declare.c -o declare.o; done
  if [ -n "$x" ]; then
    for std in c++17 c++20; do compile "declarations" "$x" "-std=$std -pedantic $warnings" -c declare.cpp -o declare_cpp.o; done
  fi
  # What gcc warns of depends on the level; clang's warnings do not. The last object is linked below, without optional libraries.
  case $c in clang*) own=-Wmisleading-indentation ;; *)
    own=
    [ "$c" != "$last" ] || own=-Wmisleading-indentation # there is no clang
    compile "implementation" "$c" "$gnu $warnings -O2 $features $own" -c implement.c -o implement.o
    own=
    ;;
  esac
  compile "implementation" "$c" "$gnu $warnings -O0 $own" -c implement.c -o implement.o
  # clang warns of all that it warns of at -O0 when it only parses, of functions that a mode leaves unused as well. gcc warns of
  # these behind the parser, and has warned of all when it writes what -flto makes machine code of later.
  echo 'int main(void) { return 0; }' >trivial.c
  lto=no
  if $c -O2 -flto trivial.c -o trivial >log 2>&1; then lto=yes; fi
  case $c:$lto in
    clang*) parse='-fsyntax-only -Wmisleading-indentation' ;;
    *:yes) parse='-flto -fno-fat-lto-objects' ;;
    *) parse= ;;
  esac
  for mode in "$features" "-DINSITU_WITH_CUDA -isystem $root/tests/cudasim" "-DINSITU_NO_URING $features -DNDEBUG" \
    "-DINSITU_CORO_UCONTEXT -DINSITU_OPS_SCALAR -DINSITU_DEBUG -DINSITU_VALGRIND -DNDEBUG" "-std=gnu17 -fPIC"; do
    compile "implementation" "$c" "$gnu -O0 $warnings $mode" $parse -c implement.c -o mode.o
  done
  for mode in $features -DNDEBUG; do
    compile "implementation" "$c" "$gnu -O0 $warnings $mode" -fsyntax-only implement.c
  done
  compile "implementation, _GNU_SOURCE in the file" "$c" "-std=gnu11 -O0 $warnings" $parse -c own_define.c -o mode.o

  # One translation unit implements, another uses; the user may be C++.
  compile "two units" "$c" "$gnu -O2 $warnings" implement.o use.c -o two_units $libs
  run two_units
  if [ -n "$x" ]; then
    compile "C++ user" "$x" "-std=c++17 $warnings" use.cpp implement.o -o from_cpp $libs
    run from_cpp
    for std in c++17 c++20; do
      compile "insitubatch.hpp" "$x" "-std=$std $warnings" "$root/tests/compile/raii.cpp" implement.o -o raii $libs &&
        check "insitubatch.hpp: runs" ./raii "$root/examples/data/winds.zarr"
    done
  fi
  compile "INSITU_STATIC" "$c" "$gnu -O0 $warnings" -c static_one.c -o static_one.o
  # The other unit is the same but for the name of its function.
  check "INSITU_STATIC, another unit" objcopy --redefine-sym one=two static_one.o static_two.o
  compile "INSITU_STATIC in two units" "$c" "$gnu $warnings" static_one.o static_two.o static_main.c -o two_static $libs
  run two_static
  # What a mode calls of libraries is the same for each compiler: one of them links.
  if [ "$c" = "$last" ]; then
    compile "INSITU_NO_URING links without liburing" "$c" "$gnu -O0 $warnings -DINSITU_NO_URING" implement.c use.c -o no_uring \
      -lcurl -llz4 -lzstd -lpthread -lm
    compile "INSITU_NO_CURL links without libcurl" "$c" "$gnu -O0 $warnings -DINSITU_NO_CURL" implement.c use.c -o no_curl \
      -luring -llz4 -lzstd -lpthread -lm
  else
    for mode in -DINSITU_NO_URING -DINSITU_NO_CURL; do
      compile "implementation" "$c" "$gnu -O0 $warnings $mode" $parse -c implement.c -o mode.o
    done
  fi

  # One program holds both forms, seen at once: functions that others call, and INSITU_STATIC.
  if [ $lto = yes ]; then
    compile "-flto, and INSITU_STATIC in one of two units" "$c" "$gnu -O0 -flto $warnings" implement.c static_one.c lto_main.c \
      -o lto $libs
    run lto
  else
    skip "-flto with $c: it cannot link so here"
  fi

  # Only insitu_* leaves the object, nothing does with INSITU_STATIC, and nothing writable has static storage.
  nm -g --defined-only implement.o >symbols
  awk '$NF !~ /^insitu_[a-z]/ { print }' symbols >log
  if [ -s symbols ] && [ ! -s log ]; then ok; else bad "$c: symbols that are not insitu_*"; fi
  nm -g --defined-only static_one.o | awk '$NF != "one" { print } END { if (!NR) print "no symbols" }' >log
  if [ ! -s log ]; then ok; else bad "$c: symbols that leave with INSITU_STATIC"; fi
  nm -f sysv --defined-only implement.o | awk -F'|' '{ gsub(/ /, "") }
    $7 ~ /^(\.t?data|\.t?bss|\*COM\*)/ && $7 !~ /^\.data\.rel\.ro/ && $4 != "SECTION" { print $1, $7 }' >log
  if [ ! -s log ]; then ok; else bad "$c: mutable static state"; fi

  # A missing _GNU_SOURCE is an error that says so.
  if $c -std=c11 -I"$include" -c implement.c -o none.o >log 2>&1; then
    bad "$c: compiles without _GNU_SOURCE"
  elif grep -q 'error.*_GNU_SOURCE' log; then ok; else bad "$c: the error without _GNU_SOURCE does not name it"; fi

  # One that is defined behind the first header, too.
  printf '%s\n' '#include <stdio.h>' '#define _GNU_SOURCE' '#include "insitubatch.h"' >late_define.c
  if $c -std=c11 -DINSITU_IMPLEMENTATION -I"$include" -fsyntax-only late_define.c >log 2>&1; then
    bad "$c: compiles with a late _GNU_SOURCE"
  elif grep -q 'error.*_GNU_SOURCE is defined behind' log; then ok; else bad "$c: a late _GNU_SOURCE is not named"; fi

  # Flags that lose NaN are refused where the file implements, and there alone.
  for fast in -ffast-math -Ofast -ffinite-math-only; do
    if $c $gnu $fast -I"$include" -E implement.c >none.i 2>log; then
      bad "$c: implements with $fast"
    elif grep -q 'error.*-fno-fast-math' log; then ok; else bad "$c: the error with $fast does not say what to do"; fi
    check "$c: implements with $fast -fno-fast-math" $c $gnu $fast -fno-fast-math -I"$include" -E implement.c -o none.i
    check "$c: declares with $fast" $c $gnu $fast -I"$include" -c declare.c -o none.o
  done

  # Half of an allocator is refused.
  for half in '-DINSITU_REALLOC(p,n)=realloc(p,n)' '-DINSITU_FREE(p)=free(p)'; do
    if $c $gnu "$half" -I"$include" -E implement.c >none.i 2>log; then
      bad "$c: implements with $half alone"
    elif grep -q 'error.*to allocate and to free; define both' log; then ok; else bad "$c: the error of half an allocator"; fi
  done

  # The declarations bring in nothing but what the compiler and libc have.
  $c -std=c11 -I"$include" -M declare.c 2>&1 | tr ' ' '\n' |
    grep -E 'uring|zstd|lz4|zlib|deflate|bzlib|snappy|openssl|curl|pthread\.h|cuda' >log
  if [ ! -s log ]; then ok; else bad "$c: headers behind the declarations"; fi

  # Who includes stb_ds.h himself, before or after, has all of it. Macros decide that, so one of the compilers links.
  if [ -e /usr/include/stb/stb_ds.h ]; then
    for order in stb_before.c stb_after.c; do
      if [ "$c" = "$last" ]; then
        compile "a user's stb_ds, $order" "$c" "$gnu -O0" $order -o stb $libs
        run stb
      else
        compile "a user's stb_ds, $order" "$c" "$gnu -O0" -fsyntax-only $order
      fi
    done
  else
    skip "a user's stb_ds: not installed"
  fi

  # No macro without the prefix stays defined.
  $c $gnu -I"$include" -E -dM implement.c | sed -n 's/^#define \([A-Za-z_0-9]*\).*/\1/p' | sort >macros
  sed -n 's/^ *# *define  *\([A-Za-z_0-9]*\).*/\1/p' "$include/insitubatch.h" |
    grep -v -e '^INSITU_' -e '^INSITUBATCH_H$' | sort -u >own
  comm -12 own macros >log
  if [ ! -s log ]; then ok; else bad "$c: macros left defined"; fi
done

# The first programs that people copy: README's by README's command, the manual's, and the first example. Each trains on the sample
# archive, and tells a damaged chunk by its exit status and on stderr.
mkdir -p first/examples/data && cp "$include/insitubatch.h" first/ && cp -r "$root/examples/data/winds.zarr" first/examples/data/
cp -r first/examples/data/winds.zarr first/whole.zarr
cp -r first/examples/data/winds.zarr first/damaged.zarr
chunk=$(find first/damaged.zarr/uwnd -type f ! -name '.*' ! -name zarr.json | sort | head -n 1)
printf 'no chunk' >"$chunk"
awk '/^```c$/ { code = 1; next } /^```/ { if (code) exit } code' "$root/README.md" >first/train.c
command=$(awk '/^cc .* train\.c / { print; exit }' "$root/README.md")
{ # the manual's stands in no function, and calls a step of the reader's
  sed -n '/^ \*     #define _GNU_SOURCE/,/^ \*     #include "insitubatch.h"/s/^ \*     //p' "$include/insitubatch.h"
  echo 'static void step(const void *x, const void *y, uint64_t rows) { if (!x || !y || !rows) abort(); }'
  echo 'int main(void) {'
  sed -n '/^ \*     insitu_variable vars/,/^ \*     return /s/^ \*     //p' "$include/insitubatch.h" |
    sed 's|"winds.zarr"|"examples/data/winds.zarr"|'
  echo '}'
} >first/manual.c
cp "$root/examples/01_hello.c" first/hello.c
# linked NAME FILE FLAGS: the whole file is parsed, for what it takes from the implementation, the system's headers among it. What
# runs holds the same functions from an object that is there.
linked() {
  sed '/INSITU_IMPLEMENTATION/d' "first/$2" >first/linked.c
  check "$1, parsed" $gcc -O0 $3 -Ifirst -fsyntax-only "first/$2" || return
  first "$1" "$gcc -O0 $3 -include stdio.h -include stdlib.h -o program linked.c ../implement.o $libs"
}
first() { # name, command of the compiler
  ( cd first && $2 ) >log 2>&1 || { bad "$1: $2"; return; }
  for archive in whole damaged; do
    rm -rf first/examples/data/winds.zarr && cp -r first/$archive.zarr first/examples/data/winds.zarr
    ( cd first && ./program ) >out 2>log
    status=$?
    case $archive:$status in
      whole:0) if [ -s log ]; then bad "$1: it complains of a good archive"; else ok; fi ;;
      whole:*) bad "$1: it fails on a good archive" ;;
      damaged:0) echo 'exit status 0' >log; bad "$1: it does not tell of a damaged chunk" ;;
      damaged:*) if grep -q 'INSITU_E_.*uwnd/.*damaged' log; then ok; else bad "$1: it does not name the damaged chunk"; fi ;;
    esac
  done
}
case $command in
  # without optimization, which the demo has
  "cc -O2 "*) first "README's program" "$gcc -O0 ${command#cc -O2 } -o program" ;;
  *)
    echo "'$command'" >log
    bad "README's command"
    ;;
esac
rm -rf first/examples/data/winds.zarr && cp -r first/whole.zarr first/examples/data/winds.zarr
sed '/INSITU_IMPLEMENTATION/d' first/train.c >first/linked.c # as a program that is linked with a library
check "README's program without the implementation" $gcc -fsyntax-only -Wall -Wextra -Werror -Ifirst first/linked.c
sed '/insitu_batch_release/d' first/linked.c >first/held.c # who forgets to release is told
if check "README's program without a release" $gcc -O0 -Ifirst -o held first/held.c implement.o $libs; then
  if (cd first && ../held) >out 2>log; then bad "README's program without a release: exit status 0"; fi
  if grep -q INSITU_BUSY log; then ok; else bad "README's program does not tell of INSITU_BUSY"; fi
fi
# Without the check of indentation, as above: with it gcc takes ten times as long to parse the header.
linked "the manual's program" manual.c "-Wall -Wextra -Wno-misleading-indentation -Werror"
linked "the first example" hello.c ""

# aarch64: the headers of the libraries are the same on every machine; -c has the assembler read what the compiler does not.
cross=aarch64-linux-gnu-gcc
if have $cross && echo '#include <stdio.h>' | $cross -E - >/dev/null 2>&1; then
  mkdir headers
  for header in liburing.h liburing lz4.h lz4hc.h lz4frame.h zstd.h zstd_errors.h zlib.h zconf.h libdeflate.h bzlib.h \
    snappy-c.h curl; do
    for folder in /usr/include /usr/include/"$($gcc -dumpmachine)" /usr/local/include; do
      [ ! -e "$folder/$header" ] || ln -sf "$folder/$header" headers/
    done
  done
  mkdir headers/openssl # in two folders on Debian
  for header in /usr/include/openssl/*.h /usr/include/"$($gcc -dumpmachine)"/openssl/*.h; do
    [ ! -e "$header" ] || ln -sf "$header" headers/openssl/
  done
  compile "aarch64" $cross "$gnu -O0 $warnings $features -isystem headers" -c implement.c -o arm.o
  compile "aarch64, no ring" $cross "$gnu -O0 $warnings -DINSITU_NO_URING -isystem headers" -fsyntax-only implement.c
else
  skip "aarch64: no $cross with its C library's headers"
fi

if [ $skipped = 0 ]; then echo "$passed passed, $failed failed"; else echo "$passed passed, $failed failed, $skipped skipped"; fi
[ $failed = 0 ]
