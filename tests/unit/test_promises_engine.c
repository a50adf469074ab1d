/* test_promises_engine.c - the same request gives the same answer, bit for bit: cold, with its
 * prefix in the cache, alone, in a crowd, set back because the pool is too small, in steps of
 * any size, with any number of threads, as one of several choices, with neighbours that are
 * cancelled, under any salt, as the next turn of a conversation, also when the answer before was computed
 * again while the engine was idle.
 *
 * Only the public header is used.  Log-probabilities are compared as bits: they show the
 * smallest difference.  What is expected comes from an engine without prefix cache that
 * runs one request at a time. */
#include "engine_testing.h"

#include <pthread.h>
#include <time.h>

enum { N_Q = 14, MAX_PROMPT = 384, MAX_OUT = 80, N_TOP = 2, MODEL_LEN = 256 };
/* With sanitizers all code is reached with fewer combinations, and many times slower. */
#if defined(__SANITIZE_THREAD__)
enum { EVERY = 8, CROWD = 40, ONE_BY_ONE_ONCE = 1 }; /* nothing runs beside what is asked alone */
#elif defined(__SANITIZE_ADDRESS__)
enum { EVERY = 5, CROWD = 40, ONE_BY_ONE_ONCE = 0 };
#else
enum { EVERY = 1, CROWD = 64, ONE_BY_ONE_ONCE = 0 };
#endif

typedef struct question {
    uint32_t prompt[MAX_PROMPT];
    size_t n;
    nb_sampling s;
    bool score; /* log-probabilities of the prompt are wanted too */
    const char *salt;
} question;

/* Those whose answers are waited for. */
typedef struct hall {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t n_left;
} hall;
static hall lobby = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0 };

typedef struct answer {
    const question *q;
    uint32_t id[MAX_OUT];
    float logprob[MAX_OUT];
    nb_token_logprob top[MAX_OUT][N_TOP];
    size_t n, n_prompt;
    float prompt_logprob[MAX_PROMPT];
    nb_token_logprob prompt_top[MAX_PROMPT];
    nb_status st;
    char reason[16], error[NB_ERROR_MSG_BYTES];
    size_t n_cached, n_preempted;
    nb_request_id request;
    size_t stop_after; /* 0, or the callback says stop at this many tokens */
    nb_engine *e;
    nb_request_id victim; /* 0, or the callback aborts that request at its third token */
} answer;

static question ask_of[N_Q];
static answer want[N_Q]; /* what is expected of ask_of[i] */
static answer got[CROWD];
static char where[200]; /* model, record, form: for messages */

/* ---- requests ---- */

static int on_word(void *ctx, const nb_token_event *ev)
{
    answer *a = ctx;
    if (a->n >= MAX_OUT) return 1;
    a->id[a->n] = ev->id;
    a->logprob[a->n] = ev->logprob;
    for (size_t i = 0; i < N_TOP; i++)
        a->top[a->n][i] = i < ev->n_top ? ev->top[i] : (nb_token_logprob){ 0, 0 };
    a->n++;
    if (a->victim && a->n == 3) nb_engine_abort(a->e, a->victim);
    return a->stop_after && a->n >= a->stop_after;
}

static int on_prompt_word(void *ctx, const nb_token_event *ev)
{
    answer *a = ctx;
    if (a->n_prompt >= MAX_PROMPT) return 1;
    a->prompt_logprob[a->n_prompt] = ev->logprob;
    a->prompt_top[a->n_prompt++] = ev->n_top ? ev->top[0] : (nb_token_logprob){ 0, 0 };
    return 0;
}

static void on_end(void *ctx, nb_status st, const nb_result *r, const nb_error *err)
{
    answer *a = ctx;
    a->st = st;
    (void)snprintf(a->reason, sizeof a->reason, "%s", r->finish_reason ? r->finish_reason : "");
    (void)snprintf(a->error, sizeof a->error, "%s", err ? err->msg : "");
    a->n_cached = r->n_cached;
    a->n_preempted = r->n_preempted;
    (void)pthread_mutex_lock(&lobby.lock);
    lobby.n_left--;
    (void)pthread_cond_broadcast(&lobby.changed);
    (void)pthread_mutex_unlock(&lobby.lock);
}

/* What a is told to do to itself and to others stays. */
static void submit(nb_engine *e, const question *q, answer *a, nb_request_id after)
{
    *a = (answer){ .q = q, .stop_after = a->stop_after, .e = e, .victim = a->victim };
    const nb_request rq = { .prompt = q->prompt,
                            .n_prompt = q->n,
                            .sampling = q->s,
                            .on_token = on_word,
                            .on_token_ctx = a,
                            .on_prompt = q->score ? on_prompt_word : NULL,
                            .n_prompt_top = q->score ? 1 : 0,
                            .on_done = on_end,
                            .cache_salt = q->salt,
                            .after = after };
    nb_error err = { 0 };
    nb_request_id id = 0;
    (void)pthread_mutex_lock(&lobby.lock);
    lobby.n_left++;
    (void)pthread_mutex_unlock(&lobby.lock);
    if (nb_engine_submit(e, &rq, &id, &err) != NB_OK) fail_msg("%s: %s", where, err.msg);
    a->request = id;
}

/* Until no more than n requests are on their way. */
static void wait_for(size_t n)
{
    (void)pthread_mutex_lock(&lobby.lock);
    while (lobby.n_left > n) (void)pthread_cond_wait(&lobby.changed, &lobby.lock);
    (void)pthread_mutex_unlock(&lobby.lock);
}

static void ask(nb_engine *e, const question *q, answer *a)
{
    submit(e, q, a, 0);
    wait_for(0);
}

static void same_answer(const answer *w, const answer *a, const char *how)
{
    const size_t i = (size_t)(a - got); /* of those asked together */
    if (a->st != NB_OK) fail_msg("%s, %s, request %zu: %s", where, how, i, a->error);
    for (size_t k = 0; k < w->n && k < a->n; k++) {
        if (w->id[k] != a->id[k])
            fail_msg("%s, %s, request %zu: token %zu is %u, alone it is %u", where, how, i, k,
                     (unsigned)a->id[k], (unsigned)w->id[k]);
        if (!same_floats(&w->logprob[k], &a->logprob[k], 1) ||
            memcmp(w->top[k], a->top[k], sizeof w->top[k]) != 0)
            fail_msg("%s, %s, request %zu: other log-probabilities of token %zu", where, how, i, k);
    }
    if (w->n != a->n || strcmp(w->reason, a->reason) != 0)
        fail_msg("%s, %s, request %zu: %zu tokens, \"%s\"; alone %zu, \"%s\"", where, how, i, a->n,
                 a->reason, w->n, w->reason);
    if (w->n_prompt != a->n_prompt ||
        memcmp(w->prompt_top, a->prompt_top, w->n_prompt * sizeof *w->prompt_top) != 0 ||
        !same_floats(w->prompt_logprob, a->prompt_logprob, w->n_prompt))
        fail_msg("%s, %s, request %zu: other log-probabilities of the prompt", where, how, i);
}

/* Nothing is held or broken when everybody has gone. */
static void check_engine(nb_engine *e)
{
    nb_error err = { 0 };
    nb_engine_stats s;
    if (nb_engine_check(e, &err) != NB_OK) fail_msg("%s: %s", where, err.msg);
    nb_engine_get_stats(e, &s);
    assert_int_equal(s.n_running + s.n_waiting, 0);
    assert_int_equal(s.n_block_held, 0);
    assert_int_equal(s.n_nonfinite, 0);
}

/* ---- questions ---- */

static nb_sampling sampling_of(size_t kind, size_t n_out)
{
    nb_sampling s = greedy(n_out);
    s.n_logprobs = N_TOP;
    if (kind == 0) return s;
    s.temperature = 0.9;
    s.seed = 1000 + kind;
    if (kind == 1) s.top_k = 40;
    if (kind == 2) s.top_p = 0.9;
    if (kind == 3) {
        s.repetition_penalty = 1.2;
        s.frequency_penalty = 0.3;
        s.min_p = 0.01;
    }
    return s;
}

static void make_questions(size_t n_vocab)
{
    /* tokens of a common beginning, length, tokens to generate, how */
    static const struct {
        size_t same, n, n_out, kind;
    } form[N_Q] = { { 0, 1, 20, 0 },     { 0, 40, 60, 1 },    { 63, 63, 10, 2 },
                    { 64, 64, 10, 3 },   { 65, 65, 66, 0 },   { 128, 128, 5, 1 },
                    { 128, 129, 20, 2 }, { 100, 190, 12, 0 }, { 150, 150, 45, 3 },
                    { 128, 200, 8, 0 },  { 0, 100, 40, 1 },   { 0, 30, 70, 2 },
                    { 128, 140, 6, 0 },  { 96, 97, 10, 1 } };
    uint32_t common[MODEL_LEN];
    random_ids(common, MODEL_LEN, n_vocab, 5);
    for (size_t i = 0; i < N_Q; i++) {
        question *q = &ask_of[i];
        *q = (question){ .n = form[i].n, .score = i == 12 };
        q->s = sampling_of(form[i].kind, form[i].n_out);
        random_ids(q->prompt, q->n, n_vocab, 100 + i);
        memcpy(q->prompt, common, form[i].same * sizeof *common);
    }
}

/* ---- situations ---- */

typedef struct subject {
    const char *dir, *type, *form;
    bool long_chains; /* the answer's pages are found by the next turn */
    size_t rope_switch;
    size_t sinks;     /* --kv-sinks */
    const char *skip; /* layers in the model's own type */
    const char *thrift;
    size_t snaps, snap_tok; /* layers with states: --ctx-checkpoints, --checkpoint-every-n-tokens */
} subject;

static const subject subjects[] = {
    { "tests/parity/v3", "bf16", "auto", false, 0, 0, NULL, NULL, 0, 0 },
    { "tests/parity/v3", "nvfp4", "auto", false, 0, 0, NULL, NULL, 0, 0 },
    { "tests/parity/v3", "bf16", "absorbed", true, 0, 0, NULL, NULL, 0, 0 },
    { "tests/parity/v3", "nvfp4", "absorbed", true, 0, 0, NULL, NULL, 0, 0 },
    { "tests/parity/v3", "bf16", "expanded", true, 0, 0, NULL, NULL, 0, 0 },
    { "tests/parity/v3", "nvfp4", "expanded", true, 0, 0, NULL, NULL, 0, 0 },
    { "tests/parity/llama3", "nvfp4", "auto", true, 0, 0, NULL,
      NULL, 0, 0 }, /* attention of another kind */
    { "tests/parity/minicpm3_long", "bf16", "auto", false, 96, 0, NULL,
      NULL, 0, 0 }, /* two tables of angles */
    { "tests/parity/v3", "nvfp4", "absorbed", true, 0, .sinks = 5, .skip = "1" },
    { "tests/parity/v3", "if4", "absorbed", false, 0, .skip = "0", .thrift = "block-prob" },
    { "tests/parity/v3", "nvfp4", "auto", false, 0, .sinks = 5, .thrift = "token" },
    /* layers with states: a snapshot where the prompt ends; at every block; two places for all requests */
    { "tests/parity/kimi_linear", "nvfp4", "auto", false, 0, .snaps = 100 },
    { "tests/parity/kimi_linear", "bf16", "absorbed", true, 0, .snaps = 100, .snap_tok = 64 },
    { "tests/parity/kimi_linear", "bf16", "auto", false, 0, .snaps = 2, .snap_tok = 128 },
    { "tests/parity/v32", "nvfp4", "auto", false, 0, .sinks = 5 }, /* an indexer in each layer */
    { "tests/parity/glm52", "bf16", "absorbed", true, 0, .sinks = 0 }, /* layers that share one */
    { "tests/parity/v4", "nvfp4", "auto", false, 0, .snaps = 100 },
    { "tests/parity/v4", "bf16", "auto", true, 0, .snaps = 100, .snap_tok = 64 },
    { "tests/parity/v4", "fp8", "auto", false, 0, .snaps = 2, .snap_tok = 128 },
    { "tests/parity/v4", "if4", "auto", false, 0, .snaps = 100 },
    { "tests/parity/v4", "mxfp4", "auto", false, 0, .snaps = 3, .snap_tok = 64 },
    { "tests/parity/v4", "f32", "auto", false, 0, .snaps = 100 },
};

static nb_engine_options options_of(const subject *m)
{
    return (nb_engine_options){ .model = in_source(m->dir),
                                .kv_cache_dtype = m->type,
                                .mla = m->form,
                                .kv_sinks = m->sinks,
                                .kv_skip_layers = m->skip,
                                .kv_thrift = m->thrift,
                                .kv_thrift_tau = 1e-6,
                                .kv_thrift_fraction = 0.3,
                                .n_snapshot = m->snaps,
                                .snapshot_tok = m->snap_tok,
                                .n_thread = 1,
                                .no_text = true,
                                .max_model_len = MODEL_LEN };
}

static uint64_t block_bytes; /* of the subject */

/* So few places that what is found depends on what came between. */
static bool few_snapshots(const subject *m)
{
    return m->snaps && m->snaps < N_Q;
}

static uint64_t pool_bytes(size_t n_block)
{
    return n_block * block_bytes;
}

static void expect(const subject *m)
{
    nb_engine_options o = options_of(m);
    o.no_prefix_caching = true;
    o.max_num_seqs = 1;
    nb_engine *e = make_engine(&o);
    nb_engine_info info;
    nb_engine_get_info(e, &info);
    block_bytes = info.block_bytes;
    make_questions(info.vocab);
    for (size_t i = 0; i < N_Q; i++) {
        ask(e, &ask_of[i], &want[i]);
        if (want[i].st != NB_OK) fail_msg("%s: %s", where, want[i].error);
        assert_int_equal(want[i].n, ask_of[i].s.max_tokens);
        assert_int_equal(want[i].n_cached, 0);
        assert_int_equal(want[i].n_prompt, ask_of[i].score ? ask_of[i].n : 0);
    }
    nb_engine_destroy(e);
}

/* One after the other, then again with all prompts in the cache, then after a reset. */
static void check_warm(const subject *m)
{
    nb_engine_options o = options_of(m);
    o.kv_cache_bytes = pool_bytes(64);
    nb_engine *e = make_engine(&o);
    for (size_t round = 0; round < 2; round++)
        for (size_t i = 0; i < N_Q; i++) {
            ask(e, &ask_of[i], &got[0]);
            same_answer(&want[i], &got[0], round ? "with its prefix in the cache" : "cold");
            const size_t pages = ask_of[i].score ? 0 : (ask_of[i].n - 1) / 64 * 64;
            if (round && got[0].n_cached != pages && !few_snapshots(m))
                fail_msg("%s, request %zu: %zu tokens found, expected %zu", where, i,
                         got[0].n_cached, pages);
        }
    size_t n_block = 0;
    assert_int_equal(nb_engine_reset_prefix_cache(e, &n_block), NB_OK);
    assert_true(n_block > 0);
    for (size_t i = N_Q; i-- > 0;) {
        ask(e, &ask_of[i], &got[0]);
        same_answer(&want[i], &got[0], "after a reset");
        if (i == N_Q - 1) assert_int_equal(got[0].n_cached, 0);
    }
    check_engine(e);
    nb_engine_destroy(e);
}

/* The k-th of a crowd asks this: all questions, in an order without order. */
static size_t drawn(size_t k, uint64_t seed)
{
    return (size_t)(nb_rng_u64(seed, k) % N_Q);
}

static void run_crowd(nb_engine *e, size_t n, uint64_t seed, const char *how)
{
    for (size_t k = 0; k < n; k++) submit(e, &ask_of[drawn(k, seed)], &got[k], 0);
    if (seed % 2) { /* some have ended, others have computed half of their prompt */
        wait_for(2 * n / 3);
        assert_int_equal(nb_engine_reset_prefix_cache(e, NULL), NB_OK);
    }
    wait_for(0);
    for (size_t k = 0; k < n; k++) same_answer(&want[drawn(k, seed)], &got[k], how);
}

static void check_crowd(const subject *m)
{
    nb_engine_options o = options_of(m);
    o.kv_cache_bytes = pool_bytes(100);
    o.n_thread = 2;
    nb_engine *e = make_engine(&o);
    run_crowd(e, CROWD, 1, "in a crowd");
    run_crowd(e, 16, 2, "in a crowd that knows the prompts");
    check_engine(e);
    nb_engine_destroy(e);
}

/* A pool that holds one request of full length: others are set back again and again. */
static void check_small_pool(const subject *m)
{
    nb_engine_options o = options_of(m);
    o.kv_cache_bytes = pool_bytes(MODEL_LEN / 64);
    o.max_num_seqs = 8;
    nb_engine *e = make_engine(&o);
    size_t n_preempted = 0;
    run_crowd(e, 24, 3 + (uint64_t)(m - subjects) % 2, "set back"); /* every second with a reset */
    for (size_t k = 0; k < 24; k++) n_preempted += got[k].n_preempted;
    nb_engine_stats s;
    nb_engine_get_stats(e, &s);
    assert_true(n_preempted > 0);
    assert_int_equal(s.n_preempted, n_preempted);
    assert_true(s.n_evicted > 0);
    check_engine(e);
    nb_engine_destroy(e);
}

static void check_steps(const subject *m)
{
    static const struct {
        size_t chunk, batched, share, seqs, n_thread;
    } ways[] = { { 1, 4, 1, 4, 1 },      { 7, 16, 3, 6, 3 },       { 64, 64, 64, 3, 2 },
                 { 512, 200, 65, 8, 1 }, { 256, 512, 512, 32, 3 }, { 1, 1, 1, 1, 1 } };
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        if ((w + (size_t)(m - subjects)) % 3) continue; /* each for some of the subjects */
        nb_engine_options o = options_of(m);
        o.kv_cache_bytes = pool_bytes(30);
        o.prefill_chunk = ways[w].chunk;
        o.max_num_batched_tokens = ways[w].batched;
        o.max_chunk_tok = ways[w].share;
        o.max_num_seqs = ways[w].seqs;
        o.n_thread = ways[w].n_thread;
        char how[100];
        (void)snprintf(how, sizeof how, "steps of %zu, %zu of a prompt, %zu threads",
                       ways[w].batched, ways[w].chunk, ways[w].n_thread);
        nb_engine *e = make_engine(&o);
        run_crowd(e, w == 5 ? 6 : 16, 20 + w, how);
        check_engine(e);
        nb_engine_destroy(e);
    }
}

/* Every second request is given up: by its own callback, by another's, or by us. */
static void check_cancelled_neighbours(const subject *m)
{
    nb_engine_options o = options_of(m);
    o.kv_cache_bytes = pool_bytes(9);
    o.max_num_seqs = 6;
    o.n_thread = 2;
    nb_engine *e = make_engine(&o);
    const uint64_t seed = 40;
    for (size_t k = 0; k < 40; k++) {
        got[k].stop_after = k % 4 == 1 ? 1 + (size_t)(nb_rng_u64(seed, 100 + k) % 9) : 0;
        got[k].victim = k % 8 == 4 ? got[k - 1].request : 0;
        submit(e, &ask_of[drawn(k, seed)], &got[k], 0);
    }
    for (size_t i = 0; i < 10; i++) { /* all the time, waiting ones and running ones */
        nb_engine_abort(e, got[3 + 4 * ((i * 7) % 10)].request);
        wait_for(36 - 3 * i);
    }
    wait_for(0);
    for (size_t k = 0; k < 40; k++) {
        got[k].stop_after = 0;
        got[k].victim = 0;
    }
    for (size_t k = 0; k < 40; k += 2)
        same_answer(&want[drawn(k, seed)], &got[k], "beside cancelled ones");
    for (size_t k = 1; k < 40; k += 2) { /* what they got until then is the same too */
        const answer *w = &want[drawn(k, seed)];
        assert_int_equal(got[k].st, NB_OK);
        assert_true(got[k].n <= w->n);
        assert_memory_equal(got[k].id, w->id, got[k].n * sizeof *w->id);
        assert_true(same_floats(got[k].logprob, w->logprob, got[k].n));
    }
    check_engine(e);
    nb_engine_destroy(e);
}

/* Several answers to one prompt: those after the first wait for its prompt. */
static void check_choices(const subject *m)
{
    enum { N_CHOICE = 5 };
    static answer cold[N_CHOICE];
    static question q[N_CHOICE];
    nb_engine_options o = options_of(m);
    o.no_prefix_caching = true;
    nb_engine *e = make_engine(&o);
    for (size_t i = 0; i < N_CHOICE; i++) {
        q[i] = ask_of[8];
        q[i].s.seed = 7 + i;
        ask(e, &q[i], &cold[i]);
    }
    nb_engine_destroy(e);
    for (size_t n_block = 4; n_block <= 32; n_block *= 8) {
        o = options_of(m);
        o.kv_cache_bytes = pool_bytes(n_block);
        e = make_engine(&o);
        for (size_t i = 0; i < N_CHOICE; i++) submit(e, &q[i], &got[i], i ? got[0].request : 0);
        wait_for(0);
        for (size_t i = 0; i < N_CHOICE; i++) {
            same_answer(&cold[i], &got[i], "one of several choices");
            if (i && n_block > 4 && !few_snapshots(m)) assert_int_equal(got[i].n_cached, 128);
        }
        check_engine(e);
        nb_engine_destroy(e);
    }
}

/* Until no answer waits to be computed again. */
static void wait_for_refills(nb_engine *e)
{
    nb_engine_stats s;
    for (size_t i = 0; i < 60000; i++) {
        nb_engine_get_stats(e, &s);
        if (s.n_refill_waiting == 0) return;
        (void)nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    fail_msg("%s: %zu answers wait for ever", where, s.n_refill_waiting);
}

/* A conversation: each prompt is the one before, its answer, and some more.  With answers that are
 * computed again between the turns, all of the history is found, to its last full page. */
static void check_turns(const subject *m, bool answers)
{
    static question q;
    static answer cold;
    nb_engine_options o = options_of(m), fresh = options_of(m);
    o.cache_answers = answers;
    o.max_model_len = fresh.max_model_len = MAX_PROMPT;
    fresh.no_prefix_caching = true;
    nb_engine *warm = make_engine(&o), *none = make_engine(&fresh);
    const size_t n_vocab = vocab_of(warm);
    q = ask_of[1];
    q.s = sampling_of(1, 70);
    size_t computed = 0, prompt = 0, history = 0, n_again = 0;
    for (size_t turn = 0; turn < 4; turn++) {
        ask(none, &q, &cold);
        wait_for_refills(warm);
        ask(warm, &q, &got[0]);
        same_answer(&cold, &got[0], "in a conversation");
        /* the last token of an answer was sampled, not computed; its form may be the other one */
        size_t pages = (m->long_chains ? computed : prompt) / 64 * 64;
        if (m->rope_switch && turn == 1) pages = 0; /* all angles are others now */
        if (answers) pages = history / 64 * 64;
        if (got[0].n_cached != pages && !few_snapshots(m))
            fail_msg("%s, turn %zu: %zu tokens found, expected %zu", where, turn, got[0].n_cached,
                     pages);
        prompt = q.n;
        computed = q.n + cold.n - 1;
        memcpy(q.prompt + q.n, cold.id, cold.n * sizeof *cold.id);
        q.n += cold.n;
        history = q.n;
        if (!m->long_chains) n_again += history / 64 * 64 - prompt / 64 * 64;
        random_ids(q.prompt + q.n, 15, n_vocab, 300 + turn);
        q.n += 15;
    }
    nb_engine_destroy(none);
    check_engine(warm);
    nb_engine_stats s;
    wait_for_refills(warm);
    nb_engine_get_stats(warm, &s);
    if (answers && !m->long_chains && !few_snapshots(m)) assert_int_equal(s.refill_tok, n_again);
    if (!answers) assert_int_equal(s.refill_tok + s.n_refill_done + s.n_refill_dropped, 0);
    nb_engine_destroy(warm);
}

/* Tenants do not share pages, and get the same answers. */
static void check_salts(const subject *m)
{
    static const char *const salt[] = { NULL, "a", "b", "a", "b", NULL, "" };
    static const size_t found[] = { 0, 0, 0, 128, 128, 128, 128 };
    nb_engine_options o = options_of(m);
    o.kv_cache_bytes = pool_bytes(40);
    nb_engine *e = make_engine(&o);
    for (size_t i = 0; i < sizeof salt / sizeof *salt; i++) {
        question q = ask_of[9];
        q.salt = salt[i];
        q.n = 129;
        ask(e, &q, &got[i]);
        if (i) same_answer(&got[0], &got[i], "with a salt");
        if (got[i].n_cached != found[i] && !few_snapshots(m))
            fail_msg("%s, salt %zu: %zu tokens found, expected %zu", where, i, got[i].n_cached,
                     found[i]);
    }
    check_engine(e);
    nb_engine_destroy(e);
}

/* ---- models ---- */

static void test_subject(void **state)
{
    const subject *m = *state;
    (void)snprintf(where, sizeof where, "%s, %s, mla %s%s%s", m->dir, m->type, m->form,
                   m->thrift ? ", thrift " : "", m->thrift ? m->thrift : "");
    expect(m);
    check_crowd(m);
    check_small_pool(m);
    check_steps(m);
    check_cancelled_neighbours(m);
    check_choices(m);
    if (ONE_BY_ONE_ONCE && m != subjects) return;
    check_warm(m);
    check_turns(m, false);
    check_turns(m, true);
    check_salts(m);
}

int main(void)
{
    enum { N = sizeof subjects / sizeof *subjects };
    struct CMUnitTest tests[N] = { { 0 } };
    char name[N][100];
    size_t n = 0;
    for (size_t i = 0; i < N; i += EVERY) {
        const subject *m = &subjects[i];
        char config[100];
        (void)snprintf(config, sizeof config, "%s/config.json", m->dir);
        if (!have_file(config)) {
            printf("skipped: %s is missing\n", config);
            return SKIP_EXIT;
        }
        (void)snprintf(name[n], sizeof name[n], "%s, %s, mla %s%s%s", m->dir, m->type, m->form,
                       m->thrift ? ", thrift " : "", m->thrift ? m->thrift : "");
        tests[n] = (struct CMUnitTest){ .name = name[n],
                                        .test_func = test_subject,
                                        .initial_state = (void *)(uintptr_t)m };
        n++;
    }
    return _cmocka_run_group_tests("promises", tests, n, NULL, NULL);
}
