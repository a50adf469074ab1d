/* linear_wgmma_codes.cuh - y = W x for prompts on Hopper, tiled weights (linear/tiled.h): kernel variant "wgmma" of linear and
 * experts.  One file per form includes this (linear_wgmma_int4.cu, _byte.cu, _fp4.cu, _int4_k32.cu, _int4_k16.cu, ...).
 *
 * INT4, BYTE: total += scale[row] * (W_32 x_32) for each 32 columns; FP4: total += W x.  x is one BF16 part or two (hi + lo),
 * which alternate for each 16 columns.  At the end a row's total is multiplied by its factor.
 * K forms: a value code * scale + min is made in float and enters in as many BF16 parts as x has.  One: a value is rounded
 * to 2^-9 of itself, as x was.  Two: per 16 columns hi x_hi, hi x_lo, lo x_hi are added to the total.  Left out, and lost by
 * the parts: less than 2^-16 of each product (decision 066).
 *
 * Rings and tiles are those of linear_wgmma_ring.cuh.  A lane reads 16 bytes of a row's codes at once: its operands for 128
 * columns (BYTE: 64), in the order of the tensor cores.  The operands of the next 32 columns are made while these multiply.
 * Scaling 32 columns costs 64 FMA per lane for four wgmma of 64 x 128 x 16; meanwhile the other warpgroup multiplies.
 *
 * H100, two parts, gate and up of 16 experts 1408 x 2048, 1,024 tokens, top 6 (us): INT4 330, BYTE in groups 422, FP4 319;
 * BF16 by linear_wgmma.cu 317, FP8 327.
 * One part, gate, up and down of 64 experts, 8,192 tokens (us): BF16 2342, INT4 2776, BYTE 3165, K32 2526, K16 2680.
 * Slower: the type of K scales chosen for every 16 columns: 2788, 2941; 6 stages of weights: the same.
 * Slower: tokens in two halves, of which one multiplies while the other is scaled: INT4 367, BYTE 446. */
#ifndef NB_KERNEL_CUDA_SM90_LINEAR_WGMMA_CODES_CUH
#define NB_KERNEL_CUDA_SM90_LINEAR_WGMMA_CODES_CUH
#include "kernel/cuda/sm80/linear_codes.cuh"
#include "kernel/cuda/sm90/linear_wgmma_ring.cuh"

namespace
{
using namespace lin;

__device__ inline void cp_async8(uint32_t dst, const void *src)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(dst), "l"(src) : "memory");
}

/* a & b | c: one instruction, where two constants would make it two. */
__device__ inline uint32_t and_or(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t y;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
    return y;
}
/* What a lane has of a slot: of rows g and g + 8 codes, scales and zeros. */
template <nb_wtype T> struct rows {
    const unsigned char *code[2]; /* in shared memory, at the lane's first 16 bytes */
    uint32_t turn;                /* BYTE: exclusive-or of offsets (swizzle) */
    uint2 scale[2], zero[2]; /* zero: F16_MIN has 8 bytes, others 4 */
    nb_stype type;
    bool groups, zeros, f16, e8m0;
};

/* SCHEME: ANY, or one of the two groups of K forms (linear_codes.cuh). */
template <nb_wtype T, codes::scheme SCHEME = codes::ANY> struct tiled {
    static const bool K = SCHEME >= codes::K32;
    static const int ROW_BYTES = codes::block_bytes<T>(), ZERO = K ? 8 : T == NB_W_FP4 ? 0 : 4,
                     PLANE_ROW = 8 + ZERO;
    static const bool ROW_FACTOR = true;
    static const int CHUNKS = ROW_BYTES / 16, STEP = GROUP / CHUNKS;

    /* A thread loads one chunk of 16 bytes of every STEP-th row. */
    template <class S>
    static __device__ inline void load(const plan<S> &s, const nb_lin &j, const part &p,
                                       uint32_t slot, uint32_t b, uint32_t m)
    {
        const uint32_t tid = threadIdx.x, row = tid / CHUNKS, chunk = tid % CHUNKS;
        const uint32_t n_block = (j.n_col + 127) / 128, stride = n_block * ROW_BYTES;
        const uint32_t matrix = S::GLU ? m : 0, r0 = row_of<S>(p.row0, 0, m) + row;
        const size_t first = (size_t)p.batch * j.w_rows;
        const unsigned char *from =
            j.w[matrix] + (first + r0) * stride + (b * ROW_BYTES + chunk * 16);
        const uint32_t at = T == NB_W_BYTE ? chunk ^ (row & 1) << 2 : chunk;
        uint32_t to = nb_smem(s.w) + slot * S::W_BYTES + row * ROW_BYTES + at * 16;
#pragma unroll 1
        for (uint32_t wg = 0; wg < 2; wg++) {
#pragma unroll
            for (uint32_t i = 0; i < 64; i += STEP)
                cp_async16(to + i * ROW_BYTES, from + i * stride,
                           r0 + wg * 64 + i < j.n_out ? 16 : 0);
            from += (size_t)64 * stride;
            to += 64 * ROW_BYTES;
        }
        const uint32_t r = row_of<S>(p.row0, tid / 64, m) + tid % 64;
        const size_t block = (first + (r < j.n_out ? r : j.n_out - 1)) * n_block + b;
        const uint32_t plane = nb_smem(s.planes) + slot * S::PLANE_BYTES;
        if (j.group[matrix]) cp_async8(plane + tid * 8, j.group[matrix] + block * 8);
        const uint32_t zero = plane + W_ROWS * 8 + tid * ZERO;
        if (K && j.stype[matrix] == NB_S_F16_MIN)
            cp_async8(zero, j.zero[matrix] + block * 8);
        else if (ZERO && j.zero[matrix])
            cp_async4(zero, j.zero[matrix] + block * 4);
    }

    /* The operands of columns 32 q ..: two steps of 16. */
    static __device__ inline void operands(uint32_t (&a)[2][4], const rows<T> &r,
                                           const uint4 (&raw)[2], int q)
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t word[4] = { raw[h].x, raw[h].y, raw[h].z, raw[h].w };
            const uint32_t z = r.zeros ? r.zero[h].x >> 8 * q & 0xff : 8;
            uint32_t zero = 0, f[2];
            if (T == NB_W_INT4 || (T == NB_W_BYTE && r.zeros)) zero = codes::zero_pair<T>(z);
            uint32_t pair[2] = {};
            if (T == NB_W_FP4) codes::fp4_scales(pair, r.scale[h], q, r.e8m0);
#pragma unroll
            for (int s = 0; s < 2; s++) {
                if (T == NB_W_INT4) codes::int4_fragment(f, word[q], s, zero);
                if (T == NB_W_BYTE) codes::byte_fragment(f, word[q % 2 * 2 + s], r.zeros, zero);
                if (T == NB_W_FP4) codes::fp4_fragment(f, word[q], s, pair[s]);
                a[s][h] = f[0];
                a[s][2 + h] = f[1];
            }
        }
    }

    /* K: scales (x) and minima (y) of a slot's 128 columns.  One choice of the type for all of them: in values() it would
     * stand between the chains of every 16 columns. */
    static const int SPANS = SCHEME == codes::K16 ? 8 : 4;
    struct factors {
        float2 k[2][SPANS];
    };
    template <nb_stype TYPE> static __device__ inline void factors_of(factors &f, const rows<T> &r)
    {
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int i = 0; i < SPANS; i++)
                f.k[h][i] = codes::k_scale(r.scale[h], r.zero[h], i * 8 / SPANS, TYPE);
    }
    static __device__ inline void factors_of(factors &f, const rows<T> &r)
    {
        constexpr bool K16 = SCHEME == codes::K16;
        if (r.type == (K16 ? NB_S_K16 : NB_S_K32))
            factors_of<K16 ? NB_S_K16 : NB_S_K32>(f, r);
        else
            factors_of<K16 ? NB_S_K16_MIN : NB_S_F16_MIN>(f, r);
    }

    /* The i-th pair of codes of a fragment, minus the form's zero.  BYTE: a byte below 2^23's bits is 2^23 + code. */
    static __device__ inline float2 code_pair(uint32_t word, int s, int i)
    {
        if (T == NB_W_BYTE) {
            const float less = 8388608.0f + 128;
            const uint32_t one = 0x4b000000u;
            return make_float2(
                __uint_as_float(__byte_perm(word, one, i ? 0x7652 : 0x7650)) - less,
                __uint_as_float(__byte_perm(word, one, i ? 0x7653 : 0x7651)) - less);
        }
        const uint32_t zero = codes::zero_pair<T>(codes::k_zero(T, SCHEME == codes::K16));
        const uint32_t q = codes::sub2(
            and_or(word >> (8 * s + 4 * i), 0x000f000fu, 0x43004300u), zero);
        return make_float2(__uint_as_float(q << 16), __uint_as_float(q & 0xffff0000u));
    }

    /* The values of columns 32 q .. in N parts: [step][part]. */
    template <int N>
    static __device__ inline void values(uint32_t (&a)[2][N][4], const factors &f,
                                         const uint4 (&raw)[2], int q)
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t word[4] = { raw[h].x, raw[h].y, raw[h].z, raw[h].w };
#pragma unroll
            for (int s = 0; s < 2; s++) {
                const float2 k = f.k[h][SPANS == 8 ? 2 * q + s : q];
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const float2 c =
                        code_pair(word[T == NB_W_BYTE ? q % 2 * 2 + s : q], s, i);
                    const float v0 = __fmaf_rn(k.x, c.x, k.y), v1 = __fmaf_rn(k.x, c.y, k.y);
                    const uint32_t hi = nb_pack_bf16(v0, v1);
                    a[s][0][2 * i + h] = hi;
                    if (N == 2)
                        a[s][N - 1][2 * i + h] =
                            nb_pack_bf16(v0 - __uint_as_float(hi << 16),
                                         v1 - __uint_as_float(hi & 0xffff0000u));
                }
            }
        }
    }

    static __device__ inline void read(uint4 (&raw)[2], const rows<T> &r, int half)
    {
#pragma unroll
        for (int h = 0; h < 2; h++)
            raw[h] = *reinterpret_cast<const uint4 *>(r.code[h] + (half * 64 ^ r.turn));
    }

    template <class S>
    static __device__ inline rows<T> rows_of(const plan<S> &s, const nb_lin &j, uint32_t slot,
                                             uint32_t m)
    {
        const uint32_t tid = threadIdx.x - GROUP, lane = tid % 32, matrix = S::GLU ? m : 0;
        const uint32_t row = tid / 32 * 16 + lane / 4; /* among the slot's 128 */
        const unsigned char *plane = s.planes + slot * S::PLANE_BYTES;
        rows<T> r;
        r.type = j.stype[matrix];
        r.groups = j.group[matrix] != nullptr;
        r.zeros = T != NB_W_FP4 && j.zero[matrix] != nullptr;
        r.f16 = j.stype[matrix] == NB_S_F16;
        r.e8m0 = j.stype[matrix] == NB_S_E8M0;
        r.turn = T == NB_W_BYTE ? (row & 1) * 64 : 0;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            r.code[h] = s.w + slot * S::W_BYTES + (row + 8 * h) * ROW_BYTES + lane % 4 * 16;
            r.scale[h] = reinterpret_cast<const uint2 *>(plane)[row + 8 * h];
            const unsigned char *zero = plane + W_ROWS * 8 + (row + 8 * h) * ZERO;
            r.zero[h] = make_uint2(0, 0);
            if (K)
                r.zero[h] = *reinterpret_cast<const uint2 *>(zero);
            else if (r.zeros)
                r.zero[h].x = *reinterpret_cast<const uint32_t *>(zero);
        }
        return r;
    }

    template <class S, bool FIRST>
    static __device__ inline void multiply(float (&total)[S::ACC], float (&acc)[S::ACC],
                                           const plan<S> &s, const nb_lin &j, uint32_t slot,
                                           place<S::X_STAGES> x, uint32_t m, bool last)
    {
        const uint32_t lane = threadIdx.x % 32;
        const rows<T> r = rows_of<S>(s, j, slot, m);
        uint32_t a[2][2][4], v[2][2][S::TWO ? 2 : 1][4];
        uint4 raw[2];
        factors f;
        read(raw, r, 0);
        if (K) {
            factors_of(f, r);
            values(v[0], f, raw, 0);
        } else
            operands(a[0], r, raw, 0);
        const uint32_t x0 = x.i;
        place<S::X_STAGES> x1 = x;
        x1.next();
        if (FIRST) {
            nb_mbar_wait(s.x_full(x0), x.phase);
            nb_mbar_wait(s.x_full(x1.i), x1.phase);
            nb_fence_async();
        }
        const uint32_t at[2] = { descriptor_low(nb_smem(s.x) + x0 * S::X_BYTES),
                                 descriptor_low(nb_smem(s.x) + x1.i * S::X_BYTES) };
        if (K)
            in_parts<S>(total, s, r, f, raw, v, at, x0, last);
        else if (T == NB_W_FP4)
            whole<S>(total, s, r, raw, a, at, x0, last);
        else
            groups<S>(total, acc, s, r, raw, a, at, x0, last);
        __syncwarp();
        if (lane == 0) {
            nb_mbar_arrive(s.w_free(slot));
            if (last) nb_mbar_arrive(s.x_free(x1.i));
        }
    }

    /* FP4: 32 columns after the other into the same accumulators. */
    template <class S>
    static __device__ inline void whole(float (&total)[S::ACC], const plan<S> &s, const rows<T> &r,
                                        uint4 (&raw)[2], uint32_t (&a)[2][2][4],
                                        const uint32_t (&at)[2], uint32_t x0, bool last)
    {
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const uint32_t b = at[q / 2] + q % 2 * 4;
            nb_wg_fence();
#pragma unroll
            for (int k = 0; k < 2; k++) {
                wgmma<S::BN>(total, a[q % 2][k], descriptor(b + 2 * k), 1);
                if (S::TWO)
                    wgmma<S::BN>(total, a[q % 2][k], descriptor(b + 2 * k + S::PART_BYTES / 16), 1);
            }
            nb_wg_commit();
            if (q > 0) nb_wg_wait<1>();
            if (q < 3) operands(a[(q + 1) % 2], r, raw, q + 1);
            /* the products of the first 64 columns have finished */
            if (q == 2 && threadIdx.x % 32 == 0 && last) nb_mbar_arrive(s.x_free(x0));
        }
        nb_wg_wait<0>();
        nb_wg_hold(total);
    }

    /* K: hi x, and of two parts also lo x, without lo times lo. */
    template <class S, int N>
    static __device__ inline void in_parts(float (&total)[S::ACC], const plan<S> &s,
                                           const rows<T> &r, const factors &f, uint4 (&raw)[2],
                                           uint32_t (&a)[2][2][N][4], const uint32_t (&at)[2],
                                           uint32_t x0, bool last)
    {
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const uint32_t b = at[q / 2] + q % 2 * 4;
            nb_wg_fence();
#pragma unroll
            for (int k = 0; k < 2; k++) {
                wgmma<S::BN>(total, a[q % 2][k][0], descriptor(b + 2 * k), 1);
                if (N == 1) continue;
                wgmma<S::BN>(total, a[q % 2][k][0], descriptor(b + 2 * k + S::PART_BYTES / 16), 1);
                wgmma<S::BN>(total, a[q % 2][k][N - 1], descriptor(b + 2 * k), 1);
            }
            nb_wg_commit();
            if (q > 0) nb_wg_wait<1>();
            if (T == NB_W_BYTE && q == 1) read(raw, r, 1);
            if (q < 3) values(a[(q + 1) % 2], f, raw, q + 1);
            /* the products of the first 64 columns have finished */
            if (q == 2 && threadIdx.x % 32 == 0 && last) nb_mbar_arrive(s.x_free(x0));
        }
        nb_wg_wait<0>();
        nb_wg_hold(total);
    }

    /* INT4, BYTE: the products of 32 columns, times the rows' scales, are added to the total. */
    template <class S>
    static __device__ inline void groups(float (&total)[S::ACC], float (&acc)[S::ACC],
                                         const plan<S> &s, const rows<T> &r, uint4 (&raw)[2],
                                         uint32_t (&a)[2][2][4], const uint32_t (&at)[2],
                                         uint32_t x0, bool last)
    {
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const uint32_t b = at[q / 2] + q % 2 * 4;
            nb_wg_fence();
#pragma unroll
            for (int k = 0; k < 2; k++) {
                wgmma<S::BN>(acc, a[q % 2][k], descriptor(b + 2 * k), k);
                if (S::TWO)
                    wgmma<S::BN>(acc, a[q % 2][k], descriptor(b + 2 * k + S::PART_BYTES / 16), 1);
            }
            nb_wg_commit();
            if (q < 3) {
                if (T == NB_W_BYTE && q == 1) read(raw, r, 1);
                operands(a[(q + 1) % 2], r, raw, q + 1);
            }
            float scale[2];
#pragma unroll
            for (int h = 0; h < 2; h++)
                scale[h] = r.groups ? codes::group_scale(r.scale[h], q, r.f16) : 1.0f;
            nb_wg_wait<0>();
            nb_wg_hold(acc);
#pragma unroll
            for (int i = 0; i < S::ACC; i++)
                total[i] = __fmaf_rn(scale[i >> 1 & 1], acc[i], total[i]);
            /* the products of the first 64 columns have finished */
            if (q == 2 && threadIdx.x % 32 == 0 && last) nb_mbar_arrive(s.x_free(x0));
        }
    }
};

/* Chooses the tile with the least estimated time; all give the same bits. */
template <class P, bool GLU, bool TWO>
void launch(nb_cuda *g, const nb_lin &j, size_t n_batch, size_t n)
{
    typedef shape<P, GLU, TWO, (GLU ? 2 : 1), 32, 8, (TWO ? 8 : 12)> small;
    typedef shape<P, GLU, TWO, (GLU ? 2 : 1), 64, 6, (TWO ? 6 : 10)> middle;
    typedef shape<P, GLU, TWO, 2, 128, 3, (TWO ? 5 : 9)> large;
    const size_t s = time_of<small>(g, j, n_batch, n, 75, 0);
    const size_t m = time_of<middle>(g, j, n_batch, n, 100, 0);
    const size_t l = time_of<large>(g, j, n_batch, n, GLU ? 150 : 275, 150);
    if (s < m && s < l)
        ring_launch<small>(g, j, n_batch);
    else if (m < l)
        ring_launch<middle>(g, j, n_batch);
    else
        ring_launch<large>(g, j, n_batch);
}

template <class P> void launch(nb_cuda *g, const nb_lin &j, bool glu, size_t n_batch, size_t n)
{
    if (glu && j.x.lo)
        launch<P, true, true>(g, j, n_batch, n);
    else if (glu)
        launch<P, true, false>(g, j, n_batch, n);
    else if (j.x.lo)
        launch<P, false, true>(g, j, n_batch, n);
    else
        launch<P, false, false>(g, j, n_batch, n);
}
} // namespace

#endif
