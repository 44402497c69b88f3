/* Runs a command as containers do it: confine [OPTION...] -- COMMAND...
 *   --no-uring EPERM|ENOSYS   a seccomp filter answers io_uring_setup so, as Docker's profile does
 *   --read-only               every mount is read-only, in a mount namespace of its own
 *   --shm BYTES               a /dev/shm of that size, in a mount namespace of its own
 *   --files N                 descriptors that may be open
 * Exit status 77: this machine does not let it; the cause is on stderr. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/mount.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static void cannot(const char *what) {
  fprintf(stderr, "confine: %s: %s\n", what, strerror(errno));
  exit(77);
}

static void deny_uring(int error) {
  const unsigned answer = SECCOMP_RET_ERRNO | ((unsigned)error & SECCOMP_RET_DATA);
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_enter, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_register, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, answer),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
    cannot("seccomp");
}

/* Mounts that change here change nowhere else. */
static void own_mounts(void) {
  static int done;
  if (done++) return;
  if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
    cannot("a mount namespace");
}

static void read_only(void) {
  struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
  own_mounts();
  if (syscall(SYS_mount_setattr, AT_FDCWD, "/", AT_RECURSIVE, &attr, sizeof attr))
    cannot("mount_setattr");
}

int main(int argc, char **argv) {
  int i = 1;
  for (; i < argc && strcmp(argv[i], "--"); i++) {
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    if (!strcmp(argv[i], "--read-only")) {
      read_only();
      continue;
    }
    i++;
    if (!strcmp(argv[i - 1], "--no-uring")) {
      deny_uring(!strcmp(value, "ENOSYS") ? ENOSYS : EPERM);
    } else if (!strcmp(argv[i - 1], "--shm")) {
      char options[64];
      snprintf(options, sizeof options, "size=%s", value);
      own_mounts();
      if (mount("tmpfs", "/dev/shm", "tmpfs", 0, options)) cannot("mounting /dev/shm");
    } else if (!strcmp(argv[i - 1], "--files")) {
      rlim_t n = strtoul(value, NULL, 10);
      if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){n, n})) cannot("setrlimit");
    } else {
      fprintf(stderr, "confine: unknown option %s\n", argv[i - 1]);
      return 2;
    }
  }
  if (i + 1 >= argc) return fprintf(stderr, "confine: no command behind --\n"), 2;
  execvp(argv[i + 1], argv + i + 1);
  cannot(argv[i + 1]);
}
