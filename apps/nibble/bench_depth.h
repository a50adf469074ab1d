/* bench_depth.h - `nibble bench throughput --depth`: points at given lengths of the context. */
#ifndef NB_APPS_BENCH_DEPTH_H
#define NB_APPS_BENCH_DEPTH_H
#include <stdbool.h>
#include <stddef.h>

#include "opts.h"

int bench_depth_run(const opts *o); /* CLI_* */

/* Tokens of one sequence: when each came. */
typedef struct depth_times {
    double *at_s; /* [cap] */
    size_t n, cap;
} depth_times;

/* Median of the gaps between tokens that lie inside the time in which all n_seq sequences were
 * generating (from the last first token to the first last one); *best the least.  False: there are
 * none. gap has room for all tokens. */
bool bench_depth_gaps(const depth_times *seq, size_t n_seq, double *gap, double *median_s,
                      double *best_s, size_t *n_gap);

#endif
