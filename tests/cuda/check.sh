#!/bin/sh
# insitubatch.h against the real CUDA runtime, 12 and 13 or the machine's own, which tests/cuda/toolkit.sh finds or gets: headers
# that agree with what is called and simulated, one program with and without a driver, the examples. Neither a GPU nor a driver is
# needed; what there is gets used.
#   tests/cuda/check.sh BUILD         Closes with 'N passed, N failed[, N skipped]'
# shellcheck disable=SC2086  # flags and libraries are lists
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1/cuda" || exit 2
build=$(cd "$1" && pwd)
work=$build/cuda
cd "$root" || exit 2
gcc=${CC:-cc}
passed=0 failed=0 skipped=0
# Of indentation that misleads, tests/compile/compile_checks.sh warns: gcc takes long for it.
warnings='-Wall -Wextra -Wno-misleading-indentation -Wshadow -Wconversion -Werror'
features=$(sed -n 's/^FEATURES *= *//p' Makefile)
libs="-luring -lcurl -llz4 -lzstd $(sed -n 's/^FEATURE_LIBS *= *//p' Makefile) -lpthread -lm"
simulated=tests/cudasim # stands in for CUDA in other tests

ok() { passed=$((passed + 1)); }
bad() { # name; the log is in $work/log
  echo "FAILED: $1"
  head -n 25 "$work/log"
  failed=$((failed + 1))
}
skip() {
  echo "skipped: $1"
  skipped=$((skipped + 1))
}
check() { # name command...
  name=$1
  shift
  if "$@" >"$work/log" 2>&1; then ok; else bad "$name: $*"; return 1; fi
}
compile() { # name, compiler, arguments: C, with the warnings
  name=$1 compiler=$2
  shift 2
  check "$name" $compiler -std=gnu11 -D_GNU_SOURCE $warnings -I. "$@"
}
finish() {
  if [ $skipped = 0 ]; then echo "$passed passed, $failed failed"; else echo "$passed passed, $failed failed, $skipped skipped"; fi
  [ $failed = 0 ]
  exit
}

# ---- names: all that is used or simulated is in api_checks.h ----
# The name may stand on a line of its own behind the bracket.
sed -nE -e '/^(HAS|TAKES)\($/{N;s/\n +//}' -e 's/^(HAS|TAKES)\(([A-Za-z]*),.*/\2/p' $simulated/api_checks.h | sort -u >"$work/known"
# Types, which the functions' parameters hold fast, and two streams, which are no constants of C.
types='^cuda(Error_t|Error|Stream_t|Event_t|Graph_t|GraphExec_t|HostFn_t|DeviceProp|MemcpyKind|StreamCaptureMode)$'
types="$types|^cudaStream(Legacy|PerThread)$"
for header in insitubatch.h tests/device/gpu.c $simulated/cuda_runtime_api.h; do
  grep -ohE '\bcuda[A-Z][A-Za-z0-9]*(_t\b)?' $header | grep -vE "$types" | sort -u >"$work/names"
  comm -23 "$work/names" "$work/known" >"$work/log"
  if [ -s "$work/names" ] && [ ! -s "$work/log" ]; then ok; else bad "$header: names that $simulated/api_checks.h lacks"; fi
done

tests/cuda/toolkit.sh "$build" >"$work/toolkits" || { skip "all that needs a toolkit"; finish; }
compilers=$gcc
if command -v clang >/dev/null 2>&1 && [ "$gcc" != clang ]; then compilers="$compilers clang"; else
  skip "clang: not installed (or CC is clang)"
fi
last=${compilers##* } # whose objects are linked
looks() { # COMPILER: only, the flags by which it warns of all without machine code; tests/compile/compile_checks.sh tells why
  case $1 in clang*) only=-fsyntax-only ;; *) only='-flto -fno-fat-lto-objects' ;; esac
  echo 'int looked;' >"$work/looked.c"
  $1 $only -c "$work/looked.c" -o "$work/looked.o" 2>/dev/null || only= # without link-time optimization: machine code
}
check "$simulated/cudasim.c" $gcc -std=gnu11 -D_GNU_SOURCE -I$simulated -c $simulated/cudasim.c -o "$work/cudasim.o"
# With the newest headers each compiler looks at the implementation, with the others the last one.
newest=$(tail -n 1 "$work/toolkits" | cut -d'|' -f1)
while IFS='|' read -r version include lib nvcc; do
  [ "$version" = "$newest" ] && these=$compilers || these=$last
  echo "CUDA $version: headers${nvcc:+, nvcc}, runtime"
  for c in $compilers; do
    cuda="-DINSITU_WITH_CUDA -isystem $include"
    [ "$include" != /usr/include ] || cuda=-DINSITU_WITH_CUDA
    compile "values and signatures, CUDA $version, $c" $c -pedantic $cuda -fsyntax-only -x c $simulated/api_checks.h
  done
  for c in $these; do
    rm -f "$work/insitubatch.o"
    only=
    [ "$c" = "$last" ] || looks "$c"
    compile "implementation, CUDA $version, $c" $c -O0 $features $cuda $only -DINSITU_IMPLEMENTATION -x c -c insitubatch.h \
      -o "$work/insitubatch.o"
  done
  check "tests/device/gpu.c, CUDA $version" $gcc -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -I. -Itests \
    -Itests/support "-I$include" $features -fsyntax-only tests/device/gpu.c
  # Ranges for a profiler, which a program with the simulated runtime sees.
  if [ -e "$include/nvtx3/nvToolsExt.h" ]; then
    nvtx="-O0 -DINSITU_WITH_CUDA -I$simulated -isystem $include"
    for c in $these; do
      rm -f "$work/nvtx.o" "$work/nvtx"
      if [ "$c" != "$last" ]; then
        looks "$c"
        compile "INSITU_WITH_NVTX, CUDA $version, $c" $c $nvtx $only -DINSITU_WITH_NVTX -DINSITU_IMPLEMENTATION -x c \
          -c insitubatch.h -o "$work/nvtx.o"
        continue
      fi
      compile "INSITU_WITH_NVTX, CUDA $version, $c" $c $nvtx -DINSITU_WITH_NVTX -DINSITU_IMPLEMENTATION -x c -c insitubatch.h \
        -o "$work/nvtx.o" &&
        compile "tests/cuda/nvtx.c, CUDA $version, $c" $c $nvtx tests/cuda/nvtx.c "$work/cudasim.o" "$work/nvtx.o" \
          -o "$work/nvtx" $libs -ldl &&
        check "ranges, CUDA $version, $c" "$work/nvtx" && check "no profiler, CUDA $version, $c" "$work/nvtx" none
    done
  else
    skip "CUDA $version: no nvtx3/nvToolsExt.h"
  fi
  # The last compiler's object, against both kinds of the runtime.
  [ -e "$work/insitubatch.o" ] || continue
  for kind in shared static; do
    if [ $kind = static ] && [ ! -e "$lib/libcudart_static.a" ]; then
      skip "CUDA $version: no libcudart_static.a"
      continue
    fi
    case $kind in
      shared) runtime="-L$lib -Wl,-rpath,$lib -lcudart" needed=1 ;;
      static) runtime="-L$lib -lcudart_static -ldl -lrt -lpthread" needed=0 ;;
    esac
    rm -f "$work/place"
    compile "$kind runtime $version" $gcc -O1 $cuda tests/cuda/place.c "$work/insitubatch.o" -o "$work/place" $libs $runtime ||
      continue
    # The driver's library is looked for when the program runs, never when it starts.
    readelf -d "$work/place" | grep NEEDED >"$work/log"
    if [ "$(grep -c libcudart "$work/log")" = $needed ] && ! grep -q 'libcuda\.so' "$work/log"; then ok; else
      bad "$kind runtime $version: libraries that the program needs"
    fi
    check "one program, $kind runtime $version" "$work/place" && tail -n 1 "$work/log"
  done
done <"$work/toolkits"
# What depends on other macros: with the last headers, which are the newest
looks "$last"
for mode in "-O0 -DNDEBUG" "-O0 -DINSITU_DEBUG -DINSITU_NO_URING -DINSITU_NO_CURL"; do
  compile "implementation, $last" $last $mode $cuda $only -DINSITU_IMPLEMENTATION -x c -c insitubatch.h \
    -o "$work/mode.o"
done

# ---- the examples, by their first lines ----
example() { # FILE
  program=$work/$(basename "${1%.*}")
  rm -f "$program"
  check "$1 compiles" env NVCC="$nvcc" CC="$gcc" tools/compile-example "$1" "$program" &&
    check "$1 runs" "$program" && sed -n '1p;$p' "$work/log"
}
nvcc=$(cut -d'|' -f4 "$work/toolkits" | grep . | tail -n 1)
if [ -n "$nvcc" ]; then example examples/06_train_cuda.cu; else skip "examples/06_train_cuda.cu: no nvcc"; fi
example examples/07_dlpack.cpp
finish
