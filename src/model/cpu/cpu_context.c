/* cpu_context.c - ranks that divide the blocks of the cache (decision 070).
 *
 * A split of a context is on one rank, with all its complete pages; open pages are on every rank.
 * Single tokens: every rank gets all queries, computes the states of its splits for all heads, and gets those of the
 * others for its own heads (cpu_decode.c).  Chunks of several tokens: every rank gets the bytes of all pages and computes
 * its own heads, since 64 queries have 64 states for each page. */
#include <string.h>

#include "model/cpu/cpu_context.h"

size_t nb_cpu_split_rank(const nb_cpu_attn *s, size_t split)
{
    const nb_kv_pool *kv = &s->f->r.pool;
    const size_t n_rank = nb_comm_n_rank(s->f->r.o.tensor);
    if (!nb_cpu_n_closed(s->p0, split)) return (split + s->c->slot) % n_rank; /* the open page alone */
    return s->c->block[split * nb_cpu_split_pages(s->p0)] / kv->n_block;
}

/* ---- pages ---- */

typedef struct fetch_ctx {
    const nb_cpu_attn *s;
    const unsigned char *from[NB_WINDOW_PAGES]; /* NULL: another rank's */
} fetch_ctx;

static void copy_page(void *ctx, size_t i, size_t worker)
{
    const fetch_ctx *x = ctx;
    const nb_cpu_context *w = &x->s->f->context;
    (void)worker;
    if (x->from[i]) memcpy(w->page + w->slot[i] * w->stride, x->from[i], nb_cpu_record(x->s)->page_bytes);
}

bool nb_cpu_fetch(const nb_cpu_attn *s, size_t first, size_t n)
{
    nb_cpu *f = s->f;
    nb_cpu_context *w = &f->context;
    nb_comm *c = f->r.o.tensor;
    const size_t n_rank = nb_comm_n_rank(c), me = nb_comm_rank(c);
    fetch_ctx x = { .s = s };
    size_t begin[NB_COMM_MAX_RANK + 1], at = 0;
    nb_comm_block recv[NB_COMM_MAX_RANK];
    nb_cpu_attn own = *s;
    own.window = NULL;
    NB_ASSERT(n <= NB_WINDOW_PAGES);
    for (size_t k = 0; k < n_rank; k++) {
        begin[k] = at;
        for (size_t i = 0; i < n; i++) {
            if (s->c->block[first + i] / f->r.pool.n_block != k) continue;
            if (k == me) x.from[i] = nb_cpu_page_of(&own, first + i);
            w->slot[i] = (uint8_t)at++;
        }
        recv[k] = (nb_comm_block){ w->page + begin[k] * w->stride, at - begin[k], nb_cpu_record(s)->page_bytes, w->stride };
    }
    w->first = first;
    w->n = n;
    nb_dev_run(f->r.o.dev, copy_page, &x, n);
    w->lost = nb_comm_gather(c, &recv[me], recv, NULL) != NB_OK;
    return !w->lost;
}

/* ---- states ---- */

/* Rows of n_row / state of all heads, `width` floats for each: every rank gets its heads of them. */
static bool exchange_rows(nb_cpu *f, size_t layer, const size_t *first, float *x, size_t n_row, size_t width)
{
    nb_comm *c = f->r.o.tensor;
    const size_t n_rank = nb_comm_n_rank(c), me = nb_comm_rank(c), unit = nb_rank_head_unit(&f->r, layer);
    const size_t nh = nb_layer_dims(f->r.whole, layer).n_head, stride = nh * width * sizeof *x;
    const size_t own = nb_rank_dims(&f->r, layer)->n_head * width * sizeof *x, own0 = nb_rank_head0(&f->r, layer) * width;
    nb_comm_block send[NB_COMM_MAX_RANK], recv[NB_COMM_MAX_RANK];
    for (size_t k = 0; k < n_rank; k++) {
        size_t head0;
        const size_t n = nb_rank_part_of(nh, unit, n_rank, k, &head0);
        float *mine = x + first[me] * n_row * nh * width, *its = x + first[k] * n_row * nh * width;
        send[k] = (nb_comm_block){ mine + head0 * width, n_row * (first[me + 1] - first[me]), n * width * sizeof *x, stride };
        recv[k] = (nb_comm_block){ its + own0, n_row * (first[k + 1] - first[k]), own, stride };
    }
    return nb_comm_exchange(c, send, recv, NULL) == NB_OK;
}

bool nb_cpu_exchange_states(nb_cpu *f, size_t layer, const size_t *first)
{
    return exchange_rows(f, layer, first, f->part_m, 2, 1) &&
           exchange_rows(f, layer, first, f->part_o, 1, nb_rank_dims(&f->r, layer)->d_state);
}
