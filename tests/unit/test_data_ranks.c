/* test_data_ranks.c - data-parallel ranks, groups of tensor-parallel ones, and ranks that divide the context: requests that run side by side on several
 * ranks have the tokens, log-probabilities, logits and page bytes of one rank; where a request goes; a rank that fails
 * ends all. */
#include "ranks_testing.h"

#include "engine/engine_internal.h"
#include "model/gpu/gpu.h"
#include "nibble/measure.h"
#include "os/clock.h"
#include "sched/sched_look.h"

enum { N_REQ = 9, MAX_PROMPT = 1200, N_TOK = 12 };
typedef enum lengths { DATA, EMULATED, CONTEXT, LONG_CONTEXT, FAR_CONTEXT } lengths;

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

static size_t n_prompt[N_REQ];

/* Lengths around pages, shorter where a GPU is emulated, around splits where a context is divided; the last request has
 * the first one's prompt, and more. */
static void make_prompts(size_t n_vocab, lengths which)
{
    static const size_t n[][N_REQ] = { [DATA] = { 150, 1, 64, 65, 200, 30, 129, 7, 170 },
                                       [EMULATED] = { 70, 1, 64, 65, 66, 3, 67, 7, 80 },
                                       [CONTEXT] = { 200, 1, 64, 65, 350, 254, 257, 7, 300 },
                                       [LONG_CONTEXT] = { 570, 1, 64, 513, 1100, 511, 256, 320, 700 },
                                       [FAR_CONTEXT] = { 70, 1, 64, 65, 66, 3, 67, 7, 80 } };
    memcpy(n_prompt, n[which], sizeof n_prompt);
    for (size_t i = 0; i < N_REQ; i++) random_ids(ids[i], n_prompt[i], n_vocab, 40 + i);
    memcpy(ids[N_REQ - 1], ids[0], n_prompt[0] * sizeof *ids[0]);
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
                                .n_prompt = n_prompt[i],
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
    bool gpu;                       /* ranks are GPUs: emulated, or those of the machine */
    bool two;                       /* not 4 ranks */
    bool eight;                     /* also 8 ranks, in groups of 2 and of 4 */
    bool roomy;                     /* the cache holds all requests, not one */
    lengths context;                /* CONTEXT or longer: ranks of --tensor-parallel-size that divide it */
} set_up;

/* n_data groups of n_tensor ranks. */
typedef struct shape {
    size_t n_data, n_tensor;
} shape;

static nb_engine *engine_of(const set_up *s, shape n, nb_status *st, nb_error *err)
{
    const nb_engine_options o = { .model = in_source(s->dir),
                                  .kv_cache_dtype = s->kv,
                                  .mla = s->mla,
                                  .weight_dtype = s->weights,
                                  .kv_sinks = s->n_sink,
                                  .no_text = true,
                                  .device = s->gpu ? "cuda" : "cpu",
                                  .cuda_library = s->gpu ? library() : NULL,
                                  .n_thread = s->n_thread ? s->n_thread : 1,
                                  .data_parallel_size = n.n_data,
                                  .tensor_parallel_size = n.n_tensor,
                                  .decode_context_parallel_size = s->context ? n.n_tensor : 1,
                                  .enable_expert_parallel = true,
                                  .max_num_batched_tokens = s->chunk ? s->chunk : 96,
                                  .max_num_seqs = 8,
                                  .max_model_len = s->context == FAR_CONTEXT ? 8704 : s->context == LONG_CONTEXT ? 1280 : 384,
                                  .kv_cache_bytes = s->roomy ? 64 << 20 : 0 };
    nb_engine *e = NULL;
    *st = nb_engine_create(&o, &e, err);
    if (e) assert_int_equal(e->ranks.n, n.n_data * n.n_tensor);
    return e;
}

static void read_block(nb_engine *e, size_t rank, size_t block, unsigned char *to)
{
    nb_device *d = &e->rank[rank].device;
    d->kind->read(d, to, e->rank[rank].kv + block * e->pages.block_bytes, e->pages.block_bytes);
}

/* Every block that a shard can find has the bytes that one rank computed for the same key, on each rank of its group.
 * Where ranks divide the context: on the one that has it.  Returns caches with blocks. */
static size_t compare_pages(const set_up *s, nb_engine *one, nb_engine *many)
{
    size_t n_used = 0, n_bytes = one->pages.block_bytes, own = many->pages.n_block / many->pages.n_part;
    bool used[NB_ENGINE_MAX_RANK] = { false };
    unsigned char *page[2] = { malloc(n_bytes), malloc(n_bytes) };
    assert_true(page[0] && page[1]);
    assert_int_equal(many->pages.block_bytes, n_bytes);
    for (size_t k = 0; k < many->n_shard; k++) {
        for (size_t b = 0; b < many->pages.n_block; b++) {
            nb_kv_block_info info;
            nb_kv_cache_block(many->shard[k].cache, (uint32_t)b, &info);
            if (!info.indexed) continue;
            const uint32_t same = nb_kv_cache_find(one->shard[0].cache, &info.key);
            if (same == NB_BLOCK_NONE) continue; /* it was evicted */
            read_block(one, 0, same, page[0]);
            const size_t from = nb_shard_rank(many, k) + (many->pages.n_part > 1 ? b / own : 0);
            const size_t end = many->pages.n_part > 1 ? from + 1 : nb_shard_rank(many, k + 1);
            for (size_t rank = from; rank < end; rank++) {
                used[many->pages.n_part > 1 ? rank : k] = true; /* caches */
                read_block(many, rank, b % own, page[1]);
                if (memcmp(page[0], page[1], n_bytes) != 0)
                    fail_msg("%s, %s: block %zu of rank %zu has other bytes", s->dir, s->kv, b, rank);
            }
        }
    }
    for (size_t k = 0; k < many->ranks.n; k++) n_used += used[k];
    free(page[0]);
    free(page[1]);
    return n_used;
}

static void compare_logits(const set_up *s, nb_engine *one, nb_engine *many)
{
    const size_t n = s->gpu ? 65 : 100, n_vocab = vocab_of(one);
    size_t row[100];
    for (size_t i = 0; i < n; i++) row[i] = i;
    float *a = logits_at(one, ids[4], n, row, n), *b = logits_at(many, ids[4], n, row, n);
    for (size_t i = 0; i < n; i++)
        if (!same_floats(a + i * n_vocab, b + i * n_vocab, n_vocab))
            fail_msg("%s, %s: logits of position %zu differ", s->dir, s->kv, i);
    free(a);
    free(b);
}

/* What may be refused, and is then by name. */
static void check_refused(const set_up *s, shape n, nb_status st, const nb_error *err)
{
    nb_model_config c;
    nb_error why = { 0 };
    assert_int_equal(st, NB_ERR_UNSUPPORTED);
    assert_int_equal(nb_model_config_read_path(in_source(s->dir), &c, NULL), NB_OK);
    if (nb_rank_can_divide(&c, n.n_tensor, &why) != NB_OK && strstr(err->msg, why.msg)) return;
    if (s->context && strstr(err->msg, "context-parallel")) return;
    if (!strstr(err->msg, "data-parallel") && !strstr(err->msg, "by one GPU only")) fail_msg("%s", err->msg);
}

/* Behind 130 pages splits have eight. */
static void compare_far(const set_up *s, nb_engine *one, nb_engine *many)
{
    enum { N = 8200, SEEN = 700, N_GEN = 6 };
    static uint32_t text[N];
    static gen g[2];
    nb_engine *const e[] = { one, many };
    random_ids(text, N, vocab_of(one), 77);
    const nb_sampling none = greedy(1), some = greedy(N_GEN);
    for (size_t i = 0; i < 2; i++) {
        nb_error err = { 0 };
        gen_reset(&g[i]);
        run_gen(e[i], text, SEEN, &none, &g[i]);
        if (nb_engine_fill(e[i], text, N, &err) != NB_OK) fail_msg("%s", err.msg);
        gen_reset(&g[i]);
        run_gen(e[i], text, N, &some, &g[i]);
    }
    if (g[0].n_seen != N_GEN || memcmp(g[0].seen, g[1].seen, N_GEN * sizeof *g[0].seen) != 0 ||
        !same_floats(g[0].logprob, g[1].logprob, N_GEN))
        fail_msg("%s, %s: other tokens behind %d", s->dir, s->kv, N);
}

static lengths lengths_of(const set_up *s)
{
    return s->context ? s->context : s->gpu && !on_machine() ? EMULATED : DATA;
}

/* 1 rank against several; of two GPUs 2.  How many shapes were compared. */
static size_t check_model(const set_up *s)
{
    static const shape data[] = { { 2, 1 }, { 4, 1 }, { 2, 2 }, { 4, 2 }, { 2, 4 } }, divided[] = { { 1, 2 }, { 1, 4 } };
    const shape *sizes = s->context ? divided : data;
    const size_t n_size = s->two || (s->gpu && on_machine()) ? 1 : s->gpu || s->context ? 2 : s->eight ? 5 : 3;
    static crowd want, got;
    nb_status st;
    nb_error err = { 0 };
    size_t n_done = 0;
    nb_engine *one = engine_of(s, (shape){ 1, 1 }, &st, &err);
    if (!one) fail_msg("%s: %s", s->dir, err.msg);
    make_prompts(vocab_of(one), lengths_of(s));
    submit_all(one, &want);
    await_all(&want);
    for (size_t i = 0; i < n_size; i++) {
        nb_engine *many = engine_of(s, sizes[i], &st, &err);
        if (!many) {
            check_refused(s, sizes[i], st, &err);
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
                fail_msg("%s, %s: request %zu has other tokens or log-probabilities on %zu x %zu ranks", s->dir,
                         s->kv, q, sizes[i].n_data, sizes[i].n_tensor);
        }
        if (s->context == LONG_CONTEXT && !s->roomy) { /* requests with blocks on both ranks that make room for others */
            nb_engine_stats stats;
            nb_engine_get_stats(many, &stats);
            assert_true(stats.n_evicted > 0);
        }
        for (size_t k = 0; s->gpu && k < sizes[i].n_data; k++) assert_true(nb_gpu_of(many->rank[k].rank)->n_graph > 0);
        const size_t used = compare_pages(s, one, many);
        if (used < 2) fail_msg("%s: %zu of %zu caches had a whole page", s->dir, used, sizes[i].n_data);
        compare_logits(s, one, many);
        if (s->context == FAR_CONTEXT) compare_far(s, one, many);
        if (nb_engine_check(many, &err) != NB_OK) fail_msg("%s", err.msg);
        nb_engine_destroy(many);
        n_done++;
    }
    nb_engine_destroy(one);
    return n_done;
}

/* Every checkpoint of tests/parity: all kinds of attention, states, weights; of GPUs what one of them computes. */
static void check_all(bool gpu)
{
    char name[MAX_MODEL][300];
    size_t n_done = 0;
    const size_t n = parity_models(name);
    for (size_t i = 0; i < n; i++) {
        const set_up s = { .dir = name[i], .kv = "nvfp4", .n_thread = 1, .gpu = gpu };
        nb_status st;
        nb_error err = { 0 };
        nb_engine *one = gpu ? engine_of(&s, (shape){ 1, 1 }, &st, &err) : NULL;
        if (gpu && !one) continue; /* it is for the CPU */
        nb_engine_destroy(one);
        n_done += check_model(&s);
    }
    assert_true(n_done >= (gpu ? n / 2 : 2 * (n - 2) + n / 2)); /* LongCat's experts and some attentions are refused */
}

static void test_all_checkpoints(void **state)
{
    (void)state;
    check_all(false);
}

/* The same of ranks that divide the context; all but latent attention is refused. */
static void test_context(void **state)
{
    (void)state;
    char name[MAX_MODEL][300];
    size_t n_done = 0;
    const size_t n = parity_models(name);
    for (size_t i = 0; i < n; i++) {
        const set_up s = { .dir = name[i], .kv = "nvfp4", .roomy = i % 2 == 0, .context = CONTEXT };
        n_done += check_model(&s);
    }
    assert_true(n_done >= 20);
}

static void test_context_ways(void **state)
{
    (void)state;
    static const set_up ways[] = {
        { .dir = "tests/parity/v3_sharded", .kv = "nvfp4", .n_thread = 1, .chunk = 96, .roomy = true, .context = LONG_CONTEXT },
        { .dir = "tests/parity/v3_sharded", .kv = "bf16", .mla = "absorbed", .n_thread = 8, .chunk = 200, .roomy = true, .context = LONG_CONTEXT },
        { .dir = "tests/parity/v3_sharded", .kv = "f32", .mla = "expanded", .weights = "int8", .chunk = 512, .roomy = true, .context = LONG_CONTEXT },
        { .dir = "tests/parity/v3_sharded", .kv = "nvfp4", .n_thread = 2, .chunk = 300, .two = true, .context = LONG_CONTEXT },
        { .dir = "tests/parity/v3_sharded", .kv = "nvfp4", .n_thread = 4, .chunk = 512, .roomy = true, .context = FAR_CONTEXT },
        { .dir = "models/nibble-tiny", .kv = "nvfp4", .n_thread = 2, .chunk = 300, .two = true, .roomy = true, .context = LONG_CONTEXT },
    };
    for (size_t i = 0; i < NB_COUNT(ways); i++)
        if (have_file("models/nibble-tiny/config.json") || !strstr(ways[i].dir, "tiny"))
            assert_int_equal(check_model(&ways[i]), ways[i].two ? 1 : 2);
}

/* In emulation they take minutes: test_gpus has some. */
static void test_all_on_gpus(void **state)
{
    (void)state;
    if (!on_machine()) skip();
    check_all(true);
}

/* Steps that hold fewer rows than the ranks have together, and records, forms, types of weights. */
static void test_ways(void **state)
{
    (void)state;
    static const set_up ways[] = {
        { .dir = "tests/parity/v3", .kv = "nvfp4", .n_thread = 4, .chunk = 9 },
        { .dir = "tests/parity/v3", .kv = "bf16", .mla = "absorbed", .n_thread = 1, .chunk = 512 },
        { .dir = "tests/parity/v3_sharded", .kv = "f32", .weights = "int8", .n_thread = 2, .n_sink = 3, .eight = true },
        { .dir = "tests/parity/v2_lite", .kv = "fp8", .mla = "expanded", .n_thread = 8, .chunk = 33 },
    };
    for (size_t i = 0; i < NB_COUNT(ways); i++) assert_int_equal(check_model(&ways[i]), ways[i].eight ? 5 : 3);
}

static void test_nibble_tiny(void **state)
{
    (void)state;
    const set_up s = { .dir = "models/nibble-tiny", .kv = "nvfp4", .n_thread = 2, .eight = true };
    if (!have_file("models/nibble-tiny/config.json")) skip();
    assert_int_equal(check_model(&s), 5);
    const set_up gpu = { .dir = "models/nibble-tiny", .kv = "nvfp4", .gpu = true, .two = true };
    if (on_machine()) assert_int_equal(check_model(&gpu), 1);
}

/* The same on GPUs: forms of attention, records, types of weights, steps that take turns, models without experts. */
static void test_gpus(void **state)
{
    (void)state;
    static const set_up ways[] = {
        { .dir = "tests/parity/v3_sharded", .kv = "nvfp4", .gpu = true },
        { .dir = "tests/parity/v3", .kv = "bf16", .mla = "absorbed", .chunk = 9, .gpu = true, .two = true },
        { .dir = "tests/parity/v3_fp8", .kv = "fp8", .chunk = 33, .gpu = true, .two = true },
        { .dir = "tests/parity/v2_lite", .kv = "nvfp4", .weights = "int8", .gpu = true, .two = true },
        { .dir = "tests/parity/llama3", .kv = "bf16", .gpu = true, .two = true },
        { .dir = "tests/parity/v4", .kv = "nvfp4", .gpu = true, .two = true },
    };
    if (!library()) skip();
    for (size_t i = 0; i < NB_COUNT(ways); i++) assert_true(check_model(&ways[i]) > 0);
}

/* ---- placement ---- */

static void test_placement(void **state)
{
    (void)state;
    const set_up s = { .dir = "tests/parity/v3_sharded", .kv = "nvfp4", .n_thread = 1 };
    static crowd c;
    nb_status st;
    nb_error err = { 0 };
    nb_engine *e = engine_of(&s, (shape){ 4, 1 }, &st, &err);
    assert_non_null(e);
    make_prompts(vocab_of(e), DATA);
    submit_all(e, &c);
    await_all(&c);
    /* nothing runs: the rank that knows the prompt has the least to do, wherever that is */
    for (size_t i = 0; i < N_REQ; i++) {
        nb_sched_request rq = { .id = 1000 + i, .prompt = ids[i], .n_prompt = n_prompt[i], .rope_from = SIZE_MAX,
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

static void check_fault(nb_rank_fault what, bool gpu, bool context, shape n, size_t rank, const char *line)
{
    const set_up s = { .dir = "tests/parity/v3_sharded", .kv = "nvfp4", .n_thread = 1, .gpu = gpu, .context = context ? CONTEXT : DATA };
    static crowd c;
    nb_status st;
    nb_error err = { 0 };
    nb_engine *e = engine_of(&s, n, &st, &err);
    assert_non_null(e);
    if (what == NB_FAULT_LOST || what == NB_FAULT_LATE) nb_comm_set_limit(e->ranks.seat[0].comm, 1.5);
    make_prompts(vocab_of(e), lengths_of(&s));
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
    static const shape shapes[] = { { 4, 1 }, { 2, 2 } };
    for (size_t i = 0; i < NB_COUNT(shapes); i++) {
        check_fault(NB_FAULT_REPORTS, false, false, shapes[i], 2, "rank 2 of 4: a failure made by a test");
        check_fault(NB_FAULT_LOST, false, false, shapes[i], 3, "rank 3 of 4: no sign of it");
        check_fault(NB_FAULT_LATE, false, false, shapes[i], 1, "rank 1 of 4: no sign of it");
        check_fault(NB_FAULT_DECISION, false, false, shapes[i], 2, "rank 2 of 4: its decisions of a step differ");
        check_fault(NB_FAULT_ROWS, false, false, shapes[i], 1, "gives");
    }
    static const shape four = { 1, 4 };
    check_fault(NB_FAULT_SPLIT, false, true, four, 2, "rank 2 of 4: it has left out a split of a context");
    check_fault(NB_FAULT_LOST, false, true, four, 3, "rank 3 of 4: no sign of it");
    check_fault(NB_FAULT_LATE, false, true, four, 1, "rank 1 of 4: no sign of it");
    check_fault(NB_FAULT_DECISION, false, true, four, 2, "rank 2 of 4: its decisions of a step differ");
}

static void test_gpu_faults(void **state)
{
    (void)state;
    if (!library()) skip();
    const shape n = { on_machine() ? 2 : 4, 1 };
    check_fault(NB_FAULT_REPORTS, true, false, n, 1, ": a failure made by a test");
    check_fault(NB_FAULT_LOST, true, false, n, 1, ": no sign of it");
    check_fault(NB_FAULT_LATE, true, false, n, 1, ": no sign of it");
    check_fault(NB_FAULT_DECISION, true, false, n, 1, ": its decisions of a step differ");
    check_fault(NB_FAULT_ROWS, true, false, n, 1, "its GPU computes something else than that of rank");
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
        { { .data_parallel_size = 3, .enable_expert_parallel = true, .tensor_parallel_size = 3 },
          NB_ERR_RANGE,
          "--data-parallel-size 3 with --tensor-parallel-size 3: 9 ranks in all, expected at most 8" },
        { { .data_parallel_size = 2, .tensor_parallel_size = 2 }, NB_ERR_UNSUPPORTED, "needs --enable-expert-parallel" },
        { { .data_parallel_size = 2, .enable_expert_parallel = true, .kv_thrift = "token" },
          NB_ERR_UNSUPPORTED,
          "--kv-thrift" },
        { { .tensor_parallel_size = 4, .decode_context_parallel_size = 2 }, NB_ERR_UNSUPPORTED, "expected 1 or 4" },
        { { .decode_context_parallel_size = 2 }, NB_ERR_UNSUPPORTED, "expected 1 or 1" },
        { { .tensor_parallel_size = 2, .decode_context_parallel_size = 2, .kv_sinks = 4 }, NB_ERR_UNSUPPORTED, "--kv-sinks 4" },
        { { .tensor_parallel_size = 2, .decode_context_parallel_size = 2, .device = "cuda" },
          NB_ERR_UNSUPPORTED,
          "--decode-context-parallel-size is not there on a GPU" },
        { { .tensor_parallel_size = 2, .decode_context_parallel_size = 2, .kv_cache_bytes = 100, .device = "cpu" },
          NB_ERR_LIMIT,
          "does not hold 8 blocks" },
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
    const set_up gpu = { .dir = "tests/parity/v3_sharded", .kv = "nvfp4", .gpu = true };
    nb_status st;
    nb_error err = { 0 };
    if (!library()) return;
    assert_null(engine_of(&gpu, (shape){ 2, 2 }, &st, &err));
    assert_int_equal(st, NB_ERR_UNSUPPORTED);
    if (!strstr(err.msg, "--tensor-parallel-size 2 with --data-parallel-size 2 is supported on the CPU only"))
        fail_msg("%s", err.msg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_placement),
        cmocka_unit_test(test_ways),      cmocka_unit_test(test_all_checkpoints),
        cmocka_unit_test(test_faults),    cmocka_unit_test(test_nibble_tiny),
        cmocka_unit_test(test_gpus),      cmocka_unit_test(test_gpu_faults),
        cmocka_unit_test(test_all_on_gpus), cmocka_unit_test(test_context),
        cmocka_unit_test(test_context_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
