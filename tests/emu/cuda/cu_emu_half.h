/* cu_emu_half.h - the 16-bit and 8-bit floats of CUDA for a C++ compiler (cu_emu_num.h).
 *
 * Arithmetic of the 16-bit types is that of float (FMA: of double, whose error is far below), rounded
 * once. */
#ifndef NB_TESTS_EMU_CUDA_CU_EMU_HALF_H
#define NB_TESTS_EMU_CUDA_CU_EMU_HALF_H
#include "emu/cuda/cu_emu_num.h"

/* ---- conversions ---- */
inline uint16_t nb_emu_to_bf16(float x)
{
    const uint32_t u = __float_as_uint(x);
    if ((u & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
inline float nb_emu_from_bf16(uint16_t h)
{
    return __uint_as_float((uint32_t)h << 16);
}
inline uint16_t nb_emu_to_f16(float x)
{
    const uint32_t u = __float_as_uint(x), s = u >> 16 & 0x8000, m = u & 0x7fffffff;
    if (m > 0x7f800000) return 0x7fff;
    if (m >= 0x477ff000) return (uint16_t)(s | 0x7c00); /* rounds to 2^16 or is more */
    if (m < 0x38800000) /* subnormal: multiples of 2^-24, added where they are the last place */
        return (uint16_t)(s | (__float_as_uint(__uint_as_float(m) + 0.5f) - 0x3f000000));
    return (uint16_t)(s | ((m - 0x38000000 + 0xfff + (m >> 13 & 1)) >> 13));
}
inline float nb_emu_from_f16(uint16_t h)
{
    const uint32_t s = (uint32_t)(h & 0x8000) << 16, m = h & 0x7fff;
    if (m >= 0x7c00) return __uint_as_float(s | 0x7f800000 | (m & 0x3ff) << 13);
    if (m < 0x400) return __uint_as_float(s | __float_as_uint((float)m * 0x1p-24f));
    return __uint_as_float(s | ((m << 13) + 0x38000000));
}

/* ---- types ---- */
#define NB_EMU_FLOAT16(h1, h2, to, from)                                                           \
    struct h1 {                                                                                    \
        uint16_t bits;                                                                             \
        h1() = default;                                                                            \
        h1(float x) : bits(to(x))                                                                  \
        {                                                                                          \
        }                                                                                          \
        operator float() const                                                                     \
        {                                                                                          \
            return from(bits);                                                                     \
        }                                                                                          \
    };                                                                                             \
    struct alignas(4) h2 {                                                                         \
        h1 x, y;                                                                                   \
        h2() = default;                                                                            \
        h2(h1 a, h1 b) : x(a), y(b)                                                                \
        {                                                                                          \
        }                                                                                          \
    };                                                                                             \
    h1 operator+(h1, h1) =                                                                         \
        delete; /* rounded on the device: the intrinsics are the same on both */                   \
    h1 operator-(h1, h1) = delete;                                                                 \
    h1 operator*(h1, h1) = delete;                                                                 \
    h1 operator/(h1, h1) = delete;                                                                 \
    inline float __low2float(h2 a)                                                                 \
    {                                                                                              \
        return a.x;                                                                                \
    }                                                                                              \
    inline float __high2float(h2 a)                                                                \
    {                                                                                              \
        return a.y;                                                                                \
    }                                                                                              \
    inline h1 __hadd(h1 a, h1 b)                                                                   \
    {                                                                                              \
        return h1((float)a + (float)b);                                                            \
    }                                                                                              \
    inline h1 __hsub(h1 a, h1 b)                                                                   \
    {                                                                                              \
        return h1((float)a - (float)b);                                                            \
    }                                                                                              \
    inline h1 __hmul(h1 a, h1 b)                                                                   \
    {                                                                                              \
        return h1((float)a * (float)b);                                                            \
    }                                                                                              \
    inline h1 __hfma(h1 a, h1 b, h1 c)                                                             \
    {                                                                                              \
        return h1(nb_emu_odd((double)a * (double)b, (double)c));                                   \
    }                                                                                              \
    inline h1 __hneg(h1 a)                                                                         \
    {                                                                                              \
        return h1(-(float)a);                                                                      \
    }                                                                                              \
    inline h1 __habs(h1 a)                                                                         \
    {                                                                                              \
        return h1(fabsf((float)a));                                                                \
    }                                                                                              \
    inline h1 __hmax(h1 a, h1 b)                                                                   \
    {                                                                                              \
        return h1(fmaxf((float)a, (float)b));                                                      \
    }                                                                                              \
    inline h1 __hmin(h1 a, h1 b)                                                                   \
    {                                                                                              \
        return h1(fminf((float)a, (float)b));                                                      \
    }                                                                                              \
    inline h2 __hadd2(h2 a, h2 b)                                                                  \
    {                                                                                              \
        return h2{ __hadd(a.x, b.x), __hadd(a.y, b.y) };                                           \
    }                                                                                              \
    inline h2 __hsub2(h2 a, h2 b)                                                                  \
    {                                                                                              \
        return h2{ __hsub(a.x, b.x), __hsub(a.y, b.y) };                                           \
    }                                                                                              \
    inline h2 __hmul2(h2 a, h2 b)                                                                  \
    {                                                                                              \
        return h2{ __hmul(a.x, b.x), __hmul(a.y, b.y) };                                           \
    }                                                                                              \
    inline h2 __hmax2(h2 a, h2 b)                                                                  \
    {                                                                                              \
        return h2{ __hmax(a.x, b.x), __hmax(a.y, b.y) };                                           \
    }                                                                                              \
    inline h2 __hmin2(h2 a, h2 b)                                                                  \
    {                                                                                              \
        return h2{ __hmin(a.x, b.x), __hmin(a.y, b.y) };                                           \
    }                                                                                              \
    inline h2 __hneg2(h2 a)                                                                        \
    {                                                                                              \
        return h2{ __hneg(a.x), __hneg(a.y) };                                                     \
    }                                                                                              \
    inline h2 __habs2(h2 a)                                                                        \
    {                                                                                              \
        return h2{ __habs(a.x), __habs(a.y) };                                                     \
    }                                                                                              \
    inline h2 __hfma2(h2 a, h2 b, h2 c)                                                            \
    {                                                                                              \
        return h2{ __hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y) };                                 \
    }

/* p + c in float, rounded to odd, so that the rounding to 16 bits is the only one.  p: a product of two
 * 16-bit floats, exact. */
inline float nb_emu_odd(double p, double c)
{
    const double s = p + c, t = s - p, e = (p - (s - t)) + (c - t); /* s + e is exact */
    uint64_t u = nb_emu_bits<uint64_t>(s);
    if (e != 0 && isfinite(s) && !(u & 1)) u += (e > 0) == (s > 0) ? 1 : -1;
    const double d = nb_emu_bits<double>(u);
    const float f = (float)d;
    uint32_t v = __float_as_uint(f);
    if ((double)f == d || !isfinite(f) || (v & 1)) return f;
    return __uint_as_float(fabs((double)f) < fabs(d) ? v + 1 : v - 1);
}
NB_EMU_FLOAT16(__nv_bfloat16, __nv_bfloat162, nb_emu_to_bf16, nb_emu_from_bf16)
NB_EMU_FLOAT16(__half, __half2, nb_emu_to_f16, nb_emu_from_f16)
typedef __half half;
typedef __half2 half2;

inline __nv_bfloat16 __float2bfloat16(float x)
{
    return __nv_bfloat16(x);
}
inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    return __nv_bfloat16(x);
}
inline float __bfloat162float(__nv_bfloat16 h)
{
    return h;
}
inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 h)
{
    return h.bits;
}
inline __nv_bfloat16 __ushort_as_bfloat16(uint16_t u)
{
    return nb_emu_bits<__nv_bfloat16>(u);
}
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b)
{
    return __nv_bfloat162{ a, b };
}
inline __nv_bfloat162 __float2bfloat162_rn(float a)
{
    return __nv_bfloat162{ a, a };
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 a)
{
    return __nv_bfloat162{ a.x, a.y };
}
inline float2 __bfloat1622float2(__nv_bfloat162 a)
{
    return make_float2(a.x, a.y);
}
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __nv_bfloat162{ a, b };
}
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a)
{
    return __nv_bfloat162{ a, a };
}
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 a)
{
    return a.x;
}
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 a)
{
    return a.y;
}

inline __half __float2half(float x)
{
    return __half(x);
}
inline __half __float2half_rn(float x)
{
    return __half(x);
}
inline float __half2float(__half h)
{
    return h;
}
inline uint16_t __half_as_ushort(__half h)
{
    return h.bits;
}
inline __half __ushort_as_half(uint16_t u)
{
    return nb_emu_bits<__half>(u);
}
inline __half2 __floats2half2_rn(float a, float b)
{
    return __half2{ a, b };
}
inline __half2 __float2half2_rn(float a)
{
    return __half2{ a, a };
}
inline __half2 __float22half2_rn(float2 a)
{
    return __half2{ a.x, a.y };
}
inline float2 __half22float2(__half2 a)
{
    return make_float2(a.x, a.y);
}
inline __half2 __halves2half2(__half a, __half b)
{
    return __half2{ a, b };
}
inline __half2 __half2half2(__half a)
{
    return __half2{ a, a };
}
inline __half __low2half(__half2 a)
{
    return a.x;
}
inline __half __high2half(__half2 a)
{
    return a.y;
}
inline __half2 __low2half2(__half2 a)
{
    return __half2{ a.x, a.x };
}
inline __half2 __high2half2(__half2 a)
{
    return __half2{ a.y, a.y };
}
inline __half __int2half_rn(int x)
{
    return __half((float)x);
}
inline __half __uint2half_rn(unsigned x)
{
    return __half((float)x);
}

/* ---- E4M3 ---- */
typedef uint8_t __nv_fp8_storage_t;
typedef uint16_t __nv_fp8x2_storage_t;
struct __half_raw {
    unsigned short x;
    operator __half() const
    {
        return __ushort_as_half(x);
    }
};
struct alignas(4) __half2_raw {
    unsigned short x, y;
    operator __half2() const
    {
        return __half2{ __ushort_as_half(x), __ushort_as_half(y) };
    }
};
enum __nv_fp8_interpretation_t { __NV_E4M3 };
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
inline __half_raw __nv_cvt_fp8_to_halfraw(uint8_t v, __nv_fp8_interpretation_t)
{
    const unsigned s = (unsigned)(v & 0x80) << 8, m = v & 0x7f;
    if (m == 0x7f) return __half_raw{ 0x7fff };
    const float f = m < 8 ? (float)m * 0x1p-9f : __uint_as_float((m << 20) + 0x3c000000);
    return __half_raw{ (unsigned short)(s | nb_emu_to_f16(f)) };
}
inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(uint16_t v, __nv_fp8_interpretation_t i)
{
    return __half2_raw{ __nv_cvt_fp8_to_halfraw((uint8_t)v, i).x,
                        __nv_cvt_fp8_to_halfraw((uint8_t)(v >> 8), i).x };
}
inline uint8_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t sat, __nv_fp8_interpretation_t)
{
    const uint32_t u = __float_as_uint(x), m = u & 0x7fffffff;
    const uint8_t s = (uint8_t)(u >> 24 & 0x80);
    if (m > 0x7f800000) return 0x7f;
    if (m > 0x43e80000) return (uint8_t)(s | (sat == __NV_SATFINITE ? 0x7e : 0x7f)); /* > 464 */
    if (m < 0x3c800000) /* multiples of 2^-9, added where they are the last place */
        return (uint8_t)(s | (__float_as_uint(__uint_as_float(m) + 0x1p14f) - 0x46800000));
    return (uint8_t)(s | ((m - 0x3c000000 + 0x7ffff + (m >> 20 & 1)) >> 20));
}
inline uint16_t __nv_cvt_float2_to_fp8x2(float2 x, __nv_saturation_t s, __nv_fp8_interpretation_t i)
{
    return (uint16_t)(__nv_cvt_float_to_fp8(x.x, s, i) | __nv_cvt_float_to_fp8(x.y, s, i) << 8);
}

#endif
