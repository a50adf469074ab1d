/* check_cuda_experts.c - experts' products on a device: every row of the table against sums in double, as the
 * router orders them: places by expert, experts without a token and one with most of them.  Then the promise: a
 * token alone has the bits that it has among others.  One expert for all tokens goes without a list, and has the
 * bits of one with a list. */
#include "check/check_cuda.h"
#include "kernel/linear/linear.h"
#include "kernel/linear/packed.h"
#include "kernel/linear/tiled.h"

typedef struct shape {
    size_t n_expert, n_out, n_col, n_tok, top_k;
    bool device; /* too slow for the emulation */
} shape;

static const shape shapes[] = {
    { 1, 3, 7, 2, 1, false },       { 4, 33, 48, 3, 2, false },     { 40, 24, 144, 11, 3, false },
    { 3, 72, 272, 45, 2, false },   { 70, 16, 64, 19, 6, false },   { 2, 130, 128, 20, 1, false },
    { 5, 20, 100, 40, 4, false },   { 2, 17, 16, 150, 2, false },   { 8, 1408, 2048, 7, 6, true },
    { 1, 33, 48, 21, 1, false },    { 1, 130, 272, 3, 1, false },   { 1, 2816, 2048, 5, 1, true },
    { 1, 300, 256, 150, 1, true },  { 8, 200, 1408, 90, 3, true },  { 6, 150, 656, 500, 2, true },
    { 64, 256, 256, 300, 6, true }, { 1, 1000, 2048, 64, 1, true }, { 8, 200, 1408, 16, 6, true },
    { 8, 130, 640, 10, 6, true },   { 16, 40, 272, 40, 3, false },  { 64, 64, 1024, 64, 6, true },
};

/* The places of a step. */
typedef struct order {
    uint32_t *first, *src; /* [n_expert + 1], [n_tok * top_k] */
} order;

static size_t rows(chk_row *out, size_t max)
{
    static const char *const kind[] = { [NB_CUDA_DIRECT] = "direct", [NB_CUDA_PROMPT] = "prompt" };
    size_t n = 0;
    for (const nb_cuda_experts_row *v = chk_gpu_api(NULL)->experts; v->name && n < max; v++)
        if (v->cc <= chk_gpu_info(NULL)->cc)
            out[n++] = (chk_row){ v->name, kind[v->kind], NB_SPACE_CUDA, 0, v };
    return n;
}

/* Choice of token i, distinct experts: expert 0 is the favourite, the last one has none if it can. */
static order route(chk *t, const shape *s)
{
    const size_t n_place = s->n_tok * s->top_k;
    const size_t n = s->n_expert > s->top_k ? s->n_expert - 1 : s->n_expert;
    order o = { chk_raw(t, (s->n_expert + 1) * sizeof *o.first),
                chk_raw(t, n_place * sizeof *o.src) };
    bool *has = chk_raw(t, s->n_expert * s->n_tok * sizeof *has);
    memset(has, 0, s->n_expert * s->n_tok * sizeof *has);
    for (size_t i = 0; i < s->n_tok; i++)
        for (size_t k = 0; k < s->top_k;) {
            const size_t e = chk_u64(t) % 3 == 0 ? 0 : chk_between(t, 0, n - 1);
            if (has[e * s->n_tok + i]) continue;
            has[e * s->n_tok + i] = true;
            k++;
        }
    uint32_t at = 0;
    for (size_t e = 0; e < s->n_expert; e++) {
        o.first[e] = at;
        for (size_t i = 0; i < s->n_tok; i++)
            if (has[e * s->n_tok + i]) o.src[at++] = (uint32_t)i;
    }
    o.first[s->n_expert] = at;
    return o;
}

/* Whether a row wants INT8 tiled. */
static bool tiles(const nb_cuda_experts_row *v)
{
    return !v->can(NB_W_INT8, 8, 8);
}
static bool in_parts(nb_wtype type)
{
    return type == NB_W_BF16 || type == NB_W_FP8B || nb_wtype_is_packed(type);
}

/* Rows [at, at + n) of a matrix whose scales are per row or group. */
static nb_weight rows_of(const nb_weight *w, size_t at, size_t n)
{
    nb_weight y = *w;
    const size_t n_group = w->group.scale ? nb_weight_n_group(w) : 0;
    y.n_row = n;
    y.data = (const char *)w->data + at * nb_wtype_row_bytes(w->type, w->n_col);
    if (w->scale) y.scale = w->scale + at;
    if (n_group)
        y.group.scale =
            (const char *)w->group.scale + at * n_group * nb_stype_bytes(w->group.scale_type);
    if (w->group.zero) y.group.zero = w->group.zero + at * n_group;
    return y;
}

/* The experts' matrices, each with scales of its own, and all of them on the device. */
static nb_weight weights(chk *t, const shape *s, nb_wtype type, bool tile, bool rows, chk_pattern p,
                         nb_weight *each)
{
    const nb_weight all = chk_gpu_draw(t, type, s->n_out * s->n_expert, s->n_col, p);
    nb_weight w = all;
    if (rows) chk_row_scales(t, &w);
    if (type != NB_W_FP8B || rows) { /* rows: FP8 with a scale per row */
        for (size_t e = 0; e < s->n_expert; e++) each[e] = rows_of(&w, e * s->n_out, s->n_out);
        return chk_gpu_weight(t, &w, tile);
    }
    /* blocks begin anew with each expert */
    const size_t n_scale = (s->n_out + 127) / 128 * ((s->n_col + 127) / 128);
    float *scale = chk_raw(t, s->n_expert * n_scale * sizeof *scale);
    chk_fill(t, scale, s->n_expert * n_scale, CHK_NORMAL);
    for (size_t i = 0; i < s->n_expert * n_scale; i++) scale[i] = 0.01f + 0.01f * fabsf(scale[i]);
    for (size_t e = 0; e < s->n_expert; e++)
        each[e] = (nb_weight){ .data = (const char *)all.data + e * s->n_out * s->n_col,
                               .scale = scale + e * n_scale,
                               .n_row = s->n_out,
                               .n_col = s->n_col,
                               .type = type };
    w.data = chk_gpu_in(t, all.data, s->n_expert * s->n_out * s->n_col);
    w.scale = chk_gpu_in(t, scale, s->n_expert * n_scale * sizeof *scale);
    return w;
}

static double factor_of(const nb_weight *w, nb_cuda_kind kind, bool two, double n)
{
    /* as in check_cuda_linear.c */
    if (kind == NB_CUDA_PROMPT && two && nb_stype_is_k(w->group.scale_type)) return 562 + 3 * n / 8;
    switch (w->type) {
    case NB_W_BF16: return 170 + n / 4;
    case NB_W_FP8B: return 176 + n / 128;
    case NB_W_INT8: return 10 + sqrt(n); /* simt */
    case NB_W_F32:
    case NB_W_F16: return 8 + sqrt(n);
    default: return 178 + n / 4;
    }
}

/* A case on the host and on the device. */
typedef struct kase {
    const nb_cuda_experts_row *v;
    shape s;
    order o;
    nb_weight *w[2];
    float *x; /* [n_tok or n_place][n_col] */
    nb_cuda_experts_args a;
    chk_codes xq; /* rows that read codes */
} kase;

/* What SwiGLU makes of g and u known up to dg and du, limited first (0: not): |silu'| <= 1.1, |silu(g)| <= |g|. */
static double swiglu(double g, double dg, double u, double du, double limit, double *bound)
{
    if (limit > 0) {
        g = g > limit ? limit : g;
        u = u > limit ? limit : u < -limit ? -limit : u;
    }
    const double silu = g / (1 + exp(-g)), y = silu * u;
    *bound = 1.1 * dg * (fabs(u) + du) + fabs(silu) * du + 8 * 0x1p-24 * fabs(y) +
             0x1p-126 * (1 + fabs(u));
    return y;
}

/* As expect, for codes. */
static void expect_codes(chk *t, const kase *k, const float *y, size_t y_stride)
{
    const shape *s = &k->s;
    const size_t n_place = s->n_tok * s->top_k;
    double *want = chk_f64(t, n_place * s->n_out), *bound = chk_f64(t, n_place * s->n_out);
    for (size_t e = 0; e < s->n_expert; e++)
        for (size_t p = k->o.first[e]; p < k->o.first[e + 1]; p++)
            for (size_t r = 0; r < s->n_out; r++) {
                double *w = want + p * s->n_out + r, *b = bound + p * s->n_out + r, up, lost;
                const size_t row = k->a.src ? k->o.src[p] : p;
                chk_codes_sum(&k->xq, row, &k->w[0][e], r, w, b);
                *b += 0x1p-126;
                if (!k->w[1]) continue;
                chk_codes_sum(&k->xq, row, &k->w[1][e], r, &up, &lost);
                *w = swiglu(*w, *b, up, lost + 0x1p-126, (double)k->a.limit, b);
            }
    chk_close(t, y, n_place, s->n_out, y_stride, want, bound);
}

static void expect(chk *t, const kase *k, const float *y, size_t y_stride)
{
    if (k->v->codes) {
        expect_codes(t, k, y, y_stride);
        return;
    }
    const shape *s = &k->s;
    const size_t n_place = s->n_tok * s->top_k;
    const nb_weight *first = k->w[0][0].type == NB_W_BF16 ? &k->w[0][0] : &k->a.gate; /* with its rounding */
    const double f = factor_of(first, k->v->kind, k->a.x.lo != NULL, (double)s->n_col) * 0x1p-24;
    double *want = chk_f64(t, n_place * s->n_out), *bound = chk_f64(t, n_place * s->n_out);
    double *up = chk_f64(t, s->n_out), *up_sum = chk_f64(t, s->n_out);
    for (size_t e = 0; e < s->n_expert; e++)
        for (size_t p = k->o.first[e]; p < k->o.first[e + 1]; p++) {
            double *w = want + p * s->n_out, *b = bound + p * s->n_out, x_abs = 0;
            nb_linear_args ref = { .x = k->x + (k->a.src ? k->o.src[p] : p) * s->n_col,
                                   .w = k->w[0][e],
                                   .n_tok = 1,
                                   .row_end = s->n_out };
            for (size_t c = 0; c < s->n_col; c++) x_abs += fabs((double)ref.x[c]) + 512;
            nb_linear_ref(&ref, w, b);
            ref.w = k->w[1] ? k->w[1][e] : ref.w;
            if (k->w[1]) nb_linear_ref(&ref, up, up_sum);
            for (size_t r = 0; r < s->n_out; r++) {
                const double small = 0x1p-126 * x_abs;
                b[r] = f * b[r] + small;
                if (k->w[1]) w[r] = swiglu(w[r], b[r], up[r], f * up_sum[r] + small, (double)k->a.limit, &b[r]);
            }
        }
    chk_close(t, y, n_place, s->n_out, y_stride, want, bound);
}

/* Tokens [tok, tok + n) alone. */
static void alone(chk *t, const kase *k, const float *all, size_t tok, size_t n)
{
    const shape *s = &k->s;
    uint32_t *first = chk_raw(t, (s->n_expert + 1) * sizeof *first), at = 0;
    uint32_t *src = chk_raw(t, n * s->top_k * sizeof *src),
             *was = chk_raw(t, n * s->top_k * sizeof *was);
    for (size_t e = 0; e < s->n_expert; e++) {
        first[e] = at;
        for (uint32_t p = k->o.first[e]; p < k->o.first[e + 1]; p++)
            if (k->o.src[p] >= tok && k->o.src[p] < tok + n) {
                was[at] = p;
                src[at++] = k->o.src[p];
            }
    }
    first[s->n_expert] = at;
    nb_cuda_experts_args a = k->a;
    a.n_tok = n;
    a.n_place = at;
    a.first = chk_gpu_in(t, first, (s->n_expert + 1) * sizeof *first);
    a.src = chk_gpu_in(t, src, at * sizeof *src);
    a.y = chk_gpu_out_rows(t, at, a.y.stride, 0);
    chk_gpu_call(t, k->v->fn(chk_gpu(t), &a));
    const nb_cuda_rows y = chk_gpu_get_rows(t, &a.y, at);
    for (uint32_t i = 0; i < at; i++)
        chk_same(t, "alone", all + was[i] * a.y.stride, 0, y.f + i * a.y.stride, 0, 1, s->n_out);
}

/* What is multiplied: gate and up of chosen tokens with SwiGLU, down of places, or one matrix of chosen tokens. */
typedef enum product { GATE_UP, DOWN, GATE } product;
static const char *const product_word[] = { "", " down", " gate" };

static void one_case(chk *t, const nb_cuda_experts_row *v, const shape *s, nb_wtype type, product what,
                     chk_pattern p)
{
    kase k = { .v = v, .s = *s, .o = route(t, s) };
    const bool parts = in_parts(chk_gpu_type(type, tiles(v)));
    const size_t n_place = s->n_tok * s->top_k, n_x = what == DOWN ? n_place : s->n_tok;
    for (int m = 0; m < (what == GATE_UP ? 2 : 1); m++) k.w[m] = chk_raw(t, s->n_expert * sizeof *k.w[m]);
    nb_cuda_experts_args *a = &k.a;
    const bool rows = type == NB_W_FP8B && chk_u64(t) % 2;
    a->gate = weights(t, s, type, tiles(v), rows, p, k.w[0]);
    if (what == GATE_UP) a->up = weights(t, s, type, tiles(v), rows, p, k.w[1]);
    k.x = chk_raw(t, n_x * s->n_col * sizeof *k.x);
    chk_fill(t, k.x, n_x * s->n_col, p);
    a->x = chk_gpu_in_rows(t, k.x, n_x, s->n_col, (s->n_col + 7) / 8 * 8 + 8 * chk_between(t, 0, 1),
                           v->codes ? 1 : parts ? (int)chk_between(t, 1, 2) : 0);
    if (v->codes) k.xq = chk_gpu_codes(t, k.x, n_x, s->n_col, s->n_col, &a->xq);
    for (size_t i = 0; i < 2 * s->n_expert; i++) {
        nb_weight *w = k.w[i % 2] ? &k.w[i % 2][i / 2] : NULL;
        if (w) *w = chk_gpu_seen(t, w, i % 2 ? &a->up : &a->gate, v->name, v->kind, a->x.lo != NULL);
    }
    a->y = chk_gpu_out_rows(t, n_place, (s->n_out + 7) / 8 * 8 + 8 * chk_between(t, 0, 1),
                            what == GATE_UP ? (int)chk_between(t, 0, 2) : 0);
    const bool list = s->n_expert > 1 || v->kind != NB_CUDA_DIRECT;
    if (list) a->first = chk_gpu_in(t, k.o.first, (s->n_expert + 1) * sizeof *k.o.first);
    if (list && what != DOWN) a->src = chk_gpu_in(t, k.o.src, n_place * sizeof *k.o.src);
    a->n_expert = s->n_expert;
    a->n_out = s->n_out;
    a->n_tok = s->n_tok;
    a->n_place = n_place;
    if (what == GATE_UP && chk_u64(t) % 3 == 0) a->limit = (float)(chk_unit(t) * 2 + 0.1);
    chk_gpu_call(t, v->fn(chk_gpu(t), a));
    const nb_cuda_rows y = chk_gpu_get_rows(t, &a->y, n_place);
    expect(t, &k, y.f, a->y.stride);
    chk_gpu_parts(t, &y, n_place, s->n_out);
    if (t->failed || what == DOWN) return;
    for (size_t n = 1; n < s->n_tok; n = 3 * n + 1)
        alone(t, &k, y.f, chk_between(t, 0, s->n_tok - n), n);
}

static void test(chk *t, const chk_row *row)
{
    /* Sizes whose products of gate and up do not overflow. */
    static const chk_pattern patterns[] = { CHK_NORMAL,  CHK_TINY, CHK_ZERO, CHK_ALTERN,
                                            CHK_OUTLIER, CHK_TIES, CHK_CONST };
    const nb_cuda_experts_row *v = row->row;
    size_t seen = 0;
    for (size_t i = 0; i < NB_COUNT(shapes); i++)
        for (nb_wtype w = 0; w < NB_W_TYPE_COUNT; w++)
            for (product what = GATE_UP; what <= GATE; what++) {
                const shape *s = &shapes[i];
                if (s->device && w >= NB_W_INT8 && (i + w) % 8) continue; /* as check_cuda_linear.c */
                if (what == GATE && chk_gpu_info(t)->emulated && (i + w) % 4) continue;
                const nb_wtype there = chk_gpu_type(w, tiles(v));
                if ((s->device && chk_gpu_info(t)->emulated) || there == NB_W_TYPE_COUNT ||
                    !v->can(there, s->n_out, s->n_col))
                    continue;
                const chk_pattern p = patterns[seen++ % NB_COUNT(patterns)];
                if (chk_case(t, "%zu x %zux%zu, %zu tok, top %zu, type=%d%s %s", s->n_expert,
                             s->n_out, s->n_col, s->n_tok, s->top_k, (int)w, product_word[what],
                             chk_pattern_name(p)))
                    one_case(t, v, s, w, what, p);
            }
}

/* ---- times ---- */

typedef struct job {
    chk *t;
    const nb_cuda_experts_row *v;
    nb_cuda_experts_args a;
} job;

static void call(void *ctx)
{
    const job *j = ctx;
    j->v->fn(chk_gpu(j->t), &j->a);
}

/* Random bytes as weights of all experts are enough for times. */
static void bench_one(chk *t, const nb_cuda_experts_row *v, nb_wtype type, size_t n_tok)
{
    const shape s = {
        16, 1408, 2048, n_tok, 6, true
    }; /* a quarter of DeepSeek-V2-Lite's experts */
    char label[64];
    if (!v->can(chk_gpu_type(type, true), s.n_out, s.n_col) || !chk_case(t, "bench")) return;
    kase k = { .v = v, .s = s, .o = route(t, &s) };
    nb_weight *each = chk_raw(t, s.n_expert * sizeof *each);
    job j = { .t = t, .v = v };
    j.a.gate = weights(t, &s, type, true, false, CHK_NORMAL, each);
    j.a.up = weights(t, &s, type, true, false, CHK_NORMAL, each);
    k.x = chk_raw(t, n_tok * s.n_col * sizeof *k.x);
    chk_fill(t, k.x, n_tok * s.n_col, CHK_NORMAL);
    j.a.x = chk_gpu_in_rows(t, k.x, n_tok, s.n_col, s.n_col, 2);
    if (v->codes) (void)chk_gpu_codes(t, k.x, n_tok, s.n_col, s.n_col, &j.a.xq);
    j.a.y = chk_gpu_out_rows(t, n_tok * s.top_k, s.n_out, 2);
    j.a.y.f = NULL;
    j.a.first = chk_gpu_in(t, k.o.first, (s.n_expert + 1) * sizeof *k.o.first);
    j.a.src = chk_gpu_in(t, k.o.src, n_tok * s.top_k * sizeof *k.o.src);
    j.a.n_expert = s.n_expert;
    j.a.n_out = s.n_out;
    j.a.n_tok = n_tok;
    j.a.n_place = n_tok * s.top_k;
    size_t active = 0;
    for (size_t e = 0; e < s.n_expert; e++) active += k.o.first[e] != k.o.first[e + 1];
    const double n = 2.0 * (double)(s.n_out * s.n_col);
    snprintf(label, sizeof label, "%s gate and up, %zu tok", nb_wtypes[type].word, n_tok);
    chk_gpu_time(t, label, 2.0 * (double)(active * nb_weight_bytes(&each[0])),
                 4 * n * (double)(n_tok * s.top_k), call, &j);
}

static void bench(chk *t, const chk_row *row)
{
    const nb_cuda_experts_row *v = row->row;
    if (chk_gpu_info(t)->emulated || strcmp(v->name, "simt") == 0) return;
    static const nb_wtype types[] = { NB_W_BF16, NB_W_FP8B, NB_W_Q4_0, NB_W_Q8_0, NB_W_GGUF_NVFP4 };
    for (size_t i = 0; i < NB_COUNT(types); i++) {
        bench_one(t, v, types[i], v->kind == NB_CUDA_DIRECT ? 1 : 256);
        bench_one(t, v, types[i], v->kind == NB_CUDA_DIRECT ? 16 : 1024);
    }
}

const chk_op chk_cuda_experts = { "cuda_experts", rows, test, bench, NULL };
