/* ggml_encode.h - floats to the block formats of GGUF files (ggml.h reads them).
 *
 * Each function writes n_block blocks of n_block * 32 (or 256) values.  Scales are searched for the least
 * squared error (fit.h), where sum w (x - y)^2 counts; w has as many weights as x has values, or is NULL.  Scales of
 * FP16 saturate.  Values are finite.  Same input, same bytes. */
#ifndef NB_NUM_GGML_ENCODE_H
#define NB_NUM_GGML_ENCODE_H
#include <stddef.h>
#include <stdint.h>

typedef void nb_ggml_encode_fn(const float *x, const float *w, size_t n_block, uint8_t *block);

/* Plain types: "blocks" of one value. */
nb_ggml_encode_fn nb_ggml_encode_f32, nb_ggml_encode_f16, nb_ggml_encode_bf16;
/* 32 values. */
nb_ggml_encode_fn nb_ggml_encode_q8_0, nb_ggml_encode_q4_0, nb_ggml_encode_q4_1,
    nb_ggml_encode_q5_0, nb_ggml_encode_q5_1;
/* 256 values. */
nb_ggml_encode_fn nb_ggml_encode_q2_k, nb_ggml_encode_q3_k, nb_ggml_encode_q4_k,
    nb_ggml_encode_q5_k, nb_ggml_encode_q6_k;
#endif
