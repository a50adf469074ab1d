/* packed_unit.c - a unit of each packed type as integers, scales and minima: linear_units.h.
 *
 * The layouts are those of num/ggml.c and packed.c. */
#include <string.h>

#include "kernel/linear/linear_units.h"
#include "num/bits.h"
#include "num/e4m3.h"
#include "num/fp16.h"
#include "num/ggml.h"

bool nb_packed_has_min(nb_wtype t)
{
    return t == NB_W_Q4_1 || t == NB_W_Q5_1 || t == NB_W_Q2_K || t == NB_W_Q4_K || t == NB_W_Q5_K;
}

size_t nb_packed_span(const nb_weight *w)
{
    const size_t size = w->group.size;
    switch (w->type) {
    case NB_W_INT4:
    case NB_W_BYTE:
    case NB_W_FP4: return size >= w->n_col || size % 32 == 0 ? 32 : size % 16 == 0 ? 16 : 8;
    case NB_W_Q2_K:
    case NB_W_Q3_K:
    case NB_W_Q6_K:
    case NB_W_GGUF_NVFP4: return 16;
    default: return 32;
    }
}

static inline uint16_t u16_at(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}
static inline float f16_at(const uint8_t *p)
{
    return nb_fp16_to_f32(u16_at(p));
}

static const uint8_t iq4[16] = { 1,   24,  45,  63,  79,  93,  106, 118,
                                 129, 141, 153, 166, 181, 197, 217, 241 }; /* + 128 */
static const uint8_t fp4[16] = { 12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0 };

/* One scale, zero and min for columns [8k, 8k + 8n). */
static void fill(nb_packed_unit *o, size_t k, size_t n, float scale, float min, uint8_t zero)
{
    for (size_t i = k; i < k + n; i++) {
        o->scale[i] = scale;
        o->min[i] = min;
        o->zero[i] = zero;
    }
}

/* ---- INT4, BYTE, FP4 ---- */

static void grouped(const nb_weight *w, size_t r, size_t u, nb_packed_unit *o)
{
    const nb_wgroups *g = &w->group;
    const size_t bytes = nb_wtype_row_bytes(w->type, w->n_col), n_group = nb_weight_n_group(w);
    const uint8_t *row = (const uint8_t *)w->data + r * bytes;
    const bool byte = w->type == NB_W_BYTE, is_fp4 = w->type == NB_W_FP4;
    for (size_t i = 0; i < NB_PK_UNIT; i++) {
        const size_t c = u * NB_PK_UNIT + i, at = byte ? c : c / 2;
        const unsigned b = at < bytes ? row[at] ^ g->flip : 0u;
        const unsigned v = byte ? b : b >> 4 * (c & 1) & 15;
        o->code[i] = is_fp4 ? fp4[v] : (uint8_t)v;
    }
    for (size_t k = 0; k < 4; k++) {
        const size_t c = u * NB_PK_UNIT + 8 * k;
        float scale = 0;
        uint8_t zero = 0;
        if (c < w->n_col) {
            nb_packed_scales(g, r * n_group + c / g->size, 1, &scale);
            zero = is_fp4 ? 12 : g->zero ? g->zero[r * n_group + c / g->size] : byte ? 128 : 8;
        }
        fill(o, k, 1, is_fp4 ? scale * g->outer * 0.5f : scale * g->outer, 0, zero);
    }
}

/* ---- blocks of 32 ---- */

static void nibbles(const uint8_t *q, size_t n_byte, const uint8_t *table, uint8_t *out)
{
    for (size_t j = 0; j < n_byte; j++) {
        out[j] = table ? table[q[j] & 15] : q[j] & 15;
        out[j + n_byte] = table ? table[q[j] >> 4] : q[j] >> 4;
    }
}
static void fifth_bits(const uint8_t *h, uint8_t *out)
{
    for (size_t j = 0; j < 32; j++) out[j] |= (uint8_t)((h[j / 8] >> (j & 7) & 1) << 4);
}

static void block32(nb_wtype t, const uint8_t *b, nb_packed_unit *o)
{
    float scale, min = 0;
    uint8_t zero = 0;
    scale = t == NB_W_MXFP4
                ? nb_f32_from_bits(b[0] < 2 ? 0x00200000u << b[0] : (uint32_t)(b[0] - 1) << 23)
                : f16_at(b);
    switch (t) {
    case NB_W_Q8_0:
        for (size_t j = 0; j < 32; j++) o->code[j] = b[2 + j] ^ 0x80;
        zero = 128;
        break;
    case NB_W_Q4_0: nibbles(b + 2, 16, NULL, o->code), zero = 8; break;
    case NB_W_Q4_1: nibbles(b + 4, 16, NULL, o->code), min = f16_at(b + 2); break;
    case NB_W_Q5_0:
        nibbles(b + 6, 16, NULL, o->code), zero = 16;
        fifth_bits(b + 2, o->code);
        break;
    case NB_W_Q5_1:
        nibbles(b + 8, 16, NULL, o->code), min = f16_at(b + 2);
        fifth_bits(b + 4, o->code);
        break;
    case NB_W_IQ4_NL: nibbles(b + 2, 16, iq4, o->code), zero = 128; break;
    default: nibbles(b + 1, 16, fp4, o->code), zero = 12; break;
    }
    fill(o, 0, 4, scale, min, zero);
}

/* Half u of a block of 64. */
static void nvfp4(const uint8_t *b, size_t u, float outer, nb_packed_unit *o)
{
    for (size_t s = 0; s < 2; s++) {
        const uint8_t e = b[2 * u + s];
        const float d = e == NB_E4M3_NAN            ? 0
                        : (e & 0x7f) == NB_E4M3_NAN ? 480
                                                    : nb_e4m3_to_f32(e & 0x7f);
        nibbles(b + 4 + 8 * (2 * u + s), 8, fp4, o->code + 16 * s);
        fill(o, 2 * s, 2, d * 0.5f * outer, 0, 12);
    }
}

/* ---- unit u of blocks of 256 ---- */

static void q4_5_k(const uint8_t *b, size_t u, bool five, nb_packed_unit *o)
{
    const uint8_t *q = b + (five ? 48 : 16) + 32 * (u / 2);
    uint8_t sc[8], mn[8];
    nb_ggml_k_scales(b + 4, sc, mn);
    for (size_t l = 0; l < 32; l++)
        o->code[l] = (uint8_t)((q[l] >> 4 * (u & 1) & 15) | (five ? (b[16 + l] >> u & 1) << 4 : 0));
    fill(o, 0, 4, f16_at(b) * (float)sc[u], -(f16_at(b + 2) * (float)mn[u]), 0);
}

static void q6_k(const uint8_t *b, size_t u, nb_packed_unit *o)
{
    const size_t p = u / 4, t = u & 3;
    for (size_t l = 0; l < 32; l++) {
        const int lo = b[64 * p + l + 32 * (t & 1)] >> 4 * (t >> 1) & 15;
        o->code[l] = (uint8_t)(lo | (b[128 + 32 * p + l] >> 2 * t & 3) << 4);
    }
    for (size_t h = 0; h < 2; h++)
        fill(o, 2 * h, 2, f16_at(b + 208) * (float)(int8_t)b[192 + 2 * u + h], 0, 32);
}

static void q2_k(const uint8_t *b, size_t u, nb_packed_unit *o)
{
    for (size_t l = 0; l < 32; l++) o->code[l] = b[16 + 32 * (u / 4) + l] >> 2 * (u & 3) & 3;
    for (size_t h = 0; h < 2; h++) {
        const uint8_t s = b[2 * u + h];
        fill(o, 2 * h, 2, f16_at(b + 80) * (float)(s & 15), -(f16_at(b + 82) * (float)(s >> 4)), 0);
    }
}

static void q3_k(const uint8_t *b, size_t u, nb_packed_unit *o)
{
    for (size_t l = 0; l < 32; l++)
        o->code[l] = (uint8_t)((b[32 + 32 * (u / 4) + l] >> 2 * (u & 3) & 3) | (b[l] >> u & 1) << 2);
    const uint8_t *s = b + 96;
    for (size_t h = 0; h < 2; h++) {
        const size_t i = 2 * u + h;
        const int lo = i < 8 ? s[i] & 15 : s[i - 8] >> 4, hi = s[8 + i % 4] >> 2 * (i / 4) & 3;
        fill(o, 2 * h, 2, f16_at(b + 108) * (float)(lo + 16 * hi - 32), 0, 4);
    }
}

static void iq4_xs(const uint8_t *b, size_t u, nb_packed_unit *o)
{
    const int lo = b[4 + u / 2] >> 4 * (u & 1) & 15, hi = u16_at(b + 2) >> 2 * u & 3;
    nibbles(b + 8 + 16 * u, 16, iq4, o->code);
    fill(o, 0, 4, f16_at(b) * (float)(lo + 16 * hi - 32), 0, 128);
}

void nb_packed_unit_of(const nb_weight *w, size_t r, size_t u, nb_packed_unit *o)
{
    const nb_wtype_traits *x = &nb_wtypes[w->type];
    const size_t per = x->block / NB_PK_UNIT;
    if (w->type <= NB_W_FP4) {
        grouped(w, r, u, o);
        return;
    }
    const uint8_t *b = (const uint8_t *)w->data + r * nb_wtype_row_bytes(w->type, w->n_col) +
                       u / per * x->block_bytes;
    const size_t k = u % per;
    switch (w->type) {
    case NB_W_Q2_K: q2_k(b, k, o); break;
    case NB_W_Q3_K: q3_k(b, k, o); break;
    case NB_W_Q4_K: q4_5_k(b, k, false, o); break;
    case NB_W_Q5_K: q4_5_k(b, k, true, o); break;
    case NB_W_Q6_K: q6_k(b, k, o); break;
    case NB_W_IQ4_XS: iq4_xs(b, k, o); break;
    case NB_W_GGUF_NVFP4: nvfp4(b, k, w->group.outer, o); break;
    default: block32(w->type, b, o); break;
    }
}
