/* describe.c - nb_model_describe: what a config.json says, as JSON, with the bytes
 * of every record from the functions that size the pool. */
#include <jansson.h>
#include <stdlib.h>

#include "engine/engine_internal.h"
#include "model/kv_size.h"
#include "model/quantize.h"

static json_t *describe_record(const nb_model_config *c, nb_kv_type type, double bf16)
{
    nb_record r, first = { 0 };
    size_t block = 0;
    for (size_t i = 0; i < c->n_layer; i++) {
        const nb_attn_config *a = nb_layer_attn(c, i);
        if (nb_kv_record(a, type, nb_attn_rope_fmt(a), &r, NULL) != NB_OK)
            return NULL; /* a shape this record cannot hold */
        block += r.page_bytes;
        if (!first.page_bytes) first = r; /* of the layers that cache something */
    }
    const double layer = nb_record_bytes_per_tok(&first);
    const double tok = (double)block / NB_PAGE_TOK;
    return json_pack("{s:s, s:f, s:f, s:I, s:f, s:f}", "dtype", nb_kv_type_name(type),
                     "bytes_per_token_layer", layer, "bytes_per_token", tok, "page_bytes",
                     (json_int_t)first.page_bytes, "vs_bf16", bf16 > 0 ? bf16 / tok : 1.0,
                     "tokens_per_gib", (double)(1u << 30) / tok);
}

static json_t *describe_records(const nb_model_config *c)
{
    json_t *list = json_array();
    double bf16 = 0;
    for (int t = 0; list && t < NB_KV_TYPE_COUNT; t++) {
        json_t *r = describe_record(c, (nb_kv_type)t, bf16);
        if (!r) continue;
        if (t == NB_KV_BF16) bf16 = json_real_value(json_object_get(r, "bytes_per_token"));
        if (json_array_append_new(list, r) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static int add_size(json_t *j, const char *key, uint64_t v)
{
    return json_object_set_new(j, key, json_integer((json_int_t)v));
}

/* Attention is that of the first layer that caches something. */
static int add_geometry(json_t *j, const nb_model_config *c)
{
    const nb_attn_config *attn = nb_layer_attn(c, nb_attn_first_cached(c));
    const size_t state = nb_attn_state_offsets(c, NULL) * sizeof(float);
    size_t n_moe = 0;
    int bad = 0;
    for (size_t i = 0; i < c->n_layer; i++) n_moe += nb_layer_has_experts(c, i);
    if (nb_attn_is_latent(attn)) {
        bad |= add_size(j, "kv_lora_rank", attn->kv_lora) |
               add_size(j, "qk_rope_head_dim", attn->d_rope) |
               add_size(j, "qk_nope_head_dim", attn->d_nope) | add_size(j, "v_head_dim", attn->d_v);
        if (attn->q_lora) bad |= add_size(j, "q_lora_rank", attn->q_lora);
        if (attn->kind == NB_ATTN_DSA) {
            size_t n_own = 0;
            for (size_t i = 0; i < c->n_layer; i++) n_own += !nb_layer_attn(c, i)->index_shared;
            bad |= add_size(j, "index_n_heads", attn->index_head) |
                   add_size(j, "index_head_dim", attn->index_dim) |
                   add_size(j, "index_topk", attn->index_topk) | add_size(j, "index_layers", n_own);
        }
    } else {
        bad |= add_size(j, "n_kv_head", attn->n_kv_head) | add_size(j, "head_dim", attn->head_dim);
    }
    if (state) bad |= add_size(j, "state_bytes_per_request", state);
    bad |= json_object_set_new(j, "softmax_scale", json_real((double)attn->softmax_scale));
    if (n_moe) {
        bad |= add_size(j, "moe_layers", n_moe) | add_size(j, "n_expert", c->n_expert) |
               add_size(j, "experts_per_token", c->top_k) |
               add_size(j, "n_shared_expert", c->n_shared);
        if (c->n_zero) bad |= add_size(j, "n_zero_expert", c->n_zero);
    }
    return bad;
}

/* As the checkpoint has them, and as --weight-dtype int8 makes them. */
static int add_weights(json_t *j, const nb_model_config *c)
{
    nb_model m;
    if (nb_model_shapes(&m, c, NULL) != NB_OK) return -1;
    const int bad = add_size(j, "weight_bytes", m.weight_bytes) |
                    add_size(j, "weight_bytes_int8", nb_model_int8_weight_bytes(&m));
    nb_model_deinit(&m);
    return bad;
}

static nb_status describe(const nb_model_config *c, char **text)
{
    nb_model_size s;
    const nb_attn_config *attn = nb_layer_attn(c, nb_attn_first_cached(c));
    nb_model_config_size(c, &s);
    json_t *j = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:b}", "family",
                          c->family, "n_param", (json_int_t)s.n_param, "n_param_active",
                          (json_int_t)s.n_param_active, "n_layer", (json_int_t)c->n_layer, "hidden",
                          (json_int_t)c->hidden, "n_head", (json_int_t)attn->n_head, "vocab",
                          (json_int_t)c->n_vocab, "max_position", (json_int_t)c->max_pos,
                          "attention",
                          nb_attn_all(c, attn->kind) ? nb_attention_of(attn->kind)->name : "mixed",
                          "dtype", c->fp8 ? "fp8" : c->dtype, "tied", c->tied);
    const int bad = !j || add_weights(j, c) || add_geometry(j, c) ||
                    json_object_set_new(j, "records", describe_records(c)) ||
                    json_object_set_new(j, "notes", json_string(c->notes));
    *text = bad ? NULL : json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(10));
    json_decref(j);
    return *text ? NB_OK : NB_ERR_NOMEM;
}

/* json: the config's text, or NULL for the files of the model. */
static nb_status describe_source(const char *model, const nb_str *json, char **out, nb_error *err)
{
    char *text = NULL;
    nb_doc *doc = NULL;
    nb_model_config *c = calloc(1, sizeof *c);
    nb_status st = NB_ERR_NOMEM;
    if (!c) goto out;
    if (json) {
        NB_TRY_OUT(nb_doc_parse(*json, model, &doc, err));
        NB_TRY_OUT(nb_model_config_read(doc, c, err));
    } else {
        NB_TRY_OUT(nb_model_config_read_path(model, c, err));
    }
    NB_TRY_OUT(describe(c, &text));
    *out = text;
out:
    nb_doc_destroy(doc);
    free(c);
    return st;
}

nb_status nb_model_describe(const char *model, char **json, nb_error *err)
{
    nb_error own = { 0 };
    char *path = NULL;
    nb_status st = nb_model_find(model, &path, &own);
    if (st == NB_OK) st = describe_source(path, NULL, json, &own);
    free(path);
    if (st != NB_OK) return nb_fail(err, st, "%s", own.msg[0] ? own.msg : nb_status_text(st));
    return NB_OK;
}

nb_status nb_model_describe_config(const char *text, size_t n_bytes, const char *name, char **json,
                                   nb_error *err)
{
    nb_error own = { 0 };
    const nb_str config = { text, n_bytes };
    const nb_status st = describe_source(name, &config, json, &own);
    if (st != NB_OK) return nb_fail(err, st, "%s", own.msg[0] ? own.msg : nb_status_text(st));
    return NB_OK;
}
