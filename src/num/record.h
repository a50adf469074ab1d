/* record.h - the byte layout of KV pages and the codecs that fill and read them.
 *
 * A *page* holds NB_PAGE_TOK tokens of one layer.  A token is one or two
 * *segments*: for MLA the latent (kv_lora_rank values) and the rope key
 * (qk_rope_head_dim values); for GQA the keys and the values of all KV heads.
 * A segment is n_vec vectors of dim values; each vector has its own scales.
 *
 * Pages are planar.  Plane order: for each segment its codes and its block
 * scales, each at a multiple of 128 bytes, then, from the next such multiple on
 * and without gaps, the outer scales of each segment (64 * n_vec bytes); then, each at
 * such a multiple, the BF16 planes of outlier channels where there are some;
 * page_bytes is a multiple of 128 too.  For 512+64 in nvfp4:
 *   codes 64x256 @0 | block scales 64x32 @16384 | rope e4m3 64x64 @18432 |
 *   latent outer 64 @22528 | rope outer 64 @22592, page_bytes 22656.
 * Within a plane token t starts at t * stride; nothing depends on the host's
 * byte order (16-bit values are little-endian).
 *
 * An outer scale is UE8M0, 2^(b-127); byte 0 marks an all-zero vector, which is
 * read as +0 whatever its codes are.  MXFP4's block scales follow the same rule.
 *
 * Encoding is normative (shared bytes on every machine): IEEE single precision,
 * no contraction, thresholds instead of divisions.  docs/number-formats.md has
 * every rule.
 * Sources: OCP Microscaling v1.0; NVIDIA NVFP4; Four Over Six (arXiv
 * 2512.02010); IF4 (arXiv 2603.28765); KIVI (arXiv 2402.02750);
 * FlashMLA's FP8 row (fp8_ds_mla). */
#ifndef NB_NUM_RECORD_H
#define NB_NUM_RECORD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { NB_PAGE_TOK = 64, NB_MAX_OUTLIER = 64 };

/* --kv-cache-dtype.  Values are stored in files and on the wire: never reused. */
typedef enum nb_kv_type {
    NB_KV_BF16 = 0,
    NB_KV_FP8 = 1,
    NB_KV_NVFP4 = 2,
    NB_KV_IF4 = 3,
    NB_KV_MXFP4 = 4,
    NB_KV_INT4 = 5,
    NB_KV_FP8_DS_MLA = 6,
    NB_KV_F32 = 7, /* auto for float32 checkpoints; nothing is rounded */
    NB_KV_TYPE_COUNT
} nb_kv_type;

/* How the encoder of nvfp4 / if4 picks block scales; the decoder does not care. */
typedef enum nb_kv_mode { NB_KV_BASIC, NB_KV_4OVER6, NB_KV_SEARCH } nb_kv_mode;

/* What one segment's codes are. */
typedef enum nb_seg_fmt {
    NB_SEG_BF16,     /* 2 bytes per value, no scales                                         */
    NB_SEG_E4M3,     /* 1 byte per value, one UE8M0 outer scale per vector                   */
    NB_SEG_NVFP4,    /* E2M1 nibbles, an E4M3 scale per 16, one UE8M0 outer scale per vector */
    NB_SEG_IF4,      /* as NVFP4; bit 7 of a block scale: uniform steps k*S instead of E2M1  */
    NB_SEG_MXFP4,    /* E2M1 nibbles, a UE8M0 scale per 32, no outer scale                   */
    NB_SEG_INT4_CH,  /* 4-bit codes, FP16 scale and FP16 minimum per channel and 32 tokens   */
    NB_SEG_INT4_TOK, /* 4-bit codes, FP16 scale and FP16 minimum per token and 32 channels   */
    NB_SEG_F32,      /* 4 bytes per value, no scales                                        */
    NB_SEG_DS_MLA,   /* latent part of a row that also holds the rope key: E4M3, a float     */
                     /* scale per 128; the rope key is segment 1, BF16, with the same stride */
        NB_SEG_INT8  /* 1 signed byte per value, one UE8M0 outer scale per vector           */
} nb_seg_fmt;

/* What the rope key of MLA is stored in (bf16, f32, fp8_ds_mla: always as their own rows say). */
typedef enum nb_rope_fmt { NB_ROPE_FP8, NB_ROPE_BF16, NB_ROPE_INT8 } nb_rope_fmt;

typedef struct nb_record_seg {
    nb_seg_fmt fmt;
    size_t dim, n_vec;              /* values per vector; vectors per token                */
    size_t n_group;                 /* block scales per vector: ceil(dim / group size), 0  */
                                    /* without such a plane, dim for INT4_CH               */
    size_t code_off, code_stride;   /* byte offset of the plane; bytes per token           */
    size_t scale_off, scale_stride; /* stride 0: no such plane.  INT4_CH: stride is per    */
    size_t outer_off, outer_stride; /* 32-token group (2 of them): all scales, all minima  */
    /* Outlier channels: kept in BF16 in a plane of their own, [64][n_outlier]; the codes see
     * zeros in their places. */
    size_t n_outlier, side_off, side_stride;
    uint16_t outlier[NB_MAX_OUTLIER]; /* ascending places among the n_vec * dim values      */
    float fixed_scale; /* 0: dynamic.  Else a checkpoint's scale: E4M3 value = code * it;   */
                       /* NVFP4: it stands where 2^(outer - 127) does, and the outer byte is */
                       /* 127 (0 for an all-zero vector as ever)                            */
} nb_record_seg;

/* Immutable after init; plain data, copyable. */
typedef struct nb_record {
    nb_kv_type type;
    nb_kv_mode mode;
    size_t n_seg;
    nb_record_seg seg[2];
    size_t page_bytes; /* multiple of 128 */
    size_t n_values;   /* values per token: sum of n_vec * dim */
} nb_record;

/* Shape of one token: segment s has n_vec[s] vectors of dim[s] values.
 * is_mla: segment 0 is the latent, segment 1 the rope key; else K and V. */
typedef struct nb_record_opts {
    nb_kv_type type;
    nb_kv_mode mode; /* nvfp4: default NB_KV_4OVER6; if4: default NB_KV_SEARCH;    */
                     /* without meaning for the other types                       */
    bool is_mla;
    nb_rope_fmt rope; /* MLA; without it anything but the default, NB_ROPE_FP8, is refused */
    size_t dim[2], n_vec[2];
    const uint16_t *outlier[2]; /* borrowed; [n_outlier] ascending, at most NB_MAX_OUTLIER  */
    size_t n_outlier[2];        /* not for bf16, f32, fp8_ds_mla: there they are ignored    */
    float fixed_scale[2];       /* segments in E4M3 or NVFP4 only; 2^-100..2^100, or 0      */
} nb_record_opts;

/* Lays out a record.  NB_ERR_UNSUPPORTED with a line naming the reason when the
 * type cannot hold the shape (fp8_ds_mla needs MLA with a latent that is a
 * multiple of 128; dims and vectors must be 1..65536 with at most 2^24 values
 * per token and segment; an MLA segment is one vector). */
nb_status nb_record_init(nb_record *r, const nb_record_opts *o, nb_error *err);

/* Average bytes per token including every plane and padding: page_bytes / 64. */
double nb_record_bytes_per_tok(const nb_record *r);

/* Names as on the command line; nb_kv_type_parse also takes
 * fp8_e4m3, bfloat16 and float32.
 * "auto" is resolved by the caller.  Parse returns NB_ERR_ARG. */
const char *nb_kv_type_name(nb_kv_type t);
nb_status nb_kv_type_parse(const char *s, nb_kv_type *t);
nb_status nb_kv_mode_parse(const char *s, nb_kv_mode *m); /* basic, 4over6, search */
const char *nb_rope_fmt_name(nb_rope_fmt f);
nb_status nb_rope_fmt_parse(const char *s, nb_rope_fmt *f); /* fp8, bf16, int8 */
/* What --kv-rope-dtype is when nothing is said: INT8 for MLA, measured (docs/decisions/017); FP8
 * stands for "no rope key" elsewhere. */
static inline nb_rope_fmt nb_rope_fmt_default(bool is_mla)
{
    return is_mla ? NB_ROPE_INT8 : NB_ROPE_FP8;
}

/* Encodes a full page.  x[s] points to BF16 rows of segment s: token t's values
 * (n_vec * dim, vector by vector) start at x[s] + t * x_stride[s] (in elements).
 * Writes exactly page_bytes bytes (padding is zero).  NB_ERR_NONFINITE if any
 * value is NaN or infinite: then the page is not touched.  The page may not
 * overlap x. */
nb_status nb_record_encode_page(const nb_record *r, void *page, const uint16_t *const x[2],
                                const size_t x_stride[2]);

/* How many values of a page exceed the largest that their segment's fixed scale can hold
 * (|x| / scale over 448, nvfp4: 2688; they are stored as that largest).  Outlier channels and
 * segments without a fixed scale do not count.  x as above, finite. */
uint64_t nb_record_count_saturated(const nb_record *r, const uint16_t *const x[2],
                                   const size_t x_stride[2]);

/* Stores a full page of an f32 record: as nb_record_encode_page, from floats, so
 * that nothing is rounded.  The caller has checked that all values are finite. */
void nb_record_store_f32(const nb_record *r, void *page, const float *const x[2],
                         const size_t x_stride[2]);

/* Decodes tokens [tok0, tok0 + n_tok) of segment s to float: token i's values
 * start at out + i * out_stride.  All values are exact in float. */
void nb_record_decode(const nb_record *r, const void *page, size_t s, size_t tok0, size_t n_tok,
                      float *out, size_t out_stride);

/* NB_ERR_FORMAT if a page holds bytes that no encoder writes and that are no
 * numbers or no scales (an E4M3 NaN, an INT8 code of -128, an FP16 or BF16 NaN or infinity, an outer
 * scale of 1, 254 or 255, with a fixed scale anything but 0 and 127): corruption,
 * found before it is read as numbers.
 * Padding and codes that no encoder writes (a nibble of -0) are not looked at. */
nb_status nb_record_check_page(const nb_record *r, const void *page, nb_error *err);

#endif
