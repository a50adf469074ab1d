/* config.c - reading config.json through a family's tables.
 *
 * Every key of the file is in one of four classes: a field (read into the
 * config), an "only" (accepted values, anything else is refused), known
 * (harmless, or read by the family's finish), or unknown: noted, because a
 * field that we never heard of may be decoration or may change the arithmetic,
 * and only the user can tell.  Keys known to change the arithmetic in ways we do
 * not support are "only" rows below, for all families. */
#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/attention.h"
#include "model/family.h"

static const nb_family *const families[] = {
    &nb_family_deepseek_v2, &nb_family_deepseek_v3, &nb_family_glm4_moe_lite, &nb_family_minicpm3,
    &nb_family_youtu,       &nb_family_llama,       &nb_family_qwen2,         &nb_family_qwen3,
    &nb_family_axk1,        &nb_family_sarvam_mla,  &nb_family_mistral4,      &nb_family_deepseek_v32,
    &nb_family_glm_moe_dsa, &nb_family_mixed,       &nb_family_kimi_linear,   &nb_family_longcat,
    &nb_family_deepseek_v4,
};

/* Refused for every family unless it has one of these values. */
static const nb_only common_only[] = {
    { "hidden_act", "silu swish", 0 },
    { "partial_rotary_factor", NULL, 1 },
    { "rope_scaling.partial_rotary_factor", NULL, 1 },
    { "rope_parameters.partial_rotary_factor", NULL, 1 },
    { "use_sliding_window", NULL, 0 },
    { "attn_logit_softcapping", NULL, NAN },
    { "final_logit_softcapping", NULL, NAN },
    { "logit_scale", NULL, 1 },
    { "query_pre_attn_scalar", NULL, NAN },
    { "index_topk", NULL, NAN },
    { "attention_sink", NULL, 0 },
    { "use_mla_nope", NULL, 0 },
    { "mla_use_nope", NULL, 0 },
    { "residual_multiplier", NULL, 1 },
    { "embedding_multiplier", NULL, 1 },
    { "attention_multiplier", NULL, NAN },
    { "logits_scaling", NULL, 1 },
    { "llama_4_scaling", NULL, NAN },
    { NULL, NULL, 0 },
};

/* Of FP8 weights; not refused where bytes are only counted. */
static const nb_only fp8_only[] = {
    { "quantization_config.fmt", "e4m3", 0 },
    { "quantization_config.activation_scheme", "dynamic static", 0 },
    { NULL, NULL, 0 },
};

/* Read elsewhere, or without influence on the numbers. */
static const char *const common_known[] = {
    "architectures",
    "model_type",
    "torch_dtype",
    "dtype",
    "transformers_version",
    "auto_map",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "sep_token_id",
    "decoder_start_token_id",
    "use_cache",
    "initializer_range",
    "attention_dropout",
    "hidden_dropout",
    "resid_pdrop",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "original_max_position_embeddings",
    "quantization_config",
    "tie_word_embeddings",
    "pretraining_tp",
    "_name_or_path",
    "name_or_path",
    "num_key_value_heads",
    "head_dim",
    "ep_size",
    "aux_loss_alpha",
    "seq_aux",
    "num_nextn_predict_layers",
    "return_dict",
    "output_hidden_states",
    "output_attentions",
    "output_router_logits",
    "router_aux_loss_coef",
    "is_encoder_decoder",
    "is_decoder",
    "chunk_size_feed_forward",
    "id2label",
    "label2id",
    "problem_type",
    "return_dict_in_generate",
    "cross_attention_hidden_size",
    "add_cross_attention",
    "tie_encoder_decoder",
    "finetuning_task",
    "task_specific_params",
    "tokenizer_class",
    "prefix",
    "attn_implementation",
    "_attn_implementation",
    "rope_interleave",
    "qk_head_dim",
    "sliding_window",
    "max_window_layers",
    "layer_types",
    "embedding_initializer_range",
    "moe_layer_freq",
    "mlp_layer_types",
    "torchscript",
    "use_bfloat16",
    "pruned_heads",
    "remove_invalid_values",
    "exponential_decay_length_penalty",
    "suppress_tokens",
    "begin_suppress_tokens",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "do_sample",
    "temperature",
    "top_p",
    "top_k",
    "typical_p",
    "repetition_penalty",
    "length_penalty",
    "no_repeat_ngram_size",
    "num_beams",
    "num_beam_groups",
    "num_return_sequences",
    "diversity_penalty",
    "encoder_no_repeat_ngram_size",
    "bad_words_ids",
    "early_stopping",
    "max_length",
    "min_length",
    "output_scores",
    "tf_legacy_loss",
    "vocab_size",
    "hidden_size",
    "mup_base_model",
    NULL,
};

static bool listed(const char *const *list, const char *key)
{
    for (; list && *list; list++)
        if (!strcmp(*list, key)) return true;
    return false;
}

static bool text_accepted(const char *list, const char *v)
{
    const size_t n = strlen(v);
    for (const char *p = list; *p;) {
        const char *end = strchr(p, ' ');
        const size_t m = end ? (size_t)(end - p) : strlen(p);
        if (m == n && !memcmp(p, v, n)) return true;
        p += m + (end ? 1 : 0);
    }
    return false;
}

/* The value of a row's key as a word, at most some 60 characters of it; "": it has another type. */
static void show_value(nb_doc *doc, const nb_only *o, char *out, size_t n_bytes)
{
    const char *v;
    double num;
    bool flag;
    out[0] = 0;
    if (o->text) {
        if (nb_doc_str(doc, o->key, &v)) (void)snprintf(out, n_bytes, " \"%.60s\"", v);
    } else if (nb_doc_is_bool(doc, o->key)) {
        (void)snprintf(out, n_bytes, nb_doc_bool(doc, o->key, &flag) && flag ? " true" : " false");
    } else if (nb_doc_f64(doc, o->key, &num)) {
        (void)snprintf(out, n_bytes, " %g", num);
    }
    for (char *p = out; *p; p++) *p = *p >= ' ' && *p < 0x7f ? *p : '?';
}

static nb_status refuse(nb_doc *doc, const nb_only *o, nb_error *err)
{
    char found[80];
    show_value(doc, o, found, sizeof found);
    if (o->text && *o->text)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "%s: %s:%s is not supported (expected: %s)",
                       nb_doc_name(doc), o->key, *found ? found : " this value", o->text);
    if (o->text || isnan(o->num))
        return nb_fail(err, NB_ERR_UNSUPPORTED, "%s: %s is not supported", nb_doc_name(doc),
                       o->key);
    if (nb_doc_is_bool(doc, o->key))
        return nb_fail(err, NB_ERR_UNSUPPORTED, "%s: %s:%s is not supported (expected: %s)",
                       nb_doc_name(doc), o->key, found, o->num != 0 ? "true" : "false");
    return nb_fail(err, NB_ERR_UNSUPPORTED, "%s: %s:%s is not supported (expected: %g)",
                   nb_doc_name(doc), o->key, *found ? found : " this value", o->num);
}

/* Keys in `but` are read elsewhere. */
static nb_status check_only(nb_doc *doc, const nb_only *o, const char *const *but, nb_error *err)
{
    for (; o->key; o++) {
        if (!nb_doc_has(doc, o->key) || listed(but, o->key)) continue;
        if (o->text) {
            const char *v;
            if (!*o->text || !nb_doc_str(doc, o->key, &v) || !text_accepted(o->text, v))
                return refuse(doc, o, err);
        } else {
            double num;
            bool flag;
            if (isnan(o->num)) return refuse(doc, o, err);
            if (nb_doc_is_bool(doc, o->key)) {
                if (!nb_doc_bool(doc, o->key, &flag) || (double)flag != o->num)
                    return refuse(doc, o, err);
            } else if (!nb_doc_f64(doc, o->key, &num) || num != o->num) {
                return refuse(doc, o, err);
            }
        }
    }
    return nb_doc_check(doc, err);
}

/* Keys that shape a model: when they are absent, what the family's class has is worth a word. */
static const char *const shaping[] = {
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "n_routed_experts",
    "n_shared_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "routed_scaling_factor",
    "num_key_value_heads",
    NULL,
};

void nb_config_assume(nb_model_config *c, const char *key, double value)
{
    const size_t at = strlen(c->assumed);
    char text[80];
    (void)snprintf(text, sizeof text, "%s%s %g", at ? ", " : "", key, value);
    if (at + strlen(text) < sizeof c->assumed) memcpy(c->assumed + at, text, strlen(text) + 1);
}

static nb_status read_field(nb_doc *doc, const nb_field *f, nb_model_config *c, nb_error *err)
{
    char *at = (char *)c + f->offset;
    size_t n;
    double d;
    bool b;
    const bool have = nb_doc_has(doc, f->key);
    if (!have && isnan(f->def))
        return nb_fail(err, NB_ERR_FORMAT, "%s: %s is missing", nb_doc_name(doc), f->key);
    if (!nb_doc_present(doc, f->key) && f->def != 0 && listed(shaping, f->key))
        nb_config_assume(c, f->key, f->def);
    switch (f->kind) {
    case NB_FIELD_SIZE:
        n = isnan(f->def) ? 0 : (size_t)f->def;
        if (have) (void)nb_doc_size(doc, f->key, (size_t)f->lo, (size_t)f->hi, &n);
        memcpy(at, &n, sizeof n);
        break;
    case NB_FIELD_F32:
        d = f->def;
        if (have) (void)nb_doc_f64(doc, f->key, &d);
        if (!(d >= f->lo && d <= f->hi))
            return nb_fail(err, NB_ERR_RANGE, "%s: %s is %g, expected %g to %g", nb_doc_name(doc),
                           f->key, d, f->lo, f->hi);
        memcpy(at, &(float){ (float)d }, sizeof(float));
        break;
    case NB_FIELD_BOOL:
        b = f->def != 0;
        if (have) (void)nb_doc_bool(doc, f->key, &b);
        memcpy(at, &b, sizeof b);
        break;
    }
    return nb_doc_check(doc, err);
}

/* Fields of every family; one that a family has in its own table is read as it says. */
static const nb_field common_fields[] = {
    NB_F_SIZE("vocab_size", n_vocab, NAN, 1, 1 << 24),
    NB_F_SIZE("hidden_size", hidden, NAN, 1, NB_DIM_MAX),
    NB_F_SIZE("num_hidden_layers", n_layer, NAN, 1, NB_MAX_LAYER),
    NB_F_SIZE("num_nextn_predict_layers", n_nextn, 0, 0, NB_MAX_LAYER),
    NB_F_SIZE("num_attention_heads", attn[0].n_head, NAN, 1, 65536),
    { NULL, NB_FIELD_SIZE, 0, 0, 0, 0 },
};

/* Whether ModelOpt quantised the KV cache only (kv_cache_scheme, which load/kv_scales.c reads): then
 * quant_algo is null or absent, and nothing describes weights. */
static bool cache_only(nb_doc *doc)
{
    static const char *const of_weights[] = {
        "quantization_config.quant_algo", "quantization_config.config_groups",
        "quantization_config.fmt", "quantization_config.weight_block_size"
    };
    for (size_t i = 0; i < NB_COUNT(of_weights); i++)
        if (nb_doc_has(doc, of_weights[i])) return false;
    return true;
}

static nb_status read_dtype(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    static const char *const dtypes[] = { "bfloat16", "float16", "float32" };
    const char *v = "bfloat16";
    if (!nb_doc_str(doc, "dtype", &v)) (void)nb_doc_str(doc, "torch_dtype", &v);
    NB_TRY(nb_doc_check(doc, err));
    c->dtype = NULL;
    for (size_t i = 0; i < NB_COUNT(dtypes); i++)
        if (!strcmp(v, dtypes[i])) c->dtype = dtypes[i];
    if (!c->dtype)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "%s: dtype \"%s\" is not supported (expected: bfloat16, float16, float32)",
                       nb_doc_name(doc), v);
    return NB_OK;
}

/* FP8 with blocks of 128x128, or one scale for a matrix. */
static nb_status read_fp8(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    uint64_t block[3] = { 128, 128, 0 };
    size_t n = 2;
    NB_TRY(check_only(doc, fp8_only, NULL, err));
    (void)nb_doc_u64s(doc, "quantization_config.weight_block_size", 1 << 20, block, 3, &n);
    NB_TRY(nb_doc_check(doc, err));
    if (n != 2 || block[0] != 128 || block[1] != 128)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "%s: quantization_config.weight_block_size: only [128, 128] is supported",
                       nb_doc_name(doc));
    c->fp8 = true;
    return NB_OK;
}

/* any: what nibble does not run is only described.  Needs c->dense. */
static nb_status read_weights(nb_doc *doc, nb_model_config *c, bool any, nb_error *err)
{
    nb_error why = { 0 };
    const char *method = "";
    if (!nb_doc_has(doc, "quantization_config")) return NB_OK;
    if (!nb_doc_is_object(doc, "quantization_config"))
        return nb_fail(err, NB_ERR_FORMAT, "%s: quantization_config is not an object",
                       nb_doc_name(doc));
    if (!nb_doc_has(doc, "quantization_config.quant_method"))
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "%s: quantization_config without quant_method (expected: fp8)",
                       nb_doc_name(doc));
    (void)nb_doc_str(doc, "quantization_config.quant_method", &method);
    NB_TRY(nb_doc_check(doc, err));
    if (!strcmp(method, "modelopt") && cache_only(doc)) return NB_OK;
    if (!strcmp(method, "fp8")) {
        const nb_status st = read_fp8(doc, c, &why);
        if (st == NB_OK && c->n_stream) { /* the family that publishes E8M0 scales */
            c->fp8 = false;
            nb_quant_set_v4(c->dense, c->n_layer, &c->quant, c->quant_of);
        }
        if (st == NB_OK) return NB_OK;
        if (st != NB_ERR_UNSUPPORTED || !any) {
            if (err) *err = why;
            return st;
        }
    }
    if (c->paired)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "%s: quantization_config.quant_method: \"%.40s\" is not supported for %s (expected: fp8)",
                       nb_doc_name(doc), method, c->family);
    const nb_quant_model m = { c->dense, c->n_layer, c->n_expert, c->inner };
    NB_TRY(nb_quant_read(doc, &m, &c->quant, c->quant_of, err));
    const nb_status st = nb_quant_check(doc, &c->quant, &why);
    c->quant.runs = st == NB_OK;
    if (any || st == NB_OK) return NB_OK;
    if (err) *err = why;
    return st;
}

static bool has_own(const nb_family *family, const nb_field *f)
{
    for (const nb_field *q = family->fields; q->key; q++)
        if (q->offset == f->offset) return true;
    return false;
}

static nb_status read_common(nb_doc *doc, const nb_family *family, nb_model_config *c,
                             nb_error *err)
{
    for (const nb_field *f = common_fields; f->key; f++)
        if (!has_own(family, f)) NB_TRY(read_field(doc, f, c, err));
    NB_TRY(read_dtype(doc, c, err));
    c->init_range = 0.02;
    (void)nb_doc_f64(doc, "initializer_range", &c->init_range);
    if (!(c->init_range > 0 && c->init_range < 1e3)) c->init_range = 0.02;
    uint64_t eos[NB_MAX_EOS];
    size_t n = 0;
    (void)nb_doc_u64s(doc, "eos_token_id", UINT32_MAX, eos, NB_MAX_EOS, &n);
    for (size_t i = 0; i < n; i++) c->eos[i] = (uint32_t)eos[i];
    c->n_eos = n;
    c->embed_factor = c->branch_factor = c->logit_factor = 1.0f;
    c->attn[0].eps_lora =
        1e-6f; /* transformers' classes never pass the config's eps to these norms */
    c->group_top = 1;
    return nb_doc_check(doc, err);
}

static bool key_known(const nb_family *f, const char *key)
{
    if (listed(common_known, key) || listed(f->known, key)) return true;
    for (const nb_field *q = f->fields; q->key; q++)
        if (!strcmp(q->key, key)) return true;
    for (const nb_field *q = common_fields; q->key; q++)
        if (!strcmp(q->key, key)) return true;
    for (const nb_only *o = f->only; o->key; o++)
        if (!strcmp(o->key, key)) return true;
    for (const nb_only *o = common_only; o->key; o++)
        if (!strcmp(o->key, key)) return true;
    return false;
}

/* Names are shown in ASCII and whole, or not at all. */
static void note_unknown(nb_doc *doc, const nb_family *f, nb_model_config *c)
{
    enum { MAX_KEY = 512 };
    const char *keys[MAX_KEY];
    size_t n = nb_doc_keys(doc, "", keys, MAX_KEY), at = 0;
    if (n > MAX_KEY) n = MAX_KEY;
    for (size_t i = 0; i < n; i++) {
        const size_t len = strlen(keys[i]);
        if (key_known(f, keys[i]) || len > 60 || at + len + 3 > sizeof c->notes) continue;
        if (at) at += (size_t)snprintf(c->notes + at, sizeof c->notes - at, ", ");
        for (size_t k = 0; k < len; k++)
            c->notes[at++] = keys[i][k] > ' ' && keys[i][k] < 0x7f ? keys[i][k] : '?';
        c->notes[at] = 0;
    }
}

static const nb_family *find_family(const char *type)
{
    for (size_t i = 0; i < NB_COUNT(families); i++)
        if (listed(families[i]->model_types, type)) return families[i];
    return NULL;
}

static nb_status unknown_family(const nb_doc *doc, const char *type, const char *where,
                                nb_error *err)
{
    char list[512];
    size_t at = 0;
    list[0] = 0;
    for (size_t i = 0; i < NB_COUNT(families); i++)
        for (const char *const *t = families[i]->model_types; *t; t++) {
            const int m = snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", *t);
            if (m > 0 && at + (size_t)m < sizeof list) at += (size_t)m;
        }
    return nb_fail(err, NB_ERR_UNSUPPORTED,
                   "%s: model_type \"%.60s\"%s is not supported (supported: %s)", nb_doc_name(doc),
                   type, where, list);
}

static nb_status read_config(nb_doc *doc, nb_model_config *c, bool any, nb_error *err)
{
    *c = (nb_model_config){ .n_attn = 1 };
    const char *type = NULL;
    if (!nb_doc_str(doc, "model_type", &type)) {
        NB_TRY(nb_doc_check(doc, err));
        return nb_fail(err, NB_ERR_FORMAT, "%s: model_type is missing", nb_doc_name(doc));
    }
    const nb_family *f = NULL;
    f = find_family(type);
    if (!f && nb_doc_has(doc, "text_config.model_type")) {
        nb_doc_at(doc, "text_config");
        c->inner = true;
        if (!nb_doc_str(doc, "model_type", &type)) return nb_doc_check(doc, err);
        f = find_family(type);
    }
    if (!f) return unknown_family(doc, type, c->inner ? " in text_config" : "", err);
    c->family = f->name;
    NB_TRY(check_only(doc, common_only, f->known, err));
    NB_TRY(check_only(doc, f->only, NULL, err));
    NB_TRY(read_common(doc, f, c, err));
    for (const nb_field *q = f->fields; q->key; q++) NB_TRY(read_field(doc, q, c, err));
    NB_TRY(f->finish(doc, c, err));
    NB_TRY(nb_doc_check(doc, err));
    note_unknown(doc, f, c);
    if (c->inner && !nb_doc_has(doc, "quantization_config")) nb_doc_at(doc, "");
    NB_TRY(read_weights(doc, c, any, err));
    NB_TRY(nb_doc_check(doc, err));
    return NB_OK;
}

nb_status nb_model_config_read(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    return read_config(doc, c, false, err);
}

nb_status nb_model_config_read_any(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    return read_config(doc, c, true, err);
}

void nb_model_record_opts(const nb_attn_config *a, nb_kv_type type, nb_kv_mode mode,
                          nb_rope_fmt rope, nb_record_opts *o)
{
    *o = (nb_record_opts){ .type = type, .mode = mode, .rope = rope };
    const nb_attention *kind = nb_attention_of(a->kind);
    if (kind->record) kind->record(a, o);
}

/* Of one place where residual streams are mixed; the last, before the head, has weights of streams alone. */
static uint64_t mix_params(const nb_model_config *c)
{
    const uint64_t s = c->n_stream, n = (2 + s) * s;
    return s ? n * s * c->hidden + n + 3 : 0;
}

/* Numbers in a layer's norms, attention and mixing of streams. */
static uint64_t attn_params(const nb_model_config *c, size_t layer)
{
    const nb_attn_config *a = nb_layer_attn(c, layer);
    const nb_attention *kind = nb_attention_of(a->kind);
    uint64_t n = 2 * ((uint64_t)c->hidden + mix_params(c));
    for (size_t k = 0; k < kind->n_tensor; k++) {
        const nb_tensor_row *r = &kind->tensor[k];
        if (r->when && !r->when(a)) continue;
        n += (uint64_t)r->rows(c, a) * (r->cols ? r->cols(c, a) : 1);
    }
    return n;
}

void nb_model_config_size(const nb_model_config *c, nb_model_size *s)
{
    const uint64_t h = c->hidden;
    uint64_t total = 0, active = 0;
    for (size_t i = 0; i < c->n_layer; i++) {
        uint64_t ffn = 0, ffn_active = 0;
        if (c->dense[i]) ffn = ffn_active = 3 * h * c->inter + (c->mlp_bias ? 2 * c->inter + h : 0);
        if (nb_layer_has_experts(c, i)) {
            const bool bias = c->router_bias && !nb_layer_is_hashed(c, i);
            const uint64_t one = 3 * h * c->moe_inter, n = nb_n_choice(c),
                           fixed = c->n_shared * one + n * h + (bias ? n : 0);
            ffn += c->n_expert * one + fixed;
            ffn_active += (c->top_k < c->n_expert ? c->top_k : c->n_expert) * one + fixed;
            if (c->branch_norm) total += h, active += h;
        }
        total += attn_params(c, i) + ffn;
        active += attn_params(c, i) + ffn_active;
    }
    const uint64_t emb = (uint64_t)c->n_vocab * h, s_n = c->n_stream;
    const uint64_t mix = s_n ? s_n * s_n * h + s_n + 1 : 0;
    total += mix;
    active += mix;
    s->n_param = total + h + emb * (c->tied ? 1 : 2);
    s->n_param_active = active + h + emb; /* the head; one embedding row is nothing */
}
