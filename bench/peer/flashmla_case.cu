/* flashmla_case.cu - a case of FlashMLA: its pages, and calls with the parameters that its own
 * csrc/api/dense_decode.h and sparse_decode.h pass. */
#include "flashmla.cuh"

#include <algorithm>
#include <cmath>

#include <sm90/decode/dense/splitkv_mla.h>
#include <sm90/decode/sparse_fp8/splitkv_mla.h>
#include <smxx/decode/combine/combine.h>
#include <smxx/decode/get_decoding_sched_meta/get_decoding_sched_meta.h>

enum { OVERHEAD_BLOCKS = 5 }; /* FlashMLA's own value */

__global__ static void fill_bf16(bf16 *x, size_t n, uint64_t from)
{
    const size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        x[i] = value(from, i);
}

/* One warp per token: codes, a scale per 128 values, the rope key in BF16. */
__global__ static void fill_fp8(uint8_t *x, size_t n_token, uint64_t seed)
{
    const size_t step = (size_t)gridDim.x * blockDim.x / 32;
    const int lane = (int)threadIdx.x % 32;
    const uint64_t codes = base(seed, OF_CODE), scales = base(seed, OF_SCALE);
    const uint64_t keys = base(seed, OF_VALUE);
    for (size_t t = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / 32; t < n_token; t += step) {
        uint8_t *row = x + t * FP8_BYTES;
        for (int d = lane; d < LATENT; d += 32) row[d] = code(codes, t * LATENT + (size_t)d);
        float *scale = (float *)(row + LATENT);
        if (lane < LATENT / FP8_TILE)
            scale[lane] = tile_scale(scales, t * (LATENT / FP8_TILE) + (size_t)lane);
        bf16 *rope = (bf16 *)(row + LATENT + LATENT / FP8_TILE * 4);
        for (int d = lane; d < ROPE; d += 32) rope[d] = value(keys, t * ROPE + (size_t)d);
    }
}

/* Pages in an order that no prefetcher follows: i * odd modulo a power of two. */
static std::vector<int> scattered(size_t n)
{
    std::vector<int> out;
    size_t pow2 = 1;
    while (pow2 < n) pow2 *= 2;
    for (size_t i = 0; out.size() < n; i++) {
        const size_t k = (i * 2654435761u + 12345) & (pow2 - 1);
        if (k < n) out.push_back((int)k);
    }
    return out;
}

std::unique_ptr<peer> make_peer(shape s, bool fp8, uint64_t seed, int n_sm, cudaStream_t st)
{
    auto p = std::make_unique<peer>();
    const size_t b = (size_t)s.batch, h = (size_t)s.heads, bytes = fp8 ? FP8_BYTES : VALUES * 2;
    p->s = s, p->fp8 = fp8, p->plan = false, p->seed = seed, p->stream = st;
    p->n_page = b * (size_t)s.context / PAGE;
    const size_t set = p->n_page * PAGE * bytes;
    p->n_set = std::min<size_t>((SET_BYTES + set - 1) / set, MAX_LAUNCH);
    p->n_part = std::max(n_sm / ((s.heads + 63) / 64), 1);
    p->table = scattered(p->n_set * p->n_page);
    const size_t n_token = p->table.size() * PAGE;
    p->kv.alloc(n_token * bytes / sizeof(bf16));
    if (fp8)
        fill_fp8<<<n_sm * 8, 256, 0, st>>>((uint8_t *)p->kv.p, n_token, seed);
    else
        fill_bf16<<<n_sm * 8, 256, 0, st>>>(p->kv.p, n_token * VALUES, base(seed, OF_VALUE));
    p->q.alloc(b * h * VALUES);
    fill_bf16<<<n_sm, 256, 0, st>>>(p->q.p, b * h * VALUES, base(seed, OF_QUERY));
    CHECK(cudaGetLastError());
    if (fp8) {
        std::vector<int> token(n_token);
        for (size_t i = 0; i < n_token; i++) token[i] = p->table[i / PAGE] * PAGE + (int)(i % PAGE);
        p->token.upload(token);
    } else
        p->page.upload(p->table);
    p->len.upload(std::vector<int>(b, s.context));
    p->out.alloc(b * h * LATENT);
    p->lse.alloc(b * h);
    p->lse_accum.alloc((b + (size_t)p->n_part) * h);
    p->o_accum.alloc((b + (size_t)p->n_part) * h * LATENT);
    p->meta.alloc((size_t)p->n_part);
    p->split.alloc(b + 1);
    CHECK(cudaStreamSynchronize(st));
    return p;
}

void launch_plan(const peer *p)
{
    GetDecodeSchedMetaParams a = {};
    a.b = p->s.batch, a.s_q = 1, a.block_size_n = PAGE;
    a.fixed_overhead_num_blocks = OVERHEAD_BLOCKS;
    a.topk = p->fp8 ? p->s.context : -1;
    a.extra_topk = p->fp8 ? 0 : -1;
    a.seqlens_k_ptr = p->fp8 ? nullptr : p->len.p;
    a.tile_scheduler_metadata_ptr = p->meta.p, a.num_splits_ptr = p->split.p;
    a.num_sm_parts = p->n_part, a.stream = p->stream;
    smxx::decode::run_get_decoding_sched_meta_kernel(a);
}

static void launch_dense(const peer *p, size_t set)
{
    DenseAttnDecodeParams a = {};
    const int h = p->s.heads, pages = p->s.context / PAGE;
    a.b = p->s.batch, a.s_q = 1, a.q_seq_per_hk = h, a.d = VALUES, a.d_v = LATENT;
    a.h_q = h, a.h_k = 1, a.q_head_per_hk = h, a.is_causal = false;
    a.num_blocks = (int)(p->n_set * p->n_page);
    a.scale_softmax = SCALE, a.scale_softmax_log2 = (float)(SCALE * M_LOG2E);
    a.q_ptr = p->q.p, a.k_ptr = p->kv.p, a.o_ptr = p->out.p, a.softmax_lse_ptr = p->lse.p;
    a.q_batch_stride = (int64_t)h * VALUES, a.q_row_stride = VALUES, a.q_head_stride = VALUES;
    a.k_batch_stride = PAGE * VALUES, a.k_row_stride = VALUES, a.k_head_stride = VALUES;
    a.o_batch_stride = (int64_t)h * LATENT, a.o_row_stride = LATENT;
    a.o_head_stride = (int64_t)h * LATENT;
    a.block_table = p->page.p + set * p->n_page, a.block_table_batch_stride = pages;
    a.page_block_size = PAGE, a.seqlens_k_ptr = p->len.p;
    a.tile_scheduler_metadata_ptr = p->meta.p, a.num_splits_ptr = p->split.p;
    a.num_sm_parts = p->n_part, a.total_num_splits = p->s.batch + p->n_part;
    a.softmax_lseaccum_ptr = p->lse_accum.p, a.oaccum_ptr = p->o_accum.p;
    a.stream = p->stream;
    sm90::run_flash_splitkv_mla_kernel<bf16>(a);
}

static void launch_sparse(const peer *p, size_t set)
{
    SparseAttnDecodeParams a = {};
    const int h = p->s.heads;
    a.b = p->s.batch, a.s_q = 1, a.h_q = h, a.h_kv = 1, a.d_qk = VALUES, a.d_v = LATENT;
    a.sm_scale = SCALE, a.sm_scale_div_log2 = (float)(SCALE * M_LOG2E);
    a.num_blocks = (int)(p->n_set * p->n_page), a.page_block_size = PAGE, a.topk = p->s.context;
    a.model_type = ModelType::V32;
    a.q = p->q.p, a.kv = p->kv.p, a.indices = p->token.p + set * p->n_page * PAGE;
    a.lse = p->lse.p, a.out = p->out.p;
    a.stride_q_b = a.stride_q_s_q = h * VALUES, a.stride_q_h_q = VALUES;
    a.stride_kv_block = PAGE * FP8_BYTES, a.stride_kv_row = FP8_BYTES;
    a.stride_indices_b = a.stride_indices_s_q = p->s.context;
    a.stride_lse_b = a.stride_lse_s_q = h;
    a.stride_o_b = a.stride_o_s_q = h * LATENT, a.stride_o_h_q = LATENT;
    a.stream = p->stream;
    a.lse_accum = p->lse_accum.p, a.o_accum = p->o_accum.p;
    a.stride_lse_accum_split = a.stride_lse_accum_s_q = h;
    a.stride_o_accum_split = a.stride_o_accum_s_q = h * LATENT, a.stride_o_accum_h_q = LATENT;
    a.tile_scheduler_metadata_ptr = p->meta.p, a.num_splits_ptr = p->split.p;
    a.num_sm_parts = p->n_part;
    if (h == 64)
        sm90::decode::sparse_fp8::run_flash_splitkv_mla_fp8_sparse_kernel<ModelType::V32, 64>(a);
    else
        sm90::decode::sparse_fp8::run_flash_splitkv_mla_fp8_sparse_kernel<ModelType::V32, 128>(a);
}

static void launch_combine(const peer *p)
{
    CombineParams a = {};
    const int h = p->s.heads;
    a.b = p->s.batch, a.s_q = 1, a.h_q = h, a.d_v = LATENT;
    a.lse = p->lse.p, a.out = p->out.p;
    a.stride_lse_b = a.stride_lse_s_q = h;
    a.stride_o_b = a.stride_o_s_q = h * LATENT, a.stride_o_h_q = LATENT;
    a.lse_accum = p->lse_accum.p, a.o_accum = p->o_accum.p;
    a.stride_lse_accum_split = a.stride_lse_accum_s_q = h;
    a.stride_o_accum_split = a.stride_o_accum_s_q = h * LATENT, a.stride_o_accum_h_q = LATENT;
    a.tile_scheduler_metadata_ptr = p->meta.p, a.num_splits_ptr = p->split.p;
    a.num_sm_parts = p->n_part, a.stream = p->stream;
    smxx::decode::run_flash_mla_combine_kernel<bf16>(a);
}

void launch(const peer *p, size_t set)
{
    if (p->plan) launch_plan(p);
    if (p->fp8)
        launch_sparse(p, set);
    else
        launch_dense(p, set);
    launch_combine(p);
}
