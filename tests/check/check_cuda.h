/* check_cuda.h - the checker for operations on a GPU (nibble-check --cuda LIBRARY).
 *
 * As check.h, with memory of the device: a case starts with chk_case, makes its inputs and outputs with
 * chk_gpu_in, _inout and _out, calls operations inside chk_gpu_call, and reads results with
 * chk_gpu_get.  Each buffer has canaries before and behind it; outputs are filled with a NaN pattern
 * (0x7fa5a5a5; bytes a5 a5 a5 7f); inputs may not change.  The device's sticky error fails the case, with
 * its name, and opens the device anew.
 *
 * A test of one operation is one file check_cuda_<op>.c with a chk_op named chk_cuda_<op>, listed in
 * check_cuda.c; rows is chk_gpu_row, or enumerates rows of a table: its own, with `row` pointing to the
 * table's row, for those whose cc the device has (chk_gpu_info).  check_cuda_embed.c is the pattern to
 * copy.  In the emulation 2,000 mma take about a millisecond: keep shapes small there
 * (chk_gpu_info(t)->emulated). */
#ifndef NB_TESTS_CHECK_CUDA_H
#define NB_TESTS_CHECK_CUDA_H
#include "check/check.h"
#include "kernel/cuda/api/nb_cuda.h"

/* The device; valid in this case.  t NULL: as it is, without planted bugs. */
const nb_cuda_api *chk_gpu_api(chk *t);
nb_cuda *chk_gpu(chk *t);
const nb_cuda_info *chk_gpu_info(chk *t);

/* A planted bug of an operation without a table, whose rows are chk_gpu_row: chk_gpu_api has what `plant` puts there. */
typedef struct chk_gpu_bug {
    void (*plant)(nb_cuda_api *api);
} chk_gpu_bug;
#define CHK_GPU_BUG(what, expect, plant)                                                           \
    {                                                                                              \
        what, expect, { "broken", "", NB_SPACE_CUDA, 0, &(const chk_gpu_bug){ plant } }            \
    }

/* Device memory, aligned to 256, until the next case.  n_bytes may be 0. */
void *chk_gpu_in(chk *t, const void *host, size_t n_bytes);
void *chk_gpu_inout(chk *t, const void *host, size_t n_bytes);
void *chk_gpu_out(chk *t, size_t n_bytes);
/* Reads device memory of any buffer; waits. */
void chk_gpu_get(chk *t, void *host, const void *dev, size_t n_bytes);

/* Runs what is queued and checks error, canaries and inputs. */
void chk_gpu_done(chk *t);
#define chk_gpu_call(t, call) (chk_gpu_arm(t), (call), chk_gpu_done(t))
void chk_gpu_arm(chk *t);

/* Rows [n_row][stride] in the forms wanted, from floats [n_row][n_col]: parts 0: f alone, 1: f and hi (x is
 * rounded to BF16 first), 2: f, hi and lo.  Gaps hold the canary. */
nb_cuda_rows chk_gpu_in_rows(chk *t, float *x, size_t n_row, size_t n_col, size_t stride,
                             int parts);
/* Rows as codes (nb_cuda_quantise_args), made on the host from BF16 values [n_row][x_stride], and their copy. */
typedef struct chk_codes {
    uint8_t *q; /* [n_row][stride] */
    float *s;   /* [n_row][s_stride] */
    size_t stride, s_stride;
} chk_codes;
chk_codes chk_gpu_codes(chk *t, const float *x, size_t n_row, size_t n_col, size_t x_stride,
                        nb_cuda_codes *dev);
/* The sum of row r of w (FP8B) and a row of codes, exactly, and what the tensor cores may lose of it: each of 32 products and
 * the sum before them less than 2^-13 of the largest of these. */
void chk_codes_sum(const chk_codes *x, size_t row, const nb_weight *w, size_t r, double *want,
                   double *bound);
nb_cuda_rows chk_gpu_out_rows(chk *t, size_t n_row, size_t stride, int parts);
/* A matrix, here and there: tiled (linear/tiled.h) if it is packed, and INT8 if `tile`. */
nb_weight chk_gpu_weight(chk *t, const nb_weight *host, bool tile);
/* What a product's result is compared with: w, or where it rounds values to BF16 (K forms in prompts on Hopper with x in one
 * part) a copy of these values.  there: what chk_gpu_weight made of w. */
nb_weight chk_gpu_seen(chk *t, const nb_weight *w, const nb_weight *there, const char *row, nb_cuda_kind kind,
                       bool two_parts);
/* chk_weight, drawn until a GPU can hold it. */
nb_weight chk_gpu_draw(chk *t, nb_wtype type, size_t n_row, size_t n_col, chk_pattern p);
/* The type that a GPU has for weights of a type, if it can; NB_W_TYPE_COUNT: none. */
nb_wtype chk_gpu_type(nb_wtype type, bool tile);
/* Host copies of rows: chk_raw memory, every form that is there. */
nb_cuda_rows chk_gpu_get_rows(chk *t, const nb_cuda_rows *y, size_t n_row);
/* hi and lo are the parts of f in bits, of all [n_row][n_col] (host rows). */
void chk_gpu_parts(chk *t, const nb_cuda_rows *host, size_t n_row, size_t n_col);

/* One row, for an operation with one variant. */
size_t chk_gpu_row(chk_row *out, size_t max);

/* Timing: fn queues the operation once.  Prints the median of single runs with the L2 flushed before each,
 * and the time per run of many in a row, by the device's clock, as graphs. */
void chk_gpu_time(chk *t, const char *label, double bytes, double flops, chk_bench_fn *fn,
                  void *ctx);

/* For the driver. */
bool chk_gpu_open(const char *library, bool guard); /* guard: every buffer allocated alone */
nb_caps chk_gpu_caps(void);
void chk_gpu_free_all(void);
void chk_gpu_close(void);
extern const chk_op *const chk_cuda_ops[];
extern const size_t chk_cuda_n_op;

#endif
