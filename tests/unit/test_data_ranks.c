/* test_data_ranks.c - data-parallel ranks: requests that run side by side on several ranks have the tokens,
 * log-probabilities, logits and page bytes of one rank; where a request goes; a rank that fails ends all. */
#include "engine_testing.h"

#include <dirent.h>

#include "engine/engine_internal.h"
#include "os/clock.h"
#include "sched/sched_look.h"

enum { N_REQ = 9, MAX_PROMPT = 300, N_TOK = 12, MAX_MODEL = 40 };

typedef struct answer {
    uint32_t tok[N_TOK];
    float logprob[N_TOK];
    size_t n;
    nb_status st;
    char why[200];
    struct crowd *of;
} answer;

typedef struct crowd {
    answer a[N_REQ];
    nb_mutex *lock;
    nb_cond *one;
    size_t n_done;
} crowd;

static uint32_t ids[N_REQ][MAX_PROMPT];

/* Lengths around pages; the last request has the first one's prompt, and more. */
static size_t n_prompt_of(size_t i)
{
    static const size_t n[N_REQ] = { 150, 1, 64, 65, 200, 30, 129, 7, 170 };
    return n[i];
}

static void make_prompts(size_t n_vocab)
{
    for (size_t i = 0; i < N_REQ; i++) random_ids(ids[i], n_prompt_of(i), n_vocab, 40 + i);
    memcpy(ids[N_REQ - 1], ids[0], n_prompt_of(0) * sizeof *ids[0]);
}

static int on_answer(void *ctx, const nb_token_event *ev)
{
    answer *a = ctx;
    if (a->n == N_TOK) return 1;
    a->tok[a->n] = ev->id;
    a->logprob[a->n++] = ev->logprob;
    return 0;
}

static void on_end(void *ctx, nb_status st, const nb_result *r, const nb_error *err)
{
    (void)r;
    answer *a = ctx;
    nb_mutex_lock(a->of->lock);
    a->st = st;
    if (err) (void)snprintf(a->why, sizeof a->why, "%.190s", err->msg);
    a->of->n_done++;
    nb_cond_signal(a->of->one);
    nb_mutex_unlock(a->of->lock);
}

/* All at once, and waits until all have ended. */
static void submit_all(nb_engine *e, crowd *c)
{
    memset(c, 0, sizeof *c);
    assert_int_equal(nb_mutex_create(&c->lock), NB_OK);
    assert_int_equal(nb_cond_create(&c->one), NB_OK);
    for (size_t i = 0; i < N_REQ; i++) {
        c->a[i].of = c;
        nb_sampling s = greedy(N_TOK);
        s.n_logprobs = 1;
        const nb_request rq = { .prompt = ids[i],
                                .n_prompt = n_prompt_of(i),
                                .sampling = s,
                                .on_token = on_answer,
                                .on_token_ctx = &c->a[i],
                                .on_done = on_end };
        nb_request_id id;
        nb_error err = { 0 };
        const nb_status st = nb_engine_submit(e, &rq, &id, &err);
        if (st != NB_OK) on_end(&c->a[i], st, NULL, &err); /* the engine has failed already */
    }
}

static void await_all(crowd *c)
{
    nb_mutex_lock(c->lock);
    while (c->n_done < N_REQ) nb_cond_wait(c->one, c->lock);
    nb_mutex_unlock(c->lock);
    nb_cond_destroy(c->one);
    nb_mutex_destroy(c->lock);
}

typedef struct set_up {
    const char *dir, *kv, *mla, *weights;
    size_t n_thread, chunk, n_sink; /* chunk 0: 96 */
} set_up;

static nb_engine *engine_of(const set_up *s, size_t n_rank, nb_status *st, nb_error *err)
{
    const nb_engine_options o = { .model = in_source(s->dir),
                                  .kv_cache_dtype = s->kv,
                                  .mla = s->mla,
                                  .weight_dtype = s->weights,
                                  .kv_sinks = s->n_sink,
                                  .no_text = true,
                                  .device = "cpu",
                                  .n_thread = s->n_thread,
                                  .data_parallel_size = n_rank,
                                  .enable_expert_parallel = true,
                                  .max_num_batched_tokens = s->chunk ? s->chunk : 96,
                                  .max_num_seqs = 8,
                                  .max_model_len = 384,
                                  .kv_cache_bytes = 0 };
    nb_engine *e = NULL;
    *st = nb_engine_create(&o, &e, err);
    return e;
}

/* Every block that a shard can find has the bytes that one rank computed for the same key. Returns shards with blocks. */
static size_t compare_pages(const set_up *s, nb_engine *one, nb_engine *many)
{
    size_t n_used = 0, n_bytes = one->pages.block_bytes;
    assert_int_equal(many->pages.block_bytes, n_bytes);
    for (size_t k = 0; k < many->n_shard; k++) {
        size_t n_found = 0;
        for (size_t b = 0; b < many->pages.n_block; b++) {
            nb_kv_block_info info;
            nb_kv_cache_block(many->shard[k].cache, (uint32_t)b, &info);
            if (!info.indexed) continue;
            const uint32_t same = nb_kv_cache_find(one->shard[0].cache, &info.key);
            if (same == NB_BLOCK_NONE) continue; /* it was evicted */
            n_found++;
            if (memcmp(many->rank[k].kv + b * n_bytes, one->rank[0].kv + same * n_bytes, n_bytes) != 0)
                fail_msg("%s, %s: block %zu of rank %zu has other bytes", s->dir, s->kv, b, k);
        }
        n_used += n_found > 0;
    }
    return n_used;
}

static void compare_logits(const set_up *s, nb_engine *one, nb_engine *many)
{
    const size_t n = 100, n_vocab = vocab_of(one);
    size_t row[100];
    for (size_t i = 0; i < n; i++) row[i] = i;
    float *a = logits_at(one, ids[4], n, row, n), *b = logits_at(many, ids[4], n, row, n);
    for (size_t i = 0; i < n; i++)
        if (!same_floats(a + i * n_vocab, b + i * n_vocab, n_vocab))
            fail_msg("%s, %s: logits of position %zu differ", s->dir, s->kv, i);
    free(a);
    free(b);
}

/* 1 rank against 2 and 4; how many sizes were compared (a family may be refused by name). */
static size_t check_model(const set_up *s)
{
    static const size_t sizes[] = { 2, 4 };
    static crowd want, got;
    nb_status st;
    nb_error err = { 0 };
    size_t n_done = 0;
    nb_engine *one = engine_of(s, 1, &st, &err);
    if (!one) fail_msg("%s: %s", s->dir, err.msg);
    make_prompts(vocab_of(one));
    submit_all(one, &want);
    await_all(&want);
    for (size_t i = 0; i < NB_COUNT(sizes); i++) {
        nb_engine *many = engine_of(s, sizes[i], &st, &err);
        if (!many) {
            assert_int_equal(st, NB_ERR_UNSUPPORTED);
            assert_non_null(strstr(err.msg, "data-parallel"));
            continue;
        }
        submit_all(many, &got);
        await_all(&got);
        for (size_t q = 0; q < N_REQ; q++) {
            const answer *a = &want.a[q], *b = &got.a[q];
            if (a->st != NB_OK || b->st != NB_OK) fail_msg("%s: %s%s", s->dir, a->why, b->why);
            assert_int_equal(a->n, N_TOK);
            assert_int_equal(b->n, N_TOK);
            if (memcmp(a->tok, b->tok, sizeof a->tok) != 0 || !same_floats(a->logprob, b->logprob, N_TOK))
                fail_msg("%s, %s: request %zu has other tokens or log-probabilities on %zu ranks", s->dir, s->kv,
                         q, sizes[i]);
        }
        const size_t used = compare_pages(s, one, many);
        if (used < 2) fail_msg("%s: %zu of %zu ranks had a whole page", s->dir, used, sizes[i]);
        compare_logits(s, one, many);
        if (nb_engine_check(many, &err) != NB_OK) fail_msg("%s", err.msg);
        nb_engine_destroy(many);
        n_done++;
    }
    nb_engine_destroy(one);
    return n_done;
}

/* Every checkpoint of tests/parity: all kinds of attention, states, weights. */
static void test_all_checkpoints(void **state)
{
    (void)state;
    char name[MAX_MODEL][300];
    size_t n = 0, n_done = 0;
    DIR *d = opendir(in_source("tests/parity"));
    assert_non_null(d);
    for (struct dirent *x; (x = readdir(d));) {
        assert_true(n < MAX_MODEL);
        (void)snprintf(name[n], sizeof name[n], "tests/parity/%.200s", x->d_name);
        char config[400];
        (void)snprintf(config, sizeof config, "%s/config.json", name[n]);
        if (x->d_name[0] != '.' && have_file(config)) n++;
    }
    (void)closedir(d);
    assert_true(n >= 20);
    for (size_t i = 0; i < n; i++) {
        const set_up s = { .dir = name[i], .kv = "nvfp4", .n_thread = 1 };
        n_done += check_model(&s);
    }
    assert_true(n_done >= 2 * (n - 2)); /* LongCat's experts are refused */
}

/* Steps that hold fewer rows than the ranks have together, and records, forms, types of weights. */
static void test_ways(void **state)
{
    (void)state;
    static const set_up ways[] = {
        { .dir = "tests/parity/v3", .kv = "nvfp4", .n_thread = 4, .chunk = 9 },
        { .dir = "tests/parity/v3", .kv = "bf16", .mla = "absorbed", .n_thread = 1, .chunk = 512 },
        { .dir = "tests/parity/v3_sharded", .kv = "f32", .weights = "int8", .n_thread = 2, .n_sink = 3 },
        { .dir = "tests/parity/v2_lite", .kv = "fp8", .mla = "expanded", .n_thread = 8, .chunk = 33 },
    };
    for (size_t i = 0; i < NB_COUNT(ways); i++) assert_int_equal(check_model(&ways[i]), 2);
}

static void test_nibble_tiny(void **state)
{
    (void)state;
    const set_up s = { .dir = "models/nibble-tiny", .kv = "nvfp4", .n_thread = 2 };
    if (!have_file("models/nibble-tiny/config.json")) skip();
    assert_int_equal(check_model(&s), 2);
}

/* ---- placement ---- */

static void test_placement(void **state)
{
    (void)state;
    const set_up s = { .dir = "tests/parity/v3_sharded", .kv = "nvfp4", .n_thread = 1 };
    static crowd c;
    nb_status st;
    nb_error err = { 0 };
    nb_engine *e = engine_of(&s, 4, &st, &err);
    assert_non_null(e);
    make_prompts(vocab_of(e));
    submit_all(e, &c);
    await_all(&c);
    /* nothing runs: the rank that knows the prompt has the least to do, wherever that is */
    for (size_t i = 0; i < N_REQ; i++) {
        nb_sched_request rq = { .id = 1000 + i, .prompt = ids[i], .n_prompt = n_prompt_of(i), .rope_from = SIZE_MAX,
                                .salt = nb_str_c("") };
        const nb_prompt_form form = nb_engine_prompt_form(e, rq.n_prompt);
        rq.n_expanded = form.n_expanded;
        rq.n_upload = form.n_upload;
        const nb_kv_cache *kv[4];
        size_t n_found[4], most = 0;
        for (size_t k = 0; k < 4; k++) kv[k] = e->shard[k].cache;
        nb_sched_n_found(kv, 4, &rq, n_found);
        for (size_t k = 0; k < 4; k++) most = n_found[k] > most ? n_found[k] : most;
        if (rq.n_prompt > 2 * NB_BLOCK_TOK) assert_true(most > 0);
        assert_int_equal(n_found[nb_engine_place(e, &rq)], most);
        rq.salt = nb_str_c("another tenant");
        nb_sched_n_found(kv, 4, &rq, n_found);
        for (size_t k = 0; k < 4; k++) assert_int_equal(n_found[k], 0);
    }
    nb_engine_destroy(e);
}

/* ---- a rank that fails ---- */

static void check_fault(nb_rank_fault what, size_t rank, const char *line)
{
    const set_up s = { .dir = "tests/parity/v3_sharded", .kv = "nvfp4", .n_thread = 1 };
    static crowd c;
    nb_status st;
    nb_error err = { 0 };
    nb_engine *e = engine_of(&s, 4, &st, &err);
    assert_non_null(e);
    if (what == NB_FAULT_LOST || what == NB_FAULT_LATE) nb_comm_set_limit(e->ranks.seat[0].comm, 1.5);
    make_prompts(vocab_of(e));
    nb_mutex_lock(e->ranks.lock);
    e->ranks.fault.rank = rank;
    e->ranks.fault.late_ms = 4000;
    e->ranks.fault.what = what;
    nb_mutex_unlock(e->ranks.lock);
    const double t0 = nb_clock_s();
    submit_all(e, &c);
    await_all(&c);
    for (size_t i = 0; i < N_REQ; i++) {
        assert_int_equal(c.a[i].st, NB_ERR_FAILED);
        if (!strstr(c.a[i].why, line)) fail_msg("fault %d: \"%s\", expected \"%s\"", (int)what, c.a[i].why, line);
    }
    assert_true(nb_clock_s() - t0 < 60);
    nb_engine_destroy(e);
}

static void test_faults(void **state)
{
    (void)state;
    check_fault(NB_FAULT_REPORTS, 2, "rank 2 of 4: a failure made by a test");
    check_fault(NB_FAULT_LOST, 3, "rank 3 of 4: no sign of it");
    check_fault(NB_FAULT_LATE, 1, "rank 1 of 4: no sign of it");
    check_fault(NB_FAULT_DECISION, 2, "rank 2 of 4: its decisions of a step differ");
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        nb_engine_options o;
        nb_status st;
        const char *line;
    } bad[] = {
        { { .data_parallel_size = 9 }, NB_ERR_RANGE, "--data-parallel-size 9: expected 1 to 8" },
        { { .data_parallel_size = 2 }, NB_ERR_UNSUPPORTED, "needs --enable-expert-parallel" },
        { { .data_parallel_size = 2, .enable_expert_parallel = true, .tensor_parallel_size = 2 },
          NB_ERR_UNSUPPORTED,
          "with --tensor-parallel-size 2" },
        { { .data_parallel_size = 2, .enable_expert_parallel = true, .kv_thrift = "token" },
          NB_ERR_UNSUPPORTED,
          "--kv-thrift" },
        { { .data_parallel_size = 2, .enable_expert_parallel = true, .device = "cuda" },
          NB_ERR_UNSUPPORTED,
          "--data-parallel-size is not there on a GPU" },
    };
    for (size_t i = 0; i < NB_COUNT(bad); i++) {
        nb_engine_options o = bad[i].o;
        nb_engine *e = NULL;
        nb_error err = { 0 };
        o.model = in_source("tests/parity/v3_sharded");
        o.no_text = true;
        assert_int_equal(nb_engine_create(&o, &e, &err), bad[i].st);
        if (!strstr(err.msg, bad[i].line)) fail_msg("\"%s\", expected \"%s\"", err.msg, bad[i].line);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_placement),
        cmocka_unit_test(test_ways),      cmocka_unit_test(test_all_checkpoints),
        cmocka_unit_test(test_faults),    cmocka_unit_test(test_nibble_tiny),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
