/* cpu_index.c - the indexer of sparse attention, which chooses among tokens (attn_mla.c), and of compressed attention,
 * which chooses among rows of several tokens (attn_csa.c).
 *
 *   s(p, k) = sum_h w_h max(0, q_h . key_k),   w_h with the factor (n_head dim)^-1/2
 * Then the exact top k.  A score depends on its query and its key alone, so a choice depends on the position only. */
#include <stdio.h>

#include "model/cpu/cpu.h"

enum { TASK_KEYS = 4 * NB_INDEX_TOK };

/* Rows of one page of a chunk: they see the same keys in the same form. */
typedef struct score_run {
    size_t row0, n, page;
    size_t n_key; /* that the last of them sees */
    size_t task0;
} score_run;

typedef struct score_ctx {
    nb_cpu *f;
    const nb_pass *p;
    const nb_attn_config *attn;
    size_t layer, n_row, n_run, n_task;
    nb_index_keys_fn *keys;
    nb_index_row row[NB_INDEX_QUERY];
    score_run run[NB_INDEX_QUERY];
} score_ctx;

size_t nb_index_n_dense(const nb_attn_config *a, const nb_chunk *c)
{
    const size_t end = (a->index_topk + 1) * (a->ratio ? a->ratio : 1) - 1; /* the first position that chooses */
    if (c->pos0 >= end) return 0;
    return c->n_tok < end - c->pos0 ? c->n_tok : end - c->pos0;
}

bool nb_index_next(const nb_cpu *f, const nb_pass *p, const nb_attn_config *a, nb_index_row *r)
{
    for (r->tok++; r->chunk < p->n_chunk; r->chunk++, r->tok = 0) {
        const nb_chunk *c = &p->chunk[r->chunk];
        const size_t first = nb_index_n_dense(a, c);
        if (r->tok < first) r->tok = first;
        if (r->tok >= c->n_tok || f->chunk_bad[r->chunk]) continue;
        r->at = f->place[r->chunk].tok0 + r->tok;
        return true;
    }
    return false;
}

uint32_t *nb_index_chosen(const nb_cpu *f, const nb_attn_config *a, const nb_index_row *r)
{
    return f->index.chosen + r->at * a->index_topk;
}

static size_t pos_of(const score_ctx *c, const nb_index_row *r)
{
    return c->p->chunk[r->chunk].pos0 + r->tok;
}

static void *packed(const score_ctx *c, size_t i)
{
    const nb_attn_config *a = c->attn;
    return (char *)c->f->index.pack + i * c->f->r.plan.index_score->q_bytes(a->index_head, a->index_dim);
}

static void pack_task(void *ctx, size_t i, size_t worker)
{
    (void)worker;
    const score_ctx *c = ctx;
    const size_t nh = c->attn->index_head, dim = c->attn->index_dim, at = c->row[i].at;
    c->f->r.plan.index_score->pack(nh, dim, c->f->index.q + at * nh * dim, c->f->index.w + at * nh, packed(c, i));
}

static void score_task(void *ctx, size_t task, size_t worker)
{
    const score_ctx *c = ctx;
    nb_cpu *f = c->f;
    const nb_attn_config *a = c->attn;
    const score_run *r = c->run;
    while (r + 1 < c->run + c->n_run && r[1].task0 <= task) r++;
    const nb_cpu_attn s = nb_cpu_attn_of(f, c->p, c->row[r->row0].chunk, c->layer);
    const size_t first = (task - r->task0) * TASK_KEYS, left = r->n_key - first;
    const size_t end = first + (left < TASK_KEYS ? left : TASK_KEYS);
    for (size_t k0 = first; k0 < end; k0 += NB_INDEX_TOK) {
        const size_t n = end - k0 < NB_INDEX_TOK ? end - k0 : NB_INDEX_TOK;
        size_t stride;
        const float *k = c->keys(&s, r->page, k0, n, worker, &stride);
        f->r.plan.index_score->fn(
            &(nb_index_score_args){ .s = f->index.score + r->row0 * f->index.stride + k0,
                                    .q = packed(c, r->row0),
                                    .k = k,
                                    .scratch = (char *)f->w_scratch + worker * f->w_scratch_bytes,
                                    .n_query = r->n,
                                    .n_head = a->index_head,
                                    .dim = a->index_dim,
                                    .n_tok = n,
                                    .s_stride = f->index.stride,
                                    .k_stride = stride });
    }
}

static void topk_task(void *ctx, size_t i, size_t worker)
{
    (void)worker;
    const score_ctx *c = ctx;
    c->f->r.plan.index_topk->fn(&(nb_index_topk_args){ .s = c->f->index.score + i * c->f->index.stride,
                                                       .at = nb_index_chosen(c->f, c->attn, &c->row[i]),
                                                       .n = nb_index_n_key(c->attn, pos_of(c, &c->row[i])),
                                                       .k = c->attn->index_topk });
}

/* Tests look at scores and choices: [1][keys], then the chosen ones as floats, [1][index_topk]. */
static void trace_choice(const score_ctx *c, size_t i)
{
    const nb_cpu *f = c->f;
    const size_t n = nb_index_n_key(c->attn, pos_of(c, &c->row[i])), k = c->attn->index_topk;
    float *s = f->index.score + i * f->index.stride;
    char name[64];
    (void)snprintf(name, sizeof name, "layers.%zu.index_score", c->layer);
    f->r.trace(f->r.trace_ctx, name, s, 1, n, n);
    for (size_t j = 0; j < k; j++) s[j] = (float)nb_index_chosen(f, c->attn, &c->row[i])[j];
    (void)snprintf(name, sizeof name, "layers.%zu.index", c->layer);
    f->r.trace(f->r.trace_ctx, name, s, 1, k, k);
}

/* The row joins the run before it, or begins one. */
static void add_row(score_ctx *c, const nb_index_row *row)
{
    const size_t pos = pos_of(c, row), page = pos / NB_PAGE_TOK;
    score_run *r = c->n_run ? &c->run[c->n_run - 1] : NULL;
    if (!r || c->row[r->row0].chunk != row->chunk || r->page != page) {
        r = &c->run[c->n_run++];
        *r = (score_run){ .row0 = c->n_row, .page = page };
    }
    c->row[c->n_row++] = *row;
    r->n++;
    r->n_key = nb_index_n_key(c->attn, pos);
    NB_ASSERT(r->n_key <= c->f->index.stride);
}

void nb_index_choose(nb_cpu *f, const nb_pass *p, size_t layer, nb_index_keys_fn *keys)
{
    const nb_attn_config *a = nb_rank_attn(&f->r, layer);
    nb_dev *dev = f->r.o.dev;
    nb_index_row row = { 0, SIZE_MAX, 0 };
    bool more = nb_index_next(f, p, a, &row);
    _Static_assert((int)NB_INDEX_TOK == (int)NB_PAGE_TOK, "nb_index_keys_fn");
    while (more) {
        score_ctx c = { .f = f, .p = p, .attn = a, .layer = layer, .keys = keys };
        for (; more && c.n_row < NB_INDEX_QUERY; more = nb_index_next(f, p, a, &row)) add_row(&c, &row);
        for (size_t k = 0; k < c.n_run; k++) {
            c.run[k].task0 = c.n_task;
            c.n_task += (c.run[k].n_key + TASK_KEYS - 1) / TASK_KEYS;
        }
        nb_dev_run(dev, pack_task, &c, c.n_row);
        nb_dev_run(dev, score_task, &c, c.n_task);
        nb_dev_run(dev, topk_task, &c, c.n_row);
        for (size_t i = 0; f->r.trace && i < c.n_row; i++) trace_choice(&c, i);
    }
}
