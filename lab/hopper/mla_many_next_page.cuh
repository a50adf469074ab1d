/* mla_many_page.cuh - pages become tiles: the producing side of mla_many.cu.
 *
 * A tile is 64 tokens in 9 chunks [64][128 bytes] (mla_many_ptx.cuh): chunks c and 4 + c (c < 4) hold
 * latent dims 128 c .. 128 c + 127, chunk 8 the rope key.  It is written in 5 stages, the rope key
 * first; each stage has a barrier "full" and one "empty" per buffer.  BF16 pages come by tensor
 * copies.  Other records are decoded to FP16, exactly but for the outer scales: every warp has 16
 * tokens, loads their codes to registers two steps ahead, and writes 16-byte pieces without bank
 * conflicts.  The order of dims inside 128 is what costs no instruction (many_dim).
 *
 * A token's factor 2^(c - 127): c is the latent's outer scale, the rope key's codes are multiplied by
 * 2^(rope's - c), which is exact in FP16 up to 2^9 (INT8) or 2^7 (E4M3); beyond, c is larger and the
 * latent's codes are divided, which is exact up to 2^-14 and beyond that loses what lies that far
 * under the rope key. */
#ifndef NB_KERNEL_CUDA_SM90_MLA_MANY_PAGE_CUH
#define NB_KERNEL_CUDA_SM90_MLA_MANY_PAGE_CUH
#include "kernel/cuda/sm90/mla_many_ptx.cuh"

namespace
{

enum { KIND_BF16, KIND_FP8, KIND_NVFP4, KIND_IF4 };
enum { UNIT = 64, ROWS = 64, LORA = 512, ROPE = 64, CHUNK = 8192, TILE = 9 * CHUNK, STAGES = 5 };

/* Where things lie in shared memory, from a multiple of 1024 on. */
enum {
    AT_TILE = TILE,             /* before it: the queries, as a tile */
    AT_P = AT_TILE + 2 * TILE,  /* weights: [4][128 threads][16 bytes] */
    AT_TOKEN = AT_P + 8192,     /* [3 tiles][64 tokens] of (2^c, c) */
    AT_STATE = AT_TOKEN + 1536, /* factor, m before, m of the unit, m so far: [4][64] */
    AT_WORK = AT_STATE + 1024,  /* [8] of many_work */
    AT_FLAG = AT_WORK + 128,    /* [4 warps] */
    AT_BAR = AT_FLAG + 16,
    SMEM = AT_BAR + 232
};
enum { /* barriers */
       BAR_FULL = AT_BAR,
       BAR_EMPTY = BAR_FULL + 80,
       BAR_P_FULL = BAR_EMPTY + 80,
       BAR_P_EMPTY = BAR_P_FULL + 32,
       BAR_Q = BAR_P_EMPTY + 32
};

/* What a launch is about, beside the arguments. */
struct many_plan {
    const unsigned char *q; /* packed queries, planes of n_flat rows of 128 bytes */
    const float *q_factor;  /* [n_flat] */
    size_t q_plane;         /* bytes */
    uint32_t code_off, scale_off, rope_off, outer_off, rope_outer_off, page_bytes;
    bool rope_int8;
    float v_scale; /* of a fixed scale, else 1 */
};

/* The dim at place x of chunk c (< 8) of a tile. */
template <int KIND> __host__ __device__ inline uint32_t many_dim(uint32_t c, uint32_t x)
{
    const uint32_t half = c / 4, base = c % 4 * 128, col = x / 8, e = x % 8;
    if (KIND == KIND_BF16) return base + 64 * half + x;
    if (KIND == KIND_FP8) return base + 16 * col + 8 * half + e;
    /* a word of codes gives dims 1 3 5 7 0 2 4 6 */
    const uint32_t d = KIND == KIND_NVFP4 || KIND == KIND_IF4 ? (e < 4 ? 2 * e + 1 : 2 * e - 8) : e;
    return base + 32 * (col / 2) + 16 * half + 8 * (col % 2) + d;
}

/* ---- the order of work ---- */

/* 64 rows of an item.  Block b of G has works b, 2 G - 1 - b, 2 G + b, ..., which evens out lists
 * sorted by length.  The producers find them and tell the others (AT_WORK, a ring). */
struct many_work {
    uint32_t item, blk, n_page,
        flat; /* n_page 0: no more.  flat: first row of the packed queries */
};
struct many_walk {
    uint32_t round, item, before, n_item, lane; /* before: rows before `item`, in blocks of 64 */
};

__device__ inline many_walk walk_start(const nb_cuda_mla_args &a, uint32_t lane)
{
    return { 0, 0, 0, *a.n_item, lane };
}
/* By a whole warp.  A cluster takes CL groups of rows of an item, each block one. */
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
            w.item = k.item + at, w.blk = want - first;
            if (CL > 1) w.blk = CL * w.blk + cluster_rank();
            const nb_cuda_item &it = a.item[w.item];
            w.n_page = it.n_page, w.flat = it.row0 * (uint32_t)a.n_head + ROWS * w.blk;
            k.item += at, k.before = first;
            return w;
        }
        k.before += __shfl_sync(~0u, sum, 31);
        k.item += 32;
    }
    return { 0, 0, 0, 0 };
}

/* The pages of all works, one after the other; by a whole warp. */
struct many_pages {
    many_walk walk;
    const uint32_t *block; /* of the work's first page */
    uint32_t n, p, ids;    /* pages of the work, the next one; numbers of 32 */
    uint32_t works, tid;   /* the ring in shared memory; the thread */
};

/* Nobody is more than 7 works behind: see the ring's users. */
template <int CL> __device__ inline void pages_work(const nb_cuda_mla_args &a, many_pages &s)
{
    const uint32_t at = s.works + s.walk.round % 8 * 16;
    const many_work w = walk_next<CL>(a, s.walk);
    if (s.tid == 0) st_shared(at, w.item, w.blk, w.n_page, w.flat);
    s.n = w.n_page, s.p = 0;
    if (s.n == 0) return;
    const nb_cuda_item &it = a.item[w.item];
    s.block = a.cache.block + a.cache.chunk[it.chunk].block0 + (size_t)it.unit0 * UNIT;
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
/* False: no more.  id: the block's number. */
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

/* The tile after the last one is none: whoever waits for it finds that there is no more work. */
template <int CL> __device__ inline void pages_end(uint32_t base, uint32_t n, uint32_t delta)
{
    mb_wait_cl<CL>(base + BAR_EMPTY + 40 * (n & 1) + 32, (n >> 1 & 1) ^ 1);
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
    if (delta) mb_arrive_peer(base + BAR_FULL + 40 * (n & 1) + 32 + delta);
    mb_arrive(base + BAR_FULL + 40 * (n & 1) + 32);
}

/* A page to the L2 cache, by n threads. */
__device__ inline void page_prefetch(const unsigned char *page, uint32_t n_bytes, uint32_t thread,
                                     uint32_t n)
{
    for (uint32_t i = thread * 128; i < n_bytes; i += n * 128)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(page + i));
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
    const uint32_t rank = CL > 1 ? cluster_rank() : 0;
    uint32_t id, next = 0, n = 0;
    bool more = pages_next<CL>(a, s, next);
    for (; more; n++) {
        id = next;
        more = pages_next<CL>(a, s, next);
        if (tid == 0) {
            const uint32_t b = n & 1, ph = (n >> 1 & 1) ^ 1, tile = base + AT_TILE + b * TILE;
            if (more && (CL == 1 || rank == b))
                l2_prefetch(pool + (size_t)next * a.cache.block_bytes, x.page_bytes);
            for (uint32_t k = 0; k < STAGES; k++) { /* barrier 4: the rope key */
                const uint32_t c = k == 0 ? 4 : k - 1, full = base + BAR_FULL + 8 * (b * 5 + c);
                mb_wait_cl<CL>(base + BAR_EMPTY + 8 * (b * 5 + c), ph);
                mb_expect(full, c == 4 ? CHUNK : 2 * CHUNK);
                if (CL > 1) { /* each block brings a half, to both */
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
    pages_end<CL>(base, n, 0);
}

/* ---- records that are decoded ---- */

__device__ inline uint32_t pow2_half(int e) /* 2^e, 0 under 2^-24 */
{
    return e >= -14 ? (uint32_t)(e + 15) << 10 : e >= -24 ? 1u << (e + 24) : 0;
}

struct token_scale {
    uint32_t latent, rope; /* FP16, twice */
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

/* Eight codes as FP16 times the scale f; NVFP4: times 2^-6 before. */
template <int KIND>
__device__ inline void decode8(uint32_t q, uint32_t f, bool steps, uint32_t (&out)[4])
{
    uint32_t hi, lo;
    if (KIND == KIND_NVFP4) {
        hi = (q & 0x80808080u) | ((q >> 2) & 0x1c1c1c1cu);
        lo = ((q << 4) & 0x80808080u) | ((q << 2) & 0x1c1c1c1cu);
    } else { /* magnitudes as E4M3 by two tables */
        const uint32_t t0 = steps ? 0x44403800u : 0x3c383000u;
        const uint32_t t1 = steps ? 0x4e4c4a48u : 0x4c484440u;
        const uint32_t z = q & 0x77777777u;
        const uint32_t a = __byte_perm(t0, t1, z), b = __byte_perm(t0, t1, z >> 16);
        hi = __byte_perm(a, b, 0x7531) | (q & 0x80808080u);
        lo = __byte_perm(a, b, 0x6420) | ((q << 4) & 0x80808080u);
    }
    out[0] = mul2(cvt2(hi), f);
    out[1] = mul2(cvt2(hi >> 16), f);
    out[2] = mul2(cvt2(lo), f);
    out[3] = mul2(cvt2(lo >> 16), f);
}

/* What a thread loads of a stage: of each 8 tokens of its warp.  A warp has 16 tokens, in a cluster 8. */
template <int KIND, int CL> struct raw_stage {
    uint4 code[(KIND == KIND_FP8 ? 4 : 2) / CL];
    uint32_t scale[2 / CL];
};
template <int CL> struct raw_rope {
    uint4 code[2 / CL];
    uint32_t outer[2 / CL]; /* latent's, rope key's << 8 */
};
/* What a thread knows of itself; addresses as numbers, so that what is added to them is a constant of the
 * instructions. */
struct many_lane {
    uint32_t lane, token; /* of the 32; first token of the warp */
    uint32_t delta;       /* to the other block's shared memory; 0: none */
    uint32_t code, scale, rope, latent_outer, rope_outer; /* places in a page */
    uint32_t to, rope_to;                                 /* in a tile, stage 0 */
};
template <int KIND, int CL>
__device__ inline many_lane lane_of(const many_plan &x, uint32_t tid, uint32_t base)
{
    many_lane m;
    m.lane = tid % 32;
    m.token = CL > 1 ? 32 * cluster_rank() + 8 * (tid / 32) : 16 * (tid / 32);
    m.delta = CL > 1 ? peer_delta(base) : 0;
    const uint32_t r = m.lane / 4, q = m.lane % 4, t = m.token + r;
    m.code = x.code_off + t * 256 + q * 16;
    m.scale = x.scale_off + t * 32 + q * 2;
    m.rope = x.rope_off + t * 64 + q * 16;
    m.latent_outer = x.outer_off + t;
    m.rope_outer = x.rope_outer_off + t;
    m.to = m.rope_to = t * 128 + ((2 * q) ^ r) * 16;
    if (KIND == KIND_FP8) {
        m.code = x.code_off + (m.token + m.lane / 8) * 512 + m.lane % 8 * 16;
        m.to = (m.token + m.lane / 8) * 128 + (m.lane % 8 ^ m.lane / 8) * 16;
    }
    return m;
}

template <int CL>
__device__ inline void load_rope(const many_lane &m, const unsigned char *page, raw_rope<CL> &v)
{
    const unsigned char *code = page + m.rope, *a = page + m.latent_outer, *b = page + m.rope_outer;
#pragma unroll
    for (int i = 0; i < 2 / CL; i++) {
        v.code[i] = ld_page(code + i * 512);
        v.outer[i] = ld_page1(a + i * 8) | ld_page1(b + i * 8) << 8;
    }
}
/* code, scale: places in a page. */
template <int KIND, int CL>
__device__ inline void load_stage(const unsigned char *code, const unsigned char *scale, int c,
                                  raw_stage<KIND, CL> &v)
{
    if constexpr (KIND == KIND_FP8) {
#pragma unroll
        for (int i = 0; i < 4 / CL; i++) v.code[i] = ld_page(code + i * 2048 + c * 128);
    } else {
#pragma unroll
        for (int i = 0; i < 2 / CL; i++) {
            v.code[i] = ld_page(code + i * 2048 + c * 64);
            v.scale[i] = ld_page2(scale + i * 256 + c * 8);
        }
    }
}

/* The rope key, and the tokens' factors; latent[i]: what the codes of the thread's tokens are multiplied by. */
template <int KIND, int CL>
__device__ inline void store_rope(const many_plan &x, const many_lane &m, const raw_rope<CL> &v,
                                  uint32_t tile, uint32_t token, uint32_t (&latent)[4])
{
    const uint32_t lane = m.lane, delta = m.delta, r = lane / 4, q = lane % 4;
    uint32_t lat[2 / CL];
#pragma unroll
    for (uint32_t i = 0; i < 2 / CL; i++) {
        const token_scale s =
            token_scale_of((int)(v.outer[i] & 255), (int)(v.outer[i] >> 8), x.rope_int8 ? 9 : 7);
        const uint32_t t = m.token + 8 * i + r;
        if (q == 0)
            asm volatile("st.shared.v2.f32 [%0], {%1,%2};" ::"r"(token + 8 * t), "f"(s.factor),
                         "f"(s.c)
                         : "memory");
        if (CL > 1 && q == 0)
            asm volatile("st.shared::cluster.v2.f32 [%0], {%1,%2};" ::"r"(token + 8 * t + delta),
                         "f"(s.factor), "f"(s.c)
                         : "memory");
        lat[i] = s.latent;
        const uint32_t word[4] = { v.code[i].x, v.code[i].y, v.code[i].z, v.code[i].w };
        uint32_t out[8];
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (x.rope_int8) { /* 1024 + (byte ^ 128), less 1152 */
                const uint32_t z = word[k] ^ 0x80808080u;
                out[2 * k] = mul2(sub2(__byte_perm(z, 0x64646464u, 0x4140), 0x64806480u), s.rope);
                out[2 * k + 1] =
                    mul2(sub2(__byte_perm(z, 0x64646464u, 0x4342), 0x64806480u), s.rope);
            } else {
                out[2 * k] = mul2(cvt2(word[k]), s.rope);
                out[2 * k + 1] = mul2(cvt2(word[k] >> 16), s.rope);
            }
        const uint32_t at = tile + m.rope_to + 8 * CHUNK + i * 1024;
        st_tile<CL>(at, delta, out[0], out[1], out[2], out[3]);
        st_tile<CL>(at ^ 16, delta, out[4], out[5], out[6], out[7]);
    }
    if (KIND == KIND_FP8) {
#pragma unroll
        for (int i = 0; i < 4 / CL; i++)
            latent[i] = __shfl_sync(~0u, lat[i / 2], 16 * (i & 1) + 4 * (lane / 8));
    } else {
        const uint32_t up = KIND == KIND_NVFP4 ? 0x54005400u : 0x3c003c00u; /* 2^6: decode8 */
#pragma unroll
        for (int i = 0; i < 2 / CL; i++) latent[i] = mul2(lat[i], up);
    }
}

/* at: tile + m.to */
template <int KIND, int CL>
__device__ inline void store_stage(const raw_stage<KIND, CL> &v, uint32_t at, uint32_t delta,
                                   const uint32_t (&latent)[4])
{
    if constexpr (KIND == KIND_FP8) {
#pragma unroll
        for (uint32_t i = 0; i < 4 / CL; i++) {
            const uint4 z = v.code[i];
            const uint32_t to = (i & 1 ? at ^ 64 : at) + i * 512, f = latent[i];
            st_tile<CL>(to, delta, mul2(cvt2(z.x), f), mul2(cvt2(z.x >> 16), f), mul2(cvt2(z.y), f),
                        mul2(cvt2(z.y >> 16), f));
            st_tile<CL>(to + 4 * CHUNK, delta, mul2(cvt2(z.z), f), mul2(cvt2(z.z >> 16), f),
                        mul2(cvt2(z.w), f), mul2(cvt2(z.w >> 16), f));
        }
    } else {
#pragma unroll
        for (uint32_t i = 0; i < 2 / CL; i++) {
            const uint32_t two = v.scale[i];
            const uint32_t f = mul2(cvt2(two & 0x7f7fu), latent[i]); /* exact: 4 bits */
            const uint32_t f0 = __byte_perm(f, 0, 0x1010), f1 = __byte_perm(f, 0, 0x3232);
            const bool s0 = two & 0x80, s1 = two & 0x8000;
            uint32_t o[4];
            decode8<KIND>(v.code[i].x, f0, s0, o);
            st_tile<CL>(at + i * 1024, delta, o[0], o[1], o[2], o[3]);
            decode8<KIND>(v.code[i].y, f0, s0, o);
            st_tile<CL>((at ^ 16) + i * 1024, delta, o[0], o[1], o[2], o[3]);
            decode8<KIND>(v.code[i].z, f1, s1, o);
            st_tile<CL>(at + i * 1024 + 4 * CHUNK, delta, o[0], o[1], o[2], o[3]);
            decode8<KIND>(v.code[i].w, f1, s1, o);
            st_tile<CL>((at ^ 16) + i * 1024 + 4 * CHUNK, delta, o[0], o[1], o[2], o[3]);
        }
    }
}

template <int CL> __device__ inline void stage_done(uint32_t full, const many_lane &m)
{
    proxy_fence<CL>();
    __syncwarp();
    if (m.lane == 0) mb_arrive_cl<CL>(full, m.delta);
}

template <int KIND, int CL>
__device__ inline void produce(const nb_cuda_mla_args &a, const many_plan &x, uint32_t base,
                               uint32_t tid)
{
    const many_lane m = lane_of<KIND, CL>(x, tid, base);
    many_pages s;
    pages_start<CL>(a, s, base, tid);
    const unsigned char *pool = a.cache.pool + a.cache.layer_off;
    const size_t stride = a.cache.block_bytes;
    uint32_t id;
    if (!pages_next<CL>(a, s, id)) {
        pages_end<CL>(base, 0, m.delta);
        return;
    }
    const unsigned char *now = pool + id * stride, *next;
    raw_rope<CL> rope;
    raw_stage<KIND, CL> raw[4];
    load_rope<CL>(m, now, rope);
    load_stage<KIND, CL>(now + m.code, now + m.scale, 0, raw[0]);
    load_stage<KIND, CL>(now + m.code, now + m.scale, 1, raw[1]);
    bool more = pages_next<CL>(a, s, id);
    next = more ? pool + id * stride : now;
    if (more) page_prefetch(next, x.page_bytes, tid, 128);
    for (uint32_t n = 0, third = 0;; n++) {
        const bool more2 = more && pages_next<CL>(a, s, id);
        const unsigned char *after = more2 ? pool + id * stride : next;
        const unsigned char *code = now + m.code, *scale = now + m.scale;
        if (more2 && (CL == 1 || cluster_rank() == (n & 1)))
            page_prefetch(after, x.page_bytes, tid, 128);
        const uint32_t b = n & 1, ph = (n >> 1 & 1) ^ 1, tile = base + AT_TILE + b * TILE;
        const uint32_t full = base + BAR_FULL + 40 * b, empty = base + BAR_EMPTY + 40 * b;
        uint32_t latent[4];
        load_stage<KIND, CL>(code, scale, 2, raw[2]);
        mb_wait_cl<CL>(empty + 32, ph);
        store_rope<KIND, CL>(x, m, rope, tile, base + AT_TOKEN + third * 512, latent);
        stage_done<CL>(full + 32, m);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            if (c == 0) load_stage<KIND, CL>(code, scale, 3, raw[3]);
            if (c == 1) load_rope<CL>(m, next, rope);
            if (c >= 2) load_stage<KIND, CL>(next + m.code, next + m.scale, c - 2, raw[c - 2]);
            mb_wait_cl<CL>(empty + 8 * c, ph);
            store_stage<KIND, CL>(raw[c], tile + m.to + c * CHUNK, m.delta, latent);
            stage_done<CL>(full + 8 * c, m);
        }
        if (!more) {
            pages_end<CL>(base, n + 1, m.delta);
            return;
        }
        now = next, next = after, more = more2;
        third = third == 2 ? 0 : third + 1;
    }
}

} // namespace

#endif
