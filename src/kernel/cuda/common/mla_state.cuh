/* mla_state.cuh - combines partial states of absorbed attention; all kernels use this one arithmetic.
 *
 * A state is (m, l, o), see nb_cuda_ops.h.  A unit is a fixed range of pages whose attention is one such state.
 * States are combined one after the other in order of position, with the earlier one on the left:
 *   m = max(m0, m1);  x = x0 * 2^(m0 - m) + x1 * 2^(m1 - m)   for l and every element of o,
 * with the second product fused and nothing else contracted.  So a kernel that combines the units it has computed gives
 * the bits of mla_combine.
 *
 * A factor below 2^-40 counts as 0: what it scales is below the last bit of l.  So a kernel whose references m are
 * multiples of 32 has exact factors 1, 2^-32 and 0, and may leave the sum of o to memory (mla_many.cu).
 *
 * An empty state (m = -inf) changes nothing, and its l and o are not read.  NaN propagates: max ignores it, but the
 * factor becomes NaN.  A state made only of NaN must not look empty, so kernels store nb_mla_state_m(m). */
#ifndef NB_KERNEL_CUDA_COMMON_MLA_STATE_CUH
#define NB_KERNEL_CUDA_COMMON_MLA_STATE_CUH
#include "kernel/cuda/common/ptx.cuh"

__device__ inline float nb_mla_state_m(float m)
{
    return m == -INFINITY ? NAN : m;
}

struct nb_mla_merge {
    float m, a, b;      /* the common m; factors of the earlier and the later state */
    bool first, second; /* only the earlier, or only the later, state counts: the other is empty */
};

__device__ inline float nb_mla_factor(float d)
{
    return d < -40 ? 0 : nb_exp2(d);
}

__device__ inline nb_mla_merge nb_mla_merge_of(float m0, float m1)
{
    nb_mla_merge f;
    f.first = m1 == -INFINITY;
    f.second = m0 == -INFINITY && !f.first;
    f.m = f.first ? m0 : f.second ? m1 : fmaxf(m0, m1);
    f.a = nb_mla_factor(m0 - f.m);
    f.b = nb_mla_factor(m1 - f.m);
    return f;
}

/* Combines l, or an element of o.  With f.first or f.second the other argument may be anything. */
__device__ inline float nb_mla_merged(const nb_mla_merge &f, float x0, float x1)
{
    const float x = __fmaf_rn(x1, f.b, __fmul_rn(x0, f.a));
    return f.first ? x0 : f.second ? x1 : x;
}

#endif
