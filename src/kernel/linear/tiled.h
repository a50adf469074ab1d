/* tiled.h - weights with codes of 4 or 8 bits as a GPU holds them: the same values, in the order of the tensor cores.
 *
 * A row is blocks of 128 columns, the last one filled with codes of 0 and scales of 0.  Per row and block:
 *   codes   64 bytes (INT4, FP4) or 128 (BYTE), below
 *   scales  8 bytes: 4 of 16 bits, one per 32 columns (INT4, BYTE: BF16 or FP16), or 8 of 8 bits, one per 16 columns
 *           (FP4: E4M3 or E8M0); a longer group has its scale several times
 *   zeros   4 bytes, one per 32 columns (INT4, BYTE), where a zero point is not 8 (128)
 * and per row a float: outer scales, or the only scale.  value = (code - zero) * scale * row, as in nb_wgroups.
 *
 * Blocks of GGUF with a minimum, or with scales in two levels, have INT4 or BYTE codes too.  There
 * value = ((code - zero) * scale + min) * row, and d and m are FP16:
 *   scale type   scales, 8 bytes             zeros                    scale, min               zero of INT4, BYTE
 *   F16_MIN      FP16 per 32 columns         FP16 min per 32 columns  as they are              0, 128
 *   K32          4 bytes s, then 4 bytes n   d, m                     d s, -m n per 32         0, 128
 *   K16          8 signed bytes s            d, 0                     d s, 0 per 16            8, 128
 *   K16_MIN      8 times s + 16 n            d, m                     d s, -m n per 16         8, 128
 *
 * Codes: with t = 0..3 the lane of a fragment (mma m16n8k16: k = 2t, 2t+1, 2t+8, 2t+9),
 *   4 bits: the 32-bit word at 16 t + 4 j has columns c = 32 j + 8 p + 2 t + e (p 0..3, e 0..1) at bit 4 p + 16 e, so that
 *           (word >> 4 p) & 0x000f000f is a pair of neighbours in the halves of a register
 *   8 bits: two halves of 64 columns; the word at 16 t + 4 i has columns 16 i + 2t, 2t+1, 2t+8, 2t+9 in its bytes */
#ifndef NB_KERNEL_TILED_H
#define NB_KERNEL_TILED_H
#include "base/status.h"
#include "kernel/kernel.h"

enum {
    NB_TILED_COLS = 128,
    NB_TILED_SCALES = 8,
    NB_TILED_ZEROS = 4 /* F16_MIN: 8 */
}; /* columns, bytes of a block */

typedef struct nb_tiled {
    nb_wtype type;       /* INT4, BYTE, FP4 */
    nb_stype scale_type; /* of groups */
    bool groups, zeros;  /* which planes there are */
} nb_tiled;

/* Whether scales have two levels or minima beside them: the table above. */
static inline bool nb_stype_is_k(nb_stype t)
{
    return t >= NB_S_F16_MIN;
}

/* Whether w (INT4, BYTE, FP4, INT8, or blocks of GGUF) has this form, and which; NULL, or why it has not: words that
 * follow "weights".  Groups are of 32 n columns (FP4: 16 n) or whole rows, with scales that 16 bits hold. */
const char *nb_tiled_of(const nb_weight *w, nb_tiled *out);
/* Makes *a the form of both matrices; false: there is none. */
bool nb_tiled_join(nb_tiled *a, const nb_tiled *b);

/* Bytes of a row of codes; of a row of scales and of zeros, if they are there. */
size_t nb_tiled_code_bytes(const nb_tiled *t, size_t n_col);
size_t nb_tiled_scale_bytes(const nb_tiled *t, size_t n_col);
size_t nb_tiled_zero_bytes(const nb_tiled *t, size_t n_col);
/* All of a matrix. */
size_t nb_tiled_bytes(const nb_tiled *t, size_t n_row, size_t n_col);

/* Rows [r, r + n) of w in form t, which is nb_tiled_of(w) or joined with it.  scale, zero: aligned to 4, unused
 * where the form has none. */
typedef struct nb_tiled_rows {
    uint8_t *code, *zero;
    void *scale;
    float *row;
} nb_tiled_rows;
void nb_tiled_make(const nb_weight *w, const nb_tiled *t, size_t r, size_t n,
                   const nb_tiled_rows *out);

#endif
