/* traits.h - what each segment format and each record is, as data.
 *
 * Layout, size, check of foreign bytes, names, defaults and refusals follow from these rows; only encoding and
 * decoding are code, in the file that defines the row.  Code outside src/num asks the row and does not
 * compare types, unless it has instructions made for one format (a kernel). */
#ifndef NB_NUM_TRAITS_H
#define NB_NUM_TRAITS_H
#include "num/number.h"
#include "num/record.h"

/* A vector of a page that is being encoded.  Its codes, scales and outer scale are zero before. */
typedef struct nb_enc_vec {
    const nb_record_seg *g;
    nb_kv_mode mode;
    const uint16_t *x; /* [g->dim] BF16, finite */
    size_t first;      /* x[0] among the segment's values: outlier channels count from 0 */
    uint8_t *codes, *scale, *outer;
} nb_enc_vec;

/* A vector of a page that is being decoded.  scale: the first of its block scales. */
typedef struct nb_dec_vec {
    const nb_record_seg *g;
    const uint8_t *codes, *scale;
    uint8_t outer;
} nb_dec_vec;

typedef void nb_encode_vec_fn(const nb_enc_vec *v);
/* All 64 tokens of a segment: x as in nb_record_encode_page, from the segment's first value on. */
typedef void nb_encode_seg_fn(const nb_record_seg *g, uint8_t *page, const uint16_t *x,
                              size_t x_stride);
typedef void nb_decode_vec_fn(const nb_dec_vec *v, float *out);

typedef struct nb_seg_trait {
    const char *name;
    nb_num code;               /* one per value                                             */
    nb_num scale;              /* of a block of values; NB_NUM_NONE: no block scales        */
    unsigned group, group_tok; /* values along the vector, and tokens (0: one), of a block  */
    bool minimum;    /* all minima of a row follow its scales: value = code * scale + minimum */
    bool flagged;    /* bit 7 of an E4M3 block scale is no sign: it chooses the grid */
    bool outer;      /* a UE8M0 scale per vector and token; byte 0: a zero vector */
    bool wide;       /* values as given: nothing is rounded, so no outlier channels */
    bool exact_bf16; /* decoded values are exact in BF16 (but beside a fixed scale) */
    float fixed_top; /* largest magnitude with a fixed scale of 1; 0: it takes none */
    nb_encode_vec_fn *encode_vec; /* or, where tokens share scales, */
    nb_encode_seg_fn *encode_seg;
    nb_decode_vec_fn *decode_vec;
} nb_seg_trait;

typedef struct nb_kv_trait {
    nb_seg_fmt fmt[NB_ROLE_COUNT]; /* of a segment with this role */
    bool own_rope;                 /* fmt[NB_ROLE_ROPE] holds; else --kv-rope-dtype decides */
    bool in_rows;                  /* a token's codes and scales form one row; else planes */
    bool mla_only;
    unsigned latent_multiple; /* the latent's values must be a multiple of it; 0: any number */
    unsigned modes;           /* encoders, bits 1 << nb_kv_mode; 0: there is one, without a name */
    nb_kv_mode mode;          /* the default one */
} nb_kv_trait;

extern const nb_seg_trait *const nb_seg_traits[NB_SEG_COUNT];
extern const nb_kv_trait *const nb_kv_traits[NB_KV_TYPE_COUNT];

/* The format of the segment that a record is named after: latent, or keys. */
static inline const nb_seg_trait *nb_kv_main(nb_kv_type t)
{
    return nb_seg_traits[nb_kv_traits[t]->fmt[NB_ROLE_LATENT]];
}

/* Bits of a code of that segment: 4, 8, 16 or 32. */
static inline unsigned nb_kv_bits(nb_kv_type t)
{
    return nb_num_bits(nb_kv_main(t)->code);
}

/* Rows of block scales of a segment's page with n_row rows: as many, or fewer where rows share them. */
static inline size_t nb_seg_scale_rows(nb_seg_fmt f, size_t n_row)
{
    const unsigned n = nb_seg_traits[f]->group_tok;
    return n_row / (n ? n : 1);
}

#define X(NAME, trait) extern const nb_seg_trait trait;
NB_SEG_FORMATS(X)
#undef X
#define X(NAME, trait, name, also) extern const nb_kv_trait trait;
NB_KV_TYPES(X)
#undef X

#endif
