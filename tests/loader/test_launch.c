/* rank = INSITU_RANK_FROM_ENV: what each launcher sets, launchers that agree and disagree, none,
 * and what is no number. */
#include "insitubatch.h"
#include "support.h"

static char root[1024];
static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",
    "PMI_SIZE", "PMIX_RANK", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "RANK",
    "WORLD_SIZE"};

static int setup(void **state) {
  static const struct support_array t = {
      .name = "t", .format = 2, .ndim = 2, .shape = {64, 3}, .chunk = {2, 3}, .dtype = INSITU_F32};
  if (support_setup(state)) return -1;
  snprintf(root, sizeof root, "%s", support_path("a.zarr"));
  support_make(root, &t);
  return 0;
}

/* Only these variables are set: "NAME=value NAME=value". */
static void environment(const char *text) {
  char copy[300], *rest = copy;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
  snprintf(copy, sizeof copy, "%s", text);
  for (char *word; (word = strtok_r(rest, " ", &rest));) {
    char *value = strchr(word, '=');
    *value = 0;
    setenv(word, value + 1, 1);
  }
}

static insitu_status open_from(int32_t world, insitu_loader **ld, insitu_error *err) {
  static const insitu_variable v = {.path = "t"};
  const insitu_loader_desc desc = {.api = INSITU_API,
      .url = root,
      .variables = &v,
      .n_variables = 1,
      .batch_size = 2,
      .rank = INSITU_RANK_FROM_ENV,
      .world = world,
      .plan_only = 1};
  return insitu_loader_open(&desc, ld, err);
}

static void test_launchers(void **state) {
  static const struct {
    const char *environment, *origin;
    int32_t rank, world;
  } good[] = {{"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK", 3, 4},
      {"PMI_RANK=0 PMI_SIZE=2", "PMI_RANK", 0, 2},
      {"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID", 1, 2},
      /* mpirun in a batch script, which runs once */
      {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 SLURM_PROCID=0 SLURM_NTASKS=4",
          "OMPI_COMM_WORLD_RANK", 1, 4},
      {"RANK=0 WORLD_SIZE=1", "RANK", 0, 1},
      /* several that agree; a world without a rank is an allocation's */
      {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 PMIX_RANK=3 RANK=3 WORLD_SIZE=4",
          "OMPI_COMM_WORLD_RANK", 3, 4},
      {"PMI_RANK=1 PMI_SIZE=2 SLURM_NTASKS=8", "PMI_RANK", 1, 2},
      {"PMI_RANK=1 PMI_SIZE=2 RANK= WORLD_SIZE=", "PMI_RANK", 1, 2}};
  insitu_loader *ld;
  insitu_error err;
  (void)state;
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    char text[100];
    environment(good[i].environment);
    if (open_from(0, &ld, &err)) fail_msg("%s: %s", good[i].environment, err.message);
    const insitu_loader_desc *c = insitu_loader_config(ld);
    if (c->rank != good[i].rank || c->world != good[i].world)
      fail_msg("%s: rank %d of %d", good[i].environment, c->rank, c->world);
    uint64_t cap = insitu_loader_describe(ld, NULL, 0) + 1000;
    char *json = malloc(cap);
    insitu_loader_describe(ld, json, cap);
    snprintf(text, sizeof text, "\"rank\": \"environment: %s\", \"world\": \"environment: %s\"",
        good[i].origin, good[i].origin);
    if (!strstr(json, text)) fail_msg("%s: no %s", good[i].environment, text);
    free(json);
    insitu_loader_close(&ld);
  }
}

/* Never rank 0 of 1. */
static void test_refused(void **state) {
  static const struct {
    const char *environment, *says;
  } wrong[] = {{"", "no launcher tells rank and number of ranks (no variable of OpenMPI"},
      {"SLURM_NTASKS=4", "(no variable of OpenMPI, PMI, Slurm or torchrun is set)"},
      {"SLURM_PROCID=0 SLURM_NTASKS=4", "tells rank and number of ranks (SLURM_PROCID=0)"},
      {"RANK=1", "tells rank and number of ranks (RANK=1)"},
      {"PMIX_RANK=1", "tells rank and number of ranks (PMIX_RANK=1)"},
      {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4",
          "two launchers disagree: OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=4, SLURM_PROCID=0, "
          "SLURM_STEP_NUM_TASKS=4; unset"},
      {"PMI_RANK=1 PMI_SIZE=4 RANK=1 WORLD_SIZE=8", "two launchers disagree: PMI_RANK=1"},
      {"PMI_RANK=1 PMI_SIZE=4 PMIX_RANK=2", "two launchers disagree"},
      {"PMI_RANK=1 PMI_SIZE=4 RANK=2", "two launchers disagree"},
      {"SLURM_PROCID=2 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=2", "no rank below"},
      {"PMI_RANK=4 PMI_SIZE=4", "no rank below a number of ranks: PMI_RANK=4, PMI_SIZE=4"},
      {"PMI_RANK=0 PMI_SIZE=0", "no rank below"}, {"PMI_RANK=-1 PMI_SIZE=4", "no rank below"},
      {"PMI_RANK=1x PMI_SIZE=4", "no rank below"},
      {"PMI_RANK=1 PMI_SIZE=99999999999", "no rank below"},
      {"PMI_RANK=1 PMI_SIZE=2 RANK=one WORLD_SIZE=2", "no rank below"}};
  insitu_loader *ld;
  insitu_error err;
  (void)state;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    environment(wrong[i].environment);
    insitu_status status = open_from(0, &ld, &err);
    if (status != INSITU_E_ARG || !strstr(err.message, wrong[i].says))
      fail_msg("%s: %d %s", wrong[i].environment, (int)status, err.message);
    assert_null(ld);
  }
  environment("RANK=0 WORLD_SIZE=1");
  assert_int_equal(open_from(1, &ld, &err), INSITU_E_ARG);
  assert_non_null(strstr(err.message, "world is 1; the launcher tells world as well"));
}

/* As text; and a scan takes the same. */
static void test_others(void **state) {
  char json[1200];
  insitu_loader *ld;
  insitu_error err;
  (void)state;
  snprintf(json, sizeof json,
      "{\"url\": \"%s\", \"variables\": [\"t\"], \"batch_size\": 2, \"plan_only\": true, \"rank\": "
      "\"environment\"}",
      root);
  environment("RANK=1 WORLD_SIZE=2");
  if (insitu_loader_open_json(json, NULL, &ld, &err)) fail_msg("%s", err.message);
  assert_int_equal(insitu_loader_config(ld)->rank, 1);
  assert_int_equal(insitu_loader_config(ld)->world, 2);
  insitu_loader_close(&ld);

  static const insitu_variable v = {.path = "t"};
  const insitu_loader_desc desc = {.api = INSITU_API,
      .url = root,
      .variables = &v,
      .n_variables = 1,
      .batch_size = 2,
      .rank = INSITU_RANK_FROM_ENV};
  const char *parts[2] = {strdup(support_path("part0")), strdup(support_path("part1"))};
  for (int r = 0; r < 2; r++) {
    const insitu_scan_desc scan = {.api = INSITU_API, .loader = &desc, .path = parts[r]};
    environment(r ? "RANK=1 WORLD_SIZE=2" : "RANK=0 WORLD_SIZE=2");
    if (insitu_scan(&scan, &err)) fail_msg("%s", err.message);
  }
  assert_int_equal(insitu_scan_merge(parts, 2, support_path("stats.json"), &err), INSITU_OK);
  environment("");
  const insitu_scan_desc scan = {.api = INSITU_API, .loader = &desc, .path = parts[0]};
  assert_int_equal(insitu_scan(&scan, &err), INSITU_E_ARG);
  for (int r = 0; r < 2; r++) free((void *)(uintptr_t)parts[r]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_launchers),
      cmocka_unit_test(test_refused), cmocka_unit_test(test_others)};
  return cmocka_run_group_tests(tests, setup, support_teardown);
}
