/* vec_neon.h - what the NEON variants share: tails without over-reads, the fixed joining of 8 lanes
 * (two vectors of 4), exp.  Everything here is IEEE arithmetic with the default rounding. */
#ifndef NB_KERNEL_VEC_NEON_H
#define NB_KERNEL_VEC_NEON_H
#include <arm_neon.h>
#include <stddef.h>
#include <string.h>

/* Eight lanes. */
typedef struct nb_neon_f8 {
    float32x4_t a, b;
} nb_neon_f8;

static inline nb_neon_f8 nb_neon_zero(void)
{
    return (nb_neon_f8){ vdupq_n_f32(0), vdupq_n_f32(0) };
}
static inline nb_neon_f8 nb_neon_load(const float *p)
{
    return (nb_neon_f8){ vld1q_f32(p), vld1q_f32(p + 4) };
}
static inline void nb_neon_store(float *p, nb_neon_f8 v)
{
    vst1q_f32(p, v.a);
    vst1q_f32(p + 4, v.b);
}
/* The first n <= 8 floats, the others 0. */
static inline nb_neon_f8 nb_neon_load_n(const float *p, size_t n)
{
    float v[8] = { 0 };
    memcpy(v, p, n * sizeof *v);
    return nb_neon_load(v);
}
static inline void nb_neon_store_n(float *p, nb_neon_f8 x, size_t n)
{
    float v[8];
    nb_neon_store(v, x);
    memcpy(p, v, n * sizeof *v);
}
static inline nb_neon_f8 nb_neon_add(nb_neon_f8 x, nb_neon_f8 y)
{
    return (nb_neon_f8){ vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b) };
}
/* s + x * y, rounded once. */
static inline nb_neon_f8 nb_neon_fma(nb_neon_f8 s, nb_neon_f8 x, nb_neon_f8 y)
{
    return (nb_neon_f8){ vfmaq_f32(s.a, x.a, y.a), vfmaq_f32(s.b, x.b, y.b) };
}
static inline nb_neon_f8 nb_neon_fma_n(nb_neon_f8 s, nb_neon_f8 x, float32x4_t y)
{
    return (nb_neon_f8){ vfmaq_f32(s.a, x.a, y), vfmaq_f32(s.b, x.b, y) };
}

/* ((l0 + l1) + (l2 + l3)) + ((l4 + l5) + (l6 + l7)). */
static inline float nb_neon_join(nb_neon_f8 x)
{
    const float32x4_t s = vpaddq_f32(x.a, x.b), d = vpaddq_f32(s, s);
    return vgetq_lane_f32(d, 0) + vgetq_lane_f32(d, 1);
}

/* exp(x) for x <= 88, within 2 ulp, subnormal results included; NaN stays NaN.
 * x = n ln 2 + r with |r| <= 0.3466 (ln 2 in two floats, fused), the Taylor polynomial of degree 7
 * (its remainder r^8/8! is under 2^-27), and 2^n in two factors, so that results under 2^-126 are
 * rounded once, by the last product.  Below -104 the result is 0. */
static inline float32x4_t nb_neon_exp(float32x4_t x)
{
    x = vmaxq_f32(x, vdupq_n_f32(-104.0f)); /* FMAX keeps a NaN */
    const float32x4_t n = vrndnq_f32(vmulq_n_f32(x, 0x1.715476p+0f));
    float32x4_t r = vfmsq_f32(x, n, vdupq_n_f32(0x1.62e430p-1f));
    r = vfmsq_f32(r, n, vdupq_n_f32(-0x1.05c610p-29f));
    float32x4_t p = vdupq_n_f32(1.0f / 5040);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 720), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 120), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 24), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 6), p, r);
    p = vfmaq_f32(vdupq_n_f32(0.5f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    const int32x4_t k = vcvtq_s32_f32(n), k1 = vshrq_n_s32(k, 1), bias = vdupq_n_s32(127);
    const int32x4_t k2 = vsubq_s32(k, k1);
    p = vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(k1, bias), 23)));
    return vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(k2, bias), 23)));
}
static inline float nb_neon_exp1(float x)
{
    return vgetq_lane_f32(nb_neon_exp(vdupq_n_f32(x)), 0);
}

#endif
