/* check_gen.c - cases, random numbers and input patterns. */
#include <stdarg.h>

#include "base/hash.h"
#include "check/check.h"
#include "kernel/linear/packed.h"
#include "num/bf16.h"
#include "num/e4m3.h"
#include "num/fp16.h"

bool chk_case(chk *t, const char *fmt, ...)
{
    va_list ap;
    chk_free_all(t);
    va_start(ap, fmt);
    vsnprintf(t->name, sizeof t->name, fmt, ap);
    va_end(ap);
    t->case_seed = nb_hash_bytes(t->name, strlen(t->name), t->seed);
    t->draw = 0;
    t->failed = false;
    t->front = t->n_case % 2 != 0;
    const size_t at = t->n_case++;
    if (t->quiet && t->n_fail) return false; /* self-test: one report is enough */
    if (t->every > 1 && at % t->every != t->first) {
        t->n_skip_case++;
        return false;
    }
    for (size_t i = 0; i < t->n_crashed; i++) {
        if (t->crashed[i] != at) continue;
        t->n_skip_case++;
        return false;
    }
    return true;
}

uint64_t chk_u64(chk *t)
{
    return nb_rng_u64(t->case_seed, t->draw++);
}

size_t chk_between(chk *t, size_t lo, size_t hi)
{
    return lo + (size_t)(chk_u64(t) % (hi - lo + 1));
}

double chk_unit(chk *t)
{
    return nb_rng_unit(t->case_seed, t->draw++);
}

const char *chk_pattern_name(chk_pattern p)
{
    static const char *const name[] = { "normal",  "tiny", "large", "zero", "altern",
                                        "outlier", "ties", "const", "runs" };
    return name[p];
}

static float one(chk *t, chk_pattern p, size_t i, float c)
{
    const double u = 2 * chk_unit(t) - 1;
    switch (p) {
    case CHK_TINY: return (float)ldexp(u, -100 - (int)chk_between(t, 0, 49));
    case CHK_LARGE: return (float)ldexp(u, (int)chk_between(t, 0, 30));
    case CHK_ZERO: return u < 0 ? -0.0f : 0.0f;
    case CHK_ALTERN: return i % 2 ? -c : c;
    case CHK_OUTLIER: return (float)(chk_u64(t) % 61 ? u : 1000 * u);
    case CHK_TIES: return (float)((int)chk_between(t, 0, 16) - 8) * 0.5f;
    case CHK_CONST: return c;
    default: return (float)u;
    }
}

void chk_fill(chk *t, float *x, size_t n, chk_pattern p)
{
    const float c = (float)(0.5 + 0.5 * chk_unit(t));
    if (p != CHK_RUNS) {
        for (size_t i = 0; i < n; i++) x[i] = one(t, p, i, c);
        return;
    }
    for (size_t i = 0, m; i < n; i += m) {
        const chk_pattern q = (chk_pattern)chk_between(t, 0, CHK_RUNS - 1);
        m = chk_between(t, 1, 40);
        if (m > n - i) m = n - i;
        for (size_t j = i; j < i + m; j++) x[j] = one(t, q, j, c);
    }
}

/* The largest codes where a pattern has one magnitude, else all codes. */
static int8_t int8_code(chk_pattern p, float x, uint8_t any)
{
    if (p == CHK_CONST || p == CHK_ALTERN || p == CHK_ZERO)
        return (int8_t)(x > 0 ? 127 : x < 0 ? -127 : 0);
    return (int8_t)(p == CHK_NORMAL ? lrintf(127 * x) : any % 255 - 127);
}

/* Random codes with scales near 2^-7; every kind of scale, groups of 16 to 128 columns or the row, zero
 * points for integers and an order of columns in some. */
static nb_weight grouped_weight(chk *t, nb_wtype type, size_t n_row, size_t n_col, chk_pattern p)
{
    static const size_t sizes[] = { 16, 32, 64, 128, 8, 40 };
    nb_weight w = { .n_row = n_row, .n_col = n_col, .type = type };
    nb_wgroups *g = &w.group;
    const size_t pick = chk_between(t, 0, NB_COUNT(sizes));
    g->size = pick == NB_COUNT(sizes) ? n_col : sizes[pick];
    g->scale_type = (nb_stype)chk_between(t, NB_S_F32, NB_S_E8M0);
    g->outer = chk_u64(t) % 2 ? 1.0f : 0.3f;
    g->flip = type != NB_W_FP4 && chk_u64(t) % 4 == 0 ? (type == NB_W_INT4 ? 0x88 : 0x80) : 0;
    const size_t n = n_row * nb_weight_n_group(&w), n_bytes = nb_weight_data_bytes(&w);
    uint8_t *data = chk_in(t, n_bytes), *scale = chk_in(t, n * nb_stype_bytes(g->scale_type));
    for (size_t i = 0; i < n_bytes; i++)
        data[i] = p == CHK_ZERO && type == NB_W_FP4 ? 0 : (uint8_t)chk_u64(t);
    for (size_t i = 0; i < n; i++) {
        const float x = (float)ldexp(1 + chk_unit(t), (int)chk_between(t, 0, 6) - 9);
        if (g->scale_type == NB_S_F32) ((float *)(void *)scale)[i] = x;
        if (g->scale_type == NB_S_BF16) ((uint16_t *)(void *)scale)[i] = nb_bf16_from_f32(x);
        if (g->scale_type == NB_S_F16) ((uint16_t *)(void *)scale)[i] = nb_fp16_from_f32_sat(x);
        if (g->scale_type == NB_S_E4M3) scale[i] = nb_e4m3_from_f32(x);
        if (g->scale_type == NB_S_E8M0) scale[i] = (uint8_t)(nb_f32_bits(x) >> 23);
    }
    w.data = data;
    g->scale = scale;
    if (type != NB_W_FP4 && chk_u64(t) % 2) {
        uint8_t *zero = chk_in(t, n);
        for (size_t i = 0; i < n; i++) zero[i] = (uint8_t)(chk_u64(t) % (type == NB_W_INT4 ? 16 : 256));
        g->zero = zero;
    }
    if (chk_u64(t) % 4 == 0) {
        uint32_t *place = chk_in(t, n_col * sizeof *place), *column = chk_in(t, n_col * sizeof *column);
        for (size_t i = 0; i < n_col; i++) {
            const size_t j = chk_between(t, 0, i);
            column[i] = column[j];
            column[j] = (uint32_t)i;
        }
        for (size_t i = 0; i < n_col; i++) place[column[i]] = (uint32_t)i;
        g->place = place;
        g->column = column;
    }
    return w;
}

/* Random codes; where a block has FP16 numbers they are made finite: near 2^-7, of either sign. */
static nb_weight gguf_weight(chk *t, nb_wtype type, size_t n_row, size_t n_col)
{
    static const struct {
        nb_wtype type;
        size_t at, n; /* of the FP16 numbers of a block */
    } halves[] = {
        { NB_W_Q8_0, 0, 1 }, { NB_W_Q4_0, 0, 1 },   { NB_W_Q4_1, 0, 2 },   { NB_W_Q5_0, 0, 1 },
        { NB_W_Q5_1, 0, 2 }, { NB_W_Q2_K, 80, 2 },  { NB_W_Q3_K, 108, 1 }, { NB_W_Q4_K, 0, 2 },
        { NB_W_Q5_K, 0, 2 }, { NB_W_Q6_K, 208, 1 }, { NB_W_IQ4_NL, 0, 1 }, { NB_W_IQ4_XS, 0, 1 },
        { NB_W_IQ2_XXS, 0, 1 }, { NB_W_IQ2_XS, 0, 1 }, { NB_W_IQ2_S, 0, 1 }, { NB_W_IQ3_XXS, 0, 1 },
        { NB_W_IQ3_S, 0, 1 }, { NB_W_IQ1_S, 0, 1 },
    };
    nb_weight w = { .n_row = n_row, .n_col = n_col, .type = type, .group.outer = 0.75f };
    const size_t n_bytes = nb_weight_data_bytes(&w), block = nb_wtypes[type].block_bytes;
    uint8_t *data = chk_in(t, n_bytes);
    for (size_t i = 0; i < n_bytes; i++) data[i] = (uint8_t)chk_u64(t);
    for (size_t b = 0; b < n_bytes; b += block) {
        for (size_t k = 0; k < NB_COUNT(halves); k++)
            for (size_t i = 0; halves[k].type == type && i < halves[k].n; i++) {
                const float x = (float)ldexp(1 + chk_unit(t), (int)chk_between(t, 0, 6) - 9);
                const uint16_t h = nb_fp16_from_f32(chk_u64(t) % 2 ? x : -x);
                memcpy(data + b + halves[k].at + 2 * i, &h, sizeof h);
            }
        if (type == NB_W_MXFP4) data[b] = (uint8_t)(120 + data[b] % 8);
        if (type == NB_W_IQ1_M) data[b + 55] = (uint8_t)(0x20 | data[b + 55] % 16); /* near 2^-7 */
    }
    w.data = data;
    return w;
}

nb_weight chk_weight(chk *t, nb_wtype type, size_t n_row, size_t n_col, chk_pattern p)
{
    if (type > NB_W_FP4) return gguf_weight(t, type, n_row, n_col);
    if (nb_wtype_is_packed(type)) return grouped_weight(t, type, n_row, n_col, p);
    const size_t n = n_row * n_col, n_block = ((n_row + 127) / 128) * ((n_col + 127) / 128);
    nb_weight w = { .n_row = n_row, .n_col = n_col, .type = type };
    void *data = chk_in(t, n * nb_wtype_bytes(type));
    if (type == NB_W_FP8B) {
        float *scale = chk_in(t, n_block * sizeof *scale);
        for (size_t i = 0; i < n_block; i++)
            scale[i] = (float)ldexp(1 + chk_unit(t), (int)chk_between(t, 0, 12) - 10);
        w.scale = scale;
    }
    if (type == NB_W_INT8) {
        float *scale = chk_in(t, n_row * sizeof *scale);
        for (size_t i = 0; i < n_row; i++)
            scale[i] = (float)ldexp(1 + chk_unit(t), (int)chk_between(t, 0, 12) - 14);
        w.scale = scale;
    }
    for (size_t r = 0; r < n_row; r++) {
        float row[64];
        for (size_t c = 0; c < n_col; c += 64) {
            const size_t m = n_col - c < 64 ? n_col - c : 64, at = r * n_col + c;
            chk_fill(t, row, m, p);
            for (size_t i = 0; i < m; i++) {
                const uint8_t any = (uint8_t)chk_u64(t), scaled = nb_e4m3_from_f32(448 * row[i]);
                const uint8_t code = p == CHK_NORMAL ? scaled : any;
                if (type == NB_W_F32) ((float *)data)[at + i] = row[i];
                if (type == NB_W_BF16) ((uint16_t *)data)[at + i] = nb_bf16_from_f32(row[i]);
                if (type == NB_W_F16) ((uint16_t *)data)[at + i] = nb_fp16_from_f32_sat(row[i]);
                if (type == NB_W_FP8B) ((uint8_t *)data)[at + i] = nb_e4m3_is_nan(code) ? 0 : code;
                if (type == NB_W_INT8) ((int8_t *)data)[at + i] = int8_code(p, row[i], any);
            }
        }
    }
    w.data = data;
    return w;
}

void chk_row_scales(chk *t, nb_weight *w)
{
    float *scale = chk_in(t, w->n_row * sizeof *scale);
    for (size_t r = 0; r < w->n_row; r++)
        scale[r] = (float)ldexp(1 + chk_unit(t), (int)chk_between(t, 0, 12) - 10);
    w->scale = scale;
    w->row_scales = true;
}

void chk_segs(nb_record_opts *o, bool is_mla, const size_t dim[2], const size_t n_vec[2])
{
    o->n_seg = 2;
    o->seg[0].role = is_mla ? NB_ROLE_LATENT : NB_ROLE_K;
    o->seg[1].role = is_mla ? NB_ROLE_ROPE : NB_ROLE_V;
    for (size_t s = 0; s < 2; s++) {
        o->seg[s].dim = dim[s];
        o->seg[s].n_vec = n_vec[s];
    }
}
