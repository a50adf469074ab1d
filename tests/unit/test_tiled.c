/* test_tiled.c - weights as a GPU holds them: read back by the layout of tiled.h they have the values of the originals;
 * what has no such form is refused with its reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "kernel/linear/packed.h"
#include "kernel/linear/tiled.h"
#include "num/bf16.h"
#include "num/e2m1.h"
#include "num/e4m3.h"
#include "num/fp16.h"
#include "num/ue8m0.h"

enum { ROWS = 3, COLS = 320 }; /* two and a half blocks */

static double half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return (double)nb_fp16_to_f32(h);
}

/* The table of tiled.h: column `in` of a block of 128. */
static double k_value(const nb_tiled *t, const nb_tiled_rows *x, size_t block, size_t in, int code)
{
    const uint8_t *s = (const uint8_t *)x->scale + 8 * block;
    const bool per32 = t->scale_type == NB_S_F16_MIN || t->scale_type == NB_S_K32;
    const int q = code - (t->type == NB_W_BYTE ? 128 : per32 ? 0 : 8);
    if (t->scale_type == NB_S_F16_MIN)
        return q * half_at(s + 2 * (in / 32)) + half_at(x->zero + 8 * block + 2 * (in / 32));
    const double d = half_at(x->zero + 4 * block), m = half_at(x->zero + 4 * block + 2);
    if (t->scale_type == NB_S_K32) return q * d * s[in / 32] - m * s[4 + in / 32];
    if (t->scale_type == NB_S_K16) return q * d * (int8_t)s[in / 16];
    return q * d * (s[in / 16] & 15) - m * (s[in / 16] >> 4);
}

/* Element (r, c) by the words of tiled.h. */
static double value(const nb_tiled *t, const nb_tiled_rows *x, size_t r, size_t c)
{
    const size_t block = r * ((COLS + 127) / 128) + c / 128, in = c % 128;
    const size_t lane = in % 8 / 2, e = in % 2;
    const uint8_t *code = x->code + block * (t->type == NB_W_BYTE ? 128 : 64);
    unsigned q;
    if (t->type == NB_W_BYTE) {
        const size_t i = in % 64 / 16, k = 2 * (in / 8 % 2) + e;
        q = code[in / 64 * 64 + 16 * lane + 4 * i + k];
    } else {
        uint32_t word;
        memcpy(&word, code + 16 * lane + 4 * (in / 32), sizeof word);
        q = word >> (4 * (in % 32 / 8) + 16 * e) & 15;
    }
    if (t->type == NB_W_FP4) {
        const uint8_t s = ((const uint8_t *)x->scale)[8 * block + in / 16];
        const float scale = t->scale_type == NB_S_E8M0 ? nb_ue8m0_to_f32(s)
                            : s == NB_E4M3_NAN         ? 480 /* GGUF; see linear_codes.cuh */
                                                       : nb_e4m3_to_f32(s);
        return (double)nb_e2m1_to_f32((uint8_t)q) * (double)scale * (double)x->row[r];
    }
    if (nb_stype_is_k(t->scale_type)) return k_value(t, x, block, in, (int)q) * (double)x->row[r];
    const int zero = t->zeros ? x->zero[4 * block + in / 32] : t->type == NB_W_INT4 ? 8 : 128;
    double scale = 1;
    if (t->groups) {
        const uint16_t s = ((const uint16_t *)x->scale)[4 * block + in / 32];
        scale = (double)(t->scale_type == NB_S_BF16 ? nb_bf16_to_f32(s) : nb_fp16_to_f32(s));
    }
    return ((int)q - zero) * scale * (double)x->row[r];
}

static void compare(const nb_weight *w)
{
    nb_tiled t;
    const char *why = nb_tiled_of(w, &t);
    if (why) fail_msg("%s: %s", nb_wtypes[w->type].name, why);
    const nb_tiled_rows x = { calloc(ROWS, nb_tiled_code_bytes(&t, COLS)),
                              calloc(ROWS, nb_tiled_zero_bytes(&t, COLS) + 1),
                              calloc(ROWS, nb_tiled_scale_bytes(&t, COLS) + 1),
                              calloc(ROWS, sizeof(float)) };
    nb_tiled_make(w, &t, 0, 1, &x); /* in two pieces */
    const nb_tiled_rows rest = { x.code + nb_tiled_code_bytes(&t, COLS),
                                 x.zero + nb_tiled_zero_bytes(&t, COLS),
                                 (char *)x.scale + nb_tiled_scale_bytes(&t, COLS), x.row + 1 };
    nb_tiled_make(w, &t, 1, ROWS - 1, &rest);
    for (size_t r = 0; r < ROWS; r++) {
        float want[COLS];
        if (w->type == NB_W_INT8)
            for (size_t c = 0; c < COLS; c++)
                want[c] = (float)((const int8_t *)w->data)[r * COLS + c] * w->scale[r];
        else
            nb_packed_values(w, r, 0, COLS, want);
        for (size_t c = 0; c < COLS; c++) {
            const double got = value(&t, &x, r, c), far = got > (double)want[c]
                                                              ? got - (double)want[c]
                                                              : (double)want[c] - got;
            if (!(far <= 0x1p-22 * (want[c] < 0 ? -(double)want[c] : (double)want[c])))
                fail_msg("%s [%zu, %zu]: %g, expected %g", nb_wtypes[w->type].name, r, c, got,
                         (double)want[c]);
        }
    }
    free(x.code);
    free(x.zero);
    free(x.scale);
    free(x.row);
}

/* Random codes; scales are filled in by the caller. */
static uint8_t *codes(size_t n, uint64_t seed)
{
    uint8_t *p = malloc(n);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)nb_rng_u64(seed, i);
    return p;
}

static void groups(void **state)
{
    (void)state;
    static const struct {
        nb_wtype type;
        size_t size;
        nb_stype scale;
        uint8_t flip;
        bool zero;
    } forms[] = { { NB_W_INT4, 32, NB_S_BF16, 0, false },  { NB_W_INT4, 64, NB_S_F16, 0x88, true },
                  { NB_W_INT4, 128, NB_S_F32, 0, true },   { NB_W_INT4, COLS, NB_S_F32, 0, false },
                  { NB_W_BYTE, 32, NB_S_F16, 0x80, true }, { NB_W_BYTE, COLS, NB_S_BF16, 0, true },
                  { NB_W_FP4, 16, NB_S_E4M3, 0, false },   { NB_W_FP4, 32, NB_S_E8M0, 0, false } };
    for (size_t i = 0; i < NB_COUNT(forms); i++) {
        nb_weight w = { .n_row = ROWS, .n_col = COLS, .type = forms[i].type };
        w.group = (nb_wgroups){ .size = forms[i].size,
                                .scale_type = forms[i].scale,
                                .outer = 0.75f,
                                .flip = forms[i].flip };
        const size_t n = ROWS * nb_weight_n_group(&w);
        uint8_t *data = codes(nb_weight_data_bytes(&w), i), *zero = codes(n, i + 50);
        uint8_t *scale = malloc(4 * n);
        assert_non_null(scale);
        for (size_t k = 0; k < n; k++) {
            const float s = (float)(k % 7 + 1) * 0.125f; /* exact in each type but E8M0 */
            const uint16_t b = nb_bf16_from_f32(s), h = nb_fp16_from_f32(s);
            zero[k] = forms[i].type == NB_W_INT4 ? zero[k] % 17 : zero[k];
            if (forms[i].scale == NB_S_F32) memcpy(scale + 4 * k, &s, 4);
            if (forms[i].scale == NB_S_BF16) memcpy(scale + 2 * k, &b, 2);
            if (forms[i].scale == NB_S_F16) memcpy(scale + 2 * k, &h, 2);
            if (forms[i].scale == NB_S_E4M3) scale[k] = nb_e4m3_from_f32(s);
            if (forms[i].scale == NB_S_E8M0) scale[k] = (uint8_t)(120 + k % 9);
        }
        w.data = data;
        w.group.scale = scale;
        if (forms[i].zero) w.group.zero = zero;
        compare(&w);
        free(data);
        free(zero);
        free(scale);
    }
}

static void blocks(void **state)
{
    (void)state;
    static const nb_wtype types[] = { NB_W_Q8_0,   NB_W_Q4_0,  NB_W_Q5_0,
                                      NB_W_IQ4_NL, NB_W_MXFP4, NB_W_GGUF_NVFP4 };
    for (size_t i = 0; i < NB_COUNT(types); i++) {
        nb_weight w = { .n_row = ROWS, .n_col = COLS, .type = types[i], .group.outer = 0.5f };
        const size_t n = nb_weight_data_bytes(&w), size = nb_wtypes[types[i]].block_bytes;
        uint8_t *data = codes(n, i + 9);
        for (size_t b = 0; b < n; b += size) {
            const uint16_t d = nb_fp16_from_f32((float)(b / size % 5 + 1) * -0.25f);
            if (types[i] == NB_W_MXFP4)
                data[b] = (uint8_t)(b / size % 3);
            else if (types[i] != NB_W_GGUF_NVFP4)
                memcpy(data + b, &d, 2);
            else
                data[b] = b % 2 ? 0x7f : 0xff;
        }
        w.data = data;
        compare(&w);
        free(data);
    }
}

/* K blocks, with minima, and IQ: any bytes but the FP16 numbers, which are finite. */
static void k_blocks(void **state)
{
    (void)state;
    static const struct {
        nb_wtype type;
        size_t at, n; /* of FP16 numbers; n 0: IQ1_M's, which is spread */
    } types[] = { { NB_W_Q4_1, 0, 2 },   { NB_W_Q5_1, 0, 2 },    { NB_W_Q2_K, 80, 2 },
                  { NB_W_Q3_K, 108, 1 }, { NB_W_Q4_K, 0, 2 },    { NB_W_Q5_K, 0, 2 },
                  { NB_W_Q6_K, 208, 1 }, { NB_W_IQ4_XS, 0, 1 },  { NB_W_IQ2_XXS, 0, 1 },
                  { NB_W_IQ2_XS, 0, 1 }, { NB_W_IQ2_S, 0, 1 },   { NB_W_IQ3_XXS, 0, 1 },
                  { NB_W_IQ3_S, 0, 1 },  { NB_W_IQ1_S, 0, 1 },   { NB_W_IQ1_M, 0, 0 } };
    for (size_t i = 0; i < NB_COUNT(types); i++) {
        nb_weight w = { .n_row = ROWS, .n_col = COLS, .type = types[i].type };
        const size_t n = nb_weight_data_bytes(&w), size = nb_wtypes[w.type].block_bytes;
        uint8_t *data = codes(n, i + 90);
        for (size_t b = 0; b < n; b += size) {
            for (size_t k = 0; k < types[i].n; k++) {
                const uint16_t d = nb_fp16_from_f32((float)(b / size % 5 + k + 1) * (k ? 0.5f : -0.375f));
                memcpy(data + b + types[i].at + 2 * k, &d, 2);
            }
            if (!types[i].n) data[b + 55] = (uint8_t)(0xa0 | data[b + 55] % 16);
        }
        w.data = data;
        compare(&w);
        free(data);
    }
}

static void int8_rows(void **state)
{
    (void)state;
    static const float scale[ROWS] = { 0.5f, 0, -3 };
    uint8_t *data = codes(ROWS * COLS, 3);
    const nb_weight w = {
        .data = data, .scale = scale, .n_row = ROWS, .n_col = COLS, .type = NB_W_INT8
    };
    compare(&w);
    free(data);
}

static void refused(void **state)
{
    (void)state;
    static const float odd[COLS] = { 1.0f / 3 };
    static const uint32_t place[1] = { 0 };
    nb_tiled t, u;
    nb_weight w = { .data = odd, .n_row = 1, .n_col = 64, .type = NB_W_INT4 };
    w.group = (nb_wgroups){ .scale = odd, .size = 32, .scale_type = NB_S_F32, .outer = 1 };
    assert_non_null(strstr(nb_tiled_of(&w, &t), "16 bits"));
    w.group.size = 24;
    assert_non_null(strstr(nb_tiled_of(&w, &t), "multiples of 32"));
    w.group.size = 64;
    assert_null(nb_tiled_of(&w, &t)); /* a scale per row may be any float */
    u = t;
    u.zeros = true;
    assert_true(nb_tiled_join(&t, &u));
    assert_true(t.zeros);
    u.groups = true;
    assert_false(nb_tiled_join(&t, &u));
    w.group.place = place;
    assert_non_null(strstr(nb_tiled_of(&w, &t), "act order"));
    w.type = NB_W_BF16;
    assert_non_null(nb_tiled_of(&w, &t));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(groups), cmocka_unit_test(blocks), cmocka_unit_test(k_blocks),
                                        cmocka_unit_test(int8_rows), cmocka_unit_test(refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
