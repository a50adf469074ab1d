/* linear_wgmma_fp8.cu - y = W x for prompts on Hopper, FP8 weights with block scales: kernel variant "wgmma" of linear
 * and experts.
 *
 * For each block of 128 columns: total += scale[row] * (W_block x_block), as linear_tile.cu does for prompts.  x is
 * one BF16 part or two (hi + lo); within 128 columns, hi and lo of 16 columns alternate.  Smaller tiles (64 or 32
 * tokens, or half as many rows) keep this order, so the tile size changes no bit.
 *
 * Tile of a block: 256 rows of weights (128 of gate and 128 of up) x 128 tokens, both parts of x.
 *   2 consumers  multiply.  A warpgroup owns two tiles of 64 rows and does 128 columns of one after the other in one
 *                set of accumulators: 64 registers of products and 128 of sums.  Two sets of either would not fit.
 *   1 producer   fills two rings in shared memory by cp.async:
 *                  weights  128 rows x 128 columns of codes, their scales and their tile: 16 KB, three stages
 *                  x        64 columns: 32 KB, five stages; a stage is released after the second 64-row tile
 * Weights are the A operand, from registers.  A lane reads its codes two at a time: rows g and g + 8, columns 2t and 8
 * further on.  wgmma fixes that order of columns, since x lies in shared memory as it came.  Widening takes 4 loads and
 * 20 instructions per 16 columns, for which the tensor cores need 256 cycles.
 *
 * Blocks are persistent: while one tile's result is written, through 1.25 KB per warp, the next tile's operands load.
 * If the last wave would fill at most half of the device, it is cut into tiles of 128 rows.
 *
 * H100, two parts, 8192 tokens; us (TFLOP/s with both parts counted).  mma_prompt and BF16 by linear_wgmma.cu are from
 * the same run:
 *                                              this         mma_prompt   BF16
 *   3072 x 2048                               349 (590)        798        359
 *   2048 x 2816                               315 (601)        717        324
 *   576 x 2048                                 97              182        141
 *   64 experts 2048 x 1408, top 6, gate, up  2056 (532)       4353       2349
 *   the same, down                           1079 (526)       2361       1139
 *
 * What bounds it: the tensor cores are busy for 0.60 of the cycles, shared memory for 0.50, issue slots for 0.35.  x
 * costs the most bytes: 24 per cycle and SM from the L2 (linear_wgmma.cu: 32); with tiles of 128 rows it would be 40.
 * Without any conversion it takes 8 % less time, so conversion is not the limit.  Probably the limit is the single
 * chain of m64n128k16 per warpgroup; there are no registers for n256.
 *
 * Tried and no faster: the two warpgroups half a block of columns apart; two steps of 16 columns between two waits;
 * codes read one step ahead or two. */
#include "kernel/cuda/sm90/linear_wgmma_ring.cuh"

namespace
{
using namespace lin;

/* Reads the codes of 16 columns, two per register: rows g and g + 8, columns 2t, 2t + 1 and the same + 8. */
__device__ inline void codes(uint32_t (&raw)[4], uint32_t at)
{
    raw[0] = load_u16(at);
    raw[1] = load_u16(at + 1024);
    raw[2] = load_u16(at + 8);
    raw[3] = load_u16(at + 1032);
}

/* Widens E4M3 codes to BF16 pairs, as nb_lin_e4m3 does. */
__device__ inline void operands(uint32_t (&a)[4], const uint32_t (&raw)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t wide = __byte_perm(raw[i], 0, 0x1404);
        a[i] = mul_bf16x2((wide & 0x80008000u) | (wide >> 4 & 0x07f007f0u), 0x7b807b80u);
    }
}

struct fp8 : e4m3_rows {
    /* total += the rows' scales times the products of 128 columns, for a tile of 64 rows.  FIRST: wait for x.  last:
 * release x.  Codes are read two steps of 16 columns ahead and widened one step ahead.  Nothing that waits may stand
 * between the products of hi and of lo. */
    template <class S, bool FIRST>
    static __device__ inline void multiply(float (&total)[S::ACC], float (&acc)[S::ACC],
                                           const plan<S> &s, const nb_lin &, uint32_t slot,
                                           place<S::X_STAGES> x, uint32_t, bool last)
    {
        const uint32_t tid = threadIdx.x - GROUP, lane = tid % 32, g = lane / 4, t = lane % 4;
        const uint32_t row = tid / 32 * 16 + g; /* among the stage's 128 */
        const uint32_t w = nb_smem(s.w) + slot * S::W_BYTES + row * 128 + (g << 4) + t * 2;
        uint32_t raw[2][4], a[2][4];
        codes(raw[0], w);
        codes(raw[1], w ^ 16);
        const uint32_t x0 = x.i;
        place<S::X_STAGES> x1 = x;
        x1.next();
        if (FIRST) {
            nb_mbar_wait(s.x_full(x0), x.phase);
            nb_mbar_wait(s.x_full(x1.i), x1.phase);
            nb_fence_async();
        }
        operands(a[0], raw[0]);
        const uint32_t at[2] = { descriptor_low(nb_smem(s.x) + x0 * S::X_BYTES),
                                 descriptor_low(nb_smem(s.x) + x1.i * S::X_BYTES) };
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const uint32_t b = at[k / 4] + k % 4 * 2;
            nb_wg_fence();
            wgmma<S::BN>(acc, a[k % 2], descriptor(b), k != 0);
            if (S::TWO) wgmma<S::BN>(acc, a[k % 2], descriptor(b + S::PART_BYTES / 16), 1);
            nb_wg_commit();
            if (k < 6) codes(raw[k % 2], w ^ ((k + 2) << 4));
            if (k < 7) {
                nb_wg_wait<1>();
                operands(a[(k + 1) % 2], raw[(k + 1) % 2]);
            }
            /* the products of the first 64 columns have finished */
            if (k == 4 && lane == 0 && last) nb_mbar_arrive(s.x_free(x0));
        }
        const float *planes = reinterpret_cast<const float *>(s.planes) + slot * W_ROWS + row;
        const float scale[2] = { planes[0], planes[8] };
        nb_wg_wait<0>();
        nb_wg_hold(acc);
        __syncwarp();
        if (lane == 0) {
            nb_mbar_arrive(s.w_free(slot));
            if (last) nb_mbar_arrive(s.x_free(x1.i));
        }
#pragma unroll
        for (int i = 0; i < S::ACC; i++) total[i] = __fmaf_rn(scale[i >> 1 & 1], acc[i], total[i]);
    }
};

/* Chooses the tile with the least estimated time; all give the same bits. */
template <bool GLU, bool TWO> void launch(nb_cuda *g, const nb_lin &j, size_t n_batch, size_t n)
{
    typedef shape<fp8, GLU, TWO, (GLU ? 2 : 1), 32, 8, (TWO ? 8 : 12)> small;
    typedef shape<fp8, GLU, TWO, (GLU ? 2 : 1), 64, 6, (TWO ? 6 : 10)> middle;
    typedef shape<fp8, GLU, TWO, 2, 128, 3, (TWO ? 5 : 9)> large;
    /* Measured with 2,048 columns.  Unit: 100 is 19 us (GLU: 44 us). */
    const size_t s = time_of<small>(g, j, n_batch, n, 75, 0);
    const size_t m = time_of<middle>(g, j, n_batch, n, 100, 0);
    const size_t l = time_of<large>(g, j, n_batch, n, GLU ? 150 : 275, 150);
    if (s < m && s < l)
        ring_launch<small>(g, j, n_batch);
    else if (m < l)
        ring_launch<middle>(g, j, n_batch);
    else
        ring_launch<large>(g, j, n_batch);
}
} // namespace

void nb_lin_wgmma_fp8(nb_cuda *g, const nb_lin &j, bool glu, size_t n_batch, size_t n)
{
    if (glu && j.x.lo)
        launch<true, true>(g, j, n_batch, n);
    else if (glu)
        launch<true, false>(g, j, n_batch, n);
    else if (j.x.lo)
        launch<false, true>(g, j, n_batch, n);
    else
        launch<false, false>(g, j, n_batch, n);
}
