/* test_record_reference.c - an independent encoder and decoder, slow and plain.
 *
 * Written from the rules in docs/number-formats.md in double precision and by
 * brute force: scales are found by trying all of them, codes by trying all values.
 * Only the candidates' errors are summed in single precision, because the rule
 * says so.  It must give the same bytes as nb_record_encode_page for every record,
 * on tame and on hostile data, and the same values as nb_record_decode. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "unit/record_data.h"

static double e4m3[127], fp16[0x7c00];
static const double e2m1[8] = { 0, .5, 1, 1.5, 2, 3, 4, 6 };
static const double steps[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };

static int set_up(void **state)
{
    (void)state;
    for (int c = 0; c < 127; c++) e4m3[c] = c < 8 ? c / 512.0 : ldexp(8 + c % 8, c / 8 - 10);
    for (int c = 0; c < 0x7c00; c++)
        fp16[c] = c < 1024 ? ldexp(c, -24) : ldexp(1024 + c % 1024, c / 1024 - 25);
    return 0;
}

static double value(uint16_t b)
{
    const int ex = b >> 7 & 255, f = b & 127;
    const double v = ex ? ldexp(128 + f, ex - 134) : ldexp(f, -133);
    return b & 0x8000 ? -v : v;
}

/* Index of the nearest of n increasing values times s; ties to the even index. */
static unsigned nearest(const double *v, unsigned n, double s, double x)
{
    unsigned best = 0;
    for (unsigned i = 1; i < n; i++) {
        const double now = fabs(v[i] * s - x), old = fabs(v[best] * s - x);
        if (now < old || (now == old && i % 2 == 0)) best = i;
    }
    return best;
}

static double amax(const uint16_t *x, size_t n)
{
    double a = 0;
    for (size_t i = 0; i < n; i++) a = fmax(a, fabs(value(x[i])));
    return a;
}

/* The least e in 2..253 with top * 2^(e-127) >= a. */
static int outer_of(double a, double top)
{
    int e = 2;
    while (e < 253 && ldexp(top, e - 127) < a) e++;
    return e;
}

static unsigned e4m3_code(double x)
{
    return nearest(e4m3, 127, 1, fabs(x)) | (signbit(x) ? 0x80 : 0);
}

/* Plain stores: where the planes are is taken from the layout, which has its own test. */
static void put_nibble(uint8_t *codes, size_t i, unsigned c)
{
    codes[i / 2] = (uint8_t)(codes[i / 2] + (i % 2 ? 16 * c : c));
}

/* A value in units of its vector's outer scale.  A quotient of two floats that is rounded to
 * double first gives the same float: 53 >= 2 * 24 + 2. */
static double unit(const nb_record_seg *g, uint16_t x, int outer, double top)
{
    if (g->fixed_scale == 0) return ldexp(value(x), 127 - outer);
    const double q = (double)(float)(value(x) / (double)g->fixed_scale);
    return fmax(fmin(q, top), -top);
}

static void ref_e4m3(const nb_record_seg *g, const uint16_t *x, uint8_t *codes, uint8_t *outer)
{
    const double a = amax(x, g->dim);
    if (a == 0) return;
    *outer = (uint8_t)(g->fixed_scale != 0 ? 127 : outer_of(a, 448));
    for (size_t i = 0; i < g->dim; i++) codes[i] = (uint8_t)e4m3_code(unit(g, x[i], *outer, 448));
}

static void ref_int8(const nb_record_seg *g, const uint16_t *x, uint8_t *codes, uint8_t *outer)
{
    const double a = amax(x, g->dim);
    if (a == 0) return;
    *outer = (uint8_t)outer_of(a, 127);
    for (size_t i = 0; i < g->dim; i++) {
        const double v = ldexp(value(x[i]), 127 - *outer);
        int best = -127;
        for (int k = -126; k < 128; k++) {
            const double now = fabs(k - v), old = fabs(best - v);
            if (now < old || (now == old && k % 2 == 0)) best = k;
        }
        codes[i] = (uint8_t)(best < 0 ? best + 256 : best);
    }
}

typedef struct choice {
    float err;
    int code, is_int;
} choice;

static void consider(choice *b, const double *x, size_t n, int code, int is_int)
{
    float e = 0;
    for (size_t i = 0; i < n; i++) {
        const double *v = is_int ? steps : e2m1, s = e4m3[code];
        const unsigned k = code ? nearest(v, 8, s, fabs(x[i])) : 0;
        const float d = (float)(fabs(x[i]) - v[k] * s);
        const float sq = (float)((double)d * (double)d);
        e = (float)((double)e + (double)sq);
    }
    if (b->code < 0 || e < b->err) *b = (choice){ e, code, is_int };
}

static choice choose(const nb_record *r, const double *x, size_t n, double a, int if4)
{
    static const int fp[] = { 0, -1, 1, -2, 2, -3, 3, 4, 5, 6 };
    /* nearest to a / d: compare d * value with a */
    const int c6 = (int)nearest(e4m3, 127, 6, a), c4 = (int)nearest(e4m3, 127, 4, a),
              c7 = (int)nearest(e4m3, 127, 7, a);
    choice b = { 0, -1, 0 };
    if (r->mode == NB_KV_SEARCH) {
        for (int i = 0; i < 10; i++)
            if (c6 + fp[i] >= 1 && c6 + fp[i] <= 126) consider(&b, x, n, c6 + fp[i], 0);
        for (int i = 0; i < 3 && if4; i++)
            if (c7 + fp[i] >= 1 && c7 + fp[i] <= 126) consider(&b, x, n, c7 + fp[i], 1);
    } else {
        consider(&b, x, n, c6, 0);
        if (r->mode == NB_KV_4OVER6) consider(&b, x, n, c4, 0);
        if (if4) consider(&b, x, n, c7, 1);
    }
    return b;
}

static void ref_nv(const nb_record *r, const nb_record_seg *g, const uint16_t *x, uint8_t *codes,
                   uint8_t *sf, uint8_t *outer)
{
    const double a = amax(x, g->dim);
    if (a == 0) return;
    *outer = (uint8_t)(g->fixed_scale != 0 ? 127 : outer_of(a, 1536));
    for (size_t at = 0; at < g->dim; at += 16) {
        const size_t n = g->dim - at < 16 ? g->dim - at : 16;
        double v[16], ga = 0;
        if (amax(x + at, n) == 0) continue;
        for (size_t i = 0; i < n; i++) {
            v[i] = unit(g, x[at + i], *outer, 2688);
            ga = fmax(ga, fabs(v[i]));
        }
        const choice b = choose(r, v, n, ga, g->fmt == NB_SEG_IF4);
        sf[at / 16] = (uint8_t)(b.code + 128 * b.is_int);
        for (size_t i = 0; i < n && b.code; i++) {
            const unsigned k = nearest(b.is_int ? steps : e2m1, 8, e4m3[b.code], fabs(v[i]));
            put_nibble(codes, at + i, k + (v[i] < 0 && k ? 8 : 0));
        }
    }
}

static void ref_mx(const nb_record_seg *g, const uint16_t *x, uint8_t *codes, uint8_t *sf)
{
    for (size_t at = 0; at < g->dim; at += 32) {
        const size_t n = g->dim - at < 32 ? g->dim - at : 32;
        const double a = amax(x + at, n);
        if (a == 0) continue;
        sf[at / 32] = (uint8_t)outer_of(a, 6);
        for (size_t i = 0; i < n; i++) {
            const unsigned k =
                nearest(e2m1, 8, ldexp(1, sf[at / 32] - 127), fabs(value(x[at + i])));
            put_nibble(codes, at + i, k + (value(x[at + i]) < 0 && k ? 8 : 0));
        }
    }
}

static unsigned fp16_nearest(double v, double d) /* of v / d, v >= 0 */
{
    unsigned lo = 0, hi = 0x7bff;
    if (v >= d * fp16[hi]) return hi;
    while (hi - lo > 1) {
        const unsigned mid = (lo + hi) / 2;
        if (d * fp16[mid] <= v)
            lo = mid;
        else
            hi = mid;
    }
    const double c = (v - d * fp16[lo]) - (d * fp16[hi] - v);
    return c < 0 ? lo : c > 0 ? hi : lo + lo % 2;
}

static void ref_int4(const uint16_t *x, size_t n, size_t step, unsigned *q, uint8_t *scale,
                     uint8_t *minimum)
{
    double lo = value(x[0]), hi = lo;
    for (size_t i = 0; i < n; i++) {
        lo = fmin(lo, value(x[i * step]));
        hi = fmax(hi, value(x[i * step]));
    }
    const unsigned mc = fp16_nearest(fabs(lo), 1);
    const double m = lo < 0 ? -fp16[mc] : fp16[mc];
    const double range = (double)(float)(hi - m); /* one rounding to single */
    const unsigned sc = range > 0 ? fp16_nearest(range, 15) : 0;
    const unsigned mb = mc + (lo < 0 && mc ? 0x8000 : 0);
    scale[0] = (uint8_t)(sc % 256);
    scale[1] = (uint8_t)(sc / 256);
    minimum[0] = (uint8_t)(mb % 256);
    minimum[1] = (uint8_t)(mb / 256);
    for (size_t i = 0; i < n; i++) {
        /* cut, so that differences below stay exact in double */
        const double far = 20 * fp16[sc], raw = (double)(float)(value(x[i * step]) - m);
        const double d = fmax(fmin(raw, far), -far);
        q[i] = 0;
        for (unsigned k = 1; k < 16 && sc; k++) {
            const double now = fabs(k * fp16[sc] - d), old = fabs(q[i] * fp16[sc] - d);
            if (now < old || (now == old && k % 2 == 0)) q[i] = k;
        }
    }
}

static void ref_int4_seg(const nb_record_seg *g, const uint16_t *x, size_t stride, uint8_t *page)
{
    unsigned q[32];
    const size_t half = (g->dim + 1) / 2;
    for (size_t t = 0; t < 64; t++)
        for (size_t v = 0; v < g->n_vec; v++) {
            uint8_t *codes = page + g->code_off + t * g->code_stride + v * half;
            if (g->fmt == NB_SEG_INT4_TOK) {
                uint8_t *p = page + g->scale_off + t * g->scale_stride;
                for (size_t at = 0; at < g->dim; at += 32) {
                    const size_t n = g->dim - at < 32 ? g->dim - at : 32;
                    const size_t k = v * g->n_group + at / 32;
                    ref_int4(x + t * stride + v * g->dim + at, n, 1, q, p + 2 * k,
                             p + 2 * (g->n_vec * g->n_group + k));
                    for (size_t i = 0; i < n; i++) put_nibble(codes, at + i, q[i]);
                }
            } else if (t % 32 == 0) {
                uint8_t *p = page + g->scale_off + t / 32 * g->scale_stride;
                for (size_t i = 0; i < g->dim; i++) {
                    const size_t c = v * g->dim + i;
                    ref_int4(x + t * stride + c, 32, stride, q, p + 2 * c,
                             p + 2 * (g->n_vec * g->dim + c));
                    for (size_t j = 0; j < 32; j++) put_nibble(codes + j * g->code_stride, i, q[j]);
                }
            }
        }
}

static void ref_ds(const uint16_t *x, size_t dim, uint8_t *row)
{
    for (size_t at = 0; at < dim; at += 128) {
        const double need = fmax(amax(x + at, 128) / 448, 1e-4);
        int e = -20;
        while (ldexp(1, e) < need) e++;
        const uint32_t bits = (uint32_t)(e + 127) << 23;
        for (int k = 0; k < 4; k++) row[dim + at / 32 + (size_t)k] = (uint8_t)(bits >> 8 * k & 255);
        for (size_t i = at; i < at + 128; i++) row[i] = (uint8_t)e4m3_code(ldexp(value(x[i]), -e));
    }
}

/* Moves the outliers of every token from its row to their plane. */
static void ref_outliers(const nb_record_seg *g, uint16_t *x, size_t stride, uint8_t *page)
{
    for (size_t t = 0; t < 64; t++)
        for (size_t k = 0; k < g->n_outlier; k++) {
            uint8_t *b = page + g->side_off + (t * g->n_outlier + k) * 2;
            b[0] = (uint8_t)(x[t * stride + g->outlier[k]] % 256);
            b[1] = (uint8_t)(x[t * stride + g->outlier[k]] / 256);
            x[t * stride + g->outlier[k]] = 0;
        }
}

/* Changes p: its outliers become 0. */
static void ref_encode(const nb_record *r, const rd_page *p, uint8_t *page)
{
    memset(page, 0, r->page_bytes);
    for (size_t s = 0; s < 2; s++) {
        const nb_record_seg *g = &r->seg[s];
        ref_outliers(g, p->x + g->first, p->stride, page);
        if (g->fmt == NB_SEG_INT4_CH || g->fmt == NB_SEG_INT4_TOK) {
            ref_int4_seg(g, p->x + g->first, p->stride, page);
            continue;
        }
        for (size_t t = 0; t < 64; t++)
            for (size_t v = 0; v < g->n_vec; v++) {
                const uint16_t *x = rd_row(r, p, s, t) + v * g->dim;
                uint8_t *row = page + g->code_off + t * g->code_stride;
                uint8_t *half = row + v * ((g->dim + 1) / 2);
                uint8_t *sf = page + g->scale_off + t * g->scale_stride + v * g->n_group;
                uint8_t *outer = page + g->outer_off + t * g->n_vec + v;
                if (g->fmt == NB_SEG_E4M3)
                    ref_e4m3(g, x, row + v * g->dim, outer);
                else if (g->fmt == NB_SEG_INT8)
                    ref_int8(g, x, row + v * g->dim, outer);
                else if (g->fmt == NB_SEG_MXFP4)
                    ref_mx(g, x, half, sf);
                else if (g->fmt == NB_SEG_DS_MLA)
                    ref_ds(x, g->dim, row);
                else if (g->fmt == NB_SEG_F32)
                    for (size_t i = 0; i < g->dim; i++) {
                        uint8_t *b = row + 4 * (v * g->dim + i);
                        b[0] = b[1] = 0;
                        b[2] = (uint8_t)(x[i] % 256);
                        b[3] = (uint8_t)(x[i] / 256);
                    }
                else if (g->fmt != NB_SEG_BF16)
                    ref_nv(r, g, x, half, sf, outer);
                else
                    for (size_t i = 0; i < g->dim; i++) {
                        row[2 * (v * g->dim + i)] = (uint8_t)(x[i] % 256);
                        row[2 * (v * g->dim + i) + 1] = (uint8_t)(x[i] / 256);
                    }
            }
    }
}

/* Value i of vector v of token t, from the bytes, in double. */
static double ref_decode(const nb_record *r, const uint8_t *page, size_t s, size_t t, size_t v,
                         size_t i)
{
    const nb_record_seg *g = &r->seg[s];
    const uint8_t *row = page + g->code_off + t * g->code_stride;
    const uint8_t *sc = page + g->scale_off + t * g->scale_stride;
    const unsigned outer = page[g->outer_off + t * g->n_vec + v];
    const unsigned b8 = row[v * g->dim + i < g->code_stride ? v * g->dim + i : 0];
    const unsigned nib = row[v * ((g->dim + 1) / 2) + i / 2] >> (i % 2 ? 4 : 0) & 15;
    const double f8 = (b8 & 127) < 127 ? e4m3[b8 & 127] * (b8 & 128 ? -1 : 1) : 0;
    double out = 0;
    for (size_t k = 0; k < g->n_outlier; k++)
        if (g->outlier[k] == v * g->dim + i) {
            const uint8_t *b = page + g->side_off + (t * g->n_outlier + k) * 2;
            return value((uint16_t)(b[0] + 256 * b[1]));
        }
    if (g->fixed_scale != 0 && outer == 0) return 0;
    switch (g->fmt) {
    case NB_SEG_F32: {
        const uint8_t *b = row + 4 * (v * g->dim + i);
        return value((uint16_t)(b[2] + 256 * b[3])); /* encoded from BF16: the rest is 0 */
    }
    case NB_SEG_BF16:
        return value((uint16_t)(row[2 * (v * g->dim + i)] + 256 * row[2 * (v * g->dim + i) + 1]));
    case NB_SEG_E4M3:
        if (g->fixed_scale != 0) return (double)((float)f8 * g->fixed_scale);
        out = outer ? ldexp(f8, (int)outer - 127) : 0;
        break;
    case NB_SEG_INT8:
        out = outer ? ldexp((int)b8 - (b8 & 128 ? 256 : 0), (int)outer - 127) : 0;
        break;
    case NB_SEG_NVFP4:
    case NB_SEG_IF4: {
        const unsigned b = sc[v * g->n_group + i / 16];
        out = (b & 128 ? steps : e2m1)[nib & 7] * e4m3[b & 127] * (nib & 8 ? -1 : 1);
        if (g->fixed_scale != 0) return (double)((float)out * g->fixed_scale);
        out = outer ? ldexp(out, (int)outer - 127) : 0;
        break;
    }
    case NB_SEG_MXFP4: {
        const unsigned b = sc[v * g->n_group + i / 32];
        out = b ? ldexp(e2m1[nib & 7] * (nib & 8 ? -1 : 1), (int)b - 127) : 0;
        break;
    }
    case NB_SEG_INT4_CH:
    case NB_SEG_INT4_TOK: {
        const int ch = g->fmt == NB_SEG_INT4_CH;
        const uint8_t *p = page + g->scale_off + (ch ? t / 32 : t) * g->scale_stride;
        const size_t k = ch ? v * g->dim + i : v * g->n_group + i / 32, n = g->n_vec * g->n_group;
        const unsigned sb = p[2 * k] + 256u * p[2 * k + 1];
        const unsigned mb = p[2 * (n + k)] + 256u * p[2 * (n + k) + 1];
        return (double)(float)(nib * fp16[sb] + fp16[mb & 0x7fff] * (mb & 0x8000 ? -1 : 1));
    }
    case NB_SEG_DS_MLA: {
        const size_t at = g->dim + i / 128 * 4;
        const unsigned bits = row[at + 2] + 256u * row[at + 3]; /* upper half: a power of two */
        out = ldexp(f8, (int)(bits >> 7) - 127);
        break;
    }
    default: fail_msg("segment format %d has no reference here", (int)g->fmt);
    }
    return fabs(out) >= 0x1p128 ? copysign(0x1.fep127, out) : out;
}

static void compare(size_t c, unsigned kind, uint64_t seed)
{
    nb_record r;
    assert_int_equal(nb_record_init(&r, &rd_cases[c], NULL), NB_OK);
    rd_page p = rd_make(&r, kind, seed);
    uint8_t *got = malloc(r.page_bytes), *want = malloc(r.page_bytes);
    float *out = malloc(64 * (r.seg[0].n_vec * r.seg[0].dim + r.seg[1].n_vec * r.seg[1].dim) * 4);
    assert_true(got && want && out);
    assert_int_equal(rd_encode(&r, got, &p), NB_OK);
    ref_encode(&r, &p, want);
    for (size_t i = 0; i < r.page_bytes; i++)
        if (got[i] != want[i])
            fail_msg("case %zu (%s), kind %u, seed %llu, byte %zu: 0x%02x, reference 0x%02x", c,
                     nb_kv_type_name(r.type), kind, (unsigned long long)seed, i, got[i], want[i]);
    for (size_t s = 0; s < 2; s++) {
        const nb_record_seg *g = &r.seg[s];
        const size_t n = g->n_vec * g->dim;
        nb_record_decode(&r, got, s, 0, 64, out, n);
        for (size_t t = 0; t < 64; t++)
            for (size_t i = 0; i < n; i++) {
                const double v = ref_decode(&r, got, s, t, i / g->dim, i % g->dim);
                if ((double)out[t * n + i] != v)
                    fail_msg(
                        "case %zu, kind %u, segment %zu, token %zu, value %zu: %a, reference %a", c,
                        kind, s, t, i, (double)out[t * n + i], v);
            }
    }
    rd_free(&p);
    free(got);
    free(want);
    free(out);
}

static void each_kind(void **state)
{
    (void)state;
    for (size_t c = 0; c < RD_CASES; c++)
        for (unsigned kind = 0; kind < RD_KINDS; kind++) {
            const bool large = rd_cases[c].seg[0].dim > 128; /* these: every third kind, in turn */
            if (!large || kind % 3 == c % 3) compare(c, kind, 7 + c);
        }
}

static void mixed_kinds(void **state)
{
    (void)state;
    for (size_t c = 0; c < RD_CASES; c++)
        for (uint64_t seed = 1; seed <= (rd_cases[c].seg[0].dim > 128 ? 1 : 6); seed++)
            compare(c, RD_KINDS, seed * 1000 + c);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(each_kind),
                                        cmocka_unit_test(mixed_kinds) };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
