/* cpu_append.c - new rows go to the cache.
 *
 * Rows are rounded to BF16 (f32 records round nothing).  A page whose last token is there is encoded into its
 * block at once; the rest waits in the open page.  Every page of every chunk is a task. */
#include <math.h>
#include <string.h>

#include "model/cpu/cpu_context.h"
#include "num/bf16.h"
#include "num/residual.h"

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
static void keep_sinks(const nb_cpu_attn *s, size_t page, uint16_t *half)
{
    const size_t n = s->d->n_values, k = nb_cpu_n_sink(s, page);
    if (k == 0) return;
    memcpy(nb_cpu_sink_rows(s), half, k * n * sizeof *half);
    for (size_t t = 0; t < k; t++)
        if (k < NB_PAGE_TOK)
            memcpy(half + t * n, half + k * n, n * sizeof *half);
        else
            memset(half + t * n, 0, n * sizeof *half);
}

static bool encode_rows(const nb_cpu_attn *s, size_t i, const float *rows, uint16_t *half)
{
    nb_cpu *f = s->f;
    const nb_record *r = nb_cpu_record(s);
    const size_t n = s->d->n_values;
    if (r->type == NB_KV_F32) {
        nb_record_store_f32(r, nb_cpu_page_of(s, s->p0 + i), rows, n);
        return true;
    }
    for (size_t k = 0; k < NB_PAGE_TOK * n; k++) half[k] = nb_bf16_from_f32(rows[k]); /* exact */
    keep_sinks(s, s->p0 + i, half);
    unsigned char *page = nb_cpu_page_of(s, s->p0 + i);
    if (f->r.plan.kv_codec->encode(r, page, half, n) != NB_OK) return false;
    const uint64_t n_sat = nb_record_count_saturated(r, half, n);
    if (n_sat) atomic_fetch_add_explicit(&f->n_saturated, n_sat, memory_order_relaxed);
    if (s->f->r.pool.plane && nb_residual_possible(r))
        f->r.plan.kv_residual->encode(r, page, half, n, nb_cpu_plane(s, s->p0 + i));
    return true;
}

/* Page i of a chunk.  A chunk inside one page works on the open page itself, a longer one on f->raw: its first
 * page begins with the open page's rows, and attention moves the last page back. */
static bool store_page(const nb_cpu_attn *s, size_t i, uint16_t *stage)
{
    const nb_cpu *f = s->f;
    const size_t n = s->d->n_values, old = i == 0 ? s->in0 : 0;
    const size_t end =
        s->n_end - i * NB_PAGE_TOK < NB_PAGE_TOK ? s->n_end - i * NB_PAGE_TOK : NB_PAGE_TOK;
    float *rows = s->own + i * NB_PAGE_TOK * n;
    const float *in = f->kv + (s->t0 + i * NB_PAGE_TOK - (i ? s->in0 : 0)) * n;
    if (old && rows != s->tail) memcpy(rows, s->tail, old * n * sizeof *rows);
    return round_rows(nb_cpu_record(s), in, rows + old * n, (end - old) * n) &&
           (end < NB_PAGE_TOK || !nb_cpu_page_here(s, s->p0 + i) || encode_rows(s, i, rows, stage));
}

static nb_status store_error(const nb_cpu_attn *s, size_t i, nb_error *err)
{
    return nb_fail(err, NB_ERR_NONFINITE,
                   "layer %zu: a value to be stored in the KV cache (positions %zu to %zu) is "
                   "not finite",
                   s->layer, (s->p0 + i) * NB_PAGE_TOK,
                   (s->p0 + i) * NB_PAGE_TOK + NB_PAGE_TOK - 1);
}

typedef struct append_ctx {
    nb_cpu *f;
    const nb_pass *p;
    size_t layer;
} append_ctx;

static void append_page(void *ctx, size_t task, size_t worker)
{
    const append_ctx *x = ctx;
    nb_cpu *f = x->f;
    const nb_cpu_page *page = &f->page[task];
    f->page_bad[task] = 0;
    if (f->chunk_bad[page->chunk]) return;
    const nb_cpu_attn s = nb_cpu_attn_of(f, x->p, page->chunk, x->layer);
    /* The worker's page of floats serves as the codec's BF16 input: 2 of its 4 bytes a value. */
    uint16_t *half = (uint16_t *)(void *)(f->w_page + worker * NB_PAGE_TOK * f->max_values);
    f->page_bad[task] = !store_page(&s, page->i, half);
}

void nb_cpu_append(nb_rank *r, nb_pass *p, size_t layer)
{
    nb_cpu *f = nb_cpu_of(r);
    append_ctx x = { f, p, layer };
    nb_dev_run(r->o.dev, append_page, &x, f->n_page);
    for (size_t k = 0; k < f->n_page; k++) {
        const size_t i = f->page[k].chunk;
        if (!f->page_bad[k] || f->chunk_bad[i]) continue;
        const nb_cpu_attn s = nb_cpu_attn_of(f, p, i, layer);
        if (f->n_bad++ == 0) (void)store_error(&s, f->page[k].i, f->err);
        f->chunk_bad[i] = 1;
    }
    for (size_t i = 0; r->o.thrift_pool && i < p->n_chunk; i++) {
        const nb_cpu_attn s = nb_cpu_attn_of(f, p, i, layer);
        if (!f->chunk_bad[i]) nb_cpu_thrift_stored(&s);
    }
}
