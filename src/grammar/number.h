/* number.h - numbers between bounds, and multiples. */
#ifndef NB_GRAMMAR_NUMBER_H
#define NB_GRAMMAR_NUMBER_H
#include <jansson.h>

#include "grammar/graph.h"

typedef struct nb_numspec {
    bool integer;
    const json_t *min, *max; /* NULL: no bound */
    bool over, under;        /* the bound itself is excluded */
    uint32_t multiple;       /* 0: none; else multiples of multiple / 10^digits */
    uint32_t digits;
} nb_numspec;

enum { NB_NUM_MAX_MULTIPLE = 10000, NB_NUM_MAX_DIGITS = 9 };

/* A number in decimal digits without an exponent, where there are conditions; NB_G_NONE: failed. */
nb_gid nb_g_number(nb_grammar *g, const nb_numspec *s, nb_gid next);
/* -1, 0, 1 */
int nb_num_compare(const json_t *a, const json_t *b);
/* Reads a multipleOf and joins it to s; false: it is too fine or too large. */
bool nb_num_multiple(nb_numspec *s, const json_t *m);

#endif
