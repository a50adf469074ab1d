/* record_float.c - the records bf16 and f32: values as they are, without scales. */
#include "num/num_internal.h"

static void encode_bf16(const nb_enc_vec *v)
{
    for (size_t i = 0; i < v->g->dim; i++) nb_le16_put(v->codes + 2 * i, v->x[i]);
}

static void decode_bf16(const nb_dec_vec *v, float *out)
{
    for (size_t i = 0; i < v->g->dim; i++) out[i] = nb_bf16_to_f32(nb_le16_get(v->codes + 2 * i));
}

static void encode_f32(const nb_enc_vec *v)
{
    for (size_t i = 0; i < v->g->dim; i++) nb_le32_put(v->codes + 4 * i, (uint32_t)v->x[i] << 16);
}

static void decode_f32(const nb_dec_vec *v, float *out)
{
    for (size_t i = 0; i < v->g->dim; i++) out[i] = nb_f32_from_bits(nb_le32_get(v->codes + 4 * i));
}

const nb_seg_trait nb_seg_bf16 = {
    .name = "bf16",
    .code = NB_NUM_BF16,
    .wide = true,
    .exact_bf16 = true,
    .encode_vec = encode_bf16,
    .decode_vec = decode_bf16,
};

const nb_seg_trait nb_seg_f32 = {
    .name = "f32",
    .code = NB_NUM_F32,
    .wide = true,
    .encode_vec = encode_f32,
    .decode_vec = decode_f32,
};

const nb_kv_trait nb_kv_bf16 = {
    .fmt = { NB_SEG_BF16, NB_SEG_BF16, NB_SEG_BF16, NB_SEG_BF16 },
    .own_rope = true,
};

const nb_kv_trait nb_kv_f32 = {
    .fmt = { NB_SEG_F32, NB_SEG_F32, NB_SEG_F32, NB_SEG_F32 },
    .own_rope = true,
};
