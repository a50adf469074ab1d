/* rope.c - the table of variants of rope. */
#include "kernel/rope/rope.h"

// clang-format off
const nb_rope_variant nb_rope_variants[] = {
#if NB_HAVE_AVX2
    { "avx2", NB_SPACE_HOST, NB_CAP_AVX2, nb_rope_avx2 },
#endif
#if NB_HAVE_NEON
    { "neon", NB_SPACE_HOST, NB_CAP_NEON, nb_rope_neon },
#endif
    { "c",    NB_SPACE_HOST, 0,           nb_rope_c },
    { 0 }
};
// clang-format on
