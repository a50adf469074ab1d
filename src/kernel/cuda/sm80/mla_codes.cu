/* mla_codes.cu - absorbed attention over complete pages of nvfp4 and if4, at most 16 heads, 512 + 64 values.
 * mla_codes.cuh describes the kernel.  It serves GPUs before Hopper; Hopper has mla_few.cu.
 *
 * H100 80GB HBM3, 16 heads, nvfp4, without mla_combine (ms):
 *                       time   floor   mla_few.cu
 *   b=128 s=4096       0.132   0.062        0.101
 *   b=4 s=131072       0.129
 *   b=1 s=131072       0.042
 * A page takes 7,240 warp instructions and 1,900 cycles of shared memory (512 of them movmatrix), out of 3,970
 * cycles.  It is bound by both, and by waiting (0.49 of the issue slots).  No time on another GPU is known.
 * Slower: 4 warps with 128 dimensions each and three blocks, 0.149. */
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/sm80/mla_codes.cuh"

namespace
{

template <bool IF4, bool INT8> void launch(nb_cuda *g, const nb_cuda_mla_args *a)
{
    const codes::params p = nb_mla_params_of(a, codes::UNIT);
    const size_t slots = (size_t)g->n_sm * codes::BLOCKS,
                 most = a->max_item < slots ? a->max_item : slots;
    NB_SHARED_LIMIT(g, (codes::mla_codes<IF4, INT8>), codes::BYTES);
    NB_LAUNCH_EARLY(g, (codes::mla_codes<IF4, INT8>), (unsigned)most, codes::THREADS, codes::BYTES,
                    p, NB_CUDA_MLA_CODES_UNITS);
}

void launch_record(nb_cuda *g, const nb_cuda_mla_args *a)
{
    const nb_record &r = a->cache.record;
    const bool if4 = r.seg[0].fmt == NB_SEG_IF4, int8 = r.seg[1].fmt == NB_SEG_INT8;
    if (if4 && int8)
        launch<true, true>(g, a);
    else if (if4)
        launch<true, false>(g, a);
    else if (int8)
        launch<false, true>(g, a);
    else
        launch<false, false>(g, a);
}

} // namespace

bool nb_cuda_mla_codes_can(const nb_record *r, size_t n_head)
{
    if (r->n_seg != 2 || n_head < 1 || n_head > codes::ROWS || r->page_bytes != codes::PAGE)
        return false;
    const nb_record_seg &c = r->seg[0], &k = r->seg[1];
    return c.dim == codes::LORA && k.dim == codes::ROPE && c.n_vec == 1 && k.n_vec == 1 &&
           c.n_outlier == 0 && k.n_outlier == 0 && (c.fmt == NB_SEG_NVFP4 || c.fmt == NB_SEG_IF4) &&
           (k.fmt == NB_SEG_INT8 || k.fmt == NB_SEG_E4M3);
}

size_t nb_cuda_mla_codes_scratch(const nb_record *r, size_t n_head, size_t n_row)
{
    (void)r, (void)n_head, (void)n_row;
    return 0;
}

void nb_cuda_mla_codes(nb_cuda *g, const nb_cuda_mla_args *a)
{
    if (a->max_item) launch_record(g, a);
}
