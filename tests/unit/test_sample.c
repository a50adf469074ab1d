/* test_sample.c - logits processors, their order, the draw, refused parameters.
 *
 * Hand-computed cases for each step, and a reference in double that sorts everything and
 * follows the definition word by word: its choices must be the same for random
 * parameters on small vocabularies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "sample/row.h"
#include "sample/sample.h"

static nb_sample_params defaults(void)
{
    nb_sample_params p;
    nb_sample_params_default(&p);
    return p;
}

static nb_sampler *create(const nb_sample_params *p, size_t n_vocab)
{
    nb_sampler *s = NULL;
    nb_error e;
    if (nb_sampler_create(p, n_vocab, &s, &e) != NB_OK) fail_msg("%s", e.msg);
    return s;
}

/* One scratch for all samplers of a test, whatever their vocabulary: what one leaves there must
 * not matter to the next. */
enum { MAX_VOCAB = 200000 };
static nb_sample_scratch *scratch;

static nb_status choose(nb_sampler *s, const float *x, nb_sample_out *o)
{
    return nb_sampler_next(s, scratch, x, NULL, o);
}

static uint32_t next(nb_sampler *s, const float *x)
{
    nb_sample_out o;
    assert_int_equal(choose(s, x, &o), NB_OK);
    return o.id;
}

/* Which ids a sampler ever chooses, as bits, over n seeds. */
static unsigned support(nb_sample_params p, const float *x, size_t n_vocab, size_t n)
{
    unsigned bits = 0;
    for (size_t i = 0; i < n; i++) {
        p.seed = i;
        nb_sampler *s = create(&p, n_vocab);
        bits |= 1u << next(s, x);
        nb_sampler_destroy(s);
    }
    return bits;
}

/* ---- one step at a time ------------------------------------------------ */

static void test_greedy(void **state)
{
    (void)state;
    const float x[] = { 1, 3, -2, 3, 2.5f };
    const float y[] = { -INFINITY, -INFINITY, -5, -INFINITY };
    nb_sample_params p = defaults();
    p.temperature = 0;
    p.top_k = 1;
    p.top_p = 0.1;
    nb_sampler *s = create(&p, 5);
    assert_int_equal(next(s, x), 1); /* the lower of two equal ones */
    assert_int_equal(nb_sampler_n_generated(s), 1);
    nb_sampler_destroy(s);
    p.temperature = 9e-6; /* as good as 0 */
    s = create(&p, 5);
    assert_int_equal(next(s, x), 1);
    nb_sampler_destroy(s);
    s = create(&p, 4);
    assert_int_equal(next(s, y), 2);
    nb_sampler_destroy(s);
    p.temperature = 1;
    p.top_k = 0;
    p.top_p = 1;
    assert_int_equal(support(p, y, 4, 50), 1u << 2); /* all -inf but one */
}

static void test_bad_logits(void **state)
{
    (void)state;
    const float bad[] = { NAN, -NAN, INFINITY };
    for (size_t greedy = 0; greedy < 2; greedy++) {
        nb_sample_params p = defaults();
        if (greedy) p.temperature = 0;
        nb_sampler *s = create(&p, 7);
        nb_sample_out o = { .id = 99 };
        for (size_t k = 0; k < 3; k++) {
            for (size_t at = 0; at < 7; at++) {
                float x[7] = { 1, 2, 3, 4, 5, 6, 7 };
                x[at] = bad[k];
                assert_int_equal(choose(s, x, &o), NB_ERR_NONFINITE);
            }
        }
        const float none[7] = { -INFINITY, -INFINITY, -INFINITY, -INFINITY,
                                -INFINITY, -INFINITY, -INFINITY };
        assert_int_equal(choose(s, none, &o), NB_ERR_NONFINITE);
        assert_int_equal(o.id, 99);
        assert_int_equal(nb_sampler_n_generated(s), 0);
        nb_sampler_destroy(s);
    }
}

static void test_logit_bias(void **state)
{
    (void)state;
    const float x[] = { 0, 10, 20, -3 };
    const nb_sample_bias b[] = { { 3, 100 }, { 2, -100 }, { 1, 2 }, { 1, 2 } };
    nb_sample_params p = defaults();
    p.temperature = 0;
    p.logit_bias = b;
    p.n_logit_bias = 1;
    nb_sampler *s = create(&p, 4);
    assert_int_equal(next(s, x), 3); /* -3 + 100 */
    nb_sampler_destroy(s);
    p.logit_bias = b + 1;
    s = create(&p, 4);
    assert_int_equal(next(s, x), 1); /* 20 - 100 */
    nb_sampler_destroy(s);
    const float y[] = { 0, 10, 13, -3 };
    p.logit_bias = b + 2;
    p.n_logit_bias = 2;
    s = create(&p, 4);
    assert_int_equal(next(s, y), 1); /* 10 + 2 + 2: biases of one id add up */
    nb_sampler_destroy(s);
    p.temperature = 1;
    p.logit_bias = b + 1;
    p.n_logit_bias = 1;
    assert_int_equal(support(p, y, 4, 200) & 1u << 2, 0);
}

static void test_min_tokens(void **state)
{
    (void)state;
    const float x[] = { 5, 9, 7, 1 };
    const uint32_t end[] = { 1, 2 };
    const nb_sample_bias b[] = { { 1, 100 } };
    nb_sample_params p = defaults();
    p.temperature = 0;
    p.min_tokens = 2;
    p.end_id = end;
    p.n_end_id = 2;
    p.logit_bias = b; /* does not bring a held-off token back */
    p.n_logit_bias = 1;
    nb_sampler *s = create(&p, 4);
    assert_int_equal(next(s, x), 0);
    assert_int_equal(next(s, x), 0);
    assert_int_equal(next(s, x), 1);
    nb_sampler_destroy(s);
    const float only[] = { -INFINITY, 9, 7, -INFINITY };
    nb_sample_out o;
    s = create(&p, 4);
    assert_int_equal(choose(s, only, &o), NB_ERR_NONFINITE); /* nothing left */
    nb_sampler_destroy(s);
}

static void test_repetition(void **state)
{
    (void)state;
    const uint32_t prompt[] = { 1, 1, 2, 2, 2 };
    nb_sample_params p = defaults();
    p.temperature = 0;
    p.repetition_penalty = 2;
    nb_sampler *s = create(&p, 4);
    assert_int_equal(nb_sampler_accept_prompt(s, prompt, 2), NB_OK);
    assert_int_equal(nb_sampler_accept_prompt(s, prompt + 2, 3), NB_OK);
    const float x[] = { 3, 5, 5.5f, 2 }; /* 3, 2.5, 2.75, 2: once, however often it occurred */
    assert_int_equal(next(s, x), 0);
    const float y[] = { 6.5f, 0, 0, 3.3f }; /* the output counts too: 3.25 */
    assert_int_equal(next(s, y), 3);
    const float z[] = { -4, -2.1f, -3, -2.2f }; /* all known: -8, -4.2, -6, -4.4 */
    assert_int_equal(next(s, z), 1);
    const uint32_t out_of_range[] = { 0, 4 };
    assert_int_equal(nb_sampler_accept_prompt(s, out_of_range, 2), NB_ERR_RANGE);
    nb_sampler_destroy(s);
    /* A negative logit is multiplied: it must fall below an unknown one. */
    s = create(&p, 4);
    const uint32_t three = 3;
    assert_int_equal(nb_sampler_accept_prompt(s, &three, 1), NB_OK);
    const float w[] = { -1.5f, -9, -9, -1 };
    assert_int_equal(next(s, w), 0);
    nb_sampler_destroy(s);
}

static void test_frequency_presence(void **state)
{
    (void)state;
    const uint32_t prompt[] = { 0, 0, 0, 0 };
    const float x[] = { 10, 9, 0, 0 };
    nb_sample_params p = defaults();
    p.temperature = 0;
    p.frequency_penalty = 0.4;
    nb_sampler *s = create(&p, 4);
    assert_int_equal(nb_sampler_accept_prompt(s, prompt, 4), NB_OK); /* does not count */
    assert_int_equal(next(s, x), 0);
    assert_int_equal(next(s, x), 0); /* 9.6 */
    assert_int_equal(next(s, x), 0); /* 9.2 */
    assert_int_equal(next(s, x), 1); /* 8.8 */
    nb_sampler_destroy(s);
    p.frequency_penalty = 0;
    p.presence_penalty = 0.9;
    s = create(&p, 4);
    for (int i = 0; i < 5; i++) assert_int_equal(next(s, x), 0); /* 9.1 however often */
    nb_sampler_destroy(s);
    p.presence_penalty = 1.1;
    s = create(&p, 4);
    assert_int_equal(next(s, x), 0);
    assert_int_equal(next(s, x), 1); /* 8.9 < 9 */
    assert_int_equal(next(s, x), 0); /* both once: 8.9, 7.9 */
    nb_sampler_destroy(s);
    p.presence_penalty = -2; /* negative: encouraged */
    const float y[] = { 10, 10.5f, 0, 0 }, z[] = { 12, 10.5f, 0, 0 };
    s = create(&p, 4);
    assert_int_equal(next(s, y), 1);
    assert_int_equal(next(s, z), 1); /* 12.5 */
    nb_sampler_destroy(s);
}

/* Bias before the repetition penalty, which comes before the subtractions. */
static void test_order(void **state)
{
    (void)state;
    const nb_sample_bias b[] = { { 0, 4 } };
    const uint32_t zero = 0;
    nb_sample_params p = defaults();
    p.temperature = 0;
    p.logit_bias = b;
    p.n_logit_bias = 1;
    p.repetition_penalty = 2;
    nb_sampler *s = create(&p, 2);
    assert_int_equal(nb_sampler_accept_prompt(s, &zero, 1), NB_OK);
    /* (-2 + 4) / 2 = 1; the other order gives -2 * 2 + 4 = 0 */
    const float x[] = { -2, 0.5f };
    assert_int_equal(next(s, x), 0);
    nb_sampler_destroy(s);
    p.n_logit_bias = 0;
    p.presence_penalty = 2;
    s = create(&p, 2);
    const float first[] = { 5, 0 };
    assert_int_equal(next(s, first), 0);
    /* 5 / 2 - 2 = 0.5; the other order gives (5 - 2) / 2 = 1.5 */
    const float second[] = { 5, 1 };
    assert_int_equal(next(s, second), 1);
    nb_sampler_destroy(s);
}

static void test_filters(void **state)
{
    (void)state;
    float x[6]; /* probabilities .4 .3 .1 .1 .05 .05, out of order */
    const double q[6] = { .05, .3, .1, .4, .1, .05 };
    for (size_t i = 0; i < 6; i++) x[i] = (float)log(q[i]);
    nb_sample_params p = defaults();
    assert_int_equal(support(p, x, 6, 400), 0x3f);
    p.top_k = 1;
    assert_int_equal(support(p, x, 6, 100), 1u << 3);
    p.top_k = 3; /* ids 2 and 4 are equal: the lower stays */
    assert_int_equal(support(p, x, 6, 200), 1u << 3 | 1u << 1 | 1u << 2);
    p.top_k = 100;
    assert_int_equal(support(p, x, 6, 400), 0x3f);
    p.top_k = 0;
    p.top_p = 0.39;
    assert_int_equal(support(p, x, 6, 100), 1u << 3);
    p.top_p = 0.41;
    assert_int_equal(support(p, x, 6, 100), 1u << 3 | 1u << 1);
    p.top_p = 1e-300;
    assert_int_equal(support(p, x, 6, 100), 1u << 3);
    p.top_p = 0.75;
    assert_int_equal(support(p, x, 6, 200), 1u << 3 | 1u << 1 | 1u << 2);
    /* top_p is of what top_k left: of .4 and .3, .4 is 57 percent */
    p.top_k = 2;
    p.top_p = 0.55;
    assert_int_equal(support(p, x, 6, 100), 1u << 3);
    p.top_k = 0;
    p.top_p = 1;
    p.min_p = 0.26;
    assert_int_equal(support(p, x, 6, 100), 1u << 3 | 1u << 1);
    p.min_p = 0.24;
    assert_int_equal(support(p, x, 6, 200), 1u << 3 | 1u << 1 | 1u << 2 | 1u << 4);
    p.min_p = 1;
    assert_int_equal(support(p, x, 6, 50), 1u << 3);
    /* min_p is after the temperature: (.3/.4)^(1/0.1) = 0.056 */
    p.min_p = 0.1;
    p.temperature = 0.1;
    assert_int_equal(support(p, x, 6, 100), 1u << 3);
}

static void test_ties(void **state)
{
    (void)state;
    const float x[] = { -0.0f, 0, -0.0f, 0, 0 }; /* both zeros are equal */
    nb_sample_params p = defaults();
    for (size_t k = 1; k <= 5; k++) {
        p.top_k = k;
        assert_int_equal(support(p, x, 5, 200), (1u << k) - 1);
    }
    p.top_k = 0;
    p.top_p = 0.5; /* 0, .2, .4 before: three stay */
    assert_int_equal(support(p, x, 5, 200), 7);
    p.temperature = 0;
    assert_int_equal(support(p, x, 5, 3), 1);
}

static void test_logprobs(void **state)
{
    (void)state;
    const double q[5] = { .1, .4, .2, .2, .1 };
    float x[5];
    for (size_t i = 0; i < 5; i++) x[i] = (float)(log(q[i]) + 7);
    const nb_sample_bias b[] = { { 4, 100 } };
    nb_sample_params p = defaults();
    p.temperature = 0;
    p.logit_bias = b; /* log-probabilities are those before it */
    p.n_logit_bias = 1;
    p.n_logprobs = 3;
    nb_sampler *s = create(&p, 5);
    nb_sample_out o;
    assert_int_equal(choose(s, x, &o), NB_OK);
    assert_int_equal(o.id, 4);
    assert_true(fabs((double)o.logprob - log(.1)) < 1e-6);
    assert_int_equal(o.n_top, 3);
    assert_int_equal(o.top[0].id, 1);
    assert_int_equal(o.top[1].id, 2);
    assert_int_equal(o.top[2].id, 3);
    assert_true(fabs((double)o.top[2].logprob - log(.2)) < 1e-6);
    nb_sampler_destroy(s);
    p.n_logprobs = 20; /* more than there are */
    s = create(&p, 5);
    assert_int_equal(choose(s, x, &o), NB_OK);
    assert_int_equal(o.n_top, 5);
    assert_int_equal(o.top[3].id, 0);
    assert_int_equal(o.top[4].id, 4);
    nb_sampler_destroy(s);
    p.n_logprobs = 0;
    s = create(&p, 5);
    assert_int_equal(choose(s, x, &o), NB_OK);
    assert_int_equal(o.n_top, 0);
    assert_true(fabs((double)o.logprob - log(.1)) < 1e-6);
    nb_sampler_destroy(s);
    /* of a token that was not chosen */
    assert_int_equal(nb_sample_logprobs(x, 5, 3, 2, &o), NB_OK);
    assert_int_equal(o.id, 3);
    assert_int_equal(o.n_top, 2);
    assert_int_equal(o.top[0].id, 1);
    assert_int_equal(o.top[1].id, 2);
    assert_true(fabs((double)o.logprob - log(.2)) < 1e-6);
    x[0] = NAN;
    assert_int_equal(nb_sample_logprobs(x, 5, 3, 2, &o), NB_ERR_NONFINITE);
}

/* More different tokens than the table of seen ones begins with. */
static void test_many_seen(void **state)
{
    (void)state;
    enum { N = 5000 };
    static float x[N];
    static uint32_t id[N];
    nb_sample_params p = defaults();
    p.temperature = 0;
    p.max_tokens = N;
    p.frequency_penalty = 1;
    p.repetition_penalty = 2;
    nb_sampler *s = create(&p, N);
    for (size_t i = 0; i < N; i++) {
        x[i] = 1;
        id[i] = (uint32_t)(N - 1 - i);
    }
    assert_int_equal(nb_sampler_accept_prompt(s, id, N / 2), NB_OK);
    assert_int_equal(nb_sampler_accept_prompt(s, id, N / 2), NB_OK); /* again: no difference */
    /* Those that were not in the prompt one after the other, then the others, then all again. */
    for (uint32_t i = 0; i < N; i++) assert_int_equal(next(s, x), i);
    for (uint32_t i = 0; i < N; i++) assert_int_equal(next(s, x), i);
    const uint32_t outside = N;
    assert_int_equal(nb_sampler_accept_prompt(s, &outside, 1), NB_ERR_RANGE);
    nb_sampler_destroy(s);
}

/* ---- against a reference ----------------------------------------------- */

typedef struct ref_item {
    double l, w;
    size_t id;
} ref_item;

static int better_first(const void *a, const void *b)
{
    const ref_item *x = a, *y = b;
    if (x->l != y->l) return x->l > y->l ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int lower_id_first(const void *a, const void *b)
{
    const ref_item *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

typedef struct ref_state {
    const nb_sample_params *p;
    size_t n_vocab, n_generated;
    int in_prompt[64], in_output[64];
} ref_state;

/* sample.h, word by word: sort, cut, draw. */
static size_t ref_next(ref_state *r, const float *x)
{
    const nb_sample_params *p = r->p;
    ref_item v[64];
    for (size_t i = 0; i < r->n_vocab; i++) {
        double l = (double)x[i];
        for (size_t k = 0; k < p->n_logit_bias; k++)
            if (p->logit_bias[k].id == i) l += (double)p->logit_bias[k].bias;
        for (size_t k = 0; k < p->n_end_id; k++)
            if (r->n_generated < p->min_tokens && p->end_id[k] == i) l = -INFINITY;
        if (r->in_prompt[i] || r->in_output[i])
            l = l > 0 ? l / p->repetition_penalty : l * p->repetition_penalty;
        l -= p->frequency_penalty * r->in_output[i];
        if (r->in_output[i]) l -= p->presence_penalty;
        v[i] = (ref_item){ .l = l, .id = i };
    }
    size_t n = r->n_vocab;
    qsort(v, n, sizeof *v, better_first);
    size_t id = v[0].id;
    if (p->temperature >= 1e-5) {
        double sum = 0, before = 0;
        for (size_t i = 0; i < n; i++) v[i].w = exp((v[i].l - v[0].l) / p->temperature);
        while (n && v[n - 1].w < p->min_p) n--;
        if (p->top_k && p->top_k < n) n = p->top_k;
        for (size_t i = 0; i < n; i++) sum += v[i].w;
        size_t m = 0;
        for (; m < n && (p->top_p >= 1 || before < p->top_p * sum); m++) before += v[m].w;
        n = m;
        qsort(v, n, sizeof *v, lower_id_first);
        sum = before = 0;
        for (size_t i = 0; i < n; i++) sum += v[i].w;
        const double u = nb_rng_unit(p->seed, r->n_generated) * sum;
        id = v[n - 1].id;
        for (size_t i = n; i-- > 0;) { /* from the back: another way to the same */
            before = 0;
            for (size_t j = 0; j <= i; j++) before += v[j].w;
            if (before > u) id = v[i].id;
        }
    }
    r->n_generated++;
    r->in_output[id]++;
    return id;
}

static double rnd(uint64_t *k)
{
    return nb_rng_unit(20240607, (*k)++);
}

static void test_reference(void **state)
{
    (void)state;
    uint64_t k = 0;
    for (size_t trial = 0; trial < 3000; trial++) {
        const size_t n = 1 + (size_t)(rnd(&k) * 63);
        nb_sample_bias b[3];
        uint32_t end[2], prompt[8];
        for (size_t i = 0; i < 3; i++)
            b[i] = (nb_sample_bias){ (uint32_t)(rnd(&k) * (double)n), (float)(rnd(&k) * 6 - 3) };
        for (size_t i = 0; i < 8; i++) prompt[i] = (uint32_t)(rnd(&k) * (double)n);
        end[0] = prompt[0];
        end[1] = prompt[1];
        nb_sample_params p = defaults();
        p.seed = trial;
        p.temperature = rnd(&k) < 0.1 ? 0 : rnd(&k) * 2 + 0.05;
        if (rnd(&k) < 0.5) p.top_k = (size_t)(rnd(&k) * 20);
        if (rnd(&k) < 0.5) p.top_p = rnd(&k) * 0.999 + 0.001;
        if (rnd(&k) < 0.3) p.min_p = rnd(&k) * 0.3;
        if (rnd(&k) < 0.3) p.repetition_penalty = rnd(&k) + 0.6;
        if (rnd(&k) < 0.3) p.presence_penalty = rnd(&k) * 4 - 2;
        if (rnd(&k) < 0.3) p.frequency_penalty = rnd(&k) * 4 - 2;
        p.logit_bias = b;
        p.n_logit_bias = rnd(&k) < 0.3 ? 3 : 0;
        p.end_id = end;
        p.n_end_id = n > 2 ? 2 : 0;
        p.min_tokens = (size_t)(rnd(&k) * 4);
        nb_sampler *s = create(&p, n);
        ref_state r = { .p = &p, .n_vocab = n };
        assert_int_equal(nb_sampler_accept_prompt(s, prompt, 8), NB_OK);
        for (size_t i = 0; i < 8; i++) r.in_prompt[prompt[i]] = 1;
        const bool coarse = rnd(&k) < 0.2; /* many ties; exact in float */
        for (size_t step = 0; step < 12; step++) {
            float x[64];
            for (size_t i = 0; i < n; i++) {
                const double l = rnd(&k) * 8 - 3;
                x[i] = (float)(coarse ? floor(l) : l);
            }
            const size_t want = ref_next(&r, x);
            const uint32_t got = next(s, x);
            if (got != want)
                fail_msg("trial %zu, token %zu: got %u, expected %zu", trial, step, got, want);
        }
        nb_sampler_destroy(s);
    }
}

/* ---- all options on all kinds of rows ----------------------------------- */

enum { ROW_MAX = 700 };
enum { FLAT, WIDE, PEAKED, TIED, HOLES, HUGE_RANGE, ROW_KINDS };

static void make_row(float *x, size_t n, int kind, uint64_t *k)
{
    for (size_t i = 0; i < n; i++) {
        const double u = rnd(k);
        double l = u * 14 - 7;
        if (kind == FLAT) l = -2.5;
        if (kind == PEAKED) l = u * 6 - 20;
        if (kind == TIED) l = floor(l / 2);
        if (kind == HOLES && rnd(k) < 0.5) l = -INFINITY;
        if (kind == HUGE_RANGE) l = (u - 0.5) * 6.6e38;
        x[i] = (float)l;
    }
    const size_t at = (size_t)(rnd(k) * (double)n);
    if (kind == PEAKED) x[at] = 3;
    if (kind == HOLES) x[at] = 1; /* one at least */
}

static double log_sum_exp(const ref_item *sorted, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += exp(sorted[i].l - sorted[0].l);
    return sorted[0].l + log(sum);
}

/* got is one that stays, and u falls in its share of the mass, to 1e-6 of it. */
static void check_drawn(const nb_sample_params *p, ref_item *v, size_t n, uint32_t got)
{
    if (p->temperature == 0) {
        assert_int_equal(got, v[0].id);
        return;
    }
    double sum = 0, before = 0;
    for (size_t i = 0; i < n; i++) v[i].w = exp((v[i].l - v[0].l) / p->temperature);
    while (n && v[n - 1].w < p->min_p) n--;
    if (p->top_k && p->top_k < n) n = p->top_k;
    for (size_t i = 0; i < n; i++) sum += v[i].w;
    size_t m = 0;
    for (; m < n && (p->top_p >= 1 || before < p->top_p * sum); m++) before += v[m].w;
    qsort(v, m, sizeof *v, lower_id_first);
    sum = before = 0;
    for (size_t i = 0; i < m; i++) sum += v[i].w;
    const double u = nb_rng_unit(p->seed, 0) * sum;
    size_t i = 0;
    for (; i < m && v[i].id != got; i++) before += v[i].w;
    assert_true(i < m); /* it stays */
    assert_true(v[i].w > 0);
    assert_true(before <= u + 1e-6 * sum);
    assert_true(before + v[i].w >= u - 1e-6 * sum);
}

static void check_top(const nb_sample_out *o, const ref_item *v, size_t n, size_t n_top,
                      const float *x)
{
    const double lse = log_sum_exp(v, n), own = (double)x[o->id] - lse;
    assert_int_equal(o->n_top, n_top < n ? n_top : n);
    for (size_t i = 0; i < o->n_top; i++) {
        const double want = v[i].l - lse, got = (double)o->top[i].logprob;
        assert_int_equal(o->top[i].id, v[i].id);
        if (isfinite((float)want))
            assert_true(fabs(got - want) <= 1e-6 * (1 + fabs(want)));
        else
            assert_true(got < 0 && isinf(got));
    }
    if (isfinite((float)own)) assert_true(fabs((double)o->logprob - own) <= 1e-6 * (1 + fabs(own)));
}

static void check_row(nb_sample_params p, const float *x, size_t n, bool bias)
{
    ref_item v[ROW_MAX];
    const nb_sample_bias b = { (uint32_t)(n / 2), 1.5f };
    p.logit_bias = &b;
    p.n_logit_bias = bias;
    nb_sampler *s = create(&p, n);
    nb_sample_out o;
    assert_int_equal(choose(s, x, &o), NB_OK);
    nb_sampler_destroy(s);
    for (size_t i = 0; i < n; i++) v[i] = (ref_item){ .l = (double)x[i], .id = i };
    if (bias) v[b.id].l = (double)(x[b.id] + b.bias);
    qsort(v, n, sizeof *v, better_first);
    check_drawn(&p, v, n, o.id);
    if (p.n_logprobs < 0) return;
    for (size_t i = 0; i < n; i++) v[i] = (ref_item){ .l = (double)x[i], .id = i };
    qsort(v, n, sizeof *v, better_first);
    check_top(&o, v, n, (size_t)p.n_logprobs, x);
}

static void test_all_options(void **state)
{
    (void)state;
    static const size_t sizes[] = { 1, 2, 63, 64, 65, 300, ROW_MAX };
    static const double t[] = { 0, 0.3, 1, 6 }, top_p[] = { 1, 0.9, 0.31 }, min_p[] = { 0, 0.07 };
    uint64_t k = 1u << 30;
    for (size_t c = 0; c < NB_COUNT(sizes) * ROW_KINDS * 4 * 3 * 2 * 5; c++) {
        const size_t n = sizes[c % NB_COUNT(sizes)];
        size_t r = c / NB_COUNT(sizes);
        const int kind = (int)(r % ROW_KINDS);
        const size_t top_k[] = { 0, 1, 7, n / 2, n };
        nb_sample_params p = defaults();
        p.temperature = t[(r /= ROW_KINDS) % 4];
        p.top_p = top_p[(r /= 4) % 3];
        p.min_p = min_p[(r /= 3) % 2];
        p.top_k = top_k[(r /= 2) % 5];
        p.seed = c;
        float x[ROW_MAX];
        make_row(x, n, kind, &k);
        p.n_logprobs = (int)(rnd(&k) * 8) - 1;
        check_row(p, x, n, rnd(&k) < 0.3);
        /* Anything that is not a number, anywhere, is seen. */
        static const float bad[] = { NAN, -NAN, INFINITY };
        x[(size_t)(rnd(&k) * (double)n)] = bad[c % 3];
        nb_sampler *s = create(&p, n);
        nb_sample_out o;
        assert_int_equal(choose(s, x, &o), NB_ERR_NONFINITE);
        nb_sampler_destroy(s);
    }
}

/* row.h: accuracy of a weight, what is 0, sums, and what a sum finds. */
static void test_weights(void **state)
{
    (void)state;
    enum { N = 20001 };
    static float x[N], w[N];
    static double sums[N / NB_ROW_BLOCK + 1];
    for (int pass = 0; pass < 3; pass++) {
        const double t = pass == 0 ? 1 : pass == 1 ? 0.7 : 2.3;
        const nb_row_scale scale = { .top = 5.3f, .inv_t = (float)(1 / t), .least = -50 };
        for (size_t i = 0; i < N; i++) x[i] = (float)(5.3 - 70.0 * (double)i / N);
        x[0] = 5.3f;
        x[7] = -INFINITY;
        const double sum = nb_row_weigh(x, N, &scale, NULL, w, sums);
        double want = 0;
        for (size_t i = 0; i < N; i++) {
            const double d = ((double)x[i] - (double)scale.top) / t;
            want += (double)w[i];
            if (x[i] < scale.least)
                assert_true(w[i] == 0);
            else
                assert_true(fabs(log((double)w[i]) - d) <= 2e-7 * (1 + fabs(d)));
        }
        assert_true(w[0] == 1);
        assert_true(fabs(sum - want) <= 1e-13 * want);
        assert_true(nb_row_sum(w, N, sums) == sum);
        double cumulated = 0;
        for (size_t i = 0; i < 300; i++) { /* the middle of each share finds its owner */
            if (w[i] > 0)
                assert_int_equal(nb_row_find(w, N, sums, cumulated + 0.5 * (double)w[i]), i);
            cumulated += (double)w[i];
        }
        const size_t last = nb_row_find(w, N, sums, sum * 2);
        assert_true(w[last] > 0);
        for (size_t i = last + 1; i < N; i++) assert_true(w[i] == 0);
    }
}

/* ---- frequencies, large vocabularies ----------------------------------- */

static void test_chi_square(void **state)
{
    (void)state;
    enum { N = 8, DRAWS = 40000 };
    const double q[N] = { .3, .02, .18, .1, .05, .15, .08, .12 };
    float x[N];
    for (size_t i = 0; i < N; i++) x[i] = (float)log(q[i]);
    static const struct {
        double t, top_p;
        size_t top_k;
    } cases[] = { { 1, 1, 0 },   { 2, 1, 0 },   { 0.5, 1, 0 },
                  { 1, 0.7, 0 }, { 1.5, 1, 5 }, { 0.7, 0.9, 6 } };
    for (size_t c = 0; c < NB_COUNT(cases); c++) {
        nb_sample_params p = defaults();
        p.temperature = cases[c].t;
        p.top_p = cases[c].top_p;
        p.top_k = cases[c].top_k;
        p.seed = 7 + c;
        double w[N], sum = 0, kept = 0;
        size_t order[N], n = 0, count[N] = { 0 };
        for (size_t i = 0; i < N; i++) order[i] = i;
        for (size_t i = 0; i < N; i++)
            for (size_t j = i + 1; j < N; j++)
                if (q[order[j]] > q[order[i]]) {
                    const size_t t = order[i];
                    order[i] = order[j];
                    order[j] = t;
                }
        const size_t k = p.top_k ? p.top_k : N;
        for (size_t i = 0; i < k; i++) sum += w[order[i]] = pow(q[order[i]], 1 / p.temperature);
        while (n < k && (p.top_p >= 1 || kept < p.top_p * sum)) kept += w[order[n++]];
        nb_sampler *s = create(&p, N);
        for (size_t i = 0; i < DRAWS; i++) count[next(s, x)]++;
        nb_sampler_destroy(s);
        double chi = 0;
        size_t drawn = 0;
        for (size_t i = 0; i < n; i++) {
            const double e = DRAWS * w[order[i]] / kept;
            const double d = (double)count[order[i]] - e;
            chi += d * d / e;
            drawn += count[order[i]];
        }
        assert_int_equal(drawn, DRAWS); /* nothing outside the set */
        /* 7 degrees of freedom at most: 24.3 is the 0.1 percent point */
        if (chi > 24.3) fail_msg("case %zu: chi-square %g over %zu classes", c, chi, n);
    }
}

/* 200,000 tokens: the selection against a sort, and repeatability. */
static void test_large(void **state)
{
    (void)state;
    enum { N = MAX_VOCAB };
    float *x = malloc(N * sizeof *x);
    ref_item *v = malloc(N * sizeof *v);
    assert_true(x && v);
    for (size_t i = 0; i < N; i++) {
        x[i] = (float)(nb_rng_unit(5, i) + nb_rng_unit(6, i) + nb_rng_unit(7, i)) * 6;
        v[i] = (ref_item){ .l = (double)x[i], .id = i };
    }
    qsort(v, N, sizeof *v, better_first);
    static const struct {
        double t, top_p;
        size_t top_k;
    } cases[] = { { 1, 1, 0 },  { 1, 0.9, 0 },     { 0.3, 0.5, 0 },
                  { 1, 1, 50 }, { 1, 0.95, 1000 }, { 5, 0.99, 0 } };
    for (size_t c = 0; c < NB_COUNT(cases); c++) {
        nb_sample_params p = defaults();
        p.temperature = cases[c].t;
        p.top_p = cases[c].top_p;
        p.top_k = cases[c].top_k;
        p.seed = c;
        const size_t k = p.top_k ? p.top_k : N;
        double sum = 0, kept = 0;
        size_t n = 0;
        for (size_t i = 0; i < k; i++) sum += v[i].w = exp((v[i].l - v[0].l) / p.temperature);
        while (n < k && (p.top_p >= 1 || kept < p.top_p * sum)) kept += v[n++].w;
        nb_sampler *s = create(&p, N), *again = create(&p, N);
        for (size_t i = 0; i < 5; i++) {
            const uint32_t id = next(s, x);
            assert_int_equal(next(again, x), id);
            assert_true((double)x[id] >= v[n - 1].l);
        }
        nb_sampler_destroy(s);
        nb_sampler_destroy(again);
    }
    free(x);
    free(v);
}

/* ---- parameters -------------------------------------------------------- */

static void refused(const nb_sample_params *p, const char *field, const char *range)
{
    nb_error e = { 0 };
    nb_sampler *s = NULL;
    assert_true(nb_sample_params_check(p, 10, &e) < 0);
    if (!strstr(e.msg, field) || !strstr(e.msg, range))
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", e.msg, field, range);
    assert_true(nb_sample_params_check(p, 10, NULL) < 0);
    assert_true(nb_sampler_create(p, 10, &s, NULL) < 0);
    assert_null(s);
}

#define REFUSED(field, value, range)                                                               \
    do {                                                                                           \
        nb_sample_params q = defaults();                                                           \
        q.field = (value);                                                                         \
        refused(&q, #field, range);                                                                \
    } while (0)

static void test_refused(void **state)
{
    (void)state;
    REFUSED(temperature, -0.1, ">= 0");
    REFUSED(temperature, NAN, ">= 0");
    REFUSED(temperature, INFINITY, ">= 0");
    REFUSED(top_p, 0, "(0, 1]");
    REFUSED(top_p, 1.0001, "(0, 1]");
    REFUSED(top_p, NAN, "(0, 1]");
    REFUSED(min_p, -0.01, "[0, 1]");
    REFUSED(min_p, 1.01, "[0, 1]");
    REFUSED(repetition_penalty, 0, "[1e-6, 1e6]");
    REFUSED(repetition_penalty, 1e-38, "[1e-6, 1e6]");
    REFUSED(repetition_penalty, INFINITY, "[1e-6, 1e6]");
    REFUSED(presence_penalty, 2.1, "[-2, 2]");
    REFUSED(presence_penalty, -2.1, "[-2, 2]");
    REFUSED(frequency_penalty, NAN, "[-2, 2]");
    REFUSED(max_tokens, 0, "at least 1");
    REFUSED(min_tokens, 129, "0..128");
    nb_sample_params p = defaults();
    p.n_logprobs = 21;
    refused(&p, "logprobs", "0..20");
    p.n_logprobs = -2;
    refused(&p, "logprobs", "0..20");
    p = defaults();
    nb_sample_bias b = { 10, 0 };
    p.logit_bias = &b;
    p.n_logit_bias = 1;
    refused(&p, "logit_bias", "0..9");
    b = (nb_sample_bias){ 9, 100.5f };
    refused(&p, "logit_bias", "[-100, 100]");
    b = (nb_sample_bias){ 9, NAN };
    refused(&p, "logit_bias", "[-100, 100]");
    const uint32_t id = 10;
    p = defaults();
    p.end_id = &id;
    p.n_end_id = 1;
    refused(&p, "stop_token_ids", "0..9");
    const uint32_t all[3] = { 0, 1, 2 }; /* nothing is left before min_tokens */
    p = defaults();
    p.end_id = all;
    p.n_end_id = 3;
    assert_int_equal(nb_sample_params_check(&p, 3, NULL), NB_OK);
    p.min_tokens = 1;
    assert_int_equal(nb_sample_params_check(&p, 4, NULL), NB_OK);
    nb_error e;
    assert_int_equal(nb_sample_params_check(&p, 3, &e), NB_ERR_RANGE);
    assert_non_null(strstr(e.msg, "stop_token_ids"));
    p = defaults();
    assert_int_equal(nb_sample_params_check(&p, 0, NULL), NB_ERR_ARG);
    /* The ends of the ranges are inside. */
    p.presence_penalty = -2;
    p.frequency_penalty = 2;
    p.min_p = 1;
    p.top_p = 1e-9;
    p.temperature = 0;
    p.n_logprobs = 20;
    p.min_tokens = 128;
    b = (nb_sample_bias){ 9, -100 };
    p.logit_bias = &b;
    p.n_logit_bias = 1;
    assert_int_equal(nb_sample_params_check(&p, 10, NULL), NB_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy),     cmocka_unit_test(test_bad_logits),
        cmocka_unit_test(test_logit_bias), cmocka_unit_test(test_min_tokens),
        cmocka_unit_test(test_repetition), cmocka_unit_test(test_frequency_presence),
        cmocka_unit_test(test_order),      cmocka_unit_test(test_filters),
        cmocka_unit_test(test_ties),       cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_reference),  cmocka_unit_test(test_chi_square),
        cmocka_unit_test(test_large),      cmocka_unit_test(test_refused),
        cmocka_unit_test(test_many_seen),  cmocka_unit_test(test_all_options),
        cmocka_unit_test(test_weights),
    };
    if (nb_sample_scratch_create(MAX_VOCAB, &scratch, NULL) != NB_OK) return 1;
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    nb_sample_scratch_destroy(scratch);
    return rc;
}
