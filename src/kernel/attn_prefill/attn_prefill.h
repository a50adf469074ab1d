/* attn_prefill.h - expanded attention: up to 64 queries of one head against tiles of 64 tokens.
 *
 * As attn.h in its expanded form (k1 per head, k2 shared, v per head), but keys, values and
 * queries are packed once and used many times: a key tile by every query page of a chunk, a query
 * page by every tile of a split.  What is packed is the variant's own form.
 *
 *   s(i,t) = scale * q[i] . (k1[t] | k2[t]),    state (m, l, o) of i over t < n_vis(i) as in attn.h
 *
 * n_tile tiles are visible to all queries (all 64 tokens of them), but in the last one query i sees
 * the first min(last_tok, vis0 + i * vis_step) tokens.  Rows do not mix: a query's result depends on
 * itself, its tiles and its n_vis only, whatever n_q is; tokens that it does not see may be NaN. */
#ifndef NB_KERNEL_ATTN_PREFILL_H
#define NB_KERNEL_ATTN_PREFILL_H
#include "kernel/kernel.h"

enum { NB_PREFILL_TILE = 64, NB_PREFILL_TILES_MAX = 4 };

typedef struct nb_attn_prefill_dims {
    size_t d1, d2, d_v; /* key of the head, shared rope key, value */
} nb_attn_prefill_dims;

/* One tile of keys and values of one head, to be packed; tokens from n_tok on are packed as zeros. */
typedef struct nb_attn_prefill_tile {
    const float *k1, *k2, *v;                     /* [n_tok][stride]; k2 unused when d2 == 0 */
    size_t k1_stride, k2_stride, v_stride, n_tok; /* n_tok 1..NB_PREFILL_TILE */
} nb_attn_prefill_tile;

typedef struct nb_attn_prefill_args {
    nb_attn_prefill_dims d;
    float *o, *m, *l; /* rows of n_q queries: o [n_q][o_stride], m, l [n_q][ml_stride] */
    size_t o_stride, ml_stride;
    const void *q;           /* packed: n_q queries                                            */
    const void *const *tile; /* [n_tile] packed tiles, 1..NB_PREFILL_TILES_MAX                 */
    size_t n_q, n_tile;      /* n_q 1..NB_PREFILL_TILE                                         */
    size_t last_tok, vis0, vis_step;
    float scale;   /* > 0                                                              */
    void *scratch; /* variant->scratch(d) bytes, aligned to 64                       */
} nb_attn_prefill_args;

/* After attn_finish, with A and |v| as in attn.h, n_tile tiles in all and u = 2^-24:
 *   |y - y64| <= (u * (96 + 14 n_tile + ((d1 + d2)/4 + 46) A)
 *                 + expm1(4 eps A (1 + eps)) + 3 eps) * max|v| + 2^-126 * (n_tok + 1)
 * As attn.h, but a score may be off by ((d1 + d2)/8 + 16) A u: partial sums of 16 products and
 * their chain, (16 + (d1 + d2)/16), or lanes; and its distance to the maximum, at most 2 A, is
 * rounded once more, when it becomes a power of 2.
 * eps is the row's relative rounding of packed values (2^-8 for BF16; 0: floats).  Of queries and
 * keys it makes each score off by 2 eps A, which counts twice; of weights it enters numerator and
 * denominator, of values once.  Rows with eps may take denormal numbers for zeros. */
typedef void nb_attn_prefill_fn(const nb_attn_prefill_args *a);
typedef void nb_attn_prefill_pack_q(const nb_attn_prefill_dims *d, void *dst, const float *q,
                                    size_t q_stride, size_t n_q);
typedef void nb_attn_prefill_pack_kv(const nb_attn_prefill_dims *d, void *dst,
                                     const nb_attn_prefill_tile *t);
typedef size_t nb_attn_prefill_bytes(const nb_attn_prefill_dims *d);

/* The contract in double over any number of unpacked tiles: a->n_tile of them, queries q
 * [n_q][q_stride]; a's state, packed data and scratch are not touched.  Writes the normalised
 * output [n_q][d_v], and the bound's A and max|v| of each query. */
void nb_attn_prefill_ref(const nb_attn_prefill_args *a, const float *q, size_t q_stride,
                         const nb_attn_prefill_tile *tile, double *y64, double *score_abs,
                         double *v_max);

typedef struct nb_attn_prefill_variant {
    const char *name;
    nb_space space;
    nb_caps need;
    nb_attn_prefill_fn *fn;
    nb_attn_prefill_pack_q *pack_q;
    nb_attn_prefill_pack_kv *pack_kv;
    /* Bytes of NB_PREFILL_TILE packed queries, of one packed tile, of a call's scratch: multiples
     * of 64; packed data are aligned to 64. */
    nb_attn_prefill_bytes *q_bytes, *kv_bytes, *scratch;
    float eps;
} nb_attn_prefill_variant;
extern const nb_attn_prefill_variant nb_attn_prefill_variants[];

#define NB_ATTN_PREFILL_DECLARE(level)                                                             \
    nb_attn_prefill_fn nb_attn_prefill_##level;                                                    \
    nb_attn_prefill_pack_q nb_attn_prefill_pack_q_##level;                                         \
    nb_attn_prefill_pack_kv nb_attn_prefill_pack_kv_##level;                                       \
    nb_attn_prefill_bytes nb_attn_prefill_q_bytes_##level, nb_attn_prefill_kv_bytes_##level,       \
        nb_attn_prefill_scratch_##level;
NB_ATTN_PREFILL_DECLARE(c)
NB_ATTN_PREFILL_DECLARE(avx2)
NB_ATTN_PREFILL_DECLARE(avx512)
NB_ATTN_PREFILL_DECLARE(avx512bf16)
NB_ATTN_PREFILL_DECLARE(amx)
#undef NB_ATTN_PREFILL_DECLARE
#endif
