/* mla_wgmma.cu - dense MLA decode over nvfp4 pages (354 bytes a token), heads on the N side of wgmma.
 *
 *   nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -o mla_wgmma mla_wgmma.cu && ./mla_wgmma
 *
 * With 16 heads on the M side of wgmma three quarters of the tensor cores idle.  Here
 *   S^T [64 tokens x 16 heads] = K Q^T   A from registers: codes become fp16 in the very layout that
 *                                        wgmma wants of A (dimensions permuted, as are Q and O)
 *   O^T [512 dims x 16 heads] += V^T P^T A from shared memory, M-major: the same registers, stored once
 * so a code is decoded once, a page is the M of one product, and nothing is padded.  A block has two
 * warpgroups.  Each takes every second page of its unit and keeps its own O (64 registers per thread);
 * the two are joined at the end.  While one waits for its products, the other decodes.
 * The outer scales go to scores and weights as in mla_mma.cu. */
#include <cuda.h>

#include "mla_common.cuh"

#ifndef CUT
#define CUT 0 // bits: parts to leave out, to measure their cost (results are then wrong)
#endif
constexpr int THREADS = 256, SLOTS = 3;
// A page in shared memory: codes as two halves [64 tokens][128 bytes], 16-byte chunks xor token % 8
// (the copy engine does it), then scales, rope keys and outer scales as they are.
constexpr int SLOT_REST = 16384, SLOT = 23552;
constexpr int Q_BYTES = 9 * 2048, V_BYTES = 65536, P_BYTES = 2048;
constexpr int AT_V = Q_BYTES, AT_P = AT_V + 2 * V_BYTES, AT_SLOT = AT_P + 2 * P_BYTES;
constexpr int AT_MAX = AT_SLOT + SLOTS * SLOT; // [2 groups][2][4 warps][16 heads] floats
constexpr int AT_BAR = AT_MAX + 2 * 2 * 4 * 16 * 4;
constexpr int SMEM = AT_BAR + 64 + 1024; // 1024: the start is aligned by hand
#define KERNEL mla_wg

__device__ inline uint64_t desc(uint32_t addr, uint32_t lbo, uint32_t sbo, uint64_t swizzle)
{
    return (uint64_t)((addr & 0x3ffff) >> 4) | (uint64_t)(lbo >> 4) << 16 |
           (uint64_t)(sbo >> 4) << 32 | swizzle << 62;
}
__device__ inline void wg_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void wg_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int N> __device__ inline void wg_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
// d [64 x 16] += A (registers) B (K-major in shared memory)
__device__ inline void wg_rs(float (&d)[8], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                             uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, "
                 "{%8,%9,%10,%11}, %12, 1, 1, 1, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                   "+f"(d[6]), "+f"(d[7])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}
// d [64 x 16] += A B, both in shared memory, M-major and N-major
__device__ inline void wg_ss(float (&d)[8], uint64_t a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, "
                 "%8, %9, 1, 1, 1, 1, 1;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                   "+f"(d[6]), "+f"(d[7])
                 : "l"(a), "l"(b));
}
__device__ inline void group_sync(int wg)
{
    asm volatile("bar.sync %0, 128;" ::"r"(1 + wg) : "memory");
}
__device__ inline float ex2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__host__ __device__ inline int code_dim(int n, int e) // place of half e of register n of a word's four
{
    return (n < 2 ? 1 : 0) + n % 2 * 4 + 2 * e;
}
__device__ inline void load_page(const Args &a, const CUtensorMap *map, int page, uint32_t dst,
                                 uint32_t bar)
{
    mbar_expect(bar, PAGE);
    for (int i = 0; i < 2; i++)
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(dst + i * 8192),
                     "l"(map), "r"(i * 128), "r"(0), "r"(page), "r"(bar)
                     : "memory");
    bulk(dst + SLOT_REST, a.pool + (size_t)page * PAGE + OFF_SCALE, PAGE - OFF_SCALE, bar);
}
// A slot serves both groups in turn, and each group has its own barrier for it: with one barrier, a group
// that is ahead would mistake the other's phase for its own, because the parity is the same.
__device__ inline uint32_t page_bar(uint32_t bars, int p)
{
    return bars + 8 * (p % SLOTS * 2 + p % 2);
}
// The dimension of half e of register reg (0..7) of lane t in group grp of 64.
__host__ __device__ inline int dim_of(int grp, int t, int reg, int e)
{
    if (grp == 8) return D + 16 * t + 2 * reg + e;
    return 128 * (grp / 2) + 32 * t + 16 * (grp & 1) + reg / 4 * 8 + code_dim(reg % 4, e);
}
// Packs Q as the B operand of S^T: [9 groups of 64 dims][16 heads][128 bytes] in shared memory, 16-byte
// chunks xor head % 8.  One block per request.
__global__ void pack_q(const float *q, uint32_t *out)
{
    q += (size_t)blockIdx.x * H * (D + R);
    out += (size_t)blockIdx.x * (Q_BYTES / 4);
    for (int i = threadIdx.x; i < 9 * 16 * 32; i += blockDim.x) {
        const int grp = i / 512, h = i / 32 % 16, k = i % 32 * 2; // places k, k + 1 of 64
        const int s = k / 16, pos = k % 16, t = pos % 8 / 2, reg = 2 * s + pos / 8;
        out[grp * 512 + h * 32 + (k / 8 ^ h % 8) * 4 + k % 8 / 2] =
            pack(q[h * (D + R) + dim_of(grp, t, reg, 0)], q[h * (D + R) + dim_of(grp, t, reg, 1)]);
    }
}

__global__ void __launch_bounds__(THREADS, 1) mla_wg(Args a, const uint32_t *qp, const __grid_constant__ CUtensorMap map)
{
    extern __shared__ unsigned char raw[];
    unsigned char *smem = raw + (1024 - smem_u32(raw) % 1024) % 1024;
    const int tid = threadIdx.x, wg = tid / 128, w = tid / 32 % 4, lane = tid % 32, g = lane / 4,
              t = lane % 4;
    const int unit = blockIdx.x, req = a.unit_req[unit], p0 = a.unit_page[unit];
    const int n_page = min(UNIT, a.len[req] / TOK - p0);
    const int *table = a.table + (size_t)req * a.max_page + p0;
    const uint32_t base = smem_u32(smem), bars = base + AT_BAR;
    if (tid == 0) {
        for (int s = 0; s < 2 * SLOTS + 1; s++) mbar_init(bars + 8 * s, 1);
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    __syncthreads();
    if (tid == 0) {
        mbar_expect(bars + 16 * SLOTS, Q_BYTES);
        bulk(base, qp + (size_t)req * (Q_BYTES / 4), Q_BYTES, bars + 16 * SLOTS);
        for (int s = 0; s < SLOTS && s < n_page; s++)
            load_page(a, &map, table[s], base + AT_SLOT + s * SLOT, page_bar(bars, s));
    }
    mbar_wait(bars + 16 * SLOTS, 0);

    const uint64_t qd = desc(base, 16, 1024, 1);
    const uint32_t v_at = base + AT_V + wg * V_BYTES, p_at = base + AT_P + wg * P_BYTES;
    const uint64_t vd = desc(v_at, 0, 1024, 1), pd = desc(p_at, 0, 256, 3);
    unsigned char *v = smem + AT_V + wg * V_BYTES, *pt = smem + AT_P + wg * P_BYTES;
    float *mx = (float *)(smem + AT_MAX) + wg * 128;
    float o[8][8], m[4], l[4];
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) o[i][j] = 0;
    for (int j = 0; j < 4; j++) m[j] = -INFINITY, l[j] = 0;
    // Rows of this thread: r0, r0 + 8.  Row g of 8 is token 4 (g % 2) + g / 2, so that the two rows
    // of a quarter warp lie in different halves of the banks.
    const int r0 = 16 * w + g, k0 = 16 * w + ((g & 1) << 2 | g >> 1);
    for (int p = wg; p < n_page; p += 2) {
        const int st = p % SLOTS;
        const unsigned char *slot = smem + AT_SLOT + st * SLOT, *rest = slot + SLOT_REST;
        mbar_wait(page_bar(bars, p), p / (2 * SLOTS) & 1);
        const uint32_t oa = rest[6144 + k0], ob = rest[6144 + k0 + 8];
        const uint32_t ra = rest[6208 + k0], rb = rest[6208 + k0 + 8];
        uint32_t sa[4], sb[4]; // two scales each
#pragma unroll
        for (int i = 0; i < 4; i++) {
            sa[i] = *(const unsigned short *)(rest + k0 * 32 + 8 * i + 2 * t);
            sb[i] = *(const unsigned short *)(rest + k0 * 32 + 256 + 8 * i + 2 * t);
        }
        float s1[8], s2[8];
        group_sync(wg); // the previous page's values are done, so V may be overwritten
        for (int i = 0; i < 8; i++) s1[i] = s2[i] = 0;
        uint32_t ka[2][8], kb[2][8];
        uint4 la[4], lb[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int at = i / 2 * 8192 + (((i & 1) * 4 + t) ^ (k0 & 7)) * 16;
            la[i] = *(const uint4 *)(slot + k0 * 128 + at);
            lb[i] = *(const uint4 *)(slot + k0 * 128 + 1024 + at);
        }
        uint32_t fa0, fa1, fb0, fb1;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const uint4 ga = la[i / 2], gb = lb[i / 2];
            const uint2 ca = i & 1 ? make_uint2(ga.z, ga.w) : make_uint2(ga.x, ga.y);
            const uint2 cb = i & 1 ? make_uint2(gb.z, gb.w) : make_uint2(gb.x, gb.y);
            uint32_t(&x)[8] = ka[i & 1], (&y)[8] = kb[i & 1];
            if (!(i & 1)) scales(sa[i / 2], fa0, fa1), scales(sb[i / 2], fb0, fb1);
            const uint32_t fa = i & 1 ? fa1 : fa0, fb = i & 1 ? fb1 : fb0;
            if (i >= 2) wg_wait<1>(); // these registers were read by the products of i - 2
            if (CUT & 1)
                for (int n = 0; n < 8; n++) x[n] = ca.x ^ fa, y[n] = cb.y ^ fb;
            else {
                eight(ca.x, fa, x), eight(ca.y, fa, x + 4);
                eight(cb.x, fb, y), eight(cb.y, fb, y + 4);
            }
            unsigned char *va = v + i * 8192 + r0 * 128, *vb = va + 1024;
            if (!(CUT & 2)) {
            *(uint4 *)(va + ((2 * t) ^ g) * 16) = make_uint4(x[0], x[1], x[2], x[3]);
            *(uint4 *)(va + ((2 * t + 1) ^ g) * 16) = make_uint4(x[4], x[5], x[6], x[7]);
            *(uint4 *)(vb + ((2 * t) ^ g) * 16) = make_uint4(y[0], y[1], y[2], y[3]);
            *(uint4 *)(vb + ((2 * t + 1) ^ g) * 16) = make_uint4(y[4], y[5], y[6], y[7]);
            }
            wg_fence();
#pragma unroll
            for (int k = 0; k < 4 && !(CUT & 4); k++)
                wg_rs(s1, x[2 * k], y[2 * k], x[2 * k + 1], y[2 * k + 1], qd + i * 128 + k * 2);
            wg_commit();
        }
        { // rope: bytes to fp16 as 1024 + byte, less 1152
            const uint4 ca = *(const uint4 *)(rest + 2048 + k0 * 64 + 16 * t);
            const uint4 cb = *(const uint4 *)(rest + 2048 + (k0 + 8) * 64 + 16 * t);
            const uint32_t wa[4] = { ca.x, ca.y, ca.z, ca.w }, wb[4] = { cb.x, cb.y, cb.z, cb.w };
            uint32_t x[8], y[8];
            const __half2 off = __floats2half2_rn(1152.f, 1152.f);
#pragma unroll
            for (int n = 0; n < 8; n++) {
                const uint32_t sel = n % 2 ? 0x4342 : 0x4140;
                uint32_t h = __byte_perm(wa[n / 2] ^ 0x80808080u, 0x64646464u, sel);
                __half2 z = __hsub2(*(__half2 *)&h, off);
                x[n] = *(uint32_t *)&z;
                h = __byte_perm(wb[n / 2] ^ 0x80808080u, 0x64646464u, sel);
                z = __hsub2(*(__half2 *)&h, off);
                y[n] = *(uint32_t *)&z;
            }
            wg_fence();
#pragma unroll
            for (int k = 0; k < 4; k++)
                wg_rs(s2, x[2 * k], y[2 * k], x[2 * k + 1], y[2 * k + 1], qd + 8 * 128 + k * 2);
            wg_commit();
            wg_wait<0>();
        }
        // Exponents of this thread's tokens (rows) and heads 2t, 2t+1, 8+2t, 8+2t+1.
        const float fa = __int_as_float(oa << 23), fb = __int_as_float(ob << 23);
        const float ea = __int_as_float(ra << 23), eb = __int_as_float(rb << 23);
        const float ua = (float)((int)oa - 127), ub = (float)((int)ob - 127);
        float e[8], n[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int i = j / 2 * 4 + j % 2; // accumulators: (row g: 0,1 4,5) (row g+8: 2,3 6,7)
            e[i] = fmaf(s1[i] * fa + s2[i] * ea, a.scale_log2, ua);
            e[i + 2] = fmaf(s1[i + 2] * fb + s2[i + 2] * eb, a.scale_log2, ub);
            n[j] = fmaxf(e[i], e[i + 2]);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            n[j] = fmaxf(n[j], __shfl_xor_sync(~0u, n[j], 4));
            n[j] = fmaxf(n[j], __shfl_xor_sync(~0u, n[j], 8));
            n[j] = fmaxf(n[j], __shfl_xor_sync(~0u, n[j], 16));
        }
        float *ex = mx + (p / 2 & 1) * 64;
        if (g == 0) {
            *(float2 *)(ex + w * 16 + 2 * t) = make_float2(n[0], n[1]);
            *(float2 *)(ex + w * 16 + 8 + 2 * t) = make_float2(n[2], n[3]);
        }
        group_sync(wg); // and all have read the page
        if (tid % 128 == 0 && p + SLOTS < n_page)
            load_page(a, &map, table[p + SLOTS], base + AT_SLOT + st * SLOT,
                      page_bar(bars, p + SLOTS));
        bool up = false;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int h = j / 2 * 8 + 2 * t + j % 2;
            n[j] = fmaxf(fmaxf(ex[h], ex[16 + h]), fmaxf(ex[32 + h], ex[48 + h]));
            up |= n[j] > m[j];
        }
        if (__any_sync(~0u, up)) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                n[j] = fmaxf(n[j], m[j]);
                const float c = ex2(m[j] - n[j]);
                const int i = j / 2 * 4 + j % 2;
                m[j] = n[j];
                l[j] *= c;
#pragma unroll
                for (int k = 0; k < 8; k++) o[k][i] *= c, o[k][i + 2] *= c;
            }
        }
        const float ia = ex2(-ua), ib = ex2(-ub);
        float pr[8];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int i = j / 2 * 4 + j % 2;
            pr[i] = ex2(e[i] - m[j]);
            pr[i + 2] = ex2(e[i + 2] - m[j]);
            l[j] += pr[i] * ia + pr[i + 2] * ib;
        }
        // P^T as B, N-major: [64 tokens][16 heads], chunk xor token / 4 % 2
        unsigned char *pa = pt + r0 * 32 + 4 * t;
        const int xa = (r0 >> 2 & 1) * 16;
        *(uint32_t *)(pa + (0 ^ xa)) = pack(pr[0], pr[1]);
        *(uint32_t *)(pa + (16 ^ xa)) = pack(pr[4], pr[5]);
        *(uint32_t *)(pa + 256 + (0 ^ xa)) = pack(pr[2], pr[3]);
        *(uint32_t *)(pa + 256 + (16 ^ xa)) = pack(pr[6], pr[7]);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        group_sync(wg);
        wg_fence();
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int k = 0; k < 4 && !(CUT & 8); k++) wg_ss(o[i], vd + i * 512 + k * 128, pd + k * 32);
        wg_commit();
        wg_wait<0>();
    }
#pragma unroll
    for (int j = 0; j < 4; j++) { // sums of all tokens: lanes g, then warps
        l[j] += __shfl_xor_sync(~0u, l[j], 4);
        l[j] += __shfl_xor_sync(~0u, l[j], 8);
        l[j] += __shfl_xor_sync(~0u, l[j], 16);
    }
    __syncthreads();
    float *lx = (float *)(smem + AT_MAX) + wg * 64, *mo = (float *)(smem + AT_MAX) + 128;
    if (g == 0) {
        *(float2 *)(lx + w * 16 + 2 * t) = make_float2(l[0], l[1]);
        *(float2 *)(lx + w * 16 + 8 + 2 * t) = make_float2(l[2], l[3]);
        if (w == 0) {
            *(float2 *)(mo + wg * 16 + 2 * t) = make_float2(m[0], m[1]);
            *(float2 *)(mo + wg * 16 + 8 + 2 * t) = make_float2(m[2], m[3]);
        }
    }
    float4 *ox = (float4 *)(smem + AT_V);
    if (wg == 1)
#pragma unroll
        for (int i = 0; i < 8; i++) {
            ox[(2 * i) * 128 + tid - 128] = make_float4(o[i][0], o[i][1], o[i][2], o[i][3]);
            ox[(2 * i + 1) * 128 + tid - 128] = make_float4(o[i][4], o[i][5], o[i][6], o[i][7]);
        }
    __syncthreads();
    if (wg == 1) return;
    const int out = a.unit_out[unit];
    float c0[4], c1[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int h = j / 2 * 8 + 2 * t + j % 2;
        const float *l0 = (float *)(smem + AT_MAX), *l1 = l0 + 64;
        const float a0 = l0[h] + l0[16 + h] + l0[32 + h] + l0[48 + h];
        const float a1 = l1[h] + l1[16 + h] + l1[32 + h] + l1[48 + h];
        const float m1 = mo[16 + h], mm = fmaxf(m[j], m1);
        c0[j] = ex2(m[j] - mm);
        c1[j] = ex2(m1 - mm);
        if (w == 0 && g == 0) {
            a.part_m[out * H + h] = mm;
            a.part_l[out * H + h] = a0 * c0[j] + a1 * c1[j];
        }
    }
    float *po = a.part_o + (size_t)out * H * D;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float4 y0 = ox[(2 * i) * 128 + tid], y1 = ox[(2 * i + 1) * 128 + tid];
        const float y[8] = { y0.x, y0.y, y0.z, y0.w, y1.x, y1.y, y1.z, y1.w };
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const int j = k / 4 * 2 + k % 2, h = k / 4 * 8 + 2 * t + k % 2;
            const int row = 16 * w + g + (k & 2 ? 8 : 0); // place in the group of 64
            const int d = dim_of(i, row / 16, row % 16 / 2, row % 2);
            if (!(CUT & 64) || o[i][k] == 12345.f) po[h * D + d] = o[i][k] * c0[j] + y[k] * c1[j];
        }
    }
}

static bool make_map(CUtensorMap *map, void *pool, size_t n_page)
{
    void *fn = nullptr;
    cudaDriverEntryPointQueryResult r;
    if (cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &fn, cudaEnableDefault, &r) != cudaSuccess || !fn) return false;
    const cuuint64_t dim[3] = { 256, 64, n_page }, stride[2] = { 256, PAGE };
    const cuuint32_t box[3] = { 128, 64, 1 }, one[3] = { 1, 1, 1 };
    return ((CUresult(*)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill))fn)(
               map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, pool, dim, stride, box, one,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
#define EXTRA_SETUP                                                                                \
    CUtensorMap map;                                                                               \
    uint32_t *d_qp;                                                                                \
    if (!make_map(&map, d_pool, n_page)) return 1;                                                 \
    CHECK(cudaMalloc(&d_qp, (size_t)n_req * Q_BYTES));
#define LAUNCH                                                                                     \
    pack_q<<<n_req, 256, 0, st>>>(a.q, d_qp);                                                      \
    mla_wg<<<nu, THREADS, SMEM, st>>>(a, d_qp, map);
#include "mla_host.cuh"

int main()
{
    return run();
}
