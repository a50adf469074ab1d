/* cpu_csa_index.c - the lightning indexer of compressed attention: scores of compressed rows, and the choice of the
 * best.
 *
 *   s(p, w) = sum_h w_h max(0, q_h . k_w),   w_h with the factor (n_head dim)^-1/2
 * The idx_top rows of the largest scores, of equal ones the earlier, in ascending order.  A score depends on its query
 * and its key alone, so the choice depends on the position only. */
#include <string.h>

#include "model/cpu/cpu_csa.h"

enum { BLOCK = 256 }; /* rows of a task */

typedef struct score_ctx {
    const nb_csa *x;
    size_t tok, n_block;
} score_ctx;

static float dot(const float *a, const float *b, size_t n)
{
    float s[8] = { 0 };
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t k = 0; k < 8; k++) s[k] += a[i + k] * b[i + k];
    for (; i < n; i++) s[0] += a[i] * b[i];
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

static void score_block(void *ctx, size_t task, size_t worker)
{
    const score_ctx *y = ctx;
    const nb_csa *x = y->x;
    const nb_cpu_attn *s = &x->s;
    nb_cpu *f = s->f;
    const nb_attn_config *a = s->attn;
    const size_t i = task / y->n_block, tok = y->tok + i, pos = s->c->pos0 + tok;
    const size_t n = nb_csa_n_row(a, pos), w0 = task % y->n_block * BLOCK;
    const float *q = f->csa.iq + (s->t0 + tok) * a->idx_head * a->idx_dim;
    const float *weight = f->csa.iw + (s->t0 + tok) * a->idx_head;
    float *key = f->csa.w_row + worker * NB_ATTN_TILE * f->csa.max_dim;
    if (n <= a->idx_top) return; /* all are taken */
    for (size_t w = w0; w < n && w < w0 + BLOCK; w++) {
        float sum = 0;
        nb_csa_row(x, pos / NB_PAGE_TOK, w, 2, key);
        for (size_t h = 0; h < a->idx_head; h++) {
            const float d = dot(q + h * a->idx_dim, key, a->idx_dim);
            sum += weight[h] * (d > 0 ? d : 0);
        }
        f->csa.score[i * f->csa.max_row + w] = sum;
    }
}

/* A score as a number in the same order, -0 as +0. */
static uint32_t order(float s)
{
    uint32_t u;
    s += 0.0f;
    memcpy(&u, &s, sizeof u);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* The k-th largest of n scores by bits from the top; *n_equal: how many of its equals belong to the first k. */
static uint32_t kth(const float *s, size_t n, size_t k, size_t *n_equal)
{
    uint32_t prefix = 0, mask = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        size_t count[256] = { 0 };
        for (size_t i = 0; i < n; i++) {
            const uint32_t u = order(s[i]);
            if ((u & mask) == prefix) count[u >> shift & 255]++;
        }
        uint32_t b = 255;
        while (k > count[b]) k -= count[b--];
        prefix |= b << shift;
        mask |= 255u << shift;
    }
    *n_equal = k;
    return prefix;
}

static void choose_rows(void *ctx, size_t i, size_t worker)
{
    (void)worker;
    const score_ctx *y = ctx;
    const nb_cpu_attn *s = &y->x->s;
    nb_cpu *f = s->f;
    const size_t n = nb_csa_n_row(s->attn, s->c->pos0 + y->tok + i), top = s->attn->idx_top;
    const float *score = f->csa.score + i * f->csa.max_row;
    uint32_t *pick = f->csa.pick + i * f->csa.max_top;
    size_t n_equal = 0, k = 0;
    f->csa.n_pick[i] = n < top ? n : top;
    if (n <= top) {
        for (uint32_t w = 0; w < n; w++) pick[w] = w;
        return;
    }
    const uint32_t cut = kth(score, n, top, &n_equal);
    for (uint32_t w = 0; w < n && k < top; w++) {
        const uint32_t u = order(score[w]);
        if (u < cut || (u == cut && n_equal == 0)) continue;
        n_equal -= u == cut;
        pick[k++] = w;
    }
}

void nb_csa_choose(const nb_csa *x, size_t tok, size_t n)
{
    const nb_cpu_attn *s = &x->s;
    const size_t rows = nb_csa_n_row(s->attn, s->c->pos0 + tok + n - 1);
    score_ctx y = { x, tok, (rows + BLOCK - 1) / BLOCK };
    if (rows > s->attn->idx_top) nb_dev_run(s->f->r.o.dev, score_block, &y, n * y.n_block);
    nb_dev_run(s->f->r.o.dev, choose_rows, &y, n);
}
