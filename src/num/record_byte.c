/* record_byte.c - the record fp8, and the byte formats of rope keys: E4M3 and INT8 codes with one outer scale
 * per vector. */
#include "num/e4m3.h"
#include "num/num_internal.h"

static void encode_e4m3(const nb_enc_vec *v)
{
    uint16_t buf[NB_VEC_PIECE];
    const uint16_t a = nb_vec_amax_bits(v);
    if (a == 0) return; /* the page is zero already */
    *v->outer = nb_outer_byte(v->g, a, 224, 8);
    for (size_t at = 0; at < v->g->dim; at += NB_VEC_PIECE) {
        const size_t n = v->g->dim - at < NB_VEC_PIECE ? v->g->dim - at : NB_VEC_PIECE;
        const uint16_t *x = nb_vec_values(v, at, n, buf);
        for (size_t i = 0; i < n; i++)
            v->codes[at + i] =
                nb_e4m3_from_f32(nb_with_sign(nb_seg_mag(v->g, x[i], *v->outer), x[i]));
    }
}

static void decode_e4m3(const nb_dec_vec *v, float *out)
{
    const float scale = nb_seg_factor(v->g, v->outer);
    if (v->outer == 0) {
        memset(out, 0, v->g->dim * sizeof *out);
        return;
    }
    for (size_t i = 0; i < v->g->dim; i++) out[i] = nb_seg_clip(nb_e4m3_value[v->codes[i]] * scale);
}

/* v in 0..127 to the nearest integer, ties to even; the difference is exact. */
static int round_even(float v)
{
    const int q = (int)v;
    const float rest = v - (float)q;
    return q + (rest > .5f || (rest == .5f && q % 2 == 1));
}

static void encode_int8(const nb_enc_vec *v)
{
    uint16_t buf[NB_VEC_PIECE];
    const uint16_t a = nb_vec_amax_bits(v);
    if (a == 0) return;
    *v->outer = nb_outer_byte(v->g, a, 254, 6); /* 127 = 254 / 128 * 2^6 */
    for (size_t at = 0; at < v->g->dim; at += NB_VEC_PIECE) {
        const size_t n = v->g->dim - at < NB_VEC_PIECE ? v->g->dim - at : NB_VEC_PIECE;
        const uint16_t *x = nb_vec_values(v, at, n, buf);
        for (size_t i = 0; i < n; i++) {
            const int q = round_even(nb_seg_mag(v->g, x[i], *v->outer));
            v->codes[at + i] = (uint8_t)(x[i] & 0x8000 ? -q : q);
        }
    }
}

static void decode_int8(const nb_dec_vec *v, float *out)
{
    const float scale = nb_ue8m0_to_f32(v->outer);
    if (v->outer == 0) {
        memset(out, 0, v->g->dim * sizeof *out);
        return;
    }
    for (size_t i = 0; i < v->g->dim; i++) {
        const int q = v->codes[i] < 128 ? v->codes[i] : v->codes[i] - 256;
        out[i] = nb_seg_clip((float)q * scale);
    }
}

const nb_seg_trait nb_seg_e4m3 = {
    .name = "e4m3",
    .code = NB_NUM_E4M3,
    .outer = true,
    .exact_bf16 = true,
    .fixed_top = 448,
    .encode_vec = encode_e4m3,
    .decode_vec = decode_e4m3,
};

const nb_seg_trait nb_seg_int8 = {
    .name = "int8",
    .code = NB_NUM_INT8,
    .outer = true,
    .exact_bf16 = true,
    .encode_vec = encode_int8,
    .decode_vec = decode_int8,
};

const nb_kv_trait nb_kv_fp8 = {
    .fmt = { [NB_ROLE_LATENT] = NB_SEG_E4M3, [NB_ROLE_K] = NB_SEG_E4M3, [NB_ROLE_V] = NB_SEG_E4M3 },
};
