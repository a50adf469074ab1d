/* mla_mma.cu - absorbed attention over the pages of any MLA record, for any number of heads.
 *
 * A block has 16 MT rows (query, head) of one item and takes its pages in steps of 32 tokens
 * (mla_tile.cuh).  Pages come to shared memory as they are, by cp.async, as many ahead as there is room
 * for, and are decoded from there to a tile of BF16 values; the codes of BF16 pages go to a tile at
 * once, two tiles ahead of each other; pages too large for shared memory (f32) are read where they are.
 * BF16 holds the decoded values of all records exactly but those of int4, f32 and fixed scales, which
 * have a second tile of what is left.
 *
 * Two blocks share a multiprocessor, so that one decodes while the other multiplies.
 *
 * A unit's state is joined in device memory to what the item has so far (n_unit > 1): the sums of a
 * row are read and written by the thread that has them. */
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/sm80/mla_tile.cuh"

namespace
{

enum { UNIT = 16, RAW_MAX = 2 };
enum source { PAGES, BF16_TILES };

struct plan { /* sizes of a launch */
    nb_mt_shape shape;
    uint32_t n_raw; /* pages in shared memory; 0: they are read where they are */
    float scale;    /* with log2(e) */
};

/* Half of a page's segment, decoded by the whole block. */
template <int FMT, bool LO>
__device__ void decode(const nb_record_seg &s, const unsigned char *page, uint32_t tok0,
                       uint16_t *tile, uint32_t stride, uint32_t lo)
{
    const uint32_t dim = (uint32_t)s.dim, n8 = (dim + 15) / 16 * 2, lane = threadIdx.x % 32;
    const uint32_t shift = n8 > 16 ? 0 : n8 > 8 ? 1 : n8 > 4 ? 2 : n8 > 2 ? 3 : 4;
    const uint32_t per = 32u >> shift; /* lanes of a token */
    for (uint32_t t = (threadIdx.x / 32 << shift) + lane / per; t < NB_MT_TOK;
         t += NB_MT_WARPS << shift) {
#pragma unroll 2
        for (uint32_t i = lane % per; i < n8; i += per) {
            float v[8] = { 0 };
            if (8 * i < dim) nb_kv_load8<FMT>(s, page, tok0 + t, 0, 8 * i, v);
            nb_mt_put8<LO>(tile + t * stride + 8 * i, lo, v);
        }
    }
}

template <bool LO>
__device__ void decode_any(const nb_record_seg &s, const unsigned char *page, uint32_t tok0,
                           uint16_t *tile, uint32_t stride)
{
    const uint32_t lo = NB_MT_TOK * stride;
    switch (s.fmt) {
    case NB_SEG_BF16: decode<NB_SEG_BF16, LO>(s, page, tok0, tile, stride, lo); break;
    case NB_SEG_E4M3: decode<NB_SEG_E4M3, LO>(s, page, tok0, tile, stride, lo); break;
    case NB_SEG_NVFP4: decode<NB_SEG_NVFP4, LO>(s, page, tok0, tile, stride, lo); break;
    case NB_SEG_IF4: decode<NB_SEG_IF4, LO>(s, page, tok0, tile, stride, lo); break;
    case NB_SEG_MXFP4: decode<NB_SEG_MXFP4, LO>(s, page, tok0, tile, stride, lo); break;
    case NB_SEG_INT4_CH: decode<NB_SEG_INT4_CH, LO>(s, page, tok0, tile, stride, lo); break;
    case NB_SEG_INT4_TOK: decode<NB_SEG_INT4_TOK, LO>(s, page, tok0, tile, stride, lo); break;
    case NB_SEG_F32: decode<NB_SEG_F32, LO>(s, page, tok0, tile, stride, lo); break;
    case NB_SEG_DS_MLA: decode<NB_SEG_DS_MLA, LO>(s, page, tok0, tile, stride, lo); break;
    case NB_SEG_INT8: decode<NB_SEG_INT8, LO>(s, page, tok0, tile, stride, lo); break;
    }
}

/* What the block reads. */
struct pages {
    const unsigned char *base; /* pool + layer_off */
    const uint32_t *block;     /* of the item's first page */
    size_t block_bytes;
    uint32_t n;
};

__device__ inline const unsigned char *page_at(const pages &g, uint32_t p)
{
    return g.base + g.block[p] * g.block_bytes;
}

__device__ inline void fetch_raw(const pages &g, uint32_t p, unsigned char *raw, uint32_t n_bytes)
{
    if (p < g.n) {
        const unsigned char *from = page_at(g, p);
        for (uint32_t i = 16 * threadIdx.x; i < n_bytes; i += 16 * NB_MT_THREADS)
            nb_cp_async16(raw + i, from + i);
    }
    nb_cp_async_commit();
}

/* Step s (32 tokens) of a BF16 record; what pads the tile was zeroed before. */
__device__ inline void fetch_tile(const pages &g, uint32_t s, const nb_record &r,
                                  const nb_mt_shape &d, uint16_t *tile)
{
    if (s / 2 < g.n) {
        const unsigned char *from = page_at(g, s / 2);
        for (uint32_t k = 0; k < 2; k++) {
            const uint32_t n8 = (k ? d.d_rope : d.lora) / 8, at = k ? d.kl : 0;
            const uint32_t off = (uint32_t)r.seg[k].code_off;
            const uint32_t stride = (uint32_t)r.seg[k].code_stride;
            const uint32_t per = n8 < 32 ? 8 : 64; /* threads of a token */
            for (uint32_t t = threadIdx.x / per; t < NB_MT_TOK; t += NB_MT_THREADS / per)
                for (uint32_t i = threadIdx.x % per; i < n8; i += per)
                    nb_cp_async16(tile + t * d.stride + at + 8 * i,
                                  from + off + (s % 2 * NB_MT_TOK + t) * stride + 16 * i);
        }
    }
    nb_cp_async_commit();
}

/* Unit k's state goes out, joined to the earlier ones of the item when it has several. */
template <int MT>
__device__ void put_state(const nb_cuda_mla_args &a, const nb_cuda_item &it, uint32_t k,
                          uint32_t row0, nb_mt_work<MT> *s, nb_mt_state<MT> &z,
                          const nb_mt_shape &d)
{
    const uint32_t w = threadIdx.x / 32, lane = threadIdx.x % 32, nh = (uint32_t)a.n_head;
    const uint32_t n_row = it.n_q * nh;
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const uint32_t r = 16 * i + 2 * w + j, row = row0 + r;
            const float m = nb_mla_state_m(z.m[i][j]), l = nb_mt_sum(z.l[i][j]);
            if (lane != 0 || row >= n_row) continue;
            const size_t first = a.part_first[it.row0 + row / nh] + it.unit0;
            const size_t at = first * nh + row % nh;
            nb_mla_merge f = nb_mla_merge_of(-INFINITY, m);
            if (k > 0) {
                const float m0 = a.part_m[at];
                f = nb_mla_merge_of(m0, m);
                s->pad[r] = m0;
                a.part_m[at + k * nh] = -INFINITY;
                a.part_l[at + k * nh] = 0;
            }
            s->c[r] = m;
            a.part_l[at] = nb_mla_merged(f, k > 0 ? a.part_l[at] : 0, l);
            a.part_m[at] = k > 0 ? f.m : m;
        }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t r = 16 * i + 8 * half + lane / 4, row = row0 + r;
            if (row >= n_row) continue;
            const size_t first = a.part_first[it.row0 + row / nh] + it.unit0;
            float *o = a.part_o + (first * nh + row % nh) * d.lora;
            const nb_mla_merge f = nb_mla_merge_of(k > 0 ? s->pad[r] : -INFINITY, s->c[r]);
            nb_mt_put_o<MT>(z, i, d, o, half, k > 0, f);
        }
    __syncthreads();
}

template <int MT, bool LO, int SOURCE>
__global__ void __launch_bounds__(NB_MT_THREADS, MT == 1 ? 2 : 1)
    mla_mma(NB_PARAM nb_cuda_mla_args a, NB_PARAM plan x)
{
    if (blockIdx.x >= *a.n_item) return;
    const nb_cuda_item it = a.item[blockIdx.x];
    const uint32_t nh = (uint32_t)a.n_head, row0 = blockIdx.y * 16 * MT, n_row = it.n_q * nh;
    if (row0 >= n_row) return;
    NB_SHARED(unsigned char, shared);
    nb_mt_work<MT> *s = reinterpret_cast<nb_mt_work<MT> *>(shared);
    uint16_t *tile = reinterpret_cast<uint16_t *>(shared + nb_mt_fixed_bytes(MT));
    const nb_mt_shape &d = x.shape;
    const uint32_t tile_elems = NB_MT_TOK * d.stride,
                   page_bytes = (uint32_t)a.cache.record.page_bytes;
    unsigned char *raw = reinterpret_cast<unsigned char *>(tile + tile_elems * (LO ? 2 : 1));
    const nb_cuda_chunk c = a.cache.chunk[it.chunk];
    const pages g = { a.cache.pool + a.cache.layer_off,
                      a.cache.block + c.block0 + (size_t)it.unit0 * UNIT, a.cache.block_bytes,
                      it.n_page };
    if (SOURCE == BF16_TILES) {
        for (uint32_t i = threadIdx.x; i < 2 * NB_MT_TOK; i += NB_MT_THREADS) {
            for (uint32_t k = d.lora; k < d.kl; k++) tile[i * d.stride + k] = 0;
            for (uint32_t k = d.kl + d.d_rope; k < d.k; k++) tile[i * d.stride + k] = 0;
        }
        fetch_tile(g, 0, a.cache.record, d, tile);
        fetch_tile(g, 1, a.cache.record, d, tile + tile_elems);
    } else {
        for (uint32_t i = 0; i < x.n_raw; i++) fetch_raw(g, i, raw + i * page_bytes, page_bytes);
    }
    nb_mt_state<MT> z;
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < MT; i++) {
        const float *q[2];
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const uint32_t row = row0 + 16 * i + 8 * k + lane / 4;
            q[k] = row < n_row ? a.q + (it.row0 + row / nh) * a.q_stride + row % nh * a.q_head
                               : nullptr;
        }
        nb_mt_load_q<MT>(z, i, d, q[0], q[1]);
    }
    for (uint32_t p = 0; p < g.n; p++) {
        if (p % UNIT == 0) nb_mt_reset<MT>(z);
        const unsigned char *page = x.n_raw ? raw + p % x.n_raw * page_bytes : page_at(g, p);
        for (uint32_t h = 0; h < 2; h++) {
            const uint16_t *now = tile;
            if (SOURCE == BF16_TILES) {
                now = tile + h * tile_elems;
                nb_cp_async_wait<1>();
                __syncthreads();
            } else {
                if (h == 0 && x.n_raw) {
                    if (x.n_raw == 2)
                        nb_cp_async_wait<1>();
                    else
                        nb_cp_async_wait<0>();
                    __syncthreads();
                }
                decode_any<LO>(a.cache.record.seg[0], page, h * NB_MT_TOK, tile, d.stride);
                decode_any<LO>(a.cache.record.seg[1], page, h * NB_MT_TOK, tile + d.kl, d.stride);
                __syncthreads();
                if (h == 1 && x.n_raw)
                    fetch_raw(g, p + x.n_raw, raw + p % x.n_raw * page_bytes, page_bytes);
            }
            nb_mt_scores<MT, LO>(s, z, d, now);
            __syncthreads();
            nb_mt_softmax<MT>(s, z, NB_MT_TOK, x.scale);
            __syncthreads();
            nb_mt_values<MT, LO>(s, z, d, now);
            __syncthreads();
            if (SOURCE == BF16_TILES)
                fetch_tile(g, 2 * p + h + 2, a.cache.record, d, tile + h * tile_elems);
        }
        if (p % UNIT == UNIT - 1 || p == g.n - 1) put_state<MT>(a, it, p / UNIT, row0, s, z, d);
    }
    nb_cp_async_wait<0>();
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

template <int MT, bool LO, int SOURCE> void launch(nb_cuda *g, const nb_cuda_mla_args *a, plan x)
{
    const size_t fixed = nb_mt_fixed_bytes(MT);
    const size_t tiles = nb_mt_tile_bytes(x.shape) * (LO || SOURCE == BF16_TILES ? 2 : 1);
    const size_t page = a->cache.record.page_bytes, most = g->shared_bytes;
    size_t n = fixed + tiles;
    if (SOURCE == PAGES) { /* a page ahead is worth less than a second block beside this one */
        const size_t half = MT == 1 ? (most + 1024) / 2 - 1024 : most;
        while (x.n_raw < RAW_MAX && n + page <= half) x.n_raw++, n += page;
        if (x.n_raw == 0 && n + page <= most) x.n_raw++, n += page;
    }
    const dim3 grid((unsigned)a->max_item,
                    (unsigned)((NB_CUDA_QUERY_MAX * a->n_head + 16 * MT - 1) / (16 * MT)));
    NB_SHARED_LIMIT(g, (mla_mma<MT, LO, SOURCE>), n);
    NB_LAUNCH(g, (mla_mma<MT, LO, SOURCE>), grid, NB_MT_THREADS, n, *a, x);
}

template <int MT> void launch_mt(nb_cuda *g, const nb_cuda_mla_args *a, const plan &x)
{
    if (two_parts(a->cache.record))
        launch<MT, true, PAGES>(g, a, x);
    else if (straight(a->cache.record))
        launch<MT, false, BF16_TILES>(g, a, x);
    else
        launch<MT, false, PAGES>(g, a, x);
}

} // namespace

bool nb_cuda_mla_mma_can(const nb_record *r, size_t n_head)
{
    return r->n_seg == 2 && r->seg[0].n_vec == 1 && r->seg[1].n_vec == 1 &&
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
    const plan x = { nb_mt_shape_of(a->lora, a->d_rope), 0, a->scale * 1.44269504088896341f };
    if (a->n_head > 16)
        launch_mt<2>(g, a, x);
    else
        launch_mt<1>(g, a, x);
}
