/* kernel.h - what every operation has in common.
 *
 * An operation is a contract header (<op>.h), a reference in double
 * (<op>_ref.c), a portable variant (<op>_c.c), variants per instruction set
 * (x86/<op>_avx2.c ...) and one table (<op>.c) that the plan, the checker and
 * the benchmark enumerate: best first, ended by name == NULL.  The plan picks
 * the first row whose needs are met; a row no level ever picks is an error. */
#ifndef NB_KERNEL_KERNEL_H
#define NB_KERNEL_KERNEL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/caps.h"
#include "nb_config.h"

typedef enum nb_space { NB_SPACE_HOST, NB_SPACE_CUDA } nb_space;

/* Element types of weights. */
typedef enum nb_wtype {
    NB_W_F32,
    NB_W_BF16,
    NB_W_F16,
    NB_W_FP8B, /* E4M3 with one float scale per 128x128 block (weight_scale_inv) */
    NB_W_INT8, /* signed bytes in -127..127 with one float scale per row         */
    NB_W_TYPE_COUNT
} nb_wtype;

static inline size_t nb_wtype_bytes(nb_wtype t)
{
    return t == NB_W_F32 ? 4 : t == NB_W_FP8B || t == NB_W_INT8 ? 1 : 2;
}

/* A weight matrix [n_row][n_col] in row-major order: borrowed, immutable. */
typedef struct nb_weight {
    const void *data;   /* NULL: absent                                         */
    const float *scale; /* FP8B: [ceil(n_row/128)][ceil(n_col/128)], INT8: [n_row]; multiplies */
    size_t n_row, n_col;
    nb_wtype type;
} nb_weight;

enum { NB_FP8_BLOCK = 128 };

#endif
