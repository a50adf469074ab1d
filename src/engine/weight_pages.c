/* weight_pages.c - see weight_pages.h. */
#include "engine/weight_pages.h"

#include <stdlib.h>

#include "kernel/linear/packed.h"
#include "model/backend.h"
#include "os/file.h"

/* Between two looks at the progress, when all ranks have done their part of it. */
#define BATCH_BYTES ((uint64_t)512 << 20)

/* ---- pieces ---- */

typedef struct pieces {
    const nb_model *m;
    size_t n_rank;
    nb_weight_piece *piece;
    size_t n, cap;
} pieces;

static nb_status add(pieces *x, const unsigned char *p, size_t n_bytes, size_t rank)
{
    for (size_t at = 0; at < n_bytes; at += NB_WEIGHT_PIECE) {
        const size_t rest = n_bytes - at;
        NB_TRY(NB_GROW(x->piece, x->cap, x->n));
        x->piece[x->n++] = (nb_weight_piece){ p + at, rest < NB_WEIGHT_PIECE ? rest : NB_WEIGHT_PIECE, rank };
    }
    return NB_OK;
}

/* Whether a matrix is an expert's: *expert. */
static bool is_expert(const nb_model *m, const nb_weight *w, size_t *expert)
{
    const uintptr_t at = (uintptr_t)w;
    for (size_t i = 0; i < m->c.n_layer; i++) {
        const nb_mlp *x = m->layer[i].expert;
        if (!x || at < (uintptr_t)x || at >= (uintptr_t)(x + m->c.n_expert)) continue;
        *expert = (at - (uintptr_t)x) / sizeof *x;
        return true;
    }
    return false;
}

static nb_status add_matrix(void *ctx, const char *name, nb_weight *w)
{
    pieces *x = ctx;
    const size_t row = w->n_row ? nb_weight_data_bytes(w) / w->n_row : 0;
    const unsigned char *p = w->data;
    size_t expert, first;
    (void)name;
    if (!p) return NB_OK;
    if (is_expert(x->m, w, &expert)) return add(x, p, w->n_row * row, expert % x->n_rank);
    for (size_t k = 0; k < x->n_rank; k++) {
        const size_t n = nb_rank_cut(w->n_row, NB_RANK_UNIT, x->n_rank, k, &first);
        NB_TRY(add(x, p + first * row, n * row, k));
    }
    return NB_OK;
}

nb_status nb_weight_pieces(nb_model *m, size_t n_rank, nb_weight_piece **out, size_t *n, nb_error *err)
{
    pieces x = { .m = m, .n_rank = n_rank };
    const nb_status st = nb_model_each_matrix(m, add_matrix, &x);
    if (st != NB_OK) {
        free(x.piece);
        return nb_fail(err, st, "out of memory for a list of weights");
    }
    *out = x.piece;
    *n = x.n;
    return NB_OK;
}

size_t nb_weight_pieces_keep(nb_weight_piece *piece, size_t n, size_t rank)
{
    size_t n_kept = 0;
    for (size_t i = 0; i < n; i++)
        if (piece[i].rank == rank) piece[n_kept++] = (nb_weight_piece){ piece[i].p, piece[i].n_bytes, 0 };
    return n_kept;
}

/* ---- reading ---- */

typedef struct reader {
    const nb_weight_reading *how;
    const nb_weight_piece *piece;
    size_t n, rank;
    nb_dev *dev;
    nb_thread *thread;
} reader;

static void read_task(void *ctx, size_t task, size_t worker)
{
    const reader *x = ctx;
    const nb_weight_piece *p = &x->piece[task];
    (void)worker;
    if (p->rank != x->rank) return;
    if (x->how->read)
        x->how->read(x->how->read_ctx, p);
    else
        nb_pages_touch(p->p, p->n_bytes);
}

/* A thread of its own also for rank 0: the caller's is not bound to a core. */
static void reader_main(void *arg)
{
    reader *x = arg;
    nb_dev_enter(x->dev);
    nb_dev_run(x->dev, read_task, x, x->n);
}

static nb_status read_batch(nb_ranks *r, const nb_weight_piece *piece, size_t n, const nb_weight_reading *how,
                            nb_error *err)
{
    reader x[NB_ENGINE_MAX_RANK] = { 0 };
    nb_status st = NB_OK;
    for (size_t k = 0; k < r->n && st == NB_OK; k++) {
        x[k] = (reader){ .how = how, .piece = piece, .n = n, .rank = k, .dev = r->seat[k].dev };
        st = nb_thread_create(reader_main, &x[k], &x[k].thread, err);
    }
    for (size_t k = 0; k < r->n; k++) nb_thread_join(x[k].thread);
    return st;
}

nb_status nb_weight_pieces_read(nb_ranks *r, const nb_weight_piece *piece, size_t n, const nb_weight_reading *how,
                                nb_error *err)
{
    uint64_t total = 0, done = 0;
    for (size_t i = 0; i < n; i++) total += piece[i].n_bytes;
    if (how->progress) how->progress(how->progress_ctx, "reading weights", 0, total);
    for (size_t begin = 0, i = 0; begin < n; begin = i) {
        const uint64_t until = done + BATCH_BYTES;
        while (i < n && done < until) done += piece[i++].n_bytes;
        NB_TRY(read_batch(r, piece + begin, i - begin, how, err));
        if (how->progress) how->progress(how->progress_ctx, "reading weights", done, total);
    }
    return NB_OK;
}
