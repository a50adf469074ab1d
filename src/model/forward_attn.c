/* forward_attn.c - storing new rows and attending to the cache.
 *
 * New rows are rounded to BF16; a page whose last token is there is encoded into
 * its block at once, the rest waits in the tail.  A query in page p then sees
 * pages 0..p-1 decoded and page p's rows in BF16.  (An f32 record rounds nothing.)
 *
 * Two drivers.  Direct: queries against the stored values (absorbed MLA; GQA), a
 * tile of at most 64 queries of one page at a time; splits of the context are
 * independent tasks.  Expanded: forward_expand.c.  Either way the state of a
 * (query, head) is built per split of NB_SPLIT_PAGES pages and merged in order of
 * position, so the result does not depend on how the work was cut.
 *
 * In the absorbed form, the runs of complete pages of a split go to one call of attn_pages, which
 * reads their bytes; a page with sinks, with tokens that are read refined, or still open is
 * decoded, or there, as floats.  Where runs begin and end is a matter of the sequence alone. */
#include <math.h>
#include <string.h>

#include "model/forward_internal.h"
#include "num/bf16.h"
#include "num/residual.h"

unsigned char *nb_fw_page(const nb_attn_step *s, size_t page)
{
    const nb_kv_view *kv = &s->c->kv;
    NB_ASSERT(page < kv->n_block);
    return kv->pool + (size_t)kv->block[page] * kv->block_bytes + kv->layer_off[s->layer];
}

static const nb_record *record_of(const nb_attn_step *s)
{
    return &s->f->o.record[s->layer];
}

/* Rows of page 0 that are kept in BF16 beside the page: none where the record is as exact. */
size_t nb_fw_n_sink(const nb_attn_step *s, size_t page)
{
    const nb_kv_type t = record_of(s)->type;
    return page != 0 || t == NB_KV_BF16 || t == NB_KV_F32 ? 0 : s->f->o.n_sink;
}

static uint16_t *sink_rows(const nb_attn_step *s)
{
    const nb_kv_view *kv = &s->c->kv;
    return kv->sink + (size_t)kv->block[0] * kv->sink_block +
           s->layer * s->f->o.n_sink * s->f->n_values;
}

/* ---- storing ---- */

/* Rounds n values to BF16 (but for f32 records); false if one is not finite. */
static bool round_rows(const nb_record *r, const float *in, float *out, size_t n)
{
    bool finite = true;
    if (r->type == NB_KV_F32) {
        for (size_t k = 0; k < n; k++) {
            finite &= isfinite(in[k]) != 0;
            out[k] = in[k];
        }
        return finite;
    }
    for (size_t k = 0; k < n; k++) {
        const uint16_t b = nb_bf16_from_f32(in[k]);
        finite &= nb_bf16_is_finite(b);
        out[k] = nb_bf16_to_f32(b);
    }
    return finite;
}

/* The rows of sinks go beside the page; in it a neighbour stands in their place, so that they do
 * not widen the scales of those who share them. */
static void keep_sinks(const nb_attn_step *s, size_t page, uint16_t *half)
{
    const size_t n = s->f->n_values, k = nb_fw_n_sink(s, page);
    if (k == 0) return;
    memcpy(sink_rows(s), half, k * n * sizeof *half);
    for (size_t t = 0; t < k; t++)
        if (k < NB_PAGE_TOK)
            memcpy(half + t * n, half + k * n, n * sizeof *half);
        else
            memset(half + t * n, 0, n * sizeof *half);
}

static bool encode_rows(const nb_attn_step *s, size_t i, const float *rows, uint16_t *half)
{
    nb_forward *f = s->f;
    const nb_record *r = record_of(s);
    const size_t n = f->n_values, n0 = r->seg[0].dim * r->seg[0].n_vec, stride[2] = { n, n };
    if (r->type == NB_KV_F32) {
        const float *const seg[2] = { rows, rows + n0 };
        nb_record_store_f32(r, nb_fw_page(s, s->p0 + i), seg, stride);
        return true;
    }
    for (size_t k = 0; k < NB_PAGE_TOK * n; k++) half[k] = nb_bf16_from_f32(rows[k]); /* exact */
    keep_sinks(s, s->p0 + i, half);
    const uint16_t *const seg[2] = { half, half + n0 };
    unsigned char *page = nb_fw_page(s, s->p0 + i);
    if (f->plan.kv_codec->encode(r, page, seg, stride) != NB_OK) return false;
    if (r->seg[0].fixed_scale != 0 || r->seg[1].fixed_scale != 0)
        atomic_fetch_add_explicit(&f->n_saturated, nb_record_count_saturated(r, seg, stride),
                                  memory_order_relaxed);
    if (s->c->kv.plane && nb_residual_possible(r))
        f->plan.kv_residual->encode(r, page, half, n, nb_fw_plane(s, s->p0 + i));
    return true;
}

/* A chunk inside one page works on the tail itself; a longer one on f->raw, where
 * its first page begins with the tail's rows and from where the last goes back. */
bool nb_fw_store_page(const nb_attn_step *s, size_t i, uint16_t *stage)
{
    const nb_forward *f = s->f;
    const size_t n = f->n_values, old = i == 0 ? s->in0 : 0;
    const size_t end =
        s->n_end - i * NB_PAGE_TOK < NB_PAGE_TOK ? s->n_end - i * NB_PAGE_TOK : NB_PAGE_TOK;
    float *rows = s->own + i * NB_PAGE_TOK * n;
    const float *in = f->kv + (s->t0 + i * NB_PAGE_TOK - (i ? s->in0 : 0)) * n;
    if (old && rows != s->tail) memcpy(rows, s->tail, old * n * sizeof *rows);
    return round_rows(record_of(s), in, rows + old * n, (end - old) * n) &&
           (end < NB_PAGE_TOK || encode_rows(s, i, rows, stage));
}

nb_status nb_fw_store_error(const nb_attn_step *s, size_t i, nb_error *err)
{
    return nb_fail(err, NB_ERR_NONFINITE,
                   "layer %zu: a value to be stored in the KV cache (positions %zu to %zu) is "
                   "not finite",
                   s->layer, (s->p0 + i) * NB_PAGE_TOK,
                   (s->p0 + i) * NB_PAGE_TOK + NB_PAGE_TOK - 1);
}

static void store_task(void *ctx, size_t i, size_t worker)
{
    (void)worker;
    const nb_attn_step *s = ctx;
    nb_forward *f = s->f;
    f->page_bad[i] = !nb_fw_store_page(s, i, f->stage + i * NB_PAGE_TOK * f->n_values);
}

static nb_status store(nb_attn_step *s, nb_error *err)
{
    nb_forward *f = s->f;
    nb_dev_run(f->o.dev, store_task, s, s->n_page);
    for (size_t i = 0; i < s->n_page; i++)
        if (f->page_bad[i]) return nb_fw_store_error(s, i, err);
    nb_fw_thrift_stored(s);
    return NB_OK;
}

/* All values of a complete page as float rows [64][n_values]. */
void nb_fw_decode_page(const nb_attn_step *s, size_t page, float *out)
{
    const nb_forward *f = s->f;
    const nb_record *r = record_of(s);
    const unsigned char *p = nb_fw_page(s, page);
    f->plan.kv_codec->decode(r, p, 0, 0, NB_PAGE_TOK, out, f->n_values);
    f->plan.kv_codec->decode(r, p, 1, 0, NB_PAGE_TOK, out + r->seg[0].dim * r->seg[0].n_vec,
                             f->n_values);
    const size_t n = nb_fw_n_sink(s, page) * f->n_values;
    const uint16_t *sink = n ? sink_rows(s) : NULL;
    for (size_t k = 0; k < n; k++) out[k] = nb_bf16_to_f32(sink[k]);
}

void nb_fw_reset_state(float *m, float *l, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        m[i] = -INFINITY;
        l[i] = 0;
    }
}

/* ---- direct: absorbed MLA and GQA ---- */

typedef struct direct_ctx {
    const nb_attn_step *s;
    const float *q;
    size_t q_stride, n_q, r0, page; /* queries: in-page index of the first, absolute page */
    size_t split0, n_wave, n_hb;
    bool last_wave;
} direct_ctx;

/* Heads of block i of n_hb. */
static void head_range(size_t n_head, size_t n_hb, size_t i, size_t *b, size_t *e)
{
    *b = n_head * i / n_hb;
    *e = n_head * (i + 1) / n_hb;
}

size_t nb_fw_n_closed(size_t page, size_t split)
{
    const size_t j0 = split * NB_SPLIT_PAGES, n = page > j0 ? page - j0 : 0;
    return n < NB_SPLIT_PAGES ? n : NB_SPLIT_PAGES;
}

/* One tile of rows for the queries of x: a decoded page, or the open one. */
static void split_tile(const nb_split_args *x, const float *rows, bool own)
{
    const nb_forward *f = x->s->f;
    const nb_model_config *c = &f->o.model->c;
    const size_t nh = c->n_head, n = f->n_values;
    const bool mla = c->attn == NB_ATTN_MLA;
    f->plan.attn->fn(&(nb_attn_args){
        .o = x->o,
        .m = x->m,
        .l = x->l,
        .q = x->q,
        .k1 = rows,
        .k2 = mla ? rows + c->kv_lora : rows,
        .v = mla ? rows : rows + c->n_kv_head * c->head_dim,
        .n_q = x->n_q,
        .head_begin = x->head_begin,
        .head_end = x->head_end,
        .group = mla ? nh : nh / c->n_kv_head,
        .n_kv = own ? x->r0 + x->n_q : NB_PAGE_TOK,
        .vis0 = own ? x->r0 + 1 : NB_PAGE_TOK,
        .vis_step = own,
        .d1 = mla ? c->kv_lora : c->head_dim,
        .d2 = mla ? c->d_rope : 0,
        .d_v = f->d_state,
        .q_q_stride = x->q_stride,
        .o_q_stride = nh * f->d_state,
        .ml_q_stride = nh,
        .k1_stride = n,
        .k1_head = mla ? 0 : c->head_dim,
        .k2_stride = n,
        .v_stride = n,
        .v_head = mla ? 0 : c->head_dim,
        .scale = c->softmax_scale,
    });
}

/* Complete pages that follow each other, for all queries of the n sequences. */
static void split_pages(const nb_split_args *a, size_t n, const void *const *page, size_t n_page,
                        size_t worker)
{
    nb_forward *f = a->s->f;
    nb_attn_query query[NB_PAGE_TOK];
    size_t n_query = 0;
    const size_t nh = f->o.model->c.n_head;
    if (n_page == 0) return;
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < a[k].n_q; i++)
            query[n_query++] = (nb_attn_query){ .q = a[k].q + i * a[k].q_stride,
                                                .o = a[k].o + i * nh * f->d_state,
                                                .m = a[k].m + i * nh,
                                                .l = a[k].l + i * nh };
    f->over_pages[a->s->layer]->fn(
        &(nb_attn_pages_args){ .record = record_of(a->s),
                               .page = page,
                               .n_page = n_page,
                               .query = query,
                               .n_query = n_query,
                               .head_begin = a->head_begin,
                               .head_end = a->head_end,
                               .scale = f->o.model->c.softmax_scale,
                               .scratch = (char *)f->w_scratch + worker * f->w_scratch_bytes });
}

/* Whether attn_pages may read the page: nothing stands beside its bytes. */
static bool plain_page(const nb_split_args *x, size_t page)
{
    const nb_fw_pick *p = x->pick;
    return x->s->f->over_pages[x->s->layer] && nb_fw_n_sink(x->s, page) == 0 &&
           !(p && p->first[page] != p->first[page + 1]);
}

void nb_fw_attn_split(const nb_split_args *a, size_t n, size_t worker)
{
    nb_forward *f = a->s->f;
    const size_t nh = f->o.model->c.n_head, j0 = a->split * NB_SPLIT_PAGES;
    const size_t n_closed = nb_fw_n_closed(a->page, a->split);
    float *rows = f->w_page + worker * NB_PAGE_TOK * f->n_values;
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < a[k].n_q; i++)
            nb_fw_reset_state(a[k].m + i * nh + a->head_begin, a[k].l + i * nh + a->head_begin,
                              a->head_end - a->head_begin);
    const void *run[NB_SPLIT_PAGES] = { 0 };
    size_t n_run = 0;
    for (size_t j = j0; j < j0 + n_closed; j++) {
        if (plain_page(a, j)) {
            run[n_run++] = nb_fw_page(a->s, j);
            continue;
        }
        split_pages(a, n, run, n_run, worker);
        n_run = 0;
        nb_fw_decode_page(a->s, j, rows);
        if (a->pick) nb_fw_refine(a->s, j, a->pick, rows);
        for (size_t k = 0; k < n; k++) split_tile(&a[k], rows, false);
    }
    split_pages(a, n, run, n_run, worker);
    atomic_fetch_add_explicit(&f->n_page_read, n_closed, memory_order_relaxed);
    for (size_t k = 0; k < n; k++)
        if (a[k].page >= j0 && a[k].page < j0 + NB_SPLIT_PAGES)
            split_tile(&a[k], a[k].s->own + (a[k].page - a[k].s->p0) * NB_PAGE_TOK * f->n_values,
                       true);
}

static void direct_split(void *ctx, size_t task, size_t worker)
{
    const direct_ctx *x = ctx;
    nb_forward *f = x->s->f;
    const size_t nh = f->o.model->c.n_head, w = task / x->n_hb;
    nb_split_args a = { .s = x->s,
                        .q = x->q,
                        .q_stride = x->q_stride,
                        .n_q = x->n_q,
                        .r0 = x->r0,
                        .page = x->page,
                        .split = x->split0 + w,
                        .o = f->part_o + w * x->n_q * nh * f->d_state,
                        .m = f->part_m + w * x->n_q * nh,
                        .l = f->part_l + w * x->n_q * nh };
    head_range(nh, x->n_hb, task % x->n_hb, &a.head_begin, &a.head_end);
    nb_fw_attn_split(&a, 1, worker);
}

static void direct_merge(void *ctx, size_t task, size_t worker)
{
    (void)worker;
    const direct_ctx *x = ctx;
    nb_forward *f = x->s->f;
    const size_t nh = f->o.model->c.n_head, ds = f->d_state, i = task / x->n_hb;
    size_t b, e;
    head_range(nh, x->n_hb, task % x->n_hb, &b, &e);
    const size_t at = i * nh + b;
    for (size_t w = 0; w < x->n_wave; w++) {
        const size_t from = w * x->n_q * nh + at;
        nb_attn_merge(f->tot_o + at * ds, f->tot_m + at, f->tot_l + at, f->part_o + from * ds,
                      f->part_m + from, f->part_l + from, e - b, ds);
    }
    if (x->last_wave)
        nb_attn_finish(f->tot_o + at * ds, f->tot_o + at * ds, f->tot_l + at, e - b, ds);
}

enum { ABSORB_COLS = 256 };

typedef struct absorb_ctx {
    nb_forward *f;
    const nb_layer *l;
    const float *q;
    size_t n_q, n_col_block;
} absorb_ctx;

/* q~_h = W_UK,h^T q^n_h for one head and a range of latent channels. */
static void absorb_task(void *ctx, size_t task, size_t worker)
{
    (void)worker;
    const absorb_ctx *x = ctx;
    const nb_model_config *c = &x->f->o.model->c;
    const size_t h = task / x->n_col_block, col = task % x->n_col_block * ABSORB_COLS;
    const size_t d_qk = c->d_nope + c->d_rope, d_abs = c->kv_lora + c->d_rope;
    float *y = x->f->qx + h * d_abs;
    nb_linear_args a = {
        .y = y + col,
        .x = x->q + h * d_qk,
        .w = x->l->kv_b,
        .n_tok = x->n_q,
        .row_begin = h * (c->d_nope + c->d_v),
        .row_end = h * (c->d_nope + c->d_v) + c->d_nope,
        .col_begin = col,
        .col_end = col + ABSORB_COLS < c->kv_lora ? col + ABSORB_COLS : c->kv_lora,
        .x_stride = c->n_head * d_qk,
        .y_stride = c->n_head * d_abs,
    };
    x->f->plan.linear[a.w.type]->fn_t(&a);
    if (col == 0)
        for (size_t i = 0; i < x->n_q; i++)
            memcpy(y + i * a.y_stride + c->kv_lora, a.x + i * a.x_stride + c->d_nope,
                   c->d_rope * sizeof *y);
}

void nb_fw_absorb(nb_forward *f, const nb_layer *l, const float *q, size_t n_q)
{
    const nb_model_config *c = &f->o.model->c;
    absorb_ctx x = { f, l, q, n_q, (c->kv_lora + ABSORB_COLS - 1) / ABSORB_COLS };
    nb_dev_run(f->o.dev, absorb_task, &x, c->n_head * x.n_col_block);
}

/* o_h = W_UV,h u_h for all heads of the tile. */
void nb_fw_unabsorb(nb_forward *f, const nb_layer *l, size_t n_q, float *y)
{
    const nb_model_config *c = &f->o.model->c;
    for (size_t h = 0; h < c->n_head; h++) {
        f->job[h] = nb_fw_job(f, &l->kv_b, NULL, f->tot_o + h * c->kv_lora, c->n_head * c->kv_lora,
                              y + h * c->d_v, c->n_head * c->d_v, n_q);
        f->job[h].a.row_begin = h * (c->d_nope + c->d_v) + c->d_nope;
        f->job[h].a.row_end = (h + 1) * (c->d_nope + c->d_v);
    }
    nb_fw_run_jobs(f, f->job, c->n_head);
}

static void direct_waves(direct_ctx *x)
{
    nb_forward *f = x->s->f;
    const size_t nh = f->o.model->c.n_head, n_worker = nb_dev_n_worker(f->o.dev);
    const size_t n_split = x->page / NB_SPLIT_PAGES + 1;
    const size_t wave = NB_WAVE / x->n_q;
    nb_fw_reset_state(f->tot_m, f->tot_l, x->n_q * nh);
    for (; x->split0 < n_split; x->split0 += x->n_wave) {
        x->n_wave = n_split - x->split0 < wave ? n_split - x->split0 : wave;
        x->last_wave = x->split0 + x->n_wave == n_split;
        x->n_hb = (n_worker + x->n_wave - 1) / x->n_wave;
        if (x->n_q > 8) x->n_hb *= 2; /* so that the last tasks are short */
        if (x->n_hb > nh) x->n_hb = nh;
        nb_dev_run(f->o.dev, direct_split, x, x->n_wave * x->n_hb);
        nb_dev_run(f->o.dev, direct_merge, x, x->n_q * x->n_hb);
    }
}

static void direct_tile(nb_attn_step *s, size_t tok, size_t n_q)
{
    nb_forward *f = s->f;
    const nb_model_config *c = &f->o.model->c;
    const size_t pos = s->c->pos0 + tok, nh = c->n_head;
    const float *q = f->q + (s->t0 + tok) * nh * f->d_q;
    direct_ctx x = { .s = s,
                     .q = q,
                     .q_stride = nh * f->d_q,
                     .n_q = n_q,
                     .r0 = pos % NB_PAGE_TOK,
                     .page = pos / NB_PAGE_TOK };
    if (c->attn == NB_ATTN_MLA) {
        nb_fw_absorb(f, s->l, q, n_q);
        x.q = f->qx;
        x.q_stride = nh * (c->kv_lora + c->d_rope);
    }
    if (nb_fw_thrift_on(s))
        for (size_t i = 0; i < n_q; i++) nb_fw_thrift_query(s, tok + i, x.q + i * x.q_stride, i);
    else
        direct_waves(&x);
    float *y = f->attn + (s->t0 + tok) * nh * f->d_o;
    if (c->attn == NB_ATTN_MLA)
        nb_fw_unabsorb(f, s->l, n_q, y);
    else
        memcpy(y, f->tot_o, n_q * nh * f->d_state * sizeof *y);
}

nb_attn_step nb_fw_attn_step(nb_forward *f, const nb_chunk *c, size_t layer, size_t t0)
{
    nb_attn_step s = { .f = f,
                       .c = c,
                       .l = &f->o.model->layer[layer],
                       .layer = layer,
                       .t0 = t0,
                       .p0 = c->pos0 / NB_PAGE_TOK,
                       .in0 = c->pos0 % NB_PAGE_TOK };
    s.n_end = s.in0 + c->n_tok;
    s.n_page = (s.n_end + NB_PAGE_TOK - 1) / NB_PAGE_TOK;
    s.tail = c->kv.tail + layer * NB_PAGE_TOK * f->n_values;
    s.own = s.n_page == 1 ? s.tail : f->raw;
    return s;
}

nb_status nb_fw_attention(nb_forward *f, const nb_chunk *c, size_t layer, size_t t0, nb_error *err)
{
    nb_attn_step s = nb_fw_attn_step(f, c, layer, t0);
    NB_TRY(store(&s, err));
    const bool expand = f->o.model->c.attn == NB_ATTN_MLA && !c->absorbed;
    if (expand) nb_fw_expanded(&s);
    for (size_t tok = 0; !expand && tok < c->n_tok;) {
        const size_t room = NB_PAGE_TOK - (c->pos0 + tok) % NB_PAGE_TOK, left = c->n_tok - tok;
        const size_t n_q = left < room ? left : room;
        direct_tile(&s, tok, n_q);
        tok += n_q;
    }
    const size_t last = s.n_end % NB_PAGE_TOK; /* rows of the page that stays open */
    if (s.own != s.tail && last)
        memcpy(s.tail, s.own + (s.n_page - 1) * NB_PAGE_TOK * f->n_values,
               last * f->n_values * sizeof *s.tail);
    return NB_OK;
}
