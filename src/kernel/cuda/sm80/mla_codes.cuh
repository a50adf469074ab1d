/* mla_codes.cuh - absorbed attention over pages of 4-bit codes, for at most 16 rows (query, head) at a time.
 *
 * Computes the partial state (m, l, o) of each unit, as mla_mma.cu does.  (A unit: a fixed range of pages whose
 * attention is one partial state; api/nb_cuda_units.h.)  The 16 rows are the rows of mma.m16n8k16; tokens, then
 * dimensions, are its columns.
 *
 * A block of 8 warps walks over the pages of a work item; the next page is prefetched into a second buffer.
 * Each warp owns 64 dimensions, for scores and for values:
 *   1. It converts the codes of 32 tokens to FP16, exactly, and keeps them in registers.
 *   2. It multiplies them with its part of the queries; the partial scores of all warps meet in shared memory.
 *   3. It adds the partial scores of 8 tokens and 8 rows, and computes their weights.
 *   4. The registers of step 1, transposed by movmatrix (one cycle of shared memory for 8 x 8 values), are the
 *      operand of o += p v.
 * So codes are decoded once, and values never pass through shared memory.
 *
 * Order of a token's codes: lane (g, t) has 16 dimensions (one block scale) of token r(g) of 8, as 8 pairs
 * p = 0..7: of word p / 4 the codes (1,3) (5,7) (0,2) (4,6) for p % 4.  Pairs 2 i and 2 i + 1 are the operand of
 * k-step i of the scores; pair p is a tile of 8 x 8 (lanes t, two each) of the values.
 *
 * A row's maximum m moves only when a score exceeds it by more than LAZY.  Each unit starts afresh, so its state
 * depends on its pages alone.  The units of an item are combined by the block that computes them, through memory.
 * Blocks are persistent: they take further items from a counter. */
#ifndef NB_KERNEL_CUDA_SM80_MLA_CODES_CUH
#define NB_KERNEL_CUDA_SM80_MLA_CODES_CUH
#include "kernel/cuda/common/mla_params.cuh"
#include "kernel/cuda/common/mla_state.cuh"

namespace codes
{

enum { TOK = 64, LORA = 512, ROPE = 64, ROWS = 16 };
enum { LAZY = 14 };
/* Layout of a page: codes [64][256 bytes], block scales [64][32], rope codes [64][64], exponents of the outer
 * scales [64] and of the rope key [64]. */
enum { AT_SCALE = 16384, AT_ROPE = 18432, AT_OUT = 22528, AT_ROPE_OUT = 22592, PAGE = 22656 };
constexpr float UNIT = 512; /* a value is its code times its scale / UNIT */

typedef nb_mla_params params;

/* Items taken beyond the first of every block; blocks that have finished.  Both are 0 between launches. */
__device__ uint32_t n_next, n_done;

enum {
    WARPS = 8,
    THREADS = 32 * WARPS,
    BLOCKS = 2,     /* per SM */
    NT = WARPS / 2, /* tiles of 8 tokens in a step; a warp adds one, for half of the rows */
    T = 8 * NT,
    PAIRS = 8,
    STEPS = PAIRS / 2,
    AT_PART = 2 * PAGE,                       /* float2 [NT][2][WARPS][32] */
    AT_P = AT_PART + NT * 2 * WARPS * 32 * 8, /* [T / 16][32 lanes][4 registers] */
    AT_MISC = AT_P + T * ROWS * 2,
    BYTES = AT_MISC + 1024
};

struct misc {               /* 1024 bytes */
    float top[WARPS][ROWS]; /* of queries, by warp; of scores and sums of weights, by token tile */
    float m[ROWS];
    uint32_t state[ROWS];
    uint32_t index[2];
};

/* Token of column g of a tile, chosen so that tokens read together are in different banks. */
__device__ inline int token_of(int g)
{
    return 2 * (g & 3) + g / 4;
}

/* Offset of byte `at` of a row's rope codes: two rows read together are in different halves of 128 bytes. */
__device__ inline int rope_at(int row, int at)
{
    return (row * ROPE + at) ^ (row >> 1 & 1) << 6;
}

__device__ inline __half2 halves(uint32_t a)
{
    __half2 x;
    memcpy(&x, &a, sizeof x);
    return x;
}
__device__ inline uint32_t bits(__half2 x)
{
    uint32_t a;
    memcpy(&a, &x, sizeof a);
    return a;
}
__device__ inline uint32_t mul_f16x2(uint32_t a, uint32_t b)
{
    return bits(__hmul2(halves(a), halves(b)));
}
__device__ inline uint32_t sub_f16x2(uint32_t a, uint32_t b)
{
    return bits(__hsub2(halves(a), halves(b)));
}

/* Converts eight codes to four pairs of FP16.  A code's bits, shifted to the lowest bits of FP16's exponent and the
 * highest of its fraction, are the code times 2^-14.  Uniform steps (IF4) are one bit lower, so times 2^-16.  f: the
 * scale times 2^5, or 2^7. */
template <bool IF4> __device__ inline void eight(uint32_t q, uint32_t f, bool steps, uint32_t *out)
{
    uint32_t hi, lo;
    if (IF4) {
        const uint32_t shift = steps ? 4 : 3, mask = steps ? 0x07070707u : 0x0e0e0e0eu, r = q * 16;
        hi = (q & 0x80808080u) | (q >> shift & mask);
        lo = (r & 0x80808080u) | (r >> shift & mask);
    } else {
        hi = (q & 0x80808080u) | (q >> 3 & 0x0e0e0e0eu);
        lo = (q * 16 & 0x80808080u) | (q * 2 & 0x0e0e0e0eu);
    }
    out[0] = mul_f16x2(__byte_perm(hi, 0, 0x1404), f);
    out[1] = mul_f16x2(__byte_perm(hi, 0, 0x3424), f);
    out[2] = mul_f16x2(__byte_perm(lo, 0, 0x1404), f);
    out[3] = mul_f16x2(__byte_perm(lo, 0, 0x3424), f);
}

/* Converts four rope bytes of a word to two pairs. */
template <bool INT8> __device__ inline void rope4(uint32_t w, uint32_t &x, uint32_t &y)
{
    if (INT8) { /* 1024 + byte, minus 1152 */
        const uint32_t u = w ^ 0x80808080u;
        x = sub_f16x2(__byte_perm(u, 0x64646464u, 0x4140), 0x64806480u);
        y = sub_f16x2(__byte_perm(u, 0x64646464u, 0x4342), 0x64806480u);
    } else { /* E4M3: its bits, shifted down by one, are the value times 2^-8 */
        const uint32_t a = __byte_perm(w, 0, 0x1404), b = __byte_perm(w, 0, 0x3424);
        x = mul_f16x2((a & 0x80008000u) | (a >> 1 & 0x3f803f80u), 0x5c005c00u);
        y = mul_f16x2((b & 0x80008000u) | (b >> 1 & 0x3f803f80u), 0x5c005c00u);
    }
}

/* First dimension of pair p, of 16; the second is 2 more. */
__device__ inline int pair_dim(int p)
{
    return p / 4 * 8 + p % 2 * 4 + (p % 4 < 2 ? 1 : 0);
}

struct lane_of {
    int w, lane, g, t;
    int j, h; /* token tile and half of the rows whose weights the warp computes */
};

/* Starts copying a page to a slot, 16 bytes at a time, each to its swizzled place. */
__device__ inline void fetch(unsigned char *slot, const unsigned char *page, int tid)
{
#pragma unroll
    for (int k = 0; k < (PAGE / 16 + THREADS - 1) / THREADS; k++) {
        const int i = tid + k * THREADS;
        int to = 16 * i;
        if (16 * (k + 1) * THREADS <= AT_SCALE)
            to = (i / 16) * 256 + (i & 8) * 16 + ((i ^ i / 16) & 7) * 16;
        else if (i >= AT_ROPE / 16 && i < AT_OUT / 16)
            to = AT_ROPE + rope_at((i - AT_ROPE / 16) / 4, (i & 3) * 16);
        if (16 * (k + 1) * THREADS <= PAGE || i < PAGE / 16)
            nb_cp_async16(slot + to, page + (size_t)i * 16);
    }
    nb_cp_async_commit();
}

/* The queries of a pass as operands: the lane's rows g, g + 8 for the warp's dimensions; and row g of the warp's
 * half for all dimensions of the rope key.  Each row is scaled by a power of two; qk undoes that in its scores
 * and includes the softmax scale. */
struct queries {
    uint32_t a[STEPS][4], rope[4][2];
    float qk; /* of the row of the warp's half */
};

__device__ inline void load_q(const params &a, const nb_cuda_item &it, uint32_t q0, uint32_t n_row,
                              const lane_of &z, misc *x, queries &o)
{
    float v[3][16], top[3] = { 0, 0, 0 }; /* rows g and g + 8; rope key */
#pragma unroll
    for (int i = 0; i < 3; i++) {
        const uint32_t row = z.g + 8 * (i < 2 ? i : z.h);
        const float *q = a.q + (it.row0 + q0 + row / a.n_head) * a.q_stride +
                         row % a.n_head * a.q_head +
                         (i < 2 ? (4 * z.w + z.t) * 16 : LORA + 16 * z.t);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float4 f = make_float4(0, 0, 0, 0);
            if (row < n_row) f = *(const float4 *)(q + 4 * k);
            v[i][4 * k] = f.x, v[i][4 * k + 1] = f.y, v[i][4 * k + 2] = f.z, v[i][4 * k + 3] = f.w;
        }
#pragma unroll
        for (int k = 0; k < 16; k++) top[i] = fmaxf(top[i], fabsf(v[i][k]));
    }
    top[0] = fmaxf(top[0], z.h == 0 ? top[2] : 0);
    top[1] = fmaxf(top[1], z.h == 1 ? top[2] : 0);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        top[i] = fmaxf(top[i], __shfl_xor_sync(~0u, top[i], 1));
        top[i] = fmaxf(top[i], __shfl_xor_sync(~0u, top[i], 2));
        if (z.t == 0) x->top[z.w][z.g + 8 * i] = top[i];
    }
    __syncthreads();
    float down[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float m = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) m = fmaxf(m, x->top[w][z.g + 8 * i]);
        const int e = max(1, min(253, (int)(__float_as_uint(m) >> 23)));
        down[i] = __uint_as_float((uint32_t)(254 - e) << 23);
        if (i == z.h) o.qk = a.k * __uint_as_float((uint32_t)e << 23);
    }
#pragma unroll
    for (int i = 0; i < STEPS; i++)
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int d = pair_dim(2 * i + k / 2), n = k % 2;
            o.a[i][k] = nb_pack_f16(v[n][d] * down[n], v[n][d + 2] * down[n]);
        }
    const float dr = z.h ? down[1] : down[0];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int k = 0; k < 2; k++)
            o.rope[i][k] = nb_pack_f16(v[2][4 * i + 2 * k] * dr, v[2][4 * i + 2 * k + 1] * dr);
}

/* A thread's part of a unit's state: rows g and g + 8.  l: of its own tokens and the row of its half. */
struct sums {
    float o[PAIRS][4], m[2], l;
};

/* Scores of a token tile: decoded values to v, this warp's partial sums to shared memory. */
template <bool IF4>
__device__ inline void scores(const unsigned char *slot, int tok, const lane_of &z,
                              const queries &q, unsigned char *smem, uint32_t (&v)[NT][PAIRS])
{
    const int r = token_of(z.g);
    const int chunk = 2 * z.w + z.t / 2;
    const unsigned char *at =
        slot + (tok + r) * 256 + (chunk & 8) * 16 + ((chunk ^ r) & 7) * 16 + 8 * (z.t & 1);
    const unsigned char *scale = slot + AT_SCALE + (tok + r) * 32 + 4 * z.w + z.t;
    float2 *part = (float2 *)(smem + AT_PART) + z.w * 32 + z.lane;
    float s[NT][4];
#pragma unroll
    for (int j = 0; j < NT; j++) {
        const uint2 c = *(const uint2 *)(at + j * 2048);
        const uint32_t b = scale[j * 256];
        const bool steps = IF4 && b & 128;
        const uint32_t f = mul_f16x2((b & 127) * 0x00800080u, steps ? 0x78007800u : 0x70007000u);
        eight<IF4>(c.x, f, steps, v[j]);
        eight<IF4>(c.y, f, steps, v[j] + 4);
#pragma unroll
        for (int k = 0; k < 4; k++) s[j][k] = 0;
    }
#pragma unroll
    for (int i = 0; i < STEPS; i++)
#pragma unroll
        for (int j = 0; j < NT; j++) nb_mma_f16(s[j], q.a[i], v[j][2 * i], v[j][2 * i + 1]);
#pragma unroll
    for (int j = 0; j < NT; j++) {
        part[(2 * j) * THREADS] = make_float2(s[j][0], s[j][1]);
        part[(2 * j + 1) * THREADS] = make_float2(s[j][2], s[j][3]);
    }
}

/* The rope key's scores, for the warp's own tile and rows. */
template <bool INT8>
__device__ inline void rope_scores(const unsigned char *slot, int tok, const lane_of &z,
                                   const queries &q, float (&s)[4])
{
    const int row = tok + 8 * z.j + token_of(z.g);
    const uint4 c = *(const uint4 *)(slot + AT_ROPE + rope_at(row, 16 * z.t));
    const uint32_t w[4] = { c.x, c.y, c.z, c.w };
#pragma unroll
    for (int k = 0; k < 4; k++) s[k] = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t x, y;
        rope4<INT8>(w[i], x, y);
        const uint32_t a[4] = { q.rope[i][0], 0, q.rope[i][1], 0 };
        nb_mma_f16(s, a, x, y);
    }
}

/* Moves m of the rows where a token of the tile exceeds it by more than LAZY, and rescales O and l.  The test of a row
 * does not depend on other rows. */
__device__ inline void move_max(misc *x, const lane_of &z, sums &s, const float (&e)[2])
{
    float n = fmaxf(e[0], e[1]);
    n = fmaxf(n, __shfl_xor_sync(~0u, n, 1));
    n = fmaxf(n, __shfl_xor_sync(~0u, n, 2));
    if (z.t == 0) x->top[z.j][8 * z.h + z.g] = n;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float top = -INFINITY;
#pragma unroll
        for (int j = 0; j < NT; j++) top = fmaxf(top, x->top[j][z.g + 8 * i]);
        const bool move = top > s.m[i] + LAZY;
        const float k = move ? nb_exp2(s.m[i] - top) : 1;
        if (move) s.m[i] = top;
        if (i == z.h) s.l *= k;
#pragma unroll
        for (int p = 0; p < PAIRS; p++) s.o[p][2 * i] *= k, s.o[p][2 * i + 1] *= k;
    }
    __syncthreads(); /* top is reused */
}

/* Processes T tokens of the page in `slot`, from token tok on. */
template <bool IF4, bool INT8>
__device__ inline void one_tile(const params &a, const unsigned char *slot, int tok,
                                const lane_of &z, const queries &q, unsigned char *smem, sums &s)
{
    uint32_t v[NT][PAIRS];
    float rope[4], e[2], p[2];
    scores<IF4>(slot, tok, z, q, smem, v);
    rope_scores<INT8>(slot, tok, z, q, rope);
    uint32_t out[2], rout[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = tok + 8 * z.j + token_of(2 * z.t + i);
        out[i] = slot[AT_OUT + row], rout[i] = slot[AT_ROPE_OUT + row];
    }
    __syncthreads();
    {
        const float2 *part = (const float2 *)(smem + AT_PART) + (2 * z.j + z.h) * THREADS + z.lane;
        float2 x = part[0];
#pragma unroll
        for (int w = 1; w < WARPS; w++) {
            const float2 y = part[32 * w];
            x.x += y.x, x.y += y.y;
        }
        const float m = z.h ? s.m[1] : s.m[0];
        bool over = false;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float u = out[i] ? (float)((int)out[i] - 127) : -9.f;
            const float lat = (i ? x.y : x.x) * __uint_as_float(out[i] << 23);
            e[i] = fmaf(lat + rope[i] * (__uint_as_float(rout[i] << 23) * a.rope_k), q.qk, u);
            over |= e[i] > m + LAZY;
            p[i] = nb_exp2(e[i] - m);
        }
        uint32_t *pt = (uint32_t *)(smem + AT_P) + (z.j / 2 * 32 + z.lane) * 4 + z.j % 2 * 2 + z.h;
        *pt = nb_pack_f16(out[0] ? p[0] : 0, out[1] ? p[1] : 0);
        if (__syncthreads_or(over)) {
            move_max((misc *)(smem + AT_MISC), z, s, e);
            const float n = z.h ? s.m[1] : s.m[0];
            p[0] = nb_exp2(e[0] - n), p[1] = nb_exp2(e[1] - n);
            *pt = nb_pack_f16(out[0] ? p[0] : 0, out[1] ? p[1] : 0);
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
            s.l = fmaf(p[i], nb_exp2(out[i] ? (float)(127 - (int)out[i]) : 9.f), s.l);
    }
#pragma unroll
    for (int k = 0; k < T / 16; k++) {
        const uint4 x = ((const uint4 *)(smem + AT_P))[k * 32 + z.lane];
        const uint32_t pa[4] = { x.x, x.y, x.z, x.w };
#pragma unroll
        for (int d = 0; d < PAIRS; d++)
            nb_mma_f16(s.o[d], pa, nb_movmatrix(v[2 * k][d]), nb_movmatrix(v[2 * k + 1][d]));
    }
}

/* Four dimensions, from 4 c on, of a lane's row i, collected from o. */
__device__ inline float4 four(const float (&o)[PAIRS][4], int c, int i)
{
    const int odd = c / 2 * 4 + c % 2, even = odd + 2; /* pairs with dims 1, 3 and 0, 2 (of 4) */
    return make_float4(o[even][2 * i], o[odd][2 * i], o[even][2 * i + 1], o[odd][2 * i + 1]);
}

/* Writes the state of unit k of an item, combined with the units before; the result is stored as the first unit's. */
__device__ inline void put_unit(unsigned char *smem, const params &a, const lane_of &z, uint32_t k,
                                const sums &s, float (&m)[2])
{
    misc *x = (misc *)(smem + AT_MISC);
    const int tid = z.w * 32 + z.lane;
    float l = s.l;
    l += __shfl_xor_sync(~0u, l, 1);
    l += __shfl_xor_sync(~0u, l, 2);
    if (z.t == 0) x->top[z.j][8 * z.h + z.g] = l;
    if (z.t == 0 && z.w == 0) x->m[z.g] = s.m[0], x->m[z.g + 8] = s.m[1];
    __syncthreads();
    if (tid < ROWS && x->state[tid] != UINT32_MAX) {
        float l1 = 0;
#pragma unroll
        for (int j = 0; j < NT; j++) l1 += x->top[j][tid];
        const size_t to = x->state[tid];
        const nb_mla_merge f =
            nb_mla_merge_of(k > 0 ? a.part_m[to] : -INFINITY, nb_mla_state_m(x->m[tid]));
        a.part_l[to] = nb_mla_merged(f, k > 0 ? a.part_l[to] : 0, l1);
        a.part_m[to] = f.m;
        if (k > 0) {
            a.part_m[to + (size_t)k * a.n_head] = -INFINITY;
            a.part_l[to + (size_t)k * a.n_head] = 0;
        }
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const nb_mla_merge f = nb_mla_merge_of(k > 0 ? m[i] : -INFINITY, nb_mla_state_m(s.m[i]));
        const uint32_t to = x->state[z.g + 8 * i];
        m[i] = f.m;
        if (to == UINT32_MAX) continue;
        float4 *y = (float4 *)(a.part_o + (size_t)to * LORA + (4 * z.w + z.t) * 16), old[4];
#pragma unroll
        for (int c = 0; c < 4; c++) old[c] = k > 0 ? y[c] : make_float4(0, 0, 0, 0);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const float4 v = four(s.o, c, i);
            y[c] = make_float4(nb_mla_merged(f, old[c].x, v.x * a.o_scale),
                               nb_mla_merged(f, old[c].y, v.y * a.o_scale),
                               nb_mla_merged(f, old[c].z, v.z * a.o_scale),
                               nb_mla_merged(f, old[c].w, v.w * a.o_scale));
        }
    }
}

/* Queries q0 to q0 + n_row / n_head of an item, over all its pages. */
template <bool IF4, bool INT8>
__device__ inline void one_pass(const params &a, const nb_cuda_item &it, uint32_t q0,
                                nb_cuda_units units, unsigned char *smem, const lane_of &z)
{
    misc *x = (misc *)(smem + AT_MISC);
    const int tid = z.w * 32 + z.lane;
    const uint32_t per = ROWS / a.n_head, left = it.n_q - q0,
                   n_row = (left < per ? left : per) * a.n_head;
    const uint32_t *block = a.block + a.chunk[it.chunk].block0 + nb_cuda_unit_page(units, it.unit0);
    fetch(smem, a.page + block[0] * a.block_bytes, tid);
    uint32_t b = block[it.n_page > 1 ? 1 : 0];
    if (tid < ROWS)
        x->state[tid] = (uint32_t)tid < n_row
                            ? (a.part_first[it.row0 + q0 + tid / a.n_head] + it.unit0) * a.n_head +
                                  tid % a.n_head
                            : UINT32_MAX;
    queries q;
    load_q(a, it, q0, n_row, z, x, q);
    float m[2] = { -INFINITY, -INFINITY };
    for (uint32_t p = 0, k = 0; p < it.n_page; k++) {
        const uint32_t n = nb_cuda_unit_pages(units, it.unit0 + k),
                       end = it.n_page - p < n ? it.n_page : p + n;
        sums s;
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) s.o[i][j] = 0;
        s.m[0] = s.m[1] = -INFINITY, s.l = 0;
        for (; p < end; p++) {
            nb_cp_async_wait<0>();
            __syncthreads(); /* the page has arrived, and the previous one is dead */
            if (p + 1 < it.n_page) {
                fetch(smem + (p + 1) % 2 * PAGE, a.page + b * a.block_bytes, tid);
                b = block[p + 2 < it.n_page ? p + 2 : 0];
            }
            const unsigned char *slot = smem + p % 2 * PAGE;
#pragma unroll 1
            for (int tok = 0; tok < TOK; tok += T) one_tile<IF4, INT8>(a, slot, tok, z, q, smem, s);
        }
        put_unit(smem, a, z, k, s, m);
    }
    __syncthreads(); /* shared memory is reused */
}

template <bool IF4, bool INT8>
__global__ void __launch_bounds__(THREADS, BLOCKS) mla_codes(NB_PARAM params a, nb_cuda_units units)
{
    NB_SHARED(unsigned char, smem);
    misc *x = (misc *)(smem + AT_MISC);
    const int tid = threadIdx.x;
    lane_of z;
    z.w = tid / 32, z.lane = tid % 32, z.g = z.lane / 4, z.t = z.lane % 4, z.j = z.w / 2,
    z.h = z.w % 2;
    nb_grid_wait();
    nb_grid_next(); /* mla_tail runs beside this */
    const uint32_t n_item = *a.n_item;
    uint32_t index = blockIdx.x;
    for (uint32_t n = 0; index < n_item; n++) {
        if (tid == 0) x->index[n % 2] = gridDim.x + atomicAdd(&n_next, 1u);
        const nb_cuda_item it = a.item[index];
        for (uint32_t q0 = 0; q0 < it.n_q; q0 += ROWS / a.n_head)
            one_pass<IF4, INT8>(a, it, q0, units, smem, z);
        index = x->index[n % 2];
    }
    if (tid == 0) {
        __threadfence();
        if (atomicAdd(&n_done, 1u) == gridDim.x - 1) n_next = 0, n_done = 0;
    }
}

} // namespace codes

#endif
