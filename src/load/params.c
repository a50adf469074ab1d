/* params.c - see params.h. */
#include "load/params.h"

#include <stdio.h>
#include <stdlib.h>

#include "load/json.h"

/* ---- params.json ---- */

#define PARAMS_LIMITS ((nb_json_limits){ 16 << 20, 64, 1 << 20 })

typedef struct key_row {
    const char *from, *to; /* to NULL: dropped */
    bool needed;
} key_row;

static const key_row top_rows[] = {
    { "dim", "hidden_size", true },
    { "n_layers", "num_hidden_layers", true },
    { "n_heads", "num_attention_heads", true },
    { "n_kv_heads", "num_key_value_heads", false },
    { "hidden_dim", "intermediate_size", true },
    { "vocab_size", "vocab_size", true },
    { "norm_eps", "rms_norm_eps", true },
    { "activation", "hidden_act", false },
    { "tied_embeddings", "tie_word_embeddings", false },
    { "max_position_embeddings", "max_position_embeddings", true },
    { "max_seq_len", NULL, false },
    { "max_batch_size", NULL, false },
    { "q_lora_rank", "q_lora_rank", false },
    { "kv_lora_rank", "kv_lora_rank", true },
    { "qk_nope_head_dim", "qk_nope_head_dim", true },
    { "qk_rope_head_dim", "qk_rope_head_dim", true },
    { "v_head_dim", "v_head_dim", true },
    { "llama_4_scaling", "llama_4_scaling", false },
    { "model_type", NULL, false },
    { "rope_theta", NULL, false }, /* these have functions */
    { "moe", NULL, true },
    { "yarn", NULL, false },
    { "quantization", NULL, false },
    { "vision_encoder", NULL, false },
    { "multimodal", NULL, false },
};

static const key_row moe_rows[] = {
    { "num_experts", "n_routed_experts", true },
    { "num_experts_per_tok", "num_experts_per_tok", true },
    { "expert_hidden_dim", "moe_intermediate_size", true },
    { "num_shared_experts", "n_shared_experts", true },
    { "first_k_dense_replace", "first_k_dense_replace", true },
    { "routed_scale", "routed_scaling_factor", true },
    { "num_expert_groups", "n_group", false },
    { "num_expert_groups_per_tok", "topk_group", false },
    { "route_every_n", "moe_layer_freq", false },
    { "renorm_strategy", NULL, false },
    { "use_load_balancing_bias", NULL, false },
    { "expert_parallel", NULL, false },
    { "expert_model_parallel", NULL, false },
};

static const key_row yarn_rows[] = {
    { "factor", "factor", true },
    { "original_max_position_embeddings", "original_max_position_embeddings", true },
    { "beta", "beta_fast", false },
    { "alpha", "beta_slow", false },
    { "apply_scale", NULL, false },
};

typedef struct maker {
    const char *name; /* of params.json */
    json_t *in, *out;
    nb_error *err;
} maker;

static nb_status no_memory(const maker *m)
{
    return nb_fail(m->err, NB_ERR_NOMEM, "%s: out of memory", nb_show_path(m->name).s);
}

static nb_status refuse(const maker *m, const char *key, const char *expected)
{
    return nb_fail(m->err, NB_ERR_UNSUPPORTED, "%s: %s: this value is not supported (expected: %s)",
                   nb_show_path(m->name).s, key, expected);
}

static nb_status set(const maker *m, json_t *to, const char *key, json_t *v)
{
    return json_object_set_new(to, key, v) == 0 ? NB_OK : no_memory(m);
}

static const key_row *find_row(const key_row *rows, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(rows[i].from, key)) return &rows[i];
    return NULL;
}

/* An object of the file, or NULL where it is absent. */
static nb_status part(const maker *m, const char *key, json_t **out)
{
    *out = json_object_get(m->in, key);
    if (json_is_null(*out)) *out = NULL;
    if (!*out || json_is_object(*out)) return NB_OK;
    return nb_fail(m->err, NB_ERR_FORMAT, "%s: %s is %s, expected an object",
                   nb_show_path(m->name).s, key, nb_json_describe(*out).s);
}

/* Values of `from` by a table.  Others stay at the top, for the configuration's reader, and are refused below it. */
static nb_status move(const maker *m, json_t *from, const char *where, const key_row *rows,
                      size_t n, json_t *to)
{
    const char *key;
    json_t *v;
    for (size_t i = 0; i < n; i++)
        if (rows[i].needed && !json_object_get(from, rows[i].from))
            return nb_fail(m->err, NB_ERR_FORMAT, "%s: %s%s is missing", nb_show_path(m->name).s,
                           where, rows[i].from);
    json_object_foreach(from, key, v)
    {
        const key_row *r = find_row(rows, n, key);
        if (r && !r->to) continue;
        if (!r && *where)
            return nb_fail(m->err, NB_ERR_UNSUPPORTED, "%s: %s%s is not known",
                           nb_show_path(m->name).s, where, nb_show_c(key).s);
        NB_TRY(set(m, to, r ? r->to : key, json_incref(v)));
    }
    return NB_OK;
}

/* Weights of the chosen experts add up to 1, and no bias chooses. */
static nb_status add_moe(const maker *m)
{
    json_t *moe;
    NB_TRY(part(m, "moe", &moe));
    const json_t *norm = json_object_get(moe, "renorm_strategy"),
                 *bias = json_object_get(moe, "use_load_balancing_bias");
    if (norm && (!json_is_string(norm) || strcmp(json_string_value(norm), "WEIGHTS") != 0))
        return refuse(m, "moe.renorm_strategy", "WEIGHTS");
    if (bias && !json_is_false(bias)) return refuse(m, "moe.use_load_balancing_bias", "false");
    return move(m, moe, "moe.", moe_rows, NB_COUNT(moe_rows), m->out);
}

/* Without a scale: neither on cosines and sines nor on the scores (docs/decisions/049). */
static nb_status add_rope(const maker *m)
{
    json_t *yarn, *theta = json_object_get(m->in, "rope_theta");
    NB_TRY(part(m, "yarn", &yarn));
    json_t *rope = json_pack("{s:s}", "rope_type", yarn ? "yarn" : "default");
    NB_TRY(set(m, m->out, "rope_parameters", rope));
    if (!theta)
        return nb_fail(m->err, NB_ERR_FORMAT, "%s: rope_theta is missing", nb_show_path(m->name).s);
    NB_TRY(set(m, rope, "rope_theta", json_incref(theta)));
    if (!yarn) return NB_OK;
    if (!json_is_false(json_object_get(yarn, "apply_scale")))
        return refuse(m, "yarn.apply_scale", "false");
    NB_TRY(move(m, yarn, "yarn.", yarn_rows, NB_COUNT(yarn_rows), rope));
    NB_TRY(set(m, rope, "apply_yarn_scaling", json_false()));
    return set(m, rope, "attention_factor", json_real(1));
}

static nb_status add_quantization(const maker *m)
{
    json_t *q;
    NB_TRY(part(m, "quantization", &q));
    if (!q || json_object_size(q) == 0) return NB_OK;
    const char *format = json_string_value(json_object_get(q, "qformat_weight"));
    const json_t *act = json_object_get(q, "qscheme_act");
    if (!format && json_object_get(q, "quant_method"))
        return set(m, m->out, "quantization_config", json_incref(q));
    if (!format || strcmp(format, "fp8_e4m3") != 0)
        return refuse(m, "quantization.qformat_weight", "fp8_e4m3");
    const char *scheme = json_is_string(act) ? json_string_value(act) : act ? "" : "TENSOR";
    if (strcmp(scheme, "TENSOR") != 0 && strcmp(scheme, "NO_SCALES") != 0)
        return refuse(m, "quantization.qscheme_act", "TENSOR, NO_SCALES");
    return set(m, m->out, "quantization_config",
               json_pack("{s:s, s:s, s:s}", "quant_method", "fp8", "fmt", "e4m3",
                         "activation_scheme", *scheme == 'T' ? "static" : "dynamic"));
}

static nb_status make(const maker *m)
{
    const json_t *window = json_object_get(m->in, "sliding_window");
    if (!json_is_object(m->in))
        return nb_fail(m->err, NB_ERR_FORMAT, "%s: expected an object", nb_show_path(m->name).s);
    if (!json_object_get(m->in, "kv_lora_rank"))
        return nb_fail(m->err, NB_ERR_UNSUPPORTED,
                       "%s: kv_lora_rank is missing: of models in this form only those with latent "
                       "attention are supported",
                       nb_show_path(m->name).s);
    if (window && !json_is_null(window)) return refuse(m, "sliding_window", "null");
    NB_TRY(set(m, m->out, "model_type", json_string("mistral4")));
    NB_TRY(set(m, m->out, "bos_token_id", json_integer(1))); /* of every tekken.json */
    NB_TRY(set(m, m->out, "eos_token_id", json_integer(2)));
    NB_TRY(move(m, m->in, "", top_rows, NB_COUNT(top_rows), m->out));
    NB_TRY(add_moe(m));
    NB_TRY(add_rope(m));
    return add_quantization(m);
}

nb_status nb_params_config(nb_str params, const char *name, nb_buf *out, nb_error *err)
{
    maker m = { .name = name, .err = err };
    NB_TRY(nb_json_parse(params, name, &PARAMS_LIMITS, &m.in, err));
    m.out = json_object();
    nb_status st = m.out ? make(&m) : no_memory(&m);
    char *text = st == NB_OK ? json_dumps(m.out, JSON_COMPACT) : NULL;
    if (st == NB_OK && (!text || nb_buf_add_c(out, text) != NB_OK)) st = no_memory(&m);
    free(text);
    json_decref(m.in);
    json_decref(m.out);
    return st;
}

/* ---- names of tensors ---- */

typedef struct name_row {
    const char *from, *to;
} name_row;

static const name_row module_rows[] = {
    { "attention_norm", "input_layernorm" },
    { "attention.wq", "self_attn.q_proj" },
    { "attention.wq_a", "self_attn.q_a_proj" },
    { "attention.q_a_norm", "self_attn.q_a_layernorm" },
    { "attention.wq_b", "self_attn.q_b_proj" },
    { "attention.wkv_a_with_mqa", "self_attn.kv_a_proj_with_mqa" },
    { "attention.kv_a_norm", "self_attn.kv_a_layernorm" },
    { "attention.wkv_b", "self_attn.kv_b_proj" },
    { "attention.wo", "self_attn.o_proj" },
    { "ffn_norm", "post_attention_layernorm" },
    { "gate", "mlp.gate" },
};
static const name_row mlp_rows[] = { { "w1", "gate_proj" },
                                     { "w2", "down_proj" },
                                     { "w3", "up_proj" } };
static const name_row whole_rows[] = { { "norm", "model.norm" },
                                       { "tok_embeddings", "model.embed_tokens" },
                                       { "output", "lm_head" } };
static const name_row suffix_rows[] = { { "qscale_weight", "weight_scale" },
                                        { "qscale_act", "input_scale" } };

/* What a table has for the n bytes at s, or NULL. */
static const char *look_up(const name_row *rows, size_t n_row, const char *s, size_t n)
{
    for (size_t i = 0; i < n_row; i++)
        if (strlen(rows[i].from) == n && !memcmp(rows[i].from, s, n)) return rows[i].to;
    return NULL;
}

/* The matrix of a feed-forward block, "feed_forward.w1", "shared_experts.w1" or "experts.7.w1", behind "mlp." */
static bool mlp_module(const char *s, size_t n, char *out, size_t n_bytes)
{
    static const char dense[] = "feed_forward.";
    const char *dot = s + n;
    while (dot > s && dot[-1] != '.') dot--;
    const size_t head = (size_t)(dot - s), skip = sizeof dense - 1;
    const char *matrix = look_up(mlp_rows, NB_COUNT(mlp_rows), dot, n - head);
    const bool is_dense = head == skip && !memcmp(s, dense, skip);
    const bool is_shared = head == 15 && !memcmp(s, "shared_experts.", 15);
    bool is_expert = head > 9 && !memcmp(s, "experts.", 8);
    for (size_t i = 8; is_expert && i + 1 < head; i++) is_expert = s[i] >= '0' && s[i] <= '9';
    if (!matrix || !(is_dense || is_shared || is_expert)) return false;
    const int k = snprintf(out, n_bytes, "mlp.%.*s%s", is_dense ? 0 : (int)head, s, matrix);
    return k > 0 && (size_t)k < n_bytes;
}

bool nb_params_tensor(const char *name, char *out, size_t n_bytes)
{
    const char *dot = strrchr(name, '.');
    char module[256];
    if (!dot || strlen(name) >= sizeof module) return false;
    const char *suffix = look_up(suffix_rows, NB_COUNT(suffix_rows), dot + 1, strlen(dot + 1));
    if (!suffix) suffix = dot + 1;
    const char *to = look_up(whole_rows, NB_COUNT(whole_rows), name, (size_t)(dot - name));
    int n = -1;
    if (to) {
        n = snprintf(out, n_bytes, "%s.%s", to, suffix);
    } else if (!strncmp(name, "layers.", 7)) {
        const size_t digits = strspn(name + 7, "0123456789");
        const char *rest = name + 7 + digits + 1;
        if (digits == 0 || rest[-1] != '.' || rest >= dot) return false;
        to = look_up(module_rows, NB_COUNT(module_rows), rest, (size_t)(dot - rest));
        if (!to && mlp_module(rest, (size_t)(dot - rest), module, sizeof module)) to = module;
        if (to) n = snprintf(out, n_bytes, "model.layers.%.*s.%s.%s", (int)digits, name + 7, to, suffix);
    }
    return n > 0 && (size_t)n < n_bytes;
}
