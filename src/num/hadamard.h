/* hadamard.h - the fast Walsh-Hadamard transform of the cache's rotations. */
#ifndef NB_NUM_HADAMARD_H
#define NB_NUM_HADAMARD_H
#include <stddef.h>

/* In place, n values in blocks (a power of two that divides n), orthonormal, Sylvester order: its
 * own inverse.  One order of operations in single precision. */
void nb_hadamard(float *x, size_t n, size_t block);

#endif
