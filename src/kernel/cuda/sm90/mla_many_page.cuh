/* mla_many_page.cuh - the producer of mla_many.cu: turns pages of the cache into tiles in shared memory.
 *
 * Tile: 64 tokens as 9 chunks of [64][128 bytes] (layout: mla_many_ptx.cuh).  Chunks c and 4 + c (c < 4) hold latent
 * dims 128 c .. 128 c + 127; chunk 8 holds the rope key.  A tile is written in 3 stages, each with its barrier "full":
 *   stage 0  chunks 0 4
 *   stage 1  chunks 1 5 2 6
 *   stage 2  chunks 3 7 8; it is last because the previous weights use chunk 8 to the end
 *
 * BF16 pages: one thread issues tensor copies (TMA).  Other formats: each of the 4 warps decodes 16 tokens to FP16,
 * exactly except for the outer scales.  The buffer of each 16 tokens is released on its own (barriers "empty").  A warp
 * loads codes to registers one stage ahead and writes 16-byte pieces without bank conflicts.  Within 128 dims it uses
 * the order that costs no instruction (many_dim).
 *
 * Outer scales: a token's factor is 2^(c - 127), where c is the latent's outer scale.  The rope key's codes are
 * multiplied by 2^(rope's - c).  That is exact in FP16 up to 2^9 (INT8) or 2^7 (E4M3).  Beyond that, c is larger and
 * the latent's codes are divided instead.  The division is exact down to 2^-14 (2^-7 for NVFP4, whose
 * tiles hold values times 2^-7).  Below that it loses what lies that far under the rope key.
 *
 * A unit is a fixed range of pages whose attention is one partial state (nb_cuda_units.h). */
#ifndef NB_KERNEL_CUDA_SM90_MLA_MANY_PAGE_CUH
#define NB_KERNEL_CUDA_SM90_MLA_MANY_PAGE_CUH
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/sm90/mla_many_ptx.cuh"

namespace
{

enum { KIND_BF16, KIND_FP8, KIND_NVFP4, KIND_IF4 };
constexpr nb_cuda_units UNITS = NB_CUDA_MLA_MANY_UNITS;
enum { ROWS = 64, LORA = 512, ROPE = 64 };
enum { CHUNK = 8192, TILE = 9 * CHUNK };

/* Layout of shared memory; it starts at a multiple of 1024 bytes. */
enum {
    AT_TILE = TILE,                /* the queries lie before it, as a tile */
    AT_TOKEN = AT_TILE + 2 * TILE, /* [2 tiles][64 tokens] of (2^c, c) */
    AT_STATE = AT_TOKEN + 1024,    /* [2 tiles][2][64]: factor, m */
    AT_END = AT_STATE + 1024,      /* [4 tiles][3][64]: earlier m, unit's m, the last tile's */
    AT_TOP = AT_END + 3072,        /* m and l of the work so far: [2][64] */
    AT_ROW = AT_TOP + 512,         /* [4 works][64]: row_of */
    AT_SUM = AT_ROW + 1024,        /* [2][128 threads]: sums of weights */
    AT_FLAG = AT_SUM + 1024,       /* [2 tiles][4 warps] */
    AT_WORK = AT_FLAG + 32,        /* [8] of many_work */
    AT_ZERO = AT_WORK + 128,       /* a word that is 0 */
    AT_BAR = AT_ZERO + 16,
    SMEM = AT_BAR + 168
};
enum {                            /* barriers */
       BAR_FULL = AT_BAR,         /* [2 tiles][3 stages], 40 bytes apart */
       BAR_EMPTY = BAR_FULL + 80, /* [2 tiles][4 steps of 16 tokens] */
       BAR_P = BAR_EMPTY + 64,    /* [2 tiles] */
       BAR_Q = BAR_P + 16
};

/* Constants of a launch, in addition to the arguments. */
struct many_plan {
    const unsigned char *q; /* packed queries, planes of n_flat rows of 128 bytes */
    const float *q_factor;  /* [n_flat] */
    size_t q_plane;         /* bytes */
    uint32_t code_off, scale_off, rope_off, outer_off, rope_outer_off, page_bytes;
    uint32_t zero; /* 0, but the compiler does not know it */
    bool rope_int8;
    float v_scale; /* the fixed scale, else 1 */
};

/* The latent dim at column x of chunk c (< 8) of a tile. */
template <int KIND> __host__ __device__ constexpr uint32_t many_dim(uint32_t c, uint32_t x)
{
    const uint32_t half = c / 4, base = c % 4 * 128, col = x / 8, e = x % 8;
    if (KIND == KIND_BF16) return base + 64 * half + x;
    if (KIND == KIND_FP8) return base + 16 * col + 8 * half + e;
    /* a word of codes gives dims 1 3 5 7 0 2 4 6 */
    const uint32_t d = KIND == KIND_NVFP4 || KIND == KIND_IF4 ? (e < 4 ? 2 * e + 1 : 2 * e - 8) : e;
    return base + 32 * (col / 2) + 16 * half + 8 * (col % 2) + d;
}

/* ---- the order of work ---- */

/* A work is 64 rows of a work item.  Block b of G takes works b, 2 G - 1 - b, 2 G + b, ..., which balances lists sorted
 * by length.  The producer finds them and publishes them in a ring (AT_WORK). */
struct many_work {
    uint32_t item, page, end; /* pages [page, end) of the sequence; end 0: no more work */
    uint32_t flat;            /* first row of the packed queries */
};
struct many_walk {
    uint32_t round, item, before, n_item, lane; /* before: works before `item` */
};

__device__ inline many_walk walk_start(const nb_cuda_mla_args &a, uint32_t lane)
{
    return { 0, 0, 0, *a.n_item, lane };
}
/* Called by a whole warp.  A cluster takes CL groups of 64 rows of an item, one per block. */
template <int CL> __device__ inline many_work walk_next(const nb_cuda_mla_args &a, many_walk &k)
{
    const uint32_t lane = k.lane, n = gridDim.x / CL, b = blockIdx.x / CL;
    const uint32_t want = k.round * n + (k.round & 1 ? n - 1 - b : b);
    k.round++;
    while (k.item < k.n_item) {
        const uint32_t i = k.item + lane;
        const uint32_t rows = i < k.n_item ? a.item[i].n_q * (uint32_t)a.n_head : 0;
        const uint32_t own = (rows + ROWS * CL - 1) / (ROWS * CL);
        uint32_t sum = own;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const uint32_t other = __shfl_up_sync(~0u, sum, d);
            if (lane >= (uint32_t)d) sum += other;
        }
        const uint32_t in = __ballot_sync(~0u, k.before + sum > want);
        if (in) {
            const int at = __ffs(in) - 1;
            const uint32_t first = k.before + __shfl_sync(~0u, sum - own, at);
            many_work w;
            w.item = k.item + at;
            uint32_t blk = want - first;
            if (CL > 1) blk = CL * blk + nb_cluster_rank();
            const nb_cuda_item &it = a.item[w.item];
            w.page = (uint32_t)nb_cuda_unit_page(UNITS, it.unit0), w.end = w.page + it.n_page;
            w.flat = it.row0 * (uint32_t)a.n_head + ROWS * blk;
            k.item += at, k.before = first;
            return w;
        }
        k.before += __shfl_sync(~0u, sum, 31);
        k.item += 32;
    }
    return { 0, 0, 0, 0 };
}

/* Iterates over the pages of all works; called by a whole warp. */
struct many_pages {
    many_walk walk;
    const uint32_t *block; /* block numbers of the work's pages */
    uint32_t n, p, ids;    /* pages of the work; the next; 32 prefetched numbers */
    uint32_t works, tid;   /* address of the ring; the thread */
};

/* The ring of 8 suffices: its readers are at most 7 works behind. */
template <int CL> __device__ inline void pages_work(const nb_cuda_mla_args &a, many_pages &s)
{
    const uint32_t at = s.works + s.walk.round % 8 * 16;
    const many_work w = walk_next<CL>(a, s.walk);
    if (s.tid == 0) st_shared(at, w.item, w.page, w.end, w.flat);
    s.n = w.end - w.page, s.p = 0;
    if (s.n == 0) return;
    s.block = a.cache.block + a.cache.chunk[a.item[w.item].chunk].block0 + w.page;
}
template <int CL>
__device__ inline void pages_start(const nb_cuda_mla_args &a, many_pages &s, uint32_t base,
                                   uint32_t tid)
{
    s.tid = tid;
    s.works = base + AT_WORK;
    s.walk = walk_start(a, tid % 32);
    pages_work<CL>(a, s);
}
/* False at the end.  id: number of the page's block. */
template <int CL>
__device__ inline bool pages_next(const nb_cuda_mla_args &a, many_pages &s, uint32_t &id)
{
    if (s.p == s.n) {
        if (s.n) pages_work<CL>(a, s);
        if (s.n == 0) return false;
    }
    if (s.p % 32 == 0) {
        const uint32_t i = s.p + s.tid % 32;
        s.ids = i < s.n ? s.block[i] : 0;
    }
    id = __shfl_sync(~0u, s.ids, s.p % 32);
    s.p++;
    return true;
}

/* Announces the tile after the last one, which is empty: its readers then find that there is no more work. */
__device__ inline void pages_end(uint32_t base, uint32_t n)
{
    nb_mbar_wait(base + BAR_EMPTY + 32 * (n & 1) + 24, (n >> 1 & 1) ^ 1);
    __syncwarp();
    if (threadIdx.x % 32 == 0) nb_mbar_arrive(base + BAR_FULL + 40 * (n & 1));
}

/* ---- BF16 ---- */

template <int CL>
__device__ inline void produce_bf16(const nb_cuda_mla_args &a, const many_plan &x, uint32_t base,
                                    uint32_t tid, const void *map, const void *rope_map)
{
    if (tid >= 32) return;
    many_pages s;
    pages_start<CL>(a, s, base, tid);
    const unsigned char *pool = a.cache.pool + a.cache.layer_off;
    const uint32_t rank = CL > 1 ? nb_cluster_rank() : 0;
    uint32_t id, next = 0, n = 0;
    bool more = pages_next<CL>(a, s, next);
    for (; more; n++) {
        id = next;
        more = pages_next<CL>(a, s, next);
        if (tid == 0) {
            const uint32_t b = n & 1, ph = (n >> 1 & 1) ^ 1, tile = base + AT_TILE + b * TILE;
            /* Prefetch with clusters only: a single block is bound by memory and gets slower. */
            if (CL > 1 && more && rank == b)
                l2_prefetch(pool + (size_t)next * a.cache.block_bytes, x.page_bytes);
            nb_mbar_wait(base + BAR_EMPTY + 32 * b + 24, ph); /* the last step of values */
            for (uint32_t c = 0; c < 5; c++) {
                const uint32_t full = base + BAR_FULL + 40 * b + 8 * ((c + 1) / 2);
                if (c == 0) nb_mbar_expect(full, 2 * CHUNK);
                if (c == 1) nb_mbar_expect(full, 4 * CHUNK);
                if (c == 3) nb_mbar_expect(full, 3 * CHUNK);
                if (CL > 1) { /* each block loads half a tile and multicasts it to both */
                    if (c < 4)
                        tensor_load_both(tile + (c + 4 * rank) * CHUNK, map, 128 * c + 64 * rank,
                                         id, full);
                    else if (rank == b)
                        tensor_load_both(tile + 8 * CHUNK, rope_map, 0, id, full);
                } else if (c == 4) {
                    tensor_load(tile + 8 * CHUNK, rope_map, 0, id, full);
                } else {
                    tensor_load(tile + c * CHUNK, map, 128 * c, id, full);
                    tensor_load(tile + (4 + c) * CHUNK, map, 128 * c + 64, id, full);
                }
            }
        }
        __syncwarp();
    }
    pages_end(base, n);
}

/* ---- records that are decoded ---- */

__device__ inline uint32_t pow2_half(int e) /* 2^e, 0 under 2^-24 */
{
    return e >= -14 ? (uint32_t)(e + 15) << 10 : e >= -24 ? 1u << (e + 24) : 0;
}

struct token_scale {
    uint32_t latent, rope; /* FP16 pairs, both halves equal */
    float factor, c;
};
__device__ inline token_scale token_scale_of(int oa, int ra, int most)
{
    int c = oa, lat = 0, rope = ra - oa;
    if (oa == 0 && ra == 0)
        c = 127;
    else if (oa == 0)
        c = ra, rope = 0;
    else if (ra != 0 && rope > most)
        lat = most - rope, c = ra - most, rope = most;
    token_scale t;
    t.latent = oa ? pow2_half(lat) * 0x10001u : 0;
    t.rope = ra ? pow2_half(rope) * 0x10001u : 0;
    t.factor = __uint_as_float((uint32_t)c << 23);
    t.c = (float)(c - 127);
    return t;
}

/* Decodes eight codes to FP16, times the scale f; NVFP4: also times 2^-14.  A code, moved so that its fraction meets
 * that of FP16, is the high byte of an FP16. */
template <int KIND>
__device__ inline void decode8(uint32_t q, uint32_t f, bool steps, uint32_t (&out)[4])
{
    uint32_t hi, lo;
    if (KIND == KIND_NVFP4) {
        hi = (q & 0x80808080u) | ((q >> 3) & 0x0e0e0e0eu);
        lo = ((q << 4) & 0x80808080u) | ((q << 1) & 0x0e0e0e0eu);
    } else { /* magnitudes from two tables */
        const uint32_t t0 = steps ? 0x42403c00u : 0x3e3c3800u;
        const uint32_t t1 = steps ? 0x47464544u : 0x46444240u;
        const uint32_t z = q & 0x77777777u;
        const uint32_t a = __byte_perm(t0, t1, z), b = __byte_perm(t0, t1, z >> 16);
        hi = __byte_perm(a, b, 0x7531) | (q & 0x80808080u);
        lo = __byte_perm(a, b, 0x6420) | ((q << 4) & 0x80808080u);
    }
    out[0] = nb_mul_f16x2(__byte_perm(hi, 0, 0x1404), f);
    out[1] = nb_mul_f16x2(__byte_perm(hi, 0, 0x3424), f);
    out[2] = nb_mul_f16x2(__byte_perm(lo, 0, 0x1404), f);
    out[3] = nb_mul_f16x2(__byte_perm(lo, 0, 0x3424), f);
}

/* What a thread loads of a stage and of the rope key.  A warp has 16 tokens, in two steps of 8. */
template <int KIND> struct raw_stage {
    uint4 code[KIND == KIND_FP8 ? 4 : 2];
    uint32_t scale[2];
};
struct raw_rope {
    uint4 code[2];
    uint32_t scale[2]; /* FP16 pairs, both halves equal */
};
/* The outer scales of one token. */
struct raw_outer {
    uint32_t latent, rope;
};
/* A thread's coordinates and offsets.  Addresses are numbers, so that further offsets become constants of the
 * instructions. */
struct many_lane {
    uint32_t lane, token;                                 /* lane; first token of the warp */
    uint32_t code, scale, rope, latent_outer, rope_outer; /* offsets in a page */
    uint32_t to, to2, rope_to; /* offsets in a tile, stage 0; to2: of the neighbouring piece */
};
template <int KIND> __device__ inline many_lane lane_of(const many_plan &x, uint32_t tid)
{
    many_lane m;
    m.lane = tid % 32;
    m.token = 16 * (tid / 32);
    const uint32_t r = m.lane / 4, q = m.lane % 4, t = m.token + r;
    m.code = x.code_off + t * 256 + q * 16;
    m.scale = x.scale_off + t * 32 + q * 2;
    m.rope = x.rope_off + t * 64 + q * 16;
    m.latent_outer = x.outer_off + m.token + m.lane % 16; /* one token per lane */
    m.rope_outer = x.rope_outer_off + m.token + m.lane % 16;
    m.to = m.rope_to = t * 128 + ((2 * q) ^ r) * 16;
    m.to2 = m.to ^ 16;
    if (KIND == KIND_FP8) {
        m.code = x.code_off + (m.token + m.lane / 8) * 512 + m.lane % 8 * 16;
        m.to = (m.token + m.lane / 8) * 128 + (m.lane % 8 ^ m.lane / 8) * 16;
        m.to2 = m.to ^ 64;
    }
    return m;
}

/* Loads from a page; the arguments point to this thread's first piece. */
__device__ inline raw_outer load_outer(const many_lane &m, const unsigned char *page)
{
    return { ld_page1(page + m.latent_outer), ld_page1(page + m.rope_outer) };
}
__device__ inline void load_rope(const unsigned char *rope, raw_rope &v)
{
#pragma unroll
    for (int i = 0; i < 2; i++) v.code[i] = ld_page(rope + i * 512);
}
template <int KIND>
__device__ inline void load_stage(const unsigned char *code, const unsigned char *scale, int c,
                                  raw_stage<KIND> &v)
{
    if constexpr (KIND == KIND_FP8) {
#pragma unroll
        for (int i = 0; i < 4; i++) v.code[i] = ld_page(code + i * 2048 + c * 128);
    } else {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            v.code[i] = ld_page(code + i * 2048 + c * 64);
            v.scale[i] = ld_page2(scale + i * 256 + c * 8);
        }
    }
}

/* A value that depends on all of these loads.  A warp has few scoreboard counters, so waiting for one load also waits
 * for loads issued after it.  The code therefore waits for everything it needs first, and only then issues the next
 * loads: their addresses depend on this value (many_plan.zero). */
template <int KIND> __device__ inline uint32_t here_all(const raw_stage<KIND> &v)
{
    if constexpr (KIND == KIND_FP8)
        return v.code[0].x ^ v.code[1].x ^ v.code[2].x ^ v.code[3].x;
    else
        return v.code[0].x ^ v.code[1].x ^ v.scale[0] ^ v.scale[1];
}

/* Stores the tokens' factors; latent[i] and rope.scale[i] become the factors of the codes of this thread's tokens. */
template <int KIND>
__device__ inline void store_outer(const many_plan &x, const many_lane &m, const raw_outer &v,
                                   uint32_t token, raw_rope &rope, uint32_t (&latent)[4])
{
    token_scale s = token_scale_of((int)v.latent, (int)v.rope, x.rope_int8 ? 9 : 7);
    if (m.lane < 16)
        asm volatile("st.shared.v2.f32 [%0], {%1,%2};" ::"r"(token + 8 * (m.token + m.lane)),
                     "f"(s.factor), "f"(s.c)
                     : "memory");
    if (KIND == KIND_NVFP4)
        s.latent = nb_mul_f16x2(s.latent, 0x78007800u); /* 2^15: 2^7 for decode8, 2^8 for scales */
    if (KIND == KIND_IF4) s.latent = nb_mul_f16x2(s.latent, 0x5c005c00u); /* 2^8: scales */
#pragma unroll
    for (int i = 0; i < 2; i++) rope.scale[i] = __shfl_sync(~0u, s.rope, 8 * i + m.lane / 4);
#pragma unroll
    for (int i = 0; i < (KIND == KIND_FP8 ? 4 : 2); i++)
        latent[i] =
            __shfl_sync(~0u, s.latent, KIND == KIND_FP8 ? 4 * i + m.lane / 8 : 8 * i + m.lane / 4);
}
/* at: tile + m.rope_to */
__device__ inline void store_rope(const many_plan &x, const raw_rope &v, uint32_t at)
{
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t word[4] = { v.code[i].x, v.code[i].y, v.code[i].z, v.code[i].w };
        uint32_t out[8];
        if (x.rope_int8) { /* as FP16: (1024 + (byte ^ 128)) - 1152 */
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const uint32_t z = word[k] ^ 0x80808080u;
                const uint32_t lo = __byte_perm(z, 0x64646464u, 0x4140);
                const uint32_t hi = __byte_perm(z, 0x64646464u, 0x4342);
                out[2 * k] = nb_mul_f16x2(sub2(lo, 0x64806480u), v.scale[i]);
                out[2 * k + 1] = nb_mul_f16x2(sub2(hi, 0x64806480u), v.scale[i]);
            }
        } else {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                out[2 * k] = nb_mul_f16x2(nb_cvt_e4m3(word[k]), v.scale[i]);
                out[2 * k + 1] = nb_mul_f16x2(nb_cvt_e4m3_hi(word[k]), v.scale[i]);
            }
        }
        st_shared(at + 8 * CHUNK + i * 1024, out[0], out[1], out[2], out[3]);
        st_shared((at ^ 16) + 8 * CHUNK + i * 1024, out[4], out[5], out[6], out[7]);
    }
}

/* at, at2: tile + m.to, m.to2 */
template <int KIND>
__device__ inline void store_stage(raw_stage<KIND> v, uint32_t zero, uint32_t at, uint32_t at2,
                                   const uint32_t (&latent)[4])
{
#pragma unroll
    for (int i = 0; i < (KIND == KIND_FP8 ? 4 : 2); i++) {
        v.code[i].x ^= zero, v.code[i].y ^= zero;
        v.code[i].z ^= zero, v.code[i].w ^= zero;
    }
    if constexpr (KIND == KIND_FP8) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint4 z = v.code[i];
            const uint32_t to = (i & 1 ? at2 : at) + i * 512, f = latent[i];
            st_shared(to, nb_mul_f16x2(nb_cvt_e4m3(z.x), f), nb_mul_f16x2(nb_cvt_e4m3_hi(z.x), f),
                      nb_mul_f16x2(nb_cvt_e4m3(z.y), f), nb_mul_f16x2(nb_cvt_e4m3_hi(z.y), f));
            st_shared(to + 4 * CHUNK, nb_mul_f16x2(nb_cvt_e4m3(z.z), f),
                      nb_mul_f16x2(nb_cvt_e4m3_hi(z.z), f), nb_mul_f16x2(nb_cvt_e4m3(z.w), f),
                      nb_mul_f16x2(nb_cvt_e4m3_hi(z.w), f));
        }
    } else {
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t two = v.scale[i];
            /* An E4M3 code shifted into FP16 reads as 2^-8 times its value.  Exact: 4 significant bits. */
            const uint32_t f =
                nb_mul_f16x2((__byte_perm(two, 0, 0x1404) & 0x7f007f00u) >> 1, latent[i]);
            const uint32_t f0 = __byte_perm(f, 0, 0x1010), f1 = __byte_perm(f, 0, 0x3232);
            const bool s0 = two & 0x80, s1 = two & 0x8000;
            uint32_t o[4][4];
            decode8<KIND>(v.code[i].x, f0, s0, o[0]);
            decode8<KIND>(v.code[i].y, f0, s0, o[1]);
            st_shared(at + i * 1024, o[0][0], o[0][1], o[0][2], o[0][3]);
            st_shared(at2 + i * 1024, o[1][0], o[1][1], o[1][2], o[1][3]);
            decode8<KIND>(v.code[i].z, f1, s1, o[2]);
            decode8<KIND>(v.code[i].w, f1, s1, o[3]);
            st_shared(at + i * 1024 + 4 * CHUNK, o[2][0], o[2][1], o[2][2], o[2][3]);
            st_shared(at2 + i * 1024 + 4 * CHUNK, o[3][0], o[3][1], o[3][2], o[3][3]);
        }
    }
}

__device__ inline void stage_done(uint32_t full, uint32_t lane)
{
    nb_fence_async();
    __syncwarp();
    if (lane == 0) nb_mbar_arrive(full);
}

template <int KIND>
__device__ inline void produce(const nb_cuda_mla_args &a, const many_plan &x, uint32_t base,
                               uint32_t tid)
{
    const many_lane m = lane_of<KIND>(x, tid);
    many_pages s;
    pages_start<1>(a, s, base, tid);
    const unsigned char *pool = a.cache.pool + a.cache.layer_off;
    const size_t stride = a.cache.block_bytes;
    uint32_t id, n = 0;
    bool more = pages_next<1>(a, s, id);
    const unsigned char *now = pool + (more ? id * stride : 0), *next = now;
    raw_outer outer = {};
    raw_rope rope;
    raw_stage<KIND> raw[4];
    if (more) {
        outer = load_outer(m, now);
        load_stage<KIND>(now + m.code, now + m.scale, 0, raw[0]);
    }
    bool more2 = more && pages_next<1>(a, s, id);
    if (more2) next = pool + id * stride;
    for (; more; n++) {
        const uint32_t b = n & 1, ph = (n >> 1 & 1) ^ 1, tile = base + AT_TILE + b * TILE;
        const uint32_t full = base + BAR_FULL + 40 * b, empty = base + BAR_EMPTY + 32 * b;
        const uint32_t at = tile + m.to, at2 = tile + m.to2;
        uint32_t latent[4], z = (outer.latent ^ outer.rope ^ here_all(raw[0])) & x.zero;
        load_stage<KIND>(now + m.code + z, now + m.scale + z, 1, raw[1]);
        load_stage<KIND>(now + m.code + z, now + m.scale + z, 2, raw[2]);
        nb_mbar_wait(empty + 8 * (m.token / 16), ph);
        store_outer<KIND>(x, m, outer, base + AT_TOKEN + b * 512, rope, latent);
        store_stage<KIND>(raw[0], 0, at, at2, latent);
        stage_done(full, m.lane);

        /* `zero` keeps their decoding behind the fence: earlier, it would wait for loads just issued. */
        const uint32_t zero = ld_word(base + AT_ZERO);
        z = (here_all(raw[1]) ^ here_all(raw[2])) & x.zero;
        load_stage<KIND>(now + m.code + z, now + m.scale + z, 3, raw[3]);
        load_rope(now + m.rope + z, rope);
        store_stage<KIND>(raw[1], zero, at + CHUNK, at2 + CHUNK, latent);
        store_stage<KIND>(raw[2], zero, at + 2 * CHUNK, at2 + 2 * CHUNK, latent);
        stage_done(full + 8, m.lane);

        z = (here_all(raw[3]) ^ rope.code[0].x ^ rope.code[1].x) & x.zero;
        const bool more3 = more2 && pages_next<1>(a, s, id);
        const unsigned char *after = more3 ? pool + id * stride : next;
        outer = load_outer(m, next + z);
        load_stage<KIND>(next + m.code + z, next + m.scale + z, 0, raw[0]);
        store_stage<KIND>(raw[3], 0, at + 3 * CHUNK, at2 + 3 * CHUNK, latent);
        nb_mbar_wait(empty + 24, ph); /* weights use that buffer until then */
        store_rope(x, rope, tile + m.rope_to);
        stage_done(full + 16, m.lane);
        now = next, next = after, more = more2, more2 = more3;
    }
    pages_end(base, n);
}

} // namespace

#endif
