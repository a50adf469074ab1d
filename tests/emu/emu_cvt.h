/* emu_cvt.h - conversions between types of lanes. */
#ifndef NB_EMU_CVT_H
#define NB_EMU_CVT_H

/* Sign or zero extension to 512 bits: V is the source's vector, s its member. */
#define EMU_EXT(name, V, W, s, d, L)                                                               \
    EMU __m512i _mm512_##name(V a)                                                                 \
    {                                                                                              \
        emu_##W x = { .i = a };                                                                    \
        emu_512 r;                                                                                 \
        for (int j = 0; j < EMU_N(512, L); j++) r.d[j] = x.s[j];                                   \
        return r.i;                                                                                \
    }                                                                                              \
    EMU_BCASTM(_mm512, 512, name, i, V, L)                                                         \
    EMU_BCASTM(_mm, 128, name, i, __m128i, L)
#define EMU_EXT128(name, s, d, L)                                                                  \
    EMU_EXT(name, __m128i, 128, s, d, L) EMU_BCASTM(_mm256, 256, name, i, __m128i, L)
#define EMU_EXT256(name, s, d, L)                                                                  \
    EMU_EXT(name, __m256i, 256, s, d, L) EMU_BCASTM(_mm256, 256, name, i, __m128i, L)
EMU_EXT256(cvtepi8_epi16, s8, s16, 16)
EMU_EXT256(cvtepu8_epi16, u8, s16, 16)
EMU_EXT128(cvtepi8_epi32, s8, s32, 32)
EMU_EXT128(cvtepu8_epi32, u8, s32, 32)
EMU_EXT128(cvtepi8_epi64, s8, s64, 64)
EMU_EXT128(cvtepu8_epi64, u8, s64, 64)
EMU_EXT256(cvtepi16_epi32, s16, s32, 32)
EMU_EXT256(cvtepu16_epi32, u16, s32, 32)
EMU_EXT128(cvtepi16_epi64, s16, s64, 64)
EMU_EXT128(cvtepu16_epi64, u16, s64, 64)
EMU_EXT256(cvtepi32_epi64, s32, s64, 64)
EMU_EXT256(cvtepu32_epi64, u32, s64, 64)

/* Narrowing: truncated (cvtepi), saturated signed (cvtsepi), unsigned (cvtusepi).  H is the
 * width of the result, 128 where its lanes fill less. */
#define EMU_CLAMP(v, lo, hi) ((v) < (lo) ? (lo) : (v) > (hi) ? (hi) : (v))
#define EMU_NARROW1(P, W, H, name, L, sm, dm, D, E)                                                \
    EMU __m##H##i P##_mask_##name(__m##H##i s, EMU_K_##W##_##L k, __m##W##i a)                     \
    {                                                                                              \
        emu_##W x = { .i = a };                                                                    \
        emu_##H r = { .i = s };                                                                    \
        for (int j = 0; j < H / D; j++) {                                                          \
            if (j >= EMU_N(W, L)) {                                                                \
                r.dm[j] = 0;                                                                       \
            } else if (k >> j & 1) {                                                               \
                const __typeof__(x.sm[0]) A = x.sm[j];                                             \
                r.dm[j] = (__typeof__(r.dm[0]))(E);                                                \
            }                                                                                      \
        }                                                                                          \
        return r.i;                                                                                \
    }                                                                                              \
    EMU __m##H##i P##_maskz_##name(EMU_K_##W##_##L k, __m##W##i a)                                 \
    {                                                                                              \
        return P##_mask_##name(EMU_Z(H), k, a);                                                    \
    }                                                                                              \
    EMU __m##H##i P##_##name(__m##W##i a)                                                          \
    {                                                                                              \
        return P##_mask_##name(EMU_Z(H), (EMU_K_##W##_##L) ~0ull, a);                              \
    }                                                                                              \
    EMU void P##_mask_##name##_emu_store(void *p, EMU_K_##W##_##L k, __m##W##i a)                  \
    {                                                                                              \
        emu_##H r = { .i = P##_##name(a) };                                                        \
        for (int j = 0; j < EMU_N(W, L); j++)                                                      \
            if (k >> j & 1) EMU_ATW(D, p, j) = r.u##D[j];                                          \
    }
#define EMU_NARROW(P, W, H, L, D)                                                                  \
    EMU_NARROW1(P, W, H, cvtepi##L##_epi##D, L, u##L, u##D, D, A)                                  \
    EMU_NARROW1(P, W, H, cvtsepi##L##_epi##D, L, s##L, s##D, D,                                    \
                EMU_CLAMP(A, INT##D##_MIN, INT##D##_MAX))                                          \
    EMU_NARROW1(P, W, H, cvtusepi##L##_epi##D, L, u##L, u##D, D,                                   \
                A > UINT##D##_MAX ? UINT##D##_MAX : A)                                             \
    EMU void P##_mask_cvtepi##L##_storeu_epi##D(void *p, EMU_K_##W##_##L k, __m##W##i a)           \
    {                                                                                              \
        P##_mask_cvtepi##L##_epi##D##_emu_store(p, k, a);                                          \
    }                                                                                              \
    EMU void P##_mask_cvtsepi##L##_storeu_epi##D(void *p, EMU_K_##W##_##L k, __m##W##i a)          \
    {                                                                                              \
        P##_mask_cvtsepi##L##_epi##D##_emu_store(p, k, a);                                         \
    }                                                                                              \
    EMU void P##_mask_cvtusepi##L##_storeu_epi##D(void *p, EMU_K_##W##_##L k, __m##W##i a)         \
    {                                                                                              \
        P##_mask_cvtusepi##L##_epi##D##_emu_store(p, k, a);                                        \
    }
EMU_NARROW(_mm512, 512, 256, 16, 8)
EMU_NARROW(_mm256, 256, 128, 16, 8)
EMU_NARROW(_mm, 128, 128, 16, 8)
EMU_NARROW(_mm512, 512, 128, 32, 8)
EMU_NARROW(_mm256, 256, 128, 32, 8)
EMU_NARROW(_mm, 128, 128, 32, 8)
EMU_NARROW(_mm512, 512, 256, 32, 16)
EMU_NARROW(_mm256, 256, 128, 32, 16)
EMU_NARROW(_mm, 128, 128, 32, 16)
EMU_NARROW(_mm512, 512, 128, 64, 8)
EMU_NARROW(_mm512, 512, 128, 64, 16)
EMU_NARROW(_mm512, 512, 256, 64, 32)
EMU_NARROW(_mm256, 256, 128, 64, 32)

/* Between floats and integers of 32 bits. */
EMU_H1(cvtepi32_ps, f, i, 32)
EMU_H1(cvtps_epi32, i, f, 32)
EMU_H1(cvttps_epi32, i, f, 32)
#define EMU_FROM(P, W, name, R, A, L, dm, sm, E)                                                   \
    EMU EMU_V_##R(W) P##_##name(EMU_V_##A(W) a)                                                    \
    {                                                                                              \
        emu_##W x = { .A = a }, r;                                                                 \
        for (int j = 0; j < EMU_N(W, L); j++) {                                                    \
            const __typeof__(x.sm[0]) X = x.sm[j];                                                 \
            r.dm[j] = (E);                                                                         \
        }                                                                                          \
        return r.R;                                                                                \
    }                                                                                              \
    EMU_MK1(P, W, name, R, A, L)
/* Out of range and NaN give the integer indefinite: all ones when unsigned. */
EMU uint32_t emu_to_u32(double v)
{
    return v > -1.0 && v < 4294967296.0 ? (uint32_t)v : UINT32_MAX;
}
EMU int64_t emu_to_s64(double v)
{
    return v >= -9223372036854775808.0 && v < 9223372036854775808.0 ? (int64_t)v : INT64_MIN;
}
EMU uint64_t emu_to_u64(double v)
{
    return v > -1.0 && v < 18446744073709551616.0 ? (uint64_t)v : UINT64_MAX;
}
EMU_W3(EMU_FROM, cvtepu32_ps, f, i, 32, ps, u32, (float)X)
EMU_W3(EMU_FROM, cvtps_epu32, i, f, 32, u32, ps, emu_to_u32(nearbyint((double)X)))
EMU_W3(EMU_FROM, cvttps_epu32, i, f, 32, u32, ps, emu_to_u32(trunc((double)X)))
/* Integers of 64 bits and doubles. */
EMU_W3(EMU_FROM, cvtepi64_pd, d, i, 64, pd, s64, (double)X)
EMU_W3(EMU_FROM, cvtepu64_pd, d, i, 64, pd, u64, (double)X)
EMU_W3(EMU_FROM, cvtpd_epi64, i, d, 64, s64, pd, emu_to_s64(nearbyint(X)))
EMU_W3(EMU_FROM, cvttpd_epi64, i, d, 64, s64, pd, emu_to_s64(trunc(X)))
EMU_W3(EMU_FROM, cvtpd_epu64, i, d, 64, u64, pd, emu_to_u64(nearbyint(X)))
EMU_W3(EMU_FROM, cvttpd_epu64, i, d, 64, u64, pd, emu_to_u64(trunc(X)))

/* Between 256 and 512 bits. */
#define EMU_UP(name, R, V, half, HV)                                                               \
    EMU EMU_V_##R(512) _mm512_##name(V a)                                                          \
    {                                                                                              \
        emu_512 r;                                                                                 \
        HV lo, hi;                                                                                 \
        memcpy(&lo, &a, 16);                                                                       \
        memcpy(&hi, (char *)&a + 16, 16);                                                          \
        r.h##R[0] = half(lo);                                                                      \
        r.h##R[1] = half(hi);                                                                      \
        return r.R;                                                                                \
    }
EMU_UP(cvtps_pd, d, __m256, _mm256_cvtps_pd, __m128)
EMU_UP(cvtepi32_pd, d, __m256i, _mm256_cvtepi32_pd, __m128i)
EMU_UP(cvtph_ps, f, __m256i, _mm256_cvtph_ps, __m128i)
EMU_BCASTM(_mm512, 512, cvtps_pd, d, __m256, 64)
EMU_BCASTM(_mm512, 512, cvtepi32_pd, d, __m256i, 64)
EMU_BCASTM(_mm512, 512, cvtph_ps, f, __m256i, 32)
EMU_BCASTM(_mm256, 256, cvtph_ps, f, __m128i, 32)
EMU_BCASTM(_mm, 128, cvtph_ps, f, __m128i, 32)
EMU __m512d _mm512_cvtpslo_pd(__m512 a)
{
    return _mm512_cvtps_pd(_mm512_castps512_ps256(a));
}
EMU __m512d _mm512_cvtepu32_pd(__m256i a)
{
    emu_256 x = { .i = a };
    emu_512 r;
    for (int j = 0; j < 8; j++) r.pd[j] = x.u32[j];
    return r.d;
}
#define EMU_64PS(P, W, n, H)                                                                       \
    EMU H P##_cvtepi64_ps(__m##W##i a)                                                             \
    {                                                                                              \
        emu_##W x = { .i = a };                                                                    \
        float r[sizeof(H) / 4] = { 0 };                                                            \
        H v;                                                                                       \
        for (int j = 0; j < n; j++) r[j] = (float)x.s64[j];                                        \
        memcpy(&v, r, sizeof v);                                                                   \
        return v;                                                                                  \
    }
EMU_64PS(_mm, 128, 2, __m128)
EMU_64PS(_mm256, 256, 4, __m128)
EMU_64PS(_mm512, 512, 8, __m256)
#define EMU_DOWN(name, V, A, half, HV)                                                             \
    EMU V _mm512_##name(EMU_V_##A(512) a)                                                          \
    {                                                                                              \
        emu_512 x = { .A = a };                                                                    \
        V r;                                                                                       \
        const HV lo = half(x.h##A[0]), hi = half(x.h##A[1]);                                       \
        memcpy(&r, &lo, 16);                                                                       \
        memcpy((char *)&r + 16, &hi, 16);                                                          \
        return r;                                                                                  \
    }
EMU_DOWN(cvtpd_ps, __m256, d, _mm256_cvtpd_ps, __m128)
EMU_DOWN(cvtpd_epi32, __m256i, d, _mm256_cvtpd_epi32, __m128i)
EMU_DOWN(cvttpd_epi32, __m256i, d, _mm256_cvttpd_epi32, __m128i)

/* To FP16: the immediate's low bits are the rounding mode, bit 2 takes MXCSR's. */
EMU __m256i emu_ph(emu_512 x, int imm)
{
    __m128i h[2];
    for (int j = 0; j < 2; j++) {
        switch (imm & 7) {
        case 0: h[j] = _mm256_cvtps_ph(x.hf[j], 0); break;
        case 1: h[j] = _mm256_cvtps_ph(x.hf[j], 1); break;
        case 2: h[j] = _mm256_cvtps_ph(x.hf[j], 2); break;
        case 3: h[j] = _mm256_cvtps_ph(x.hf[j], 3); break;
        default: h[j] = _mm256_cvtps_ph(x.hf[j], 4); break;
        }
    }
    return _mm256_set_m128i(h[1], h[0]);
}
EMU __m256i _mm512_cvtps_ph(__m512 a, int imm)
{
    return emu_ph((emu_512){ .f = a }, imm);
}
EMU __m256i _mm512_maskz_cvtps_ph(__mmask16 k, __m512 a, int imm)
{
    return emu_blend_256_16(k, _mm512_cvtps_ph(a, imm), EMU_Z(256));
}
EMU __m256i _mm512_mask_cvtps_ph(__m256i s, __mmask16 k, __m512 a, int imm)
{
    return emu_blend_256_16(k, _mm512_cvtps_ph(a, imm), s);
}
#define _mm512_cvt_roundps_ph(a, imm) _mm512_cvtps_ph(a, imm)
#define _mm512_cvt_roundph_ps(a, sae) _mm512_cvtph_ps(a)
#endif
