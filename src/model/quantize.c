/* quantize.c - see quantize.h.
 *
 * A task is ROWS rows of one matrix: widened to float a row at a time (a row fits into the cache,
 * so memory sees the original once and the codes once), then two passes over it.  Bound by the
 * reading of the original where it comes from a disk, else by the conversion. */
#include "model/quantize.h"

#include <stdatomic.h>
#include <stdio.h>

#include "kernel/embed/embed.h"
#include "num/int8_row.h"

enum { ROWS = 32, ALIGN = 64 };

typedef struct quantizer {
    const nb_quantize_options *o;
    nb_error *err;
    char *at;       /* the rest of the memory */
    float *scratch; /* [n_worker][widest] */
    size_t widest;
    uint64_t done, total, bytes; /* bytes: of the results */
} quantizer;

typedef struct rows_ctx {
    const nb_weight *from;
    int8_t *code;
    float *scale, *scratch;
    size_t widest;
    atomic_bool bad;
} rows_ctx;

static size_t aligned(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

size_t nb_int8_matrix_bytes(const nb_weight *w)
{
    return aligned(w->n_row * w->n_col) + aligned(w->n_row * sizeof *w->scale);
}

static void read_row(const nb_weight *w, size_t r, float *out)
{
    const uint32_t id = (uint32_t)r;
    nb_embed_c(&(nb_embed_args){
        .y = out, .id = &id, .w = *w, .n_tok = 1, .y_stride = w->n_col, .factor = 1.0f });
}

static void rows_task(void *ctx, size_t task, size_t worker)
{
    rows_ctx *x = ctx;
    const nb_weight *w = x->from;
    float *row = x->scratch + worker * x->widest;
    for (size_t r = task * ROWS; r < task * ROWS + ROWS && r < w->n_row; r++) {
        read_row(w, r, row);
        if (!nb_int8_row(row, w->n_col, x->code + r * w->n_col, &x->scale[r]))
            atomic_store_explicit(&x->bad, true, memory_order_relaxed); /* the join orders it */
    }
}

static nb_status refuse(const quantizer *q, const char *name, const nb_weight *w)
{
    for (size_t r = 0; r < w->n_row; r++) {
        int8_t code;
        float scale;
        read_row(w, r, q->scratch);
        for (size_t c = 0; c < w->n_col; c++)
            if (!nb_int8_row(q->scratch + c, 1, &code, &scale))
                return nb_fail(q->err, NB_ERR_FORMAT,
                               "tensor '%s': [%zu, %zu] is %g, which --weight-dtype int8 cannot "
                               "hold: expected finite weights",
                               name, r, c, (double)q->scratch[c]);
    }
    return nb_fail(q->err, NB_ERR_INTERNAL, "tensor '%s': cannot be quantised", name);
}

static nb_status quantize(void *ctx, const char *name, nb_weight *w)
{
    quantizer *q = ctx;
    if (nb_wtype_is_packed(w->type)) return NB_OK;
    const nb_weight old = *w;
    rows_ctx x = { .from = &old, .scratch = q->scratch, .widest = q->widest };
    atomic_init(&x.bad, false);
    x.code = (int8_t *)q->at;
    x.scale = (float *)(void *)(q->at + aligned(old.n_row * old.n_col));
    nb_dev_run(q->o->dev, rows_task, &x, (old.n_row + ROWS - 1) / ROWS);
    if (atomic_load_explicit(&x.bad, memory_order_relaxed)) return refuse(q, name, &old);
    q->at += nb_int8_matrix_bytes(&old);
    *w = (nb_weight){
        .data = x.code, .scale = x.scale, .n_row = old.n_row, .n_col = old.n_col, .type = NB_W_INT8
    };
    const size_t n_bytes = old.n_row * old.n_col * nb_wtype_bytes(old.type);
    nb_source_drop(q->o->source, old.data, n_bytes);
    q->done += n_bytes;
    if (q->o->progress) q->o->progress(q->o->progress_ctx, "quantising weights", q->done, q->total);
    return NB_OK;
}

/* Sums over all matrices. */
static nb_status measure(void *ctx, const char *name, nb_weight *w)
{
    quantizer *q = ctx;
    (void)name;
    if (nb_wtype_is_packed(w->type)) return NB_OK;
    q->total += w->n_row * w->n_col * nb_wtype_bytes(w->type);
    q->bytes += nb_int8_matrix_bytes(w);
    if (w->n_col > q->widest) q->widest = w->n_col;
    return NB_OK;
}

size_t nb_model_int8_bytes(nb_model *m)
{
    quantizer q = { 0 };
    (void)nb_model_each_matrix(m, measure, &q);
    return q.bytes;
}

static nb_status originals(void *ctx, const char *name, nb_weight *w)
{
    (void)name;
    if (!nb_wtype_is_packed(w->type)) *(uint64_t *)ctx += nb_weight_bytes(w);
    return NB_OK;
}

uint64_t nb_model_int8_weight_bytes(nb_model *m)
{
    uint64_t old = 0;
    (void)nb_model_each_matrix(m, originals, &old);
    /* A tied head's original stays as the embedding. */
    if (m->head_is_embed && !nb_wtype_is_packed(m->head.type)) old -= nb_weight_bytes(&m->head);
    return m->weight_bytes - old + nb_model_int8_bytes(m);
}

nb_status nb_model_quantize(nb_model *m, const nb_quantize_options *o, nb_error *err)
{
    quantizer q = { .o = o, .err = err, .at = o->memory };
    nb_arena scratch = { 0 };
    const uint64_t bytes = nb_model_int8_weight_bytes(m);
    (void)nb_model_each_matrix(m, measure, &q);
    q.scratch = nb_arena_array(&scratch, nb_dev_n_worker(o->dev) * q.widest, sizeof *q.scratch);
    if (!q.scratch) return nb_fail(err, NB_ERR_NOMEM, "out of memory for INT8 weights");
    if (o->progress) o->progress(o->progress_ctx, "quantising weights", 0, q.total);
    const nb_status st = nb_model_each_matrix(m, quantize, &q);
    nb_arena_deinit(&scratch);
    if (st != NB_OK) return st;
    nb_arena_deinit(&m->folded);
    m->head_is_embed = false;
    m->weight_bytes = bytes;
    m->wtype = m->layer[0].o.type;
    return NB_OK;
}
