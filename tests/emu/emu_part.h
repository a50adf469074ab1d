/* emu_part.h - broadcasts, insertion and extraction of parts of vectors. */
#ifndef NB_EMU_PART_H
#define NB_EMU_PART_H

/* Broadcasts of lane 0, or of a group of lanes. */
#define EMU_BCAST(P, W, name, R, V, L, n)                                                          \
    EMU EMU_V_##R(W) P##_##name(V a)                                                               \
    {                                                                                              \
        union {                                                                                    \
            V v;                                                                                   \
            uint##L##_t m[sizeof(V) * 8 / L];                                                      \
        } x = { .v = a };                                                                          \
        emu_##W r;                                                                                 \
        for (int j = 0; j < EMU_N(W, L); j++) r.u##L[j] = x.m[j % n];                              \
        return r.R;                                                                                \
    }
#define EMU_BCASTM(P, W, name, R, V, L)                                                            \
    EMU EMU_V_##R(W) P##_mask_##name(EMU_V_##R(W) s, EMU_K_##W##_##L k, V a)                       \
    {                                                                                              \
        return (EMU_V_##R(W))EMU_BL(W, L, k, P##_##name(a), s);                                    \
    }                                                                                              \
    EMU EMU_V_##R(W) P##_maskz_##name(EMU_K_##W##_##L k, V a)                                      \
    {                                                                                              \
        return (EMU_V_##R(W))EMU_BL(W, L, k, P##_##name(a), EMU_Z(W));                             \
    }
#define EMU_BC512(name, R, V, L, n)                                                                \
    EMU_BCAST(_mm512, 512, name, R, V, L, n) EMU_BCASTM(_mm512, 512, name, R, V, L)
#define EMU_BC256(name, R, V, L, n)                                                                \
    EMU_BCAST(_mm256, 256, name, R, V, L, n) EMU_BCASTM(_mm256, 256, name, R, V, L)
EMU_BC512(broadcastb_epi8, i, __m128i, 8, 1)
EMU_BC512(broadcastw_epi16, i, __m128i, 16, 1)
EMU_BC512(broadcastd_epi32, i, __m128i, 32, 1)
EMU_BC512(broadcastq_epi64, i, __m128i, 64, 1)
EMU_BC512(broadcastss_ps, f, __m128, 32, 1)
EMU_BC512(broadcastsd_pd, d, __m128d, 64, 1)
EMU_BC512(broadcast_i32x4, i, __m128i, 32, 4)
EMU_BC512(broadcast_i64x2, i, __m128i, 64, 2)
EMU_BC512(broadcast_i32x8, i, __m256i, 32, 8)
EMU_BC512(broadcast_i64x4, i, __m256i, 64, 4)
EMU_BC512(broadcast_i32x2, i, __m128i, 32, 2)
EMU_BC512(broadcast_f32x2, f, __m128, 32, 2)
EMU_BC512(broadcast_f32x4, f, __m128, 32, 4)
EMU_BC512(broadcast_f64x2, d, __m128d, 64, 2)
EMU_BC512(broadcast_f32x8, f, __m256, 32, 8)
EMU_BC512(broadcast_f64x4, d, __m256d, 64, 4)
EMU_BC256(broadcast_i32x4, i, __m128i, 32, 4)
EMU_BC256(broadcast_f32x4, f, __m128, 32, 4)
EMU_BC256(broadcast_i64x2, i, __m128i, 64, 2)
EMU_W2(EMU_BCASTM, broadcastb_epi8, i, __m128i, 8)
EMU_W2(EMU_BCASTM, broadcastw_epi16, i, __m128i, 16)
EMU_W2(EMU_BCASTM, broadcastd_epi32, i, __m128i, 32)
EMU_W2(EMU_BCASTM, broadcastss_ps, f, __m128, 32)

/* Parts: extract and insert part n. */
#define EMU_PART(name, P, W, T, part)                                                              \
    EMU part P##_extract##name(T a, int n)                                                         \
    {                                                                                              \
        part r;                                                                                    \
        memcpy(&r, (char *)&a + sizeof r * ((unsigned)n % (sizeof a / sizeof r)), sizeof r);       \
        return r;                                                                                  \
    }                                                                                              \
    EMU T P##_insert##name(T a, part b, int n)                                                     \
    {                                                                                              \
        memcpy((char *)&a + sizeof b * ((unsigned)n % (sizeof a / sizeof b)), &b, sizeof b);       \
        return a;                                                                                  \
    }
#define _mm512_extracti32x4_epi32 _mm512_extracti32x4
#define _mm512_extracti64x2_epi64 _mm512_extracti64x2
#define _mm512_extracti32x8_epi32 _mm512_extracti32x8
#define _mm512_extracti64x4_epi64 _mm512_extracti64x4
#define _mm512_extractf32x4_ps _mm512_extractf32x4
#define _mm512_extractf64x2_pd _mm512_extractf64x2
#define _mm512_extractf32x8_ps _mm512_extractf32x8
#define _mm512_extractf64x4_pd _mm512_extractf64x4
#define _mm256_extracti32x4_epi32 _mm256_extracti32x4
#define _mm256_extracti64x2_epi64 _mm256_extracti64x2
#define _mm256_extractf32x4_ps _mm256_extractf32x4
EMU_PART(i32x4, _mm512, 512, __m512i, __m128i)
EMU_PART(i64x2, _mm512, 512, __m512i, __m128i)
EMU_PART(i32x8, _mm512, 512, __m512i, __m256i)
EMU_PART(i64x4, _mm512, 512, __m512i, __m256i)
EMU_PART(f32x4, _mm512, 512, __m512, __m128)
EMU_PART(f64x2, _mm512, 512, __m512d, __m128d)
EMU_PART(f32x8, _mm512, 512, __m512, __m256)
EMU_PART(f64x4, _mm512, 512, __m512d, __m256d)
EMU_PART(i32x4, _mm256, 256, __m256i, __m128i)
EMU_PART(i64x2, _mm256, 256, __m256i, __m128i)
EMU_PART(f32x4, _mm256, 256, __m256, __m128)
EMU int _mm512_cvtsi512_si32(__m512i a)
{
    return ((emu_v16si)a)[0];
}
EMU float _mm512_cvtss_f32(__m512 a)
{
    return a[0];
}
EMU double _mm512_cvtsd_f64(__m512d a)
{
    return a[0];
}
#endif
