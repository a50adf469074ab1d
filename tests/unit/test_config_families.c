/* test_config_families.c - config.json of every family: what is read, what is derived, what
 * is refused.
 *
 * models/configs holds the fields that the published models have (kimi-k2-thinking: without its
 * quantization, which is refused).  Expected numbers are the ones of the models' papers and cards, not of
 * this code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the headers above */
#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "base/utf8.h"
#include "model/config.h"

static const char *root_dir(void)
{
    const char *dir = getenv("NB_SOURCE_DIR");
    return dir ? dir : ".";
}

static json_t *load(const char *name)
{
    char path[600];
    json_error_t e;
    (void)snprintf(path, sizeof path, "%s/models/configs/%s.json", root_dir(), name);
    json_t *j = json_load_file(path, 0, &e);
    if (!j) fail_msg("%s: %s", path, e.text);
    return j;
}

/* Sets the dotted path to the JSON value in `text`; NULL removes it. */
static void patch(json_t *j, const char *path, const char *text)
{
    char part[128];
    for (const char *dot; (dot = strchr(path, '.')); path = dot + 1) {
        (void)snprintf(part, sizeof part, "%.*s", (int)(dot - path), path);
        json_t *next = json_object_get(j, part);
        if (!json_is_object(next)) {
            next = json_object();
            assert_int_equal(json_object_set_new(j, part, next), 0);
        }
        j = next;
    }
    if (!text) {
        assert_int_equal(json_object_del(j, path), 0);
        return;
    }
    json_error_t e;
    json_t *v = json_loads(text, JSON_DECODE_ANY, &e);
    if (!v) fail_msg("%s: %s", text, e.text);
    assert_int_equal(json_object_set_new(j, path, v), 0);
}

static nb_model_config conf; /* large: not on the stack */

static nb_status read_json(json_t *j, nb_error *err)
{
    char *text = json_dumps(j, 0);
    nb_doc *doc = NULL;
    assert_non_null(text);
    *err = (nb_error){ 0 };
    nb_status st = nb_doc_parse(nb_str_c(text), "some/config.json", &doc, err);
    if (st == NB_OK) st = nb_model_config_read(doc, &conf, err);
    nb_doc_destroy(doc);
    free(text);
    return st;
}

static void read_named(const char *name)
{
    nb_error err;
    json_t *j = load(name);
    if (read_json(j, &err) != NB_OK) fail_msg("%s: %s", name, err.msg);
    json_decref(j);
}

static void near(const char *what, double got, double want, double rel)
{
    if (!(fabs(got - want) <= rel * fabs(want)))
        fail_msg("%s: %.9g, expected %.9g", what, got, want);
}

/* ---- what is derived ---- */

static const struct published {
    const char *file, *family;
    double b_param, b_active; /* 1e9; active counts the embedding table here; 0: dense */
    double softmax_scale;
    size_t bf16_bytes;  /* per token, all layers */
    size_t nvfp4_layer; /* bytes of our record per token and layer; 0: not stated */
} published[] = {
    { "deepseek-v2-lite", "deepseek_v2", 15.71, 2.66, 0.11472139, 31104, 354 },
    { "deepseek-v2", "deepseek_v2", 235.74, 21.4, 0.11472139, 69120, 354 },
    { "deepseek-v3", "deepseek_v3", 671.03, 37.6, 0.13523378, 70272, 354 },
    { "kimi-k2", "deepseek_v3", 1026.41, 32.9, 0.13086080, 70272, 354 },
    { "moonlight-16b", "deepseek_v3", 15.96, 2.9, 0.07216878, 31104, 354 },
    { "glm-4.7-flash", "glm4_moe_lite", 29.94, 3.9, 0.0625, 54144, 354 },
    { "youtu-llm-2b", "youtu", 1.96, 0, 0.07216878, 36864, 354 },
    { "minicpm3-4b", "minicpm3", 4.07, 0, 0.10206207, 35712, 0 },
    { "a.x-k1", "axk1", 518.98, 32.8, 0.07216878, 70272, 354 },
    { "sarvam-105b", "sarvam_mla", 106.03, 12.4, 0.13523378, 36864, 354 },
    { "kimi-linear-48b", "kimi_linear", 49.12, 3.48, 0.07216878, 8064, 354 },
    { "deepseek-v3.2", "deepseek_v32", 671.88, 38.4, 0.13523378, 78202, 484 },
    { "glm-5", "glm_moe_dsa", 743.9, 41.8, 0.0625, 99996, 484 },
    { "mistral-small-4", "mistral4", 118.97, 6.6, 0.19496949, 23040, 0 },
    { "mistral-large-3", "mistral4", 673.42, 39.9, 0.07216878, 70272, 354 },
    { "longcat-flash", "longcat_flash", 560.66, 31.3, 0.07216878, 64512, 354 },
    { "gigachat3-10b", "deepseek_v3", 10.673, 1.8, 0.07216878, 29952, 354 },
    { "llama-3.2-1b", "llama", 1.236, 0, 0.125, 32768, 0 },
    { "llama-3.1-8b", "llama", 8.030, 0, 0.08838835, 131072, 0 },
    { "qwen2.5-0.5b", "qwen2", 0.494, 0, 0.125, 12288, 0 },
    { "qwen2.5-7b", "qwen2", 7.616, 0, 0.08838835, 57344, 0 },
    { "qwen3-0.6b", "qwen3", 0.596, 0, 0.08838835, 114688, 0 },
    { "qwen3-8b", "qwen3", 8.191, 0, 0.08838835, 147456, 0 },
};

static double record_bytes(nb_kv_type type)
{
    nb_record_opts o;
    nb_record r;
    nb_error e;
    nb_model_record_opts(&conf.attn[0], type, NB_KV_4OVER6, NB_ROPE_FP8, &o);
    if (nb_record_init(&r, &o, &e) != NB_OK) fail_msg("%s", e.msg);
    return nb_record_bytes_per_tok(&r);
}

static void test_published(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        const struct published *p = &published[i];
        nb_model_size s;
        read_named(p->file);
        assert_string_equal(conf.family, p->family);
        if (conf.notes[0]) fail_msg("%s: published fields are unknown: %s", p->file, conf.notes);
        near(p->file, (double)conf.attn[0].softmax_scale, p->softmax_scale, 1e-6);
        nb_model_config_size(&conf, &s);
        const double table = (double)conf.n_vocab * (double)conf.hidden;
        /* the tables round to 4 or 5 digits */
        near(p->file, (double)s.n_param / 1e9, p->b_param, p->b_param < 10 ? 3e-3 : 5e-4);
        if (p->b_active > 0)
            near(p->file, ((double)s.n_param_active + table) / 1e9, p->b_active, 3e-2);
        else
            near(p->file, (double)s.n_param_active, (double)s.n_param - (conf.tied ? 0 : table),
                 1e-12);
        size_t n_cached = 0; /* layers with pages, which have the first attention */
        for (size_t k = 0; k < conf.n_layer; k++) n_cached += conf.attn_of[k] == 0;
        near(p->file, record_bytes(NB_KV_BF16) * (double)n_cached, (double)p->bf16_bytes, 0);
        if (p->nvfp4_layer) near(p->file, record_bytes(NB_KV_NVFP4), (double)p->nvfp4_layer, 0);
    }
}

static void test_exact_counts(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        uint64_t n_param;
    } exact[] = {
        /* as the hub counts their safetensors */
        { "deepseek-v2-lite", 15706484224 }, { "moonlight-16b", 15960110208 },
        { "deepseek-v3", 671026419200 },     { "llama-3.2-1b", 1235814400 },
        { "llama-3.1-8b", 8030261248 },      { "qwen2.5-0.5b", 494032768 },
        { "qwen2.5-7b", 7615616512 },        { "qwen3-0.6b", 596049920 },
        { "qwen3-8b", 8190735360 },
    };
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) {
        nb_model_size s;
        read_named(exact[i].file);
        nb_model_config_size(&conf, &s);
        if (s.n_param != exact[i].n_param)
            fail_msg("%s: %llu parameters", exact[i].file, (unsigned long long)s.n_param);
    }
}

/* yarn: below `low` the base frequency, above `high` that divided by the factor, between
 * them a straight ramp. */
static void check_ramp(const char *name, double theta, double factor, int low, int high)
{
    read_named(name);
    assert_int_equal(conf.attn[0].rope.dim, 64);
    assert_true(conf.attn[0].rope.interleaved);
    near(name, (double)conf.attn[0].rope.factor, 1, 1e-6);
    assert_int_equal(conf.attn[0].rope.switch_tok, 0);
    for (int j = 0; j < 32; j++) {
        const double base = pow(theta, -j / 32.0);
        const double ramp = j <= low ? 0 : j >= high ? 1 : (double)(j - low) / (high - low);
        char what[80];
        (void)snprintf(what, sizeof what, "%s: frequency %d", name, j);
        near(what, (double)conf.attn[0].rope.inv_freq[j], base * (1 - ramp) + base / factor * ramp,
             1e-6);
    }
}

#define SHORT_FACTORS "[1,1.05,1.1,1.15,1.2,1.25,1.3,1.35,1.4,1.45,1.5,1.55,1.6,1.65,1.7,1.75]"
#define LONG_FACTORS "[2,2.1,2.2,2.3,2.4,2.5,2.6,2.7,2.8,2.9,3,3.1,3.2,3.3,3.4,3.5]"

static void test_rope(void **state)
{
    (void)state;
    check_ramp("deepseek-v2-lite", 1e4, 40, 10, 23);
    check_ramp("deepseek-v2", 1e4, 40, 10, 23);
    check_ramp("deepseek-v3", 1e4, 40, 10, 23);
    check_ramp("kimi-k2", 5e4, 32, 19, 20);
    check_ramp("sarvam-105b", 1e4, 40, 10, 23);
    check_ramp("mistral-small-4", 1e4, 128, 12, 25);
    check_ramp("mistral-large-3", 1e4, 36, 12, 25);
    check_ramp("moonlight-16b", 5e4, 1, 0, 1);
    check_ramp("glm-4.7-flash", 1e6, 1, 0, 1);
    check_ramp("youtu-llm-2b", 1.6e6, 1, 0, 1);
    nb_error e;
    json_t *j = load("kimi-k2-thinking");
    assert_int_equal(read_json(j, &e), NB_OK);
    assert_true(nb_quant_main(&conf.quant)->bits == 4 && nb_quant_main(&conf.quant)->cols == 32); /* its experts are INT4 */
    near("K2 Thinking", (double)conf.attn[0].softmax_scale, 0.14467963, 1e-6);
    assert_true(!conf.fp8);
    json_decref(j);

    j = load("minicpm3-4b"); /* longrope: a table for each side of 32768; the published are equal */
    patch(j, "rope_scaling.short_factor", SHORT_FACTORS);
    patch(j, "rope_scaling.long_factor", LONG_FACTORS);
    assert_int_equal(read_json(j, &e), NB_OK);
    json_decref(j);
    assert_int_equal(conf.attn[0].rope.dim, 32);
    assert_true(!conf.attn[0].rope.interleaved);
    assert_int_equal(conf.attn[0].rope.switch_tok, 32768);
    near("longrope factor", (double)conf.attn[0].rope.factor, 1, 0);
    for (int k = 0; k < 16; k++) {
        const double base = pow(1e4, -2 * k / 32.0), factor = 1 + 0.05 * k;
        near("short", (double)conf.attn[0].rope.inv_freq[k], base / factor, 1e-6);
        near("long", (double)conf.attn[0].rope.inv_freq_long[k], base / (2 * factor), 1e-6);
    }
    j = load("minicpm3-4b"); /* four times the original length */
    patch(j, "rope_scaling.original_max_position_embeddings", "8192");
    assert_int_equal(read_json(j, &e), NB_OK);
    near("longrope factor", (double)conf.attn[0].rope.factor, sqrt(1 + log(4) / log(8192)), 1e-6);
    json_decref(j);

    read_named("llama-3.1-8b"); /* llama3: three bands */
    assert_int_equal(conf.attn[0].rope.dim, 128);
    for (int k = 0; k < 64; k++) {
        const double f = pow(5e5, -2 * k / 128.0), wave = 2 * 3.141592653589793 / f;
        const double s = (8192 / wave - 1) / 3;
        near("llama3", (double)conf.attn[0].rope.inv_freq[k],
             wave < 2048   ? f
             : wave > 8192 ? f / 8
                           : (1 - s) * f / 8 + s * f,
             1e-6);
    }
    read_named("qwen3-8b");
    near("qwen3", (double)conf.attn[0].rope.inv_freq[1], pow(1e6, -2 / 128.0), 1e-6);
    assert_true(!conf.attn[0].rope.interleaved);
}

/* Families that are DeepSeek's attention with other keys. */
static void test_mla_relatives(void **state)
{
    (void)state;
    read_named("a.x-k1");
    assert_true(conf.branch_norm && conf.sigmoid && conf.router_bias && conf.normalise);
    assert_true(conf.dense[0] && !conf.dense[1] && conf.n_group == 8 && conf.topk_group == 4);
    read_named("deepseek-v3");
    assert_true(!conf.branch_norm && conf.attn[0].q_beta == 0);

    nb_error err;
    json_t *absent = load("sarvam-105b"); /* sixteen groups of which two count, by default */
    patch(absent, "n_group", NULL);
    patch(absent, "topk_group", NULL);
    assert_int_equal(read_json(absent, &err), NB_OK);
    assert_string_equal(conf.assumed, "n_group 16, topk_group 2");
    json_decref(absent);
    assert_true(conf.n_expert == 128 && conf.n_shared == 1 && conf.attn[0].q_lora == 0);
    assert_true(conf.n_group == 16 && conf.topk_group == 2 && conf.group_top == 2 && conf.sigmoid);
    assert_true(conf.attn[0].d_rope == 64 && conf.dense[0] && !conf.dense[1]);

    read_named("mistral-small-4");
    assert_true(!conf.sigmoid && !conf.router_bias && conf.normalise && !conf.dense[0]);
    assert_true(conf.attn[0].q_orig == 8192 && conf.attn[0].kv_lora == 256);
    near("beta", (double)conf.attn[0].q_beta, 0.1, 1e-6);
    read_named("mistral-large-3");
    assert_true(conf.dense[2] && !conf.dense[3] && conf.attn[0].q_orig == 8192);

    read_named("kimi-linear-48b");
    assert_true(conf.n_attn == 2 && conf.attn[0].rope.dim == 0 && conf.attn[1].conv == 4);
    assert_true(conf.attn_of[3] == 0 && conf.attn_of[26] == 0 && conf.attn_of[25] == 1);
    assert_true(conf.max_pos == 1048576 && conf.top_k == 8 && conf.n_shared == 1 && conf.dense[0]);

    static const struct {
        const char *file, *path, *value, *error;
    } bad[] = {
        { "a.x-k1", "scoring_func", "\"softmax\"", "scoring_func" },
        { "sarvam-105b", "score_function", "\"softmax\"", "score_function" },
        { "sarvam-105b", "moe_router_enable_expert_bias", "false",
          "moe_router_enable_expert_bias" },
        { "sarvam-105b", "moe_shared_expert_intermediate_size", "4096",
          "moe_shared_expert_intermediate_size: 4096" },
        { "sarvam-105b", "n_group", "7", "n_group must divide" },
        { "sarvam-105b", "partial_rotary_factor", "0.5", "partial_rotary_factor" },
        { "mistral-large-3", "rope_parameters.partial_rotary_factor", "0.5",
          "partial_rotary_factor: 0.5 is not supported (expected: 0.333333" },
        { "mistral-large-3", "rope_parameters.llama_4_scaling_beta", "\"x\"",
          "llama_4_scaling_beta" },
        { "mistral-large-3", "rope_parameters.llama_4_scaling_beta", "1e30",
          "llama_4_scaling_beta" },
        { "mistral-large-3", "rope_parameters.original_max_position_embeddings", "0",
          "original_max_position_embeddings" },
        { "mistral-large-3", "attn_logit_softcapping", "30", "attn_logit_softcapping" },
        { "kimi-linear-48b", "mla_use_nope", "false", "mla_use_nope: only true" },
        { "kimi-linear-48b", "num_expert_group", "8", "num_expert_group" },
        { "kimi-linear-48b", "mla_use_output_gate", "true", "mla_use_output_gate" },
        { "kimi-linear-48b", "linear_attn_config.gate_lower_bound", "-5", "gate_lower_bound" },
        { "kimi-linear-48b", "linear_attn_config.kda_layers", "[1, 2]", "names 9 of 27 layers" },
        { "kimi-linear-48b", "linear_attn_config.kda_layers", "[4]", "layer 4; expected each" },
        { "kimi-linear-48b", "linear_attn_config.full_attn_layers", "[0]", "layer 0; expected" },
        { "kimi-linear-48b", "linear_attn_config.num_heads", "0", "num_heads" },
        { "deepseek-v3", "llama_4_scaling", "{\"beta\": 0.1}", "llama_4_scaling" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        nb_error e;
        json_t *j = load(bad[i].file);
        patch(j, bad[i].path, bad[i].value);
        if (read_json(j, &e) == NB_OK || !strstr(e.msg, bad[i].error))
            fail_msg("%s with %s: %s", bad[i].file, bad[i].path, e.msg);
        json_decref(j);
    }
}

/* GigaChat 3 is DeepseekV3ForCausalLM, whose rotation takes adjacent values where config.json does not say. */
static void test_gigachat(void **state)
{
    (void)state;
    nb_error err;
    read_named("gigachat3-10b");
    assert_true(conf.attn[0].rope.interleaved && conf.attn[0].q_lora == 0 && conf.attn[0].n_head == 32);
    json_t *j = load("gigachat3-10b");
    assert_null(json_object_get(j, "rope_interleave"));
    patch(j, "rope_interleave", "false");
    assert_int_equal(read_json(j, &err), NB_OK);
    assert_false(conf.attn[0].rope.interleaved);
    json_decref(j);
}

/* Attention with an indexer, and layers that share one. */
static void test_indexers(void **state)
{
    (void)state;
    nb_error err;
    read_named("deepseek-v3.2");
    const nb_attn_config *a = &conf.attn[0];
    assert_true(a->kind == NB_ATTN_DSA && conf.n_attn == 1 && !a->index_shared);
    assert_true(a->index_head == 64 && a->index_dim == 128 && a->index_topk == 2048);
    assert_true(a->rope.interleaved && !a->index_interleaved && a->q_lora == 1536);
    assert_true(conf.n_group == 8 && conf.dense[2] && !conf.dense[3] && conf.fp8);
    read_named("glm-5");
    assert_true(a->index_interleaved && a->index_head == 32 && conf.n_group == 1 && conf.n_attn == 1);
    json_t *j = load("glm-5");
    patch(j, "indexer_rope_interleave", "false");
    patch(j, "index_topk_pattern", "\"FFSSSSFSSSFSSSFSSSFSSSFSSSFSSSFSSSFSSSFSSSFSSSFSSSFSSSFSSSFSSSFSSSFSSSFSSSFSSS\"");
    assert_int_equal(read_json(j, &err), NB_OK);
    assert_true(!a->index_interleaved && conf.attn_of[1] == 0 && conf.attn_of[2] == 1 && conf.attn_of[6] == 0);
    json_decref(j);

    read_named("glm-5.2");
    size_t n_own = 0;
    for (size_t i = 0; i < conf.n_layer; i++) n_own += !nb_layer_attn(&conf, i)->index_shared;
    assert_true(n_own == 21 && conf.n_attn == 2 && conf.attn_of[2] == 0 && conf.attn_of[3] == 1);
    assert_true(conf.attn_of[6] == 0 && conf.attn_of[7] == 1 && conf.attn[0].d_rope == 64);
    assert_true(conf.attn[1].kind == NB_ATTN_DSA && conf.attn[1].index_topk == 2048);
    const unsigned char listed[2] = { conf.attn_of[10], conf.attn_of[77] };
    j = load("glm-5.2"); /* the period says the same as the list */
    patch(j, "indexer_types", NULL);
    assert_int_equal(read_json(j, &err), NB_OK);
    n_own = 0;
    for (size_t i = 0; i < conf.n_layer; i++) n_own += !nb_layer_attn(&conf, i)->index_shared;
    assert_true(n_own == 21 && conf.attn_of[10] == listed[0] && conf.attn_of[77] == listed[1]);
    patch(j, "index_skip_topk_offset", "0"); /* layer 0 has one whatever the period */
    assert_int_equal(read_json(j, &err), NB_ERR_FORMAT);
    json_decref(j);
}

/* Two layers for each published one, choices without weights, factors of queries and latents. */
static void test_longcat(void **state)
{
    (void)state;
    static const struct {
        const char *path, *value, *error;
    } bad[] = {
        { "num_layers", NULL, "num_layers is missing" },
        { "num_layers", "600", "num_layers" },
        { "ffn_hidden_size", NULL, "ffn_hidden_size is missing" },
        { "rope_theta", NULL, "rope_theta is missing" },
        { "q_lora_rank", "null", "q_lora_rank: null is not supported" },
        { "zero_expert_type", "\"copy\"", "zero_expert_type: \"copy\" is not supported (expected: identity)" },
        { "attention_method", "\"MHA\"", "attention_method" },
        { "router_bias", "true", "router_bias: true is not supported" },
        { "zero_expert_num", "4096", "n_routed_experts out of range" },
        { "moe_topk", "0", "moe_topk" },
        { "mla_scale_q_lora", "2", "mla_scale_q_lora" },
        { "index_topk", "64", "index_topk" },
        { "quantization_config", "{\"quant_method\": \"gptq\", \"bits\": 4}",
          "\"gptq\" is not supported for longcat_flash (expected: fp8)" },
    };
    nb_error err;
    nb_model_size s;
    read_named("longcat-flash");
    const nb_attn_config *a = &conf.attn[0];
    assert_true(conf.n_layer == 56 && conf.paired && conf.n_expert == 512 && conf.n_zero == 256);
    assert_true(nb_n_choice(&conf) == 768 && conf.top_k == 12 && conf.n_shared == 0);
    assert_true(conf.router_bias && !conf.sigmoid && !conf.normalise && conf.n_group == 1);
    assert_true(a->rope.interleaved && a->q_lora == 1536 && !a->qa_bias);
    for (size_t i = 0; i < 56; i++) {
        assert_true(conf.dense[i] && conf.shortcut[i] == (i % 2 == 0));
        assert_true(nb_layer_has_experts(&conf, i) == (i % 2 == 0));
        assert_true(nb_layer_ends_shortcut(&conf, i) == (i % 2 == 1));
    }
    near("queries", (double)a->q_a_factor, 2, 1e-7);
    near("latents", (double)a->kv_a_factor, 3.46410162, 1e-7);
    near("factor", (double)conf.routed_factor, 6, 0);
    near("eps", (double)conf.eps, 1e-5, 1e-6);
    near("eps of latents", (double)a->eps_lora, 1e-6, 1e-6);
    near("theta", (double)a->rope.inv_freq[1], pow(1e7, -2 / 64.0), 1e-6);
    nb_model_config_size(&conf, &s);
    assert_int_equal(s.n_param, 560664980480); /* by the formulas of the report, without its MTP layer */

    json_t *j = load("longcat-flash"); /* as transformers writes it */
    patch(j, "num_hidden_layers", "56");
    patch(j, "rope_theta", NULL);
    patch(j, "rope_parameters", "{\"rope_type\": \"default\", \"rope_theta\": 10000000.0}");
    patch(j, "zero_expert_num", "null");
    patch(j, "mla_scale_kv_lora", "false");
    patch(j, "norm_topk_prob", "true");
    patch(j, "quantization_config",
          "{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128], \"activation_scheme\": \"dynamic\"}");
    if (read_json(j, &err) != NB_OK) fail_msg("%s", err.msg);
    assert_true(conf.n_layer == 56 && conf.n_zero == 0 && conf.fp8 && conf.normalise);
    near("latents", (double)conf.attn[0].kv_a_factor, 1, 0);
    json_decref(j);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        j = load("longcat-flash");
        patch(j, bad[i].path, bad[i].value);
        if (read_json(j, &err) == NB_OK || !strstr(err.msg, bad[i].error))
            fail_msg("%s %s: %s", bad[i].path, bad[i].value ? bad[i].value : "absent", err.msg);
        json_decref(j);
    }
}

static void test_fields(void **state)
{
    (void)state;
    read_named("deepseek-v2-lite");
    assert_true(conf.attn[0].kind == NB_ATTN_MLA && conf.attn[0].q_lora == 0 &&
                conf.attn[0].kv_lora == 512);
    assert_true(conf.attn[0].d_nope == 128 && conf.attn[0].d_rope == 64 && conf.attn[0].d_v == 128);
    assert_true(conf.dense[0] && !conf.dense[1] && !conf.dense[26]);
    assert_true(conf.n_expert == 64 && conf.top_k == 6 && conf.n_shared == 2 &&
                conf.moe_inter == 1408);
    assert_true(!conf.sigmoid && !conf.normalise && !conf.router_bias && conf.n_group == 1);
    assert_true(conf.n_eos == 1 && conf.eos[0] == 100001);
    read_named("deepseek-v2");
    assert_true(conf.attn[0].q_lora == 1536 && conf.n_group == 8 && conf.topk_group == 3 &&
                conf.group_top == 1);
    near("V2 factor", (double)conf.routed_factor, 16, 0);
    assert_true(!conf.normalise);
    read_named("deepseek-v3");
    assert_true(conf.fp8 && conf.sigmoid && conf.normalise && conf.router_bias &&
                conf.group_top == 2);
    assert_true(conf.n_group == 8 && conf.topk_group == 4 && conf.dense[2] && !conf.dense[3]);
    assert_true(conf.max_pos == 163840 && !conf.tied);
    near("V3 factor", (double)conf.routed_factor, 2.5, 0);
    read_named("glm-4.7-flash");
    assert_true(conf.attn[0].d_nope == 192 && conf.attn[0].d_v == 256 &&
                conf.attn[0].q_lora == 768);
    assert_true(conf.n_eos == 3 && conf.eos[0] == 154820 && conf.eos[2] == 154829);
    assert_true(conf.dense[0] && !conf.dense[1] && conf.n_layer == 47);
    near("eps", (double)conf.eps, 1e-5, 1e-6);
    near("eps of latents", (double)conf.attn[0].eps_lora, 1e-6, 1e-6);
    read_named("minicpm3-4b");
    assert_true(conf.tied && conf.attn[0].d_v == 64 && conf.dense[61] && conf.n_expert == 0);
    near("scale_emb", (double)conf.embed_factor, 12, 0);
    near("scale_depth", (double)conf.branch_factor, 1.4 / sqrt(62), 1e-6);
    near("dim_model_base", (double)conf.logit_factor, 0.1, 1e-6);
    read_named("qwen2.5-0.5b");
    assert_true(conf.attn[0].kind == NB_ATTN_GQA && conf.attn[0].q_bias && conf.attn[0].kv_bias &&
                !conf.attn[0].o_bias && conf.tied);
    assert_true(conf.attn[0].n_kv_head == 2 && conf.attn[0].head_dim == 64 &&
                !conf.attn[0].qk_norm);
    read_named("qwen3-0.6b");
    assert_true(conf.attn[0].qk_norm && !conf.attn[0].q_bias && conf.attn[0].head_dim == 128 &&
                conf.attn[0].n_head == 16);
    read_named("llama-3.2-1b");
    assert_true(conf.attn[0].head_dim == 64 && conf.attn[0].n_kv_head == 8 &&
                !conf.attn[0].qk_norm && conf.tied);
}

/* Spellings that mean the same, and keys that are absent or null. */
static const struct variant {
    const char *file, *path, *value; /* value NULL: the key is removed */
    enum { SAME, TIED, UNTIED, TYPE_F16, TYPE_F32, ROPE_64_DEFAULT } want;
} variants[] = {
    { "deepseek-v3", "rope_scaling.rope_type", "\"yarn\"", SAME },
    { "deepseek-v3", "scoring_func", NULL, SAME },
    { "deepseek-v3", "topk_method", NULL, SAME },
    { "deepseek-v3", "hidden_act", NULL, SAME },
    { "deepseek-v3", "kv_lora_rank", NULL, SAME },
    { "deepseek-v3", "n_group", NULL, SAME },
    { "deepseek-v3", "first_k_dense_replace", NULL, SAME },
    { "deepseek-v3", "rms_norm_eps", NULL, SAME },
    { "deepseek-v3", "rms_norm_eps", "null", SAME },
    { "deepseek-v3", "routed_scaling_factor", "2.50", SAME },
    { "deepseek-v3", "quantization_config.weight_block_size", NULL, SAME },
    { "deepseek-v3", "quantization_config.scale_fmt", "\"ue8m0\"", SAME },
    { "deepseek-v3", "quantization_config.kv_cache_scheme", "\"NVFP4\"", SAME },
    { "llama-3.1-8b", "quantization_config",
      "{\"quant_method\":\"modelopt\",\"quant_algo\":null,\"kv_cache_scheme\":\"NVFP4\"}", SAME },
    { "llama-3.1-8b", "quantization_config",
      "{\"quant_method\":\"modelopt\",\"kv_cache_scheme\":{\"num_bits\":8,\"type\":\"float\"}}",
      SAME },
    { "deepseek-v3", "sliding_window", "null", SAME },
    { "deepseek-v3", "torch_dtype", NULL, SAME },
    { "deepseek-v3", "rope_scaling.beta_slow", NULL, SAME },
    { "deepseek-v3", "index_topk", "null", SAME },
    { "qwen3-8b", "sliding_window", "4096", SAME },
    { "qwen3-8b", "layer_types", "[\"full_attention\"]", SAME },
    { "qwen2.5-7b", "num_key_value_heads", "4", SAME },
    { "youtu-llm-2b", "tie_word_embeddings", NULL, TIED },
    { "youtu-llm-2b", "tie_word_embeddings", "false", UNTIED },
    { "minicpm3-4b", "tie_word_embeddings", NULL, TIED },
    { "glm-4.7-flash", "tie_word_embeddings", NULL, UNTIED },
    { "llama-3.1-8b", "tie_word_embeddings", "true", TIED },
    { "llama-3.1-8b", "dtype", "\"float16\"", TYPE_F16 },
    { "llama-3.1-8b", "torch_dtype", "\"float32\"", TYPE_F32 },
    { "moonlight-16b", "rope_scaling", "{}", ROPE_64_DEFAULT },
    { "moonlight-16b", "rope_parameters", "{\"rope_type\":\"default\",\"rope_theta\":50000}",
      ROPE_64_DEFAULT },
};

static void test_spellings(void **state)
{
    (void)state;
    static nb_model_config plain;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        const struct variant *v = &variants[i];
        nb_error e;
        read_named(v->file);
        plain = conf;
        json_t *j = load(v->file);
        patch(j, v->path, v->value);
        if (read_json(j, &e) != NB_OK) fail_msg("%s, %s: %s", v->file, v->path, e.msg);
        json_decref(j);
        if (conf.notes[0]) fail_msg("%s, %s: unknown: %s", v->file, v->path, conf.notes);
        switch (v->want) {
        case SAME:
            plain.dtype = conf.dtype = NULL;
            memset(conf.assumed, 0, sizeof conf.assumed); /* says which keys are absent */
            if (memcmp(&plain, &conf, sizeof conf) != 0)
                fail_msg("%s: %s = %s changes the model", v->file, v->path,
                         v->value ? v->value : "-");
            break;
        case TIED: assert_true(conf.tied); break;
        case UNTIED: assert_true(!conf.tied); break;
        case TYPE_F16: assert_string_equal(conf.dtype, "float16"); break;
        case TYPE_F32: assert_string_equal(conf.dtype, "float32"); break;
        case ROPE_64_DEFAULT:
            near("theta", (double)conf.attn[0].rope.inv_freq[16], pow(5e4, -0.5), 1e-6);
            break;
        }
    }
}

static void test_unknown_fields(void **state)
{
    (void)state;
    nb_error e;
    json_t *j = load("deepseek-v3");
    patch(j, "made_up_factor", "3");
    patch(j, "another\x1b[2J", "[]");
    assert_int_equal(read_json(j, &e), NB_OK);
    assert_non_null(strstr(conf.notes, "made_up_factor")); /* named, not swallowed */
    assert_non_null(strstr(conf.notes, ", "));
    char key[40];
    for (int i = 0; i < 200; i++) { /* more than the notes hold */
        (void)snprintf(key, sizeof key, "made_up_field_number_%d", i);
        patch(j, key, "1");
    }
    assert_int_equal(read_json(j, &e), NB_OK);
    assert_non_null(memchr(conf.notes, 0, sizeof conf.notes));
    json_decref(j);
}

/* ---- what is refused ---- */

#define TEN "1,2,3,4,5,6,7,8,9,10,"
static const struct refusal {
    const char *file, *path, *value; /* value NULL: the key is removed */
    const char *names;               /* what the line has to name, beside the file */
} refusals[] = {
    { "deepseek-v3", "model_type", "\"deepseek_v9\"", "deepseek_v9" },
    { "deepseek-v3", "model_type", "\"mistral\"", "deepseek_v3" }, /* says what there is */
    { "deepseek-v3", "model_type", NULL, "model_type" },
    { "deepseek-v3", "model_type", "7", "model_type" },
    { "deepseek-v3", "model_type", "\"\"", "model_type" },
    /* attention that is not ours */
    { "qwen3-8b", "use_sliding_window", "true", "use_sliding_window" },
    { "qwen2.5-7b", "use_sliding_window", "true", "use_sliding_window" },
    { "qwen3-8b", "layer_types", "[\"full_attention\",\"sliding_attention\"]",
      "sliding_attention" },
    { "llama-3.1-8b", "layer_types", "3", "layer_types" },
    { "deepseek-v3", "index_topk", "2048", "index_topk" },
    { "deepseek-v3.2", "index_topk", "0", "index_topk" },
    { "deepseek-v3.2", "index_n_heads", "0", "index_n_heads" },
    { "deepseek-v3.2", "index_head_dim", "32", "index_head_dim" },
    { "deepseek-v3.2", "index_head_dim", "1e9", "index_head_dim" },
    { "deepseek-v3.2", "q_lora_rank", "null", "q_lora_rank" },
    { "glm-5.2", "indexer_types", "[\"full\"]", "indexer_types" },
    { "glm-5.2", "indexer_types", "\"full\"", "indexer_types" },
    { "glm-5", "index_topk_pattern", "\"FSFS\"", "index_topk_pattern" },
    { "glm-5", "index_skip_topk_offset", "-1", "index_skip_topk_offset" },
    { "deepseek-v3", "use_mla_nope", "true", "use_mla_nope" },
    { "deepseek-v3", "attn_logit_softcapping", "50.0", "attn_logit_softcapping" },
    { "deepseek-v3", "final_logit_softcapping", "30.0", "final_logit_softcapping" },
    { "deepseek-v3", "query_pre_attn_scalar", "256", "query_pre_attn_scalar" },
    { "llama-3.1-8b", "attention_multiplier", "0.5", "attention_multiplier" },
    { "deepseek-v3", "llama_4_scaling", "{\"beta\":0.1}", "llama_4_scaling" },
    { "deepseek-v3", "partial_rotary_factor", "0.5", "partial_rotary_factor" },
    { "glm-4.7-flash", "rope_parameters.partial_rotary_factor", "0.5", "partial_rotary_factor" },
    { "llama-3.1-8b", "logit_scale", "0.0625", "logit_scale" },
    { "llama-3.1-8b", "residual_multiplier", "0.22", "residual_multiplier" },
    { "llama-3.1-8b", "embedding_multiplier", "12.0", "embedding_multiplier" },
    { "llama-3.1-8b", "logits_scaling", "8.0", "logits_scaling" },
    { "qwen3-8b", "num_experts", "128", "num_experts" },
    /* feed forward */
    { "deepseek-v3", "hidden_act", "\"gelu\"", "hidden_act" },
    { "qwen3-8b", "hidden_act", "\"relu2\"", "hidden_act" },
    { "deepseek-v3", "hidden_act", "[]", "hidden_act" },
    { "deepseek-v3", "scoring_func", "\"softmax\"", "scoring_func" },
    { "deepseek-v3", "scoring_func", "\"sqrtsoftplus\"", "scoring_func" },
    { "deepseek-v2-lite", "scoring_func", "\"sigmoid\"", "scoring_func" },
    { "deepseek-v2-lite", "topk_method", "\"noaux_tc\"", "topk_method" },
    { "deepseek-v3", "topk_method", "\"greedy\"", "topk_method" },
    { "deepseek-v3", "moe_layer_freq", "2", "moe_layer_freq" },
    { "deepseek-v3", "mlp_bias", "true", "mlp_bias" },
    { "youtu-llm-2b", "n_routed_experts", "8", "n_routed_experts" },
    { "glm-4.7-flash", "mlp_layer_types", "[\"dense\"]", "mlp_layer_types" },
    { "deepseek-v3", "n_group", "7", "n_group" },
    { "deepseek-v3", "n_group", "0", "n_group" },
    { "deepseek-v3", "topk_group", "9", "topk_group" },
    { "deepseek-v3", "topk_group", "0", "topk_group" },
    { "deepseek-v3", "num_experts_per_tok", "0", "num_experts_per_tok" },
    { "deepseek-v3", "num_experts_per_tok", "65", "num_experts_per_tok" },
    { "deepseek-v3", "n_routed_experts", "4", "num_experts_per_tok" },
    { "deepseek-v3", "moe_intermediate_size", "0", "moe_intermediate_size" },
    { "deepseek-v2-lite", "num_experts_per_tok", NULL, "num_experts_per_tok" },
    /* rope */
    { "deepseek-v3", "rope_scaling.type", "\"dynamic\"", "dynamic" },
    { "deepseek-v3", "rope_scaling.type", "\"su\"", "su" },
    { "deepseek-v3", "rope_scaling.type", "\"mrope\"", "mrope" },
    { "deepseek-v3", "rope_scaling.type", "4", "rope_scaling.type" },
    { "deepseek-v3", "rope_scaling.factor", NULL, "factor" },
    { "deepseek-v3", "rope_scaling.factor", "0", "factor" },
    { "deepseek-v3", "rope_scaling.factor", "-40", "factor" },
    { "deepseek-v3", "rope_scaling.factor", "\"40\"", "rope_scaling.factor" },
    { "deepseek-v3", "rope_scaling.beta_fast", "-1", "beta_fast" },
    { "deepseek-v3", "rope_scaling.mscale", "\"x\"", "mscale" },
    { "deepseek-v3", "rope_scaling.original_max_position_embeddings", "0",
      "original_max_position" },
    { "deepseek-v3", "rope_scaling.original_max_position_embeddings", "1e300", "original_max_pos" },
    { "deepseek-v3", "rope_theta", "0", "rope_theta" },
    { "deepseek-v3", "rope_theta", "-5", "rope_theta" },
    { "deepseek-v3", "rope_theta", "1e300", "rope_theta" },
    { "deepseek-v3", "rope_theta", "\"10000\"", "rope_theta" },
    { "minicpm3-4b", "rope_scaling.short_factor", "[1,2]", "short_factor" },
    { "minicpm3-4b", "rope_scaling.long_factor", NULL, "long_factor" },
    { "minicpm3-4b", "rope_scaling.long_factor", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,0]", "longrope" },
    { "minicpm3-4b", "rope_scaling.long_factor", "\"x\"", "long_factor" },
    { "llama-3.1-8b", "rope_scaling.low_freq_factor", NULL, "low_freq_factor" },
    { "llama-3.1-8b", "rope_scaling.high_freq_factor", "1.0", "high_freq_factor" },
    { "deepseek-v3", "qk_rope_head_dim", "63", "63" },
    { "deepseek-v3", "qk_rope_head_dim", "0", "qk_rope_head_dim" },
    { "llama-3.1-8b", "head_dim", "127", "127" },
    /* quantization and types */
    { "kimi-k2-thinking", "quantization_config",
      "{\"quant_method\":\"compressed-tensors\",\"format\":\"marlin-24\"}", "marlin-24" },
    { "deepseek-v3", "quantization_config.quant_method", "\"bitsandbytes\"", "quant_method" },
    { "deepseek-v3", "quantization_config.quant_method", "\"bitsandbytes\"", "quant_method" },
    { "deepseek-v3", "quantization_config",
      "{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4_AWQ\"}", "NVFP4_AWQ" },
    { "deepseek-v3", "quantization_config", "{\"quant_method\":\"gptq\",\"bits\":3}", "3 bits" },
    { "deepseek-v3", "quantization_config",
      "{\"quant_method\":\"awq\",\"bits\":4,\"version\":\"gemv\"}", "gemv" },
    { "deepseek-v3", "quantization_config", "{\"quant_method\":\"modelopt\",\"quant_algo\":8}",
      "quant_algo" },
    { "deepseek-v3", "quantization_config.quant_method", NULL, "quant_method" },
    { "deepseek-v3", "quantization_config.fmt", "\"e5m2\"", "fmt" },
    { "deepseek-v3", "quantization_config.activation_scheme", "\"never\"", "activation_scheme" },
    { "deepseek-v3", "quantization_config.weight_block_size", "[64,128]", "weight_block_size" },
    { "deepseek-v3", "quantization_config.weight_block_size", "[128]", "weight_block_size" },
    { "deepseek-v3", "quantization_config.weight_block_size", "\"128\"", "weight_block_size" },
    { "deepseek-v3", "quantization_config", "[]", "quantization_config" },
    { "deepseek-v3", "torch_dtype", "\"int8\"", "int8" },
    { "deepseek-v3", "torch_dtype", "3", "torch_dtype" },
    { "deepseek-v3", "dtype", "\"float64\"", "float64" },
    /* missing, of a wrong type, absurd */
    { "deepseek-v3", "vocab_size", NULL, "vocab_size" },
    { "deepseek-v3", "hidden_size", NULL, "hidden_size" },
    { "deepseek-v3", "num_hidden_layers", NULL, "num_hidden_layers" },
    { "deepseek-v3", "num_attention_heads", NULL, "num_attention_heads" },
    { "deepseek-v3", "intermediate_size", NULL, "intermediate_size" },
    { "llama-3.1-8b", "intermediate_size", "null", "intermediate_size" },
    { "deepseek-v3", "hidden_size", "\"7168\"", "hidden_size" },
    { "deepseek-v3", "hidden_size", "7168.5", "hidden_size" },
    { "deepseek-v3", "hidden_size", "[7168]", "hidden_size" },
    { "deepseek-v3", "hidden_size", "true", "hidden_size" },
    { "deepseek-v3", "hidden_size", "0", "hidden_size" },
    { "deepseek-v3", "hidden_size", "-7168", "hidden_size" },
    { "deepseek-v3", "hidden_size", "1e30", "hidden_size" },
    { "deepseek-v3", "hidden_size", "9223372036854775807", "hidden_size" },
    { "deepseek-v3", "vocab_size", "0", "vocab_size" },
    { "deepseek-v3", "vocab_size", "4294967296", "vocab_size" },
    { "deepseek-v3", "num_hidden_layers", "100000", "num_hidden_layers" },
    { "deepseek-v3", "num_hidden_layers", "0", "num_hidden_layers" },
    { "deepseek-v3", "num_attention_heads", "0", "num_attention_heads" },
    { "deepseek-v3", "num_attention_heads", "70000", "num_attention_heads" },
    { "deepseek-v3", "kv_lora_rank", "0", "kv_lora_rank" },
    { "deepseek-v3", "kv_lora_rank", "100000", "kv_lora_rank" },
    { "deepseek-v3", "q_lora_rank", "-1", "q_lora_rank" },
    { "deepseek-v3", "q_lora_rank", "\"x\"", "q_lora_rank" },
    { "deepseek-v3", "v_head_dim", "0", "v_head_dim" },
    { "deepseek-v3", "qk_nope_head_dim", "1000000", "qk_nope_head_dim" },
    { "deepseek-v3", "intermediate_size", "0", "intermediate_size" },
    { "deepseek-v3", "intermediate_size", "4294967296", "intermediate_size" },
    { "deepseek-v3", "moe_intermediate_size", "4294967296", "moe_intermediate_size" },
    { "deepseek-v3", "n_routed_experts", "5000", "n_routed_experts" },
    { "deepseek-v3", "n_shared_experts", "1000", "n_shared_experts" },
    { "deepseek-v3", "first_k_dense_replace", "-1", "first_k_dense_replace" },
    { "deepseek-v3", "routed_scaling_factor", "1e30", "routed_scaling_factor" },
    { "deepseek-v3", "routed_scaling_factor", "{}", "routed_scaling_factor" },
    { "deepseek-v3", "max_position_embeddings", "0", "max_position_embeddings" },
    { "deepseek-v3", "max_position_embeddings", "1e18", "max_position_embeddings" },
    { "deepseek-v3", "rms_norm_eps", "0", "rms_norm_eps" },
    { "deepseek-v3", "rms_norm_eps", "-1e-6", "rms_norm_eps" },
    { "deepseek-v3", "rms_norm_eps", "2", "rms_norm_eps" },
    { "deepseek-v3", "rms_norm_eps", "\"1e-6\"", "rms_norm_eps" },
    { "deepseek-v3", "attention_bias", "\"no\"", "attention_bias" },
    { "deepseek-v3", "norm_topk_prob", "1", "norm_topk_prob" },
    { "deepseek-v3", "tie_word_embeddings", "0", "tie_word_embeddings" },
    { "deepseek-v3", "rope_interleave", "\"true\"", "rope_interleave" },
    { "deepseek-v3", "eos_token_id", "-1", "eos_token_id" },
    { "deepseek-v3", "eos_token_id", "4294967296", "eos_token_id" },
    { "deepseek-v3", "eos_token_id", "[1,\"2\"]", "eos_token_id" },
    { "deepseek-v3", "eos_token_id", "[" TEN TEN TEN TEN TEN TEN "1,2,3,4,5]", "eos_token_id" },
    { "llama-3.1-8b", "num_key_value_heads", "5", "num_key_value_heads" },
    { "llama-3.1-8b", "num_key_value_heads", "-8", "num_key_value_heads" },
    { "minicpm3-4b", "scale_emb", "1e30", "scale_emb" },
    { "minicpm3-4b", "scale_depth", "\"x\"", "scale_depth" },
    { "minicpm3-4b", "dim_model_base", "[]", "dim_model_base" },
};

static void test_refusals(void **state)
{
    (void)state;
    size_t n_bad = 0;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *r = &refusals[i];
        nb_error e;
        json_t *j = load(r->file);
        patch(j, r->path, r->value);
        const nb_status st = read_json(j, &e);
        json_decref(j);
        const char *v = r->value ? r->value : "(removed)", *why = NULL;
        const char *end = memchr(e.msg, 0, sizeof e.msg);
        if (st >= 0)
            why = "accepted";
        else if (st != e.status)
            why = "status and error disagree";
        else if (!end || strncmp(e.msg, "some/config.json: ", 18) != 0)
            why = "the line does not name the file";
        else if (!strstr(e.msg, r->names))
            why = "the line does not name the field";
        else if (strchr(e.msg, '\n') || !nb_utf8_valid(nb_str_c(e.msg)))
            why = "not one clean line";
        if (why) print_message("%s, %s = %s: %s: %s\n", r->file, r->path, v, why, e.msg);
        n_bad += why != NULL;
    }
    assert_int_equal(n_bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published),      cmocka_unit_test(test_exact_counts),
        cmocka_unit_test(test_rope),           cmocka_unit_test(test_mla_relatives),
        cmocka_unit_test(test_fields),         cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_indexers), cmocka_unit_test(test_gigachat),
        cmocka_unit_test(test_longcat),
        cmocka_unit_test(test_unknown_fields), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
