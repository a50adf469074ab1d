/* test_record_variants.c - every variant of the page codec that this machine can
 * run: the bytes of nb_record_encode_page, the bits of nb_record_decode. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernel/kv_codec/kv_codec.h"
#include "os/cpu.h"
#include "unit/record_data.h"

static const nb_kv_codec_variant *usable(const nb_kv_codec_variant *k, nb_caps have)
{
    while (k->name && (k->space != NB_SPACE_HOST || (k->need & ~have))) k++;
    return k;
}

/* Bits are equal, or both are NaN (whose payload is nobody's promise). */
static void same_values(const char *name, size_t c, const float *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (nb_f32_bits(got[i]) == nb_f32_bits(want[i]) || (isnan(got[i]) && isnan(want[i])))
            continue;
        fail_msg("%s, case %zu, value %zu: %a, expected %a", name, c, i, (double)got[i],
                 (double)want[i]);
    }
}

/* Exactly sized heap blocks let the address sanitizer see any access outside. */
static void compare(const nb_kv_codec_variant *k, size_t c, const nb_record *r, const uint8_t *page)
{
    for (size_t s = 0; s < 2; s++) {
        const size_t n = r->seg[s].n_vec * r->seg[s].dim, stride = n + 5;
        float *got = malloc((63 * stride + n) * sizeof *got);
        float *want = malloc((63 * stride + n) * sizeof *want);
        assert_true(got && want);
        for (size_t i = 0; i < 63 * stride + n; i++) got[i] = want[i] = -123;
        k->decode(r, page, s, 0, 64, got, stride);
        nb_record_decode(r, page, s, 0, 64, want, stride);
        same_values(k->name, c, got, want,
                    63 * stride + n); /* gaps too: nothing is written there */
        k->decode(r, page, s, 29, 5, got, n);
        nb_record_decode(r, page, s, 29, 5, want, n);
        same_values(k->name, c, got, want, 5 * n);
        k->decode(r, page, s, 3, 0, got, n);
        free(got);
        free(want);
    }
}

static void all_variants(void **state)
{
    (void)state;
    const nb_caps have = nb_cpu_caps();
    for (const nb_kv_codec_variant *k = usable(nb_kv_codec_variants, have); k->name;
         k = usable(k + 1, have))
        for (size_t c = 0; c < RD_CASES; c++) {
            nb_record r;
            assert_int_equal(nb_record_init(&r, &rd_cases[c], NULL), NB_OK);
            uint8_t *page = malloc(r.page_bytes), *other = malloc(r.page_bytes);
            assert_true(page && other);
            for (unsigned kind = 0; kind <= RD_KINDS; kind++) {
                rd_page p = rd_make(&r, kind, 300 + c);
                memset(other, 0xaa, r.page_bytes);
                assert_int_equal(k->encode(&r, other, p.x, p.stride), NB_OK);
                assert_int_equal(rd_encode(&r, page, &p), NB_OK);
                assert_memory_equal(page, other, r.page_bytes);
                compare(k, c, &r, page);
                *rd_row(&r, &p, 1, 7) = 0xff80;
                assert_int_equal(k->encode(&r, other, p.x, p.stride), NB_ERR_NONFINITE);
                assert_memory_equal(page, other, r.page_bytes);
                rd_free(&p);
            }
            for (uint64_t seed = 1; seed < 6; seed++) { /* any bytes at all */
                for (size_t i = 0; i < r.page_bytes; i++) {
                    const uint64_t b = nb_rng_u64(seed, i);
                    page[i] = (uint8_t)(seed == 5 ? i & 0xff : b & 0xff);
                    if (seed < 4 && i >= r.seg[0].outer_off && r.seg[0].outer_off)
                        page[i] = (uint8_t)(120 + (b & 7));
                }
                compare(k, c, &r, page);
            }
            free(page);
            free(other);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(all_variants) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
