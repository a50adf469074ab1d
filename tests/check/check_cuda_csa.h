/* check_cuda_csa.h - what the checks of compressed attention share: inputs, records, and parts of references in double. */
#ifndef NB_TESTS_CHECK_CUDA_CSA_H
#define NB_TESTS_CHECK_CUDA_CSA_H
#include "check/check_cuda.h"

/* n values around 0, n + 1 allocated; round: to BF16. */
float *chk_csa_normals(chk *t, size_t n, bool round);
/* Turns the last d values of x [dim] by the angles in cs: d/2 cosines, then sines; back: the other way. */
void chk_csa_turn(double *x, size_t dim, size_t d, const double *cs, bool interleaved, bool back);
/* Of compressed rows of `ratio` tokens; keys: of an indexer, 0: none.  False: the type has none. */
bool chk_csa_record(nb_record *r, nb_kv_type type, size_t ratio, size_t dim, size_t rope, size_t keys);

#endif
