/* mla_few_page.cuh - one page of the kernel in mla_few.cuh.
 *
 * In order: layout of shared memory; packing of the queries; decoding of codes to wgmma operands; scores
 * S^T = C Q^T; weights P = 2^(S - m); values O^T += C^T P^T. */
#ifndef NB_KERNEL_CUDA_SM90_MLA_FEW_PAGE_CUH
#define NB_KERNEL_CUDA_SM90_MLA_FEW_PAGE_CUH
#include "kernel/cuda/common/mla_params.cuh"
#include "kernel/cuda/common/mla_state.cuh"
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/sm90/mla_few_ptx.cuh"

namespace few
{

enum { NVFP4, IF4, FP8, BF16 };
constexpr nb_cuda_units UNITS = NB_CUDA_MLA_FEW_UNITS;
enum { TOK = 64, LORA = 512, ROPE = 64 };
enum { LAZY = 14 };

struct params : nb_mla_params {
    bool rope_int8;
    uint32_t *next, *done; /* counters; 0 between launches */
};

/* Layout of shared memory; it starts at a multiple of 1024 bytes. */
template <int FMT, int N, int GROUPS> struct layout {
    enum {
        SLOTS = FMT == BF16 || FMT == FP8 || N == 32 ? 2 : 3,
        CODES = FMT == BF16  ? 73728
                : FMT == FP8 ? 32768
                             : 16384,
        REST = FMT == BF16  ? 0
               : FMT == FP8 ? 4224
                            : 6272,
        KEEP = N == 16 && GROUPS == 2,  /* an item's sums stay in registers across units */
        EARLY = FMT != BF16 && N == 16, /* prefetch the next page's codes to registers */
        R_ROPE = FMT == FP8 ? 0 : 2048, /* offsets in the rest of a page; block scales come first */
        R_OUT = R_ROPE + 4096,
        VALUES = FMT == BF16 ? 16896 : 65536, /* decoded values of a group; BF16: only its sums */
        P_BYTES = TOK * N * 2,
        Q_ROWS = FMT == BF16 ? 2 * N : N, /* BF16: Q's rounding error is N more rows */
        WARPS = 4,
        CONSUMERS = 128 * GROUPS,
        THREADS = CONSUMERS + 128,
        AT_V = 9 * 128 * Q_ROWS,
        AT_SLOT = AT_V + GROUPS * VALUES,
        AT_P = AT_SLOT + SLOTS * CODES,
        AT_REST = AT_P + GROUPS * P_BYTES,
        AT_MAX = AT_REST + SLOTS * REST,   /* [GROUPS][WARPS][N] */
        AT_SUM = AT_MAX + GROUPS * 16 * N, /* the same */
        AT_M = AT_SUM + GROUPS * 16 * N,   /* [GROUPS][N] */
        AT_TOTAL = AT_M + GROUPS * 4 * N,  /* [2][N]: m of the item before and after a unit */
        AT_QK = AT_TOTAL + 8 * N,          /* [N]: factor of each row's scores */
        AT_STATE = AT_QK + 4 * N,          /* [N]: index of each row's state */
        AT_ITEM = AT_STATE + 4 * N,        /* [2]: ring of this block's item indices */
        AT_BAR = AT_ITEM + 16, /* full [SLOTS][2], empty [SLOTS], item full [2], item empty [2] */
        BYTES = AT_BAR + 8 * (3 * SLOTS + 4) + 1024 /* + 1024: the kernel aligns the start */
    };
};

/* Decodes eight FP4 codes to four FP16 pairs, each value times 2^-6 f.  The codes are moved into E4M3 bytes, which are
 * converted two at a time. */
__device__ inline void eight(uint32_t q, uint32_t f, uint32_t *out)
{
    const uint32_t hi = (q & 0x80808080u) | ((q >> 2) & 0x1c1c1c1cu);
    const uint32_t lo = ((q << 4) & 0x80808080u) | ((q << 2) & 0x1c1c1c1cu);
    out[0] = nb_mul_f16x2(nb_cvt_e4m3(hi), f);
    out[1] = nb_mul_f16x2(nb_cvt_e4m3_hi(hi), f);
    out[2] = nb_mul_f16x2(nb_cvt_e4m3(lo), f);
    out[3] = nb_mul_f16x2(nb_cvt_e4m3_hi(lo), f);
}
/* The same for IF4.  `steps` selects the codes with uniform steps: they become subnormal E4M3, in steps of 2^-9. */
__device__ inline void eight_if4(uint32_t q, uint32_t f, bool steps, uint32_t *out)
{
    const uint32_t shift = steps ? 4 : 2, mask = steps ? 0x07070707u : 0x1c1c1c1cu, r = q << 4;
    const uint32_t hi = (q & 0x80808080u) | ((q >> shift) & mask);
    const uint32_t lo = (r & 0x80808080u) | ((r >> shift) & mask);
    out[0] = nb_mul_f16x2(nb_cvt_e4m3(hi), f);
    out[1] = nb_mul_f16x2(nb_cvt_e4m3_hi(hi), f);
    out[2] = nb_mul_f16x2(nb_cvt_e4m3(lo), f);
    out[3] = nb_mul_f16x2(nb_cvt_e4m3_hi(lo), f);
}

/* Decodes sixteen rope bytes to eight FP16 pairs. */
__device__ inline void rope16(const uint4 &q, bool int8, uint32_t (&out)[8])
{
    const uint32_t w[4] = { q.x, q.y, q.z, q.w };
    if (int8) { /* as FP16: (1024 + (byte ^ 128)) - 1152 */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t u = w[i] ^ 0x80808080u;
#pragma unroll
            for (int n = 0; n < 2; n++) {
                const uint32_t h = __byte_perm(u, 0x64646464u, n ? 0x4342 : 0x4140);
                asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(out[2 * i + n]) : "r"(h), "r"(0x64806480u));
            }
        }
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out[2 * i] = nb_cvt_e4m3(w[i]);
            out[2 * i + 1] = nb_cvt_e4m3_hi(w[i]);
        }
    }
}

/* threadIdx.x, read again: keeps the compiler from computing what depends on it early and holding it in registers. */
__device__ inline int fresh_tid()
{
    int t;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
    return t;
}

/* x, which is equal in all lanes; tells the compiler so, for a uniform register. */
__device__ inline uint32_t uniform(uint32_t x)
{
    return __reduce_max_sync(~0u, x);
}

/* A consumer thread's coordinates. */
struct place {
    int group, w, lane, g, t;
    int k0; /* token of its first row; the second is k0 + 8 */
    uint32_t base;
    unsigned char *smem;
};

__device__ inline place place_of(int tid, unsigned char *smem)
{
    place z;
    z.group = (int)uniform((uint32_t)tid / 128);
    z.w = tid / 32 % 4, z.lane = tid % 32, z.g = z.lane / 4, z.t = z.lane % 4;
    z.smem = smem, z.base = nb_smem(smem);
    /* Row g of 8 is token 4 (g % 2) + g / 2, so that the two rows of a quarter warp lie in different halves of the
     * banks.  Threads do not read the rows of BF16 pages. */
    z.k0 = 16 * z.w + ((z.g & 1) << 2 | z.g >> 1);
    return z;
}

/* Packs the queries of a pass as the B operand of S^T: [9 groups of 64 dims][N][128 bytes], 128-byte swizzle (16-byte
 * chunk c of row r is at c ^ r % 8).  FP16, each row scaled by a power of two; BF16: the rounded value, and its
 * rounding error as a second row. */
template <int FMT, int N, int GROUPS>
__device__ inline void pack_q(const params &a, const nb_cuda_item &it, uint32_t q0, uint32_t n_row,
                              unsigned char *smem)
{
    using L = layout<FMT, N, GROUPS>;
    const uint32_t tid = (uint32_t)fresh_tid(), warp = tid / 32, lane = tid % 32;
    for (uint32_t r = warp; r < N; r += L::CONSUMERS / 32) {
        float v[3][8], top = 0;
        const bool in = r < n_row;
        const float *q = a.q + (it.row0 + q0 + r / a.n_head) * a.q_stride + r % a.n_head * a.q_head;
#pragma unroll
        for (int i = 0; i < 3; i++) {
            const uint32_t c = lane + 32 * i; /* dims 8 c to 8 c + 7 */
#pragma unroll
            for (int k = 0; k < 8; k++) v[i][k] = 0;
            if (in && c < 72) {
                const float4 x = *(const float4 *)(q + 8 * c), y = *(const float4 *)(q + 8 * c + 4);
                v[i][0] = x.x, v[i][1] = x.y, v[i][2] = x.z, v[i][3] = x.w;
                v[i][4] = y.x, v[i][5] = y.y, v[i][6] = y.z, v[i][7] = y.w;
            }
#pragma unroll
            for (int k = 0; k < 8; k++) top = fmaxf(top, fabsf(v[i][k]));
        }
        float down = 1, up = 1; /* powers of two */
        if (FMT != BF16) {
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 16));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 8));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 4));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            const int e = max(1, min(253, (int)(__float_as_uint(top) >> 23)));
            up = __uint_as_float((uint32_t)e << 23);
            down = __uint_as_float((uint32_t)(254 - e) << 23);
        }
        if (lane == 0) ((float *)(smem + L::AT_QK))[r] = a.k * up;
#pragma unroll
        for (int i = 0; i < 3; i++) {
            const uint32_t c = lane + 32 * i;
            if (c >= 72) break;
            const uint32_t d = 8 * c, odd = r % 8;
            uint32_t grp, t, reg;
            if (FMT == BF16) {
                uint32_t o[4], p[4];
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    const float x = v[i][2 * n], y = v[i][2 * n + 1];
                    o[n] = nb_pack_bf16(x, y);
                    p[n] = nb_pack_bf16(x - __uint_as_float(o[n] << 16),
                                        y - __uint_as_float(o[n] & 0xffff0000u));
                }
                unsigned char *to = smem + c / 8 * 128 * L::Q_ROWS + r * 128 + (c % 8 ^ odd) * 16;
                *(uint4 *)to = make_uint4(o[0], o[1], o[2], o[3]);
                *(uint4 *)(to + 128 * N) = make_uint4(p[0], p[1], p[2], p[3]);
                continue;
            }
            const bool straight = FMT == FP8 || c >= 64;
            if (c >= 64)
                grp = 8, t = d / 16 % 4, reg = d / 8 % 2 * 4;
            else if (FMT == FP8)
                grp = d / 64, t = d / 16 % 4, reg = d / 8 % 2 * 4;
            else
                grp = d / 128 * 2 + d / 16 % 2, t = d / 32 % 4, reg = d / 8 % 2 * 4;
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const int odd0 = (n < 2 ? 1 : 0) + n % 2 * 4;
                const float x = straight ? v[i][2 * n] : v[i][odd0];
                const float y = straight ? v[i][2 * n + 1] : v[i][odd0 + 2];
                *(uint32_t *)(smem + grp * 128 * N + r * 128 + ((reg + n) ^ odd) * 16 + 4 * t) =
                    nb_pack_f16(x * down, y * down);
            }
        }
    }
}

/* Where a page lies in shared memory. */
struct page_at {
    const unsigned char *slot, *rest;
    uint32_t slot_u32;
};

/* What a thread reads of a page, for its two tokens: codes, block scales, rope codes, outer scales. */
template <int FMT> struct raw {
    enum { CHUNKS = FMT == FP8 ? 8 : 4 };
    uint4 ca[CHUNKS], cb[CHUNKS];
    uint4 ra, rb;
    uint32_t sa[4], sb[4];
    uint32_t oa, ob, pa, pb;
};

template <int FMT, int N, int GROUPS>
__device__ inline void load_raw(const place &z, const page_at &pg, raw<FMT> &w)
{
    using L = layout<FMT, N, GROUPS>;
    const unsigned char *row = pg.slot + z.k0 * 128;
#pragma unroll
    for (int i = 0; i < raw<FMT>::CHUNKS; i++) {
        const int at = i / 2 * 8192 + ((i % 2 * 4 + z.t) ^ (z.k0 & 7)) * 16;
        w.ca[i] = *(const uint4 *)(row + at), w.cb[i] = *(const uint4 *)(row + 1024 + at);
    }
    if (FMT != FP8)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const unsigned char *sp = pg.rest + z.k0 * 32 + 8 * i + 2 * z.t;
            w.sa[i] = *(const unsigned short *)sp, w.sb[i] = *(const unsigned short *)(sp + 256);
        }
    const unsigned char *rp = pg.rest + L::R_ROPE + z.k0 * 64 + 16 * z.t;
    w.ra = *(const uint4 *)rp, w.rb = *(const uint4 *)(rp + 512);
    const unsigned char *out = pg.rest + L::R_OUT + z.k0;
    w.oa = out[0], w.ob = out[8], w.pa = out[64], w.pb = out[72];
}

/* Scores of a page from its codes: s1 from the latent, s2 from the rope key.  The decoded values go to shared memory at
 * v.  freed() returns when the previous page's value products are done in all warps of the group, so v may be
 * written.  A step decodes 32 dims of a token; the registers of two steps are in flight (DECODE_FIRST: four). */
template <int FMT, int N, class FREED>
__device__ inline void scores(const place &z, const params &a, const raw<FMT> &w, uint32_t v,
                              const operand &qd, float (&s1)[N / 2], float (&s2)[N / 2],
                              const FREED &freed)
{
    /* stmatrix addresses: lanes 0..7 hold tokens 0..7 of the warp, lanes 8..15 its other 8; 16..31: the next 8 dims. */
    const int vr = 16 * z.w + z.lane % 16;
    uint32_t to[4];
#pragma unroll
    for (int n = 0; n < 4; n++) to[n] = v + vr * 128 + ((2 * n + z.lane / 16) ^ (vr & 7)) * 16;
    uint32_t x[4][4], y[4][4], rx[8], ry[8];
    uint32_t ha = 0, hb = 0, fa = 0, fb = 0;
    bool ta = false, tb = false;
    const auto step = [&](int h) {
        const int i = h / 2, c = i / 2;
        uint32_t(&xx)[4] = x[h & 3], (&yy)[4] = y[h & 3];
        if (FMT == FP8) {
            const uint4 ga = w.ca[i], gb = w.cb[i];
            const uint32_t a0 = h & 1 ? ga.z : ga.x, a1 = h & 1 ? ga.w : ga.y;
            const uint32_t b0 = h & 1 ? gb.z : gb.x, b1 = h & 1 ? gb.w : gb.y;
            xx[0] = nb_cvt_e4m3(a0), xx[1] = nb_cvt_e4m3_hi(a0);
            xx[2] = nb_cvt_e4m3(a1), xx[3] = nb_cvt_e4m3_hi(a1);
            yy[0] = nb_cvt_e4m3(b0), yy[1] = nb_cvt_e4m3_hi(b0);
            yy[2] = nb_cvt_e4m3(b1), yy[3] = nb_cvt_e4m3_hi(b1);
        } else {
            const uint4 ga = w.ca[c], gb = w.cb[c];
            const uint32_t sa = w.sa[c], sb = w.sb[c];
            const int q = h & 3;
            if (q == 0) ha = nb_cvt_e4m3(sa & 0x7f7f), hb = nb_cvt_e4m3(sb & 0x7f7f);
            if (!(h & 1)) {
                fa = __byte_perm(ha, 0, q ? 0x3232 : 0x1010);
                fb = __byte_perm(hb, 0, q ? 0x3232 : 0x1010);
                if (FMT == IF4) {
                    ta = sa >> (7 + 4 * q) & 1, tb = sb >> (7 + 4 * q) & 1;
                    fa = nb_mul_f16x2(fa, ta ? 0x48004800u : 0x3c003c00u); /* 8 or 1 */
                    fb = nb_mul_f16x2(fb, tb ? 0x48004800u : 0x3c003c00u);
                }
            }
            const uint32_t a0 = q == 0 ? ga.x : q == 1 ? ga.y : q == 2 ? ga.z : ga.w;
            const uint32_t b0 = q == 0 ? gb.x : q == 1 ? gb.y : q == 2 ? gb.z : gb.w;
            if (FMT == IF4)
                eight_if4(a0, fa, ta, xx), eight_if4(b0, fb, tb, yy);
            else
                eight(a0, fa, xx), eight(b0, fb, yy);
        }
    };
    rope16(w.ra, a.rope_int8, rx); /* lane t has 16 codes of each of its two rows */
    rope16(w.rb, a.rope_int8, ry);
    const auto rope = [&]() {
        operand qr = qd;
        qr.lo += 8 * 128 * N >> 4;
        nb_wg_fence();
        wg_rs<0>(s2, rx[0], ry[0], rx[1], ry[1], qr.at(0));
        wg_rs<1>(s2, rx[2], ry[2], rx[3], ry[3], qr.at(2));
        wg_rs<1>(s2, rx[4], ry[4], rx[5], ry[5], qr.at(4));
        wg_rs<1>(s2, rx[6], ry[6], rx[7], ry[7], qr.at(6));
        nb_wg_commit();
    };
    /* No product of this page starts before the previous page's value products have ended, and the warp stalls where
     * it issues one.  So decode first, if there are registers for it. */
    enum { DECODE_FIRST = FMT != FP8 && N == 16 };
    if (!DECODE_FIRST) rope();
    step(0);
    if (DECODE_FIRST)
#pragma unroll
        for (int n = 0; n < 8; n++) asm volatile("" : "+r"(rx[n]), "+r"(ry[n]));
#pragma unroll
    for (int n = 0; n < 4; n++) asm volatile("" : "+r"(x[0][n]), "+r"(y[0][n]));
    freed();
    if (DECODE_FIRST) rope();
#pragma unroll
    for (int h = 0; h < 16; h++) {
        const int i = h / 2;
        uint32_t(&xx)[4] = x[h & 3], (&yy)[4] = y[h & 3];
#pragma unroll
        for (int n = 0; n < 2; n++)
            nb_stmatrix4(to[2 * (h & 1) + n] + i * 8192, xx[2 * n], yy[2 * n], xx[2 * n + 1],
                         yy[2 * n + 1]);
        operand qi = qd;
        qi.lo += i * (128 * N >> 4) + 4 * (h & 1);
        nb_wg_fence();
        if (h == 0)
            wg_rs<0>(s1, xx[0], yy[0], xx[1], yy[1], qi.at(0));
        else
            wg_rs<1>(s1, xx[0], yy[0], xx[1], yy[1], qi.at(0));
        wg_rs<1>(s1, xx[2], yy[2], xx[3], yy[3], qi.at(2));
        nb_wg_commit();
        if (h + 1 < 16) {
            nb_wg_wait<DECODE_FIRST ? 3 : 1>(); /* frees the registers that step h + 1 needs */
            step(h + 1);
        }
    }
    nb_wg_wait<0>();
    nb_wg_hold(s1), nb_wg_hold(s2);
}

/* Scores of a BF16 page, which already has wgmma's layout. */
template <int N>
__device__ inline void scores_bf16(const page_at &pg, const operand &qd, float (&s1)[N])
{
    const operand kd = smem_operand(pg.slot_u32, 1024, 1);
    nb_wg_fence();
#pragma unroll
    for (int k = 0; k < 36; k++) {
        const int at = k / 4, in = k % 4;
        const uint64_t ad = kd.at(at * 512 + in * 2), bd = qd.at(at * (256 * N >> 4) + in * 2);
        if (k == 0)
            wg_kk<0>(s1, ad, bd);
        else
            wg_kk<1>(s1, ad, bd);
    }
    nb_wg_commit();
    nb_wg_wait<0>();
    nb_wg_hold(s1);
}

/* Stores the weights of token r for this thread's rows, as the B operand of O^T, N-major. */
template <int FMT, int N>
__device__ inline void put_p(unsigned char *pt, int r, int t, bool zero, const float (&p)[N / 4])
{
#pragma unroll
    for (int c = 0; c < N / 8; c++) {
        const int x = N == 16 ? c ^ (r >> 2 & 1) : c ^ (r >> 1 & 3);
        const uint32_t two = FMT == BF16 ? nb_pack_bf16(p[2 * c], p[2 * c + 1])
                                         : nb_pack_f16(p[2 * c], p[2 * c + 1]);
        *(uint32_t *)(pt + r * 2 * N + x * 16 + 4 * t) = zero ? 0 : two;
    }
}

/* A thread's accumulators of a unit. */
template <int N> struct sums {
    float o[8][N / 2], m[N / 4], l[N / 4];
};

/* Moves m to the page's maximum for each row where a token exceeds m by more than LAZY, and rescales O and l.  The
 * test of a row does not depend on other rows. */
template <int FMT, int N, int GROUPS>
__device__ inline void move_max(unsigned char *smem, sums<N> &s, const float (&e)[2][N / 4])
{
    using L = layout<FMT, N, GROUPS>;
    const place z = place_of(fresh_tid(), smem);
    float *mx = (float *)(smem + L::AT_MAX) + z.group * L::WARPS * N;
    float n[N / 4];
#pragma unroll
    for (int j = 0; j < N / 4; j++) {
        n[j] = fmaxf(e[0][j], e[1][j]);
        n[j] = fmaxf(n[j], __shfl_xor_sync(~0u, n[j], 4));
        n[j] = fmaxf(n[j], __shfl_xor_sync(~0u, n[j], 8));
        n[j] = fmaxf(n[j], __shfl_xor_sync(~0u, n[j], 16));
    }
    if (z.g == 0)
#pragma unroll
        for (int c = 0; c < N / 8; c++)
            *(float2 *)(mx + z.w * N + 8 * c + 2 * z.t) = make_float2(n[2 * c], n[2 * c + 1]);
    nb_bar_sync(1 + z.group, 128);
#pragma unroll
    for (int c = 0; c < N / 8; c++) {
        float2 x = make_float2(-INFINITY, -INFINITY);
        for (int w = 0; w < L::WARPS; w++) {
            const float2 y = *(const float2 *)(mx + w * N + 8 * c + 2 * z.t);
            x.x = fmaxf(x.x, y.x), x.y = fmaxf(x.y, y.y);
        }
        n[2 * c] = x.x, n[2 * c + 1] = x.y;
    }
#pragma unroll
    for (int j = 0; j < N / 4; j++) {
        const int i = j / 2 * 4 + j % 2;
        const bool move = n[j] > s.m[j] + LAZY;
        const float k = move ? nb_exp2(s.m[j] - n[j]) : 1;
        if (move) s.m[j] = n[j];
        s.l[j] *= k;
#pragma unroll
        for (int q = 0; q < 8; q++) s.o[q][i] *= k, s.o[q][i + 2] *= k;
    }
}

/* The group's next page.  full: its barrier, 0 if there is none. */
struct after_it {
    page_at at;
    uint32_t full, parity, empty;
};

/* The whole group has read the page: its slot may be refilled.  A barrier alone does not hold back a bulk copy: without
 * the fence, loads still in flight got bytes of the next page. */
template <int GROUPS> __device__ inline void free_slot(const place &z, uint32_t empty)
{
    nb_fence_async();
    nb_bar_sync(1 + z.group, 128);
    if (z.w * 32 + z.lane == 0) nb_mbar_arrive(empty);
}

/* One page of this group: scores, weights, values.  BF16: the page is at `pg`, and its barrier has been waited for.
 * EARLY: the page is in w; once its codes are used, the next page is loaded into w, and that page's slot is freed.
 * Otherwise the page is loaded here. */
template <int FMT, int N, int GROUPS>
__device__ inline void one_page(const place &z, const params &a, const page_at &pg, uint32_t empty,
                                raw<FMT> &w, const after_it &next, const float (&qk)[N / 4],
                                sums<N> &s)
{
    using L = layout<FMT, N, GROUPS>;
    const operand qd = smem_operand(z.base, 1024, 1);
    const int bar = 1 + z.group, tid = z.w * 32 + z.lane;
    const uint32_t v = z.base + L::AT_V + z.group * L::VALUES;
    unsigned char *pt = z.smem + L::AT_P + z.group * L::P_BYTES;
    float s1[FMT == BF16 ? N : N / 2], s2[N / 2], e[2][N / 4], p[2][N / 4];
    float u[2] = { 0, 0 };
    bool zero[2] = { false, false };
    if constexpr (FMT == BF16) {
        scores_bf16<N>(pg, qd, s1);
#pragma unroll
        for (int i = 0; i < N / 2; i++) s1[i] += s1[i + N / 2];
    } else {
        if (!L::EARLY) load_raw<FMT, N, GROUPS>(z, pg, w);
        scores<FMT, N>(z, a, w, v, qd, s1, s2, [&]() {
            nb_wg_wait<0>();
#pragma unroll
            for (int n = 0; n < 8; n++) nb_wg_hold(s.o[n]);
            if (L::EARLY)
                nb_bar_sync(bar, 128);
            else
                free_slot<GROUPS>(z, empty);
        });
        const float fa = __uint_as_float(w.oa << 23), fb = __uint_as_float(w.ob << 23);
        const float ea = __uint_as_float(w.pa << 23) * a.rope_k,
                    eb = __uint_as_float(w.pb << 23) * a.rope_k;
        zero[0] = w.oa == 0, zero[1] = w.ob == 0;
        u[0] = zero[0] ? -9.f : (float)((int)w.oa - 127);
        u[1] = zero[1] ? -9.f : (float)((int)w.ob - 127);
        if (L::EARLY && next.full) {
            nb_mbar_wait(next.full, next.parity);
            load_raw<FMT, N, GROUPS>(z, next.at, w);
        }
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            s1[i] = s1[i] * (i & 2 ? fb : fa) + s2[i] * (i & 2 ? eb : ea);
    }
    bool over = false;
    const int r = 16 * z.w + z.g;
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int j = 0; j < N / 4; j++) {
            e[i][j] = fmaf(s1[j / 2 * 4 + j % 2 + 2 * i], qk[j], u[i]);
            over |= e[i][j] > s.m[j] + LAZY;
            p[i][j] = nb_exp2(e[i][j] - s.m[j]);
        }
        put_p<FMT, N>(pt, r + 8 * i, z.t, zero[i], p[i]);
    }
    nb_fence_async();
    const bool move = bar_any(bar, 128, over);
    if (L::EARLY && next.full && tid == 0) nb_mbar_arrive(next.empty);
    if (move) {
        move_max<FMT, N, GROUPS>(z.smem, s, e);
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int j = 0; j < N / 4; j++) p[i][j] = nb_exp2(e[i][j] - s.m[j]);
            put_p<FMT, N>(pt, r + 8 * i, z.t, zero[i], p[i]);
        }
        nb_fence_async();
        nb_bar_sync(1 + z.group, 128);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float back = FMT == BF16 ? 1 : nb_exp2(-u[i]);
#pragma unroll
        for (int j = 0; j < N / 4; j++) s.l[j] += p[i][j] * back;
    }
    const operand vd = smem_operand(FMT == BF16 ? pg.slot_u32 : v, 1024, 1);
    const operand pd =
        smem_operand(z.base + L::AT_P + z.group * L::P_BYTES, 16 * N, N == 16 ? 3 : 2);
    nb_wg_fence();
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int i = 0; i < 8; i++)
            wg_mn<FMT == BF16>(s.o[i], vd.at(i * 512 + k * 128), pd.at(k * (2 * N)));
    nb_wg_commit();
    if (FMT == BF16) { /* wgmma reads the values from the page itself: free it after the products */
        nb_wg_wait<0>();
#pragma unroll
        for (int i = 0; i < 8; i++) nb_wg_hold(s.o[i]);
        nb_bar_sync(bar, 128);
        if (tid == 0) nb_mbar_arrive(empty);
    }
}

} // namespace few

#endif
