/* num_internal.h - what the encoders and decoders of segment formats share. */
#ifndef NB_NUM_INTERNAL_H
#define NB_NUM_INTERNAL_H
#include <string.h>

#include "num/bf16.h"
#include "num/traits.h"
#include "num/ue8m0.h"

enum {
    NB_GROUP_NV = 16,  /* values per block scale: nvfp4, if4             */
    NB_GROUP_MX = 32,  /* mxfp4; int4 along channels                     */
    NB_GROUP_TOK = 32, /* tokens per scale of int4 per channel           */
    NB_GROUP_DS = 128, /* values per float scale of fp8_ds_mla           */
    NB_OUTER_MIN = 2,  /* outer scales and mxfp4 scales: 2..253, so that */
    NB_OUTER_MAX = 253 /* 2^(b-127) and 2^(127-b) are normal floats      */
};

/* Bytes of one vector's codes. */
static inline size_t nb_seg_code_bytes(const nb_record_seg *g)
{
    return nb_num_bytes(nb_seg_traits[g->fmt]->code, g->dim);
}

/* |b| in the normalised domain of a vector with outer byte outer: exact by powers of two, or the
 * correctly rounded quotient by a fixed scale, saturated.  Neither depends on flush-to-zero where
 * a byte does: fixed scales are 2^-100..2^100, so that what underflows is under all thresholds. */
static inline float nb_seg_mag(const nb_record_seg *g, uint16_t b, uint8_t outer)
{
    if (g->fixed_scale == 0) return nb_bf16_mag_scaled(b, NB_UE8M0_ONE - outer);
    const float q = nb_bf16_to_f32(b & NB_BF16_MAG) / g->fixed_scale;
    const float top = nb_seg_traits[g->fmt]->fixed_top;
    return q < top ? q : top;
}

/* The largest BF16 in place of anything larger; a NaN stays. */
static inline float nb_seg_clip(float v)
{
    const float top = 0x1.fep127f;
    return v > top ? top : v < -top ? -top : v;
}

/* The factor of a vector whose outer byte is not 0. */
static inline float nb_seg_factor(const nb_record_seg *g, uint8_t outer)
{
    return g->fixed_scale != 0 ? g->fixed_scale : nb_ue8m0_to_f32(outer);
}

enum { NB_VEC_PIECE = NB_GROUP_DS }; /* the most values asked for at once */

/* Values i..i + n - 1 of a vector, n <= NB_VEC_PIECE, with zeros where outlier channels are: in place, or
 * a copy in buf. */
static inline const uint16_t *nb_vec_values(const nb_enc_vec *v, size_t i, size_t n, uint16_t *buf)
{
    const nb_record_seg *g = v->g;
    if (g->n_outlier == 0) return v->x + i;
    memcpy(buf, v->x + i, n * sizeof *buf);
    for (size_t k = 0; k < g->n_outlier; k++) {
        const size_t at = (size_t)g->outlier[k] - (v->first + i); /* wraps when before */
        if (at < n) buf[at] = 0;
    }
    return buf;
}

/* Largest magnitude, as BF16 bits. */
static inline uint16_t nb_amax_bits(const uint16_t *x, size_t n)
{
    unsigned a = 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned m = x[i] & NB_BF16_MAG;
        if (m > a) a = m;
    }
    return (uint16_t)a;
}

/* The same of a whole vector without its outlier channels. */
static inline uint16_t nb_vec_amax_bits(const nb_enc_vec *v)
{
    uint16_t buf[NB_VEC_PIECE], a = 0;
    for (size_t i = 0; i < v->g->dim; i += NB_VEC_PIECE) {
        const size_t n = v->g->dim - i < NB_VEC_PIECE ? v->g->dim - i : NB_VEC_PIECE;
        const uint16_t m = nb_amax_bits(nb_vec_values(v, i, n, buf), n);
        if (m > a) a = m;
    }
    return a;
}

static inline float nb_with_sign(float mag, uint16_t b)
{
    return b & 0x8000 ? -mag : mag;
}

/* The outer byte of a vector with largest magnitude a > 0: the least power of two over
 * a / (t * 2^(shift - 7)), or the mark that a fixed scale holds. */
static inline uint8_t nb_outer_byte(const nb_record_seg *g, uint16_t a, unsigned t, int shift)
{
    if (g->fixed_scale != 0) return NB_UE8M0_ONE;
    return nb_ue8m0_from_exp(nb_bf16_ceil_log2(a, t) - shift, NB_OUTER_MIN, NB_OUTER_MAX);
}

#endif
