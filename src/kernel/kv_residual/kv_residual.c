/* kv_residual.c - the variants of the residual plane. */
#include "kernel/kv_residual/kv_residual.h"

const nb_kv_residual_variant nb_kv_residual_variants[] = {
#if NB_HAVE_AVX2
    { "avx2", NB_SPACE_HOST, NB_CAP_AVX2, nb_kv_residual_encode_avx2, nb_kv_residual_decode_avx2 },
#endif
    { "c", NB_SPACE_HOST, 0, nb_kv_residual_encode_c, nb_kv_residual_decode_c },
    { 0 },
};
