/* linear_wgmma_byte.cu - linear_wgmma_codes.cuh for BYTE. */
#include "kernel/cuda/sm90/linear_wgmma_codes.cuh"

void nb_lin_wgmma_byte(nb_cuda *g, const nb_lin &j, bool glu, size_t n_batch, size_t n)
{
    launch<tiled<NB_W_BYTE>>(g, j, glu, n_batch, n);
}
