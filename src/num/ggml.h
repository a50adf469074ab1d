/* ggml.h - the block formats of GGUF files, as floats.
 *
 * Each function writes the values of n_block blocks that follow each other.  Any bytes are accepted.  The values equal
 * bit for bit what llama.cpp's dequantize_row functions give; ggml.c has the layouts.  In all of
 * them d and m are FP16, and multi-byte numbers are little-endian.  Source: ggml/src/ggml-quants.c of llama.cpp. */
#ifndef NB_NUM_GGML_H
#define NB_NUM_GGML_H
#include <stddef.h>
#include <stdint.h>

typedef void nb_ggml_values_fn(const uint8_t *block, size_t n_block, float *out);

/* Plain types: "blocks" of one value. */
nb_ggml_values_fn nb_ggml_f32, nb_ggml_f16, nb_ggml_bf16;
/* 32 values: 34, 18, 20, 22, 24, 18, 17 bytes. */
nb_ggml_values_fn nb_ggml_q8_0, nb_ggml_q4_0, nb_ggml_q4_1, nb_ggml_q5_0, nb_ggml_q5_1,
    nb_ggml_iq4_nl, nb_ggml_mxfp4;
/* 64 values: 36 bytes. */
nb_ggml_values_fn nb_ggml_nvfp4;
/* 256 values: 84, 110, 144, 176, 210, 136 bytes. */
nb_ggml_values_fn nb_ggml_q2_k, nb_ggml_q3_k, nb_ggml_q4_k, nb_ggml_q5_k, nb_ggml_q6_k,
    nb_ggml_iq4_xs;
/* 256 values that are rows of a grid (ggml_iq.c): 66, 74, 82, 98, 110, 50, 56 bytes. */
nb_ggml_values_fn nb_ggml_iq2_xxs, nb_ggml_iq2_xs, nb_ggml_iq2_s, nb_ggml_iq3_xxs, nb_ggml_iq3_s,
    nb_ggml_iq1_s, nb_ggml_iq1_m;

/* Scales and minima of the eight sub-blocks of Q4_K and Q5_K, 6 bits each, from their 12 bytes. */
static inline void nb_ggml_k_scales(const uint8_t s[12], uint8_t scale[8], uint8_t min[8])
{
    for (int j = 0; j < 4; j++) {
        scale[j] = s[j] & 63;
        min[j] = s[j + 4] & 63;
        scale[j + 4] = (uint8_t)((s[j + 8] & 15) | s[j] >> 6 << 4);
        min[j + 4] = (uint8_t)(s[j + 8] >> 4 | s[j + 4] >> 6 << 4);
    }
}
#endif
