/* emu_arith.h - arithmetic and logic of integers and floats, lane by lane: mostly AVX2's
 * instruction on each half. */
#ifndef NB_EMU_ARITH_H
#define NB_EMU_ARITH_H

/* Floats. */
#define EMU_PSPD(name) EMU_H2(name##_ps, f, 32) EMU_H2(name##_pd, d, 64)
EMU_PSPD(add)
EMU_PSPD(sub)
EMU_PSPD(mul)
EMU_PSPD(div)
EMU_PSPD(min)
EMU_PSPD(max)
EMU_PSPD(and)
EMU_PSPD(andnot)
EMU_PSPD(or)
EMU_PSPD(xor)
EMU_PSPD(unpacklo)
EMU_PSPD(unpackhi)
EMU_H1(sqrt_ps, f, f, 32)
EMU_H1(sqrt_pd, d, d, 64)
EMU_H1(moveldup_ps, f, f, 32)
EMU_H1(movehdup_ps, f, f, 32)
EMU_H1(movedup_pd, d, d, 64)
EMU __m512 _mm512_abs_ps(__m512 a)
{
    return _mm512_and_ps(a, (__m512)_mm512_set1_epi32(0x7fffffff));
}
EMU __m512 _mm512_mask_abs_ps(__m512 s, __mmask16 k, __m512 a)
{
    return _mm512_mask_mov_ps(s, k, _mm512_abs_ps(a));
}
EMU __m512d _mm512_abs_pd(__m512d a)
{
    return _mm512_and_pd(a, (__m512d)_mm512_set1_epi64(0x7fffffffffffffffll));
}

/* Fused multiply-add; the masked forms keep a (mask), c (mask3) or zero (maskz). */
#define EMU_FMA3(P, W, name, R, L)                                                                 \
    EMU EMU_V_##R(W)                                                                               \
        P##_mask_##name(EMU_V_##R(W) a, EMU_K_##W##_##L k, EMU_V_##R(W) b, EMU_V_##R(W) c)         \
    {                                                                                              \
        return (EMU_V_##R(W))EMU_BL(W, L, k, P##_##name(a, b, c), a);                              \
    }                                                                                              \
    EMU EMU_V_##R(W)                                                                               \
        P##_mask3_##name(EMU_V_##R(W) a, EMU_V_##R(W) b, EMU_V_##R(W) c, EMU_K_##W##_##L k)        \
    {                                                                                              \
        return (EMU_V_##R(W))EMU_BL(W, L, k, P##_##name(a, b, c), c);                              \
    }                                                                                              \
    EMU EMU_V_##R(W)                                                                               \
        P##_maskz_##name(EMU_K_##W##_##L k, EMU_V_##R(W) a, EMU_V_##R(W) b, EMU_V_##R(W) c)        \
    {                                                                                              \
        return (EMU_V_##R(W))EMU_BL(W, L, k, P##_##name(a, b, c), EMU_Z(W));                       \
    }
#define EMU_FMA1(name, R, L)                                                                       \
    EMU EMU_V_##R(512) _mm512_##name(EMU_V_##R(512) a, EMU_V_##R(512) b, EMU_V_##R(512) c)         \
    {                                                                                              \
        emu_512 x = { .R = a }, y = { .R = b }, z = { .R = c }, r;                                 \
        for (int j = 0; j < 2; j++) r.h##R[j] = _mm256_##name(x.h##R[j], y.h##R[j], z.h##R[j]);    \
        return r.R;                                                                                \
    }                                                                                              \
    EMU_W3(EMU_FMA3, name, R, L)
#define EMU_FMA(name) EMU_FMA1(name##_ps, f, 32) EMU_FMA1(name##_pd, d, 64)
EMU_FMA(fmadd)
EMU_FMA(fmsub)
EMU_FMA(fnmadd)
EMU_FMA(fnmsub)
EMU_FMA(fmaddsub)
EMU_FMA(fmsubadd)

/* Integers, all widths and masked forms. */
EMU_H2(add_epi8, i, 8)
EMU_H2(add_epi16, i, 16)
EMU_H2(add_epi32, i, 32)
EMU_H2(add_epi64, i, 64)
EMU_H2(sub_epi8, i, 8)
EMU_H2(sub_epi16, i, 16)
EMU_H2(sub_epi32, i, 32)
EMU_H2(sub_epi64, i, 64)
EMU_H2(adds_epi8, i, 8)
EMU_H2(adds_epi16, i, 16)
EMU_H2(adds_epu8, i, 8)
EMU_H2(adds_epu16, i, 16)
EMU_H2(subs_epi8, i, 8)
EMU_H2(subs_epi16, i, 16)
EMU_H2(subs_epu8, i, 8)
EMU_H2(subs_epu16, i, 16)
EMU_H2(avg_epu8, i, 8)
EMU_H2(avg_epu16, i, 16)
EMU_H2(mullo_epi16, i, 16)
EMU_H2(mulhi_epi16, i, 16)
EMU_H2(mulhi_epu16, i, 16)
EMU_H2(mulhrs_epi16, i, 16)
EMU_H2(mullo_epi32, i, 32)
EMU_H2(mul_epi32, i, 64)
EMU_H2(mul_epu32, i, 64)
EMU_H2(madd_epi16, i, 32)
EMU_H2(maddubs_epi16, i, 16)
EMU_HALVES2(sad_epu8, i, 64)
EMU_H2(min_epi8, i, 8)
EMU_H2(min_epi16, i, 16)
EMU_H2(min_epi32, i, 32)
EMU_H2(min_epu8, i, 8)
EMU_H2(min_epu16, i, 16)
EMU_H2(min_epu32, i, 32)
EMU_H2(max_epi8, i, 8)
EMU_H2(max_epi16, i, 16)
EMU_H2(max_epi32, i, 32)
EMU_H2(max_epu8, i, 8)
EMU_H2(max_epu16, i, 16)
EMU_H2(max_epu32, i, 32)
EMU_H1(abs_epi8, i, i, 8)
EMU_H1(abs_epi16, i, i, 16)
EMU_H1(abs_epi32, i, i, 32)
EMU_H2(packs_epi16, i, 8)
EMU_H2(packus_epi16, i, 8)
EMU_H2(packs_epi32, i, 16)
EMU_H2(packus_epi32, i, 16)
EMU_H2(unpacklo_epi8, i, 8)
EMU_H2(unpackhi_epi8, i, 8)
EMU_H2(unpacklo_epi16, i, 16)
EMU_H2(unpackhi_epi16, i, 16)
EMU_H2(unpacklo_epi32, i, 32)
EMU_H2(unpackhi_epi32, i, 32)
EMU_H2(unpacklo_epi64, i, 64)
EMU_H2(unpackhi_epi64, i, 64)
EMU_H2(shuffle_epi8, i, 8)

/* What AVX2 lacks. */
EMU_L1(abs_epi64, i, 64, u64, A >> 63 ? 0 - A : A)
EMU_L2(mullo_epi64, i, 64, u64, A *B)
EMU_L2(min_epi64, i, 64, s64, A < B ? A : B)
EMU_L2(max_epi64, i, 64, s64, A > B ? A : B)
EMU_L2(min_epu64, i, 64, u64, A < B ? A : B)
EMU_L2(max_epu64, i, 64, u64, A > B ? A : B)
EMU __m512i _mm512_mullox_epi64(__m512i a, __m512i b)
{
    return _mm512_mullo_epi64(a, b);
}

/* Logic: si512 and the names by lane. */
#define EMU_LOGIC(name, E)                                                                         \
    EMU __m512i _mm512_##name##_si512(__m512i a, __m512i b)                                        \
    {                                                                                              \
        return E;                                                                                  \
    }                                                                                              \
    EMU_W3(EMU_LOGICN, name##_epi32, 32, E)                                                        \
    EMU_W3(EMU_LOGICN, name##_epi64, 64, E)
#define EMU_LOGICN(P, W, name, L, E)                                                               \
    EMU __m##W##i P##_##name(__m##W##i a, __m##W##i b)                                             \
    {                                                                                              \
        return E;                                                                                  \
    }                                                                                              \
    EMU_MK2(P, W, name, i, L)
EMU_LOGIC(and, a &b)
EMU_LOGIC(or, a | b)
EMU_LOGIC(xor, a ^ b)
EMU_LOGIC(andnot, ~a &b)

/* The truth table's bit (a << 2 | b << 1 | c) per bit. */
#define EMU_TERN(P, W, L)                                                                          \
    EMU __m##W##i P##_ternarylogic_epi##L(__m##W##i a, __m##W##i b, __m##W##i c, int imm)          \
    {                                                                                              \
        __m##W##i r = EMU_Z(W);                                                                    \
        for (int j = 0; j < 8; j++)                                                                \
            if (imm >> j & 1) r |= (j & 4 ? a : ~a) & (j & 2 ? b : ~b) & (j & 1 ? c : ~c);         \
        return r;                                                                                  \
    }                                                                                              \
    EMU __m##W##i P##_mask_ternarylogic_epi##L(__m##W##i a, EMU_K_##W##_##L k, __m##W##i b,        \
                                               __m##W##i c, int imm)                               \
    {                                                                                              \
        return EMU_BL(W, L, k, P##_ternarylogic_epi##L(a, b, c, imm), a);                          \
    }                                                                                              \
    EMU __m##W##i P##_maskz_ternarylogic_epi##L(EMU_K_##W##_##L k, __m##W##i a, __m##W##i b,       \
                                                __m##W##i c, int imm)                              \
    {                                                                                              \
        return EMU_BL(W, L, k, P##_ternarylogic_epi##L(a, b, c, imm), EMU_Z(W));                   \
    }
EMU_W3(EMU_TERN, 32)
EMU_W3(EMU_TERN, 64)

/* Sums, products and extremes over all lanes, in the order of the compilers' own sequence:
 * halves are combined until one lane is left (which order is not promised: Intel's guide). */
#define EMU_REDUCE(name, R, T, m, n, E)                                                            \
    EMU T _mm512_reduce_##name(EMU_V_##R(512) a)                                                   \
    {                                                                                              \
        emu_512 x = { .R = a };                                                                    \
        for (int h = n / 2; h; h /= 2)                                                             \
            for (int j = 0; j < h; j++) {                                                          \
                const T A = x.m[j], B = x.m[j + h];                                                \
                x.m[j] = E;                                                                        \
            }                                                                                      \
        return x.m[0];                                                                             \
    }
EMU_REDUCE(add_ps, f, float, ps, 16, A + B)
EMU_REDUCE(mul_ps, f, float, ps, 16, A *B)
EMU_REDUCE(min_ps, f, float, ps, 16, A < B ? A : B)
EMU_REDUCE(max_ps, f, float, ps, 16, A > B ? A : B)
EMU_REDUCE(add_pd, d, double, pd, 8, A + B)
EMU_REDUCE(mul_pd, d, double, pd, 8, A *B)
EMU_REDUCE(min_pd, d, double, pd, 8, A < B ? A : B)
EMU_REDUCE(max_pd, d, double, pd, 8, A > B ? A : B)
EMU_REDUCE(add_epi32, i, int, u32, 16, (uint32_t)A + (uint32_t)B)
EMU_REDUCE(mul_epi32, i, int, u32, 16, (uint32_t)A *(uint32_t)B)
EMU_REDUCE(min_epi32, i, int, s32, 16, A < B ? A : B)
EMU_REDUCE(max_epi32, i, int, s32, 16, A > B ? A : B)
EMU_REDUCE(min_epu32, i, unsigned, u32, 16, A < B ? A : B)
EMU_REDUCE(max_epu32, i, unsigned, u32, 16, A > B ? A : B)
EMU_REDUCE(and_epi32, i, int, s32, 16, A &B)
EMU_REDUCE(or_epi32, i, int, s32, 16, A | B)
EMU_REDUCE(add_epi64, i, long long, u64, 8, (uint64_t)A + (uint64_t)B)
EMU_REDUCE(min_epi64, i, long long, s64, 8, A < B ? A : B)
EMU_REDUCE(max_epi64, i, long long, s64, 8, A > B ? A : B)
EMU_REDUCE(and_epi64, i, long long, s64, 8, A &B)
EMU_REDUCE(or_epi64, i, long long, s64, 8, A | B)
EMU float _mm512_mask_reduce_add_ps(__mmask16 k, __m512 a)
{
    return _mm512_reduce_add_ps(_mm512_maskz_mov_ps(k, a));
}
EMU float _mm512_mask_reduce_max_ps(__mmask16 k, __m512 a)
{
    return _mm512_reduce_max_ps(_mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), k, a));
}
EMU float _mm512_mask_reduce_min_ps(__mmask16 k, __m512 a)
{
    return _mm512_reduce_min_ps(_mm512_mask_mov_ps(_mm512_set1_ps(INFINITY), k, a));
}
EMU int _mm512_mask_reduce_add_epi32(__mmask16 k, __m512i a)
{
    return _mm512_reduce_add_epi32(_mm512_maskz_mov_epi32(k, a));
}
EMU int _mm512_mask_reduce_max_epi32(__mmask16 k, __m512i a)
{
    return _mm512_reduce_max_epi32(_mm512_mask_mov_epi32(_mm512_set1_epi32(INT32_MIN), k, a));
}
#endif
