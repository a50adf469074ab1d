/* linear_wgmma_int4.cu - linear_wgmma_codes.cuh for INT4. */
#include "kernel/cuda/sm90/linear_wgmma_codes.cuh"

void nb_lin_wgmma_int4(nb_cuda *g, const nb_lin &j, bool glu, size_t n_batch, size_t n)
{
    launch<tiled<NB_W_INT4>>(g, j, glu, n_batch, n);
}
