/* mla_state.cuh - joining the states of absorbed attention: the one arithmetic that all kernels use.
 *
 * A state is (m, l, o), nb_cuda_ops.h.  States are joined one after the other in order of position,
 * the earlier one left:
 *   m = max(m0, m1);  x = x0 * 2^(m0 - m) + x1 * 2^(m1 - m)   for l and every element of o,
 * with the second product fused and nothing else contracted, so that a kernel that joins the units
 * where it computed them gives the bits of mla_combine.  An empty state (m = -inf) changes nothing, and
 * its l and o are not read.  A NaN in either stays: max ignores it, the factor becomes NaN.  So that a
 * state of nothing but NaN is not taken for an empty one, who writes states writes nb_mla_state_m(m). */
#ifndef NB_KERNEL_CUDA_COMMON_MLA_STATE_CUH
#define NB_KERNEL_CUDA_COMMON_MLA_STATE_CUH
#include "kernel/cuda/common/ptx.cuh"

__device__ inline float nb_mla_state_m(float m)
{
    return m == -INFINITY ? NAN : m;
}

struct nb_mla_merge {
    float m, a, b;      /* the joint m; factors of the earlier and of the later state */
    bool first, second; /* only the earlier, only the later counts: the other is empty */
};

__device__ inline nb_mla_merge nb_mla_merge_of(float m0, float m1)
{
    nb_mla_merge f;
    f.first = m1 == -INFINITY;
    f.second = m0 == -INFINITY && !f.first;
    f.m = f.first ? m0 : f.second ? m1 : fmaxf(m0, m1);
    f.a = nb_exp2(m0 - f.m);
    f.b = nb_exp2(m1 - f.m);
    return f;
}

/* l, or an element of o.  Where f.first or f.second, the other argument may be anything. */
__device__ inline float nb_mla_merged(const nb_mla_merge &f, float x0, float x1)
{
    const float x = __fmaf_rn(x1, f.b, __fmul_rn(x0, f.a));
    return f.first ? x0 : f.second ? x1 : x;
}

#endif
