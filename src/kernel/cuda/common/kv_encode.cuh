/* kv_encode.cuh - encodes rows of values into a KV page, byte for byte as nb_record_encode_page.
 *
 * Block: some consecutive rows of a page (nb_kv_encode_rows); different blocks of a page write different bytes.
 * Lane: 16 values, which are one scale block of nvfp4 and if4, so one thread sums its errors in order, as the
 * specification requires.  As many lanes as a vector needs (2 to 32) work on it; several short vectors share a
 * warp.  The largest magnitudes of a vector, or of 32 or 128 values, come from shuffles.
 * INT4_CH, whose groups run along tokens, is encoded by pairs of channels, a thread each, over 32 rows.  Adjacent
 * threads read adjacent values and write adjacent bytes.
 * Values are read from global memory as floats and rounded to BF16 on the way.  Nothing is staged in shared memory, so
 * no shape is too large.
 *
 * Exactness: magnitudes are scaled by a power of two in one exact product (what underflows is below every threshold).
 * Thresholds are exact products.  Squares and sums of errors are single roundings (__fmul_rn, __fadd_rn: never
 * contracted).  With a fixed scale there is one IEEE division.
 *
 * A search of if4 tries 13 candidates for 16 values, at about 10 instructions per candidate and value.  The nearest
 * grid point comes from a product with the scale's inverse and two additions (nb_kv_nearest).  Slower: seven
 * comparisons, as the host does it, took 24 instructions and 2.5 times as long. */
#ifndef NB_KERNEL_CUDA_COMMON_KV_ENCODE_CUH
#define NB_KERNEL_CUDA_COMMON_KV_ENCODE_CUH
#include "kernel/cuda/common/kv_decode.cuh"

/* Rows of a page: row t is old + t * old_stride for t < n_old, else fresh + (t - n_old) * fresh_stride. */
struct nb_kv_rows {
    const float *old, *fresh;
    size_t old_stride, fresh_stride;
    uint32_t n_old;

    __device__ const float *row(uint32_t t) const
    {
        return t < n_old ? old + t * old_stride : fresh + (t - n_old) * fresh_stride;
    }
};

/* The bytes of a page that belong to no plane. */
struct nb_kv_gaps {
    uint32_t n, off[4 * NB_MAX_SEG + 1], n_bytes[4 * NB_MAX_SEG + 1];
};

/* Records the padding [at, to) of a page, if there is any. */
inline void nb_kv_add_gap(nb_kv_gaps *g, size_t at, size_t to)
{
    if (at >= to) return;
    g->off[g->n] = (uint32_t)at;
    g->n_bytes[g->n++] = (uint32_t)(to - at);
}

/* Finds the padding between planes, in the order of record.c: codes and scales of every segment, outer scales,
 * outliers. */
inline nb_kv_gaps nb_kv_gaps_of(const nb_record &r)
{
    nb_kv_gaps g = {};
    size_t at = 0;
    if (r.type == NB_KV_FP8_DS_MLA) {
        nb_kv_add_gap(&g, r.n_row * r.seg[0].code_stride, r.page_bytes);
        return g;
    }
    for (size_t s = 0; s < r.n_seg; s++) {
        const nb_record_seg &x = r.seg[s];
        nb_kv_add_gap(&g, at, x.code_off);
        at = x.code_off + r.n_row * x.code_stride;
        if (x.scale_stride == 0) continue;
        nb_kv_add_gap(&g, at, x.scale_off);
        at = x.scale_off + (x.fmt == NB_SEG_INT4_CH ? 2 : r.n_row) * x.scale_stride;
    }
    for (size_t s = 0; s < r.n_seg; s++)
        if (r.seg[s].outer_stride) {
            nb_kv_add_gap(&g, at, r.seg[s].outer_off);
            at = r.seg[s].outer_off + r.n_row * r.seg[s].outer_stride;
        }
    for (size_t s = 0; s < r.n_seg; s++)
        if (r.seg[s].side_stride) {
            nb_kv_add_gap(&g, at, r.seg[s].side_off);
            at = r.seg[s].side_off + r.n_row * r.seg[s].side_stride;
        }
    nb_kv_add_gap(&g, at, r.page_bytes);
    return g;
}

/* Where a block encodes to. */
struct nb_kv_dest {
    unsigned char *page;
    unsigned char *plane;            /* the page's residual plane, or NULL */
    unsigned long long *n_saturated; /* counter, or NULL */
};

/* ---- scalars ---- */

__device__ inline uint32_t nb_kv_mag_bits(float x)
{
    return __float_as_uint(x) & 0x7fffffffu;
}

/* Same as nb_e4m3_from_f32, except for NaN. */
__device__ inline uint32_t nb_kv_to_e4m3(float x)
{
    const uint32_t u = __float_as_uint(x), sign = u >> 24 & 0x80, mag = u & 0x7fffffffu;
    if (mag >= 0x43e00000u) return sign | 0x7e; /* 448 */
    if (mag >= 0x3c800000u)                     /* 2^-6 */
        return sign | (mag - (120u << 23) + 0x7ffff + (mag >> 20 & 1)) >> 20;
    /* rounds to a multiple of 2^-9, the last bit of 1.5 * 2^14 */
    return sign | (__float_as_uint(__fadd_rn(__uint_as_float(mag), 24576.0f)) & 0xff);
}

/* Same as nb_e4m3_quotient, for d = 4, 6, 7. */
__device__ inline uint32_t nb_kv_e4m3_quotient(float a, uint32_t d)
{
    const float recip = d == 4 ? 0.25f : d == 6 ? 0x1.555556p-3f : 0x1.24924ap-3f;
    const float df = (float)d;
    uint32_t c = nb_kv_to_e4m3(__fmul_rn(a, recip));
    if (c < 0x7e) {
        const float up = df * (0.5f * (nb_kv_e4m3(c) + nb_kv_e4m3(c + 1)));
        if (a > up || (a == up && c & 1)) c++;
    }
    if (c > 0) {
        const float lo = df * (0.5f * (nb_kv_e4m3(c - 1) + nb_kv_e4m3(c)));
        if (a < lo || (a == lo && c & 1)) c--;
    }
    return c;
}

/* nb_bf16_ceil_log2 of a nonzero magnitude, given as a float's bits. */
__device__ inline int nb_kv_ceil_log2(uint32_t mag, uint32_t t)
{
    uint32_t f = mag >> 16 & 0x7f;
    int k = (int)(mag >> 23) - 127;
    if (k == -127) { /* subnormal: normalise */
        const int shift = __clz((int)f) - 24;
        f <<= shift;
        k = -126 - shift;
    } else {
        f |= 128;
    }
    return k + (f > t);
}

__device__ inline uint32_t nb_kv_scale_byte(int e)
{
    const int b = 127 + e;
    return (uint32_t)(b < 2 ? 2 : b > 253 ? 253 : b);
}

/* The outer byte of a vector with this largest magnitude, given as a float's bits (0 gives 0). */
__device__ inline uint32_t nb_kv_outer_byte(const nb_record_seg &g, uint32_t amax, uint32_t t,
                                            int shift)
{
    if (amax == 0) return 0;
    return g.fixed_scale != 0 ? 127 : nb_kv_scale_byte(nb_kv_ceil_log2(amax, t) - shift);
}

/* Normalises magnitudes, as nb_seg_mag. */
struct nb_kv_norm {
    float factor, fixed, top;

    __device__ nb_kv_norm(const nb_record_seg &g, uint32_t outer)
        : factor(nb_kv_pow2(254 - outer)), fixed(g.fixed_scale),
          top(g.fmt == NB_SEG_E4M3 ? 448.0f : 2688.0f)
    {
    }
    __device__ float mag(float x) const
    {
        const float a = fabsf(x);
        if (fixed == 0) return __fmul_rn(a, factor);
        const float q = a / fixed;
        return q < top ? q : top;
    }
    __device__ bool saturates(float x) const
    {
        return fixed != 0 && fabsf(x) / fixed > top;
    }
};

/* ---- a lane's 16 values ---- */

/* Stores n_bytes <= 4 N bytes of N words; in one store if they are complete and aligned. */
template <int N>
__device__ inline void nb_kv_store(unsigned char *p, const uint32_t (&w)[N], uint32_t n_bytes)
{
    constexpr uint32_t ALIGN = N < 4 ? 4 * N : 16;
    if (n_bytes == 4 * N && ((uintptr_t)p & (ALIGN - 1)) == 0) {
        if constexpr (N == 2) {
            *reinterpret_cast<uint2 *>(p) = make_uint2(w[0], w[1]);
        } else {
#pragma unroll
            for (int k = 0; k < N; k += 4)
                *reinterpret_cast<uint4 *>(p + 4 * k) =
                    make_uint4(w[k], w[k + 1], w[k + 2], w[k + 3]);
        }
        return;
    }
#pragma unroll
    for (uint32_t b = 0; b < 4 * N; b++)
        if (b < n_bytes) p[b] = (unsigned char)(w[b / 4] >> (8 * (b & 3)) & 0xff);
}

/* A lane's part of a vector: values i0..i0 + 15, of which n exist.  The others are +0, and so are outlier channels,
 * whose bits are set in `out`. */
struct nb_kv_part {
    float x[16];
    uint32_t i0, n, out;
};

/* place: index of the vector's first value among the token's values. */
__device__ inline void nb_kv_read(const nb_record_seg &g, const float *vec, uint32_t place,
                                  uint32_t i0, bool active, nb_kv_part &v)
{
    const uint32_t dim = (uint32_t)g.dim, left = active && i0 < dim ? dim - i0 : 0;
    const float *p = vec + i0;
    v.i0 = i0;
    v.n = left < 16 ? left : 16;
    v.out = 0;
    if (v.n == 16 && ((uintptr_t)p & 15) == 0) {
#pragma unroll
        for (int k = 0; k < 16; k += 4) {
            const float4 q = *reinterpret_cast<const float4 *>(p + k);
            v.x[k] = q.x, v.x[k + 1] = q.y, v.x[k + 2] = q.z, v.x[k + 3] = q.w;
        }
    } else {
#pragma unroll
        for (uint32_t k = 0; k < 16; k++) v.x[k] = k < v.n ? p[k] : 0;
    }
    if (g.fmt == NB_SEG_F32) return;
#pragma unroll
    for (int k = 0; k < 16; k++) v.x[k] = nb_bf16_float(nb_bf16_bits(v.x[k]));
    if (g.n_outlier == 0) return;
    for (uint32_t k = 0; k < (uint32_t)g.n_outlier; k++) {
        const uint32_t at = g.outlier[k] - (place + i0); /* wraps if the outlier is before i0 */
        if (at < 16) v.out |= 1u << at;
    }
#pragma unroll
    for (int k = 0; k < 16; k++)
        if (v.out >> k & 1) v.x[k] = 0;
}

__device__ inline uint32_t nb_kv_amax(const nb_kv_part &v)
{
    uint32_t a = 0;
#pragma unroll
    for (int k = 0; k < 16; k++) {
        const uint32_t m = nb_kv_mag_bits(v.x[k]);
        a = m > a ? m : a;
    }
    return a;
}

/* The maximum over n adjacent lanes, n a power of two.  Called by all lanes. */
__device__ inline uint32_t nb_kv_lane_max(uint32_t a, uint32_t n)
{
    for (uint32_t d = 1; d < n; d *= 2) {
        const uint32_t b = __shfl_xor_sync(0xffffffffu, a, (int)d);
        a = b > a ? b : a;
    }
    return a;
}

/* ---- 4-bit codes with block scales ---- */

/* Midpoint j of a grid, j = 0..6. */
__device__ inline float nb_kv_bound(bool steps, int j)
{
    const float e2m1 = j < 4 ? 0.5f * (float)j + 0.25f : j == 4 ? 2.5f : j == 5 ? 3.5f : 5.0f;
    return steps ? (float)j + 0.5f : e2m1;
}
__device__ inline float nb_kv_step(bool steps, int j)
{
    return steps ? 1.0f : j < 4 ? 0.5f : j < 6 ? 1.0f : 2.0f;
}

/* The grid point nearest to ax / s, in units of s, for s > 0 with at most 4 significant bits; r: nb_kv_inverse of s.
 * ax has 8 bits (any precision if the quotient is exact), so ax / s is a midpoint or far from one.  The quotient errs
 * upwards by some 2^-23; cutting it to 20 bits makes midpoints exact.  Adding a number whose last bit is the grid's
 * step then rounds to the grid, ties to even, as the codes require. */
template <bool STEPS> __device__ inline float nb_kv_nearest(float ax, float r)
{
    const uint32_t u = __float_as_uint(__fmul_rn(ax, r)) & 0xfffffff0u;
    const float y = fminf(__uint_as_float(u), STEPS ? 7.0f : 6.0f);
    const uint32_t binade = __float_as_uint(fmaxf(y, 1.0f)) & 0x7f800000u;
    const float big = STEPS ? 12582912.0f : __uint_as_float(binade + (22u << 23) + 0x400000u);
    return __fadd_rn(__fadd_rn(y, big), -big);
}
__device__ inline float nb_kv_inverse(float s)
{
    return s == 0 ? 0 : __uint_as_float(__float_as_uint(__fdiv_rn(1.0f, s)) + 2);
}

/* The same by comparison with exact products, for ax of any precision. */
template <bool STEPS> __device__ inline float nb_kv_nearest_exact(float ax, float s)
{
    float q = 0;
#pragma unroll
    for (int j = 0; j < 7; j++) {
        const float b = __fmul_rn(s, nb_kv_bound(STEPS, j));
        const bool over = j & 1 ? ax >= b : ax > b;
        q = __fadd_rn(q, over && s > 0 ? nb_kv_step(STEPS, j) : 0.0f);
    }
    return q;
}

/* Sum of squared errors at scale s, in order of the elements; fixed: the vector has a fixed scale. */
template <bool STEPS>
__device__ inline float nb_kv_block_error(const float (&ax)[16], bool fixed, float s)
{
    float e = 0;
    if (fixed) {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const float d = __fmaf_rn(-s, nb_kv_nearest_exact<STEPS>(ax[i], s), ax[i]);
            e = __fadd_rn(e, __fmul_rn(d, d));
        }
        return e;
    }
    const float r = nb_kv_inverse(s);
#pragma unroll
    for (int i = 0; i < 16; i++) { /* s times a grid point is exact, so one rounding */
        const float d = __fmaf_rn(-s, nb_kv_nearest<STEPS>(ax[i], r), ax[i]);
        e = __fadd_rn(e, __fmul_rn(d, d));
    }
    return e;
}

/* Tries n scales on one grid: around code c (search), or c and then c4.  Only a smaller error replaces best. */
template <bool STEPS>
__device__ inline void nb_kv_try(const float (&ax)[16], bool fixed, bool search, int n, int c,
                                 int c4, float &best, uint32_t &sf)
{
#pragma unroll 1
    for (int i = 0; i < n; i++) { /* offsets 0, -1, +1, -2, +2, -3, +3, +4, +5, +6 */
        const int by = i >= 7 ? i - 3 : i & 1 ? -(i + 1) / 2 : i / 2;
        const int k = search ? c + by : i == 0 ? c : c4;
        if (search && (k < 1 || k > 0x7e)) continue;
        const float e = nb_kv_block_error<STEPS>(ax, fixed, nb_kv_e4m3((uint32_t)k));
        if (best < 0 || e < best) {
            best = e;
            sf = (uint32_t)k | (STEPS ? 0x80u : 0u);
        }
    }
}

/* Chooses the scale byte of a block with largest magnitude a > 0. */
__device__ inline uint32_t nb_kv_choose(const float (&ax)[16], float a, bool fixed, nb_kv_mode mode,
                                        bool with_steps)
{
    const bool search = mode == NB_KV_SEARCH;
    const int n_fp = search ? 10 : mode == NB_KV_4OVER6 ? 2 : 1;
    const int c4 = mode == NB_KV_4OVER6 ? (int)nb_kv_e4m3_quotient(a, 4) : 0;
    float best = -1;
    uint32_t sf = 0;
    nb_kv_try<false>(ax, fixed, search, n_fp, (int)nb_kv_e4m3_quotient(a, 6), c4, best, sf);
    if (with_steps)
        nb_kv_try<true>(ax, fixed, search, search ? 3 : 1, (int)nb_kv_e4m3_quotient(a, 7), 0, best,
                        sf);
    return sf;
}

/* The nibbles of a block's values, for scale s > 0. */
template <bool STEPS>
__device__ inline void nb_kv_nibbles_of(const nb_kv_part &v, const float (&ax)[16], bool fixed,
                                        float s, uint32_t (&w)[2])
{
    const float r = nb_kv_inverse(s);
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const float q =
            fixed ? nb_kv_nearest_exact<STEPS>(ax[i], s) : nb_kv_nearest<STEPS>(ax[i], r);
        const uint32_t e2m1 = q >= 1 ? (__float_as_uint(q) >> 22) - 252 : q > 0;
        const uint32_t k = STEPS ? (uint32_t)(int)q : e2m1;
        if (k != 0) w[i / 8] |= (k | (__float_as_uint(v.x[i]) >> 28 & 8)) << (4 * (i & 7));
    }
}

/* The residual parts of a block with scale s > 0 and codes w (num/residual.h). */
__device__ inline void nb_kv_residual_of(const nb_kv_part &v, const float (&ax)[16], bool steps,
                                         float top, float s, const uint32_t (&w)[2],
                                         uint32_t (&r)[2])
{
#pragma unroll 1
    for (int h = 0; h < 2; h++) {
        uint32_t word = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int k = (int)(w[h] >> (4 * i) & 7);
            const float x = h ? v.x[8 + i] : v.x[i];
            float y = h ? ax[8 + i] : ax[i];
            const float lo = nb_kv_bound(steps, k - 1);
            const float hi = k == 7 ? top : nb_kv_bound(steps, k);
            const float step = (hi - lo) * 0.0625f;
            if (nb_kv_mag_bits(x) != 0 && y < 0x1p-126f) y = 0x1p-126f;
            if (k == 0 && __float_as_uint(x) >> 31) y = -y;
            uint32_t q = 0;
#pragma unroll
            for (uint32_t half = 8; half > 0; half /= 2) {
                const float cut = __fadd_rn(lo, __fmul_rn((float)(q + half), step));
                if (y >= __fmul_rn(s, cut)) q += half;
            }
            const uint32_t at = (uint32_t)(8 * h + i);
            if (at < v.n && !(v.out >> at & 1)) word |= q << (4 * i);
        }
        r[h] = word;
    }
}

/* A vector's position in a page. */
struct nb_kv_spot {
    uint32_t t, vec;
    bool active, first; /* first: this lane writes what exists once per vector */
};

__device__ inline unsigned char *nb_kv_code_at(const nb_record_seg &g, unsigned char *page,
                                               const nb_kv_spot &p)
{
    return page + g.code_off + p.t * g.code_stride +
           (size_t)p.vec * nb_kv_vec_bytes(g.fmt, (uint32_t)g.dim);
}

__device__ inline void nb_kv_put_nv(const nb_record &r, uint32_t seg, const nb_kv_dest &to,
                                    const nb_kv_spot &p, uint32_t outer, const nb_kv_part &v)
{
    const nb_record_seg &g = r.seg[seg];
    const bool if4 = g.fmt == NB_SEG_IF4;
    const uint32_t a = nb_kv_amax(v);
    uint32_t w[2] = { 0, 0 }, res[2] = { 0, 0 }, sf = 0;
    if (v.n == 0) return;
    if (a != 0) {
        const nb_kv_norm norm(g, outer);
        float ax[16];
#pragma unroll
        for (int i = 0; i < 16; i++) ax[i] = norm.mag(v.x[i]);
        const bool fixed = g.fixed_scale != 0;
        sf = nb_kv_choose(ax, norm.mag(__uint_as_float(a)), fixed, r.mode, if4);
        if (sf & 0x80)
            nb_kv_nibbles_of<true>(v, ax, fixed, nb_kv_e4m3(sf & 0x7f), w);
        else if (sf)
            nb_kv_nibbles_of<false>(v, ax, fixed, nb_kv_e4m3(sf), w);
        if (to.plane && seg == 0 && sf & 0x7f) {
            const float top = sf & 0x80 ? 8.0f : if4 || r.mode == NB_KV_SEARCH ? 7.0f : 6.5f;
            nb_kv_residual_of(v, ax, sf & 0x80, top, nb_kv_e4m3(sf & 0x7f), w, res);
        }
    }
    const uint32_t n_bytes = (v.n + 1) / 2;
    to.page[g.scale_off + p.t * g.scale_stride + p.vec * g.n_group + v.i0 / 16] = (unsigned char)sf;
    nb_kv_store<2>(nb_kv_code_at(g, to.page, p) + v.i0 / 2, w, n_bytes);
    if (to.plane && seg == 0) {
        const size_t vec_bytes = nb_kv_vec_bytes(g.fmt, (uint32_t)g.dim);
        nb_kv_store<2>(to.plane + (p.t * g.n_vec + p.vec) * vec_bytes + v.i0 / 2, res, n_bytes);
    }
}

__device__ inline void nb_kv_put_mx(const nb_record_seg &g, unsigned char *page,
                                    const nb_kv_spot &p, const nb_kv_part &v)
{
    const uint32_t a = nb_kv_lane_max(nb_kv_amax(v), 2);
    uint32_t w[2] = { 0, 0 }, sf = 0;
    if (v.n == 0) return;
    if (a != 0) {
        float ax[16];
        sf = nb_kv_scale_byte(nb_kv_ceil_log2(a, 192) - 2);
        const float f = nb_kv_pow2(254 - sf);
#pragma unroll
        for (int i = 0; i < 16; i++) ax[i] = __fmul_rn(fabsf(v.x[i]), f);
        nb_kv_nibbles_of<false>(v, ax, false, 1, w);
    }
    nb_kv_store<2>(nb_kv_code_at(g, page, p) + v.i0 / 2, w, (v.n + 1) / 2);
    if (v.i0 % 32 == 0)
        page[g.scale_off + p.t * g.scale_stride + p.vec * g.n_group + v.i0 / 32] =
            (unsigned char)sf;
}

/* ---- asymmetric 4-bit integers ---- */

/* Same as nb_fp16_from_f32_sat. */
__device__ inline uint32_t nb_kv_to_f16(float x)
{
    const uint32_t h = nb_pack_f16(x, 0) & 0xffff;
    return (h & 0x7fff) == 0x7c00 ? (h & 0x8000) | 0x7bff : h;
}
__device__ inline float nb_kv_f16(uint32_t h)
{
    return nb_kv_half2(h).x;
}

/* Same as nb_int4_scale. */
__device__ inline uint32_t nb_kv_int4_scale(float range)
{
    if (!(range > 0)) return 0;
    uint32_t c = nb_kv_to_f16(__fmul_rn(range, 0x1.111112p-4f));
    if (c < 0x7bff) {
        const float up = 7.5f * (nb_kv_f16(c) + nb_kv_f16(c + 1));
        if (range > up || (range == up && c & 1)) c++;
    }
    if (c > 0) {
        const float lo = 7.5f * (nb_kv_f16(c - 1) + nb_kv_f16(c));
        if (range < lo || (range == lo && c & 1)) c--;
    }
    return c;
}

/* FP16 scale and minimum for values in lo..hi. */
struct nb_kv_int4 {
    uint32_t s, m;
    float sf, mf;

    __device__ nb_kv_int4(float lo, float hi)
    {
        m = nb_kv_to_f16(lo);
        if (m == 0x8000) m = 0;
        mf = nb_kv_f16(m);
        s = nb_kv_int4_scale(__fadd_rn(hi, -mf));
        sf = nb_kv_f16(s);
    }
    __device__ uint32_t code(float x) const
    {
        const float d = __fadd_rn(x, -mf);
        uint32_t q = 0;
#pragma unroll
        for (int j = 0; j < 15; j++) {
            const float b = __fmul_rn(sf, (float)j + 0.5f);
            q += j & 1 ? d >= b : d > b;
        }
        return sf == 0 ? 0 : q;
    }
};

__device__ inline void nb_kv_put16(unsigned char *p, uint32_t x)
{
    *reinterpret_cast<uint16_t *>(p) = (uint16_t)x;
}

__device__ inline void nb_kv_put_int4_tok(const nb_record_seg &g, unsigned char *page,
                                          const nb_kv_spot &p, const nb_kv_part &v)
{
    float lo = v.n ? v.x[0] : __uint_as_float(0x7f800000u), hi = v.n ? v.x[0] : -lo;
#pragma unroll
    for (uint32_t i = 1; i < 16; i++)
        if (i < v.n) {
            lo = v.x[i] < lo ? v.x[i] : lo;
            hi = v.x[i] > hi ? v.x[i] : hi;
        }
    const float lo2 = __shfl_xor_sync(0xffffffffu, lo, 1);
    const float hi2 = __shfl_xor_sync(0xffffffffu, hi, 1);
    if (v.n == 0) return;
    const nb_kv_int4 c(lo2 < lo ? lo2 : lo, hi2 > hi ? hi2 : hi);
    uint32_t w[2] = { 0, 0 };
#pragma unroll
    for (uint32_t i = 0; i < 16; i++)
        if (i < v.n) w[i / 8] |= c.code(v.x[i]) << (4 * (i & 7));
    nb_kv_store<2>(nb_kv_code_at(g, page, p) + v.i0 / 2, w, (v.n + 1) / 2);
    if (v.i0 % 32 != 0) return;
    unsigned char *s =
        page + g.scale_off + p.t * g.scale_stride + 2 * (p.vec * g.n_group + v.i0 / 32);
    nb_kv_put16(s, c.s);
    nb_kv_put16(s + g.scale_stride / 2, c.m);
}

/* Encodes rows t0..t0 + 31 of channels 2 j and 2 j + 1 of a vector. */
__device__ inline void nb_kv_put_int4_pair(const nb_record_seg &g, unsigned char *page,
                                           const nb_kv_rows &x, uint32_t off, uint32_t t0,
                                           uint32_t vec, uint32_t j)
{
    const uint32_t dim = (uint32_t)g.dim, c0 = vec * dim + 2 * j;
    unsigned char *code = page + g.code_off + t0 * g.code_stride + vec * ((dim + 1) / 2) + j;
    unsigned char *scale = page + g.scale_off + t0 / 32 * g.scale_stride + 2 * (size_t)c0;
    float lo[2], hi[2];
    lo[0] = lo[1] = __uint_as_float(0x7f800000u); /* infinity */
    hi[0] = hi[1] = -lo[0];
    bool skip[2] = { false, 2 * j + 1 >= dim };
    const bool both = !skip[1];
    for (uint32_t k = 0; k < (uint32_t)g.n_outlier; k++) {
        skip[0] |= g.outlier[k] == c0;
        skip[1] |= g.outlier[k] == c0 + 1;
    }
#pragma unroll 8
    for (uint32_t t = 0; t < 32; t++) {
        const float *p = x.row(t0 + t) + off + c0;
        const float a = nb_bf16_float(nb_bf16_bits(p[0]));
        const float b = both ? nb_bf16_float(nb_bf16_bits(p[1])) : 0;
        lo[0] = a < lo[0] ? a : lo[0];
        hi[0] = a > hi[0] ? a : hi[0];
        lo[1] = b < lo[1] ? b : lo[1];
        hi[1] = b > hi[1] ? b : hi[1];
    }
    const nb_kv_int4 a(lo[0], hi[0]), b(lo[1], hi[1]);
    nb_kv_put16(scale, skip[0] ? 0 : a.s);
    nb_kv_put16(scale + g.scale_stride / 2, skip[0] ? 0 : a.m);
    if (both) {
        nb_kv_put16(scale + 2, skip[1] ? 0 : b.s);
        nb_kv_put16(scale + g.scale_stride / 2 + 2, skip[1] ? 0 : b.m);
    }
#pragma unroll 4
    for (uint32_t t = 0; t < 32; t++) {
        const float *p = x.row(t0 + t) + off + c0;
        uint32_t q = skip[0] ? 0 : a.code(nb_bf16_float(nb_bf16_bits(p[0])));
        if (!skip[1]) q |= b.code(nb_bf16_float(nb_bf16_bits(p[1]))) << 4;
        code[t * g.code_stride] = (unsigned char)q;
    }
}

__device__ inline void nb_kv_encode_channels(const nb_record_seg &g, unsigned char *page,
                                             const nb_kv_rows &x, uint32_t off, uint32_t r0,
                                             uint32_t n_row)
{
    const uint32_t n_pair = ((uint32_t)g.dim + 1) / 2, n = n_pair * (uint32_t)g.n_vec;
    for (uint32_t t0 = r0; t0 < r0 + n_row; t0 += 32)
        for (uint32_t k = threadIdx.x; k < n; k += blockDim.x)
            nb_kv_put_int4_pair(g, page, x, off, t0, k / n_pair, k % n_pair);
}

/* ---- bytes and wider ---- */

__device__ inline void nb_kv_put_e4m3(const nb_record_seg &g, unsigned char *page,
                                      const nb_kv_spot &p, uint32_t outer, const nb_kv_part &v)
{
    const nb_kv_norm norm(g, outer);
    uint32_t w[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const uint32_t sign = __float_as_uint(v.x[i]) >> 24 & 0x80;
        if (outer) w[i / 4] |= (sign | nb_kv_to_e4m3(norm.mag(v.x[i]))) << (8 * (i & 3));
    }
    if (v.n) nb_kv_store<4>(nb_kv_code_at(g, page, p) + v.i0, w, v.n);
}

__device__ inline void nb_kv_put_int8(const nb_record_seg &g, unsigned char *page,
                                      const nb_kv_spot &p, uint32_t outer, const nb_kv_part &v)
{
    const nb_kv_norm norm(g, outer);
    uint32_t w[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (int i = 0; i < 16; i++) { /* at most 127, so adding 1.5 * 2^23 rounds to integers */
        const float m = norm.mag(v.x[i]);
        const uint32_t q = __float_as_uint(__fadd_rn(m, 12582912.0f)) & 0xff;
        const uint32_t c = __float_as_uint(v.x[i]) >> 31 ? 0u - q : q;
        if (outer) w[i / 4] |= (c & 0xff) << (8 * (i & 3));
    }
    if (v.n) nb_kv_store<4>(nb_kv_code_at(g, page, p) + v.i0, w, v.n);
}

__device__ inline void nb_kv_put_bf16(const nb_record_seg &g, unsigned char *page,
                                      const nb_kv_spot &p, const nb_kv_part &v)
{
    uint32_t w[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        w[i] = __float_as_uint(v.x[2 * i]) >> 16 | (__float_as_uint(v.x[2 * i + 1]) & 0xffff0000u);
    if (v.n) nb_kv_store<8>(nb_kv_code_at(g, page, p) + 2 * v.i0, w, 2 * v.n);
}

__device__ inline void nb_kv_put_f32(const nb_record_seg &g, unsigned char *page,
                                     const nb_kv_spot &p, const nb_kv_part &v)
{
    uint32_t w[16];
#pragma unroll
    for (int i = 0; i < 16; i++) w[i] = __float_as_uint(v.x[i]);
    if (v.n) nb_kv_store<16>(nb_kv_code_at(g, page, p) + 4 * v.i0, w, 4 * v.n);
}

__device__ inline void nb_kv_put_ds(const nb_record_seg &g, unsigned char *page,
                                    const nb_kv_spot &p, const nb_kv_part &v)
{
    const uint32_t a = nb_kv_lane_max(nb_kv_amax(v), 8);
    int e = a == 0 ? -13 : nb_kv_ceil_log2(a, 224) - 8;
    e = e < -13 ? -13 : e;
    uint32_t w[4] = { 0, 0, 0, 0 };
    const float f = nb_kv_pow2((uint32_t)(127 - e));
#pragma unroll
    for (int i = 0; i < 16; i++) w[i / 4] |= nb_kv_to_e4m3(__fmul_rn(v.x[i], f)) << (8 * (i & 3));
    if (v.n == 0) return;
    nb_kv_store<4>(nb_kv_code_at(g, page, p) + v.i0, w, v.n);
    if (v.i0 % 128 != 0) return;
    unsigned char *s = page + g.scale_off + p.t * g.scale_stride + 4 * (v.i0 / 128);
    nb_kv_put16(s, 0);
    nb_kv_put16(s + 2, (uint32_t)(127 + e) << 7);
}

/* ---- a page's rows ---- */

__device__ inline bool nb_kv_has_outer(nb_seg_fmt f)
{
    return f == NB_SEG_E4M3 || f == NB_SEG_INT8 || f == NB_SEG_NVFP4 || f == NB_SEG_IF4;
}

__device__ inline void nb_kv_put_part(const nb_record &r, uint32_t seg, const nb_kv_dest &to,
                                      const nb_kv_spot &p, uint32_t outer, const nb_kv_part &v)
{
    const nb_record_seg &g = r.seg[seg];
    switch (g.fmt) {
    case NB_SEG_NVFP4:
    case NB_SEG_IF4: nb_kv_put_nv(r, seg, to, p, outer, v); break;
    case NB_SEG_E4M3: nb_kv_put_e4m3(g, to.page, p, outer, v); break;
    case NB_SEG_INT8: nb_kv_put_int8(g, to.page, p, outer, v); break;
    case NB_SEG_MXFP4: nb_kv_put_mx(g, to.page, p, v); break;
    case NB_SEG_INT4_TOK: nb_kv_put_int4_tok(g, to.page, p, v); break;
    case NB_SEG_DS_MLA: nb_kv_put_ds(g, to.page, p, v); break;
    case NB_SEG_BF16: nb_kv_put_bf16(g, to.page, p, v); break;
    case NB_SEG_F32: nb_kv_put_f32(g, to.page, p, v); break;
    default: break; /* INT4_CH is encoded by channels */
    }
}

/* Encodes vector p.vec of row p.t by n_lane lanes; this is number `lane`. */
__device__ inline void nb_kv_encode_vec(const nb_record &r, uint32_t seg, const nb_kv_dest &to,
                                        const float *x, const nb_kv_spot &p, uint32_t lane,
                                        uint32_t n_lane)
{
    const nb_record_seg &g = r.seg[seg];
    const uint32_t dim = (uint32_t)g.dim, place = p.vec * dim, piece = 16 * n_lane;
    const bool has_outer = nb_kv_has_outer(g.fmt);
    nb_kv_part v;
    nb_kv_read(g, x, place, 16 * lane, p.active, v);
    uint32_t outer = 0;
    if (has_outer) {
        uint32_t a = nb_kv_amax(v);
        for (uint32_t base = piece; base < dim; base += piece) {
            nb_kv_part more;
            nb_kv_read(g, x, place, base + 16 * lane, p.active, more);
            const uint32_t b = nb_kv_amax(more);
            a = b > a ? b : a;
        }
        const bool nv = g.fmt == NB_SEG_NVFP4 || g.fmt == NB_SEG_IF4;
        outer = nb_kv_outer_byte(g, nb_kv_lane_max(a, n_lane),
                                 nv                     ? 192
                                 : g.fmt == NB_SEG_E4M3 ? 224
                                                        : 254,
                                 nv                     ? 10
                                 : g.fmt == NB_SEG_E4M3 ? 8
                                                        : 6);
        if (p.active && lane == 0)
            to.page[g.outer_off + p.t * g.outer_stride + p.vec] = (unsigned char)outer;
    }
    uint32_t n_sat = 0;
    for (uint32_t base = 0; base < dim; base += piece) {
        if (base > 0) nb_kv_read(g, x, place, base + 16 * lane, p.active, v);
        nb_kv_put_part(r, seg, to, p, outer, v);
        if (g.fixed_scale != 0) {
            const nb_kv_norm norm(g, 127);
#pragma unroll
            for (int i = 0; i < 16; i++) n_sat += norm.saturates(v.x[i]);
        }
    }
    if (n_sat && to.n_saturated) atomicAdd(to.n_saturated, (unsigned long long)n_sat);
}

__device__ inline void nb_kv_encode_vectors(const nb_record &r, uint32_t seg, const nb_kv_dest &to,
                                            const nb_kv_rows &x, uint32_t off, uint32_t r0,
                                            uint32_t n_row)
{
    const nb_record_seg &g = r.seg[seg];
    const uint32_t n_vec = (uint32_t)g.n_vec, dim = (uint32_t)g.dim, n = n_row * n_vec;
    uint32_t n_lane = 2; /* a power of two */
    while (n_lane < 32 && 16 * n_lane < dim) n_lane *= 2;
    const uint32_t lane = threadIdx.x % n_lane, n_sub = blockDim.x / n_lane;
    for (uint32_t k0 = 0; k0 < n; k0 += n_sub) {
        const uint32_t k = k0 + threadIdx.x / n_lane, at = k < n ? k : 0;
        const nb_kv_spot p = { r0 + at / n_vec, at % n_vec, k < n, lane == 0 };
        nb_kv_encode_vec(r, seg, to, x.row(p.t) + off + (size_t)p.vec * dim, p, lane, n_lane);
    }
}

/* Encodes rows r0..r0 + n_row - 1 of a page of finite values.  Called by the whole block (its size is a multiple of
 * 32). INT4_CH records: r0 and n_row are multiples of 32.  The block with r0 == 0 clears the padding. */
__device__ inline void nb_kv_encode_rows(const nb_record &r, const nb_kv_gaps &gap,
                                         const nb_kv_dest &to, const nb_kv_rows &x, uint32_t r0,
                                         uint32_t n_row)
{
    uint32_t off = 0;
    for (uint32_t seg = 0; seg < r.n_seg; seg++) {
        const nb_record_seg &g = r.seg[seg];
        if (g.fmt == NB_SEG_INT4_CH)
            nb_kv_encode_channels(g, to.page, x, off, r0, n_row);
        else
            nb_kv_encode_vectors(r, seg, to, x, off, r0, n_row);
        const uint32_t n_out = (uint32_t)g.n_outlier;
        for (uint32_t k = threadIdx.x; k < n_out * n_row; k += blockDim.x) {
            const uint32_t t = r0 + k / n_out, c = k % n_out;
            nb_kv_put16(to.page + g.side_off + t * g.side_stride + 2 * c,
                        nb_bf16_bits(x.row(t)[off + g.outlier[c]]));
        }
        off += (uint32_t)(g.n_vec * g.dim);
    }
    if (r0 != 0) return;
    for (uint32_t k = 0; k < gap.n; k++)
        for (uint32_t i = threadIdx.x; i < gap.n_bytes[k]; i += blockDim.x)
            to.page[gap.off[k] + i] = 0;
}

#endif
