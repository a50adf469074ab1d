/* emu_float.h - rounding to 2^-M, exponents, scaling, approximations, embedded rounding. */
#ifndef NB_EMU_FLOAT_H
#define NB_EMU_FLOAT_H

#ifndef _MM_FROUND_NO_EXC
#define _MM_FROUND_NO_EXC 8
#endif
#ifndef NB_EMU_MANT
#define NB_EMU_MANT
typedef enum {
    _MM_MANT_NORM_1_2,
    _MM_MANT_NORM_p5_2,
    _MM_MANT_NORM_p5_1,
    _MM_MANT_NORM_p75_1p5
} _MM_MANTISSA_NORM_ENUM;
typedef enum { _MM_MANT_SIGN_src, _MM_MANT_SIGN_zero, _MM_MANT_SIGN_nan } _MM_MANTISSA_SIGN_ENUM;
#endif

/* To the nearest, ties to even, whatever MXCSR says. */
EMU double emu_even(double v)
{
    return _mm_cvtsd_f64(_mm_round_sd(_mm_set_sd(v), _mm_set_sd(v), 8));
}
/* imm: bits 7 to 4 M, bit 2 MXCSR's mode, bits 1 and 0 a mode. */
EMU double emu_round_to(double v, int imm)
{
    const double scaled = ldexp(v, imm >> 4 & 15);
    if (!(fabs(scaled) < 4503599627370496.0)) return v;
    const double r = imm & 4          ? nearbyint(scaled)
                     : (imm & 3) == 0 ? emu_even(scaled)
                     : (imm & 3) == 1 ? floor(scaled)
                     : (imm & 3) == 2 ? ceil(scaled)
                                      : trunc(scaled);
    return ldexp(r, -(imm >> 4 & 15));
}
/* floor(log2 |v|); of zero -inf, of infinity +inf. */
EMU double emu_getexp(double v)
{
    if (v != v) return v;
    if (v == 0) return -INFINITY;
    if (isinf(v)) return INFINITY;
    int e;
    frexp(v, &e);
    return e - 1;
}
/* What rounding to imm >> 4 binary digits leaves; 0 of an infinity. */
EMU double emu_reduce(double v, int imm)
{
    return isinf(v) ? 0 : v - emu_round_to(v, imm);
}
/* a 2^floor(b) */
EMU double emu_scalef(double a, double b)
{
    if (a != a) return a;
    if (b != b) return b;
    if (isinf(b)) {
        if (b > 0) return a == 0 ? NAN : a * INFINITY;
        return isinf(a) ? NAN : copysign(0, a);
    }
    const double f = floor(b);
    return ldexp(a, f > 5000 ? 5000 : f < -5000 ? -5000 : (int)f);
}
EMU double emu_getmant(double v, int norm, int sign)
{
    if (v != v) return v;
    if (sign == 2 && v < 0) return NAN;
    const double s = sign & 1 ? 1.0 : copysign(1.0, v);
    if (v == 0 || isinf(v)) return s;
    int e;
    const double m = 2 * frexp(fabs(v), &e); /* [1, 2) times 2^(e - 1) */
    if (norm == 1) return s * ((e - 1) & 1 ? m / 2 : m);
    if (norm == 2 || (norm == 3 && m >= 1.5)) return s * m / 2;
    return s * m;
}
/* The hardware promises 2^-14; fractions cut to 14 bits are as bad as it may be. */
EMU double emu_cut14(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, 8);
    if (v == v && !isinf(v)) bits &= ~((1ull << 38) - 1);
    memcpy(&v, &bits, 8);
    return v;
}

#define EMU_F1(P, W, name, R, L, m, E)                                                             \
    EMU EMU_V_##R(W) P##_##name(EMU_V_##R(W) a)                                                    \
    {                                                                                              \
        emu_##W x = { .R = a };                                                                    \
        for (int j = 0; j < EMU_N(W, L); j++) x.m[j] = (__typeof__(x.m[0]))E(x.m[j]);              \
        return x.R;                                                                                \
    }                                                                                              \
    EMU_MK1(P, W, name, R, R, L)
#define EMU_F1I(P, W, name, R, L, m, E)                                                            \
    EMU EMU_V_##R(W) P##_##name(EMU_V_##R(W) a, int imm)                                           \
    {                                                                                              \
        emu_##W x = { .R = a };                                                                    \
        for (int j = 0; j < EMU_N(W, L); j++) x.m[j] = (__typeof__(x.m[0]))E(x.m[j], imm);         \
        return x.R;                                                                                \
    }                                                                                              \
    EMU_MK1X(P, W, name, R, L, int)
#define EMU_F2(P, W, name, R, L, m, E)                                                             \
    EMU EMU_V_##R(W) P##_##name(EMU_V_##R(W) a, EMU_V_##R(W) b)                                    \
    {                                                                                              \
        emu_##W x = { .R = a }, y = { .R = b };                                                    \
        for (int j = 0; j < EMU_N(W, L); j++) x.m[j] = (__typeof__(x.m[0]))E(x.m[j], y.m[j]);      \
        return x.R;                                                                                \
    }                                                                                              \
    EMU_MK2(P, W, name, R, L)
EMU double emu_rcp14(double v)
{
    return emu_cut14(1 / v);
}
EMU double emu_rsqrt14(double v)
{
    return emu_cut14(1 / sqrt(v));
}
EMU_W3(EMU_F1I, roundscale_ps, f, 32, ps, emu_round_to)
EMU_W3(EMU_F1I, roundscale_pd, d, 64, pd, emu_round_to)
EMU_W3(EMU_F1I, reduce_pd, d, 64, pd, emu_reduce)
EMU_W3(EMU_F1, getexp_ps, f, 32, ps, emu_getexp)
EMU_W3(EMU_F1, getexp_pd, d, 64, pd, emu_getexp)
EMU_W3(EMU_F2, scalef_ps, f, 32, ps, emu_scalef)
EMU_W3(EMU_F2, scalef_pd, d, 64, pd, emu_scalef)
EMU_W3(EMU_F1, rcp14_ps, f, 32, ps, emu_rcp14)
EMU_W3(EMU_F1, rcp14_pd, d, 64, pd, emu_rcp14)
EMU_W3(EMU_F1, rsqrt14_ps, f, 32, ps, emu_rsqrt14)
EMU_W3(EMU_F1, rsqrt14_pd, d, 64, pd, emu_rsqrt14)
EMU_F1(_mm512, 512, floor_ps, f, 32, ps, floor)
EMU_F1(_mm512, 512, ceil_ps, f, 32, ps, ceil)
EMU_F1(_mm512, 512, floor_pd, d, 64, pd, floor)
EMU_F1(_mm512, 512, ceil_pd, d, 64, pd, ceil)
EMU __m512 _mm512_getmant_ps(__m512 a, int norm, int sign)
{
    for (int j = 0; j < 16; j++) a[j] = (float)emu_getmant(a[j], norm, sign);
    return a;
}
EMU __m512d _mm512_getmant_pd(__m512d a, int norm, int sign)
{
    for (int j = 0; j < 8; j++) a[j] = emu_getmant(a[j], norm, sign);
    return a;
}

/* Embedded rounding: 0 to 3 a mode, with _MM_FROUND_NO_EXC, or MXCSR's.  The barriers keep the
 * operation between the two writes of MXCSR. */
#define EMU_HIDE(v) __asm__ volatile("" : "+m"(v))
EMU unsigned emu_mode(int r)
{
    const unsigned old = _mm_getcsr();
    if ((r & 4) == 0) _mm_setcsr((old & ~0x6000u) | (unsigned)(r & 3) << 13);
    return old;
}
#define EMU_ER(name, base, R, TYPES, ARGS, HIDE)                                                   \
    EMU R _mm512_##name TYPES                                                                      \
    {                                                                                              \
        HIDE;                                                                                      \
        const unsigned old = emu_mode(rounding);                                                   \
        HIDE;                                                                                      \
        R y = _mm512_##base ARGS;                                                                  \
        EMU_HIDE(y);                                                                               \
        _mm_setcsr(old);                                                                           \
        return y;                                                                                  \
    }
#define EMU_ER1(name, base, R, A) EMU_ER(name, base, R, (A a, int rounding), (a), EMU_HIDE(a))
#define EMU_ER2(name, base, R)                                                                     \
    EMU_ER(name, base, R, (R a, R b, int rounding), (a, b), EMU_HIDE(a); EMU_HIDE(b))
#define EMU_ER3(name, base, R)                                                                     \
    EMU_ER(name, base, R, (R a, R b, R c, int rounding), (a, b, c), EMU_HIDE(a); EMU_HIDE(b);      \
           EMU_HIDE(c))
EMU_ER1(cvt_roundps_epi32, cvtps_epi32, __m512i, __m512)
EMU_ER1(cvt_roundepi32_ps, cvtepi32_ps, __m512, __m512i)
EMU_ER1(sqrt_round_ps, sqrt_ps, __m512, __m512)
EMU_ER2(add_round_ps, add_ps, __m512)
EMU_ER2(sub_round_ps, sub_ps, __m512)
EMU_ER2(mul_round_ps, mul_ps, __m512)
EMU_ER2(div_round_ps, div_ps, __m512)
EMU_ER2(scalef_round_ps, scalef_ps, __m512)
EMU_ER2(add_round_pd, add_pd, __m512d)
EMU_ER2(sub_round_pd, sub_pd, __m512d)
EMU_ER2(mul_round_pd, mul_pd, __m512d)
EMU_ER2(div_round_pd, div_pd, __m512d)
EMU_ER3(fmadd_round_ps, fmadd_ps, __m512)
EMU_ER3(fnmadd_round_ps, fnmadd_ps, __m512)
EMU_ER3(fmadd_round_pd, fmadd_pd, __m512d)
/* Only suppressed exceptions: the plain operation. */
#define _mm512_cvtt_roundps_epi32(a, sae) _mm512_cvttps_epi32(a)
#define _mm512_max_round_ps(a, b, sae) _mm512_max_ps(a, b)
#define _mm512_min_round_ps(a, b, sae) _mm512_min_ps(a, b)
#define _mm512_getexp_round_ps(a, sae) _mm512_getexp_ps(a)
#define _mm512_roundscale_round_ps(a, imm, sae) _mm512_roundscale_ps(a, imm)
#define _mm512_cmp_round_ps_mask(a, b, op, sae) _mm512_cmp_ps_mask(a, b, op)
#endif
