/* kv_residual_c.c - the portable variant: the specification itself, num/residual.h. */
#include "kernel/kv_residual/kv_residual.h"

void nb_kv_residual_encode_c(const nb_record *r, const void *page, const uint16_t *x,
                             size_t x_stride, void *plane)
{
    nb_residual_encode(r, page, x, x_stride, plane);
}

void nb_kv_residual_decode_c(const nb_record *r, const void *page, size_t tok, const void *row,
                             float *out)
{
    nb_residual_decode(r, page, tok, row, out);
}
