/* attn.c - the table of variants of attn. */
#include "kernel/attn/attn.h"

// clang-format off
const nb_attn_variant nb_attn_variants[] = {
#if NB_HAVE_AVX512
    { "avx512", NB_SPACE_HOST, NB_CAP_AVX512, nb_attn_avx512 },
#endif
#if NB_HAVE_AVX2
    { "avx2",   NB_SPACE_HOST, NB_CAP_AVX2,   nb_attn_avx2 },
#endif
#if NB_HAVE_NEON
    { "neon",   NB_SPACE_HOST, NB_CAP_NEON,   nb_attn_neon },
#endif
    { "c",      NB_SPACE_HOST, 0,             nb_attn_c },
    { 0 }
};
// clang-format on
