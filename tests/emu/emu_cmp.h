/* emu_cmp.h - compares and tests that give masks. */
#ifndef NB_EMU_CMP_H
#define NB_EMU_CMP_H

#ifndef _MM_CMPINT_EQ
enum {
    _MM_CMPINT_EQ,
    _MM_CMPINT_LT,
    _MM_CMPINT_LE,
    _MM_CMPINT_UNUSED,
    _MM_CMPINT_NE,
    _MM_CMPINT_NLT,
    _MM_CMPINT_NLE,
};
#define _MM_CMPINT_GE _MM_CMPINT_NLT
#define _MM_CMPINT_GT _MM_CMPINT_NLE
#endif
typedef int _MM_CMPINT_ENUM;

/* Integers: m is the lane's member, e its name. */
#define EMU_CMPN(P, W, name, e, m, L, E)                                                           \
    EMU EMU_K_##W##_##L P##_##name##_##e##_mask(__m##W##i a, __m##W##i b)                          \
    {                                                                                              \
        emu_##W x = { .i = a }, y = { .i = b };                                                    \
        uint64_t k = 0;                                                                            \
        for (int j = 0; j < EMU_N(W, L); j++) {                                                    \
            const __typeof__(x.m[0]) A = x.m[j], B = y.m[j];                                       \
            k |= (uint64_t)(E) << j;                                                               \
        }                                                                                          \
        return (EMU_K_##W##_##L)k;                                                                 \
    }                                                                                              \
    EMU EMU_K_##W##_##L P##_mask_##name##_##e##_mask(EMU_K_##W##_##L k, __m##W##i a, __m##W##i b)  \
    {                                                                                              \
        return k & P##_##name##_##e##_mask(a, b);                                                  \
    }
#define EMU_CMPS(P, W, e, m, L)                                                                    \
    EMU_CMPN(P, W, cmpeq, e, m, L, A == B)                                                         \
    EMU_CMPN(P, W, cmpneq, e, m, L, A != B)                                                        \
    EMU_CMPN(P, W, cmplt, e, m, L, A < B)                                                          \
    EMU_CMPN(P, W, cmple, e, m, L, A <= B)                                                         \
    EMU_CMPN(P, W, cmpgt, e, m, L, A > B)                                                          \
    EMU_CMPN(P, W, cmpge, e, m, L, A >= B)                                                         \
    EMU EMU_K_##W##_##L P##_cmp_##e##_mask(__m##W##i a, __m##W##i b, int op)                       \
    {                                                                                              \
        switch (op & 7) {                                                                          \
        case 0: return P##_cmpeq_##e##_mask(a, b);                                                 \
        case 1: return P##_cmplt_##e##_mask(a, b);                                                 \
        case 2: return P##_cmple_##e##_mask(a, b);                                                 \
        case 3: return 0;                                                                          \
        case 4: return P##_cmpneq_##e##_mask(a, b);                                                \
        case 5: return P##_cmpge_##e##_mask(a, b);                                                 \
        case 6: return P##_cmpgt_##e##_mask(a, b);                                                 \
        default: return (EMU_K_##W##_##L)((2ull << (EMU_N(W, L) - 1)) - 1);                        \
        }                                                                                          \
    }                                                                                              \
    EMU EMU_K_##W##_##L P##_mask_cmp_##e##_mask(EMU_K_##W##_##L k, __m##W##i a, __m##W##i b,       \
                                                int op)                                            \
    {                                                                                              \
        return k & P##_cmp_##e##_mask(a, b, op);                                                   \
    }
EMU_W3(EMU_CMPS, epi8, s8, 8)
EMU_W3(EMU_CMPS, epu8, u8, 8)
EMU_W3(EMU_CMPS, epi16, s16, 16)
EMU_W3(EMU_CMPS, epu16, u16, 16)
EMU_W3(EMU_CMPS, epi32, s32, 32)
EMU_W3(EMU_CMPS, epu32, u32, 32)
EMU_W3(EMU_CMPS, epi64, s64, 64)
EMU_W3(EMU_CMPS, epu64, u64, 64)
EMU_W3(EMU_CMPN, test, epi8, u8, 8, (A & B) != 0)
EMU_W3(EMU_CMPN, test, epi16, u16, 16, (A & B) != 0)
EMU_W3(EMU_CMPN, test, epi32, u32, 32, (A & B) != 0)
EMU_W3(EMU_CMPN, test, epi64, u64, 64, (A & B) != 0)
EMU_W3(EMU_CMPN, testn, epi8, u8, 8, (A & B) == 0)
EMU_W3(EMU_CMPN, testn, epi16, u16, 16, (A & B) == 0)
EMU_W3(EMU_CMPN, testn, epi32, u32, 32, (A & B) == 0)
EMU_W3(EMU_CMPN, testn, epi64, u64, 64, (A & B) == 0)

/* Floats.  Of the 32 predicates the lower three bits with bit 3 name the relation and
 * what NaN gives; bit 4 only chooses which of them signal. */
#define EMU_RELATION(A, B, op) emu_relation((A) < (B), (A) == (B), (A) > (B), op)
EMU int emu_relation(int lt, int eq, int gt, int op)
{
    const int nan = !(lt || eq || gt);
    switch (op & 15) {
    case 0: return eq;           /* EQ_OQ  */
    case 1: return lt;           /* LT_OS  */
    case 2: return lt || eq;     /* LE_OS  */
    case 3: return nan;          /* UNORD  */
    case 4: return !eq;          /* NEQ_UQ */
    case 5: return !lt;          /* NLT_US */
    case 6: return !(lt || eq);  /* NLE_US */
    case 7: return !nan;         /* ORD    */
    case 8: return eq || nan;    /* EQ_UQ  */
    case 9: return !(gt || eq);  /* NGE_US */
    case 10: return !gt;         /* NGT_US */
    case 11: return 0;           /* FALSE  */
    case 12: return !eq && !nan; /* NEQ_OQ */
    case 13: return gt || eq;    /* GE_OS  */
    case 14: return gt;          /* GT_OS  */
    default: return 1;           /* TRUE   */
    }
}
#define EMU_CMPF(P, W, e, R, L)                                                                    \
    EMU EMU_K_##W##_##L P##_cmp_##e##_mask(EMU_V_##R(W) a, EMU_V_##R(W) b, int op)                 \
    {                                                                                              \
        emu_##W x = { .R = a }, y = { .R = b };                                                    \
        uint64_t k = 0;                                                                            \
        for (int j = 0; j < EMU_N(W, L); j++)                                                      \
            k |= (uint64_t)EMU_RELATION(x.e[j], y.e[j], op) << j;                                  \
        return (EMU_K_##W##_##L)k;                                                                 \
    }                                                                                              \
    EMU EMU_K_##W##_##L P##_mask_cmp_##e##_mask(EMU_K_##W##_##L k, EMU_V_##R(W) a, EMU_V_##R(W) b, \
                                                int op)                                            \
    {                                                                                              \
        return k & P##_cmp_##e##_mask(a, b, op);                                                   \
    }
EMU_W3(EMU_CMPF, ps, f, 32)
EMU_W3(EMU_CMPF, pd, d, 64)
#define EMU_CMPFN(name, op)                                                                        \
    EMU __mmask16 _mm512_##name##_ps_mask(__m512 a, __m512 b)                                      \
    {                                                                                              \
        return _mm512_cmp_ps_mask(a, b, op);                                                       \
    }                                                                                              \
    EMU __mmask8 _mm512_##name##_pd_mask(__m512d a, __m512d b)                                     \
    {                                                                                              \
        return _mm512_cmp_pd_mask(a, b, op);                                                       \
    }
EMU_CMPFN(cmpeq, 0)
EMU_CMPFN(cmplt, 1)
EMU_CMPFN(cmple, 2)
EMU_CMPFN(cmpunord, 3)
EMU_CMPFN(cmpneq, 4)
EMU_CMPFN(cmpnlt, 5)
EMU_CMPFN(cmpnle, 6)
EMU_CMPFN(cmpord, 7)

/* vfpclass: one bit of imm per class. */
#define EMU_FPCLASS(P, W, e, R, L, mant)                                                           \
    EMU EMU_K_##W##_##L P##_fpclass_##e##_mask(EMU_V_##R(W) a, int imm)                            \
    {                                                                                              \
        emu_##W x = { .R = a };                                                                    \
        uint64_t k = 0;                                                                            \
        for (int j = 0; j < EMU_N(W, L); j++) {                                                    \
            const uint64_t bits = x.u##L[j], frac = bits & ((1ull << mant) - 1);                   \
            const uint64_t top = (1ull << (L - 1 - mant)) - 1, ex = bits >> mant & top;            \
            const int neg = (int)(bits >> (L - 1) & 1), nan = ex == top && frac;                   \
            const int quiet = nan && frac >> (mant - 1), zero = !ex && !frac;                      \
            const int inf = ex == top && !frac, den = !ex && frac;                                 \
            const int is = quiet | (zero && !neg) << 1 | (zero && neg) << 2 | (inf && !neg) << 3 | \
                           (inf && neg) << 4 | den << 5 | (neg && !nan && !zero && !inf) << 6 |    \
                           (nan && !quiet) << 7;                                                   \
            k |= (uint64_t)((is & imm) != 0) << j;                                                 \
        }                                                                                          \
        return (EMU_K_##W##_##L)k;                                                                 \
    }
EMU_W3(EMU_FPCLASS, ps, f, 32, 23)
EMU_W3(EMU_FPCLASS, pd, d, 64, 52)
#endif
