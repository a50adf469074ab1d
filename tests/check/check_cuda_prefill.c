/* check_cuda_prefill.c - expanded attention on a device: prefill against nb_attn_prefill_ref, for chunks
 * that begin and end anywhere in a page.
 *
 * Rows that are not written yet are NaN, in own pages and in gaps.  Then the promises: the decoded pages
 * in other portions, the chunk's last tokens as a chunk of their own, and NaN in a later row or query
 * change no bit. */
#include "check/check_cuda.h"
#include "kernel/attn_prefill/attn_prefill.h"
#include "num/bf16.h"

enum { TILE = NB_PREFILL_TILE, MAX_TILE = 64 };

typedef struct shape {
    size_t n_head, d_nope, d_rope, d_v, pos0, n_tok, gap;
    bool device; /* too slow for the emulation */
} shape;

static const shape shapes[] = {
    { 2, 128, 64, 128, 0, 1, 0, false },      { 1, 128, 64, 128, 0, 64, 0, false },
    { 2, 128, 64, 128, 70, 130, 8, false },   { 2, 64, 64, 64, 130, 129, 0, false },
    { 1, 192, 64, 256, 10, 70, 0, false },    { 2, 64, 32, 64, 63, 66, 0, false },
    { 2, 8, 4, 8, 5, 150, 0, false },         { 3, 20, 12, 24, 100, 100, 3, false },
    { 2, 16, 8, 16, 0, 200, 0, false },       { 1, 96, 40, 96, 64, 64, 4, false },
    { 1, 200, 56, 200, 30, 100, 8, false },   { 5, 32, 16, 32, 191, 2, 0, false },
    { 1, 7, 1, 5, 60, 9, 1, false },          { 1, 64, 64, 128, 3, 65, 0, false },
    { 16, 128, 64, 128, 1000, 300, 0, true }, { 8, 64, 64, 64, 60, 1000, 0, true },
    { 3, 192, 64, 256, 500, 400, 0, true },   { 40, 64, 32, 64, 777, 200, 0, true },
    { 2, 128, 64, 128, 2047, 2, 16, true },   { 2, 96, 32, 96, 700, 300, 0, true },
};

typedef struct kase {
    const shape *s;
    size_t page0, n_own,
        n_dec; /* the chunk's first page; its pages; complete pages before its last */
    size_t q_stride, kv_stride, rope_stride;
    float *q;                           /* [n_tok][q_stride] */
    float *dec, *rope, *own, *own_rope; /* exact in BF16 */
    float scale;
} kase;

static float value(chk *t, chk_pattern p)
{
    const double u = chk_unit(t) * 2 - 1;
    const float x = (float)(p == CHK_OUTLIER && chk_u64(t) % 61 == 0 ? 30 * u : u);
    return nb_bf16_to_f32(nb_bf16_from_f32(x));
}

static float *rows(chk *t, size_t n_row, size_t n_there, size_t n_col, size_t stride, chk_pattern p)
{
    float *x = chk_raw(t, (n_row * stride + 1) * sizeof *x);
    for (size_t i = 0; i < n_row * stride; i++)
        x[i] = i / stride < n_there && i % stride < n_col ? value(t, p) : NAN;
    return x;
}

static void make_case(chk *t, kase *k, const shape *s, chk_pattern p)
{
    const size_t end = s->pos0 + s->n_tok, n_kv = s->n_head * (s->d_nope + s->d_v);
    *k = (kase){ .s = s, .page0 = s->pos0 / TILE, .n_dec = (end - 1) / TILE };
    k->n_own = k->n_dec - k->page0 + 1;
    k->q_stride = s->n_head * (s->d_nope + s->d_rope) + s->gap;
    k->kv_stride = n_kv + s->gap;
    k->rope_stride = s->d_rope + s->gap;
    k->q = rows(t, s->n_tok, s->n_tok, k->q_stride - s->gap, k->q_stride, CHK_NORMAL);
    for (size_t i = 0; i < s->n_tok * k->q_stride; i++) k->q[i] *= 1 + 0.001f * (float)(i % 5);
    k->dec = rows(t, k->n_dec * TILE, k->n_dec * TILE, n_kv, k->kv_stride, p);
    k->rope = rows(t, k->n_dec * TILE, k->n_dec * TILE, s->d_rope, k->rope_stride, CHK_NORMAL);
    const size_t there = end - k->page0 * TILE;
    k->own = rows(t, k->n_own * TILE, there, n_kv, k->kv_stride, p);
    k->own_rope = rows(t, k->n_own * TILE, there, s->d_rope, k->rope_stride, CHK_NORMAL);
    k->scale = (float)(1.5 / sqrt((double)(s->d_nope + s->d_rope)));
}

/* ---- a run ---- */

static const uint16_t *upload(chk *t, const float *x, size_t n)
{
    uint16_t *h = chk_raw(t, (n + 1) * sizeof *h);
    for (size_t i = 0; i < n; i++) h[i] = isnan(x[i]) ? 0x7fc1 : nb_bf16_from_f32(x[i]);
    return chk_gpu_in(t, h, n * sizeof *h);
}

/* Tokens [tok0, n_tok) of the chunk; `portion` decoded pages to a call (0: at random). */
static nb_cuda_rows run(chk *t, const kase *k, size_t tok0, size_t portion)
{
    const shape *s = k->s;
    const size_t n = s->n_tok - tok0, row0 = chk_between(t, 0, 2), dv = s->n_head * s->d_v;
    const size_t skip = ((s->pos0 + tok0) / TILE - k->page0) * TILE; /* own rows before */
    const uint16_t *dec = upload(t, k->dec, k->n_dec * TILE * k->kv_stride);
    const uint16_t *rope = upload(t, k->rope, k->n_dec * TILE * k->rope_stride);
    float *q = chk_raw(t, (row0 + n) * k->q_stride * sizeof *q);
    for (size_t i = 0; i < row0 * k->q_stride; i++) q[i] = NAN;
    memcpy(q + row0 * k->q_stride, k->q + tok0 * k->q_stride, n * k->q_stride * sizeof *q);
    nb_cuda_prefill_args a = {
        .q = chk_gpu_in(t, q, (row0 + n) * k->q_stride * sizeof *q),
        .own = upload(t, k->own + skip * k->kv_stride, (k->n_own * TILE - skip) * k->kv_stride),
        .own_rope = upload(t, k->own_rope + skip * k->rope_stride,
                           (k->n_own * TILE - skip) * k->rope_stride),
        .m = chk_gpu_out(t, n * s->n_head * sizeof(float)),
        .l = chk_gpu_out(t, n * s->n_head * sizeof(float)),
        .o = chk_gpu_out(t, n * dv * sizeof(float)),
        .y = chk_gpu_out_rows(t, row0 + n, (dv + 15) / 8 * 8, 2),
        .row0 = row0,
        .n_tok = n,
        .pos0 = s->pos0 + tok0,
        .n_head = s->n_head,
        .d_nope = s->d_nope,
        .d_rope = s->d_rope,
        .d_v = s->d_v,
        .q_stride = k->q_stride,
        .dec_stride = k->kv_stride,
        .rope_stride = k->rope_stride,
        .scale = k->scale,
    };
    for (size_t p = 0; !a.last; p += a.n_page) {
        a.page0 = p;
        a.n_page = portion ? portion : chk_between(t, 1, 4);
        if (a.n_page >= k->n_dec - p) a.n_page = k->n_dec - p;
        a.first = p == 0;
        a.last = p + a.n_page == k->n_dec;
        a.dec = dec + p * TILE * k->kv_stride;
        a.rope = rope + p * TILE * k->rope_stride;
        chk_gpu_call(t, chk_gpu_api(t)->prefill(chk_gpu(t), &a));
    }
    nb_cuda_rows y = chk_gpu_get_rows(t, &a.y, row0 + n);
    y.f += row0 * y.stride;
    y.hi += row0 * y.stride;
    y.lo += row0 * y.stride;
    return y;
}

/* ---- what is compared ---- */

/* Queries of page i of the chunk, one head. */
static void compare_page(chk *t, const kase *k, const nb_cuda_rows *y, size_t i, size_t head,
                         double *want)
{
    const shape *s = k->s;
    const size_t page = k->page0 + i, dk = s->d_nope + s->d_rope, col = head * (s->d_nope + s->d_v);
    const size_t r0 = i == 0 ? s->pos0 % TILE : 0, tok = page * TILE + r0 - s->pos0;
    const size_t n_q = s->n_tok - tok < TILE - r0 ? s->n_tok - tok : TILE - r0;
    nb_attn_prefill_tile tile[MAX_TILE];
    for (size_t j = 0; j <= page; j++) {
        const size_t at = j < page ? j * TILE : i * TILE;
        const float *kv = (j < page ? k->dec : k->own) + at * k->kv_stride + col;
        tile[j] = (nb_attn_prefill_tile){
            .k1 = kv,
            .k2 = (j < page ? k->rope : k->own_rope) + at * k->rope_stride,
            .v = kv + s->d_nope,
            .k1_stride = k->kv_stride,
            .k2_stride = k->rope_stride,
            .v_stride = k->kv_stride,
            .n_tok = j < page ? TILE : r0 + n_q,
        };
    }
    const nb_attn_prefill_args a = { .d = { s->d_nope, s->d_rope, s->d_v },
                                     .n_q = n_q,
                                     .n_tile = page + 1,
                                     .last_tok = r0 + n_q,
                                     .vis0 = r0 + 1,
                                     .vis_step = 1,
                                     .scale = k->scale };
    double *bound = want + TILE * s->d_v, sum[TILE], v_max[TILE];
    nb_attn_prefill_ref(&a, k->q + tok * k->q_stride + head * dk, k->q_stride, tile, want, sum,
                        v_max);
    const double eps = 0x1p-8;
    for (size_t q = 0; q < n_q; q++) {
        const double n = 96 + 14 * (double)(page + 1) + ((double)dk / 4 + 46) * sum[q];
        const double rel = n * 0x1p-24 + expm1(4 * eps * sum[q] * (1 + eps)) + 3 * eps;
        for (size_t j = 0; j < s->d_v; j++) bound[j] = rel * v_max[q] + 0x1p-118;
        chk_close(t, y->f + (tok + q) * y->stride + head * s->d_v, 1, s->d_v, s->d_v,
                  want + q * s->d_v, bound);
    }
}

static void same(chk *t, const char *why, const kase *k, const nb_cuda_rows *a, size_t a0,
                 const nb_cuda_rows *b, size_t b0, size_t n)
{
    chk_same(t, why, a->f + a0 * a->stride, a->stride, b->f + b0 * b->stride, b->stride, n,
             k->s->n_head * k->s->d_v);
}

/* NaN in values of token `at` and infinity in the query of the same: only those who see it change. */
static void check_nan(chk *t, const kase *k, const nb_cuda_rows *y)
{
    const shape *s = k->s;
    const size_t at = s->n_tok / 2, row = s->pos0 + at - k->page0 * TILE;
    const size_t next = (s->pos0 + at) / TILE * TILE + TILE; /* sees the decoded page */
    const size_t seen = next - s->pos0 < s->n_tok ? next - s->pos0 : s->n_tok;
    float *v = k->own + row * k->kv_stride + s->d_nope, *q = k->q + at * k->q_stride;
    const float old_v = *v, old_q = *q;
    *v = NAN;
    *q = INFINITY;
    const nb_cuda_rows z = run(t, k, 0, 3);
    *v = old_v;
    *q = old_q;
    same(t, "NaN in a later row", k, y, 0, &z, 0, at);
    same(t, "NaN in an earlier page", k, y, seen, &z, seen, s->n_tok - seen);
    for (size_t i = at; i < seen; i++)
        if (!isnan(z.f[i * z.stride])) {
            chk_fail(t, "token %zu: a NaN is lost", i);
            return;
        }
}

static void one_case(chk *t, const kase *k)
{
    const shape *s = k->s;
    const nb_cuda_rows y = run(t, k, 0, MAX_TILE), z = run(t, k, 0, 0);
    double *want = chk_f64(t, (TILE + 1) * s->d_v);
    for (size_t i = 0; i < k->n_own; i++)
        compare_page(t, k, &y, i, chk_between(t, 0, s->n_head - 1), want);
    chk_gpu_parts(t, &y, s->n_tok, s->n_head * s->d_v);
    same(t, "pages in portions", k, &y, 0, &z, 0, s->n_tok);
    if (s->n_tok < 2) return;
    const size_t tok0 = chk_between(t, 1, s->n_tok - 1);
    const nb_cuda_rows w = run(t, k, tok0, 2);
    same(t, "the last tokens alone", k, &y, tok0, &w, 0, s->n_tok - tok0);
    check_nan(t, k, &y);
}

static void test(chk *t, const chk_row *row)
{
    (void)row;
    for (size_t i = 0; i < NB_COUNT(shapes); i++)
        for (int p = 0; p < 2; p++) {
            const shape *s = &shapes[i];
            kase k;
            if (chk_gpu_info(t)->emulated && (s->device || (p && i % 2))) continue;
            if (!chk_case(t, "%zu heads of %zu+%zu, %zu, tokens %zu to %zu%s", s->n_head, s->d_nope,
                          s->d_rope, s->d_v, s->pos0, s->pos0 + s->n_tok, p ? ", outliers" : ""))
                continue;
            make_case(t, &k, s, p ? CHK_OUTLIER : CHK_NORMAL);
            one_case(t, &k);
        }
}

/* ---- times ---- */

static void bench_prefill(void *ctx)
{
    void **x = ctx;
    ((const nb_cuda_api *)x[0])->prefill(x[1], x[2]);
}

static void bench(chk *t, const chk_row *row)
{
    static const shape s[] = {
        { 16, 128, 64, 128, 0, 8192, 0, true },    { 16, 128, 64, 128, 0, 2048, 0, true },
        { 16, 128, 64, 128, 7168, 1024, 0, true }, { 128, 128, 64, 128, 0, 4096, 0, true },
        { 20, 192, 64, 256, 0, 4096, 0, true },    { 8, 64, 64, 64, 0, 8192, 0, true },
    };
    (void)row;
    for (size_t i = 0; i < NB_COUNT(s) && !chk_gpu_info(t)->emulated; i++) {
        const size_t end = s[i].pos0 + s[i].n_tok, dk = s[i].d_nope + s[i].d_rope, h = s[i].n_head;
        char label[64];
        snprintf(label, sizeof label, "%zu x %zu,%zu tokens %zu..%zu", h, dk, s[i].d_v, s[i].pos0,
                 end);
        if (!chk_case(t, "%s", label)) continue;
        nb_cuda_prefill_args a = { .n_tok = s[i].n_tok,
                                   .pos0 = s[i].pos0,
                                   .n_page = (end - 1) / TILE,
                                   .n_head = h,
                                   .d_nope = s[i].d_nope,
                                   .d_rope = s[i].d_rope,
                                   .d_v = s[i].d_v,
                                   .q_stride = h * dk,
                                   .dec_stride = h * (s[i].d_nope + s[i].d_v),
                                   .rope_stride = s[i].d_rope,
                                   .first = true,
                                   .last = true,
                                   .scale = 0.1f };
        const size_t n_kv = (end + TILE) * a.dec_stride, n_rope = (end + TILE) * a.rope_stride;
        const size_t n_o = s[i].n_tok * h * s[i].d_v, n_q = s[i].n_tok * a.q_stride;
        float *q = chk_raw(t, n_q * sizeof *q);
        chk_fill(t, q, n_q, CHK_NORMAL);
        uint16_t *kv = chk_raw(t, n_kv * sizeof *kv);
        for (size_t j = 0; j < n_kv; j++) kv[j] = nb_bf16_from_f32(q[j % n_q]);
        a.q = chk_gpu_in(t, q, n_q * sizeof *q);
        a.dec = a.own = chk_gpu_in(t, kv, n_kv * sizeof *kv);
        a.rope = a.own_rope = chk_gpu_in(t, kv, n_rope * sizeof *kv);
        a.m = chk_gpu_out(t, s[i].n_tok * h * sizeof(float));
        a.l = chk_gpu_out(t, s[i].n_tok * h * sizeof(float));
        a.o = chk_gpu_out(t, n_o * sizeof(float));
        const double pairs =
            (double)s[i].n_tok * ((double)s[i].pos0 + (double)(s[i].n_tok + 1) / 2);
        void *x[3] = { NULL, chk_gpu(t), &a };
        const nb_cuda_api *api = chk_gpu_api(t);
        memcpy(x, &api, sizeof api);
        chk_gpu_time(t, label, 0, pairs * (double)h * 2 * (double)(dk + s[i].d_v), bench_prefill,
                     x);
    }
}

const chk_op chk_cuda_prefill = { "cuda_prefill", chk_gpu_row, test, bench, NULL };
