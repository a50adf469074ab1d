/* mla_few.cuh - the kernel of mla_few.cu: attention of at most 32 rows (query, head) to complete pages.
 *
 * Products are turned over, so that heads are the short side of wgmma and nothing is padded to 64:
 *   S^T [64 tokens x N rows] = K Q^T    A from registers: codes become FP16 in the layout that wgmma
 *                                       wants of A (dimensions permuted, as are those of Q and O)
 *   O^T [512 dims x N rows] += V^T P^T  A from shared memory, M-major: the same registers, stored once
 * so a code is decoded once and a page is the M of a product.  BF16 pages are both operands as they lie.
 *
 * Two warpgroups are a pair: each has 256 of the 512 dimensions (and 32 of the rope key) of a page, for
 * scores, values and O.  Their halves of the scores meet in shared memory: of each two tokens of a
 * thread, one is finished by each half.  Two pairs take the pages of a unit in turn, each with an O of
 * its own, joined at the unit's end; while one waits, the other decodes.  A warp of its own fetches
 * pages, across units and items.
 *
 * The largest score is followed lazily: weights may reach 2^8 before it is moved, so most pages have
 * no reduction over tokens at all.  The outer scale of a token goes to its score and, as an exponent,
 * to its weight.  A row of Q has a power of two of its own, so that FP16 holds it. */
#ifndef NB_KERNEL_CUDA_SM90_MLA_FEW_CUH
#define NB_KERNEL_CUDA_SM90_MLA_FEW_CUH
#include "kernel/cuda/common/mla_state.cuh"
#include "kernel/cuda/sm90/mla_few_ptx.cuh"

namespace few
{

enum { NVFP4, IF4, FP8, BF16 };
enum { UNIT = 16, TOK = 64, LORA = 512, ROPE = 64 };

struct params {
    const unsigned char *page; /* of block 0, this layer */
    size_t block_bytes;
    const uint32_t *block;
    const nb_cuda_chunk *chunk;
    const nb_cuda_item *item;
    const uint32_t *n_item, *part_first;
    const float *q;
    size_t q_stride, q_head;
    float *part_o, *part_m, *part_l;
    uint32_t n_head;
    float k;       /* scores to powers of two: scale, log2(e), the latent's units */
    float rope_k;  /* the rope key's units in the latent's */
    float o_scale; /* the latent's units */
    bool rope_int8;
    uint32_t *next, *done; /* counters, 0 between launches */
};

/* Shared memory, from a multiple of 1024 on. */
template <int FMT, int N, int PAIRS> struct layout {
    enum {
        SLOTS = FMT == BF16  ? 2
                : FMT == FP8 ? 2
                             : 3,
        CODES = FMT == BF16  ? 73728
                : FMT == FP8 ? 32768
                             : 16384,
        REST = FMT == BF16  ? 0
               : FMT == FP8 ? 4224
                            : 6272,
        R_ROPE = FMT == FP8 ? 0 : 2048, /* in the rest: block scales first */
        R_OUT = R_ROPE + 4096,
        V_HALF = FMT != BF16  ? 32768
                 : PAIRS == 2 ? 512 * N
                              : 0,
        P_BYTES = TOK * N * 2,
        X_BYTES = FMT == BF16 ? 256 * N : 0,
        AT_V = 9 * 128 * N,
        AT_SLOT = AT_V + 2 * PAIRS * V_HALF,
        AT_P = AT_SLOT + SLOTS * CODES,
        AT_X = AT_P + PAIRS * P_BYTES,
        AT_REST = AT_X + PAIRS * X_BYTES,
        AT_MAX = AT_REST + SLOTS * REST,  /* [PAIRS][8 warps][N] */
        AT_SUM = AT_MAX + PAIRS * 32 * N, /* the same */
        AT_M = AT_SUM + PAIRS * 32 * N,   /* [PAIRS][N] */
        AT_TOTAL = AT_M + PAIRS * 4 * N,  /* [N]: m of the units so far */
        AT_QK = AT_TOTAL + 4 * N,         /* [N]: factor of a row's scores */
        AT_STATE = AT_QK + 4 * N,         /* [N]: where a row's state goes */
        AT_ITEM = AT_STATE + 4 * N,       /* [8]: numbers of this block's items */
        AT_WALK = AT_ITEM + 32,           /* struct walk */
        AT_BAR = AT_WALK + 64,            /* full [SLOTS][2], empty [SLOTS] */
        BYTES = AT_BAR + 8 * 3 * SLOTS + 1024,
        THREADS = 256 * PAIRS
    };
};

/* The dimension of half e of register reg (0..7) of lane t in group grp of 64. */
template <int FMT>
__device__ inline uint32_t dim_of(uint32_t grp, uint32_t t, uint32_t reg, uint32_t e)
{
    if (FMT == BF16) return 64 * grp + 16 * t + 2 * reg + e;
    if (FMT == FP8) return 64 * grp + 16 * t + 2 * reg + e;
    const uint32_t n = reg % 4; /* nibbles of a word come as pairs (1,3) (5,7) (0,2) (4,6) */
    return 128 * (grp / 2) + 32 * t + 16 * (grp % 2) + reg / 4 * 8 + (n < 2 ? 1 : 0) + n % 2 * 4 +
           2 * e;
}

/* Eight codes as four pairs of FP16 times 2^-6 and f: as E4M3 bytes, then two at a time. */
__device__ inline void eight(uint32_t q, uint32_t f, uint32_t *out)
{
    const uint32_t hi = (q & 0x80808080u) | ((q >> 2) & 0x1c1c1c1cu);
    const uint32_t lo = ((q << 4) & 0x80808080u) | ((q << 2) & 0x1c1c1c1cu);
    out[0] = mul_f16x2(cvt_e4m3(hi), f);
    out[1] = mul_f16x2(cvt_e4m3(hi >> 16), f);
    out[2] = mul_f16x2(cvt_e4m3(lo), f);
    out[3] = mul_f16x2(cvt_e4m3(lo >> 16), f);
}
/* The same with uniform steps where `steps`: subnormal E4M3, whose unit is 2^-9. */
__device__ inline void eight_if4(uint32_t q, uint32_t f, bool steps, uint32_t *out)
{
    const uint32_t shift = steps ? 4 : 2, mask = steps ? 0x07070707u : 0x1c1c1c1cu, r = q << 4;
    const uint32_t hi = (q & 0x80808080u) | ((q >> shift) & mask);
    const uint32_t lo = (r & 0x80808080u) | ((r >> shift) & mask);
    out[0] = mul_f16x2(cvt_e4m3(hi), f);
    out[1] = mul_f16x2(cvt_e4m3(hi >> 16), f);
    out[2] = mul_f16x2(cvt_e4m3(lo), f);
    out[3] = mul_f16x2(cvt_e4m3(lo >> 16), f);
}

/* Rope bytes (4 of a word) as FP16 pairs. */
__device__ inline void rope4(uint32_t w, bool int8, uint32_t *out)
{
    if (int8) { /* 1024 + byte, less 1152 */
        const uint32_t u = w ^ 0x80808080u;
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const uint32_t h = __byte_perm(u, 0x64646464u, n ? 0x4342 : 0x4140);
            asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(out[n]) : "r"(h), "r"(0x64806480u));
        }
    } else {
        out[0] = cvt_e4m3(w);
        out[1] = cvt_e4m3(w >> 16);
    }
}

/* The thread's number, read anew, so that nothing that depends on it is computed early and kept. */
__device__ inline int fresh_tid()
{
    int t;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
    return t;
}

/* A thread of the warpgroups that compute. */
struct place {
    int pair, half, w, lane, g, t;
    int k0; /* token of its first row; the second is k0 + 8 */
    unsigned char *smem;
};

/* WG: the warpgroup, known where one code serves one of them. */
template <int WG = -1> __device__ inline place place_of(int tid, unsigned char *smem)
{
    place z;
    z.pair = tid / 256, z.half = tid / 128 % 2, z.w = tid / 32 % 4, z.lane = tid % 32;
    z.g = z.lane / 4, z.t = z.lane % 4, z.smem = smem;
    if (WG >= 0) z.pair = WG / 2, z.half = WG % 2;
    /* Row g of 8 is token 4 (g % 2) + g / 2, so that two rows of a quarter warp lie in different halves
     * of the banks; rows of BF16 pages are not read by threads. */
    z.k0 = 16 * z.w + ((z.g & 1) << 2 | z.g >> 1);
    return z;
}

/* Queries of a pass as B of S^T: [9 groups of 64 dims][N][128 bytes], 16-byte chunks xor row % 8. */
template <int FMT, int N, int PAIRS>
__device__ inline void pack_q(const params &a, const nb_cuda_item &it, uint32_t q0, uint32_t n_row,
                              unsigned char *smem)
{
    using L = layout<FMT, N, PAIRS>;
    const uint32_t tid = (uint32_t)fresh_tid(), warp = tid / 32, lane = tid % 32;
    for (uint32_t r = warp; r < N; r += L::THREADS / 32) {
        float v[3][8], top = 0;
        const bool in = r < n_row;
        const float *q = a.q + (it.row0 + q0 + r / a.n_head) * a.q_stride + r % a.n_head * a.q_head;
#pragma unroll
        for (int i = 0; i < 3; i++) {
            const uint32_t c = lane + 32 * i; /* 8 dims from 8 c on */
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
                uint32_t o[4];
#pragma unroll
                for (int n = 0; n < 4; n++) o[n] = nb_pack_bf16(v[i][2 * n], v[i][2 * n + 1]);
                *(uint4 *)(smem + c / 8 * 128 * N + r * 128 + (c % 8 ^ odd) * 16) =
                    make_uint4(o[0], o[1], o[2], o[3]);
                continue;
            }
            const bool straight = FMT == FP8 || c >= 64;
            if (c >= 64)
                grp = 8, t = d / 8 % 4, reg = d / 32 % 2 * 4;
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

/* What thread 0 knows of the pages that it fetches: those of the items of this block, in order, into slots
 * as these become free.  In shared memory, but for what loads and counts. */
struct walk {
    const uint32_t *block; /* of the item's first page */
    uint32_t item;         /* which of this block's items */
    uint32_t at, page;     /* pages of it so far; the next of a pass */
    uint32_t n_page, end;  /* of a pass; of all passes */
};
enum { RING = 8 }; /* items of this block whose numbers are kept */

/* Fetches what there is room for: pages of items up to `known`. */
template <int FMT, int N, int PAIRS>
__device__ inline void fetch(const params &a, const CUtensorMap *codes, const CUtensorMap *rope,
                             uint32_t base, unsigned char *smem, uint32_t known, uint32_t &c,
                             uint32_t &b)
{
    using L = layout<FMT, N, PAIRS>;
    const uint32_t bars = base + L::AT_BAR, empty = bars + 16 * L::SLOTS;
    volatile walk *w = (volatile walk *)(smem + L::AT_WALK);
    for (;;) {
        if (w->at == w->end) {
            const uint32_t next = w->item + 1;
            if (next > known) return;
            const uint32_t index = ((volatile uint32_t *)(smem + L::AT_ITEM))[next % RING];
            if (index >= *a.n_item) return;
            const nb_cuda_item *it = a.item + index;
            const uint32_t per = N / a.n_head, n_page = it->n_page;
            const uint32_t *block = a.block + a.chunk[it->chunk].block0 + (size_t)it->unit0 * UNIT;
            w->block = block, w->item = next, w->at = w->page = 0;
            w->n_page = n_page, w->end = n_page * ((it->n_q + per - 1) / per);
            b = block[0];
        }
        const uint32_t s = c % L::SLOTS, page = w->page;
        if (c >= L::SLOTS && !mbar_test(empty + 8 * s, (c / L::SLOTS - 1) & 1)) return;
        const uint32_t bar = bars + 8 * (2 * s + (PAIRS == 2 ? page & 1 : 0));
        const uint32_t dst = base + L::AT_SLOT + s * L::CODES;
        mbar_expect(bar, L::CODES + L::REST);
#pragma unroll
        for (int i = 0; i < (FMT == BF16 ? 8 : L::CODES / 8192); i++)
            copy_box(dst + i * 8192, codes, i * 128, 0, b, bar);
        if (FMT == BF16)
            copy_box(dst + 65536, rope, 0, 0, b, bar);
        else
            copy_bytes(base + L::AT_REST + s * L::REST, a.page + b * a.block_bytes + L::CODES,
                       L::REST, bar);
        c++;
        const uint32_t next = page + 1 == w->n_page ? 0 : page + 1;
        w->at = w->at + 1, w->page = next;
        b = w->block[next];
    }
}

/* Where a page is. */
struct page_at {
    const unsigned char *slot, *rest;
    uint32_t slot_u32;
};

/* Scores of a page from codes: s1 of the latent, s2 of the rope key, this half's share; the values go to
 * v.  v may be written after `free` (the values of the page before have been used by all). */
template <int FMT, int N, int PAIRS>
__device__ inline void scores(const place &z, const params &a, const page_at &pg, unsigned char *v,
                              uint64_t qd, float (&s1)[N / 2], float (&s2)[N / 2])
{
    using L = layout<FMT, N, PAIRS>;
    const int t = z.t, g = z.g, k0 = z.k0, r0 = 16 * z.w + g;
    const unsigned char *row = pg.slot + z.half * (L::CODES / 2) + k0 * 128;
    const int sw = k0 & 7;
    { /* rope: lane t has 8 codes of either row */
        const unsigned char *rp = pg.rest + L::R_ROPE + k0 * 64 + 32 * z.half + 8 * t;
        const uint2 ca = *(const uint2 *)rp, cb = *(const uint2 *)(rp + 512);
        uint32_t x[4], y[4];
        rope4(ca.x, a.rope_int8, x), rope4(ca.y, a.rope_int8, x + 2);
        rope4(cb.x, a.rope_int8, y), rope4(cb.y, a.rope_int8, y + 2);
        const uint64_t qr = qd + (8 * 128 * N >> 4) + 4 * z.half;
        wg_fence();
        wg_rs<0>(s2, x[0], y[0], x[1], y[1], qr);
        wg_rs<1>(s2, x[2], y[2], x[3], y[3], qr + 2);
        wg_commit();
    }
    uint32_t ka[2][8], kb[2][8], fa[2], fb[2];
    uint4 ga, gb;
    bool ta[2] = { false, false }, tb[2] = { false, false };
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t(&x)[8] = ka[i & 1], (&y)[8] = kb[i & 1];
        if (FMT == FP8) {
            const int at = i / 2 * 8192 + (((i & 1) * 4 + t) ^ sw) * 16;
            ga = *(const uint4 *)(row + at), gb = *(const uint4 *)(row + 1024 + at);
        } else if (!(i & 1)) {
            const int at = ((i / 2 * 4 + t) ^ sw) * 16;
            ga = *(const uint4 *)(row + at), gb = *(const uint4 *)(row + 1024 + at);
            const unsigned char *sp = pg.rest + k0 * 32 + 16 * z.half + 4 * i + 2 * t;
            const uint32_t sa = *(const unsigned short *)sp,
                           sb = *(const unsigned short *)(sp + 256);
            const uint32_t ha = cvt_e4m3(sa & 0x7f7f), hb = cvt_e4m3(sb & 0x7f7f);
            fa[0] = __byte_perm(ha, 0, 0x1010), fa[1] = __byte_perm(ha, 0, 0x3232);
            fb[0] = __byte_perm(hb, 0, 0x1010), fb[1] = __byte_perm(hb, 0, 0x3232);
            if (FMT == IF4)
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    ta[n] = sa >> (7 + 8 * n) & 1, tb[n] = sb >> (7 + 8 * n) & 1;
                    fa[n] = mul_f16x2(fa[n], ta[n] ? 0x48004800u : 0x3c003c00u); /* 8 or 1 */
                    fb[n] = mul_f16x2(fb[n], tb[n] ? 0x48004800u : 0x3c003c00u);
                }
        }
        if (i >= 2) wg_wait<1>(); /* these registers were read by the products of i - 2 */
        if (FMT == FP8) {
            const uint32_t wa[4] = { ga.x, ga.y, ga.z, ga.w }, wb[4] = { gb.x, gb.y, gb.z, gb.w };
#pragma unroll
            for (int n = 0; n < 4; n++) {
                x[2 * n] = cvt_e4m3(wa[n]), x[2 * n + 1] = cvt_e4m3(wa[n] >> 16);
                y[2 * n] = cvt_e4m3(wb[n]), y[2 * n + 1] = cvt_e4m3(wb[n] >> 16);
            }
        } else {
            const uint2 ca = i & 1 ? make_uint2(ga.z, ga.w) : make_uint2(ga.x, ga.y);
            const uint2 cb = i & 1 ? make_uint2(gb.z, gb.w) : make_uint2(gb.x, gb.y);
            if (FMT == IF4) {
                eight_if4(ca.x, fa[i & 1], ta[i & 1], x),
                    eight_if4(ca.y, fa[i & 1], ta[i & 1], x + 4);
                eight_if4(cb.x, fb[i & 1], tb[i & 1], y),
                    eight_if4(cb.y, fb[i & 1], tb[i & 1], y + 4);
            } else {
                eight(ca.x, fa[i & 1], x), eight(ca.y, fa[i & 1], x + 4);
                eight(cb.x, fb[i & 1], y), eight(cb.y, fb[i & 1], y + 4);
            }
        }
        unsigned char *va = v + i * 8192 + r0 * 128, *vb = va + 1024;
        *(uint4 *)(va + ((2 * t) ^ g) * 16) = make_uint4(x[0], x[1], x[2], x[3]);
        *(uint4 *)(va + ((2 * t + 1) ^ g) * 16) = make_uint4(x[4], x[5], x[6], x[7]);
        *(uint4 *)(vb + ((2 * t) ^ g) * 16) = make_uint4(y[0], y[1], y[2], y[3]);
        *(uint4 *)(vb + ((2 * t + 1) ^ g) * 16) = make_uint4(y[4], y[5], y[6], y[7]);
        const uint64_t qi = qd + (4 * z.half + i) * (128 * N >> 4);
        wg_fence();
        if (i == 0)
            wg_rs<0>(s1, x[0], y[0], x[1], y[1], qi);
        else
            wg_rs<1>(s1, x[0], y[0], x[1], y[1], qi);
        wg_rs<1>(s1, x[2], y[2], x[3], y[3], qi + 2);
        wg_rs<1>(s1, x[4], y[4], x[5], y[5], qi + 4);
        wg_rs<1>(s1, x[6], y[6], x[7], y[7], qi + 6);
        wg_commit();
    }
    wg_wait<0>();
    wg_hold(s1), wg_hold(s2);
}

/* The same of a BF16 page, which lies as wgmma wants it. */
template <int N>
__device__ inline void scores_bf16(const place &z, const page_at &pg, uint64_t qd,
                                   float (&s1)[N / 2])
{
    const uint64_t kd = smem_desc(pg.slot_u32, 1024, 1);
    wg_fence();
#pragma unroll
    for (int k = 0; k < 18; k++) {
        const int at = k < 16 ? 4 * z.half + k / 4 : 8, in = k < 16 ? k % 4 : 2 * z.half + k % 2;
        const uint64_t ad = kd + at * 512 + in * 2, bd = qd + at * (128 * N >> 4) + in * 2;
        if (k == 0)
            wg_kk<0>(s1, ad, bd);
        else
            wg_kk<1>(s1, ad, bd);
    }
    wg_commit();
    wg_wait<0>();
    wg_hold(s1);
}

/* This half's token of a thread: its weights as B of O^T, N-major. */
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

/* What a thread keeps of a unit. */
template <int N> struct sums {
    float o[4][N / 2], m[N / 4], l[N / 4];
};

enum { LAZY = 8 };

/* m moves for the rows where a token of the page is more than LAZY over it (the test of one row does
 * not depend on the others), and O and l with it. */
template <int FMT, int N, int PAIRS>
__device__ inline void move_max(unsigned char *smem, sums<N> &s, const float (&e)[N / 4])
{
    using L = layout<FMT, N, PAIRS>;
    const place z = place_of(fresh_tid(), smem);
    float *mx = (float *)(smem + L::AT_MAX) + z.pair * 8 * N;
    float n[N / 4];
#pragma unroll
    for (int j = 0; j < N / 4; j++) {
        n[j] = fmaxf(e[j], __shfl_xor_sync(~0u, e[j], 4));
        n[j] = fmaxf(n[j], __shfl_xor_sync(~0u, n[j], 8));
        n[j] = fmaxf(n[j], __shfl_xor_sync(~0u, n[j], 16));
    }
    if (z.g == 0)
#pragma unroll
        for (int c = 0; c < N / 8; c++)
            *(float2 *)(mx + (4 * z.half + z.w) * N + 8 * c + 2 * z.t) =
                make_float2(n[2 * c], n[2 * c + 1]);
    bar_sync(1 + z.pair, 256);
#pragma unroll
    for (int c = 0; c < N / 8; c++) {
        float2 x = make_float2(-INFINITY, -INFINITY);
        for (int w = 0; w < 8; w++) {
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
        for (int q = 0; q < 4; q++) s.o[q][i] *= k, s.o[q][i + 2] *= k;
    }
}

/* One page of this pair.  more(): thread 0 looks whether there is room for pages. */
template <int FMT, int N, int PAIRS, class MORE>
__device__ inline void one_page(const place &z, const params &a, const page_at &pg, uint32_t empty,
                                uint64_t qd, const float (&qk)[N / 4], sums<N> &s, const MORE &more)
{
    using L = layout<FMT, N, PAIRS>;
    const int group = 3 + 2 * z.pair + z.half, tid = z.w * 32 + z.lane;
    unsigned char *v = z.smem + L::AT_V + (2 * z.pair + z.half) * L::V_HALF;
    unsigned char *pt = z.smem + L::AT_P + z.pair * L::P_BYTES;
    float s1[N / 2], s2[N / 2];
    float *send, *got;
    float u = 0;
    bool zero = false;
    if constexpr (FMT == BF16) {
        scores_bf16<N>(z, pg, qd, s1);
        unsigned char *x = z.smem + L::AT_X + z.pair * L::X_BYTES + tid * 16;
        send = (float *)(x + z.half * 128 * N), got = (float *)(x + (1 - z.half) * 128 * N);
    } else {
        const unsigned char *out = pg.rest + L::R_OUT + z.k0;
        const uint32_t oa = out[0], ob = out[8], ra = out[64], rb = out[72], o = z.half ? ob : oa;
        const float fa = __uint_as_float(oa << 23), fb = __uint_as_float(ob << 23);
        const float ea = __uint_as_float(ra << 23) * a.rope_k,
                    eb = __uint_as_float(rb << 23) * a.rope_k;
        zero = o == 0;
        u = zero ? -9.f : (float)((int)o - 127);
        scores<FMT, N, PAIRS>(z, a, pg, v, qd, s1, s2);
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            s1[i] = s1[i] * (i & 2 ? fb : fa) + s2[i] * (i & 2 ? eb : ea);
        /* Rows of codes of this warp: nobody else reads them. */
        unsigned char *x = const_cast<unsigned char *>(pg.slot) + z.w * 2048 + z.lane * 16;
        send = (float *)(x + z.half * (L::CODES / 2)),
        got = (float *)(x + (1 - z.half) * (L::CODES / 2));
        __syncwarp();
    }
    enum { STEP = FMT == BF16 ? 512 : 128 }; /* floats between the parts of an exchange */
    float e[N / 4], p[N / 4];
#pragma unroll
    for (int c = 0; c < N / 16; c++) { /* the other half's token goes there */
        const float *y = s1 + 8 * c;
        *(float4 *)(send + c * STEP) =
            z.half ? make_float4(y[0], y[1], y[4], y[5]) : make_float4(y[2], y[3], y[6], y[7]);
    }
    bar_sync(1 + z.pair, 256);
    bool over = false;
#pragma unroll
    for (int c = 0; c < N / 16; c++) {
        const float4 x = *(const float4 *)(got + c * STEP);
        const float *y = s1 + 8 * c;
        e[4 * c] = (z.half ? y[2] : y[0]) + x.x, e[4 * c + 1] = (z.half ? y[3] : y[1]) + x.y;
        e[4 * c + 2] = (z.half ? y[6] : y[4]) + x.z, e[4 * c + 3] = (z.half ? y[7] : y[5]) + x.w;
    }
#pragma unroll
    for (int j = 0; j < N / 4; j++) {
        e[j] = fmaf(e[j], qk[j], u);
        over |= e[j] > s.m[j] + LAZY;
        p[j] = nb_exp2(e[j] - s.m[j]);
    }
    const int r = 16 * z.w + z.g + 8 * z.half;
    put_p<FMT, N>(pt, r, z.t, zero, p);
    fence_async();
    if (bar_any(1 + z.pair, 256, over)) {
        move_max<FMT, N, PAIRS>(z.smem, s, e);
#pragma unroll
        for (int j = 0; j < N / 4; j++) p[j] = nb_exp2(e[j] - s.m[j]);
        put_p<FMT, N>(pt, r, z.t, zero, p);
        fence_async();
        bar_sync(1 + z.pair, 256);
    }
    if (FMT != BF16 && z.half == 0 && tid == 0) mbar_arrive(empty);
    more();
    const float back = FMT == BF16 ? 1 : nb_exp2(-u);
#pragma unroll
    for (int j = 0; j < N / 4; j++) s.l[j] += p[j] * back;
    const uint64_t vd = FMT == BF16 ? smem_desc(pg.slot_u32 + z.half * 32768, 1024, 1)
                                    : smem_desc(nb_smem(v), 1024, 1);
    const uint64_t pd = smem_desc(nb_smem(pt), 16 * N, N == 16 ? 3 : 2);
    wg_fence();
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            wg_mn<FMT == BF16>(s.o[i], vd + i * 512 + k * 128, pd + k * (2 * N));
    wg_commit();
    wg_wait<0>();
#pragma unroll
    for (int i = 0; i < 4; i++) wg_hold(s.o[i]);
    if (FMT == BF16) {
        bar_sync(1 + z.pair, 256); /* all products have read the slot */
        if (z.half == 0 && tid == 0) mbar_arrive(empty);
    } else {
        bar_sync(group, 128); /* and V may be written again */
    }
    more();
}

/* The state of unit k of an item: the pairs' sums joined, joined to those of the units before. */
template <int FMT, int N, int PAIRS, int WG, class MORE>
__device__ inline void put_unit(unsigned char *smem, const params &a, uint32_t k, sums<N> &s,
                                const MORE &more)
{
    using L = layout<FMT, N, PAIRS>;
    enum { TILES = PAIRS == 2 ? 2 : 4, PARTS = N / 8 };
    const int tid = fresh_tid();
    const place z = place_of<WG>(tid, smem);
    float *sum = (float *)(z.smem + L::AT_SUM), *mo = (float *)(z.smem + L::AT_M),
          *total = (float *)(z.smem + L::AT_TOTAL);
    const uint32_t *state = (const uint32_t *)(z.smem + L::AT_STATE);
#pragma unroll
    for (int j = 0; j < N / 4; j++) {
        s.l[j] += __shfl_xor_sync(~0u, s.l[j], 4);
        s.l[j] += __shfl_xor_sync(~0u, s.l[j], 8);
        s.l[j] += __shfl_xor_sync(~0u, s.l[j], 16);
    }
    if (z.g == 0)
#pragma unroll
        for (int j = 0; j < N / 4; j++) {
            const int c = j / 2 * 8 + 2 * z.t + j % 2;
            sum[(8 * z.pair + 4 * z.half + z.w) * N + c] = s.l[j];
            if (z.w == 0 && z.half == 0) mo[z.pair * N + c] = s.m[j];
        }
    bar_sync(7, L::THREADS);
    more();
    if constexpr (PAIRS == 2) {
        float4 *out = (float4 *)(z.smem + L::AT_V + (2 * z.pair + z.half) * L::V_HALF) + tid % 128;
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int q = 0; q < PARTS; q++) {
                float y[4];
#pragma unroll
                for (int n = 0; n < 4; n++)
                    y[n] = z.pair == 0 ? s.o[2 + i][4 * q + n] : s.o[i][4 * q + n];
                out[(i * PARTS + q) * 128] = make_float4(y[0], y[1], y[2], y[3]);
            }
        bar_sync(7, L::THREADS);
    }
    const float4 *in =
        (const float4 *)(z.smem + L::AT_V + (2 * (1 - z.pair) + z.half) * L::V_HALF) + tid % 128;
#pragma unroll
    for (int j = 0; j < N / 4; j++) {
        const int c = j / 2 * 8 + 2 * z.t + j % 2, col = j / 2 * 4 + j % 2;
        const uint32_t at = state[c];
        if (at == UINT32_MAX) continue;
        float m = mo[c];
        nb_mla_merge f = nb_mla_merge_of(m, PAIRS == 2 ? mo[N + c] : -INFINITY);
        m = nb_mla_state_m(f.m);
        const nb_mla_merge h = nb_mla_merge_of(k > 0 ? total[c] : -INFINITY, m);
        float *o = a.part_o + (size_t)at * LORA;
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int q = 0; q < 2; q++) {
                float x = s.o[i][col + 2 * q];
                if constexpr (PAIRS == 2) {
                    if (z.pair == 1) x = s.o[2 + i][col + 2 * q];
                    const float y = ((const float *)&in[(i * PARTS + j / 2) * 128])[j % 2 + 2 * q];
                    x = z.pair == 0 ? nb_mla_merged(f, x, y) : nb_mla_merged(f, y, x);
                }
                const int row = 16 * z.w + z.g + 8 * q, tile = i + (PAIRS == 2 ? 2 * z.pair : 0);
                float *to = o + dim_of<FMT>(4 * z.half + tile, row / 16, row % 16 / 2, row % 2);
                *to = nb_mla_merged(h, k > 0 ? *to : 0, x * a.o_scale);
            }
    }
    float m_new = 0;
    if (tid < N && state[tid] != UINT32_MAX) {
        float l[2] = { 0, 0 };
        for (int w = 0; w < 8 * PAIRS; w++) l[w / 8] += sum[w * N + tid];
        const nb_mla_merge f = nb_mla_merge_of(mo[tid], PAIRS == 2 ? mo[N + tid] : -INFINITY);
        const float m = nb_mla_state_m(f.m), l1 = nb_mla_merged(f, l[0], l[1]);
        const nb_mla_merge h = nb_mla_merge_of(k > 0 ? total[tid] : -INFINITY, m);
        const size_t at = state[tid];
        m_new = k > 0 ? h.m : m;
        a.part_l[at] = nb_mla_merged(h, k > 0 ? a.part_l[at] : 0, l1);
        a.part_m[at] = m_new;
        if (k > 0) {
            a.part_m[at + (size_t)k * a.n_head] = -INFINITY;
            a.part_l[at + (size_t)k * a.n_head] = 0;
        }
    }
    bar_sync(7, L::THREADS);
    if (tid < N) total[tid] = m_new; /* read after the next barrier of all */
}

/* What thread 0 does between other things. */
template <int FMT, int N, int PAIRS, bool FETCHES> struct fetcher {
    const params &a;
    const CUtensorMap *codes, *rope;
    uint32_t base;
    unsigned char *smem;
    uint32_t &known, &c, &b;
    __device__ inline void operator()() const
    {
        if (FETCHES && threadIdx.x == 0)
            fetch<FMT, N, PAIRS>(a, codes, rope, base, smem, known, c, b);
    }
    /* Until so many have been fetched: before thread 0 waits for something that needs them. */
    __device__ inline void until(uint32_t n) const
    {
        if (FETCHES && threadIdx.x == 0)
            while (c < n) fetch<FMT, N, PAIRS>(a, codes, rope, base, smem, known, c, b);
    }
};

template <int FMT, int N, int PAIRS, int WG>
__device__ inline void consume(const params &a, const CUtensorMap *codes, const CUtensorMap *rope,
                               uint32_t base, unsigned char *smem)
{
    using L = layout<FMT, N, PAIRS>;
    const int tid = threadIdx.x;
    const place z = place_of<WG>(tid, smem);
    const uint32_t bars = base + L::AT_BAR, empty = bars + 16 * L::SLOTS;
    const uint64_t qd = smem_desc(base, 1024, 1);
    const uint32_t n_item = *a.n_item, per = N / a.n_head;
    volatile uint32_t *ring = (volatile uint32_t *)(smem + L::AT_ITEM);
    uint32_t c = 0, phase = 0, known = 0, ahead = 0, block = 0;
    const fetcher<FMT, N, PAIRS, WG == 0> more = {
        a, codes, rope, base, smem, known, ahead, block
    };
    if (tid == 0) {
        volatile walk *w = (volatile walk *)(smem + L::AT_WALK);
        w->item = UINT32_MAX, w->at = w->end = 0;
        ring[0] = blockIdx.x;
    }
    more();
    for (uint32_t n = 0;; n++) {
        const uint32_t index = n == 0 ? blockIdx.x : ring[n % RING];
        if (index >= n_item) break;
        const nb_cuda_item it = a.item[index];
        uint32_t following = 0;
        if (tid == 0) following = gridDim.x + atomicAdd(a.next, 1u);
        for (uint32_t q0 = 0; q0 < it.n_q; q0 += per) {
            const uint32_t n_row = min(per, it.n_q - q0) * a.n_head;
            pack_q<FMT, N, PAIRS>(a, it, q0, n_row, smem);
            if (tid < N)
                ((uint32_t *)(smem + L::AT_STATE))[tid] =
                    (uint32_t)tid < n_row
                        ? (a.part_first[it.row0 + q0 + tid / a.n_head] + it.unit0) * a.n_head +
                              tid % a.n_head
                        : UINT32_MAX;
            if (tid == 0) ring[(n + 1) % RING] = following;
            fence_async();
            bar_sync(7, L::THREADS);
            known = n + 1;
            more();
            float qk[N / 4];
#pragma unroll
            for (int j = 0; j < N / 4; j++)
                qk[j] = ((const float *)(smem + L::AT_QK))[j / 2 * 8 + 2 * z.t + j % 2];
            for (uint32_t p0 = 0; p0 < it.n_page; p0 += UNIT) {
                const uint32_t n_page = min((uint32_t)UNIT, it.n_page - p0);
                sums<N> s;
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < N / 2; j++) s.o[i][j] = 0;
#pragma unroll
                for (int j = 0; j < N / 4; j++) s.m[j] = -INFINITY, s.l[j] = 0;
                for (uint32_t p = z.pair; p < n_page; p += PAIRS) {
                    const uint32_t slot = (c + p) % L::SLOTS;
                    more.until(c + p + 1);
                    mbar_wait(bars + 8 * (2 * slot + z.pair), phase >> slot & 1);
                    phase ^= 1u << slot;
                    page_at pg;
                    pg.slot = smem + L::AT_SLOT + slot * L::CODES;
                    pg.rest = smem + L::AT_REST + slot * L::REST;
                    pg.slot_u32 = base + L::AT_SLOT + slot * L::CODES;
                    one_page<FMT, N, PAIRS>(z, a, pg, empty + 8 * slot, qd, qk, s, more);
                }
                c += n_page;
                more.until(c);
                put_unit<FMT, N, PAIRS, WG>(smem, a, p0 / UNIT, s, more);
            }
        }
    }
    if (tid == 0) {
        __threadfence();
        if (atomicAdd(a.done, 1u) == gridDim.x - 1) *a.next = 0, *a.done = 0;
    }
}

template <int FMT, int N, int PAIRS>
__global__ void __launch_bounds__(layout<FMT, N, PAIRS>::THREADS, 1)
    mla_few(const __grid_constant__ params a, const __grid_constant__ CUtensorMap codes,
            const __grid_constant__ CUtensorMap rope)
{
    using L = layout<FMT, N, PAIRS>;
    extern __shared__ unsigned char few_raw[];
    unsigned char *smem = few_raw + (1024 - nb_smem(few_raw) % 1024) % 1024;
    const uint32_t base = nb_smem(smem), bars = base + L::AT_BAR;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 3 * L::SLOTS; i++) mbar_init(bars + 8 * i, 1);
        asm volatile("fence.mbarrier_init.release.cluster;");
        fence_async();
    }
    __syncthreads();
    const int wg = threadIdx.x / 128;
    if (wg == 0)
        consume<FMT, N, PAIRS, 0>(a, &codes, &rope, base, smem);
    else if (wg == 1)
        consume<FMT, N, PAIRS, 1>(a, &codes, &rope, base, smem);
    else if (PAIRS == 2 && wg == 2)
        consume<FMT, N, PAIRS, 2>(a, &codes, &rope, base, smem);
    else if (PAIRS == 2 && wg == 3)
        consume<FMT, N, PAIRS, 3>(a, &codes, &rope, base, smem);
}

} // namespace few

#endif
