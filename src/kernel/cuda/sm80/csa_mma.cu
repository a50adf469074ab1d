/* csa_mma.cu - compressed attention on tensor cores: rows of 512 values, exact in BF16.
 *
 * A block has one unit of one query and 32 heads; eight warps: two groups of 16 heads, four quarters of 128 values.
 * Where the unit's rows are is found once, a row to a thread; then a thread has eight values of eight rows of a tile, all
 * of whose loads are in flight together.  (The first form looked a row up for each eight values, behind a switch of formats:
 * 40 to 52 us for 640 rows of one user on an H100, bound by chains of loads.  This form was compiled for it, not timed.)
 * A tile of 32 rows is decoded to shared memory as BF16; it is keys and values.  The next tile is decoded while this one
 * is computed, by the same warps: they part between the barriers.
 *   scores   a warp multiplies its quarter of the queries, which it keeps in registers as hi + lo, with all 32 rows; the
 *            quarters' sums meet in shared memory and are added in order
 *   sum      every warp of a head group computes the same weights, as hi + lo, and its quarter of the weighted sum
 * Queries in two parts cost twice the mma of the scores, but then only rows round, and those the record has rounded.
 *
 * 66 KB of rows, 18 KB of scores, 6 KB of places; one block per SM, by registers.  One user's 512 chosen rows and window are 20 blocks:
 * bound by latency.  Many rows: bound by mma and by decoding, which takes about a third of the instructions. */
#include "kernel/cuda/common/csa_rows.cuh"
#include "kernel/cuda/common/ops.cuh"

namespace
{
constexpr uint32_t DIM = 512, HEADS = 32, TILE = 32, QUARTER = 128, WARPS = 8, THREADS = 32 * WARPS;
constexpr uint32_t PITCH = DIM + 8, S_PITCH = TILE + 4, STEPS = QUARTER / 16, OUT = QUARTER / 8;
constexpr float LOG2E = 1.4426950408889634f;

struct shared_mem {
    uint16_t row[2][TILE][PITCH];
    float score[4][HEADS][S_PITCH]; /* of each quarter */
    nb_csa_place place[NB_CUDA_CSA_LONG]; /* of the unit's rows */
};

__device__ inline float low_part(float x)
{
    return x - nb_bf16_float(nb_bf16_bits(x));
}

/* What a thread has of a tile: eight values of every fourth row. */
constexpr uint32_t EIGHTS = DIM / 8, EACH = TILE * EIGHTS / THREADS, STEP = THREADS / EIGHTS;

/* Rows of a segment without outliers and fixed scales, with aligned words: no branch, so that all loads are in flight. */
template <int FMT>
__device__ __forceinline__ void decode_rows(const nb_record_seg &s, const nb_csa_place *place, uint32_t n, uint32_t i0,
                                            uint32_t (&w)[EACH][4])
{
    if (s.n_outlier != 0 || s.fixed_scale != 0 || s.code_off % 16 != 0 || s.code_stride % 16 != 0 || i0 + 8 > (uint32_t)s.dim ||
        nb_kv_vec_bytes(FMT, (uint32_t)s.dim) % 16 != 0)
        __builtin_unreachable();
#pragma unroll
    for (uint32_t j = 0; j < EACH; j++) {
        const uint32_t k = threadIdx.x / EIGHTS + j * STEP, at = k < n ? k : n - 1;
        float v[8];
        nb_kv_inner8<FMT>(s, place[at].page, place[at].row, 0, i0, v);
        if constexpr (FMT != NB_SEG_BF16) {
            const float o = FMT == NB_SEG_MXFP4 ? 1.0f : nb_kv_outer<FMT>(s, place[at].page, place[at].row, 0, i0);
#pragma unroll
            for (uint32_t d = 0; d < 8; d++) v[d] = o == 0 ? 0 : nb_kv_clip(__fmul_rn(v[d], o));
        }
        nb_kv_pack8(v, w[j]);
    }
}

__device__ __forceinline__ bool usual(const nb_record_seg &s)
{
    return s.n_outlier == 0 && s.fixed_scale == 0 && s.code_off % 16 == 0 && s.code_stride % 16 == 0 &&
           nb_kv_vec_bytes(s.fmt, (uint32_t)s.dim) % 16 == 0;
}

__device__ __forceinline__ void float_rows(const nb_csa_place *place, uint32_t n, uint32_t d0, uint32_t (&w)[EACH][4])
{
#pragma unroll
    for (uint32_t j = 0; j < EACH; j++) {
        const uint32_t k = threadIdx.x / EIGHTS + j * STEP, at = k < n ? k : n - 1;
        const float4 *f = reinterpret_cast<const float4 *>(place[at].f + d0);
        const float4 x = f[0], y = f[1];
        const float v[8] = { x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w };
        nb_kv_pack8(v, w[j]);
    }
}

/* Any row, to the tile. */
__device__ __noinline__ void any_rows(const nb_record_seg &s, const nb_csa_place *place, uint32_t n, uint32_t d0, uint32_t i0,
                                      uint16_t (*to)[PITCH])
{
#pragma unroll 1
    for (uint32_t k = threadIdx.x / EIGHTS; k < TILE; k += STEP) {
        float v[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
        uint32_t w[4];
        if (k < n && place[k].page)
            nb_kv_load8_any(s, place[k].page, place[k].row, 0, i0, v);
        else if (k < n)
            for (uint32_t d = 0; d < 8; d++) v[d] = place[k].f[d0 + d];
        nb_kv_pack8(v, w);
        uint16_t *at = to[k] + d0;
        *reinterpret_cast<uint4 *>(at) = make_uint4(w[0], w[1], w[2], w[3]);
    }
}

/* The first n rows of `place`, of which n_page are in pages, decoded to a tile; rows behind them are zeros. */
__device__ void load_tile(const nb_cuda_csa_attend_args &a, const nb_csa_place *place, uint32_t n, uint32_t n_page,
                          bool aligned, uint16_t (*to)[PITCH])
{
    const uint32_t rope0 = DIM - (uint32_t)a.d_rope, d0 = threadIdx.x % EIGHTS * 8, seg = d0 >= rope0;
    const nb_record_seg &s = a.cache.record.seg[seg];
    const uint32_t i0 = seg ? d0 - rope0 : d0;
    if (n > TILE) n = TILE;
    uint32_t w[EACH][4];
    if (n_page == 0 && aligned) {
        float_rows(place, n, d0, w);
    } else if (n_page >= n && usual(s)) {
        switch (s.fmt) {
        case NB_SEG_NVFP4: decode_rows<NB_SEG_NVFP4>(s, place, n, i0, w); break;
        case NB_SEG_E4M3: decode_rows<NB_SEG_E4M3>(s, place, n, i0, w); break;
        case NB_SEG_INT8: decode_rows<NB_SEG_INT8>(s, place, n, i0, w); break;
        case NB_SEG_BF16: decode_rows<NB_SEG_BF16>(s, place, n, i0, w); break;
        default: any_rows(s, place, n, d0, i0, to); return;
        }
    } else {
        any_rows(s, place, n, d0, i0, to);
        return;
    }
#pragma unroll
    for (uint32_t j = 0; j < EACH; j++) {
        const uint32_t k = threadIdx.x / EIGHTS + j * STEP;
        uint16_t *at = to[k] + d0;
        const bool there = k < n;
        *reinterpret_cast<uint4 *>(at) =
            make_uint4(there ? w[j][0] : 0, there ? w[j][1] : 0, there ? w[j][2] : 0, there ? w[j][3] : 0);
    }
}

/* The warp's queries: A operands of its 16 heads and 128 values, hi and lo. */
struct queries {
    uint32_t a[2][STEPS][4];
};

__device__ void load_queries(const nb_cuda_csa_attend_args &a, uint32_t i, uint32_t head0, uint32_t quarter, queries &q)
{
    const uint32_t lane = threadIdx.x % 32, t = lane % 4;
#pragma unroll
    for (uint32_t s = 0; s < STEPS; s++)
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) {
            const uint32_t head = head0 + lane / 4 + e % 2 * 8, d = quarter * QUARTER + 16 * s + e / 2 * 8 + 2 * t;
            float2 v = make_float2(0, 0);
            if (head < a.n_head)
                v = *reinterpret_cast<const float2 *>(a.q + (size_t)i * a.q_stride + (size_t)head * DIM + d);
            q.a[0][s][e] = nb_pack_bf16(v.x, v.y);
            q.a[1][s][e] = nb_pack_bf16(low_part(v.x), low_part(v.y));
        }
}

/* This quarter's part of the scores, to shared memory. */
__device__ void put_scores(const queries &q, const uint16_t (*row)[PITCH], uint32_t quarter, float (*to)[S_PITCH])
{
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const uint16_t *b0 = &row[lane % 8][quarter * QUARTER + lane / 8 * 8];
    float acc[4][4] = {};
#pragma unroll
    for (uint32_t s = 0; s < STEPS; s += 2)
#pragma unroll
        for (uint32_t n = 0; n < 4; n++) {
            uint32_t b[4];
            nb_ldmatrix4(b, b0 + 8 * n * PITCH + 16 * s);
#pragma unroll
            for (uint32_t k = 0; k < 2; k++) {
                nb_mma_bf16(acc[n], q.a[0][s + k], b[2 * k], b[2 * k + 1]);
                nb_mma_bf16(acc[n], q.a[1][s + k], b[2 * k], b[2 * k + 1]);
            }
        }
#pragma unroll
    for (uint32_t n = 0; n < 4; n++) {
        *reinterpret_cast<float2 *>(&to[g][8 * n + 2 * t]) = make_float2(acc[n][0], acc[n][1]);
        *reinterpret_cast<float2 *>(&to[g + 8][8 * n + 2 * t]) = make_float2(acc[n][2], acc[n][3]);
    }
}

/* The state of heads g and g + 8: lane = 4 g + t. */
struct state {
    float m[2], l[2], o[OUT][4];
};

/* Scores of the tile's n rows, added over quarters, become weights; the state is brought to the new maximum. */
__device__ void weigh(const shared_mem *z, uint32_t group, uint32_t n, float scale, state &x, uint32_t (&hi)[2][4],
                      uint32_t (&lo)[2][4])
{
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float factor[2];
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        float s[4][2], top = -INFINITY, sum = 0;
        const uint32_t head = 16 * group + g + 8 * h;
#pragma unroll
        for (uint32_t c = 0; c < 4; c++) { /* columns 8 c + 2 t, + 1 */
            float2 v = *reinterpret_cast<const float2 *>(&z->score[0][head][8 * c + 2 * t]);
#pragma unroll
            for (uint32_t k = 1; k < 4; k++) {
                const float2 w = *reinterpret_cast<const float2 *>(&z->score[k][head][8 * c + 2 * t]);
                v.x = __fadd_rn(v.x, w.x), v.y = __fadd_rn(v.y, w.y);
            }
            s[c][0] = 8 * c + 2 * t < n ? v.x * scale : -INFINITY;
            s[c][1] = 8 * c + 2 * t + 1 < n ? v.y * scale : -INFINITY;
            top = fmaxf(top, fmaxf(s[c][0], s[c][1]));
        }
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        top = fmaxf(top, x.m[h]);
        const float base = top == -INFINITY ? 0 : top;
        factor[h] = nb_exp2(x.m[h] - base);
#pragma unroll
        for (uint32_t c = 0; c < 4; c++) {
            const float e0 = nb_exp2(s[c][0] - base), e1 = nb_exp2(s[c][1] - base);
            sum += e0 + e1;
            hi[c / 2][h + c % 2 * 2] = nb_pack_bf16(e0, e1);
            lo[c / 2][h + c % 2 * 2] = nb_pack_bf16(low_part(e0), low_part(e1));
        }
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        x.l[h] = __fmaf_rn(x.l[h], factor[h], sum);
        x.m[h] = top;
    }
    if (!__any_sync(~0u, factor[0] != 1 || factor[1] != 1)) return;
#pragma unroll
    for (uint32_t n8 = 0; n8 < OUT; n8++)
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) x.o[n8][e] = __fmul_rn(x.o[n8][e], factor[e / 2]);
}

__device__ void add_values(const uint16_t (*row)[PITCH], uint32_t quarter, const uint32_t (&hi)[2][4],
                           const uint32_t (&lo)[2][4], state &x)
{
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t k = 0; k < 2; k++) {
        const uint16_t *v = &row[16 * k + lane % 16][quarter * QUARTER + lane / 16 * 8];
#pragma unroll
        for (uint32_t n = 0; n < OUT; n += 2) {
            uint32_t b[4];
            nb_ldmatrix4_trans(b, v + 8 * n);
            nb_mma_bf16(x.o[n], hi[k], b[0], b[1]);
            nb_mma_bf16(x.o[n], lo[k], b[0], b[1]);
            nb_mma_bf16(x.o[n + 1], hi[k], b[2], b[3]);
            nb_mma_bf16(x.o[n + 1], lo[k], b[2], b[3]);
        }
    }
}

__device__ void put_state(const nb_cuda_csa_attend_args &a, uint32_t i, uint32_t head0, uint32_t quarter, const state &x)
{
    const uint32_t lane = threadIdx.x % 32, t = lane % 4;
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t head = head0 + lane / 4 + 8 * h;
        if (head >= a.n_head) continue;
        const size_t part = ((size_t)i * a.n_unit + blockIdx.x) * a.n_head + head;
        float *o = a.part_o + part * DIM + quarter * QUARTER + 2 * t;
#pragma unroll
        for (uint32_t n = 0; n < OUT; n++)
            *reinterpret_cast<float2 *>(o + 8 * n) = make_float2(x.o[n][2 * h], x.o[n][2 * h + 1]);
        if (quarter || t) continue;
        a.part_m[part] = x.m[h] == -INFINITY ? NAN : x.m[h];
        a.part_l[part] = x.l[h];
    }
}

/* Grid: (units, queries, blocks of 32 heads). */
__global__ void __launch_bounds__(THREADS, 1) attend(NB_PARAM nb_cuda_csa_attend_args a)
{
    NB_SHARED(shared_mem, z);
    nb_grid_next();
    nb_grid_wait();
    const uint32_t i = blockIdx.y, warp = threadIdx.x / 32, group = warp / 4, quarter = warp % 4;
    const uint32_t head0 = blockIdx.z * HEADS + 16 * group;
    const nb_csa_query x = nb_csa_query_of(a, i);
    if (x.pos == UINT32_MAX) return;
    const nb_csa_unit u = nb_csa_unit_of(a, x, blockIdx.x);
    if (u.n == 0) return;
    queries q;
    state y = { { -INFINITY, -INFINITY }, { 0, 0 }, {} };
    static_assert(NB_CUDA_CSA_LONG <= THREADS);
    load_queries(a, i, head0, quarter, q);
    nb_csa_place mine = { nullptr, nullptr, 0 };
    if (threadIdx.x < u.n) z->place[threadIdx.x] = mine = nb_csa_place_of(a, x, i, u, threadIdx.x);
    const uint32_t n_page = (uint32_t)__syncthreads_count(mine.page != nullptr); /* the others are the last */
    const bool aligned = __syncthreads_and(((uintptr_t)mine.f & 15) == 0);
    load_tile(a, z->place, u.n, n_page, aligned, z->row[0]);
    __syncthreads();
    for (uint32_t k0 = 0, b = 0; k0 < u.n; k0 += TILE, b ^= 1) {
        uint32_t hi[2][4], lo[2][4];
        put_scores(q, z->row[b], quarter, z->score[quarter] + 16 * group);
        const uint32_t next = k0 + TILE;
        if (next < u.n)
            load_tile(a, z->place + next, u.n - next, n_page > next ? n_page - next : 0, aligned, z->row[b ^ 1]);
        __syncthreads();
        weigh(z, group, u.n - k0, a.scale * LOG2E, y, hi, lo);
        add_values(z->row[b], quarter, hi, lo, y);
        __syncthreads();
    }
    put_state(a, i, head0, quarter, y);
}

bool exact(const nb_record_seg &s)
{
    return s.fmt != NB_SEG_F32 && s.fmt != NB_SEG_INT4_CH && s.fmt != NB_SEG_INT4_TOK && s.fixed_scale == 0 &&
           s.dim % 8 == 0;
}
} // namespace

bool nb_cuda_csa_mma_can(const nb_record *r, size_t ratio, size_t dim, size_t n_head)
{
    (void)n_head;
    return dim == DIM && r->type != NB_KV_F32 && (!ratio || (exact(r->seg[0]) && exact(r->seg[1])));
}

void nb_cuda_csa_mma(nb_cuda *g, const nb_cuda_csa_attend_args *a)
{
    if (a->n_row == 0) return;
    NB_SHARED_LIMIT(g, attend, sizeof(shared_mem));
    NB_LAUNCH_EARLY(g, attend, dim3((unsigned)a->n_unit, (unsigned)a->n_row, (unsigned)((a->n_head + HEADS - 1) / HEADS)),
                    THREADS, sizeof(shared_mem), *a);
    nb_cuda_csa_combine(g, a);
}
