/* emu_warp.cpp - what a warp does together: shuffles, votes, mma, ldmatrix (cu_emu.h).
 *
 * mma multiplies exactly and adds in float in ascending k, starting with c; a tensor core adds the same
 * products in an order and with a rounding of its own. */
#include "emu/cuda/emu.h"

void nb_emu_nothing(void *const *, unsigned)
{
}

void nb_emu_shuffle_fn(void *const *arg, unsigned mask)
{
    for (unsigned m = mask; m; m &= m - 1) {
        const int lane = __builtin_ctz(m);
        nb_emu_shuffle *a = (nb_emu_shuffle *)arg[lane];
        const int first = lane & ~(a->width - 1), last = first + a->width - 1;
        int from = lane;
        if (a->kind == NB_EMU_INDEX) from = first + (a->by & (a->width - 1));
        if (a->kind == NB_EMU_XOR && (lane ^ a->by) <= last) from = lane ^ a->by;
        if (a->kind == NB_EMU_UP && lane - a->by >= first) from = lane - a->by;
        if (a->kind == NB_EMU_DOWN && lane + a->by <= last) from = lane + a->by;
        if (from < 0 || from > 31 || !(mask >> from & 1))
            nb_emu_fail("lane %d of a shuffle reads lane %d, which mask %08x lacks", lane, from,
                        mask);
        a->out = ((nb_emu_shuffle *)arg[from])->in;
    }
}

struct vote {
    unsigned in, out;
};
static void ballot(void *const *arg, unsigned mask)
{
    unsigned all = 0;
    for (unsigned m = mask; m; m &= m - 1)
        if (((vote *)arg[__builtin_ctz(m)])->in) all |= m & -m;
    for (unsigned m = mask; m; m &= m - 1) ((vote *)arg[__builtin_ctz(m)])->out = all;
}
static void match(void *const *arg, unsigned mask)
{
    for (unsigned m = mask; m; m &= m - 1) {
        vote *a = (vote *)arg[__builtin_ctz(m)];
        a->out = 0;
        for (unsigned k = mask; k; k &= k - 1)
            if (((vote *)arg[__builtin_ctz(k)])->in == a->in) a->out |= k & -k;
    }
}
template <class F> static void reduce(void *const *arg, unsigned mask, F f)
{
    unsigned x = ((vote *)arg[__builtin_ctz(mask)])->in;
    for (unsigned m = mask & (mask - 1); m; m &= m - 1)
        x = f(x, ((vote *)arg[__builtin_ctz(m)])->in);
    for (unsigned m = mask; m; m &= m - 1) ((vote *)arg[__builtin_ctz(m)])->out = x;
}
static void reduce_add(void *const *arg, unsigned mask)
{
    reduce(arg, mask, [](unsigned x, unsigned y) { return x + y; });
}
static void reduce_max(void *const *arg, unsigned mask)
{
    reduce(arg, mask, [](unsigned x, unsigned y) { return x > y ? x : y; });
}
static void reduce_min(void *const *arg, unsigned mask)
{
    reduce(arg, mask, [](unsigned x, unsigned y) { return x < y ? x : y; });
}
static unsigned voted(unsigned mask, const char *what, nb_emu_warp_fn *fn, unsigned x)
{
    vote a = { x, 0 };
    nb_emu_warp(mask, what, fn, &a);
    return a.out;
}
unsigned __ballot_sync(unsigned mask, int x)
{
    return voted(mask, "a vote", ballot, x != 0);
}
unsigned __match_any_sync(unsigned mask, unsigned x)
{
    return voted(mask, "__match_any_sync", match, x);
}
unsigned __reduce_add_sync(unsigned mask, unsigned x)
{
    return voted(mask, "__reduce_add_sync", reduce_add, x);
}
unsigned __reduce_max_sync(unsigned mask, unsigned x)
{
    return voted(mask, "__reduce_max_sync", reduce_max, x);
}
unsigned __reduce_min_sync(unsigned mask, unsigned x)
{
    return voted(mask, "__reduce_min_sync", reduce_min, x);
}

/* ---- mma.m16n8k16 ---- */

struct mma {
    float *c;
    const uint32_t *a;
    uint32_t b[2];
};
static inline float half_value(uint32_t h)
{
    const uint32_t m = h & 0x7fff;
    float f = __uint_as_float(m << 13) * 0x1p112f; /* the exponent's bias; exact */
    if (m >= 0x7c00) f = __uint_as_float(0x7f800000 | m << 13);
    return __uint_as_float(__float_as_uint(f) | (h & 0x8000) << 16);
}
template <bool F16> static inline void two(float *lo, float *hi, uint32_t x)
{
    *lo = F16 ? half_value(x & 0xffff) : __uint_as_float(x << 16);
    *hi = F16 ? half_value(x >> 16) : __uint_as_float(x & 0xffff0000);
}
typedef float row8 __attribute__((vector_size(32)));

template <bool F16> static void mma_fn(void *const *arg, unsigned)
{
    float a[16][16], b[16][8];
    for (unsigned lane = 0; lane < 32; lane++) {
        const mma *x = (const mma *)arg[lane];
        const unsigned g = lane / 4, t = lane % 4;
        for (unsigned i = 0; i < 4; i++) {
            float *to = &a[g + i % 2 * 8][2 * t + i / 2 * 8];
            two<F16>(&to[0], &to[1], x->a[i]);
        }
        for (unsigned i = 0; i < 2; i++)
            two<F16>(&b[2 * t + 8 * i][g], &b[2 * t + 8 * i + 1][g], x->b[i]);
    }
    row8 bv[16];
    memcpy(bv, b, sizeof b);
    for (unsigned r = 0; r < 16; r++) {
        float *c[4];
        row8 sum;
        for (unsigned t = 0; t < 4; t++) {
            c[t] = ((const mma *)arg[r % 8 * 4 + t])->c + r / 8 * 2;
            sum[2 * t] = c[t][0];
            sum[2 * t + 1] = c[t][1];
        }
        for (unsigned k = 0; k < 16; k++) sum += a[r][k] * bv[k];
        for (unsigned t = 0; t < 4; t++) {
            c[t][0] = sum[2 * t];
            c[t][1] = sum[2 * t + 1];
        }
    }
}
void nb_mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    mma x = { c, a, { b0, b1 } };
    nb_emu_warp(UINT32_MAX, "mma", mma_fn<false>, &x);
}
void nb_mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    mma x = { c, a, { b0, b1 } };
    nb_emu_warp(UINT32_MAX, "mma", mma_fn<true>, &x);
}

/* ---- ldmatrix ---- */

struct matrices {
    const void *row;
    uint32_t *r;
    bool trans;
};
static void ldmatrix(void *const *arg, unsigned)
{
    for (unsigned lane = 0; lane < 32; lane++)
        if ((uintptr_t)((matrices *)arg[lane])->row % 16)
            nb_emu_fail("ldmatrix: the row of lane %u is not aligned to 16", lane);
    for (unsigned lane = 0; lane < 32; lane++) {
        const matrices *x = (const matrices *)arg[lane];
        const unsigned g = lane / 4, t = lane % 4;
        for (unsigned i = 0; i < 4; i++) {
            uint16_t v[2];
            for (unsigned k = 0; k < 2; k++) {
                const unsigned row = x->trans ? 2 * t + k : g, col = x->trans ? g : 2 * t + k;
                memcpy(&v[k], (const uint16_t *)((matrices *)arg[8 * i + row])->row + col, 2);
            }
            x->r[i] = v[0] | (uint32_t)v[1] << 16;
        }
    }
}
void nb_ldmatrix4(uint32_t (&r)[4], const void *row)
{
    matrices x = { row, r, false };
    nb_emu_warp(UINT32_MAX, "ldmatrix", ldmatrix, &x);
}
void nb_ldmatrix4_trans(uint32_t (&r)[4], const void *row)
{
    matrices x = { row, r, true };
    nb_emu_warp(UINT32_MAX, "ldmatrix.trans", ldmatrix, &x);
}

struct transposed {
    uint32_t in, out;
};
static void movmatrix(void *const *arg, unsigned)
{
    for (unsigned lane = 0; lane < 32; lane++) {
        const unsigned g = lane / 4, t = lane % 4;
        uint32_t v[2];
        for (unsigned k = 0; k < 2; k++)
            v[k] = ((const transposed *)arg[(2 * t + k) * 4 + g / 2])->in >> g % 2 * 16 & 0xffff;
        ((transposed *)arg[lane])->out = v[0] | v[1] << 16;
    }
}
uint32_t nb_movmatrix(uint32_t x)
{
    transposed m = { x, 0 };
    nb_emu_warp(UINT32_MAX, "movmatrix", movmatrix, &m);
    return m.out;
}
