/* rope.c - the table of variants of rope. */
#include "kernel/rope/rope.h"

// clang-format off
const nb_rope_variant nb_rope_variants[] = {
    { "c",    NB_SPACE_HOST, 0,           nb_rope_c },
    { 0 }
};
// clang-format on
