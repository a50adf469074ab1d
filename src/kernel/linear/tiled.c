/* tiled.c - see tiled.h.  A row at a time: codes to bytes, bytes to words. */
#include "kernel/linear/tiled.h"

#include <string.h>

#include "kernel/linear/linear_units.h"
#include "kernel/linear/packed.h"
#include "num/bf16.h"
#include "num/fp16.h"
#include "num/ggml.h"

enum { COLS = NB_TILED_COLS };

static size_t n_block(size_t n_col)
{
    return (n_col + COLS - 1) / COLS;
}

static size_t zero_bytes(const nb_tiled *t) /* of a block */
{
    return t->scale_type == NB_S_F16_MIN ? 2 * NB_TILED_ZEROS : NB_TILED_ZEROS;
}

size_t nb_tiled_code_bytes(const nb_tiled *t, size_t n_col)
{
    return n_block(n_col) * (t->type == NB_W_BYTE ? COLS : COLS / 2);
}
size_t nb_tiled_scale_bytes(const nb_tiled *t, size_t n_col)
{
    return t->groups ? n_block(n_col) * NB_TILED_SCALES : 0;
}
size_t nb_tiled_zero_bytes(const nb_tiled *t, size_t n_col)
{
    return t->zeros ? n_block(n_col) * zero_bytes(t) : 0;
}
size_t nb_tiled_bytes(const nb_tiled *t, size_t n_row, size_t n_col)
{
    return n_row * (nb_tiled_code_bytes(t, n_col) + nb_tiled_scale_bytes(t, n_col) +
                    nb_tiled_zero_bytes(t, n_col) + sizeof(float));
}

/* ---- which form ---- */

/* Whether all scales are BF16, or all FP16, numbers; *out: which. */
static bool fits_16_bits(const nb_wgroups *g, size_t n, nb_stype *out)
{
    bool b = true, h = true;
    float s[256];
    for (size_t i = 0; i < n && (b || h); i += NB_COUNT(s)) {
        const size_t m = n - i < NB_COUNT(s) ? n - i : NB_COUNT(s);
        nb_packed_scales(g, i, m, s);
        for (size_t k = 0; k < m; k++) {
            b &= nb_bf16_to_f32(nb_bf16_from_f32(s[k])) == s[k];
            h &= nb_fp16_to_f32(nb_fp16_from_f32(s[k])) == s[k];
        }
    }
    *out = b ? NB_S_BF16 : NB_S_F16;
    return b || h;
}

static const char *of_groups(const nb_weight *w, nb_tiled *out)
{
    const nb_wgroups *g = &w->group;
    const size_t unit = w->type == NB_W_FP4 ? 16 : 32;
    if (g->place) return "in act order";
    out->zeros = g->zero != NULL;
    if (w->type != NB_W_FP4 && g->size >= w->n_col) return NULL; /* a scale per row */
    out->groups = true;
    if (g->size % unit) return "in groups that are no multiples of 32 columns (FP4: 16)";
    out->scale_type = g->scale_type;
    if (w->type == NB_W_FP4)
        return g->scale_type == NB_S_E4M3 || g->scale_type == NB_S_E8M0
                   ? NULL
                   : "with scales other than E4M3 and E8M0";
    if (g->scale_type == NB_S_BF16 || g->scale_type == NB_S_F16) return NULL;
    return fits_16_bits(g, w->n_row * nb_weight_n_group(w), &out->scale_type)
               ? NULL
               : "with scales that 16 bits do not hold";
}

/* Blocks of GGUF: their form, and the factor of every row. */
static const struct {
    nb_wtype from, type;
    nb_stype scale;
    float row;
} of_blocks[] = {
    { NB_W_Q4_0, NB_W_INT4, NB_S_F16, 1 },         { NB_W_Q8_0, NB_W_BYTE, NB_S_F16, 1 },
    { NB_W_Q5_0, NB_W_BYTE, NB_S_F16, 1 },         { NB_W_IQ4_NL, NB_W_BYTE, NB_S_F16, 1 },
    { NB_W_MXFP4, NB_W_FP4, NB_S_E8M0, 1 },        { NB_W_GGUF_NVFP4, NB_W_FP4, NB_S_E4M3, 1 },
    { NB_W_Q4_1, NB_W_INT4, NB_S_F16_MIN, 1 },     { NB_W_Q5_1, NB_W_BYTE, NB_S_F16_MIN, 1 },
    { NB_W_Q4_K, NB_W_INT4, NB_S_K32, 1 },         { NB_W_Q5_K, NB_W_BYTE, NB_S_K32, 1 },
    { NB_W_Q6_K, NB_W_BYTE, NB_S_K16, 1 },         { NB_W_Q3_K, NB_W_INT4, NB_S_K16, 1 },
    { NB_W_Q2_K, NB_W_INT4, NB_S_K16_MIN, 1 },     { NB_W_IQ4_XS, NB_W_BYTE, NB_S_K16, 1 },
    { NB_W_IQ2_XXS, NB_W_BYTE, NB_S_K16, 0.125f }, { NB_W_IQ2_XS, NB_W_BYTE, NB_S_K16, 0.125f },
    { NB_W_IQ2_S, NB_W_BYTE, NB_S_K16, 0.125f },   { NB_W_IQ3_XXS, NB_W_BYTE, NB_S_K16, 0.25f },
    { NB_W_IQ3_S, NB_W_BYTE, NB_S_K16, 1 },        { NB_W_IQ1_S, NB_W_BYTE, NB_S_K16, 0.125f },
    { NB_W_IQ1_M, NB_W_BYTE, NB_S_K16, 0.125f },
};

static size_t block_row(nb_wtype type)
{
    size_t i = 0;
    while (i < NB_COUNT(of_blocks) && of_blocks[i].from != type) i++;
    return i;
}

const char *nb_tiled_of(const nb_weight *w, nb_tiled *out)
{
    *out = (nb_tiled){ w->type, NB_S_F16, false, false };
    if (w->type == NB_W_INT8) {
        out->type = NB_W_BYTE;
        return NULL;
    }
    if (w->type == NB_W_INT4 || w->type == NB_W_BYTE || w->type == NB_W_FP4) return of_groups(w, out);
    const size_t i = block_row(w->type);
    if (i == NB_COUNT(of_blocks)) return "of this type";
    *out = (nb_tiled){ of_blocks[i].type, of_blocks[i].scale, true,
                       nb_stype_is_k(of_blocks[i].scale) };
    return NULL;
}

bool nb_tiled_join(nb_tiled *a, const nb_tiled *b)
{
    if (a->type != b->type || a->groups != b->groups) return false;
    if (a->groups && a->scale_type != b->scale_type) return false;
    a->zeros |= b->zeros;
    return true;
}

/* ---- a row as bytes ---- */

/* codes: one per byte, as they are multiplied before zero is subtracted; scale and zero of every `unit` columns. */
typedef struct row {
    uint8_t code[256], scale8[16], zero[8]; /* code: a block of GGUF may be two of these */
    uint16_t scale16[8], zero16[4];
} row;

static const int8_t iq4[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                1,    13,   25,  38,  53,  69,  89,  113 };

static void nibbles_apart(const uint8_t *q, size_t n, uint8_t *out) /* byte j: values j and j + n */
{
    for (size_t j = 0; j < n; j++) {
        out[j] = q[j] & 15;
        out[j + n] = q[j] >> 4;
    }
}

/* One block of GGUF to columns [c, ...) of the block of 128. */
static void ggml_block(nb_wtype type, const uint8_t *b, size_t c, row *out)
{
    uint8_t *code = out->code + c;
    uint32_t high = 0;
    if (type == NB_W_GGUF_NVFP4) {
        for (size_t s = 0; s < 4; s++) {
            out->scale8[c / 16 + s] = b[s] == 0x7f ? 0 : b[s] & 0x7f;
            nibbles_apart(b + 4 + 8 * s, 8, code + 16 * s);
        }
        return;
    }
    memcpy(&out->scale16[c / 32], b, 2);
    switch (type) {
    case NB_W_Q8_0:
        for (size_t j = 0; j < 32; j++) code[j] = b[2 + j] ^ 0x80;
        return;
    case NB_W_Q4_0: nibbles_apart(b + 2, 16, code); return;
    case NB_W_Q5_0:
        memcpy(&high, b + 2, 4);
        nibbles_apart(b + 6, 16, code);
        for (size_t j = 0; j < 32; j++)
            code[j] = (uint8_t)(128 - 16 + (code[j] | (high >> j & 1) << 4));
        return;
    case NB_W_IQ4_NL:
        nibbles_apart(b + 2, 16, code);
        for (size_t j = 0; j < 32; j++) code[j] = (uint8_t)(128 + iq4[code[j]]);
        return;
    default: /* MXFP4 */
        nibbles_apart(b + 1, 16, code);
        out->scale8[c / 16] = out->scale8[c / 16 + 1] = b[0];
        return;
    }
}

/* ---- blocks with minima, or scales in two levels ---- */

static unsigned u16_of(const uint8_t *p)
{
    return p[0] | (unsigned)p[1] << 8;
}

/* The signed scale of columns [16 i, 16 i + 16) of a block of 256, in units of the block's d, times the row's factor. */
static int k16_scale(nb_wtype type, const uint8_t *b, size_t i)
{
    const size_t u = i / 2; /* 32 columns */
    switch (type) {
    case NB_W_Q6_K: return (int8_t)b[192 + i];
    case NB_W_Q3_K: {
        const uint8_t *s = b + 96;
        const int lo = i < 8 ? s[i] & 15 : s[i - 8] >> 4, hi = s[8 + i % 4] >> 2 * (i / 4) & 3;
        return lo + 16 * hi - 32;
    }
    case NB_W_IQ4_XS:
        return (b[4 + u / 2] >> 4 * (u & 1) & 15) + 16 * (int)(u16_of(b + 2) >> 2 * u & 3) - 32;
    case NB_W_IQ2_XXS: return 2 * (b[2 + 8 * u + 7] >> 4) + 1;
    case NB_W_IQ2_XS: return 2 * (b[66 + u] >> 4 * (i & 1) & 15) + 1;
    case NB_W_IQ2_S: return 2 * (b[74 + u] >> 4 * (i & 1) & 15) + 1;
    case NB_W_IQ3_XXS: return 2 * (b[66 + 4 * u + 3] >> 4) + 1;
    case NB_W_IQ3_S: return 2 * (b[106 + u / 2] >> 4 * (u & 1) & 15) + 1;
    case NB_W_IQ1_S: return 2 * (int)(u16_of(b + 34 + 2 * u) >> 12 & 7) + 1;
    default: /* IQ1_M */
        return 2 * (int)(u16_of(b + 48 + 2 * (u / 2)) >> (6 * (u & 1) + 3 * (i & 1)) & 7) + 1;
    }
}

/* IQ1 to IQ3: the values of a block whose d is 1, over their scales, are integers. */
static void grid_codes(const nb_weight *w, float factor, const uint8_t *block, size_t half, row *out)
{
    uint8_t one[128];
    float v[256];
    const nb_weight copy = { .data = one, .n_row = 1, .n_col = 256, .type = w->type };
    memcpy(one, block, nb_wtypes[w->type].block_bytes);
    if (w->type == NB_W_IQ1_M) { /* its d is spread over four words */
        for (size_t k = 0; k < 4; k++) one[49 + 2 * k] &= 15;
        one[53] |= 0xc0;
        one[55] |= 0x30;
    } else
        one[0] = 0, one[1] = 0x3c;
    nb_wtypes[w->type].values(&copy, 0, 0, 256, v);
    for (size_t c = 0; c < COLS; c++) {
        const size_t at = COLS * half + c;
        const float q = v[at] / (factor * (float)k16_scale(w->type, block, at / 16));
        out->code[c] = (uint8_t)(128 + (int)q);
    }
}

static uint16_t d_of(nb_wtype type, const uint8_t *b)
{
    const size_t at = type == NB_W_Q6_K   ? 208
                      : type == NB_W_Q3_K ? 108
                      : type == NB_W_Q2_K ? 80
                                          : 0;
    if (type != NB_W_IQ1_M) return (uint16_t)u16_of(b + at);
    return (uint16_t)(b[49] >> 4 | b[51] >> 4 << 4 | b[53] >> 4 << 8 | b[55] >> 4 << 12);
}

/* The scales of half a block of 256; b is the block. */
static void k_planes(nb_wtype type, nb_stype s, const uint8_t *b, size_t half, row *out)
{
    const uint16_t d = d_of(type, b);
    uint8_t sc[8], mn[8];
    memcpy(out->zero, &d, 2);
    memset(out->zero + 2, 0, 2);
    if (s == NB_S_K32) {
        nb_ggml_k_scales(b + 4, sc, mn);
        memcpy(out->scale8, sc + 4 * half, 4);
        memcpy(out->scale8 + 4, mn + 4 * half, 4);
        memcpy(out->zero + 2, b + 2, 2);
    } else if (s == NB_S_K16_MIN) {
        memcpy(out->scale8, b + 8 * half, 8);
        memcpy(out->zero + 2, b + 82, 2);
    } else
        for (size_t i = 0; i < 8; i++) out->scale8[i] = (uint8_t)k16_scale(type, b, 8 * half + i);
}

/* Columns [c, c + n) of row r, n <= 128, by units of 32. */
static void k_block(const nb_weight *w, const nb_tiled *t, size_t r, size_t c, size_t n, row *out)
{
    const nb_wtype_traits *x = &nb_wtypes[w->type];
    const uint8_t *b = (const uint8_t *)w->data + r * nb_wtype_row_bytes(w->type, w->n_col) +
                       c / x->block * x->block_bytes;
    const size_t half = c % x->block / COLS;
    const int zero = t->type == NB_W_BYTE                                         ? 128
                     : t->scale_type == NB_S_F16_MIN || t->scale_type == NB_S_K32 ? 0
                                                                                  : 8;
    if (x->block == 256) k_planes(w->type, t->scale_type, b, half, out);
    if (!nb_packed_has_units(w->type)) {
        grid_codes(w, of_blocks[block_row(w->type)].row, b, half, out);
        return;
    }
    for (size_t u = 0; u < (n + NB_PK_UNIT - 1) / NB_PK_UNIT; u++) {
        nb_packed_unit q;
        nb_packed_unit_of(w, r, c / NB_PK_UNIT + u, &q);
        for (size_t i = 0; i < NB_PK_UNIT; i++)
            out->code[NB_PK_UNIT * u + i] = (uint8_t)(q.code[i] - q.zero[i / 8] + zero);
        if (x->block != 32) continue;
        memcpy(&out->scale16[u], b + u * x->block_bytes, 2);
        memcpy(&out->zero16[u], b + u * x->block_bytes + 2, 2);
    }
}

static uint16_t as_16_bits(nb_stype t, float s)
{
    return t == NB_S_BF16 ? nb_bf16_from_f32(s) : nb_fp16_from_f32(s);
}

/* Codes of columns [c, c + n) of a row of INT4, BYTE, FP4 or INT8. */
static void plain_codes(const nb_weight *w, const uint8_t *data, size_t c, size_t n, uint8_t *out)
{
    const uint8_t flip = w->type == NB_W_INT8 ? 0x80 : w->group.flip;
    if (w->type == NB_W_INT8 || w->type == NB_W_BYTE) {
        for (size_t i = 0; i < n; i++) out[i] = data[c + i] ^ flip;
        return;
    }
    for (size_t i = 0; i < (n + 1) / 2; i++) {
        const uint8_t b = data[c / 2 + i] ^ flip;
        out[2 * i] = b & 15;
        out[2 * i + 1] = b >> 4;
    }
}

static void plain_planes(const nb_weight *w, const nb_tiled *t, size_t r, size_t c, size_t n,
                         row *out)
{
    const nb_wgroups *g = &w->group;
    const size_t unit = t->type == NB_W_FP4 ? 16 : 32,
                 n_group = t->groups ? nb_weight_n_group(w) : 1;
    if (n == COLS && t->groups && g->size == unit && g->scale_type == t->scale_type && !t->zeros) {
        const size_t k = (r * n_group + c / unit) * nb_stype_bytes(g->scale_type);
        void *to = t->type == NB_W_FP4 ? (void *)out->scale8 : out->scale16;
        memcpy(to, (const uint8_t *)g->scale + k, NB_TILED_SCALES);
        return;
    }
    for (size_t i = 0; i * unit < n; i++) {
        const size_t k = r * n_group + (t->groups ? (c + i * unit) / g->size : 0);
        if (t->type == NB_W_FP4) {
            out->scale8[i] = ((const uint8_t *)g->scale)[k];
            continue;
        }
        out->zero[i] = w->type != NB_W_INT8 && g->zero ? g->zero[k]
                       : t->type == NB_W_INT4          ? 8
                                                       : 128;
        if (!t->groups) continue;
        float s;
        nb_packed_scales(g, k, 1, &s);
        out->scale16[i] = as_16_bits(t->scale_type, s);
    }
}

/* Codes that need not be taken apart. */
static bool fast(const nb_weight *w, size_t n)
{
    return n == COLS && (w->type == NB_W_INT4 || w->type == NB_W_FP4);
}

static void read_block(const nb_weight *w, const nb_tiled *t, size_t r, size_t c, row *out)
{
    const size_t n = w->n_col - c < COLS ? w->n_col - c : COLS;
    const nb_wtype_traits *x = &nb_wtypes[w->type];
    const uint8_t *data = (const uint8_t *)w->data + r * nb_wtype_row_bytes(w->type, w->n_col);
    memset(out, 0, sizeof *out);
    memset(out->zero, t->type == NB_W_INT4 ? 8 : 128, sizeof out->zero);
    if (nb_stype_is_k(t->scale_type)) {
        k_block(w, t, r, c, n, out);
        return;
    }
    if (w->type > NB_W_FP4) {
        for (size_t i = 0; i < n; i += x->block)
            ggml_block(w->type, data + (c + i) / x->block * x->block_bytes, i, out);
        return;
    }
    plain_planes(w, t, r, c, n, out);
    if (fast(w, n)) return;
    plain_codes(w, data, c, n, out->code);
    memset(out->code + n, 0, sizeof out->code - n);
}

static float row_factor(const nb_weight *w, const nb_tiled *t, size_t r)
{
    float s = 1;
    if (w->type == NB_W_INT8) return w->scale[r];
    if (w->type == NB_W_GGUF_NVFP4) return w->group.outer;
    if (w->type > NB_W_FP4) return of_blocks[block_row(w->type)].row;
    if (!t->groups) nb_packed_scales(&w->group, r, 1, &s);
    return s * w->group.outer;
}

/* ---- words ---- */

/* The four low bits of each byte, side by side in 16. */
static uint32_t squeezed(uint32_t x)
{
    x = (x | x >> 4) & 0x00ff00ffu;
    return (x | x >> 8) & 0xffffu;
}

static void put_nibbles(const uint8_t *code, uint8_t *out)
{
    for (size_t t = 0; t < 4; t++)
        for (size_t j = 0; j < 4; j++) {
            const uint8_t *c = code + 32 * j + 2 * t;
            const uint32_t even =
                c[0] | (uint32_t)c[8] << 8 | (uint32_t)c[16] << 16 | (uint32_t)c[24] << 24;
            const uint32_t odd =
                c[1] | (uint32_t)c[9] << 8 | (uint32_t)c[17] << 16 | (uint32_t)c[25] << 24;
            const uint32_t word = squeezed(even) | squeezed(odd) << 16;
            memcpy(out + 16 * t + 4 * j, &word, sizeof word);
        }
}

/* The same from 64 bytes of codes in order. */
static void put_words(const uint8_t *data, uint8_t flip, uint8_t *out)
{
    const uint32_t low = 0x0f0f0f0fu, f = flip * 0x01010101u;
    uint32_t word[16];
    for (size_t j = 0; j < 4; j++) {
        uint32_t o[4];
        memcpy(o, data + 16 * j, sizeof o);
        for (unsigned t = 0; t < 4; t++) {
            const uint32_t x = ((o[0] >> 8 * t & 255) | (o[1] >> 8 * t & 255) << 8 |
                                (o[2] >> 8 * t & 255) << 16 | (o[3] >> 8 * t & 255) << 24) ^
                               f;
            word[4 * t + j] = squeezed(x & low) | squeezed(x >> 4 & low) << 16;
        }
    }
    memcpy(out, word, sizeof word);
}

static void put_bytes(const uint8_t *code, uint8_t *out)
{
    for (size_t half = 0; half < 2; half++)
        for (size_t t = 0; t < 4; t++)
            for (size_t i = 0; i < 4; i++) {
                const uint8_t *c = code + 64 * half + 16 * i + 2 * t;
                const uint8_t four[4] = { c[0], c[1], c[8], c[9] };
                memcpy(out + 64 * half + 16 * t + 4 * i, four, sizeof four);
            }
}

/* Whether scales are bytes. */
static bool bytes_of_scale(const nb_tiled *t)
{
    return t->type == NB_W_FP4 || t->scale_type >= NB_S_K32;
}

void nb_tiled_make(const nb_weight *w, const nb_tiled *t, size_t r0, size_t n,
                   const nb_tiled_rows *out)
{
    const size_t nb = n_block(w->n_col), bytes = nb_tiled_code_bytes(t, w->n_col) / nb;
    const size_t row_bytes = nb_wtype_row_bytes(w->type, w->n_col);
    for (size_t i = 0; i < n; i++) {
        for (size_t b = 0; b < nb; b++) {
            const size_t at = i * nb + b;
            row x;
            read_block(w, t, r0 + i, b * COLS, &x);
            if (fast(w, w->n_col - b * COLS < COLS ? 0 : COLS))
                put_words((const uint8_t *)w->data + ((r0 + i) * row_bytes + b * COLS / 2),
                          w->group.flip, out->code + at * bytes);
            else if (t->type == NB_W_BYTE)
                put_bytes(x.code, out->code + at * bytes);
            else
                put_nibbles(x.code, out->code + at * bytes);
            if (t->groups)
                memcpy((uint8_t *)out->scale + at * NB_TILED_SCALES,
                       bytes_of_scale(t) ? (const void *)x.scale8 : x.scale16, NB_TILED_SCALES);
            if (t->zeros)
                memcpy(out->zero + at * zero_bytes(t),
                       t->scale_type == NB_S_F16_MIN ? (const void *)x.zero16 : x.zero,
                       zero_bytes(t));
        }
        out->row[i] = row_factor(w, t, r0 + i);
    }
}
