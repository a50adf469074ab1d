/* gguf_config.c - config.json from the metadata of a GGUF file, for the families of src/model to read and check.
 *
 * An architecture is a table of keys, and a function for what is no plain copy.  Keys of the architecture that no table
 * names go into config.json under their own names, where they count as unknown fields and are shown to the user. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "load/gguf.h"
#include "load/load_internal.h"

enum { MAX_FACTOR = 512, KEY_BYTES = 160 };

typedef enum key_kind { KEY_INT, KEY_FLOAT, KEY_BOOL } key_kind;

/* A key behind the architecture's name, and the field that it becomes. */
typedef struct key_row {
    const char *gguf, *hf;
    key_kind kind;
    bool required;
    double absent; /* the field's value where the key is absent; NAN: no field */
} key_row;

typedef struct arch arch;
typedef struct maker {
    const nb_gguf *g;
    const arch *a;
    json_t *o;
    nb_error *err;
} maker;

struct arch {
    const char *name;       /* general.architecture */
    const char *model_type; /* NULL: finish chooses */
    const key_row *rows;    /* of this architecture alone, ended by gguf NULL */
    nb_status (*finish)(maker *m);
};

#define END                                                                                        \
    {                                                                                              \
        NULL, NULL, KEY_INT, false, 0                                                              \
    }

static const key_row common_rows[] = {
    { "embedding_length", "hidden_size", KEY_INT, true, NAN },
    { "context_length", "max_position_embeddings", KEY_INT, true, NAN },
    { "attention.head_count", "num_attention_heads", KEY_INT, true, NAN },
    { "attention.layer_norm_rms_epsilon", "rms_norm_eps", KEY_FLOAT, true, NAN },
    { "feed_forward_length", "intermediate_size", KEY_INT, true, NAN },
    { "rope.freq_base", "rope_theta", KEY_FLOAT, false, 10000 },
    END,
};

/* Read by functions, or without influence here. */
static const char *const read_elsewhere[] = {
    "block_count",
    "vocab_size",
    "nextn_predict_layers",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.key_length_mla",
    "attention.value_length_mla",
    "attention.q_lora_rank",
    "rope.dimension_count",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.attn_factor",
    "rope.scaling.finetuned",
    "rope.scaling.yarn_log_multiplier",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "expert_gating_func",
    "expert_group_count",
    "expert_group_used_count",
    "tensor_data_layout",
};

/* Keys that change the arithmetic, and the value that does not. */
typedef struct only_row {
    const char *gguf;
    double value;
} only_row;
static const only_row only[] = {
    { "attention.sliding_window", 0 },
    { "attention.scale", 0 },
    { "attention.temperature_scale", 0 },
    { "attention.clamp_kqv", 0 },
    { "attention.max_alibi_bias", 0 },
    { "attn_logit_softcapping", 0 },
    { "final_logit_softcapping", 0 },
    { "logit_scale", 1 },
    { "embedding_scale", 1 },
    { "residual_scale", 1 },
    { "rope.scaling.yarn_attn_factor", 1 },
    { "rope.scaling.yarn_ext_factor", 1 },
    { "rope.scale_linear", 1 },
    { "pooling_type", 0 },
};

static nb_status no_memory(const maker *m)
{
    return nb_fail(m->err, NB_ERR_NOMEM, "%s: out of memory", nb_show_path(nb_gguf_name(m->g)).s);
}

static nb_status fail(const maker *m, nb_status st, const char *what)
{
    return nb_fail(m->err, st, "%s: %s", nb_show_path(nb_gguf_name(m->g)).s, what);
}

static nb_status set(const maker *m, const char *field, json_t *v)
{
    return json_object_set_new(m->o, field, v) == 0 ? NB_OK : no_memory(m);
}

static const char *key_of(const maker *m, const char *key, char out[KEY_BYTES])
{
    (void)snprintf(out, KEY_BYTES, "%s.%s", m->a->name, key);
    return out;
}

static nb_status get_int(const maker *m, const char *key, uint64_t *out, bool *found)
{
    char full[KEY_BYTES];
    return nb_gguf_u64(m->g, key_of(m, key, full), out, found, m->err);
}
static nb_status get_f64(const maker *m, const char *key, double *out, bool *found)
{
    char full[KEY_BYTES];
    return nb_gguf_f64(m->g, key_of(m, key, full), out, found, m->err);
}

static nb_status copy_row(const maker *m, const key_row *r)
{
    char full[KEY_BYTES];
    const char *key = key_of(m, r->gguf, full);
    uint64_t n = 0;
    double d = 0;
    bool b = false, found = false;
    bool *const have = r->required ? NULL : &found;
    if (r->kind == KEY_INT) NB_TRY(nb_gguf_u64(m->g, key, &n, have, m->err));
    if (r->kind == KEY_FLOAT) NB_TRY(nb_gguf_f64(m->g, key, &d, have, m->err));
    if (r->kind == KEY_BOOL) NB_TRY(nb_gguf_bool(m->g, key, &b, have, m->err));
    if (have && !found) {
        if (isnan(r->absent)) return NB_OK;
        n = (uint64_t)r->absent;
        d = r->absent;
        b = r->absent != 0;
    }
    return set(m, r->hf,
               r->kind == KEY_INT     ? json_integer((json_int_t)n)
               : r->kind == KEY_FLOAT ? json_real(d)
                                      : json_boolean(b));
}

static nb_status copy_rows(const maker *m, const key_row *rows)
{
    for (; rows->gguf; rows++) NB_TRY(copy_row(m, rows));
    return NB_OK;
}

/* ---- what every architecture has ---- */

static bool in_rows(const key_row *rows, nb_str key)
{
    for (; rows->gguf; rows++)
        if (nb_str_eqc(key, rows->gguf)) return true;
    return false;
}

/* Keys of the architecture that nothing reads. */
static nb_status note_unknown(const maker *m)
{
    const size_t n_arch = strlen(m->a->name) + 1;
    for (size_t i = 0; i < m->g->file[0].n_kv; i++) {
        const nb_gguf_kv *kv = &m->g->kv[i];
        const nb_str key = { kv->key.p + n_arch, kv->key.n_bytes - n_arch };
        if (kv->key.n_bytes <= n_arch || memcmp(kv->key.p, m->a->name, n_arch - 1) != 0 ||
            kv->key.p[n_arch - 1] != '.')
            continue;
        bool known = in_rows(common_rows, key) || in_rows(m->a->rows, key);
        for (size_t k = 0; k < NB_COUNT(read_elsewhere); k++)
            known |= nb_str_eqc(key, read_elsewhere[k]);
        for (size_t k = 0; k < NB_COUNT(only); k++) known |= nb_str_eqc(key, only[k].gguf);
        if (!known) NB_TRY(set(m, nb_show(kv->key).s, json_null()));
    }
    return NB_OK;
}

static nb_status check_only(const maker *m)
{
    for (size_t i = 0; i < NB_COUNT(only); i++) {
        char full[KEY_BYTES];
        const nb_gguf_kv *kv = nb_gguf_find(m->g, key_of(m, only[i].gguf, full));
        if (!kv) continue;
        const bool is_number = kv->type != NB_GGUF_STRING && !kv->is_array;
        const double v = is_number ? nb_gguf_item(kv, 0) : NAN;
        if (v == only[i].value || v == 0) continue; /* 0: llama.cpp's word for "off" */
        return nb_fail(m->err, NB_ERR_UNSUPPORTED,
                       "%s: metadata '%s' %g is not supported (expected: %g)",
                       nb_show_path(nb_gguf_name(m->g)).s, full, v, only[i].value);
    }
    return NB_OK;
}

static nb_status layers(const maker *m)
{
    uint64_t n = 0, nextn = 0;
    bool found;
    char full[KEY_BYTES];
    NB_TRY(nb_gguf_u64(m->g, key_of(m, "block_count", full), &n, NULL, m->err));
    NB_TRY(get_int(m, "nextn_predict_layers", &nextn, &found));
    if (nextn >= n)
        return fail(m, NB_ERR_FORMAT, "nextn_predict_layers is not less than block_count");
    NB_TRY(set(m, "num_hidden_layers", json_integer((json_int_t)(n - nextn))));
    return set(m, "num_nextn_predict_layers", json_integer((json_int_t)nextn));
}

static nb_status vocabulary(const maker *m)
{
    const nb_gguf_tensor *t = nb_gguf_find_tensor(m->g, "token_embd.weight");
    if (!t) return fail(m, NB_ERR_FORMAT, "tensor 'token_embd.weight' is missing");
    NB_TRY(set(m, "vocab_size", json_integer((json_int_t)(t->n_dim > 1 ? t->dim[1] : 1))));
    return set(m, "tie_word_embeddings", json_boolean(!nb_gguf_find_tensor(m->g, "output.weight")));
}

/* Tokens that end a text, by the metadata, and by the names that chat models use. */
static nb_status ends(const maker *m)
{
    static const char *const keys[] = { "eos", "eot", "eom" };
    static const char *const names[] = { "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>" };
    json_t *list = json_array();
    uint64_t id = 0;
    nb_status st = list ? NB_OK : no_memory(m);
    for (size_t i = 0; st == NB_OK && i < NB_COUNT(keys); i++) {
        char key[64];
        bool found = false;
        (void)snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", keys[i]);
        st = nb_gguf_u64(m->g, key, &id, &found, m->err);
        if (st == NB_OK && found && id < UINT32_MAX)
            (void)json_array_append_new(list, json_integer((json_int_t)id));
    }
    const nb_gguf_kv *tok = NULL, *type = NULL;
    if (st == NB_OK) st = nb_gguf_list(m->g, "tokenizer.ggml.tokens", true, &tok, m->err);
    if (st == NB_OK) st = nb_gguf_list(m->g, "tokenizer.ggml.token_type", false, &type, m->err);
    size_t at = 0;
    for (uint64_t i = 0; st == NB_OK && tok && type && i < tok->n && i < type->n; i++) {
        const nb_str s = nb_gguf_next_str(tok, &at);
        if (s.n_bytes > 16 || nb_gguf_item(type, i) != 3) continue;
        for (size_t k = 0; k < NB_COUNT(names); k++)
            if (nb_str_eqc(s, names[k]))
                (void)json_array_append_new(list, json_integer((json_int_t)i));
    }
    if (st == NB_OK && json_array_size(list)) return set(m, "eos_token_id", list);
    json_decref(list);
    return st;
}

/* ---- rotation ---- */

/* F32 factors of a table; *list is NULL where there is no such tensor. */
static nb_status factors(const maker *m, const char *tensor, json_t **list)
{
    const nb_gguf_tensor *t = nb_gguf_find_tensor(m->g, tensor);
    char name[64];
    *list = NULL;
    if (!t) { /* older files have them in the first layer */
        (void)snprintf(name, sizeof name, "blk.0.%s", tensor);
        t = nb_gguf_find_tensor(m->g, name);
    }
    if (!t) return NB_OK;
    if (t->type != 0 || t->n_dim != 1 || t->dim[0] > MAX_FACTOR)
        return nb_fail(m->err, NB_ERR_FORMAT,
                       "%s: tensor '%s': expected F32 with at most %d values",
                       nb_show_path(nb_gguf_name(m->g)).s, tensor, MAX_FACTOR);
    json_t *a = json_array();
    for (size_t i = 0; a && i < t->dim[0]; i++) {
        float f;
        nb_ggml_f32(t->data + 4 * i, 1, &f);
        if (!isfinite(f)) {
            json_decref(a);
            return nb_fail(m->err, NB_ERR_FORMAT, "%s: tensor '%s': value %zu is not finite",
                           nb_show_path(nb_gguf_name(m->g)).s, tensor, i);
        }
        (void)json_array_append_new(a, json_real(f));
    }
    *list = a;
    return a ? NB_OK : no_memory(m);
}

/* Factors that divide the frequencies: LongRoPE, and what Llama 3.1 becomes.  attention: what magnifies the rotation. */
static nb_status tables(const maker *m, double original, double attention, bool *found)
{
    json_t *s = NULL, *l = NULL;
    NB_TRY(factors(m, "rope_factors_short.weight", &s));
    nb_status st = factors(m, "rope_factors_long.weight", &l);
    if (st == NB_OK && !s && !l) {
        st = factors(m, "rope_freqs.weight", &s);
        l = json_incref(s);
    }
    *found = s != NULL;
    if (st == NB_OK && (!s != !l))
        st = fail(m, NB_ERR_FORMAT,
                  "rope_factors_short and rope_factors_long: one of them is missing");
    if (st != NB_OK || !s) {
        json_decref(s);
        json_decref(l);
        return st;
    }
    return set(m, "rope_scaling",
               json_pack("{s:s, s:o, s:o, s:f, s:f}", "rope_type", "longrope", "short_factor", s,
                         "long_factor", l, "attention_factor", attention,
                         "original_max_position_embeddings", original));
}

static nb_status yarn(const maker *m, json_t *o)
{
    static const struct {
        const char *gguf, *hf;
        double factor;
    } rows[] = {
        { "rope.scaling.yarn_beta_fast", "beta_fast", 1 },
        { "rope.scaling.yarn_beta_slow", "beta_slow", 1 },
        /* 0.1 * mscale_all_dim; the rotation itself is not scaled, as with equal mscale */
        { "rope.scaling.yarn_log_multiplier", "mscale_all_dim", 10 },
        { "rope.scaling.yarn_log_multiplier", "mscale", 10 },
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        double v = 0;
        bool found;
        NB_TRY(get_f64(m, rows[i].gguf, &v, &found));
        if (found && v != 0 &&
            json_object_set_new(o, rows[i].hf, json_real(v * rows[i].factor)) != 0)
            return no_memory(m);
    }
    return NB_OK;
}

static nb_status rope(const maker *m)
{
    char full[KEY_BYTES];
    nb_str type = { "none", 4 };
    double factor = 1, original = 0, attention = 1;
    bool found, table = false;
    original = (double)json_integer_value(json_object_get(m->o, "max_position_embeddings"));
    NB_TRY(get_f64(m, "rope.scaling.original_context_length", &original, &found));
    NB_TRY(get_f64(m, "rope.scaling.attn_factor", &attention, &found));
    if (attention == 0) attention = 1; /* llama.cpp's word for "off" */
    NB_TRY(tables(m, original, attention, &table));
    if (table) return NB_OK;
    if (attention != 1)
        return nb_fail(m->err, NB_ERR_UNSUPPORTED,
                       "%s: metadata '%s' %g is not supported without rope_factors (expected: 1)",
                       nb_show_path(nb_gguf_name(m->g)).s,
                       key_of(m, "rope.scaling.attn_factor", full), attention);
    NB_TRY(nb_gguf_str(m->g, key_of(m, "rope.scaling.type", full), &type, &found, m->err));
    NB_TRY(get_f64(m, "rope.scaling.factor", &factor, &found));
    if (nb_str_eqc(type, "none") || factor == 0) return NB_OK;
    if (!nb_str_eqc(type, "linear") && !nb_str_eqc(type, "yarn"))
        return nb_fail(m->err, NB_ERR_UNSUPPORTED,
                       "%s: metadata '%s' \"%s\" is not supported (none, linear, yarn)",
                       nb_show_path(nb_gguf_name(m->g)).s, full, nb_show(type).s);
    json_t *o = json_pack("{s:s%, s:f, s:f}", "rope_type", type.p, type.n_bytes, "factor", factor,
                          "original_max_position_embeddings", original);
    NB_TRY(set(m, "rope_scaling", o));
    return nb_str_eqc(type, "yarn") ? yarn(m, o) : NB_OK;
}

/* ---- architectures ---- */

static size_t rows_of(const maker *m, const char *tensor)
{
    const nb_gguf_tensor *t = nb_gguf_find_tensor(m->g, tensor);
    return t ? (t->n_dim > 1 ? t->dim[1] : 1) : 0;
}

/* q_lora_rank: some files of models without one have the key, so the tensors decide. */
static nb_status q_lora(const maker *m)
{
    const size_t n = rows_of(m, "blk.0.attn_q_a.weight");
    return set(m, "q_lora_rank", n ? json_integer((json_int_t)n) : json_null());
}

/* Widths of a head.  MLA files have key_length_mla and value_length_mla; older ones the widths themselves. */
static nb_status mla_heads(const maker *m)
{
    char full[KEY_BYTES];
    uint64_t rot = 0, key = 0, value = 0;
    bool k = false, v = false;
    NB_TRY(nb_gguf_u64(m->g, key_of(m, "rope.dimension_count", full), &rot, NULL, m->err));
    NB_TRY(get_int(m, "attention.key_length_mla", &key, &k));
    NB_TRY(get_int(m, "attention.value_length_mla", &value, &v));
    if (k != v)
        return fail(m, NB_ERR_FORMAT,
                    "attention.key_length_mla and value_length_mla: one of them is missing");
    if (!k) NB_TRY(nb_gguf_u64(m->g, key_of(m, "attention.key_length", full), &key, NULL, m->err));
    if (!k) NB_TRY(get_int(m, "attention.value_length", &value, &v));
    if (key <= rot)
        return fail(m, NB_ERR_FORMAT, "rope.dimension_count is not less than the width of a key");
    NB_TRY(set(m, "qk_nope_head_dim", json_integer((json_int_t)(key - rot))));
    NB_TRY(set(m, "qk_rope_head_dim", json_integer((json_int_t)rot)));
    return v ? set(m, "v_head_dim", json_integer((json_int_t)value)) : NB_OK;
}

static const key_row deepseek_rows[] = {
    { "attention.kv_lora_rank", "kv_lora_rank", KEY_INT, true, NAN },
    { "expert_count", "n_routed_experts", KEY_INT, false, 0 },
    { "expert_used_count", "num_experts_per_tok", KEY_INT, false, 0 },
    { "expert_shared_count", "n_shared_experts", KEY_INT, false, 0 },
    { "expert_feed_forward_length", "moe_intermediate_size", KEY_INT, false, 0 },
    { "expert_weights_scale", "routed_scaling_factor", KEY_FLOAT, false, 1 },
    { "expert_weights_norm", "norm_topk_prob", KEY_BOOL, false, 0 },
    { "leading_dense_block_count", "first_k_dense_replace", KEY_INT, false, 0 },
    END,
};

/* 1: softmax (DeepSeek-V2), 2: sigmoid (V3 and its kin).  Files without the key: V2, but for GLM-4.7-Flash. */
static nb_status gating(const maker *m, uint64_t *func)
{
    bool found;
    NB_TRY(get_int(m, "expert_gating_func", func, &found));
    if (!found || *func == 0) {
        const bool glm = rows_of(m, "token_embd.weight") == 154880;
        *func = glm ? 2 : 1;
    }
    if (*func == 1 || *func == 2) return NB_OK;
    return nb_fail(
        m->err, NB_ERR_UNSUPPORTED,
        "%s: metadata 'deepseek2.expert_gating_func' %llu is not supported (1 softmax, 2 sigmoid)",
        nb_show_path(nb_gguf_name(m->g)).s, (unsigned long long)*func);
}

/* Groups of experts.  The V3 files of 2025 lack them, and llama.cpp ran these without; the field is left out then, and
 * the family says what it assumes. */
static nb_status groups(const maker *m, bool sigmoid)
{
    uint64_t n = 1, used = 1;
    bool found, have;
    NB_TRY(get_int(m, "expert_group_count", &n, &found));
    NB_TRY(get_int(m, "expert_group_used_count", &used, &have));
    const bool grouped = found && n > 0;
    const json_int_t experts = json_integer_value(json_object_get(m->o, "n_routed_experts"));
    const json_int_t heads = json_integer_value(json_object_get(m->o, "num_attention_heads"));
    if (!grouped && sigmoid && experts == 256 && heads == 128) return NB_OK;
    NB_TRY(set(m, "n_group", json_integer(grouped ? (json_int_t)n : 1)));
    return set(m, "topk_group", json_integer(grouped && have ? (json_int_t)used : 1));
}

static nb_status deepseek_finish(maker *m)
{
    uint64_t func = 0;
    const bool moe = json_integer_value(json_object_get(m->o, "n_routed_experts")) > 0;
    NB_TRY(q_lora(m));
    NB_TRY(mla_heads(m));
    NB_TRY(gating(m, &func));
    const bool sigmoid = func == 2 || !moe;
    if (!sigmoid && json_is_true(json_object_get(m->o, "norm_topk_prob")))
        return fail(m, NB_ERR_UNSUPPORTED,
                    "metadata 'deepseek2.expert_weights_norm': normalised weights after a softmax "
                    "are not supported");
    NB_TRY(set(m, "model_type", json_string(sigmoid ? "deepseek_v3" : "deepseek_v2")));
    NB_TRY(groups(m, sigmoid));
    if (!sigmoid) {
        const bool grouped = json_integer_value(json_object_get(m->o, "n_group")) > 1;
        NB_TRY(set(m, "topk_method", json_string(grouped ? "group_limited_greedy" : "greedy")));
    }
    return moe ? NB_OK : set(m, "n_routed_experts", json_null());
}

static const key_row minicpm3_rows[] = {
    { "attention.kv_lora_rank", "kv_lora_rank", KEY_INT, true, NAN },
    END,
};

/* Its scales of embedding, branches and logits are constants of llama.cpp, and the family's defaults. */
static nb_status minicpm3_finish(maker *m)
{
    NB_TRY(q_lora(m));
    NB_TRY(mla_heads(m));
    NB_TRY(set(m, "scale_emb", json_integer(12)));
    NB_TRY(set(m, "scale_depth", json_real(1.4)));
    return set(m, "dim_model_base", json_integer(256));
}

static const key_row gqa_rows[] = { END };

static nb_status gqa_finish(maker *m)
{
    uint64_t n = 0, key = 0, value = 0, rot = 0, kv = 0;
    bool found, have, has_kv;
    const uint64_t heads =
        (uint64_t)json_integer_value(json_object_get(m->o, "num_attention_heads"));
    const uint64_t hidden = (uint64_t)json_integer_value(json_object_get(m->o, "hidden_size"));
    NB_TRY(get_int(m, "expert_count", &n, &found));
    if (n) return fail(m, NB_ERR_UNSUPPORTED, "experts of this architecture are not supported");
    key = heads ? hidden / heads : 0;
    NB_TRY(get_int(m, "attention.key_length", &key, &found));
    value = rot = key;
    NB_TRY(get_int(m, "attention.value_length", &value, &have));
    NB_TRY(get_int(m, "rope.dimension_count", &rot, &have));
    NB_TRY(get_int(m, "attention.head_count_kv", &kv, &has_kv));
    if (value != key || rot != key)
        return fail(m, NB_ERR_UNSUPPORTED,
                    "keys, values and the rotated part of a head have different widths, which is "
                    "not supported");
    NB_TRY(set(m, "head_dim", json_integer((json_int_t)key)));
    NB_TRY(set(m, "num_key_value_heads", json_integer((json_int_t)(has_kv ? kv : heads))));
    if (strcmp(m->a->name, "qwen2") == 0) return NB_OK;
    NB_TRY(set(m, "attention_bias", json_boolean(nb_gguf_find_tensor(m->g, "blk.0.attn_q.bias"))));
    return strcmp(m->a->name, "llama") == 0
               ? set(m, "mlp_bias", json_boolean(nb_gguf_find_tensor(m->g, "blk.0.ffn_gate.bias")))
               : NB_OK;
}

/* Quantised weights, for what counts bytes without reading tensors. */
static nb_status weight_types(const maker *m)
{
    json_t *types = NULL;
    const json_int_t n = json_integer_value(json_object_get(m->o, "num_hidden_layers"));
    NB_TRY(nb_gguf_types(m->g, n > 0 ? (size_t)n : 0, &types, m->err));
    return types ? set(m, "quantization_config", types) : NB_OK;
}

static const arch archs[] = {
    { "deepseek2", NULL, deepseek_rows, deepseek_finish },
    { "minicpm3", "minicpm3", minicpm3_rows, minicpm3_finish },
    { "llama", "llama", gqa_rows, gqa_finish },
    { "qwen2", "qwen2", gqa_rows, gqa_finish },
    { "qwen3", "qwen3", gqa_rows, gqa_finish },
};

static nb_status make(maker *m)
{
    nb_str name = { 0 };
    NB_TRY(nb_gguf_str(m->g, "general.architecture", &name, NULL, m->err));
    for (size_t i = 0; i < NB_COUNT(archs); i++)
        if (nb_str_eqc(name, archs[i].name)) m->a = &archs[i];
    if (!m->a)
        return nb_fail(
            m->err, NB_ERR_UNSUPPORTED,
            "%s: architecture \"%s\" is not supported in GGUF files (supported: deepseek2, minicpm3, llama, "
            "qwen2, qwen3)",
            nb_show_path(nb_gguf_name(m->g)).s, nb_show(name).s);
    NB_TRY(check_only(m));
    if (m->a->model_type) NB_TRY(set(m, "model_type", json_string(m->a->model_type)));
    NB_TRY(layers(m));
    NB_TRY(vocabulary(m));
    NB_TRY(copy_rows(m, common_rows));
    NB_TRY(copy_rows(m, m->a->rows));
    NB_TRY(m->a->finish(m));
    NB_TRY(rope(m));
    NB_TRY(ends(m));
    NB_TRY(weight_types(m));
    return note_unknown(m);
}

nb_status nb_gguf_config(const nb_gguf *g, json_t **out, nb_error *err)
{
    maker m = { .g = g, .o = json_object(), .err = err };
    const nb_status st = m.o ? make(&m) : no_memory(&m);
    if (st == NB_OK)
        *out = m.o;
    else
        json_decref(m.o);
    return st;
}
