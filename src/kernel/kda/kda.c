/* kda.c - the table of variants of kda. */
#include "kernel/kda/kda.h"

// clang-format off
const nb_kda_variant nb_kda_variants[] = {
#if NB_HAVE_AVX512
    { "avx512", NB_SPACE_HOST, NB_CAP_AVX512, nb_kda_avx512 },
#endif
#if NB_HAVE_AVX2
    { "avx2",   NB_SPACE_HOST, NB_CAP_AVX2,   nb_kda_avx2 },
#endif
    { "c",      NB_SPACE_HOST, 0,             nb_kda_c },
    { 0 }
};
// clang-format on
