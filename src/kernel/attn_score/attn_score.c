/* attn_score.c - the table of variants of attn_score. */
#include "kernel/attn_score/attn_score.h"

// clang-format off
const nb_attn_score_variant nb_attn_score_variants[] = {
#if NB_HAVE_AVX2
    { "avx2", NB_SPACE_HOST, NB_CAP_AVX2, nb_attn_score_avx2 },
#endif
#if NB_HAVE_NEON
    { "neon", NB_SPACE_HOST, NB_CAP_NEON, nb_attn_score_neon },
#endif
    { "c",    NB_SPACE_HOST, 0,           nb_attn_score_c },
    { 0 }
};
// clang-format on
