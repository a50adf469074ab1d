/* mla_few.cu - MLA decode attention over complete pages on Hopper (sm_90a), for at most 32 rows at a time.
 *
 * A row is one (query token, head).  For each row and each unit of pages the kernel computes a partial state, with
 * c_j the latent (512 values) and r_j the rope key (64 values) of token j:
 *   s_j = scale log2(e) (q_c . c_j + q_r . r_j);  m = a reference near max s_j
 *   l = sum 2^(s_j - m);  o = sum 2^(s_j - m) c_j
 * mla_combine turns the states into the result.  A unit is a fixed range of pages whose attention is one partial
 * state; a super is a fixed group of units that are combined in order (nb_cuda_units.h).
 *
 * This file is the host side: tensor maps, choice of the template, launch.  mla_few.cuh explains the kernel.
 * Cache formats: bf16, fp8, nvfp4, if4.
 *
 * H100 80GB HBM3, 16 heads, mla_tail and mla_combine included.  In ms; in brackets the floor, bytes at 3.0 TB/s:
 *                    bf16           fp8            if4            nvfp4
 *   b=128 s=4096     0.226 (0.201)  0.131 (0.101)  0.125 (0.062)  0.119 (0.062)
 *   b=4   s=131072   0.220          0.132          0.127          0.120
 *   b=1   s=131072   0.069 (0.050)  0.047 (0.025)  0.045 (0.015)  0.044 (0.015)
 *
 * What bounds it: memory bandwidth for bf16.  The other formats are bound by latency (they use 0.46 of the issue
 * slots) and by shared memory, which is busy 58 % of the time.
 *
 * Tried and slower:
 *   - pairs of warpgroups that share a page
 *   - three warpgroups that read pages into registers
 *   - a separate copy of the code for each warpgroup
 *   - units of 4 pages (0.132)
 *   - two warpgroups that compute the weights, and two that decode the page again for the values, so that no
 *     decoded value goes through shared memory
 * lab/hopper has the measurements and the next step to try. */
#include "kernel/cuda/common/ops.cuh"
#include "kernel/cuda/sm90/mla_few.cuh"

namespace
{

/* [0]: work items handed out beyond each block's first; [1]: finished blocks.  Both are 0 between launches. */
__device__ uint32_t few_count[2];

typedef CUresult encode_fn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                           const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                           const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The tensor map of a page: 64 rows (tokens) of `row` bytes, copied in boxes of 64 x 128 bytes.  A box arrives in
 * shared memory as [64][128 bytes] with the 128-byte swizzle: 16-byte chunk c of row r is at c ^ r % 8. */
bool make_map(CUtensorMap *map, const unsigned char *page, size_t row, size_t block_bytes)
{
    static encode_fn *encode;
    if (!encode) {
        void *fn = nullptr;
        cudaDriverEntryPointQueryResult r;
        if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &fn, 12000,
                                             cudaEnableDefault, &r) != cudaSuccess ||
            !fn)
            return false;
        encode = (encode_fn *)fn;
    }
    const cuuint64_t dim[3] = { row, 64, 1u << 31 }, stride[2] = { row, block_bytes };
    const cuuint32_t box[3] = { 128, 64, 1 }, one[3] = { 1, 1, 1 };
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, const_cast<unsigned char *>(page), dim,
                  stride, box, one, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <int FMT, int N, int GROUPS, bool PAIR> void launch(nb_cuda *g, const nb_cuda_mla_args *a)
{
    using L = few::layout<FMT, N, GROUPS>;
    const nb_record &r = a->cache.record;
    const unsigned char *page = a->cache.pool + a->cache.layer_off;
    const size_t row = FMT == few::BF16 ? 1024 : FMT == few::FP8 ? 512 : 256;
    CUtensorMap codes, rope;
    if (!make_map(&codes, page + r.seg[0].code_off, row, a->cache.block_bytes) ||
        !make_map(&rope, page + r.seg[1].code_off, 128, a->cache.block_bytes)) {
        nb_cuda_check(g, cudaErrorNotSupported, "mla_few: tensor map");
        return;
    }
    void *count = nullptr;
    nb_cuda_check(g, cudaGetSymbolAddress(&count, few_count), "mla_few: counters");
    few::params p;
    static_cast<nb_mla_params &>(p) =
        nb_mla_params_of(a, FMT == few::NVFP4 || FMT == few::IF4 ? 64.f : 1.f);
    p.rope_int8 = r.seg[1].fmt == NB_SEG_INT8;
    p.next = (uint32_t *)count, p.done = p.next + 1;
    const size_t n_sm = (size_t)g->n_sm, most = PAIR                 ? 2 * a->max_item
                                                : a->max_item < n_sm ? a->max_item
                                                                     : n_sm;
    NB_SHARED_LIMIT(g, (few::mla_few<FMT, N, GROUPS, PAIR>), L::BYTES);
    if (a->fresh) g->whole = true; /* it reads items, chunks and pages before it waits */
    NB_LAUNCH_CLUSTERS(g, PAIR ? 2 : 1, (few::mla_few<FMT, N, GROUPS, PAIR>), (unsigned)most,
                       L::THREADS, L::BYTES, p, codes, rope);
}

/* Chooses the column count N.  With n_row <= n_chunk few work items have two queries; such an item runs in passes of
 * N rows, which give the same bits.  Otherwise take as many queries at a time as fit, as long as the number of
 * warpgroups stays the same: the order of summation depends on it. */
template <int FMT> void launch_rows(nb_cuda *g, const nb_cuda_mla_args *a)
{
    const bool single = FMT == few::FP8 || a->n_row <= a->cache.n_chunk;
    /* the heads of a rank are summed as the whole model's */
    const size_t n_head = FMT == few::FP8 && a->n_whole ? a->n_whole : a->n_head;
    if (FMT == few::BF16 || n_head <= 8 || (n_head <= 16 && single)) {
        if (a->n_row == 1 &&
            2 * a->max_item <= (size_t)g->n_sm) /* with more rows, clusters start later */
            launch<FMT, 16, 2, true>(g, a);
        else
            launch<FMT, 16, 2, false>(g, a);
    } else if constexpr (FMT != few::BF16) {
        launch<FMT, 32, FMT == few::FP8 ? 1 : 2, false>(g, a);
    }
}

} // namespace

bool nb_cuda_mla_few_can(const nb_record *r, size_t n_head)
{
    if (r->n_seg != 2 || n_head < 1 || n_head > 32) return false;
    const nb_record_seg &c = r->seg[0], &k = r->seg[1];
    if (c.dim != few::LORA || k.dim != few::ROPE || c.n_vec != 1 || k.n_vec != 1 ||
        c.n_outlier != 0 || k.n_outlier != 0)
        return false;
    if (c.fmt == NB_SEG_BF16) return k.fmt == NB_SEG_BF16 && n_head <= 16;
    return (c.fmt == NB_SEG_NVFP4 || c.fmt == NB_SEG_IF4 || c.fmt == NB_SEG_E4M3) &&
           (k.fmt == NB_SEG_INT8 || k.fmt == NB_SEG_E4M3);
}

size_t nb_cuda_mla_few_scratch(const nb_record *r, size_t n_head, size_t n_row)
{
    (void)r, (void)n_head, (void)n_row;
    return 0;
}

void nb_cuda_mla_few(nb_cuda *g, const nb_cuda_mla_args *a)
{
    if (a->max_item == 0) return;
    switch (a->cache.record.seg[0].fmt) {
    case NB_SEG_BF16: launch_rows<few::BF16>(g, a); break;
    case NB_SEG_E4M3: launch_rows<few::FP8>(g, a); break;
    case NB_SEG_IF4: launch_rows<few::IF4>(g, a); break;
    default: launch_rows<few::NVFP4>(g, a); break;
    }
}
