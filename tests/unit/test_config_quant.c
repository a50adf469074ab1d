/* test_config_quant.c - checkpoints whose weights nibble does not run: refused by the engine with what was
 * found, counted by the planner; text_config; keys that are absent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "capacity/sizes.h"
#include "load/doc.h"
#include "model/config.h"
#include "model/model.h"

#define LLAMA                                                                                      \
    "\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":256,\"num_hidden_layers\":4,"      \
    "\"num_attention_heads\":4,\"intermediate_size\":320,\"torch_dtype\":\"float16\""
#define V3                                                                                         \
    "\"model_type\":\"deepseek_v3\",\"vocab_size\":64,\"hidden_size\":256,"                        \
    "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"intermediate_size\":320,"                 \
    "\"first_k_dense_replace\":1,\"q_lora_rank\":64,\"kv_lora_rank\":64,"                          \
    "\"qk_nope_head_dim\":32,\"qk_rope_head_dim\":16,\"v_head_dim\":32,\"n_routed_experts\":8,"    \
    "\"n_shared_experts\":1,\"num_experts_per_tok\":2,\"moe_intermediate_size\":96,"               \
    "\"n_group\":1,\"topk_group\":1,\"routed_scaling_factor\":1.0"
#define QUANT(base, q) "{" base ",\"quantization_config\":{" q "}}"
#define CT(w, more)                                                                                \
    "\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"group_0\":{\"weights\":{" w      \
    "}}}" more
#define GROUP32 "\"num_bits\":4,\"group_size\":32,\"strategy\":\"group\""

static nb_model_config c; /* large: not on the stack, as the next */
static nb_sizes sizes;

static nb_status read(const char *text, bool any, nb_error *err)
{
    nb_doc *d = NULL;
    *err = (nb_error){ 0 };
    if (nb_doc_parse(nb_str_c(text), "config.json", &d, err) != NB_OK) fail_msg("%s: %s", text, err->msg);
    const nb_status st =
        any ? nb_model_config_read_any(d, &c, err) : nb_model_config_read(d, &c, err);
    nb_doc_destroy(d);
    return st;
}

static void counted(const char *text)
{
    nb_error e;
    if (read(text, true, &e) != NB_OK) fail_msg("%s: %s", text, e.msg);
    if (nb_sizes_of(&c, &sizes, &e) != NB_OK) fail_msg("%s: %s", text, e.msg);
}

/* Which kinds of modules have a form in most layers. */
static unsigned units(void)
{
    unsigned n = 0;
    for (int u = 0; u < NB_QU_COUNT; u++) n |= (unsigned)(c.quant.of[u] > 0) << u;
    return n;
}

static void refused(const char *text, bool any, const char *word)
{
    nb_error e;
    if (read(text, any, &e) == NB_OK) fail_msg("%s: accepted", text);
    if (!strstr(e.msg, word)) fail_msg("%s: no \"%s\" in: %s", text, word, e.msg);
}

static void bytes(const char *what, uint64_t got, uint64_t want)
{
    if (got != want)
        fail_msg("%s: %llu, expected %llu", what, (unsigned long long)got,
                 (unsigned long long)want);
}

/* Llama: of a layer four matrices 256 x 256 and three 320 x 256 or back; embedding and head of 64 x 256, nine
 * vectors of norms, all in 16 bits. */
enum { N_ROW = 4 * 256 + 2 * 320 + 256, N_VALUE = 4 * 256 * 256 + 3 * 320 * 256 };
enum { REST = 2 * (2 * 64 * 256 + 9 * 256) };

static void test_dense(void **state)
{
    (void)state;
    /* 4 bits, of 128 columns a scale and a zero; down has 320 columns: three groups */
    const uint64_t groups = (4 * 256 + 2 * 320) * 2 + 256 * 3, cols = 6 * 256 + 320;
    counted(QUANT(LLAMA, "\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":128"));
    bytes("gptq", sizes.weight_bytes, REST + 4 * (N_VALUE / 2 + groups * 20 / 8 + 4 * cols));
    counted(QUANT(LLAMA, "\"quant_method\":\"awq\",\"bits\":4,\"group_size\":128,"
                         "\"modules_to_not_convert\":null"));
    bytes("awq", sizes.weight_bytes, REST + 4 * (N_VALUE / 2 + groups * 20 / 8));
    counted(QUANT(LLAMA, "\"quant_method\":\"awq\",\"w_bit\":4,\"q_group_size\":128,"
                         "\"zero_point\":false,\"modules_to_not_convert\":[\"mlp\"]"));
    bytes("awq, attention", sizes.weight_bytes,
          REST + 4 * (4 * 256 * 256 / 2 + 4 * 256 * 2 * 2 + 2 * 3 * 320 * 256));
    counted(QUANT(LLAMA, "\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":-1,"
                         "\"lm_head\":true"));
    bytes("gptq, rows", sizes.weight_bytes,
          REST - 2 * 64 * 256 + 4 * (N_VALUE + N_ROW * 3 + 4 * cols) +
              (64 * 256 + 64 * 3 + 4 * 256));
    counted(QUANT(LLAMA, CT("\"num_bits\":8,\"type\":\"float\",\"strategy\":\"channel\"",
                            ",\"ignore\":[\"lm_head\"]")));
    bytes("fp8, rows", sizes.weight_bytes, REST + 4 * (N_VALUE + 2 * N_ROW));
    counted(QUANT(LLAMA, CT("\"num_bits\":4,\"type\":\"float\",\"group_size\":16",
                            ",\"ignore\":[\"lm_head\"]")));
    bytes("nvfp4", sizes.weight_bytes, REST + 4 * (N_VALUE / 2 + N_VALUE / 16));
    counted(
        QUANT(LLAMA, "\"quant_method\":\"fbgemm_fp8\",\"modules_to_not_convert\":[\"lm_head\"]"));
    bytes("fbgemm", sizes.weight_bytes, REST + 4 * (N_VALUE + 4 * N_ROW));
    counted(QUANT(LLAMA, "\"quant_method\":\"fp8\",\"weight_block_size\":[64,64]"));
    bytes("fp8, blocks", sizes.weight_bytes, REST + 4 * (N_VALUE + N_VALUE / 4096 * 4));
    /* the bytes of a cache are those of the model itself */
    assert_true(sizes.own == NB_KV_BF16 && !sizes.checkpoint_unknown);
    assert_true(nb_sizes_find(&sizes, "bf16")->bytes_tok == 4 * 2 * 4 * 64 * 2);
}

/* What `ignore` names: all of a part, single layers, more than half of them. */
static void test_names(void **state)
{
    (void)state;
    const uint64_t expert = 3 * 96 * 256, all = (uint64_t)3 * 8 * expert;
#define IGNORE(list) QUANT(V3, CT(GROUP32, ",\"ignore\":[" list "]"))
    counted(IGNORE("\"lm_head\",\"re:.*self_attn.*\",\"re:.*shared_experts.*\","
                   "\"re:.*mlp\\\\.(gate|up|gate_up|down)_proj.*\""));
    assert_int_equal(units(), 7u << NB_QU_EXPERT);
    bytes("experts", sizes.expert_bytes, all * 9 / 16);
    bytes("all", sizes.weight_bytes, sizes.weight_bytes_int4);
    bytes("rest", sizes.weight_bytes - sizes.expert_bytes, sizes.weight_bytes_bf16 - 2 * all);
    counted(IGNORE("\"lm_head\",\"model.layers.1.self_attn.o_proj\",\"model.layers.61*\","
                   "\"re:.*kv_b_proj\",\"model.layers.2.mlp.gate\",\"re:.*mlp.gate$\""));
    assert_false(units() >> NB_QU_KV_B & 1 || units() >> NB_QU_HEAD & 1);
    assert_true(units() >> NB_QU_O & 1 && units() >> NB_QU_Q_A & 1);
    assert_int_equal(c.quant.partly, 1u << NB_QU_O);
    bytes("kv_b", sizes.kv_b_bytes, 4 * 2 * 4 * 64 * 64);
    /* names are whole ones: no pattern, and no part of a name */
    counted(IGNORE("\"lm_head\",\"model.layers.1.self_attn*\",\"mlp\",\"self_attn.o_proj\""));
    assert_int_equal(units(), (1u << NB_QU_HEAD) - 1);
    /* expressions match at the start, and as far as they go; a module is also known by its fused name */
    counted(IGNORE("\"lm_head\",\"re:self_attn\",\"re:model.layers.[0-2]\","
                   "\"re:.*shared_experts.gate_up_proj$\""));
    assert_true(c.quant.partly == ((1u << NB_QU_HEAD) - 1) - (7u << NB_QU_DENSE) -
                                      (3u << NB_QU_SHARED));
    assert_false(units() >> NB_QU_O & 1 || units() >> NB_QU_SHARED & 1 || units() >> NB_QU_DENSE & 1);
    assert_true(c.quant_of[3].form[NB_QU_SHARED_DOWN] && c.quant_of[3].form[NB_QU_O]);
    assert_false(c.quant_of[3].form[NB_QU_SHARED]);
    refused(IGNORE("\"re:(\""), true, "regular expression \"(\"");
    refused(IGNORE("\"re:(.+)+(.+)+[0-9][0-9][0-9]q\""), true, "too many steps");
#undef IGNORE
}

/* Each method's idea of a name; forms that differ from module to module. */
static void test_methods(void **state)
{
    (void)state;
    const unsigned attention = (1u << NB_QU_DENSE) - 1, linear = (1u << NB_QU_HEAD) - 1;
    /* awq: any part of a name, so that "mlp.gate" means gate_proj, too */
    counted(QUANT(V3, "\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32,"
                      "\"modules_to_not_convert\":[\"self_attn\",\"mlp.gate\"]"));
    assert_int_equal(units(), linear & ~attention & ~(1u << NB_QU_DENSE));
    /* ModelOpt: shell patterns for the whole name, or whole parts of one */
    counted(QUANT(V3, "\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\",\"ignore\":["
                      "\"lm_head\",\"model.layers.0*\",\"*.self_attn.q_[ab]_proj\",\"mlp.gate\","
                      "\"self_attn.kv_b_proj\"]"));
    assert_int_equal(units(), linear & ~(1u << NB_QU_Q_A | 1u << NB_QU_Q_B | 1u << NB_QU_KV_B |
                                         7u << NB_QU_DENSE));
    assert_false(c.quant_of[0].form[NB_QU_O]);
    assert_true(c.quant_of[1].form[NB_QU_O]);
    counted(QUANT(V3, "\"quant_method\":\"modelopt\",\"quant_algo\":\"MIXED_PRECISION\","
                      "\"quantized_layers\":{\"model.layers.1.self_attn.o_proj\":{\"quant_algo\":\"FP8\"},"
                      "\"model.layers.*.mlp.experts.*\":{\"quant_algo\":\"NVFP4\",\"group_size\":16}}"));
    assert_int_equal(c.quant.n_form, 2);
    assert_true(!sizes.checkpoint_unknown && units() == (7u << NB_QU_EXPERT));
    /* every expert in FP4, one o_proj with a scale for all */
    bytes("mixed", sizes.weight_bytes_bf16 - sizes.weight_bytes,
          3 * 8 * 3 * 96 * 256 * 23 / 16 + 4 * 32 * 256 - 4);
    /* compressed-tensors: a name wins over an expression, and that over a class, whatever their order */
#define GROUP(name, target, bits)                                                                  \
    "\"" name "\":{\"targets\":[" target "],\"weights\":{\"num_bits\":" #bits ",\"group_size\":32}}"
    counted(QUANT(V3, "\"quant_method\":\"compressed-tensors\",\"ignore\":[\"re:.*kv_b_proj\"],"
                      "\"config_groups\":{" GROUP("a.b", "\"Linear\"", 4) ","
                      GROUP("b", "\"re:.*self_attn.*\"", 8) ","
                      GROUP("c", "\"model.layers.2.self_attn.o_proj\"", 4) "}"));
    assert_int_equal(units(), (linear | 1u << NB_QU_HEAD) & ~(1u << NB_QU_KV_B));
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(c.quant.form[c.quant_of[i].form[NB_QU_O] - 1].bits, i == 2 ? 4 : 8);
        assert_int_equal(c.quant.form[c.quant_of[i].form[NB_QU_Q_A] - 1].bits, 8);
    }
    assert_int_equal(c.quant.partly, 1u << NB_QU_O);
    /* GPTQModel: the first expression that matches */
    counted(QUANT(V3, "\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,\"dynamic\":{"
                      "\"-:.*kv_b\":{},\"+:.*down_proj\":{\"bits\":8,\"group_size\":64},"
                      "\".*self_attn\":{\"bits\":8},\"-:.*down_proj\":{}}"));
    assert_int_equal(units(), linear & ~(1u << NB_QU_KV_B));
    const nb_quant_form *down = &c.quant.form[c.quant.of[NB_QU_EXPERT_DOWN] - 1];
    assert_true(down->bits == 8 && down->cols == 64 && down->zero_bits == 8);
    assert_int_equal(c.quant.form[c.quant.of[NB_QU_O] - 1].cols, 32);
    assert_int_equal(c.quant.form[c.quant.of[NB_QU_EXPERT] - 1].bits, 4);
    /* AutoRound: names, and expressions that occur anywhere; 16 bits are plain */
    counted(QUANT(V3, "\"quant_method\":\"auto-round\",\"bits\":4,\"group_size\":128,\"extra_config\":{"
                      "\"self_attn\\\\.\":{\"bits\":8},\"model.layers.1.self_attn.o_proj\":{\"bits\":16}}"));
    assert_true(c.quant_of[0].form[NB_QU_O] && !c.quant_of[1].form[NB_QU_O]);
    assert_int_equal(c.quant.form[c.quant.of[NB_QU_O] - 1].bits, 8);
    /* block_structure in words */
    counted(QUANT(LLAMA, CT("\"num_bits\":8,\"type\":\"float\",\"strategy\":\"block\","
                            "\"block_structure\":\"128x128\"", ",\"ignore\":[\"lm_head\"]")));
    bytes("blocks", sizes.weight_bytes, REST + 4 * (N_VALUE + 2 * (4 * 4 + 3 * 6)));
    refused(QUANT(LLAMA, "\"quant_method\":\"gptq\",\"bits\":4,\"dynamic\":{\"+:.*down.*\":{\"bits\":3}}"),
            false, "weights of 3 bits are not supported");
}

/* What the loader takes for made-up weights of this configuration. */
static void allocated(const char *what)
{
    nb_error e = { 0 };
    nb_model m;
    if (nb_model_shapes(&m, &c, &e) != NB_OK) fail_msg("%s: %s", what, e.msg);
    bytes(what, sizes.weight_bytes, m.weight_bytes);
    nb_model_deinit(&m);
}

/* Experts of one layer, and the matrices of one expert, in forms of their own: 3 layers of 8 experts of 96 x 256. */
static void test_experts(void **state)
{
    (void)state;
    const uint64_t one = 96 * 256, four = one * 9 / 16, eight = one + one / 16, plain = 2 * one;
    const uint64_t row8 = one + 2 * 96, down8 = one + 2 * 256;
    counted(QUANT(V3, "\"quant_method\":\"compressed-tensors\",\"ignore\":["
                      "\"model.layers.1.mlp.experts.3.up_proj\",\"re:.*layers.2.mlp.experts.[5-7].down_proj\"],"
                      "\"config_groups\":{" GROUP("a", "\"model.layers.1.mlp.experts.7.gate_proj\","
                                 "\"re:.*layers.3.mlp.experts.0.*\"", 8) ","
                      GROUP("b", "\"re:.*experts.*\"", 4) "}"));
    bytes("experts", sizes.expert_bytes,
          3 * 8 * 3 * four + 4 * (plain - four) + 4 * (eight - four));
    allocated("experts");
    bytes("mean", sizes.weight[NB_SIZES_CHECKPOINT].one_expert, sizes.expert_bytes / 24);
    assert_int_equal(c.quant.partly, 7u << NB_QU_EXPERT);
    /* the whole of an expert, and one matrix of it; patterns of names and of parts */
    counted(QUANT(V3, "\"quant_method\":\"modelopt\",\"quant_algo\":\"MIXED_PRECISION\",\"ignore\":["
                      "\"model.layers.3.mlp.experts.1\",\"experts.2.up_proj\"],\"quantized_layers\":{"
                      "\"model.layers.*.mlp.experts.*\":{\"quant_algo\":\"FP8_PER_CHANNEL_PER_TOKEN\"},"
                      "\"model.layers.2.mlp.experts.6.down_proj\":{\"quant_algo\":\"W4A16_NVFP4\"}}"));
    const uint64_t channel = 2 * (one + 4 * 96) + one + 4 * 256;
    bytes("ModelOpt", sizes.expert_bytes,
          24 * channel + (3 * plain - channel) + 3 * (plain - one - 4 * 96) + four - (one + 4 * 256));
    /* AutoRound: other bits for single matrices; 16 are plain */
    counted(QUANT(V3, "\"quant_method\":\"auto-round\",\"bits\":4,\"group_size\":32,\"sym\":true,"
                      "\"packing_format\":\"auto_round:auto_awq\",\"extra_config\":{"
                      "\"model.layers.1.mlp.experts.2.up_proj\":{\"bits\":8,\"group_size\":-1},"
                      "\"experts\\\\.4\\\\.down_proj\":{\"bits\":8,\"group_size\":-1},"
                      "\"model.layers.2.mlp.experts.0.gate_proj\":{\"bits\":16}}"));
    const uint64_t zero = one / 32 / 2;
    bytes("AutoRound", sizes.expert_bytes,
          24 * 3 * (four + zero) + (row8 + 96) + 3 * (down8 + 256) + plain - 5 * (four + zero));
    /* as many names as experts and layers: fast, and at last refused */
    refused(QUANT(V3, "\"quant_method\":\"compressed-tensors\",\"config_groups\":{" GROUP(
                          "a", "\"re:.*experts.[0-9]*[02468].up_proj\",\"re:(((.*)\"", 4) "}"),
            true, "regular expression");
}

static void test_unknown_bytes(void **state)
{
    (void)state;
    static const char *const texts[] = {
        QUANT(LLAMA, "\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true"),
        QUANT(LLAMA, "\"quant_method\":\"aq\\u001b[2Jlm and a name that is long\""),
        QUANT(LLAMA, "\"quant_method\":\"gptq\",\"bits\":4.5"),
        QUANT(LLAMA, "\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":-2"),
        QUANT(LLAMA, "\"quant_method\":\"compressed-tensors\""),
        QUANT(LLAMA, "\"quant_method\":\"fp8\",\"weight_block_size\":[0,64]"),
    };
    /* Matrices differ: bytes are not known, but each one's tensors say how to read it. */
    static const char *const mixed[] = {
        QUANT(LLAMA,
              "\"quant_method\":\"gptq\",\"bits\":4,\"dynamic\":{\"+:.*down.*\":{\"bits\":8}}"),
        QUANT(LLAMA, "\"quant_method\":\"compressed-tensors\",\"config_groups\":{"
                     "\"a\":{\"weights\":{\"num_bits\":4}},\"b\":{\"weights\":{\"num_bits\":8}}}"),
        QUANT(LLAMA, "\"quant_method\":\"modelopt\",\"quant_algo\":\"MIXED_PRECISION\""),
    };
    for (size_t i = 0; i < NB_COUNT(mixed); i++) {
        nb_error e;
        counted(mixed[i]);
        assert_true(sizes.checkpoint_unknown == (i == 2) && (i < 2 || c.quant.mixed));
        assert_int_equal(read(mixed[i], false, &e), NB_OK);
    }
    for (size_t i = 0; i < NB_COUNT(texts); i++) {
        counted(texts[i]);
        assert_true(sizes.checkpoint_unknown && nb_quant_main(&c.quant)->bits == 0 && c.quant.method[0]);
        assert_false(c.quant.runs);
        for (const char *p = c.quant.method; *p; p++) assert_true(*p > ' ' && *p < 0x7f);
        refused(texts[i], false, "quantization_config.");
    }
    counted(QUANT(LLAMA, "\"quant_method\":\"compressed-tensors\",\"config_groups\":{"
                         "\"W4A16\":[\"Linear\"]},\"ignore\":[\"lm_head\"]"));
    assert_true(nb_quant_main(&c.quant)->bits == 4 && nb_quant_main(&c.quant)->cols == 128);
    refused(texts[0], false, "\"bitsandbytes\" is not supported");
    refused(QUANT(LLAMA, "\"quant_method\":\"gptq\",\"bits\":\"4\""), true,
            "bits: expected a number");
    refused(QUANT(LLAMA, "\"quant_method\":8"), true, "quant_method: expected a string");
    refused(QUANT(LLAMA, "\"bits\":8"), true, "without quant_method");
    refused("{" LLAMA ",\"quantization_config\":[]}", true, "not an object");
    refused("{" LLAMA ",\"use_sliding_window\":true}", false,
            "use_sliding_window: true is not supported (expected: false)");
    refused("{" LLAMA ",\"logit_scale\":3.5}", false,
            "logit_scale: 3.5 is not supported (expected: 1)");
    refused("{" LLAMA ",\"hidden_act\":\"relu\"}", false, "hidden_act: \"relu\" is not");
    counted("{" LLAMA "}");
    assert_true(!c.quant.method[0] && !c.inner);
}

static void test_text_config(void **state)
{
    (void)state;
    static const char outer[] =
        "{\"model_type\":\"kimi_k25\",\"vision_config\":{},\"text_config\":";
    char text[4096];
    (void)snprintf(text, sizeof text, "%s%s}", outer, QUANT(V3, CT(GROUP32, "")));
    counted(text);
    assert_true(c.inner && nb_quant_main(&c.quant)->bits == 4 && c.n_layer == 4);
    nb_error e;
    assert_int_equal(read(text, false, &e), NB_OK); /* the engine runs it, too */
    assert_true(c.quant.runs);
    (void)snprintf(text, sizeof text,
                   "%s{%s},\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":4}}", outer,
                   V3);
    counted(text);
    assert_string_equal(c.quant.method, "awq");
    (void)snprintf(text, sizeof text, "%s{\"model_type\":\"gemma3_text\"}}", outer);
    refused(text, true, "\"gemma3_text\" in text_config is not supported");
    (void)snprintf(text, sizeof text, "%s{\"model_type\":3}}", outer);
    refused(text, true, "text_config.model_type: expected a string");
    (void)snprintf(text, sizeof text, "%s7}", outer);
    refused(text, true, "kimi_k25");
}

/* Absent keys that shape a model are said with what they then are; null is no absent key. */
static void test_assumed(void **state)
{
    (void)state;
    counted("{" V3 "}");
    assert_string_equal(c.assumed, "");
    counted("{\"model_type\":\"deepseek_v3\",\"vocab_size\":64,\"hidden_size\":256,"
            "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"intermediate_size\":320,"
            "\"n_shared_experts\":null}");
    static const char *const words[] = { "kv_lora_rank 512", "qk_rope_head_dim 64",
                                         "n_routed_experts 256", "first_k_dense_replace 3",
                                         "q_lora_rank 1536" };
    for (size_t i = 0; i < NB_COUNT(words); i++)
        if (!strstr(c.assumed, words[i])) fail_msg("no %s in %s", words[i], c.assumed);
    assert_null(strstr(c.assumed, "n_shared_experts"));
    counted("{" LLAMA "}");
    assert_string_equal(c.assumed, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense),         cmocka_unit_test(test_names),
        cmocka_unit_test(test_methods), cmocka_unit_test(test_experts),
        cmocka_unit_test(test_unknown_bytes), cmocka_unit_test(test_text_config),
        cmocka_unit_test(test_assumed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
