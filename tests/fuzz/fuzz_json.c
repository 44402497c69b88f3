/* Configurations as JSON: whatever a text says, its desc is read or refused with a cause, checked
 * without a crash, written, and read again as the same. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "fuzz.h"

/* Reads the members of a desc; what was read is written to b. */
static insitu_status again(const char *text, size_t n, struct insitu__text_buffer *b) {
  struct insitu__document d = {.desc = {.api = INSITU_API}, .iter = {.api = INSITU_API}};
  insitu_error err = {0};
  insitu_status status = insitu__document_read(&d, text, n, "fuzz", &err);
  fuzz_status(status, &err);
  if (!status && !insitu__document_samples_end(&d, "samples")) status = d.status;
  if (!status) {
    insitu_loader_desc *c = &d.desc;
    memset(&err, 0, sizeof err);
    fuzz_status(insitu__config_check(c, &err), &err);
    insitu__text_buffer_printf(b, "{");
    insitu__document_write_objects(b, "variables", insitu__document_variable_members,
        INSITU__DOCUMENT_VARIABLE - 1, c->variables, c->n_variables, sizeof *c->variables);
    insitu__document_write_objects(b, "axes", insitu__document_axis_members, INSITU__DOCUMENT_AXES,
        c->axes, c->n_axes, sizeof *c->axes);
    insitu__document_write_options(b, c);
    for (int i = 0; i < INSITU__CONFIG_FIELDS; i++) {
      const struct insitu__document_member m = {.text = insitu__config_fields[i].text};
      if (m.text.kind != INSITU__TEXT_NONE) insitu__document_write(b, &m, 1, c);
    }
    insitu__document_write_log(b, c);
    insitu__text_buffer_printf(b, "}");
  }
  insitu__document_free(&d);
  return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  char *text = fuzz_copy(data, n);
  struct insitu__text_buffer first = {0}, second = {0}, third = {0};
  /* A file of samples is not the text's. What is no UTF-8 is replaced when it is first written. */
  if (!memmem(text, n, "samples", 7) && !again(text, n, &first) && !first.failed) {
    FUZZ_HOLDS(!again(first.text, first.n, &second) && !again(second.text, second.n, &third));
    FUZZ_HOLDS(second.n == third.n && !memcmp(second.text, third.text, second.n));
  }

  struct insitu__document d = {.iter = {.api = INSITU_API}};
  insitu_error err = {0};
  fuzz_status(insitu__document_read_iter(&d, text, n, "fuzz", &err), &err);
  insitu__document_free(&d);
  insitu__text_buffer_free(&first);
  insitu__text_buffer_free(&second);
  insitu__text_buffer_free(&third);
  free(text);
  return 0;
}
