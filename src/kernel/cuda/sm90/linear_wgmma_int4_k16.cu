/* linear_wgmma_int4_k16.cu - linear_wgmma_codes.cuh for INT4 in K forms with scales per 16 columns. */
#include "kernel/cuda/sm90/linear_wgmma_codes.cuh"

void nb_lin_wgmma_int4_k16(nb_cuda *g, const nb_lin &j, bool glu, size_t n_batch, size_t n)
{
    launch<tiled<NB_W_INT4, codes::K16>>(g, j, glu, n_batch, n);
}
