/* mla_mma.cu - absorbed MLA attention over pages of any MLA record, for any number of heads, with mma.sync.
 *
 * Computes, for each (query, head), the partial state (m, l, o) of a unit of pages: m is the maximum of
 * s_t = scale log2(e) q.k_t, l = sum of 2^(s_t - m), o = sum of 2^(s_t - m) latent_t.  A unit is a fixed range of
 * pages whose attention is one partial state; a super is a fixed group of units combined in order
 * (api/nb_cuda_units.h).  mla_combine.cu combines the states and divides by l.
 *
 * Block: 16 MT rows (query, head) of one work item; it takes the item's pages in steps of 32 tokens.
 * mla_tile.cuh says what each warp does in a step.
 *   up to 16 heads   MT 1, two teams of 8 warps, each with its own tile and every other page, so that one decodes
 *                    while the other multiplies; at the end of a unit the second team's state is
 *                    combined into the first's.  One team if shared memory is too small for two.
 *   more heads       MT 2, one team
 *
 * Pages: raw pages are copied to shared memory by cp.async, as many ahead as fit (up to RAW_MAX), and are decoded
 * from there to a tile of BF16 values.  BF16 pages are copied directly to double-buffered tiles.  Pages too large
 * for shared memory (f32) are read from global memory.  BF16 holds the decoded values of all records exactly, except
 * int4, f32 and fixed scales; these have a second tile with the remainder (LO).
 *
 * H100, 16 heads, b = 128, s = 4096, in CUDA graphs (us):
 *               bf16                   nvfp4   fp8   mxfp4   int4
 *   two teams    278 (201 at 3.0 TB/s)   694   621     634    878
 *   one team     419                     940   890     894    758
 * Bound by instructions: decoding through floats takes about 90 for 8 values, and a step of 32 tokens some 750 for
 * each warp.  The experiment in lab/hopper/mla_mma.cu decodes directly into the fragments and takes 198 us for nvfp4.
 *
 * PICK (Thrift mode): tokens picked for the item's query are replaced in the decoded tile by refined ones, computed
 * from the page's codes and the plane's rows in host memory.  A refined value has 13 bits, so a tile with refined
 * tokens has a second tile with what BF16 leaves.  The other tiles are multiplied as usual.
 *
 * If an item has several units, each unit's state is combined in device memory into the state so far (n_unit > 1);
 * the thread that holds a row's sums reads and writes them. */
#include "kernel/cuda/common/kv_refine.cuh"
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/sm80/mla_tile.cuh"

namespace
{

enum { RAW_MAX = 2 };
constexpr nb_cuda_units UNITS = NB_CUDA_MLA_MMA_UNITS;
enum source { PAGES, BF16_TILES };

struct plan { /* sizes of the launch */
    nb_mt_shape shape;
    uint32_t n_raw;  /* raw pages in shared memory; 0: read from global memory */
    uint32_t n_tile; /* BF16_TILES: 2, or 1 if shared memory is too small */
    uint32_t team_bytes;
    float scale; /* times log2(e) */
};

/* All other formats: rare with this LO, or used only by small checkpoints. */
enum { OTHER = -1 };
__device__ __noinline__ void load8_other(const nb_record_seg &s, const unsigned char *page,
                                         uint32_t tok, uint32_t i0, float (&v)[8])
{
    nb_kv_load8_any(s, page, tok, 0, i0, v);
}

template <int FMT>
__device__ inline void load8(const nb_record_seg &s, const unsigned char *page, uint32_t tok,
                             uint32_t i0, float (&v)[8])
{
    if constexpr (FMT == OTHER)
        load8_other(s, page, tok, i0, v);
    else
        nb_kv_load8<FMT>(s, page, tok, 0, i0, v);
}

/* Decodes half of a page's segment, by a team.  Where a warp decodes whole tokens it does four at a time, so that
 * all loads are issued before the first store. */
template <int FMT, bool LO>
__device__ __noinline__ void decode(const nb_record_seg &s, const unsigned char *page,
                                    uint32_t tok0, uint16_t *tile, uint32_t stride, uint32_t lo)
{
    const uint32_t dim = (uint32_t)s.dim, n8 = (dim + 15) / 16 * 2, lane = threadIdx.x % 32;
    const uint32_t w = nb_mt_warp();
    if (n8 > 16) {
        for (uint32_t i = lane; i < n8; i += 32) {
            uint4 p[4], r[LO ? 4 : 1];
#pragma unroll
            for (uint32_t k = 0; k < 4; k++) {
                float v[8] = { 0 };
                if (8 * i < dim) load8<FMT>(s, page, tok0 + w + NB_MT_WARPS * k, 8 * i, v);
                p[k] = nb_mt_pack8(v);
                if constexpr (LO) r[k] = nb_mt_rest8(v, p[k]);
            }
#pragma unroll
            for (uint32_t k = 0; k < 4; k++) {
                uint16_t *to = tile + (w + NB_MT_WARPS * k) * stride + 8 * i;
                *reinterpret_cast<uint4 *>(to) = p[k];
                if constexpr (LO) *reinterpret_cast<uint4 *>(to + lo) = r[k];
            }
        }
        return;
    }
    const uint32_t shift = n8 > 8 ? 1 : n8 > 4 ? 2 : n8 > 2 ? 3 : 4, per = 32u >> shift;
    for (uint32_t t = (w << shift) + lane / per; t < NB_MT_TOK; t += NB_MT_WARPS << shift) {
        const uint32_t i = lane % per;
        float v[8] = { 0 };
        if (i >= n8) continue;
        if (8 * i < dim) load8<FMT>(s, page, tok0 + t, 8 * i, v);
        const uint4 p = nb_mt_pack8(v);
        *reinterpret_cast<uint4 *>(tile + t * stride + 8 * i) = p;
        if constexpr (LO)
            *reinterpret_cast<uint4 *>(tile + t * stride + 8 * i + lo) = nb_mt_rest8(v, p);
    }
}

template <bool LO>
__device__ void decode_latent(const nb_record_seg &s, const unsigned char *page, uint32_t tok0,
                              uint16_t *tile, uint32_t stride)
{
    const uint32_t lo = NB_MT_TOK * stride;
    if constexpr (LO) {
        switch (s.fmt) {
        case NB_SEG_INT4_CH: decode<NB_SEG_INT4_CH, LO>(s, page, tok0, tile, stride, lo); break;
        case NB_SEG_E4M3: decode<NB_SEG_E4M3, LO>(s, page, tok0, tile, stride, lo); break;
        case NB_SEG_NVFP4: decode<NB_SEG_NVFP4, LO>(s, page, tok0, tile, stride, lo); break;
        case NB_SEG_F32: decode<NB_SEG_F32, LO>(s, page, tok0, tile, stride, lo); break;
        default: decode<OTHER, LO>(s, page, tok0, tile, stride, lo);
        }
    } else {
        switch (s.fmt) {
        case NB_SEG_E4M3: decode<NB_SEG_E4M3, LO>(s, page, tok0, tile, stride, lo); break;
        case NB_SEG_NVFP4: decode<NB_SEG_NVFP4, LO>(s, page, tok0, tile, stride, lo); break;
        case NB_SEG_IF4: decode<NB_SEG_IF4, LO>(s, page, tok0, tile, stride, lo); break;
        case NB_SEG_MXFP4: decode<NB_SEG_MXFP4, LO>(s, page, tok0, tile, stride, lo); break;
        case NB_SEG_DS_MLA: decode<NB_SEG_DS_MLA, LO>(s, page, tok0, tile, stride, lo); break;
        default: decode<OTHER, LO>(s, page, tok0, tile, stride, lo);
        }
    }
}

template <bool LO>
__device__ void decode_rope(const nb_record_seg &s, const unsigned char *page, uint32_t tok0,
                            uint16_t *tile, uint32_t stride)
{
    const uint32_t lo = NB_MT_TOK * stride;
    switch (s.fmt) {
    case NB_SEG_INT8: decode<NB_SEG_INT8, LO>(s, page, tok0, tile, stride, lo); break;
    case NB_SEG_E4M3: decode<NB_SEG_E4M3, LO>(s, page, tok0, tile, stride, lo); break;
    default: decode<OTHER, LO>(s, page, tok0, tile, stride, lo);
    }
}

/* A team's pages: first, first + step, ... of the item's n. */
struct pages {
    const unsigned char *base; /* pool + layer_off */
    const uint32_t *block;     /* block table from the item's first page on */
    size_t block_bytes;
    uint32_t n, step;
    uint32_t next, ahead; /* next page to fetch, and its block, looked up one page early */
};

__device__ inline void look_ahead(pages &g)
{
    if (g.next < g.n) g.ahead = g.block[g.next];
}

__device__ inline const unsigned char *take(pages &g)
{
    const unsigned char *p = g.base + g.ahead * g.block_bytes;
    g.next += g.step;
    look_ahead(g);
    return p;
}

__device__ inline uint32_t team_thread()
{
    return threadIdx.x % NB_MT_THREADS;
}

__device__ inline void fetch_raw(pages &g, unsigned char *raw, uint32_t n_bytes)
{
    if (g.next < g.n) {
        const unsigned char *from = take(g);
        for (uint32_t i = 16 * team_thread(); i < n_bytes; i += 16 * NB_MT_THREADS)
            nb_cp_async16(raw + i, from + i);
    }
    nb_cp_async_commit();
}

/* Fetches half h of a page of a BF16 record; the tile's padding was zeroed before. */
__device__ inline void fetch_tile(const unsigned char *from, uint32_t h, const nb_record &r,
                                  const nb_mt_shape &d, uint16_t *tile)
{
    for (uint32_t k = 0; from && k < 2; k++) {
        const uint32_t n8 = (k ? d.d_rope : d.lora) / 8, at = k ? d.kl : 0;
        const uint32_t off = (uint32_t)r.seg[k].code_off, stride = (uint32_t)r.seg[k].code_stride;
        const uint32_t per = n8 < 32 ? 8 : 64; /* threads per token */
        for (uint32_t t = team_thread() / per; t < NB_MT_TOK; t += NB_MT_THREADS / per)
            for (uint32_t i = team_thread() % per; i < n8; i += per)
                nb_cp_async16(tile + t * d.stride + at + 8 * i,
                              from + off + (h * NB_MT_TOK + t) * stride + 16 * i);
    }
    nb_cp_async_commit();
}

/* Finds the index of a row's state for the item's first unit; false: there is no such row. */
__device__ inline bool place(const nb_cuda_mla_args &a, const nb_cuda_item &it, uint32_t row,
                             size_t &at)
{
    const uint32_t nh = (uint32_t)a.n_head;
    if (row >= it.n_q * nh) return false;
    at = ((size_t)a.part_first[it.row0 + row / nh] + it.unit0) * nh + row % nh;
    return true;
}

/* m of each row: so far, and of the unit. */
template <int MT> struct both {
    float before[16 * MT], now[16 * MT];
};

/* Writes the state of unit k, combined with the item's earlier units if there are any.  Called by the first team; l
 * is already summed over the lanes. */
template <int MT>
__device__ void put_state(const nb_cuda_mla_args &a, const nb_cuda_item &it, uint32_t k,
                          uint32_t row0, both<MT> *s, nb_mt_state<MT> &z, const nb_mt_shape &d)
{
    const uint32_t w = nb_mt_warp(), lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const uint32_t r = 16 * i + 2 * w + j;
            const float m = nb_mla_state_m(z.m[i][j]), l = z.l[i][j];
            size_t at;
            if (lane != 0 || !place(a, it, row0 + r, at)) continue;
            const float m0 = k > 0 ? a.part_m[at] : -INFINITY;
            const nb_mla_merge f = nb_mla_merge_of(m0, m);
            if (k > 0) {
                a.part_m[at + k * a.n_head] = -INFINITY;
                a.part_l[at + k * a.n_head] = 0;
            }
            s->before[r] = m0;
            s->now[r] = m;
            a.part_l[at] = nb_mla_merged(f, k > 0 ? a.part_l[at] : 0, l);
            a.part_m[at] = f.m;
        }
    nb_bar_sync(1, NB_MT_THREADS);
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t r = 16 * i + 8 * half + lane / 4;
            size_t at;
            if (!place(a, it, row0 + r, at)) continue;
            const nb_mla_merge f = nb_mla_merge_of(s->before[r], s->now[r]);
            nb_mt_put_o<MT>(z, i, d, a.part_o + at * d.lora, half, k > 0, f);
        }
}

/* Ends a unit of n pages: combines the teams' states and writes the result. */
template <int MT, int TEAMS>
__device__ void end_unit(const nb_cuda_mla_args &a, const nb_cuda_item &it, uint32_t k, uint32_t n,
                         uint32_t row0, unsigned char *shared, nb_mt_state<MT> &z,
                         const nb_mt_shape &d)
{
    const uint32_t team = threadIdx.x / NB_MT_THREADS;
    both<MT> *s = reinterpret_cast<both<MT> *>(shared);
    __syncthreads(); /* the teams' work areas are dead by now */
    bool summed = false;
    if constexpr (TEAMS == 2) {
        if (n > 1) {
            nb_mt_second *other = reinterpret_cast<nb_mt_second *>(shared + sizeof *s);
            nb_mt_put_second(other, z, team);
            __syncthreads();
            if (team == 0) nb_mt_join_second(other, z);
            summed = true;
        }
    }
#pragma unroll
    for (int i = 0; i < MT; i++) {
        if (summed) break;
        z.l[i][0] = nb_mt_sum(z.l[i][0]);
        z.l[i][1] = nb_mt_sum(z.l[i][1]);
    }
    if (team == 0) put_state<MT>(a, it, k, row0, s, z, d);
    __syncthreads();
}

/* The path of a team's pages through shared memory. */
struct stream {
    pages g;
    uint16_t *tile;
    unsigned char *raw;
    const unsigned char *page; /* BF16_TILES: the page whose next half is fetched next */
    uint32_t slot;             /* slot in raw */
};

template <bool LO, int SOURCE, bool PICK>
__device__ void start(const nb_cuda_mla_args &a, const plan &x, stream &f)
{
    const nb_mt_shape &d = x.shape;
    const uint32_t page_bytes = (uint32_t)a.cache.record.page_bytes;
    look_ahead(f.g);
    f.raw = reinterpret_cast<unsigned char *>(f.tile + NB_MT_TOK * d.stride * (LO || PICK ? 2 : 1));
    f.page = nullptr;
    f.slot = 0;
    if constexpr (SOURCE == PAGES) {
        for (uint32_t i = 0; i < x.n_raw; i++) fetch_raw(f.g, f.raw + i * page_bytes, page_bytes);
    } else {
        for (uint32_t i = team_thread(); i < x.n_tile * NB_MT_TOK; i += NB_MT_THREADS) {
            for (uint32_t k = d.lora; k < d.kl; k++) f.tile[i * d.stride + k] = 0;
            for (uint32_t k = d.kl + d.d_rope; k < d.k; k++) f.tile[i * d.stride + k] = 0;
        }
        if (f.g.next < f.g.n) f.page = take(f.g);
        for (uint32_t h = 0; h < x.n_tile; h++)
            fetch_tile(f.page, h, a.cache.record, d, f.tile + h * NB_MT_TOK * d.stride);
    }
}

/* Waits, as a team, until the oldest fetch has arrived. */
__device__ inline void arrive(uint32_t n_ahead, uint32_t bar)
{
    if (n_ahead == 2)
        nb_cp_async_wait<1>();
    else
        nb_cp_async_wait<0>();
    nb_bar_sync(bar, NB_MT_THREADS);
}

/* ---- refined tokens ---- */

/* The picked tokens of half of a page: entries [k, k + n) of tok. */
struct picked {
    const uint32_t *tok;
    const unsigned char *plane; /* the page's plane */
    uint32_t k, n;
};

/* p: page of the item.  The picks of the item's first row count. */
__device__ picked picked_of(const nb_cuda_mla_args &a, const nb_cuda_item &it, const pages &g,
                            uint32_t p, uint32_t h)
{
    const nb_cuda_pick &c = a.pick;
    picked x = { c.tok + it.row0 * c.tok_stride, nullptr, 0, 0 };
    if (c.n[it.row0] == 0) return x;
    const uint32_t *first =
        c.first + it.row0 * c.first_stride + nb_cuda_unit_page(UNITS, it.unit0) + p;
    const uint32_t end = first[1];
    x.k = first[0];
    while (x.k < end && x.tok[x.k] % NB_PAGE_TOK / NB_MT_TOK < h) x.k++;
    while (x.k + x.n < end && x.tok[x.k + x.n] % NB_PAGE_TOK / NB_MT_TOK == h) x.n++;
    if (x.n) x.plane = c.plane + g.block[p] * c.plane_block_bytes + c.plane_layer_off;
    return x;
}

__device__ void clear_rest(uint16_t *rest, uint32_t n)
{
    for (uint32_t i = 8 * team_thread(); i < n; i += 8 * NB_MT_THREADS)
        *reinterpret_cast<uint4 *>(rest + i) = make_uint4(0, 0, 0, 0);
}

__device__ __noinline__ void refine(const nb_record &r, const unsigned char *page, const picked &x,
                                    uint16_t *tile, uint32_t stride)
{
    const uint32_t dim = (uint32_t)r.seg[0].dim, n8 = (dim + 7) / 8;
    for (uint32_t e = team_thread(); e < x.n * n8; e += NB_MT_THREADS) {
        const uint32_t tok = x.tok[x.k + e / n8] % NB_PAGE_TOK, i = e % n8;
        float v[8];
        nb_kv_refine8(r, page, x.plane + tok * ((dim + 1) / 2), tok, 8 * i, v);
        const uint4 p = nb_mt_pack8(v);
        uint16_t *to = tile + tok % NB_MT_TOK * stride + 8 * i;
        *reinterpret_cast<uint4 *>(to) = p;
        *reinterpret_cast<uint4 *>(to + NB_MT_TOK * stride) = nb_mt_rest8(v, p);
    }
}

/* Processes one page, the item's p-th. */
template <int MT, bool LO, int SOURCE, bool PICK>
__device__ void one_page(const nb_cuda_mla_args &a, const plan &x, const nb_cuda_item &it,
                         uint32_t p, stream &f, nb_mt_work<MT> *s, nb_mt_state<MT> &z, uint32_t bar)
{
    const nb_mt_shape &d = x.shape;
    const nb_record &r = a.cache.record;
    const uint32_t page_bytes = (uint32_t)r.page_bytes;
    unsigned char *slot = f.raw + f.slot * page_bytes;
    const unsigned char *bytes = slot;
    if (SOURCE == PAGES && x.n_raw == 0) bytes = take(f.g);
    if (SOURCE == PAGES && x.n_raw) arrive(x.n_raw, bar);
#pragma unroll 1
    for (uint32_t h = 0; h < 2; h++) {
        uint16_t *now = f.tile;
        picked pick = { nullptr, nullptr, 0, 0 };
        if constexpr (PICK) pick = picked_of(a, it, f.g, p, h);
        if (SOURCE == BF16_TILES) {
            if (x.n_tile == 2) now += h * NB_MT_TOK * d.stride;
            arrive(x.n_tile, bar);
        } else {
            decode_latent<LO>(r.seg[0], bytes, h * NB_MT_TOK, now, d.stride);
            decode_rope<LO>(r.seg[1], bytes, h * NB_MT_TOK, now + d.kl, d.stride);
            if constexpr (PICK && !LO)
                if (pick.n) clear_rest(now + NB_MT_TOK * d.stride, NB_MT_TOK * d.stride);
            nb_bar_sync(bar, NB_MT_THREADS);
            if constexpr (PICK)
                if (pick.n) {
                    refine(r, bytes, pick, now, d.stride);
                    nb_bar_sync(bar, NB_MT_THREADS);
                }
            if (h == 1 && x.n_raw) fetch_raw(f.g, slot, page_bytes);
        }
        if (PICK && !LO && pick.n)
            nb_mt_scores<MT, true>(s, z, d, now);
        else
            nb_mt_scores<MT, LO>(s, z, d, now);
        nb_bar_sync(bar, NB_MT_THREADS);
        nb_mt_softmax<MT>(s, z, NB_MT_TOK, x.scale);
        nb_bar_sync(bar, NB_MT_THREADS);
        if (PICK && !LO && pick.n)
            nb_mt_values<MT, true>(s, z, d, now);
        else
            nb_mt_values<MT, LO>(s, z, d, now);
        nb_bar_sync(bar, NB_MT_THREADS);
        if (SOURCE == BF16_TILES) {
            const uint32_t next = x.n_tile == 2 ? h : 1 - h;
            if (next == 0) f.page = f.g.next < f.g.n ? take(f.g) : nullptr;
            fetch_tile(f.page, next, r, d, now);
        }
    }
    f.slot = f.slot + 1 < x.n_raw ? f.slot + 1 : 0;
}

template <int MT, bool LO, int SOURCE, int TEAMS, bool PICK>
__device__ void one_item(const nb_cuda_mla_args &a, const plan &x, const nb_cuda_item &it)
{
    const uint32_t nh = (uint32_t)a.n_head, row0 = blockIdx.y * 16 * MT, n_row = it.n_q * nh;
    if (row0 >= n_row) return;
    NB_SHARED(unsigned char, shared);
    const uint32_t team = threadIdx.x / NB_MT_THREADS, lane = threadIdx.x % 32;
    nb_mt_work<MT> *s = reinterpret_cast<nb_mt_work<MT> *>(shared) + team;
    unsigned char *own = shared + TEAMS * nb_mt_fixed_bytes(MT) + team * x.team_bytes;
    const nb_cuda_chunk c = a.cache.chunk[it.chunk];
    stream f;
    f.tile = reinterpret_cast<uint16_t *>(own);
    f.g.base = a.cache.pool + a.cache.layer_off;
    f.g.block = a.cache.block + c.block0 + nb_cuda_unit_page(UNITS, it.unit0);
    f.g.block_bytes = a.cache.block_bytes;
    f.g.n = it.n_page;
    f.g.step = TEAMS;
    f.g.next = team;
    start<LO, SOURCE, PICK>(a, x, f);
    nb_mt_state<MT> z;
#pragma unroll
    for (int i = 0; i < MT; i++) {
        const float *q[2];
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const uint32_t row = row0 + 16 * i + 8 * k + lane / 4;
            q[k] = row < n_row ? a.q + (it.row0 + row / nh) * a.q_stride + row % nh * a.q_head
                               : nullptr;
        }
        nb_mt_load_q<MT>(z, i, x.shape, q[0], q[1], a.q + it.row0 * a.q_stride);
    }
    for (uint32_t u = 0, k = 0, end; u < it.n_page; u = end, k++) {
        const uint32_t n = nb_cuda_unit_pages(UNITS, it.unit0 + k);
        end = it.n_page - u < n ? it.n_page : u + n;
        nb_mt_reset<MT>(z);
        for (uint32_t p = u + team; p < end; p += TEAMS)
            one_page<MT, LO, SOURCE, PICK>(a, x, it, p, f, s, z, 1 + team);
        end_unit<MT, TEAMS>(a, it, k, end - u, row0, shared, z, x.shape);
    }
    nb_cp_async_wait<0>();
}

/* The grid covers the largest possible step, up to a bound, because blocks without an item cost time too. */
template <int MT, bool LO, int SOURCE, int TEAMS, bool PICK>
__global__ void __launch_bounds__(TEAMS *NB_MT_THREADS, MT == 1 && TEAMS == 1 ? 2 : 1)
    mla_mma(NB_PARAM nb_cuda_mla_args a, NB_PARAM plan x)
{
    nb_grid_next();
    const uint32_t n = *a.n_item;
    for (uint32_t i = blockIdx.x; i < n; i += gridDim.x) {
        if (i != blockIdx.x) __syncthreads(); /* the previous item's shared memory is dead */
        one_item<MT, LO, SOURCE, TEAMS, PICK>(a, x, a.item[i]);
    }
}

bool two_parts(const nb_record &r)
{
    for (int k = 0; k < 2; k++) {
        const nb_seg_fmt f = r.seg[k].fmt;
        if (f == NB_SEG_F32 || f == NB_SEG_INT4_CH || f == NB_SEG_INT4_TOK ||
            r.seg[k].fixed_scale != 0)
            return true;
    }
    return false;
}

bool straight(const nb_record &r)
{
    for (int k = 0; k < 2; k++)
        if (r.seg[k].fmt != NB_SEG_BF16 || r.seg[k].dim % 8 != 0 || r.seg[k].code_off % 16 != 0 ||
            r.seg[k].code_stride % 16 != 0)
            return false;
    return true;
}

/* Bytes of shared memory with as many pages ahead as fit; 0: too little shared memory. */
template <int MT, bool LO, int SOURCE, int TEAMS, bool PICK>
size_t fit(const nb_cuda_mla_args *a, plan &x, size_t most)
{
    const size_t tile = nb_mt_tile_bytes(x.shape), page = a->cache.record.page_bytes;
    /* 128: reads past the end of a page, whose values are not used */
    const size_t fixed = TEAMS * nb_mt_fixed_bytes(MT) + 128;
    if (SOURCE == BF16_TILES) {
        x.n_tile = fixed + TEAMS * 2 * tile <= most ? 2 : 1;
        x.team_bytes = (uint32_t)(x.n_tile * tile);
    } else {
        x.team_bytes = (uint32_t)(tile * (LO || PICK ? 2 : 1));
        while (x.n_raw < RAW_MAX && fixed + TEAMS * (x.team_bytes + page) <= most)
            x.n_raw++, x.team_bytes += (uint32_t)page;
    }
    const size_t n = fixed + TEAMS * x.team_bytes;
    return n <= most ? n : 0;
}

template <int MT, bool LO, int SOURCE, int TEAMS, bool PICK>
bool launch(nb_cuda *g, const nb_cuda_mla_args *a, plan x)
{
    const size_t n = fit<MT, LO, SOURCE, TEAMS, PICK>(a, x, g->shared_bytes);
    if (n == 0) return false;
    const size_t bound = 32 * (size_t)g->n_sm;
    const dim3 grid((unsigned)(a->max_item < bound ? a->max_item : bound),
                    (unsigned)((NB_CUDA_QUERY_MAX * a->n_head + 16 * MT - 1) / (16 * MT)));
    NB_SHARED_LIMIT(g, (mla_mma<MT, LO, SOURCE, TEAMS, PICK>), n);
    NB_LAUNCH(g, (mla_mma<MT, LO, SOURCE, TEAMS, PICK>), grid, TEAMS * NB_MT_THREADS, n, *a, x);
    return true;
}

template <int MT, int TEAMS> bool launch_teams(nb_cuda *g, const nb_cuda_mla_args *a, const plan &x)
{
    const bool two = two_parts(a->cache.record);
    if (a->pick.n && two) return launch<MT, true, PAGES, TEAMS, true>(g, a, x);
    if (a->pick.n) return launch<MT, false, PAGES, TEAMS, true>(g, a, x);
    if (two) return launch<MT, true, PAGES, TEAMS, false>(g, a, x);
    if (straight(a->cache.record)) return launch<MT, false, BF16_TILES, TEAMS, false>(g, a, x);
    return launch<MT, false, PAGES, TEAMS, false>(g, a, x);
}

} // namespace

bool nb_cuda_mla_mma_can(const nb_record *r, size_t n_head)
{
    return r->n_seg == 2 && nb_cuda_can_cache(r) && r->seg[0].n_vec == 1 && r->seg[1].n_vec == 1 &&
           r->seg[0].dim <= NB_MT_LORA && r->seg[1].dim <= NB_MT_ROPE && n_head >= 1 &&
           n_head <= 128;
}

size_t nb_cuda_mla_mma_scratch(const nb_record *r, size_t n_head, size_t n_row)
{
    (void)r, (void)n_head, (void)n_row;
    return 0;
}

void nb_cuda_mla_mma(nb_cuda *g, const nb_cuda_mla_args *a)
{
    if (a->max_item == 0) return;
    plan x = {};
    x.shape = nb_mt_shape_of(a->lora, a->d_rope);
    x.scale = a->scale * 1.44269504088896341f;
    /* one or two teams: the order of summation depends on it */
    if ((a->n_whole ? a->n_whole : a->n_head) > 16)
        launch_teams<2, 1>(g, a, x);
    else if (!launch_teams<1, 2>(g, a, x))
        launch_teams<1, 1>(g, a, x);
}
