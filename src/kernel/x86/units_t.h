/* units_t.h - linear_t with packed weights; included once, after units_drive.h, by each of
 * linear_units_avx2.c and linear_units_avx512.c.
 *
 * A panel is made as for linear.  Its rows lie in lanes, so that a column of a panel is a vector: its value, one
 * fma from the code, times x, is added to the column's sums.  After at most T_PANELS panels the lanes of a column
 * are joined in the order of vec_avx2.h.  A term passes 16 + 4 + n / (16 LANES) additions and three roundings. */

enum { T_UNITS = 8, T_COL = T_UNITS * NB_PK_UNIT, T_PANELS = 16, T_TOK = 2 };

/* Unit u of a panel: n (literal) tokens' sums, [tok][T_COL]. */
INLINE void unit_t(const int n, const bool has_min, const bool words, const panel *p, size_t u,
                   size_t span, const vf *x, vf (*sum)[T_COL])
{
    const vi byte = vi_set1(255);
    for (size_t j = 0; j < 8; j++) {
        const size_t s = (u * NB_PK_UNIT + 4 * j) / span;
        const size_t c = u * NB_PK_UNIT + (words ? j / 2 * 8 + (j & 1) : 4 * j);
        const vi code = vi_load(p->code[u][j]);
        const vf scale = vf_load(p->scale[s]), min = has_min ? vf_load(p->min[s]) : vf_set1(0);
        const vi zero = has_min ? vi_set1(0) : vi_and(vi_load(p->zero[s]), byte);
        UNROLL
        for (int b = 0; b < 4; b++) {
            const vi q = vi_and(b ? vi_srl(code, 8 * b) : code, byte);
            const vf w = has_min ? vf_fma(vi_float(q), scale, min)
                                 : vf_mul(vi_float(vi_sub(q, zero)), scale);
            UNROLL
            for (int t = 0; t < n; t++) {
                vf *to = &sum[t][c + (size_t)(words ? 2 * b : b)];
                *to = vf_fma(w, x[t], *to);
            }
        }
    }
}

#define UNITS_T(name, n, has_min, words)                                                           \
    static void name(const panel *p, size_t n_unit, size_t span, const vf *x, vf (*sum)[T_COL])    \
    {                                                                                              \
        for (size_t u = 0; u < n_unit; u++) unit_t(n, has_min, words, p, u, span, x, sum);         \
    }
UNITS_T(plain_1, 1, false, false)
UNITS_T(plain_2, 2, false, false)
UNITS_T(words_1, 1, false, true)
UNITS_T(words_2, 2, false, true)
UNITS_T(mins_1, 1, true, false)
UNITS_T(mins_2, 2, true, false)
typedef void units_t_fn(const panel *p, size_t n_unit, size_t span, const vf *x, vf (*sum)[T_COL]);
static units_t_fn *const units_ts[3][T_TOK] = { { plain_1, plain_2 }, { words_1, words_2 }, { mins_1, mins_2 } };

/* Joins the columns from unit u on into row y of the range. */
static void put_columns(const nb_linear_args *a, float *y, size_t u, size_t n_unit, bool first,
                        const vf *sum)
{
    for (size_t i = 0; i < n_unit * NB_PK_UNIT; i += 4) {
        float v[4];
        _mm_storeu_ps(v, v_join4(sum[i], sum[i + 1], sum[i + 2], sum[i + 3]));
        for (size_t k = 0; k < 4; k++) {
            const size_t c = u * NB_PK_UNIT + i + k;
            if (c < a->col_begin || c >= a->col_end) continue;
            y[c - a->col_begin] = first ? v[k] : y[c - a->col_begin] + v[k];
        }
    }
}

/* Columns of n_unit units for n_tok <= T_TOK tokens. */
static void strip_t(const nb_linear_args *a, size_t u, size_t n_unit, size_t t0, size_t n_tok)
{
    const nb_wtype type = a->w.type;
    const size_t span = nb_packed_span(&a->w);
    units_t_fn *add =
        units_ts[nb_packed_has_min(type) ? 2 : nb_packed_is_words(type) ? 1 : 0][n_tok - 1];
    const cut c = cut_of(&a->w);
    vf sum[T_TOK][T_COL];
    panel p;
    for (size_t r0 = a->row_begin; r0 < a->row_end; r0 += T_PANELS * LANES) {
        for (size_t t = 0; t < n_tok; t++)
            for (size_t i = 0; i < T_COL; i++) sum[t][i] = vf_set1(0);
        for (size_t r = r0; r < a->row_end && r < r0 + T_PANELS * LANES; r += LANES) {
            const size_t n = a->row_end - r < LANES ? a->row_end - r : LANES;
            float row[LANES] = { 0 };
            vf x[T_TOK];
            for (size_t t = 0; t < n_tok; t++) {
                memcpy(row, a->x + (t0 + t) * a->x_stride + (r - a->row_begin), n * sizeof *row);
                x[t] = vf_load(row);
            }
            unpack_panel(a, &c, r, a->row_end, u, n_unit, 0, &p);
            add(&p, n_unit, span, x, sum);
        }
        for (size_t t = 0; t < n_tok; t++)
            put_columns(a, a->y + (t0 + t) * a->y_stride, u, n_unit, r0 == a->row_begin, sum[t]);
    }
}

static void linear_t_units(const nb_linear_args *a)
{
    const size_t n_all = nb_pk_units(a->w.n_col);
    if (a->w.group.column) { /* columns are anywhere */
        nb_linear_t_packed_c(a);
        return;
    }
    for (size_t u = a->col_begin / T_COL * T_UNITS; u * NB_PK_UNIT < a->col_end; u += T_UNITS)
        for (size_t t = 0; t < a->n_tok; t += T_TOK)
            strip_t(a, u, n_all - u < T_UNITS ? n_all - u : T_UNITS, t,
                    a->n_tok - t < T_TOK ? a->n_tok - t : T_TOK);
}
