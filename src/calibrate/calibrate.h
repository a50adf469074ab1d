/* calibrate.h - how a model's cache is best kept, measured on a text.
 *
 * Most windows of the text give statistics (mean, deviation, maxima, radii of rope pairs); the
 * others are held out.  On these, candidates of transform and record are encoded and decoded by
 * the real codecs, and a layer's attention is computed from what comes back, as the engine does:
 * whole pages decoded, the query's own page in BF16.  Against it stands softmax in double over
 * the values as they were computed.
 *   error of a layer  mean over heads of sqrt(sum |o^ - o|^2 / sum |o|^2) over queries,
 *                     o the head's output (MLA: after W_UV)
 *   loss              mean over queries and heads of |o^ - o|^2, in units of the head's mean |o|^2
 *                     in the window: what is compared, and what budgets add up
 * A transform is chosen on half of the queries and taken only where the other half shows it to be
 * better than none (95% of a paired bootstrap).  The rope key stays in the format that is asked for,
 * unless there is a budget: then its formats are candidates too. */
#ifndef NB_CALIBRATE_CALIBRATE_H
#define NB_CALIBRATE_CALIBRATE_H
#include "load/kv_calib.h"
#include "nibble/measure.h"
#include "num/record.h"

#define NB_CALIB_CANDIDATES "none,center,equalize,center+equalize,hadamard,center+equalize+hadamard"
enum { NB_CALIB_QUERIES = 32 };

typedef struct nb_calib_record {
    nb_kv_type type;
    nb_kv_mode mode;
    nb_rope_fmt rope; /* MLA */
    size_t n_outlier;
    size_t n_pair; /* MLA: pairs of the rope key kept in BF16 */
} nb_calib_record;

typedef struct nb_calibrate_options {
    const uint32_t *ids; /* windows: w is ids[begin[w]] ... ids[begin[w + 1] - 1] */
    const size_t *begin; /* [n_window + 1] */
    size_t n_window;     /* at least 2, each of more than 64 tokens to be held out */
    double held_out;     /* share of the windows, 0 < held_out < 1 */
    size_t n_query;      /* per held-out window; 0: NB_CALIB_QUERIES */
    uint64_t seed;
    const char *candidates; /* transforms separated by commas; NULL: NB_CALIB_CANDIDATES */
    nb_calib_record record; /* what is asked for; the choice without a budget */
    double target_bits; /* 0, or bits per value on average over the layers: the best that fits */
    double max_error;   /* 0, or a layer's largest error: the smallest record that keeps it */
    nb_progress_fn *progress; /* or NULL */
    void *progress_ctx;
} nb_calibrate_options;

/* Calls nb_engine_capture on e, which should have a bf16 or f32 cache and no transform.  *out is
 * the caller's to deinit, on success only. NB_ERR_RANGE when no choice fits target_bits. */
nb_status nb_calibrate(nb_engine *e, const nb_calibrate_options *o, nb_kv_calib *out,
                       nb_error *err);

#endif
