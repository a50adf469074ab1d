/* attn.c - the table of variants of attn. */
#include "kernel/attn/attn.h"

// clang-format off
const nb_attn_variant nb_attn_variants[] = {
    { "c",    NB_SPACE_HOST, 0,           nb_attn_c },
    { 0 }
};
// clang-format on
