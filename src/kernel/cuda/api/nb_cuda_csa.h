/* nb_cuda_csa.h - operations of compressed attention (model/attn_csa.h) and of several residual streams: vectors turned
 * by their position, rows made of several tokens, attention over these rows and a window of tokens, the window's rows,
 * and streams that are mixed.
 *
 * A chunk's state in a layer begins at its tail + state_off (nb_csa_state).  Compressed rows of the pages that a chunk
 * touches are in own, or in the tail, as rows of other attention are, but a page has record.n_row of them.
 * A query at position p sees rows [0, (p + 1) / ratio), and the tokens (p - window, p].  Rows that end inside its own
 * page are read as they were made, earlier ones decoded. */
#ifndef NB_KERNEL_CUDA_API_NB_CUDA_CSA_H
#define NB_KERNEL_CUDA_API_NB_CUDA_CSA_H
#include "kernel/cuda/api/nb_cuda_sparse.h"

/* Vectors of dim values: y = x / sqrt(mean(x^2) + eps) * w, its last d_rope values rotated by cos_sin[t]; round: then
 * rounded to BF16.  In place, or with y.f or y.hi to the rows y.  Bound: rmsnorm.h, and 2^-22 of a pair's size.
 * bad (may be NULL): bad[row_chunk[t]] becomes 1 where a value is not finite. */
typedef struct nb_cuda_csa_turn_args {
    float *x;       /* [n_tok][x_stride]: n_vec vectors each */
    const float *w; /* [dim]; NULL: ones */
    const float *cos_sin; /* [n_tok][d_rope] */
    const uint32_t *row_chunk;
    uint32_t *bad;
    size_t n_tok, n_vec, dim, d_rope, x_stride;
    float eps;
    bool interleaved, round;
} nb_cuda_csa_turn_args;

/* One compressor of a layer: what it reads of the step's tokens, and where its rows and its state are. */
typedef struct nb_cuda_csa_pool {
    const float *kv, *gate;  /* [rows][stride]: width values of a token */
    const float *ape, *norm; /* [ratio][width], [dim] */
    size_t dim, width;       /* width: 2 dim where windows overlap, else dim */
    size_t first;            /* of its values in a row */
    size_t state_off;
} nb_cuda_csa_pool;

/* Makes the rows that end in the step (attn_csa.c), rounds them to BF16 (f32 records: not), encodes complete pages into
 * their blocks, takes rows of the open page from the tail and leaves them there, and leaves the compressors' states.
 * A page that no row ends in becomes zeros.  bad: as in nb_cuda_kv_append_args; while it is 1 no page is written.
 * Error of a row against the formulas in double: 2^-15 of its largest value, unless rounded. */
typedef struct nb_cuda_csa_append_args {
    nb_cuda_cache cache;
    nb_cuda_csa_pool pool[2]; /* the second: keys of an indexer; dim 0: none */
    const float *inv_freq;    /* [d_rope / 2] */
    float rope_factor;
    uint32_t *bad; /* [n_chunk] */
    uint64_t *n_saturated;
    size_t ratio, d_rope, stride, max_chunk_tok;
    float eps;
    bool interleaved;
} nb_cuda_csa_append_args;

/* A query's rows are cut at fixed places into units, whose states are combined in order: first the window's tokens in
 * units of FIRST, then compressed rows (of a choice, in its order) in units of FIRST rows up to LONG_FROM, then of LONG. */
enum { NB_CUDA_CSA_FIRST = 64, NB_CUDA_CSA_LONG = 256, NB_CUDA_CSA_LONG_FROM = 512 };
static inline size_t nb_cuda_csa_n_unit(size_t n_row) /* units of compressed rows */
{
    const size_t over = n_row > NB_CUDA_CSA_LONG_FROM ? n_row - NB_CUDA_CSA_LONG_FROM : 0;
    return (n_row - over + NB_CUDA_CSA_FIRST - 1) / NB_CUDA_CSA_FIRST + (over + NB_CUDA_CSA_LONG - 1) / NB_CUDA_CSA_LONG;
}

/* y[i] = the heads' outputs of rows [row0, row0 + n_row): softmax over compressed rows (the chosen ones, or all), the
 * window's tokens, and the head's sink, which has no value; the output's last d_rope values rotated back.
 * kv: the step's rows of the window, as csa_turn left them; older tokens of the window are in the state.
 * Error, norm over a head's values against double: the row's of the table. */
typedef struct nb_cuda_csa_attend_args {
    nb_cuda_cache cache;   /* ratio 0: of a window alone, without pages */
    const float *q;        /* row row0's: [n_row][q_stride], heads of dim */
    const float *kv;       /* [rows of the step][kv_stride] */
    const float *sink;     /* [n_head] */
    const uint32_t *at;    /* [n_row][k]: the choice; NULL: all rows */
    const uint32_t *row_chunk; /* of the step */
    const float *cos_sin;  /* row row0's */
    float *part_o, *part_m, *part_l; /* [n_row][n_unit][n_head][dim], [n_row][n_unit][n_head] x2: scratch */
    nb_cuda_rows y;        /* row row0's: [n_row][n_head * dim] */
    size_t row0, n_row, n_head, dim, d_rope, q_stride, kv_stride, k, ratio, window, state_off;
    size_t n_win_unit, n_unit; /* units of a whole window; with the most units of compressed rows */
    float scale;
    bool interleaved;
} nb_cuda_csa_attend_args;

typedef struct nb_cuda_csa_row {
    const char *name;
    int cc;
    float error;
    bool (*can)(const nb_record *r, size_t ratio, size_t dim, size_t n_head);
    void (*fn)(nb_cuda *g, const nb_cuda_csa_attend_args *a);
} nb_cuda_csa_row;

/* After all rows of a step have attended: its last `window` tokens' rows go to the state. */
typedef struct nb_cuda_csa_keep_args {
    const nb_cuda_chunk *chunk;
    const float *kv;
    size_t n_chunk, kv_stride, dim, window, state_off, max_chunk_tok;
} nb_cuda_csa_keep_args;

/* Residual streams X [n_stream][dim] of a token, in place in x.  In this order:
 *   first: streams 1.. become copies of stream 0;  branch: X_j = post_j branch + sum_i C[i][j] X_i, post and C from weight
 *   fn (NULL: nothing more happens): with u = X / sqrt(mean(X^2) + eps) and m = fn u,
 *     pre_i = sigmoid(m_i scale_0 + base_i) + stream_eps
 *     y = y_factor * norm(sum_i pre_i X_i) * w, norm as in rmsnorm.h with eps
 *   and unless last, for the branch that comes next, to weight:
 *     post_i = 2 sigmoid(m_{s+i} scale_1 + base_{s+i})
 *     C = softmax over rows of m_{2s..} scale_2 + base, + stream_eps, columns divided by their sums + stream_eps, then
 *     n_sinkhorn - 1 times rows and columns
 * row (may be NULL): token t's streams are those of row[t], each once; then there is no branch.
 * Shapes: 1 <= n_stream <= NB_CUDA_MAX_STREAM, n_sinkhorn >= 1, x_stride >= n_stream * dim; no two buffers overlap.
 * Owned by the caller, all of it.  Written: x (with first or branch), y and, unless last, weight (with fn), part (scratch,
 * [n_tok][NB_CUDA_MIX_SLICES(dim)][NB_CUDA_MIX_SUMS(n_stream)]).
 * Errors: none of its own.  A value that is not finite stays in its token.  Bits of a token depend on its streams alone.
 * Accuracy: 2^-16 of the largest value of a row of X, y or weight, against double, while row sums of |fn u| are of the size
 * of 1: sums are in float, and scaled in double.
 * Source: DeepSeek-V4's inference code (hc_pre, hc_split_sinkhorn, hc_post, hc_head), as in model/cpu/cpu_streams.c. */
typedef struct nb_cuda_streams_args {
    float *x;                     /* [rows][x_stride]: n_stream of dim values */
    const float *branch;          /* [n_tok][dim]; NULL: none */
    const float *fn, *base, *scale; /* [(2 + n_stream) n_stream][n_stream dim], [...], [3]; last: [n_stream]..., [1] */
    const float *w;               /* [dim] */
    const uint32_t *row;          /* [n_tok] */
    float *weight;                /* [n_tok][n_stream + n_stream^2]: post, then C by rows */
    float *part;
    nb_cuda_rows y;               /* [n_tok][dim] */
    size_t n_tok, n_stream, dim, x_stride, n_sinkhorn;
    float eps, stream_eps, y_factor;
    bool first, last;
} nb_cuda_streams_args;
enum { NB_CUDA_MIX_SLICE = 128, NB_CUDA_MAX_STREAM = 16 };
#define NB_CUDA_MIX_SLICES(dim) (((size_t)(dim) + NB_CUDA_MIX_SLICE - 1) / NB_CUDA_MIX_SLICE)
#define NB_CUDA_MIX_SUMS(n_stream) ((2 + (size_t)(n_stream)) * (n_stream) + 1)

#endif
