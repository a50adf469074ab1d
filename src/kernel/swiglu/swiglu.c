/* swiglu.c - the table of variants of swiglu. */
#include "kernel/swiglu/swiglu.h"

// clang-format off
const nb_swiglu_variant nb_swiglu_variants[] = {
#if NB_HAVE_AVX2
    { "avx2", NB_SPACE_HOST, NB_CAP_AVX2, nb_swiglu_avx2 },
#endif
#if NB_HAVE_NEON
    { "neon", NB_SPACE_HOST, NB_CAP_NEON, nb_swiglu_neon },
#endif
    { "c",    NB_SPACE_HOST, 0,           nb_swiglu_c },
    { 0 }
};
// clang-format on
