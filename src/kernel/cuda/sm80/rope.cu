/* rope.cu - cos_sin[t] = factor * (cos, sin) of inv_freq * pos[t], the rotation table of a step's tokens.
 *
 * One thread per angle.  Arguments can be as large as the context's length, so cosine and sine are computed in double.
 * A step has a few thousand of them at most, and one launch serves all layers. */
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/common/ptx.cuh"

namespace
{
constexpr uint32_t THREADS = 128;

__global__ void table_kernel(nb_cuda_rope_table_args a)
{
    nb_grid_next();
    nb_grid_wait();
    const size_t half = a.dim / 2, i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.n_tok * half) return;
    const size_t t = i / half, j = i - t * half;
    const float freq = a.rope_long && a.rope_long[t] ? a.inv_freq_long[j] : a.inv_freq[j];
    const double angle = (double)__fmul_rn(freq, (float)a.pos[t]);
    float *row = a.cos_sin + t * a.dim;
    row[j] = __fmul_rn((float)cos(angle), a.factor);
    row[half + j] = __fmul_rn((float)sin(angle), a.factor);
    if (a.q_scale && j == 0)
        a.q_scale[t] = (float)(1 + (double)a.q_beta * log1p((double)(a.pos[t] / a.q_orig)));
}
} /* namespace */

void nb_cuda_rope_table(nb_cuda *g, const nb_cuda_rope_table_args *a)
{
    const size_t n = a->n_tok * (a->dim / 2);
    if (n == 0) return;
    NB_LAUNCH_EARLY(g, table_kernel, (unsigned)((n + THREADS - 1) / THREADS), THREADS, 0, *a);
}
