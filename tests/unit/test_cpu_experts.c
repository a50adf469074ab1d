/* test_cpu_experts.c - --cpu-experts: routed experts in host memory beside a GPU, here one whose kernels are
 * emulated (NB_CUDA_EMU_LIBRARY), or the machine's (NB_TEST_CUDA): the CPU's tokens wherever experts are; the same
 * bits whatever the steps, the crowd and the cache; packed experts; what is refused; files that end while they are
 * read, and a device that fails. */
#include "load_testing.h"

#include "engine_testing.h"

#include <math.h>

#include "engine/engine_internal.h"

#if defined(__SANITIZE_ADDRESS__)
enum { STRIDE = 3 };
#else
enum { STRIDE = 1 };
#endif
/* 128 tokens are a unit of all of these models but v3_geom, which has units of 64. */
enum { UNIT = 128, N_PROMPT = 200, N_GEN = 8, N_CROWD = 4 };

static gen one, two, three;
static uint32_t prompt[N_PROMPT];

static const char *library(void)
{
    const char *s = getenv("NB_TEST_CUDA");
    if (!s || !*s) s = getenv("NB_CUDA_EMU_LIBRARY");
    return s && *s ? s : NULL;
}

static nb_engine_options options_of(const char *dir, const char *kv, const char *experts)
{
    return (nb_engine_options){ .model = in_source(dir),
                                .device = "cuda",
                                .cuda_library = library(),
                                .cpu_experts = experts,
                                .kv_cache_dtype = kv,
                                .n_thread = 2,
                                .no_text = true,
                                .max_model_len = 256,
                                .kv_cache_bytes = 16 << 20 };
}

static nb_engine *open_with(const nb_engine_options *o)
{
    nb_engine *e = NULL;
    nb_error err = { 0 };
    if (nb_engine_create(o, &e, &err) != NB_OK) fail_msg("%s: %s", o->model, err.msg);
    return e;
}

static nb_sampling drawn(size_t seed)
{
    nb_sampling s = greedy(N_GEN);
    s.temperature = 0.8;
    s.seed = seed;
    s.n_logprobs = 0;
    return s;
}

static void generate(const nb_engine_options *o, size_t n_prompt, const nb_sampling *s, gen *g)
{
    nb_engine *e = open_with(o);
    random_ids(prompt, N_PROMPT, vocab_of(e), 5);
    gen_reset(g);
    run_gen(e, prompt, n_prompt, s, g);
    nb_engine_destroy(e);
}

static void same_gen(const gen *a, const gen *b, const char *what)
{
    if (a->n_seen != b->n_seen || memcmp(a->seen, b->seen, a->n_seen * sizeof *a->seen) != 0)
        fail_msg("%s: other tokens", what);
    if (memcmp(a->logprob, b->logprob, a->n_seen * sizeof *a->logprob) != 0)
        fail_msg("%s: the same tokens, other log-probabilities", what);
}

static void near_gen(const gen *a, const gen *b, float bound, const char *what)
{
    if (a->n_seen != N_GEN || memcmp(a->seen, b->seen, a->n_seen * sizeof *a->seen) != 0)
        fail_msg("%s: other tokens", what);
    for (size_t i = 0; i < a->n_seen; i++)
        if (!(fabsf(a->logprob[i] - b->logprob[i]) <= bound))
            fail_msg("%s: log-probability %zu is %g, expected %g", what, i, (double)a->logprob[i],
                     (double)b->logprob[i]);
}

static size_t host_layers(const nb_engine_options *o)
{
    nb_engine *e = open_with(o);
    nb_engine_info info;
    nb_engine_get_info(e, &info);
    assert_int_equal(info.n_cpu_expert_layer != 0, info.cpu_expert_bytes != 0);
    assert_int_equal(info.n_cpu_expert_layer != 0, strstr(info.kernels, "cpu_experts=") != NULL);
    nb_engine_destroy(e);
    return info.n_cpu_expert_layer;
}

/* Prompts with uploads and without, then generated tokens: as the CPU has them. */
static void test_tokens_of_the_cpu(void **state)
{
    static const struct {
        const char *dir, *kv, *mla;
        size_t n_prompt;
        /* of log-probabilities: from the CPU's, whose prompts are not rounded to BF16 in attention; from the
         * device's own */
        float cpu, gpu;
    } models[] = {
        { "tests/parity/v2_lite", "bf16", "auto", N_PROMPT, 2e-2F, 2e-4F },
        { "tests/parity/v3_fp8", "fp8", "auto", 140, 2e-2F, 2e-4F },
        { "tests/parity/v3_f32", "f32", "absorbed", 40, 1e-4F, 2e-5F },
        { "tests/parity/kimi_k2", "bf16", "auto", 140, 2e-2F, 2e-4F },
        { "tests/parity/glm4_moe_lite", "bf16", "expanded", 140, 2e-2F, 2e-4F },
    };
    static const char *const experts[] = { "all", "1" };
    (void)state;
    if (!library()) skip();
    nb_sampling s = greedy(N_GEN);
    s.n_logprobs = 0;
    for (size_t i = 0; i < NB_COUNT(models); i += STRIDE) {
        nb_engine_options o = options_of(models[i].dir, models[i].kv, NULL);
        o.mla = models[i].mla;
        o.activation_dtype = "float"; /* prompts of a GPU may round them */
        o.device = "cpu";
        generate(&o, models[i].n_prompt, &s, &one);
        o.device = "cuda";
        generate(&o, models[i].n_prompt, &s, &three);
        for (size_t k = 0; k < NB_COUNT(experts); k++) {
            o.cpu_experts = experts[k];
            generate(&o, models[i].n_prompt, &s, &two);
            near_gen(&two, &one, models[i].cpu, models[i].dir);
            near_gen(&two, &three, models[i].gpu, models[i].dir);
        }
    }
}

/* Sizes of steps cut units anywhere; small ones send only experts that have rows. */
static void test_sizes_of_steps(void **state)
{
    static const size_t chunk[] = { 64, 150, 9 };
    (void)state;
    if (!library()) skip();
    const nb_sampling s = drawn(3);
    nb_engine_options o = options_of("tests/parity/v2_lite", "nvfp4", "all");
    generate(&o, N_PROMPT, &s, &one);
    for (size_t k = 0; k < NB_COUNT(chunk); k += STRIDE) {
        o.prefill_chunk = chunk[k];
        generate(&o, N_PROMPT, &s, &two);
        same_gen(&one, &two, "another size of steps");
    }
    o.prefill_chunk = 0;
    o.n_thread = 1;
    generate(&o, N_PROMPT, &s, &two);
    same_gen(&one, &two, "another number of threads");
}

/* ---- a crowd ---- */

typedef struct crowd {
    nb_mutex *lock;
    nb_cond *wake;
    size_t n_done;
    nb_status st;
} crowd;

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
    crowd *c = ((member *)ctx)->c;
    (void)r, (void)err;
    nb_mutex_lock(c->lock);
    c->n_done++;
    if (st != NB_OK) c->st = st;
    nb_cond_broadcast(c->wake);
    nb_mutex_unlock(c->lock);
}

static size_t length_of(size_t i)
{
    return N_PROMPT - 40 * i; /* 200, 160: with a unit; 120, 80: without */
}

static void test_alone_and_in_a_crowd(void **state)
{
    (void)state;
    if (!library()) skip();
    crowd c = { .st = NB_OK };
    assert_int_equal(nb_mutex_create(&c.lock), NB_OK);
    assert_int_equal(nb_cond_create(&c.wake), NB_OK);
    nb_engine_options o = options_of("tests/parity/v2_lite", "nvfp4", "all");
    o.max_num_seqs = N_CROWD;
    nb_engine *e = open_with(&o);
    random_ids(prompt, N_PROMPT, vocab_of(e), 5);
    for (size_t i = 0; i < N_CROWD; i++) {
        nb_error err = { 0 };
        nb_request_id id;
        gen_reset(&in_crowd[i].g);
        in_crowd[i].c = &c;
        const nb_request rq = { .prompt = prompt + i,
                                .n_prompt = length_of(i),
                                .sampling = drawn(i),
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
    for (size_t i = 0; i < N_CROWD; i += STRIDE) {
        const nb_sampling s = drawn(i);
        e = open_with(&o);
        gen_reset(&one);
        run_gen(e, prompt + i, length_of(i), &s, &one);
        nb_engine_destroy(e);
        same_gen(&one, &in_crowd[i].g, "in a crowd");
    }
    nb_cond_destroy(c.wake);
    nb_mutex_destroy(c.lock);
}

/* ---- the prefix cache ---- */

/* A text that grows: blocks of a unit that it has filled meanwhile are other blocks, and nothing else is computed
 * again. */
static void test_hit_is_miss(void **state)
{
    static const struct {
        size_t n_prompt, n_cached;
    } turn[] = { { 100, 0 }, { 100, 64 }, { 120, 64 }, { UNIT + 12, 0 }, { N_PROMPT, UNIT } };
    (void)state;
    if (!library()) skip();
    nb_engine_options o = options_of("tests/parity/v2_lite", "nvfp4", "all"), fresh = o;
    fresh.no_prefix_caching = true;
    const nb_sampling s = drawn(7);
    nb_engine *warm = open_with(&o), *none = open_with(&fresh);
    random_ids(prompt, N_PROMPT, vocab_of(warm), 5);
    for (size_t i = 0; i < NB_COUNT(turn); i++) {
        gen_reset(&one);
        run_gen(none, prompt, turn[i].n_prompt, &s, &one);
        gen_reset(&two);
        run_gen(warm, prompt, turn[i].n_prompt, &s, &two);
        same_gen(&one, &two, "from the cache");
        if (two.r.n_cached != turn[i].n_cached)
            fail_msg("turn %zu: %zu tokens cached, expected %zu", i, two.r.n_cached,
                     turn[i].n_cached);
    }
    nb_engine_destroy(none);
    nb_engine_destroy(warm);
}

/* ---- where they are ---- */

static void test_places(void **state)
{
    (void)state;
    if (!library()) skip();
    nb_engine_options o = options_of("tests/parity/v2_lite", "nvfp4", "all");
    assert_int_equal(host_layers(&o), 2);
    o.cpu_experts = "1";
    assert_int_equal(host_layers(&o), 1);
    o.cpu_experts = "0";
    assert_int_equal(host_layers(&o), 0);
    o.cpu_experts = "auto"; /* everything fits */
    assert_int_equal(host_layers(&o), 0);
    o.gpu_memory_utilization = 1e-9; /* nothing does */
    assert_int_equal(host_layers(&o), 2);
}

static void refused(const nb_engine_options *o, const char *part)
{
    nb_engine *e = NULL;
    nb_error err = { 0 };
    if (nb_engine_create(o, &e, &err) == NB_OK) fail_msg("accepted: %s", part);
    if (!strstr(err.msg, part)) fail_msg("`%s` does not say `%s`", err.msg, part);
}

#define CONFIG(hidden) \
    "{\"model_type\":\"deepseek_v3\",\"vocab_size\":64,\"hidden_size\":" hidden \
    ",\"num_hidden_layers\":3," \
    "\"num_attention_heads\":2,\"q_lora_rank\":32,\"kv_lora_rank\":64,\"qk_nope_head_dim\":16," \
    "\"qk_rope_head_dim\":16,\"v_head_dim\":16,\"intermediate_size\":64,\"moe_intermediate_size\":64," \
    "\"n_routed_experts\":8,\"num_experts_per_tok\":2,\"n_shared_experts\":1,\"n_group\":1," \
    "\"topk_group\":1,\"first_k_dense_replace\":1,\"norm_topk_prob\":true,\"torch_dtype\":\"bfloat16\"," \
    "\"max_position_embeddings\":512,\"rms_norm_eps\":1e-6,\"initializer_range\":0.15"
#define INT4_EXPERTS \
    "," \
    "\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\"," \
    "\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":4," \
    "\"type\":\"int\",\"strategy\":\"group\",\"group_size\":32,\"symmetric\":true}," \
    "\"input_activations\":null}},\"ignore\":[\"re:.*self_attn.*\",\"re:.*shared_experts.*\"," \
    "\"re:.*mlp\\\\.(gate|up|down)_proj.*\",\"re:.*lm_head.*\"]}}"

/* Packed experts: on the host, uploaded for a prompt's units, or on the GPU. */
static void test_packed(void **state)
{
    (void)state;
    if (!library()) skip();
    tmp_dir t;
    tmp_open(&t);
    tmp_write(&t, "config.json", nb_str_c(CONFIG("128") INT4_EXPERTS));
    nb_engine_options o = options_of("", "bf16", "all");
    o.model = t.path;
    o.load_format = "dummy";
    o.activation_dtype = "float"; /* 8-bit codes of nearly equal activations may differ */
    nb_sampling s = greedy(N_GEN);
    s.n_logprobs = 0;
    generate(&o, N_PROMPT, &s, &one);
    o.device = "cpu";
    o.cpu_experts = NULL;
    generate(&o, N_PROMPT, &s, &two);
    near_gen(&one, &two, 2e-2F, "int4 experts");
    o.device = "cuda";
    generate(&o, N_PROMPT, &s, &three);
    near_gen(&one, &three, 1e-3F, "int4 experts, uploaded");
    o.cpu_experts = "auto";
    assert_int_equal(host_layers(&o), 0);
    o.gpu_memory_utilization = 1e-9;
    assert_int_equal(host_layers(&o), 2);
    o.gpu_memory_utilization = 0;
    o.cpu_experts = "all";
    o.activation_dtype = "int8"; /* of the host's products */
    assert_int_equal(host_layers(&o), 2);
    o.cpu_experts = NULL;
    refused(&o, "--activation-dtype int8");
    tmp_close(&t);
}

/* Rows whose stride on the device is not their width. */
static void test_odd_width(void **state)
{
    (void)state;
    if (!library()) skip();
    tmp_dir t;
    tmp_open(&t);
    tmp_write(&t, "config.json", nb_str_c(CONFIG("100") "}"));
    nb_engine_options o = options_of("", "bf16", "all");
    o.model = t.path;
    o.load_format = "dummy";
    o.activation_dtype = "float"; /* of both the host and the device */
    nb_sampling s = greedy(N_GEN);
    s.n_logprobs = 0;
    generate(&o, 150, &s, &one);
    o.cpu_experts = NULL;
    generate(&o, 150, &s, &two);
    near_gen(&one, &two, 2e-4F, "rows of 100 values");
    tmp_close(&t);
}

/* ---- what is refused, and failures ---- */

static void test_refused(void **state)
{
    static const char *const wrong[] = { "", "x", "-1", "1x", "ALL", "1000000", "99999999999999999999" };
    (void)state;
    nb_engine_options o = options_of("tests/parity/v2_lite", "nvfp4", "all");
    o.device = "cpu";
    refused(&o, "--cpu-experts all is for a model on a GPU, and this one is on the CPU");
    o.device = "auto";
    o.cuda_library = "/nowhere.so";
    refused(&o, "/nowhere.so");
    for (size_t i = 0; i < NB_COUNT(wrong); i++) {
        o.cpu_experts = wrong[i];
        refused(&o, "expected a number of layers, all or auto");
    }
    o.cpu_experts = "3";
    refused(&o, "--cpu-experts 3: the model has 2 layers with routed experts");
    o = options_of("tests/parity/llama3", "bf16", "1");
    o.device = "cpu";
    refused(&o, "--cpu-experts 1: the model has no routed experts");
}

/* The host's part of a step reads the files of the weights; one that ends is the step's error. */
static void test_a_file_that_ends(void **state)
{
    static const char *const names[] = { "config.json", "model.safetensors" };
    (void)state;
    if (!library()) skip();
    tmp_dir t;
    tmp_open(&t);
    for (size_t i = 0; i < NB_COUNT(names); i++) {
        char from[200];
        nb_buf b = { 0 };
        nb_error err = { 0 };
        (void)snprintf(from, sizeof from, "tests/parity/v2_lite/%s", names[i]);
        if (nb_file_read(in_source(from), 1 << 24, &b, &err) != NB_OK) fail_msg("%s", err.msg);
        tmp_write(&t, names[i], nb_buf_view(&b));
        nb_buf_deinit(&b);
    }
    nb_engine_options o = options_of("", "nvfp4", "all");
    o.model = t.path;
    const nb_sampling s = greedy(N_GEN);
    nb_engine *e = open_with(&o);
    char file[700];
    nb_error err = { 0 };
    random_ids(prompt, N_PROMPT, vocab_of(e), 5);
    gen_reset(&one);
    run_gen(e, prompt, 20, &s, &one);
    (void)snprintf(file, sizeof file, "%s/model.safetensors", t.path);
    assert_int_equal(truncate(file, 8192), 0);
    gen_reset(&one);
    assert_int_equal(try_run(e, prompt + 1, 20, &s, &one, &err), NB_ERR_FAILED);
    assert_non_null(strstr(err.msg, "model.safetensors"));
    assert_int_equal(one.n_seen, 0);
    assert_int_not_equal(nb_engine_health(e, &err), NB_OK);
    nb_engine_destroy(e);
    tmp_close(&t);
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
    const nb_engine_options o = options_of("tests/parity/v2_lite", "nvfp4", "all");
    const nb_sampling s = greedy(N_GEN);
    for (size_t with_graph = 0; with_graph < 2; with_graph++) {
        nb_engine *e = open_with(&o);
        nb_error err = { 0 };
        random_ids(prompt, N_PROMPT, vocab_of(e), 5);
        gen_reset(&one);
        if (with_graph) run_gen(e, prompt, 20, &s, &one);
        assert_int_equal(nb_engine_call(e, break_device, NULL), NB_OK);
        gen_reset(&one);
        assert_int_equal(try_run(e, prompt, with_graph ? 1 : N_PROMPT, &s, &one, &err), NB_ERR_FAILED);
        assert_true(err.msg[0]);
        nb_engine_destroy(e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_of_the_cpu),
        cmocka_unit_test(test_sizes_of_steps),
        cmocka_unit_test(test_alone_and_in_a_crowd),
        cmocka_unit_test(test_hit_is_miss),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_odd_width),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_a_file_that_ends),
        cmocka_unit_test(test_a_device_that_fails),
    };
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    gen_reset(&one);
    gen_reset(&two);
    gen_reset(&three);
    for (size_t i = 0; i < N_CROWD; i++) gen_reset(&in_crowd[i].g);
    return rc;
}
