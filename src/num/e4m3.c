/* e4m3.c - the table of E4M3 values.
 *
 * Written as rows of one exponent each: eight multiples of a power of two.  The
 * first row is the subnormal one, and the last ends in NaN. */
#include "num/e4m3.h"

#include <math.h>

// clang-format off
#define NORMAL(s) 8*(s), 9*(s), 10*(s), 11*(s), 12*(s), 13*(s), 14*(s), 15*(s)
#define HALF(g)                                                              \
    g 0.0f, g 0x1p-9f, g 2*0x1p-9f, g 3*0x1p-9f,                             \
    g 4*0x1p-9f, g 5*0x1p-9f, g 6*0x1p-9f, g 7*0x1p-9f,                      \
    NORMAL(g 0x1p-9f), NORMAL(g 0x1p-8f), NORMAL(g 0x1p-7f), NORMAL(g 0x1p-6f), \
    NORMAL(g 0x1p-5f), NORMAL(g 0x1p-4f), NORMAL(g 0x1p-3f), NORMAL(g 0x1p-2f), \
    NORMAL(g 0x1p-1f), NORMAL(g 0x1p0f),  NORMAL(g 0x1p1f),  NORMAL(g 0x1p2f),  \
    NORMAL(g 0x1p3f),  NORMAL(g 0x1p4f),                                     \
    8*(g 32.0f), 9*(g 32.0f), 10*(g 32.0f), 11*(g 32.0f),                    \
    12*(g 32.0f), 13*(g 32.0f), 14*(g 32.0f), g NAN

const float nb_e4m3_value[256] = { HALF(+), HALF(-) };
