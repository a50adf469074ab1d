/* linear_bf16_neon.c - BF16 weights: a code shifted left by 16 bits is the float (SHLL). */
#include "kernel/arm/vec_neon.h"

static inline nb_neon_f8 load(const uint16_t *p)
{
    const uint16x8_t v = vld1q_u16(p);
    return (nb_neon_f8){ vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(v), 16)),
                         vreinterpretq_f32_u32(vshll_high_n_u16(v, 16)) };
}

#define W_TYPE uint16_t
#define W_LOAD(p) load(p)
#define NAME nb_linear_bf16_neon
#include "kernel/arm/linear_tile_neon.h"
#define W_FACTOR_T(w, r, c) 1.0f /* exact */
#define NAME_T nb_linear_t_bf16_neon
#include "kernel/arm/linear_t_tile_neon.h"
