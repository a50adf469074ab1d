/* packed.c - see packed.h: the table of weight types, and the three with planes. */
#include "kernel/linear/packed.h"

#include "num/bf16.h"
#include "num/e2m1.h"
#include "num/e4m3.h"
#include "num/fp16.h"
#include "num/ggml.h"
#include "num/ue8m0.h"

size_t nb_stype_bytes(nb_stype t)
{
    return t == NB_S_F32 ? 4 : t == NB_S_BF16 || t == NB_S_F16 ? 2 : 1;
}

size_t nb_weight_plane_bytes(const nb_weight *w)
{
    if (!w->group.scale) return 0;
    const size_t n = w->n_row * nb_weight_n_group(w);
    return n * nb_stype_bytes(w->group.scale_type) + (w->group.zero ? n : 0) +
           (w->group.place ? 2 * w->n_col * sizeof *w->group.place : 0);
}

size_t nb_weight_scale_bytes(const nb_weight *w)
{
    const size_t b = NB_FP8_BLOCK, n_block = (w->n_row + b - 1) / b * ((w->n_col + b - 1) / b);
    if (w->type == NB_W_INT8 || (w->type == NB_W_FP8B && w->row_scales))
        return w->n_row * sizeof *w->scale;
    return w->type == NB_W_FP8B ? n_block * sizeof *w->scale : 0;
}

nb_weight nb_weight_rows(const nb_weight *w, size_t first, size_t n)
{
    nb_weight v = *w;
    const size_t n_group = w->group.size ? nb_weight_n_group(w) : 0;
    v.n_row = n;
    v.data = (const char *)w->data + first * nb_wtype_row_bytes(w->type, w->n_col);
    if (w->scale && w->type == NB_W_FP8B && !w->row_scales)
        v.scale = w->scale + first / NB_FP8_BLOCK * ((w->n_col + NB_FP8_BLOCK - 1) / NB_FP8_BLOCK);
    else if (w->scale)
        v.scale = w->scale + first;
    if (w->group.scale)
        v.group.scale = (const char *)w->group.scale + first * n_group * nb_stype_bytes(w->group.scale_type);
    if (w->group.zero) v.group.zero = w->group.zero + first * n_group;
    return v;
}

size_t nb_weight_bytes(const nb_weight *w)
{
    return nb_weight_data_bytes(w) + nb_weight_scale_bytes(w) + nb_weight_plane_bytes(w);
}

void nb_packed_scales(const nb_wgroups *g, size_t i, size_t n, float *out)
{
    const uint8_t *b = (const uint8_t *)g->scale + i;
    const uint16_t *h = (const uint16_t *)g->scale + i;
    const float *f = (const float *)g->scale + i;
#define EACH(value)                                                                                \
    for (size_t k = 0; k < n; k++) out[k] = (value);                                               \
    break
    switch (g->scale_type) {
    case NB_S_F32: EACH(f[k]);
    case NB_S_BF16: EACH(nb_bf16_to_f32(h[k]));
    case NB_S_F16: EACH(nb_fp16_to_f32(h[k]));
    case NB_S_E4M3: EACH(nb_e4m3_to_f32(b[k]));
    default: EACH(nb_ue8m0_to_f32(b[k]));
    }
#undef EACH
}

/* value = code * (scale * outer): a code has at most 9 bits and the scale of a checkpoint 11, so that the
 * product is exact but for F32 scales and an outer scale. */
typedef float code_fn(const uint8_t *row, size_t c, uint8_t flip, int zero);

static inline void grouped(const nb_weight *w, size_t r, size_t c, size_t n, float *out,
                           code_fn *code, int middle)
{
    const nb_wgroups *g = &w->group;
    const size_t n_group = nb_weight_n_group(w);
    const bool exact = g->scale_type != NB_S_F32 && g->outer == 1.0f;
    const uint8_t *row = (const uint8_t *)w->data + r * nb_wtype_row_bytes(w->type, w->n_col);
    for (size_t end = c + n; c < end;) {
        const size_t k = c / g->size, left = (k + 1) * g->size - c;
        const size_t m = end - c < left ? end - c : left;
        const int zero = g->zero ? g->zero[r * n_group + k] : middle;
        float scale;
        nb_packed_scales(g, r * n_group + k, 1, &scale);
        if (exact)
            for (size_t i = 0; i < m; i++) out[i] = code(row, c + i, g->flip, zero) * scale;
        else
            for (size_t i = 0; i < m; i++)
                out[i] = (float)((double)code(row, c + i, g->flip, zero) *
                                 ((double)scale * (double)g->outer));
        out += m;
        c += m;
    }
}

static inline unsigned nibble(const uint8_t *row, size_t c, uint8_t flip)
{
    return (unsigned)(row[c / 2] ^ flip) >> 4 * (c & 1) & 15;
}
static inline float int4_code(const uint8_t *row, size_t c, uint8_t flip, int zero)
{
    return (float)((int)nibble(row, c, flip) - zero);
}
static inline float byte_code(const uint8_t *row, size_t c, uint8_t flip, int zero)
{
    return (float)((row[c] ^ flip) - zero);
}
static inline float fp4_code(const uint8_t *row, size_t c, uint8_t flip, int zero)
{
    (void)zero;
    return nb_e2m1_to_f32((uint8_t)nibble(row, c, flip));
}

static void int4_values(const nb_weight *w, size_t r, size_t c, size_t n, float *out)
{
    grouped(w, r, c, n, out, int4_code, 8);
}
static void byte_values(const nb_weight *w, size_t r, size_t c, size_t n, float *out)
{
    grouped(w, r, c, n, out, byte_code, 128);
}
static void fp4_values(const nb_weight *w, size_t r, size_t c, size_t n, float *out)
{
    grouped(w, r, c, n, out, fp4_code, 0);
}

/* ---- blocks of GGUF ---- */

/* Whole blocks straight to out; the part of a last one by way of a copy. */
static void blocks(const nb_weight *w, size_t r, size_t c, size_t n, float *out,
                   nb_ggml_values_fn *fn)
{
    const nb_wtype_traits *x = &nb_wtypes[w->type];
    const uint8_t *p = (const uint8_t *)w->data + r * nb_wtype_row_bytes(w->type, w->n_col) +
                       c / x->block * x->block_bytes;
    const size_t whole = n / x->block, rest = n % x->block;
    float last[NB_PACKED_CHUNK];
    fn(p, whole, out);
    if (rest == 0) return;
    fn(p + whole * x->block_bytes, 1, last);
    for (size_t i = 0; i < rest; i++) out[whole * x->block + i] = last[i];
}

#define BLOCKS(name)                                                                               \
    static void name##_values(const nb_weight *w, size_t r, size_t c, size_t n, float *out)        \
    {                                                                                              \
        blocks(w, r, c, n, out, nb_ggml_##name);                                                   \
    }
BLOCKS(q8_0)
BLOCKS(q4_0)
BLOCKS(q4_1)
BLOCKS(q5_0)
BLOCKS(q5_1)
BLOCKS(q2_k)
BLOCKS(q3_k)
BLOCKS(q4_k)
BLOCKS(q5_k)
BLOCKS(q6_k)
BLOCKS(iq4_nl)
BLOCKS(iq4_xs)
BLOCKS(mxfp4)
BLOCKS(iq2_xxs)
BLOCKS(iq2_xs)
BLOCKS(iq2_s)
BLOCKS(iq3_xxs)
BLOCKS(iq3_s)
BLOCKS(iq1_s)
BLOCKS(iq1_m)

static void nvfp4_values(const nb_weight *w, size_t r, size_t c, size_t n, float *out)
{
    blocks(w, r, c, n, out, nb_ggml_nvfp4);
    for (size_t i = 0; i < n; i++) out[i] *= w->group.outer;
}

// clang-format off
const nb_wtype_traits nb_wtypes[NB_W_TYPE_COUNT] = {
    [NB_W_F32]  = { "F32",  "f32",  1, 4, NULL },
    [NB_W_BF16] = { "BF16", "bf16", 1, 2, NULL },
    [NB_W_F16]  = { "F16",  "f16",  1, 2, NULL },
    [NB_W_FP8B] = { "FP8",  "fp8",  1, 1, NULL },
    [NB_W_INT8] = { "INT8", "int8", 1, 1, NULL },
    /* Rows are whole words of 32 bits, as compressed-tensors has them. */
    [NB_W_INT4] = { "INT4", "int4", 8, 4, int4_values },
    [NB_W_BYTE] = { "INT8 in groups", "int8-group", 4, 4, byte_values },
    [NB_W_FP4]  = { "FP4",  "fp4",  8, 4, fp4_values },
    [NB_W_Q8_0] = { "Q8_0", "q8_0", 32, 34, q8_0_values },
    [NB_W_Q4_0] = { "Q4_0", "q4_0", 32, 18, q4_0_values },
    [NB_W_Q4_1] = { "Q4_1", "q4_1", 32, 20, q4_1_values },
    [NB_W_Q5_0] = { "Q5_0", "q5_0", 32, 22, q5_0_values },
    [NB_W_Q5_1] = { "Q5_1", "q5_1", 32, 24, q5_1_values },
    [NB_W_Q2_K] = { "Q2_K", "q2_k", 256, 84, q2_k_values },
    [NB_W_Q3_K] = { "Q3_K", "q3_k", 256, 110, q3_k_values },
    [NB_W_Q4_K] = { "Q4_K", "q4_k", 256, 144, q4_k_values },
    [NB_W_Q5_K] = { "Q5_K", "q5_k", 256, 176, q5_k_values },
    [NB_W_Q6_K] = { "Q6_K", "q6_k", 256, 210, q6_k_values },
    [NB_W_IQ4_NL] = { "IQ4_NL", "iq4_nl", 32, 18, iq4_nl_values },
    [NB_W_IQ4_XS] = { "IQ4_XS", "iq4_xs", 256, 136, iq4_xs_values },
    [NB_W_MXFP4] = { "MXFP4", "mxfp4", 32, 17, mxfp4_values },
    [NB_W_GGUF_NVFP4] = { "NVFP4 in blocks", "nvfp4-block", 64, 36, nvfp4_values },
    [NB_W_IQ2_XXS] = { "IQ2_XXS", "iq2_xxs", 256, 66, iq2_xxs_values },
    [NB_W_IQ2_XS] = { "IQ2_XS", "iq2_xs", 256, 74, iq2_xs_values },
    [NB_W_IQ2_S] = { "IQ2_S", "iq2_s", 256, 82, iq2_s_values },
    [NB_W_IQ3_XXS] = { "IQ3_XXS", "iq3_xxs", 256, 98, iq3_xxs_values },
    [NB_W_IQ3_S] = { "IQ3_S", "iq3_s", 256, 110, iq3_s_values },
    [NB_W_IQ1_S] = { "IQ1_S", "iq1_s", 256, 50, iq1_s_values },
    [NB_W_IQ1_M] = { "IQ1_M", "iq1_m", 256, 56, iq1_m_values },
};
// clang-format on

/* Columns in act order: each is somewhere else. */
static void scattered(const nb_weight *w, size_t r, size_t c, size_t n, float *out)
{
    const nb_wtype_traits *x = &nb_wtypes[w->type];
    float block[NB_PACKED_CHUNK];
    for (size_t i = 0; i < n; i++) {
        const size_t at = w->group.place[c + i], first = at / x->block * x->block;
        const size_t left = w->n_col - first;
        x->values(w, r, first, left < x->block ? left : x->block, block);
        out[i] = block[at - first];
    }
}

void nb_packed_values(const nb_weight *w, size_t r, size_t c, size_t n, float *out)
{
    const nb_wtype_traits *x = &nb_wtypes[w->type];
    float block[NB_PACKED_CHUNK];
    if (w->group.place) {
        scattered(w, r, c, n, out);
        return;
    }
    while (n > 0) {
        const size_t first = c / x->block * x->block, skip = c - first;
        size_t m = n / x->block * x->block; /* whole blocks, straight to out */
        if (skip == 0 && (m > 0 || c + n == w->n_col)) {
            if (c + n == w->n_col) m = n;
            x->values(w, r, c, m, out);
        } else { /* a part of one */
            const size_t left = w->n_col - first, have = left < x->block ? left : x->block;
            m = have - skip < n ? have - skip : n;
            x->values(w, r, first, have, block);
            for (size_t i = 0; i < m; i++) out[i] = block[skip + i];
        }
        out += m;
        c += m;
        n -= m;
    }
}
