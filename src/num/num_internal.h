/* num_internal.h - what the files of src/num share about records. */
#ifndef NB_NUM_INTERNAL_H
#define NB_NUM_INTERNAL_H
#include "num/record.h"

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
    case NB_SEG_DS_MLA: return dim;
    default: return (dim + 1) / 2;
    }
}

#endif
