/* test_eval_stress.c - the generator of hard attention inputs: moments of what it makes, targets,
 * seeds, and the names of its parameters. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "quality/attn_math.h"
#include "quality/stress.h"

static nb_stress_opts opts_of(const char *list)
{
    nb_stress_opts o;
    nb_error err = { 0 };
    nb_stress_defaults(&o, 7);
    if (nb_stress_set(&o, "preset=plain,n_layer=1,n_tok=2048,n_head=4,n_query=4,latent=64,rope=16",
                      &err) != NB_OK ||
        nb_stress_set(&o, list, &err) != NB_OK)
        fail_msg("%s", err.msg);
    return o;
}

static nb_stress_layer make(const char *list, nb_arena *a)
{
    const nb_stress_opts o = opts_of(list);
    nb_stress_layer l;
    assert_int_equal(nb_stress_make(&o, 0, a, &l, NULL), NB_OK);
    return l;
}

static float at(const nb_stress_layer *l, size_t t, size_t c)
{
    return l->view.kv[t * l->view.n_values + c];
}

static void channel(const nb_stress_layer *l, size_t c, double *mean, double *sd)
{
    double sum = 0, sq = 0;
    const double n = (double)l->view.n_tok;
    for (size_t t = 0; t < l->view.n_tok; t++) sum += at(l, t, c);
    for (size_t t = 0; t < l->view.n_tok; t++) sq += pow(at(l, t, c) - sum / n, 2);
    *mean = sum / n;
    *sd = sqrt(sq / n);
}

/* Standard error of a deviation of 2048 values with the mixture's kurtosis: under 4%. */
static void moments(void **state)
{
    nb_arena a = { 0 };
    nb_stress_layer l = make("gain=0.02,sigma_ch=1,outliers=4", &a);
    size_t n_mean = 0, n_wide = 0;
    double spread = 0, middle = 0;
    (void)state;
    for (size_t c = 0; c < 64; c++) {
        double mean, sd;
        channel(&l, c, &mean, &sd);
        assert_true(fabs(sd / l.sd[c] - 1) < 0.2);
        assert_true(fabs(mean - l.mean[c]) < 0.15 * l.sd[c]);
        if (fabs(l.mean[c]) > 0) {
            n_mean++;
            assert_true(fabs(fabs(l.mean[c]) / l.sd[c] - 12) < 1e-9);
        }
        n_wide += l.sd[c] > 0.02 * 20; /* only by an outlier's factor, mostly */
        middle += log(l.sd[c]) / 64;
    }
    for (size_t c = 0; c < 64; c++) spread += pow(log(l.sd[c]) - middle, 2) / 64;
    assert_int_equal(n_mean, 2);
    assert_true(sqrt(spread) > 0.8 && sqrt(spread) < 1.6);
    assert_true(n_wide <= 4);
    nb_arena_deinit(&a);
}

/* Unit variance, and tails heavier than Gaussian: kurtosis .7*3 + .2*6 + .1*(infinite) > 3.2. */
static void tails(void **state)
{
    nb_arena a = { 0 };
    nb_stress_layer l = make("", &a);
    double sq = 0, four = 0, n = 0;
    (void)state;
    for (size_t t = 0; t < 2048; t++)
        for (size_t c = 0; c < 64; c++, n++) {
            sq += pow(at(&l, t, c), 2);
            four += pow(at(&l, t, c), 4);
        }
    assert_true(fabs(sq / n - 1) < 0.03);
    assert_true(four / n > 3.2 * pow(sq / n, 2));
    nb_arena_deinit(&a);
}

/* Correlation of neighbours inside a block is rho, across a border 0. */
static void blocks(void **state)
{
    nb_arena a = { 0 };
    nb_stress_layer l = make("rho=0.6", &a);
    double in = 0, across = 0, n_in = 0, n_across = 0;
    (void)state;
    for (size_t t = 0; t + 1 < 2048; t++)
        for (size_t c = 0; c < 64; c++) {
            const double p = (double)at(&l, t, c) * at(&l, t + 1, c);
            if (t % 64 == 63) {
                across += p;
                n_across++;
            } else {
                in += p;
                n_in++;
            }
        }
    assert_true(fabs(in / n_in - 0.6) < 0.05);
    assert_true(fabs(across / n_across) < 0.1);
    nb_arena_deinit(&a);
}

static void sinks(void **state)
{
    nb_arena a = { 0 };
    nb_stress_layer l = make("sinks=4,sink_rate=0.01", &a);
    size_t n = 0;
    (void)state;
    for (size_t t = 0; t < 2048; t++) {
        double norm = 0, big[2] = { 0 };
        if (t < 4) assert_true(l.is_sink[t]);
        if (!l.is_sink[t]) continue;
        n++;
        for (size_t c = 0; c < 64; c++) {
            const double x = pow(at(&l, t, c), 2);
            norm += x;
            if (x > big[0]) {
                big[1] = big[0];
                big[0] = x;
            } else if (x > big[1]) {
                big[1] = x;
            }
        }
        assert_true(fabs(norm / 64 - 1) < 1e-5);
        assert_true(fabs((big[0] + big[1]) / norm - 0.8) < 1e-5);
    }
    assert_true(n > 4 + 5 && n < 4 + 45);
    nb_arena_deinit(&a);
}

/* Undoing the rotation of the true positions gives a constant offset of the amplitude in as many
 * of the lowest frequencies as asked for. */
static void rope(void **state)
{
    nb_arena a = { 0 };
    nb_stress_layer l = make("rope=32,rope_pairs=3,rope_offset=50", &a);
    size_t n = 0;
    (void)state;
    for (size_t i = 0; i < 16; i++) {
        double re = 0, im = 0;
        for (size_t t = 0; t < 2048; t++) {
            const double w = (double)t * pow(10000, -2.0 * (double)i / 32);
            const double x = at(&l, t, 64 + 2 * i), y = at(&l, t, 64 + 2 * i + 1);
            re += (x * cos(w) + y * sin(w)) / 2048;
            im += (y * cos(w) - x * sin(w)) / 2048;
        }
        const double r = hypot(re, im);
        assert_true(r < 0.5 || fabs(r - 50) < 0.5);
        if (r < 0.5) continue;
        assert_true(i >= 8); /* of the 8 lowest */
        n++;
    }
    assert_int_equal(n, 3);
    nb_arena_deinit(&a);
}

/* A target of probability p, and scores of the background with the deviation asked for. */
static void targets(void **state)
{
    (void)state;
    static const struct {
        const char *set;
        double p;
    } cases[] = { { "preset=peaky", .5 },
                  { "preset=sharp", .98 },
                  { "preset=diffuse", .005 },
                  { "preset=peaky,sigma_ch=1,balance=0.3,outliers=4", .5 },
                  { "preset=peaky,kv_heads=2,d_head=256", .5 } };
    for (size_t i = 0; i < NB_COUNT(cases); i++) {
        nb_arena a = { 0 };
        char set[128];
        (void)snprintf(set, sizeof set, "latent=512,n_query=3,%s", cases[i].set);
        nb_stress_layer l = make(set, &a);
        const nb_capture_layer *v = &l.view;
        double mean = 0;
        for (size_t q = 0; q < v->n_q; q++)
            for (size_t h = 0; h < v->n_head; h++) {
                const nb_attn_head hd = nb_attn_head_of(v, h);
                const size_t target = l.target[q * v->n_head + h];
                double max = 0, sum = 0, own = 0;
                static double s[2048];
                for (size_t t = 0; t < v->n_tok; t++) {
                    s[t] = v->scale * nb_attn_dot(v->q + (q * v->n_head + h) * v->d_q,
                                                  v->kv + t * v->n_values + hd.key, hd.d_key);
                    max = fmax(max, s[t]);
                }
                for (size_t t = 0; t < v->n_tok; t++) sum += exp(s[t] - max);
                own = exp(s[target] - max) / sum;
                mean += own / (double)(v->n_q * v->n_head);
            }
        /* The target's direction adds to the background, so p comes out lower. */
        const double odds = mean / (1 - mean), want = cases[i].p / (1 - cases[i].p);
        if (odds < want / 3 || odds > want * 1.6) fail_msg("%s: p is %.4f", cases[i].set, mean);
        nb_arena_deinit(&a);
    }
}

static void seeds(void **state)
{
    nb_arena a = { 0 };
    (void)state;
    nb_stress_opts o = opts_of("gain=auto,sigma_ch=auto,outliers=auto,rho=auto,logit_sd=auto");
    nb_stress_layer x, y, z, other;
    assert_int_equal(nb_stress_make(&o, 0, &a, &x, NULL), NB_OK);
    assert_int_equal(nb_stress_make(&o, 0, &a, &y, NULL), NB_OK);
    assert_int_equal(nb_stress_make(&o, 1, &a, &other, NULL), NB_OK);
    o.seed++;
    assert_int_equal(nb_stress_make(&o, 0, &a, &z, NULL), NB_OK);
    const size_t n = x.view.n_tok * x.view.n_values * sizeof *x.view.kv;
    assert_memory_equal(x.view.kv, y.view.kv, n);
    assert_memory_equal(x.view.q, y.view.q,
                        x.view.n_q * x.view.n_head * x.view.d_q * sizeof(float));
    assert_memory_not_equal(x.view.kv, z.view.kv, n);
    assert_memory_not_equal(x.view.kv, other.view.kv, n);
    assert_true(x.drawn.gain >= .004 && x.drawn.gain <= 1.2);
    assert_true(fabs(x.drawn.gain - other.drawn.gain) > 0);
    assert_false(isnan(x.drawn.sigma_ch) || isnan(x.drawn.outliers) || isnan(x.drawn.rho));
    /* One parameter does not shift the numbers of the others: the rope part stays. */
    nb_stress_opts p = opts_of("outliers=0"), q = opts_of("outliers=6");
    assert_int_equal(nb_stress_make(&p, 0, &a, &x, NULL), NB_OK);
    assert_int_equal(nb_stress_make(&q, 0, &a, &y, NULL), NB_OK);
    for (size_t t = 0; t < 2048; t++)
        assert_memory_equal(x.view.kv + t * 80 + 64, y.view.kv + t * 80 + 64, 16 * sizeof(float));
    nb_arena_deinit(&a);
}

static void words(void **state)
{
    static const char *const bad[] = { "rho",
                                       "rho=1",
                                       "rho=x",
                                       "rho=",
                                       "what=1",
                                       "n_tok=4.5",
                                       "n_tok=auto",
                                       "n_tok=0",
                                       "offset=",
                                       "offset=1/",
                                       "preset=none",
                                       "seed=-1",
                                       "n_tok=nan",
                                       "sinks=1e9",
                                       "kv_heads=3",
                                       "rope=17",
                                       "p=1",
                                       "gain=inf",
                                       "n_tok=1048576,latent=4096" };
    nb_stress_opts o, back;
    nb_buf text = { 0 };
    (void)state;
    for (size_t i = 0; i < NB_COUNT(bad); i++) {
        nb_error err = { 0 };
        nb_stress_defaults(&o, 1);
        back = o;
        if (nb_stress_set(&o, bad[i], &err) == NB_OK) fail_msg("%s was taken", bad[i]);
        assert_true(err.msg[0]);
        assert_memory_equal(&o, &back, sizeof o);
    }
    nb_stress_defaults(&o, 1);
    assert_int_equal(nb_stress_set(&o, "rho=0.3,offset=-1/2.5,p=auto,n_tok=4096,seed=99", NULL),
                     NB_OK);
    assert_int_equal(nb_stress_print(&o, &text), NB_OK);
    nb_stress_defaults(&back, 1);
    assert_int_equal(nb_stress_set(&back, text.p, NULL), NB_OK);
    nb_buf again = { 0 };
    assert_int_equal(nb_stress_print(&back, &again), NB_OK);
    assert_string_equal(text.p, again.p);
    assert_int_equal(back.n_offset, 2);
    assert_int_equal(back.seed, 99);
    nb_buf_deinit(&text);
    nb_buf_deinit(&again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moments), cmocka_unit_test(tails), cmocka_unit_test(blocks),
        cmocka_unit_test(sinks),   cmocka_unit_test(rope),  cmocka_unit_test(targets),
        cmocka_unit_test(seeds),   cmocka_unit_test(words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
