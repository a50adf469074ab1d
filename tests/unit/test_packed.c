/* test_packed.c - packed weight types: known bytes and their values, parts of rows, orders of columns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/linear/packed.h"

enum { MAX = 64 };

static void expect(const nb_weight *w, size_t r, size_t c, size_t n, const float *want)
{
    float got[MAX];
    nb_packed_values(w, r, c, n, got);
    for (size_t i = 0; i < n; i++) assert_true(got[i] == want[i]);
}

/* (1,2,3,4,5,6,7,0) is 0x8FEDCBA9 and (-1..-8) is 0x01234567 in compressed-tensors' words. */
static void int4(void **state)
{
    (void)state;
    static const uint32_t word[2] = { 0x8FEDCBA9u, 0x01234567u };
    static const uint16_t one[2] = { 0x3f80, 0x4000 }; /* BF16 1 and 2 */
    static const float up[] = { 1, 2, 3, 4, 5, 6, 7, 0 },
                       down[] = { -2, -4, -6, -8, -10, -12, -14, -16 };
    nb_weight w = { .data = word, .n_row = 2, .n_col = 8, .type = NB_W_INT4 };
    w.group = (nb_wgroups){ .scale = one, .size = 8, .scale_type = NB_S_BF16, .outer = 1 };
    expect(&w, 0, 0, 8, up);
    expect(&w, 1, 0, 8, down);
    expect(&w, 1, 3, 4, down + 3);
    static const uint8_t zero[2] = { 9, 7 };
    static const float less[] = { 0, 1, 2, 3, 4, 5, 6, -1 }, more[] = { 0, -2, -4 };
    w.group.zero = zero;
    expect(&w, 0, 0, 8, less);
    expect(&w, 1, 0, 3, more);
}

/* E2M1 of (0, .5, 1, 1.5, 2, 3, 4, 6) is 10 32 54 76; bit 3 is the sign. */
static void fp4(void **state)
{
    (void)state;
    static const uint8_t byte[16] = { 0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe,
                                      0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe };
    static const uint8_t e4m3[2] = { 0x38, 0x40 }, e8m0[1] = { 128 }; /* 1 and 2; 2 */
    static const float base[] = { 0, .5f, 1, 1.5f, 2, 3, 4, 6, 0, -.5f, -1, -1.5f, -2, -3, -4, -6 };
    float want[32];
    nb_weight w = { .data = byte, .n_row = 1, .n_col = 32, .type = NB_W_FP4 };
    w.group = (nb_wgroups){ .scale = e4m3, .size = 16, .scale_type = NB_S_E4M3, .outer = 0.25f };
    for (size_t i = 0; i < 32; i++) want[i] = base[i % 16] * (i < 16 ? 0.25f : 0.5f);
    expect(&w, 0, 0, 32, want);
    expect(&w, 0, 13, 9, want + 13);
    w.group = (nb_wgroups){ .scale = e8m0, .size = 32, .scale_type = NB_S_E8M0, .outer = 1 };
    for (size_t i = 0; i < 32; i++) want[i] = base[i % 16] * 2;
    expect(&w, 0, 0, 32, want);
}

/* Bytes with an offset, signed bytes, a short last group. */
static void bytes(void **state)
{
    (void)state;
    static const uint8_t code[12] = { 128, 129, 127, 255, 0, 138, 0, 0 };
    static const float scale[] = { 1, 2 };
    static const float want[] = { 0, 1, -1, 127, -256, 20 };
    nb_weight w = { .data = code, .n_row = 1, .n_col = 6, .type = NB_W_BYTE };
    w.group = (nb_wgroups){ .scale = scale, .size = 4, .scale_type = NB_S_F32, .outer = 1 };
    assert_int_equal(nb_weight_n_group(&w), 2);
    assert_int_equal(nb_weight_data_bytes(&w), 8);
    assert_int_equal(nb_weight_bytes(&w), 16);
    expect(&w, 0, 0, 6, want);
    static const int8_t is_signed[] = { 0, 1, -1, 127, -128, 10 };
    w.data = is_signed;
    w.group.flip = 0x80;
    expect(&w, 0, 0, 6, want);
}

/* Act order: column c is code place[c]. */
static void order(void **state)
{
    (void)state;
    static const uint32_t word[1] = { 0x76543210u };
    static const uint32_t place[] = { 3, 0, 7, 1, 2, 4, 6, 5 }, column[] = { 1, 3, 4, 0, 5, 7, 6, 2 };
    static const float scale[] = { 1 }, want[] = { -5, -8, -1, -7, -6, -4, -2, -3 };
    nb_weight w = { .data = word, .n_row = 1, .n_col = 8, .type = NB_W_INT4 };
    w.group = (nb_wgroups){ .scale = scale,
                            .place = place,
                            .column = column,
                            .size = 8,
                            .scale_type = NB_S_F32,
                            .outer = 1 };
    expect(&w, 0, 0, 8, want);
    expect(&w, 0, 2, 3, want + 2);
}

/* Every type has a row, and its blocks divide what generic kernels dequantise at a time. */
static void traits(void **state)
{
    (void)state;
    for (size_t t = 0; t < NB_W_TYPE_COUNT; t++) {
        const nb_wtype_traits *x = &nb_wtypes[t];
        assert_non_null(x->name);
        assert_non_null(x->word);
        assert_true(x->block > 0 && NB_PACKED_CHUNK % x->block == 0);
        assert_int_equal(x->values != NULL, nb_wtype_is_packed((nb_wtype)t));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(int4),  cmocka_unit_test(fp4),    cmocka_unit_test(bytes),
        cmocka_unit_test(order), cmocka_unit_test(traits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
