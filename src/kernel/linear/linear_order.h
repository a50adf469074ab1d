/* linear_order.h - the fixed orders of summation of linear and linear_t, and
 * access to weights as float; private to the variants of linear and embed.
 *
 * linear sums in 8 lanes: column c goes to lane c % 8.  The columns are cut into
 * chunks; within a chunk a lane is one chain, the chunks of a lane are summed in
 * order, and at the end the lanes are joined as
 *   ((l0 + l1) + (l2 + l3)) + ((l4 + l5) + (l6 + l7)).
 * Missing columns of the last group of 8 count as 0.  A chunk of k groups and m
 * chunks make a term pass at most k + m + 3 additions (+ 1 for a rounded product
 * without FMA, + 1 for the bias).  With k = ceil(sqrt(n/2)) groups of 8 columns,
 * m <= n/(8k) + 1 <= 0.177 sqrt(n) + 1, so the sum of both is at most
 * 0.884 sqrt(n) + 2 and the bound (8 + sqrt(n)) 2^-24 S holds for every input,
 * not only on average.  FP8B: a chunk is the 128 columns of a scale block, joined
 * as total = fma(scale, chunk, total): 16 + n/128 + 6.  Packed types: a chunk is 256 columns of
 * values that are rounded to float once: 32 + n/256 + 5.
 *
 * linear_t sums each column over the rows in order, in chunks of k = ceil(sqrt(n))
 * rows: k + m + 1 <= 2 sqrt(n) + 3 roundings; FP8B scales x first (one more). */
#ifndef NB_KERNEL_LINEAR_ORDER_H
#define NB_KERNEL_LINEAR_ORDER_H
#include "kernel/kernel.h"
#include "kernel/linear/packed.h"
#include "num/bf16.h"
#include "num/e4m3.h"
#include "num/fp16.h"

/* Columns and rows; the bounds hold up to sums of 700,000 and 65,536 terms. */
enum { NB_LINEAR_CHUNK_MAX = 1024, NB_LINEAR_T_CHUNK_MAX = 256 };

/* Columns per chunk of linear: a multiple of 8, at most NB_LINEAR_CHUNK_MAX. */
static inline size_t nb_linear_chunk(nb_wtype type, size_t n_col)
{
    if (type == NB_W_FP8B) return NB_FP8_BLOCK;
    if (nb_wtype_is_packed(type)) return NB_PACKED_CHUNK;
    size_t k = 1;
    while (k < NB_LINEAR_CHUNK_MAX / 8 && 2 * k * k < n_col) k++;
    return 8 * k;
}

/* Rows per chunk of linear_t. */
static inline size_t nb_linear_t_chunk(size_t n_in)
{
    size_t k = 1;
    while (k < NB_LINEAR_T_CHUNK_MAX && k * k < n_in) k++;
    return k;
}

/* Scale of element (r, c); 1 for types without scales. */
static inline float nb_weight_scale(const nb_weight *w, size_t r, size_t c)
{
    if (w->type == NB_W_INT8) return w->scale[r];
    if (w->type != NB_W_FP8B) return 1.0f;
    if (w->row_scales) return w->scale[r];
    const size_t n_block = (w->n_col + NB_FP8_BLOCK - 1) / NB_FP8_BLOCK;
    return w->scale[r / NB_FP8_BLOCK * n_block + c / NB_FP8_BLOCK];
}

/* Elements [c, c + n) of row r as float, before scaling, into out; packed types: their values. */
static inline void nb_weight_codes(const nb_weight *w, size_t r, size_t c, size_t n, float *out)
{
    const size_t at = r * w->n_col + c;
    switch (w->type) {
    case NB_W_BF16: {
        const uint16_t *p = (const uint16_t *)w->data + at;
        for (size_t i = 0; i < n; i++) out[i] = nb_bf16_to_f32(p[i]);
        break;
    }
    case NB_W_F16: {
        const uint16_t *p = (const uint16_t *)w->data + at;
        for (size_t i = 0; i < n; i++) out[i] = nb_fp16_to_f32(p[i]);
        break;
    }
    case NB_W_FP8B: {
        const uint8_t *p = (const uint8_t *)w->data + at;
        for (size_t i = 0; i < n; i++) out[i] = nb_e4m3_to_f32(p[i]);
        break;
    }
    case NB_W_INT8: {
        const int8_t *p = (const int8_t *)w->data + at;
        for (size_t i = 0; i < n; i++) out[i] = (float)p[i];
        break;
    }
    case NB_W_F32: {
        const float *p = (const float *)w->data + at;
        for (size_t i = 0; i < n; i++) out[i] = p[i];
        break;
    }
    default: nb_packed_values(w, r, c, n, out); break;
    }
}

#endif
