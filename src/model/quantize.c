/* quantize.c - see quantize.h.
 *
 * A task is ROWS rows of one matrix: widened to float a row at a time (a row fits into the cache,
 * so memory sees the original once and the codes once), then two passes over it.  Bound by the
 * reading of the original where it comes from a disk, else by the conversion. */
#include "model/quantize.h"

#include <stdatomic.h>
#include <stdio.h>

#include "kernel/embed/embed.h"
#include "num/fp8_row.h"
#include "num/int8_row.h"

enum { ROWS = 32, ALIGN = 64 };

typedef struct quantizer {
    const nb_quantize_options *o;
    bool fp8; /* else INT8 */
    nb_error *err;
    char *at;       /* the rest of the memory */
    float *scratch; /* [n_worker][widest] */
    size_t widest;
    uint64_t done, total, bytes; /* bytes: of the results */
} quantizer;

typedef struct rows_ctx {
    const nb_weight *from;
    bool fp8;
    uint8_t *code;
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

static bool row_codes(bool fp8, const float *row, size_t n, uint8_t *code, float *scale)
{
    return fp8 ? nb_fp8_row(row, n, code, scale) : nb_int8_row(row, n, (int8_t *)code, scale);
}

static void rows_task(void *ctx, size_t task, size_t worker)
{
    rows_ctx *x = ctx;
    const nb_weight *w = x->from;
    float *row = x->scratch + worker * x->widest;
    for (size_t r = task * ROWS; r < task * ROWS + ROWS && r < w->n_row; r++) {
        read_row(w, r, row);
        if (!row_codes(x->fp8, row, w->n_col, x->code + r * w->n_col, &x->scale[r]))
            atomic_store_explicit(&x->bad, true, memory_order_relaxed); /* the join orders it */
    }
}

static nb_status refuse(const quantizer *q, const char *name, const nb_weight *w)
{
    for (size_t r = 0; r < w->n_row; r++) {
        uint8_t code;
        float scale;
        read_row(w, r, q->scratch);
        for (size_t c = 0; c < w->n_col; c++)
            if (!row_codes(q->fp8, q->scratch + c, 1, &code, &scale))
                return nb_fail(q->err, NB_ERR_FORMAT,
                               "tensor '%s': [%zu, %zu] is %g, which --weight-dtype %s cannot "
                               "hold: expected finite weights",
                               name, r, c, (double)q->scratch[c], q->fp8 ? "fp8" : "int8");
    }
    return nb_fail(q->err, NB_ERR_INTERNAL, "tensor '%s': cannot be quantised", name);
}

/* Whether a matrix stays as it is. */
static bool stays(const nb_weight *w, bool fp8)
{
    return nb_wtype_is_packed(w->type) || (fp8 && w->type == NB_W_FP8B);
}

static nb_status quantize(void *ctx, const char *name, nb_weight *w)
{
    quantizer *q = ctx;
    if (stays(w, q->fp8)) return NB_OK;
    const nb_weight old = *w;
    rows_ctx x = { .from = &old, .fp8 = q->fp8, .scratch = q->scratch, .widest = q->widest };
    atomic_init(&x.bad, false);
    x.code = (uint8_t *)q->at;
    x.scale = (float *)(void *)(q->at + aligned(old.n_row * old.n_col));
    nb_dev_run(q->o->dev, rows_task, &x, (old.n_row + ROWS - 1) / ROWS);
    if (atomic_load_explicit(&x.bad, memory_order_relaxed)) return refuse(q, name, &old);
    q->at += nb_int8_matrix_bytes(&old);
    *w = (nb_weight){ .data = x.code,
                      .scale = x.scale,
                      .n_row = old.n_row,
                      .n_col = old.n_col,
                      .type = q->fp8 ? NB_W_FP8B : NB_W_INT8,
                      .row_scales = q->fp8 };
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
    if (stays(w, q->fp8)) return NB_OK;
    q->total += w->n_row * w->n_col * nb_wtype_bytes(w->type);
    q->bytes += nb_int8_matrix_bytes(w);
    if (w->n_col > q->widest) q->widest = w->n_col;
    return NB_OK;
}

static size_t codes_bytes(nb_model *m, bool fp8)
{
    quantizer q = { .fp8 = fp8 };
    (void)nb_model_each_matrix(m, measure, &q);
    return q.bytes;
}

size_t nb_model_int8_bytes(nb_model *m)
{
    return codes_bytes(m, false);
}
size_t nb_model_fp8_bytes(nb_model *m)
{
    return codes_bytes(m, true);
}

typedef struct originals_ctx {
    uint64_t bytes;
    bool fp8;
} originals_ctx;

static nb_status originals(void *ctx, const char *name, nb_weight *w)
{
    originals_ctx *o = ctx;
    (void)name;
    if (!stays(w, o->fp8)) o->bytes += nb_weight_bytes(w);
    return NB_OK;
}

static uint64_t weight_bytes(nb_model *m, bool fp8)
{
    originals_ctx old = { 0, fp8 };
    (void)nb_model_each_matrix(m, originals, &old);
    /* A tied head's original stays as the embedding. */
    if (m->head_is_embed && !stays(&m->head, fp8)) old.bytes -= nb_weight_bytes(&m->head);
    return m->weight_bytes - old.bytes + codes_bytes(m, fp8);
}

uint64_t nb_model_int8_weight_bytes(nb_model *m)
{
    return weight_bytes(m, false);
}
uint64_t nb_model_fp8_weight_bytes(nb_model *m)
{
    return weight_bytes(m, true);
}

nb_status nb_model_quantize(nb_model *m, const nb_quantize_options *o, nb_error *err)
{
    quantizer q = { .o = o, .err = err, .at = o->memory, .fp8 = o->fp8 };
    nb_arena scratch = { 0 };
    const uint64_t bytes = weight_bytes(m, o->fp8);
    (void)nb_model_each_matrix(m, measure, &q);
    q.scratch = nb_arena_array(&scratch, nb_dev_n_worker(o->dev) * q.widest, sizeof *q.scratch);
    if (!q.scratch) return nb_fail(err, NB_ERR_NOMEM, "out of memory for weights of 8 bits");
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
