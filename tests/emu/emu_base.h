/* emu_base.h - types of AVX-512, vectors as arrays, blends, casts, constants.
 *
 * Families are macros over a prefix P (_mm, _mm256, _mm512) and a width W in bits;
 * EMU_W3 and EMU_W2 instantiate for all widths or for those that AVX2 lacks no
 * unmasked form of.  A masked form is the unmasked one and a blend. */
#ifndef NB_EMU_BASE_H
#define NB_EMU_BASE_H
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef float __m512 __attribute__((__vector_size__(64), __may_alias__));
typedef double __m512d __attribute__((__vector_size__(64), __may_alias__));
typedef long long __m512i __attribute__((__vector_size__(64), __may_alias__));
typedef float __m512_u __attribute__((__vector_size__(64), __may_alias__, __aligned__(1)));
typedef double __m512d_u __attribute__((__vector_size__(64), __may_alias__, __aligned__(1)));
typedef long long __m512i_u __attribute__((__vector_size__(64), __may_alias__, __aligned__(1)));
typedef short __m512bh __attribute__((__vector_size__(64), __may_alias__));
typedef short __m256bh __attribute__((__vector_size__(32), __may_alias__));
typedef short __m128bh __attribute__((__vector_size__(16), __may_alias__));
typedef unsigned char __mmask8;
typedef unsigned short __mmask16;
typedef unsigned int __mmask32;
typedef unsigned long long __mmask64;

/* Vectors as arrays. */
#define EMU_UNION(W, N)                                                                            \
    typedef union emu_##W {                                                                        \
        __m##W##i i;                                                                               \
        __m##W f;                                                                                  \
        __m##W##d d;                                                                               \
        int8_t s8[N];                                                                              \
        uint8_t u8[N];                                                                             \
        int16_t s16[N / 2];                                                                        \
        uint16_t u16[N / 2];                                                                       \
        int32_t s32[N / 4];                                                                        \
        uint32_t u32[N / 4];                                                                       \
        int64_t s64[N / 8];                                                                        \
        uint64_t u64[N / 8];                                                                       \
        float ps[N / 4];                                                                           \
        double pd[N / 8];                                                                          \
        __m128i q[N / 16];                                                                         \
        EMU_HALF_##W                                                                               \
    } emu_##W;
#define EMU_HALF_128
#define EMU_HALF_256
#define EMU_HALF_512                                                                               \
    __m256i hi[2];                                                                                 \
    __m256 hf[2];                                                                                  \
    __m256d hd[2];
EMU_UNION(128, 16)
EMU_UNION(256, 32)
EMU_UNION(512, 64)

#define EMU static inline __attribute__((__unused__))
#define EMU_FN static __attribute__((__noinline__, __unused__))

/* Widths. */
#define EMU_W3(M, ...)                                                                             \
    M(_mm, 128, __VA_ARGS__) M(_mm256, 256, __VA_ARGS__) M(_mm512, 512, __VA_ARGS__)
#define EMU_W2(M, ...) M(_mm, 128, __VA_ARGS__) M(_mm256, 256, __VA_ARGS__)
/* Vector types by kind: i integers, f floats, d doubles. */
#define EMU_V_i(W) __m##W##i
#define EMU_V_f(W) __m##W
#define EMU_V_d(W) __m##W##d
/* Mask types by width and lane bits; number of lanes. */
#define EMU_K_128_8 __mmask16
#define EMU_K_128_16 __mmask8
#define EMU_K_128_32 __mmask8
#define EMU_K_128_64 __mmask8
#define EMU_K_256_8 __mmask32
#define EMU_K_256_16 __mmask16
#define EMU_K_256_32 __mmask8
#define EMU_K_256_64 __mmask8
#define EMU_K_512_8 __mmask64
#define EMU_K_512_16 __mmask32
#define EMU_K_512_32 __mmask16
#define EMU_K_512_64 __mmask8
#define EMU_N(W, L) ((W) / (L))

/* An instruction that faults here would fault there: say why, then raise SIGILL. */
EMU_FN void emu_fault(const char *what)
{
    fprintf(stderr, "emulation: %s\n", what);
    fflush(stderr);
    __builtin_trap();
}

/* yes where the bit of k is set, else no. */
#define EMU_BLEND(P, W, L)                                                                         \
    EMU __m##W##i emu_blend_##W##_##L(EMU_K_##W##_##L k, __m##W##i yes, __m##W##i no)              \
    {                                                                                              \
        emu_##W y = { .i = yes }, r = { .i = no };                                                 \
        for (int j = 0; j < EMU_N(W, L); j++) r.u##L[j] = (k >> j & 1) ? y.u##L[j] : r.u##L[j];    \
        return r.i;                                                                                \
    }
EMU_W3(EMU_BLEND, 8)
EMU_W3(EMU_BLEND, 16)
EMU_W3(EMU_BLEND, 32)
EMU_W3(EMU_BLEND, 64)

/* Masked forms of P_name with 1, 2, 3 vectors and (I) an int at the end; R: kind of the
 * result, A: kind of the operands. */
#define EMU_BL(W, L, k, yes, no) emu_blend_##W##_##L(k, (__m##W##i)(yes), (__m##W##i)(no))
#define EMU_Z(W) ((__m##W##i){ 0 })
#define EMU_MK1(P, W, name, R, A, L)                                                               \
    EMU EMU_V_##R(W) P##_mask_##name(EMU_V_##R(W) s, EMU_K_##W##_##L k, EMU_V_##A(W) a)            \
    {                                                                                              \
        return (EMU_V_##R(W))EMU_BL(W, L, k, P##_##name(a), s);                                    \
    }                                                                                              \
    EMU EMU_V_##R(W) P##_maskz_##name(EMU_K_##W##_##L k, EMU_V_##A(W) a)                           \
    {                                                                                              \
        return (EMU_V_##R(W))EMU_BL(W, L, k, P##_##name(a), EMU_Z(W));                             \
    }
#define EMU_MK2(P, W, name, R, L)                                                                  \
    EMU EMU_V_##R(W)                                                                               \
        P##_mask_##name(EMU_V_##R(W) s, EMU_K_##W##_##L k, EMU_V_##R(W) a, EMU_V_##R(W) b)         \
    {                                                                                              \
        return (EMU_V_##R(W))EMU_BL(W, L, k, P##_##name(a, b), s);                                 \
    }                                                                                              \
    EMU EMU_V_##R(W) P##_maskz_##name(EMU_K_##W##_##L k, EMU_V_##R(W) a, EMU_V_##R(W) b)           \
    {                                                                                              \
        return (EMU_V_##R(W))EMU_BL(W, L, k, P##_##name(a, b), EMU_Z(W));                          \
    }
/* The same where the last operand is of another type T (control vector, count, immediate). */
#define EMU_MK1X(P, W, name, R, L, T)                                                              \
    EMU EMU_V_##R(W) P##_mask_##name(EMU_V_##R(W) s, EMU_K_##W##_##L k, EMU_V_##R(W) a, T x)       \
    {                                                                                              \
        return (EMU_V_##R(W))EMU_BL(W, L, k, P##_##name(a, x), s);                                 \
    }                                                                                              \
    EMU EMU_V_##R(W) P##_maskz_##name(EMU_K_##W##_##L k, EMU_V_##R(W) a, T x)                      \
    {                                                                                              \
        return (EMU_V_##R(W))EMU_BL(W, L, k, P##_##name(a, x), EMU_Z(W));                          \
    }
#define EMU_MK2I(P, W, name, R, L)                                                                 \
    EMU EMU_V_##R(W) P##_mask_##name(EMU_V_##R(W) s, EMU_K_##W##_##L k, EMU_V_##R(W) a,            \
                                     EMU_V_##R(W) b, int imm)                                      \
    {                                                                                              \
        return (EMU_V_##R(W))EMU_BL(W, L, k, P##_##name(a, b, imm), s);                            \
    }                                                                                              \
    EMU EMU_V_##R(W) P##_maskz_##name(EMU_K_##W##_##L k, EMU_V_##R(W) a, EMU_V_##R(W) b, int imm)  \
    {                                                                                              \
        return (EMU_V_##R(W))EMU_BL(W, L, k, P##_##name(a, b, imm), EMU_Z(W));                     \
    }
/* 512 bits from AVX2's instruction on the two halves. */
#define EMU_HALVES1(name, R, A, L)                                                                 \
    EMU EMU_V_##R(512) _mm512_##name(EMU_V_##A(512) a)                                             \
    {                                                                                              \
        emu_512 x = { .A = a }, r;                                                                 \
        for (int j = 0; j < 2; j++) r.h##R[j] = _mm256_##name(x.h##A[j]);                          \
        return r.R;                                                                                \
    }
#define EMU_HALVES2(name, R, L)                                                                    \
    EMU EMU_V_##R(512) _mm512_##name(EMU_V_##R(512) a, EMU_V_##R(512) b)                           \
    {                                                                                              \
        emu_512 x = { .R = a }, y = { .R = b }, r;                                                 \
        for (int j = 0; j < 2; j++) r.h##R[j] = _mm256_##name(x.h##R[j], y.h##R[j]);               \
        return r.R;                                                                                \
    }
/* With all masked forms. */
#define EMU_H1(name, R, A, L) EMU_HALVES1(name, R, A, L) EMU_W3(EMU_MK1, name, R, A, L)
#define EMU_H2(name, R, L) EMU_HALVES2(name, R, L) EMU_W3(EMU_MK2, name, R, L)
/* By lanes, unmasked and masked: E is an expression of A and B, lanes of union member m. */
#define EMU_LANE1(P, W, name, R, L, m, E)                                                          \
    EMU EMU_V_##R(W) P##_##name(EMU_V_##R(W) a)                                                    \
    {                                                                                              \
        emu_##W x = { .R = a }, r;                                                                 \
        for (int j = 0; j < EMU_N(W, L); j++) {                                                    \
            const __typeof__(x.m[0]) A = x.m[j];                                                   \
            r.m[j] = (__typeof__(A))(E);                                                           \
        }                                                                                          \
        return r.R;                                                                                \
    }
#define EMU_LANE2(P, W, name, R, L, m, E)                                                          \
    EMU EMU_V_##R(W) P##_##name(EMU_V_##R(W) a, EMU_V_##R(W) b)                                    \
    {                                                                                              \
        emu_##W x = { .R = a }, y = { .R = b }, r;                                                 \
        for (int j = 0; j < EMU_N(W, L); j++) {                                                    \
            const __typeof__(x.m[0]) A = x.m[j], B = y.m[j];                                       \
            r.m[j] = (__typeof__(A))(E);                                                           \
        }                                                                                          \
        return r.R;                                                                                \
    }
#define EMU_L1(name, R, L, m, E) EMU_W3(EMU_LANE1, name, R, L, m, E) EMU_W3(EMU_MK1, name, R, R, L)
#define EMU_L2(name, R, L, m, E) EMU_W3(EMU_LANE2, name, R, L, m, E) EMU_W3(EMU_MK2, name, R, L)
#endif
