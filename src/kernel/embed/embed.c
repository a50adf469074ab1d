/* embed.c - the table of variants of embed. */
#include "kernel/embed/embed.h"

const nb_embed_variant nb_embed_variants[] = {
    { "c", NB_SPACE_HOST, 0, nb_embed_c },
    { 0 },
};
