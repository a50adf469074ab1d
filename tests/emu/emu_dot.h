/* emu_dot.h - dot products of VNNI, AVX-VNNI and BF16, conversions to and from BF16. */
#ifndef NB_EMU_DOT_H
#define NB_EMU_DOT_H

EMU int32_t emu_sat32(int64_t v)
{
    return (int32_t)EMU_CLAMP(v, INT32_MIN, INT32_MAX);
}
EMU int32_t emu_wrap32(int64_t v)
{
    return (int32_t)(uint32_t)(uint64_t)v;
}
/* s + four products (u8 of a times s8 of b), or two (s16 times s16): wraps, or saturates once. */
#define EMU_DP(P, W, name, n, am, bm, FIT)                                                         \
    EMU __m##W##i P##_##name(__m##W##i s, __m##W##i a, __m##W##i b)                                \
    {                                                                                              \
        emu_##W r = { .i = s }, x = { .i = a }, y = { .i = b };                                    \
        for (int j = 0; j < W / 32; j++) {                                                         \
            int64_t sum = r.s32[j];                                                                \
            for (int t = 0; t < n; t++) sum += (int64_t)x.am[n * j + t] * y.bm[n * j + t];         \
            r.s32[j] = FIT(sum);                                                                   \
        }                                                                                          \
        return r.i;                                                                                \
    }                                                                                              \
    EMU __m##W##i P##_mask_##name(__m##W##i s, EMU_K_##W##_32 k, __m##W##i a, __m##W##i b)         \
    {                                                                                              \
        return emu_blend_##W##_32(k, P##_##name(s, a, b), s);                                      \
    }                                                                                              \
    EMU __m##W##i P##_maskz_##name(EMU_K_##W##_32 k, __m##W##i s, __m##W##i a, __m##W##i b)        \
    {                                                                                              \
        return emu_blend_##W##_32(k, P##_##name(s, a, b), EMU_Z(W));                               \
    }
EMU_W3(EMU_DP, dpbusd_epi32, 4, u8, s8, emu_wrap32)
EMU_W3(EMU_DP, dpbusds_epi32, 4, u8, s8, emu_sat32)
EMU_W3(EMU_DP, dpwssd_epi32, 2, s16, s16, emu_wrap32)
EMU_W3(EMU_DP, dpwssds_epi32, 2, s16, s16, emu_sat32)

/* AVX-VNNI: the same, in VEX. */
EMU __m256i _mm256_dpbusd_avx_epi32(__m256i s, __m256i a, __m256i b)
{
    return _mm256_dpbusd_epi32(s, a, b);
}
EMU __m256i _mm256_dpwssd_avx_epi32(__m256i s, __m256i a, __m256i b)
{
    return _mm256_dpwssd_epi32(s, a, b);
}

/* To BF16: nearest, ties to even; denormals become zero, NaN quiet.  MXCSR is not read. */
EMU uint16_t emu_bf16(uint32_t bits)
{
    const uint32_t exponent = bits >> 23 & 255;
    if (exponent == 0) return (uint16_t)(bits >> 16 & 0x8000);
    if (exponent == 255) return (uint16_t)(bits >> 16 | ((bits & 0x7fffff) ? 0x40 : 0));
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#define EMU_NEPS(P, W, H)                                                                          \
    EMU __m##H##bh P##_cvtneps_pbh(__m##W a)                                                       \
    {                                                                                              \
        emu_##W x = { .f = a };                                                                    \
        emu_##H r = { .i = EMU_Z(H) };                                                             \
        for (int j = 0; j < W / 32; j++) r.u16[j] = emu_bf16(x.u32[j]);                            \
        return (__m##H##bh)r.i;                                                                    \
    }                                                                                              \
    EMU __m##H##bh P##_mask_cvtneps_pbh(__m##H##bh s, EMU_K_##W##_32 k, __m##W a)                  \
    {                                                                                              \
        emu_##H x = { .i = (__m##H##i)P##_cvtneps_pbh(a) }, r = { .i = (__m##H##i)s };             \
        for (int j = 0; j < H / 16; j++)                                                           \
            if (j >= W / 32 || (k >> j & 1)) r.u16[j] = x.u16[j];                                  \
        return (__m##H##bh)r.i;                                                                    \
    }                                                                                              \
    EMU __m##H##bh P##_maskz_cvtneps_pbh(EMU_K_##W##_32 k, __m##W a)                               \
    {                                                                                              \
        return P##_mask_cvtneps_pbh((__m##H##bh)EMU_Z(H), k, a);                                   \
    }
EMU_NEPS(_mm512, 512, 256)
EMU_NEPS(_mm256, 256, 128)
EMU_NEPS(_mm, 128, 128)
/* The lower half of the result from b, the upper from a. */
#define EMU_NE2PS(P, W, unused)                                                                    \
    EMU __m##W##bh P##_cvtne2ps_pbh(__m##W a, __m##W b)                                            \
    {                                                                                              \
        emu_##W x = { .f = a }, y = { .f = b }, r;                                                 \
        for (int j = 0; j < W / 32; j++) {                                                         \
            r.u16[j] = emu_bf16(y.u32[j]);                                                         \
            r.u16[W / 32 + j] = emu_bf16(x.u32[j]);                                                \
        }                                                                                          \
        return (__m##W##bh)r.i;                                                                    \
    }                                                                                              \
    EMU __m##W##bh P##_mask_cvtne2ps_pbh(__m##W##bh s, EMU_K_##W##_16 k, __m##W a, __m##W b)       \
    {                                                                                              \
        return (__m##W##bh)EMU_BL(W, 16, k, P##_cvtne2ps_pbh(a, b), s);                            \
    }                                                                                              \
    EMU __m##W##bh P##_maskz_cvtne2ps_pbh(EMU_K_##W##_16 k, __m##W a, __m##W b)                    \
    {                                                                                              \
        return (__m##W##bh)EMU_BL(W, 16, k, P##_cvtne2ps_pbh(a, b), EMU_Z(W));                     \
    }
EMU_W3(EMU_NE2PS, 0)
EMU __m512 _mm512_cvtpbh_ps(__m256bh a)
{
    return (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)a), 16);
}
EMU __m512 _mm512_maskz_cvtpbh_ps(__mmask16 k, __m256bh a)
{
    return _mm512_maskz_mov_ps(k, _mm512_cvtpbh_ps(a));
}
EMU __m256 _mm256_cvtpbh_ps(__m128bh a)
{
    return (__m256)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)a), 16);
}

/* s + a[1] b[1], then + a[0] b[0], each fused (emu_tile.c). */
void nb_emu_dpbf16(float *s, const uint16_t *a, const uint16_t *b, int n);
#define EMU_DPBF16(P, W, unused)                                                                   \
    EMU __m##W P##_dpbf16_ps(__m##W s, __m##W##bh a, __m##W##bh b)                                 \
    {                                                                                              \
        emu_##W r = { .f = s }, x = { .i = (__m##W##i)a }, y = { .i = (__m##W##i)b };              \
        nb_emu_dpbf16(r.ps, x.u16, y.u16, W / 32);                                                 \
        return r.f;                                                                                \
    }                                                                                              \
    EMU __m##W P##_mask_dpbf16_ps(__m##W s, EMU_K_##W##_32 k, __m##W##bh a, __m##W##bh b)          \
    {                                                                                              \
        return (__m##W)EMU_BL(W, 32, k, P##_dpbf16_ps(s, a, b), s);                                \
    }                                                                                              \
    EMU __m##W P##_maskz_dpbf16_ps(EMU_K_##W##_32 k, __m##W s, __m##W##bh a, __m##W##bh b)         \
    {                                                                                              \
        return (__m##W)EMU_BL(W, 32, k, P##_dpbf16_ps(s, a, b), EMU_Z(W));                         \
    }
EMU_W3(EMU_DPBF16, 0)
#endif
