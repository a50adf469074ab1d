/* mla_tail.cuh - what both forms of mla_tail share: finding a query's rows, and ending a launch. */
#ifndef NB_KERNEL_CUDA_SM80_MLA_TAIL_CUH
#define NB_KERNEL_CUDA_SM80_MLA_TAIL_CUH
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/sm80/mla_tile.cuh"

/* Ends a kernel that ran beside the one over pages, so that waiting for this kernel means waiting for both.  Only now
 * may the next kernel's blocks start: earlier, they would gather on the few SMs that have no page left (4 sequences of
 * 131,072 tokens: 20 us). */
__device__ inline void nb_tail_end_beside()
{
    nb_grid_wait();
    nb_grid_next();
}

/* A query's rows, [n_vis][n], and how many it sees: 1 to 64. */
struct nb_tail_source {
    const float *rows;
    uint32_t n_vis;
};

__device__ inline nb_tail_source nb_tail_source_of(const nb_cuda_mla_args &a, uint32_t row,
                                                   uint32_t chunk, uint32_t n)
{
    const nb_cuda_chunk c = a.cache.chunk[chunk];
    const uint32_t pos = c.pos0 + (row - c.row0), page = pos / NB_PAGE_TOK;
    nb_tail_source s = { c.tail + a.cache.tail_off, pos % NB_PAGE_TOK + 1 };
    if (c.own) s.rows = c.own + (size_t)(page - c.pos0 / NB_PAGE_TOK) * NB_PAGE_TOK * n;
    return s;
}

/* Stores tokens [t0, t0 + n_tok), of any shape, as BF16, and with LO also what BF16 leaves; rows from n_vis on are 0.
 * Called by all threads of the block. */
template <bool LO>
__device__ void nb_tail_fill(const float *rows, uint32_t t0, uint32_t n_tok, uint32_t n_vis,
                             const nb_mt_shape &d, uint16_t *tile)
{
    for (uint32_t e = threadIdx.x; e < n_tok * d.k / 2; e += blockDim.x) {
        const uint32_t t = e / (d.k / 2), c = 2 * (e % (d.k / 2));
        const float *row = t0 + t < n_vis ? rows + (size_t)(t0 + t) * (d.lora + d.d_rope) : nullptr;
        uint16_t *to = tile + t * d.stride + c;
        uint32_t h, l;
        nb_mt_split(nb_mt_q(d, row, c), nb_mt_q(d, row, c + 1), h, l);
        *reinterpret_cast<uint32_t *>(to) = h;
        if (LO) *reinterpret_cast<uint32_t *>(to + NB_MT_TOK * d.stride) = l;
    }
}

/* The form for many heads (mla_tail_many.cu); does not support f32 records. */
void nb_cuda_mla_tail_many(nb_cuda *g, const nb_cuda_mla_args *a);

#endif
