/* linear_fp8b_neon.c - FP8 weights with block scales.  An E4M3 code is the FP16 number of the same
 * fields times 2^8: sign and fraction move, FCVTL does the rest, subnormal numbers too; the 2^8 goes
 * into the scale.  The codes of NaN are put in by a mask. */
#include "kernel/arm/vec_neon.h"

static inline nb_neon_f8 load(const uint8_t *p)
{
    const uint16x8_t v = vmovl_u8(vld1_u8(p));
    const uint16x8_t mag = vshlq_n_u16(vandq_u16(v, vdupq_n_u16(0x7f)), 7);
    const uint16x8_t nan = vandq_u16(vceqq_u16(mag, vdupq_n_u16(0x7f << 7)), vdupq_n_u16(0x7e00));
    const uint16x8_t sign = vshlq_n_u16(vandq_u16(v, vdupq_n_u16(0x80)), 8);
    const float16x8_t h = vreinterpretq_f16_u16(vorrq_u16(vorrq_u16(mag, nan), sign));
    return (nb_neon_f8){ vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h) };
}

#define W_TYPE uint8_t
#define W_LOAD(p) load(p)
#define W_CHUNK_SCALE(w, r, c) (nb_weight_scale(w, r, c) * 0x1p8f)
#define NAME nb_linear_fp8b_neon
#include "kernel/arm/linear_tile_neon.h"
#define W_FACTOR_T(w, r, c) (nb_weight_scale(w, r, c) * 0x1p8f)
#define NAME_T nb_linear_t_fp8b_neon
#include "kernel/arm/linear_t_tile_neon.h"
