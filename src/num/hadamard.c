/* hadamard.c - see hadamard.h. */
#include "num/hadamard.h"

#include <math.h>

void nb_hadamard(float *x, size_t n, size_t block)
{
    const float s = (float)(1 / sqrt((double)block));
    for (size_t b = 0; b < n; b += block)
        for (size_t h = 1; h < block; h *= 2)
            for (size_t i = b; i < b + block; i += 2 * h)
                for (size_t j = i; j < i + h; j++) {
                    const float u = x[j], v = x[j + h];
                    x[j] = u + v;
                    x[j + h] = u - v;
                }
    for (size_t i = 0; i < n; i++) x[i] *= s;
}
