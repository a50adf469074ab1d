/* kv_codec_c.c - the portable codec: the specification itself, num/record.h. */
#include "kernel/kv_codec/kv_codec.h"

nb_status nb_kv_encode_c(const nb_record *r, void *page, const uint16_t *x, size_t x_stride)
{
    return nb_record_encode_page(r, page, x, x_stride);
}

void nb_kv_decode_c(const nb_record *r, const void *page, size_t s, size_t tok0, size_t n_tok,
                    float *out, size_t out_stride)
{
    nb_record_decode(r, page, s, tok0, n_tok, out, out_stride);
}
