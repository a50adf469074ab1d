/* check_cuda_linear.c - products on a device: every row of the table against sums in double, all weight types
 * and tails; batches with gaps between their rows of weights; bias, sums into y, the parts of y.  Then the
 * promise: a token alone and among any number of others has the same bits, and NaN stays in its row. */
#include "check/check_cuda.h"
#include "kernel/linear/linear.h"
#include "kernel/linear/packed.h"
#include "kernel/linear/tiled.h"

typedef struct shape {
    size_t n_out, n_col, n_tok, n_batch;
    bool device; /* too slow for the emulation */
} shape;

static const shape shapes[] = {
    { 1, 1, 1, 1, false },       { 3, 7, 2, 1, false },       { 33, 48, 3, 1, false },
    { 17, 8, 5, 1, false },      { 16, 16, 9, 1, false },     { 70, 100, 4, 1, false },
    { 40, 128, 5, 3, false },    { 24, 144, 19, 2, false },   { 130, 272, 17, 1, false },
    { 1030, 64, 8, 1, false },   { 12, 1296, 33, 1, false },  { 65, 640, 70, 1, false },
    { 5, 2064, 1, 1, false },    { 100, 144, 4, 2, false },   { 129, 31, 6, 2, false },
    { 150, 656, 301, 1, true },  { 3072, 2048, 40, 1, true }, { 576, 2048, 260, 1, true },
    { 512, 128, 130, 16, true }, { 128, 512, 66, 16, true },  { 200, 10944, 77, 1, true },
    { 4096, 512, 300, 1, true }, { 64, 7168, 16, 1, true },   { 1000, 1000, 200, 1, true },
    { 1032, 24, 129, 1, true },  { 64, 2048, 64, 1, true },   { 2048, 2816, 48, 1, true },
    { 130, 1536, 33, 3, true },
};

static size_t rows(chk_row *out, size_t max)
{
    static const char *const kind[] = { [NB_CUDA_DIRECT] = "direct", [NB_CUDA_PROMPT] = "prompt" };
    size_t n = 0;
    for (const nb_cuda_linear_row *v = chk_gpu_api(NULL)->linear; v->name && n < max; v++)
        if (v->cc <= chk_gpu_info(NULL)->cc)
            out[n++] = (chk_row){ v->name, kind[v->kind], NB_SPACE_CUDA, 0, v };
    return n;
}

static double factor_of(const nb_weight *w, nb_cuda_kind kind, bool two, double n)
{
    /* K forms, x in two parts: two BF16 parts leave 2^-17 of x and of W out, the product of the lower parts that is not computed is up
     * to 2^-16 (512 in all), and there are three sums of 16 terms */
    if (kind == NB_CUDA_PROMPT && two && nb_stype_is_k(w->group.scale_type)) return 562 + 3 * n / 8;
    switch (w->type) {
    /* Tensor cores truncate each sum of 16 terms, by up to 2 units, once for either part. */
    case NB_W_BF16: return 170 + n / 4;
    case NB_W_INT8: return 10 + sqrt(n); /* simt */
    case NB_W_F32:
    case NB_W_F16: return 8 + sqrt(n);
    default: return 178 + n / 4;
    }
}

/* Whether a row wants INT8 tiled. */
static bool tiles(const nb_cuda_linear_row *v)
{
    return !v->can(NB_W_INT8, 8, 8, true);
}
/* Types whose products read x in parts. */
static bool in_parts(nb_wtype type)
{
    return type == NB_W_BF16 || type == NB_W_FP8B || nb_wtype_is_packed(type);
}

/* A case on the host and on the device. */
typedef struct kase {
    const nb_cuda_linear_row *v;
    shape s;
    nb_weight w, seen; /* of the host; chk_gpu_seen */
    const float *bias, *y0;
    float *x; /* [n_tok][x_cols] */
    size_t x_cols;
    nb_cuda_linear_args a;
    chk_codes xq; /* rows that read codes */
} kase;

static float max_scale(const nb_weight *w)
{
    const size_t n = w->type == NB_W_FP8B ? nb_weight_scale_bytes(w) / sizeof(float) : 0;
    float max = 1;
    for (size_t i = 0; i < n; i++) max = fmaxf(max, fabsf(w->scale[i]));
    return max;
}

/* Sums of codes: exact, and what the tensor cores may lose. */
static void expect_codes(chk *t, const kase *k, const float *y, size_t y_stride)
{
    const size_t n_out = k->s.n_out, n_y = k->s.n_tok * n_out;
    double *want = chk_f64(t, n_y), *bound = chk_f64(t, n_y);
    float *own = chk_raw(t, n_y * sizeof *own);
    for (size_t i = 0; i < n_y; i++) {
        const size_t tok = i / n_out, r = i % n_out;
        const double y0 = k->y0 ? (double)k->y0[tok * y_stride + r] : 0;
        chk_codes_sum(&k->xq, tok, &k->w, r, &want[i], &bound[i]);
        want[i] += (k->bias ? (double)k->bias[r] : 0) + y0;
        bound[i] += 0x1p-22 * (fabs(want[i]) + fabs(y0)) + 0x1p-126;
        own[i] = y[tok * y_stride + r];
    }
    chk_close(t, own, k->s.n_tok, n_out, n_out, want, bound);
}

/* y [n_tok][y_stride] of the host against the reference. */
static void expect(chk *t, const kase *k, const float *y, size_t y_stride)
{
    const shape *s = &k->s;
    const size_t n_y = s->n_tok * s->n_out, n_col = k->w.n_col;
    if (k->v->codes) {
        expect_codes(t, k, y, y_stride);
        return;
    }
    double *want = chk_f64(t, n_y), *bound = chk_f64(t, n_y);
    double *w_sum = chk_f64(t, s->n_out), *w_abs = chk_f64(t, s->n_out);
    float *ones = chk_raw(t, n_col * sizeof *ones), *own = chk_raw(t, n_y * sizeof *own);
    for (size_t c = 0; c < n_col; c++) ones[c] = 1;
    for (size_t b = 0; b < s->n_batch; b++) {
        const size_t row = b * k->a.w_batch;
        nb_linear_args ref = { .x = k->x + b * k->a.x_batch,
                               .w = k->seen,
                               .bias = k->bias,
                               .n_tok = s->n_tok,
                               .row_begin = row,
                               .row_end = row + s->n_out,
                               .x_stride = k->x_cols };
        nb_linear_ref(&ref, want, bound);
        for (size_t i = 0; i < s->n_tok; i++) {
            double x_abs = 0;
            for (size_t c = 0; c < n_col; c++) x_abs += fabs((double)ref.x[i * k->x_cols + c]);
            for (size_t r = 0; r < s->n_out; r++) {
                const size_t at = i * s->n_out + r;
                const double y0 = k->y0 ? (double)k->y0[i * y_stride + b * s->n_out + r] : 0;
                want[at] += y0;
                bound[at] =
                    factor_of(k->seen.type == NB_W_BF16 ? &k->seen : &k->a.w, k->v->kind, k->a.x.lo != NULL, (double)n_col) * 0x1p-24 * (bound[at] + fabs(y0)) +
                    0x1p-126 * (x_abs + (double)n_col * (4 + 4 * (double)max_scale(&k->w)));
            }
            memcpy(own + i * s->n_out, y + i * y_stride + b * s->n_out, s->n_out * sizeof *own);
        }
        ref.x = ones;
        ref.n_tok = 1;
        ref.bias = NULL;
        nb_linear_ref(&ref, w_sum, w_abs);
        for (size_t i = 0; i < n_y; i++) bound[i] += 0x1p-126 * w_abs[i % s->n_out];
        chk_close(t, own, s->n_tok, s->n_out, s->n_out, want, bound);
    }
}

/* Tokens [first, first + n) alone have the bits that they have among all. */
static void alone(chk *t, const kase *k, const float *all, size_t first, size_t n)
{
    const size_t y_cols = k->s.n_batch * k->s.n_out;
    nb_cuda_linear_args a = k->a;
    a.n_tok = n;
    a.x.f += first * a.x.stride;
    if (a.x.hi) a.x.hi += first * a.x.stride;
    if (a.x.lo) a.x.lo += first * a.x.stride;
    if (a.xq.q) a.xq.q += first * a.xq.stride, a.xq.s += first * a.xq.s_stride;
    a.y = chk_gpu_out_rows(t, n, a.y.stride, 0);
    chk_gpu_call(t, k->v->fn(chk_gpu(t), &a));
    const nb_cuda_rows y = chk_gpu_get_rows(t, &a.y, n);
    chk_same(t, "alone", all + first * a.y.stride, a.y.stride, y.f, a.y.stride, n, y_cols);
}

/* Some rows of the matrix alone, as on one of several devices: their bits. */
static void part(chk *t, const kase *k, const float *all)
{
    const bool blocks = k->w.type == NB_W_FP8B && !k->w.row_scales;
    const size_t unit = blocks ? NB_FP8_BLOCK : k->s.n_out % 8 == 0 ? 8 : 1, n_out = k->s.n_out;
    if (k->s.n_batch > 1 || n_out <= unit) return;
    const size_t first = chk_between(t, 0, (n_out - 1) / unit) * unit, most = n_out - first,
                 n = blocks ? chk_between(t, 1, most) : chk_between(t, 1, most / unit) * unit;
    const nb_weight w = nb_weight_rows(&k->w, first, n);
    nb_cuda_linear_args a = k->a;
    a.w = chk_gpu_weight(t, &w, tiles(k->v));
    if (a.bias) a.bias += first;
    a.n_out = n;
    a.n_whole = n_out;
    a.y = chk_gpu_out_rows(t, k->s.n_tok, (n + 7) / 8 * 8, 0);
    chk_gpu_call(t, k->v->fn(chk_gpu(t), &a));
    const nb_cuda_rows y = chk_gpu_get_rows(t, &a.y, k->s.n_tok);
    chk_same(t, "a part of the matrix", all + first, k->a.y.stride, y.f, a.y.stride, k->s.n_tok, n);
}

/* NaN in one token. */
static void poisoned(chk *t, const kase *k, const float *all)
{
    const size_t y_cols = k->s.n_batch * k->s.n_out, bad = chk_between(t, 0, k->s.n_tok - 1);
    nb_cuda_linear_args a = k->a;
    float *x = chk_copy(t, k->x, k->s.n_tok * k->x_cols * sizeof *x, false);
    for (size_t c = 0; c < k->x_cols; c += k->w.n_col) x[bad * k->x_cols + c] = NAN;
    a.x = chk_gpu_in_rows(t, x, k->s.n_tok, k->x_cols, a.x.stride,  a.x.lo ? 2 : a.x.hi ? 1 : 0);
    if (k->v->codes) (void)chk_gpu_codes(t, x, k->s.n_tok, k->w.n_col, k->x_cols, &a.xq);
    a.y = chk_gpu_out_rows(t, k->s.n_tok, a.y.stride, 0);
    chk_gpu_call(t, k->v->fn(chk_gpu(t), &a));
    const nb_cuda_rows y = chk_gpu_get_rows(t, &a.y, k->s.n_tok);
    for (size_t i = 0; i < k->s.n_tok; i++) {
        const float *got = y.f + i * a.y.stride;
        if (i != bad)
            chk_same(t, "beside NaN", all + i * a.y.stride, 0, got, 0, 1, y_cols);
        else if (!isnan(got[0]) || !isnan(got[k->s.n_out - 1]))
            chk_fail(t, "a token with NaN gives %.9g", (double)got[0]);
    }
}

static void make(chk *t, kase *k, nb_wtype type, chk_pattern p, int parts)
{
    const shape *s = &k->s;
    nb_cuda_linear_args *a = &k->a;
    a->n_tok = s->n_tok;
    a->n_batch = s->n_batch;
    a->n_out = s->n_out;
    a->w_batch = s->n_batch > 1 ? s->n_out + chk_between(t, 0, 5) : s->n_out;
    a->x_batch = (s->n_col + 7) / 8 * 8;
    a->y_batch = s->n_out;
    k->x_cols = (s->n_batch - 1) * a->x_batch + s->n_col;
    k->w = chk_gpu_draw(t, type, (s->n_batch - 1) * a->w_batch + s->n_out, s->n_col, p);
    if (type == NB_W_FP8B && chk_u64(t) % 2) chk_row_scales(t, &k->w);
    a->w = chk_gpu_weight(t, &k->w, tiles(k->v));
    k->x = chk_raw(t, s->n_tok * k->x_cols * sizeof *k->x);
    chk_fill(t, k->x, s->n_tok * k->x_cols, p);
    const size_t x_stride = (k->x_cols + 7) / 8 * 8 + 8 * chk_between(t, 0, 2);
    a->x = chk_gpu_in_rows(t, k->x, s->n_tok, k->x_cols, x_stride, parts);
    k->seen = chk_gpu_seen(t, &k->w, &a->w, k->v->name, k->v->kind, parts == 2);
    if (k->v->codes) k->xq = chk_gpu_codes(t, k->x, s->n_tok, s->n_col, k->x_cols, &a->xq);
    if (s->n_batch == 1 && chk_u64(t) % 2) {
        float *bias = chk_raw(t, s->n_out * sizeof *bias);
        chk_fill(t, bias, s->n_out, p);
        k->bias = bias;
        a->bias = chk_gpu_in(t, bias, s->n_out * sizeof *bias);
    }
}

static void one_case(chk *t, const nb_cuda_linear_row *v, const shape *s, nb_wtype type,
                     chk_pattern p)
{
    kase k = { .v = v, .s = *s };
    const bool parts = in_parts(chk_gpu_type(type, tiles(v))), add = chk_u64(t) % 4 == 0;
    make(t, &k, type, p, parts ? v->codes ? 1 : (int)chk_between(t, 1, 2) : 0);
    const size_t y_cols = s->n_batch * s->n_out, n = s->n_tok;
    const size_t y_stride = (y_cols + 7) / 8 * 8 + 8 * chk_between(t, 0, 1);
    k.a.y = chk_gpu_out_rows(t, n, y_stride, (int)chk_between(t, 0, 2));
    float *y0 = NULL;
    if (add) {
        y0 = chk_raw(t, n * y_stride * sizeof *y0);
        chk_fill(t, y0, n * y_stride, p);
        k.a.y =
            (nb_cuda_rows){ chk_gpu_inout(t, y0, n * y_stride * sizeof *y0), NULL, NULL, y_stride };
        k.y0 = y0;
        k.a.add = true;
    }
    chk_gpu_call(t, v->fn(chk_gpu(t), &k.a));
    const nb_cuda_rows y = chk_gpu_get_rows(t, &k.a.y, n);
    expect(t, &k, y.f, y_stride);
    chk_gpu_parts(t, &y, n, y_cols);
    for (size_t i = 0; i < n && y_cols < y_stride; i++) {
        const uint32_t canary = 0x7fa5a5a5;
        const void *was = add ? (const void *)(y0 + i * y_stride + y_cols) : &canary;
        if (memcmp(y.f + i * y_stride + y_cols, was, sizeof canary))
            chk_fail(t, "wrote into the gap behind row %zu", i);
    }
    if (t->failed || add) return;
    for (size_t m = 1; m < n; m = 2 * m + 1 + m / 8) alone(t, &k, y.f, chk_between(t, 0, n - m), m);
    part(t, &k, y.f);
    poisoned(t, &k, y.f);
}

static void test(chk *t, const chk_row *row)
{
    const nb_cuda_linear_row *v = row->row;
    size_t seen = 0;
    for (size_t i = 0; i < NB_COUNT(shapes); i++)
        for (nb_wtype w = 0; w < NB_W_TYPE_COUNT; w++) {
            const shape *s = &shapes[i];
            if (s->device && chk_gpu_info(t)->emulated) continue;
            if (v->codes && s->n_batch > 1) continue;
            /* the references of large shapes take long: each has one or two of these types */
            if (s->device && w >= NB_W_INT8 && (i + w) % 8) continue;
            const nb_wtype there = chk_gpu_type(w, tiles(v));
            if (there == NB_W_TYPE_COUNT || !v->can(there, s->n_out, s->n_col, true)) continue;
            const chk_pattern p = (chk_pattern)(seen++ % CHK_PATTERN_COUNT);
            if (chk_case(t, "%zux%zu, %zu tok, %zu batches, type=%d %s", s->n_out, s->n_col,
                         s->n_tok, s->n_batch, (int)w, chk_pattern_name(p)))
                one_case(t, v, s, w, p);
        }
}

/* ---- times ---- */

typedef struct job {
    chk *t;
    const nb_cuda_linear_row *v;
    nb_cuda_linear_args a;
} job;

static void call(void *ctx)
{
    const job *j = ctx;
    j->v->fn(chk_gpu(j->t), &j->a);
}

static void bench_one(chk *t, const nb_cuda_linear_row *v, nb_wtype type, const shape *s)
{
    char label[64];
    const nb_wtype there = chk_gpu_type(type, true);
    if (!v->can(there, s->n_out, s->n_col, true) || !chk_case(t, "bench")) return;
    const bool parts = in_parts(there);
    const double n = (double)(s->n_out * s->n_batch) * (double)s->n_col;
    kase k = { .v = v, .s = *s };
    make(t, &k, type, CHK_NORMAL, v->codes ? 1 : parts ? 2 : 0);
    job j = { t, v, k.a };
    j.a.y = chk_gpu_out_rows(t, s->n_tok, (s->n_batch * s->n_out + 7) / 8 * 8, 0);
    snprintf(label, sizeof label, "%s %zux%zu, %zu tok", nb_wtypes[type].word,
             s->n_out * s->n_batch, s->n_col, s->n_tok);
    chk_gpu_time(t, label, (double)nb_weight_bytes(&k.w),
                 (parts && !v->codes ? 4.0 : 2.0) * n * (double)s->n_tok, call, &j);
}

/* Shapes of DeepSeek-V2-Lite. */
static void bench(chk *t, const chk_row *row)
{
    static const shape direct[] = { { 3072, 2048, 1, 1, true },   { 576, 2048, 1, 1, true },
                                    { 512, 128, 1, 16, true },    { 128, 512, 1, 16, true },
                                    { 2048, 2048, 1, 1, true },   { 2048, 10944, 1, 1, true },
                                    { 3072, 2048, 8, 1, true },   { 3072, 2048, 16, 1, true },
                                    { 3072, 2048, 64, 1, true },  { 512, 128, 64, 16, true },
                                    { 576, 2048, 64, 1, true },   { 64, 2048, 64, 1, true },
                                    { 3072, 2048, 1024, 1, true } };
    static const shape prompt[] = { { 3072, 2048, 512, 1, true },  { 576, 2048, 4096, 1, true },
                                    { 3072, 2048, 4096, 1, true }, { 2048, 2048, 4096, 1, true },
                                    { 4096, 512, 4096, 1, true },  { 5632, 2048, 4096, 1, true } };
    const nb_cuda_linear_row *v = row->row;
    if (chk_gpu_info(t)->emulated) return;
    const bool d = v->kind == NB_CUDA_DIRECT;
    static const nb_wtype types[] = { NB_W_BF16, NB_W_FP8B, NB_W_Q4_0, NB_W_Q8_0, NB_W_GGUF_NVFP4 };
    for (size_t y = 0; y < NB_COUNT(types); y++)
        for (size_t i = 0; i < (d ? NB_COUNT(direct) : NB_COUNT(prompt)); i++)
            if (strcmp(v->name, "simt") || i < 2)
                bench_one(t, v, types[y], d ? &direct[i] : &prompt[i]);
}

/* ---- planted bugs ---- */

static void by_name(const char *name, nb_cuda *g, const nb_cuda_linear_args *a)
{
    for (const nb_cuda_linear_row *v = chk_gpu_api(NULL)->linear; v->name; v++)
        if (strcmp(v->name, name) == 0) {
            v->fn(g, a);
            return;
        }
}
static bool bf16_only(nb_wtype type, size_t n_out, size_t n_col, bool two_parts)
{
    (void)n_out;
    (void)two_parts;
    return type == NB_W_BF16 && n_col % 8 == 0;
}
static bool fp8_only(nb_wtype type, size_t n_out, size_t n_col, bool two_parts)
{
    (void)n_out;
    (void)two_parts;
    return type == NB_W_FP8B && n_col % 16 == 0;
}
static void no_low_part(nb_cuda *g, const nb_cuda_linear_args *a)
{
    nb_cuda_linear_args b = *a;
    b.x.lo = NULL;
    by_name("mma", g, &b);
}
static void by_count(nb_cuda *g, const nb_cuda_linear_args *a)
{
    by_name(a->n_tok == 1 ? "simt" : "mma", g, a);
}
static void scales_from_batch(nb_cuda *g, const nb_cuda_linear_args *a)
{
    nb_cuda_linear_args b = *a;
    b.n_batch = 1;
    for (size_t i = 0; i < a->n_batch; i++) {
        b.w.data = (const unsigned char *)a->w.data + i * a->w_batch * a->w.n_col;
        b.x.hi = a->x.hi + i * a->x_batch;
        b.x.lo = a->x.lo ? a->x.lo + i * a->x_batch : NULL;
        b.y = a->y;
        b.y.f += i * a->y_batch;
        if (b.y.hi) b.y.hi += i * a->y_batch;
        if (b.y.lo) b.y.lo += i * a->y_batch;
        by_name("mma", g, &b);
    }
}
static void one_token_less(nb_cuda *g, const nb_cuda_linear_args *a)
{
    nb_cuda_linear_args b = *a;
    if (b.n_tok > 16) b.n_tok--;
    by_name("mma", g, &b);
}

#define BUG(what, expect, can, fn)                                                                 \
    {                                                                                              \
        what, expect,                                                                              \
        {                                                                                          \
            "broken", "", NB_SPACE_CUDA, 0, &(const nb_cuda_linear_row)                            \
            {                                                                                      \
                "broken", 80, NB_CUDA_DIRECT, false, can, fn, false                                      \
            }                                                                                      \
        }                                                                                          \
    }
static const chk_broken broken[] = {
    BUG("the low part is forgotten", "expected", bf16_only, no_low_part),
    BUG("the number of tokens decides the kernel", "alone", bf16_only, by_count),
    BUG("scales counted from the batch", "expected", fp8_only, scales_from_batch),
    BUG("the last of many tokens is forgotten", "expected", bf16_only, one_token_less),
    { 0 },
};

const chk_op chk_cuda_linear = { "cuda_linear", rows, test, bench, broken };
