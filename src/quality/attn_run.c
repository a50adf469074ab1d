/* attn_run.c - see attn_run.h. */
#include "quality/attn_run.h"

#include <math.h>

#include "quality/attn_math.h"

typedef struct run {
    const nb_attn_plan *plan;
    const nb_capture_layer *l;
    nb_thrift_run thrift[NB_ATTN_REFINES];
    nb_thrift_method *method[NB_ATTN_REFINES];
    size_t *place[NB_ATTN_REFINES]; /* index of a method in the plan */
    nb_attn_error *error;
    nb_thrift_run *own; /* [n_form]: the selection of a form, n_method 0 where it has none */
} run;

static nb_status no_memory(nb_error *err)
{
    return nb_fail(err, NB_ERR_NOMEM, "attention error: out of memory");
}

/* One nb_thrift_run for each kind of refinement. */
static nb_status thrift_open(run *r, const nb_attn_form *base, nb_arena *work, nb_error *err)
{
    const nb_attn_plan *p = r->plan;
    for (size_t kind = 0; kind < NB_ATTN_REFINES; kind++) {
        nb_thrift_run *t = &r->thrift[kind];
        float *rows;
        r->method[kind] = nb_arena_array(work, p->n_method + 1, sizeof *r->method[kind]);
        r->place[kind] = nb_arena_array(work, p->n_method + 1, sizeof *r->place[kind]);
        if (!r->method[kind] || !r->place[kind]) return no_memory(err);
        *t = (nb_thrift_run){ .base = base,
                              .tau = p->tau,
                              .method = r->method[kind],
                              .fraction = p->fraction,
                              .n_fraction = p->n_fraction };
        for (size_t i = 0; i < p->n_method; i++)
            if ((size_t)p->refine[i] == kind) {
                r->place[kind][t->n_method] = i;
                r->method[kind][t->n_method++] = p->method[i];
            }
        if (!t->n_method) continue;
        NB_TRY(nb_attn_form_refined(base, (nb_attn_refine)kind, work, &rows, &t->row_bytes, err));
        t->rows = rows;
        NB_TRY(nb_thrift_run_init(t, work, err));
    }
    return NB_OK;
}

static void on_pass(void *ctx, size_t query, size_t form, const nb_attn_pass *truth,
                    const nb_attn_pass *pass)
{
    run *r = ctx;
    const nb_attn_error *e = r->error + (form * r->l->n_q + query) * r->l->n_head;
    if (r->own[form].n_method) nb_thrift_run_query(&r->own[form], query, truth, pass, e);
    if (form != r->plan->base) return;
    for (size_t kind = 0; kind < NB_ATTN_REFINES; kind++)
        if (r->thrift[kind].n_method) nb_thrift_run_query(&r->thrift[kind], query, truth, pass, e);
}

/* The selection that a form has of its own. */
static nb_status own_open(run *r, const nb_attn_form *f, nb_thrift_run *t, nb_arena *work,
                          nb_error *err)
{
    nb_thrift_method *m = nb_arena_alloc(work, sizeof *m);
    double *fraction = nb_arena_alloc(work, sizeof *fraction);
    float *rows;
    if (!m || !fraction) return no_memory(err);
    if (nb_thrift_method_parse(f->o.thrift, m) != NB_OK)
        return nb_fail(err, NB_ERR_ARG, "%s: unknown selection %s", f->o.name, f->o.thrift);
    *fraction = f->o.fraction > 0 ? f->o.fraction : m->kind == NB_SEL_TOKEN ? 0.005 : 0.05;
    *t = (nb_thrift_run){ .base = f,
                          .tau = f->o.tau > 0 ? f->o.tau : 1e-3,
                          .method = m,
                          .n_method = 1,
                          .fraction = fraction,
                          .n_fraction = 1 };
    const nb_attn_refine kind = r->l->is_mla ? NB_REFINE_RESIDUAL : NB_REFINE_BF16;
    NB_TRY(nb_attn_form_refined(f, kind, work, &rows, &t->row_bytes, err));
    t->rows = rows;
    return nb_thrift_run_init(t, work, err);
}

/* What was measured of the form becomes what it is behind its selection. */
static void own_close(const run *r, size_t form)
{
    const size_t n = r->l->n_q * r->l->n_head;
    nb_attn_error *e = r->error + form * n;
    for (size_t i = 0; i < n; i++) {
        const double max_dp = e[i].max_dp;
        e[i] = r->own[form].error[i];
        e[i].max_dp = max_dp;
    }
}

static nb_status thrift_close(const run *r, nb_arena *results, nb_attn_layer_result *out,
                              nb_error *err)
{
    const nb_attn_plan *p = r->plan;
    const size_t n_cost = p->n_fraction * r->l->n_q, n_error = n_cost * r->l->n_head;
    out->thrift = nb_arena_array(results, p->n_method * n_error, sizeof *out->thrift);
    out->cost = nb_arena_array(results, p->n_method * n_cost, sizeof *out->cost);
    if (!out->thrift || !out->cost) return no_memory(err);
    for (size_t kind = 0; kind < NB_ATTN_REFINES; kind++)
        for (size_t i = 0; i < r->thrift[kind].n_method; i++) {
            const nb_thrift_run *t = &r->thrift[kind];
            const size_t to = r->place[kind][i];
            memcpy(out->thrift + to * n_error, t->error + i * n_error, n_error * sizeof *t->error);
            memcpy(out->cost + to * n_cost, t->cost + i * n_cost, n_cost * sizeof *t->cost);
        }
    return NB_OK;
}

/* ---- the paper's arithmetic ------------------------------------------------------- */

/* Keys and values of head h up to n tokens, expanded: MLA: the absorbed key of latent and rope
 * part, and the value behind w_uv (or the latent). */
static nb_status expand(const nb_capture_layer *l, size_t h, size_t n, nb_arena *work,
                        nb_paper_head *out, nb_error *err)
{
    const nb_attn_head at = nb_attn_head_of(l, h);
    const size_t d_v = nb_attn_out_width(l);
    float *k = nb_arena_array(work, n * at.d_key, sizeof *k);
    float *v = nb_arena_array(work, n * d_v, sizeof *v);
    if (!k || !v) return no_memory(err);
    for (size_t t = 0; t < n; t++) {
        const float *row = l->kv + t * l->n_values;
        memcpy(k + t * at.d_key, row + at.key, at.d_key * sizeof *k);
        for (size_t i = 0; i < d_v; i++)
            v[t * d_v + i] = !l->w_uv ? row[at.value + i]
                                      : (float)nb_attn_dot(l->w_uv + (h * l->d_v + i) * at.d_value,
                                                           row + at.value, at.d_value);
    }
    return nb_paper_head_make(k, v, n, at.d_key, d_v, l->scale, work, out, err);
}

typedef struct paper_scratch {
    double *s, *o, *exact, *p, *p4;
} paper_scratch;

static void paper_error(const double *a, const double *b, size_t d, const double *p,
                        const double *p4, size_t n, nb_attn_error *e)
{
    double aa = 0, bb = 0, ab = 0, dd = 0, kl = 0;
    for (size_t i = 0; i < d; i++) {
        aa += a[i] * a[i];
        bb += b[i] * b[i];
        ab += a[i] * b[i];
        dd += (a[i] - b[i]) * (a[i] - b[i]);
    }
    for (size_t t = 0; t < n; t++)
        if (p[t] > 0 && p4[t] > 0) kl += p[t] * log(p[t] / p4[t]);
    *e = (nb_attn_error){ .rel_l2 = dd > 0 ? sqrt(dd / aa) : 0,
                          .one_cos = dd > 0 && bb > 0 ? 1 - ab / sqrt(aa * bb) : 0,
                          .kl = kl > 0 ? kl : 0 };
}

/* One query and head, all modes, without and with the refined blocks. */
static void paper_query(const nb_paper_head *h, const float *q, const uint8_t *refined,
                        const paper_scratch *x, nb_attn_paper_result *out, size_t at)
{
    nb_paper_exact(h, q, x->s, x->exact, x->p);
    for (size_t m = 0; m < NB_PAPER_MODES; m++) {
        nb_paper_attend(h, q, (nb_paper_mode)m, NULL, x->s, x->o, x->p4);
        paper_error(x->exact, x->o, h->d_v, x->p, x->p4, h->n, &out->error[m][at]);
        nb_paper_attend(h, q, (nb_paper_mode)m, refined, x->s, x->o, x->p4);
        paper_error(x->exact, x->o, h->d_v, x->p, x->p4, h->n, &out->refined[m][at]);
    }
}

static nb_status paper_run(const run *r, nb_arena *results, nb_attn_paper_result *out,
                           nb_error *err)
{
    const nb_capture_layer *l = r->l;
    const size_t n_q = l->n_q < NB_ATTN_PAPER_QUERIES ? l->n_q : NB_ATTN_PAPER_QUERIES;
    const size_t per = l->n_head / l->n_kv_head, n_share = l->w_uv ? 1 : per;
    nb_arena work = { 0 };
    nb_status st = NB_OK;
    nb_attn_paper_result x = { .n = n_q * l->n_head };
    x.query = nb_arena_array(results, x.n, sizeof *x.query);
    for (size_t m = 0; m < NB_PAPER_MODES; m++) {
        x.error[m] = nb_arena_array(results, x.n, sizeof **x.error);
        x.refined[m] = nb_arena_array(results, x.n, sizeof **x.refined);
        if (!x.error[m] || !x.refined[m] || !x.query) return no_memory(err);
    }
    for (size_t i = 0; i < n_q; i++) {
        const size_t iq = (i + 1) * l->n_q / n_q - 1, n = l->pos[iq] + 1;
        for (size_t h0 = 0; h0 < l->n_head; h0 += n_share) {
            /* Heads of a KV head share keys and values, but for w_uv. */
            const float *q = l->q + (iq * l->n_head + h0 / per * per) * l->d_q;
            nb_paper_head head;
            size_t n_refined;
            nb_arena_reset(&work);
            uint8_t *refined = nb_arena_alloc(&work, n / NB_PAGE_TOK + 1);
            paper_scratch s = { nb_arena_array(&work, n + l->d_q, sizeof *s.s),
                                nb_arena_array(&work, nb_attn_out_width(l), sizeof *s.o),
                                nb_arena_array(&work, nb_attn_out_width(l), sizeof *s.o),
                                nb_arena_array(&work, n, sizeof *s.p),
                                nb_arena_array(&work, n, sizeof *s.p) };
            if (!refined || !s.s || !s.o || !s.exact || !s.p || !s.p4) {
                st = no_memory(err);
                goto out;
            }
            NB_TRY_OUT(expand(l, h0, n, &work, &head, err));
            NB_TRY_OUT(nb_paper_select(&head, q, per, r->plan->paper_fraction, false, &work,
                                       refined, &n_refined));
            x.share += (double)(n_refined * NB_PAGE_TOK) / (double)n * (double)n_share;
            for (size_t h = h0; h < h0 + n_share; h++) {
                const size_t at = i * l->n_head + h;
                x.query[at] = (uint32_t)iq;
                paper_query(&head, l->q + (iq * l->n_head + h) * l->d_q, refined, &s, &x, at);
            }
        }
    }
    x.share /= (double)x.n;
    *out = x;
out:
    nb_arena_deinit(&work);
    return st;
}

nb_status nb_attn_layer_run(const nb_attn_plan *plan, const nb_capture_layer *l, nb_arena *results,
                            nb_arena *work, nb_attn_layer_result *out, nb_error *err)
{
    run r = { .plan = plan, .l = l };
    nb_attn_layer_result x = { .layer = l->layer,
                               .n_layer = l->n_layer,
                               .n_q = l->n_q,
                               .n_head = l->n_head,
                               .n_tok = l->n_tok,
                               .n_values = l->n_values };
    nb_attn_form *form = nb_arena_array(work, plan->n_form + 1, sizeof *form);
    r.error = nb_arena_array(results, plan->n_form * l->n_q * l->n_head, sizeof *r.error);
    x.bytes_per_tok = nb_arena_array(results, plan->n_form + 1, sizeof *x.bytes_per_tok);
    r.own = nb_arena_array(work, plan->n_form + 1, sizeof *r.own);
    if (!form || !r.error || !x.bytes_per_tok || !r.own) return no_memory(err);
    for (size_t i = 0; i < plan->n_form; i++) {
        NB_TRY(nb_attn_form_make(l, &plan->form[i], work, &form[i], err));
        x.bytes_per_tok[i] = form[i].bytes_per_tok;
        if (plan->form[i].thrift) NB_TRY(own_open(&r, &form[i], &r.own[i], work, err));
    }
    if (plan->n_method) NB_TRY(thrift_open(&r, &form[plan->base], work, err));
    NB_TRY(nb_attn_measure(l, form, plan->n_form, r.error, on_pass, &r, work, err));
    for (size_t i = 0; i < plan->n_form; i++)
        if (r.own[i].n_method) own_close(&r, i);
    x.error = r.error;
    if (plan->n_method) NB_TRY(thrift_close(&r, results, &x, err));
    if (plan->paper) NB_TRY(paper_run(&r, results, &x.paper, err));
    *out = x;
    return NB_OK;
}
