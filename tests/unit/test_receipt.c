/* XXH64 against values of its reference implementation (python-xxhash 3), and the ranges of batches
 * that a state has room for against a model. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"

static void test_hash(void **state) {
  (void)state;
  static const struct {
    uint64_t n, plain, seeded;
  } want[] = {{0, 0xEF46DB3751D8E999, 0xC4349FC93C010000},
      {1, 0x1F25C8D0BC1F4BB6, 0x79826BCD749D267A}, {3, 0x31D2363F52E564C9, 0x78EFD77575E26575},
      {4, 0x9BB64B7D66EE9FDA, 0x6F0A6C97D68BF353}, {7, 0x9A7B149959CE60D8, 0xD97EDE93C9D66A0D},
      {8, 0xDAB99D95C6F90092, 0xA2F1E28437A78A1B}, {9, 0x170BB6BF975B4C02, 0x9C9A3CD83532D84F},
      {12, 0xD52E407833AF5133, 0xBCC9F0D616FF9A7B}, {31, 0xA2AA5F33CC4A6119, 0x755437271D1D0A84},
      {32, 0x23C3C17EF790FD97, 0xBF624B932C090428}, {33, 0x50A7CFC7BA588784, 0x7ACEAF1E9D34EA35},
      {63, 0x5E3E54B431C7493C, 0x2C8DDCE5C85D0D9D}, {64, 0x0EB64B3EF6EEB01F, 0x4AF341F14E3A6FC9},
      {65, 0xA383B724B2BD12F1, 0x8E9E580645400102}, {100, 0xA61F8D4C170FE531, 0xF6D8F65C625ABB4F},
      {300, 0x240004DBEE0BA6DC, 0x4724CCB36F2AEE62}};
  unsigned char bytes[301];

  for (int align = 0; align < 2; align++) {
    for (int i = 0; i < 300; i++) bytes[align + i] = (unsigned char)(i * 7 + 3);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
      assert_true(insitu__receipt_hash(bytes + align, want[i].n, 0) == want[i].plain);
      assert_true(
          insitu__receipt_hash(bytes + align, want[i].n, 0x9E3779B97F4A7C15) == want[i].seeded);
    }
  }
}

/* Ranges against a set of batches; what is packed is what is unpacked. */
static void test_ranges(void **state) {
  (void)state;
  enum { BATCHES = 400 };
  int full = 0;

  for (int round = 0; round < 300; round++) {
    struct insitu__receipt_skips s = {.epoch = 7}, read = {.epoch = 7};
    bool out[BATCHES + 1] = {false}, known;
    unsigned char packed[INSITU__RECEIPT_PACKED];
    for (int k = 0; k < 30; k++) {
      uint64_t first = support_below(BATCHES), end = first + 1 + support_below(12);
      if (end > BATCHES) end = BATCHES;
      struct insitu__receipt_skips before = s;
      if (!insitu__receipt_skip(&s, 7, first, end)) {
        assert_memory_equal(&s, &before, sizeof s);
        full++;
        continue;
      }
      for (uint64_t i = first; i < end; i++) out[i] = true;
    }
    for (uint64_t i = 0, behind, ahead; i < BATCHES; i++) {
      for (behind = i; out[behind]; behind++) continue;
      for (ahead = i; ahead < BATCHES && !out[ahead]; ahead++) continue;
      assert_int_equal(insitu__receipt_behind(&s, 7, i), behind);
      assert_int_equal(insitu__receipt_behind(&s, 8, i), i);
      assert_true(insitu__receipt_ahead(&s, i) == (ahead < BATCHES ? ahead : UINT64_MAX));
    }
    assert_true(insitu__receipt_pack(&s, round & 1, packed));
    assert_true(insitu__receipt_unpack(packed, &read, &known));
    assert_int_equal(known, round & 1);
    assert_memory_equal(&read, &s, sizeof s);
    packed[1 + support_below(30)] ^= (unsigned char)(1 << support_below(8));
    read = (struct insitu__receipt_skips){.epoch = 7};
    if (insitu__receipt_unpack(packed, &read, &known)) {
      unsigned char again[INSITU__RECEIPT_PACKED];
      assert_true(insitu__receipt_pack(&read, known, again));
      assert_memory_equal(again, packed, sizeof packed);
    }
    assert_true(insitu__receipt_skip(&s, 8, 3, 4)); /* another epoch begins anew */
    assert_int_equal(s.n, 1);
  }
  assert_true(full > 100);
}

/* What part A promises: 2 ranges of any place and length, 6 of usual ones. */
static void test_room(void **state) {
  (void)state;
  struct insitu__receipt_skips s = {.epoch = 0};
  const uint64_t most = UINT64_C(1) << 42;

  assert_true(insitu__receipt_skip(&s, 0, most / 4, most / 4 + most / 8));
  assert_true(insitu__receipt_skip(&s, 0, most - most / 8, most));
  s = (struct insitu__receipt_skips){.epoch = 0};
  uint64_t at = (1 << 21) - 1;
  for (int i = 0; i < 6; i++, at += 16383 + (1 << 21) - 1)
    assert_true(insitu__receipt_skip(&s, 0, at, at + 16383));
  assert_false(insitu__receipt_skip(&s, 0, at, at + 1));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_hash), cmocka_unit_test(test_ranges), cmocka_unit_test(test_room)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
