/* check_cuda_finish.c - what follows the projections of attention on a GPU: norms, means, transforms,
 * rotations, and the parts of queries.
 *
 * The norm is checked where nothing follows it; what follows must then be what the host makes of the
 * normalised values, in bits where the contract says so. */
#include "check/check.h"
#include "check/check_cuda.h"
#include "kernel/rmsnorm/rmsnorm.h"
#include "kernel/rope/rope.h"
#include "num/hadamard.h"

typedef struct mla_case {
    size_t n_tok, n_head, d_nope, d_rope, lora, hadamard;
    bool mean, balance, interleaved, direct;
} mla_case;

typedef struct mla_host {
    float *q, *kv, *norm, *mean, *rope_k, *rope_q, *cos_sin;
    float *scale;  /* of each token's queries; NULL: none */
    float *scaled; /* q multiplied by it */
} mla_host;

static mla_host mla_values(chk *t, const mla_case *c, size_t q_stride, size_t kv_stride)
{
    const chk_pattern p = (chk_pattern)(chk_u64(t) % 9);
    mla_host h = {
        .q = chk_in_rows(t, c->n_tok, q_stride, q_stride, p),
        .kv = chk_in_rows(t, c->n_tok, kv_stride, kv_stride, p),
        .norm = chk_in_rows(t, 1, c->lora, c->lora, CHK_NORMAL),
        .mean = chk_in_rows(t, 1, c->lora, c->lora, CHK_NORMAL),
        .rope_k = chk_in_rows(t, 1, c->d_rope, c->d_rope, CHK_NORMAL),
        .rope_q = chk_in_rows(t, 1, c->d_rope, c->d_rope, CHK_NORMAL),
        .cos_sin = chk_in_rows(t, c->n_tok, c->d_rope, c->d_rope, CHK_NORMAL),
    };
    for (size_t i = 0; i < c->d_rope; i++) {
        h.rope_k[i] = ldexpf(1, (int)chk_between(t, 0, 6) - 3);
        h.rope_q[i] = 1 / h.rope_k[i];
    }
    return h;
}

/* Rotated heads of x (stride between tokens and heads), times factor, times the token's scale: reference and bound. */
static void rope_want(chk *t, const mla_case *c, const mla_host *h, float *x, size_t tok_stride,
                      size_t n_head, size_t head_stride, const float *factor, const float *scale,
                      const float *got, size_t got_tok, size_t got_head)
{
    const size_t d = c->d_rope, n = c->n_tok * n_head * d, half = d / 2;
    double *want = chk_f64(t, n), *bound = chk_f64(t, n);
    float *dense = chk_raw(t, n * sizeof *dense);
    nb_rope_ref(&(nb_rope_args){ .x = x,
                                 .cos_sin = h->cos_sin,
                                 .n_tok = c->n_tok,
                                 .n_head = n_head,
                                 .dim = d,
                                 .tok_stride = tok_stride,
                                 .head_stride = head_stride,
                                 .interleaved = c->interleaved },
                want);
    for (size_t i = 0; i < n; i++) {
        const size_t tok = i / d / n_head, head = i / d % n_head, k = i % d;
        const size_t other = c->interleaved ? k ^ 1 : k < half ? k + half : k - half;
        const float *v = x + tok * tok_stride + head * head_stride;
        bound[i] = 3 * 0x1p-24 * (fabs((double)v[k]) + fabs((double)v[other])) + 0x1p-148;
        if (factor) want[i] *= (double)factor[k];
        if (factor) bound[i] = bound[i] * (double)factor[k] + 0x1p-148;
        if (scale) want[i] *= (double)scale[tok];
        if (scale) bound[i] = bound[i] * (double)scale[tok] + 0x1p-24 * fabs(want[i]) + 0x1p-148;
        dense[i] = got[tok * got_tok + head * got_head + k];
    }
    chk_close(t, dense, 1, n, n, want, bound);
}

/* Scales of tokens, and the parts of queries that are not rotated, times them. */
static void scale_queries(chk *t, const mla_case *c, mla_host *h, size_t q_stride, bool scaled)
{
    const size_t n = c->n_tok * q_stride * sizeof *h->q, d_qk = c->d_nope + c->d_rope;
    h->scaled = chk_raw(t, n);
    memcpy(h->scaled, h->q, n);
    if (!scaled) return;
    h->scale = chk_raw(t, c->n_tok * sizeof *h->scale);
    for (size_t i = 0; i < c->n_tok; i++) h->scale[i] = 1 + (float)chk_unit(t);
    for (size_t i = 0; i < c->n_tok * c->n_head; i++)
        for (size_t k = 0; k < c->d_nope; k++)
            h->scaled[i / c->n_head * q_stride + i % c->n_head * d_qk + k] *=
                h->scale[i / c->n_head];
}

static void mla_one(chk *t, const mla_case *c, bool scaled)
{
    const size_t d_qk = c->d_nope + c->d_rope, n_values = c->lora + c->d_rope;
    const size_t q_stride = c->n_head * d_qk + 4 * chk_between(t, 0, 2);
    const size_t kv_stride = n_values + chk_between(t, 0, 3);
    mla_host h = mla_values(t, c, q_stride, kv_stride);
    const size_t n_q = c->n_tok * q_stride * sizeof(float);
    const size_t n_kv = c->n_tok * kv_stride * sizeof(float);
    const size_t w_nope = c->n_head * c->d_nope, nope_stride = (w_nope + 7) / 8 * 8 + 8;
    nb_cuda_rows nope = chk_gpu_out_rows(t, c->n_tok, nope_stride, 2);
    nb_cuda_mla_finish_args a = { .n_tok = c->n_tok,
                                  .n_head = c->n_head,
                                  .d_nope = c->d_nope,
                                  .d_rope = c->d_rope,
                                  .lora = c->lora,
                                  .q_stride = q_stride,
                                  .kv_stride = kv_stride,
                                  .eps = 1e-6f,
                                  .interleaved = c->interleaved };
    a.q_rope_head = c->d_rope + chk_between(t, 0, 9);
    a.q_rope_stride = a.q_rope_head * c->n_head + chk_between(t, 0, 9);
    scale_queries(t, c, &h, q_stride, scaled);
    if (scaled) a.q_scale = chk_gpu_in(t, h.scale, c->n_tok * sizeof *h.scale);
    a.norm = chk_gpu_in(t, h.norm, c->lora * sizeof(float));
    a.cos_sin = chk_gpu_in(t, h.cos_sin, c->n_tok * c->d_rope * sizeof(float));
    if (c->balance) {
        a.rope_k = chk_gpu_in(t, h.rope_k, c->d_rope * sizeof(float));
        a.rope_q = chk_gpu_in(t, h.rope_q, c->d_rope * sizeof(float));
    }
    const size_t n_rope = c->n_tok * a.q_rope_stride * sizeof(float);
    float *rope = chk_raw(t, n_rope);
    memset(rope, 0xc5, n_rope);
    /* without mean and transform: the norm */
    nb_cuda_mla_finish_args normed = a;
    normed.q = chk_gpu_inout(t, h.q, n_q);
    normed.kv = chk_gpu_inout(t, h.kv, n_kv);
    chk_gpu_call(t, chk_gpu_api(t)->mla_finish(chk_gpu(t), &normed));
    float *kv = chk_raw(t, n_kv), *q = chk_raw(t, n_q), *kv1 = chk_raw(t, n_kv);
    chk_gpu_get(t, kv1, normed.kv, n_kv);
    double *want = chk_f64(t, c->n_tok * c->lora), *bound = chk_f64(t, c->n_tok * c->lora);
    nb_rmsnorm_ref(&(nb_rmsnorm_args){ .x = h.kv,
                                       .w = h.norm,
                                       .n_row = c->n_tok,
                                       .dim = c->lora,
                                       .x_stride = kv_stride,
                                       .eps = a.eps },
                   want);
    for (size_t i = 0; i < c->n_tok * c->lora; i++)
        bound[i] = (4 + (double)c->lora / 16) * 0x1p-24 * fabs(want[i]) + 0x1p-126;
    float *dense = chk_raw(t, c->n_tok * c->lora * sizeof *dense);
    for (size_t i = 0; i < c->n_tok; i++)
        memcpy(dense + i * c->lora, kv1 + i * kv_stride, c->lora * sizeof *dense);
    chk_close(t, dense, c->n_tok, c->lora, c->lora, want, bound);

    a.q = chk_gpu_inout(t, h.q, n_q);
    a.kv = chk_gpu_inout(t, h.kv, n_kv);
    a.hadamard = c->hadamard;
    if (c->mean) a.mean = chk_gpu_in(t, h.mean, c->lora * sizeof(float));
    if (c->direct) {
        a.q_nope = nope;
        a.q_rope = chk_gpu_inout(t, rope, n_rope);
    }
    chk_gpu_call(t, chk_gpu_api(t)->mla_finish(chk_gpu(t), &a));
    chk_gpu_get(t, kv, a.kv, n_kv);
    chk_gpu_get(t, q, a.q, n_q);
    for (size_t i = 0; i < c->n_tok; i++) { /* exactly what the host makes of the normalised rows */
        float *x = kv1 + i * kv_stride;
        for (size_t k = 0; c->mean && k < c->lora; k++) x[k] -= h.mean[k];
        if (c->hadamard) nb_hadamard(x, c->lora, c->hadamard);
    }
    chk_same(t, "mean and transform", kv, kv_stride, kv1, kv_stride, c->n_tok, kv_stride);
    rope_want(t, c, &h, h.kv + c->lora, kv_stride, 1, 0, c->balance ? h.rope_k : NULL, NULL,
              kv + c->lora, kv_stride, 0);
    if (!c->direct) {
        rope_want(t, c, &h, h.q + c->d_nope, q_stride, c->n_head, d_qk,
                  c->balance ? h.rope_q : NULL, h.scale, q + c->d_nope, q_stride, d_qk);
        for (size_t i = 0; i < c->n_tok * c->n_head; i++)
            chk_same_bytes(t, "the other parts of queries",
                           q + i / c->n_head * q_stride + i % c->n_head * d_qk,
                           h.scaled + i / c->n_head * q_stride + i % c->n_head * d_qk,
                           c->d_nope * sizeof *q);
        return;
    }
    chk_gpu_get(t, rope, a.q_rope, n_rope);
    rope_want(t, c, &h, h.q + c->d_nope, q_stride, c->n_head, d_qk, c->balance ? h.rope_q : NULL,
              h.scale, rope, a.q_rope_stride, a.q_rope_head);
    chk_same_bytes(t, "queries", q, h.q, n_q);
    const nb_cuda_rows got = chk_gpu_get_rows(t, &nope, c->n_tok);
    chk_gpu_parts(t, &got, c->n_tok, w_nope);
    for (size_t i = 0; i < c->n_tok * c->n_head; i++)
        chk_same_bytes(
            t, "parts of queries", got.f + i / c->n_head * nope_stride + i % c->n_head * c->d_nope,
            h.scaled + i / c->n_head * q_stride + i % c->n_head * d_qk, c->d_nope * sizeof *q);
    const size_t last = c->n_tok - 1;
    const nb_cuda_rows alone = chk_gpu_out_rows(t, 1, nope_stride, 2);
    a.n_tok = 1;
    a.q += last * q_stride;
    a.kv = chk_gpu_inout(t, h.kv + last * kv_stride, kv_stride * sizeof(float));
    a.cos_sin += last * c->d_rope;
    if (a.q_scale) a.q_scale += last;
    a.q_nope = alone;
    chk_gpu_call(t, chk_gpu_api(t)->mla_finish(chk_gpu(t), &a));
    const nb_cuda_rows got1 = chk_gpu_get_rows(t, &alone, 1);
    chk_same(t, "parts for a token alone", got1.f, nope_stride, got.f + last * nope_stride,
             nope_stride, 1, w_nope);
    float *one = chk_raw(t, kv_stride * sizeof *one), *rope1 = chk_raw(t, n_rope);
    chk_gpu_get(t, one, a.kv, kv_stride * sizeof *one);
    chk_same(t, "for a token alone", one, kv_stride, kv + last * kv_stride, kv_stride, 1,
             kv_stride);
    chk_gpu_get(t, rope1, a.q_rope, n_rope);
    for (size_t i = 0; i < c->n_head; i++)
        chk_same(t, "rotation of a token alone", rope1 + i * a.q_rope_head, 1,
                 rope + last * a.q_rope_stride + i * a.q_rope_head, 1, 1, c->d_rope);
}

typedef struct gqa_case {
    size_t n_tok, n_head, n_kv_head, head_dim, rope_dim;
    bool norm, interleaved;
} gqa_case;

/* Rotation of the first rope_dim values of each head of x, given what was got; the rest is equal. */
static void gqa_want(chk *t, const gqa_case *c, const float *cos_sin, float *x, const float *got,
                     size_t n_head, size_t stride)
{
    const mla_case m = { .n_tok = c->n_tok, .d_rope = c->rope_dim, .interleaved = c->interleaved };
    const mla_host h = { .cos_sin = (float *)(uintptr_t)cos_sin };
    rope_want(t, &m, &h, x, stride, n_head, c->head_dim, NULL, NULL, got, stride, c->head_dim);
    for (size_t i = 0; i < c->n_tok * n_head; i++) {
        const size_t at = i / n_head * stride + i % n_head * c->head_dim + c->rope_dim;
        chk_same_bytes(t, "not rotated", got + at, x + at, (c->head_dim - c->rope_dim) * sizeof *x);
    }
}

static void gqa_one(chk *t, const gqa_case *c)
{
    const size_t q_w = c->n_head * c->head_dim, k_w = c->n_kv_head * c->head_dim;
    const size_t q_stride = q_w + chk_between(t, 0, 5), kv_stride = 2 * k_w + chk_between(t, 0, 5);
    const chk_pattern p = (chk_pattern)(chk_u64(t) % 9);
    float *q = chk_in_rows(t, c->n_tok, q_stride, q_stride, p);
    float *kv = chk_in_rows(t, c->n_tok, kv_stride, kv_stride, p);
    const float *w = chk_in_rows(t, 2, c->head_dim, c->head_dim, CHK_NORMAL);
    const float *cos_sin = chk_in_rows(t, c->n_tok, c->rope_dim, c->rope_dim, CHK_NORMAL);
    const size_t n_q = c->n_tok * q_stride * sizeof *q, n_kv = c->n_tok * kv_stride * sizeof *kv;
    nb_cuda_gqa_finish_args a = { .n_tok = c->n_tok,
                                  .n_head = c->n_head,
                                  .n_kv_head = c->n_kv_head,
                                  .head_dim = c->head_dim,
                                  .q_stride = q_stride,
                                  .kv_stride = kv_stride,
                                  .eps = 1e-6f,
                                  .interleaved = c->interleaved };
    a.cos_sin = chk_gpu_in(t, cos_sin, c->n_tok * c->rope_dim * sizeof *q);
    if (c->norm) {
        a.q_norm = chk_gpu_in(t, w, c->head_dim * sizeof *w);
        a.k_norm = chk_gpu_in(t, w + c->head_dim, c->head_dim * sizeof *w);
    }
    float *q1 = chk_raw(t, n_q), *kv1 = chk_raw(t, n_kv);
    float *q2 = chk_raw(t, n_q), *kv2 = chk_raw(t, n_kv);
    a.q = chk_gpu_inout(t, q, n_q); /* no rotation: the norm */
    a.kv = chk_gpu_inout(t, kv, n_kv);
    chk_gpu_call(t, chk_gpu_api(t)->gqa_finish(chk_gpu(t), &a));
    chk_gpu_get(t, q1, a.q, n_q);
    chk_gpu_get(t, kv1, a.kv, n_kv);
    double *want = chk_f64(t, c->head_dim), *bound = chk_f64(t, c->head_dim);
    for (size_t i = 0; c->norm && i < c->n_tok * (c->n_head + c->n_kv_head); i++) {
        const size_t tok = i / (c->n_head + c->n_kv_head), k = i % (c->n_head + c->n_kv_head);
        const bool is_q = k < c->n_head;
        const size_t at = is_q ? tok * q_stride + k * c->head_dim
                               : tok * kv_stride + (k - c->n_head) * c->head_dim;
        nb_rmsnorm_ref(&(nb_rmsnorm_args){ .x = (is_q ? q : kv) + at,
                                           .w = is_q ? w : w + c->head_dim,
                                           .n_row = 1,
                                           .dim = c->head_dim,
                                           .x_stride = c->head_dim,
                                           .eps = a.eps },
                       want);
        for (size_t j = 0; j < c->head_dim; j++)
            bound[j] = (4 + (double)c->head_dim / 16) * 0x1p-24 * fabs(want[j]) + 0x1p-126;
        chk_close(t, (is_q ? q1 : kv1) + at, 1, c->head_dim, c->head_dim, want, bound);
    }
    if (!c->norm) {
        chk_same_bytes(t, "queries", q1, q, n_q);
        chk_same_bytes(t, "keys and values", kv1, kv, n_kv);
    }
    a.rope_dim = c->rope_dim;
    a.q = chk_gpu_inout(t, q, n_q);
    a.kv = chk_gpu_inout(t, kv, n_kv);
    chk_gpu_call(t, chk_gpu_api(t)->gqa_finish(chk_gpu(t), &a));
    chk_gpu_get(t, q2, a.q, n_q);
    chk_gpu_get(t, kv2, a.kv, n_kv);
    gqa_want(t, c, cos_sin, q1, q2, c->n_head, q_stride);
    gqa_want(t, c, cos_sin, kv1, kv2, c->n_kv_head, kv_stride);
    for (size_t i = 0; i < c->n_tok; i++)
        chk_same_bytes(t, "values", kv2 + i * kv_stride + k_w, kv + i * kv_stride + k_w,
                       (kv_stride - k_w) * sizeof *kv);
}

static void test_finish(chk *t, const chk_row *row)
{
    (void)row;
    static const mla_case mla[] = {
        { 3, 16, 128, 64, 512, 512, true, true, true, true },
        { 2, 16, 128, 64, 512, 0, false, false, true, false },
        { 4, 5, 64, 32, 256, 64, true, false, false, true },
        { 1, 128, 128, 64, 512, 128, false, true, true, true },
        { 2, 3, 7, 6, 40, 8, true, true, false, true },
        { 3, 1, 1, 2, 1, 0, true, false, true, true },
        { 2, 9, 16, 10, 96, 32, false, true, false, false },
    };
    static const gqa_case gqa[] = {
        { 2, 32, 8, 128, 128, true, false },  { 3, 4, 1, 64, 64, false, true },
        { 2, 7, 3, 33, 10, true, true },      { 1, 1, 1, 2, 2, true, false },
        { 2, 16, 16, 256, 64, false, false },
    };
    for (size_t i = 0; i < 2 * NB_COUNT(mla); i++)
        if (chk_case(t, "mla %zu", i)) {
            mla_one(t, &mla[i / 2], i % 2);
        }
    for (size_t i = 0; i < 2 * NB_COUNT(gqa); i++)
        if (chk_case(t, "gqa %zu", i)) {
            gqa_one(t, &gqa[i / 2]);
        }
}

/* ---- timing ---- */

typedef struct job {
    const nb_cuda_api *api;
    nb_cuda *g;
    nb_cuda_mla_finish_args a;
} job;

static void call(void *ctx)
{
    const job *j = ctx;
    j->api->mla_finish(j->g, &j->a);
}

static void bench(chk *t, const chk_row *row)
{
    (void)row;
    static const size_t n_toks[] = { 1, 64, 4096 }, n_heads[] = { 16, 128 };
    for (size_t i = 0; i < 12; i++) {
        const size_t n = n_toks[i / 4], n_head = n > 64 ? 16 : n_heads[i / 2 % 2], w = n_head * 192;
        const bool direct = i % 2 == 0;
        char label[64];
        if (n > 64 && i / 2 % 2) continue;
        chk_case(t, "bench");
        job j = { chk_gpu_api(t), chk_gpu(t), { 0 } };
        j.a = (nb_cuda_mla_finish_args){ .n_tok = n,
                                         .n_head = n_head,
                                         .d_nope = 128,
                                         .d_rope = 64,
                                         .lora = 512,
                                         .q_stride = w,
                                         .kv_stride = 576,
                                         .q_rope_stride = n_head * 576,
                                         .q_rope_head = 576,
                                         .eps = 1e-6f,
                                         .interleaved = true };
        float *z = chk_raw(t, n * w * 4);
        memset(z, 0, n * w * 4);
        j.a.q = chk_gpu_inout(t, z, n * w * 4);
        j.a.kv = chk_gpu_inout(t, z, n * 576 * 4);
        j.a.norm = chk_gpu_in(t, z, 512 * 4);
        j.a.cos_sin = chk_gpu_in(t, z, n * 64 * 4);
        if (direct) {
            j.a.q_nope = chk_gpu_out_rows(t, n, n_head * 128, 2);
            j.a.q_nope.f = NULL;
            j.a.q_rope = chk_gpu_out(t, n * n_head * 576 * 4);
        }
        snprintf(label, sizeof label, "mla %zu tok, %zu heads, %s", n, n_head,
                 direct ? "direct" : "expanded");
        chk_gpu_time(t, label, (double)(n * (576 * 8 + n_head * (direct ? 1536 : 512))), 0, call,
                     &j);
    }
}

const chk_op chk_cuda_finish = { "cuda_finish", chk_gpu_row, test_finish, bench, NULL };
