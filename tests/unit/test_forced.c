/* test_forced.c - nb_engine_forced: rows are those of a generation with the same tokens, bit for
 * bit; those of the prompt come from a prompt; also beside others, set back, and cancelled. */
#include "engine_testing.h"

#include <math.h>
#include <pthread.h>

#include "nibble/measure.h"

enum { N_TOK = 150, N_PROMPT = 70, MAX_VOCAB = 512 };

typedef struct rows {
    float x[N_TOK][MAX_VOCAB];
    size_t pos[N_TOK], n, n_vocab, stop_at;
} rows;

static int take(void *ctx, size_t row, const float *logits, size_t n_vocab)
{
    rows *r = ctx;
    if (r->n >= N_TOK || n_vocab > MAX_VOCAB) return 1;
    memcpy(r->x[r->n], logits, n_vocab * sizeof *logits);
    r->pos[r->n++] = row;
    r->n_vocab = n_vocab;
    return r->stop_at && r->n == r->stop_at;
}

static rows a, b;

static void forced(nb_engine *e, const uint32_t *id, size_t n, size_t n_prompt, rows *r)
{
    nb_error err = { 0 };
    r->n = r->stop_at = 0;
    if (nb_engine_forced(e, id, n, n_prompt, take, r, &err) != NB_OK) fail_msg("%s", err.msg);
    assert_int_equal(r->n, n - n_prompt + 1);
    for (size_t i = 0; i < r->n; i++) assert_int_equal(r->pos[i], n_prompt - 1 + i);
}

static const char *const MODELS[] = { "tests/parity/v3", "tests/parity/llama3" };

/* Greedy text, then forced: the best of each row is the next token, its log-probability the one
 * that was reported. */
static void test_as_generated(void **state)
{
    (void)state;
    static const char *const kv[] = { "bf16", "fp8", "nvfp4" };
    for (size_t m = 0; m < 2; m++) {
        if (!have_file(MODELS[m])) continue;
        for (size_t k = 0; k < (m ? 1 : 3); k++) {
            nb_engine *e = simple_engine(MODELS[m], kv[k]);
            uint32_t id[N_TOK];
            static gen g;
            memset(&g, 0, sizeof g);
            random_ids(id, N_PROMPT, vocab_of(e), 3);
            nb_sampling s = greedy(N_TOK - N_PROMPT);
            s.n_logprobs = 1;
            run_gen(e, id, N_PROMPT, &s, &g);
            memcpy(id + N_PROMPT, g.seen, (N_TOK - N_PROMPT) * sizeof *id);
            forced(e, id, N_TOK, N_PROMPT, &a);
            for (size_t i = 0; i + 1 < a.n; i++) {
                double max = -1e30, sum = 0;
                size_t best = 0;
                for (size_t v = 0; v < a.n_vocab; v++)
                    if ((double)a.x[i][v] > max) max = (double)a.x[i][best = v];
                for (size_t v = 0; v < a.n_vocab; v++) sum += exp((double)a.x[i][v] - max);
                assert_int_equal(best, g.seen[i]);
                assert_true(fabs((double)g.logprob[i] + log(sum)) < 1e-5);
            }
            nb_result_deinit(&g.r);
            /* the row of the prompt is a prompt's */
            const size_t last = N_PROMPT - 1;
            float *x = logits_at(e, id, N_PROMPT, &last, 1);
            assert_memory_equal(x, a.x[0], a.n_vocab * sizeof *x);
            free(x);
            forced(e, id, N_TOK, N_PROMPT, &b);
            assert_memory_equal(a.x, b.x, a.n * sizeof a.x[0]);
            nb_engine_destroy(e);
        }
    }
}

typedef struct worker {
    nb_engine *e;
    uint32_t id[N_TOK];
    rows r;
} worker;

static void *work(void *ctx)
{
    worker *w = ctx;
    nb_error err;
    w->r.n = w->r.stop_at = 0;
    (void)nb_engine_forced(w->e, w->id, N_TOK, 1 + w->id[0] % 90, take, &w->r, &err);
    return NULL;
}

/* Four at once in a pool with room for less than two: the same rows as alone. */
static void test_crowd(void **state)
{
    (void)state;
    enum { N = 4 };
    static worker w[N];
    nb_engine *alone = simple_engine(MODELS[0], "nvfp4");
    nb_engine_info info;
    nb_engine_get_info(alone, &info);
    nb_engine *crowd = make_engine(&(nb_engine_options){ .model = in_source(MODELS[0]),
                                                         .kv_cache_dtype = "nvfp4",
                                                         .no_text = true,
                                                         .n_thread = 1,
                                                         .max_model_len = 192,
                                                         .max_num_seqs = N,
                                                         .kv_cache_bytes = 5 * info.block_bytes });
    pthread_t t[N];
    for (size_t i = 0; i < N; i++) {
        w[i].e = crowd;
        random_ids(w[i].id, N_TOK, info.vocab, 50 + i);
        assert_int_equal(pthread_create(&t[i], NULL, work, &w[i]), 0);
    }
    for (size_t i = 0; i < N; i++) assert_int_equal(pthread_join(t[i], NULL), 0);
    for (size_t i = 0; i < N; i++) {
        forced(alone, w[i].id, N_TOK, 1 + w[i].id[0] % 90, &a);
        assert_int_equal(w[i].r.n, a.n);
        for (size_t k = 0; k < a.n; k++)
            assert_memory_equal(w[i].r.x[k], a.x[k], a.n_vocab * sizeof(float));
    }
    nb_engine_destroy(crowd);
    nb_engine_destroy(alone);
}

static void test_refused(void **state)
{
    (void)state;
    nb_engine *e = simple_engine(MODELS[0], "bf16");
    uint32_t id[N_TOK];
    nb_error err = { 0 };
    random_ids(id, N_TOK, vocab_of(e), 3);
    assert_int_equal(nb_engine_forced(NULL, id, 9, 3, take, &a, &err), NB_ERR_ARG);
    assert_int_equal(nb_engine_forced(e, NULL, 9, 3, take, &a, &err), NB_ERR_ARG);
    assert_int_equal(nb_engine_forced(e, id, 9, 3, NULL, &a, &err), NB_ERR_ARG);
    assert_int_equal(nb_engine_forced(e, id, 9, 0, take, &a, &err), NB_ERR_RANGE);
    assert_int_equal(nb_engine_forced(e, id, 9, 9, take, &a, &err), NB_ERR_RANGE);
    assert_non_null(strstr(err.msg, "1..8"));
    assert_int_equal(nb_engine_forced(e, id, SIZE_MAX, 9, take, &a, &err), NB_ERR_LIMIT);
    id[5] = 1u << 30;
    assert_int_equal(nb_engine_forced(e, id, 9, 3, take, &a, &err), NB_ERR_RANGE);
    id[5] = 1;
    a.n = 0;
    a.stop_at = 3; /* the receiver says stop */
    assert_int_equal(nb_engine_forced(e, id, N_TOK, 3, take, &a, &err), NB_ERR_CANCELLED);
    assert_int_equal(a.n, 3);
    assert_int_equal(nb_engine_check(e, &err), NB_OK);
    /* the whole context */
    nb_engine *small = make_engine(&(nb_engine_options){ .model = in_source(MODELS[0]),
                                                         .kv_cache_dtype = "bf16",
                                                         .no_text = true,
                                                         .n_thread = 1,
                                                         .max_model_len = 64 });
    forced(e, id, 64, 60, &a);
    forced(small, id, 64, 60, &b);
    assert_memory_equal(a.x, b.x, a.n * sizeof a.x[0]);
    nb_engine_destroy(small);
    nb_engine_destroy(e);
}

int main(void)
{
    if (!have_file(MODELS[0])) {
        (void)printf("skipped: %s is missing\n", MODELS[0]);
        return SKIP_EXIT;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_generated),
        cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
