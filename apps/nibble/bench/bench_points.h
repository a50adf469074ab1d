/* bench_points.h - times at given lengths of the context: what `bench throughput --depth` and `bench
 * matrix` are made of.
 *
 * Each sequence has random token ids of its own, from a seed.  Its first 512 tokens are computed; the
 * pages behind them, to the depth, are copies of theirs (nb_engine_fill), or are computed, too.  Either
 * way they lie in the prefix cache, and every point is an ordinary request that finds them: one that
 * generates, its tokens timed one by one, or one whose prompt goes on with new tokens.  Sequences
 * that generate at once share no page. */
#ifndef NB_APPS_BENCH_POINTS_H
#define NB_APPS_BENCH_POINTS_H
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "../options/opts.h"
#include "timing/bench_kernel.h"

enum { BENCH_PAGE = 64 };

typedef struct bench_points {
    nb_engine *engine;
    nb_engine_info info;
    uint64_t seed;
    bool fill;
    uint32_t *ids; /* [info.max_model_len + BENCH_PAGE] */
    /* of sequences that generate */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_lock;
    size_t n_active;
    nb_status st;
    nb_error err;
} bench_points;

/* What an engine is made for. */
typedef struct bench_points_spec {
    size_t max_model_len, max_seqs; /* tokens; sequences */
    size_t pool_blocks;             /* of 64 tokens of all layers */
    uint64_t seed;
    bool fill;
} bench_points_spec;

/* Tokens of a context that holds `depth` and `more` behind it; blocks of a pool for n_seq of them. */
size_t bench_points_len(size_t depth, size_t more);
size_t bench_points_blocks(size_t depth, size_t more, size_t n_seq);
/* The engine options of o for s, without the pool. *gpu: whether it computes on one. CLI_OK, or an
 * exit code after an error line. */
int bench_points_options(const opts *o, const bench_points_spec *s, nb_engine_options *e,
                         nb_device_info *device);
/* e: of bench_points_options, with the pool. Deinit in any case; err is filled unless NB_OK. */
nb_status bench_points_init(bench_points *x, const bench_points_spec *s, const nb_engine_options *e,
                            nb_error *err);
void bench_points_deinit(bench_points *x);

/* Gaps between tokens, in seconds, of n_seq sequences of `depth` (a multiple of 64) that generate at
 * once, at least n_tok gaps of each.  CLI_OK, or CLI_FAILED after an error line. */
int bench_points_decode(bench_points *x, size_t depth, size_t n_seq, size_t n_tok,
                        nb_kbench_spread *s);
/* Seconds to compute n_tok new tokens behind `depth`, n times. */
int bench_points_prefill(bench_points *x, size_t depth, size_t n_tok, size_t n,
                         nb_kbench_spread *s);

/* Names of rows for such times: the model as bench_model_name has it. */
enum { BENCH_POINT_NAME = 256 };
void bench_decode_name(const char *model, const bench_points *x, size_t depth, size_t n_seq,
                       char out[BENCH_POINT_NAME]);
void bench_prefill_name(const char *model, const bench_points *x, size_t depth, size_t n_tok,
                        char out[BENCH_POINT_NAME]);

/* Tokens of one sequence: when each came. */
typedef struct depth_times {
    double *at_s; /* [cap] */
    size_t n, cap;
} depth_times;

/* The gaps between tokens that lie inside the time in which all n_seq sequences were generating
 * (from the last first token to the first last one).  False: there are none. gap has room for all
 * tokens. */
bool bench_depth_gaps(const depth_times *seq, size_t n_seq, double *gap, nb_kbench_spread *s);

#endif
