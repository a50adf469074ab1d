/* check_cuda_index.c - an indexer of sparse attention on a device: what follows its projections, against the definition
 * in double, and the exact top k, against the host's. */
#include "check/check_cuda.h"
#include "kernel/index_topk/index_topk.h"
#include "num/fp16.h"

/* ---- queries and keys ---- */

typedef struct finish_case {
    size_t n_tok, n_head, dim, d_rope;
    bool interleaved, last; /* last: queries alone, the last values turned, no transform */
} finish_case;

/* LayerNorm where norm is given, rotation, Hadamard transform; *size: what errors are relative to. */
static void finish_ref(const finish_case *c, const float *x, const float *norm, const float *bias, const float *cs,
                       double *y, double *size)
{
    const size_t n = c->dim, half = c->d_rope / 2;
    double mean = 0, var = 0;
    for (size_t i = 0; i < n; i++) y[i] = (double)x[i];
    for (size_t i = 0; i < n; i++) mean += y[i] / (double)n;
    for (size_t i = 0; i < n; i++) var += (y[i] - mean) * (y[i] - mean) / (double)n;
    for (size_t i = 0; norm && i < n; i++)
        y[i] = (y[i] - mean) / sqrt(var + 1e-6) * (double)norm[i] + (double)bias[i];
    for (size_t j = 0; j < half; j++) {
        const size_t from = c->last ? n - c->d_rope : 0;
        const size_t a = from + (c->interleaved ? 2 * j : j), b = c->interleaved ? a + 1 : a + half;
        const double u = y[a], v = y[b];
        y[a] = u * (double)cs[j] - v * (double)cs[half + j];
        y[b] = v * (double)cs[j] + u * (double)cs[half + j];
    }
    *size = 0;
    for (size_t i = 0; i < n; i++) *size += fabs(y[i]);
    if (n & (n - 1) || c->last) return;
    for (size_t h = 1; h < n; h *= 2)
        for (size_t i = 0; i < n / 2; i++) {
            const size_t j = i / h * 2 * h + i % h;
            const double u = y[j], v = y[j + h];
            y[j] = u + v;
            y[j + h] = u - v;
        }
    for (size_t i = 0; i < n; i++) y[i] /= sqrt((double)n);
}

static void check_rows(chk *t, const finish_case *c, const char *what, const float *got, size_t stride, const float *x,
                       size_t n_vec, size_t per_tok, const float *norm, const float *bias, const float *cs)
{
    double *want = chk_f64(t, c->dim), size;
    for (size_t v = 0; v < n_vec; v++) {
        finish_ref(c, x + v * stride, norm, bias, cs + v / per_tok * c->d_rope, want, &size);
        for (size_t i = 0; i < c->dim; i++) {
            const double off = fabs((double)got[v * stride + i] - want[i]), most = 0x1p-20 * size + 1e-30;
            chk_worst(t, off / most);
            if (!(off <= most)) {
                chk_fail(t, "%s %zu, value %zu: %g instead of %g", what, v, i, (double)got[v * stride + i], want[i]);
                return;
            }
        }
    }
}

/* The packed form times its power of two is the query up to FP16's rounding. */
static void check_packed(chk *t, const finish_case *c, const float *q, const float *w, const uint16_t *q16, const float *w16)
{
    const size_t nh = NB_CUDA_INDEX_HEADS(c->n_head);
    for (size_t e = 0; e < c->n_tok * nh; e++) {
        const size_t tok = e / nh, h = e % nh;
        const bool there = h < c->n_head;
        const float *x = q + (tok * c->n_head + (there ? h : 0)) * c->dim;
        const double by = there ? (double)w16[e] / (double)w[tok * c->n_head + h] : 0;
        double top = 0;
        for (size_t i = 0; there && i < c->dim; i++) top = fmax(top, fabs((double)x[i]));
        if (!there && w16[e] != 0) chk_fail(t, "a weight of head %zu, which does not exist", h);
        if (there && top > 0 && !(top / by >= 0x1p13 && top / by < 0x1p14))
            chk_fail(t, "the largest value of head %zu becomes %g", h, top / by);
        for (size_t i = 0; i < c->dim; i++) {
            const uint16_t bits = q16[e * c->dim + i / 64 * 64 + NB_CUDA_INDEX_PLACE(i % 64)];
            const double v = (double)nb_fp16_to_f32(bits) * by, want = there ? (double)x[i] : 0;
            if (!(fabs(v - want) <= 0x1p-11 * fabs(want) + 0x1p-37 * top)) {
                chk_fail(t, "packed head %zu, value %zu: %g instead of %g", h, i, v, want);
                return;
            }
        }
    }
}

static void one_finish(chk *t, const finish_case *c, chk_pattern p)
{
    const size_t stride = c->dim + 2 * chk_between(t, 0, 7), nq = c->n_tok * c->n_head * c->dim, nw = c->n_tok * c->n_head;
    const size_t nh = NB_CUDA_INDEX_HEADS(c->n_head), n16 = c->n_tok * nh;
    const bool packed = c->dim % 64 == 0;
    float *k = chk_raw(t, (c->n_tok * stride + 1) * sizeof *k), *q = chk_raw(t, nq * sizeof *q), *w = chk_raw(t, nw * sizeof *w);
    float *norm = chk_raw(t, 2 * c->dim * sizeof *norm), *bias = norm + c->dim;
    float *cs = chk_raw(t, (c->n_tok * c->d_rope + 1) * sizeof *cs);
    chk_fill(t, k, c->n_tok * stride, p);
    chk_fill(t, q, nq, p);
    chk_fill(t, w, nw, CHK_NORMAL);
    for (size_t i = 0; i < nw; i++) w[i] += w[i] < 0 ? -0.5f : 0.5f;
    chk_fill(t, norm, 2 * c->dim, CHK_NORMAL);
    for (size_t i = 0; i < c->n_tok * c->d_rope; i += c->d_rope)
        for (size_t j = 0; j < c->d_rope / 2; j++) {
            const double angle = chk_unit(t) * 6.3;
            cs[i + j] = (float)cos(angle), cs[i + c->d_rope / 2 + j] = (float)sin(angle);
        }
    nb_cuda_index_finish_args a = { .k = chk_gpu_inout(t, k, c->n_tok * stride * sizeof *k),
                                          .norm = chk_gpu_in(t, norm, c->dim * sizeof *norm),
                                          .bias = chk_gpu_in(t, bias, c->dim * sizeof *bias),
                                          .q = chk_gpu_inout(t, q, nq * sizeof *q),
                                          .w = chk_gpu_inout(t, w, nw * sizeof *w),
                                          .q16 = packed ? chk_gpu_out(t, n16 * c->dim * 2) : NULL,
                                          .w16 = packed ? chk_gpu_out(t, n16 * sizeof(float)) : NULL,
                                          .cos_sin = chk_gpu_in(t, cs, c->n_tok * c->d_rope * sizeof *cs),
                                          .n_tok = c->n_tok,
                                          .n_head = c->n_head,
                                          .dim = c->dim,
                                          .d_rope = c->d_rope,
                                          .k_stride = stride,
                                          .interleaved = c->interleaved,
                                          .last = c->last };
    float *keys = a.k;
    if (c->last) a.k = NULL;
    chk_gpu_call(t, chk_gpu_api(t)->index_finish(chk_gpu(t), &a));
    float *gk = chk_raw(t, (c->n_tok * stride + 1) * sizeof *gk), *gq = chk_raw(t, nq * sizeof *gq),
          *gw = chk_raw(t, nw * sizeof *gw);
    chk_gpu_get(t, gk, keys, c->n_tok * stride * sizeof *gk);
    chk_gpu_get(t, gq, a.q, nq * sizeof *gq);
    chk_gpu_get(t, gw, a.w, nw * sizeof *gw);
    if (!c->last) check_rows(t, c, "key", gk, stride, k, c->n_tok, 1, norm, bias, cs);
    for (size_t i = 0; i < c->n_tok; i++)
        if (memcmp(gk + i * stride + c->dim, k + i * stride + c->dim, (stride - c->dim) * sizeof *k) != 0)
            chk_fail(t, "wrote between keys");
    check_rows(t, c, "query", gq, c->dim, q, nw, c->n_head, NULL, NULL, cs);
    const double scale = 1 / sqrt((double)c->n_head * (double)c->dim);
    for (size_t i = 0; i < nw; i++)
        if (!(fabs((double)gw[i] - (double)w[i] * scale) <= 0x1p-22 * fabs((double)gw[i])))
            chk_fail(t, "weight %zu: %g instead of %g", i, (double)gw[i], (double)w[i] * scale);
    if (!packed) return;
    uint16_t *q16 = chk_raw(t, n16 * c->dim * 2);
    float *w16 = chk_raw(t, n16 * sizeof *w16);
    chk_gpu_get(t, q16, a.q16, n16 * c->dim * 2);
    chk_gpu_get(t, w16, a.w16, n16 * sizeof *w16);
    if (p != CHK_TINY && p != CHK_ZERO) check_packed(t, c, gq, gw, q16, w16);
}

static void test_finish(chk *t, const chk_row *row)
{
    static const finish_case cases[] = {
        { 1, 1, 4, 4, false, false },   { 3, 5, 64, 16, true, false },   { 2, 12, 32, 16, false, false }, { 1, 64, 128, 64, false, false },
        { 2, 32, 128, 64, true, false }, { 4, 3, 24, 8, false, false },  { 1, 17, 192, 2, true, false },  { 1, 2, 1024, 64, false, false },
        { 3, 5, 64, 16, true, true }, { 2, 64, 128, 64, true, true }, { 1, 3, 40, 8, false, true },
    };
    (void)row;
    for (size_t i = 0; i < NB_COUNT(cases); i++)
        for (chk_pattern p = 0; p < CHK_PATTERN_COUNT; p++)
            if (chk_case(t, "%zu tokens, %zu heads of %zu, %zu turned%s, %s", cases[i].n_tok, cases[i].n_head, cases[i].dim,
                         cases[i].d_rope, cases[i].interleaved ? " in pairs" : "", chk_pattern_name(p)))
                one_finish(t, &cases[i], p);
}

/* ---- the top k ---- */

enum { MAX_ROW = 40 };

typedef struct topk_case {
    size_t n_row, k, most; /* scores of the longest row */
    size_t ratio;          /* of compressed rows; 0: tokens */
} topk_case;

typedef enum topk_pattern { RANDOM, EQUAL, FEW_VALUES, CLOSE, NANS, ZEROS, TOPK_PATTERNS } topk_pattern;
static const char *const topk_names[] = { "random", "all equal", "few values", "one bin", "NaNs", "zeros of both signs" };

static float score_of(chk *t, topk_pattern p)
{
    const double u = chk_unit(t);
    switch (p) {
    case EQUAL: return 1.25f;
    case FEW_VALUES: return (float)(int)(u * 5) - 2;
    case CLOSE: return 1 + (float)(int)(u * 3000) * 0x1p-23f;
    case NANS: return u < 0.6 ? NAN : u < 0.7 ? -INFINITY : u < 0.8 ? INFINITY : (float)u;
    case ZEROS: return u < 0.5 ? -0.0f : u < 0.9 ? 0.0f : (float)(u - 0.95);
    default: return (float)((u - 0.4) * (u - 0.4) * (u < 0.4 ? -1 : 1));
    }
}

static void one_topk(chk *t, const topk_case *c, topk_pattern p)
{
    const size_t stride = (c->most + 63) / 64 * 64, n_scratch = c->n_row * NB_CUDA_TOPK_SCRATCH(stride);
    nb_cuda_chunk chunk[MAX_ROW];
    uint32_t row_chunk[MAX_ROW], *scratch = chk_raw(t, n_scratch * sizeof *scratch);
    float *s = chk_raw(t, c->n_row * stride * sizeof *s);
    memset(scratch, 0, n_scratch * sizeof *scratch);
    for (size_t i = 0; i < c->n_row; i++) { /* the longest, one that sees all, others, padding; in pairs of a chunk */
        const size_t n = i == 0 ? c->most : i == 1 ? (c->k < c->most ? c->k : c->most) : chk_between(t, 1, c->most);
        chunk[i] = (nb_cuda_chunk){ .row0 = (uint32_t)i, .n_tok = 1, .pos0 = (uint32_t)(c->ratio ? n * c->ratio + c->ratio - 2 : n - 1) };
        row_chunk[i] = i % 7 == 5 ? UINT32_MAX : (uint32_t)i;
        for (size_t j = 0; j < stride; j++) s[i * stride + j] = j < n ? score_of(t, p) : NAN;
    }
    nb_cuda_index_topk_args a = { .chunk = chk_gpu_in(t, chunk, c->n_row * sizeof *chunk),
                                  .row_chunk = chk_gpu_in(t, row_chunk, c->n_row * sizeof *row_chunk),
                                  .score = chk_gpu_in(t, s, c->n_row * stride * sizeof *s),
                                  .at = chk_gpu_out(t, c->n_row * c->k * sizeof(uint32_t)),
                                  .scratch = chk_gpu_inout(t, scratch, n_scratch * sizeof *scratch),
                                  .n_row = c->n_row,
                                  .k = c->k,
                                  .stride = stride,
                                  .ratio = c->ratio };
    uint32_t *at = chk_raw(t, c->n_row * c->k * sizeof *at), *want = chk_raw(t, c->k * sizeof *want);
    for (int turn = 0; turn < 2; turn++) { /* the second time with what the first has left, for the last rows */
        const size_t first = turn ? c->n_row / 2 : 0;
        chk_gpu_call(t, chk_gpu_api(t)->index_topk(chk_gpu(t), &a));
        chk_gpu_get(t, at, a.at, a.n_row * c->k * sizeof *at);
        for (size_t i = 0; i < a.n_row; i++) {
            const size_t r = first + i, n = ((size_t)chunk[r].pos0 + 1) / (c->ratio ? c->ratio : 1), k = n < c->k ? n : c->k;
            if (row_chunk[r] == UINT32_MAX) continue;
            nb_index_topk_c(&(nb_index_topk_args){ .s = s + r * stride, .at = want, .n = n, .k = k });
            if (memcmp(want, at + i * c->k, k * sizeof *want) == 0) continue;
            size_t j = 0;
            while (want[j] == at[i * c->k + j]) j++;
            chk_fail(t, "row %zu, %zu of %zu: place %zu is %u instead of %u", r, k, n, j, at[i * c->k + j], want[j]);
        }
        a.row0 = c->n_row / 2;
        a.n_row = c->n_row - a.row0;
        a.score += a.row0 * stride;
    }
}

static void test_topk(chk *t, const chk_row *row)
{
    static const topk_case cases[] = {
        { 1, 1, 2, 0 }, { 5, 16, 150, 0 }, { 9, 64, 4096, 0 }, { 3, 2048, 4097, 0 }, { 2, 100, 9000, 0 }, { 40, 33, 700, 0 }, { 1, 2048, 12000, 0 },
        { 9, 64, 5000, 4 }, { 4, 512, 300, 4 },
    };
    (void)row;
    for (size_t i = 0; i < NB_COUNT(cases); i++)
        for (topk_pattern p = 0; p < TOPK_PATTERNS; p++)
            if (chk_case(t, "%zu of %zu in %zu rows, %s", cases[i].k, cases[i].most, cases[i].n_row, topk_names[p]))
                one_topk(t, &cases[i], p);
}

typedef struct topk_job {
    const nb_cuda_api *api;
    nb_cuda *g;
    nb_cuda_index_topk_args a;
} topk_job;

static void call_topk(void *ctx)
{
    const topk_job *j = ctx;
    j->api->index_topk(j->g, &j->a);
}

static void bench_topk(chk *t, const chk_row *row)
{
    static const size_t rows[] = { 1, 8, 32 };
    (void)row;
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        const size_t n = 131072, stride = n, n_scratch = rows[i] * NB_CUDA_TOPK_SCRATCH(stride);
        nb_cuda_chunk chunk[MAX_ROW];
        uint32_t row_chunk[MAX_ROW];
        char label[64];
        if (!chk_case(t, "bench %zu", i)) continue;
        float *s = chk_raw(t, rows[i] * stride * sizeof *s);
        uint32_t *scratch = chk_raw(t, n_scratch * sizeof *scratch);
        memset(scratch, 0, n_scratch * sizeof *scratch);
        for (size_t j = 0; j < rows[i] * stride; j++) s[j] = score_of(t, RANDOM);
        for (size_t j = 0; j < rows[i]; j++) {
            chunk[j] = (nb_cuda_chunk){ .row0 = (uint32_t)j, .n_tok = 1, .pos0 = (uint32_t)n - 1 };
            row_chunk[j] = (uint32_t)j;
        }
        topk_job job = { chk_gpu_api(t),
                         chk_gpu(t),
                         { .chunk = chk_gpu_in(t, chunk, rows[i] * sizeof *chunk),
                           .row_chunk = chk_gpu_in(t, row_chunk, rows[i] * sizeof *row_chunk),
                           .score = chk_gpu_in(t, s, rows[i] * stride * sizeof *s),
                           .at = chk_gpu_out(t, rows[i] * 2048 * sizeof(uint32_t)),
                           .scratch = chk_gpu_inout(t, scratch, n_scratch * sizeof *scratch),
                           .n_row = rows[i],
                           .k = 2048,
                           .stride = stride } };
        (void)snprintf(label, sizeof label, "%zu rows, 2,048 of 131,072", rows[i]);
        chk_gpu_time(t, label, 4.0 * (double)(rows[i] * n), 0, call_topk, &job);
    }
}

/* ---- planted bugs ---- */

static void first_values(nb_cuda *g, const nb_cuda_index_finish_args *a)
{
    nb_cuda_index_finish_args b = *a;
    b.last = false; /* the first values are turned, and transformed */
    chk_gpu_api(NULL)->index_finish(g, &b);
}
static void other_pairs(nb_cuda *g, const nb_cuda_index_finish_args *a)
{
    nb_cuda_index_finish_args b = *a;
    b.interleaved = !a->interleaved;
    chk_gpu_api(NULL)->index_finish(g, &b);
}
static void one_less(nb_cuda *g, const nb_cuda_index_topk_args *a)
{
    nb_cuda_index_topk_args b = *a;
    if (b.k > 1) b.k--;
    chk_gpu_api(NULL)->index_topk(g, &b);
}
static void other_rows(nb_cuda *g, const nb_cuda_index_topk_args *a)
{
    nb_cuda_index_topk_args b = *a;
    if (b.ratio) b.ratio++; /* fewer rows are seen */
    chk_gpu_api(NULL)->index_topk(g, &b);
}
static void plant_first_values(nb_cuda_api *api)
{
    api->index_finish = first_values;
}
static void plant_other_pairs(nb_cuda_api *api)
{
    api->index_finish = other_pairs;
}
static void plant_one_less(nb_cuda_api *api)
{
    api->index_topk = one_less;
}
static void plant_other_rows(nb_cuda_api *api)
{
    api->index_topk = other_rows;
}
static const chk_broken broken_finish[] = {
    CHK_GPU_BUG("compressed attention's queries as those of tokens", "query", plant_first_values),
    CHK_GPU_BUG("other pairs are turned", "value", plant_other_pairs),
    { 0 },
};
static const chk_broken broken_topk[] = {
    CHK_GPU_BUG("one is chosen less", "place", plant_one_less),
    CHK_GPU_BUG("the last compressed rows are not seen", "place", plant_other_rows),
    { 0 },
};

const chk_op chk_cuda_index_finish = { "cuda_index_finish", chk_gpu_row, test_finish, NULL, broken_finish };
const chk_op chk_cuda_index_topk = { "cuda_index_topk", chk_gpu_row, test_topk, bench_topk, broken_topk };
