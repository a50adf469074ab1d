/* mla_mma.cu - a first dense MLA decode kernel over nvfp4 pages (354 bytes per token) on Hopper.
 *
 *   nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -o mla_mma mla_mma.cu && ./mla_mma
 *
 * 16 heads are exactly the M of mma.sync.m16n8k16, so no row of the tensor cores is wasted and no
 * wgmma is needed.  A block of 4 warps takes one unit of 16 pages of one request; warp w owns the
 * latent dimensions [128 w, 128 w + 128) for scores and for values:
 *   - one bulk copy fetches a page, which is contiguous; STAGES pages are in flight;
 *   - lane (g, t) of a warp turns 32 codes of token g into 16 registers of two fp16 (three integer
 *     operations a pair, one multiplication with the block scale): exact, and at once the B operand
 *     of Q K^T (dimensions are permuted in Q instead);
 *   - the warps exchange partial scores of 16 tokens in shared memory; every warp computes the softmax;
 *   - the same registers, transposed by movmatrix, are the B operand of P V: codes are decoded once.
 * The outer scale 2^o of a token goes to its score and its weight, in float: w = 2^(s + o - M) with
 * M the largest of those exponents, so that fp16 weights neither overflow nor lose what counts.
 *
 * It is checked against double on the CPU, and timed from graphs over 2 GiB of pages, so that L2 never
 * holds what is read.  README.md has the results. */
#include "mla_common.cuh"

#ifndef STAGES
#define STAGES 3
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 2
#endif
constexpr int SMEM_X = 4 * 4 * 32 * 8 * 4; // partial scores: 4 buffers, 4 warps, 32 lanes, 8 floats
constexpr int SMEM = STAGES * PAGE + SMEM_X + 128, THREADS = 128;
#define KERNEL mla_split

struct State {
    float o[16][4], m0, m1, l0, l1;
};

// Decodes 16 tokens of this warp's dimensions into kv and leaves its partial scores in x.
__device__ inline void scores(const unsigned char *page, int w, int lane, int k0,
                              const uint32_t (&qa)[9][4], uint32_t (&kv)[2][16], float4 *x,
                              uint32_t bar)
{
    const int g = lane / 4, t = lane % 4;
    float s[2][4];
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const int tok = k0 + 8 * j + g;
        const uint4 c = *(const uint4 *)(page + tok * 256 + 64 * w + 16 * t);
        const uint32_t sc = *(const unsigned short *)(page + OFF_SCALE + tok * 32 + 8 * w + 2 * t);
        uint32_t s0, s1;
        scales(sc, s0, s1);
        eight(c.x, s0, &kv[j][0]);
        eight(c.y, s0, &kv[j][4]);
        eight(c.z, s1, &kv[j][8]);
        eight(c.w, s1, &kv[j][12]);
        float acc[4] = { 0, 0, 0, 0 }, acc2[4] = { 0, 0, 0, 0 }, rop[4] = { 0, 0, 0, 0 };
#pragma unroll
        for (int i = 0; i < 4; i++) {
            mma(acc, qa[2 * i], kv[j][4 * i], kv[j][4 * i + 1]);
            mma(acc2, qa[2 * i + 1], kv[j][4 * i + 2], kv[j][4 * i + 3]);
        }
        const uint32_t rc =
            *(const uint32_t *)(page + OFF_ROPE + tok * 64 + 16 * w + 4 * t) ^ 0x80808080u;
        __half2 r0, r1; // 1024 + byte, less 1152
        *(uint32_t *)&r0 = __byte_perm(rc, 0x64646464u, 0x4140);
        *(uint32_t *)&r1 = __byte_perm(rc, 0x64646464u, 0x4342);
        const __half2 off = __floats2half2_rn(1152.f, 1152.f);
        r0 = __hsub2(r0, off);
        r1 = __hsub2(r1, off);
        mma(rop, qa[8], *(uint32_t *)&r0, *(uint32_t *)&r1);
        // Outer scales of this lane's two columns.
        const unsigned oo = *(const unsigned short *)(page + OFF_OUT + k0 + 8 * j + 2 * t);
        const unsigned ro = *(const unsigned short *)(page + OFF_ROUT + k0 + 8 * j + 2 * t);
        const float f0 = __int_as_float((oo & 255) << 23), f1 = __int_as_float((oo >> 8) << 23);
        const float e0 = __int_as_float((ro & 255) << 23), e1 = __int_as_float((ro >> 8) << 23);
        s[j][0] = (acc[0] + acc2[0]) * f0 + rop[0] * e0;
        s[j][1] = (acc[1] + acc2[1]) * f1 + rop[1] * e1;
        s[j][2] = (acc[2] + acc2[2]) * f0 + rop[2] * e0;
        s[j][3] = (acc[3] + acc2[3]) * f1 + rop[3] * e1;
    }
    x[w * 64 + lane] = make_float4(s[0][0], s[0][1], s[0][2], s[0][3]);
    x[w * 64 + 32 + lane] = make_float4(s[1][0], s[1][1], s[1][2], s[1][3]);
    __syncwarp();
    if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

__device__ inline float ex2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Softmax of 16 tokens and their values.
__device__ inline void values(const unsigned char *page, int lane, int k0, uint32_t (&kv)[2][16],
                              const float4 *x, uint32_t bar, int parity, float scale, State &z)
{
    const int t = lane % 4;
    float e[2][4], u[2][2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const unsigned oo = *(const unsigned short *)(page + OFF_OUT + k0 + 8 * j + 2 * t);
        u[j][0] = (float)((int)(oo & 255) - 127);
        u[j][1] = (float)((int)(oo >> 8) - 127);
    }
    mbar_wait(bar, parity);
#pragma unroll
    for (int j = 0; j < 2; j++) {
        float4 v = x[32 * j + lane];
#pragma unroll
        for (int i = 1; i < 4; i++) {
            const float4 y = x[i * 64 + 32 * j + lane];
            v.x += y.x, v.y += y.y, v.z += y.z, v.w += y.w;
        }
        e[j][0] = fmaf(v.x, scale, u[j][0]);
        e[j][1] = fmaf(v.y, scale, u[j][1]);
        e[j][2] = fmaf(v.z, scale, u[j][0]);
        e[j][3] = fmaf(v.w, scale, u[j][1]);
    }
    float n0 = fmaxf(fmaxf(e[0][0], e[0][1]), fmaxf(e[1][0], e[1][1]));
    float n1 = fmaxf(fmaxf(e[0][2], e[0][3]), fmaxf(e[1][2], e[1][3]));
    if (__any_sync(~0u, n0 > z.m0 || n1 > z.m1)) {
        n0 = fmaxf(n0, __shfl_xor_sync(~0u, n0, 1));
        n1 = fmaxf(n1, __shfl_xor_sync(~0u, n1, 1));
        n0 = fmaxf(n0, __shfl_xor_sync(~0u, n0, 2));
        n1 = fmaxf(n1, __shfl_xor_sync(~0u, n1, 2));
        n0 = fmaxf(n0, z.m0);
        n1 = fmaxf(n1, z.m1);
        const float c0 = ex2(z.m0 - n0), c1 = ex2(z.m1 - n1);
        z.m0 = n0;
        z.m1 = n1;
        z.l0 *= c0;
        z.l1 *= c1;
#pragma unroll
        for (int r = 0; r < 16; r++) {
            z.o[r][0] *= c0, z.o[r][1] *= c0;
            z.o[r][2] *= c1, z.o[r][3] *= c1;
        }
    }
    uint32_t pa[4];
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const float w0 = ex2(e[j][0] - z.m0), w1 = ex2(e[j][1] - z.m0);
        const float w2 = ex2(e[j][2] - z.m1), w3 = ex2(e[j][3] - z.m1);
        const float i0 = ex2(-u[j][0]), i1 = ex2(-u[j][1]);
        z.l0 += w0 * i0 + w1 * i1;
        z.l1 += w2 * i0 + w3 * i1;
        pa[2 * j] = pack(w0, w1);
        pa[2 * j + 1] = pack(w2, w3);
    }
#pragma unroll
    for (int r = 0; r < 16; r++) mma(z.o[r], pa, transpose(kv[0][r]), transpose(kv[1][r]));
}

__global__ void __launch_bounds__(128, MIN_BLOCKS) mla_split(Args a)
{
    extern __shared__ __align__(128) unsigned char smem[];
    float4 *xch = (float4 *)(smem + STAGES * PAGE);
    uint64_t *bar = (uint64_t *)(smem + STAGES * PAGE + SMEM_X);
    const int tid = threadIdx.x, w = tid / 32, lane = tid % 32, g = lane / 4, t = lane % 4;
    const int unit = blockIdx.x, req = a.unit_req[unit], p0 = a.unit_page[unit];
    const int n_page = min(UNIT, a.len[req] / TOK - p0);
    const int *table = a.table + (size_t)req * a.max_page + p0;
    const uint32_t base = smem_u32(smem), bars = smem_u32(bar);
    if (tid == 0) {
        for (int s = 0; s < STAGES; s++) mbar_init(bars + 8 * s, 1);
        for (int s = 0; s < 4; s++) mbar_init(bars + 8 * (STAGES + s), 4);
        asm volatile("fence.mbarrier_init.release.cluster;");
        for (int s = 0; s < STAGES && s < n_page; s++) {
            mbar_expect(bars + 8 * s, PAGE);
            bulk(base + s * PAGE, a.pool + (size_t)table[s] * PAGE, PAGE, bars + 8 * s);
        }
    }
    // Q: 8 latent steps and one rope step of this warp's dimensions, rows g and g + 8.  Step 2 i
    // has the codes (1,3 | 5,7) of word i of lane t, step 2 i + 1 (0,2 | 4,6).
    uint32_t qa[9][4];
    {
        const float *q0 = a.q + ((size_t)req * H + g) * (D + R), *q1 = q0 + 8 * (D + R);
        for (int s = 0; s < 8; s++) {
            const int d = 128 * w + 32 * t + 8 * (s / 2) + (s % 2 ? 0 : 1);
            qa[s][0] = pack(q0[d], q0[d + 2]);
            qa[s][1] = pack(q1[d], q1[d + 2]);
            qa[s][2] = pack(q0[d + 4], q0[d + 6]);
            qa[s][3] = pack(q1[d + 4], q1[d + 6]);
        }
        const int d = D + 16 * w + 4 * t;
        qa[8][0] = pack(q0[d], q0[d + 1]);
        qa[8][1] = pack(q1[d], q1[d + 1]);
        qa[8][2] = pack(q0[d + 2], q0[d + 3]);
        qa[8][3] = pack(q1[d + 2], q1[d + 3]);
    }
    State z;
    for (int r = 0; r < 16; r++)
        for (int i = 0; i < 4; i++) z.o[r][i] = 0;
    z.m0 = z.m1 = -INFINITY;
    z.l0 = z.l1 = 0;
    __syncthreads();
    // Scores of step k + 1 are computed while those of step k travel.  Four buffers suffice: a warp that
    // writes buffer k + 4 has seen every warp's scores of k + 2, which were written after reading buffer k.
    const uint32_t xb = bars + 8 * STAGES;
    uint32_t kv0[2][16], kv1[2][16];
    mbar_wait(bars, 0);
    scores(smem, w, lane, 0, qa, kv0, xch, xb);
    for (int p = 0; p < n_page; p++) {
        const int st = p % STAGES, par = p & 1;
        const unsigned char *page = smem + st * PAGE;
        scores(page, w, lane, 16, qa, kv1, xch + 256, xb + 8);
        values(page, lane, 0, kv0, xch, xb, par, a.scale_log2, z);
        scores(page, w, lane, 32, qa, kv0, xch + 512, xb + 16);
        values(page, lane, 16, kv1, xch + 256, xb + 8, par, a.scale_log2, z);
        scores(page, w, lane, 48, qa, kv1, xch + 768, xb + 24);
        values(page, lane, 32, kv0, xch + 512, xb + 16, par, a.scale_log2, z);
        if (p + 1 < n_page) {
            const int s2 = (p + 1) % STAGES;
            mbar_wait(bars + 8 * s2, (p + 1) / STAGES & 1);
            scores(smem + s2 * PAGE, w, lane, 0, qa, kv0, xch, xb);
        }
        values(page, lane, 48, kv1, xch + 768, xb + 24, par, a.scale_log2, z);
        __syncthreads(); // everyone has read the page
        if (tid == 0 && p + STAGES < n_page) {
            mbar_expect(bars + 8 * st, PAGE);
            bulk(base + st * PAGE, a.pool + (size_t)table[p + STAGES] * PAGE, PAGE, bars + 8 * st);
        }
    }
    float l0 = z.l0, l1 = z.l1, m0 = z.m0, m1 = z.m1;
    float(&o)[16][4] = z.o;
    l0 += __shfl_xor_sync(~0u, l0, 1);
    l1 += __shfl_xor_sync(~0u, l1, 1);
    l0 += __shfl_xor_sync(~0u, l0, 2);
    l1 += __shfl_xor_sync(~0u, l1, 2);
    const int out = a.unit_out[unit];
    float *po = a.part_o + (size_t)out * H * D;
#pragma unroll
    for (int r = 0; r < 16; r++) {
        // register r of word r/4: codes (1,3) (5,7) (0,2) (4,6)
        const int d = 128 * w + 32 * t + 8 * (r / 4) + (r % 4 < 2 ? 1 : 0) + r % 2 * 4;
        po[g * D + d] = o[r][0];
        po[g * D + d + 2] = o[r][1];
        po[(g + 8) * D + d] = o[r][2];
        po[(g + 8) * D + d + 2] = o[r][3];
    }
    if (w == 0 && t == 0) {
        a.part_m[out * H + g] = m0;
        a.part_m[out * H + g + 8] = m1;
        a.part_l[out * H + g] = l0;
        a.part_l[out * H + g + 8] = l1;
    }
}

#define EXTRA_SETUP
#define LAUNCH mla_split<<<nu, THREADS, SMEM, st>>>(a);
#include "mla_host.cuh"

int main()
{
    return run();
}
