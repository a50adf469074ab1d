/* calibrate_internal.h - shared by calibrate*.c: statistics of a layer, its transforms, the
 * measurement of one candidate, the choice among several. */
#ifndef NB_CALIBRATE_CALIBRATE_INTERNAL_H
#define NB_CALIBRATE_CALIBRATE_INTERNAL_H
#include "base/arena.h"
#include "calibrate/calibrate.h"
#include "kernel/attn/attn.h"
#include "kernel/kv_codec/kv_codec.h"
#include "kernel/linear/linear.h"

enum { CALIB_CENTER = 1, CALIB_EQUALIZE = 2, CALIB_HADAMARD = 4 };

/* ---- statistics (calibrate_stats.c) ---- */

typedef struct calib_stats {
    size_t n0, n_head, n_pair; /* values of segment 0; MLA: heads, pairs of the rope key */
    uint64_t n_tok, n_q;
    double *sum, *sq;    /* [n0] */
    float *amax;         /* [n0] */
    float token_amax;    /* of segment 0 */
    double *pair_sum;    /* [n_pair] of radii */
    float *pair_max;     /* [n_pair] */
    double *pair_sq;     /* [n_pair] of squared radii */
    bool interleaved;    /* pair j is values 2j and 2j + 1, else j and j + n_pair */
    double *q_sq, *w_sq; /* MLA: [n_head][n0] sums of squares of absorbed queries; of w_uv */
    double scale;
} calib_stats;

/* First call: allocates. */
nb_status nb_calib_stats_add(calib_stats *s, const nb_capture_layer *l, nb_arena *arena);

/* How D is found; P sorts the channels by their deviation after D, in every case. */
typedef enum calib_scaling {
    CALIB_BY_SD,         /* d = 1 / sd                                               */
    CALIB_BY_ROOT,       /* d = sd^-1/2: half of the way                             */
    CALIB_BY_IMPORTANCE, /* d = (M / sd^2)^1/4, M: what an error of the channel does */
    CALIB_BY_ORDER,      /* d = 1: the permutation alone                             */
    CALIB_SCALINGS
} calib_scaling;

typedef struct calib_layer_stats { /* what follows from calib_stats */
    float *mean, *sd, *pair_mean;
    int8_t *scale_log2[CALIB_SCALINGS]; /* MLA */
    uint16_t *perm[CALIB_SCALINGS];
    size_t hadamard; /* block; 0: none possible */
    uint16_t *pair;  /* MLA: [n_pair] the pairs of the rope key by root mean square, descending */
} calib_layer_stats;
nb_status nb_calib_stats_finish(const calib_stats *s, bool is_mla, nb_arena *arena,
                                calib_layer_stats *out);

/* The values of the n largest pairs of the rope key, ascending places in it; returns how many, at
 * most NB_MAX_OUTLIER. */
size_t nb_calib_rope_outliers(const calib_stats *s, const calib_layer_stats *y, size_t n,
                              uint16_t out[NB_MAX_OUTLIER]);

/* ---- measuring (calibrate_measure.c) ---- */

typedef struct calib_transform {
    unsigned parts; /* CALIB_* */
    calib_scaling scaling;
} calib_transform;

/* One candidate of one layer: what is tried, and what came of it. */
typedef struct calib_candidate {
    calib_transform t;
    nb_calib_record record;
    nb_record layout;
    double bits;    /* per value */
    double *loss;   /* [n_query of all held-out windows] */
    double *err_sq; /* [n_head] sums of |o^ - o|^2 */
    double mean_loss, error;
} calib_candidate;

/* Kernels and room for one window; grows to what it is given. */
typedef struct calib_bench {
    nb_attn_fn *attn;
    nb_linear_fn *linear; /* of float weights */
    const nb_kv_codec_variant *codec;
    nb_arena arena; /* of the window in hand */
} calib_bench;
void nb_calib_bench_init(calib_bench *b);
void nb_calib_bench_deinit(calib_bench *b);

/* Measures all candidates on the queries of a captured window.  Candidates with the same transform
 * should follow each other: it is applied once.  first_query: where their losses begin;
 * ref_sq: [n_head] sums of |o|^2, added to. */
nb_status nb_calib_measure(calib_bench *b, const nb_capture_layer *l, const calib_layer_stats *s,
                           calib_candidate *c, size_t n_cand, size_t first_query, double *ref_sq,
                           nb_error *err);

/* ---- choosing (calibrate_choose.c) ---- */

/* mean_loss and error, when all windows were measured. */
void nb_calib_summarise(calib_candidate *c, size_t n_cand, size_t n_query, const double *ref_sq,
                        size_t n_head);
/* The best transform in c[1..n_cand) where it beats c[0] (none) for sure, else 0. */
nb_status nb_calib_choose_transform(const calib_candidate *c, size_t n_cand, size_t n_query,
                                    uint64_t seed, size_t *out, nb_error *err);
/* Of each layer's candidates c[i * n_cand ...): pick[n_layer].  n[i]: how many it has. */
nb_status nb_calib_choose_bits(const calib_candidate *c, const size_t *n, size_t n_cand,
                               size_t n_layer, double target_bits, size_t *pick, nb_error *err);
size_t nb_calib_choose_error(const calib_candidate *c, size_t n, double max_error);

#endif
