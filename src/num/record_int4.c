/* record_int4.c - the record int4: asymmetric 4-bit integers, code * scale + minimum.  Keys and latents share a
 * scale per channel and 32 tokens, values per token and 32 channels (KIVI, arXiv 2402.02750). */
#include "num/int4.h"
#include "num/num_internal.h"

/* FP16 scale and minimum of n values x[0], x[step], ..., and their codes. */
static void int4_group(const uint16_t *x, size_t n, size_t step, uint8_t q[NB_GROUP_MX],
                       uint8_t *scale, uint8_t *minimum)
{
    float lo = nb_bf16_to_f32(x[0]), hi = lo;
    for (size_t i = 1; i < n; i++) {
        const float v = nb_bf16_to_f32(x[i * step]);
        if (v < lo) lo = v;
        if (v > hi) hi = v;
    }
    uint16_t m = nb_fp16_from_f32_sat(lo);
    if (m == 0x8000) m = 0; /* one zero only: -0, or what rounds to it */
    const float mf = nb_fp16_to_f32(m);
    const uint16_t s = nb_int4_scale(hi - mf);
    const float sf = nb_fp16_to_f32(s);
    nb_le16_put(scale, s);
    nb_le16_put(minimum, m);
    for (size_t i = 0; i < n; i++) q[i] = nb_int4_code(nb_bf16_to_f32(x[i * step]) - mf, sf);
}

static void encode_tok(const nb_enc_vec *v)
{
    const nb_record_seg *g = v->g;
    uint8_t q[NB_GROUP_MX], *minimum = v->scale + g->scale_stride / 2;
    for (size_t k = 0; k < g->n_group; k++) {
        uint16_t buf[NB_GROUP_MX];
        const size_t at = k * NB_GROUP_MX;
        const size_t n = g->dim - at < NB_GROUP_MX ? g->dim - at : NB_GROUP_MX;
        int4_group(nb_vec_values(v, at, n, buf), n, 1, q, v->scale + 2 * k, minimum + 2 * k);
        for (size_t i = 0; i < n; i++) nb_nibble_or(v->codes, at + i, q[i]);
    }
}

static void encode_ch(const nb_record_seg *g, uint8_t *page, const uint16_t *x, size_t stride)
{
    uint8_t q[NB_GROUP_TOK];
    const size_t n_ch = g->n_vec * g->dim, vec_bytes = nb_seg_code_bytes(g);
    for (size_t t0 = 0; t0 < NB_PAGE_TOK; t0 += NB_GROUP_TOK) {
        uint8_t *scale = page + g->scale_off + t0 / NB_GROUP_TOK * g->scale_stride;
        size_t next = 0; /* outlier: its scale, minimum and codes stay 0 */
        for (size_t c = 0; c < n_ch; c++) {
            if (next < g->n_outlier && c == g->outlier[next]) {
                next++;
                continue;
            }
            const size_t v = c / g->dim;
            uint8_t *codes = page + g->code_off + t0 * g->code_stride + v * vec_bytes;
            int4_group(x + t0 * stride + c, NB_GROUP_TOK, stride, q, scale + 2 * c,
                       scale + 2 * (n_ch + c));
            for (size_t t = 0; t < NB_GROUP_TOK; t++)
                nb_nibble_or(codes + t * g->code_stride, c - v * g->dim, q[t]);
        }
    }
}

/* Scales and minima are shared by `per` neighbouring values (1: each its own). */
static void decode(const nb_dec_vec *v, size_t per, float *out)
{
    const uint8_t *minimum = v->scale + v->g->scale_stride / 2;
    for (size_t i = 0; i < v->g->dim; i++) {
        const size_t k = i / per;
        out[i] = nb_int4_to_f32(nb_nibble_get(v->codes, i),
                                nb_fp16_to_f32(nb_le16_get(v->scale + 2 * k)),
                                nb_fp16_to_f32(nb_le16_get(minimum + 2 * k)));
    }
}

static void decode_ch(const nb_dec_vec *v, float *out)
{
    decode(v, 1, out);
}

static void decode_tok(const nb_dec_vec *v, float *out)
{
    decode(v, NB_GROUP_MX, out);
}

const nb_seg_trait nb_seg_int4_ch = {
    .name = "int4_ch",
    .code = NB_NUM_4BIT,
    .scale = NB_NUM_F16,
    .group = 1,
    .group_tok = NB_GROUP_TOK,
    .minimum = true,
    .encode_seg = encode_ch,
    .decode_vec = decode_ch,
};

const nb_seg_trait nb_seg_int4_tok = {
    .name = "int4_tok",
    .code = NB_NUM_4BIT,
    .scale = NB_NUM_F16,
    .group = NB_GROUP_MX,
    .minimum = true,
    .encode_vec = encode_tok,
    .decode_vec = decode_tok,
};

const nb_kv_trait nb_kv_int4 = {
    .fmt = { [NB_ROLE_LATENT] = NB_SEG_INT4_CH,
             [NB_ROLE_K] = NB_SEG_INT4_CH,
             [NB_ROLE_V] = NB_SEG_INT4_TOK },
};
