/* linear_wgmma_a8.cu - y = W x for prompts on Hopper, FP8 weights times activations in FP8: the rows "wgmma_codes" of linear
 * and experts.
 *
 * x is E4M3 codes with a scale per token and 128 columns, W with a scale per 128 x 128 or per row.  Both are operands of
 * wgmma as they lie in shared memory; nothing is widened.  The tensor cores add 32 products at a time with 13 bits behind
 * the largest, so a sum stays in them for 128 columns only: then it is multiplied by both scales and added to a float
 * (as DeepGEMM does).
 *
 * Tiles and rings are those of linear_wgmma_ring.cuh: 256 rows of weights x 128 tokens, two consumer warpgroups.  While one
 * adds a sum, the products of the other run.
 *
 * H100, 4,096 tokens, making the codes included; us (TFLOP/s); BF16 weights and activations by cuBLASLt and linear_wgmma.cu
 * from the same run:
 *                                                this         linear_wgmma_fp8.cu, one part    BF16
 *   3072 x 2048                               107 (481)          127 (407)                 77 (667)
 *   2048 x 7168                               244 (493)          275 (438)                151 (794)
 *   102400 x 2048                            3284 (523)         4544 (378)               2612 (658)
 *   64 experts 1408 x 2048, top 6            1016 (419)         1294 (329)               1235 (344)
 *   64 experts 2048 x 7168, top 6            4085 (530)         5600 (387)               5955 (364)
 * So it is faster than what widens, and for experts than BF16, but not than cuBLASLt in BF16 (1.4 times was wanted).
 *
 * What bounds it: a tile takes 48 KB from the L2 for each 1,024 cycles of products, and a warpgroup waits for its products
 * before it adds their sum.  Not tried: tensor copies instead of cp.async, weights shared by the blocks of a cluster, the next
 * sum's products issued before this one is added. */
#include "kernel/cuda/sm90/linear_wgmma_ring.cuh"

namespace lin
{
struct a8;
template <> struct x_rows<a8> {
    static const int PER_BLOCK = 1, PLANE_ROW = 4;
};

/* d (+)= 64 rows of a times N tokens of b, both codes in shared memory, over 32 columns. */
template <int N> __device__ void wgmma_e4m3(float (&d)[N / 2], uint64_t a, uint64_t b, int add);
template <> __device__ inline void wgmma_e4m3<128>(float (&d)[64], uint64_t a, uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {" NB_WG_64 "}, "
                 "%64, %65, p, 1, 1;\n}"
                 : NB_WG_ACC_64(d)
                 : "l"(a), "l"(b), "r"(add));
}
template <> __device__ inline void wgmma_e4m3<64>(float (&d)[32], uint64_t a, uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {" NB_WG_32 "}, "
                 "%32, %33, p, 1, 1;\n}"
                 : NB_WG_ACC_32(d)
                 : "l"(a), "l"(b), "r"(add));
}
template <> __device__ inline void wgmma_e4m3<32>(float (&d)[16], uint64_t a, uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3 {" NB_WG_16 "}, "
                 "%16, %17, p, 1, 1;\n}"
                 : NB_WG_ACC_16(d)
                 : "l"(a), "l"(b), "r"(add));
}

struct a8 : e4m3_rows {
    /* total += the scales of rows and tokens times the products of 128 columns, for a tile of 64 rows. */
    template <class S, bool FIRST>
    static __device__ inline void multiply(float (&total)[S::ACC], float (&acc)[S::ACC],
                                           const plan<S> &s, const nb_lin &, uint32_t slot,
                                           place<S::X_STAGES> x, uint32_t, bool last)
    {
        const uint32_t tid = threadIdx.x - GROUP, lane = tid % 32, g = lane / 4, t = lane % 4;
        if (FIRST) {
            nb_mbar_wait(s.x_full(x.i), x.phase);
            nb_fence_async();
        }
        const uint32_t w = descriptor_low(nb_smem(s.w) + slot * S::W_BYTES + tid / 128 * 64 * 128);
        const uint32_t b = descriptor_low(nb_smem(s.x) + x.i * S::X_BYTES);
        nb_fence_async(); /* the weights came by cp.async, too */
        nb_wg_fence();
#pragma unroll
        for (int k = 0; k < 4; k++)
            wgmma_e4m3<S::BN>(acc, descriptor(w + k * 2), descriptor(b + k * 2), k != 0);
        nb_wg_commit();
        const float *planes = reinterpret_cast<const float *>(s.planes) + slot * W_ROWS + tid / 32 * 16 + g;
        const float scale[2] = { planes[0], planes[8] };
        const float2 *tok = reinterpret_cast<const float2 *>(s.x_planes) + (x.i * S::BN + 2 * t) / 2;
        nb_wg_wait<0>();
        nb_wg_hold(acc);
#pragma unroll
        for (int n = 0; n < S::BN / 8; n++) {
            const float2 f = tok[n * 4];
            total[n * 4] = __fmaf_rn(__fmul_rn(scale[0], f.x), acc[n * 4], total[n * 4]);
            total[n * 4 + 1] = __fmaf_rn(__fmul_rn(scale[0], f.y), acc[n * 4 + 1], total[n * 4 + 1]);
            total[n * 4 + 2] = __fmaf_rn(__fmul_rn(scale[1], f.x), acc[n * 4 + 2], total[n * 4 + 2]);
            total[n * 4 + 3] = __fmaf_rn(__fmul_rn(scale[1], f.y), acc[n * 4 + 3], total[n * 4 + 3]);
        }
        __syncwarp();
        if (lane == 0) {
            nb_mbar_arrive(s.w_free(slot));
            if (last) nb_mbar_arrive(s.x_free(x.i));
        }
    }
};
} // namespace lin

namespace
{
using namespace lin;

/* Chooses the tile with the least estimated time; all give the same bits.  Units as in linear_wgmma_fp8.cu. */
template <bool GLU> void launch(nb_cuda *g, const nb_lin &j, size_t n_batch, size_t n)
{
    typedef shape<a8, GLU, false, (GLU ? 2 : 1), 32, 8, 12> small;
    typedef shape<a8, GLU, false, (GLU ? 2 : 1), 64, 6, 8> middle;
    typedef shape<a8, GLU, false, 2, 128, 6, 5> large;
    const size_t s = time_of<small>(g, j, n_batch, n, 60, 0);
    const size_t m = time_of<middle>(g, j, n_batch, n, 70, 0);
    const size_t l = time_of<large>(g, j, n_batch, n, GLU ? 100 : 150, 100);
    if (s < m && s < l)
        ring_launch<small>(g, j, n_batch);
    else if (m < l)
        ring_launch<middle>(g, j, n_batch);
    else
        ring_launch<large>(g, j, n_batch);
}
} // namespace

bool nb_cuda_linear_wgmma_codes_can(nb_wtype type, size_t n_out, size_t n_col, bool two_parts)
{
    (void)two_parts;
    return n_out && type == NB_W_FP8B && nb_lin_mma_can(type, n_col);
}

void nb_cuda_linear_wgmma_codes(nb_cuda *g, const nb_cuda_linear_args *a)
{
    if (a->n_tok && a->n_out) launch<false>(g, nb_lin_of(a), 1, a->n_tok);
}

bool nb_cuda_experts_wgmma_codes_can(nb_wtype type, size_t n_out, size_t n_col)
{
    return nb_cuda_linear_wgmma_codes_can(type, n_out, n_col, false);
}

void nb_cuda_experts_wgmma_codes(nb_cuda *g, const nb_cuda_experts_args *a)
{
    if (!a->n_place || !a->n_out || !a->n_expert) return;
    const size_t n = a->n_place / a->n_expert;
    if (a->up.data)
        launch<true>(g, nb_lin_of(a), 1, n);
    else
        launch<false>(g, nb_lin_of(a), 1, n);
}
