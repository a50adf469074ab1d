/* rmsnorm.c - the table of variants of rmsnorm. */
#include "kernel/rmsnorm/rmsnorm.h"

// clang-format off
const nb_rmsnorm_variant nb_rmsnorm_variants[] = {
#if NB_HAVE_AVX2
    { "avx2", NB_SPACE_HOST, NB_CAP_AVX2, nb_rmsnorm_avx2 },
#endif
#if NB_HAVE_NEON
    { "neon", NB_SPACE_HOST, NB_CAP_NEON, nb_rmsnorm_neon },
#endif
    { "c",    NB_SPACE_HOST, 0,           nb_rmsnorm_c },
    { 0 }
};
// clang-format on
