/* test_engine_serving.c - many requests at once: submit, abort in every state, deadlines,
 * priorities, the order of callbacks, log-probabilities of prompts, preemption, the failed
 * engine, statistics, threads.  Results are those of nb_generate alone, bit for bit. */
#include "engine_testing.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "engine/engine_internal.h"

static const char tiny[] = "tests/parity/v3";
enum { TINY_VOCAB = 320, MAX_TOK = 600 };
static gen alone; /* large: not on the stack */

/* ---- a submitted request and all that it told ---- */

typedef struct job {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    nb_engine *e;
    nb_request_id id;
    size_t n_prompt_seen, n_seen, n_done;
    uint32_t prompt_seen[MAX_TOK], seen[MAX_TOK];
    float prompt_logprob[MAX_TOK], logprob[MAX_TOK];
    uint32_t prompt_best[MAX_TOK];
    size_t bad_order; /* callbacks that came when they should not */
    nb_status st;
    char reason[16], error[NB_ERROR_MSG_BYTES];
    size_t n_tokens, n_cached, n_preempted;
    double queue_s, prefill_s, decode_s;
    size_t stop_after;     /* on_token says stop at this many tokens */
    struct job *abort_job; /* aborted in on_token, at token abort_at */
    size_t abort_at;
    size_t hold_at; /* on_token waits at this many tokens until let go */
    bool held, let_go;
    int order; /* of the ends, from *clock */
    atomic_int *clock;
} job;

static int job_prompt(void *ctx, const nb_token_event *ev)
{
    job *j = ctx;
    (void)pthread_mutex_lock(&j->lock);
    j->bad_order += j->n_seen || j->n_done || j->n_prompt_seen >= MAX_TOK || ev->text_bytes;
    j->prompt_seen[j->n_prompt_seen] = ev->id;
    j->prompt_best[j->n_prompt_seen] = ev->n_top ? ev->top[0].id : UINT32_MAX;
    j->prompt_logprob[j->n_prompt_seen++] = ev->logprob;
    (void)pthread_mutex_unlock(&j->lock);
    return 0;
}

static int job_token(void *ctx, const nb_token_event *ev)
{
    job *j = ctx;
    (void)pthread_mutex_lock(&j->lock);
    j->bad_order += j->n_done || j->n_seen >= MAX_TOK;
    j->seen[j->n_seen] = ev->id;
    j->logprob[j->n_seen++] = ev->logprob;
    if (j->hold_at && j->n_seen == j->hold_at) {
        j->held = true;
        (void)pthread_cond_broadcast(&j->changed);
        while (!j->let_go) (void)pthread_cond_wait(&j->changed, &j->lock);
    }
    const bool stop = j->stop_after && j->n_seen >= j->stop_after;
    job *other = j->abort_job && j->n_seen == j->abort_at ? j->abort_job : NULL;
    (void)pthread_mutex_unlock(&j->lock);
    if (other) nb_engine_abort(j->e, other->id); /* allowed in a callback */
    return stop;
}

static void job_done(void *ctx, nb_status st, const nb_result *r, const nb_error *err)
{
    job *j = ctx;
    (void)pthread_mutex_lock(&j->lock);
    j->n_done++;
    j->st = st;
    (void)snprintf(j->reason, sizeof j->reason, "%s", r->finish_reason ? r->finish_reason : "");
    (void)snprintf(j->error, sizeof j->error, "%s", err ? err->msg : "");
    j->bad_order += (st == NB_OK) != (err == NULL) || r->n_tokens != j->n_seen ||
                    (r->n_tokens && memcmp(r->tokens, j->seen, j->n_seen * sizeof *j->seen) != 0) ||
                    !r->text || r->text[r->text_bytes] || r->queue_s < 0 || r->prefill_s < 0 ||
                    r->decode_s < 0;
    j->n_tokens = r->n_tokens;
    j->n_cached = r->n_cached;
    j->n_preempted = r->n_preempted;
    j->queue_s = r->queue_s;
    j->prefill_s = r->prefill_s;
    j->decode_s = r->decode_s;
    if (j->clock) j->order = atomic_fetch_add(j->clock, 1);
    (void)pthread_cond_broadcast(&j->changed);
    (void)pthread_mutex_unlock(&j->lock);
}

static job *new_job(nb_engine *e)
{
    job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    (void)pthread_mutex_init(&j->lock, NULL);
    (void)pthread_cond_init(&j->changed, NULL);
    j->e = e;
    return j;
}

static void free_job(job *j)
{
    (void)pthread_mutex_destroy(&j->lock);
    (void)pthread_cond_destroy(&j->changed);
    free(j);
}

static nb_request request_of(job *j, const uint32_t *id, size_t n, const nb_sampling *s)
{
    return (nb_request){ .prompt = id,
                         .n_prompt = n,
                         .sampling = *s,
                         .on_token = job_token,
                         .on_token_ctx = j,
                         .on_done = job_done };
}

static void submit(job *j, const nb_request *rq)
{
    nb_error err = { 0 };
    if (nb_engine_submit(j->e, rq, &j->id, &err) != NB_OK) fail_msg("%s", err.msg);
    assert_true(j->id != 0);
}

static void wait_done(job *j)
{
    (void)pthread_mutex_lock(&j->lock);
    while (!j->n_done) (void)pthread_cond_wait(&j->changed, &j->lock);
    (void)pthread_mutex_unlock(&j->lock);
}

static void wait_held(job *j)
{
    (void)pthread_mutex_lock(&j->lock);
    while (!j->held) (void)pthread_cond_wait(&j->changed, &j->lock);
    (void)pthread_mutex_unlock(&j->lock);
}

/* Whether it is held; false: it ended before. */
static bool held_or_done(job *j)
{
    (void)pthread_mutex_lock(&j->lock);
    while (!j->held && !j->n_done) (void)pthread_cond_wait(&j->changed, &j->lock);
    const bool held = j->held;
    (void)pthread_mutex_unlock(&j->lock);
    return held;
}

static void let_go(job *j)
{
    (void)pthread_mutex_lock(&j->lock);
    j->let_go = true;
    (void)pthread_cond_broadcast(&j->changed);
    (void)pthread_mutex_unlock(&j->lock);
}

static void expect_end(job *j, const char *reason, size_t n_tokens)
{
    wait_done(j);
    if (j->st != NB_OK) fail_msg("%s", j->error);
    assert_string_equal(j->reason, reason);
    if (n_tokens != SIZE_MAX) assert_int_equal(j->n_tokens, n_tokens);
    assert_int_equal(j->bad_order, 0);
    assert_int_equal(j->n_done, 1);
}

static void check_engine(nb_engine *e)
{
    nb_error err = { 0 };
    if (nb_engine_check(e, &err) != NB_OK) fail_msg("%s", err.msg);
}

/* Nothing runs, nothing is held. */
static nb_engine_stats check_idle(nb_engine *e)
{
    nb_engine_stats s;
    check_engine(e);
    nb_engine_get_stats(e, &s);
    assert_int_equal(s.n_running, 0);
    assert_int_equal(s.n_waiting, 0);
    assert_int_equal(s.n_deferred, 0);
    assert_int_equal(s.n_waiting_tok, 0);
    assert_int_equal(s.n_block_held, 0);
    assert_int_equal(s.n_block_free + s.n_block_once + s.n_block_many, s.n_block);
    return s;
}

static nb_engine_options small_options(void)
{
    return (nb_engine_options){ .model = in_source(tiny),
                                .kv_cache_dtype = "nvfp4",
                                .no_text = true,
                                .n_thread = 1,
                                .max_model_len = 384,
                                .kv_cache_bytes = 8 << 20 };
}

/* ---- results ---- */

static void test_crowd(void **state)
{
    (void)state;
    enum { N = 40 };
    nb_engine_options o = small_options();
    o.n_thread = 2;
    o.max_num_seqs = 16;
    o.max_num_batched_tokens = 48;
    o.no_prefix_caching = true;
    nb_engine *e = make_engine(&o), *one = simple_engine(tiny, "nvfp4");
    job *j[N];
    static uint32_t id[N][200];
    nb_sampling s[N];
    for (size_t i = 0; i < N; i++) {
        s[i] = greedy(5 + i % 17);
        s[i].n_logprobs = 0;
        s[i].seed = i;
        if (i % 3) s[i].temperature = 0.9;
        if (i % 5 == 1) s[i].repetition_penalty = 1.3;
        if (i % 5 == 2) s[i].frequency_penalty = 0.5;
        random_ids(id[i], 200, TINY_VOCAB, 50 + i);
        j[i] = new_job(e);
        const nb_request rq = request_of(j[i], id[i], 1 + i * 4, &s[i]);
        submit(j[i], &rq);
    }
    for (size_t i = 0; i < N; i++) {
        expect_end(j[i], "length", 5 + i % 17);
        run_gen(one, id[i], 1 + i * 4, &s[i], &alone);
        assert_memory_equal(alone.seen, j[i]->seen, alone.n_seen * sizeof *alone.seen);
        assert_true(same_floats(alone.logprob, j[i]->logprob, alone.n_seen));
        gen_reset(&alone);
        free_job(j[i]);
    }
    const nb_engine_stats st = check_idle(e);
    size_t n_step = 0;
    for (size_t i = 0; i <= NB_STEP_TOK_BUCKETS; i++) n_step += st.step_tok[i];
    assert_int_equal(n_step, st.n_step);
    assert_int_equal(st.n_block_free, st.n_block); /* without a prefix cache nothing stays */
    assert_int_equal(st.prefix_hits, 0);
    nb_engine_destroy(one);
    nb_engine_destroy(e);
}

/* A pool that is too small for all of them: some are set back, none is different. */
static void test_preemption(void **state)
{
    (void)state;
    enum { N = 8, N_OUT = 130 };
    nb_engine_options o = small_options();
    nb_engine_info info;
    nb_engine *e = make_engine(&o);
    nb_engine_get_info(e, &info);
    nb_engine_destroy(e);
    o.max_model_len = 256;
    o.kv_cache_bytes = 9 * info.block_bytes;
    o.max_num_seqs = N;
    o.max_num_batched_tokens = 64;
    for (int cached = 0; cached < 2; cached++) {
        o.no_prefix_caching = !cached;
        e = make_engine(&o);
        nb_engine *one = simple_engine(tiny, "nvfp4");
        job *j[N];
        static uint32_t id[N][100];
        size_t n_preempted = 0;
        nb_sampling s = greedy(N_OUT);
        s.temperature = 0.8;
        s.n_logprobs = 0;
        s.presence_penalty = 0.4;
        for (size_t i = 0; i < N; i++) {
            s.seed = i;
            random_ids(id[i], 100, TINY_VOCAB, 90 + i);
            j[i] = new_job(e);
            nb_request rq = request_of(j[i], id[i], 40 + i * 7, &s);
            if (i % 2) rq.on_prompt = job_prompt; /* shown once, whatever is computed again */
            submit(j[i], &rq);
        }
        for (size_t i = 0; i < N; i++) {
            expect_end(j[i], "length", N_OUT);
            n_preempted += j[i]->n_preempted;
            assert_int_equal(j[i]->n_prompt_seen, i % 2 ? 40 + i * 7 : 0);
            s.seed = i;
            run_gen(one, id[i], 40 + i * 7, &s, &alone);
            assert_memory_equal(alone.seen, j[i]->seen, N_OUT * sizeof *alone.seen);
            assert_true(same_floats(alone.logprob, j[i]->logprob, N_OUT));
            gen_reset(&alone);
            free_job(j[i]);
        }
        const nb_engine_stats st = check_idle(e);
        assert_true(n_preempted > 0);
        assert_int_equal(st.n_preempted, n_preempted);
        assert_true(st.preempted_tok > 0);
        assert_int_equal(st.generated_tok, N * N_OUT);
        nb_engine_destroy(one);
        nb_engine_destroy(e);
    }
}

/* Log-probabilities of a prompt are those of the logits that nb_logits gives. */
static void test_prompt_logprobs(void **state)
{
    (void)state;
    enum { N = 150 };
    static uint32_t id[N];
    static size_t row[N];
    random_ids(id, N, TINY_VOCAB, 8);
    for (size_t i = 0; i < N; i++) row[i] = i;
    nb_engine *e = simple_engine(tiny, "nvfp4");
    float *x = logits_at(e, id, N, row, N);
    nb_engine_destroy(e);
    static const size_t chunk[] = { 512, 1, 7, 64 };
    for (size_t k = 0; k < 4; k++) {
        nb_engine_options o = small_options();
        o.prefill_chunk = chunk[k];
        e = make_engine(&o);
        for (size_t n = N; n > 0; n = n == N ? 1 : 0) {
            for (size_t n_out = 0; n_out < 3; n_out += 2) {
                const nb_sampling s = greedy(n_out);
                job *j = new_job(e);
                nb_request rq = request_of(j, id, n, &s);
                rq.on_prompt = job_prompt;
                rq.n_prompt_top = 3;
                submit(j, &rq);
                expect_end(j, "length", n_out);
                assert_int_equal(j->n_cached, 0);
                assert_int_equal(j->n_prompt_seen, n);
                assert_memory_equal(j->prompt_seen, id, n * sizeof *id);
                assert_true(isnan(j->prompt_logprob[0]));
                assert_int_equal(j->prompt_best[0], UINT32_MAX);
                for (size_t i = 1; i < n; i++) {
                    const float *l = x + (i - 1) * TINY_VOCAB;
                    double sum = 0;
                    size_t best = 0;
                    for (size_t v = 0; v < TINY_VOCAB; v++) best = l[v] > l[best] ? v : best;
                    for (size_t v = 0; v < TINY_VOCAB; v++)
                        sum += exp((double)l[v] - (double)l[best]);
                    const double want = (double)l[id[i]] - (double)l[best] - log(sum);
                    assert_true(fabs((double)j->prompt_logprob[i] - want) < 1e-5);
                    assert_int_equal(j->prompt_best[i], best);
                }
                free_job(j);
            }
        }
        check_idle(e);
        nb_engine_destroy(e);
    }
    free(x);
}

/* Only the prompt: nothing is generated, its pages are found by the next. */
static void test_prompt_only(void **state)
{
    (void)state;
    static uint32_t id[400];
    random_ids(id, 400, TINY_VOCAB, 9);
    nb_engine_options o = small_options();
    nb_engine *e = make_engine(&o);
    const nb_sampling none = greedy(0), some = greedy(4);
    nb_result r;
    nb_error err;
    nb_request rq = { .prompt = id, .n_prompt = 384, .sampling = none };
    if (nb_generate(e, &rq, &r, &err) != NB_OK) fail_msg("%s", err.msg); /* all of the context */
    assert_int_equal(r.n_tokens, 0);
    assert_string_equal(r.finish_reason, "length");
    assert_string_equal(r.text, "");
    assert_int_equal(r.n_prompt, 384);
    nb_result_deinit(&r);
    rq.n_prompt = 385;
    assert_int_equal(nb_generate(e, &rq, &r, &err), NB_ERR_LIMIT);
    run_gen(e, id, 300, &some, &alone);
    assert_int_equal(alone.r.n_cached, 256);
    gen_reset(&alone);
    /* another salt, another tenant */
    rq = (nb_request){ .prompt = id, .n_prompt = 300, .sampling = some, .cache_salt = "b" };
    assert_int_equal(nb_generate(e, &rq, &r, &err), NB_OK);
    assert_int_equal(r.n_cached, 0);
    nb_result_deinit(&r);
    assert_int_equal(nb_generate(e, &rq, &r, &err), NB_OK);
    assert_int_equal(r.n_cached, 256);
    nb_result_deinit(&r);
    size_t n = 0;
    assert_int_equal(nb_engine_reset_prefix_cache(e, &n), NB_OK);
    assert_int_equal(n, 6 + 4); /* 384 tokens; 303 of the other */
    assert_int_equal(nb_engine_reset_prefix_cache(e, NULL), NB_OK);
    assert_int_equal(nb_generate(e, &rq, &r, &err), NB_OK);
    assert_int_equal(r.n_cached, 0);
    nb_result_deinit(&r);
    const nb_engine_stats st = check_idle(e);
    assert_int_equal(st.prompt_tok, 384 + 4 * 300);
    assert_int_equal(st.prompt_tok_cached, 512);
    assert_int_equal(st.generated_tok, 16);
    nb_engine_destroy(e);
}

/* ---- ends from outside ---- */

static void test_abort(void **state)
{
    (void)state;
    static uint32_t id[300];
    random_ids(id, 300, TINY_VOCAB, 10);
    nb_engine_options o = small_options();
    o.max_num_seqs = 2;
    o.max_num_batched_tokens = 16;
    nb_engine *e = make_engine(&o);
    const nb_sampling s = greedy(60), few = greedy(3);
    job *first = new_job(e), *beside = new_job(e), *waiting = new_job(e), *deferred = new_job(e),
        *last = new_job(e);
    first->hold_at = 2; /* the engine stands still in its callback */
    nb_request rq = request_of(first, id, 20, &s);
    submit(first, &rq);
    wait_held(first);
    rq = request_of(beside, id + 5, 290, &s); /* will be in the middle of its prompt */
    submit(beside, &rq);
    rq = request_of(waiting, id, 30, &s);
    submit(waiting, &rq);
    rq = request_of(deferred, id, 40, &s);
    rq.after = beside->id;
    deferred->hold_at = 1; /* it may begin before this thread sees the end of the other */
    submit(deferred, &rq);
    rq = request_of(last, id, 50, &few);
    submit(last, &rq);
    nb_engine_stats st;
    nb_engine_get_stats(e, &st); /* never waits for a step */
    assert_int_equal(st.n_waiting, 4);
    assert_int_equal(st.n_waiting_tok, 290 + 30 + 40 + 50);
    first->abort_job = beside; /* 5 steps from now */
    first->abort_at = 6;
    nb_engine_abort(e, waiting->id);
    nb_engine_abort(e, waiting->id); /* twice */
    nb_engine_abort(e, 0);
    nb_engine_abort(e, 123456);
    let_go(first);
    expect_end(waiting, "cancelled", 0);
    expect_end(beside, "cancelled", 0);
    nb_engine_abort(e, beside->id); /* gone */
    nb_engine_abort(e, deferred->id);
    let_go(deferred);
    wait_done(deferred);
    assert_true(!strcmp(deferred->reason, "cancelled"));
    expect_end(last, "length", 3);
    nb_engine_abort(e, first->id); /* generating, or through */
    wait_done(first);
    assert_int_equal(first->st, NB_OK);
    check_idle(e);
    job *all[] = { first, beside, waiting, deferred, last };
    for (size_t i = 0; i < 5; i++) free_job(all[i]);

    /* of itself, in its callback, and by its callback's answer */
    for (int how = 0; how < 2; how++) {
        job *j = new_job(e);
        j->abort_job = how ? NULL : j;
        j->abort_at = j->stop_after = 4;
        if (!how) j->stop_after = 0;
        j->hold_at = 1;
        rq = request_of(j, id, 20, &s);
        submit(j, &rq);
        wait_held(j); /* so that the id is known in the callback */
        let_go(j);
        expect_end(j, "cancelled", 4);
        free_job(j);
    }
    check_idle(e);
    nb_engine_destroy(e);
}

static void test_deadline(void **state)
{
    (void)state;
    static uint32_t id[60];
    random_ids(id, 60, TINY_VOCAB, 11);
    nb_engine_options o = small_options();
    o.max_num_seqs = 1;
    nb_engine *e = make_engine(&o);
    const nb_sampling s = greedy(100);
    job *runs, *waits = new_job(e), *after = new_job(e);
    nb_request rq;
    double timeout = 0.05; /* over while it is held; more where the machine is slower than that */
    for (;; timeout *= 4) {
        runs = new_job(e);
        runs->hold_at = 3;
        rq = request_of(runs, id, 20, &s);
        rq.timeout_s = timeout;
        submit(runs, &rq);
        if (held_or_done(runs)) break;
        expect_end(runs, "timeout", SIZE_MAX);
        free_job(runs);
    }
    rq = request_of(waits, id, 30, &s);
    rq.timeout_s = 1e-6;
    submit(waits, &rq);
    rq = request_of(after, id, 30, &s);
    rq.timeout_s = 1e6;
    submit(after, &rq);
    const long ms = (long)(timeout * 1000) + 10;
    const struct timespec pause = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
    (void)nanosleep(&pause, NULL);
    let_go(runs);
    expect_end(runs, "timeout", 3);
    expect_end(waits, "timeout", 0);
    expect_end(after, "length", 100);
    free_job(runs);
    free_job(waits);
    free_job(after);
    job *j = new_job(e);
    nb_error err;
    rq = request_of(j, id, 30, &s);
    rq.timeout_s = -1;
    assert_int_equal(nb_engine_submit(e, &rq, NULL, &err), NB_ERR_RANGE);
    rq.timeout_s = NAN;
    assert_int_equal(nb_engine_submit(e, &rq, NULL, &err), NB_ERR_RANGE);
    check_line(&err, NB_ERR_RANGE, "timeout");
    rq.timeout_s = 0;
    rq.on_prompt = job_prompt;
    rq.n_prompt_top = 21;
    assert_int_equal(nb_engine_submit(e, &rq, NULL, &err), NB_ERR_RANGE);
    check_line(&err, NB_ERR_RANGE, "21");
    rq.n_prompt = 0;
    assert_int_equal(nb_engine_submit(e, &rq, NULL, NULL), NB_ERR_ARG);
    assert_int_equal(nb_engine_submit(e, NULL, NULL, NULL), NB_ERR_ARG);
    assert_int_equal(j->n_done, 0);
    free_job(j);
    check_idle(e);
    nb_engine_destroy(e);
}

static void test_priority(void **state)
{
    (void)state;
    enum { N = 6 };
    static const int32_t priority[N] = { 5, 1, 5, -3, 0, 1 };
    static const int by_priority[N] = { 5, 3, 6, 1, 2, 4 }, by_arrival[N] = { 1, 2, 3, 4, 5, 6 };
    static uint32_t id[60];
    random_ids(id, 60, TINY_VOCAB, 12);
    for (int on = 0; on < 2; on++) {
        nb_engine_options o = small_options();
        o.max_num_seqs = 1;
        o.priority_scheduling = on;
        o.priority_age_s = 1000;
        nb_engine *e = make_engine(&o);
        const nb_sampling s = greedy(3);
        atomic_int clock = 0;
        job *head = new_job(e), *j[N];
        head->hold_at = 1;
        head->clock = &clock;
        nb_request rq = request_of(head, id, 20, &s);
        rq.priority = -100;
        submit(head, &rq);
        wait_held(head);
        for (size_t i = 0; i < N; i++) {
            j[i] = new_job(e);
            j[i]->clock = &clock;
            rq = request_of(j[i], id, 20, &s);
            rq.priority = priority[i];
            submit(j[i], &rq);
        }
        let_go(head);
        for (size_t i = 0; i < N; i++) {
            expect_end(j[i], "length", 3);
            assert_int_equal(j[i]->order, on ? by_priority[i] : by_arrival[i]);
            free_job(j[i]);
        }
        free_job(head);
        check_idle(e);
        nb_engine_destroy(e);
    }
}

/* Choices of one prompt: it is computed once. */
static void test_after(void **state)
{
    (void)state;
    enum { N = 5 };
    static uint32_t id[200];
    random_ids(id, 200, TINY_VOCAB, 13);
    nb_engine_options o = small_options();
    nb_engine *e = make_engine(&o);
    nb_sampling s = greedy(10);
    s.temperature = 1;
    job *j[N];
    nb_engine_stats st;
    for (size_t i = 0; i < N; i++) {
        j[i] = new_job(e);
        s.seed = i;
        nb_request rq = request_of(j[i], id, 200, &s);
        rq.after = i ? j[0]->id : 0;
        submit(j[i], &rq);
    }
    for (size_t i = 0; i < N; i++) {
        expect_end(j[i], "length", 10);
        assert_int_equal(j[i]->n_cached, i ? 192 : 0);
        free_job(j[i]);
    }
    st = check_idle(e);
    assert_int_equal(st.prompt_tok, N * 200);
    assert_int_equal(st.prompt_tok_cached, (N - 1) * 192);
    nb_engine_destroy(e);
}

/* ---- nb_engine_cancel ---- */

typedef struct caller {
    nb_engine *e;
    const uint32_t *id;
    size_t n;
    bool logits;
    nb_status st;
    char reason[16];
    atomic_bool started;
} caller;

static int started_token(void *ctx, const nb_token_event *ev)
{
    caller *c = ctx;
    (void)ev;
    atomic_store(&c->started, true);
    return 0;
}

static int started_row(void *ctx, size_t row, const float *logits, size_t n_vocab)
{
    (void)row;
    (void)logits;
    (void)n_vocab;
    return started_token(ctx, NULL);
}

static void *call_main(void *arg)
{
    caller *c = arg;
    if (c->logits) {
        static size_t row[300];
        for (size_t i = 0; i < c->n; i++) row[i] = i;
        do {
            c->st = nb_logits(c->e, c->id, c->n, row, c->n, started_row, c, NULL);
        } while (c->st == NB_OK); /* until it is cancelled */
        return NULL;
    }
    nb_request rq = { .prompt = c->id, .n_prompt = c->n, .sampling = greedy(100000) };
    rq.on_token = started_token;
    rq.on_token_ctx = c;
    nb_result r;
    do { /* the context is full soon */
        c->st = nb_generate(c->e, &rq, &r, NULL);
        if (c->st != NB_OK) break;
        (void)snprintf(c->reason, sizeof c->reason, "%s", r.finish_reason);
        nb_result_deinit(&r);
    } while (strcmp(c->reason, "cancelled") != 0);
    return NULL;
}

static void test_cancel_calls(void **state)
{
    (void)state;
    static uint32_t id[300];
    random_ids(id, 300, TINY_VOCAB, 14);
    nb_engine_options o = small_options();
    o.max_num_batched_tokens = 16;
    nb_engine *e = make_engine(&o);
    job *j = new_job(e);
    const nb_sampling s = greedy(20);
    caller a = { .e = e, .id = id, .n = 10 }, b = { .e = e, .id = id, .n = 300, .logits = true };
    pthread_t ta, tb;
    assert_int_equal(pthread_create(&ta, NULL, call_main, &a), 0);
    assert_int_equal(pthread_create(&tb, NULL, call_main, &b), 0);
    while (!atomic_load(&a.started) || !atomic_load(&b.started)) (void)sched_yield();
    j->hold_at = 1;
    nb_request rq = request_of(j, id, 30, &s);
    submit(j, &rq);
    wait_held(j);
    nb_engine_cancel(e); /* a submitted request goes on */
    let_go(j);
    (void)pthread_join(ta, NULL);
    (void)pthread_join(tb, NULL);
    assert_int_equal(a.st, NB_OK);
    assert_string_equal(a.reason, "cancelled");
    assert_int_equal(b.st, NB_ERR_CANCELLED);
    expect_end(j, "length", 20);
    free_job(j);
    check_idle(e);
    nb_engine_destroy(e);
}

/* ---- the failed engine ---- */

static void make_fail(nb_engine *e, void *ctx)
{
    (void)ctx;
    e->step.fail_step = true;
}

static void test_failed_engine(void **state)
{
    (void)state;
    static uint32_t id[60];
    random_ids(id, 60, TINY_VOCAB, 15);
    nb_engine_options o = small_options();
    o.max_num_seqs = 2;
    nb_engine *e = make_engine(&o);
    const nb_sampling s = greedy(300);
    nb_error err = { 0 };
    assert_int_equal(nb_engine_health(e, &err), NB_OK);
    job *j[3];
    for (size_t i = 0; i < 3; i++) {
        j[i] = new_job(e);
        j[i]->hold_at = i == 0 ? 2 : 0;
        const nb_request rq = request_of(j[i], id, 20 + i, &s);
        submit(j[i], &rq);
    }
    wait_held(j[0]);
    e->step.fail_step = true; /* its thread stands in the callback, and reads it after let_go */
    let_go(j[0]);
    for (size_t i = 0; i < 3; i++) {
        wait_done(j[i]);
        assert_int_equal(j[i]->st, NB_ERR_FAILED);
        assert_non_null(strstr(j[i]->error, "made by a test"));
        assert_int_equal(j[i]->bad_order, 0);
        free_job(j[i]);
    }
    assert_int_equal(nb_engine_health(e, &err), NB_ERR_FAILED);
    check_line(&err, NB_ERR_FAILED, "made by a test");
    job *late = new_job(e);
    const nb_request rq = request_of(late, id, 20, &s);
    assert_int_equal(nb_engine_submit(e, &rq, &late->id, &err), NB_ERR_FAILED);
    check_line(&err, NB_ERR_FAILED, "made by a test");
    nb_result r;
    assert_int_equal(nb_generate(e, &rq, &r, &err), NB_ERR_FAILED);
    assert_int_equal(late->n_done, 0);
    free_job(late);
    check_idle(e); /* calls are still answered */
    assert_int_equal(nb_engine_reset_prefix_cache(e, NULL), NB_OK);
    assert_int_equal(nb_engine_call(e, make_fail, NULL), NB_OK);
    nb_engine_destroy(e);
}

/* ---- limits, options ---- */

static int wait_in_callback(void *ctx, const nb_token_event *ev)
{
    (void)ev;
    job *j = ctx;
    nb_result r;
    nb_error err;
    static const uint32_t id = 1;
    const nb_request rq = { .prompt = &id, .n_prompt = 1, .sampling = greedy(1) };
    if (nb_generate(j->e, &rq, &r, &err) != NB_ERR_ARG) j->bad_order++;
    if (nb_engine_check(j->e, &err) != NB_ERR_ARG) j->bad_order++;
    if (nb_engine_reset_prefix_cache(j->e, NULL) != NB_ERR_ARG) j->bad_order++;
    return 0;
}

static void count_done(void *ctx, nb_status st, const nb_result *r, const nb_error *err)
{
    (void)err;
    if (st == NB_OK && !strcmp(r->finish_reason, "cancelled")) (*(size_t *)ctx)++;
}

static void test_limits(void **state)
{
    (void)state;
    static uint32_t id[60];
    random_ids(id, 60, TINY_VOCAB, 16);
    nb_engine_options o = small_options();
    nb_engine *e = make_engine(&o);
    const nb_sampling s = greedy(3);
    job *j = new_job(e); /* what a callback must not do is refused */
    nb_request rq = request_of(j, id, 20, &s);
    rq.on_token = wait_in_callback;
    rq.on_done = NULL;
    nb_result r;
    assert_int_equal(nb_generate(e, &rq, &r, NULL), NB_OK);
    nb_result_deinit(&r);
    assert_int_equal(j->bad_order, 0);
    free_job(j);

    j = new_job(e); /* as many requests as are taken, and one more */
    j->hold_at = 1;
    rq = request_of(j, id, 20, &s);
    submit(j, &rq);
    wait_held(j);
    size_t n_done = 0, n = 0;
    nb_error err;
    rq = (nb_request){
        .prompt = id, .n_prompt = 20, .sampling = s, .on_token_ctx = &n_done, .on_done = count_done
    };
    nb_status st;
    const size_t max[2] = { 70, NB_ENGINE_MAX_PROMPT_TOK }; /* prompt tokens; requests */
    static const char *const words[2] = { "60 prompt tokens", "65536" };
    for (size_t i = 0; i < 2; i++) {
        nb_mutex_lock(e->queue.lock);
        e->queue.max_live_tok = max[i];
        nb_mutex_unlock(e->queue.lock);
        while ((st = nb_engine_submit(e, &rq, NULL, &err)) == NB_OK) n++;
        assert_int_equal(st, NB_ERR_CAPACITY);
        check_line(&err, NB_ERR_CAPACITY, words[i]);
    }
    assert_int_equal(n, 65535);
    /* All of them end when the engine does, and the one in its callback runs on to there. */
    j->abort_job = j;
    j->abort_at = 1;
    nb_mutex_lock(e->queue.lock);
    e->queue.stopping = true; /* as nb_engine_destroy will say: no step comes between */
    nb_mutex_unlock(e->queue.lock);
    let_go(j);
    nb_engine_destroy(e);
    assert_int_equal(n_done, n);
    assert_int_equal(j->n_done, 1);
    assert_string_equal(j->reason, "cancelled");
    free_job(j);
}

static void refuse_options(nb_engine_options o, nb_status want, const char *words)
{
    nb_engine *e = NULL;
    nb_error err = { 0 };
    assert_int_equal(nb_engine_create(&o, &e, &err), want);
    assert_null(e);
    check_line(&err, want, words);
}

typedef struct progress {
    size_t n_call, n_bad;
    uint64_t done, total;
} progress;

static void kv_progress(void *ctx, const char *label, uint64_t done, uint64_t total)
{
    progress *p = ctx;
    if (strcmp(label, "allocating the KV cache") != 0) return;
    p->n_call++;
    p->n_bad += done > total || done < p->done;
    p->done = done;
    p->total = total;
}

static void test_options(void **state)
{
    (void)state;
    nb_engine_options o = { .model = in_source(tiny), .no_text = true, .n_thread = 2 };
    nb_engine_info info;
    nb_engine *e = make_engine(&o);
    nb_engine_get_info(e, &info);
    const uint64_t block = info.block_bytes;
    assert_int_equal(info.block_tok, 64);
    assert_int_equal(info.max_num_seqs, 32);
    assert_int_equal(info.max_num_batched_tokens, 512);
    assert_int_equal(info.n_block * info.block_tok, info.kv_pool_tok);
    assert_int_equal(info.tail_bytes, 32 * 3 * 64 * (40 + 16) * 4);
    assert_string_equal(info.kv_layout, "latent 64x80 + rope 64x32");
    assert_true(info.workspace_bytes > 0);
    nb_engine_destroy(e);

    o.kv_cache_bytes = 5 * block + block / 2;
    refuse_options(o, NB_ERR_LIMIT, "estimated maximum model length is 320");
    o.max_model_len = 321;
    refuse_options(o, NB_ERR_LIMIT, "320");
    o.max_model_len_auto = true;
    refuse_options(o, NB_ERR_ARG, "321");
    o.max_model_len = 0;
    progress p = { 0 };
    o.commit_memory = true;
    o.progress = kv_progress;
    o.progress_ctx = &p;
    o.max_num_batched_tokens = 20;
    e = make_engine(&o);
    nb_engine_get_info(e, &info);
    assert_int_equal(info.max_model_len, 320);
    assert_int_equal(info.n_block, 5);
    assert_int_equal(info.kv_pool_bytes, 5 * block);
    assert_int_equal(info.max_num_seqs, 20);
    assert_int_equal(info.max_num_batched_tokens, 20);
    assert_true(p.n_call > 0 && p.n_bad == 0 && p.done == p.total);
    assert_int_equal(p.total, info.kv_pool_bytes + info.tail_bytes);
    nb_engine_destroy(e);
    o.progress = NULL;
    o.max_num_seqs = 21;
    refuse_options(o, NB_ERR_ARG, "21");
    o.max_num_seqs = 1000000;
    refuse_options(o, NB_ERR_RANGE, "1000000");
    o.max_num_seqs = 0;
    o.max_num_batched_tokens = 1000000;
    refuse_options(o, NB_ERR_RANGE, "1000000");
    o.max_num_batched_tokens = 0;
    o.kv_cache_bytes = block - 1;
    refuse_options(o, NB_ERR_LIMIT, "one block");
    o.kv_cache_bytes = UINT64_MAX / 2;
    refuse_options(o, NB_ERR_LIMIT, "too large");
    o.kv_cache_bytes = 0;
    o.priority_age_s = NAN;
    refuse_options(o, NB_ERR_RANGE, "--priority-age");
}

/* ---- threads ---- */

typedef struct worker {
    nb_engine *e;
    unsigned seed;
    size_t n_bad;
} worker;

static void *submit_main(void *arg)
{
    worker *w = arg;
    enum { N = 12 };
    uint32_t id[130];
    random_ids(id, 130, TINY_VOCAB, w->seed % 2); /* two threads share their prompts */
    for (unsigned i = 0; i < N; i++) {
        const unsigned n = 1 + (i * 37 + w->seed * 11) % 130;
        nb_sampling s = greedy(1 + i % 9);
        job *j = new_job(w->e);
        nb_request rq = request_of(j, id, n, &s);
        if (i % 4 == 1) rq.on_prompt = job_prompt;
        if (i % 5 == 3) {
            nb_result r;
            w->n_bad += nb_generate(w->e, &rq, &r, NULL) != NB_OK || r.n_tokens != 1 + i % 9;
            nb_result_deinit(&r);
            free_job(j);
            continue;
        }
        if (nb_engine_submit(w->e, &rq, &j->id, NULL) != NB_OK) {
            w->n_bad++;
            free_job(j);
            continue;
        }
        if (i % 3 == 0) nb_engine_abort(w->e, j->id);
        nb_engine_stats st;
        nb_engine_get_stats(w->e, &st);
        w->n_bad += st.n_running > 6;
        if (i % 6 == 2) w->n_bad += nb_engine_check(w->e, NULL) != NB_OK;
        if (i % 6 == 4) w->n_bad += nb_engine_reset_prefix_cache(w->e, NULL) != NB_OK;
        w->n_bad += nb_engine_health(w->e, NULL) != NB_OK;
        wait_done(j);
        w->n_bad +=
            j->n_done != 1 || j->bad_order || j->st != NB_OK || (i % 3 && j->n_tokens != 1 + i % 9);
        free_job(j);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    enum { N = 4 };
    nb_engine_options o = small_options();
    o.n_thread = 2;
    o.max_num_seqs = 6;
    o.max_num_batched_tokens = 40;
    nb_engine *e = make_engine(&o);
    worker w[N];
    pthread_t t[N];
    for (unsigned i = 0; i < N; i++) {
        w[i] = (worker){ .e = e, .seed = i };
        assert_int_equal(pthread_create(&t[i], NULL, submit_main, &w[i]), 0);
    }
    for (size_t i = 0; i < N; i++) {
        (void)pthread_join(t[i], NULL);
        assert_int_equal(w[i].n_bad, 0);
    }
    check_idle(e);
    nb_engine_destroy(e);
}

int main(void)
{
    if (!have_file("tests/parity/v3/model.safetensors")) {
        printf("skipped: no parity checkpoints\n");
        return SKIP_EXIT;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crowd),           cmocka_unit_test(test_preemption),
        cmocka_unit_test(test_prompt_logprobs), cmocka_unit_test(test_prompt_only),
        cmocka_unit_test(test_abort),           cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_priority),        cmocka_unit_test(test_after),
        cmocka_unit_test(test_cancel_calls),    cmocka_unit_test(test_failed_engine),
        cmocka_unit_test(test_limits),          cmocka_unit_test(test_options),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
