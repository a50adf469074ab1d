/* attn_measure.c - see attn_measure.h. */
#include "quality/attn_measure.h"

#include <math.h>

#include "quality/attn_math.h"

static nb_status pass_make(const nb_capture_layer *l, nb_attn_pass *p, nb_arena *arena,
                           nb_error *err)
{
    const size_t n_h = l->n_head;
    *p = (nb_attn_pass){ .ld = l->n_tok };
    p->s = nb_arena_array(arena, n_h * l->n_tok, sizeof *p->s);
    p->e = nb_arena_array(arena, n_h * l->n_tok, sizeof *p->e);
    p->max = nb_arena_array(arena, n_h, sizeof *p->max);
    p->sum = nb_arena_array(arena, n_h, sizeof *p->sum);
    p->u = nb_arena_array(arena, n_h * nb_attn_sum_width(l), sizeof *p->u);
    p->o = nb_arena_array(arena, n_h * nb_attn_out_width(l), sizeof *p->o);
    p->q = nb_arena_array(arena, n_h * l->d_q, sizeof *p->q);
    if (p->s && p->e && p->max && p->sum && p->u && p->o && p->q) return NB_OK;
    return nb_fail(err, NB_ERR_NOMEM, "attention over %zu tokens: out of memory", l->n_tok);
}

/* rows: tokens [0, whole); tail: the others. */
static nb_status attend(const nb_capture_layer *l, const float *rows, const float *tail,
                        nb_attn_pass *p, nb_error *err)
{
    const size_t d = nb_attn_sum_width(l), rest = p->n - p->whole;
    nb_attn_scores(l, p->q, rows, p->whole, p->s, p->ld);
    if (rest) nb_attn_scores(l, p->q, tail, rest, p->s + p->whole, p->ld);
    for (size_t h = 0; h < l->n_head; h++) {
        memcpy(p->e + h * p->ld, p->s + h * p->ld, p->n * sizeof *p->e);
        nb_attn_exp(p->e + h * p->ld, p->n, &p->max[h], &p->sum[h]);
        if (!isfinite(p->max[h]) || !isfinite(p->sum[h]))
            return nb_fail(err, NB_ERR_NONFINITE, "layer %zu, head %zu: a score is not finite",
                           l->layer, h);
    }
    memset(p->u, 0, l->n_head * d * sizeof *p->u);
    nb_attn_add(l, p->e, p->ld, rows, p->whole, p->u);
    if (rest) nb_attn_add(l, p->e + p->whole, p->ld, tail, rest, p->u);
    return NB_OK;
}

static void compare(const double *a, const double *b, size_t n, nb_attn_error *e)
{
    double aa = 0, bb = 0, ab = 0, dd = 0;
    for (size_t i = 0; i < n; i++) {
        aa += a[i] * a[i];
        bb += b[i] * b[i];
        ab += a[i] * b[i];
        dd += (b[i] - a[i]) * (b[i] - a[i]);
    }
    e->rel_l2 = dd > 0 ? sqrt(dd) / sqrt(aa) : 0;
    e->one_cos = dd > 0 ? 1 - ab / (sqrt(aa) * sqrt(bb)) : 0;
    if (e->one_cos < 0) e->one_cos = 0; /* rounding */
}

void nb_attn_compare(const nb_attn_form *f, size_t h, const nb_attn_pass *truth, double *u,
                     double sum, double *out, nb_attn_error *error)
{
    const nb_capture_layer *l = f->l;
    const size_t d = nb_attn_sum_width(l), d_o = nb_attn_out_width(l);
    for (size_t i = 0; i < d; i++) u[i] /= sum;
    nb_attn_form_back(f, u);
    nb_attn_project(l, h, u, out);
    compare(truth->o + h * d_o, out, d_o, error);
}

/* kl and max_dp; the scores of a form may differ from the true ones by a constant. */
static void compare_p(const nb_attn_pass *t, const nb_attn_pass *p, size_t h, nb_attn_error *e)
{
    const double *s = t->s + h * t->ld, *sq = p->s + h * p->ld;
    const double *es = t->e + h * t->ld, *eq = p->e + h * p->ld;
    double kl = 0, dp = 0;
    for (size_t i = 0; i < t->n; i++) {
        const double a = es[i] / t->sum[h], b = eq[i] / p->sum[h];
        kl += a * (s[i] - sq[i]);
        dp = fmax(dp, fabs(a - b));
    }
    kl += p->max[h] + log(p->sum[h]) - t->max[h] - log(t->sum[h]);
    e->kl = kl > 0 ? kl : 0;
    e->max_dp = dp;
}

static nb_status one_form(nb_attn_form *f, size_t iq, const nb_attn_pass *truth, nb_attn_pass *p,
                          double *u, nb_attn_error *error, nb_error *err)
{
    const nb_capture_layer *l = f->l;
    const size_t d = nb_attn_sum_width(l), d_o = nb_attn_out_width(l);
    p->n = l->pos[iq] + 1;
    p->whole = nb_attn_form_tail(f, l->pos[iq]);
    nb_attn_form_query(f, l->q + iq * l->n_head * l->d_q, p->q);
    NB_TRY(attend(l, f->rows, f->tail, p, err));
    for (size_t h = 0; h < l->n_head; h++) {
        memcpy(u, p->u + h * d, d * sizeof *u);
        nb_attn_compare(f, h, truth, u, p->sum[h], p->o + h * d_o, &error[h]);
        compare_p(truth, p, h, &error[h]);
    }
    return NB_OK;
}

nb_status nb_attn_measure(const nb_capture_layer *l, nb_attn_form *form, size_t n_form,
                          nb_attn_error *error, nb_attn_pass_fn *on_pass, void *ctx,
                          nb_arena *arena, nb_error *err)
{
    nb_attn_pass truth, pass;
    const size_t d = nb_attn_sum_width(l), d_o = nb_attn_out_width(l);
    double *u = nb_arena_array(arena, d, sizeof *u);
    if (!u) return nb_fail(err, NB_ERR_NOMEM, "attention: out of memory");
    NB_TRY(pass_make(l, &truth, arena, err));
    NB_TRY(pass_make(l, &pass, arena, err));
    for (size_t iq = 0; iq < l->n_q; iq++) {
        if (l->pos[iq] >= l->n_tok)
            return nb_fail(err, NB_ERR_ARG, "a query at %zu of %zu tokens", l->pos[iq], l->n_tok);
        truth.n = truth.whole = l->pos[iq] + 1;
        memcpy(truth.q, l->q + iq * l->n_head * l->d_q, l->n_head * l->d_q * sizeof *truth.q);
        NB_TRY(attend(l, l->kv, NULL, &truth, err));
        for (size_t h = 0; h < l->n_head; h++) {
            for (size_t i = 0; i < d; i++) u[i] = truth.u[h * d + i] / truth.sum[h];
            nb_attn_project(l, h, u, truth.o + h * d_o);
        }
        for (size_t i = 0; i < n_form; i++) {
            nb_attn_error *e = error + (i * l->n_q + iq) * l->n_head;
            NB_TRY(one_form(&form[i], iq, &truth, &pass, u, e, err));
            if (on_pass) on_pass(ctx, iq, i, &truth, &pass);
        }
    }
    return NB_OK;
}

void nb_attn_summarise(const nb_attn_error *error, size_t n, size_t first, size_t step,
                       double *scratch, nb_attn_summary *out)
{
    nb_summary *const to[4] = { &out->rel_l2, &out->one_cos, &out->kl, &out->max_dp };
    for (size_t k = 0; k < 4; k++) {
        size_t m = 0;
        for (size_t i = first; i < n; i += step) {
            const double v[4] = { error[i].rel_l2, error[i].one_cos, error[i].kl, error[i].max_dp };
            scratch[m++] = v[k];
        }
        nb_summarise(scratch, m, to[k]);
    }
}
