/* check_linear.c - linear and linear_t for every weight type: all tails of rows,
 * columns and tokens, ranges that cut through scale blocks, and independence of an
 * output from everything but its own row and column.  Rows that read packed
 * activations get what their pack made, and no x.  INT8: every row gives the bits of
 * the portable one. */
#include <stdlib.h>

#include "check/check.h"
#include "kernel/linear/linear_act8.h"
#include "kernel/linear/linear_int8.h"
#include "kernel/linear/linear_order.h"
#include "kernel/linear/linear_units.h"

/* "int8", "int8_act8", ...: rows of one choice. */
static const char *sub_of(const nb_linear_variant *v)
{
    static char name[NB_W_TYPE_COUNT][NB_ACT_COUNT][24];
    static const char *const form[NB_ACT_COUNT] = { "", "_bf16", "_int16", "_act8", "_fp8" };
    char *s = name[v->type][v->act];
    snprintf(s, sizeof name[0][0], "%s%s", nb_wtypes[v->type].word, form[v->act]);
    return s;
}
CHK_ROWS(rows, nb_linear_variant, nb_linear_variants, sub_of(v))

static const size_t shapes[][3] = {
    /* rows, columns, tokens */
    { 1, 1, 1 },     { 1, 7, 1 },      { 3, 8, 2 },     { 5, 9, 3 },      { 8, 15, 4 },
    { 9, 16, 1 },    { 17, 17, 5 },    { 16, 64, 3 },   { 33, 127, 7 },   { 7, 128, 1 },
    { 12, 129, 6 },  { 5, 255, 50 },   { 20, 256, 4 },  { 130, 97, 2 },   { 6, 1000, 3 },
    { 3, 2048, 2 },  { 2, 7168, 1 },   { 260, 264, 1 }, { 49, 1100, 33 }, { 33, 130, 16 },
    { 300, 70, 79 }, { 230, 40, 131 }, { 37, 1792, 3 },  { 18, 512, 1 },   { 17, 768, 9 },
    { 34, 288, 300 }, /* more tokens than a block of packed products */
};

/* A row of the table, as one of its two functions. */
typedef struct subject {
    const nb_linear_variant *v;
    bool transposed;
    void *xp; /* room for the packed rows of the case's tokens, or NULL */
    size_t xp_bytes;
} subject;

static bool packs(const subject *s)
{
    return !s->transposed && s->v->pack;
}

static bool in_integers(const nb_linear_variant *v)
{
    return v->type == NB_W_INT8 || v->act == NB_ACT_INT16 || v->act == NB_ACT_INT8;
}

static double bound_of(const nb_linear_args *a, bool transposed, double s)
{
    const double n = (double)(transposed ? a->row_end - a->row_begin : a->w.n_col);
    const bool packed = nb_wtype_is_packed(a->w.type);
    const double k = transposed                       ? (packed ? 6 : 4) + 2 * sqrt(n)
                     : packed                          ? 40 + n / 128
                     : a->w.type == NB_W_FP8B         ? 24 + n / 128
                                                      : 8 + sqrt(n);
    return k * 0x1p-24 * s + (n + 1) * 0x1p-126;
}

/* Rows that take x in two BF16 parts: s of the sum, and what underflows. */
static double bound_split(const nb_linear_args *a, size_t row, size_t tok, double s)
{
    const double n = (double)a->w.n_col;
    const double k = a->w.type == NB_W_FP8B ? 176 + n / 128 : 170 + n / 15;
    double lost = 0;
    for (size_t c = 0; c < a->w.n_col; c++) {
        float code;
        nb_weight_codes(&a->w, row, c, 1, &code);
        const double scale = (double)nb_weight_scale(&a->w, row, c);
        lost +=
            fabs((double)a->x[tok * a->x_stride + c]) + fabs((double)code * scale) + 4 + 4 * scale;
    }
    return k * 0x1p-24 * s + lost * 0x1p-126;
}

/* INT8, linear: sum |W| of a row times what rounding x may cost, and the last roundings. */
static double bound_int8(const nb_linear_args *a, size_t row, size_t tok, double s)
{
    double max = 0, sum = 0;
    for (size_t c = 0; c < a->w.n_col; c++) {
        const double x = fabs((double)a->x[tok * a->x_stride + c]);
        if (x > max) max = x;
        sum += abs(((const int8_t *)a->w.data)[row * a->w.n_col + c]);
    }
    const double lost =
        max < (double)NB_INT8_X_MIN ? max : max / (double)NB_INT8_X_MAX / 2 * (1 + 0x1p-10);
    return lost * sum * (double)a->w.scale[row] + 8 * 0x1p-24 * s +
           ((double)a->w.n_col + 1) * 0x1p-126;
}

/* NB_ACT_INT8: what rounding x may cost, group by group, and the last roundings. */
static double bound_act8(const nb_linear_args *a, size_t row, size_t tok, double s)
{
    const float *x = a->x + tok * a->x_stride;
    const double n = (double)a->w.n_col;
    double lost = 0;
    for (size_t c = 0, end; c < a->w.n_col; c = end) {
        double max = 0, sum = 0;
        end = a->w.n_col - c < NB_ACT8_GROUP ? a->w.n_col : c + NB_ACT8_GROUP;
        for (size_t i = c; i < end; i++) {
            float w;
            nb_weight_codes(&a->w, row, i, 1, &w);
            max = fmax(max, fabs((double)x[i]));
            sum += fabs((double)w * (double)nb_weight_scale(&a->w, row, i));
        }
        lost += (max < (double)NB_ACT8_MIN ? max : max / 254 * (1 + 0x1p-10)) * sum;
    }
    return lost + (n / 32 + 12) * 0x1p-24 * s + (n + 1) * 0x1p-126;
}

/* NB_ACT_BF16: x rounded once, in addition; denormal numbers may count as zeros. */
static double bound_act16(const nb_linear_args *a, size_t row, size_t tok, double s)
{
    return bound_split(a, row, tok, s) + 0x1.01p-8 * s;
}

/* Packed types, linear: linear_units.h; x_max: 32512, or 127.  Columns in the order of the codes. */
static double bound_packed(const nb_linear_args *a, size_t row, size_t tok, double x_max)
{
    const uint32_t *column = a->w.group.column;
    const double n = (double)a->w.n_col;
    double lost = 0, most = a->bias ? fabs((double)a->bias[row]) : 0, least = 0;
    for (size_t u = 0; u < nb_pk_units(a->w.n_col); u++) {
        nb_packed_unit w;
        double max = 0, sum = 0;
        nb_packed_unit_of(&a->w, row, u, &w);
        for (size_t i = 0; i < NB_PK_UNIT && u * NB_PK_UNIT + i < a->w.n_col; i++) {
            const size_t c = u * NB_PK_UNIT + i;
            const double x = fabs((double)a->x[tok * a->x_stride + (column ? column[c] : c)]);
            const double code = (double)w.code[i] - w.zero[i / 8], min = (double)w.min[i / 8];
            const double scale = fabs((double)w.scale[i / 8]);
            if (x > max) max = x;
            sum += fabs(code * (double)w.scale[i / 8] + min);
            most += x * (fabs(code) * scale + fabs(min));
            least += scale + fabs(min) + 1;
        }
        lost += sum * (max < (double)NB_PK_X_MIN ? max : max / x_max / 2 * (1 + 0x1p-10));
    }
    return lost + (72 + n / 512) * 0x1p-24 * most + least * 0x1p-126;
}

static bool row_is_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

/* The reference's y and its sums of absolute terms, which become bounds in place. */
static void expect(const subject *s, const nb_linear_args *a, double *want, double *bound)
{
    const bool transposed = s->transposed;
    const size_t n = transposed ? a->col_end - a->col_begin : a->row_end - a->row_begin;
    const bool packed = !transposed && nb_packed_has_units(a->w.type) && s->v->act != NB_ACT_FLOAT;
    const bool act8 = !transposed && s->v->act == NB_ACT_INT8;
    const double x_max = (double)(act8 ? NB_PK_X_MAX8 : NB_PK_X_MAX);
    const bool act16 = !transposed && s->v->act == NB_ACT_BF16;
    const bool int8 = a->w.type == NB_W_INT8 && !transposed && !act8;
    const bool split = s->v->act == NB_ACT_FLOAT && packs(s) && !int8 && !packed;
    (transposed ? nb_linear_t_ref : nb_linear_ref)(a, want, bound);
    for (size_t t = 0; t < a->n_tok; t++) {
        const bool lost = (int8 || act8 || packed) && !row_is_finite(a->x + t * a->x_stride, a->w.n_col);
        for (size_t i = t * n; i < t * n + n; i++) {
            const size_t row = a->row_begin + i - t * n;
            bound[i] = packed  ? bound_packed(a, row, t, x_max)
                       : act8  ? bound_act8(a, row, t, bound[i])
                       : act16 ? bound_act16(a, row, t, bound[i])
                       : int8  ? bound_int8(a, row, t, bound[i])
                       : split ? bound_split(a, row, t, bound[i])
                               : bound_of(a, transposed, bound[i]);
            if (lost) want[i] = NAN; /* the token's scale is a NaN */
        }
    }
}

static size_t n_out(const nb_linear_args *a, bool transposed)
{
    return transposed ? a->col_end - a->col_begin : a->row_end - a->row_begin;
}

/* Packs the tokens of p and gives it the packed rows instead of x. */
static void pack_whole(chk *t, const subject *s, nb_linear_args *p)
{
    if (!packs(s)) return;
    const size_t n_bytes = s->v->pack_bytes(p->n_tok, p->w.n_col);
    void *xp = (char *)s->xp + (t->front ? 0 : s->xp_bytes - n_bytes); /* at the guard page */
    memset(xp, 0xa5, n_bytes);
    chk_call(t, s->v->pack(xp, p->x, p->x_stride, p->n_tok, p->w.n_col, p->w.group.column, 0,
                           p->n_tok));
    p->xp = xp;
    p->x = NULL;
}

/* Calls the function on outputs [from, to) of the range and tokens [t0, t1): the result in y. */
static void run_part(chk *t, const subject *s, const nb_linear_args *a, float *y, size_t y_stride,
                     size_t from, size_t to, size_t t0, size_t t1)
{
    nb_linear_args p = *a;
    const size_t base = s->transposed ? a->col_begin : a->row_begin;
    *(s->transposed ? &p.col_begin : &p.row_begin) = base + from;
    *(s->transposed ? &p.col_end : &p.row_end) = base + to;
    p.n_tok = t1 - t0;
    p.x = a->x + t0 * a->x_stride;
    p.y = y + t0 * y_stride + from;
    p.y_stride = y_stride;
    pack_whole(t, s, &p);
    chk_call(t, (s->transposed ? s->v->fn_t : s->v->fn)(&p));
}

/* Ranges of NB_LINEAR_PACK_TOK tokens, the last first: the bytes of one call. */
static void check_pack(chk *t, const subject *s, const nb_linear_args *a)
{
    if (!packs(s)) return;
    const size_t n_bytes = s->v->pack_bytes(a->n_tok, a->w.n_col), step = NB_LINEAR_PACK_TOK;
    if (n_bytes % 64) chk_fail(t, "packs %zu bytes: not a multiple of 64", n_bytes);
    unsigned char *one = chk_raw(t, n_bytes), *cut = chk_raw(t, n_bytes);
    memset(one, 0xa5, n_bytes);
    memset(cut, 0xa5, n_bytes);
    chk_call(t, s->v->pack(one, a->x, a->x_stride, a->n_tok, a->w.n_col, a->w.group.column, 0,
                           a->n_tok));
    for (size_t i = (a->n_tok + step - 1) / step; i-- > 0;) {
        const size_t end = (i + 1) * step < a->n_tok ? (i + 1) * step : a->n_tok;
        chk_call(t, s->v->pack(cut, a->x, a->x_stride, a->n_tok, a->w.n_col, a->w.group.column,
                               i * step, end));
    }
    chk_same_bytes(t, "packed in ranges", one, cut, n_bytes);
}

/* INT8 and packed types sum integers in one order: no variant has a choice.  NB_ACT_INT8 fixes the few roundings, too. */
static void check_portable(chk *t, const subject *s, const nb_linear_args *a)
{
    const nb_linear_variant *c = nb_linear_variants;
    if (s->transposed || !in_integers(s->v)) return;
    while (c->name && (c->type != a->w.type || c->act != s->v->act || c->need)) c++;
    if (!c->name) return;
    const size_t n = a->row_end - a->row_begin;
    nb_linear_args p = *a;
    void *xp = chk_raw(t, c->pack_bytes(a->n_tok, a->w.n_col));
    c->pack(xp, a->x, a->x_stride, a->n_tok, a->w.n_col, a->w.group.column, 0, a->n_tok);
    p.xp = xp;
    p.y = chk_out_rows(t, a->n_tok, n, n);
    p.y_stride = n;
    c->fn(&p);
    chk_same(t, "from the portable row", a->y, a->y_stride, p.y, n, a->n_tok, n);
}

static void check_splits(chk *t, const subject *s, const nb_linear_args *a)
{
    const size_t n = n_out(a, s->transposed);
    if (n == 0 || a->n_tok == 0) return;
    float *y = chk_out_rows(t, a->n_tok, n, n);
    for (size_t k = 0; k < a->n_tok; k++) run_part(t, s, a, y, n, 0, n, k, k + 1);
    chk_same(t, "for a token alone", a->y, a->y_stride, y, n, a->n_tok, n);
    y = chk_out_rows(t, a->n_tok, n, n);
    for (size_t from = 0, to, max = n < 40 ? n : n / 2; from < n; from = to) {
        to = from + chk_between(t, 1, max);
        if (to > n) to = n;
        const size_t cut = chk_between(t, 0, a->n_tok);
        run_part(t, s, a, y, n, from, to, 0, cut);
        run_part(t, s, a, y, n, from, to, cut, a->n_tok);
    }
    chk_same(t, "for another split", a->y, a->y_stride, y, n, a->n_tok, n);
    y = chk_out_rows(t, a->n_tok, n, n);
    run_part(t, s, a, y, n, 0, n, 0, a->n_tok);
    chk_same(t, "when repeated", a->y, a->y_stride, y, n, a->n_tok, n);
}

typedef enum special { PLAIN, NAN_CODE, INF_INPUT } special;

/* The first scale of a row becomes a NaN. */
static void spoil_scale(const nb_weight *w, size_t row)
{
    static const uint16_t half_nan[] = { 0, 0x7fc0, 0x7e00 };
    const size_t at = row * nb_weight_n_group(w);
    void *p = (void *)(uintptr_t)w->group.scale;
    switch (w->group.scale_type) {
    case NB_S_F32: ((float *)p)[at] = NAN; break;
    case NB_S_BF16:
    case NB_S_F16: ((uint16_t *)p)[at] = half_nan[w->group.scale_type]; break;
    default: ((uint8_t *)p)[at] = w->group.scale_type == NB_S_E4M3 ? 0x7f : 0xff; break;
    }
}

static void spoil(chk *t, const nb_linear_args *a, special what, size_t n_x)
{
    if (what == NAN_CODE) { /* of every type */
        static const uint16_t half_nan[] = { 0, 0x7fc0, 0x7e00 };
        const size_t at = chk_between(t, 0, a->w.n_row * a->w.n_col - 1);
        unsigned char *w = (unsigned char *)(uintptr_t)a->w.data;
        if (a->w.type == NB_W_F32) ((float *)(void *)w)[at] = NAN;
        if (a->w.type == NB_W_BF16 || a->w.type == NB_W_F16)
            ((uint16_t *)(void *)w)[at] = half_nan[a->w.type];
        if (a->w.type == NB_W_INT8 && a->n_tok) /* has no such code */
            ((float *)(uintptr_t)
                 a->x)[chk_between(t, 0, a->n_tok - 1) * a->x_stride + chk_between(t, 0, n_x - 1)] =
                NAN;
        if (a->w.type == NB_W_FP8B) w[at] = chk_u64(t) % 2 ? 0x7f : 0xff;
        if (a->w.group.scale) spoil_scale(&a->w, chk_between(t, 0, a->w.n_row - 1));
    }
    if (what == INF_INPUT && a->n_tok)
        ((float *)(uintptr_t)
             a->x)[chk_between(t, 0, a->n_tok - 1) * a->x_stride + chk_between(t, 0, n_x - 1)] =
            INFINITY;
}

/* All of a at once, into a->y. */
static void run_case(chk *t, subject *s, nb_linear_args *a)
{
    const size_t n = n_out(a, s->transposed);
    double *want = chk_f64(t, a->n_tok * n), *bound = chk_f64(t, a->n_tok * n);
    expect(s, a, want, bound);
    s->xp_bytes = packs(s) ? s->v->pack_bytes(a->n_tok, a->w.n_col) : 0;
    s->xp = packs(s) ? chk_raw(t, s->xp_bytes) : NULL;
    run_part(t, s, a, a->y, a->y_stride, 0, n, 0, a->n_tok);
    chk_close(t, a->y, a->n_tok, n, a->y_stride, want, bound);
    check_pack(t, s, a);
    check_portable(t, s, a);
}

static void give_row_scales(chk *t, nb_weight *w)
{
    float *scale = chk_in(t, w->n_row * sizeof *scale);
    for (size_t i = 0; i < w->n_row; i++)
        scale[i] = (float)ldexp(1 + chk_unit(t), (int)chk_between(t, 0, 12) - 10);
    w->scale = scale;
    w->row_scales = true;
}

static void one_case(chk *t, subject *s, const size_t *shape, size_t n_tok, chk_pattern p,
                     special what)
{
    const bool transposed = s->transposed;
    const nb_wtype type = s->v->type;
    nb_linear_args a = { .n_tok = n_tok };
    a.w = chk_weight(t, type, shape[0], shape[1], p);
    if (type == NB_W_FP8B && chk_u64(t) % 4 == 0) give_row_scales(t, &a.w);
    a.row_begin = chk_between(t, 0, shape[0] / 2);
    a.row_end = chk_between(t, a.row_begin, shape[0]);
    if (chk_u64(t) % 2 || a.row_begin == a.row_end) a.row_begin = 0, a.row_end = shape[0];
    a.col_begin = transposed ? chk_between(t, 0, shape[1] / 2) : 0;
    a.col_end = transposed ? chk_between(t, a.col_begin, shape[1]) : 0;
    if (transposed && (chk_u64(t) % 2 || a.col_begin == a.col_end))
        a.col_begin = 0, a.col_end = shape[1];
    const size_t n = n_out(&a, transposed), n_x = transposed ? a.row_end - a.row_begin : shape[1];
    a.x_stride = n_x + chk_between(t, 0, 5);
    a.y_stride = n + chk_between(t, 0, 5);
    a.x = chk_in_rows(t, n_tok, n_x, a.x_stride, chk_u64(t) % 4 ? p : CHK_NORMAL);
    if (!transposed && chk_u64(t) % 2) a.bias = chk_in_rows(t, 1, shape[0], shape[0], CHK_NORMAL);
    spoil(t, &a, what, n_x);
    a.y = chk_out_rows(t, n_tok, n, a.y_stride);
    run_case(t, s, &a);
    if (what != NAN_CODE || !transposed) check_splits(t, s, &a);
}

/* What INT8's rule says of activations: exact halves, the largest and the smallest floats,
 * tokens without a scale beside others. */
static void activations_case(chk *t, subject *s)
{
    enum { TOK = 12, ROW = 6, COL = 45 };
    if (s->v->type != NB_W_INT8 || s->v->act != NB_ACT_FLOAT || s->transposed || !chk_case(t, "activations")) return;
    nb_linear_args a = { .n_tok = TOK, .row_end = ROW, .x_stride = COL, .y_stride = ROW };
    float *x = chk_in_rows(t, TOK, COL, COL, CHK_NORMAL);
    static const float factor[TOK] = { 1, 0x1p126f, 0x1p-98f, 0x1p-101f, 0x1p-149f, 1,
                                       1, 1,        1,        0,         1,         1 };
    for (size_t i = 0; i < (size_t)TOK * COL; i++) x[i] *= factor[i / COL];
    x[1 * COL + 7] = -0x1.fffffep127f;
    x[5 * COL] = NAN;
    x[6 * COL + COL - 1] = -INFINITY;
    for (size_t c = 0; c < COL; c++) {
        x[7 * COL + c] = c ? (float)c - 22.5f : NB_INT8_X_MAX; /* scale 1: rounding ties */
        x[8 * COL + c] = c ? 0 : NB_INT8_X_MIN;                /* the last with a scale */
        x[10 * COL + c] = c ? 0 : nextafterf(NB_INT8_X_MIN, 0);
    }
    a.x = x;
    a.w = chk_weight(t, NB_W_INT8, ROW, COL, CHK_RUNS);
    for (size_t r = 0; r < ROW; r++) ((float *)(uintptr_t)a.w.scale)[r] *= 0x1p-24f;
    a.y = chk_out_rows(t, TOK, ROW, ROW);
    run_case(t, s, &a);
    check_splits(t, s, &a);
}

/* All codes of the type in one row times x = 1 or so: conversions are exact. */
static void codes_case(chk *t, nb_linear_fn *fn, nb_wtype type)
{
    const bool bytes = nb_wtype_bytes(type) == 1;
    const size_t n = bytes ? 256 : 65536;
    if (type == NB_W_F32 || nb_wtype_is_packed(type) || !chk_case(t, "all codes")) return;
    nb_linear_args a = { .n_tok = 1, .row_end = 1, .col_end = n, .x_stride = 1, .y_stride = n };
    unsigned char *data = chk_in(t, n * nb_wtype_bytes(type));
    float *scale = chk_in(t, (n + 127) / 128 * sizeof *scale);
    for (size_t i = 0; i < n; i++) {
        const uint16_t code = (uint16_t)i;
        if (bytes)
            data[i] = (unsigned char)(type == NB_W_INT8 && i == 128 ? 0 : i); /* no -128 */
        else
            memcpy(data + 2 * i, &code, 2);
    }
    for (size_t i = 0; i < (n + 127) / 128; i++) scale[i] = 0.75f;
    a.w = (nb_weight){ .data = data, .scale = scale, .n_row = 1, .n_col = n, .type = type };
    float *x = chk_in(t, sizeof *x);
    x[0] = 1.5f;
    a.x = x;
    a.y = chk_out_rows(t, 1, n, n);
    double *want = chk_f64(t, n), *bound = chk_f64(t, n);
    nb_linear_t_ref(&a, want, bound);
    for (size_t i = 0; i < n; i++) {
        if (want[i] > 0x1.fffffep127) want[i] = INFINITY; /* beyond float: 1.5 times large */
        if (want[i] < -0x1.fffffep127) want[i] = -INFINITY;
        bound[i] = 0x1p-24 * fabs(want[i]) + 0x1p-149;
    }
    chk_call(t, fn(&a));
    chk_close(t, a.y, 1, n, n, want, bound);
}

static void test_both(chk *t, const nb_linear_variant *v, bool transposed)
{
    subject s = { .v = v, .transposed = transposed };
    for (size_t i = 0; i < NB_COUNT(shapes); i++)
        for (chk_pattern p = 0; p < CHK_PATTERN_COUNT; p++)
            if (chk_case(t, "%zux%zu tok=%zu %s", shapes[i][0], shapes[i][1], shapes[i][2],
                         chk_pattern_name(p)))
                one_case(t, &s, shapes[i], shapes[i][2], p, PLAIN);
    static const size_t odd[] = { 37, 203 }, wide[] = { 40, 384 };
    for (size_t i = 0; i < 6; i++) {
        const size_t *shape = i % 2 ? odd : wide;
        if (chk_case(t, "NaN weight %zu", i)) one_case(t, &s, shape, 4, CHK_NORMAL, NAN_CODE);
        if (chk_case(t, "infinite input %zu", i)) one_case(t, &s, shape, 4, CHK_NORMAL, INF_INPUT);
    }
    if (chk_case(t, "no tokens")) one_case(t, &s, wide, 0, CHK_NORMAL, PLAIN);
    if (transposed) codes_case(t, v->fn_t, v->type);
    activations_case(t, &s);
}

static void test(chk *t, const chk_row *row)
{
    test_both(t, row->row, false);
}

static void test_t(chk *t, const chk_row *row)
{
    test_both(t, row->row, true);
}

typedef struct job {
    const nb_linear_variant *v;
    nb_linear_fn *fn;
    nb_linear_args a;
} job;

static void call(void *ctx)
{
    const job *j = ctx;
    j->fn(&j->a);
}

static void call_pack(void *ctx)
{
    const job *j = ctx;
    j->v->pack((void *)(uintptr_t)j->a.xp, j->a.x, j->a.x_stride, j->a.n_tok, j->a.w.n_col,
               j->a.w.group.column, 0,
               j->a.n_tok);
}

static void bench_one(chk *t, const nb_linear_variant *v, bool transposed, size_t n_row,
                      size_t n_col, size_t n_tok)
{
    char label[64];
    chk_case(t, "bench");
    job j = { v,
              transposed ? v->fn_t : v->fn,
              { .n_tok = n_tok, .row_end = n_row, .col_end = n_col } };
    const size_t n_x = transposed ? n_row : n_col, n_y = transposed ? n_col : n_row;
    j.a.w = chk_weight(t, v->type, n_row, n_col, CHK_NORMAL);
    j.a.x_stride = n_x;
    j.a.y_stride = n_y;
    j.a.x = chk_in_rows(t, n_tok, n_x, n_x, CHK_NORMAL);
    j.a.y = chk_out_rows(t, n_tok, n_y, n_y);
    if (!transposed && v->pack) {
        j.a.xp = chk_raw(t, v->pack_bytes(n_tok, n_col));
        call_pack(&j);
        snprintf(label, sizeof label, "pack %zu columns, %zu tok", n_col, n_tok);
        chk_time(t, label, 4.0 * (double)(n_tok * n_col), 0, call_pack, &j);
    }
    snprintf(label, sizeof label, "%zu x %zu, %zu tok", n_row, n_col, n_tok);
    chk_time(t, label, (double)nb_weight_bytes(&j.a.w), 2.0 * (double)(n_row * n_col * n_tok), call, &j);
}

static void bench(chk *t, const chk_row *row)
{
    const nb_linear_variant *v = row->row;
    const bool c = strcmp(v->name, "c") == 0;
    bench_one(t, v, false, 256, 512, 1); /* within L2 */
    bench_one(t, v, false, 2048, 2048, 1);
    if (!c) bench_one(t, v, false, 16384, 4096, 1); /* beyond L3 */
    bench_one(t, v, false, 512, 2048, 4);
    bench_one(t, v, false, 512, 2048, 64);
    if (!c) bench_one(t, v, false, 512, 7168, 256);
}

static void bench_t(chk *t, const chk_row *row)
{
    const nb_linear_variant *v = row->row;
    bench_one(t, v, true, 128, 512, 1);
    bench_one(t, v, true, 128, 512, 16);
}

/* Planted bugs. */
static void no_tail(const nb_linear_args *a)
{
    nb_linear_args b = *a;
    float row[8192];
    for (size_t k = 0; k < a->n_tok; k++) { /* the columns of the tail as if 0 */
        memcpy(row, a->x + k * a->x_stride, a->w.n_col * sizeof *row);
        for (size_t c = a->w.n_col / 8 * 8; c < a->w.n_col; c++) row[c] = 0;
        b.n_tok = 1;
        b.x = row;
        b.y = a->y + k * a->y_stride;
        nb_linear_bf16_c(&b);
    }
}
static void over_read(const nb_linear_args *a)
{
    const uint16_t *end = (const uint16_t *)a->w.data + a->row_end * a->w.n_col;
    for (size_t i = a->w.n_col; i % 8; i++, end++) (void)*(const volatile uint16_t *)end;
    nb_linear_bf16_c(a);
}
static void split_dependent(const nb_linear_args *a)
{
    nb_linear_bf16_c(a);
    for (size_t k = 0; k < a->n_tok; k++) { /* single rows from the left, rounded each time */
        for (size_t r = a->row_begin; a->row_end - a->row_begin == 1 && r < a->row_end; r++) {
            float sum = a->bias ? a->bias[r] : 0;
            nb_linear_args one = *a;
            for (size_t c = 0; c < a->w.n_col; c++) {
                const uint16_t *w = (const uint16_t *)a->w.data + r * a->w.n_col + c;
                const uint32_t u = (uint32_t)*w << 16;
                float f;
                memcpy(&f, &u, 4);
                sum += f * a->x[k * one.x_stride + c];
            }
            a->y[k * a->y_stride + r - a->row_begin] = sum;
        }
    }
}
static void batch_dependent(const nb_linear_args *a)
{
    nb_linear_bf16_c(a);
    for (size_t i = 0; a->n_tok == 1 && i < a->row_end - a->row_begin; i++)
        a->y[i] = nextafterf(a->y[i], 0);
}
static void wrong_block(const nb_linear_args *a)
{
    nb_linear_args b = *a; /* scales counted from the start of the range */
    const size_t shift = a->row_begin;
    b.w.data = (const uint8_t *)a->w.data + shift * a->w.n_col;
    b.w.n_row -= shift;
    b.row_begin = 0;
    b.row_end -= shift;
    b.bias = a->bias ? a->bias + shift : NULL;
    nb_linear_fp8b_c(&b);
}
static void short_sum(const nb_linear_args *a)
{
    nb_linear_args b = *a; /* linear_t without its last input row */
    if (b.row_end - b.row_begin > 1) b.row_end--;
    nb_linear_t_bf16_c(&b);
}

/* INT8. */
static void int8_rows(const nb_linear_args *a, bool sum32, bool in_turn)
{
    for (size_t r = a->row_begin; r < a->row_end; r++)
        for (size_t k = 0; k < a->n_tok; k++) {
            const int8_t *w = (const int8_t *)a->w.data + r * a->w.n_col;
            const int16_t *q = nb_int8_q(a->xp, a->w.n_col, k);
            int64_t sum = 0;
            for (size_t c = 0; c < a->w.n_col; c++) sum += q[c] * w[c];
            if (sum32) sum = (int32_t)(uint32_t)sum;
            const float sx = nb_int8_sx(a->xp, a->n_tok, a->w.n_col)[k], scale = a->w.scale[r];
            const float y = in_turn ? (float)sum * scale * sx : nb_int8_finish(sum, scale, sx);
            a->y[k * a->y_stride + r - a->row_begin] = a->bias ? y + a->bias[r] : y;
        }
}
static void int32_sum(const nb_linear_args *a)
{
    int8_rows(a, true, false);
}
static void other_product(const nb_linear_args *a)
{
    int8_rows(a, false, true);
}
static void pack_short(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,
                       const uint32_t *column, size_t tok0, size_t tok1)
{
    nb_linear_int8_pack_c(xp, x, x_stride, n_tok, n_col, column, tok0, tok1); /* the scale of 16 columns */
    for (size_t k = tok0; n_col > 16 && k < tok1; k++) {
        float max = 0;
        for (size_t c = 0; c < n_col / 16 * 16; c++)
            if (fabsf(x[k * x_stride + c]) > max) max = fabsf(x[k * x_stride + c]);
        ((float *)(uintptr_t)nb_int8_sx(xp, n_tok, n_col))[k] = max / NB_INT8_X_MAX;
    }
}
static void pack_from_0(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,
                        const uint32_t *column, size_t tok0, size_t tok1)
{
    nb_linear_int8_pack_c(xp, x, x_stride, n_tok, n_col, column, tok0, tok1);
    if (tok0 == 0) return; /* reads the rows of its range from the start of x */
    nb_linear_int8_pack_c(xp, x - tok0 * x_stride, x_stride, n_tok, n_col, column, tok0, tok1);
}
static void pack_down(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,
                      const uint32_t *column, size_t tok0, size_t tok1)
{
    nb_linear_int8_pack_c(xp, x, x_stride, n_tok, n_col, column, tok0, tok1);
    for (size_t k = tok0; k < tok1; k++) { /* cuts off instead of rounding */
        const float sx = nb_int8_sx(xp, n_tok, n_col)[k];
        int16_t *q = (int16_t *)(uintptr_t)nb_int8_q(xp, n_col, k);
        for (size_t c = 0; sx > 0 && c < n_col; c++) q[c] = (int16_t)(x[k * x_stride + c] / sx);
    }
}

/* NB_ACT_INT8. */
static void act8_rows(const nb_linear_args *a, bool backwards, bool is_short)
{
    const size_t n_group = nb_act8_groups(a->w.n_col), n = (a->w.n_col + 31) / 32;
    for (size_t r = a->row_begin; r < a->row_end; r++)
        for (size_t k = 0; k < a->n_tok; k++) {
            const int8_t *w = (const int8_t *)a->w.data + r * a->w.n_col;
            const int8_t *q = nb_act8_q(a->xp, a->w.n_col, k);
            float acc = 0;
            for (size_t i = 0; i < n; i++) {
                const size_t g = backwards ? n - 1 - i : i;
                const size_t end = g + 1 == n ? a->w.n_col : g * 32 + 32 - is_short;
                int32_t sum = 0;
                for (size_t c = g * 32; c < end; c++) sum += q[c] * w[c];
                acc = fmaf((float)sum, nb_act8_s(a->xp, a->n_tok, a->w.n_col)[k * n_group + g], acc);
            }
            acc *= a->w.scale[r];
            a->y[k * a->y_stride + r - a->row_begin] = a->bias ? acc + a->bias[r] : acc;
        }
}
static void act8_backwards(const nb_linear_args *a)
{
    act8_rows(a, true, false);
}
static void act8_short_group(const nb_linear_args *a)
{
    act8_rows(a, false, true);
}
static void act8_wide_groups(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,
                             const uint32_t *column, size_t tok0, size_t tok1)
{
    nb_linear_act8_pack_c(xp, x, x_stride, n_tok, n_col, column, tok0, tok1);
    float *s = (float *)(uintptr_t)nb_act8_s(xp, n_tok, n_col);
    for (size_t g = tok0 * nb_act8_groups(n_col); g < tok1 * nb_act8_groups(n_col); g += 2)
        s[g + 1] = s[g]; /* the integers of the second group are of its own scale */
}
static void act8_down(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,
                      const uint32_t *column, size_t tok0, size_t tok1)
{
    nb_linear_act8_pack_c(xp, x, x_stride, n_tok, n_col, column, tok0, tok1);
    for (size_t k = tok0; k < tok1; k++) /* cuts off instead of rounding */
        for (size_t c = 0; c < n_col; c++) {
            const float s = nb_act8_s(xp, n_tok, n_col)[k * nb_act8_groups(n_col) + c / 32];
            int8_t *q = (int8_t *)(uintptr_t)nb_act8_q(xp, n_col, k);
            if (s > 0) q[c] = (int8_t)(x[k * x_stride + c] / s);
        }
}

/* NB_ACT_BF16. */
static void act16_down(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,
                       const uint32_t *column, size_t tok0, size_t tok1)
{
    nb_linear_act16_pack_c(xp, x, x_stride, n_tok, n_col, column, tok0, tok1);
    const size_t stride = nb_linear_act16_pack_bytes_c(1, n_col) / sizeof(float);
    for (size_t k = tok0; k < tok1; k++) /* cuts off instead of rounding */
        for (size_t c = 0; c < n_col; c++) {
            uint32_t bits;
            memcpy(&bits, &x[k * x_stride + c], sizeof bits);
            bits &= 0xffff0000u;
            memcpy((float *)xp + k * stride + c, &bits, sizeof bits);
        }
}

#define BUG_A(what, expect, type, fn, fn_t, bytes, pack, act)                                      \
    {                                                                                              \
        what, expect,                                                                              \
        {                                                                                          \
            "broken", "", NB_SPACE_HOST, 0, &(const nb_linear_variant)                             \
            {                                                                                      \
                "broken", NB_SPACE_HOST, 0, type, fn, fn_t, bytes, pack, act                       \
            }                                                                                      \
        }                                                                                          \
    }
/* Packed types in units. */
static void no_zeros(const nb_linear_args *a)
{
    nb_linear_args b = *a;
    b.w.group.zero = NULL;
    nb_linear_units_c(&b);
}
static void one_chain(const nb_linear_args *a)
{
    const size_t n_unit = nb_pk_units(a->w.n_col); /* without segments */
    for (size_t r = a->row_begin; r < a->row_end; r++)
        for (size_t k = 0; k < a->n_tok; k++) {
            float y = 0;
            for (size_t u = 0; u < n_unit; u++) {
                const nb_pk_x *x = (const nb_pk_x *)a->xp + k * n_unit + u;
                nb_packed_unit w;
                int32_t part = 0;
                nb_packed_unit_of(&a->w, r, u, &w);
                for (size_t i = 0; i < NB_PK_UNIT; i++) part += x->q[i] * (w.code[i] - w.zero[0]);
                y = fmaf((float)part * x->sx, w.scale[0], y);
            }
            a->y[k * a->y_stride + r - a->row_begin] = a->bias ? y + a->bias[r] : y;
        }
}
static void pack_no_sums(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,
                         const uint32_t *column, size_t tok0, size_t tok1)
{
    nb_pk_x *to = xp;
    nb_linear_units_pack_c(xp, x, x_stride, n_tok, n_col, column, tok0, tok1);
    for (size_t i = tok0 * nb_pk_units(n_col); i < tok1 * nb_pk_units(n_col); i++) to[i].sum[0] = 0;
}
static void pack_in_order(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,
                          const uint32_t *column, size_t tok0, size_t tok1)
{
    (void)column; /* act order */
    nb_linear_units_pack_c(xp, x, x_stride, n_tok, n_col, NULL, tok0, tok1);
}

#define BUG_P(what, expect, type, fn, fn_t, bytes, pack)                                           \
    BUG_A(what, expect, type, fn, fn_t, bytes, pack, NB_ACT_FLOAT)
#define BUG_ACT8(what, expect, fn, pack)                                                           \
    BUG_A(what, expect, NB_W_INT8, fn, NULL, nb_linear_act8_pack_bytes, pack, NB_ACT_INT8)
#define BUG(what, expect, type, fn, fn_t) BUG_P(what, expect, type, fn, fn_t, NULL, NULL)
#define BUG_INT8(what, expect, fn, pack)                                                           \
    BUG_P(what, expect, NB_W_INT8, fn, NULL, nb_linear_int8_pack_bytes, pack)
#define BUG_UNITS(what, expect, type, fn, pack)                                                     \
    BUG_A(what, expect, type, fn, NULL, nb_linear_units_pack_bytes, pack, NB_ACT_INT16)
static const chk_broken broken[] = {
    BUG("forgotten tail", "expected", NB_W_BF16, no_tail, NULL),
    BUG("over-read of the last row", "signal", NB_W_BF16, over_read, NULL),
    BUG("sum depends on the split of rows", "other bits", NB_W_BF16, split_dependent, NULL),
    BUG("sum depends on the batch", "token alone", NB_W_BF16, batch_dependent, NULL),
    BUG("scale of the wrong block", "", NB_W_FP8B, wrong_block, NULL),
    BUG_INT8("sum in 32 bits", "expected", int32_sum, nb_linear_int8_pack_c),
    BUG_INT8("another order of factors", "portable", other_product, nb_linear_int8_pack_c),
    BUG_INT8("pack cuts off", "portable", nb_linear_int8_c, pack_down),
    BUG_INT8("pack forgets the tail of a row", "expected", nb_linear_int8_c, pack_short),
    BUG_INT8("pack of a range reads the wrong rows", "ranges", nb_linear_int8_c, pack_from_0),
    BUG_ACT8("one scale for two groups", "", nb_linear_int8_act8_c, act8_wide_groups),
    BUG_ACT8("group sums without their last column", "", act8_short_group, nb_linear_act8_pack_c),
    BUG_ACT8("groups added in another order", "portable", act8_backwards, nb_linear_act8_pack_c),
    BUG_ACT8("pack cuts off", "portable", nb_linear_int8_act8_c, act8_down),
    BUG_UNITS("zero points forgotten", "expected", NB_W_INT4, no_zeros, nb_linear_units_pack_c),
    BUG_UNITS("act order forgotten", "expected", NB_W_INT4, nb_linear_units_c, pack_in_order),
    BUG_UNITS("sums of the minima forgotten", "expected", NB_W_Q4_K, nb_linear_units_c, pack_no_sums),
    BUG_UNITS("one chain over all units", "portable", NB_W_Q8_0, one_chain, nb_linear_units_pack_c),
    BUG_A("activations cut off to BF16", "expected", NB_W_BF16, nb_linear_bf16_act16_c, NULL,
          nb_linear_act16_pack_bytes_c, act16_down, NB_ACT_BF16),
    { 0 },
};
static const chk_broken broken_t[] = {
    BUG("last input row forgotten", "expected", NB_W_BF16, NULL, short_sum),
    { 0 },
};

const chk_op chk_linear = { "linear", rows, test, bench, broken };
const chk_op chk_linear_t = { "linear_t", rows, test_t, bench_t, broken_t };
