/* test_params.c - checkpoints in Mistral's own layout: what config.json says the same of, what is refused, names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the headers above */
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>

#include "load/params.h"
#include "model/config.h"

static const char large3[] =
    "{\"dim\":7168,\"n_layers\":61,\"head_dim\":128,\"hidden_dim\":16384,\"n_heads\":128,\"n_kv_heads\":128,"
    "\"rope_theta\":10000.0,\"norm_eps\":1e-06,\"vocab_size\":131072,\"tied_embeddings\":false,"
    "\"max_position_embeddings\":294912,\"max_seq_len\":294912,\"q_lora_rank\":1536,\"qk_rope_head_dim\":64,"
    "\"qk_nope_head_dim\":128,\"kv_lora_rank\":512,\"v_head_dim\":128,"
    "\"quantization\":{\"qformat_weight\":\"fp8_e4m3\",\"qscheme_act\":\"TENSOR\"},"
    "\"yarn\":{\"original_max_position_embeddings\":8192,\"factor\":36,\"apply_scale\":false,\"beta\":32,\"alpha\":1},"
    "\"moe\":{\"expert_parallel\":1,\"expert_model_parallel\":1,\"route_every_n\":1,\"first_k_dense_replace\":3,"
    "\"num_experts\":128,\"num_experts_per_tok\":4,\"num_expert_groups\":1,\"num_expert_groups_per_tok\":1,"
    "\"routed_scale\":1.0,\"expert_hidden_dim\":4096,\"num_shared_experts\":1},"
    "\"llama_4_scaling\":{\"original_max_position_embeddings\":8192,\"beta\":0.1},"
    "\"vision_encoder\":{\"image_token_id\":10}}";

static nb_model_config conf, want; /* large: not on the stack */

static nb_status read_params(nb_str text, nb_error *err)
{
    nb_buf config = { 0 };
    nb_doc *doc = NULL;
    *err = (nb_error){ 0 };
    nb_status st = nb_params_config(text, "some/params.json", &config, err);
    if (st == NB_OK) st = nb_doc_parse(nb_buf_view(&config), "some/params.json", &doc, err);
    if (st == NB_OK) st = nb_model_config_read(doc, &conf, err);
    nb_doc_destroy(doc);
    nb_buf_deinit(&config);
    return st;
}

/* The bundled configuration in Hugging Face's words is the same model, but for its FP8 weights. */
static void test_same(void **state)
{
    (void)state;
    const char *dir = getenv("NB_SOURCE_DIR");
    char path[600];
    nb_error err = { 0 };
    (void)snprintf(path, sizeof path, "%s/models/configs/mistral-large-3.json", dir ? dir : ".");
    if (nb_model_config_read_path(path, &want, &err) != NB_OK) fail_msg("%s", err.msg);
    if (read_params(nb_str_c(large3), &err) != NB_OK) fail_msg("%s", err.msg);
    assert_string_equal(conf.notes, "");
    assert_true(conf.fp8 && !want.fp8);
    conf.fp8 = want.fp8;
    assert_string_equal(conf.assumed, want.assumed);
    assert_memory_equal(&conf.attn[0], &want.attn[0], sizeof conf.attn[0]);
    assert_memory_equal(conf.dense, want.dense, sizeof conf.dense);
    assert_true(conf.n_layer == want.n_layer && conf.hidden == want.hidden && conf.n_vocab == want.n_vocab);
    assert_true(conf.inter == want.inter && conf.moe_inter == want.moe_inter && conf.n_expert == want.n_expert);
    assert_true(conf.n_shared == want.n_shared && conf.top_k == want.top_k && conf.max_pos == want.max_pos);
    assert_true(conf.n_group == want.n_group && conf.topk_group == want.topk_group);
    assert_true(conf.eps == want.eps && conf.routed_factor == want.routed_factor && conf.tied == want.tied);
    assert_true(conf.normalise && !conf.sigmoid && !conf.router_bias && conf.n_eos == 1 && conf.eos[0] == 2);
    /* (128 + 64)^-0.5: without the square of mscale */
    assert_true(conf.attn[0].softmax_scale > 0.0721687f && conf.attn[0].softmax_scale < 0.0721689f);
}

/* Sets a.b to the JSON value; NULL removes it. */
static void patch(json_t *j, const char *path, const char *text)
{
    char part[64];
    const char *dot = strchr(path, '.');
    if (dot) {
        (void)snprintf(part, sizeof part, "%.*s", (int)(dot - path), path);
        j = json_object_get(j, part);
        path = dot + 1;
    }
    if (text)
        assert_int_equal(json_object_set_new(j, path, json_loads(text, JSON_DECODE_ANY, NULL)), 0);
    else
        assert_int_equal(json_object_del(j, path), 0);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *path, *value, *error;
    } bad[] = {
        { "dim", NULL, "params.json: dim is missing" },
        { "kv_lora_rank", NULL, "kv_lora_rank is missing: of models in this form only those with latent" },
        { "moe", NULL, "moe is missing" },
        { "moe", "3", "moe is the integer 3, expected an object" },
        { "moe.num_experts", NULL, "moe.num_experts is missing" },
        { "moe.new_router", "1", "moe.new_router is not known" },
        { "moe.renorm_strategy", "\"NONE\"", "moe.renorm_strategy: this value is not supported (expected: WEIGHTS)" },
        { "moe.use_load_balancing_bias", "true", "moe.use_load_balancing_bias" },
        { "moe.route_every_n", "2", "moe_layer_freq: 2 is not supported" },
        { "yarn.apply_scale", "true", "yarn.apply_scale: this value is not supported (expected: false)" },
        { "yarn.apply_scale", NULL, "yarn.apply_scale" },
        { "yarn.gamma", "1", "yarn.gamma is not known" },
        { "rope_theta", NULL, "rope_theta is missing" },
        { "sliding_window", "4096", "sliding_window" },
        { "activation", "\"gelu\"", "hidden_act" },
        { "quantization.qformat_weight", "\"nvfp4\"", "quantization.qformat_weight" },
        { "quantization.qscheme_act", "\"ROW\"", "quantization.qscheme_act" },
        { "attn_logit_softcapping", "30", "attn_logit_softcapping" },
    };
    nb_error err;
    for (size_t i = 0; i < NB_COUNT(bad); i++) {
        json_t *j = json_loads(large3, 0, NULL);
        assert_non_null(j);
        patch(j, bad[i].path, bad[i].value);
        char *text = json_dumps(j, 0);
        if (read_params(nb_str_c(text), &err) == NB_OK || !strstr(err.msg, bad[i].error))
            fail_msg("%s %s: %s", bad[i].path, bad[i].value ? bad[i].value : "absent", err.msg);
        free(text);
        json_decref(j);
    }
    assert_int_equal(read_params(nb_str_c("[1]"), &err), NB_ERR_FORMAT);
    json_t *j = json_loads(large3, 0, NULL); /* a key that is not known, and no quantised weights */
    patch(j, "new_key", "1");
    patch(j, "quantization", "null");
    patch(j, "yarn", "null");
    char *text = json_dumps(j, 0);
    if (read_params(nb_str_c(text), &err) != NB_OK) fail_msg("%s", err.msg);
    assert_string_equal(conf.notes, "new_key");
    assert_true(!conf.fp8 && conf.attn[0].rope.factor == 1);
    free(text);
    json_decref(j);
}

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
    } rows[] = {
        { "tok_embeddings.weight", "model.embed_tokens.weight" },
        { "norm.weight", "model.norm.weight" },
        { "output.weight", "lm_head.weight" },
        { "layers.0.attention_norm.weight", "model.layers.0.input_layernorm.weight" },
        { "layers.60.ffn_norm.weight", "model.layers.60.post_attention_layernorm.weight" },
        { "layers.3.attention.wq_a.qscale_weight", "model.layers.3.self_attn.q_a_proj.weight_scale" },
        { "layers.3.attention.wkv_a_with_mqa.qscale_act",
          "model.layers.3.self_attn.kv_a_proj_with_mqa.input_scale" },
        { "layers.3.attention.kv_a_norm.weight", "model.layers.3.self_attn.kv_a_layernorm.weight" },
        { "layers.3.attention.wo.weight_packed", "model.layers.3.self_attn.o_proj.weight_packed" },
        { "layers.1.feed_forward.w2.weight", "model.layers.1.mlp.down_proj.weight" },
        { "layers.9.gate.weight", "model.layers.9.mlp.gate.weight" },
        { "layers.9.shared_experts.w3.weight", "model.layers.9.mlp.shared_experts.up_proj.weight" },
        { "layers.9.experts.127.w1.weight", "model.layers.9.mlp.experts.127.gate_proj.weight" },
        { "layers.9.experts.127.w4.weight", NULL },
        { "layers.9.experts.x.w1.weight", NULL },
        { "layers.9.experts..w1.weight", NULL },
        { "layers.9.experts.w1.weight", NULL },
        { "layers..attention.wo.weight", NULL },
        { "layers.9.weight", NULL },
        { "vision_encoder.norm.weight", NULL },
        { "norm", NULL },
        { "", NULL },
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        char out[128] = "";
        const bool is = nb_params_tensor(rows[i].from, out, sizeof out);
        if (is != (rows[i].to != NULL) || (is && strcmp(out, rows[i].to) != 0))
            fail_msg("%s: %s", rows[i].from, is ? out : "no name");
    }
    char small[20];
    assert_false(nb_params_tensor("layers.9.gate.weight", small, sizeof small));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_same), cmocka_unit_test(test_refused),
                                        cmocka_unit_test(test_names) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
