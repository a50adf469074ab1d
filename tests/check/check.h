/* check.h - the kernel checker: what a test of an operation sees.
 *
 * One chk_op per operation enumerates the rows of the product's variant table and
 * tests one row over all its cases.  A case is a shape and an input pattern; it
 * starts with chk_case (new memory, new seed) and calls the kernel through
 * chk_call, between which inputs may not change, canaries may not die, the CPU
 * state may not change and signals are caught.  See docs/kernels-howto.md. */
#ifndef NB_TESTS_CHECK_H
#define NB_TESTS_CHECK_H
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/attr.h"
#include "base/rng.h"
#include "kernel/kernel.h"
#include "num/record.h"
#if NB_EMULATED
#include "emu/emu_tile.h" /* are tiles released? */
#endif

/* One row of a variant table.  sub tells rows of one table apart that do not
 * compete (the weight type of linear, "" else); row points to the table's row. */
typedef struct chk_row {
    const char *variant, *sub;
    nb_space space;
    nb_caps need;
    const void *row;
} chk_row;

/* A planted bug: a row that must fail, and the word its report must contain. */
typedef struct chk_broken {
    const char *what, *expect;
    chk_row row;
} chk_broken;

typedef struct chk chk;
typedef struct chk_op {
    const char *name;
    size_t (*rows)(chk_row *out, size_t max);
    void (*test)(chk *t, const chk_row *row);
    void (*bench)(chk *t, const chk_row *row);
    const chk_broken *broken; /* ends at what == NULL; or NULL */
} chk_op;
extern const chk_op chk_rmsnorm, chk_linear, chk_linear_t, chk_rope, chk_attn, chk_attn_score,
    chk_attn_prefill, chk_swiglu, chk_embed, chk_route, chk_kv_codec, chk_kv_residual,
    chk_attn_pages, chk_index_score, chk_index_topk, chk_kda;

/* Defines fn, the chk_op.rows of a table whose rows have name, space and need. */
#define CHK_ROWS(fn, type, table, sub_of_v)                                                        \
    static size_t fn(chk_row *out, size_t max)                                                     \
    {                                                                                              \
        size_t n = 0;                                                                              \
        for (const type *v = (table); v->name && n < max; v++)                                     \
            out[n++] = (chk_row){ v->name, (sub_of_v), v->space, v->need, v };                     \
        return n;                                                                                  \
    }

/* Input patterns. */
typedef enum chk_pattern {
    CHK_NORMAL,  /* uniform in [-1, 1)                                   */
    CHK_TINY,    /* around the smallest normal float and below            */
    CHK_LARGE,   /* up to 2^30                                            */
    CHK_ZERO,    /* zeros of both signs                                   */
    CHK_ALTERN,  /* equal magnitudes, alternating signs: cancellation     */
    CHK_OUTLIER, /* normal, every 61st or so times 1000                   */
    CHK_TIES,    /* small multiples of 1/2: rounding ties, equal values    */
    CHK_CONST,   /* one value with a long fraction: biased rounding        */
    CHK_RUNS,    /* random runs of the above with random magnitude         */
    CHK_PATTERN_COUNT
} chk_pattern;
const char *chk_pattern_name(chk_pattern p);

enum { CHK_MAX_BUF = 192, CHK_MAX_CRASH = 64, CHK_NAME = 160 };

typedef struct chk_buf {
    unsigned char *map, *p; /* the mapping with its guard pages; the buffer */
    size_t map_bytes, n_bytes;
    bool input;
    uint64_t hash;
} chk_buf;

struct chk {
    /* set by the driver */
    const chk_op *op;
    const chk_row *row;
    uint64_t seed;
    size_t every, first;     /* one case of `every`, from case `first`; 0: all     */
    nb_caps have;            /* levels of this machine                             */
    bool quiet;              /* self-test: failures are counted and kept, not printed */
    bool state_ok;           /* XGETBV(1) tells a dirty upper half                  */
    char function[CHK_NAME]; /* "linear_bf16_avx2"                          */
    /* one variant's results */
    size_t n_case, n_fail, n_skip_case;
    double worst; /* largest error as a fraction of its bound            */
    char worst_at[CHK_NAME], first_fail[512];
    size_t crashed[CHK_MAX_CRASH], n_crashed;
    /* one case */
    char name[CHK_NAME];
    uint64_t draw, case_seed; /* random numbers: index and seed */
    bool failed;              /* this case failed already       */
    bool front;               /* buffers start at a guard page (else end at one) */
    chk_buf buf[CHK_MAX_BUF];
    size_t n_buf;
    uint32_t mxcsr;
    uint64_t xinuse;
    /* bench */
    struct chk_bench *bench;
};

/* Starts a case; false: skip it (it crashed before).  Frees the last case's
 * buffers and reseeds, so that every variant gets the same inputs. */
bool chk_case(chk *t, const char *fmt, ...) NB_PRINTF(2, 3);
void chk_fail(chk *t, const char *fmt, ...) NB_PRINTF(2, 3);

/* Random numbers of the case. */
uint64_t chk_u64(chk *t);
size_t chk_between(chk *t, size_t lo, size_t hi); /* inclusive */
double chk_unit(chk *t);                          /* [0, 1)    */

/* Guarded memory, valid until the next case.  chk_raw is scratch (not watched);
 * chk_in is an input (must not change in chk_call); chk_out is filled with a NaN
 * canary.  n_bytes may be 0. */
void *chk_raw(chk *t, size_t n_bytes);
void *chk_in(chk *t, size_t n_bytes);
void *chk_out(chk *t, size_t n_bytes);
double *chk_f64(chk *t, size_t n);

/* Rows of floats with gaps of canaries: the buffer ends with the last row. */
size_t chk_rows_bytes(size_t n_row, size_t n_col, size_t stride, size_t item_bytes);
float *chk_in_rows(chk *t, size_t n_row, size_t n_col, size_t stride, chk_pattern p);
float *chk_out_rows(chk *t, size_t n_row, size_t n_col, size_t stride);
/* Same content in other memory, as an input or as an output (in place). */
void *chk_copy(chk *t, const void *p, size_t n_bytes, bool input);
void chk_fill(chk *t, float *x, size_t n, chk_pattern p);

/* The segments of a record for MLA (latent, rope key) or GQA (keys, values), each n_vec vectors of dim. */
void chk_segs(nb_record_opts *o, bool is_mla, const size_t dim[2], const size_t n_vec[2]);

/* A weight matrix of the type, with guard pages, codes of a pattern and scales.
 * FP8B: CHK_NORMAL fills the range up to 448 as a quantised model does (subnormal
 * codes are rare, and slow to convert on some processors); every other pattern
 * takes all codes but NaN with equal probability.  INT8: a scale per row, codes
 * of the pattern's largest magnitude where it has only one. */
nb_weight chk_weight(chk *t, nb_wtype type, size_t n_row, size_t n_col, chk_pattern p);
/* Gives FP8 weights a scale per row. */
void chk_row_scales(chk *t, nb_weight *w);

void chk_arm(chk *t);
void chk_disarm(chk *t);
#define chk_call(t, call) (chk_arm(t), (call), chk_disarm(t))

/* got[r][c] against want within bound (dense [n_row][n_col]); gaps must still be
 * canaries.  NaN and infinities must match in place. */
void chk_close(chk *t, const float *got, size_t n_row, size_t n_col, size_t stride,
               const double *want, const double *bound);
/* An error that a test measured by itself, as a fraction of its bound. */
void chk_worst(chk *t, double of_bound);
/* The same bits in both, rows of floats. */
void chk_same(chk *t, const char *why, const float *a, size_t a_stride, const float *b,
              size_t b_stride, size_t n_row, size_t n_col);
void chk_same_bytes(chk *t, const char *why, const void *a, const void *b, size_t n_bytes);

/* Timing of one call: bytes and flops of it give the rates.  Prints a line. */
typedef void chk_bench_fn(void *ctx);
void chk_time(chk *t, const char *label, double bytes, double flops, chk_bench_fn *fn, void *ctx);

/* check_mem.c, for the driver */
void chk_free_all(chk *t);
bool chk_state_usable(nb_caps have);
extern volatile int chk_armed; /* a kernel is running: signals are its fault */
/* check_bench.c, for the driver */
struct chk_bench *chk_bench_open(const char *json_path);
int chk_bench_close(struct chk_bench *b);
void chk_machine_line(char *out, size_t n_bytes, nb_caps have);

#endif
