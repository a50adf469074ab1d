/* test_config_families.c - config.json of every family: what is read, what is derived, what
 * is refused.
 *
 * tests/data/config holds the fields that the published models have (kimi_k2_thinking: with
 * its quantization, which is refused; minicpm3_4b: longrope factors of our own).  Expected
 * numbers are the ones of the models' papers and cards, not of this code. */
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
    (void)snprintf(path, sizeof path, "%s/tests/data/config/%s.json", root_dir(), name);
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
    { "deepseek_v2_lite", "deepseek_v2", 15.71, 2.66, 0.11472139, 31104, 354 },
    { "deepseek_v2", "deepseek_v2", 235.74, 21.4, 0.11472139, 69120, 354 },
    { "deepseek_v3", "deepseek_v3", 671.03, 37.6, 0.13523378, 70272, 354 },
    { "kimi_k2", "deepseek_v3", 1026.41, 32.9, 0.13086080, 70272, 354 },
    { "moonlight_16b", "deepseek_v3", 15.96, 2.9, 0.07216878, 31104, 354 },
    { "glm_4_7_flash", "glm4_moe_lite", 29.94, 3.9, 0.0625, 54144, 354 },
    { "youtu_llm_2b", "youtu", 1.96, 0, 0.07216878, 36864, 354 },
    { "minicpm3_4b", "minicpm3", 4.07, 0, 0.10206207, 35712, 0 },
    { "llama_3_2_1b", "llama", 1.236, 0, 0.125, 32768, 0 },
    { "llama_3_1_8b", "llama", 8.030, 0, 0.08838835, 131072, 0 },
    { "qwen2_5_0_5b", "qwen2", 0.494, 0, 0.125, 12288, 0 },
    { "qwen2_5_7b", "qwen2", 7.616, 0, 0.08838835, 57344, 0 },
    { "qwen3_0_6b", "qwen3", 0.596, 0, 0.08838835, 114688, 0 },
    { "qwen3_8b", "qwen3", 8.191, 0, 0.08838835, 147456, 0 },
};

static double record_bytes(nb_kv_type type)
{
    nb_record_opts o;
    nb_record r;
    nb_error e;
    nb_model_record_opts(&conf, type, NB_KV_4OVER6, NB_ROPE_FP8, &o);
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
        near(p->file, (double)conf.softmax_scale, p->softmax_scale, 1e-6);
        nb_model_config_size(&conf, &s);
        const double table = (double)conf.n_vocab * (double)conf.hidden;
        /* the tables round to 4 or 5 digits */
        near(p->file, (double)s.n_param / 1e9, p->b_param, p->b_param < 10 ? 3e-3 : 5e-4);
        if (p->b_active > 0)
            near(p->file, ((double)s.n_param_active + table) / 1e9, p->b_active, 3e-2);
        else
            near(p->file, (double)s.n_param_active, (double)s.n_param - (conf.tied ? 0 : table),
                 1e-12);
        near(p->file, record_bytes(NB_KV_BF16) * (double)conf.n_layer, (double)p->bf16_bytes, 0);
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
        { "deepseek_v2_lite", 15706484224 }, { "moonlight_16b", 15960110208 },
        { "deepseek_v3", 671026419200 },     { "llama_3_2_1b", 1235814400 },
        { "llama_3_1_8b", 8030261248 },      { "qwen2_5_0_5b", 494032768 },
        { "qwen2_5_7b", 7615616512 },        { "qwen3_0_6b", 596049920 },
        { "qwen3_8b", 8190735360 },
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
    assert_int_equal(conf.rope.dim, 64);
    assert_true(conf.rope.interleaved);
    near(name, (double)conf.rope.factor, 1, 1e-6);
    assert_int_equal(conf.rope.switch_tok, 0);
    for (int j = 0; j < 32; j++) {
        const double base = pow(theta, -j / 32.0);
        const double ramp = j <= low ? 0 : j >= high ? 1 : (double)(j - low) / (high - low);
        char what[80];
        (void)snprintf(what, sizeof what, "%s: frequency %d", name, j);
        near(what, (double)conf.rope.inv_freq[j], base * (1 - ramp) + base / factor * ramp, 1e-6);
    }
}

static void test_rope(void **state)
{
    (void)state;
    check_ramp("deepseek_v2_lite", 1e4, 40, 10, 23);
    check_ramp("deepseek_v2", 1e4, 40, 10, 23);
    check_ramp("deepseek_v3", 1e4, 40, 10, 23);
    check_ramp("kimi_k2", 5e4, 32, 19, 20);
    check_ramp("moonlight_16b", 5e4, 1, 0, 1);
    check_ramp("glm_4_7_flash", 1e6, 1, 0, 1);
    check_ramp("youtu_llm_2b", 1.6e6, 1, 0, 1);
    nb_error e;
    json_t *j = load("kimi_k2_thinking");
    patch(j, "quantization_config", NULL);
    assert_int_equal(read_json(j, &e), NB_OK);
    near("K2 Thinking", (double)conf.softmax_scale, 0.14467963, 1e-6);
    assert_true(!conf.fp8);
    json_decref(j);

    read_named("minicpm3_4b"); /* longrope: a table for each side of 32768 */
    assert_int_equal(conf.rope.dim, 32);
    assert_true(!conf.rope.interleaved);
    assert_int_equal(conf.rope.switch_tok, 32768);
    near("longrope factor", (double)conf.rope.factor, 1, 0);
    for (int k = 0; k < 16; k++) {
        const double base = pow(1e4, -2 * k / 32.0), factor = 1 + 0.05 * k;
        near("short", (double)conf.rope.inv_freq[k], base / factor, 1e-6);
        near("long", (double)conf.rope.inv_freq_long[k], base / (2 * factor), 1e-6);
    }
    j = load("minicpm3_4b"); /* four times the original length */
    patch(j, "rope_scaling.original_max_position_embeddings", "8192");
    assert_int_equal(read_json(j, &e), NB_OK);
    near("longrope factor", (double)conf.rope.factor, sqrt(1 + log(4) / log(8192)), 1e-6);
    json_decref(j);

    read_named("llama_3_1_8b"); /* llama3: three bands */
    assert_int_equal(conf.rope.dim, 128);
    for (int k = 0; k < 64; k++) {
        const double f = pow(5e5, -2 * k / 128.0), wave = 2 * 3.141592653589793 / f;
        const double s = (8192 / wave - 1) / 3;
        near("llama3", (double)conf.rope.inv_freq[k],
             wave < 2048   ? f
             : wave > 8192 ? f / 8
                           : (1 - s) * f / 8 + s * f,
             1e-6);
    }
    read_named("qwen3_8b");
    near("qwen3", (double)conf.rope.inv_freq[1], pow(1e6, -2 / 128.0), 1e-6);
    assert_true(!conf.rope.interleaved);
}

static void test_fields(void **state)
{
    (void)state;
    read_named("deepseek_v2_lite");
    assert_true(conf.attn == NB_ATTN_MLA && conf.q_lora == 0 && conf.kv_lora == 512);
    assert_true(conf.d_nope == 128 && conf.d_rope == 64 && conf.d_v == 128);
    assert_true(conf.dense[0] && !conf.dense[1] && !conf.dense[26]);
    assert_true(conf.n_expert == 64 && conf.top_k == 6 && conf.n_shared == 2 &&
                conf.moe_inter == 1408);
    assert_true(!conf.sigmoid && !conf.normalise && !conf.router_bias && conf.n_group == 1);
    assert_true(conf.n_eos == 1 && conf.eos[0] == 100001);
    read_named("deepseek_v2");
    assert_true(conf.q_lora == 1536 && conf.n_group == 8 && conf.topk_group == 3 &&
                conf.group_top == 1);
    near("V2 factor", (double)conf.routed_factor, 16, 0);
    assert_true(!conf.normalise);
    read_named("deepseek_v3");
    assert_true(conf.fp8 && conf.sigmoid && conf.normalise && conf.router_bias &&
                conf.group_top == 2);
    assert_true(conf.n_group == 8 && conf.topk_group == 4 && conf.dense[2] && !conf.dense[3]);
    assert_true(conf.max_pos == 163840 && !conf.tied);
    near("V3 factor", (double)conf.routed_factor, 2.5, 0);
    read_named("glm_4_7_flash");
    assert_true(conf.d_nope == 192 && conf.d_v == 256 && conf.q_lora == 768);
    assert_true(conf.n_eos == 3 && conf.eos[0] == 154820 && conf.eos[2] == 154829);
    assert_true(conf.dense[0] && !conf.dense[1] && conf.n_layer == 47);
    near("eps", (double)conf.eps, 1e-5, 1e-6);
    near("eps of latents", (double)conf.eps_lora, 1e-6, 1e-6);
    read_named("minicpm3_4b");
    assert_true(conf.tied && conf.d_v == 64 && conf.dense[61] && conf.n_expert == 0);
    near("scale_emb", (double)conf.embed_factor, 12, 0);
    near("scale_depth", (double)conf.branch_factor, 1.4 / sqrt(62), 1e-6);
    near("dim_model_base", (double)conf.logit_factor, 0.1, 1e-6);
    read_named("qwen2_5_0_5b");
    assert_true(conf.attn == NB_ATTN_GQA && conf.q_bias && conf.kv_bias && !conf.o_bias &&
                conf.tied);
    assert_true(conf.n_kv_head == 2 && conf.head_dim == 64 && !conf.qk_norm);
    read_named("qwen3_0_6b");
    assert_true(conf.qk_norm && !conf.q_bias && conf.head_dim == 128 && conf.n_head == 16);
    read_named("llama_3_2_1b");
    assert_true(conf.head_dim == 64 && conf.n_kv_head == 8 && !conf.qk_norm && conf.tied);
}

/* Spellings that mean the same, and keys that are absent or null. */
static const struct variant {
    const char *file, *path, *value; /* value NULL: the key is removed */
    enum { SAME, TIED, UNTIED, TYPE_F16, TYPE_F32, ROPE_64_DEFAULT } want;
} variants[] = {
    { "deepseek_v3", "rope_scaling.rope_type", "\"yarn\"", SAME },
    { "deepseek_v3", "scoring_func", NULL, SAME },
    { "deepseek_v3", "topk_method", NULL, SAME },
    { "deepseek_v3", "hidden_act", NULL, SAME },
    { "deepseek_v3", "kv_lora_rank", NULL, SAME },
    { "deepseek_v3", "n_group", NULL, SAME },
    { "deepseek_v3", "first_k_dense_replace", NULL, SAME },
    { "deepseek_v3", "rms_norm_eps", NULL, SAME },
    { "deepseek_v3", "rms_norm_eps", "null", SAME },
    { "deepseek_v3", "routed_scaling_factor", "2.50", SAME },
    { "deepseek_v3", "quantization_config.weight_block_size", NULL, SAME },
    { "deepseek_v3", "quantization_config.scale_fmt", "\"ue8m0\"", SAME },
    { "deepseek_v3", "quantization_config.kv_cache_scheme", "\"NVFP4\"", SAME },
    { "llama_3_1_8b", "quantization_config",
      "{\"quant_method\":\"modelopt\",\"quant_algo\":null,\"kv_cache_scheme\":\"NVFP4\"}", SAME },
    { "llama_3_1_8b", "quantization_config",
      "{\"quant_method\":\"modelopt\",\"kv_cache_scheme\":{\"num_bits\":8,\"type\":\"float\"}}",
      SAME },
    { "deepseek_v3", "sliding_window", "null", SAME },
    { "deepseek_v3", "torch_dtype", NULL, SAME },
    { "deepseek_v3", "rope_scaling.beta_slow", NULL, SAME },
    { "deepseek_v3", "index_topk", "null", SAME },
    { "qwen3_8b", "sliding_window", "4096", SAME },
    { "qwen3_8b", "layer_types", "[\"full_attention\"]", SAME },
    { "qwen2_5_7b", "num_key_value_heads", "4", SAME },
    { "youtu_llm_2b", "tie_word_embeddings", NULL, TIED },
    { "youtu_llm_2b", "tie_word_embeddings", "false", UNTIED },
    { "minicpm3_4b", "tie_word_embeddings", NULL, TIED },
    { "glm_4_7_flash", "tie_word_embeddings", NULL, UNTIED },
    { "llama_3_1_8b", "tie_word_embeddings", "true", TIED },
    { "llama_3_1_8b", "dtype", "\"float16\"", TYPE_F16 },
    { "llama_3_1_8b", "torch_dtype", "\"float32\"", TYPE_F32 },
    { "moonlight_16b", "rope_scaling", "{}", ROPE_64_DEFAULT },
    { "moonlight_16b", "rope_parameters", "{\"rope_type\":\"default\",\"rope_theta\":50000}",
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
            if (memcmp(&plain, &conf, sizeof conf) != 0)
                fail_msg("%s: %s = %s changes the model", v->file, v->path,
                         v->value ? v->value : "-");
            break;
        case TIED: assert_true(conf.tied); break;
        case UNTIED: assert_true(!conf.tied); break;
        case TYPE_F16: assert_string_equal(conf.dtype, "float16"); break;
        case TYPE_F32: assert_string_equal(conf.dtype, "float32"); break;
        case ROPE_64_DEFAULT:
            near("theta", (double)conf.rope.inv_freq[16], pow(5e4, -0.5), 1e-6);
            break;
        }
    }
}

static void test_unknown_fields(void **state)
{
    (void)state;
    nb_error e;
    json_t *j = load("deepseek_v3");
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
    { "deepseek_v3", "model_type", "\"deepseek_v4\"", "deepseek_v4" },
    { "deepseek_v3", "model_type", "\"deepseek_v32\"", "deepseek_v32" },
    { "deepseek_v3", "model_type", "\"glm_moe_dsa\"", "glm_moe_dsa" },
    { "deepseek_v3", "model_type", "\"mistral\"", "deepseek_v3" }, /* says what there is */
    { "deepseek_v3", "model_type", NULL, "model_type" },
    { "deepseek_v3", "model_type", "7", "model_type" },
    { "deepseek_v3", "model_type", "\"\"", "model_type" },
    /* attention that is not ours */
    { "qwen3_8b", "use_sliding_window", "true", "use_sliding_window" },
    { "qwen2_5_7b", "use_sliding_window", "true", "use_sliding_window" },
    { "qwen3_8b", "layer_types", "[\"full_attention\",\"sliding_attention\"]",
      "sliding_attention" },
    { "llama_3_1_8b", "layer_types", "3", "layer_types" },
    { "deepseek_v3", "index_topk", "2048", "index_topk" },
    { "deepseek_v3", "use_mla_nope", "true", "use_mla_nope" },
    { "deepseek_v3", "attn_logit_softcapping", "50.0", "attn_logit_softcapping" },
    { "deepseek_v3", "final_logit_softcapping", "30.0", "final_logit_softcapping" },
    { "deepseek_v3", "query_pre_attn_scalar", "256", "query_pre_attn_scalar" },
    { "llama_3_1_8b", "attention_multiplier", "0.5", "attention_multiplier" },
    { "deepseek_v3", "llama_4_scaling", "{\"beta\":0.1}", "llama_4_scaling" },
    { "deepseek_v3", "partial_rotary_factor", "0.5", "partial_rotary_factor" },
    { "glm_4_7_flash", "rope_parameters.partial_rotary_factor", "0.5", "partial_rotary_factor" },
    { "llama_3_1_8b", "logit_scale", "0.0625", "logit_scale" },
    { "llama_3_1_8b", "residual_multiplier", "0.22", "residual_multiplier" },
    { "llama_3_1_8b", "embedding_multiplier", "12.0", "embedding_multiplier" },
    { "llama_3_1_8b", "logits_scaling", "8.0", "logits_scaling" },
    { "qwen3_8b", "num_experts", "128", "num_experts" },
    /* feed forward */
    { "deepseek_v3", "hidden_act", "\"gelu\"", "hidden_act" },
    { "qwen3_8b", "hidden_act", "\"relu2\"", "hidden_act" },
    { "deepseek_v3", "hidden_act", "[]", "hidden_act" },
    { "deepseek_v3", "scoring_func", "\"softmax\"", "scoring_func" },
    { "deepseek_v3", "scoring_func", "\"sqrtsoftplus\"", "scoring_func" },
    { "deepseek_v2_lite", "scoring_func", "\"sigmoid\"", "scoring_func" },
    { "deepseek_v2_lite", "topk_method", "\"noaux_tc\"", "topk_method" },
    { "deepseek_v3", "topk_method", "\"greedy\"", "topk_method" },
    { "deepseek_v3", "moe_layer_freq", "2", "moe_layer_freq" },
    { "deepseek_v3", "mlp_bias", "true", "mlp_bias" },
    { "youtu_llm_2b", "n_routed_experts", "8", "n_routed_experts" },
    { "glm_4_7_flash", "mlp_layer_types", "[\"dense\"]", "mlp_layer_types" },
    { "deepseek_v3", "n_group", "7", "n_group" },
    { "deepseek_v3", "n_group", "0", "n_group" },
    { "deepseek_v3", "topk_group", "9", "topk_group" },
    { "deepseek_v3", "topk_group", "0", "topk_group" },
    { "deepseek_v3", "num_experts_per_tok", "0", "num_experts_per_tok" },
    { "deepseek_v3", "num_experts_per_tok", "65", "num_experts_per_tok" },
    { "deepseek_v3", "n_routed_experts", "4", "num_experts_per_tok" },
    { "deepseek_v3", "moe_intermediate_size", "0", "moe_intermediate_size" },
    { "deepseek_v2_lite", "num_experts_per_tok", NULL, "num_experts_per_tok" },
    /* rope */
    { "deepseek_v3", "rope_scaling.type", "\"dynamic\"", "dynamic" },
    { "deepseek_v3", "rope_scaling.type", "\"su\"", "su" },
    { "deepseek_v3", "rope_scaling.type", "\"mrope\"", "mrope" },
    { "deepseek_v3", "rope_scaling.type", "4", "rope_scaling.type" },
    { "deepseek_v3", "rope_scaling.factor", NULL, "factor" },
    { "deepseek_v3", "rope_scaling.factor", "0", "factor" },
    { "deepseek_v3", "rope_scaling.factor", "-40", "factor" },
    { "deepseek_v3", "rope_scaling.factor", "\"40\"", "rope_scaling.factor" },
    { "deepseek_v3", "rope_scaling.beta_fast", "-1", "beta_fast" },
    { "deepseek_v3", "rope_scaling.mscale", "\"x\"", "mscale" },
    { "deepseek_v3", "rope_scaling.original_max_position_embeddings", "0",
      "original_max_position" },
    { "deepseek_v3", "rope_scaling.original_max_position_embeddings", "1e300", "original_max_pos" },
    { "deepseek_v3", "rope_theta", "0", "rope_theta" },
    { "deepseek_v3", "rope_theta", "-5", "rope_theta" },
    { "deepseek_v3", "rope_theta", "1e300", "rope_theta" },
    { "deepseek_v3", "rope_theta", "\"10000\"", "rope_theta" },
    { "minicpm3_4b", "rope_scaling.short_factor", "[1,2]", "short_factor" },
    { "minicpm3_4b", "rope_scaling.long_factor", NULL, "long_factor" },
    { "minicpm3_4b", "rope_scaling.long_factor", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,0]", "longrope" },
    { "minicpm3_4b", "rope_scaling.long_factor", "\"x\"", "long_factor" },
    { "llama_3_1_8b", "rope_scaling.low_freq_factor", NULL, "low_freq_factor" },
    { "llama_3_1_8b", "rope_scaling.high_freq_factor", "1.0", "high_freq_factor" },
    { "deepseek_v3", "qk_rope_head_dim", "63", "63" },
    { "deepseek_v3", "qk_rope_head_dim", "0", "qk_rope_head_dim" },
    { "llama_3_1_8b", "head_dim", "127", "127" },
    /* quantization and types */
    { "kimi_k2_thinking", "torch_dtype", "\"bfloat16\"", "quant_method" },
    { "deepseek_v3", "quantization_config.quant_method", "\"awq\"", "quant_method" },
    { "deepseek_v3", "quantization_config.quant_method", "\"gptq\"", "quant_method" },
    { "deepseek_v3", "quantization_config.quant_method", "\"modelopt\"", "quant_method" },
    { "deepseek_v3", "quantization_config",
      "{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\"}", "NVFP4" },
    { "deepseek_v3", "quantization_config",
      "{\"quant_method\":\"modelopt\",\"quant_algo\":null,\"config_groups\":{}}", "config_groups" },
    { "deepseek_v3", "quantization_config", "{\"quant_method\":\"modelopt\",\"quant_algo\":8}",
      "quant_algo" },
    { "deepseek_v3", "quantization_config.quant_method", NULL, "quant_method" },
    { "deepseek_v3", "quantization_config.fmt", "\"e5m2\"", "fmt" },
    { "deepseek_v3", "quantization_config.activation_scheme", "\"static\"", "activation_scheme" },
    { "deepseek_v3", "quantization_config.weight_block_size", "[64,128]", "weight_block_size" },
    { "deepseek_v3", "quantization_config.weight_block_size", "[128]", "weight_block_size" },
    { "deepseek_v3", "quantization_config.weight_block_size", "\"128\"", "weight_block_size" },
    { "deepseek_v3", "quantization_config", "[]", "quantization_config" },
    { "deepseek_v3", "torch_dtype", "\"int8\"", "int8" },
    { "deepseek_v3", "torch_dtype", "3", "torch_dtype" },
    { "deepseek_v3", "dtype", "\"float64\"", "float64" },
    /* missing, of a wrong type, absurd */
    { "deepseek_v3", "vocab_size", NULL, "vocab_size" },
    { "deepseek_v3", "hidden_size", NULL, "hidden_size" },
    { "deepseek_v3", "num_hidden_layers", NULL, "num_hidden_layers" },
    { "deepseek_v3", "num_attention_heads", NULL, "num_attention_heads" },
    { "deepseek_v3", "intermediate_size", NULL, "intermediate_size" },
    { "llama_3_1_8b", "intermediate_size", "null", "intermediate_size" },
    { "deepseek_v3", "hidden_size", "\"7168\"", "hidden_size" },
    { "deepseek_v3", "hidden_size", "7168.5", "hidden_size" },
    { "deepseek_v3", "hidden_size", "[7168]", "hidden_size" },
    { "deepseek_v3", "hidden_size", "true", "hidden_size" },
    { "deepseek_v3", "hidden_size", "0", "hidden_size" },
    { "deepseek_v3", "hidden_size", "-7168", "hidden_size" },
    { "deepseek_v3", "hidden_size", "1e30", "hidden_size" },
    { "deepseek_v3", "hidden_size", "9223372036854775807", "hidden_size" },
    { "deepseek_v3", "vocab_size", "0", "vocab_size" },
    { "deepseek_v3", "vocab_size", "4294967296", "vocab_size" },
    { "deepseek_v3", "num_hidden_layers", "100000", "num_hidden_layers" },
    { "deepseek_v3", "num_hidden_layers", "0", "num_hidden_layers" },
    { "deepseek_v3", "num_attention_heads", "0", "num_attention_heads" },
    { "deepseek_v3", "num_attention_heads", "70000", "num_attention_heads" },
    { "deepseek_v3", "kv_lora_rank", "0", "kv_lora_rank" },
    { "deepseek_v3", "kv_lora_rank", "100000", "kv_lora_rank" },
    { "deepseek_v3", "q_lora_rank", "-1", "q_lora_rank" },
    { "deepseek_v3", "q_lora_rank", "\"x\"", "q_lora_rank" },
    { "deepseek_v3", "v_head_dim", "0", "v_head_dim" },
    { "deepseek_v3", "qk_nope_head_dim", "1000000", "qk_nope_head_dim" },
    { "deepseek_v3", "intermediate_size", "0", "intermediate_size" },
    { "deepseek_v3", "intermediate_size", "4294967296", "intermediate_size" },
    { "deepseek_v3", "moe_intermediate_size", "4294967296", "moe_intermediate_size" },
    { "deepseek_v3", "n_routed_experts", "5000", "n_routed_experts" },
    { "deepseek_v3", "n_shared_experts", "1000", "n_shared_experts" },
    { "deepseek_v3", "first_k_dense_replace", "-1", "first_k_dense_replace" },
    { "deepseek_v3", "routed_scaling_factor", "1e30", "routed_scaling_factor" },
    { "deepseek_v3", "routed_scaling_factor", "{}", "routed_scaling_factor" },
    { "deepseek_v3", "max_position_embeddings", "0", "max_position_embeddings" },
    { "deepseek_v3", "max_position_embeddings", "1e18", "max_position_embeddings" },
    { "deepseek_v3", "rms_norm_eps", "0", "rms_norm_eps" },
    { "deepseek_v3", "rms_norm_eps", "-1e-6", "rms_norm_eps" },
    { "deepseek_v3", "rms_norm_eps", "2", "rms_norm_eps" },
    { "deepseek_v3", "rms_norm_eps", "\"1e-6\"", "rms_norm_eps" },
    { "deepseek_v3", "attention_bias", "\"no\"", "attention_bias" },
    { "deepseek_v3", "norm_topk_prob", "1", "norm_topk_prob" },
    { "deepseek_v3", "tie_word_embeddings", "0", "tie_word_embeddings" },
    { "deepseek_v3", "rope_interleave", "\"true\"", "rope_interleave" },
    { "deepseek_v3", "eos_token_id", "-1", "eos_token_id" },
    { "deepseek_v3", "eos_token_id", "4294967296", "eos_token_id" },
    { "deepseek_v3", "eos_token_id", "[1,\"2\"]", "eos_token_id" },
    { "deepseek_v3", "eos_token_id", "[" TEN TEN TEN TEN TEN TEN "1,2,3,4,5]", "eos_token_id" },
    { "llama_3_1_8b", "num_key_value_heads", "5", "num_key_value_heads" },
    { "llama_3_1_8b", "num_key_value_heads", "-8", "num_key_value_heads" },
    { "minicpm3_4b", "scale_emb", "1e30", "scale_emb" },
    { "minicpm3_4b", "scale_depth", "\"x\"", "scale_depth" },
    { "minicpm3_4b", "dim_model_base", "[]", "dim_model_base" },
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
        cmocka_unit_test(test_published), cmocka_unit_test(test_exact_counts),
        cmocka_unit_test(test_rope),      cmocka_unit_test(test_fields),
        cmocka_unit_test(test_spellings), cmocka_unit_test(test_unknown_fields),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
