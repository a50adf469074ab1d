/* test_gpu_thrift.c - Thrift mode on a GPU, here with the kernels emulated (NB_CUDA_EMU_LIBRARY), or on the
 * one of the machine (NB_TEST_CUDA): the tokens and counters of the CPU, and logits near the CPU's where
 * tokens are refined; nothing chosen changes nothing; the same bits whatever the steps; what is refused. */
#include "engine_testing.h"

#include <math.h>

#include "nibble/measure.h"

enum { N_PROMPT = 150, N_TOK = 176, N_FORCED = N_TOK - N_PROMPT, N_GEN = 12 };

static uint32_t text[N_TOK];
static gen one, two;

static const char *library(void)
{
    const char *s = getenv("NB_TEST_CUDA");
    if (!s || !*s) s = getenv("NB_CUDA_EMU_LIBRARY");
    return s && *s ? s : NULL;
}

static nb_engine_options options_of(const char *dir, const char *kv, const char *kind, double tau,
                                    double fraction)
{
    return (nb_engine_options){ .model = in_source(dir),
                                .device = "cuda",
                                .cuda_library = library(),
                                .kv_cache_dtype = kv,
                                .kv_thrift = kind,
                                .kv_thrift_tau = tau,
                                .kv_thrift_fraction = fraction,
                                .n_thread = 1,
                                .no_text = true,
                                .max_model_len = 256,
                                .prefill_chunk = 64 };
}

static nb_engine *open_with(const nb_engine_options *o)
{
    nb_engine *e = NULL;
    nb_error err = { 0 };
    if (nb_engine_create(o, &e, &err) != NB_OK) fail_msg("%s: %s", o->model, err.msg);
    return e;
}

static void generate(const nb_engine_options *o, const nb_sampling *s, gen *g, nb_engine_stats *st)
{
    nb_engine *e = open_with(o);
    nb_engine_info info;
    nb_engine_get_info(e, &info);
    random_ids(text, N_TOK, info.vocab, 5);
    gen_reset(g);
    run_gen(e, text, N_PROMPT, s, g);
    if (st) nb_engine_get_stats(e, st);
    nb_engine_destroy(e);
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
    nb_engine *e = open_with(o);
    nb_error err = { 0 };
    nb_engine_get_info(e, info);
    random_ids(text, N_TOK, info->vocab, 31);
    rows r = { .x = calloc((N_FORCED + 1) * info->vocab, sizeof(float)) };
    if (nb_engine_forced(e, text, N_TOK, N_PROMPT, take, &r, &err) != NB_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(r.n, N_FORCED + 1);
    nb_engine_get_stats(e, st);
    nb_engine_destroy(e);
    return r.x;
}

static double distance(const float *a, const float *b, size_t n)
{
    double d = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        d += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        all += (double)a[i] * (double)a[i];
    }
    return sqrt(d / all);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* How far b is from a: the median over rows of the relative norm of the difference.  A row where
 * another expert is chosen is far away and tells nothing. */
static double median_distance(const float *a, const float *b, size_t n_vocab)
{
    double d[N_FORCED + 1];
    for (size_t i = 0; i <= N_FORCED; i++)
        d[i] = distance(a + i * n_vocab, b + i * n_vocab, n_vocab);
    qsort(d, N_FORCED + 1, sizeof *d, ascending);
    return d[N_FORCED / 2];
}

static const struct {
    const char *dir, *kv;
    double tau, fraction;
} ways[] = {
    { "tests/parity/youtu", "nvfp4", 1e-9, 1 },
    { "tests/parity/v2_lite", "if4", 1e-9, 0.05 },
    { "tests/parity/v3_geom", "nvfp4", 6e-3, 0.5 },
};

/* The choice is between close probabilities here and there: a few may differ. */
static void check_counts(const nb_engine_stats *gpu, const nb_engine_stats *cpu)
{
    assert_int_equal(gpu->thrift_scored, cpu->thrift_scored);
    assert_int_equal(gpu->thrift_base_bytes, cpu->thrift_base_bytes);
    assert_true(cpu->thrift_refined > 0);
    assert_true(fabs((double)gpu->thrift_refined / (double)cpu->thrift_refined - 1) < 0.02);
    assert_true(gpu->thrift_residual_bytes > 0);
    assert_int_equal(gpu->thrift_residual_bytes % gpu->thrift_refined, 0);
    assert_int_equal(gpu->thrift_pool_hits, 0);
}

static void test_as_the_cpu(void **state)
{
    (void)state;
    if (!library()) skip();
    for (size_t i = 0; i < NB_COUNT(ways); i++) {
        nb_engine_stats gpu, cpu, none;
        nb_engine_info info;
        nb_engine_options o =
            options_of(ways[i].dir, ways[i].kv, "token", ways[i].tau, ways[i].fraction);
        o.activation_dtype = "float"; /* prompts of a GPU may round them */
        float *a = forced(&o, &gpu, &info);
        assert_true(info.residual_bytes > 0);
        o.device = "cpu";
        float *b = forced(&o, &cpu, &info);
        o.kv_thrift = "off";
        float *c = forced(&o, &none, &info);
        const double d = median_distance(b, a, info.vocab);
        const double off = median_distance(b, c, info.vocab);
        print_message("%s %s: scored %llu refined %llu (%llu) over %llu (%llu), logits %.2g, "
                      "without %.2g\n",
                      ways[i].dir, ways[i].kv, (unsigned long long)gpu.thrift_scored,
                      (unsigned long long)gpu.thrift_refined,
                      (unsigned long long)cpu.thrift_refined, (unsigned long long)gpu.thrift_over,
                      (unsigned long long)cpu.thrift_over, d, off);
        check_counts(&gpu, &cpu);
        assert_true(d < 0.5 * off);
        free(a);
        free(b);
        free(c);
    }
}

static void test_tokens_of_the_cpu(void **state)
{
    (void)state;
    if (!library()) skip();
    const nb_sampling s = greedy(N_GEN);
    for (size_t i = 0; i < NB_COUNT(ways); i++) {
        nb_engine_options o =
            options_of(ways[i].dir, ways[i].kv, "token", ways[i].tau, ways[i].fraction);
        generate(&o, &s, &one, NULL);
        o.device = "cpu";
        generate(&o, &s, &two, NULL);
        if (one.n_seen != N_GEN || memcmp(one.seen, two.seen, sizeof *one.seen * N_GEN) != 0)
            fail_msg("%s, %s: the GPU's tokens are not the CPU's", ways[i].dir, ways[i].kv);
    }
}

/* With a threshold of 1 nothing is chosen. */
static void test_nothing_chosen(void **state)
{
    (void)state;
    if (!library()) skip();
    nb_engine_stats st;
    nb_engine_info info;
    nb_engine_options o = options_of("tests/parity/v2_lite", "nvfp4", "token", 1, 1);
    float *none = forced(&o, &st, &info);
    assert_true(st.thrift_scored > 0);
    assert_int_equal(st.thrift_refined + st.thrift_over + st.thrift_residual_bytes, 0);
    o.kv_thrift = "off";
    float *plain = forced(&o, &st, &info);
    assert_int_equal(st.thrift_scored, 0);
    assert_true(median_distance(plain, none, info.vocab) < 1e-3);
    free(none);
    free(plain);
}

/* A step has one token of it or many, and what is cached was computed or is there: the same bits. */
static void test_steps_and_hits(void **state)
{
    (void)state;
    if (!library()) skip();
    nb_sampling s = greedy(N_GEN + 36);
    nb_engine_options o = options_of("tests/parity/v2_lite", "nvfp4", "token", 1e-4, 0.2);
    generate(&o, &s, &one, NULL);
    o.prefill_chunk = 7;
    nb_engine *e = open_with(&o);
    for (size_t i = 0; i < 2; i++) { /* the second finds what the first has left */
        gen_reset(&two);
        run_gen(e, text, N_PROMPT, &s, &two);
        assert_int_equal(one.n_seen, two.n_seen);
        assert_memory_equal(one.seen, two.seen, one.n_seen * sizeof *one.seen);
        assert_memory_equal(one.logprob, two.logprob, one.n_seen * sizeof *one.logprob);
        assert_int_equal(two.r.n_cached > 0, i > 0);
    }
    nb_engine_destroy(e);
}

static void test_refused(void **state)
{
    static const char *const kinds[] = { "block-mean", "quest", "block-prob" };
    (void)state;
    if (!library()) skip();
    for (size_t i = 0; i < NB_COUNT(kinds); i++) {
        nb_engine_options o = options_of("tests/parity/v2_lite", "nvfp4", kinds[i], 0, 0);
        nb_engine *e = NULL;
        nb_error err = { 0 };
        assert_int_equal(nb_engine_create(&o, &e, &err), NB_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.msg, kinds[i]));
        assert_non_null(strstr(err.msg, "not there on a GPU"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_the_cpu),     cmocka_unit_test(test_tokens_of_the_cpu),
        cmocka_unit_test(test_nothing_chosen), cmocka_unit_test(test_steps_and_hits),
        cmocka_unit_test(test_refused),
    };
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    gen_reset(&one);
    gen_reset(&two);
    return rc;
}
