/* bench_kernel.h - timing the rows of the kernels' variant tables, beside the floors of the machine.
 *
 * A case is an operation, a level of instruction sets and a shape.  Its data are `item`s that lie
 * one after the other in one block of memory: a layer's pages, a matrix.  Warm, every step works on
 * the first item; cold, the steps go round through as many items as fill set_bytes, so that none
 * finds its data in a cache that is smaller than that, as layers of a model do.  The floor is
 * measured in the same run: what the same threads read of the very same bytes, in the same order, and
 * what they multiply and add in registers (kernel/peak).
 *
 * Attention steps are cut as the engine cuts them (splits of 4 pages, joined in order), on
 * n_thread threads, with the pool's own cost in them. */
#ifndef NB_TIMING_BENCH_KERNEL_H
#define NB_TIMING_BENCH_KERNEL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nibble/status.h"

typedef struct nb_kbench nb_kbench; /* threads and memory; one caller at a time */

/* n_thread 0: the physical cores there are.  seed: of all data. */
nb_status nb_kbench_create(size_t n_thread, uint64_t seed, nb_kbench **out, nb_error *err);
void nb_kbench_destroy(nb_kbench *b);
size_t nb_kbench_n_thread(const nb_kbench *b);

/* The operations, ended by NULL. */
typedef struct nb_kbench_op {
    const char *name, *help;
    bool record, weight; /* is there a choice of records, of weight types */
    bool context;        /* its cost grows with the context               */
} nb_kbench_op;
extern const nb_kbench_op nb_kbench_ops[]; /* ends at name == NULL */

typedef struct nb_kbench_case {
    const char *op;
    const char *level;  /* "c", "avx2", ...; NULL: all that this machine has            */
    const char *record; /* nvfp4, ...; MLA, 512 + 64 values                              */
    const char *rope;   /* fp8, bf16, int8; NULL: the record's own                       */
    const char *weight; /* f32, bf16, f16, fp8, int8                                     */
    const char *act;    /* of linear: float (NULL, too), bf16, int8: its form of activations */
    size_t n_head, n_query;
    size_t context; /* tokens, a multiple of 64; what they cost is told per token    */
    size_t n_row, n_col, n_tok;
    bool cold;
    size_t set_bytes; /* cold: bytes to go round through, at least                     */
    size_t n_sample;  /* samples of at least sample_s                                  */
    double sample_s;
    bool no_floor; /* only the times: no rates are measured */
} nb_kbench_case;

/* Samples of one figure.  mad: median of the distances from the median, times 1.4826 a deviation that
 * a few disturbed samples do not move. */
typedef struct nb_kbench_spread {
    double median, mad, lo, hi; /* lo, hi: the least and the largest */
    size_t n;
} nb_kbench_spread;

typedef struct nb_kbench_row {
    const char *op, *part;      /* part: "decode", "encode", ...; "" */
    const char *variant;        /* name of the table's row */
    double median_ns, best_ns;  /* of a step: one item */
    double cpu_ns;              /* processor time of all threads, median: others disturb it less */
    double bytes, ops;          /* of a step: read from the item; 0 operations: not counted */
    double context;             /* context tokens of a step, 0: none */
    double set_bytes;           /* all items */
    double read_gbs, peak_gops; /* measured; 0: not needed */
    const char *peak;           /* "f32", "bf16", "int8", "" */
    double floor_ns;            /* the larger of bytes / read_gbs and ops / peak_gops */
    nb_kbench_spread spread;    /* ns of a step, of the samples */
} nb_kbench_row;

enum { NB_KBENCH_MAX_ROW = 4 };
/* Runs a case; *n rows.  NB_ERR_ARG, NB_ERR_RANGE, NB_ERR_UNSUPPORTED with a line for what the case
 * says; NB_ERR_NOMEM. */
nb_status nb_kbench_run(nb_kbench *b, const nb_kbench_case *c, nb_kbench_row row[NB_KBENCH_MAX_ROW],
                        size_t *n, nb_error *err);

/* Peaks of a level on all threads: GB/s from memory of n_bytes (each thread its part), and
 * 10^9 operations a second; 0 where the level has none of its own. */
typedef struct nb_kbench_peaks {
    double read_gbs, f32_gops, bf16_gops, int8_gops;
} nb_kbench_peaks;
nb_status nb_kbench_peak(nb_kbench *b, const char *level, size_t n_bytes, nb_kbench_peaks *out,
                         nb_error *err);

/* Names of the levels of this machine, lowest first, ended by NULL; they live for ever. */
enum { NB_KBENCH_MAX_LEVEL = 8 };
size_t nb_kbench_levels(const char *name[NB_KBENCH_MAX_LEVEL]);
/* The processor as it names itself. */
void nb_kbench_cpu(char *name, size_t n_bytes);

/* Median and least of n >= 1 samples, which are reordered. */
void nb_kbench_median(double *x, size_t n, double *median, double *best);
/* Of n >= 1 samples, which are overwritten. */
void nb_kbench_spread_of(double *x, size_t n, nb_kbench_spread *out);
/* Growth of y per x between the points of the least and the largest x (n >= 2, x not all equal);
 * false: there is none. */
bool nb_kbench_slope(const double *x, const double *y, size_t n, double *slope);

#endif
