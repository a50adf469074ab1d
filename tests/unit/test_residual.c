/* test_residual.c - the residual plane: an independent encoder and decoder, vectors worked by
 * hand, every variant of the kernel, golden bytes, and what a refined value loses.
 *
 * The reference counts the cuts of a cell that a value has reached, with the cells written down
 * as docs/number-formats.md lists them, in double (exact: no product here has 53 bits). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernel/kv_residual/kv_residual.h"
#include "os/cpu.h"
#include "unit/record_data.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

static const double e2m1_edge[9] = { -.25, .25, .75, 1.25, 1.75, 2.5, 3.5, 5, 0 };
static const double step_edge[9] = { -.5, .5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 8 };

/* Edge i of the cells of a block with scale byte sf. */
static double edge(const nb_record *r, unsigned sf, unsigned i)
{
    if (r->type == NB_KV_IF4 && sf >= 128) return step_edge[i];
    if (i < 8) return e2m1_edge[i];
    return r->type == NB_KV_IF4 || r->mode == NB_KV_SEARCH ? 7 : 6.5;
}

static double e4m3_of(unsigned c)
{
    c &= 127;
    return c < 8 ? c / 512.0 : ldexp(8 + c % 8, (int)c / 8 - 10);
}

typedef struct spot {
    unsigned outer, sf, code;
    bool is_outlier;
} spot;

static spot look(const nb_record *r, const uint8_t *page, size_t t, size_t at)
{
    const nb_record_seg *g = &r->seg[0];
    const size_t v = at / g->dim, i = at % g->dim;
    const uint8_t byte = page[g->code_off + t * g->code_stride + v * ((g->dim + 1) / 2) + i / 2];
    spot s = { page[g->outer_off + t * g->n_vec + v],
               page[g->scale_off + t * g->scale_stride + v * ((g->dim + 15) / 16) + i / 16],
               i % 2 ? byte / 16u : byte % 16u, false };
    for (size_t k = 0; k < g->n_outlier; k++) s.is_outlier |= g->outlier[k] == at;
    return s;
}

/* x in units of the vector's outer scale. */
static double unit(const nb_record_seg *g, uint16_t x, unsigned outer)
{
    const int ex = x >> 7 & 255, f = x & 127;
    const double a = ex ? ldexp(128 + f, ex - 134) : ldexp(f, -133);
    double y = ldexp(a, 127 - (int)outer);
    if (g->fixed_scale != 0) y = fmin((double)(float)(a / (double)g->fixed_scale), 2688);
    return x & 0x8000 ? -y : y;
}

static unsigned ref_part(const nb_record *r, const spot *s, uint16_t x)
{
    const unsigned i = s->code % 8;
    const double S = e4m3_of(s->sf), lo = edge(r, s->sf, i), hi = edge(r, s->sf, i + 1);
    if (s->is_outlier || s->outer == 0 || S == 0) return 0;
    double y = unit(&r->seg[0], x, s->outer);
    if (i > 0) y = fabs(y);
    unsigned n = 0;
    for (int j = 1; j < 16; j++) n += y >= S * (lo + j * (hi - lo) / 16);
    return n;
}

static double ref_value(const nb_record *r, const spot *s, unsigned part, double side)
{
    const unsigned i = s->code % 8;
    const double S = e4m3_of(s->sf), lo = edge(r, s->sf, i), hi = edge(r, s->sf, i + 1);
    if (s->is_outlier) return side;
    if (s->outer == 0 || S == 0) return 0;
    double v = S * (lo + (part + .5) * (hi - lo) / 16);
    if (i > 0 && s->code >= 8) v = -v;
    if (r->seg[0].fixed_scale != 0) return (double)((float)v * r->seg[0].fixed_scale);
    v = ldexp(v, (int)s->outer - 127);
    return fabs(v) > 0x1.fep127 ? copysign(0x1.fep127, v) : v;
}

static const nb_kv_residual_variant *usable(const nb_kv_residual_variant *k)
{
    while (k->name && (k->space != NB_SPACE_HOST || (k->need & ~nb_cpu_caps()))) k++;
    return k;
}

static void plane_is(const nb_record *r, const uint8_t *page, const rd_page *p,
                     const uint8_t *plane, size_t c, unsigned kind)
{
    const nb_record_seg *g = &r->seg[0];
    const size_t row = nb_residual_row_bytes(r), n = g->n_vec * g->dim, half = (g->dim + 1) / 2;
    for (size_t t = 0; t < 64; t++) {
        for (size_t at = 0; at < n; at++) {
            const spot s = look(r, page, t, at);
            const uint8_t b = plane[t * row + at / g->dim * half + at % g->dim / 2];
            const unsigned got = at % g->dim % 2 ? b / 16u : b % 16u;
            const unsigned want = ref_part(r, &s, p->x[t * p->stride + at]);
            if (got != want)
                fail_msg("case %zu, kind %u, token %zu, value %zu: part %u, reference %u", c, kind,
                         t, at, got, want);
        }
        for (size_t v = 0; v < g->n_vec && g->dim % 2; v++)
            assert_true(plane[t * row + v * half + half - 1] < 16);
    }
}

static void values_are(const nb_record *r, const uint8_t *page, const uint8_t *plane,
                       const nb_kv_residual_variant *k, size_t c)
{
    const nb_record_seg *g = &r->seg[0];
    const size_t row = nb_residual_row_bytes(r), n = g->n_vec * g->dim, half = (g->dim + 1) / 2;
    float *out = malloc(n * sizeof *out), *base = malloc(n * sizeof *base);
    uint8_t *copy = malloc(row); /* exact sizes: the sanitizer sees any access outside */
    assert_true(out && base && copy);
    for (size_t t = 0; t < 64; t++) {
        memcpy(copy, plane + t * row, row);
        k->decode(r, page, t, copy, out);
        nb_record_decode(r, page, 0, t, 1, base, n);
        for (size_t at = 0; at < n; at++) {
            const spot s = look(r, page, t, at);
            const uint8_t b = copy[at / g->dim * half + at % g->dim / 2];
            const unsigned part = at % g->dim % 2 ? b / 16u : b % 16u;
            const double want = ref_value(r, &s, part, (double)base[at]);
            const bool zero = want == 0 && !s.is_outlier;
            if ((double)out[at] != want || (zero && signbit(out[at])))
                fail_msg("%s, case %zu, token %zu, value %zu: %a, reference %a", k->name, c, t, at,
                         (double)out[at], want);
        }
    }
    free(out);
    free(base);
    free(copy);
}

static void one_record(size_t c, unsigned kind)
{
    nb_record r;
    assert_int_equal(nb_record_init(&r, &rd_cases[c], NULL), NB_OK);
    if (!nb_residual_possible(&r)) return;
    rd_page p = rd_make(&r, kind, 40 + c);
    const size_t n_bytes = nb_residual_page_bytes(&r);
    assert_int_equal(n_bytes, 64 * r.seg[0].n_vec * ((r.seg[0].dim + 1) / 2));
    uint8_t *page = malloc(r.page_bytes), *plane = malloc(n_bytes);
    assert_true(page && plane);
    assert_int_equal(rd_encode(&r, page, &p), NB_OK);
    for (const nb_kv_residual_variant *k = usable(nb_kv_residual_variants); k->name;
         k = usable(k + 1)) {
        memset(plane, 0xaa, n_bytes);
        k->encode(&r, page, p.x, p.stride, plane);
        plane_is(&r, page, &p, plane, c, kind);
        values_are(&r, page, plane, k, c);
    }
    rd_free(&p);
    free(page);
    free(plane);
}

static void reference(void **state)
{
    (void)state;
    for (size_t c = 0; c < RD_CASES; c++)
        for (unsigned kind = 0; kind <= RD_KINDS; kind++)
            if (rd_cases[c].seg[0].dim <= 128 || kind % 4 == c % 4) one_record(c, kind);
}

/* Any bytes: all variants agree bit for bit (but for NaN), and nothing is touched outside. */
static void any_bytes(void **state)
{
    (void)state;
    for (size_t c = 0; c < RD_CASES; c++) {
        nb_record r;
        assert_int_equal(nb_record_init(&r, &rd_cases[c], NULL), NB_OK);
        if (!nb_residual_possible(&r)) continue;
        const size_t n = r.seg[0].n_vec * r.seg[0].dim, row = nb_residual_row_bytes(&r);
        rd_page p = rd_make(&r, RD_KINDS, c);
        uint8_t *page = malloc(r.page_bytes), *a = malloc(64 * row), *b = malloc(64 * row);
        float *va = malloc(4 * n), *vb = malloc(4 * n);
        assert_true(page && a && b && va && vb);
        for (size_t i = 0; i < r.page_bytes; i++) {
            const uint64_t u = nb_rng_u64(c, i);
            page[i] = (uint8_t)(i >= r.seg[0].outer_off && i % 3 ? 120 + u % 16 : u & 255);
        }
        nb_residual_encode(&r, page, p.x, p.stride, a);
        for (const nb_kv_residual_variant *k = usable(nb_kv_residual_variants); k->name;
             k = usable(k + 1)) {
            k->encode(&r, page, p.x, p.stride, b);
            for (size_t i = 0; i < 64 * row; i++) assert_int_equal(a[i], b[i]);
            for (size_t i = 0; i < row; i++) b[i] = (uint8_t)(nb_rng_u64(9, i) & 255);
            for (size_t t = 0; t < 64; t++) {
                nb_residual_decode(&r, page, t, b, va);
                k->decode(&r, page, t, b, vb);
                for (size_t i = 0; i < n; i++)
                    if (nb_f32_bits(va[i]) != nb_f32_bits(vb[i]) && !(isnan(va[i]) && isnan(vb[i])))
                        fail_msg("%s, case %zu, token %zu, value %zu: %a, not %a", k->name, c, t, i,
                                 (double)vb[i], (double)va[i]);
            }
        }
        rd_free(&p);
        free(page);
        free(a);
        free(b);
        free(va);
        free(vb);
    }
}

/* The bytes of the plane do not depend on the processor's flush-to-zero settings. */
static void flush_to_zero(void **state)
{
    (void)state;
#if defined(__SSE__)
    const unsigned csr = _mm_getcsr();
    for (size_t c = 0; c < RD_CASES; c++) {
        nb_record r;
        assert_int_equal(nb_record_init(&r, &rd_cases[c], NULL), NB_OK);
        if (!nb_residual_possible(&r)) continue;
        const size_t n_bytes = nb_residual_page_bytes(&r);
        uint8_t *page = malloc(r.page_bytes), *a = malloc(n_bytes), *b = malloc(n_bytes);
        assert_true(page && a && b);
        for (unsigned kind = 0; kind <= RD_KINDS; kind++) {
            rd_page p = rd_make(&r, kind, 70 + c);
            assert_int_equal(rd_encode(&r, page, &p), NB_OK);
            nb_residual_encode(&r, page, p.x, p.stride, a);
            for (const nb_kv_residual_variant *k = usable(nb_kv_residual_variants); k->name;
                 k = usable(k + 1)) {
                _mm_setcsr(csr | 0x8040); /* FTZ and DAZ */
                k->encode(&r, page, p.x, p.stride, b);
                _mm_setcsr(csr);
                for (size_t i = 0; i < n_bytes; i++)
                    if (a[i] != b[i])
                        fail_msg("%s, case %zu, kind %u, byte %zu: 0x%02x and 0x%02x", k->name, c,
                                 kind, i, a[i], b[i]);
            }
            rd_free(&p);
        }
        free(page);
        free(a);
        free(b);
    }
#else
    skip();
#endif
}

/* A block with scale 1 whose values and ties are worked by hand. */
static void by_hand(void **state)
{
    (void)state;
    const float v[16] = { 6,    -6,   5, 3.5f, 2.5f,  1.75f, 1.25f,  .75f,
                          .25f, .26f, 0, -0.f, -.25f, -3,    -1e-8f, 4 };
    const uint8_t want[16] = { 10, 10, 15, 0, 15, 0, 15, 0, 15, 0, 8, 8, 0, 8, 7, 5 };
    const float refined[16] = { 5 + 10.5f * 3 / 32,
                                -(5 + 10.5f * 3 / 32),
                                3.5f + 15.5f * 3 / 32,
                                3.5f + .5f * 3 / 32,
                                1.75f + 15.5f * 3 / 64,
                                1.75f + .5f * 3 / 64,
                                .75f + 15.5f / 32,
                                .75f + .5f / 32,
                                -.25f + 15.5f / 32,
                                .25f + .5f / 32,
                                .5f / 32,
                                .5f / 32,
                                -.25f + .5f / 32,
                                -(2.5f + 8.5f / 16),
                                -.5f / 32,
                                3.5f + 5.5f * 3 / 32 };
    enum { N = 32 + 4 };
    static uint16_t x[64 * N];
    static uint8_t page[8192], plane[64 * 16];
    const nb_record_opts o = RD_CASE(NB_KV_NVFP4, NB_KV_BASIC, true, false, 32, 4, 1, 1);
    nb_record r;
    float out[32];
    assert_int_equal(nb_record_init(&r, &o, NULL), NB_OK);
    assert_true(r.page_bytes <= sizeof page);
    for (size_t i = 0; i < 16; i++) x[N * 5 + i] = nb_bf16_from_f32(v[i]);
    x[N * 5 + 31] = nb_bf16_from_f32(1536); /* makes the outer scale 1 */
    assert_int_equal(nb_record_encode_page(&r, page, x, N), NB_OK);
    assert_int_equal(page[r.seg[0].scale_off + 5 * 2], 0x38);
    for (const nb_kv_residual_variant *k = usable(nb_kv_residual_variants); k->name;
         k = usable(k + 1)) {
        k->encode(&r, page, x, N, plane);
        k->decode(&r, page, 5, plane + 5 * 16, out);
        for (size_t i = 0; i < 16; i++) {
            assert_int_equal(plane[5 * 16 + i / 2] >> i % 2 * 4 & 15, want[i]);
            assert_true(out[i] == refined[i]);
        }
        assert_int_equal(plane[4 * 16], 0); /* a zero token */
        k->decode(&r, page, 4, plane + 5 * 16, out);
        for (size_t i = 0; i < 32; i++) assert_int_equal(nb_f32_bits(out[i]), 0);
    }
}

static double gauss(uint64_t seed, uint64_t i)
{
    const double u = 1 - nb_rng_unit(seed, 2 * i), v = nb_rng_unit(seed, 2 * i + 1);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* Relative RMSE of refined Gaussian values, in percent. */
static double refined_rmse(nb_kv_type type, nb_kv_mode mode, float fixed)
{
    enum { DIM = 512, N = DIM + 1 };
    static uint16_t x[64 * N];
    static uint8_t page[1 << 15], plane[64 * DIM / 2];
    static float out[DIM];
    const nb_record_opts o = RD_CASE(type, mode, true, false, DIM, 1, 1, 1, RD_FIXED(fixed, 0));
    nb_record r;
    double err = 0, sum = 0;
    assert_int_equal(nb_record_init(&r, &o, NULL), NB_OK);
    assert_true(r.page_bytes <= sizeof page);
    for (size_t n = 0; n < 4; n++) {
        for (size_t i = 0; i < 64 * DIM; i++)
            x[i / DIM * N + i % DIM] = nb_bf16_from_f32((float)gauss(11, n * 64 * DIM + i));
        assert_int_equal(nb_record_encode_page(&r, page, x, N), NB_OK);
        nb_residual_encode(&r, page, x, N, plane);
        for (size_t t = 0; t < 64; t++) {
            nb_residual_decode(&r, page, t, plane + t * DIM / 2, out);
            for (size_t i = 0; i < DIM; i++) {
                const double v = (double)nb_bf16_to_f32(x[t * N + i]), d = (double)out[i] - v;
                err += d * d;
                sum += v * v;
            }
        }
    }
    return 100 * sqrt(err / sum);
}

/* .59 .65 .67 .60 are the figures for values of any precision.  Ours have 8 bits, so that beside a
 * power of two they lie on the cuts themselves, at a part's lower end more often than near its
 * upper one: a little more is lost.  Divided by a fixed scale they lie anywhere. */
static void quality(void **state)
{
    (void)state;
    const struct {
        nb_kv_type type;
        nb_kv_mode mode;
        float fixed;
        double want;
    } c[] = {
        { NB_KV_NVFP4, NB_KV_BASIC, 0, .605 },      { NB_KV_NVFP4, NB_KV_4OVER6, 0, .660 },
        { NB_KV_NVFP4, NB_KV_SEARCH, 0, .685 },     { NB_KV_IF4, NB_KV_SEARCH, 0, .612 },
        { NB_KV_NVFP4, NB_KV_BASIC, .0022f, .59 },  { NB_KV_NVFP4, NB_KV_4OVER6, .0037f, .65 },
        { NB_KV_NVFP4, NB_KV_SEARCH, .0022f, .67 },
    };
    for (size_t i = 0; i < NB_COUNT(c); i++) {
        const double got = refined_rmse(c[i].type, c[i].mode, c[i].fixed);
        print_message("%-6s mode %d fixed %g: refined %.4f%%\n", nb_kv_type_name(c[i].type),
                      (int)c[i].mode, (double)c[i].fixed, got);
        if (fabs(got - c[i].want) > .015) fail_msg("%.4f%%, expected %.2f%%", got, c[i].want);
    }
}

/* The planes of every case that has one, data kind 12, in one hash. */
static void golden(void **state)
{
    (void)state;
    uint64_t h = 0;
    for (size_t c = 0; c < RD_CASES; c++) {
        nb_record r;
        assert_int_equal(nb_record_init(&r, &rd_cases[c], NULL), NB_OK);
        if (!nb_residual_possible(&r)) continue;
        rd_page p = rd_make(&r, RD_KINDS, 2026);
        uint8_t *page = malloc(r.page_bytes), *plane = malloc(nb_residual_page_bytes(&r));
        assert_true(page && plane);
        assert_int_equal(rd_encode(&r, page, &p), NB_OK);
        nb_residual_encode(&r, page, p.x, p.stride, plane);
        h = h * 31 + rd_hash(plane, nb_residual_page_bytes(&r));
        rd_free(&p);
        free(page);
        free(plane);
    }
    if (h != 0xa734350f116b85e9u) fail_msg("planes hash to 0x%016llx", (unsigned long long)h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference), cmocka_unit_test(any_bytes), cmocka_unit_test(by_hand),
        cmocka_unit_test(quality),   cmocka_unit_test(golden),    cmocka_unit_test(flush_to_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
