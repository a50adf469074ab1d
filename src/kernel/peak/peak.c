/* peak.c - the table of peak loops. */
#include "kernel/peak/peak.h"

// clang-format off
const nb_peak_variant nb_peak_variants[] = {
#if NB_HAVE_AMX
    { "amx",    NB_SPACE_HOST, NB_CAP_AMX,    NULL, NULL, nb_peak_bf16_amx, nb_peak_int8_amx },
#endif
#if NB_HAVE_AVX512
    { "avx512", NB_SPACE_HOST, NB_CAP_AVX512, nb_peak_read_avx512, nb_peak_f32_avx512, NULL, nb_peak_int8_avx512 },
#endif
#if NB_HAVE_AVXVNNI && NB_HAVE_AVX2
    { "avxvnni", NB_SPACE_HOST, NB_CAP_AVX2 | NB_CAP_AVXVNNI, nb_peak_read_avx2, nb_peak_f32_avx2, NULL, nb_peak_int8_avxvnni },
#endif
#if NB_HAVE_AVX2
    { "avx2",   NB_SPACE_HOST, NB_CAP_AVX2,   nb_peak_read_avx2, nb_peak_f32_avx2, NULL, nb_peak_int8_avx2 },
#endif
    { "c",      NB_SPACE_HOST, 0,             nb_peak_read_c, nb_peak_f32_c, NULL, NULL },
    { 0 }
};
// clang-format on
