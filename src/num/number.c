/* number.c - see number.h. */
#include "num/number.h"

#include "num/bf16.h"
#include "num/e4m3.h"
#include "num/int4.h"
#include "num/ue8m0.h"

unsigned nb_num_bits(nb_num t)
{
    static const unsigned char bits[] = {
        [NB_NUM_F32] = 32,  [NB_NUM_BF16] = 16, [NB_NUM_F16] = 16, [NB_NUM_E4M3] = 8,
        [NB_NUM_UE8M0] = 8, [NB_NUM_INT8] = 8,  [NB_NUM_4BIT] = 4,
    };
    return bits[t];
}

size_t nb_num_bytes(nb_num t, size_t n)
{
    const unsigned bits = nb_num_bits(t);
    return bits < 8 ? (n * bits + 7) / 8 : n * (bits / 8);
}

float nb_num_get(nb_num t, const void *p, size_t i)
{
    const uint8_t *b = p;
    switch (t) {
    case NB_NUM_F32: return nb_f32_from_bits(nb_le32_get(b + 4 * i));
    case NB_NUM_BF16: return nb_bf16_to_f32(nb_le16_get(b + 2 * i));
    case NB_NUM_F16: return nb_fp16_to_f32(nb_le16_get(b + 2 * i));
    case NB_NUM_E4M3: return nb_e4m3_value[b[i]];
    case NB_NUM_UE8M0: return nb_ue8m0_to_f32(b[i]);
    case NB_NUM_INT8: return (float)(b[i] < 128 ? b[i] : b[i] - 256);
    case NB_NUM_4BIT: return (float)nb_nibble_get(b, i);
    case NB_NUM_NONE: break;
    }
    return 0;
}
