/* mla_few.cuh - the kernel of mla_few.cu: how MLA decode attention for few rows runs on a block.
 *
 * Products, with C the 64 tokens of a page and Q the rows (query, head):
 *   scores  S^T [64 tokens x N rows] = C Q^T
 *   values  O^T [512 dims x N rows] += C^T P^T, in 8 tiles of 64 dims
 * The tokens, and then the dims, fill wgmma's 64 rows; the rows of Q are its N = 16 or 32 columns.  A page's codes
 * are decoded, exactly, into the A operand of S^T in registers.  The same registers, stored once to shared memory,
 * are the A operand of O^T.  A BF16 page needs no decoding: wgmma reads it in shared memory.
 *
 * Roles in a block, one block per SM, persistent:
 *   consumers  two warpgroups; each computes every second page of a unit (FP8 with 32 columns: one warpgroup)
 *   producer   one thread of another warpgroup: takes work items from a counter, copies pages into a ring of 2 or 3
 *              slots with tensor copies (TMA)
 * Both consumers run the same code.  Two copies with constant addresses cost more in instruction fetches than they
 * save.
 *
 * Prefetch (EARLY): a group's page p is in registers when its turn begins; the loads were issued while the weights of
 * page p - 2 were computed.  While the value products of the previous page finish, the group decodes the rope key and
 * the first 32 dims.  The rope key's product is not issued there: it would wait, and hold up that decoding.
 *
 * Softmax: the reference m of a row moves only when a score exceeds it by more than LAZY, so weights grow by at most
 * 2^LAZY.  Each unit starts afresh, so its state depends on its own pages alone.
 *
 * A unit is a fixed range of pages whose attention is one partial state; a super is a fixed group of units combined in
 * order.  At the end of a unit the two groups add their sums through shared memory.  The result is combined with the
 * earlier units of its super, whose sums stay in registers (KEEP).
 *
 * Clusters (PAIR): with one query and at most half as many work items as SMs, blocks form clusters of two.  The first
 * block takes a unit's even pages, the second the odd ones.  Each uses one group, which then has its SM to itself.
 * The groups' sums meet through both shared memories.  The order of the sums is the same. */
#ifndef NB_KERNEL_CUDA_SM90_MLA_FEW_CUH
#define NB_KERNEL_CUDA_SM90_MLA_FEW_CUH
#include "kernel/cuda/sm90/mla_few_unit.cuh"

namespace few
{

/* Whether the two blocks of a cluster share a work item: it has one unit and needs one pass.  Otherwise the
 * cluster's first block handles it alone. */
template <bool PAIR> __device__ inline bool shared_item(const nb_cuda_item &it, uint32_t per)
{
    return PAIR && it.n_unit == 1 && it.n_q <= per;
}

/* The producer, one thread: takes work items from a shared counter as blocks become free, and copies their pages into
 * the slots of the ring. */
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
        /* In a chunk of one token, the pages before that token were complete before this step, or this kernel waits for
         * the one before (args.fresh).  So the first copies are issued while earlier kernels still run.  The counters
         * must wait: the previous launch may still be using them. */
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
        /* A shared item: this block's second group has no pages. */
        const uint32_t from = !split         ? z.group
                              : z.group == 0 ? rank
                                             : it.n_page,
                       by = split ? 1 : GROUPS; /* slots */
        for (uint32_t q0 = 0; q0 < it.n_q; q0 += per) {
            const uint32_t n_row = min(per, it.n_q - q0) * a.n_head;
            const bool known = packed == it.row0 && it.n_q <= per; /* Q is already packed */
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
    nb_grid_next(); /* lets mla_tail start while this kernel runs */
    consume<FMT, N, GROUPS, PAIR>(a, base, smem);
}

} // namespace few

#endif
