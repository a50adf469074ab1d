/* kv_codec.c - the variants of the KV page codec. */
#include "kernel/kv_codec/kv_codec.h"

const nb_kv_codec_variant nb_kv_codec_variants[] = {
#if NB_HAVE_AVX2
    { "avx2", NB_SPACE_HOST, NB_CAP_AVX2, nb_kv_encode_avx2, nb_kv_decode_avx2 },
#endif
#if NB_HAVE_NEON
    { "neon", NB_SPACE_HOST, NB_CAP_NEON, nb_kv_encode_c, nb_kv_decode_neon },
#endif
    { "c", NB_SPACE_HOST, 0, nb_kv_encode_c, nb_kv_decode_c }, /* last: runs everywhere */
    { 0 },
};
