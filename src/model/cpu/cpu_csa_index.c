/* cpu_csa_index.c - the lightning indexer of compressed attention: scores of compressed rows, and the choice of the
 * best.
 *
 *   s(p, w) = sum_h w_h max(0, q_h . k_w),   w_h with the factor (n_head dim)^-1/2
 * The idx_top rows of the largest scores, of equal ones the earlier, in ascending order: index_score and index_topk.
 * A score depends on its query and its key alone, so the choice depends on the position only. */
#include "model/cpu/cpu_csa.h"

enum {
    BLOCK = 4 * NB_INDEX_TOK, /* rows of a task */
    RUNS = 2                  /* pages that a tile of queries may touch */
};

/* Queries of one page: they see the same rows in the same form. */
typedef struct score_run {
    size_t first, n, page; /* queries of the tile */
    size_t n_row; /* that the last of them sees; 0: all of them see all rows that there are */
    size_t task0;
} score_run;

typedef struct score_ctx {
    const nb_csa *x;
    size_t tok, n_task, n_run;
    score_run run[RUNS];
} score_ctx;

static void *packed(const nb_csa *x, size_t i)
{
    const nb_cpu *f = x->s.f;
    const nb_attn_config *a = x->s.attn;
    return (char *)f->csa.pack + i * f->r.plan.index_score->q_bytes(a->idx_head, a->idx_dim);
}

static void pack_query(void *ctx, size_t i, size_t worker)
{
    (void)worker;
    const score_ctx *y = ctx;
    const nb_cpu_attn *s = &y->x->s;
    const nb_cpu *f = s->f;
    const size_t nh = s->attn->idx_head, dim = s->attn->idx_dim, at = s->t0 + y->tok + i;
    f->r.plan.index_score->pack(nh, dim, f->csa.iq + at * nh * dim, f->csa.iw + at * nh,
                                packed(y->x, i));
}

static void score_rows(void *ctx, size_t task, size_t worker)
{
    const score_ctx *y = ctx;
    const nb_csa *x = y->x;
    nb_cpu *f = x->s.f;
    const nb_attn_config *a = x->s.attn;
    const score_run *r = y->run;
    while (r + 1 < y->run + y->n_run && r[1].task0 <= task) r++;
    const size_t w0 = (task - r->task0) * BLOCK;
    const size_t end = w0 + BLOCK < r->n_row ? w0 + BLOCK : r->n_row;
    float *key = f->csa.w_row + worker * NB_ATTN_TILE * f->csa.max_dim;
    _Static_assert((int)NB_INDEX_TOK <= (int)NB_ATTN_TILE, "w_row");
    for (size_t w = w0; w < end; w += NB_INDEX_TOK) {
        const size_t n = end - w < NB_INDEX_TOK ? end - w : NB_INDEX_TOK;
        nb_csa_rows(x, r->page, w, n, NB_CSA_INDEX_SEG, key, a->idx_dim);
        f->r.plan.index_score->fn(
            &(nb_index_score_args){ .s = f->csa.score + r->first * f->csa.max_row + w,
                                    .q = packed(x, r->first),
                                    .k = key,
                                    .scratch = (char *)f->w_scratch + worker * f->w_scratch_bytes,
                                    .n_query = r->n,
                                    .n_head = a->idx_head,
                                    .dim = a->idx_dim,
                                    .n_tok = n,
                                    .s_stride = f->csa.max_row,
                                    .k_stride = a->idx_dim });
    }
}

static void choose_rows(void *ctx, size_t i, size_t worker)
{
    (void)worker;
    const score_ctx *y = ctx;
    const nb_cpu_attn *s = &y->x->s;
    nb_cpu *f = s->f;
    const size_t n = nb_csa_n_row(s->attn, s->c->pos0 + y->tok + i), top = s->attn->idx_top;
    uint32_t *pick = f->csa.pick + i * f->csa.max_top;
    f->csa.n_pick[i] = n < top ? n : top;
    if (n > top)
        f->r.plan.index_topk->fn(&(nb_index_topk_args){
            .s = f->csa.score + i * f->csa.max_row, .at = pick, .n = n, .k = top });
    else
        for (uint32_t w = 0; w < n; w++) pick[w] = w;
}

/* Divides the tile's queries by their pages, and counts tasks. */
static void make_runs(score_ctx *y, size_t n)
{
    _Static_assert((int)NB_CSA_TILE <= (int)NB_PAGE_TOK, "RUNS");
    const nb_cpu_attn *s = &y->x->s;
    for (size_t i = 0; i < n; i++) {
        const size_t pos = s->c->pos0 + y->tok + i, page = pos / NB_PAGE_TOK;
        if (y->n_run == 0 || y->run[y->n_run - 1].page != page)
            y->run[y->n_run++] = (score_run){ .first = i, .page = page };
        score_run *r = &y->run[y->n_run - 1];
        const size_t n_row = nb_csa_n_row(s->attn, pos);
        r->n = i + 1 - r->first;
        r->n_row = n_row > s->attn->idx_top ? n_row : 0;
    }
    for (size_t k = 0; k < y->n_run; k++) {
        y->run[k].task0 = y->n_task;
        y->n_task += (y->run[k].n_row + BLOCK - 1) / BLOCK;
    }
}

void nb_csa_choose(const nb_csa *x, size_t tok, size_t n)
{
    nb_dev *dev = x->s.f->r.o.dev;
    score_ctx y = { .x = x, .tok = tok };
    make_runs(&y, n);
    if (y.n_task) {
        nb_dev_run(dev, pack_query, &y, n);
        nb_dev_run(dev, score_rows, &y, y.n_task);
    }
    nb_dev_run(dev, choose_rows, &y, n);
}
