/* index_topk.c - the table of variants of index_topk. */
#include "kernel/index_topk/index_topk.h"

// clang-format off
const nb_index_topk_variant nb_index_topk_variants[] = {
#if NB_HAVE_AVX2
    { "avx2", NB_SPACE_HOST, NB_CAP_AVX2, nb_index_topk_avx2 },
#endif
    { "c",    NB_SPACE_HOST, 0,           nb_index_topk_c },
    { 0 }
};
// clang-format on
