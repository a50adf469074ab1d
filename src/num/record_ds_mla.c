/* record_ds_mla.c - the record fp8_ds_mla, DeepSeek's interchange format (FlashMLA): a token is one row, the
 * latent's E4M3 codes, a float power of two per 128 of them, the rope key in BF16. */
#include "num/e4m3.h"
#include "num/num_internal.h"

static void encode(const nb_enc_vec *v)
{
    enum { MIN_EXP = -13 }; /* 2^-13 is the first power of two over 1e-4 */
    for (size_t k = 0; k < v->g->n_group; k++) {
        const uint16_t *x = v->x + k * NB_GROUP_DS, a = nb_amax_bits(x, NB_GROUP_DS);
        int e = a == 0 ? MIN_EXP : nb_bf16_ceil_log2(a, 224) - 8;
        if (e < MIN_EXP) e = MIN_EXP;
        nb_le32_put(v->scale + 4 * k, nb_f32_bits(nb_f32_pow2(e)));
        for (size_t i = 0; i < NB_GROUP_DS; i++)
            v->codes[k * NB_GROUP_DS + i] =
                nb_e4m3_from_f32(nb_with_sign(nb_bf16_mag_scaled(x[i], -e), x[i]));
    }
}

static void decode(const nb_dec_vec *v, float *out)
{
    for (size_t k = 0; k < v->g->n_group; k++) {
        const float scale = nb_f32_from_bits(nb_le32_get(v->scale + 4 * k));
        for (size_t i = k * NB_GROUP_DS; i < (k + 1) * NB_GROUP_DS; i++)
            out[i] = nb_seg_clip(nb_e4m3_value[v->codes[i]] * scale);
    }
}

const nb_seg_trait nb_seg_ds_mla = {
    .name = "ds_mla",
    .code = NB_NUM_E4M3,
    .scale = NB_NUM_F32,
    .group = NB_GROUP_DS,
    .exact_bf16 = true,
    .encode_vec = encode,
    .decode_vec = decode,
};

const nb_kv_trait nb_kv_fp8_ds_mla = {
    .fmt = { [NB_ROLE_LATENT] = NB_SEG_DS_MLA, [NB_ROLE_ROPE] = NB_SEG_BF16 },
    .own_rope = true,
    .in_rows = true,
    .mla_only = true,
    .latent_multiple = NB_GROUP_DS,
};
