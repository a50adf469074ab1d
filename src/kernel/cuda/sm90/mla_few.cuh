/* mla_few.cuh - how mla_few.cu works.
 *
 * The scores of 64 tokens are S^T = C Q^T and the values' sums O^T = C^T P^T: tokens, then dimensions,
 * fill the 64 rows of wgmma, the rows (query, head) its 16 or 32 columns.  A page's codes become the A operand of S^T
 * in registers, exactly; the same registers, stored once, are the A operand of O^T in shared memory.
 *
 * A block has a warpgroup that fetches (one thread: items in the order in which blocks become free, their
 * pages into slots by tensor copies) and two that compute, each every second page of a unit
 * (FP8 with 32 columns: one).  Both run one code: two copies, with constants for addresses, cost more in fetching
 * instructions than they save.  A group's page p is in registers when it begins: they were loaded while
 * the weights of p - 2 were worked out (EARLY).  While the values' products of the page before end, its rope key
 * and first 32 dimensions are decoded; products of the rope key would wait, and hold that up.
 *
 * The largest score of a row moves only by more than LAZY (a power of two is what weights grow by); a unit
 * begins anew, so that its state depends on its pages alone.  At its end the groups' sums meet in shared
 * memory, and are joined to those of the units before in its super, which stay in registers.
 *
 * Where units are fewer than half of the multiprocessors, blocks come in clusters of two (PAIR): the first does a
 * unit's even pages, the second the odd ones, each in one group that has the multiprocessor to itself, and the
 * groups' sums meet through both shared memories.  The order of sums is the same. */
#ifndef NB_KERNEL_CUDA_SM90_MLA_FEW_CUH
#define NB_KERNEL_CUDA_SM90_MLA_FEW_CUH
#include "kernel/cuda/sm90/mla_few_unit.cuh"

namespace few
{

/* Whether two blocks share an item: one of a single unit, in one pass.  Another is the first block's. */
template <bool PAIR> __device__ inline bool shared_item(const nb_cuda_item &it, uint32_t per)
{
    return PAIR && it.n_unit == 1 && it.n_q <= per;
}

/* A thread that fetches: items in the order in which blocks become free, their
 * pages into slots. */
template <int FMT, int N, int GROUPS, bool PAIR>
__device__ inline void fetch(const params &a, const CUtensorMap *codes, const CUtensorMap *rope,
                             uint32_t base, unsigned char *smem)
{
    using L = layout<FMT, N, GROUPS>;
    const uint32_t bars = base + L::AT_BAR, empty = bars + 16 * L::SLOTS,
                   item_full = empty + 8 * L::SLOTS, item_empty = item_full + 16;
    const uint32_t n_item = *a.n_item, per = N / a.n_head, rank = PAIR ? nb_cluster_rank() : 0;
    uint32_t c = 0, index = PAIR ? blockIdx.x / 2 : blockIdx.x;
    for (uint32_t n = 0;; n++) {
        if (n >= 2) nb_mbar_wait(item_empty + 8 * (n % 2), (n / 2 - 1) & 1);
        *(volatile uint32_t *)(smem + L::AT_ITEM + 4 * (n % 2)) = index;
        nb_mbar_arrive(item_full + 8 * (n % 2));
        if (index >= n_item) break;
        const nb_cuda_item it = a.item[index];
        const bool split = shared_item<PAIR>(it, per);
        if (!split && rank != 0) break;
        const uint32_t from = split ? rank : 0, by = split ? 2 : 1;
        const nb_cuda_chunk chunk = a.chunk[it.chunk];
        const uint32_t *block = a.block + chunk.block0 + nb_cuda_unit_page(UNITS, it.unit0);
        uint32_t b = block[from < it.n_page ? from : 0], following = 0;
        /* Pages before the one token of a chunk were complete before this step: the first ones are asked for
         * while kernels before this one run.  Counters are those of a launch that may not have ended. */
        const auto begin = [&]() {
            if (n == 0) nb_grid_wait();
            following = PAIR ? n_item : gridDim.x + atomicAdd(a.next, 1u);
        };
        bool begun = n > 0 || chunk.n_tok != 1;
        if (begun) begin();
        for (uint32_t q0 = 0; q0 < it.n_q; q0 += per)
            for (uint32_t p = from; p < it.n_page; p += by, c++) {
                const uint32_t s = c % L::SLOTS,
                               bar = bars + 8 * (2 * s + (GROUPS == 2 && !split ? p & 1 : 0));
                const uint32_t dst = base + L::AT_SLOT + s * L::CODES;
                const uint32_t next = block[p + by < it.n_page ? p + by : 0];
                if (!begun && c == L::SLOTS) begun = true, begin();
                if (c >= L::SLOTS) nb_mbar_wait(empty + 8 * s, (c / L::SLOTS - 1) & 1);
                nb_mbar_expect(bar, L::CODES + L::REST);
#pragma unroll
                for (int i = 0; i < (FMT == BF16 ? 8 : L::CODES / 8192); i++)
                    nb_box_copy(dst + i * 8192, codes, i * 128, 0, b, bar);
                if (FMT == BF16)
                    nb_box_copy(dst + 65536, rope, 0, 0, b, bar);
                else
                    nb_bulk_copy(base + L::AT_REST + s * L::REST,
                                 a.page + b * a.block_bytes + L::CODES, L::REST, bar);
                b = next;
            }
        if (!begun) begin();
        index = following;
    }
    nb_grid_wait();
    __threadfence();
    if (atomicAdd(a.done, 1u) == gridDim.x - 1) *a.next = 0, *a.done = 0;
}

template <int FMT, int N, int GROUPS, bool PAIR>
__device__ inline void consume(const params &a, uint32_t base, unsigned char *smem)
{
    using L = layout<FMT, N, GROUPS>;
    const int tid = threadIdx.x;
    const place z = place_of(tid, smem);
    const uint32_t bars = base + L::AT_BAR, empty = bars + 16 * L::SLOTS,
                   item_full = empty + 8 * L::SLOTS, item_empty = item_full + 16;
    const uint32_t n_item = uniform(*a.n_item), per = N / a.n_head,
                   rank = PAIR ? nb_cluster_rank() : 0;
    uint32_t c = 0, phase = 0, packed = UINT32_MAX;
    float qk[N / 4];
    const auto at = [&](uint32_t slot) {
        page_at pg;
        pg.slot = smem + L::AT_SLOT + slot * L::CODES;
        pg.rest = smem + L::AT_REST + slot * L::REST;
        pg.slot_u32 = base + L::AT_SLOT + slot * L::CODES;
        return pg;
    };
    for (uint32_t n = 0;; n++) {
        nb_mbar_wait(item_full + 8 * (n % 2), n / 2 & 1);
        const uint32_t index = uniform(*(volatile uint32_t *)(smem + L::AT_ITEM + 4 * (n % 2)));
        if (index >= n_item) break;
        nb_cuda_item it = a.item[index];
        it.n_q = uniform(it.n_q), it.n_page = uniform(it.n_page), it.row0 = uniform(it.row0);
        const bool split = shared_item<PAIR>(it, per);
        if (!split && rank != 0) break;
        if (split) pair_arrive();
        /* Split: no page for the second group. */
        const uint32_t from = !split         ? z.group
                              : z.group == 0 ? rank
                                             : it.n_page,
                       by = split ? 1 : GROUPS; /* slots */
        for (uint32_t q0 = 0; q0 < it.n_q; q0 += per) {
            const uint32_t n_row = min(per, it.n_q - q0) * a.n_head;
            const bool known = packed == it.row0 && it.n_q <= per; /* Q is there */
            raw<FMT> w;
            uint32_t slot = (c + (split ? 0 : z.group)) % L::SLOTS;
            if (!known) pack_q<FMT, N, GROUPS>(a, it, q0, n_row, smem);
            packed = it.n_q <= per ? it.row0 : UINT32_MAX;
            if (tid < N)
                ((uint32_t *)(smem + L::AT_STATE))[tid] =
                    (uint32_t)tid < n_row
                        ? (a.part_first[it.row0 + q0 + tid / a.n_head] + it.unit0) * a.n_head +
                              tid % a.n_head
                        : UINT32_MAX;
            if (L::EARLY && from < it.n_page) {
                nb_mbar_wait(bars + 8 * (2 * slot + z.group), phase >> slot & 1);
                phase ^= 1u << slot;
                load_raw<FMT, N, GROUPS>(z, at(slot), w);
                free_slot<GROUPS>(z, empty + 8 * slot);
            }
            nb_fence_async();
            nb_bar_sync(7, L::CONSUMERS);
            if (q0 == 0 && tid == 0) nb_mbar_arrive(item_empty + 8 * (n % 2));
#pragma unroll
            for (int j = 0; j < N / 4; j++)
                qk[j] = ((const float *)(smem + L::AT_QK))[j / 2 * 8 + 2 * z.t + j % 2];
            kept<FMT, N, GROUPS> y;
            y.l = 0;
            if constexpr (L::KEEP)
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < N / 2; j++) y.o[i][j] = 0;
            for (uint32_t p0 = 0, k = 0, n_page; p0 < it.n_page; p0 += n_page, k++) {
                n_page = min(nb_cuda_unit_pages(UNITS, it.unit0 + k), it.n_page - p0);
                sums<N> s;
#pragma unroll
                for (int i = 0; i < 8; i++)
#pragma unroll
                    for (int j = 0; j < N / 2; j++) s.o[i][j] = 0;
#pragma unroll
                for (int j = 0; j < N / 4; j++) s.m[j] = -INFINITY, s.l[j] = 0;
                for (uint32_t p = from; p < n_page; p += GROUPS) {
                    const uint32_t then = (slot + by) % L::SLOTS;
                    after_it next;
                    next.at = at(then);
                    next.full = p0 + p + GROUPS < it.n_page ? bars + 8 * (2 * then + z.group) : 0;
                    next.parity = phase >> then & 1;
                    next.empty = empty + 8 * then;
                    if (L::EARLY) {
                        if (next.full) phase ^= 1u << then;
                    } else {
                        nb_mbar_wait(bars + 8 * (2 * slot + z.group), phase >> slot & 1);
                        phase ^= 1u << slot;
                    }
                    one_page<FMT, N, GROUPS>(z, a, at(slot), empty + 8 * slot, w, next, qk, s);
                    slot = then;
                }
                if constexpr (PAIR)
                    if (split) {
                        put_pair<FMT>(smem, a, rank, s);
                        break;
                    }
                put_unit<FMT, N, GROUPS>(smem, a, k, p0 + n_page == it.n_page, s, y);
            }
            c += it.n_page;
        }
    }
}

template <int FMT, int N, int GROUPS, bool PAIR>
__global__ void __launch_bounds__(layout<FMT, N, GROUPS>::THREADS, 1)
    mla_few(const __grid_constant__ params a, const __grid_constant__ CUtensorMap codes,
            const __grid_constant__ CUtensorMap rope)
{
    using L = layout<FMT, N, GROUPS>;
    extern __shared__ unsigned char few_raw[];
    unsigned char *smem = few_raw + (1024 - nb_smem(few_raw) % 1024) % 1024;
    const uint32_t base = nb_smem(smem), bars = base + L::AT_BAR;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 3 * L::SLOTS + 4; i++) nb_mbar_init(bars + 8 * i, 1);
        asm volatile("fence.mbarrier_init.release.cluster;");
        nb_fence_async();
    }
    __syncthreads();
    if (threadIdx.x >= L::CONSUMERS) {
        if (GROUPS == 2) nb_fewer_registers<40>();
        if (threadIdx.x == L::CONSUMERS) fetch<FMT, N, GROUPS, PAIR>(a, &codes, &rope, base, smem);
        return;
    }
    if (GROUPS == 2) nb_more_registers<232>();
    nb_grid_wait();
    nb_grid_next(); /* mla_tail runs beside this */
    consume<FMT, N, GROUPS, PAIR>(a, base, smem);
}

} // namespace few

#endif
