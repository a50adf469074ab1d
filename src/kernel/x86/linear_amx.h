/* linear_amx.h - linear on the tile unit: what the types of weights share.
 *
 * Weights are the left operand: 16 rows of 64 bytes, where they lie in the matrix or from a panel.
 * Tokens are the columns of the right one, packed once for all rows of W: two operands of 16 bits
 * (BF16 parts hi + lo) or 8 bits (digits 128 hi + lo) for each value, so that no accuracy is lost
 * to the unit's narrow types.  Packed rows, by blocks of 16 tokens (the last may have fewer, nt):
 *
 *   [step][hi, lo][16][nt] words of 4 bytes      a step: 64 bytes of a row of W
 *
 * word k of a token holds its columns 2k, 2k+1 (BF16) or 4k..4k+3 (bytes) of the step; columns
 * after the last are 0.
 *
 * The order of a sum: one accumulator takes the steps in order, BF16: hi before lo of each step.
 * Accumulators may rest in memory between steps (stores and loads of tiles are exact), so the cut
 * into panels, units and calls changes no bit.  FP8B: the accumulator of each block of 128
 * columns starts at 0 and is added as total = fma(scale, sum, total).
 *
 * Accuracy, BF16 and FP8B.  |x - hi - lo| <= 2^-17 |x| (each part rounds to 8 bits; a saturated hi
 * costs one more).  A product of BF16s is exact; the unit adds the 32 of a step in single
 * precision (at most 32 roundings), then to the accumulator, twice per step: a term passes at
 * most 33 + 2 ceil(n/32) roundings and one for the bias; lo's terms are under 2^-8 of the others.
 * 128 + (36 + n/16) (1 + 2^-6) <= 170 + n/15.  FP8B: 128 + 33 + 8 + n/128 + 3 <= 176 + n/128.
 * The unit takes subnormal operands as 0 and flushes subnormal results: a value of x or W under
 * 2^-126 is lost, and lo for |x| < 2^-118, each at most 2^-126 times the other factor. */
#ifndef NB_KERNEL_LINEAR_AMX_H
#define NB_KERNEL_LINEAR_AMX_H
#include "kernel/linear/linear.h"
#include "kernel/x86/amx_tile.h"

enum {
    NB_AMX_ROWS = 32,        /* rows of W in a part: two tiles                            */
    NB_AMX_TILE = 1024,      /* bytes of a tile                                           */
    NB_AMX_PANEL_STEPS = 16, /* steps of a panel: 32 KiB with 32 rows, stays in L1        */
    NB_AMX_TOK = NB_LINEAR_PACK_TOK
};

/* A piece of work for the tiles: rows [r, r + n_row), steps [step, step + n_step), a unit of tokens. */
typedef struct nb_amx_part {
    const nb_linear_args *a;
    size_t r, n_row;  /* up to NB_AMX_ROWS                                            */
    size_t tile_rows; /* rows to load of the two tiles together; a panel has 0 to fill */
    size_t step, n_step;
    const uint8_t *w; /* first tile of the left operand, then in bytes:               */
    size_t w_row, w_tile, w_step;
    bool ahead;          /* w is the matrix: prefetch                                  */
    const uint8_t *x[2]; /* blocks of 16 tokens of the unit; x[1] may be NULL          */
    size_t tok, n_tok[2];
    uint8_t *acc; /* four tiles; zero: they start at 0                                 */
    bool zero;
} nb_amx_part;

/* How a type of weights is done. */
typedef struct nb_amx_type {
    size_t step_col;    /* columns of a step                     */
    size_t unit_blocks; /* blocks of 16 tokens in a unit: 1 or 2 */
    /* Rows and steps of p as tiles [step][row tile][16][64], zeros beyond the matrix. */
    void (*panel)(const nb_amx_part *p, uint8_t *panel);
    void (*multiply)(const nb_amx_part *p);
    void (*finish)(const nb_amx_part *p); /* writes y of the unit */
    /* All steps of a unit that is the only one, w being the matrix; NULL: multiply can do that. */
    void (*alone)(const nb_amx_part *p);
} nb_amx_type;

/* All of a; ends with the tiles released. */
void nb_linear_amx(const nb_linear_args *a, const nb_amx_type *type);

/* Bytes of n_tok packed tokens, without what follows them. */
static inline size_t nb_amx_packed_bytes(size_t n_tok, size_t n_col, size_t step_col)
{
    return n_tok * ((n_col + step_col - 1) / step_col) * 128;
}

/* Panels of weights that need no conversion. */
void nb_amx_copy_panel(const nb_amx_part *p, uint8_t *panel);

/* y from sums of floats in acc: tile 2i + j has rows 16i.. and tokens 16j.. of the unit. */
void nb_amx_finish_f32(const nb_amx_part *p);

/* The pack of BF16 and FP8B. */
nb_linear_pack_bytes nb_linear_split_pack_bytes_amx;
nb_linear_pack nb_linear_split_pack_amx;

/* Line s of n_line of the rows of p is used now: asks for lines 8 and more later, 8 of 4 rows at a
 * time, so that 32 rows come once in 8 lines and each in a run; behind the last line for the first ones of the 32 rows
 * after them.  Into L2: rows a multiple of 4 KiB apart share a set of L1. */
static inline void nb_amx_prefetch(const nb_amx_part *p, size_t s, size_t n_line)
{
    size_t at = (s / 8 + 1) * 8;
    const uint8_t *w = p->w;
    if (at >= n_line) {
        at = (at - n_line) / 8 * 8;
        w += NB_AMX_ROWS * p->w_row;
    }
    for (size_t i = s % 8 * 4; i < s % 8 * 4 + 4 && i < p->n_row; i++)
        for (size_t k = 0; k < 8; k++) _mm_prefetch((const char *)w + i * p->w_row + (at + k) * 64, _MM_HINT_T1);
}

#endif
