/* mla_tail.cu - the last state of every query: the rows of the page that it is in, up to itself.
 *
 * A block has one query and 16 of its heads, and takes the rows in steps of 32 tokens as mla_mma.cu
 * does; they are floats that BF16 holds exactly (an f32 record: two parts). */
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/sm80/mla_tile.cuh"

namespace
{

/* Rows tok0 .. of `rows` as a tile; zeros from n_vis on. */
template <bool LO>
__device__ void fill(const float *rows, uint32_t n_values, uint32_t n_vis, const nb_mt_shape &d,
                     uint16_t *tile)
{
    const uint32_t n8 = d.k / 8, n = NB_MT_TOK * n8;
    const bool whole = d.lora % 16 == 0 && d.d_rope % 16 == 0;
    for (uint32_t e = threadIdx.x; e < n; e += NB_MT_THREADS) {
        const uint32_t t = e / n8, c = 8 * (e % n8);
        const float *row = rows + (size_t)t * n_values;
        float v[8] = { 0 };
        if (t < n_vis && whole) {
            const float4 x = *reinterpret_cast<const float4 *>(row + c);
            const float4 y = *reinterpret_cast<const float4 *>(row + c + 4);
            v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
            v[4] = y.x, v[5] = y.y, v[6] = y.z, v[7] = y.w;
        } else if (t < n_vis) {
#pragma unroll
            for (uint32_t j = 0; j < 8; j++) v[j] = nb_mt_q(d, row, c + j);
        }
        nb_mt_put8<LO>(tile + t * d.stride + c, NB_MT_TOK * d.stride, v);
    }
}

template <bool LO>
__global__ void __launch_bounds__(NB_MT_THREADS)
    mla_tail(NB_PARAM nb_cuda_mla_args a, nb_mt_shape d, float scale)
{
    const uint32_t row = blockIdx.x, head0 = blockIdx.y * 16, nh = (uint32_t)a.n_head;
    const uint32_t chunk = a.row_chunk[row];
    if (chunk == UINT32_MAX) return;
    NB_SHARED(unsigned char, shared);
    nb_mt_work<1> *s = reinterpret_cast<nb_mt_work<1> *>(shared);
    uint16_t *tile = reinterpret_cast<uint16_t *>(shared + nb_mt_fixed_bytes(1));
    const nb_cuda_chunk c = a.cache.chunk[chunk];
    const uint32_t n_values = d.lora + d.d_rope, pos = c.pos0 + (row - c.row0);
    const uint32_t n_vis = pos % NB_PAGE_TOK + 1;
    const float *rows =
        c.own ? c.own + (size_t)(pos / NB_PAGE_TOK - c.pos0 / NB_PAGE_TOK) * NB_PAGE_TOK * n_values
              : c.tail + a.cache.tail_off;
    const uint32_t w = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4;
    nb_mt_state<1> z;
    const float *q = a.q + row * a.q_stride;
    nb_mt_load_q<1>(z, 0, d, head0 + g < nh ? q + (head0 + g) * a.q_head : nullptr,
                    head0 + g + 8 < nh ? q + (head0 + g + 8) * a.q_head : nullptr);
    nb_mt_reset<1>(z);
    for (uint32_t t = 0; t < n_vis; t += NB_MT_TOK) {
        fill<LO>(rows + (size_t)t * n_values, n_values, n_vis - t, d, tile);
        __syncthreads();
        nb_mt_scores<1, LO>(s, z, d, tile);
        __syncthreads();
        nb_mt_softmax<1>(s, z, n_vis - t, scale);
        __syncthreads();
        nb_mt_values<1, LO>(s, z, d, tile);
        __syncthreads();
    }
    const size_t part = (size_t)a.part_first[row + 1] - 1;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const uint32_t head = head0 + 2 * w + j;
        const float l = nb_mt_sum(z.l[0][j]);
        if (lane == 0 && head < nh) {
            a.part_m[part * nh + head] = nb_mla_state_m(z.m[0][j]);
            a.part_l[part * nh + head] = l;
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t head = head0 + g + 8 * half;
        if (head < nh)
            nb_mt_put_o<1>(z, 0, d, a.part_o + (part * nh + head) * d.lora, half, false,
                           nb_mla_merge());
    }
}

} // namespace

void nb_cuda_mla_tail(nb_cuda *g, const nb_cuda_mla_args *a)
{
    if (a->n_row == 0) return;
    const nb_mt_shape d = nb_mt_shape_of(a->lora, a->d_rope);
    const float scale = a->scale * 1.44269504088896341f;
    const dim3 grid((unsigned)a->n_row, (unsigned)((a->n_head + 15) / 16));
    const bool lo = a->cache.record.type == NB_KV_F32;
    const size_t n = nb_mt_fixed_bytes(1) + nb_mt_tile_bytes(d) * (lo ? 2 : 1);
    if (lo) {
        NB_SHARED_LIMIT(g, mla_tail<true>, n);
        NB_LAUNCH(g, mla_tail<true>, grid, NB_MT_THREADS, n, *a, d, scale);
    } else {
        NB_SHARED_LIMIT(g, mla_tail<false>, n);
        NB_LAUNCH(g, mla_tail<false>, grid, NB_MT_THREADS, n, *a, d, scale);
    }
}
