/* check_cuda_small.c - what a GPU does between products: norm, table of rotations, SwiGLU, parts of rows,
 * sums of experts, against the references of the host's operations.
 *
 * What lies between the rows of an output must stay.  Parts must be those of the floats
 * beside them: hi = BF16(f), lo = BF16(f - hi).  Each operation is repeated for single rows. */
#include "check/check.h"
#include "check/check_cuda.h"
#include "kernel/rmsnorm/rmsnorm.h"
#include "kernel/swiglu/swiglu.h"
#include "num/bf16.h"

/* Rows of an output and where they are. */
typedef struct out {
    nb_cuda_rows dev, host;
    size_t n_row, n;
} out;

/* forms: 1 floats, 2 hi, 4 lo */
static out make_out(chk *t, size_t n_row, size_t n, unsigned forms)
{
    out o = { .n_row = n_row, .n = n };
    const size_t stride = (n + 7) / 8 * 8 + 8 * chk_between(t, 0, 2), items = n_row * stride;
    o.dev.stride = o.host.stride = stride;
    o.host.f = chk_raw(t, items * sizeof(float));
    o.host.hi = chk_raw(t, items * 2);
    o.host.lo = chk_raw(t, items * 2);
    if (forms & 1) o.dev.f = chk_gpu_out(t, items * sizeof(float));
    if (forms & 2) o.dev.hi = chk_gpu_out(t, items * 2);
    if (forms & 4) o.dev.lo = chk_gpu_out(t, items * 2);
    return o;
}

/* Bytes [from, to) of a fetched output are as they were before. */
static bool untouched(const void *p, size_t from, size_t to)
{
    static const unsigned char fill[] = { 0xa5, 0xa5, 0xa5, 0x7f };
    const unsigned char *b = p;
    for (size_t i = from; i < to; i++)
        if (b[i] != fill[i % 4]) return false;
    return true;
}

/* Fetches an output; gaps, and parts against the floats. */
static void get_out(chk *t, out *o)
{
    const size_t s = o->host.stride, items = o->n_row * s;
    if (o->dev.f) chk_gpu_get(t, o->host.f, o->dev.f, items * sizeof(float));
    if (o->dev.hi) chk_gpu_get(t, o->host.hi, o->dev.hi, items * 2);
    if (o->dev.lo) chk_gpu_get(t, o->host.lo, o->dev.lo, items * 2);
    for (size_t r = 0; r < o->n_row; r++) {
        const size_t at = r * s + o->n, end = (r + 1) * s;
        if ((o->dev.f && !untouched(o->host.f, at * 4, end * 4)) ||
            (o->dev.hi && !untouched(o->host.hi, at * 2, end * 2)) ||
            (o->dev.lo && !untouched(o->host.lo, at * 2, end * 2)))
            chk_fail(t, "written behind row %zu", r);
        for (size_t i = r * s; o->dev.f && i < r * s + o->n; i++) {
            const float f = o->host.f[i], hi = nb_bf16_to_f32(o->host.hi[i]);
            if (isnan(f)) continue;
            if (o->dev.hi && o->host.hi[i] != nb_bf16_from_f32(f))
                chk_fail(t, "row %zu, value %zu: hi is not BF16(%g)", r, i - r * s, (double)f);
            if (o->dev.lo && isfinite(hi) && o->host.lo[i] != nb_bf16_from_f32(f - hi))
                chk_fail(t, "row %zu, value %zu: lo is not BF16(%g - hi)", r, i - r * s, (double)f);
        }
    }
}

/* Row r of o is the only row of alone. */
static void same_alone(chk *t, const out *o, size_t r, out *alone)
{
    get_out(t, alone);
    if (o->dev.f)
        chk_same(t, "for a row alone", o->host.f + r * o->host.stride, o->host.stride,
                 alone->host.f, alone->host.stride, 1, o->n);
    if (o->dev.hi)
        chk_same_bytes(t, "parts of a row alone", o->host.hi + r * o->host.stride, alone->host.hi,
                       o->n * 2);
}

/* Floats of rows with a stride, as a device buffer that is changed in place. */
static float *in_place(chk *t, const float *rows, size_t n_row, size_t n, size_t stride)
{
    return chk_gpu_inout(t, rows, chk_rows_bytes(n_row, n, stride, sizeof *rows));
}
static const float *input(chk *t, const float *rows, size_t n_row, size_t n, size_t stride)
{
    return chk_gpu_in(t, rows, chk_rows_bytes(n_row, n, stride, sizeof *rows));
}

/* A row that is not finite in one place. */
static void spoil(chk *t, float *row, size_t n)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    row[chk_between(t, 0, n - 1)] = bad[chk_u64(t) % 3];
}

/* ---- norm ---- */

typedef struct norm_case {
    size_t n_row, dim;
    chk_pattern p;
    bool add, pick, gain, bad;
} norm_case;

/* h[r] += f branch[r] as on the host, and the reference of the norm. */
static void norm_want(const nb_cuda_norm_args *a, float *h, const float *branch, const float *w,
                      const uint32_t *pick, double *want)
{
    for (size_t r = 0; branch && r < a->n_row; r++)
        for (size_t i = 0; i < a->dim; i++) {
            const float b = a->branch_factor * branch[r * a->branch_stride + i];
            h[r * a->h_stride + i] += b;
        }
    for (size_t r = 0; w && r < a->n_row; r++) {
        const nb_rmsnorm_args one = { .x = h + (pick ? pick[r] : r) * a->h_stride,
                                      .w = w,
                                      .n_row = 1,
                                      .dim = a->dim,
                                      .x_stride = a->dim,
                                      .eps = a->eps };
        nb_rmsnorm_ref(&one, want + r * a->dim);
        for (size_t i = 0; i < a->dim; i++) want[r * a->dim + i] *= (double)a->y_factor;
    }
}

static void norm_one(chk *t, const norm_case *c)
{
    const size_t n = c->n_row, dim = c->dim, n_h = c->pick ? n + 3 : n;
    const size_t gap = chk_u64(t) % 2 ? 0 : chk_between(t, 0, 9);
    nb_cuda_norm_args a = { .n_row = n, .dim = dim, .h_stride = dim + gap, .eps = 1e-6f };
    a.branch_stride = dim + chk_between(t, 0, 1) * 4;
    a.branch_factor = chk_u64(t) % 2 ? 1.0f : 0.31f;
    a.y_factor = chk_u64(t) % 2 ? 1.0f : 0.0625f * 1.3f;
    float *h = chk_in_rows(t, n_h, dim, a.h_stride, c->p);
    float *branch = chk_in_rows(t, n, dim, a.branch_stride, c->p);
    const float *w = chk_in_rows(t, 1, dim, dim, chk_u64(t) % 2 ? CHK_NORMAL : CHK_OUTLIER);
    if (c->bad) spoil(t, h + (n - 1) * a.h_stride, dim);
    uint32_t *pick = chk_raw(t, (n + 1) * sizeof *pick);
    for (size_t r = 0; r < n; r++)
        pick[r] = c->bad ? (uint32_t)r : (uint32_t)chk_between(t, 0, n_h - 1);
    out y = make_out(t, n, dim, chk_u64(t) % 3 ? 7 : 1);
    float *h0 = chk_raw(t, n_h * a.h_stride * sizeof *h0), *before = h;
    if (n_h) memcpy(h0, h, chk_rows_bytes(n_h, dim, a.h_stride, sizeof *h));
    a.h = in_place(t, h, n_h, dim, a.h_stride);
    if (c->add) a.branch = input(t, branch, n, dim, a.branch_stride);
    if (c->gain) a.w = chk_gpu_in(t, w, dim * sizeof *w);
    if (c->pick) a.row = chk_gpu_in(t, pick, (n + 1) * sizeof *pick);
    a.y = y.dev;
    chk_gpu_call(t, chk_gpu_api(t)->norm(chk_gpu(t), &a));

    double *want = chk_f64(t, n * dim), *bound = chk_f64(t, n * dim);
    norm_want(&a, h0, c->add ? branch : NULL, c->gain ? w : NULL, c->pick ? pick : NULL, want);
    float *h1 = chk_raw(t, n_h * a.h_stride * sizeof *h1);
    chk_gpu_get(t, h1, a.h, chk_rows_bytes(n_h, dim, a.h_stride, sizeof *h1));
    if (!c->bad) chk_same(t, "sum of branch", h1, a.h_stride, h0, a.h_stride, n_h, dim);
    get_out(t, &y);
    if (!c->gain) {
        if (!untouched(y.host.f, 0, n * y.host.stride * 4)) chk_fail(t, "written without a norm");
        return;
    }
    for (size_t i = 0; i < n * dim; i++)
        bound[i] = (5 + (double)dim / 16) * 0x1p-24 * fabs(want[i]) + 0x1p-126;
    const size_t n_good = c->bad ? n - 1 : n;
    chk_close(t, y.host.f, n_good, dim, y.host.stride, want, bound);
    for (size_t r = 0; r < n && !c->pick; r++) {
        nb_cuda_norm_args one = a;
        out alone = make_out(t, 1, dim, y.dev.hi ? 7 : 1);
        one.h = in_place(t, before + r * a.h_stride, 1, dim, a.h_stride);
        if (c->add) one.branch = a.branch + r * a.branch_stride;
        one.y = alone.dev;
        one.n_row = 1;
        chk_gpu_call(t, chk_gpu_api(t)->norm(chk_gpu(t), &one));
        if (r < n_good) same_alone(t, &y, r, &alone);
    }
}

static void test_norm(chk *t, const chk_row *row)
{
    (void)row;
    static const size_t dims[] = {
        1, 3, 8, 64, 129, 512, 1536, 2048, 2049, 4099, 5120, 7168, 9000
    };
    for (size_t d = 0; d < NB_COUNT(dims); d++)
        for (unsigned k = 0; k < 7; k++)
            if (chk_case(t, "dim=%zu %u", dims[d], k)) {
                const norm_case c = { .n_row = chk_between(t, 1, 3) + (k == 4),
                                      .dim = dims[d],
                                      .p = k == 4 ? CHK_NORMAL : (chk_pattern)(chk_u64(t) % 9),
                                      .add = k != 1 && k != 2,
                                      .pick = k == 2,
                                      .gain = k != 3,
                                      .bad = k == 4 };
                norm_one(t, &c);
            }
}

/* ---- rope_table ---- */

static void table_one(chk *t, size_t n_tok, size_t dim, bool with_long)
{
    const size_t half = dim / 2;
    float *freq = chk_raw(t, 2 * half * sizeof *freq);
    uint32_t *pos = chk_raw(t, n_tok * sizeof *pos);
    unsigned char *is_long = chk_raw(t, n_tok);
    for (size_t j = 0; j < 2 * half; j++)
        freq[j] =
            (float)pow(10000.0, -(double)(j % half) / (double)half) * (j < half ? 1.0f : 0.25f);
    for (size_t i = 0; i < n_tok; i++) {
        pos[i] = (uint32_t)chk_between(t, 0, chk_u64(t) % 2 ? 100 : 163840);
        is_long[i] = chk_u64(t) % 2 != 0;
    }
    out y = make_out(t, 1, n_tok * dim, 1);
    nb_cuda_rope_table_args a = { .cos_sin = y.dev.f, .n_tok = n_tok, .dim = dim, .factor = 1.19f };
    a.pos = chk_gpu_in(t, pos, n_tok * sizeof *pos);
    a.inv_freq = chk_gpu_in(t, freq, half * sizeof *freq);
    if (with_long) {
        a.inv_freq_long = chk_gpu_in(t, freq + half, half * sizeof *freq);
        a.rope_long = chk_gpu_in(t, is_long, n_tok);
    }
    out scale = make_out(t, 1, n_tok, 1);
    if (with_long) {
        a.q_scale = scale.dev.f;
        a.q_beta = 0.1f + 0.3f * (float)chk_unit(t);
        a.q_orig = chk_between(t, 1, 9000);
    }
    chk_gpu_call(t, chk_gpu_api(t)->rope_table(chk_gpu(t), &a));
    get_out(t, &y);
    double *grown = chk_f64(t, n_tok), *grown_bound = chk_f64(t, n_tok);
    for (size_t i = 0; i < n_tok && with_long; i++) {
        grown[i] = 1 + (double)a.q_beta * log(1 + floor((double)pos[i] / (double)a.q_orig));
        grown_bound[i] = 1.01 * 0x1p-24 * grown[i];
    }
    if (with_long) {
        get_out(t, &scale);
        chk_close(t, scale.host.f, 1, n_tok, n_tok, grown, grown_bound);
    }
    double *want = chk_f64(t, n_tok * dim), *bound = chk_f64(t, n_tok * dim);
    for (size_t i = 0; i < n_tok; i++)
        for (size_t j = 0; j < half; j++) {
            const float f = freq[j + (with_long && is_long[i] ? half : 0)];
            const float rounded = f * (float)pos[i];
            const double angle = (double)rounded;
            want[i * dim + j] = cos(angle) * (double)a.factor;
            want[i * dim + half + j] = sin(angle) * (double)a.factor;
        }
    for (size_t i = 0; i < n_tok * dim; i++) bound[i] = 2.01 * 0x1p-24 * fabs(want[i]) + 1e-16;
    chk_close(t, y.host.f, 1, n_tok * dim, n_tok * dim, want, bound);
}

static void test_rope_table(chk *t, const chk_row *row)
{
    (void)row;
    for (size_t dim = 2; dim <= 128; dim *= 2)
        if (chk_case(t, "dim=%zu", dim)) {
            table_one(t, chk_between(t, 1, 70), dim, chk_u64(t) % 2 != 0);
        }
}

/* ---- swiglu, split ---- */

static void swiglu_one(chk *t, size_t n_tok, size_t dim, chk_pattern p, unsigned how)
{
    nb_swiglu_args h = { .n_tok = n_tok, .dim = dim, .in_stride = dim + chk_between(t, 0, 5) };
    float *gate = chk_in_rows(t, n_tok, dim, h.in_stride, p);
    h.gate = gate;
    h.up = chk_in_rows(t, n_tok, dim, h.in_stride, p == CHK_TINY ? CHK_LARGE : CHK_OUTLIER);
    for (size_t i = 0; how == 1 && i + 1 < n_tok * h.in_stride; i++)
        if (i % h.in_stride < dim) gate[i] = (float)(240 * chk_unit(t) - 120);
    if (how == 2) spoil(t, gate + (n_tok - 1) * h.in_stride, dim);
    double *want = chk_f64(t, n_tok * dim), *bound = chk_f64(t, n_tok * dim);
    const float limit = how == 1 ? (float)(chk_unit(t) * 20 + 0.5) : 0;
    float *up = chk_in_rows(t, n_tok, dim, h.in_stride, CHK_ZERO);
    float *lower = chk_in_rows(t, n_tok, dim, h.in_stride, CHK_ZERO);
    for (size_t i = 0; limit > 0 && i < n_tok * h.in_stride - (h.in_stride - dim); i++) {
        lower[i] = fminf(gate[i], limit);
        up[i] = fmaxf(fminf(h.up[i], limit), -limit);
    }
    nb_swiglu_args lim = h;
    if (limit > 0) lim.gate = lower, lim.up = up;
    nb_swiglu_ref(&lim, want);
    for (size_t i = 0; i < n_tok * dim; i++) {
        const double u = fabs((double)h.up[i / dim * h.in_stride + i % dim]);
        bound[i] = 8 * 0x1p-24 * fabs(want[i]) + 0x1p-126 * (1 + 0x1p-16 * u);
    }
    out y = make_out(t, n_tok, dim, chk_u64(t) % 3 ? 7 : 3), alone = make_out(t, 1, dim, 7);
    nb_cuda_swiglu_args a = { .n_tok = n_tok, .dim = dim, .in_stride = h.in_stride, .y = y.dev, .limit = limit };
    a.gate = input(t, h.gate, n_tok, dim, h.in_stride);
    a.up = input(t, h.up, n_tok, dim, h.in_stride);
    chk_gpu_call(t, chk_gpu_api(t)->swiglu(chk_gpu(t), &a));
    get_out(t, &y);
    if (how == 2) return; /* exceptional values: the reference's form has others */
    chk_close(t, y.host.f, n_tok, dim, y.host.stride, want, bound);
    a.gate += (n_tok - 1) * h.in_stride;
    a.up += (n_tok - 1) * h.in_stride;
    a.n_tok = 1;
    a.y = alone.dev;
    chk_gpu_call(t, chk_gpu_api(t)->swiglu(chk_gpu(t), &a));
    if (y.dev.lo) same_alone(t, &y, n_tok - 1, &alone);
}

static void split_one(chk *t, size_t n_tok, size_t dim, chk_pattern p)
{
    const size_t stride = dim + chk_between(t, 0, 5);
    float *x = chk_in_rows(t, n_tok, dim, stride, p);
    out y = make_out(t, n_tok, dim, chk_u64(t) % 3 ? 7 : 1);
    if (chk_u64(t) % 4 == 0) spoil(t, x, dim);
    nb_cuda_split_args a = { .n_tok = n_tok, .dim = dim, .x_stride = stride, .y = y.dev };
    a.x = input(t, x, n_tok, dim, stride);
    chk_gpu_call(t, chk_gpu_api(t)->split(chk_gpu(t), &a));
    get_out(t, &y);
    for (size_t i = 0; i < n_tok * dim; i++) {
        const float u = x[i / dim * stride + i % dim];
        const float v = y.host.f[i / dim * y.host.stride + i % dim];
        if (memcmp(&u, &v, sizeof u) != 0 && !(isnan(u) && isnan(v)))
            chk_fail(t, "value %zu is %g, not %g", i, (double)v, (double)u);
    }
}

/* Codes and scales, byte for byte. */
static void quantise_one(chk *t, size_t n_tok, size_t dim, chk_pattern p)
{
    float *x = chk_in_rows(t, n_tok, dim, dim, p);
    if (chk_u64(t) % 4 == 0) spoil(t, x, dim);
    nb_cuda_quantise_args a = { .n_tok = n_tok, .dim = dim };
    a.x = chk_gpu_in_rows(t, x, n_tok, dim, (dim + 7) / 8 * 8, 1);
    const chk_codes want = chk_gpu_codes(t, x, n_tok, dim, dim, &a.y);
    const size_t n_q = n_tok * want.stride, n_s = n_tok * want.s_stride;
    uint8_t *q = chk_raw(t, n_q);
    float *s = chk_raw(t, n_s * sizeof *s);
    a.y.q = chk_gpu_out(t, n_q);
    a.y.s = chk_gpu_out(t, n_s * sizeof *s);
    chk_gpu_call(t, chk_gpu_api(t)->quantise(chk_gpu(t), &a));
    chk_gpu_get(t, q, a.y.q, n_q);
    chk_gpu_get(t, s, a.y.s, n_s * sizeof *s);
    chk_same_bytes(t, "codes", want.q, q, n_q);
    for (size_t i = 0; i < n_s; i++)
        if (s[i] != want.s[i] && !(isnan(s[i]) && isnan(want.s[i])))
            chk_fail(t, "scale %zu is %.9g, not %.9g", i, (double)s[i], (double)want.s[i]);
}

static void test_swiglu(chk *t, const chk_row *row)
{
    (void)row;
    static const size_t dims[] = { 1, 2, 7, 8, 31, 127, 1408, 3001 };
    for (size_t d = 0; d < NB_COUNT(dims); d++)
        for (unsigned k = 0; k < 6; k++) {
            if (chk_case(t, "dim=%zu %u", dims[d], k)) {
                swiglu_one(t, chk_between(t, 1, 3), dims[d], (chk_pattern)(chk_u64(t) % 9), k % 3);
            }
            if (chk_case(t, "split dim=%zu %u", dims[d], k)) {
                split_one(t, chk_between(t, 1, 3), dims[d], (chk_pattern)(chk_u64(t) % 9));
            }
            if (chk_case(t, "quantise dim=%zu %u", dims[d], k)) {
                quantise_one(t, chk_between(t, 1, 3), dims[d], (chk_pattern)(chk_u64(t) % 9));
            }
        }
}

/* ---- moe_sum ---- */

/* The norm behind a sum: of the branch that it left, or (branch NULL) with the sum in the norm. */
static void sum_norm(chk *t, const nb_cuda_moe_sum_args *s, const float *branch, float **h,
                     float **y)
{
    const size_t n = s->n_tok * s->dim, stride = (s->dim + 7) / 8 * 8;
    nb_cuda_norm_args a = { .branch = branch,
                            .n_row = s->n_tok,
                            .dim = s->dim,
                            .h_stride = s->dim,
                            .branch_stride = s->y_stride,
                            .branch_factor = 0.7f,
                            .eps = 1e-6f,
                            .y_factor = 1 };
    float *one = chk_raw(t, s->dim * sizeof *one);
    for (size_t i = 0; i < s->dim; i++) one[i] = 1 + (float)(i % 7);
    *h = chk_raw(t, n * sizeof **h);
    *y = chk_raw(t, s->n_tok * stride * sizeof **y);
    for (size_t i = 0; i < n; i++) (*h)[i] = (float)(i % 11) - 5;
    a.h = chk_gpu_inout(t, *h, n * sizeof **h);
    a.w = chk_gpu_in(t, one, s->dim * sizeof *one);
    a.y = (nb_cuda_rows){ .f = chk_gpu_out(t, s->n_tok * stride * sizeof **y), .stride = stride };
    if (!branch) {
        a.sum = *s;
        a.sum.y = chk_gpu_out(t, s->n_tok * s->y_stride * sizeof(float));
    }
    chk_gpu_call(t, chk_gpu_api(t)->norm(chk_gpu(t), &a));
    chk_gpu_get(t, *h, a.h, n * sizeof **h);
    chk_gpu_get(t, *y, a.y.f, s->n_tok * stride * sizeof **y);
}

static void sum_one(chk *t, size_t n_tok, size_t top_k, size_t dim, bool shared, bool in_y)
{
    const size_t n = n_tok * top_k, stride = dim + 4 * chk_between(t, 0, 2);
    const float *e = chk_in_rows(t, n, dim, stride, CHK_RUNS);
    const float *weight = chk_in_rows(t, 1, n, n, CHK_NORMAL);
    uint32_t *place = chk_raw(t, n * sizeof *place);
    for (size_t i = 0; i < n; i++) place[i] = (uint32_t)i;
    for (size_t i = 0; i + 1 < n; i++) {
        const size_t j = chk_between(t, i, n - 1);
        const uint32_t x = place[i];
        place[i] = place[j];
        place[j] = x;
    }
    float *y = chk_in_rows(t, n_tok, dim, stride, CHK_NORMAL), *want = chk_raw(t, n_tok * dim * 4);
    for (size_t i = 0; i < n_tok * dim; i++) {
        const size_t tok = i / dim, c = i % dim;
        float s = 0;
        for (size_t k = tok * top_k; k < (tok + 1) * top_k; k++) {
            const float v = weight[k] * e[place[k] * stride + c];
            s += v;
        }
        want[i] = shared ? s + y[tok * stride + c] : s;
    }
    nb_cuda_moe_sum_args a = { .n_tok = n_tok,
                               .top_k = top_k,
                               .dim = dim,
                               .y_stride = stride,
                               .e_stride = stride,
                               .shared_stride = stride };
    a.e = input(t, e, n, dim, stride);
    a.weight = chk_gpu_in(t, weight, n * sizeof *weight);
    a.place = chk_gpu_in(t, place, n * sizeof *place);
    a.y = in_place(t, y, n_tok, dim, stride);
    if (shared) a.shared = in_y ? a.y : input(t, y, n_tok, dim, stride);
    float *h[2], *z[2];
    sum_norm(t, &a, NULL, &h[0], &z[0]);
    chk_gpu_call(t, chk_gpu_api(t)->moe_sum(chk_gpu(t), &a));
    sum_norm(t, &a, a.y, &h[1], &z[1]);
    chk_same(t, "h of the sum in the norm", h[0], dim, h[1], dim, n_tok, dim);
    chk_same(t, "norm of the sum in the norm", z[0], (dim + 7) / 8 * 8, z[1], (dim + 7) / 8 * 8,
             n_tok, dim);
    float *got = chk_raw(t, n_tok * stride * sizeof *got);
    chk_gpu_get(t, got, a.y, chk_rows_bytes(n_tok, dim, stride, sizeof *got));
    chk_same(t, "as the host's", got, stride, want, dim, n_tok, dim);
}

static void test_moe_sum(chk *t, const chk_row *row)
{
    (void)row;
    static const size_t dims[] = { 1, 5, 64, 513, 2048, 8200 };
    for (size_t d = 0; d < NB_COUNT(dims); d++)
        for (unsigned k = 0; k < 6; k++)
            if (chk_case(t, "dim=%zu %u", dims[d], k)) {
                sum_one(t, chk_between(t, 1, 9), chk_between(t, 1, 8), dims[d], k % 3 != 0,
                        k % 3 == 1);
            }
}

/* ---- timing ---- */

typedef struct job {
    const nb_cuda_api *api;
    nb_cuda *g;
    nb_cuda_norm_args norm;
    nb_cuda_swiglu_args swiglu;
    nb_cuda_moe_sum_args sum;
} job;

static void call_norm(void *ctx)
{
    const job *j = ctx;
    j->api->norm(j->g, &j->norm);
}
static void call_swiglu(void *ctx)
{
    const job *j = ctx;
    j->api->swiglu(j->g, &j->swiglu);
}
static void call_sum(void *ctx)
{
    const job *j = ctx;
    j->api->moe_sum(j->g, &j->sum);
}

static const size_t bench_rows[] = { 1, 64, 4096 }, bench_dims[] = { 2048, 7168 };
enum { N_BENCH = NB_COUNT(bench_rows) * NB_COUNT(bench_dims) };

static float *zeros(chk *t, size_t n)
{
    float *p = chk_raw(t, n * sizeof *p);
    memset(p, 0, n * sizeof *p);
    return p;
}

/* Case i of the timings: rows and values; a line for it. */
static size_t bench_case(chk *t, size_t i, size_t *dim, char *label, size_t n_bytes)
{
    const size_t n = bench_rows[i / NB_COUNT(bench_dims)];
    *dim = bench_dims[i % NB_COUNT(bench_dims)];
    chk_case(t, "bench");
    snprintf(label, n_bytes, "%zu rows of %zu", n, *dim);
    return n;
}

static void bench_norm(chk *t, const chk_row *row)
{
    (void)row;
    for (size_t i = 0; i < N_BENCH; i++) {
        char label[64];
        size_t dim;
        const size_t n = bench_case(t, i, &dim, label, sizeof label);
        float *z = zeros(t, n * dim);
        job j = { .api = chk_gpu_api(t), .g = chk_gpu(t) };
        j.norm = (nb_cuda_norm_args){ .n_row = n,
                                      .dim = dim,
                                      .h_stride = dim,
                                      .branch_stride = dim,
                                      .branch_factor = 1,
                                      .eps = 1e-6f,
                                      .y_factor = 1 };
        j.norm.h = chk_gpu_inout(t, z, n * dim * 4);
        j.norm.branch = chk_gpu_in(t, z, n * dim * 4);
        j.norm.w = chk_gpu_in(t, z, dim * 4);
        j.norm.y = chk_gpu_out_rows(t, n, dim, 2);
        j.norm.y.f = NULL;
        chk_gpu_time(t, label, 16.0 * (double)(n * dim), 0, call_norm, &j);
    }
}

static void bench_swiglu(chk *t, const chk_row *row)
{
    (void)row;
    for (size_t i = 0; i < N_BENCH; i++) {
        char label[64];
        size_t dim;
        const size_t n = bench_case(t, i, &dim, label, sizeof label);
        float *z = zeros(t, n * dim);
        job j = { .api = chk_gpu_api(t), .g = chk_gpu(t) };
        j.swiglu = (nb_cuda_swiglu_args){ .n_tok = n, .dim = dim, .in_stride = dim };
        j.swiglu.gate = chk_gpu_in(t, z, n * dim * 4);
        j.swiglu.up = chk_gpu_in(t, z, n * dim * 4);
        j.swiglu.y = chk_gpu_out_rows(t, n, dim, 2);
        j.swiglu.y.f = NULL;
        chk_gpu_time(t, label, 12.0 * (double)(n * dim), 0, call_swiglu, &j);
    }
}

static void bench_sum(chk *t, const chk_row *row)
{
    (void)row;
    enum { TOP_K = 4 };
    for (size_t i = 0; i < N_BENCH; i++) {
        char label[64];
        size_t dim;
        const size_t n = bench_case(t, i, &dim, label, sizeof label) / 4 + 1, n_e = n * TOP_K;
        float *z = zeros(t, n_e * dim);
        job j = { .api = chk_gpu_api(t), .g = chk_gpu(t) };
        j.sum = (nb_cuda_moe_sum_args){ .n_tok = n,
                                        .top_k = TOP_K,
                                        .dim = dim,
                                        .y_stride = dim,
                                        .e_stride = dim,
                                        .shared_stride = dim };
        j.sum.e = chk_gpu_in(t, z, n_e * dim * 4);
        j.sum.weight = chk_gpu_in(t, z, n_e * 4);
        j.sum.place = chk_gpu_in(t, z, n_e * 4);
        j.sum.y = chk_gpu_inout(t, z, n * dim * 4);
        j.sum.shared = j.sum.y;
        snprintf(label, sizeof label, "%zu rows of %zu, %d experts", n, dim, TOP_K);
        chk_gpu_time(t, label, 24.0 * (double)(n * dim), 0, call_sum, &j);
    }
}

const chk_op chk_cuda_norm = { "cuda_norm", chk_gpu_row, test_norm, bench_norm, NULL };
const chk_op chk_cuda_rope_table = { "cuda_rope_table", chk_gpu_row, test_rope_table, NULL, NULL };
const chk_op chk_cuda_swiglu = { "cuda_swiglu", chk_gpu_row, test_swiglu, bench_swiglu, NULL };
const chk_op chk_cuda_moe_sum = { "cuda_moe_sum", chk_gpu_row, test_moe_sum, bench_sum, NULL };
