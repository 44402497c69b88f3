/* insitu order: the epoch order of any geometry, one line for each position. */

static int order_run(int argc, char **argv) {
  static const char *const name[] = {"M", "U", "SEED", "EPOCH", "G", "L", "W"};
  uint64_t n[7], (*irregular)[2];
  if (argc < 7)
    return tool_usage_error("%d of the 7 numbers M U SEED EPOCH G L W are missing", 7 - argc);
  for (int i = 0; i < 7; i++)
    if (!tool_u64(argv[i], &n[i]))
      return tool_usage_error("%s: '%s' is not a whole number", name[i], argv[i]);
  irregular = (uint64_t(*)[2])tool_alloc((uint64_t)argc, sizeof *irregular);
  for (int i = 7; i < argc; i++) {
    char unit[32], *colon = strchr(argv[i], ':');
    snprintf(unit, sizeof unit, "%.*s", (int)(colon ? colon - argv[i] : 0), argv[i]);
    if (!tool_u64(unit, &irregular[i - 7][0]) || !tool_u64(colon + 1, &irregular[i - 7][1])) {
      insitu__mem_free(irregular);
      return tool_usage_error("'%s' is not UNIT:COUNT", argv[i]);
    }
  }
  insitu_order_desc d = {.api = INSITU_API,
      .units = n[0],
      .unit_rows = n[1],
      .seed = n[2],
      .epoch = n[3],
      .global_batch = n[4],
      .lanes = n[5],
      .window = n[6],
      .irregular = irregular[0],
      .n_irregular = (uint64_t)(argc - 7)};
  insitu_error err = {0};
  insitu_order *o;
  insitu_status status = insitu_order_open(&d, &o, &err);
  insitu__mem_free(irregular);
  if (status < 0) return tool_fail_error(&err);
  struct tool_json_out j = {.to = stdout};
  insitu_order_place p;
  if (tool_json) tool_json_array(&j, NULL);
  for (uint64_t i = 0; insitu_order_at(o, i, &p) == INSITU_OK; i++) {
    if (!tool_json) {
      printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", i, p.unit, p.within,
          p.lane, p.window);
      continue;
    }
    tool_json_list(&j, NULL);
    tool_json_u64(&j, NULL, i);
    tool_json_u64(&j, NULL, p.unit);
    tool_json_u64(&j, NULL, p.within);
    tool_json_u64(&j, NULL, p.lane);
    tool_json_u64(&j, NULL, p.window);
    tool_json_end(&j);
  }
  if (tool_json) tool_json_end(&j);
  insitu_order_close(&o);
  return TOOL_OK;
}

static const struct tool_command order_command = {.name = "order",
    .arguments = "M U SEED EPOCH G L W [UNIT:COUNT ...]",
    .summary = "print the order of an epoch: which anchor stands at which position",
    .details =
        "Reads no archive: the order is arithmetic. One line for each position: position, unit, "
        "anchor\n"
        "within the unit, lane, window in the lane. Position p is row p % G of batch p / G.\n\n"
        "  M           units the shuffle moves\n"
        "  U           anchors of a full unit\n"
        "  SEED EPOCH  as in the loader\n"
        "  G           global batch: batch_size times world\n"
        "  L           lanes; must divide G\n"
        "  W           units of one lane's window\n"
        "  UNIT:COUNT  a unit that holds fewer anchors; units ascending\n\n"
        "example: insitu order 12 4 0 0 8 2 3 11:2\n",
    .run = order_run};
