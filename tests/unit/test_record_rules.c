/* test_record_rules.c - the test vectors and edge cases of the 4-bit latent codec:
 * zeros, ties, subnormal scales, extremes, non-finite input, flush-to-zero. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "num/e4m3.h"
#include "unit/record_data.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

enum { MAX_PAGE = 1 << 18, MAX_DIM = 512 };
static uint8_t page[MAX_PAGE];
static uint16_t latent[64 * MAX_DIM], rope[64 * 64];
static float out[64 * MAX_DIM];

static nb_record init(nb_kv_type t, nb_kv_mode m, size_t dim)
{
    const nb_record_opts o = { .type = t, .mode = m, NB_SEGS_MLA(dim, 64) };
    nb_record r;
    assert_int_equal(nb_record_init(&r, &o, NULL), NB_OK);
    assert_true(r.page_bytes <= MAX_PAGE);
    return r;
}

/* Both halves of the tokens as the rows that the encoder takes. */
static const uint16_t *rows(const nb_record *r)
{
    static uint16_t x[64 * (MAX_DIM + 64)];
    for (size_t t = 0; t < 64; t++) {
        const size_t d0 = r->seg[0].dim, d1 = r->seg[1].dim;
        memcpy(x + t * (d0 + d1), latent + t * d0, d0 * sizeof *x);
        memcpy(x + t * (d0 + d1) + d0, rope + t * d1, d1 * sizeof *x);
    }
    return x;
}

static nb_status encode(const nb_record *r)
{
    return nb_record_encode_page(r, page, rows(r), r->n_values);
}

/* Token 0 gets the n values, all else is 0; the outer scale becomes 1 because
 * the token's second block holds 1536 (dim >= n + 1 assumed). */
static nb_record one_block(nb_kv_type t, nb_kv_mode m, const float *v, size_t n)
{
    const nb_record r = init(t, m, 32);
    memset(latent, 0, sizeof latent);
    memset(rope, 0, sizeof rope);
    for (size_t i = 0; i < n; i++) {
        latent[i] = nb_bf16_from_f32(v[i]);
        assert_true(n > 16 || nb_bf16_to_f32(latent[i]) == v[i] || v[i] == .26f || v[i] == 1e-8f);
    }
    latent[31] = nb_bf16_from_f32(1536);
    assert_int_equal(encode(&r), NB_OK);
    assert_int_equal(page[r.seg[0].outer_off], 127);
    return r;
}

static unsigned code(size_t i)
{
    return page[i / 2] >> i % 2 * 4 & 15;
}

static void vector_1(void **state)
{
    (void)state;
    const float v[16] = { 6,    -6,   5, 3.5f,  2.5f,  1.75f, 1.25f, .75f,
                          .25f, .26f, 0, -0.0f, -.25f, -3,    1e-8f, 4 };
    const unsigned want[16] = { 7, 15, 6, 6, 4, 4, 2, 2, 0, 1, 0, 0, 0, 13, 0, 6 };
    const nb_record r = one_block(NB_KV_NVFP4, NB_KV_BASIC, v, 16);
    assert_int_equal(page[r.seg[0].scale_off], 0x38);
    for (size_t i = 0; i < 16; i++) assert_int_equal(code(i), want[i]);
}

static void vector_2(void **state)
{
    (void)state;
    float v[16];
    for (int i = 0; i < 16; i++) v[i] = 6 * 0x1p-9f;
    nb_record r = one_block(NB_KV_NVFP4, NB_KV_BASIC, v, 16);
    assert_int_equal(page[r.seg[0].scale_off], 1);
    for (size_t i = 0; i < 16; i++) assert_int_equal(code(i), 7);
    nb_record_decode(&r, page, 0, 0, 1, out, 32);
    for (size_t i = 0; i < 16; i++) assert_true(out[i] == v[i]);
    for (int i = 0; i < 16; i++) v[i] = 6 * 0x1p-10f; /* a tie: to scale 0 */
    r = one_block(NB_KV_NVFP4, NB_KV_BASIC, v, 16);
    assert_int_equal(page[r.seg[0].scale_off], 0);
    for (size_t i = 0; i < 16; i++) assert_int_equal(code(i), 0);
}

static void vector_3(void **state)
{
    (void)state;
    float v[16];
    for (int i = 0; i < 16; i++) v[i] = (float)(10 * (i % 4 + 1));
    nb_record r = one_block(NB_KV_NVFP4, NB_KV_4OVER6, v, 16);
    assert_true(nb_e4m3_to_f32(page[r.seg[0].scale_off]) == 10);
    nb_record_decode(&r, page, 0, 0, 1, out, 32);
    for (size_t i = 0; i < 16; i++) assert_true(out[i] == v[i]);
    r = one_block(NB_KV_NVFP4, NB_KV_BASIC, v, 16);
    assert_true(nb_e4m3_to_f32(page[r.seg[0].scale_off]) == 6.5f);
    nb_record_decode(&r, page, 0, 0, 1, out, 32);
    const float want[4] = { 9.75f, 19.5f, 26, 39 };
    for (size_t i = 0; i < 16; i++) assert_true(out[i] == want[i % 4]);
}

/* Uniform steps are exact for k * S: the block switches to them. */
static void uniform_block(void **state)
{
    (void)state;
    float v[16];
    for (int i = 0; i < 16; i++) v[i] = (float)(3 * (i % 8)) * (i < 8 ? 1.0f : -1.0f);
    const nb_kv_mode modes[] = { NB_KV_BASIC, NB_KV_4OVER6, NB_KV_SEARCH };
    for (size_t m = 0; m < 3; m++) {
        const nb_record r = one_block(NB_KV_IF4, modes[m], v, 16);
        assert_int_equal(page[r.seg[0].scale_off], 0x80 | nb_e4m3_from_f32(3));
        for (size_t i = 0; i < 16; i++) assert_int_equal(code(i), i < 8 || i == 8 ? i % 8 : i);
        nb_record_decode(&r, page, 0, 0, 1, out, 32);
        for (size_t i = 0; i < 16; i++) assert_true(out[i] == v[i]);
    }
    /* Where both grids are exact, E2M1 stays: it is listed first. */
    for (int i = 0; i < 16; i++) v[i] = (float)(i % 5);
    v[15] = 6;
    const nb_record r = one_block(NB_KV_IF4, NB_KV_SEARCH, v, 16);
    assert_int_equal(page[r.seg[0].scale_off], 0x38);
}

static void zero_tokens(void **state)
{
    (void)state;
    for (int t = 0; t < NB_KV_TYPE_COUNT; t++) {
        const nb_record r = init((nb_kv_type)t, NB_KV_SEARCH, 128);
        memset(rope, 0, sizeof rope);
        for (size_t i = 0; i < 64 * 128; i++)
            latent[i] = (uint16_t)(t == NB_KV_BF16 || t == NB_KV_F32 ? 0 : (i & 1) << 15);
        memset(page, 0xee, sizeof page);
        assert_int_equal(encode(&r), NB_OK);
        if (t != NB_KV_FP8_DS_MLA) /* which stores the scale 2^-13 and signs */
            for (size_t i = 0; i < r.page_bytes; i++) assert_int_equal(page[i], 0);
        else
            assert_int_equal(page[128 + 3] << 8 | page[128 + 2], 0x3900); /* 2^-13 */
        nb_record_decode(&r, page, 0, 0, 64, out, 128);
        for (size_t i = 0; i < 64 * 128; i++) assert_true(out[i] == 0);
    }
    /* Outer byte 0: +0 whatever the other bytes are. */
    const nb_kv_type types[] = { NB_KV_NVFP4, NB_KV_IF4, NB_KV_FP8 };
    for (size_t k = 0; k < 3; k++) {
        const nb_record r = init(types[k], NB_KV_BASIC, 128);
        memset(page, 0xff, r.page_bytes);
        page[r.seg[0].outer_off + 5] = 0;
        nb_record_decode(&r, page, 0, 5, 1, out, 128);
        for (size_t i = 0; i < 128; i++) assert_int_equal(nb_f32_bits(out[i]), 0);
    }
}

/* The outer scale at both sides of every boundary of A / 1536 and A / 448. */
static void outer_scales(void **state)
{
    (void)state;
    const struct {
        nb_kv_type t;
        double top, scale;
    } c[] = { { NB_KV_NVFP4, 1536, 0 }, { NB_KV_FP8, 448, 0 }, { NB_KV_MXFP4, 6, 0 } };
    for (size_t k = 0; k < 3; k++) {
        const nb_record r = init(c[k].t, NB_KV_BASIC, 32);
        const size_t at = k == 2 ? r.seg[0].scale_off : r.seg[0].outer_off;
        memset(latent, 0, sizeof latent);
        memset(rope, 0, sizeof rope);
        for (unsigned b = 1; b < 0x7f80; b += 1) {
            latent[3] = (uint16_t)(b | (b & 1) << 15);
            if (b % 64 > 3 && (b & 0x7f) != 0x40 && (b & 0x7f) != 0x41 && (b & 0x7f) != 0x61)
                continue;
            assert_int_equal(encode(&r), NB_OK);
            const double a = (double)nb_bf16_to_f32((uint16_t)b);
            int e = 2;
            while (e < 253 && ldexp(c[k].top, e - 127) < a) e++;
            assert_int_equal(page[at], e);
        }
    }
}

static void extremes(void **state)
{
    (void)state;
    for (int t = 0; t < NB_KV_TYPE_COUNT; t++) {
        if (t == NB_KV_INT4) continue; /* saturates: below */
        const nb_record r = init((nb_kv_type)t, NB_KV_SEARCH, 128);
        memset(rope, 0, sizeof rope);
        for (size_t i = 0; i < 64 * 128; i++)
            latent[i] = (uint16_t)((i & 1) << 15 | (i % 3 ? 0x7f7f : 0x7f00 + i % 128));
        assert_int_equal(encode(&r), NB_OK);
        assert_int_equal(nb_record_check_page(&r, page, NULL), NB_OK);
        nb_record_decode(&r, page, 0, 0, 64, out, 128);
        for (size_t i = 0; i < 64 * 128; i++) {
            const float v = nb_bf16_to_f32(latent[i]);
            assert_true(isfinite(out[i]) && fabsf(out[i] / v - 1) < .34f);
        }
        /* The smallest: everything is 0 or close by, and nothing is NaN. */
        for (size_t i = 0; i < 64 * 128; i++) latent[i] = (uint16_t)(i % 5);
        assert_int_equal(encode(&r), NB_OK);
        nb_record_decode(&r, page, 0, 0, 64, out, 128);
        for (size_t i = 0; i < 64 * 128; i++) assert_true(fabsf(out[i]) < 0x1p-125f);
    }
}

/* Everything is found before a byte is written, wherever it stands. */
static void non_finite(void **state)
{
    (void)state;
    const uint16_t bad[] = { 0x7f80, 0xff80, 0x7fc0, 0xffff, 0x7f81 };
    for (int t = 0; t < NB_KV_TYPE_COUNT; t++) {
        const nb_record r = init((nb_kv_type)t, NB_KV_4OVER6, 128);
        for (size_t k = 0; k < 10; k++) {
            memset(latent, 0, sizeof latent);
            memset(rope, 0, sizeof rope);
            if (k < 5)
                latent[k * 2047 + 3] = bad[k];
            else
                rope[64 * 64 - 1 - 100 * (k - 5)] = bad[k - 5];
            memset(page, 0x5a, sizeof page);
            assert_int_equal(encode(&r), NB_ERR_NONFINITE);
            for (size_t i = 0; i < r.page_bytes; i++) assert_int_equal(page[i], 0x5a);
        }
    }
}

/* int4: a constant channel is stored as its minimum; FP16 saturates and underflows. */
static void int4_edges(void **state)
{
    (void)state;
    const nb_record r = init(NB_KV_INT4, NB_KV_BASIC, 8);
    memset(rope, 0, sizeof rope);
    for (size_t t = 0; t < 64; t++) {
        uint16_t *x = latent + 8 * t;
        x[0] = nb_bf16_from_f32(-7.25f);
        x[1] = nb_bf16_from_f32(t & 1 ? 1e6f : -1e6f); /* both out of range */
        x[2] = nb_bf16_from_f32(t & 1 ? 1e-9f : -1e-9f);
        x[3] = nb_bf16_from_f32((float)(t % 16) * 4 - 20);
        x[4] = nb_bf16_from_f32(70000);
        x[5] = nb_bf16_from_f32(t == 40 ? 100.0f : 0.0f);
        x[6] = 0x8000;
        x[7] = nb_bf16_from_f32(t == 63 ? 3e38f : -3e38f);
    }
    assert_int_equal(encode(&r), NB_OK);
    assert_int_equal(nb_record_check_page(&r, page, NULL), NB_OK);
    nb_record_decode(&r, page, 0, 0, 64, out, 8);
    for (size_t t = 0; t < 64; t++) {
        const float *o = out + 8 * t;
        assert_true(o[0] == -7.25f);
        assert_true(o[1] == (t & 1 ? 65504.0f * 15 - 65504 : -65504.0f));
        assert_int_equal(nb_f32_bits(o[2]), 0);
        assert_true(o[3] == (float)(t % 16) * 4 - 20);
        assert_true(fabsf(o[4] - 70000) <= 300); /* 65504 + q s */
        assert_true(t < 32 ? o[5] == 0 : fabsf(o[5] - (t == 40 ? 100 : 0)) < .05f);
        assert_int_equal(nb_f32_bits(o[6]), 0);
        assert_true(isfinite(o[7]));
    }
}

/* fp8_ds_mla's row: codes, float scales, rope in BF16, all little-endian. */
static void ds_mla_row(void **state)
{
    (void)state;
    const nb_record r = init(NB_KV_FP8_DS_MLA, NB_KV_BASIC, 512);
    memset(latent, 0, sizeof latent);
    for (size_t i = 0; i < 64 * 64; i++) rope[i] = (uint16_t)(0x3f80 + i % 64);
    uint16_t *x = latent + 512; /* token 1 */
    x[0] = nb_bf16_from_f32(448);
    x[128] = nb_bf16_from_f32(-450);
    x[256] = nb_bf16_from_f32(1e-6f);
    x[384] = nb_bf16_from_f32(1);
    x[385] = nb_bf16_from_f32(-0.5f);
    assert_int_equal(encode(&r), NB_OK);
    const uint8_t *row = page + 656;
    assert_int_equal(row[0], 0x7e);
    assert_int_equal(row[128], 0x80 | nb_e4m3_from_f32(225));
    assert_int_equal(nb_le32_get(row + 512), 0x3f800000);      /* 1 */
    assert_int_equal(nb_le32_get(row + 516), 0x40000000);      /* 2 */
    assert_int_equal(nb_le32_get(row + 520), 0x39000000);      /* 2^-13: the floor */
    assert_int_equal(nb_le32_get(row + 524), (127 - 8) << 23); /* 2^-8 >= 1/448 */
    assert_int_equal(row[384], nb_e4m3_from_f32(256));
    for (size_t i = 0; i < 64; i++) assert_int_equal(nb_le16_get(row + 528 + 2 * i), 0x3f80 + i);
    nb_record_decode(&r, page, 1, 1, 1, out, 64);
    for (size_t i = 0; i < 64; i++) assert_true(out[i] == nb_bf16_to_f32((uint16_t)(0x3f80 + i)));
}

/* A checkpoint's own scale: codes around its limit, and the count of what lies over it. */
static void fixed_scales(void **state)
{
    (void)state;
    const uint16_t first[] = { 1 };
    nb_record_opts o = RD_CASE(NB_KV_FP8, NB_KV_BASIC, true, false, 16, 64, 1, 1, RD_FIXED(2, 0),
                               RD_OUT(0, first));
    const float v[8] = { 896, 1e30f, 898, -928, 0.01f, -1, 0, 3 };
    nb_record r;
    memset(latent, 0, sizeof latent);
    memset(rope, 0, sizeof rope);
    for (size_t i = 0; i < 8; i++) latent[16 * 9 + i] = nb_bf16_from_f32(v[i]);
    assert_int_equal(nb_bf16_from_f32(898) - nb_bf16_from_f32(896), 0); /* too fine for BF16 */
    latent[16 * 9 + 2]++;                                               /* 900 */
    assert_int_equal(nb_record_init(&r, &o, NULL), NB_OK);
    assert_int_equal(encode(&r), NB_OK);
    assert_int_equal(nb_record_count_saturated(&r, rows(&r), r.n_values), 2); /* 900 and -928 */
    assert_int_equal(page[r.seg[0].outer_off + 8], 0);
    assert_int_equal(page[r.seg[0].outer_off + 9], 127);
    const uint8_t want[8] = { 0x7e, 0, 0x7e, 0xfe, nb_e4m3_from_f32(.005f), 0xb0, 0, 0x3c };
    assert_memory_equal(page + 16 * 9, want, sizeof want);
    nb_record_decode(&r, page, 0, 9, 1, out, 16);
    const float back[8] = { 896, 0, 896, -896, 0, -1, 0, 3 };
    for (size_t i = 0; i < 8; i++) assert_true(i == 1 || i == 4 ? out[i] > 0 : out[i] == back[i]);
    assert_true(out[1] == nb_bf16_to_f32(nb_bf16_from_f32(1e30f)));
    /* nvfp4: 6 * 448 is the most; a search may not go over 448 either */
    for (int m = NB_KV_BASIC; m <= NB_KV_SEARCH; m++) {
        o.type = NB_KV_NVFP4;
        o.mode = (nb_kv_mode)m;
        o.seg[0].fixed_scale = .5f;
        for (size_t i = 0; i < 16; i++) latent[16 * 9 + i] = nb_bf16_from_f32(i % 2 ? 1344 : -4e4f);
        assert_int_equal(nb_record_init(&r, &o, NULL), NB_OK);
        assert_int_equal(encode(&r), NB_OK);
        assert_int_equal(nb_record_check_page(&r, page, NULL), NB_OK);
        assert_int_equal(nb_record_count_saturated(&r, rows(&r), r.n_values), 8);
        assert_int_equal(page[r.seg[0].scale_off + 9], 0x7e);
        nb_record_decode(&r, page, 0, 9, 1, out, 16);
        for (size_t i = 2; i < 16; i++) assert_true(out[i] == (i % 2 ? 1344.0f : -1344.0f));
    }
}

/* A corrupt page is read without undefined behaviour, and NaN scales show. */
static void any_bytes_decode(void **state)
{
    (void)state;
    for (size_t c = 0; c < RD_CASES; c++) {
        nb_record r;
        assert_int_equal(nb_record_init(&r, &rd_cases[c], NULL), NB_OK);
        uint8_t *raw = malloc(r.page_bytes);
        assert_non_null(raw);
        for (uint64_t seed = 0; seed < 4; seed++) {
            for (size_t i = 0; i < r.page_bytes; i++)
                raw[i] = seed ? (uint8_t)(nb_rng_u64(seed, i) & 0xff) : 0xff;
            for (size_t s = 0; s < 2; s++)
                nb_record_decode(&r, raw, s, 0, 64, out, r.seg[s].n_vec * r.seg[s].dim);
            (void)nb_record_check_page(&r, raw, NULL);
        }
        free(raw);
    }
    const nb_record r = init(NB_KV_NVFP4, NB_KV_BASIC, 32);
    memset(page, 0x7f, r.page_bytes);
    nb_record_decode(&r, page, 0, 0, 1, out, 32);
    assert_true(isnan(out[0]));
}

/* Decoding a range of tokens gives the rows of decoding all. */
static void ranges(void **state)
{
    (void)state;
    static float part[64 * MAX_DIM];
    for (size_t c = 0; c < RD_CASES; c++) {
        nb_record r;
        assert_int_equal(nb_record_init(&r, &rd_cases[c], NULL), NB_OK);
        rd_page p = rd_make(&r, 0, c);
        assert_int_equal(rd_encode(&r, page, &p), NB_OK);
        rd_free(&p);
        for (size_t s = 0; s < 2; s++) {
            const size_t n = r.seg[s].n_vec * r.seg[s].dim;
            nb_record_decode(&r, page, s, 0, 64, out, n);
            for (size_t t = 0; t < 64; t++) {
                const size_t m = t % 5 < 64 - t ? t % 5 : 64 - t;
                for (size_t i = 0; i < (m + 1) * n && i < 64 * MAX_DIM; i++) part[i] = -77;
                nb_record_decode(&r, page, s, t, m, part, n);
                assert_memory_equal(part, out + t * n, m * n * sizeof *out);
                if (m < 64) assert_true(part[m * n] == -77);
            }
        }
    }
}

/* The bytes do not depend on the processor's flush-to-zero settings. */
static void flush_to_zero(void **state)
{
    (void)state;
#if defined(__SSE__)
    const unsigned csr = _mm_getcsr();
    for (size_t c = 0; c < RD_CASES; c++) {
        nb_record r;
        assert_int_equal(nb_record_init(&r, &rd_cases[c], NULL), NB_OK);
        uint8_t *other = malloc(r.page_bytes);
        assert_non_null(other);
        for (unsigned kind = 0; kind <= RD_KINDS; kind++) {
            rd_page p = rd_make(&r, kind, 100 + c);
            _mm_setcsr(csr | 0x8040); /* FTZ and DAZ */
            const nb_status s = rd_encode(&r, other, &p);
            _mm_setcsr(csr);
            assert_int_equal(s, NB_OK);
            assert_int_equal(rd_encode(&r, page, &p), NB_OK);
            assert_memory_equal(page, other, r.page_bytes);
            rd_free(&p);
        }
        free(other);
    }
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vector_1),         cmocka_unit_test(vector_2),
        cmocka_unit_test(vector_3),         cmocka_unit_test(uniform_block),
        cmocka_unit_test(zero_tokens),      cmocka_unit_test(outer_scales),
        cmocka_unit_test(extremes),         cmocka_unit_test(non_finite),
        cmocka_unit_test(int4_edges),       cmocka_unit_test(ds_mla_row),
        cmocka_unit_test(any_bytes_decode), cmocka_unit_test(ranges),
        cmocka_unit_test(flush_to_zero),    cmocka_unit_test(fixed_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
