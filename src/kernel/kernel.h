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

/* Types of weights.  The plain ones have one element per value; the packed ones, from NB_W_INT4 on,
 * store groups of values, and linear/packed.h has a row of traits for each. */
typedef enum nb_wtype {
    NB_W_F32,
    NB_W_BF16,
    NB_W_F16,
    NB_W_FP8B, /* E4M3 with one float scale per 128x128 block (weight_scale_inv), or per row */
    NB_W_INT8, /* signed bytes in -127..127 with one float scale per row         */
    NB_W_INT4, /* (code - zero point) * scale of the group: 4 bits a code         */
    NB_W_BYTE, /* the same with codes of 8 bits                                   */
    NB_W_FP4,  /* E2M1 * scale of the group: NVFP4, MXFP4                         */
    /* Blocks of GGUF (num/ggml.h), in the order of nb_dtype; group.outer multiplies NVFP4's. */
    NB_W_Q8_0, NB_W_Q4_0, NB_W_Q4_1, NB_W_Q5_0, NB_W_Q5_1, NB_W_Q2_K, NB_W_Q3_K,
    NB_W_Q4_K, NB_W_Q5_K, NB_W_Q6_K, NB_W_IQ4_NL, NB_W_IQ4_XS, NB_W_MXFP4, NB_W_GGUF_NVFP4,
    NB_W_IQ2_XXS, NB_W_IQ2_XS, NB_W_IQ2_S, NB_W_IQ3_XXS, NB_W_IQ3_S, NB_W_IQ1_S, NB_W_IQ1_M,
    NB_W_TYPE_COUNT
} nb_wtype;

/* What a product makes of its activations before it multiplies (--activation-dtype).  A row of the table of
 * linear has one form; each has its own bound (linear/linear.h). */
typedef enum nb_act {
    NB_ACT_FLOAT, /* floats, or as good: two BF16 parts, two digits for INT8 weights               */
    NB_ACT_BF16,  /* rounded to BF16 once                                                          */
    NB_ACT_INT16, /* packed weights: 16 bits, a scale per 32 columns (linear/linear_units.h)       */
    NB_ACT_INT8,  /* one digit of 8 bits, a scale per 32 columns (linear/linear_act8.h)            */
    NB_ACT_FP8,   /* a GPU's prompts times FP8 weights: E4M3, a scale per 128 columns; others: BF16  */
    NB_ACT_COUNT
} nb_act;

static inline bool nb_wtype_is_packed(nb_wtype t)
{
    return t >= NB_W_INT4;
}

/* Of a plain type: bytes of an element. */
static inline size_t nb_wtype_bytes(nb_wtype t)
{
    return t == NB_W_F32 ? 4 : t == NB_W_FP8B || t == NB_W_INT8 ? 1 : 2;
}

/* Types of the scales of groups; E4M3 and E8M0 have no sign to speak of, but any code is read.  The last four
 * are those of K blocks as a GPU holds them (linear/tiled.h). */
typedef enum nb_stype {
    NB_S_F32, NB_S_BF16, NB_S_F16, NB_S_E4M3, NB_S_E8M0,
    NB_S_F16_MIN, NB_S_K32, NB_S_K16, NB_S_K16_MIN
} nb_stype;

/* What INT4, BYTE and FP4 have beside their codes.  A group is `size` columns of one row, the last one
 * of a row may be shorter; a row has n_group = ceil(n_col / size) of them.  With `place` a row's codes
 * are stored in another order (act order): column c is code place[c], and code p is column
 * column[p]; groups are groups of codes. */
typedef struct nb_wgroups {
    const void *scale;   /* [n_row][n_group] of type `scale_type`                         */
    const uint8_t *zero; /* [n_row][n_group], or NULL: 8 (INT4), 128 (BYTE)               */
    const uint32_t *place, *column; /* [n_col] each, or NULL: in order                    */
    size_t size;         /* a multiple of 8, or n_col                                     */
    nb_stype scale_type;
    float outer;         /* multiplies every scale                                        */
    uint8_t flip;        /* exclusive-or of every stored byte (0x80: signed bytes, 0x88: signed nibbles) */
} nb_wgroups;

/* A weight matrix [n_row][n_col] in row-major order: borrowed, immutable. */
typedef struct nb_weight {
    const void *data;   /* NULL: absent                                         */
    const float *scale; /* FP8B: [ceil(n_row/128)][ceil(n_col/128)], INT8: [n_row]; multiplies */
    size_t n_row, n_col;
    nb_wtype type;
    bool row_scales;    /* FP8B: scale is [n_row] */
    nb_wgroups group;   /* INT4, BYTE, FP4 */
} nb_weight;

enum { NB_FP8_BLOCK = 128 };

#endif
