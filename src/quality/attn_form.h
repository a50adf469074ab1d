/* attn_form.h - one way to keep the cached values of a layer: a transform and a record.
 *
 * As the engine does: whole pages of 64 tokens are encoded and read back; a query reads its own
 * page, and sinks read anywhere, in BF16 (f32 record: unrounded).  All in the transformed domain
 *   c' = H P D (c - mean)    (load/kv_calib.h),   q' = H P D^-1 q,   u = D^-1 P^T H u' + mean,
 * where H is its own transpose.  The shift q . mean is the same for all tokens and left out.
 * Transforms are of MLA's latent; the rope key stays as it is. */
#ifndef NB_QUALITY_ATTN_FORM_H
#define NB_QUALITY_ATTN_FORM_H
#include "base/arena.h"
#include "load/kv_calib.h"
#include "nibble/measure.h"
#include "num/record.h"

enum { NB_ATTN_MAX_LATENT = 4096 };

typedef struct nb_attn_form_opts {
    const char *name; /* borrowed, as calib */
    nb_kv_type type;
    nb_kv_mode mode;
    nb_rope_fmt rope;
    bool center, equalize, hadamard;
    bool by_calib; /* the transform is what calib has chosen */
    size_t n_outlier, n_sink;
    size_t n_rope_outlier; /* of the rope key, kept in BF16; borrowed, ascending */
    const uint16_t *rope_outlier;
    const nb_kv_calib_layer *calib; /* NULL: statistics of the layer's own first half */
    const char *thrift;   /* NULL, or a selection (attn_thrift.h) whose tokens are read with the
                           residual plane: attn_run.h */
    double tau, fraction; /* of it; 0: 1e-3; 0.005 for token, 0.05 for blocks */
} nb_attn_form_opts;

/* Fills o from words as of the command line; empty or NULL: the default of the type.  transform:
 * none, or center, equalize, hadamard joined by +. */
nb_status nb_attn_form_parse(nb_attn_form_opts *o, const char *type, const char *mode,
                             const char *rope, const char *transform, nb_error *err);

typedef struct nb_attn_form {
    nb_attn_form_opts o;
    const nb_capture_layer *l;
    nb_record record;
    size_t hadamard;   /* block; 0: none */
    const float *mean; /* [dim 0] or NULL; the same of the next two */
    const int8_t *scale_log2;
    const uint16_t *perm;
    const uint16_t *outlier; /* [o.n_outlier] or NULL */
    double *tmp;             /* [n_values] */
    uint8_t *pages;          /* [n_page][page_bytes]: whole pages of the layer's tokens */
    size_t n_page;
    float *rows; /* [n_page * 64][n_values] as read back */
    float *tail; /* [64][n_values]: page n_tail in BF16; see nb_attn_form_tail */
    size_t n_tail;
    double bytes_per_tok, tail_bytes; /* of a token in a whole page, and in an open one */
} nb_attn_form;

/* Mean, deviation and maximum of segment 0 over the tokens [0, n_tok), with the scales and the
 * permutation that equalize would use: D = 2^round(log2(typical / sd)), typical the geometric mean
 * of the deviations; P sorts by deviation after D, descending. */
nb_status nb_attn_stats(const nb_capture_layer *l, size_t n_tok, nb_arena *arena,
                        nb_kv_calib_layer *out, nb_error *err);

/* Encodes and reads back; everything in the arena, l borrowed.  NB_ERR_NONFINITE, and what
 * nb_record_init says. */
nb_status nb_attn_form_make(const nb_capture_layer *l, const nb_attn_form_opts *o, nb_arena *arena,
                            nb_attn_form *out, nb_error *err);

/* Tokens [0, whole) of a query are read from rows, the others, up to its position, from
 * f->tail, which this fills. */
size_t nb_attn_form_tail(nb_attn_form *f, size_t pos);
/* q of all heads in the form's domain, [n_head][d_q]. */
void nb_attn_form_query(const nb_attn_form *f, const float *q, float *out);
/* A weighted sum of values back in the model's domain, in place: [sum_width]. */
void nb_attn_form_back(const nb_attn_form *f, double *u);

typedef enum nb_attn_refine { NB_REFINE_RESIDUAL, NB_REFINE_FP8, NB_REFINE_BF16 } nb_attn_refine;
/* Rows as they are read with their refinement, [n_page * 64][n_values]: residual: segment 0 at 8
 * bits, the rest as in the record (NB_ERR_UNSUPPORTED where the record has none); fp8 and bf16:
 * all of the row in that record.  *row_bytes: read beside the record's row. */
nb_status nb_attn_form_refined(const nb_attn_form *f, nb_attn_refine kind, nb_arena *arena,
                               float **rows, double *row_bytes, nb_error *err);

#endif
