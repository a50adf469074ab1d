/* attn_paper.h - the arithmetic of the ThriftAttention paper's FP4 baseline, emulated to the
 * rounding, so that what it recovers can be compared like with like.
 *
 * Not what nibble computes.  Single-level NVFP4: a scale of E4M3(amax / 6) per 16 values, no outer
 * scale, nothing subtracted or rotated; codes are x times the reciprocal of the *rounded* scale.
 *   storage   K and V in groups of 16 along their width; everything else exact
 *   qv        Q too, V in groups of 16 along tokens (an FP4 product contracts over them)
 *   decode    and P: per 16 tokens, relative to the running maximum, times 2688; codes are divided
 *             by the unrounded amax / 6, the scale is rounded afterwards
 *   prefill   and P with a constant scale: E2M1 of 6 p, so that 1/12 is the smallest step
 *   prefill-max  the same, relative to the row's final maximum: what the running one comes to when
 *             the greatest score stands in the first tile
 * In decode and prefill the row sum is of unquantised p, tiles of 64 tokens update a running
 * maximum, and sums are float.  Refined blocks: FP16 queries, keys and values, and P unquantised.
 * Decode: inside a tile sequence the FP4 blocks first, then the refined ones, one softmax state.
 * Prefill: the normalised output of the FP4 part is rounded to FP16 before the refined part
 * continues it.  A group of V that is not complete is quantised as it is.
 * Sources: arXiv 2605.23081; csrc/cuda/sm120 of its repository at e250b0b: nvfp4/quantization.cu,
 * fp4_attention.cu, thrift_attention.cu, single_query_fp4_attention.cu. */
#ifndef NB_QUALITY_ATTN_PAPER_H
#define NB_QUALITY_ATTN_PAPER_H
#include "base/arena.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum nb_paper_mode {
    NB_PAPER_STORAGE,
    NB_PAPER_QV,
    NB_PAPER_DECODE,
    NB_PAPER_PREFILL,
    NB_PAPER_PREFILL_MAX,
    NB_PAPER_MODES
} nb_paper_mode;
extern const char *const nb_paper_name[NB_PAPER_MODES];

/* One head's cache, quantised once and read by many queries. */
typedef struct nb_paper_head {
    size_t n, d_k, d_v;            /* tokens; widths of keys and values */
    float scale;                   /* of the scores */
    const float *k, *v;            /* as given: [n][d_k], [n][d_v] */
    float *k4, *v4_width, *v4_tok; /* decoded FP4 */
    float *k16, *v16;              /* FP16 */
} nb_paper_head;
/* k and v are borrowed. */
nb_status nb_paper_head_make(const float *k, const float *v, size_t n, size_t d_k, size_t d_v,
                             float scale, nb_arena *arena, nb_paper_head *out, nb_error *err);

/* Exact attention in double: o[d_v] and, where not NULL, the probabilities p[n]. */
void nb_paper_exact(const nb_paper_head *h, const float *q, double *scratch /* [n] */, double *o,
                    double *p);
/* The emulation.  refined: [ceil(n / 64)] or NULL.  o[d_v]; p (or NULL): softmax of the scores
 * that the mode computes, before P is quantised.  scratch: [n + d_k]. */
void nb_paper_attend(const nb_paper_head *h, const float *q, nb_paper_mode mode,
                     const uint8_t *refined, double *scratch, double *o, double *p);

/* The paper's selection for a KV head: of the complete blocks, by the greatest q . mean of keys over
 * its n_q queries [n_q][d_k] (means in FP16, no softmax scale; ties to the lower index), as many as
 * nb_thrift_top_k says.  refined: [ceil(n / 64)] 0 or 1; the number of blocks. NB_ERR_NOMEM. */
nb_status nb_paper_select(const nb_paper_head *h, const float *q, size_t n_q, double fraction,
                          bool causal, nb_arena *arena, uint8_t *refined, size_t *n_refined);

/* The pieces. 16 values (or fewer) at a stride, decoded. */
void nb_paper_group(const float *x, size_t n, size_t stride, float *out);
float nb_paper_static_p(float p); /* 0..1 */
void nb_paper_two_level_p(const float *p, size_t n, float *out);

#endif
