/* Succeeds where io_uring may be used; says so where it may not (containers often forbid it). */
#include <stdio.h>
#include <string.h>
#include <liburing.h>

int main(void) {
  struct io_uring ring;
  int status = io_uring_queue_init(8, &ring, 0);
  if (status < 0) {
    printf("io_uring is not to be had here (%s): these tests run over epoll alone\n",
        strerror(-status));
    return 1;
  }
  io_uring_queue_exit(&ring);
  return 0;
}
