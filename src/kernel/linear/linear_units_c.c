/* linear_units_c.c - portable products with packed weights; linear_units.h has the rule. */
#include <math.h>

#include "kernel/linear/linear_units.h"

size_t nb_linear_units_pack_bytes(size_t n_tok, size_t n_col)
{
    return (n_tok * nb_pk_units(n_col) * NB_PK_RECORD + 63) / 64 * 64;
}

static void pack_sums(const int16_t *q, nb_pk_x *out)
{
    int32_t half[2] = { 0, 0 };
    for (size_t i = 0; i < NB_PK_UNIT; i++) half[i / 16] += q[i];
    const int32_t sum[3] = { half[0] + half[1], half[0], half[1] };
    for (size_t k = 0; k < 3; k++) {
        const int32_t lo = ((-sum[k] + 64) & 127) - 64;
        out->minus[k][0] = (int16_t)lo;
        out->minus[k][1] = (int16_t)((-sum[k] - lo) / 128);
        out->sum[k] = (float)sum[k] * out->sx;
    }
    out->unused = 0;
}

static void pack_unit(const float *x, float max, nb_pk_x *out)
{
    float m = 0;
    for (size_t i = 0; i < NB_PK_UNIT; i++) {
        const float v = fabsf(x[i]);
        if (!(v <= 0x1.fffffep127f)) m = NAN;
        if (v > m) m = v;
    }
    const bool some = m >= NB_PK_X_MIN;
    const float inv = some ? max / m : 0;
    for (size_t i = 0; i < NB_PK_UNIT; i++) out->q[i] = some ? (int16_t)lrintf(x[i] * inv) : 0;
    out->sx = some ? m / max : m != m ? m : 0;
    pack_sums(out->q, out);
}

static void pack(nb_pk_x *xp, const float *x, size_t x_stride, size_t n_col, const uint32_t *column,
                 size_t tok0, size_t tok1, float max)
{
    const size_t n_unit = nb_pk_units(n_col);
    for (size_t t = tok0; t < tok1; t++)
        for (size_t u = 0; u < n_unit; u++) {
            float v[NB_PK_UNIT];
            for (size_t i = 0; i < NB_PK_UNIT; i++) {
                const size_t c = u * NB_PK_UNIT + i;
                v[i] = c < n_col ? x[t * x_stride + (column ? column[c] : c)] : 0;
            }
            pack_unit(v, max, &xp[t * n_unit + u]);
        }
}

void nb_linear_units_pack_c(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,
                             const uint32_t *column, size_t tok0, size_t tok1)
{
    (void)n_tok;
    pack(xp, x, x_stride, n_col, column, tok0, tok1, NB_PK_X_MAX);
}
void nb_linear_units_pack8_c(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,
                              const uint32_t *column, size_t tok0, size_t tok1)
{
    (void)n_tok;
    pack(xp, x, x_stride, n_col, column, tok0, tok1, NB_PK_X_MAX8);
}

/* total of a unit and those before it. */
static float add_unit(const nb_packed_unit *w, const nb_pk_x *x, size_t span, bool has_min,
                      float total)
{
    for (size_t c = 0; c < NB_PK_UNIT; c += span) {
        int32_t part = 0, sum = 0;
        for (size_t i = c; i < c + span; i++) {
            part += x->q[i] * w->code[i];
            sum += x->q[i];
        }
        part -= w->zero[c / 8] * sum;
        total = fmaf((float)part * x->sx, w->scale[c / 8], total);
        if (has_min) total = fmaf(x->sum[span == 32 ? 0 : 1 + c / 16], w->min[c / 8], total);
    }
    return total;
}

enum { TOK = 16 };

void nb_linear_units_c(const nb_linear_args *a)
{
    const size_t n_unit = nb_pk_units(a->w.n_col), span = nb_packed_span(&a->w);
    const bool has_min = nb_packed_has_min(a->w.type);
    const nb_pk_x *xp = a->xp;
    for (size_t t0 = 0; t0 < a->n_tok; t0 += TOK) {
        const size_t n = a->n_tok - t0 < TOK ? a->n_tok - t0 : TOK;
        for (size_t r = a->row_begin; r < a->row_end; r++) {
            float y[TOK] = { 0 }, total[TOK] = { 0 };
            for (size_t u = 0; u < n_unit; u++) {
                nb_packed_unit w;
                nb_packed_unit_of(&a->w, r, u, &w);
                for (size_t t = 0; t < n; t++)
                    total[t] =
                        add_unit(&w, &xp[(t0 + t) * n_unit + u], span, has_min, total[t]);
                if ((u + 1) % NB_PK_SEG && u + 1 < n_unit) continue;
                for (size_t t = 0; t < n; t++) {
                    y[t] = u < NB_PK_SEG ? total[t] : y[t] + total[t];
                    total[t] = 0;
                }
            }
            for (size_t t = 0; t < n; t++)
                a->y[(t0 + t) * a->y_stride + (r - a->row_begin)] =
                    a->bias ? y[t] + a->bias[r] : y[t];
        }
    }
}
