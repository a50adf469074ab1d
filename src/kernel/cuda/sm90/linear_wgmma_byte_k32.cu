/* linear_wgmma_byte_k32.cu - linear_wgmma_codes.cuh for BYTE in K forms with scales per 32 columns. */
#include "kernel/cuda/sm90/linear_wgmma_codes.cuh"

void nb_lin_wgmma_byte_k32(nb_cuda *g, const nb_lin &j, bool glu, size_t n_batch, size_t n)
{
    launch<tiled<NB_W_BYTE, codes::K32>>(g, j, glu, n_batch, n);
}
