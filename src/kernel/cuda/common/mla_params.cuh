/* mla_params.cuh - parameters of the absorbed-attention kernels that apply code units and scales to the scores.  The
 * host computes them once from the operation's arguments. */
#ifndef NB_KERNEL_CUDA_COMMON_MLA_PARAMS_CUH
#define NB_KERNEL_CUDA_COMMON_MLA_PARAMS_CUH
#include "kernel/cuda/common/ops.cuh"

struct nb_mla_params {
    const unsigned char *page; /* page of block 0, in this layer */
    size_t block_bytes;
    const uint32_t *block;
    const nb_cuda_chunk *chunk;
    const nb_cuda_item *item;
    const uint32_t *n_item, *part_first;
    const float *q;
    size_t q_stride, q_head;
    float *part_o, *part_m, *part_l;
    uint32_t n_head;
    float k;       /* factor from scores to exponents of 2: scale, log2(e), the latent's unit */
    float rope_k;  /* the rope key's unit, in units of the latent's */
    float o_scale; /* the latent's unit */
};

/* unit (not an attention unit): the kernel's latent values times this are the codes times their scales. */
static inline nb_mla_params nb_mla_params_of(const nb_cuda_mla_args *a, float unit)
{
    const float fixed[2] = { a->cache.record.seg[0].fixed_scale,
                             a->cache.record.seg[1].fixed_scale }; /* 0: none */
    nb_mla_params p;
    unit *= fixed[0] != 0 ? fixed[0] : 1;
    p.page = a->cache.pool + a->cache.layer_off, p.block_bytes = a->cache.block_bytes;
    p.block = a->cache.block, p.chunk = a->cache.chunk;
    p.item = a->item, p.n_item = a->n_item, p.part_first = a->part_first;
    p.q = a->q, p.q_stride = a->q_stride, p.q_head = a->q_head;
    p.part_o = a->part_o, p.part_m = a->part_m, p.part_l = a->part_l;
    p.n_head = (uint32_t)a->n_head;
    p.k = a->scale * 1.44269504088896341f * unit;
    p.rope_k = (fixed[1] != 0 ? fixed[1] : 1) / unit;
    p.o_scale = unit;
    return p;
}

#endif
