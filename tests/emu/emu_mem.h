/* emu_mem.h - loads and stores, masked (only selected lanes are touched), broadcasts
 * from memory, compress and expand, gather and scatter.
 *
 * The aligned forms check alignment as the hardware does. */
#ifndef NB_EMU_MEM_H
#define NB_EMU_MEM_H

EMU void emu_aligned(const void *p, size_t n)
{
    if ((uintptr_t)p & (n - 1))
        emu_fault("an aligned load or store at an address that is not (#GP)");
}
#define EMU_LOAD(V, load, loadu, store, storeu)                                                    \
    EMU V loadu(const void *p)                                                                     \
    {                                                                                              \
        V r;                                                                                       \
        memcpy(&r, p, 64);                                                                         \
        return r;                                                                                  \
    }                                                                                              \
    EMU void storeu(void *p, V a)                                                                  \
    {                                                                                              \
        memcpy(p, &a, 64);                                                                         \
    }                                                                                              \
    EMU V load(const void *p)                                                                      \
    {                                                                                              \
        emu_aligned(p, 64);                                                                        \
        return loadu(p);                                                                           \
    }                                                                                              \
    EMU void store(void *p, V a)                                                                   \
    {                                                                                              \
        emu_aligned(p, 64);                                                                        \
        storeu(p, a);                                                                              \
    }
EMU_LOAD(__m512i, _mm512_load_si512, _mm512_loadu_si512, _mm512_store_si512, _mm512_storeu_si512)
EMU_LOAD(__m512, _mm512_load_ps, _mm512_loadu_ps, _mm512_store_ps, _mm512_storeu_ps)
EMU_LOAD(__m512d, _mm512_load_pd, _mm512_loadu_pd, _mm512_store_pd, _mm512_storeu_pd)
EMU_LOAD(__m512i, _mm512_load_epi32, _mm512_loadu_epi32, _mm512_store_epi32, _mm512_storeu_epi32)
EMU_LOAD(__m512i, _mm512_load_epi64, _mm512_loadu_epi64, _mm512_store_epi64, _mm512_storeu_epi64)
#define _mm512_loadu_epi8(p) _mm512_loadu_si512(p)
#define _mm512_loadu_epi16(p) _mm512_loadu_si512(p)
#define _mm512_storeu_epi8(p, a) _mm512_storeu_si512(p, a)
#define _mm512_storeu_epi16(p, a) _mm512_storeu_si512(p, a)
#define _mm512_stream_load_si512(p) _mm512_load_si512(p)
#define _mm512_stream_si512(p, a) _mm512_store_si512(p, a)
#define _mm512_stream_ps(p, a) _mm512_store_ps(p, a)
#define _mm512_stream_pd(p, a) _mm512_store_pd(p, a)
#define _mm256_loadu_epi8(p) _mm256_loadu_si256((const __m256i_u *)(p))
#define _mm256_loadu_epi16(p) _mm256_loadu_si256((const __m256i_u *)(p))
#define _mm256_loadu_epi32(p) _mm256_loadu_si256((const __m256i_u *)(p))
#define _mm256_loadu_epi64(p) _mm256_loadu_si256((const __m256i_u *)(p))
#define _mm_loadu_epi8(p) _mm_loadu_si128((const __m128i_u *)(p))
#define _mm_loadu_epi16(p) _mm_loadu_si128((const __m128i_u *)(p))
#define _mm_loadu_epi32(p) _mm_loadu_si128((const __m128i_u *)(p))
#define _mm_loadu_epi64(p) _mm_loadu_si128((const __m128i_u *)(p))
#define _mm256_storeu_epi8(p, a) _mm256_storeu_si256((__m256i_u *)(p), a)
#define _mm256_storeu_epi16(p, a) _mm256_storeu_si256((__m256i_u *)(p), a)
#define _mm256_storeu_epi32(p, a) _mm256_storeu_si256((__m256i_u *)(p), a)
#define _mm256_storeu_epi64(p, a) _mm256_storeu_si256((__m256i_u *)(p), a)
#define _mm_storeu_epi8(p, a) _mm_storeu_si128((__m128i_u *)(p), a)
#define _mm_storeu_epi16(p, a) _mm_storeu_si128((__m128i_u *)(p), a)
#define _mm_storeu_epi32(p, a) _mm_storeu_si128((__m128i_u *)(p), a)
#define _mm_storeu_epi64(p, a) _mm_storeu_si128((__m128i_u *)(p), a)

/* A lane at any address. */
#define EMU_AT(L, p, j) ((const struct emu_at##L *)(p) + (j))->v
#define EMU_ATW(L, p, j) ((struct emu_at##L *)(p) + (j))->v
#define EMU_ATTYPE(L)                                                                              \
    struct emu_at##L {                                                                             \
        uint##L##_t v;                                                                             \
    } __attribute__((__packed__, __may_alias__));
EMU_ATTYPE(8)
EMU_ATTYPE(16)
EMU_ATTYPE(32)
EMU_ATTYPE(64)

#define EMU_MLOAD(P, W, e, R, L)                                                                   \
    EMU EMU_V_##R(W) P##_mask_loadu_##e(EMU_V_##R(W) s, EMU_K_##W##_##L k, const void *p)          \
    {                                                                                              \
        emu_##W r = { .R = s };                                                                    \
        for (int j = 0; j < EMU_N(W, L); j++)                                                      \
            if (k >> j & 1) r.u##L[j] = EMU_AT(L, p, j);                                           \
        return r.R;                                                                                \
    }                                                                                              \
    EMU EMU_V_##R(W) P##_maskz_loadu_##e(EMU_K_##W##_##L k, const void *p)                         \
    {                                                                                              \
        return P##_mask_loadu_##e((EMU_V_##R(W))EMU_Z(W), k, p);                                   \
    }                                                                                              \
    EMU void P##_mask_storeu_##e(void *p, EMU_K_##W##_##L k, EMU_V_##R(W) a)                       \
    {                                                                                              \
        const emu_##W x = { .R = a };                                                              \
        for (int j = 0; j < EMU_N(W, L); j++)                                                      \
            if (k >> j & 1) EMU_ATW(L, p, j) = x.u##L[j];                                          \
    }                                                                                              \
    EMU void P##_mask_compressstoreu_##e(void *p, EMU_K_##W##_##L k, EMU_V_##R(W) a)               \
    {                                                                                              \
        const emu_##W x = { .R = a };                                                              \
        for (int j = 0, n = 0; j < EMU_N(W, L); j++)                                               \
            if (k >> j & 1) EMU_ATW(L, p, n++) = x.u##L[j];                                        \
    }                                                                                              \
    EMU EMU_V_##R(W) P##_mask_compress_##e(EMU_V_##R(W) s, EMU_K_##W##_##L k, EMU_V_##R(W) a)      \
    {                                                                                              \
        const emu_##W x = { .R = a };                                                              \
        emu_##W r = { .R = s };                                                                    \
        for (int j = 0, n = 0; j < EMU_N(W, L); j++)                                               \
            if (k >> j & 1) r.u##L[n++] = x.u##L[j];                                               \
        return r.R;                                                                                \
    }                                                                                              \
    EMU EMU_V_##R(W) P##_mask_expand_##e(EMU_V_##R(W) s, EMU_K_##W##_##L k, EMU_V_##R(W) a)        \
    {                                                                                              \
        const emu_##W x = { .R = a };                                                              \
        emu_##W r = { .R = s };                                                                    \
        for (int j = 0, n = 0; j < EMU_N(W, L); j++)                                               \
            if (k >> j & 1) r.u##L[j] = x.u##L[n++];                                               \
        return r.R;                                                                                \
    }                                                                                              \
    EMU EMU_V_##R(W) P##_mask_expandloadu_##e(EMU_V_##R(W) s, EMU_K_##W##_##L k, const void *p)    \
    {                                                                                              \
        emu_##W r = { .R = s };                                                                    \
        for (int j = 0, n = 0; j < EMU_N(W, L); j++)                                               \
            if (k >> j & 1) r.u##L[j] = EMU_AT(L, p, n++);                                         \
        return r.R;                                                                                \
    }                                                                                              \
    EMU EMU_V_##R(W) P##_maskz_compress_##e(EMU_K_##W##_##L k, EMU_V_##R(W) a)                     \
    {                                                                                              \
        return P##_mask_compress_##e((EMU_V_##R(W))EMU_Z(W), k, a);                                \
    }                                                                                              \
    EMU EMU_V_##R(W) P##_maskz_expand_##e(EMU_K_##W##_##L k, EMU_V_##R(W) a)                       \
    {                                                                                              \
        return P##_mask_expand_##e((EMU_V_##R(W))EMU_Z(W), k, a);                                  \
    }                                                                                              \
    EMU EMU_V_##R(W) P##_maskz_expandloadu_##e(EMU_K_##W##_##L k, const void *p)                   \
    {                                                                                              \
        return P##_mask_expandloadu_##e((EMU_V_##R(W))EMU_Z(W), k, p);                             \
    }
EMU_W3(EMU_MLOAD, epi8, i, 8)
EMU_W3(EMU_MLOAD, epi16, i, 16)
EMU_W3(EMU_MLOAD, epi32, i, 32)
EMU_W3(EMU_MLOAD, epi64, i, 64)
EMU_W3(EMU_MLOAD, ps, f, 32)
EMU_W3(EMU_MLOAD, pd, d, 64)
/* The aligned masked forms. */
#define EMU_MLOADA(P, W, e, R, L)                                                                  \
    EMU EMU_V_##R(W) P##_mask_load_##e(EMU_V_##R(W) s, EMU_K_##W##_##L k, const void *p)           \
    {                                                                                              \
        emu_aligned(p, W / 8);                                                                     \
        return P##_mask_loadu_##e(s, k, p);                                                        \
    }                                                                                              \
    EMU EMU_V_##R(W) P##_maskz_load_##e(EMU_K_##W##_##L k, const void *p)                          \
    {                                                                                              \
        emu_aligned(p, W / 8);                                                                     \
        return P##_maskz_loadu_##e(k, p);                                                          \
    }                                                                                              \
    EMU void P##_mask_store_##e(void *p, EMU_K_##W##_##L k, EMU_V_##R(W) a)                        \
    {                                                                                              \
        emu_aligned(p, W / 8);                                                                     \
        P##_mask_storeu_##e(p, k, a);                                                              \
    }
EMU_W3(EMU_MLOADA, epi32, i, 32)
EMU_W3(EMU_MLOADA, epi64, i, 64)
EMU_W3(EMU_MLOADA, ps, f, 32)
EMU_W3(EMU_MLOADA, pd, d, 64)

/* Gather and scatter: X lanes of index bits L, data bits D. */
#define EMU_GATHER(name, V, IV, L, D, N, K)                                                        \
    EMU V _mm512_mask_##name(V s, K k, IV index, const void *p, int scale)                         \
    {                                                                                              \
        int##L##_t x[N];                                                                           \
        uint##D##_t r[N];                                                                          \
        memcpy(x, &index, sizeof x);                                                               \
        memcpy(r, &s, sizeof r);                                                                   \
        for (int j = 0; j < N; j++)                                                                \
            if (k >> j & 1) r[j] = EMU_AT(D, (const char *)p + (int64_t)x[j] * scale, 0);          \
        memcpy(&s, r, sizeof r);                                                                   \
        return s;                                                                                  \
    }                                                                                              \
    EMU V _mm512_##name(IV index, const void *p, int scale)                                        \
    {                                                                                              \
        V s;                                                                                       \
        memset(&s, 0, sizeof s);                                                                   \
        return _mm512_mask_##name(s, (K)~0ull, index, p, scale);                                   \
    }
EMU_GATHER(i32gather_ps, __m512, __m512i, 32, 32, 16, __mmask16)
EMU_GATHER(i32gather_epi32, __m512i, __m512i, 32, 32, 16, __mmask16)
EMU_GATHER(i32gather_pd, __m512d, __m256i, 32, 64, 8, __mmask8)
EMU_GATHER(i32gather_epi64, __m512i, __m256i, 32, 64, 8, __mmask8)
EMU_GATHER(i64gather_ps, __m256, __m512i, 64, 32, 8, __mmask8)
EMU_GATHER(i64gather_epi32, __m256i, __m512i, 64, 32, 8, __mmask8)
EMU_GATHER(i64gather_pd, __m512d, __m512i, 64, 64, 8, __mmask8)
EMU_GATHER(i64gather_epi64, __m512i, __m512i, 64, 64, 8, __mmask8)
#define EMU_SCATTER(name, V, IV, L, D, N, K)                                                       \
    EMU void _mm512_mask_##name(void *p, K k, IV index, V a, int scale)                            \
    {                                                                                              \
        int##L##_t x[N];                                                                           \
        uint##D##_t v[N];                                                                          \
        memcpy(x, &index, sizeof x);                                                               \
        memcpy(v, &a, sizeof v);                                                                   \
        for (int j = 0; j < N; j++)                                                                \
            if (k >> j & 1) EMU_ATW(D, (char *)p + (int64_t)x[j] * scale, 0) = v[j];               \
    }                                                                                              \
    EMU void _mm512_##name(void *p, IV index, V a, int scale)                                      \
    {                                                                                              \
        _mm512_mask_##name(p, (K)~0ull, index, a, scale);                                          \
    }
EMU_SCATTER(i32scatter_ps, __m512, __m512i, 32, 32, 16, __mmask16)
EMU_SCATTER(i32scatter_epi32, __m512i, __m512i, 32, 32, 16, __mmask16)
EMU_SCATTER(i64scatter_ps, __m256, __m512i, 64, 32, 8, __mmask8)
#endif
