/* test_config_nulls.c - a key that is present and null is not an absent key, and what
 * a rope dictionary may not hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "load/doc.h"
#include "model/config.h"

#define BASE                                                                                       \
    "\"vocab_size\":64,\"hidden_size\":32,\"num_hidden_layers\":4,\"num_attention_heads\":4,"      \
    "\"intermediate_size\":48,\"max_position_embeddings\":512"

static nb_model_config c;

static nb_status read(const char *type, const char *more, nb_error *err)
{
    char text[2048];
    nb_doc *d = NULL;
    (void)snprintf(text, sizeof text, "{\"model_type\":\"%s\"," BASE "%s}", type, more);
    *err = (nb_error){ 0 };
    assert_int_equal(nb_doc_parse(nb_str_c(text), "config.json", &d, err), NB_OK);
    const nb_status st = nb_model_config_read(d, &c, err);
    nb_doc_destroy(d);
    return st;
}

static void reads(const char *type, const char *more)
{
    nb_error e;
    if (read(type, more, &e) != NB_OK) fail_msg("%s %s: %s", type, more, e.msg);
}

static void refuses(const char *type, const char *more, const char *word)
{
    nb_error e;
    if (read(type, more, &e) == NB_OK) fail_msg("%s %s: accepted", type, more);
    if (!strstr(e.msg, word)) fail_msg("%s %s: no \"%s\" in: %s", type, more, word, e.msg);
}

static void nulls(void **state)
{
    (void)state;
    reads("qwen2", ",\"num_key_value_heads\":null");
    assert_int_equal(c.attn[0].n_kv_head, 4);
    refuses("qwen2", "", "num_key_value_heads 32"); /* absent: the class default */
    reads("deepseek_v3", ",\"n_routed_experts\":null");
    for (size_t i = 0; i < 4; i++) assert_true(c.dense[i]);
    reads("deepseek_v3", ",\"n_shared_experts\":null,\"n_group\":null,\"topk_group\":null");
    assert_true(c.n_shared == 0 && c.n_group == 1 && c.topk_group == 1 && c.n_expert == 256);
    reads("deepseek_v3", "");
    assert_true(c.n_shared == 1 && c.n_group == 8 && c.topk_group == 4 && c.attn[0].q_lora == 1536);
    reads("deepseek_v3", ",\"q_lora_rank\":null,\"first_k_dense_replace\":5000");
    assert_true(c.attn[0].q_lora == 0 && c.dense[3]);
    reads("minicpm3", ",\"scale_depth\":null,\"dim_model_base\":null");
    assert_true(c.branch_factor == 1.0f && c.logit_factor == 1.0f);
    reads("glm4_moe_lite", ",\"head_dim\":8,\"qk_rope_head_dim\":16");
    assert_int_equal(c.attn[0].d_rope, 8);
}

static void ropes(void **state)
{
    (void)state;
    refuses("llama", ",\"rope_scaling\":\"yarn\"", "rope_scaling: expected an object");
    refuses("llama", ",\"rope_parameters\":[1]", "rope_parameters: expected an object");
    refuses("llama", ",\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1e6}}",
            "full_attention");
    refuses("llama", ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":\"4\"}", "factor");
    refuses("deepseek_v3",
            ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"mscale_all_dim\":1e300}",
            "overflow");
    refuses("deepseek_v3", ",\"qk_layernorm\":true", "qk_layernorm");
}

/* Names of unknown keys are shown in ASCII and whole. */
static void notes(void **state)
{
    (void)state;
    reads("llama", ",\"num_key_value_heads\":2,\"a\\u001b[31mb\":1,\"caf\\u00e9\":2");
    assert_string_equal(c.notes, "a?[31mb, caf??");
    char more[700];
    (void)snprintf(more, sizeof more, ",\"num_key_value_heads\":2,\"%0500d\":1,\"odd\":1", 7);
    reads("llama", more);
    assert_string_equal(c.notes, "odd");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nulls),
        cmocka_unit_test(ropes),
        cmocka_unit_test(notes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
