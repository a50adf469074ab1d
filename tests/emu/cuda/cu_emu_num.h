/* cu_emu_num.h - vector types, 16-bit floats and intrinsics of CUDA for a C++ compiler.
 *
 * Names, argument types and results are CUDA's; only what kernels of nibble use is here.  Conversions
 * round to nearest even; a NaN becomes 0x7fff as on the device. */
#ifndef NB_TESTS_EMU_CUDA_CU_EMU_NUM_H
#define NB_TESTS_EMU_CUDA_CU_EMU_NUM_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- vectors ---- */
#define NB_EMU_VEC2(name, t)                                                                       \
    struct alignas(2 * sizeof(t)) name {                                                           \
        t x, y;                                                                                    \
    };                                                                                             \
    inline name make_##name(t x, t y)                                                              \
    {                                                                                              \
        return name{ x, y };                                                                       \
    }
#define NB_EMU_VEC3(name, t)                                                                       \
    struct name {                                                                                  \
        t x, y, z;                                                                                 \
    };                                                                                             \
    inline name make_##name(t x, t y, t z)                                                         \
    {                                                                                              \
        return name{ x, y, z };                                                                    \
    }
#define NB_EMU_VEC4(name, t)                                                                       \
    struct alignas(4 * sizeof(t) > 16 ? 16 : 4 * sizeof(t)) name {                                 \
        t x, y, z, w;                                                                              \
    };                                                                                             \
    inline name make_##name(t x, t y, t z, t w)                                                    \
    {                                                                                              \
        return name{ x, y, z, w };                                                                 \
    }
NB_EMU_VEC2(char2, signed char)
NB_EMU_VEC2(uchar2, unsigned char)
NB_EMU_VEC2(short2, short)
NB_EMU_VEC2(ushort2, unsigned short)
NB_EMU_VEC2(int2, int)
NB_EMU_VEC2(uint2, unsigned)
NB_EMU_VEC2(float2, float)
NB_EMU_VEC2(double2, double)
NB_EMU_VEC2(longlong2, long long)
NB_EMU_VEC2(ulonglong2, unsigned long long)
NB_EMU_VEC3(int3, int)
NB_EMU_VEC3(uint3, unsigned)
NB_EMU_VEC3(float3, float)
NB_EMU_VEC4(char4, signed char)
NB_EMU_VEC4(uchar4, unsigned char)
NB_EMU_VEC4(short4, short)
NB_EMU_VEC4(ushort4, unsigned short)
NB_EMU_VEC4(int4, int)
NB_EMU_VEC4(uint4, unsigned)
NB_EMU_VEC4(float4, float)
NB_EMU_VEC4(double4, double)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

/* ---- bits ---- */
template <class To, class From> inline To nb_emu_bits(From f)
{
    static_assert(sizeof(To) == sizeof(From), "same size");
    To t;
    memcpy(&t, &f, sizeof t);
    return t;
}
inline unsigned __float_as_uint(float x)
{
    return nb_emu_bits<unsigned>(x);
}
inline int __float_as_int(float x)
{
    return nb_emu_bits<int>(x);
}
inline float __uint_as_float(unsigned x)
{
    return nb_emu_bits<float>(x);
}
inline float __int_as_float(int x)
{
    return nb_emu_bits<float>(x);
}
inline long long __double_as_longlong(double x)
{
    return nb_emu_bits<long long>(x);
}
inline double __longlong_as_double(long long x)
{
    return nb_emu_bits<double>(x);
}
inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}
inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
inline unsigned __brev(unsigned x)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++) r |= (x >> i & 1) << (31 - i);
    return r;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s)
{
    const uint64_t v = (uint64_t)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned sel = s >> 4 * i & 15, byte = (unsigned)(v >> 8 * (sel & 7)) & 255;
        r |= (sel & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
    }
    return r;
}
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n)
{
    return (unsigned)(((uint64_t)hi << 32 | lo) << (n & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n)
{
    return (unsigned)(((uint64_t)hi << 32 | lo) >> (n & 31));
}
template <class T> inline T __ldg(const T *p)
{
    return *p;
}
template <class T> inline T __ldcg(const T *p)
{
    return *p;
}
template <class T> inline T __ldcs(const T *p)
{
    return *p;
}
template <class T> inline void __stcs(T *p, T v)
{
    *p = v;
}
template <class T> inline void __stcg(T *p, T v)
{
    *p = v;
}

/* ---- arithmetic: the emulation is compiled without contraction ---- */
inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
inline float __fmul_rn(float a, float b)
{
    return a * b;
}
inline float __fadd_rn(float a, float b)
{
    return a + b;
}
inline float __fsub_rn(float a, float b)
{
    return a - b;
}
inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
inline float __fdividef(float a, float b)
{
    return a / b;
}
inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}
inline float __frcp_rn(float a)
{
    return 1.0f / a;
}
inline float __frsqrt_rn(float a)
{
    return (float)(1.0 / sqrt((double)a));
}
inline double __dmul_rn(double a, double b)
{
    return a * b;
}
inline double __dadd_rn(double a, double b)
{
    return a + b;
}
inline double __fma_rn(double a, double b, double c)
{
    return fma(a, b, c);
}
inline float nb_emu_rsqrtf(float a)
{
    return (float)(1.0 / sqrt((double)a));
}
#define rsqrtf nb_emu_rsqrtf
inline float __expf(float a)
{
    return expf(a);
}
inline float __exp2f(float a)
{
    return exp2f(a);
}
inline float __logf(float a)
{
    return logf(a);
}
inline float __log2f(float a)
{
    return log2f(a);
}
inline float __saturatef(float a)
{
    return a > 0 ? (a < 1 ? a : 1.0f) : 0.0f;
}
inline int nb_emu_to_int(double x) /* saturates; a NaN gives 0 */
{
    return isnan(x) ? 0 : x >= 2147483647.0 ? INT32_MAX : x <= -2147483648.0 ? INT32_MIN : (int)x;
}
inline unsigned nb_emu_to_uint(double x)
{
    return !(x > 0) ? 0 : x >= 4294967295.0 ? UINT32_MAX : (unsigned)x;
}
inline int __float2int_rn(float x)
{
    return nb_emu_to_int(rint((double)x));
}
inline int __float2int_rz(float x)
{
    return nb_emu_to_int(trunc((double)x));
}
inline int __float2int_rd(float x)
{
    return nb_emu_to_int(floor((double)x));
}
inline int __float2int_ru(float x)
{
    return nb_emu_to_int(ceil((double)x));
}
inline unsigned __float2uint_rn(float x)
{
    return nb_emu_to_uint(rint((double)x));
}
inline unsigned __float2uint_rz(float x)
{
    return nb_emu_to_uint(trunc((double)x));
}
inline float __int2float_rn(int x)
{
    return (float)x;
}
inline float __uint2float_rn(unsigned x)
{
    return (float)x;
}
inline float __double2float_rn(double x)
{
    return (float)x;
}
#define NB_EMU_MINMAX(t)                                                                           \
    inline t min(t a, t b)                                                                         \
    {                                                                                              \
        return b < a ? b : a;                                                                      \
    }                                                                                              \
    inline t max(t a, t b)                                                                         \
    {                                                                                              \
        return a < b ? b : a;                                                                      \
    }
NB_EMU_MINMAX(int)
NB_EMU_MINMAX(unsigned)
NB_EMU_MINMAX(long)
NB_EMU_MINMAX(unsigned long)
NB_EMU_MINMAX(long long)
NB_EMU_MINMAX(unsigned long long)
inline float min(float a, float b)
{
    return fminf(a, b);
}
inline float max(float a, float b)
{
    return fmaxf(a, b);
}
inline double min(double a, double b)
{
    return fmin(a, b);
}
inline double max(double a, double b)
{
    return fmax(a, b);
}
inline unsigned min(unsigned a, int b)
{
    return min(a, (unsigned)b);
}
inline unsigned min(int a, unsigned b)
{
    return min((unsigned)a, b);
}
inline unsigned max(unsigned a, int b)
{
    return max(a, (unsigned)b);
}
inline unsigned max(int a, unsigned b)
{
    return max((unsigned)a, b);
}

#endif
