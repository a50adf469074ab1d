/* swiglu.c - the table of variants of swiglu. */
#include "kernel/swiglu/swiglu.h"

// clang-format off
const nb_swiglu_variant nb_swiglu_variants[] = {
    { "c",    NB_SPACE_HOST, 0,           nb_swiglu_c },
    { 0 }
};
// clang-format on
