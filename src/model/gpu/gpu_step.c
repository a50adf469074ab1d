/* gpu_step.c - a step on a GPU: its chunks dealt to passes, then logits and sampling. */
#include <string.h>

#include "model/gpu/gpu.h"

/* ---- passes ---- */

static bool is_direct(const nb_gpu_rank *f, const nb_chunk *c)
{
    return !f->prompt || c->absorbed;
}

/* States that tokens [pos, pos + 1) leave, in the set that needs most.  Sparse attention takes rows in groups of its own. */
static size_t states_of(const nb_gpu_rank *f, size_t pos)
{
    size_t most = 0;
    if (f->sparse.any) return 0;
    for (size_t s = 0; s < f->n_set; s++) {
        const size_t n = nb_cuda_n_unit(f->set[s].units, pos / NB_PAGE_TOK) + 1;
        if (n > most) most = n;
    }
    return most;
}

typedef struct dealer {
    nb_gpu_rank *f;
    bool own; /* else of another rank: how many rows its passes have */
    const nb_chunk *chunk;
    size_t n_chunk;
    size_t i, tok, place; /* next chunk, its next token, the chunk's place in the batch */
    size_t h_row;
} dealer;

/* The next pass of a kind: as many tokens as fit, which of a prompt is all but with compressed attention; those whose
 * experts are uploaded for themselves. */
static bool deal(dealer *d, nb_cuda_kind kind, bool upload, nb_gpu_pass *p)
{
    nb_gpu_rank *f = d->f;
    const bool direct = kind == NB_CUDA_DIRECT;
    size_t states = 0;
    *p = (nb_gpu_pass){ .base = { .chunk = d->chunk },
                        .kind = kind,
                        .upload = upload,
                        .which = f->which,
                        .tok0 = f->tok0,
                        .n_tok = f->n_tok,
                        .h_row0 = d->h_row,
                        .bad = f->bad + f->n_bad };
    for (; d->i < d->n_chunk; d->place += d->chunk[d->i++].n_tok, d->tok = 0) {
        const nb_chunk *c = &d->chunk[d->i];
        if (is_direct(f, c) != direct || (!direct && c->upload != upload)) continue;
        size_t n = 0;
        const size_t left = c->n_tok - d->tok;
        if (!direct) n = left < f->T - p->base.n_row ? left : f->T - p->base.n_row;
        for (; direct && n < left && p->base.n_row + n < f->D; n++) {
            const size_t s = states_of(f, c->pos0 + d->tok + n);
            if (states + s > f->max_part) break;
            states += s;
        }
        if (n == 0) break;
        for (size_t k = 0; d->own && k < n; k++)
            f->row_of[d->place + d->tok + k] = d->h_row + p->base.n_row + k;
        if (d->own) {
            f->which[p->base.n_chunk] = d->i;
            f->tok0[p->base.n_chunk] = d->tok;
            f->n_tok[p->base.n_chunk] = n;
            f->bad_of[f->n_bad++] = d->i;
        }
        p->base.n_chunk++;
        p->base.n_row += n;
        d->tok += n;
        if (d->tok < c->n_tok) break;
    }
    p->n_pad = p->base.n_row;
    return p->base.n_row > 0;
}

static bool all_single(const nb_gpu_pass *p)
{
    return p->base.n_row == p->base.n_chunk;
}

/* The next pass of every rank that plans for itself; false: none has any.  A graph, if it can be one on all. */
static bool deal_round(dealer *all, size_t n, size_t me, nb_cuda_kind kind, bool upload, nb_gpu_pass *own)
{
    nb_gpu_round x = { .graph = kind == NB_CUDA_DIRECT };
    bool any = false;
    size_t most = 0;
    for (size_t k = 0; k < n; k++) {
        nb_gpu_pass other, *p = k == me ? own : &other;
        dealer *d = &all[k];
        const bool some = deal(d, kind, upload, p);
        any |= some;
        /* graphs know the first rows only */
        x.graph &= !some || (d->h_row == 0 && d->i == d->n_chunk && all_single(p));
        x.n_row[k] = x.n[k] = p->base.n_row;
        if (k != me) d->h_row += p->base.n_row;
        if (nb_gpu_bucket(p->base.n_row) > most) most = nb_gpu_bucket(p->base.n_row);
    }
    for (size_t k = 0; x.graph && k < n; k++) x.n[k] = most;
    if (x.graph && own->base.n_row) own->n_pad = most; /* nobody is ready before the rank with most */
    own->round = x;
    return any;
}

static nb_status run_kind(nb_gpu_rank *f, const nb_chunk *chunk, size_t n_chunk, nb_cuda_kind kind,
                          bool upload, size_t *h_row, nb_error *err)
{
    dealer all[NB_CUDA_MAX_RANK];
    const size_t n = f->r.o.data_parallel ? f->ranks.n : 1, me = n > 1 ? f->ranks.me : 0;
    nb_gpu_pass p;
    for (size_t k = 0; n > 1 && k < n; k++)
        all[k] = (dealer){ .f = f, .chunk = f->r.share[k].chunk, .n_chunk = f->r.share[k].n_chunk, .h_row = *h_row };
    all[me] = (dealer){ .f = f, .own = true, .chunk = chunk, .n_chunk = n_chunk, .h_row = *h_row };
    while (deal_round(all, n, me, kind, upload, &p)) {
        NB_TRY(nb_gpu_pass_upload(f, &p, err));
        all[me].h_row += p.n_pad;
        NB_ASSERT(all[me].h_row <= f->h_rows);
        if (upload) nb_gpu_host_begin(f, &p);
        if (p.round.graph)
            nb_gpu_pass_graph(f, &p);
        else
            nb_gpu_pass_layers(f, &p);
    }
    *h_row = all[me].h_row;
    return NB_OK;
}

/* ---- the step ---- */

enum { MARK = 0 };

/* Logits of n <= logit_rows rows of h: row[i] (device), or the first where row is NULL. */
static void logits_of_rows(nb_gpu_rank *f, const uint32_t *row, size_t n)
{
    const nb_model_config *c = f->r.whole;
    if (c->n_stream)
        nb_gpu_streams_last(f, row, n);
    else
        f->api->norm(f->g, &(nb_cuda_norm_args){ .h = f->h,
                                             .w = f->w.final_norm,
                                             .row = row,
                                             .y = f->xn,
                                             .n_row = n,
                                             .dim = c->hidden,
                                             .h_stride = c->hidden,
                                             .eps = c->eps,
                                             .y_factor = c->logit_factor });
    nb_gpu_linear(f, NB_CUDA_DIRECT, &f->w.head, f->x[NB_CUDA_DIRECT].xn,
                  (nb_cuda_rows){ .f = f->logits, .stride = f->r.part.n_vocab }, n);
}

static nb_status report(nb_gpu_rank *f, const nb_chunk *chunk, size_t n_chunk, unsigned char *bad,
                        nb_error *err)
{
    size_t n = 0;
    if (bad) memset(bad, 0, n_chunk);
    for (size_t i = 0; i < f->n_bad; i++) {
        if (!f->h_bad[i]) continue;
        const nb_chunk *c = &chunk[f->bad_of[i]];
        if (bad) bad[f->bad_of[i]] = 1;
        if (n++ == 0)
            (void)nb_fail(
                err, NB_ERR_NONFINITE,
                "a value to be stored in the KV cache (positions %zu to %zu) is not finite",
                c->pos0, c->pos0 + c->n_tok - 1);
    }
    return n ? NB_ERR_NONFINITE : NB_OK;
}

/* The step's rows, if all of them will be asked for at once: generated tokens. */
static size_t rows_ahead(const nb_gpu_rank *f, const nb_chunk *chunk, size_t n_chunk)
{
    if (n_chunk > f->logit_rows) return 0;
    for (size_t i = 0; i < n_chunk; i++)
        if (chunk[i].n_tok != 1 || !is_direct(f, &chunk[i]) || f->row_of[i] != i) return 0;
    return n_chunk;
}

nb_status nb_gpu_step(nb_rank *r, const nb_chunk *chunk, size_t n_chunk, unsigned char *bad,
                      nb_error *err)
{
    nb_gpu_rank *f = nb_gpu_of(r);
    size_t n_tok = 0, h_row = 0;
    for (size_t i = 0; i < n_chunk; i++) {
        NB_ASSERT(chunk[i].n_tok > 0 && chunk[i].n_tok <= f->r.o.max_tok - n_tok);
        n_tok += chunk[i].n_tok;
    }
    NB_ASSERT(n_chunk <= f->r.o.max_seq);
    f->n_bad = f->ahead = 0;
    size_t n_all = n_tok;
    for (size_t k = 0; r->o.data_parallel && k < f->ranks.n; k++) n_all += r->share[k].n_row;
    if (n_all == 0) return NB_OK;
    nb_gpu_ranks_begin(f);
    f->api->fill(f->g, f->bad, 0, (n_tok + n_chunk) * sizeof *f->bad);
    nb_gpu_states_begin(f, chunk, n_chunk);
    if (f->direct) NB_TRY(run_kind(f, chunk, n_chunk, NB_CUDA_DIRECT, false, &h_row, err));
    if (f->prompt) NB_TRY(run_kind(f, chunk, n_chunk, NB_CUDA_PROMPT, false, &h_row, err));
    if (f->prompt && f->host.cpu)
        NB_TRY(run_kind(f, chunk, n_chunk, NB_CUDA_PROMPT, true, &h_row, err));
    nb_gpu_states_end(f, chunk, n_chunk);
    f->api->download(f->g, f->h_bad, f->bad, f->n_bad * sizeof *f->h_bad);
    f->api->download(f->g, f->h_saturated, f->saturated, sizeof *f->h_saturated);
    if (f->thrift)
        f->api->download(f->g, f->h_count, f->t_count, NB_GPU_COUNTS * sizeof *f->h_count);
    nb_gpu_ranks_end(f);
    /* While the host looks at this the device computes logits. */
    f->api->mark(f->g, MARK);
    f->ahead = rows_ahead(f, chunk, n_chunk);
    if (f->ahead) logits_of_rows(f, NULL, f->ahead);
    NB_TRY(f->api->wait(f->g, MARK, err));
    f->stage[0].in_flight = f->stage[1].in_flight = false;
    NB_TRY(nb_gpu_ranks_check(f, err));
    return report(f, chunk, n_chunk, bad, err);
}

/* ---- logits ---- */

/* Logits of at most logit_rows places, on the device; those of the step may be there. */
static void logits_of(nb_gpu_rank *f, const size_t *tok, size_t n)
{
    bool there = n == f->ahead;
    for (size_t i = 0; i < n; i++) {
        f->h_row[i] = (uint32_t)f->row_of[tok[i]];
        there &= f->h_row[i] == i;
    }
    if (there) return;
    f->ahead = 0;
    f->api->upload(f->g, f->l_row, f->h_row, n * sizeof *f->h_row);
    logits_of_rows(f, f->l_row, n);
}

nb_status nb_gpu_logits(nb_rank *r, const size_t *tok, size_t n, float *logits, nb_error *err)
{
    nb_gpu_rank *f = nb_gpu_of(r);
    const size_t v = f->r.part.n_vocab, whole = r->whole->n_vocab;
    for (size_t i = 0, k; i < n; i += k) {
        k = n - i < f->logit_rows ? n - i : f->logit_rows;
        logits_of(f, tok + i, k);
        if (v == whole)
            f->api->download(f->g, logits + i * v, f->logits, k * v * sizeof *logits);
        for (size_t j = 0; v != whole && j < k; j++)
            f->api->download(f->g, logits + (i + j) * whole + f->r.part.vocab0, f->logits + j * v,
                             v * sizeof *logits);
        NB_TRY(f->api->sync(f->g, err)); /* the rows' numbers are used again */
    }
    return NB_OK;
}

nb_status nb_gpu_sample(nb_rank *r, const size_t *tok, const nb_cuda_sample_row *row, size_t n,
                        uint32_t *id, nb_error *err)
{
    nb_gpu_rank *f = nb_gpu_of(r);
    const size_t v = f->r.part.n_vocab;
    for (size_t i = 0, k; i < n; i += k) {
        k = n - i < f->logit_rows ? n - i : f->logit_rows;
        memcpy(f->h_sample, row + i, k * sizeof *row);
        f->api->upload(f->g, f->l_sample, f->h_sample, k * sizeof *row);
        logits_of(f, tok + i, k);
        f->api->sample(f->g, &(nb_cuda_sample_args){ .logits = f->logits,
                                                     .row = f->l_sample,
                                                     .id = f->l_id,
                                                     .scratch = f->l_scratch,
                                                     .n_row = k,
                                                     .n_vocab = v,
                                                     .stride = v });
        f->api->download(f->g, f->h_id, f->l_id, k * sizeof *f->h_id);
        NB_TRY(f->api->sync(f->g, err));
        memcpy(id + i, f->h_id, k * sizeof *id);
    }
    return NB_OK;
}
