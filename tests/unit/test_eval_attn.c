/* test_eval_attn.c - attention error of records and of selections: against loops written out here,
 * and against what must come out (nothing rounded: nothing lost; everything refined: the other
 * record). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "num/bf16.h"
#include "quality/attn_math.h"
#include "quality/attn_run.h"
#include "quality/stress.h"

static const char SMALL[] = "preset=plain,preset=peaky,n_layer=1,n_tok=300,n_head=4,n_query=3,"
                            "latent=64,rope=16,sigma_ch=0.5,rho=0.3";

static nb_stress_layer make(const char *list, nb_arena *a)
{
    nb_stress_opts o;
    nb_stress_layer l = { 0 };
    nb_error err = { 0 };
    nb_stress_defaults(&o, 3);
    if (nb_stress_set(&o, SMALL, &err) != NB_OK || nb_stress_set(&o, list, &err) != NB_OK ||
        nb_stress_make(&o, 0, a, &l, &err) != NB_OK)
        fail_msg("%s", err.msg);
    return l;
}

static nb_attn_form_opts form_of(const char *type, const char *mode, const char *transform)
{
    nb_attn_form_opts o = { .name = type };
    nb_error err = { 0 };
    if (nb_attn_form_parse(&o, type, mode, NULL, transform, &err) != NB_OK) fail_msg("%s", err.msg);
    return o;
}

/* rel_l2 and kl of a head by loops over key rows k (the same for truth and form but for rounding). */
static void by_hand(const nb_capture_layer *l, const nb_attn_form *f, size_t iq, size_t h,
                    double *rel_l2, double *kl)
{
    const nb_attn_head at = nb_attn_head_of(l, h);
    const size_t n = l->pos[iq] + 1, page = l->pos[iq] / 64 * 64, d = at.d_value;
    double s[2][512], sum[2] = { 0 }, o[2][512] = { { 0 } }, dd = 0, aa = 0;
    const float *q = l->q + (iq * l->n_head + h) * l->d_q;
    for (size_t t = 0; t < n; t++)
        for (size_t k = 0; k < 2; k++) {
            const float *row = k && t < page ? f->rows + t * l->n_values : l->kv + t * l->n_values;
            s[k][t] = 0;
            for (size_t i = 0; i < at.d_key; i++) {
                const float x = row[at.key + i];
                const bool tail = k && t >= page && f->o.type != NB_KV_F32;
                s[k][t] += (double)q[i] * (tail ? nb_bf16_to_f32(nb_bf16_from_f32(x)) : x);
            }
            s[k][t] *= l->scale;
            sum[k] += exp(s[k][t]);
            for (size_t i = 0; i < d; i++) {
                const float x = row[at.value + i];
                const bool tail = k && t >= page && f->o.type != NB_KV_F32;
                o[k][i] += exp(s[k][t]) * (tail ? nb_bf16_to_f32(nb_bf16_from_f32(x)) : x);
            }
        }
    *kl = 0;
    for (size_t t = 0; t < n; t++) {
        const double p = exp(s[0][t]) / sum[0];
        *kl += p * log(p / (exp(s[1][t]) / sum[1]));
    }
    const size_t n_out = l->w_uv ? l->d_v : d;
    for (size_t v = 0; v < n_out; v++) {
        double x[2] = { 0 };
        for (size_t k = 0; k < 2; k++)
            for (size_t i = 0; i < d; i++)
                x[k] += (l->w_uv ? (double)l->w_uv[(h * l->d_v + v) * d + i] : i == v) * o[k][i] /
                        sum[k];
        dd += (x[1] - x[0]) * (x[1] - x[0]);
        aa += x[0] * x[0];
    }
    *rel_l2 = sqrt(dd / aa);
}

static void records(void **state)
{
    static const char *const shapes[] = { "seed=3", "d_v=24", "kv_heads=2,d_head=32",
                                          "sinks=4,sink_rate=0.02,rope_pairs=2,rope_offset=10" };
    static const char *const types[] = { "f32", "bf16", "fp8", "nvfp4", "if4", "mxfp4", "int4" };
    (void)state;
    for (size_t i = 0; i < NB_COUNT(shapes); i++) {
        nb_arena a = { 0 };
        nb_stress_layer l = make(shapes[i], &a);
        nb_attn_form f[NB_COUNT(types)];
        nb_attn_error e[NB_COUNT(types) * 12];
        for (size_t k = 0; k < NB_COUNT(types); k++) {
            const nb_attn_form_opts o = form_of(types[k], NULL, NULL);
            assert_int_equal(nb_attn_form_make(&l.view, &o, &a, &f[k], NULL), NB_OK);
        }
        assert_int_equal(nb_attn_measure(&l.view, f, NB_COUNT(types), e, NULL, NULL, &a, NULL),
                         NB_OK);
        double mean[NB_COUNT(types)] = { 0 };
        for (size_t k = 0; k < NB_COUNT(types); k++)
            for (size_t q = 0; q < 3; q++)
                for (size_t h = 0; h < 4; h++) {
                    double rel_l2, kl;
                    by_hand(&l.view, &f[k], q, h, &rel_l2, &kl);
                    assert_true(fabs(e[k * 12 + q * 4 + h].rel_l2 - rel_l2) < 1e-9 + 1e-6 * rel_l2);
                    assert_true(fabs(e[k * 12 + q * 4 + h].kl - kl) < 1e-9 + 1e-6 * fabs(kl));
                    mean[k] += e[k * 12 + q * 4 + h].rel_l2;
                }
        assert_true(mean[0] < 1e-12);                       /* f32 */
        assert_true(mean[1] > 1e-4 && mean[1] < 12 * 6e-3); /* bf16 */
        for (size_t k = 2; k < NB_COUNT(types); k++) assert_true(mean[k] > 2 * mean[1]);
        for (size_t k = 3; k < NB_COUNT(types); k++) assert_true(mean[k] > mean[2]);
        nb_arena_deinit(&a);
    }
}

/* Without rounding a transform changes nothing; with it, channels of different widths gain. */
static void transforms(void **state)
{
    static const char *const t[] = { "none",     "center",          "equalize",
                                     "hadamard", "center+equalize", "center+equalize+hadamard" };
    (void)state;
    nb_arena a = { 0 };
    nb_stress_layer l = make("d_v=24,sigma_ch=1,outliers=4,gain=0.01", &a);
    for (size_t i = 0; i < NB_COUNT(t); i++) {
        nb_attn_form f;
        nb_attn_error e[12];
        const nb_attn_form_opts o = form_of("f32", NULL, t[i]);
        assert_int_equal(nb_attn_form_make(&l.view, &o, &a, &f, NULL), NB_OK);
        assert_int_equal(nb_attn_measure(&l.view, &f, 1, e, NULL, NULL, &a, NULL), NB_OK);
        for (size_t k = 0; k < 12; k++) {
            assert_true(e[k].rel_l2 < 1e-5);
            assert_true(e[k].kl < 1e-6);
        }
    }
    nb_kv_calib_layer s;
    assert_int_equal(nb_attn_stats(&l.view, 300, &a, &s, NULL), NB_OK);
    for (size_t i = 0; i + 1 < s.n_values; i++)
        assert_true(ldexp(s.sd[s.perm[i]], s.scale_log2[s.perm[i]]) >=
                    ldexp(s.sd[s.perm[i + 1]], s.scale_log2[s.perm[i + 1]]));
    nb_stress_layer g = make("kv_heads=2,d_head=32", &a);
    nb_attn_form f;
    const nb_attn_form_opts o = form_of("nvfp4", NULL, "center");
    nb_error err = { 0 };
    assert_int_equal(nb_attn_form_make(&g.view, &o, &a, &f, &err), NB_ERR_UNSUPPORTED);
    nb_arena_deinit(&a);
}

/* A query reads its own page, and the sinks, in BF16. */
static void own_page(void **state)
{
    nb_arena a = { 0 };
    (void)state;
    nb_stress_layer l = make("", &a);
    nb_attn_form f[2], sink;
    nb_attn_error e[24];
    nb_attn_form_opts o[2] = { form_of("bf16", NULL, NULL), form_of("nvfp4", NULL, NULL) };
    size_t pos[3] = { 0, 40, 63 };
    l.view.pos = pos;
    for (size_t k = 0; k < 2; k++)
        assert_int_equal(nb_attn_form_make(&l.view, &o[k], &a, &f[k], NULL), NB_OK);
    assert_int_equal(nb_attn_measure(&l.view, f, 2, e, NULL, NULL, &a, NULL), NB_OK);
    assert_memory_equal(e, e + 12, 12 * sizeof *e);
    o[1].n_sink = 5;
    assert_int_equal(nb_attn_form_make(&l.view, &o[1], &a, &sink, NULL), NB_OK);
    const size_t n = l.view.n_values;
    assert_memory_equal(sink.rows, f[0].rows, 5 * n * sizeof(float));
    assert_memory_equal(sink.rows + 5 * n, f[1].rows + 5 * n, 251 * n * sizeof(float));
    nb_arena_deinit(&a);
}

static nb_attn_layer_result run(const nb_capture_layer *l, const char *const *method, size_t n,
                                nb_attn_refine refine, const double *fraction, size_t n_fraction,
                                nb_arena *a)
{
    static nb_attn_form_opts form[2];
    static nb_thrift_method m[NB_THRIFT_MAX_METHODS];
    static nb_attn_refine kind[NB_THRIFT_MAX_METHODS];
    nb_arena work = { 0 };
    nb_attn_layer_result r;
    nb_error err = { 0 };
    form[0] = form_of("bf16", NULL, NULL);
    form[1] = form_of("nvfp4", NULL, NULL);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(nb_thrift_method_parse(method[i], &m[i]), NB_OK);
        kind[i] = refine;
    }
    const nb_attn_plan plan = { .form = form,
                                .n_form = 2,
                                .base = 1,
                                .method = m,
                                .refine = kind,
                                .n_method = n,
                                .fraction = fraction,
                                .n_fraction = n_fraction,
                                .tau = 1e-3 };
    if (nb_attn_layer_run(&plan, l, a, &work, &r, &err) != NB_OK) fail_msg("%s", err.msg);
    nb_arena_deinit(&work);
    return r;
}

/* Everything refined to BF16 is the bf16 record; to nothing, the base. */
static void all_refined(void **state)
{
    static const char *const method[] = { "token-top",    "block-mean",     "quest",
                                          "local",        "block-prob",     "oracle",
                                          "oracle-token", "token-top:head", "quest:head" };
    static const char *const shapes[] = { "d_v=24", "kv_heads=2,d_head=32" };
    const double fraction[] = { 0.01, 0.6, 1 };
    (void)state;
    for (size_t s = 0; s < 2; s++) {
        nb_arena a = { 0 };
        nb_stress_layer l = make(shapes[s], &a);
        nb_attn_layer_result r =
            run(&l.view, method, NB_COUNT(method), NB_REFINE_BF16, fraction, 3, &a);
        for (size_t m = 0; m < NB_COUNT(method); m++) {
            for (size_t i = 0; i < 12; i++) {
                const nb_attn_error *e = &r.thrift[(m * 3 + 2) * 12 + i];
                assert_true(fabs(e->rel_l2 - r.error[i].rel_l2) < 1e-9);
                assert_true(fabs(e->kl - r.error[i].kl) < 1e-9);
            }
            for (size_t q = 0; q < 3; q++) {
                const nb_thrift_cost *c = &r.cost[(m * 3 + 2) * 3 + q];
                assert_true(fabs(c->refined - 256.0 / 300) < 1e-9);
                assert_true(fabs(c->refine_bytes - 256.0 * 2 * (double)l.view.n_values) < 1e-6);
                assert_true(r.cost[m * 9 + q].refined < r.cost[m * 9 + 3 + q].refined);
            }
        }
        nb_arena_deinit(&a);
    }
}

/* Which tokens, and how many: found again from the passes by hand. */
typedef struct seen {
    double best[512];
    size_t n;
} seen;

static void on_pass(void *ctx, size_t query, size_t form, const nb_attn_pass *truth,
                    const nb_attn_pass *pass)
{
    seen *s = ctx;
    (void)truth;
    (void)form;
    if (query != 0) return;
    s->n = pass->whole;
    for (size_t t = 0; t < pass->whole; t++) {
        s->best[t] = 0;
        for (size_t h = 0; h < 4; h++)
            s->best[t] = fmax(s->best[t], pass->e[h * pass->ld + t] / pass->sum[h]);
    }
}

static void by_token(void **state)
{
    static const char *const method[] = { "token", "token-top", "block-prob", "token:head" };
    const double fraction[] = { 0.02, 0.5 };
    nb_arena a = { 0 };
    seen s = { 0 };
    (void)state;
    nb_stress_layer l = make("", &a);
    nb_attn_form f;
    nb_attn_error e[12];
    const nb_attn_form_opts o = form_of("nvfp4", NULL, NULL);
    assert_int_equal(nb_attn_form_make(&l.view, &o, &a, &f, NULL), NB_OK);
    assert_int_equal(nb_attn_measure(&l.view, &f, 1, e, on_pass, &s, &a, NULL), NB_OK);
    size_t over = 0;
    for (size_t t = 0; t < s.n; t++) over += s.best[t] > 1e-3;
    nb_attn_layer_result r = run(&l.view, method, 4, NB_REFINE_RESIDUAL, fraction, 2, &a);
    assert_true(over > 5); /* beyond the cap of 2% of 256 */
    assert_true(fabs(r.cost[0].refined * 300 - 5) < 1e-9);
    assert_true(fabs(r.cost[3].refined * 300 - (double)(over < 128 ? over : 128)) < 1e-9);
    assert_true(fabs(r.cost[6].refined * 300 - 5) < 1e-9);
    assert_true(fabs(r.cost[0].refine_bytes - 5 * 32) < 1e-9); /* 64 values at 4 bits */
    assert_true(fabs(r.cost[12].refined * 300 - 64) < 1e-9);   /* one block of 4 */
    /* Heads for themselves: no more per head than the cap, more rows in all. */
    assert_true(fabs(r.cost[18].refined * 300 - 5) < 1e-9);
    assert_true(r.cost[18].refine_bytes >= 5 * 32);
    assert_true(fabs(r.cost[0].base_bytes - (256 * f.bytes_per_tok + 44 * 160)) < 1e-6);
    /* Peaky heads: a few tokens give back most of it. */
    double low = 0, got = 0, high = 0;
    for (size_t i = 0; i < 12; i++) {
        low += r.error[12 + i].rel_l2;
        high += r.error[i].rel_l2;
        got += r.thrift[12 * 2 + i].rel_l2; /* token-top, 2% */
    }
    assert_true((low - got) / (low - high) > 0.5);
    nb_arena_deinit(&a);
}

static void words(void **state)
{
    static const char *const bad[] = { "",    "0", "0.1,", "0.1,0.1", "0.2,0.1",
                                       "1.1", "x", "-1",   "nan" };
    static const char *const bad_method[] = { "", "tok", "token:", "token:heads", "paper-fp4" };
    static const char *const bad_form[][3] = { { "fp9", NULL, NULL },
                                               { "nvfp4", "fast", NULL },
                                               { "nvfp4", NULL, "center+center" },
                                               { "nvfp4", NULL, "center+" },
                                               { "nvfp4", NULL, "rotate" } };
    double f[NB_THRIFT_MAX_FRACTIONS];
    size_t n;
    nb_thrift_method m;
    (void)state;
    for (size_t i = 0; i < NB_COUNT(bad); i++)
        assert_int_equal(nb_thrift_fractions(bad[i], f, &n, NULL), NB_ERR_ARG);
    assert_int_equal(nb_thrift_fractions("0.001,0.05,1", f, &n, NULL), NB_OK);
    assert_int_equal(n, 3);
    for (size_t i = 0; i < NB_COUNT(bad_method); i++)
        assert_int_equal(nb_thrift_method_parse(bad_method[i], &m), NB_ERR_ARG);
    for (size_t i = 0; i < NB_COUNT(bad_form); i++) {
        nb_attn_form_opts o = { 0 };
        nb_error err = { 0 };
        assert_int_equal(
            nb_attn_form_parse(&o, bad_form[i][0], bad_form[i][1], NULL, bad_form[i][2], &err),
            NB_ERR_ARG);
        assert_true(err.msg[0]);
    }
}

/* NaN in the tensors is an error, not a figure. */
static void nonfinite(void **state)
{
    nb_arena a = { 0 };
    nb_error err = { 0 };
    (void)state;
    nb_stress_layer l = make("", &a);
    float *kv = nb_arena_array(&a, l.view.n_tok * l.view.n_values, sizeof *kv);
    memcpy(kv, l.view.kv, l.view.n_tok * l.view.n_values * sizeof *kv);
    kv[100 * l.view.n_values + 3] = NAN;
    l.view.kv = kv;
    nb_attn_form f;
    const nb_attn_form_opts o = form_of("nvfp4", NULL, NULL);
    assert_int_equal(nb_attn_form_make(&l.view, &o, &a, &f, &err), NB_ERR_NONFINITE);
    assert_non_null(strstr(err.msg, "nvfp4"));
    nb_arena_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records),     cmocka_unit_test(transforms), cmocka_unit_test(own_page),
        cmocka_unit_test(all_refined), cmocka_unit_test(by_token),   cmocka_unit_test(words),
        cmocka_unit_test(nonfinite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
