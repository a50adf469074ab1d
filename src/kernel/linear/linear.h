/* linear.h - products of float activations with stored weights.
 *
 *   linear:   y[t][r - row_begin] = bias[r] + sum_c x[t][c] * W[r][c]      r in [row_begin, row_end)
 *   linear_t: y[t][c - col_begin] = sum_r x[t][r - row0] * W[r][c]         r in [row0, row0 + n_in),
 *                                                                         c in [col_begin, col_end)
 *
 * W is BF16, FP16, FP32, FP8 with block scales, INT8 with a scale per row (kernel.h) or a packed type
 * (packed.h); rows and columns
 * are indices into the whole matrix, so block scales need no alignment of the
 * ranges.  linear_t is the transposed product that absorbs W_UK into a query
 * without a second copy of the weights.
 *
 * Both promise that one output depends only on its own row of x and of W, with
 * one order of summation whatever n_tok and the ranges are: results do not
 * change with batch, chunk or thread count. */
#ifndef NB_KERNEL_LINEAR_H
#define NB_KERNEL_LINEAR_H
#include "kernel/kernel.h"

typedef struct nb_linear_args {
    float *y;       /* [n_tok][y_stride]; must not overlap x or W              */
    const float *x; /* [n_tok][x_stride]; linear reads n_col values of each row */
    nb_weight w;
    const float *bias;         /* [n_row] or NULL (linear only)                           */
    size_t n_tok;              /* may be 0                                                */
    size_t row_begin, row_end; /* linear: output rows; linear_t: the input rows           */
    size_t col_begin, col_end; /* linear_t only: output columns                           */
    size_t x_stride, y_stride; /* elements                                                */
    const void *xp;            /* linear: what the variant's pack made of these n_tok rows of x;
                                  then x itself is not read.  NULL where pack is NULL     */
} nb_linear_args;

/* A variant may read x in a form of its own, made once for all rows of W.  pack writes tokens
 * [tok0, tok1) of n_tok rows of x: tok0 is a multiple of NB_LINEAR_PACK_TOK and tok1 too or n_tok,
 * so that ranges can be packed side by side.  Value i of a
 * packed row is x[column[i]] (nb_wgroups; only variants of packed types look at it), or x[i] where it is NULL.  xp is aligned to 64 and has pack_bytes(n_tok, n_col)
 * bytes (a multiple of 64, not growing less than linearly in n_tok for each 16). */
enum { NB_LINEAR_PACK_TOK = 16 };
typedef size_t nb_linear_pack_bytes(size_t n_tok, size_t n_col);
typedef void nb_linear_pack(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,
                            const uint32_t *column, size_t tok0, size_t tok1);

/* With S = |bias| + sum of |terms| and n = length of the sum:
 *   linear    |y - y64| <= (8 + sqrt(n)) * 2^-24 * S,  FP8B (24 + n/128) * 2^-24 * S
 *   linear of BF16 and FP8B with a pack (x in two BF16 parts, linear_amx.h):
 *             |y - y64| <= (170 + n/15) * 2^-24 * S,  FP8B (176 + n/128) * 2^-24 * S,
 *             + 2^-126 * sum (|x| + |W| + 4 + 4 scale) for what underflows
 *   linear of packed types: |y - y64| <= (40 + n/128) * 2^-24 * S, where W[r][c] is the value rounded to float;
 *             of their rows with NB_ACT_INT16: linear_units.h, the same bits from every variant
 *   linear_t  |y - y64| <= (4 + 2 sqrt(n)) * 2^-24 * S,  packed types (6 + 2 sqrt(n)) * 2^-24 * S
 *   linear, INT8: |y - y64| <= lost * sum |W| + 8 * 2^-24 * S, the same bits from every variant:
 *   linear_int8.h has the rule; with m = max |x| of the token lost is m / 32512 * (1 + 2^-10), but
 *   m itself under 2^-100
 *   linear of rows with NB_ACT_INT8 (linear_act8.h): with a(c) = max |x| of c's group of 32 columns and
 *             lost(c) = a(c) / 254 * (1 + 2^-10), but a(c) itself where it is under 2^-100,
 *             |y - y64| <= sum_c lost(c) |W[r][c]| + (n/32 + 12) * 2^-24 * S.  Integer sums of a group are
 *             exact; a group is one fused multiply-add, and scale and bias round once each; packed types
 *             round a group's scale and a minimum's share, too
 *   linear of BF16 with NB_ACT_BF16: (2^-8 (1 + 2^-8) + (170 + n/15) * 2^-24) * S + 2^-126 * sum (|x| + |W| + 8): x is
 *             rounded once (2^-8), sums are chains in chunks of 1,024 columns, and denormal numbers may
 *             count as zeros
 * for every input whose products and sums stay clear of overflow and underflow
 * (plus n * 2^-126 for the latter); linear_order.h has the derivation.  FP8B:
 * W[r][c] is the exact product e4m3 * scale, the scale is applied to the sum of a
 * block (linear) or to x (linear_t; so INT8's, too).  Non-finite inputs propagate;
 * linear of INT8 and of rows with NB_ACT_INT16 and NB_ACT_INT8 makes the whole token NaN. */
typedef void nb_linear_fn(const nb_linear_args *a);
nb_linear_fn nb_linear_f32_c, nb_linear_bf16_c, nb_linear_f16_c, nb_linear_fp8b_c;
nb_linear_fn nb_linear_f32_avx2, nb_linear_bf16_avx2, nb_linear_f16_avx2, nb_linear_fp8b_avx2;
nb_linear_fn nb_linear_int8_c, nb_linear_int8_avx2, nb_linear_int8_avx512, nb_linear_int8_amx;
nb_linear_fn nb_linear_t_int8_c, nb_linear_t_int8_avx2, nb_linear_t_int8_avx512;
nb_linear_fn nb_linear_packed_c, nb_linear_packed_avx2, nb_linear_packed_avx512;
nb_linear_fn nb_linear_t_packed_c;
nb_linear_pack_bytes nb_linear_int8_pack_bytes;
nb_linear_pack nb_linear_int8_pack_c, nb_linear_int8_pack_avx2, nb_linear_int8_pack_avx512;
nb_linear_fn nb_linear_t_f32_c, nb_linear_t_bf16_c, nb_linear_t_f16_c, nb_linear_t_fp8b_c;
nb_linear_fn nb_linear_t_f32_avx2, nb_linear_t_bf16_avx2, nb_linear_t_f16_avx2,
    nb_linear_t_fp8b_avx2;
nb_linear_fn nb_linear_f32_avx512, nb_linear_bf16_avx512, nb_linear_f16_avx512,
    nb_linear_fp8b_avx512;
nb_linear_fn nb_linear_t_f32_avx512, nb_linear_t_bf16_avx512, nb_linear_t_f16_avx512,
    nb_linear_t_fp8b_avx512;
nb_linear_fn nb_linear_bf16_amx, nb_linear_fp8b_amx;
nb_linear_pack_bytes nb_linear_split_pack_bytes_amx, nb_linear_int8_pack_bytes_amx;
nb_linear_pack nb_linear_split_pack_amx, nb_linear_int8_pack_amx, nb_linear_int8_pack_neon;

nb_linear_fn nb_linear_bf16_act16_c, nb_linear_bf16_act16_avx512bf16, nb_linear_fp8b_avx512bf16;
nb_linear_pack_bytes nb_linear_act16_pack_bytes, nb_linear_act16_pack_bytes_c;
nb_linear_pack nb_linear_act16_pack_c, nb_linear_act16_pack_avx512bf16;
nb_linear_fn nb_linear_bf16_neon, nb_linear_fp8b_neon, nb_linear_int8_neon;
nb_linear_fn nb_linear_t_bf16_neon, nb_linear_t_fp8b_neon, nb_linear_t_int8_neon;

/* y64, s64: [n_tok][row_end-row_begin] (linear) or [n_tok][col_end-col_begin]
 * (linear_t): the exact-ish result and the sum of absolute terms. */
void nb_linear_ref(const nb_linear_args *a, double *y64, double *s64);
void nb_linear_t_ref(const nb_linear_args *a, double *y64, double *s64);

typedef struct nb_linear_variant {
    const char *name;
    nb_space space;
    nb_caps need;
    nb_wtype type;
    nb_linear_fn *fn, *fn_t;          /* linear and linear_t of this type */
    nb_linear_pack_bytes *pack_bytes; /* NULL with pack: fn reads x */
    nb_linear_pack *pack;
    nb_act act; /* of fn; fn_t takes floats */
} nb_linear_variant;
extern const nb_linear_variant nb_linear_variants[]; /* per type and form of activations best first */

/* The best row of a level: of this form of activations if the type has one that is worth it, else of the next that
 * keeps more of them: 16 bits for packed types, then floats. */
const nb_linear_variant *nb_linear_find(nb_wtype type, nb_act act, nb_caps caps);
#endif
