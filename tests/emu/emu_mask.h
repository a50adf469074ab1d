/* emu_mask.h - constants, casts, blends, moves between vectors and masks. */
#ifndef NB_EMU_MASK_H
#define NB_EMU_MASK_H

/* Constants and casts. */
#define EMU_SET1(name, V, m, T)                                                                    \
    EMU V _mm512_##name(T a)                                                                       \
    {                                                                                              \
        emu_512 r;                                                                                 \
        for (size_t j = 0; j < 64 / sizeof r.m[0]; j++) r.m[j] = (__typeof__(r.m[0]))a;            \
        return (V)r.i;                                                                             \
    }
EMU_SET1(set1_epi8, __m512i, s8, char)
EMU_SET1(set1_epi16, __m512i, s16, short)
EMU_SET1(set1_epi32, __m512i, s32, int)
EMU_SET1(set1_epi64, __m512i, s64, long long)
EMU_SET1(set1_ps, __m512, ps, float)
EMU_SET1(set1_pd, __m512d, pd, double)
/* Written from a register (or a float) into the selected lanes. */
#define EMU_SET1M(P, W, name, n1, V, L, T)                                                         \
    EMU V(W) P##_mask_##name(V(W) s, EMU_K_##W##_##L k, T a)                                       \
    {                                                                                              \
        return (V(W))EMU_BL(W, L, k, P##_##n1(a), s);                                              \
    }                                                                                              \
    EMU V(W) P##_maskz_##name(EMU_K_##W##_##L k, T a)                                              \
    {                                                                                              \
        return (V(W))EMU_BL(W, L, k, P##_##n1(a), EMU_Z(W));                                       \
    }
#define _mm_emu_set1_64 _mm_set1_epi64x
#define _mm256_emu_set1_64 _mm256_set1_epi64x
#define _mm512_emu_set1_64 _mm512_set1_epi64
EMU_W3(EMU_SET1M, set1_epi8, set1_epi8, EMU_V_i, 8, char)
EMU_W3(EMU_SET1M, set1_epi16, set1_epi16, EMU_V_i, 16, short)
EMU_W3(EMU_SET1M, set1_epi32, set1_epi32, EMU_V_i, 32, int)
EMU_W3(EMU_SET1M, set1_epi64, emu_set1_64, EMU_V_i, 64, long long)

EMU __m512i _mm512_setzero_si512(void)
{
    return (__m512i){ 0 };
}
EMU __m512i _mm512_setzero_epi32(void)
{
    return (__m512i){ 0 };
}
EMU __m512i _mm512_setzero(void)
{
    return (__m512i){ 0 };
}
EMU __m512 _mm512_setzero_ps(void)
{
    return (__m512){ 0 };
}
EMU __m512d _mm512_setzero_pd(void)
{
    return (__m512d){ 0 };
}
/* What it holds is undefined: a pattern that shows. */
EMU __m512i _mm512_undefined_epi32(void)
{
    return _mm512_set1_epi32(0x7fa5a5a5);
}
EMU __m512i _mm512_undefined_si512(void)
{
    return _mm512_undefined_epi32();
}
EMU __m512 _mm512_undefined_ps(void)
{
    return (__m512)_mm512_undefined_epi32();
}
EMU __m512 _mm512_undefined(void)
{
    return _mm512_undefined_ps();
}
EMU __m512d _mm512_undefined_pd(void)
{
    return (__m512d)_mm512_undefined_epi32();
}

#define EMU_CAST(name, to, from)                                                                   \
    EMU to _mm512_##name(from a)                                                                   \
    {                                                                                              \
        return (to)a;                                                                              \
    }
EMU_CAST(castps_si512, __m512i, __m512)
EMU_CAST(castps_pd, __m512d, __m512)
EMU_CAST(castpd_si512, __m512i, __m512d)
EMU_CAST(castpd_ps, __m512, __m512d)
EMU_CAST(castsi512_ps, __m512, __m512i)
EMU_CAST(castsi512_pd, __m512d, __m512i)
/* The upper part of a widening cast is undefined, of a zext it is zero. */
#define EMU_WIDEN(cast, zext, to, half, quarter, h, q, c128, z128)                                 \
    EMU to cast(half a)                                                                            \
    {                                                                                              \
        emu_512 r = { .i = _mm512_undefined_epi32() };                                             \
        memcpy(&r, &a, 32);                                                                        \
        return (to)r.i;                                                                            \
    }                                                                                              \
    EMU to zext(half a)                                                                            \
    {                                                                                              \
        emu_512 r = { .i = EMU_Z(512) };                                                           \
        memcpy(&r, &a, 32);                                                                        \
        return (to)r.i;                                                                            \
    }                                                                                              \
    EMU to c128(quarter a)                                                                         \
    {                                                                                              \
        emu_512 r = { .i = _mm512_undefined_epi32() };                                             \
        memcpy(&r, &a, 16);                                                                        \
        return (to)r.i;                                                                            \
    }                                                                                              \
    EMU to z128(quarter a)                                                                         \
    {                                                                                              \
        emu_512 r = { .i = EMU_Z(512) };                                                           \
        memcpy(&r, &a, 16);                                                                        \
        return (to)r.i;                                                                            \
    }                                                                                              \
    EMU half h(to a)                                                                               \
    {                                                                                              \
        half r;                                                                                    \
        memcpy(&r, &a, 32);                                                                        \
        return r;                                                                                  \
    }                                                                                              \
    EMU quarter q(to a)                                                                            \
    {                                                                                              \
        quarter r;                                                                                 \
        memcpy(&r, &a, 16);                                                                        \
        return r;                                                                                  \
    }
EMU_WIDEN(_mm512_castsi256_si512, _mm512_zextsi256_si512, __m512i, __m256i, __m128i,
          _mm512_castsi512_si256, _mm512_castsi512_si128, _mm512_castsi128_si512,
          _mm512_zextsi128_si512)
EMU_WIDEN(_mm512_castps256_ps512, _mm512_zextps256_ps512, __m512, __m256, __m128,
          _mm512_castps512_ps256, _mm512_castps512_ps128, _mm512_castps128_ps512,
          _mm512_zextps128_ps512)
EMU_WIDEN(_mm512_castpd256_pd512, _mm512_zextpd256_pd512, __m512d, __m256d, __m128d,
          _mm512_castpd512_pd256, _mm512_castpd512_pd128, _mm512_castpd128_pd512,
          _mm512_zextpd128_pd512)

/* set and setr: arguments from the highest lane down, or from the lowest up. */
#define _mm512_setr_epi32(...) ((__m512i)(emu_v16si){ __VA_ARGS__ })
#define _mm512_setr_ps(...) ((__m512){ __VA_ARGS__ })
#define _mm512_setr_epi64(...) ((__m512i){ __VA_ARGS__ })
#define _mm512_setr_pd(...) ((__m512d){ __VA_ARGS__ })
typedef int emu_v16si __attribute__((__vector_size__(64), __may_alias__));
EMU __m512i _mm512_set_epi32(int p, int o, int n, int m, int l, int k, int j, int i, int h, int g,
                             int f, int e, int d, int c, int b, int a)
{
    return (__m512i)(emu_v16si){ a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p };
}
EMU __m512 _mm512_set_ps(float p, float o, float n, float m, float l, float k, float j, float i,
                         float h, float g, float f, float e, float d, float c, float b, float a)
{
    return (__m512){ a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p };
}
EMU __m512i _mm512_set_epi64(long long h, long long g, long long f, long long e, long long d,
                             long long c, long long b, long long a)
{
    return (__m512i){ a, b, c, d, e, f, g, h };
}
EMU __m512d _mm512_set_pd(double h, double g, double f, double e, double d, double c, double b,
                          double a)
{
    return (__m512d){ a, b, c, d, e, f, g, h };
}
#define _mm512_setr4_epi32(a, b, c, d)                                                             \
    _mm512_setr_epi32(a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d)
#define _mm512_setr4_ps(a, b, c, d) _mm512_setr_ps(a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d)
#define _mm512_set4_epi32(d, c, b, a) _mm512_setr4_epi32(a, b, c, d)
#define _mm512_set4_ps(d, c, b, a) _mm512_setr4_ps(a, b, c, d)
#define EMU_SETN(name, n, m, T)                                                                    \
    EMU __m512i emu_##name(const T *a)                                                             \
    {                                                                                              \
        emu_512 r;                                                                                 \
        for (int j = 0; j < n; j++) r.m[j] = a[n - 1 - j];                                         \
        return r.i;                                                                                \
    }
EMU_SETN(set_epi8, 64, s8, int8_t)
EMU_SETN(set_epi16, 32, s16, int16_t)
#define _mm512_set_epi8(...) emu_set_epi8((const int8_t[64]){ __VA_ARGS__ })
#define _mm512_set_epi16(...) emu_set_epi16((const int16_t[32]){ __VA_ARGS__ })

/* Blends and masked moves: mask_blend takes b where the bit is set, mask_mov a. */
#define EMU_BLENDS(P, W, e, R, L)                                                                  \
    EMU EMU_V_##R(W) P##_mask_blend_##e(EMU_K_##W##_##L k, EMU_V_##R(W) a, EMU_V_##R(W) b)         \
    {                                                                                              \
        return (EMU_V_##R(W))EMU_BL(W, L, k, b, a);                                                \
    }                                                                                              \
    EMU EMU_V_##R(W) P##_mask_mov_##e(EMU_V_##R(W) s, EMU_K_##W##_##L k, EMU_V_##R(W) a)           \
    {                                                                                              \
        return (EMU_V_##R(W))EMU_BL(W, L, k, a, s);                                                \
    }                                                                                              \
    EMU EMU_V_##R(W) P##_maskz_mov_##e(EMU_K_##W##_##L k, EMU_V_##R(W) a)                          \
    {                                                                                              \
        return (EMU_V_##R(W))EMU_BL(W, L, k, a, EMU_Z(W));                                         \
    }
EMU_W3(EMU_BLENDS, epi8, i, 8)
EMU_W3(EMU_BLENDS, epi16, i, 16)
EMU_W3(EMU_BLENDS, epi32, i, 32)
EMU_W3(EMU_BLENDS, epi64, i, 64)
EMU_W3(EMU_BLENDS, ps, f, 32)
EMU_W3(EMU_BLENDS, pd, d, 64)

/* Sign bits to a mask; a mask to lanes of all ones. */
#define EMU_MOVM(P, W, L)                                                                          \
    EMU EMU_K_##W##_##L P##_movepi##L##_mask(__m##W##i a)                                          \
    {                                                                                              \
        const emu_##W x = { .i = a };                                                              \
        uint64_t k = 0;                                                                            \
        for (int j = 0; j < EMU_N(W, L); j++) k |= (uint64_t)(x.s##L[j] < 0) << j;                 \
        return (EMU_K_##W##_##L)k;                                                                 \
    }                                                                                              \
    EMU __m##W##i P##_movm_epi##L(EMU_K_##W##_##L k)                                               \
    {                                                                                              \
        emu_##W ones;                                                                              \
        memset(&ones, 255, sizeof ones);                                                           \
        return emu_blend_##W##_##L(k, ones.i, EMU_Z(W));                                           \
    }
EMU_W3(EMU_MOVM, 8)
EMU_W3(EMU_MOVM, 16)
EMU_W3(EMU_MOVM, 32)
EMU_W3(EMU_MOVM, 64)
#endif
