/* cpu_expand.c - attention of a prompt's chunk in the expanded form.
 *
 * Per split of the context the pages are decoded once, and of each (page, head) the keys and values
 * are rebuilt by W_kv_b and packed at once, page after page for one head: its 256 rows of the
 * weight stay in the cache, and what is rebuilt never leaves it unpacked.  Where a file has W_kv_b in halves (kv_b.h), a
 * worker makes the head's rows floats when it comes to the head.  Queries are packed once
 * per chunk.  Then every (page of queries, head) goes over the tiles of the split; the pages of a
 * head follow each other, so that a thread keeps its tiles.
 *
 * A page of the chunk may be there twice: decoded for later queries, and as BF16 rows for its own.
 * Each split has a state of its own, merged in order of position: see cpu_attn.c. */
#include "model/cpu/cpu_context.h"
#include "model/kv_b.h"

typedef struct expand_ctx {
    const nb_cpu_attn *s;
    size_t j0;          /* first page of the split */
    size_t n_dec;       /* pages decoded: [j0, j0 + n_dec) */
    size_t own0, n_own; /* the chunk's own pages of the split: [own0, own0 + n_own) */
    size_t i0;          /* queries' pages from here on see the split */
    const nb_linear_variant *v;
    size_t xp_bytes; /* of a page of packed rows; 0: v reads floats */
} expand_ctx;

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static char *tile_at(const nb_cpu_attn *s, size_t slot, size_t head)
{
    return (char *)s->f->ex_tile + (slot * s->d->n_head + head) * s->ex->tile_bytes;
}

static char *query_at(const nb_cpu_attn *s, size_t page, size_t head)
{
    return (char *)s->f->ex_q + (page * s->d->n_head + head) * s->ex->q_bytes;
}

/* Queries in page i of the chunk: the in-page index of the first; its token in the chunk; how many. */
static void queries_of(const nb_cpu_attn *s, size_t i, size_t *r0, size_t *tok, size_t *n_q)
{
    *r0 = i == 0 ? s->in0 : 0;
    *tok = i * NB_PAGE_TOK + *r0 - s->in0;
    *n_q = min_size(s->c->n_tok - *tok, NB_PAGE_TOK - *r0);
}

static void query_task(void *ctx, size_t task, size_t worker)
{
    (void)worker;
    const expand_ctx *x = ctx;
    nb_cpu *f = x->s->f;
    const size_t nh = x->s->d->n_head, i = task / nh, h = task % nh;
    size_t r0, tok, n_q;
    queries_of(x->s, i, &r0, &tok, &n_q);
    const size_t at = x->s->t0 + tok, row = nh * x->s->d->d_q;
    f->r.plan.attn_prefill->pack_q(&x->s->ex->dims, query_at(x->s, i, h),
                                   f->q + at * row + h * x->s->d->d_q, row, n_q);
    for (size_t k = 0; k < n_q; k++)
        nb_cpu_reset(f->em + (at + k) * nh + h, f->el + (at + k) * nh + h, 1);
}

/* ---- keys and values ---- */

/* The rows of a slot: decoded pages come first, then the chunk's own. */
static const float *slot_rows(const expand_ctx *x, size_t slot, size_t *n_tok)
{
    const nb_cpu_attn *s = x->s;
    const size_t page = NB_PAGE_TOK * s->d->n_values;
    *n_tok = NB_PAGE_TOK;
    if (slot < x->n_dec) return s->f->dec + slot * page;
    const size_t i = x->own0 + (slot - x->n_dec) - s->p0;
    *n_tok = min_size(NB_PAGE_TOK, s->n_end - i * NB_PAGE_TOK);
    return s->own + i * page;
}

/* Decodes a page, and packs its rows for the product. */
static void rows_task(void *ctx, size_t slot, size_t worker)
{
    (void)worker;
    const expand_ctx *x = ctx;
    nb_cpu *f = x->s->f;
    size_t n_tok;
    const float *rows = slot_rows(x, slot, &n_tok);
    if (slot < x->n_dec)
        nb_cpu_decode_page(x->s, x->j0 + slot, f->dec + slot * NB_PAGE_TOK * x->s->d->n_values);
    if (x->xp_bytes)
        x->v->pack(f->xp + slot * x->xp_bytes, rows, x->s->d->n_values, n_tok, x->s->attn->kv_lora,
                   x->s->l->kv_b.group.column, 0, n_tok);
}

/* The head's rows of W_kv_b, from row *row of what is returned. */
static nb_weight head_weight(const expand_ctx *x, size_t head, size_t worker, size_t *row)
{
    nb_cpu *f = x->s->f;
    const nb_layer *l = x->s->l;
    const nb_attn_config *attn = x->s->attn;
    const size_t d_nv = attn->d_nope + attn->d_v, of = 1 + head * f->r.whole->n_layer + x->s->layer;
    *row = head * d_nv;
    if (!nb_kv_b_in_halves(l)) return l->kv_b;
    float *own = f->w_kv_b + worker * f->w_kv_b_floats;
    if (f->w_kv_b_of[worker] != of) nb_kv_b_head(l, attn, head, own);
    f->w_kv_b_of[worker] = of;
    *row = 0;
    return (nb_weight){ .data = own, .n_row = d_nv, .n_col = attn->kv_lora, .type = NB_W_F32 };
}

static void tile_task(void *ctx, size_t task, size_t worker)
{
    const expand_ctx *x = ctx;
    nb_cpu *f = x->s->f;
    const nb_attn_config *attn = x->s->attn;
    const size_t n_slot = x->n_dec + x->n_own, h = task / n_slot, slot = task % n_slot;
    const size_t d_nv = attn->d_nope + attn->d_v;
    size_t row;
    const nb_weight w = head_weight(x, nb_rank_head0(&f->r, x->s->layer) + h, worker, &row);
    float *y = f->w_tile + worker * NB_PAGE_TOK * d_nv;
    size_t n_tok;
    const float *rows = slot_rows(x, slot, &n_tok);
    x->v->fn(&(nb_linear_args){ .y = y,
                                .x = rows,
                                .w = w,
                                .n_tok = n_tok,
                                .row_begin = row,
                                .row_end = row + d_nv,
                                .x_stride = x->s->d->n_values,
                                .y_stride = d_nv,
                                .xp = x->xp_bytes ? f->xp + slot * x->xp_bytes : NULL });
    f->r.plan.attn_prefill->pack_kv(&x->s->ex->dims, tile_at(x->s, slot, h),
                                    &(nb_attn_prefill_tile){ .k1 = y,
                                                             .k2 = rows + attn->kv_lora,
                                                             .v = y + attn->d_nope,
                                                             .k1_stride = d_nv,
                                                             .k2_stride = x->s->d->n_values,
                                                             .v_stride = d_nv,
                                                             .n_tok = n_tok });
}

/* ---- queries ---- */

/* Queries of one page of the chunk, one head, against the split. */
static void attend_task(void *ctx, size_t task, size_t worker)
{
    const expand_ctx *x = ctx;
    const nb_cpu_attn *s = x->s;
    nb_cpu *f = s->f;
    const nb_attn_config *attn = s->attn;
    const size_t nh = attn->n_head, n_i = s->n_page - x->i0, h = task / n_i, i = x->i0 + task % n_i;
    const size_t qp = s->p0 + i;
    size_t r0, tok, n_q, n_tile = 0;
    const void *tile[NB_SPLIT_PAGES];
    queries_of(s, i, &r0, &tok, &n_q);
    for (size_t j = x->j0; j < x->j0 + x->n_dec && j < qp; j++)
        tile[n_tile++] = tile_at(s, j - x->j0, h);
    const bool own = qp < x->j0 + NB_SPLIT_PAGES;
    if (own) tile[n_tile++] = tile_at(s, x->n_dec + qp - x->own0, h);
    /* The first split's state is the total; a later one is joined to it. */
    const bool first = x->j0 == 0;
    const size_t at = (s->t0 + tok) * nh + h;
    nb_attn_prefill_args a = { .d = s->ex->dims,
                               .o = first ? f->eo + at * attn->d_v
                                          : f->w_o + worker * NB_PAGE_TOK * attn->d_v,
                               .m = first ? f->em + at : f->w_m + worker * NB_PAGE_TOK,
                               .l = first ? f->el + at : f->w_l + worker * NB_PAGE_TOK,
                               .o_stride = first ? nh * attn->d_v : attn->d_v,
                               .ml_stride = first ? nh : 1,
                               .q = query_at(s, i, h),
                               .tile = tile,
                               .n_q = n_q,
                               .n_tile = n_tile,
                               .last_tok = own ? r0 + n_q : NB_PAGE_TOK,
                               .vis0 = own ? r0 + 1 : NB_PAGE_TOK,
                               .vis_step = own,
                               .scale = attn->softmax_scale,
                               .scratch = (char *)f->w_scratch + worker * f->w_scratch_bytes };
    if (!first) nb_cpu_reset(a.m, a.l, n_q);
    f->r.plan.attn_prefill->fn(&a);
    for (size_t k = 0; k < n_q && !first; k++) {
        const size_t g = at + k * nh;
        nb_attn_merge(f->eo + g * attn->d_v, f->em + g, f->el + g, a.o + k * attn->d_v, a.m + k,
                      a.l + k, 1, attn->d_v);
    }
}

static void finish_tokens(void *ctx, size_t t0, size_t t1)
{
    const expand_ctx *x = ctx;
    nb_cpu *f = x->s->f;
    const nb_attn_config *attn = x->s->attn;
    const size_t at = (x->s->t0 + t0) * attn->n_head;
    nb_attn_finish(f->attn + at * attn->d_v, f->eo + at * attn->d_v, f->el + at,
                   (t1 - t0) * attn->n_head, attn->d_v);
}

void nb_cpu_expanded(const nb_cpu_attn *s)
{
    nb_cpu *f = s->f;
    const nb_attn_config *attn = s->attn;
    const nb_linear_variant *v = f->r.plan.linear[s->l->kv_b.type]; /* halves: F32, which is 0 */
    const size_t nh = attn->n_head, p_last = s->p0 + s->n_page - 1;
    expand_ctx x = { .s = s, .v = v };
    if (v->pack) x.xp_bytes = v->pack_bytes(NB_PAGE_TOK, attn->kv_lora);
    nb_dev_run(f->r.o.dev, query_task, &x, s->n_page * nh);
    for (x.j0 = 0; x.j0 <= p_last; x.j0 += NB_SPLIT_PAGES) {
        const size_t j1 = x.j0 + NB_SPLIT_PAGES;
        x.n_dec = min_size(p_last, j1) - x.j0;
        x.own0 = s->p0 > x.j0 ? s->p0 : x.j0;
        x.n_own = x.own0 < j1 ? min_size(p_last + 1, j1) - x.own0 : 0;
        x.i0 = x.j0 > s->p0 ? x.j0 - s->p0 : 0;
        if (s->window && x.n_dec && x.j0 % NB_WINDOW_PAGES == 0 &&
            !nb_cpu_fetch(s, x.j0, min_size(p_last - x.j0, NB_WINDOW_PAGES)))
            return;
        nb_dev_run(f->r.o.dev, rows_task, &x, x.n_dec + x.n_own);
        nb_dev_run(f->r.o.dev, tile_task, &x, (x.n_dec + x.n_own) * nh);
        nb_dev_run(f->r.o.dev, attend_task, &x, (s->n_page - x.i0) * nh);
    }
    nb_cpu_tokens(f, finish_tokens, &x, s->c->n_tok);
}
