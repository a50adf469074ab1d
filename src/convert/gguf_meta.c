/* gguf_meta.c - config.json as the metadata of llama.cpp's architecture deepseek2 (load/gguf_config.c is the
 * reverse).  Fields that are absent have the values of the model's own class, as in src/model/family_deepseek.c; those
 * that a GGUF file cannot say must have the value that it means. */
#include <stdio.h>
#include <string.h>

#include "convert/gguf_out.h"
#include "os/file.h"

typedef struct meta {
    nb_conv *c;
    nb_gguf_out *g;
    const json_t *o; /* of the language model */
    bool v2;
} meta;

static nb_status refuse(const meta *m, const char *field, const char *what)
{
    return nb_fail(m->c->err, NB_ERR_UNSUPPORTED, "config.json: %s: %s", field, what);
}

static const char *str_of(const meta *m, const char *field)
{
    const char *s = json_string_value(json_object_get(m->o, field));
    return s ? s : "";
}

/* An integer from 0 to 2^31 - 1. */
static nb_status get(const meta *m, const char *field, bool required, uint32_t absent,
                     uint32_t *out)
{
    const json_t *v = json_object_get(m->o, field);
    *out = absent;
    if ((!v || json_is_null(v)) && !required) return NB_OK;
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
        return refuse(m, field, "expected a count");
    *out = (uint32_t)json_integer_value(v);
    return NB_OK;
}

static double real_of(const json_t *o, const char *field, double absent)
{
    const json_t *v = json_object_get(o, field);
    return json_is_number(v) ? json_number_value(v) : absent;
}

static const char *key(const char *rest, char out[64])
{
    (void)snprintf(out, 64, "deepseek2.%s", rest);
    return out;
}
static void put(const meta *m, const char *rest, uint32_t v)
{
    char k[64];
    nb_gguf_put_u32(m->g, key(rest, k), v);
}
static void put_real(const meta *m, const char *rest, double v)
{
    char k[64];
    nb_gguf_put_f32(m->g, key(rest, k), (float)v);
}

/* A field under its own key. */
typedef struct copy_row {
    const char *field, *key;
    bool required;
    uint32_t absent;
} copy_row;

static nb_status copy(const meta *m, const copy_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t v;
        NB_TRY(get(m, rows[i].field, rows[i].required, rows[i].absent, &v));
        put(m, rows[i].key, v);
    }
    return NB_OK;
}

static nb_status attention(const meta *m)
{
    static const copy_row rows[] = {
        { "max_position_embeddings", "context_length", true, 0 },
        { "hidden_size", "embedding_length", true, 0 },
        { "intermediate_size", "feed_forward_length", true, 0 },
        { "vocab_size", "vocab_size", true, 0 },
        { "num_attention_heads", "attention.head_count", true, 0 },
        { "kv_lora_rank", "attention.kv_lora_rank", true, 0 },
    };
    uint32_t lora, nope, rope, v, q;
    NB_TRY(copy(m, rows, sizeof rows / sizeof *rows));
    NB_TRY(get(m, "kv_lora_rank", true, 0, &lora));
    NB_TRY(get(m, "qk_nope_head_dim", true, 0, &nope));
    NB_TRY(get(m, "qk_rope_head_dim", true, 0, &rope));
    NB_TRY(get(m, "v_head_dim", true, 0, &v));
    NB_TRY(get(m, "q_lora_rank", false, 0, &q));
    put(m, "attention.head_count_kv", 1);
    put(m, "attention.key_length", lora + rope);
    put(m, "attention.value_length", lora);
    put(m, "attention.key_length_mla", nope + rope);
    put(m, "attention.value_length_mla", v);
    put(m, "rope.dimension_count", rope);
    if (q) put(m, "attention.q_lora_rank", q);
    put_real(m, "attention.layer_norm_rms_epsilon", real_of(m->o, "rms_norm_eps", 1e-6));
    return NB_OK;
}

static nb_status experts(const meta *m, size_t n_layer, size_t *n_expert)
{
    static const copy_row rows[] = {
        { "num_experts_per_tok", "expert_used_count", true, 0 },
        { "n_shared_experts", "expert_shared_count", false, 0 },
        { "moe_intermediate_size", "expert_feed_forward_length", true, 0 },
        { "first_k_dense_replace", "leading_dense_block_count", false, 0 },
    };
    uint32_t n, every, groups, used;
    char k[64];
    NB_TRY(get(m, "n_routed_experts", false, 0, &n));
    NB_TRY(get(m, "moe_layer_freq", false, 1, &every));
    *n_expert = n;
    if (n == 0) {
        put(m, "leading_dense_block_count", (uint32_t)n_layer);
        return NB_OK;
    }
    if (every != 1)
        return refuse(m, "moe_layer_freq",
                      "a GGUF file has experts in every layer behind the first");
    put(m, "expert_count", n);
    NB_TRY(copy(m, rows, sizeof rows / sizeof *rows));
    const json_t *norm = json_object_get(m->o, "norm_topk_prob");
    const bool sigmoid = !m->v2, normalise = json_is_boolean(norm) ? json_is_true(norm) : sigmoid;
    if (!sigmoid && normalise) return refuse(m, "norm_topk_prob", "is not known for a softmax");
    if (strcmp(str_of(m, "scoring_func"), sigmoid ? "softmax" : "sigmoid") == 0)
        return refuse(m, "scoring_func", "another one than the model type's is not known");
    put_real(m, "expert_weights_scale", real_of(m->o, "routed_scaling_factor", 1));
    nb_gguf_put_bool(m->g, key("expert_weights_norm", k), normalise);
    put(m, "expert_gating_func", sigmoid ? 2 : 1);
    NB_TRY(get(m, "n_group", false, 1, &groups));
    NB_TRY(get(m, "topk_group", false, 1, &used));
    put(m, "expert_group_count", groups ? groups : 1);
    put(m, "expert_group_used_count", used ? used : 1);
    return NB_OK;
}

static nb_status rope(const meta *m)
{
    const json_t *s = json_object_get(m->o, "rope_scaling"),
                 *inter = json_object_get(m->o, "rope_interleave");
    if (!json_is_object(s)) s = json_object_get(m->o, "rope_parameters");
    put_real(m, "rope.freq_base", real_of(m->o, "rope_theta", real_of(s, "rope_theta", 10000)));
    if (json_is_false(inter))
        return refuse(m, "rope_interleave", "false is not supported in a GGUF file");
    const char *type = json_string_value(json_object_get(s, "rope_type"));
    if (!type) type = json_string_value(json_object_get(s, "type"));
    if (!type || strcmp(type, "default") == 0) return NB_OK;
    if (strcmp(type, "yarn") != 0)
        return refuse(m, "rope_scaling", "only yarn is supported in a GGUF file");
    const double all = real_of(s, "mscale_all_dim", 0), scale = real_of(s, "mscale", 1);
    const double original = real_of(s, "original_max_position_embeddings", 4096);
    if (all != scale)
        return refuse(m, "rope_scaling.mscale",
                      "must equal mscale_all_dim: a GGUF file has one of them");
    if (json_is_number(json_object_get(s, "attention_factor")))
        return refuse(m, "rope_scaling.attention_factor", "has no place in a GGUF file");
    char k[64];
    nb_gguf_put_str(m->g, key("rope.scaling.type", k), nb_str_c("yarn"));
    put_real(m, "rope.scaling.factor", real_of(s, "factor", 1));
    put(m, "rope.scaling.original_context_length",
        original >= 0 && original < 4e9 ? (uint32_t)original : 0);
    put_real(m, "rope.scaling.yarn_log_multiplier", 0.1 * all);
    put_real(m, "rope.scaling.yarn_beta_fast", real_of(s, "beta_fast", 32));
    put_real(m, "rope.scaling.yarn_beta_slow", real_of(s, "beta_slow", 1));
    return NB_OK;
}

static nb_str name_of(const char *path)
{
    size_t n = strlen(path), from;
    while (n > 1 && path[n - 1] == '/') n--;
    for (from = n; from > 0 && path[from - 1] != '/'; from--) {}
    return (nb_str){ path + from, n - from };
}

nb_status nb_gguf_put_model(nb_conv *c, nb_gguf_out *g, size_t *n_layer, size_t *n_expert)
{
    meta m = { .c = c, .g = g, .o = c->text };
    uint32_t layers;
    const char *type = str_of(&m, "model_type");
    m.v2 = strcmp(type, "deepseek_v2") == 0;
    if (!m.v2 && strcmp(type, "deepseek_v3") != 0 && strcmp(type, "kimi_k2") != 0)
        return nb_fail(
            c->err, NB_ERR_UNSUPPORTED,
            "config.json: model_type \"%s\": a GGUF file is written for deepseek_v2, deepseek_v3 and "
            "kimi_k2",
            nb_show_c(type).s);
    if (json_is_true(json_object_get(m.o, "attention_bias")))
        return refuse(&m, "attention_bias", "true is not supported in a GGUF file");
    NB_TRY(get(&m, "num_hidden_layers", true, 0, &layers));
    *n_layer = layers;
    nb_gguf_put_str(g, "general.architecture", nb_str_c("deepseek2"));
    nb_gguf_put_str(g, "general.type", nb_str_c("model"));
    nb_gguf_put_str(g, "general.name", name_of(c->o->model));
    nb_gguf_put_u32(g, "general.quantization_version", 2);
    put(&m, "block_count", layers);
    NB_TRY(attention(&m));
    NB_TRY(experts(&m, layers, n_expert));
    return rope(&m);
}
