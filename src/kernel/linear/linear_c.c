/* linear_c.c - portable linear and linear_t.
 *
 * Both convert a strip of W to float once and use it for a tile of tokens; the
 * lanes and chunks are those of linear_order.h.  Compilers turn the 8-lane loops
 * into vectors of whatever width the baseline has. */
#include "kernel/linear/linear.h"

#include "kernel/linear/linear_order.h"

enum { TOK = 8, LANE = 8, COL = 64, COL_PACKED = NB_PACKED_CHUNK };

static void dot_lanes(float *lane, const float *w, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + LANE <= n; i += LANE)
        for (size_t j = 0; j < LANE; j++) lane[j] += w[i + j] * x[i + j];
    for (size_t j = 0; i + j < n; j++) lane[j] += w[i + j] * x[i + j];
}

static float join_lanes(const float *s)
{
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

/* One row of W times n <= TOK tokens. */
static void row_times_tokens(const nb_linear_args *a, size_t r, size_t t0, size_t n, size_t chunk)
{
    float total[TOK][LANE] = { { 0 } }, strip[NB_LINEAR_CHUNK_MAX];
    const size_t n_col = a->w.n_col;
    for (size_t c = 0; c < n_col; c += chunk) {
        const size_t m = n_col - c < chunk ? n_col - c : chunk;
        const float scale = nb_weight_scale(&a->w, r, c);
        nb_weight_codes(&a->w, r, c, m, strip);
        for (size_t t = 0; t < n; t++) {
            float lane[LANE] = { 0 };
            dot_lanes(lane, strip, a->x + (t0 + t) * a->x_stride + c, m);
            for (size_t j = 0; j < LANE; j++) total[t][j] += lane[j] * scale;
        }
    }
    for (size_t t = 0; t < n; t++) {
        const float sum = join_lanes(total[t]);
        a->y[(t0 + t) * a->y_stride + (r - a->row_begin)] = a->bias ? sum + a->bias[r] : sum;
    }
}

static void linear(const nb_linear_args *a)
{
    const size_t chunk = nb_linear_chunk(a->w.type, a->w.n_col);
    for (size_t r = a->row_begin; r < a->row_end; r++)
        for (size_t t = 0; t < a->n_tok; t += TOK)
            row_times_tokens(a, r, t, a->n_tok - t < TOK ? a->n_tok - t : TOK, chunk);
}

/* n_c columns from c (all in one scale block), at most COL_PACKED, of n <= TOK tokens. */
static void column_strip(const nb_linear_args *a, size_t c, size_t n_c, size_t t0, size_t n,
                         size_t chunk)
{
    float total[TOK][COL_PACKED] = { { 0 } }, part[TOK][COL_PACKED], strip[COL_PACKED];
    for (size_t r0 = a->row_begin; r0 < a->row_end; r0 += chunk) {
        const size_t r1 = a->row_end - r0 < chunk ? a->row_end : r0 + chunk;
        for (size_t t = 0; t < n; t++)
            for (size_t j = 0; j < n_c; j++) part[t][j] = 0;
        for (size_t r = r0; r < r1; r++) {
            const float scale = nb_weight_scale(&a->w, r, c);
            nb_weight_codes(&a->w, r, c, n_c, strip);
            for (size_t t = 0; t < n; t++) {
                const float x = a->x[(t0 + t) * a->x_stride + (r - a->row_begin)] * scale;
                for (size_t j = 0; j < n_c; j++) part[t][j] += x * strip[j];
            }
        }
        for (size_t t = 0; t < n; t++)
            for (size_t j = 0; j < n_c; j++) total[t][j] += part[t][j];
    }
    for (size_t t = 0; t < n; t++)
        for (size_t j = 0; j < n_c; j++)
            a->y[(t0 + t) * a->y_stride + (c - a->col_begin) + j] = total[t][j];
}

static void linear_t(const nb_linear_args *a)
{
    const size_t chunk = nb_linear_t_chunk(a->row_end - a->row_begin);
    const size_t col = nb_wtype_is_packed(a->w.type) ? COL_PACKED : COL;
    for (size_t c = a->col_begin, n_c; c < a->col_end; c += n_c) {
        n_c = col - c % col; /* COL divides the scale block */
        if (n_c > a->col_end - c) n_c = a->col_end - c;
        for (size_t t = 0; t < a->n_tok; t += TOK)
            column_strip(a, c, n_c, t, a->n_tok - t < TOK ? a->n_tok - t : TOK, chunk);
    }
}

void nb_linear_f32_c(const nb_linear_args *a)
{
    linear(a);
}
void nb_linear_bf16_c(const nb_linear_args *a)
{
    linear(a);
}
void nb_linear_f16_c(const nb_linear_args *a)
{
    linear(a);
}
void nb_linear_fp8b_c(const nb_linear_args *a)
{
    linear(a);
}
void nb_linear_t_f32_c(const nb_linear_args *a)
{
    linear_t(a);
}
void nb_linear_t_bf16_c(const nb_linear_args *a)
{
    linear_t(a);
}
void nb_linear_t_f16_c(const nb_linear_args *a)
{
    linear_t(a);
}
void nb_linear_t_fp8b_c(const nb_linear_args *a)
{
    linear_t(a);
}
void nb_linear_t_int8_c(const nb_linear_args *a)
{
    linear_t(a);
}
void nb_linear_packed_c(const nb_linear_args *a)
{
    linear(a);
}
void nb_linear_t_packed_c(const nb_linear_args *a)
{
    linear_t(a);
}
