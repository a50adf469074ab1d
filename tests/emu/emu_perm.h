/* emu_perm.h - permutations, shuffles, broadcasts, parts of vectors. */
#ifndef NB_EMU_PERM_H
#define NB_EMU_PERM_H

/* permutexvar(index, a), and permutex2var(a, index, b): the bit above the index chooses b. */
#define EMU_PX(P, W, e, R, L)                                                                      \
    EMU EMU_V_##R(W) P##_permutexvar_##e(__m##W##i index, EMU_V_##R(W) a)                          \
    {                                                                                              \
        emu_##W x = { .R = a }, n = { .i = index }, r;                                             \
        for (int j = 0; j < EMU_N(W, L); j++) r.u##L[j] = x.u##L[n.u##L[j] & (EMU_N(W, L) - 1)];   \
        return r.R;                                                                                \
    }                                                                                              \
    EMU EMU_V_##R(W) P##_mask_permutexvar_##e(EMU_V_##R(W) s, EMU_K_##W##_##L k, __m##W##i index,  \
                                              EMU_V_##R(W) a)                                      \
    {                                                                                              \
        return (EMU_V_##R(W))EMU_BL(W, L, k, P##_permutexvar_##e(index, a), s);                    \
    }                                                                                              \
    EMU EMU_V_##R(W) P##_maskz_permutexvar_##e(EMU_K_##W##_##L k, __m##W##i index, EMU_V_##R(W) a) \
    {                                                                                              \
        return (EMU_V_##R(W))EMU_BL(W, L, k, P##_permutexvar_##e(index, a), EMU_Z(W));             \
    }
#define EMU_PX2(P, W, e, R, L)                                                                     \
    EMU EMU_V_##R(W) P##_permutex2var_##e(EMU_V_##R(W) a, __m##W##i index, EMU_V_##R(W) b)         \
    {                                                                                              \
        emu_##W x = { .R = a }, y = { .R = b }, n = { .i = index }, r;                             \
        for (int j = 0; j < EMU_N(W, L); j++) {                                                    \
            const unsigned t = (unsigned)(n.u##L[j] & (2 * EMU_N(W, L) - 1));                      \
            r.u##L[j] = t < EMU_N(W, L) ? x.u##L[t] : y.u##L[t - EMU_N(W, L)];                     \
        }                                                                                          \
        return r.R;                                                                                \
    }                                                                                              \
    EMU EMU_V_##R(W) P##_mask_permutex2var_##e(EMU_V_##R(W) a, EMU_K_##W##_##L k, __m##W##i index, \
                                               EMU_V_##R(W) b)                                     \
    {                                                                                              \
        return (EMU_V_##R(W))EMU_BL(W, L, k, P##_permutex2var_##e(a, index, b), a);                \
    }                                                                                              \
    EMU EMU_V_##R(W) P##_mask2_permutex2var_##e(EMU_V_##R(W) a, __m##W##i index,                   \
                                                EMU_K_##W##_##L k, EMU_V_##R(W) b)                 \
    {                                                                                              \
        return (EMU_V_##R(W))EMU_BL(W, L, k, P##_permutex2var_##e(a, index, b), index);            \
    }                                                                                              \
    EMU EMU_V_##R(W) P##_maskz_permutex2var_##e(EMU_K_##W##_##L k, EMU_V_##R(W) a,                 \
                                                __m##W##i index, EMU_V_##R(W) b)                   \
    {                                                                                              \
        return (EMU_V_##R(W))EMU_BL(W, L, k, P##_permutex2var_##e(a, index, b), EMU_Z(W));         \
    }
EMU_W3(EMU_PX, epi8, i, 8)
EMU_W3(EMU_PX, epi16, i, 16)
EMU_PX(_mm256, 256, epi32, i, 32)
EMU_PX(_mm512, 512, epi32, i, 32)
EMU_PX(_mm256, 256, ps, f, 32)
EMU_PX(_mm512, 512, ps, f, 32)
EMU_PX(_mm256, 256, epi64, i, 64)
EMU_PX(_mm512, 512, epi64, i, 64)
EMU_PX(_mm256, 256, pd, d, 64)
EMU_PX(_mm512, 512, pd, d, 64)
EMU_W3(EMU_PX2, epi8, i, 8)
EMU_W3(EMU_PX2, epi16, i, 16)
EMU_W3(EMU_PX2, epi32, i, 32)
EMU_W3(EMU_PX2, epi64, i, 64)
EMU_W3(EMU_PX2, ps, f, 32)
EMU_W3(EMU_PX2, pd, d, 64)
#define _mm512_permutevar_epi32(index, a) _mm512_permutexvar_epi32(index, a)

/* Eight bits of b's 64 from each position that a byte of a gives, wrapping round. */
#define EMU_MSHIFT(P, W, unused)                                                                   \
    EMU __m##W##i P##_multishift_epi64_epi8(__m##W##i a, __m##W##i b)                              \
    {                                                                                              \
        emu_##W x = { .i = a }, y = { .i = b }, r;                                                 \
        for (int j = 0; j < W / 8; j++) r.u8[j] = (uint8_t)EMU_ROR(64, y.u64[j / 8], x.u8[j]);     \
        return r.i;                                                                                \
    }                                                                                              \
    EMU_MK2(P, W, multishift_epi64_epi8, i, 8)
EMU_W3(EMU_MSHIFT, 0)

/* _MM_PERM_DCBA and its like: two bits per letter. */
#define EMU_PE(p, pv, q, qv, r, rv)                                                                \
    _MM_PERM_##p##q##r##A = pv << 6 | qv << 4 | rv << 2, _MM_PERM_##p##q##r##B,                    \
    _MM_PERM_##p##q##r##C, _MM_PERM_##p##q##r##D,
#define EMU_PQ(p, pv, q, qv)                                                                       \
    EMU_PE(p, pv, q, qv, A, 0)                                                                     \
    EMU_PE(p, pv, q, qv, B, 1) EMU_PE(p, pv, q, qv, C, 2) EMU_PE(p, pv, q, qv, D, 3)
#define EMU_PP(p, pv)                                                                              \
    EMU_PQ(p, pv, A, 0) EMU_PQ(p, pv, B, 1) EMU_PQ(p, pv, C, 2) EMU_PQ(p, pv, D, 3)
typedef enum { EMU_PP(A, 0) EMU_PP(B, 1) EMU_PP(C, 2) EMU_PP(D, 3) } _MM_PERM_ENUM;

/* Shuffles by an immediate, within each 128 bits: lane j comes from a or b. */
#define EMU_SHUF(P, W, name, R, L, E)                                                              \
    EMU EMU_V_##R(W) P##_##name(EMU_V_##R(W) a, int imm)                                           \
    {                                                                                              \
        emu_##W x = { .R = a }, r;                                                                 \
        enum { n = 128 / L };                                                                      \
        for (int j = 0; j < EMU_N(W, L); j++) r.u##L[j] = x.u##L[(j & ~(n - 1)) + (E)];            \
        return r.R;                                                                                \
    }
#define EMU_SH1(name, R, L, E)                                                                     \
    EMU_SHUF(_mm512, 512, name, R, L, E)                                                           \
    EMU_SHUF(_mm256, 256, emu_##name, R, L, E)                                                     \
    EMU_SHUF(_mm, 128, emu_##name, R, L, E)                                                        \
    EMU_MK1X(_mm512, 512, name, R, L, int)                                                         \
    EMU_W2(EMU_SHM, name, R, L)
#define EMU_SHM(P, W, name, R, L)                                                                  \
    EMU EMU_V_##R(W) P##_mask_##name(EMU_V_##R(W) s, EMU_K_##W##_##L k, EMU_V_##R(W) a, int imm)   \
    {                                                                                              \
        return (EMU_V_##R(W))EMU_BL(W, L, k, P##_emu_##name(a, imm), s);                           \
    }                                                                                              \
    EMU EMU_V_##R(W) P##_maskz_##name(EMU_K_##W##_##L k, EMU_V_##R(W) a, int imm)                  \
    {                                                                                              \
        return (EMU_V_##R(W))EMU_BL(W, L, k, P##_emu_##name(a, imm), EMU_Z(W));                    \
    }
EMU_SH1(shuffle_epi32, i, 32, imm >> 2 * (j & 3) & 3)
EMU_SH1(permute_ps, f, 32, imm >> 2 * (j & 3) & 3)
EMU_SH1(permute_pd, d, 64, imm >> j & 1)
EMU_SH1(shufflelo_epi16, i, 16, (j & 7) < 4 ? imm >> 2 * (j & 3) & 3 : (j & 7))
EMU_SH1(shufflehi_epi16, i, 16, (j & 7) < 4 ? (j & 7) : 4 + (imm >> 2 * (j & 3) & 3))

#define EMU_SHUF2(P, W, name, R, L, FROM_B, E)                                                     \
    EMU EMU_V_##R(W) P##_##name(EMU_V_##R(W) a, EMU_V_##R(W) b, int imm)                           \
    {                                                                                              \
        emu_##W x = { .R = a }, y = { .R = b }, r;                                                 \
        for (int j = 0; j < EMU_N(W, L); j++) r.u##L[j] = (FROM_B) ? y.u##L[E] : x.u##L[E];        \
        return r.R;                                                                                \
    }
EMU_SHUF2(_mm512, 512, shuffle_ps, f, 32, j & 2, (j & ~3) + (imm >> 2 * (j & 3) & 3))
EMU_MK2I(_mm512, 512, shuffle_ps, f, 32)
EMU_SHUF2(_mm512, 512, shuffle_pd, d, 64, j & 1, (j & ~1) + (imm >> j & 1))
EMU_MK2I(_mm512, 512, shuffle_pd, d, 64)
/* Blocks of 128 bits: the lower half of the result from a, the upper from b. */
#define EMU_BLOCKS(P, W, name, R, L, bits)                                                         \
    EMU_SHUF2(P, W, name, R, L, j >= EMU_N(W, L) / 2,                                              \
              (imm >> bits * (j * L / 128) & (W / 128 - 1)) * (128 / L) + j % (128 / L))           \
    EMU_MK2I(P, W, name, R, L)
EMU_BLOCKS(_mm512, 512, shuffle_i32x4, i, 32, 2)
EMU_BLOCKS(_mm512, 512, shuffle_i64x2, i, 64, 2)
EMU_BLOCKS(_mm512, 512, shuffle_f32x4, f, 32, 2)
EMU_BLOCKS(_mm512, 512, shuffle_f64x2, d, 64, 2)
EMU_BLOCKS(_mm256, 256, shuffle_i32x4, i, 32, 1)
EMU_BLOCKS(_mm256, 256, shuffle_i64x2, i, 64, 1)
EMU_BLOCKS(_mm256, 256, shuffle_f32x4, f, 32, 1)
EMU_BLOCKS(_mm256, 256, shuffle_f64x2, d, 64, 1)

/* a above b, shifted right: by bytes in each 128 bits, or by lanes of the whole. */
EMU __m512i _mm512_alignr_epi8(__m512i a, __m512i b, int n)
{
    emu_512 x = { .i = a }, y = { .i = b }, r;
    for (int j = 0; j < 64; j++) {
        const int t = (j & 15) + (n & 255), base = j & ~15;
        r.u8[j] = t < 16 ? y.u8[base + t] : t < 32 ? x.u8[base + t - 16] : 0;
    }
    return r.i;
}
EMU_MK2I(_mm512, 512, alignr_epi8, i, 8)
#define EMU_ALIGNR(P, W, L)                                                                        \
    EMU __m##W##i P##_alignr_epi##L(__m##W##i a, __m##W##i b, int n)                               \
    {                                                                                              \
        emu_##W x = { .i = a }, y = { .i = b }, r;                                                 \
        n &= EMU_N(W, L) - 1;                                                                      \
        for (int j = 0; j < EMU_N(W, L); j++)                                                      \
            r.u##L[j] = j + n < EMU_N(W, L) ? y.u##L[j + n] : x.u##L[j + n - EMU_N(W, L)];         \
        return r.i;                                                                                \
    }                                                                                              \
    EMU_MK2I(P, W, alignr_epi##L, i, L)
EMU_W3(EMU_ALIGNR, 32)
EMU_W3(EMU_ALIGNR, 64)

/* Within 256 bits, by an immediate; permutevar within 128 by a vector. */
#define EMU_PERMQ(name, R)                                                                         \
    EMU EMU_V_##R(512) _mm512_##name(EMU_V_##R(512) a, int imm)                                    \
    {                                                                                              \
        emu_512 x = { .R = a }, r;                                                                 \
        for (int j = 0; j < 8; j++) r.u64[j] = x.u64[(j & ~3) + (imm >> 2 * (j & 3) & 3)];         \
        return r.R;                                                                                \
    }
EMU_PERMQ(permutex_epi64, i)
EMU_PERMQ(permutex_pd, d)
EMU_MK1X(_mm512, 512, permutex_epi64, i, 64, int)
EMU_MK1X(_mm512, 512, permutex_pd, d, 64, int)
EMU __m512 _mm512_permutevar_ps(__m512 a, __m512i index)
{
    emu_512 x = { .f = a }, n = { .i = index }, r;
    for (int j = 0; j < 16; j++) r.ps[j] = x.ps[(j & ~3) + (n.s32[j] & 3)];
    return r.f;
}
#endif
