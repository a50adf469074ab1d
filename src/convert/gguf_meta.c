/* gguf_meta.c - config.json as the metadata of llama.cpp's architectures (load/gguf_config.c is the reverse).  What a GGUF
 * file cannot say must have the value that it means; anything else is refused by the field's name. */
#include "convert/gguf_meta.h"

#include <stdio.h>
#include <string.h>

#include "os/file.h"

enum { NEED = UINT32_MAX }; /* no default: the field must be there */

// clang-format off
static const nb_gguf_arch archs[] = {
    { .type = "deepseek_v2", .name = "deepseek2", .kind = NB_GGUF_MLA, .softmax = true, .q_lora = 1536, .kv_lora = 512,
      .nope = 128, .rope = 64, .v = 128, .context = 2048, .experts = 64, .shared = 2, .inter = 1407, .used = NEED,
      .dense = 0, .groups = 1, .groups_used = 1, .eps = 1e-6, .factor = 1 },
    { .type = "deepseek_v3", .name = "deepseek2", .kind = NB_GGUF_MLA, .normalise = true, .q_lora = 1536, .kv_lora = 512,
      .nope = 128, .rope = 64, .v = 128, .context = 4096, .experts = 256, .shared = 1, .inter = 2048, .used = 8,
      .dense = 3, .groups = 8, .groups_used = 4, .eps = 1e-6, .factor = 2.5 },
    { .type = "kimi_k2", .name = "deepseek2", .kind = NB_GGUF_MLA, .normalise = true, .q_lora = 1536, .kv_lora = 512,
      .nope = 128, .rope = 64, .v = 128, .context = 4096, .experts = 256, .shared = 1, .inter = 2048, .used = 8,
      .dense = 3, .groups = 8, .groups_used = 4, .eps = 1e-6, .factor = 2.5 },
    { .type = "glm4_moe_lite", .name = "deepseek2", .kind = NB_GGUF_MLA, .normalise = true, .q_lora = 768, .kv_lora = 512,
      .nope = 192, .rope = 64, .v = 256, .context = 202752, .experts = 64, .shared = 1, .inter = 1536, .used = 4,
      .dense = 1, .groups = 1, .groups_used = 1, .eps = 1e-5, .factor = 1.8 },
    { .type = "youtu", .name = "deepseek2", .kind = NB_GGUF_MLA, .tied = true, .q_lora = 1536, .kv_lora = 512,
      .nope = 128, .rope = 64, .v = 128, .context = 131072, .eps = 1e-6 },
    { .type = "youtu_llm", .name = "deepseek2", .kind = NB_GGUF_MLA, .tied = true, .q_lora = 1536, .kv_lora = 512,
      .nope = 128, .rope = 64, .v = 128, .context = 131072, .eps = 1e-6 },
    { .type = "minicpm3", .name = "minicpm3", .kind = NB_GGUF_MLA_WHOLE, .tied = true, .q_lora = 768, .kv_lora = 256,
      .nope = 64, .rope = 32, .context = 32768, .eps = 1e-5 },
    { .type = "llama", .name = "llama", .kind = NB_GGUF_GQA_PAIRS, .context = 2048, .eps = 1e-6 },
    { .type = "qwen2", .name = "qwen2", .kind = NB_GGUF_GQA, .context = 32768, .kv_heads = 32, .eps = 1e-6 },
    { .type = "qwen3", .name = "qwen3", .kind = NB_GGUF_GQA, .context = 32768, .kv_heads = 32, .head = 128, .eps = 1e-6 },
};
// clang-format on

/* ---- reading and writing ---- */

nb_status nb_gguf_refuse(const nb_gguf_meta *m, const char *field, const char *what)
{
    return nb_fail(m->c->err, NB_ERR_UNSUPPORTED, "config.json: %s: %s", field, what);
}

double nb_gguf_real(const json_t *o, const char *field, double absent)
{
    const json_t *v = json_object_get(o, field);
    return json_is_number(v) ? json_number_value(v) : absent;
}

/* A count from 0 to 2^31 - 1.  absent, null: the values for a field that is not there, and for null. */
static nb_status get(const nb_gguf_meta *m, const char *field, uint32_t absent, uint32_t null,
                     uint32_t *out)
{
    const json_t *v = json_object_get(m->o, field);
    *out = v ? null : absent;
    if ((!v || json_is_null(v)) && *out != NEED) return NB_OK;
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
        return nb_fail(m->c->err, NB_ERR_FORMAT, "config.json: %s: expected a count", field);
    *out = (uint32_t)json_integer_value(v);
    return NB_OK;
}

/* One that is 1 to 2^20: widths and numbers of heads. */
static nb_status get_size(const nb_gguf_meta *m, const char *field, uint32_t absent, uint32_t *out)
{
    NB_TRY(get(m, field, absent, absent, out));
    if (*out >= 1 && *out <= 1 << 20) return NB_OK;
    return nb_fail(m->c->err, NB_ERR_FORMAT, "config.json: %s: expected 1 to 1048576", field);
}

static const char *key_of(const nb_gguf_meta *m, const char *rest, char out[NB_GGUF_KEY])
{
    (void)snprintf(out, NB_GGUF_KEY, "%s.%s", m->a->name, rest);
    return out;
}
void nb_gguf_meta_u32(const nb_gguf_meta *m, const char *rest, uint32_t v)
{
    char k[NB_GGUF_KEY];
    nb_gguf_put_u32(m->g, key_of(m, rest, k), v);
}
void nb_gguf_meta_f32(const nb_gguf_meta *m, const char *rest, double v)
{
    char k[NB_GGUF_KEY];
    nb_gguf_put_f32(m->g, key_of(m, rest, k), (float)v);
}
void nb_gguf_meta_str(const nb_gguf_meta *m, const char *rest, const char *v)
{
    char k[NB_GGUF_KEY];
    nb_gguf_put_str(m->g, key_of(m, rest, k), nb_str_c(v));
}

/* ---- fields that must have one value ---- */

typedef struct only_row {
    const char *field;
    unsigned kinds;    /* bits of nb_gguf_kind */
    const char *text;  /* the only word, or NULL: */
    double value;      /* the only number; false is 0, true is 1 */
    const char *types; /* model types that may have another, between blanks; or NULL */
} only_row;

#define MLA (1u << NB_GGUF_MLA)
#define WHOLE (1u << NB_GGUF_MLA_WHOLE)
#define GQA (1u << NB_GGUF_GQA | 1u << NB_GGUF_GQA_PAIRS)
static const only_row only[] = {
    { "hidden_act", MLA | WHOLE | GQA, "silu", 0, NULL },
    { "attention_bias", MLA | WHOLE | GQA, NULL, 0, " llama qwen2 " },
    { "mlp_bias", MLA | WHOLE | GQA, NULL, 0, " llama " },
    { "rope_interleave", MLA, NULL, 1, NULL },
    { "qk_layernorm", MLA, NULL, 0, NULL },
    { "moe_layer_freq", MLA, NULL, 1, NULL },
    { "use_sliding_window", GQA, NULL, 0, NULL },
    { "num_experts", GQA, NULL, 0, NULL },
    /* constants of llama.cpp's code */
    { "scale_emb", WHOLE, NULL, 12, NULL },
    { "scale_depth", WHOLE, NULL, 1.4, NULL },
    { "dim_model_base", WHOLE, NULL, 256, NULL },
};

static nb_status check_only(const nb_gguf_meta *m)
{
    for (size_t i = 0; i < NB_COUNT(only); i++) {
        const only_row *r = &only[i];
        const json_t *v = json_object_get(m->o, r->field);
        char word[40], what[96];
        (void)snprintf(word, sizeof word, " %.30s ", m->a->type);
        if (!v || !(r->kinds & 1u << m->a->kind) || (r->types && strstr(r->types, word))) continue;
        const bool same = r->text ? json_is_string(v) && !strcmp(json_string_value(v), r->text)
                          : json_is_boolean(v) ? json_is_true(v) == (r->value != 0)
                          : json_is_number(v)  ? json_number_value(v) == r->value
                                               : json_is_null(v) && r->value == 0;
        if (same) continue;
        if (r->text)
            (void)snprintf(what, sizeof what, "a GGUF file of %s means \"%s\"", m->a->name,
                           r->text);
        else
            (void)snprintf(what, sizeof what, "a GGUF file of %s means %g%s", m->a->name, r->value,
                           json_is_boolean(v) ? r->value != 0 ? " (true)" : " (false)" : "");
        return nb_gguf_refuse(m, r->field, what);
    }
    const json_t *kinds = json_object_get(m->o, "layer_types"), *x;
    size_t i;
    json_array_foreach(kinds, i, x)
    {
        const char *kind = json_string_value(x);
        if (!kind || strcmp(kind, "full_attention") != 0)
            return nb_gguf_refuse(m, "layer_types",
                                  "only \"full_attention\" is supported in a GGUF file");
    }
    return NB_OK;
}

/* ---- attention ---- */

static nb_status put_mla(nb_gguf_meta *m)
{
    nb_gguf_model *d = m->model;
    uint32_t q, lora, nope, v, hidden;
    const bool split = m->a->kind == NB_GGUF_MLA;
    NB_TRY(get(m, "q_lora_rank", m->a->q_lora, 0, &q));
    NB_TRY(get_size(m, "kv_lora_rank", m->a->kv_lora, &lora));
    NB_TRY(get_size(m, "qk_nope_head_dim", m->a->nope, &nope));
    NB_TRY(get_size(m, "qk_rope_head_dim", m->a->rope, &m->rope_dim));
    NB_TRY(get_size(m, "hidden_size", NEED, &hidden));
    NB_TRY(get_size(m, "v_head_dim", split ? m->a->v : hidden / (uint32_t)d->head, &v));
    if (strcmp(m->a->type, "glm4_moe_lite") ==
        0) /* its class knows one by two names, and this one wins */
        NB_TRY(get_size(m, "head_dim", m->rope_dim, &m->rope_dim));
    if (!split && q == 0) return nb_gguf_refuse(m, "q_lora_rank", "a GGUF file of minicpm3 has it");
    d->kv_head = split ? 1 : d->head;
    d->nope = nope;
    d->v = v;
    d->lora = lora;
    nb_gguf_meta_u32(m, "attention.head_count_kv", (uint32_t)d->kv_head);
    nb_gguf_meta_u32(m, "attention.q_lora_rank", q); /* llama.cpp wants the key; 0: none */
    nb_gguf_meta_u32(m, "attention.kv_lora_rank", lora);
    nb_gguf_meta_u32(m, "attention.key_length", (split ? lora : nope) + m->rope_dim);
    nb_gguf_meta_u32(m, "attention.value_length", split ? lora : v);
    if (!split) return NB_OK;
    nb_gguf_meta_u32(m, "attention.key_length_mla", nope + m->rope_dim);
    nb_gguf_meta_u32(m, "attention.value_length_mla", v);
    return NB_OK;
}

static nb_status put_gqa(nb_gguf_meta *m)
{
    nb_gguf_model *d = m->model;
    const uint32_t heads = (uint32_t)d->head;
    uint32_t hidden, kv, head;
    NB_TRY(get_size(m, "hidden_size", NEED, &hidden));
    NB_TRY(get(m, "num_key_value_heads", m->a->kv_heads ? m->a->kv_heads : heads, heads, &kv));
    NB_TRY(get(m, "head_dim", m->a->head, m->a->head, &head));
    if (head == 0) head = hidden / heads;
    if (kv == 0 || heads % kv || head < 2 || head % 2 || head > 65536)
        return nb_fail(m->c->err, NB_ERR_FORMAT,
                       "config.json: %u heads, %u of keys, %u wide: no grouped attention", heads,
                       kv, head);
    if (strcmp(m->a->name, "qwen2") == 0 && heads * head != hidden)
        return nb_gguf_refuse(m, "head_dim",
                              "a GGUF file of qwen2 means hidden_size / num_attention_heads");
    d->kv_head = kv;
    d->head_dim = m->rope_dim = head;
    nb_gguf_meta_u32(m, "attention.head_count_kv", kv);
    nb_gguf_meta_u32(m, "attention.key_length", head);
    nb_gguf_meta_u32(m, "attention.value_length", head);
    return NB_OK;
}

/* ---- experts ---- */

/* Layers without experts must be the first ones. */
static nb_status leading_dense(const nb_gguf_meta *m, uint32_t *out)
{
    const json_t *kinds = json_object_get(m->o, "mlp_layer_types"), *x;
    size_t i, n = 0;
    if (strcmp(m->a->type, "glm4_moe_lite") != 0)
        return get(m, "first_k_dense_replace", m->a->dense, m->a->dense, out);
    *out = m->a->dense;
    if (!json_is_array(kinds)) return NB_OK;
    json_array_foreach(kinds, i, x)
    {
        const char *kind = json_string_value(x);
        const bool dense = kind && !strcmp(kind, "dense");
        if ((!dense && (!kind || strcmp(kind, "sparse") != 0)) || (dense && n != i))
            return nb_gguf_refuse(m, "mlp_layer_types",
                                  "a GGUF file has experts in every layer behind the first ones");
        n += dense;
    }
    *out = (uint32_t)n;
    return NB_OK;
}

static nb_status put_groups(const nb_gguf_meta *m)
{
    uint32_t groups, used;
    const char *method = json_string_value(json_object_get(m->o, "topk_method"));
    NB_TRY(get(m, "n_group", m->a->groups, 1, &groups));
    NB_TRY(get(m, "topk_group", m->a->groups_used, 1, &used));
    if (m->a->softmax && (!method || !strcmp(method, "greedy"))) groups = used = 1;
    nb_gguf_meta_u32(m, "expert_group_count", groups ? groups : 1);
    nb_gguf_meta_u32(m, "expert_group_used_count", used ? used : 1);
    return NB_OK;
}

/* llama.cpp asks for some of these keys of models without experts, too. */
static nb_status put_experts(const nb_gguf_meta *m, uint32_t inter)
{
    uint32_t n, shared, moe_inter, used, dense;
    char k[NB_GGUF_KEY];
    NB_TRY(get(m, "n_routed_experts", m->a->experts, 0, &n));
    m->model->n_expert = n;
    if (n == 0) {
        nb_gguf_meta_u32(m, "leading_dense_block_count", (uint32_t)m->model->n_layer);
        nb_gguf_meta_u32(m, "expert_shared_count", 0);
        nb_gguf_meta_u32(m, "expert_feed_forward_length", inter);
        return NB_OK;
    }
    if (m->a->experts == 0)
        return nb_gguf_refuse(m, "n_routed_experts", "is not known for this model type");
    NB_TRY(get(m, "n_shared_experts", m->a->shared, 0, &shared));
    NB_TRY(get(m, "moe_intermediate_size", m->a->inter, NEED, &moe_inter));
    NB_TRY(get(m, "num_experts_per_tok", m->a->used, NEED, &used));
    NB_TRY(leading_dense(m, &dense));
    const json_t *norm = json_object_get(m->o, "norm_topk_prob");
    const bool normalise = json_is_boolean(norm) ? json_is_true(norm) : m->a->normalise;
    const char *score = json_string_value(json_object_get(m->o, "scoring_func"));
    if (m->a->softmax && normalise)
        return nb_gguf_refuse(m, "norm_topk_prob", "is not known for a softmax");
    if (score && strcmp(score, m->a->softmax ? "softmax" : "sigmoid") != 0)
        return nb_gguf_refuse(m, "scoring_func", "another one than the model type's is not known");
    nb_gguf_meta_u32(m, "expert_count", n);
    nb_gguf_meta_u32(m, "expert_used_count", used);
    nb_gguf_meta_u32(m, "expert_shared_count", shared);
    nb_gguf_meta_u32(m, "expert_feed_forward_length", moe_inter);
    nb_gguf_meta_u32(m, "leading_dense_block_count", dense);
    nb_gguf_meta_f32(m, "expert_weights_scale",
                     nb_gguf_real(m->o, "routed_scaling_factor", m->a->factor));
    nb_gguf_put_bool(m->g, key_of(m, "expert_weights_norm", k), normalise);
    nb_gguf_meta_u32(m, "expert_gating_func", m->a->softmax ? 1 : 2);
    return put_groups(m);
}

/* ---- together ---- */

static nb_str name_of(const char *path)
{
    size_t n = strlen(path), from;
    while (n > 1 && path[n - 1] == '/') n--;
    for (from = n; from > 0 && path[from - 1] != '/'; from--) {}
    return (nb_str){ path + from, n - from };
}

static nb_status find_arch(nb_gguf_meta *m)
{
    const char *type = json_string_value(json_object_get(m->o, "model_type"));
    nb_buf names = { 0 };
    nb_status st = NB_OK;
    for (size_t i = 0; i < NB_COUNT(archs) && st == NB_OK; i++) {
        if (type && strcmp(archs[i].type, type) == 0) m->a = &archs[i];
        st = nb_buf_printf(&names, "%s%s", i ? ", " : "", archs[i].type);
    }
    if (st == NB_OK && !m->a)
        st = nb_fail(m->c->err, NB_ERR_UNSUPPORTED,
                     "config.json: model_type \"%s\": a GGUF file is written for %s",
                     nb_show_c(type ? type : "").s, names.p);
    else if (st != NB_OK)
        st = nb_conv_nomem(m->c);
    nb_buf_deinit(&names);
    return st;
}

static nb_status put_common(nb_gguf_meta *m, uint32_t *inter)
{
    static const struct {
        const char *field, *key;
    } rows[] = { { "hidden_size", "embedding_length" },
                 { "vocab_size", "vocab_size" },
                 { "num_attention_heads", "attention.head_count" } };
    uint32_t v;
    NB_TRY(get_size(m, "num_hidden_layers", NEED, &v));
    m->model->n_layer = v;
    nb_gguf_meta_u32(m, "block_count", v);
    NB_TRY(get(m, "max_position_embeddings", m->a->context, NEED, &m->context));
    nb_gguf_meta_u32(m, "context_length", m->context);
    NB_TRY(get_size(m, "intermediate_size", NEED, inter));
    nb_gguf_meta_u32(m, "feed_forward_length", *inter);
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        NB_TRY(get_size(m, rows[i].field, NEED, &v));
        nb_gguf_meta_u32(m, rows[i].key, v);
    }
    m->model->head = v;
    nb_gguf_meta_f32(m, "attention.layer_norm_rms_epsilon",
                     nb_gguf_real(m->o, "rms_norm_eps", m->a->eps));
    return NB_OK;
}

nb_status nb_gguf_put_model(nb_conv *c, nb_gguf_out *g, nb_gguf_model *model)
{
    nb_gguf_meta m = { .c = c, .g = g, .model = model, .o = c->text };
    uint32_t inter;
    NB_TRY(find_arch(&m));
    NB_TRY(check_only(&m));
    const json_t *tied = json_object_get(m.o, "tie_word_embeddings");
    model->arch = m.a->name;
    model->kind = m.a->kind;
    model->tied = json_is_boolean(tied) ? json_is_true(tied) : m.a->tied;
    nb_gguf_put_str(g, "general.architecture", nb_str_c(m.a->name));
    nb_gguf_put_str(g, "general.type", nb_str_c("model"));
    nb_gguf_put_str(g, "general.name", name_of(c->o->model));
    nb_gguf_put_u32(g, "general.quantization_version", 2);
    NB_TRY(put_common(&m, &inter));
    if (m.a->kind == NB_GGUF_MLA || m.a->kind == NB_GGUF_MLA_WHOLE)
        NB_TRY(put_mla(&m));
    else
        NB_TRY(put_gqa(&m));
    if (m.a->kind == NB_GGUF_MLA) NB_TRY(put_experts(&m, inter));
    nb_gguf_meta_u32(&m, "rope.dimension_count", m.rope_dim);
    return nb_gguf_put_rope(&m);
}
