#!/bin/sh
# Builds insitubatch.h as older systems and other C libraries do, and runs what comes out. Each line says what was built.
#   gcc 11          the header in every mode without a warning, and the tests named in TESTS
#   liburing 2.1    this system's, without what came later; tests that read files run over it
#   curl 7.76       this system's, without what came later; compiled, and linked with this system's library
#   musl            static programs that read an archive over epoll and, where the kernel allows it, over io_uring; what needs
#                   libcurl and the optional libraries is compiled only, for Debian has no such libraries for musl
# Names that came later are taken from this system's headers by `#pragma GCC poison`, so that any use of one is an error. The lists
# end with liburing 2.3 and curl 7.88: newer names do not compile on Debian 12. What is not installed is named and skipped.
#   tests/compile/old_systems.sh
# shellcheck disable=SC2086  # flags and libraries are lists
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
cc=${CC:-cc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$root" || exit 1
passed=0 failed=0 skipped=0
# Without the check that takes gcc half of the time: compile_checks.sh has it
warnings='-Wall -Wextra -Wno-misleading-indentation -Wshadow -Wconversion -Werror'
gnu='-std=gnu11 -D_GNU_SOURCE'
features=$(sed -n 's/^FEATURES *= *//p' Makefile)
feature_libs=$(sed -n 's/^FEATURE_LIBS *= *//p' Makefile)
codecs='-llz4 -lzstd'
libs="-luring -lcurl $codecs -lpthread -lm"
TESTS=${TESTS:-test_box test_codec test_ring test_loader}

# What liburing has since 2.2 and 2.3, but for io_uring_cqe_index, io_uring_cqe_shift and IORING_SETUP_CQE32: its macros use them.
uring_names='
  IORING_ACCEPT_MULTISHOT IORING_ASYNC_CANCEL_ALL IORING_ASYNC_CANCEL_ANY IORING_ASYNC_CANCEL_FD IORING_ASYNC_CANCEL_FD_FIXED
  IORING_CQE_F_NOTIF IORING_CQE_F_SOCK_NONEMPTY IORING_ENTER_REGISTERED_RING IORING_FEAT_CQE_SKIP IORING_FEAT_LINKED_FILE
  IORING_FILE_INDEX_ALLOC IORING_MSG_DATA IORING_MSG_RING_CQE_SKIP IORING_MSG_SEND_FD IORING_OP_FGETXATTR IORING_OP_FSETXATTR
  IORING_OP_GETXATTR IORING_OP_MSG_RING IORING_OP_SENDMSG_ZC IORING_OP_SEND_ZC IORING_OP_SETXATTR IORING_OP_SOCKET
  IORING_OP_URING_CMD IORING_POLL_ADD_LEVEL IORING_POLL_LEVEL IORING_RECVSEND_FIXED_BUF IORING_RECVSEND_POLL_FIRST
  IORING_RECV_MULTISHOT IORING_REGISTER_FILE_ALLOC_RANGE IORING_REGISTER_PBUF_RING IORING_REGISTER_RING_FDS
  IORING_REGISTER_SYNC_CANCEL IORING_RSRC_REGISTER_SPARSE IORING_SETUP_COOP_TASKRUN IORING_SETUP_DEFER_TASKRUN
  IORING_SETUP_SINGLE_ISSUER IORING_SETUP_SQE128 IORING_SETUP_SUBMIT_ALL IORING_SETUP_TASKRUN_FLAG IORING_SQ_TASKRUN
  IORING_TIMEOUT_ETIME_SUCCESS IORING_UNREGISTER_PBUF_RING IORING_UNREGISTER_RING_FDS IORING_URING_CMD_FIXED
  IOSQE_CQE_SKIP_SUCCESS IOSQE_CQE_SKIP_SUCCESS_BIT io_uring_buf io_uring_buf_reg io_uring_buf_ring io_uring_buf_ring_add
  io_uring_buf_ring_advance io_uring_buf_ring_cq_advance io_uring_buf_ring_init io_uring_buf_ring_mask
  io_uring_cq_has_overflow io_uring_cqe_get_data64 io_uring_enter2 io_uring_file_index_range io_uring_get_events
  io_uring_notification_register io_uring_notification_slot io_uring_prep_cancel64 io_uring_prep_cancel_fd
  io_uring_prep_close_direct io_uring_prep_fgetxattr io_uring_prep_fsetxattr io_uring_prep_getxattr io_uring_prep_link
  io_uring_prep_mkdir io_uring_prep_msg_ring io_uring_prep_multishot_accept io_uring_prep_multishot_accept_direct
  io_uring_prep_readv2 io_uring_prep_recv_multishot io_uring_prep_recvmsg_multishot io_uring_prep_rename
  io_uring_prep_send_set_addr io_uring_prep_send_zc io_uring_prep_send_zc_fixed io_uring_prep_sendmsg_zc
  io_uring_prep_setxattr io_uring_prep_socket io_uring_prep_socket_direct io_uring_prep_socket_direct_alloc
  io_uring_prep_symlink io_uring_prep_unlink io_uring_prep_writev2 io_uring_recvmsg_cmsg_firsthdr
  io_uring_recvmsg_cmsg_nexthdr io_uring_recvmsg_name io_uring_recvmsg_out io_uring_recvmsg_payload
  io_uring_recvmsg_payload_length io_uring_recvmsg_validate io_uring_register_buf_ring io_uring_register_buffers_sparse
  io_uring_register_file_alloc_range io_uring_register_files_sparse io_uring_register_ring_fd io_uring_register_sync_cancel
  io_uring_sqe_set_data64 io_uring_submit_and_get_events io_uring_submit_and_wait_timeout io_uring_sync_cancel_reg
  io_uring_unregister_buf_ring io_uring_unregister_ring_fd
'

# What curl has since 7.77 to 7.88.
curl_names='
  CURLE_SETOPT_OPTION_SYNTAX CURLE_SSL_CLIENTCERT CURLE_UNRECOVERABLE_POLL CURLHE_BADINDEX CURLHE_BAD_ARGUMENT CURLHE_MISSING
  CURLHE_NOHEADERS CURLHE_NOREQUEST CURLHE_NOT_BUILT_IN CURLHE_OK CURLHE_OUT_OF_MEMORY CURLH_1XX CURLH_CONNECT CURLH_HEADER
  CURLH_PSEUDO CURLH_TRAILER CURLINFO_CAINFO CURLINFO_CAPATH CURLMIMEOPT_FORMESCAPE CURLM_ABORTED_BY_CALLBACK
  CURLM_UNRECOVERABLE_POLL CURLOPT_CAINFO_BLOB CURLOPT_CA_CACHE_TIMEOUT CURLOPT_MAXLIFETIME_CONN CURLOPT_MIME_OPTIONS
  CURLOPT_PREREQDATA CURLOPT_PREREQFUNCTION CURLOPT_PROTOCOLS_STR CURLOPT_PROXY_CAINFO_BLOB CURLOPT_QUICK_EXIT
  CURLOPT_REDIR_PROTOCOLS_STR CURLOPT_SSH_HOSTKEYDATA CURLOPT_SSH_HOSTKEYFUNCTION CURLOPT_SSH_HOST_PUBLIC_KEY_SHA256
  CURLOPT_WS_OPTIONS CURLSSLOPT_AUTO_CLIENT_CERT CURLUE_BAD_FILE_URL CURLUE_BAD_FRAGMENT CURLUE_BAD_HOSTNAME CURLUE_BAD_IPV6
  CURLUE_BAD_LOGIN CURLUE_BAD_PASSWORD CURLUE_BAD_PATH CURLUE_BAD_QUERY CURLUE_BAD_SCHEME CURLUE_BAD_SLASHES CURLUE_BAD_USER
  CURLUE_LACKS_IDN CURLUE_NO_ZONEID CURLU_ALLOW_SPACE CURLU_PUNYCODE CURLVERSION_ELEVENTH CURLVERSION_TENTH CURLWS_BINARY
  CURLWS_CLOSE CURLWS_CONT CURLWS_OFFSET CURLWS_PING CURLWS_PONG CURLWS_RAW_MODE CURLWS_TEXT CURL_HTTP_VERSION_3ONLY
  CURL_LOCK_DATA_HSTS CURL_PREREQFUNC_ABORT CURL_PREREQFUNC_OK CURL_VERSION_THREADSAFE CURL_WRITEFUNC_ERROR curl_easy_header
  curl_easy_nextheader curl_header curl_prereq_callback curl_sshhostkeycallback curl_url_strerror curl_ws_frame curl_ws_meta
  curl_ws_recv curl_ws_send
'

skip() {
  echo "skipped: $1"
  skipped=$((skipped + 1))
}
check() { # name command...
  name=$1
  shift
  if "$@" >"$work/log" 2>&1; then
    echo "passed: $name"
    passed=$((passed + 1))
  else
    echo "FAILED: $name: $*"
    tail -n 25 "$work/log"
    failed=$((failed + 1))
    return 1
  fi
}
refused() { # name, words of the error, command...
  name=$1 words=$2
  shift 2
  if "$@" >"$work/refusal" 2>&1; then
    echo "FAILED: $name: it compiles"
    failed=$((failed + 1))
  else
    check "$name" grep "error.*$words" "$work/refusal"
  fi
}
# parsed NAME COMPILER FLAGS...: no machine code. clang warns of all when it parses, gcc when it writes what -flto goes on with.
parsed() {
  name=$1 compiler=$2
  shift 2
  case $compiler in clang*) only=-fsyntax-only ;; *) only='-flto -fno-fat-lto-objects' ;; esac
  check "$name" $compiler "$@" $only -c "$work/implement.c" -o "$work/parsed.o"
}
later() { # names: none of them may be used any more
  for word in $1; do echo "#undef $word"; done
  for word in $1; do
    # The header asks whether this one is there.
    [ "$word" = IORING_SETUP_DEFER_TASKRUN ] || echo "#pragma GCC poison $word"
  done
}

# ---- headers as they were

mkdir -p "$work/old/curl" "$work/old/linux"
{
  echo '#pragma once'
  echo '#pragma GCC system_header'
  echo '#define OLD_LIBURING'
  echo '#include_next <liburing.h>'
  echo '#undef OLD_LIBURING'
  echo '#undef LIBURING_HAVE_DATA64'
  echo '#pragma GCC poison ring_entries'
  later "$uring_names"
  echo '#ifdef WITHOUT_2_1'
  echo '#undef IORING_FEAT_RSRC_TAGS'
  echo '#endif'
} >"$work/old/liburing.h"
# liburing 2.1 of Ubuntu 22.04 declares struct open_how itself.
cat >"$work/old/linux/openat2.h" <<'END'
#ifndef OLD_LIBURING
#error "liburing.h has declared struct open_how, and linux/openat2.h does it a second time"
#endif
#include_next <linux/openat2.h>
END
{
  echo '#pragma GCC system_header'
  echo '#define CURL_DISABLE_DEPRECATION'
  echo '#include_next <curl/curl.h>'
  echo '#undef LIBCURL_VERSION_NUM'
  echo '#ifdef WITHOUT_7_76'
  echo '#define LIBCURL_VERSION_NUM 0x074b00'
  echo '#else'
  echo '#define LIBCURL_VERSION_NUM 0x074c00'
  echo '#endif'
  later "$curl_names"
} >"$work/old/curl/curl.h"
old="-I$work/old"
cat >"$work/implement.c" <<'END'
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
END
for word in io_uring_submit_and_get_events curl_url_strerror; do
  printf '#include <liburing.h>\n#include <curl/curl.h>\nint main(void) { return !%s; }\n' $word >"$work/later.c"
  refused "no $word in the headers as they were" poisoned $cc $gnu $old -fsyntax-only "$work/later.c"
done
for c in $cc gcc-11 clang; do
  if ! command -v ${c%% *} >/dev/null 2>&1; then
    skip "liburing 2.1 and curl 7.76 with $c: it is not installed"
    continue
  fi
  if [ "$c" = "$cc" ]; then
    check "liburing 2.1, curl 7.76: compiles with $c" $c $gnu -O0 $warnings $features $old -I. -c "$work/implement.c" \
      -o "$work/old.o"
  else
    parsed "liburing 2.1, curl 7.76: compiles with $c" $c $gnu -O0 $warnings $features $old -I.
  fi
  refused "liburing 2.0 is refused with $c" 'liburing is older than 2.1.*INSITU_NO_URING' \
    $c $gnu $old -DWITHOUT_2_1 -I. -E "$work/implement.c"
  refused "curl 7.75 is refused with $c" 'libcurl is older than 7.76.*INSITU_NO_CURL' \
    $c $gnu $old -DWITHOUT_7_76 -I. -E "$work/implement.c"
done

# What the smallest program prints is the same for every compiler and C library.
sed '/INSITU_IMPLEMENTATION/d' examples/01_hello.c >"$work/hello.c" # linked with what was just compiled
check "01_hello with $cc" $cc -O0 -I. "$work/hello.c" "$work/old.o" -o "$work/hello" $libs $feature_libs &&
  "$work/hello" >"$work/hello.out"
same() { # name, program: prints what 01_hello printed
  check "$1" sh -c "'$2' >'$work/other.out' && cmp '$work/hello.out' '$work/other.out'"
}

# ---- gcc 11, with those headers

if command -v gcc-11 >/dev/null 2>&1; then
  # What depends on the level of optimization is looked at once, with all that the header has.
  check "gcc 11: compiles with -O2 $features" gcc-11 $gnu $warnings -O2 $features -I. -c "$work/implement.c" -o "$work/gcc11.o"
  for mode in "-O0 -DINSITU_NO_URING -DINSITU_NO_CURL" "-O0 -march=x86-64-v3"; do
    case $mode in *x86*) [ "$(uname -m)" = x86_64 ] || continue ;; esac
    parsed "gcc 11: compiles with $mode" gcc-11 $gnu $warnings $mode -I.
  done
  # The tests share one object of the header, as those of the Makefile do.
  inside() { awk -v folder=tests/support/ -v mode="$1" -f tests/support/inside.awk insitubatch.h $2; }
  built="$gnu $old -I. -Itests -Itests/support -Itests/cudasim $features -O0 -g1"
  inside object '' >"$work/inside.c"
  check "gcc 11, liburing 2.1, curl 7.76: the tests' object" gcc-11 $built -DINSITU_IMPLEMENTATION -c "$work/inside.c" \
    -o "$work/inside.o"
  for test in $TESTS; do
    source=$(echo tests/*/"$test.c")
    mkdir "$work/$test.inside" && inside header "$source" >"$work/$test.inside/insitubatch.h"
    check "gcc 11, liburing 2.1, curl 7.76: $test is built" gcc-11 "-I$work/$test.inside" $built -o "$work/$test" "$source" \
      "$work/inside.o" -lcmocka $libs $feature_libs &&
      check "gcc 11, liburing 2.1, curl 7.76: $test" "$work/$test"
  done
else
  skip "gcc 11: there is no gcc-11"
fi

# ---- musl. Its compiler looks into none of the system's folders: links lead to the headers that do not depend on the C library.

if ! command -v musl-gcc >/dev/null 2>&1; then
  skip "musl: there is no musl-gcc"
else
  mkdir -p "$work/musl/openssl"
  machine=$($cc -dumpmachine)
  for name in linux asm asm-generic liburing.h liburing lz4.h zstd.h zstd_errors.h zlib.h zconf.h libdeflate.h bzlib.h snappy-c.h \
    curl; do
    for folder in /usr/include "/usr/include/$machine"; do
      [ ! -e "$folder/$name" ] || ln -sfn "$folder/$name" "$work/musl/"
    done
  done
  for header in /usr/include/openssl/*.h "/usr/include/$machine"/openssl/*.h; do
    [ ! -e "$header" ] || ln -sf "$header" "$work/musl/openssl/"
  done
  musl="musl-gcc -isystem $work/musl -I."
  for mode in "-O0 $features" "-O0 -DINSITU_NO_URING -DINSITU_NO_CURL"; do
    parsed "musl: compiles with $mode" "$musl" $gnu $warnings $mode
  done
  # The system's static libraries want little of a C library, and musl has that: lz4, zstd and liburing.
  statics=
  for name in lz4 zstd uring; do
    for folder in /usr/lib /usr/lib64 "/usr/lib/$machine"; do
      [ ! -f "$folder/lib$name.a" ] || statics="$statics $folder/lib$name.a"
    done
  done
  cat >"$work/calls.c" <<'END'
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
/* What musl has in other forms, or not at all: the system's words in a message, preadv2, and the stack of a thread. */
static void *stack(void *bytes) {
  pthread_attr_t own;
  pthread_getattr_np(pthread_self(), &own);
  pthread_attr_getstacksize(&own, bytes);
  return NULL;
}
int main(int argc, char **argv) {
  insitu_loader *loader = NULL;
  insitu_error err = {0};
  if (argc < 2 || chdir(argv[1])) return 1;
  if (symlink("loop", "loop")) return 2;
  const insitu_variable variable = {.label = "x"};
  const insitu_loader_desc desc = {.api = INSITU_API, .url = "loop", .variables = &variable, .n_variables = 1, .batch_size = 1};
  if (insitu_loader_open(&desc, &loader, &err) >= 0 || !strstr(err.message, "ymbolic link") || err.sys_errno != ELOOP) {
    printf("%s\n", err.message);
    return 3;
  }
  int fd = open("one", O_RDWR | O_CREAT, 0600);
  if (fd < 0 || write(fd, "abcdef", 6) != 6) return 4;
  char text[4] = {0};
  struct iovec iov = {text, 3};
  if (INSITU__BASE_PREADV2(fd, &iov, 1, 2, 0) != 3 || strcmp(text, "cde")) return 7;
  size_t bytes = 0;
  pthread_t thread;
  if (insitu__ring_thread(&thread, "insitu-test", stack, &bytes)) return 8;
  pthread_join(thread, NULL);
  return bytes < INSITU__RING_STACK ? 9 : 0;
}
END
  mkdir "$work/calls.dir"
  check "musl: the program of system calls is built" $musl $gnu -O0 -DINSITU_NO_CURL -c "$work/calls.c" -o "$work/calls.o" &&
    check "musl: the program of system calls is linked" $musl -static "$work/calls.o" -o "$work/calls" $statics &&
    check "musl: system calls" "$work/calls" "$work/calls.dir"
  check "musl: 01_hello is built, static, without io_uring and curl" $musl -static -O0 -DINSITU_NO_URING -DINSITU_NO_CURL \
    examples/01_hello.c -o "$work/hello_epoll" $statics && same "musl: 01_hello reads an archive" "$work/hello_epoll"
  # The implementation of the program of system calls is that of this one, too.
  check "musl: the implementation with io_uring" objcopy --redefine-sym main=calls "$work/calls.o" "$work/musl.o" &&
    check "musl: 01_hello is built, static, with io_uring" $musl -static -O0 "$work/hello.c" "$work/musl.o" \
    -o "$work/hello_uring" $statics && same "musl: 01_hello reads an archive, over io_uring where the kernel allows it" \
    "$work/hello_uring"
fi

if [ $skipped = 0 ]; then echo "$passed passed, $failed failed"; else echo "$passed passed, $failed failed, $skipped skipped"; fi
[ $failed = 0 ]
