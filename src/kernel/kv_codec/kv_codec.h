/* kv_codec.h - filling and reading KV pages as kernels: num/record.h with
 * variants per instruction set.  Bit-exact: every variant writes the bytes and
 * reads the values of nb_record_encode_page and nb_record_decode, which are the
 * specification. */
#ifndef NB_KERNEL_KV_CODEC_H
#define NB_KERNEL_KV_CODEC_H
#include "kernel/kernel.h"
#include "num/record.h"

/* As nb_record_encode_page. */
typedef nb_status nb_kv_encode_fn(const nb_record *r, void *page, const uint16_t *x,
                                  size_t x_stride);
/* As nb_record_decode. */
typedef void nb_kv_decode_fn(const nb_record *r, const void *page, size_t s, size_t tok0,
                             size_t n_tok, float *out, size_t out_stride);

nb_kv_decode_fn nb_kv_decode_c, nb_kv_decode_avx2, nb_kv_decode_neon;
nb_kv_encode_fn nb_kv_encode_c, nb_kv_encode_avx2;

typedef struct nb_kv_codec_variant {
    const char *name;
    nb_space space;
    nb_caps need;
    nb_kv_encode_fn *encode;
    nb_kv_decode_fn *decode;
} nb_kv_codec_variant;
extern const nb_kv_codec_variant nb_kv_codec_variants[];
#endif
