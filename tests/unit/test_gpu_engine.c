/* test_gpu_engine.c - the engine on a GPU, here with the kernels emulated (NB_CUDA_EMU_LIBRARY), or on
 * the one of the machine (NB_TEST_CUDA): the tokens of the CPU; the same bits whatever the steps and the
 * crowd; answers found by the next turn; tokens drawn on the device; what is refused; a device that fails. */
#include "load_testing.h"

#include "engine_testing.h"

#include <math.h>
#include <time.h>

#include "engine/engine_internal.h"

enum { N_PROMPT = 150, N_GEN = 12, N_CROWD = 4 };
#if defined(__SANITIZE_ADDRESS__)
enum { STRIDE = 3 }; /* a latent model and one with grouped heads, greedy and drawn */
#else
enum { STRIDE = 1 };
#endif

static gen one, two;
static uint32_t prompt[N_PROMPT];

static const char *library(void)
{
    const char *s = getenv("NB_TEST_CUDA");
    if (!s || !*s) s = getenv("NB_CUDA_EMU_LIBRARY");
    return s && *s ? s : NULL;
}

static nb_engine_options options_of(const char *dir, const char *kv, const char *mla)
{
    return (nb_engine_options){ .model = in_source(dir),
                                .device = "cuda",
                                .cuda_library = library(),
                                .kv_cache_dtype = kv,
                                .mla = mla,
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

static void generate(const nb_engine_options *o, const nb_sampling *s, gen *g)
{
    nb_engine *e = open_with(o);
    random_ids(prompt, N_PROMPT, vocab_of(e), 5);
    gen_reset(g);
    run_gen(e, prompt, N_PROMPT, s, g);
    nb_engine_destroy(e);
}

static void same_gen(const gen *a, const gen *b, const char *what)
{
    if (a->n_seen != b->n_seen || memcmp(a->seen, b->seen, a->n_seen * sizeof *a->seen) != 0)
        fail_msg("%s: other tokens", what);
    if (memcmp(a->logprob, b->logprob, a->n_seen * sizeof *a->logprob) != 0)
        fail_msg("%s: the same tokens, other log-probabilities", what);
}

static const struct {
    const char *dir, *kv, *mla;
} models[] = {
    { "tests/parity/v2_lite", "nvfp4", "auto" },
    { "tests/parity/v3_fp8", "fp8", "absorbed" },
    { "tests/parity/longcat_flash", "nvfp4", "absorbed" },
    { "tests/parity/v3_f32", "f32", "absorbed" },
    { "tests/parity/llama3", "if4", "auto" },
};

static void test_tokens_of_the_cpu(void **state)
{
    (void)state;
    if (!library()) skip();
    const nb_sampling s = greedy(N_GEN);
    for (size_t i = 0; i < NB_COUNT(models); i += STRIDE) {
        nb_engine_options o = options_of(models[i].dir, models[i].kv, models[i].mla);
        o.activation_dtype = "float"; /* prompts of a GPU may round them */
        generate(&o, &s, &one);
        o.device = "cpu";
        generate(&o, &s, &two);
        if (one.n_seen != N_GEN || memcmp(one.seen, two.seen, sizeof *one.seen * N_GEN) != 0)
            fail_msg("%s, %s: the GPU's tokens are not the CPU's", models[i].dir, models[i].kv);
    }
}

/* Heads of 128 values: W_UK and W_UV keep the FP8 blocks of kv_b. */
static void test_absorbed_forms_in_fp8_blocks(void **state)
{
    static const char config[] =
        "{\"model_type\":\"deepseek_v3\",\"vocab_size\":320,\"hidden_size\":256,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":2,\"num_key_value_heads\":2,\"q_lora_rank\":128,\"kv_lora_rank\":256,"
        "\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"v_head_dim\":128,\"intermediate_size\":256,"
        "\"first_k_dense_replace\":2,\"moe_intermediate_size\":64,\"n_routed_experts\":4,"
        "\"num_experts_per_tok\":2,\"n_shared_experts\":1,\"n_group\":1,\"topk_group\":1,"
        "\"routed_scaling_factor\":1,\"norm_topk_prob\":true,\"scoring_func\":\"sigmoid\","
        "\"topk_method\":\"noaux_tc\",\"rope_theta\":10000,\"max_position_embeddings\":256,"
        "\"rms_norm_eps\":1e-6,\"tie_word_embeddings\":false,\"quantization_config\":{\"quant_method\":"
        "\"fp8\",\"fmt\":\"e4m3\",\"activation_scheme\":\"dynamic\",\"weight_block_size\":[128,128]}}";
    (void)state;
    if (!library()) skip();
    tmp_dir t;
    tmp_open(&t);
    tmp_write(&t, "config.json", nb_str_c(config));
    nb_engine_options o = options_of("", "f32", "absorbed");
    o.model = t.path;
    o.load_format = "dummy";
    o.activation_dtype = "float";
    const nb_sampling s = greedy(N_GEN);
    generate(&o, &s, &one);
    o.device = "cpu";
    generate(&o, &s, &two);
    assert_int_equal(one.n_seen, N_GEN);
    assert_memory_equal(one.seen, two.seen, sizeof *one.seen * N_GEN);
    for (size_t i = 0; i < N_GEN; i++)
        if (fabsf(one.logprob[i] - two.logprob[i]) > 1e-4f)
            fail_msg("token %zu: log-probability %g, on the CPU %g", i, (double)one.logprob[i], (double)two.logprob[i]);
    tmp_close(&t);
}

static void test_sizes_of_steps(void **state)
{
    static const size_t chunk[] = { 150, 7 };
    (void)state;
    if (!library()) skip();
    nb_sampling s = greedy(N_GEN);
    s.temperature = 0.8;
    s.seed = 3;
    s.n_logprobs = 0;
    for (size_t i = 0; i < NB_COUNT(models); i += STRIDE) {
        if (!strcmp(models[i].kv, "f32")) continue;
        nb_engine_options o = options_of(models[i].dir, models[i].kv, models[i].mla);
        generate(&o, &s, &one);
        for (size_t k = 0; k < NB_COUNT(chunk); k++) {
            o.prefill_chunk = chunk[k];
            generate(&o, &s, &two);
            same_gen(&one, &two, models[i].dir);
        }
    }
}

/* ---- a crowd ---- */

typedef struct crowd {
    nb_mutex *lock;
    nb_cond *wake;
    size_t n_done;
    nb_status st;
} crowd;

static void on_done(void *ctx, nb_status st, const nb_result *r, const nb_error *err)
{
    crowd *c = ctx;
    (void)r, (void)err;
    nb_mutex_lock(c->lock);
    c->n_done++;
    if (st != NB_OK) c->st = st;
    nb_cond_broadcast(c->wake);
    nb_mutex_unlock(c->lock);
}

/* Its own context: callbacks of a request get one pointer. */
typedef struct member {
    gen g;
    crowd *c;
} member;
static member in_crowd[N_CROWD];

static int member_token(void *ctx, const nb_token_event *ev)
{
    member *m = ctx;
    return on_token(&m->g, ev);
}
static void member_done(void *ctx, nb_status st, const nb_result *r, const nb_error *err)
{
    on_done(((member *)ctx)->c, st, r, err);
}

static void check_crowd(nb_engine_options o)
{
    crowd c = { .st = NB_OK };
    assert_int_equal(nb_mutex_create(&c.lock), NB_OK);
    assert_int_equal(nb_cond_create(&c.wake), NB_OK);
    o.kv_cache_bytes = 16 << 20;
    o.max_num_seqs = N_CROWD;
    nb_sampling s = greedy(N_GEN);
    s.temperature = 0.8;
    nb_engine *e = open_with(&o);
    random_ids(prompt, N_PROMPT, vocab_of(e), 5);
    for (size_t i = 0; i < N_CROWD; i++) {
        nb_error err = { 0 };
        nb_request_id id;
        gen_reset(&in_crowd[i].g);
        in_crowd[i].c = &c;
        s.seed = i;
        s.n_logprobs = i % 2 ? 0 : -1; /* rows drawn on the device among others */
        const nb_request rq = { .prompt = prompt + i,
                                .n_prompt = N_PROMPT - 20 * i,
                                .sampling = s,
                                .on_token = member_token,
                                .on_token_ctx = &in_crowd[i],
                                .on_done = member_done };
        if (nb_engine_submit(e, &rq, &id, &err) != NB_OK) fail_msg("%s", err.msg);
    }
    nb_mutex_lock(c.lock);
    while (c.n_done < N_CROWD) nb_cond_wait(c.wake, c.lock);
    nb_mutex_unlock(c.lock);
    assert_int_equal(c.st, NB_OK);
    nb_engine_destroy(e);
    for (size_t i = 0; i < N_CROWD; i++) {
        e = open_with(&o);
        s.seed = i;
        s.n_logprobs = i % 2 ? 0 : -1;
        gen_reset(&one);
        run_gen(e, prompt + i, N_PROMPT - 20 * i, &s, &one);
        nb_engine_destroy(e);
        same_gen(&one, &in_crowd[i].g, "in a crowd");
    }
    nb_cond_destroy(c.wake);
    nb_mutex_destroy(c.lock);
}

static void test_alone_and_in_a_crowd(void **state)
{
    (void)state;
    if (!library()) skip();
    check_crowd(options_of("tests/parity/v2_lite", "nvfp4", "auto"));
}

static void check_hit(nb_engine_options o)
{
    o.kv_cache_bytes = 16 << 20;
    nb_sampling s = greedy(N_GEN);
    s.n_logprobs = 0;
    nb_engine *e = open_with(&o);
    random_ids(prompt, N_PROMPT, vocab_of(e), 5);
    gen_reset(&one);
    run_gen(e, prompt, N_PROMPT, &s, &one);
    gen_reset(&two);
    run_gen(e, prompt, N_PROMPT, &s, &two);
    assert_int_equal(one.r.n_cached, 0);
    assert_int_equal(two.r.n_cached, N_PROMPT / 64 * 64);
    same_gen(&one, &two, "a hit");
    nb_engine_destroy(e);
}

/* A prefix from the cache changes nothing. */
static void test_hit_is_miss(void **state)
{
    (void)state;
    if (!library()) skip();
    nb_engine_options o = options_of("tests/parity/v3_geom", "nvfp4", "absorbed");
    o.activation_dtype = "bf16";
    check_hit(o);
    o.kv_cache_dtype = "fp8";
    o.activation_dtype = "float";
    if (STRIDE == 1) check_hit(o);
}

/* ---- sparse attention ---- */

/* Three layers, the last without an indexer of its own, which choose topk tokens. */
static nb_engine_options sparse_model(const tmp_dir *t, size_t topk, const char *kv, const char *mla)
{
    char config[1024];
    (void)snprintf(config, sizeof config,
                   "{\"model_type\":\"glm_moe_dsa\",\"vocab_size\":320,\"hidden_size\":128,\"num_hidden_layers\":3,"
                   "\"num_attention_heads\":4,\"num_key_value_heads\":4,\"q_lora_rank\":64,\"kv_lora_rank\":96,"
                   "\"qk_nope_head_dim\":32,\"qk_rope_head_dim\":16,\"v_head_dim\":24,\"intermediate_size\":128,"
                   "\"first_k_dense_replace\":3,\"moe_intermediate_size\":64,\"n_routed_experts\":4,"
                   "\"num_experts_per_tok\":2,\"n_shared_experts\":1,\"n_group\":1,\"topk_group\":1,"
                   "\"index_n_heads\":5,\"index_head_dim\":64,\"index_topk\":%zu,\"index_topk_pattern\":\"FFS\","
                   "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":10000},"
                   "\"max_position_embeddings\":256,\"rms_norm_eps\":1e-6,\"tie_word_embeddings\":false}",
                   topk);
    tmp_write(t, "config.json", nb_str_c(config));
    nb_engine_options o = options_of("", kv, mla);
    o.model = t->path;
    o.load_format = "dummy";
    return o;
}

/* The GPU's tokens and log-probabilities are the CPU's; the cache rounds nothing, so that both choose the same. */
static void check_sparse_cpu(const tmp_dir *t, size_t topk, const char *mla)
{
    nb_sampling s = greedy(N_GEN);
    s.n_logprobs = 0;
    nb_engine_options o = sparse_model(t, topk, "f32", mla);
    o.activation_dtype = "float";
    generate(&o, &s, &one);
    o.device = "cpu";
    generate(&o, &s, &two);
    assert_int_equal(one.n_seen, N_GEN);
    assert_memory_equal(one.seen, two.seen, sizeof *one.seen * N_GEN);
    for (size_t i = 0; i < N_GEN; i++)
        if (fabsf(one.logprob[i] - two.logprob[i]) > 1e-4f)
            fail_msg("top %zu, %s, token %zu: log-probability %g, on the CPU %g", topk, mla, i, (double)one.logprob[i],
                     (double)two.logprob[i]);
}

static void test_sparse_attention(void **state)
{
    static const size_t chunk[] = { 150, 7 };
    (void)state;
    if (!library()) skip();
    tmp_dir t;
    tmp_open(&t);
    check_sparse_cpu(&t, 136, "auto");
    check_sparse_cpu(&t, 70, "absorbed");
    nb_sampling s = greedy(N_GEN);
    s.n_logprobs = 0;
    nb_engine_options o = sparse_model(&t, 70, "nvfp4", "auto");
    generate(&o, &s, &one);
    for (size_t k = 0; k < NB_COUNT(chunk); k++) {
        o.prefill_chunk = chunk[k];
        generate(&o, &s, &two);
        same_gen(&one, &two, "sparse attention, other steps");
    }
    check_crowd(sparse_model(&t, 100, "nvfp4", "auto"));
    check_hit(sparse_model(&t, 70, "fp8", "absorbed"));
    tmp_close(&t);
}

/* ---- compressed attention, several residual streams ---- */

/* Layers of all three kinds with rows of dim values; in f32 with dim 32, the definition in floats. */
static nb_engine_options compressed_model(const tmp_dir *t, size_t dim, const char *kv)
{
    char config[1536];
    (void)snprintf(config, sizeof config,
                   "{\"model_type\":\"deepseek_v4\",\"vocab_size\":320,\"hidden_size\":128,\"num_hidden_layers\":4,"
                   "\"num_attention_heads\":4,\"head_dim\":%zu,\"qk_rope_head_dim\":%zu,\"q_lora_rank\":64,\"o_groups\":2,"
                   "\"o_lora_rank\":64,\"index_n_heads\":5,\"index_head_dim\":64,\"index_topk\":24,\"n_routed_experts\":8,"
                   "\"num_experts_per_tok\":2,\"moe_intermediate_size\":64,\"num_hash_layers\":2,\"hc_mult\":4,"
                   "\"hc_sinkhorn_iters\":20,\"swiglu_limit\":1.5,\"sliding_window\":70,\"compress_ratios\":[4,0,128,4,0],"
                   "\"rope_theta\":10000,\"compress_rope_theta\":160000,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":16,"
                   "\"original_max_position_embeddings\":256,\"beta_fast\":32,\"beta_slow\":1},"
                   "\"max_position_embeddings\":512,\"rms_norm_eps\":1e-6,\"tie_word_embeddings\":false}",
                   dim, dim / 8);
    tmp_write(t, "config.json", nb_str_c(config));
    nb_engine_options o = options_of("", kv, "auto");
    o.model = t->path;
    o.load_format = "dummy";
    o.snapshot_tok = 64;
    return o;
}

static void test_compressed_on_the_cpu_too(void **state)
{
    static const size_t dims[] = { 32, 512 };
    (void)state;
    if (!library()) skip();
    tmp_dir t;
    tmp_open(&t);
    nb_sampling s = greedy(N_GEN);
    s.n_logprobs = 0;
    for (size_t i = 0; i < NB_COUNT(dims); i++) {
        nb_engine_options o = compressed_model(&t, dims[i], "f32");
        o.activation_dtype = "float";
        generate(&o, &s, &one);
        o.device = "cpu";
        generate(&o, &s, &two);
        assert_int_equal(one.n_seen, N_GEN);
        for (size_t k = 0; k < N_GEN; k++)
            if (one.seen[k] != two.seen[k] || fabsf(one.logprob[k] - two.logprob[k]) > 2e-4f)
                fail_msg("rows of %zu, token %zu: %u with %g, on the CPU %u with %g", dims[i], k, one.seen[k],
                         (double)one.logprob[k], two.seen[k], (double)two.logprob[k]);
    }
    tmp_close(&t);
}

/* Sizes of steps, a crowd, a hit behind a snapshot. */
static void test_compressed_attention(void **state)
{
    static const size_t chunk[] = { 150, 7 };
    (void)state;
    if (!library()) skip();
    tmp_dir t;
    tmp_open(&t);
    nb_sampling s = greedy(N_GEN);
    s.n_logprobs = 0;
    nb_engine_options o = compressed_model(&t, 512, "nvfp4");
    generate(&o, &s, &one);
    for (size_t k = 0; k < NB_COUNT(chunk); k++) {
        o.prefill_chunk = chunk[k];
        generate(&o, &s, &two);
        same_gen(&one, &two, "compressed attention, other steps");
    }
    o = compressed_model(&t, 64, "fp8");
    o.prefill_chunk = 33;
    check_crowd(o);
    check_hit(compressed_model(&t, 64, "nvfp4"));
    tmp_close(&t);
}

static void test_sparse_attention_refused(void **state)
{
    (void)state;
    if (!library()) skip();
    tmp_dir t;
    tmp_open(&t);
    nb_engine *e = NULL;
    nb_error err = { 0 };
    const nb_engine_options o = sparse_model(&t, 70, "int4", "auto");
    assert_int_equal(nb_engine_create(&o, &e, &err), NB_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "int4"));
    tmp_close(&t);
}

/* A conversation whose answers are computed again between its turns: the next turn finds them, and what
 * it answers is what an engine without a prefix cache answers. */
static void check_turns(const char *dir, const char *kv, size_t n_turn)
{
    enum { ASK = 20, SAY = 60 };
    static uint32_t text[256];
    nb_engine_options o = options_of(dir, kv, "auto"), fresh = o;
    o.cache_answers = true;
    fresh.no_prefix_caching = true;
    const nb_sampling s = greedy(SAY);
    nb_engine *warm = open_with(&o), *none = open_with(&fresh);
    size_t n = 0, history = 0;
    for (size_t turn = 0; turn < n_turn; turn++) {
        random_ids(text + n, ASK, vocab_of(warm), 40 + turn);
        n += ASK;
        gen_reset(&one);
        run_gen(none, text, n, &s, &one);
        gen_reset(&two);
        run_gen(warm, text, n, &s, &two);
        same_gen(&one, &two, kv);
        assert_int_equal(two.r.n_cached, history / 64 * 64);
        memcpy(text + n, two.seen, SAY * sizeof *text);
        n = history = n + SAY;
        nb_engine_stats st;
        do nb_engine_get_stats(warm, &st);
        while (st.n_refill_waiting && nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL) == 0);
        assert_int_equal(st.n_refill_dropped, 0);
    }
    nb_engine_destroy(none);
    nb_engine_destroy(warm);
}

static void test_answers_are_found(void **state)
{
    (void)state;
    if (!library()) skip();
    check_turns("tests/parity/v2_lite", "nvfp4", 3);
    if (STRIDE == 1) check_turns("tests/parity/v2_lite", "fp8", 2);
}

/* The device draws what the host draws from the same logits. */
static void test_drawn_on_the_device(void **state)
{
    static const struct {
        double t, top_p, min_p;
        size_t top_k;
    } ways[] = { { 0, 1, 0, 0 }, { 1, 1, 0, 0 }, { 0.7, 0.9, 0, 0 }, { 1.3, 1, 0.05, 40 } };
    (void)state;
    if (!library()) skip();
    const nb_engine_options o = options_of("tests/parity/v2_lite", "bf16", "auto");
    for (size_t i = 0; i < NB_COUNT(ways); i += STRIDE) {
        nb_sampling s = greedy(N_GEN);
        s.temperature = ways[i].t;
        s.top_p = ways[i].top_p;
        s.min_p = ways[i].min_p;
        s.top_k = ways[i].top_k;
        s.seed = 11 + i;
        generate(&o, &s, &one);
        s.n_logprobs = 0;
        generate(&o, &s, &two);
        assert_memory_equal(one.seen, two.seen, N_GEN * sizeof *one.seen);
    }
}

/* ---- what is refused, and failures ---- */

static void refused(const nb_engine_options *o, const char *part)
{
    nb_engine *e = NULL;
    nb_error err = { 0 };
    if (nb_engine_create(o, &e, &err) == NB_OK) fail_msg("accepted: %s", part);
    if (!strstr(err.msg, part)) fail_msg("`%s` does not say `%s`", err.msg, part);
}

/* What products make of activations: generated tokens, prompts. */
static void check_acts(void)
{
    nb_engine_options all = options_of("tests/parity/v3_geom", "nvfp4", "auto"), *o = &all;
    static const char *const acts[][3] = { { NULL, "linear=mma ", "linear_prompt=mma_prompt+bf16 " },
                                           { "float", "linear=mma ", "linear_prompt=mma_prompt " },
                                           { "bf16", "linear=mma+bf16 ",
                                             "linear_prompt=mma_prompt+bf16 " } };
    nb_engine_info info;
    for (size_t i = 0; i < NB_COUNT(acts); i++) {
        o->activation_dtype = acts[i][0];
        nb_engine *e = open_with(o);
        nb_engine_get_info(e, &info);
        for (size_t k = 1; k < 3; k++)
            if (!strstr(info.kernels, acts[i][k])) fail_msg("%s: no %s", info.kernels, acts[i][k]);
        nb_engine_destroy(e);
    }
    o->activation_dtype = "int16";
    refused(o, "--activation-dtype int16 is not there on a GPU");
    o->activation_dtype = "fp8";
    refused(o, "has no product in FP8");
}

static void test_refused(void **state)
{
    (void)state;
    if (!library()) skip();
    check_acts();
    nb_engine_options o = options_of("tests/parity/v2_lite", "nvfp4", "auto");
    o.kv_sinks = 4;
    refused(&o, "--kv-sinks is not there on a GPU");
    o.kv_sinks = 0;
    o.kv_thrift = "quest";
    refused(&o, "--kv-thrift quest is not there on a GPU");
    o.device = "auto"; /* then it is computed elsewhere */
    nb_engine *e = open_with(&o);
    nb_engine_info info;
    nb_engine_get_info(e, &info);
    assert_string_equal(info.device, "cpu");
    nb_engine_destroy(e);
    o.kv_thrift = NULL;
    o.device = "cuda:x";
    refused(&o, "--device cuda:x: expected auto, cpu, cuda or cuda:N");
    o.device = "cuda:77";
    refused(&o, "--device cuda:77: ");
    o.device = "cuda";
    o.cuda_library = "/nowhere.so";
    refused(&o, "/nowhere.so");
    o.cuda_library = library();
    o.gpu_memory_utilization = 1.5;
    refused(&o, "--gpu-memory-utilization 1.5: expected 0 to 1");
    o.gpu_memory_utilization = 1e-9;
    refused(&o, "nothing is left for the KV cache");
    o.gpu_memory_utilization = 0;
    o.kv_cache_bytes = (uint64_t)1 << 60;
    refused(&o, "does not fit");
}

/* With --device auto, and the server's plan says why. */
static void taken_by_the_cpu(nb_engine_options *o, const char *why)
{
    nb_device_info d;
    nb_engine_info info;
    o->device = "auto";
    assert_int_equal(nb_engine_find_device(o, &d, NULL), NB_OK);
    assert_false(d.is_gpu);
    assert_non_null(strstr(d.why_cpu, why));
    nb_engine *e = open_with(o);
    nb_engine_get_info(e, &info);
    assert_string_equal(info.device, "cpu");
    nb_engine_destroy(e);
}

/* Heads that no kernel takes: --device cuda says so, auto takes the CPU and the server's plan knows. */
static void test_a_model_that_a_gpu_has_no_kernel_for(void **state)
{
    static const char config[] =
        "{\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":64,\"num_hidden_layers\":1,"
        "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":320,"
        "\"intermediate_size\":64,\"max_position_embeddings\":128}";
    (void)state;
    if (!library()) skip();
    tmp_dir t;
    tmp_open(&t);
    tmp_write(&t, "config.json", nb_str_c(config));
    nb_engine_options o = options_of("", "bf16", "auto");
    o.model = t.path;
    o.load_format = "dummy";
    o.max_model_len = 0;
    refused(&o, "heads of 320 values: a GPU has attention for at most 256");
    taken_by_the_cpu(&o, "heads of 320 values");
    tmp_close(&t);
}

/* What one GPU computes and several do not: auto takes ranks on the CPU. */
static void test_a_model_that_one_gpu_computes(void **state)
{
    (void)state;
    if (!library()) skip();
    nb_engine_options o = options_of("tests/parity/longcat_flash", "bf16", "auto");
    o.tensor_parallel_size = 2;
    refused(&o, "by one GPU only");
    taken_by_the_cpu(&o, "by one GPU only");
}

static void break_device(nb_engine *e, void *ctx)
{
    (void)ctx;
    (void)nb_gpu_api(e->rank[0].device.gpu)->graph_end(nb_gpu_handle(e->rank[0].device.gpu)); /* there was no begin */
}

static void test_a_device_that_fails(void **state)
{
    (void)state;
    if (!library()) skip();
    const nb_engine_options o = options_of("tests/parity/v2_lite", "nvfp4", "auto");
    const nb_sampling s = greedy(N_GEN);
    nb_engine *e = open_with(&o);
    nb_error err = { 0 };
    random_ids(prompt, N_PROMPT, vocab_of(e), 5);
    gen_reset(&one);
    run_gen(e, prompt, N_PROMPT, &s, &one);
    assert_int_equal(nb_engine_health(e, &err), NB_OK);
    assert_int_equal(nb_engine_call(e, break_device, NULL), NB_OK);
    gen_reset(&one);
    assert_int_equal(try_run(e, prompt, N_PROMPT, &s, &one, &err), NB_ERR_FAILED);
    assert_true(err.msg[0]);
    assert_int_not_equal(nb_engine_health(e, &err), NB_OK);
    nb_engine_destroy(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_of_the_cpu),
        cmocka_unit_test(test_absorbed_forms_in_fp8_blocks),
        cmocka_unit_test(test_sizes_of_steps),
        cmocka_unit_test(test_alone_and_in_a_crowd),
        cmocka_unit_test(test_hit_is_miss),
        cmocka_unit_test(test_sparse_attention),
        cmocka_unit_test(test_compressed_on_the_cpu_too),
        cmocka_unit_test(test_compressed_attention),
        cmocka_unit_test(test_sparse_attention_refused),
        cmocka_unit_test(test_answers_are_found),
        cmocka_unit_test(test_drawn_on_the_device),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_a_device_that_fails),
        cmocka_unit_test(test_a_model_that_a_gpu_has_no_kernel_for),
        cmocka_unit_test(test_a_model_that_one_gpu_computes),
    };
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    gen_reset(&one);
    gen_reset(&two);
    for (size_t i = 0; i < N_CROWD; i++) gen_reset(&in_crowd[i].g);
    return rc;
}
