/* kv_residual.h - the residual plane as a kernel: num/residual.h with variants per instruction
 * set.  Bit-exact: every variant writes the bytes of nb_residual_encode and reads the values of
 * nb_residual_decode, which are the specification. */
#ifndef NB_KERNEL_KV_RESIDUAL_H
#define NB_KERNEL_KV_RESIDUAL_H
#include "kernel/kernel.h"
#include "num/residual.h"

/* As nb_residual_encode: all 64 rows of a page. */
typedef void nb_kv_residual_encode_fn(const nb_record *r, const void *page, const uint16_t *x,
                                      size_t x_stride, void *plane);
/* As nb_residual_decode: one row. */
typedef void nb_kv_residual_decode_fn(const nb_record *r, const void *page, size_t tok,
                                      const void *row, float *out);

nb_kv_residual_encode_fn nb_kv_residual_encode_c, nb_kv_residual_encode_avx2;
nb_kv_residual_decode_fn nb_kv_residual_decode_c, nb_kv_residual_decode_avx2;

typedef struct nb_kv_residual_variant {
    const char *name;
    nb_space space;
    nb_caps need;
    nb_kv_residual_encode_fn *encode;
    nb_kv_residual_decode_fn *decode;
} nb_kv_residual_variant;
extern const nb_kv_residual_variant nb_kv_residual_variants[];
#endif
