/* num_internal.h - what the files of src/num share about records. */
#ifndef NB_NUM_INTERNAL_H
#define NB_NUM_INTERNAL_H
#include "num/bf16.h"
#include "num/record.h"
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
static inline size_t nb_seg_code_bytes(nb_seg_fmt f, size_t dim)
{
    switch (f) {
    case NB_SEG_F32: return 4 * dim;
    case NB_SEG_BF16: return 2 * dim;
    case NB_SEG_E4M3:
    case NB_SEG_INT8:
    case NB_SEG_DS_MLA: return dim;
    default: return (dim + 1) / 2;
    }
}

/* Largest magnitude that a segment with a fixed scale can hold, in units of it. */
static inline float nb_seg_top(nb_seg_fmt f)
{
    return f == NB_SEG_E4M3 ? 448.0f : 2688.0f; /* 6 * 448 */
}

/* |b| in the normalised domain of a vector with outer byte outer: exact by powers of two, or the
 * correctly rounded quotient by a fixed scale, saturated.  Neither depends on flush-to-zero where
 * a byte does: fixed scales are 2^-100..2^100, so that what underflows is under all thresholds. */
static inline float nb_seg_mag(const nb_record_seg *g, uint16_t b, uint8_t outer)
{
    if (g->fixed_scale == 0) return nb_bf16_mag_scaled(b, NB_UE8M0_ONE - outer);
    const float q = nb_bf16_to_f32(b & NB_BF16_MAG) / g->fixed_scale, top = nb_seg_top(g->fmt);
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

#endif
