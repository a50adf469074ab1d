/* record.h - the byte layout of KV pages and the codecs that fill and read them.
 *
 * A *page* holds NB_PAGE_TOK tokens of one layer.  A token is one to four
 * *segments*: for MLA the latent (kv_lora_rank values) and the rope key
 * (qk_rope_head_dim values), and with sparse attention the indexer's key; for GQA the keys and the values of all
 * KV heads.
 * A segment is n_vec vectors of dim values; each vector has its own scales.
 * With compressed attention a row of the page stands for several tokens, and a page has fewer rows: read "row" for
 * "token" below (row_tok; where it is more than 64, only some pages' row means anything).
 * Outside a page the values of a token follow each other, segment by segment.
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
#include "num/formats.h"

enum { NB_PAGE_TOK = 64, NB_MAX_SEG = 4, NB_MAX_OUTLIER = 64 };

/* --kv-cache-dtype: NB_KV_BF16, NB_KV_NVFP4, ...  What each is: traits.h. */
typedef enum nb_kv_type {
#define X(NAME, trait, name, also) NB_KV_##NAME,
    NB_KV_TYPES(X)
#undef X
        NB_KV_TYPE_COUNT
} nb_kv_type;

/* Their names in texts: ", bf16, fp8, ..." and "|bf16|bfloat16|fp8|..."; as elements of an array. */
#define NB_KV_LISTED(NAME, trait, name, also) ", " name
#define NB_KV_LIST NB_KV_TYPES(NB_KV_LISTED)
#define NB_KV_CHOICE(NAME, trait, name, also) "|" name also
#define NB_KV_CHOICES NB_KV_TYPES(NB_KV_CHOICE)
#define NB_KV_ELEMENT(NAME, trait, name, also) name,
#define NB_KV_NAMES NB_KV_TYPES(NB_KV_ELEMENT)

/* How the encoder of nvfp4 / if4 picks block scales; the decoder does not care. */
typedef enum nb_kv_mode { NB_KV_BASIC, NB_KV_4OVER6, NB_KV_SEARCH } nb_kv_mode;

/* How a segment is coded: NB_SEG_BF16, NB_SEG_NVFP4, ... */
typedef enum nb_seg_fmt {
#define X(NAME, trait) NB_SEG_##NAME,
    NB_SEG_FORMATS(X)
#undef X
        NB_SEG_COUNT
} nb_seg_fmt;

/* What a segment is to attention: decides its format within a record. */
typedef enum nb_seg_role {
    NB_ROLE_LATENT,
    NB_ROLE_ROPE, /* the rope key of MLA */
    NB_ROLE_K,
    NB_ROLE_V,
    NB_ROLE_INDEX, /* the key of a sparse attention's indexer: E4M3 in every record but f32 */
    NB_ROLE_COUNT
} nb_seg_role;

/* What the rope key of MLA is stored in (bf16, f32 and fp8_ds_mla store it in BF16 or F32 regardless). */
typedef enum nb_rope_fmt { NB_ROPE_FP8, NB_ROPE_BF16, NB_ROPE_INT8 } nb_rope_fmt;

typedef struct nb_record_seg {
    nb_seg_fmt fmt;
    nb_seg_role role;
    size_t dim, n_vec;              /* values per vector; vectors per token                */
    size_t first;                   /* place of the first value among the token's values   */
    size_t n_group;                 /* block scales per vector: ceil(dim / group size), 0  */
                                    /* without such a plane, dim for INT4_CH               */
    size_t code_off, code_stride;   /* byte offset of the plane; bytes per token           */
    size_t scale_off, scale_stride; /* stride 0: no such plane.  INT4_CH: stride is per    */
    size_t outer_off, outer_stride; /* 32-token group (2 of them): all scales, all minima  */
    /* Outlier channels: kept in BF16 in a plane of their own, [64][n_outlier]; the codes see
     * zeros in their places. */
    size_t n_outlier, side_off, side_stride;
    uint16_t outlier[NB_MAX_OUTLIER]; /* ascending places among the n_vec * dim values     */
    float fixed_scale; /* 0: dynamic.  Else a checkpoint's scale: E4M3 value = code * it;   */
                       /* NVFP4: it stands where 2^(outer - 127) does, and the outer byte is */
                       /* 127 (0 for an all-zero vector as ever)                            */
} nb_record_seg;

/* Immutable after init; plain data, copyable. */
typedef struct nb_record {
    nb_kv_type type;
    nb_kv_mode mode;
    size_t n_seg;
    nb_record_seg seg[NB_MAX_SEG];
    size_t page_bytes; /* multiple of 128 */
    size_t n_values;   /* values per row: sum of n_vec * dim */
    size_t n_row;      /* rows of a page: 64, one for each token, but for compressed attention */
} nb_record;

typedef struct nb_seg_opts {
    nb_seg_role role;
    size_t dim, n_vec;       /* n_vec vectors of dim values per token                     */
    const uint16_t *outlier; /* borrowed; [n_outlier] ascending, at most NB_MAX_OUTLIER;  */
    size_t n_outlier;        /* ignored where nothing is rounded (bf16, f32) and by fp8_ds_mla */
    float fixed_scale;       /* 2^-100..2^100, or 0; segments in E4M3 or NVFP4 only       */
} nb_seg_opts;

typedef struct nb_record_opts {
    nb_kv_type type;
    nb_kv_mode mode;  /* one that the type has (nb_kv_trait); ignored where it has none   */
    nb_rope_fmt rope; /* with no rope key anything but NB_ROPE_FP8 is refused             */
    size_t row_tok;   /* tokens that a row stands for; 0: one                                */
    size_t n_seg;     /* 1..NB_MAX_SEG; 0: nothing is cached, a page takes no bytes */
    nb_seg_opts seg[NB_MAX_SEG];
} nb_record_opts;

/* Initialisers of the segments of MLA and of GQA. */
#define NB_SEGS_MLA(d_latent, d_rope)                                                              \
    .n_seg = 2, .seg = {                                                                           \
        { .role = NB_ROLE_LATENT, .dim = (d_latent), .n_vec = 1 },                                 \
        { .role = NB_ROLE_ROPE, .dim = (d_rope), .n_vec = 1 },                                     \
    }
#define NB_SEGS_KV(d_k, d_v, n_head)                                                               \
    .n_seg = 2, .seg = {                                                                           \
        { .role = NB_ROLE_K, .dim = (d_k), .n_vec = (n_head) },                                    \
        { .role = NB_ROLE_V, .dim = (d_v), .n_vec = (n_head) },                                    \
    }

/* Lays out a record.  NB_ERR_UNSUPPORTED with a line naming the reason when the
 * type cannot hold the shape (fp8_ds_mla needs MLA with a latent that is a
 * multiple of 128 and no indexer's key; dims and vectors must be 1..65536 with at most 2^24 values
 * per token and segment; a latent, a rope key and an indexer's key are one vector each). */
nb_status nb_record_init(nb_record *r, const nb_record_opts *o, nb_error *err);

/* A latent and a rope key come first. */
static inline bool nb_record_is_mla(const nb_record *r)
{
    return r->n_seg >= 2 && r->seg[0].role == NB_ROLE_LATENT && r->seg[1].role == NB_ROLE_ROPE;
}

/* The first n_seg segments of r as a record of their own. */
void nb_record_cut(const nb_record *r, size_t n_seg, nb_record *out);

/* Values per token of a segment. */
static inline size_t nb_seg_values(const nb_record_seg *g)
{
    return g->n_vec * g->dim;
}

/* Average bytes per token including every plane and padding: page_bytes / 64. */
double nb_record_bytes_per_tok(const nb_record *r);

/* Names as on the command line; nb_kv_type_parse also takes the aliases
 * fp8_e4m3, bfloat16 and float32.
 * "auto" is resolved by the caller.  Parse returns NB_ERR_ARG. */
const char *nb_kv_type_name(nb_kv_type t);
nb_status nb_kv_type_parse(const char *s, nb_kv_type *t);
nb_status nb_kv_mode_parse(const char *s, nb_kv_mode *m); /* basic, 4over6, search */
/* The encoder that a type has unless another is asked for; without meaning for types that have one. */
nb_kv_mode nb_kv_mode_default(nb_kv_type t);
const char *nb_rope_fmt_name(nb_rope_fmt f);
nb_status nb_rope_fmt_parse(const char *s, nb_rope_fmt *f); /* fp8, bf16, int8 */
/* The default of --kv-rope-dtype: INT8 for MLA, measured (docs/decisions/017); FP8 stands for
 * "no rope key" elsewhere. */
static inline nb_rope_fmt nb_rope_fmt_default(bool is_mla)
{
    return is_mla ? NB_ROPE_INT8 : NB_ROPE_FP8;
}

/* Encodes a full page.  x: BF16 rows of n_values values; token t's row starts at x + t * x_stride
 * (in elements).  Writes exactly page_bytes bytes (padding is zero).  NB_ERR_NONFINITE if any
 * value is NaN or infinite: then the page is not touched.  The page may not overlap x. */
nb_status nb_record_encode_page(const nb_record *r, void *page, const uint16_t *x, size_t x_stride);

/* How many values of a page exceed the largest that their segment's fixed scale can hold
 * (|x| / scale over 448, nvfp4: 2688; they are stored as that largest).  Outlier channels and
 * segments without a fixed scale do not count.  x as above, finite. */
uint64_t nb_record_count_saturated(const nb_record *r, const uint16_t *x, size_t x_stride);

/* Stores a full page of an f32 record: as nb_record_encode_page, from floats, so
 * that nothing is rounded.  The caller has checked that all values are finite. */
void nb_record_store_f32(const nb_record *r, void *page, const float *x, size_t x_stride);

/* Decodes tokens [tok0, tok0 + n_tok) of segment s to float: token i's values
 * start at out + i * out_stride.  All values are exact in float. */
void nb_record_decode(const nb_record *r, const void *page, size_t s, size_t tok0, size_t n_tok,
                      float *out, size_t out_stride);

/* Whether the bytes of a token in segments [0, n_seg) stand for it wherever they are: no scale is shared by several
 * tokens, and the record is in planes. */
bool nb_record_can_move(const nb_record *r, size_t n_seg);
/* Copies the bytes of a token in segments [0, n_seg) to another page, as another token of it; nothing else of dst is
 * written.  nb_record_can_move(r, n_seg). */
void nb_record_move(const nb_record *r, size_t n_seg, void *dst, size_t dst_tok, const void *src, size_t src_tok);

/* NB_ERR_FORMAT if a page holds bytes that no encoder writes and that are no
 * numbers or no scales (an E4M3 NaN, an INT8 code of -128, an FP16 or BF16 NaN or infinity, an outer
 * scale of 1, 254 or 255, with a fixed scale anything but 0 and 127): corruption,
 * found before it is read as numbers.
 * Padding and codes that no encoder writes (a nibble of -0) are not looked at. */
nb_status nb_record_check_page(const nb_record *r, const void *page, nb_error *err);

#endif
