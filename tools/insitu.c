/* insitu: looks at Zarr archives, checks them, and says what training from them would cost. One
 * program, built from this file and tools/insitu/: make tools. Run insitu --help. */
#define _GNU_SOURCE
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "insitu/common.h"
#include "insitu/info.h"
#include "insitu/doctor.h"
#include "insitu/order.h"
#include "insitu/verify.h"
#include "insitu/mk.h"
#include "insitu/config.h"
#include "insitu/plan.h"
#include "insitu/scan.h"
#include "insitu/warm.h"
#include "insitu/prove.h"
#include "insitu/trace.h"
#include "insitu/cat.h"
#include "insitu/peek.h"
#include "insitu/bench.h"
#include "insitu/sweep.h"
#include "insitu/bench_report.h"
#include "insitu/virtual.h"
#include "insitu/netcdf3.h"
#include "insitu/inventory.h"
#include "insitu/index_bytes.h"
#include "insitu/index_values.h"
#include "insitu/index_netcdf3.h"
#include "insitu/index_hdf5.h"
#include "insitu/index_grib.h"
#include "insitu/index_join.h"
#include "insitu/index_zarr.h"
#include "insitu/index.h"
#include "insitu/refs_python.h"
#include "insitu/refs.h"

static const struct tool_command *const tool_commands[] = {
    &info_command,
    &plan_command,
    &cat_command,
    &peek_command,
    &verify_command,
    &scan_command,
    &warm_command,
    &prove_command,
    &trace_command,
    &bench_command,
    &mk_command,
    &index_command,
    &refs_command,
    &order_command,
    &doctor_command,
};

static void main_help(void) {
  printf("%sinsitu%s: look at Zarr archives, check them, plan training from them\n\nusage: insitu "
         "COMMAND [ARGUMENTS] [OPTIONS]\n\n"
         "commands:\n",
      tool_style(TOOL_BOLD), tool_style(TOOL_PLAIN));
  for (size_t i = 0; i < TOOL_COUNT(tool_commands); i++)
    printf("  %s%-8s%s %s\n", tool_style(TOOL_BOLD), tool_commands[i]->name, tool_style(TOOL_PLAIN),
        tool_commands[i]->summary);
  printf("\ninsitu COMMAND --help explains a command. Every command knows --json.\n"
         "A first look: insitu info ARCHIVE.zarr\n"
         "Exit status: 0 fine, 1 the archive or the run failed, 2 wrong usage, 3 (plan) opening "
         "would be refused,\n"
         "4 (verify) not one chunk is stored.\n");
}
static int main_unknown(const char *name) {
  const char *names[TOOL_COUNT(tool_commands)];
  for (size_t i = 0; i < TOOL_COUNT(tool_commands); i++) names[i] = tool_commands[i]->name;
  int near = insitu__text_nearest(name, names, (int)TOOL_COUNT(tool_commands));
  if (name[0] == '-') {
    fprintf(stderr,
        "insitu: '%s': options stand behind the command; 'insitu --help' lists the commands\n",
        name);
    return TOOL_USAGE;
  }
  fprintf(stderr, "insitu: there is no command '%s'", name);
  if (near >= 0) fprintf(stderr, "; did you mean '%s'?", names[near]);
  fprintf(stderr, "\nTry 'insitu --help'.\n");
  return TOOL_USAGE;
}
static int main_command(int argc, char **argv) {
  if (argc < 2) {
    main_help();
    return TOOL_USAGE;
  }
  const char *name = argv[1];
  if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 ||
      (strcmp(name, "help") == 0 && argc == 2)) {
    main_help();
    return TOOL_OK;
  }
  if (strcmp(name, "--version") == 0) {
    printf(
        "insitu %s, api %d, order_version %d\n", INSITU_VERSION, INSITU_API, INSITU_ORDER_VERSION);
    return TOOL_OK;
  }
  static char help[] = "--help";
  bool ask = strcmp(name, "help") == 0; /* insitu help COMMAND */
  if (ask) {
    name = argv[2];
    argv[2] = help;
    argc = 3;
  }
  for (size_t i = 0; i < TOOL_COUNT(tool_commands); i++) {
    const struct tool_command *c = tool_commands[i];
    int n = 0;
    if (strcmp(c->name, name)) continue;
    int code = tool_parse(c, argc - 2, argv + 2, &n);
    return code == TOOL_GO_ON ? c->run(n, argv + 2) : code;
  }
  return main_unknown(name);
}

int main(int argc, char **argv) {
  /* a write past the limit of a file's length (ulimit -f) fails like one to a full disk */
  signal(SIGXFSZ, SIG_IGN);
  int code = main_command(argc, argv);
  /* a full disk; a reader that left (head) ends us with SIGPIPE before */
  if (fflush(stdout) || ferror(stdout)) {
    fprintf(stderr, "insitu: writing the result: %s\n", strerror(errno));
    return TOOL_FAILED;
  }
  return code;
}
