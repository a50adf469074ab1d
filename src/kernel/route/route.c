/* route.c - the table of variants of route. */
#include "kernel/route/route.h"

const nb_route_variant nb_route_variants[] = {
    { "c", NB_SPACE_HOST, 0, nb_route_c },
    { 0 },
};
