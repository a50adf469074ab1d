/* formats.h - the lists of what a cache can be stored as.  A new format is a row here and a file with its
 * trait (traits.h); docs/add-a-record.md shows it step by step. */
#ifndef NB_NUM_FORMATS_H
#define NB_NUM_FORMATS_H

// clang-format off

/* Segment formats: X(NAME, trait) gives NB_SEG_NAME and the row of nb_seg_trait. */
#define NB_SEG_FORMATS(X)                                                                                          \
    X(BF16,     nb_seg_bf16)     /* 2 bytes per value, no scales                                                */ \
    X(E4M3,     nb_seg_e4m3)     /* 1 byte per value, a UE8M0 outer scale per vector                            */ \
    X(NVFP4,    nb_seg_nvfp4)    /* E2M1 nibbles, an E4M3 scale per 16, a UE8M0 outer scale per vector          */ \
    X(IF4,      nb_seg_if4)      /* as NVFP4; bit 7 of a block scale: uniform steps k * S instead of E2M1       */ \
    X(MXFP4,    nb_seg_mxfp4)    /* E2M1 nibbles, a UE8M0 scale per 32, no outer scale                          */ \
    X(INT4_CH,  nb_seg_int4_ch)  /* 4-bit codes, an FP16 scale and an FP16 minimum per channel and 32 tokens    */ \
    X(INT4_TOK, nb_seg_int4_tok) /* 4-bit codes, an FP16 scale and an FP16 minimum per token and 32 channels    */ \
    X(F32,      nb_seg_f32)      /* 4 bytes per value, no scales                                                */ \
    X(DS_MLA,   nb_seg_ds_mla)   /* E4M3, a float scale per 128, in rows of tokens                              */ \
    X(INT8,     nb_seg_int8)     /* a signed byte per value, a UE8M0 outer scale per vector                     */

/* Records, --kv-cache-dtype: X(NAME, trait, name, also) gives NB_KV_NAME, the row of nb_kv_trait, the name and, behind
 * a bar, another name.  Their places in this list are numbers in files and on the wire: a new record comes last, and
 * none is ever removed. */
#define NB_KV_TYPES(X)                                                                                             \
    X(BF16,       nb_kv_bf16,       "bf16",       "|bfloat16")                                                     \
    X(FP8,        nb_kv_fp8,        "fp8",        "|fp8_e4m3")                                                     \
    X(NVFP4,      nb_kv_nvfp4,      "nvfp4",      "")                                                              \
    X(IF4,        nb_kv_if4,        "if4",        "")                                                              \
    X(MXFP4,      nb_kv_mxfp4,      "mxfp4",      "")                                                              \
    X(INT4,       nb_kv_int4,       "int4",       "")                                                              \
    X(FP8_DS_MLA, nb_kv_fp8_ds_mla, "fp8_ds_mla", "")                                                              \
    X(F32,        nb_kv_f32,        "f32",        "|float32") /* auto for float32 checkpoints; nothing is rounded */

// clang-format on

#endif
