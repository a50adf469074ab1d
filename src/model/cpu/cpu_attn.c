/* cpu_attn.c - attention over the cache on the CPU.
 *
 * A query in page p sees pages 0..p-1 decoded and page p's rows in BF16.  There are two ways.  Direct: queries
 * against the cached rows (absorbed MLA; GQA), a tile of at most 64 queries of one page at a time; the splits
 * of the context are independent tasks.  Expanded: cpu_expand.c.  Either way the partial result of a (query,
 * head) is computed per split (cpu.h), and partial results are combined in order of position:
 * the result does not depend on how the work was cut.
 *
 * Runs of complete pages of a split go to one call of attn_pages, which reads their bytes.  A page with sinks or
 * with tokens that are read refined is decoded to floats first; the open page is floats already.  Where runs
 * begin and end depends on the sequence alone. */
#include <math.h>
#include <string.h>

#include "model/cpu/cpu_context.h"
#include "model/cpu/cpu_state.h"
#include "num/bf16.h"
#include "num/residual.h"
#include "num/traits.h"

unsigned char *nb_cpu_page_here(const nb_cpu_attn *s, size_t page)
{
    const nb_kv_pool *kv = &s->f->r.pool;
    const nb_cpu_context *w = s->window;
    NB_ASSERT(page < s->c->n_block);
    if (w) return page - w->first < w->n ? w->page + w->slot[page - w->first] * w->stride : NULL;
    size_t at = s->c->block[page];
    if (kv->n_block) {
        if (at / kv->n_block != nb_rank_tensor_of(&s->f->r)) return NULL;
        at %= kv->n_block;
    }
    return kv->page + at * kv->block_bytes + kv->page_off[s->layer];
}

unsigned char *nb_cpu_page_of(const nb_cpu_attn *s, size_t page)
{
    unsigned char *p = nb_cpu_page_here(s, page);
    NB_ASSERT(p);
    return p;
}

const nb_record *nb_cpu_record(const nb_cpu_attn *s)
{
    return &s->f->r.o.record[s->layer];
}

/* Rows of page 0 that are kept in BF16 beside the page: none where the record is as exact. */
size_t nb_cpu_n_sink(const nb_cpu_attn *s, size_t page)
{
    return page != 0 || nb_kv_main(nb_cpu_record(s)->type)->wide ? 0 : s->f->r.o.n_sink;
}

uint16_t *nb_cpu_sink_rows(const nb_cpu_attn *s)
{
    const nb_kv_pool *kv = &s->f->r.pool;
    return kv->sink + (size_t)s->c->block[0] * kv->sink_block + kv->sink_off[s->layer];
}

/* All values of a complete page as float rows [64][n_values]. */
void nb_cpu_decode_page(const nb_cpu_attn *s, size_t page, float *out)
{
    const nb_cpu *f = s->f;
    const nb_record *r = nb_cpu_record(s);
    const unsigned char *p = nb_cpu_page_of(s, page);
    for (size_t k = 0; k < r->n_seg; k++)
        f->r.plan.kv_codec->decode(r, p, k, 0, NB_PAGE_TOK, out + r->seg[k].first, s->d->n_values);
    const size_t n = nb_cpu_n_sink(s, page) * s->d->n_values;
    const uint16_t *sink = n ? nb_cpu_sink_rows(s) : NULL;
    for (size_t k = 0; k < n; k++) out[k] = nb_bf16_to_f32(sink[k]);
}

void nb_cpu_reset(float *m, float *l, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        m[i] = -INFINITY;
        l[i] = 0;
    }
}

/* ---- direct: absorbed MLA and GQA ---- */

typedef struct direct_ctx {
    const nb_cpu_attn *s;
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

size_t nb_cpu_split_pages(size_t page)
{
    return page < NB_SPLIT_LONG ? NB_SPLIT_PAGES : NB_SPLIT_MAX;
}

size_t nb_cpu_n_split(size_t page)
{
    return page / nb_cpu_split_pages(page) + 1;
}

size_t nb_cpu_n_closed(size_t page, size_t split)
{
    const size_t most = nb_cpu_split_pages(page), j0 = split * most, n = page > j0 ? page - j0 : 0;
    return n < most ? n : most;
}

/* One tile of rows for the queries of x: a decoded page, or the open one. */
static void split_tile(const nb_split_args *x, const float *rows, bool own)
{
    const nb_attn_config *attn = x->s->attn;
    const nb_attn_dims *d = x->s->d;
    nb_attn_args a = {
        .o = x->o,
        .m = x->m,
        .l = x->l,
        .q = x->q,
        .n_q = x->n_q,
        .head_begin = x->head_begin,
        .head_end = x->head_end,
        .n_kv = own ? x->r0 + x->n_q : NB_PAGE_TOK,
        .vis0 = own ? x->r0 + 1 : NB_PAGE_TOK,
        .vis_step = own,
        .d_v = d->d_state,
        .q_q_stride = x->q_stride,
        .o_q_stride = d->n_head * d->d_state,
        .ml_q_stride = d->n_head,
        .k1_stride = d->n_values,
        .k2_stride = d->n_values,
        .v_stride = d->n_values,
        .scale = attn->softmax_scale,
    };
    nb_cpu_kind_of(attn)->tile(x->s, rows, &a);
    x->s->f->r.plan.attn->fn(&a);
}

/* Complete pages that follow each other, for all queries of the n sequences. */
static void split_pages(const nb_split_args *a, size_t n, const void *const *page, size_t n_page,
                        size_t worker)
{
    nb_cpu *f = a->s->f;
    const size_t split_end = (a->split + 1) * nb_cpu_split_pages(a->page);
    /* a thread's tasks are neighbours */
    const void *soon = split_end < a->page ? nb_cpu_page_here(a->s, split_end) : NULL;
    nb_attn_query query[NB_PAGE_TOK];
    size_t n_query = 0;
    const size_t nh = a->s->d->n_head;
    if (n_page == 0) return;
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < a[k].n_q; i++)
            query[n_query++] = (nb_attn_query){ .q = a[k].q + i * a[k].q_stride,
                                                .o = a[k].o + i * nh * a->s->d->d_state,
                                                .m = a[k].m + i * nh,
                                                .l = a[k].l + i * nh };
    nb_attn_pages_args x = { .record = nb_cpu_record(a->s),
                             .query = query,
                             .n_query = n_query,
                             .head_begin = a->head_begin,
                             .head_end = a->head_end,
                             .scale = a->s->attn->softmax_scale,
                             .scratch = (char *)f->w_scratch + worker * f->w_scratch_bytes };
    for (size_t at = 0; at < n_page; at += x.n_page) {
        const size_t left = n_page - at;
        x.page = page + at;
        x.n_page = left < NB_ATTN_PAGES_MAX ? left : NB_ATTN_PAGES_MAX;
        x.next = x.n_page < left ? page[at + x.n_page] : soon;
        f->over_pages[a->s->layer]->fn(&x);
    }
}

/* Whether attn_pages may read the page: nothing stands beside its bytes. */
static bool plain_page(const nb_split_args *x, size_t page)
{
    const nb_cpu_pick *p = x->pick;
    return x->s->f->over_pages[x->s->layer] && nb_cpu_n_sink(x->s, page) == 0 &&
           !(p && p->first[page] != p->first[page + 1]);
}

void nb_cpu_attn_split(const nb_split_args *a, size_t n, size_t worker)
{
    nb_cpu *f = a->s->f;
    const size_t nh = a->s->d->n_head, most = nb_cpu_split_pages(a->page), j0 = a->split * most;
    const size_t n_closed = nb_cpu_n_closed(a->page, a->split);
    float *rows = f->w_page + worker * NB_PAGE_TOK * a->s->d->n_values;
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < a[k].n_q; i++)
            nb_cpu_reset(a[k].m + i * nh + a->head_begin, a[k].l + i * nh + a->head_begin,
                         a->head_end - a->head_begin);
    const void *run[NB_SPLIT_MAX] = { 0 };
    size_t n_run = 0;
    for (size_t j = j0; j < j0 + n_closed; j++) {
        if (plain_page(a, j)) {
            run[n_run++] = nb_cpu_page_of(a->s, j);
            continue;
        }
        split_pages(a, n, run, n_run, worker);
        n_run = 0;
        nb_cpu_decode_page(a->s, j, rows);
        if (a->pick) nb_cpu_refine(a->s, j, a->pick, rows);
        for (size_t k = 0; k < n; k++) split_tile(&a[k], rows, false);
    }
    split_pages(a, n, run, n_run, worker);
    atomic_fetch_add_explicit(&f->n_page_read, n_closed, memory_order_relaxed);
    for (size_t k = 0; k < n; k++)
        if (a[k].page >= j0 && a[k].page < j0 + most)
            split_tile(&a[k],
                       a[k].s->own + (a[k].page - a[k].s->p0) * NB_PAGE_TOK * a->s->d->n_values,
                       true);
}

static void direct_split(void *ctx, size_t task, size_t worker)
{
    const direct_ctx *x = ctx;
    nb_cpu *f = x->s->f;
    const size_t nh = x->s->d->n_head, w = task / x->n_hb;
    nb_split_args a = { .s = x->s,
                        .q = x->q,
                        .q_stride = x->q_stride,
                        .n_q = x->n_q,
                        .r0 = x->r0,
                        .page = x->page,
                        .split = x->split0 + w,
                        .o = f->part_o + w * x->n_q * nh * x->s->d->d_state,
                        .m = f->part_m + w * x->n_q * nh,
                        .l = f->part_l + w * x->n_q * nh };
    head_range(nh, x->n_hb, task % x->n_hb, &a.head_begin, &a.head_end);
    nb_cpu_attn_split(&a, 1, worker);
}

static void direct_merge(void *ctx, size_t task, size_t worker)
{
    (void)worker;
    const direct_ctx *x = ctx;
    nb_cpu *f = x->s->f;
    const size_t nh = x->s->d->n_head, ds = x->s->d->d_state, i = task / x->n_hb;
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

/* The window of the context with the first page of the wave is here, and the wave ends with it. */
static bool wave_window(direct_ctx *x)
{
    const nb_cpu_attn *s = x->s;
    const size_t most = nb_cpu_split_pages(x->page), at = x->split0 * most;
    const size_t first = at / NB_WINDOW_PAGES * NB_WINDOW_PAGES, last = s->p0 + s->n_page - 1;
    const size_t left = last > first ? last - first : 0, room = (first + NB_WINDOW_PAGES - at) / most;
    const bool have = s->window->n && s->window->first == first;
    if (x->n_wave > room) x->n_wave = room;
    if (have || first >= x->page) return true;
    return nb_cpu_fetch(s, first, left < NB_WINDOW_PAGES ? left : NB_WINDOW_PAGES);
}

static bool direct_waves(direct_ctx *x)
{
    nb_cpu *f = x->s->f;
    const size_t nh = x->s->d->n_head, n_worker = nb_dev_n_worker(f->r.o.dev);
    const size_t n_split = nb_cpu_n_split(x->page);
    const size_t wave = NB_WAVE / x->n_q;
    nb_cpu_reset(f->tot_m, f->tot_l, x->n_q * nh);
    for (; x->split0 < n_split; x->split0 += x->n_wave) {
        x->n_wave = n_split - x->split0 < wave ? n_split - x->split0 : wave;
        if (x->s->window && !wave_window(x)) return false;
        x->last_wave = x->split0 + x->n_wave == n_split;
        x->n_hb = (n_worker + x->n_wave - 1) / x->n_wave;
        if (x->n_q > 8) x->n_hb *= 2; /* so that the last tasks are short */
        if (x->n_hb > nh) x->n_hb = nh;
        nb_dev_run(f->r.o.dev, direct_split, x, x->n_wave * x->n_hb);
        nb_dev_run(f->r.o.dev, direct_merge, x, x->n_q * x->n_hb);
    }
    return true;
}

static void direct_tile(nb_cpu_attn *s, size_t tok, size_t n_q)
{
    nb_cpu *f = s->f;
    const nb_cpu_kind *kind = nb_cpu_kind_of(s->attn);
    const size_t pos = s->c->pos0 + tok, nh = s->d->n_head;
    direct_ctx x = { .s = s, .n_q = n_q, .r0 = pos % NB_PAGE_TOK, .page = pos / NB_PAGE_TOK };
    x.q = kind->queries(f, s->layer, f->q + (s->t0 + tok) * nh * s->d->d_q, n_q, &x.q_stride);
    if (nb_cpu_thrift_on(s))
        for (size_t i = 0; i < n_q; i++) nb_cpu_thrift_query(s, tok + i, x.q + i * x.q_stride, i);
    else if (!direct_waves(&x))
        return;
    kind->outputs(f, s->layer, n_q, f->attn + (s->t0 + tok) * nh * s->d->d_o);
}

/* ---- a layer ---- */

const nb_cpu_kind *nb_cpu_kind_of(const nb_attn_config *attn)
{
    static const nb_cpu_kind *const kinds[NB_ATTN_KINDS] = {
#define X(NAME, name) [NB_ATTN_##NAME] = &nb_cpu_kind_##name,
        NB_ATTENTIONS(X)
#undef X
    };
    return kinds[attn->kind];
}

nb_cpu_attn nb_cpu_attn_of(nb_cpu *f, const nb_pass *p, size_t i, size_t layer)
{
    const nb_rank *r = &f->r;
    const nb_chunk *c = &p->chunk[i];
    const nb_cpu_place *at = &f->place[i];
    nb_cpu_attn s = { .f = f,
                      .c = c,
                      .l = &r->o.model->layer[layer],
                      .attn = nb_rank_attn(r, layer),
                      .d = nb_rank_dims(r, layer),
                      .ex = &f->ex[r->whole->attn_of[layer]],
                      .layer = layer,
                      .t0 = at->tok0,
                      .p0 = c->pos0 / NB_PAGE_TOK,
                      .in0 = c->pos0 % NB_PAGE_TOK };
    s.n_end = s.in0 + c->n_tok;
    s.n_page = (s.n_end + NB_PAGE_TOK - 1) / NB_PAGE_TOK;
    s.tail = r->pool.tail + c->slot * r->pool.tail_floats + r->pool.tail_off[layer];
    s.own = at->row0 == SIZE_MAX ? s.tail : f->raw + at->row0 * s.d->n_values;
    return s;
}

/* Is it computed from the rows as they are cached? */
static bool is_direct(const nb_attn_config *attn, const nb_chunk *c)
{
    return c->absorbed || !nb_attention_of(attn->kind)->has_expanded;
}

void nb_cpu_attend_first(nb_cpu *f, const nb_pass *p, size_t i, size_t layer, size_t n_tok)
{
    nb_cpu_attn s = nb_cpu_attn_of(f, p, i, layer);
    nb_chunk c = *s.c;
    const bool direct = is_direct(s.attn, s.c);
    c.n_tok = n_tok;
    s.c = &c;
    s.n_end = s.in0 + n_tok;
    s.n_page = (s.n_end + NB_PAGE_TOK - 1) / NB_PAGE_TOK;
    f->context.n = 0;
    if (nb_rank_divides_context(&f->r)) s.window = &f->context;
    if (!direct) nb_cpu_expanded(&s);
    for (size_t tok = 0; direct && tok < n_tok && !f->context.lost;) {
        const size_t room = NB_PAGE_TOK - (c.pos0 + tok) % NB_PAGE_TOK, left = n_tok - tok;
        const size_t n_q = left < room ? left : room;
        direct_tile(&s, tok, n_q);
        tok += n_q;
    }
}

/* Single tokens that read the cached rows: what a running request computes in a step. */
bool nb_cpu_is_decode(const nb_cpu *f, const nb_pass *p, size_t i, const nb_attn_config *attn)
{
    return p->chunk[i].n_tok == 1 && is_direct(attn, &p->chunk[i]) && !f->chunk_bad[i];
}

void nb_cpu_blank(nb_cpu *f, const nb_pass *p, size_t i)
{
    const size_t h = nb_cpu_stream_width(f->r.whole);
    memset(f->h + f->place[i].tok0 * h, 0, p->chunk[i].n_tok * h * sizeof *f->h);
}

/* Rows do not mix, so the other chunks never see it. */
void nb_cpu_blank_chunk(nb_cpu *f, const nb_pass *p, size_t i, size_t layer)
{
    const nb_attn_dims *d = nb_rank_dims(&f->r, layer);
    const size_t o = d->n_head * d->d_o, t0 = f->place[i].tok0;
    nb_cpu_blank(f, p, i);
    memset(f->attn + t0 * o, 0, p->chunk[i].n_tok * o * sizeof *f->attn);
}

void nb_cpu_close_chunks(nb_cpu *f, const nb_pass *p, size_t layer)
{
    for (size_t i = 0; i < p->n_chunk; i++) {
        const nb_cpu_attn s = nb_cpu_attn_of(f, p, i, layer);
        const size_t last = s.n_end % NB_PAGE_TOK; /* rows of the page that stays open */
        if (f->chunk_bad[i])
            nb_cpu_blank_chunk(f, p, i, layer);
        else if (s.own != s.tail && last)
            memcpy(s.tail, s.own + (s.n_page - 1) * NB_PAGE_TOK * s.d->n_values,
                   last * s.d->n_values * sizeof *s.tail);
    }
}

void nb_cpu_attend(nb_rank *r, nb_pass *p, size_t layer)
{
    nb_cpu *f = nb_cpu_of(r);
    const nb_attn_config *attn = nb_rank_attn(r, layer);
    for (size_t i = 0, n; i < p->n_chunk && !f->context.lost; i += n) {
        for (n = 0; i + n < p->n_chunk && n < NB_DECODE_MAX && nb_cpu_is_decode(f, p, i + n, attn);)
            n++;
        if (n) {
            nb_cpu_decode(f, p, i, n, layer);
            continue;
        }
        n = 1;
        if (!f->chunk_bad[i]) nb_cpu_attend_first(f, p, i, layer, p->chunk[i].n_tok);
    }
    nb_cpu_close_chunks(f, p, layer);
}
