/* test_thrift_engine.c - Thrift mode in a running engine: what it must not change, what it must
 * make better, its counters, and the lines that refuse.  That results do not depend on threads,
 * neighbours, the cache or preemptions is in test_promises_engine.c. */
#include "engine_testing.h"

#include <math.h>

#include "nibble/measure.h"

enum { N_PROMPT = 200, N_TOK = 270, N_FORCED = N_TOK - N_PROMPT, MODEL_LEN = 320 };
static uint32_t text[N_TOK];

static nb_engine_options options(const char *dir, const char *type, const char *kind, double tau,
                                 double fraction)
{
    return (nb_engine_options){ .model = in_source(dir),
                                .kv_cache_dtype = type,
                                .kv_thrift = kind,
                                .kv_thrift_tau = tau,
                                .kv_thrift_fraction = fraction,
                                .no_text = true,
                                .n_thread = 2,
                                .max_model_len = MODEL_LEN };
}

typedef struct rows {
    float *x;
    size_t n;
} rows;

static int take(void *ctx, size_t row, const float *logits, size_t n_vocab)
{
    rows *r = ctx;
    if (row != N_PROMPT - 1 + r->n) return 1;
    memcpy(r->x + r->n++ * n_vocab, logits, n_vocab * sizeof *logits);
    return 0;
}

/* Logits of all positions that are computed as generated tokens, [N_FORCED + 1][n_vocab]. */
static float *forced(const nb_engine_options *o, nb_engine_stats *st, nb_engine_info *info)
{
    nb_engine *e = make_engine(o);
    nb_engine_info i;
    nb_error err = { 0 };
    nb_engine_get_info(e, &i);
    random_ids(text, N_TOK, i.vocab, 31);
    rows r = { .x = calloc((N_FORCED + 1) * i.vocab, sizeof(float)) };
    if (nb_engine_forced(e, text, N_TOK, N_PROMPT, take, &r, &err) != NB_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(r.n, N_FORCED + 1);
    if (st) nb_engine_get_stats(e, st);
    if (info) *info = i;
    if (info) info->kv_thrift = NULL; /* it lives with the engine */
    nb_engine_destroy(e);
    return r.x;
}

static size_t n_values(const nb_engine_info *i)
{
    return (N_FORCED + 1) * i->vocab;
}

/* ---- nothing chosen: nothing changes ---- */

static void test_nothing_chosen(void **state)
{
    (void)state;
    static const char *const form[] = { "auto", "absorbed" };
    for (size_t i = 0; i < 2; i++) {
        nb_engine_info info;
        nb_engine_stats st;
        nb_engine_options o = options("tests/parity/v3", "nvfp4", NULL, 0, 0);
        o.mla = form[i];
        float *plain = forced(&o, &st, &info);
        assert_int_equal(st.thrift_scored, 0);
        assert_int_equal(info.residual_bytes, 0);
        o.kv_thrift = "token";
        o.kv_thrift_tau = 1; /* no probability is larger */
        float *none = forced(&o, &st, &info);
        assert_true(same_floats(plain, none, n_values(&info)));
        assert_int_equal(st.thrift_refined + st.thrift_over + st.thrift_residual_bytes, 0);
        assert_true(st.thrift_scored > 0 && info.residual_bytes > 0);
        o.kv_thrift_tau = 1e-6;
        o.kv_thrift_fraction = 0.1;
        float *some = forced(&o, &st, NULL);
        assert_false(same_floats(plain, some, n_values(&info)));
        /* the row of the prompt's last token: prompts are never refined */
        assert_true(same_floats(plain, some, info.vocab));
        free(plain);
        free(none);
        free(some);
    }
}

/* ---- everything chosen ---- */

static double log_sum(const float *x, size_t n)
{
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) max = fmax(max, (double)x[i]);
    for (size_t i = 0; i < n; i++) sum += exp((double)x[i] - max);
    return max + log(sum);
}

/* KL(a || b), averaged over the generated positions. */
static double divergence(const float *a, const float *b, size_t n_vocab)
{
    double kl = 0;
    for (size_t k = 1; k <= N_FORCED; k++) {
        const float *p = a + k * n_vocab, *q = b + k * n_vocab;
        const double lp = log_sum(p, n_vocab), lq = log_sum(q, n_vocab);
        for (size_t i = 0; i < n_vocab; i++)
            kl += exp((double)p[i] - lp) * (((double)p[i] - lp) - ((double)q[i] - lq));
    }
    return kl / N_FORCED;
}

/* All four ways of choosing everything come to the same, and that is much nearer to BF16. */
static void check_everything(const char *dir, const char *type)
{
    static const char *const kind[] = { "token", "block-mean", "quest", "block-prob" };
    nb_engine_info info;
    nb_engine_options o = options(dir, "bf16", NULL, 0, 0);
    o.mla = "absorbed"; /* the prompt too: one way of computing for all */
    float *fine = forced(&o, NULL, &info), *all[4];
    o.kv_cache_dtype = type;
    float *coarse = forced(&o, NULL, NULL);
    for (size_t i = 0; i < 4; i++) {
        nb_engine_stats st;
        o.kv_thrift = kind[i];
        o.kv_thrift_tau = 1e-300;
        o.kv_thrift_fraction = 1;
        all[i] = forced(&o, &st, NULL);
        assert_true(st.thrift_refined == st.thrift_scored && st.thrift_scored > 0);
        assert_true(same_floats(all[0], all[i], n_values(&info)));
    }
    const double far = divergence(fine, coarse, info.vocab);
    const double near = divergence(fine, all[0], info.vocab);
    print_message("%s, %s: KL to bf16 %.3g, everything refined %.3g\n", dir, type, far, near);
    assert_true(near < 0.75 * far);
    free(fine);
    free(coarse);
    for (size_t i = 0; i < 4; i++) free(all[i]);
}

static void test_everything_chosen(void **state)
{
    (void)state;
    check_everything("tests/parity/v3", "nvfp4");
    check_everything("tests/parity/v3", "if4");
    check_everything("tests/parity/v3_geom", "nvfp4");
}

/* ---- counters ---- */

static void check_counters(const char *kind, const char *skip, double pool)
{
    const double fraction = 0.3;
    nb_engine_stats st;
    nb_engine_info info;
    nb_engine_options o = options("tests/parity/v3", "nvfp4", kind, 1e-300, fraction);
    o.kv_skip_layers = skip;
    o.kv_thrift_pool = pool;
    free(forced(&o, &st, &info));
    const size_t n_layer = info.n_layer - (skip != NULL), row = 20; /* 40 values */
    uint64_t scored = 0, refined = 0, over = 0, pages = 0;
    for (size_t pos = N_PROMPT; pos < N_TOK; pos++) {
        const size_t n = pos / 64 * 64, cap = (size_t)ceil(fraction * (double)n);
        scored += n;
        pages += n / 64;
        if (!strcmp(kind, "token")) {
            refined += cap;
            over += n - cap;
        } else {
            refined += 64 * (size_t)nearbyint(fraction * (double)(n / 64));
        }
    }
    assert_int_equal(st.thrift_scored, scored * n_layer);
    assert_int_equal(st.thrift_refined, refined * n_layer);
    assert_int_equal(st.thrift_over, over * n_layer);
    assert_int_equal(st.thrift_residual_bytes, (st.thrift_refined - st.thrift_pool_hits) * row);
    assert_int_equal(st.thrift_base_bytes % (2 * pages * n_layer), 0); /* each page twice */
    assert_true(st.thrift_base_bytes / (2 * pages * n_layer) <= info.block_bytes / info.n_layer);
    if (pool < 1e-6) assert_int_equal(st.thrift_pool_hits, 0);
    if (pool == 1) /* every row is fetched once at most */
        assert_true(st.thrift_refined - st.thrift_pool_hits <= (uint64_t)N_TOK / 64 * 64 * n_layer);
    assert_true(info.residual_bytes >= info.n_block * 64 * row * n_layer);
}

static void test_counters(void **state)
{
    (void)state;
    static const char *const kind[] = { "token", "block-mean", "quest", "block-prob" };
    for (size_t i = 0; i < 4; i++) {
        check_counters(kind[i], NULL, 0.05);
        check_counters(kind[i], "1", 1);
    }
    check_counters("token", NULL, 1e-9);
}

/* The pool is where rows are read from, never what is read. */
static void test_pool_does_not_matter(void **state)
{
    (void)state;
    static const double pool[] = { 1e-9, 0.01, 0.1, 1 };
    float *want = NULL;
    for (size_t i = 0; i < 4; i++) {
        nb_engine_info info;
        nb_engine_options o = options("tests/parity/v3", "if4", "token", 1e-6, 0.2);
        o.kv_thrift_pool = pool[i];
        float *x = forced(&o, NULL, &info);
        if (want) assert_true(same_floats(want, x, n_values(&info)));
        if (!want)
            want = x;
        else
            free(x);
    }
    free(want);
}

/* Sinks are exact already: with 64 of them the first page is never refined. */
static void test_sinks_are_left(void **state)
{
    (void)state;
    nb_engine_stats st;
    nb_engine_options o = options("tests/parity/v3", "nvfp4", "quest", 0, 1);
    o.kv_sinks = 64;
    free(forced(&o, &st, NULL));
    uint64_t scored = 0, refined = 0;
    for (size_t pos = N_PROMPT; pos < N_TOK; pos++) {
        scored += pos / 64 * 64;
        refined += pos / 64 * 64 - 64;
    }
    assert_int_equal(st.thrift_scored % scored, 0);
    assert_int_equal(st.thrift_refined, st.thrift_scored / scored * refined);
}

/* ---- refusals ---- */

static void refused(nb_engine_options o, nb_status st, const char *line)
{
    nb_engine *e = NULL;
    nb_memory_plan p;
    nb_error err = { 0 }, plan_err = { 0 };
    assert_int_equal(nb_engine_create(&o, &e, &err), st);
    assert_null(e);
    assert_string_equal(err.msg, line);
    assert_int_equal(nb_engine_plan_memory(&o, &p, &plan_err), st);
    assert_string_equal(plan_err.msg, line);
}

static void test_refusals(void **state)
{
    (void)state;
    const char *const v3 = "tests/parity/v3";
    refused(options(v3, "nvfp4", "tokens", 0, 0), NB_ERR_ARG,
            "--kv-thrift tokens: expected off, token, block-mean, quest or block-prob");
    refused(options(v3, "nvfp4", "token", NAN, 0), NB_ERR_RANGE,
            "--kv-thrift-tau nan: expected 0 to 1");
    refused(options(v3, "nvfp4", "token", 0, 1.01), NB_ERR_RANGE,
            "--kv-thrift-fraction 1.01: expected 0 to 1");
    refused(options(v3, "bf16", "token", 0, 0), NB_ERR_UNSUPPORTED,
            "--kv-thrift token: residual planes refine records of nvfp4 or if4, and with "
            "--kv-cache-dtype bf16 no layer has one");
    refused(options(v3, "mxfp4", "quest", 0, 0), NB_ERR_UNSUPPORTED,
            "--kv-thrift quest: residual planes refine records of nvfp4 or if4, and with "
            "--kv-cache-dtype mxfp4 no layer has one");
    nb_engine_options o = options(v3, "nvfp4", "token", 0, 0);
    o.kv_skip_layers = "0-2";
    refused(o, NB_ERR_UNSUPPORTED,
            "--kv-thrift token: residual planes refine records of nvfp4 or if4, and with "
            "--kv-cache-dtype nvfp4 --kv-cache-dtype-skip-layers 0-2 no layer has one");
    o = options(v3, "nvfp4", "token", 0, 0);
    o.mla = "expanded";
    refused(o, NB_ERR_UNSUPPORTED,
            "--kv-thrift token: generated tokens must be computed in the absorbed form; expected "
            "--mla auto or absorbed");
    refused(options("tests/parity/llama3", "nvfp4", "token", 0, 0), NB_ERR_UNSUPPORTED,
            "--kv-thrift token: llama has no latent attention, which Thrift mode is made for; "
            "expected off");
}

/* The plan counts what lies beside the blocks; the engine says what it has. */
static void test_memory(void **state)
{
    (void)state;
    nb_engine_options o = options("tests/parity/v3", "nvfp4", "token", 0, 0);
    nb_memory_plan p;
    nb_engine_info info;
    o.kv_thrift_pool = 0.5;
    assert_int_equal(nb_engine_plan_memory(&o, &p, NULL), NB_OK);
    nb_engine *e = make_engine(&o);
    nb_engine_get_info(e, &info);
    assert_string_equal(info.kv_thrift, "token");
    const uint64_t plane = 64 * 20 * info.n_layer;
    assert_true(p.residual_block_bytes >= plane * 3 / 2 && p.residual_block_bytes < plane * 5);
    assert_true(info.residual_bytes >= info.n_block * plane * 3 / 2);
    nb_engine_destroy(e);
    o.kv_thrift = "off";
    assert_int_equal(nb_engine_plan_memory(&o, &p, NULL), NB_OK);
    assert_int_equal(p.residual_block_bytes, 0);
    e = make_engine(&o);
    nb_engine_get_info(e, &info);
    assert_string_equal(info.kv_thrift, "off");
    assert_int_equal(info.residual_bytes, 0);
    nb_engine_destroy(e);
}

int main(void)
{
    if (!have_file("tests/parity/v3_geom/config.json")) {
        printf("skipped: tests/parity/v3_geom is missing\n");
        return SKIP_EXIT;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_chosen), cmocka_unit_test(test_everything_chosen),
        cmocka_unit_test(test_counters),       cmocka_unit_test(test_pool_does_not_matter),
        cmocka_unit_test(test_sinks_are_left), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
