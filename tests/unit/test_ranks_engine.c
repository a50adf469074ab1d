/* test_ranks_engine.c - several ranks, on the CPU or emulated GPUs, compute what one computes, bit for bit: logits, tokens, pages; and
 * when a rank fails, hangs or is told something else, requests end with the reason, and nothing waits for ever. */
#include "ranks_testing.h"

#include "engine/engine_internal.h"
#include "model/backend.h"
#include "nb_config.h"
#include "os/clock.h"

enum { N_PROMPT = 150, N_GEN = 20, N_PAGE = 4 };
static gen base_gen, this_gen; /* large: not on the stack */
static uint32_t prompt[N_PROMPT];

typedef struct set_up {
    const char *dir, *kv, *mla, *weights;
    size_t n_thread, n_sink;
    const char *caps; /* level of kernels; NULL: the best */
    bool gpu;         /* ranks are GPUs: emulated, or those of the machine; shorter texts */
    const char *path; /* of a config.json instead of dir: dummy weights */
} set_up;

static size_t n_prompt_of(const set_up *s)
{
    return s->path ? 70 : s->gpu ? 100 : N_PROMPT;
}
static size_t n_gen_of(const set_up *s)
{
    return s->gpu ? 6 : N_GEN;
}

static nb_engine_options options_of(const set_up *s, size_t n_rank)
{
    return (nb_engine_options){ .model = s->path ? s->path : in_source(s->dir),
                                .load_format = s->path ? "dummy" : NULL,
                                .kv_cache_dtype = s->kv,
                                .mla = s->mla,
                                .weight_dtype = s->weights,
                                .kv_sinks = s->n_sink,
                                .cpu_caps = s->caps,
                                .no_text = true,
                                .device = s->gpu ? "cuda" : "cpu",
                                .cuda_library = s->gpu ? library() : NULL,
                                .n_thread = s->n_thread,
                                .tensor_parallel_size = n_rank,
                                .prefill_chunk = 96,
                                .max_model_len = 384 };
}

/* What an engine computes of the prompt: its logits, a greedy continuation (in *g), and the pool after that. */
typedef struct outcome {
    float *logits;
    unsigned char *pool; /* of rank 0, copied */
    size_t n_vocab, pool_bytes;
} outcome;

static void drop(outcome *o)
{
    free(o->logits);
    free(o->pool);
}

/* The first n_bytes of a rank's pool, to be freed. */
static unsigned char *pool_of(nb_engine *e, size_t k, size_t n_bytes)
{
    nb_device *d = &e->rank[k].device;
    unsigned char *p = malloc(n_bytes);
    assert_non_null(p);
    assert_true(n_bytes <= e->pages.kv_bytes);
    d->kind->read(d, p, e->rank[k].kv, n_bytes);
    return p;
}

static void compute(const set_up *s, size_t n_rank, outcome *o, gen *g)
{
    const nb_engine_options eo = options_of(s, n_rank);
    nb_engine *e = make_engine(&eo);
    nb_engine_info info;
    nb_engine_get_info(e, &info);
    assert_int_equal(info.n_rank, n_rank);
    size_t row[N_PROMPT];
    const size_t n_prompt = n_prompt_of(s);
    const nb_sampling sampling = greedy(n_gen_of(s));
    for (size_t i = 0; i < n_prompt; i++) row[i] = i;
    o->n_vocab = info.vocab;
    random_ids(prompt, n_prompt, o->n_vocab, 21);
    o->logits = logits_at(e, prompt, n_prompt, row, n_prompt);
    gen_reset(g);
    run_gen(e, prompt, n_prompt, &sampling, g);
    o->pool_bytes = (size_t)N_PAGE * e->pages.block_bytes; /* GPUs have larger pools */
    o->pool = pool_of(e, 0, o->pool_bytes);
    for (size_t k = 1; k < n_rank; k++) {
        unsigned char *other = pool_of(e, k, o->pool_bytes);
        if (memcmp(o->pool, other, o->pool_bytes) != 0)
            fail_msg("%s, %s: the pages of rank %zu of %zu are not those of rank 0", s->dir, s->kv,
                     k, n_rank);
        free(other);
    }
    nb_engine_destroy(e);
}

static void compare(const set_up *s, size_t n_rank, const outcome *a, const outcome *b)
{
    char what[300];
    const size_t n_gen = n_gen_of(s);
    (void)snprintf(what, sizeof what, "%s, %s, mla %s, weights %s, %zu %s", s->dir, s->kv,
                   s->mla ? s->mla : "auto", s->weights ? s->weights : "auto", n_rank,
                   s->gpu ? "GPUs" : "ranks");
    for (size_t i = 0; i < n_prompt_of(s); i++)
        if (!same_floats(a->logits + i * a->n_vocab, b->logits + i * b->n_vocab, a->n_vocab))
            fail_msg("%s: logits of position %zu differ", what, i);
    if (base_gen.n_seen != n_gen || this_gen.n_seen != n_gen ||
        memcmp(base_gen.seen, this_gen.seen, n_gen * sizeof *base_gen.seen) != 0 ||
        !same_floats(base_gen.logprob, this_gen.logprob, n_gen))
        fail_msg("%s: other tokens or log-probabilities", what);
    assert_int_equal(a->pool_bytes, b->pool_bytes);
    if (memcmp(a->pool, b->pool, a->pool_bytes) != 0)
        fail_msg("%s: other bytes in the pages", what);
    bool empty = true;
    for (size_t i = 0; i < a->pool_bytes; i++) empty &= a->pool[i] == 0;
    assert_false(empty);
}

/* 1 rank against those of 2, 3, 4 and 8 that the heads allow; the others are refused. Returns how many there were. */
static size_t check_model(const set_up *s)
{
    static const size_t all[] = { 2, 3, 4, 8 }, gpus[] = { 2, 4, 8 };
    const size_t *sizes = s->gpu ? gpus : all, n_size = s->gpu ? NB_COUNT(gpus) : NB_COUNT(all);
    size_t n_done = 0;
    outcome want = { 0 };
    compute(s, 1, &want, &base_gen);
    for (size_t i = 0; i < n_size; i++) {
        const nb_engine_options o = options_of(s, sizes[i]);
        nb_model_config c;
        nb_error err = { 0 };
        assert_int_equal(nb_model_config_read_path(o.model, &c, &err), NB_OK);
        if (nb_rank_can_divide(&c, sizes[i], &err) != NB_OK) {
            nb_engine *e = NULL;
            nb_error why = { 0 };
            assert_int_equal(nb_engine_create(&o, &e, &why), NB_ERR_UNSUPPORTED);
            assert_non_null(strstr(why.msg, err.msg));
            assert_non_null(strstr(why.msg, "--tensor-parallel-size"));
            continue;
        }
        outcome got = { 0 };
        compute(s, sizes[i], &got, &this_gen);
        compare(s, sizes[i], &want, &got);
        drop(&got);
        n_done++;
    }
    drop(&want);
    return n_done;
}

/* Every checkpoint of tests/parity, in 4 bits: weights of all types and shapes that nothing divides. */
static void test_all_checkpoints(void **state)
{
    (void)state;
    char name[MAX_MODEL][300];
    size_t n_done = 0;
    const size_t n = parity_models(name);
    for (size_t i = 0; i < n; i++) {
        const set_up s = { .dir = name[i], .kv = "nvfp4", .n_thread = 1 };
        n_done += check_model(&s);
    }
    assert_true(n_done >= 2 * n);
}

/* Records, forms of attention, types of weights, threads, sinks. */
static void test_ways(void **state)
{
    (void)state;
    static const set_up ways[] = {
        { "tests/parity/v3", "f32", "absorbed", NULL, 1, 0, NULL, false, NULL },
        { "tests/parity/v3", "bf16", "expanded", NULL, 8, 0, NULL, false, NULL },
        { "tests/parity/v3", "int4", NULL, "int8", 4, 0, NULL, false, NULL },
        { "tests/parity/v3_geom", "nvfp4", "absorbed", "fp8", 2, 3, NULL, false, NULL },
        { "tests/parity/v2_lite", "fp8", NULL, "int8", 6, 5, NULL, false, NULL },
        { "tests/parity/llama3", "int4", NULL, NULL, 4, 2, NULL, false, NULL },
        { "tests/parity/qwen2", "bf16", NULL, "int8", 1, 0, NULL, false, NULL },
        { "tests/parity/v3_sharded", "nvfp4", NULL, NULL, 1, 0, "c", false, NULL },
        { "tests/parity/v3_sharded", "nvfp4", NULL, NULL, 1, 0, "avx2", false, NULL },
        { "tests/parity/v3_sharded", "nvfp4", NULL, "int8", 1, 0, "avx2", false, NULL },
        { "tests/parity/v3_fp8", "fp8", NULL, NULL, 1, 0, "avx2", false, NULL },
        { "tests/parity/v3_fp8", "fp8", NULL, NULL, 1, 0, "c", false, NULL },
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) (void)check_model(&ways[i]);
}

static void test_nibble_tiny(void **state)
{
    (void)state;
    const set_up s = { .dir = "models/nibble-tiny", .kv = "nvfp4", .n_thread = 2 };
    if (!have_file("models/nibble-tiny/config.json")) {
        print_message("no models/nibble-tiny\n");
        exit(SKIP_EXIT);
    }
    assert_int_equal(check_model(&s), 4);
    const set_up gpu = { .dir = "models/nibble-tiny", .kv = "nvfp4", .gpu = true };
    if (library()) assert_int_equal(check_model(&gpu), 3);
}

/* The same on GPUs: forms of attention, records, weights that GPUs hold otherwise. */
static void test_gpus(void **state)
{
    (void)state;
    static const set_up ways[] = {
        { .dir = "tests/parity/v3_sharded", .kv = "nvfp4", .gpu = true },
        { .dir = "tests/parity/v3_geom", .kv = "fp8", .mla = "absorbed", .gpu = true },
        { .dir = "tests/parity/v2_lite", .kv = "nvfp4", .weights = "int8", .gpu = true },
        { .dir = "tests/parity/v3", .kv = "f32", .gpu = true },
        { .dir = "tests/parity/qwen2", .kv = "int4", .gpu = true },
        { .dir = "tests/parity/llama3", .kv = "bf16", .gpu = true },
    };
    if (!library()) skip();
    for (size_t i = 0; i < NB_COUNT(ways); i++) assert_true(check_model(&ways[i]) > 0);
}

/* A config.json of one layer with experts, in FP8 with blocks of 128 rows. */
static void write_blocks(const tmp_dir *t, int hidden, int n_head, int d_nope, int d_rope, int d_v, int lora)
{
    char config[1500];
    (void)snprintf(
        config, sizeof config,
        "{\"architectures\":[\"DeepseekV3ForCausalLM\"],\"model_type\":\"deepseek_v3\",\"vocab_size\":96,"
        "\"hidden_size\":%d,\"num_hidden_layers\":1,\"num_attention_heads\":%d,\"num_key_value_heads\":%d,"
        "\"q_lora_rank\":128,\"kv_lora_rank\":%d,\"qk_nope_head_dim\":%d,\"qk_rope_head_dim\":%d,"
        "\"v_head_dim\":%d,\"intermediate_size\":128,\"first_k_dense_replace\":0,\"moe_intermediate_size\":128,"
        "\"n_routed_experts\":8,\"num_experts_per_tok\":2,\"n_shared_experts\":%d,\"n_group\":2,"
        "\"topk_group\":1,\"routed_scaling_factor\":2.5,\"norm_topk_prob\":true,\"scoring_func\":\"sigmoid\","
        "\"topk_method\":\"noaux_tc\",\"rope_theta\":10000,\"max_position_embeddings\":512,"
        "\"rms_norm_eps\":1e-6,\"tie_word_embeddings\":false,\"quantization_config\":{\"quant_method\":\"fp8\","
        "\"fmt\":\"e4m3\",\"activation_scheme\":\"dynamic\",\"weight_block_size\":[128,128]}}",
        hidden, n_head, n_head, lora, d_nope, d_rope, d_v, hidden / 128);
    tmp_write(t, "config.json", nb_str_c(config));
}

/* A part of FP8 with blocks begins with a block on a GPU, so heads are cut at whole blocks. */
static void test_gpu_blocks(void **state)
{
    (void)state;
    if (!library()) skip();
    tmp_dir t;
    tmp_open(&t);
    const set_up s = { .dir = "FP8 in blocks", .kv = "nvfp4", .gpu = true, .path = t.path };
    static const size_t sizes[] = { 2, 4 };
    outcome one = { 0 }, some = { 0 };
    /* DeepSeek-V3's heads, of 192 rows: 10 of them are 5 units of 2, so 4 ranks have 2, 2, 2 and 4 */
    write_blocks(&t, 512, 10, 128, 64, 128, 512);
    compute(&s, 1, &one, &base_gen);
    for (size_t i = 0; i < NB_COUNT(sizes); i++) {
        compute(&s, sizes[i], &some, &this_gen);
        compare(&s, sizes[i], &one, &some);
        drop(&some);
    }
    drop(&one);
    nb_engine *e = NULL;
    nb_error err = { 0 };
    const nb_engine_options o = options_of(&s, 8);
    assert_int_equal(nb_engine_create(&o, &e, &err), NB_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "a multiple of 2 heads; 10 heads are too few for 8 ranks"));
    write_blocks(&t, 1024, 16, 32, 32, 32, 128);
    compute(&s, 1, &one, &base_gen);
    compute(&s, 8, &some, &this_gen);
    compare(&s, 8, &one, &some);
    drop(&one);
    drop(&some);
    tmp_close(&t);
}

/* The comparison finds one bit. */
static void test_planted(void **state)
{
    (void)state;
    const set_up s = { .dir = "tests/parity/v3_sharded", .kv = "nvfp4", .n_thread = 1 };
    outcome a = { 0 }, b = { 0 };
    compute(&s, 1, &a, &base_gen);
    compute(&s, 2, &b, &this_gen);
    compare(&s, 2, &a, &b);
    union {
        float f;
        uint32_t u;
    } bit = { b.logits[77] };
    bit.u ^= 1;
    b.logits[77] = bit.f;
    assert_false(same_floats(a.logits, b.logits, a.n_vocab));
    drop(&a);
    drop(&b);
}

/* Parts are disjoint and whole. */
static void test_cuts(void **state)
{
    (void)state;
    static const size_t n[] = { 0, 1, 5, 16, 17, 72, 128, 1408, 7168, 129280, 163840 };
    for (size_t i = 0; i < sizeof n / sizeof *n; i++)
        for (size_t n_rank = 1; n_rank <= 8; n_rank++) {
            size_t at = 0, first;
            for (size_t k = 0; k < n_rank; k++) {
                const size_t len = nb_rank_cut(n[i], NB_RANK_UNIT, n_rank, k, &first);
                assert_int_equal(first, at);
                if (n[i] >= 16 * n_rank) assert_int_equal(first % 16, 0);
                if (n[i] >= n_rank) assert_true(len > 0);
                at += len;
            }
            assert_int_equal(at, n[i]);
        }
}

/* ---- refused ---- */

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        nb_engine_options o;
        nb_status st;
        const char *line;
    } bad[] = {
        { { .tensor_parallel_size = 9 }, NB_ERR_RANGE, "expected 1 to 8" },
        { { .tensor_parallel_size = 8 }, NB_ERR_UNSUPPORTED, "4 heads, fewer than 8 ranks" },
        { { .tensor_parallel_size = 2, .kv_thrift = "token" }, NB_ERR_UNSUPPORTED, "--kv-thrift" },
        { { .device = "cuda:0,1" }, NB_ERR_ARG, "has 2 GPUs for 1 rank" },
        { { .tensor_parallel_size = 2, .device = "cuda:0,1,2" }, NB_ERR_ARG, "has 3 GPUs for 2 ranks" },
        { { .tensor_parallel_size = 2, .device = "cuda:0,," }, NB_ERR_ARG, "expected auto, cpu, cuda" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        nb_engine_options o = bad[i].o;
        nb_engine *e = NULL;
        nb_error err = { 0 };
        o.model = in_source("tests/parity/v3_sharded");
        o.no_text = true;
        assert_int_equal(nb_engine_create(&o, &e, &err), bad[i].st);
        if (!strstr(err.msg, bad[i].line))
            fail_msg("\"%s\", expected \"%s\"", err.msg, bad[i].line);
    }
}

/* ---- a rank that fails ---- */

typedef struct ended {
    nb_mutex *lock;
    nb_cond *one;
    size_t n_done, n_failed, n_tokens;
    char msg[NB_ERROR_MSG_BYTES];
} ended;

static void on_done(void *ctx, nb_status st, const nb_result *r, const nb_error *err)
{
    ended *d = ctx;
    nb_mutex_lock(d->lock);
    d->n_done++;
    if (st == NB_ERR_FAILED) d->n_failed++;
    if (err) (void)snprintf(d->msg, sizeof d->msg, "%s", err->msg);
    nb_cond_signal(d->one);
    nb_mutex_unlock(d->lock);
    (void)r;
}

static int count_token(void *ctx, const nb_token_event *ev)
{
    (void)ev;
    ended *d = ctx;
    nb_mutex_lock(d->lock);
    d->n_tokens++;
    nb_cond_signal(d->one);
    nb_mutex_unlock(d->lock);
    return 0;
}

/* A rank does wrong while four requests run: all end with the reason, and new ones are refused. */
static void check_fault(nb_rank_fault what, bool logits, bool gpu, size_t rank, const char *line)
{
    enum { N = 4 };
    const set_up s = { .dir = "tests/parity/v3_sharded", .kv = "nvfp4", .n_thread = 1, .gpu = gpu };
    nb_engine_options o = options_of(&s, 4);
    o.kv_cache_bytes = 4 << 20;
    nb_engine *e = make_engine(&o);
    if (what == NB_FAULT_LOST || what == NB_FAULT_LATE)
        nb_comm_set_limit(e->ranks.seat[0].comm, 1.5); /* no step has begun */
    ended d = { 0 };
    assert_int_equal(nb_mutex_create(&d.lock), NB_OK);
    assert_int_equal(nb_cond_create(&d.one), NB_OK);
    random_ids(prompt, N_PROMPT, vocab_of(e), 5);
    for (size_t i = 0; i < N; i++) {
        const nb_request rq = { .prompt = prompt + i,
                                .n_prompt = 40,
                                .sampling = greedy(300),
                                .on_token = count_token,
                                .on_token_ctx = &d,
                                .on_done = on_done };
        nb_request_id id;
        nb_error err = { 0 };
        if (nb_engine_submit(e, &rq, &id, &err) != NB_OK) fail_msg("%s", err.msg);
    }
    nb_mutex_lock(d.lock);
    while (d.n_tokens < 20 && d.n_done < N) nb_cond_wait(d.one, d.lock);
    nb_mutex_unlock(d.lock);
    const double t0 = nb_clock_s();
    nb_mutex_lock(e->ranks.lock);
    e->ranks.fault.rank = rank;
    e->ranks.fault.late_ms = 4000;
    e->ranks.fault.logits = logits;
    e->ranks.fault.what = what;
    nb_mutex_unlock(e->ranks.lock);
    nb_mutex_lock(d.lock);
    while (d.n_done < N) nb_cond_wait(d.one, d.lock);
    nb_mutex_unlock(d.lock);
    const double took = nb_clock_s() - t0;
    if (d.n_failed != N) fail_msg("fault %d: %zu of %d requests failed", (int)what, d.n_failed, N);
    if (!strstr(d.msg, line)) fail_msg("fault %d: \"%s\", expected \"%s\"", (int)what, d.msg, line);
    if (took > 60)
        fail_msg("fault %d: it took %.1f s", (int)what, took); /* not for ever: no rate is meant */
    nb_error err = { 0 };
    const nb_sampling sampling = greedy(4);
    gen_reset(&this_gen);
    assert_int_equal(try_run(e, prompt, 10, &sampling, &this_gen, &err), NB_ERR_FAILED);
    if (!strstr(err.msg, line)) fail_msg("fault %d, afterwards: \"%s\"", (int)what, err.msg);
    nb_engine_destroy(e);
    nb_cond_destroy(d.one);
    nb_mutex_destroy(d.lock);
}

static void test_faults(void **state)
{
    (void)state;
    for (int logits = 0; logits < 2; logits++) {
        check_fault(NB_FAULT_REPORTS, logits, false, 2, "rank 2 of 4: a failure made by a test");
        check_fault(NB_FAULT_LOST, logits, false, 3, "rank 3 of 4: no sign of it");
        check_fault(NB_FAULT_LATE, logits, false, 1, "rank 1 of 4: no sign of it");
    }
    check_fault(NB_FAULT_DECISION, false, false, 2, "rank 2 of 4: its decisions of a step differ");
}

static void test_gpu_faults(void **state)
{
    (void)state;
    if (!library()) skip();
    check_fault(NB_FAULT_REPORTS, false, true, 2, "rank 2 of 4: a failure made by a test");
    check_fault(NB_FAULT_LOST, false, true, 3, "rank 3 of 4: no sign of it");
    check_fault(NB_FAULT_LATE, true, true, 1, "rank 1 of 4: no sign of it");
    check_fault(NB_FAULT_ROWS, false, true, 2, "of 4: its GPU computes something else than that of rank");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts),        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_planted),     cmocka_unit_test(test_all_checkpoints),
        cmocka_unit_test(test_ways),        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_nibble_tiny), cmocka_unit_test(test_gpus),
        cmocka_unit_test(test_gpu_faults),  cmocka_unit_test(test_gpu_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
