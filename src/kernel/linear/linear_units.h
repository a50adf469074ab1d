/* linear_units.h - products with packed weights in units: integers within a unit, one float per unit.
 *
 * Columns are cut into units of 32, in the order of the stored codes.  A unit of a weight row is
 *
 *   W[r][c] = (code[c] - zero) * scale + min        code 0..255, zero 0..255
 *
 * with one zero, scale and min for each span of 8, 16 or 32 of its columns (nb_packed_unit); a matrix has one
 * width of span, and a type has zeros or minima, not both.  A unit of a token becomes 16-bit
 * integers with one scale:
 *
 *   a = max |x[c]|;  q[c] = round_to_nearest_even(x[c] * (32512 / a));  sx = a / 32512
 *
 * (a < 2^-100: q and sx are 0; an x[c] not finite: q is 0 and sx is the NaN 0x7fc00000).  Products are
 *
 *   part(span) = sum q[c] code[c] - zero * sum q[c]                       exact in 32 bits
 *   total = fma((float)part * sx, scale, total)                           for each span in order
 *   total = fma((float)(sum q[c]) * sx, min, total)                       types with minima
 *
 * total starts from 0 at each segment of 16 units; y is the sum of the segments' totals in order, then the bias.  This
 * is the only order there is: one token and many, every variant, give the same bits.
 *
 * Digits: q is 256 hi + lo, hi in -127..127, lo in -128..127, two signed bytes, and a code is an unsigned one.  Rows of
 * the table with activations in 8 bits (NB_ACT_INT8) have 127 in place of 32512, and no second digit.
 *
 * Error, with M = sum |x| (|code - zero| scale, or code scale + |min|) + |bias| over the row: rounding x costs at
 * most sx/2 (1 + 2^-10) in each x of a unit.  The rest: converting the part, sx, its product, scale (outer), the
 * value that it is compared with: 6 roundings; in a segment at most 64 fma (16 units of two spans with a scale and a
 * min, or of four spans with a scale), n/512 + 1 additions, 1 for the bias:
 *
 *   |y - y64| <= sum over units of sx/2 (1 + 2^-10) sum |W| + (72 + n/512) 2^-24 M + what underflows */
#ifndef NB_KERNEL_LINEAR_UNITS_H
#define NB_KERNEL_LINEAR_UNITS_H
#include "kernel/linear/linear.h"
#include "kernel/linear/packed.h"

enum {
    NB_PK_UNIT = 32,                    /* columns */
    NB_PK_SEG = 16,                     /* units of a segment */
    NB_PK_SEG_COL = NB_PK_UNIT * NB_PK_SEG,
    NB_PK_RECORD = 96,                  /* bytes of a packed unit of x */
};
#define NB_PK_X_MAX 32512.0f /* 127 * 256 */
#define NB_PK_X_MAX8 127.0f
#define NB_PK_X_MIN 0x1p-100f

/* A unit of a token's activations.  q: two digits of 32 values [hi, lo], or 32 integers of 16 bits, in the order of
 * the variant.  Sums are of the unit, and of its halves. */
typedef struct nb_pk_x {
    int16_t q[NB_PK_UNIT];
    float sx;
    int16_t minus[3][2]; /* -sum q as lo + 128 hi: {lo, hi}; unit, first half, second half */
    float sum[3];        /* (float)(sum q) * sx                                            */
    int32_t unused;
} nb_pk_x;

static inline size_t nb_pk_units(size_t n_col)
{
    return (n_col + NB_PK_UNIT - 1) / NB_PK_UNIT;
}

/* A unit of a weight row: zero, scale and min of each 8 columns. */
typedef struct nb_packed_unit {
    uint8_t code[NB_PK_UNIT];
    uint8_t zero[4];
    float scale[4], min[4];
} nb_packed_unit;

/* Unit u of row r; what is behind the last column has any code, and the scale and min 0 where they are not
 * stored. */
void nb_packed_unit_of(const nb_weight *w, size_t r, size_t u, nb_packed_unit *out);

/* Columns of a span: 8, 16 or 32. */
size_t nb_packed_span(const nb_weight *w);
/* Has the type units?  False for plain types, IQ1, IQ2 and IQ3. */
static inline bool nb_packed_has_units(nb_wtype t)
{
    return t >= NB_W_INT4 && t <= NB_W_GGUF_NVFP4;
}
/* Has the type minima (and no zeros)? */
bool nb_packed_has_min(nb_wtype t);
/* Are columns 8k + {0, 2, 4, 6, 1, 3, 5, 7} neighbours?  True for words of eight nibbles (INT4, FP4). */
static inline bool nb_packed_is_words(nb_wtype t)
{
    return t == NB_W_INT4 || t == NB_W_FP4;
}

nb_linear_pack_bytes nb_linear_units_pack_bytes;
nb_linear_pack nb_linear_units_pack_c, nb_linear_units_pack8_c, nb_linear_units_pack8_neon;
nb_linear_pack nb_linear_units_pack_avx2, nb_linear_units_pack_words_avx2;
nb_linear_pack nb_linear_units_pack8_avx2, nb_linear_units_pack8_words_avx2;
nb_linear_pack nb_linear_units_pack_avx512, nb_linear_units_pack_words_avx512;
nb_linear_pack nb_linear_units_pack8_avx512, nb_linear_units_pack8_words_avx512;
nb_linear_fn nb_linear_t_units_avx2, nb_linear_t_units_avx512;
nb_linear_fn nb_linear_units_c, nb_linear_units_avx2, nb_linear_units8_avx2, nb_linear_units_avxvnni,
    nb_linear_units8_avxvnni, nb_linear_units_avx512, nb_linear_units8_avx512, nb_linear_units8_amx,
    nb_linear_units8_neon;
nb_linear_pack_bytes nb_linear_units8_pack_bytes_amx;
nb_linear_pack nb_linear_units8_pack_amx, nb_linear_units8_pack_words_amx;

#endif
