/* index_score.c - the table of variants of index_score. */
#include "kernel/index_score/index_score.h"

// clang-format off
const nb_index_score_variant nb_index_score_variants[] = {
#if NB_HAVE_AMX
    { "amx",    NB_SPACE_HOST, NB_CAP_AVX2 | NB_CAP_AVX512 | NB_CAP_AMX, nb_index_score_amx, nb_index_pack_amx, nb_index_bytes_amx, nb_index_scratch_amx, 0x1p-8f },
#endif
#if NB_HAVE_AVX512
    { "avx512", NB_SPACE_HOST, NB_CAP_AVX2 | NB_CAP_AVX512, nb_index_score_avx512, nb_index_pack_f32, nb_index_bytes_f32, nb_index_scratch_none, 0 },
#endif
#if NB_HAVE_AVX2
    { "avx2",   NB_SPACE_HOST, NB_CAP_AVX2, nb_index_score_avx2, nb_index_pack_f32, nb_index_bytes_f32, nb_index_scratch_none, 0 },
#endif
    { "c",      NB_SPACE_HOST, 0, nb_index_score_c, nb_index_pack_f32, nb_index_bytes_f32, nb_index_scratch_none, 0 },
    { 0 }
};
// clang-format on
