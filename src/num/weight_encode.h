/* weight_encode.h - rows of weights in the group formats of safetensors checkpoints (model/weight_form.h reads
 * them).
 *
 * n values of a row, n a multiple of the group.  Scales are searched for the least squared error,
 * sum w (x - y)^2 with w[n], or 1 for all where w is NULL.  Values are finite; the codes of a byte: the even column in the low nibble. */
#ifndef NB_NUM_WEIGHT_ENCODE_H
#define NB_NUM_WEIGHT_ENCODE_H
#include <stddef.h>
#include <stdint.h>

/* q + 8 in nibbles, -8 <= q <= 7, value q * scale; a positive BF16 scale per group. */
void nb_encode_int4(const float *x, const float *w, size_t n, size_t group, uint8_t *codes,
                    uint16_t *scale);

/* The tensor's scale of NVFP4: with it the largest magnitude needs the largest block scale. */
static inline float nb_encode_nvfp4_outer(float largest)
{
    return largest > 0 ? largest / (6.0f * 448.0f) : 1;
}
/* E2M1 nibbles, value e2m1 * e4m3 * outer, an E4M3 scale per 16; train/nvfp4.py has the same rule.  Of the scales
 * from 3 codes below to 6 above the one that takes the largest magnitude to 6, the one of the least error. */
void nb_encode_nvfp4(const float *x, const float *w, size_t n, float outer, uint8_t *codes,
                     uint8_t *scale);

/* E2M1 nibbles, an E8M0 scale (2^(byte - 127)) per 32. */
void nb_encode_mxfp4(const float *x, const float *w, size_t n, uint8_t *codes, uint8_t *scale);

/* E4M3 codes of x / scale, scale > 0. */
void nb_encode_fp8(const float *x, size_t n, float scale, uint8_t *codes);
#endif
