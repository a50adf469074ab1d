/* tokenizer.c - creation, destruction and look-ups (see tokenizer.h). */
#include "text/tokenizer.h"

#include <stdlib.h>

#include "base/utf8.h"
#include "text/tok_internal.h"

void nb_tok_error_clear(nb_error *err)
{
    if (!err) return;
    err->status = NB_OK;
    err->msg[0] = 0;
}

nb_status nb_tok_error_fill(nb_error *err, nb_status st, const char *what)
{
    if (err && err->status == NB_OK) return nb_fail(err, st, "%s: %s", what, nb_status_text(st));
    return st;
}

/* Parses an optional file; *out is NULL for an empty one. */
static nb_status parse(nb_str s, const char *name, json_t **out, nb_error *err)
{
    json_error_t e;
    if (!s.n_bytes) return NB_OK;
    *out = json_loadb(s.p, s.n_bytes, JSON_ALLOW_NUL, &e);
    if (!*out)
        return nb_fail(err, NB_ERR_FORMAT, "%s: line %d, column %d: %s", name, e.line, e.column,
                       e.text);
    if (!json_is_object(*out)) return nb_fail(err, NB_ERR_FORMAT, "%s: an object expected", name);
    return NB_OK;
}

typedef struct documents {
    json_t *tokenizer, *tekken, *config, *map, *added;
} documents;

static nb_status load_json(nb_tokenizer *t, const documents *d, nb_error *err)
{
    NB_TRY(nb_tok_load_pipeline(t, d->tokenizer, err));
    NB_TRY(nb_tok_load_model(t, d->tokenizer, err));
    NB_TRY(nb_tok_load_added(t, d->tokenizer, err));
    NB_TRY(nb_tok_load_post(t, d->tokenizer, err));
    return nb_tok_load_config(t, d->config, d->map, d->added, err);
}

static nb_status load(nb_tokenizer *t, const nb_tokenizer_files *files, documents *d, nb_error *err)
{
    NB_TRY(parse(files->tokenizer_json, "tokenizer.json", &d->tokenizer, err));
    if (!d->tokenizer && !files->tiktoken_model.n_bytes)
        NB_TRY(parse(files->tekken_json, "tekken.json", &d->tekken, err));
    NB_TRY(parse(files->tokenizer_config_json, "tokenizer_config.json", &d->config, err));
    NB_TRY(parse(files->special_tokens_map_json, "special_tokens_map.json", &d->map, err));
    NB_TRY(parse(files->added_tokens_json, "added_tokens.json", &d->added, err));
    nb_tok_class_table(t->classes);
    if (d->tokenizer) {
        NB_TRY(load_json(t, d, err));
    } else if (d->tekken) {
        NB_TRY(nb_tok_load_tekken(t, d->tekken, err));
        NB_TRY(nb_tok_load_config(t, d->config, d->map, d->added, err));
    } else {
        NB_TRY(nb_tok_load_tiktoken(t, files->tiktoken_model, d->config, err));
        NB_TRY(nb_tok_load_config(t, d->config, d->map, d->added, err));
        NB_TRY(nb_tok_tiktoken_special(t, err));
    }
    NB_TRY(nb_tok_build_added(t, err));
    NB_TRY(nb_tok_build_direct(t, err));
    return nb_tok_build_out(t, err);
}

nb_status nb_tokenizer_create(const nb_tokenizer_files *files, nb_tokenizer **out, nb_error *err)
{
    documents d = { 0 };
    nb_tok_error_clear(err);
    if (!files->tokenizer_json.n_bytes && !files->tiktoken_model.n_bytes && !files->tekken_json.n_bytes)
        return nb_fail(err, NB_ERR_ARG,
                       "tokenizer: tokenizer.json, tiktoken.model or tekken.json expected");
    nb_tokenizer *t = calloc(1, sizeof *t);
    if (t) t->classes = malloc(NB_CC_TABLE_ITEMS * sizeof *t->classes);
    if (!t || !t->classes) {
        free(t);
        return nb_fail(err, NB_ERR_NOMEM, "tokenizer: out of memory");
    }
    for (int r = 0; r < NB_TOK_N_ROLES; r++) t->role_id[r] = NB_TOK_NONE;
    const nb_status st = load(t, files, &d, err);
    json_decref(d.tokenizer);
    json_decref(d.tekken);
    json_decref(d.config);
    json_decref(d.map);
    json_decref(d.added);
    if (st != NB_OK) {
        nb_tokenizer_destroy(t);
        return nb_tok_error_fill(err, st, "tokenizer");
    }
    *out = t;
    return NB_OK;
}

void nb_tokenizer_destroy(nb_tokenizer *t)
{
    if (!t) return;
    nb_buf_deinit(&t->blob);
    free(t->key);
    free(t->out);
    free(t->flags);
    nb_tok_map_deinit(&t->keys);
    nb_tok_merges_deinit(&t->merges);
    free(t->added);
    free(t->name);
    free(t->name_id);
    free(t->name_added);
    nb_tok_map_deinit(&t->names);
    for (int k = 0; k < 4; k++) free(t->sets[k & 1][k >> 1].item);
    for (size_t i = 0; i < t->n_norm; i++) nb_norm_step_deinit(&t->norm[i]);
    free(t->norm);
    for (size_t i = 0; i < t->n_pre; i++) nb_pre_step_deinit(&t->pre[i]);
    free(t->pre);
    for (size_t i = 0; i < t->dec.n_steps; i++) nb_norm_step_deinit(&t->dec.steps[i]);
    free(t->dec.steps);
    for (int r = 0; r < NB_TOK_N_ROLES; r++) free(t->role_text[r]);
    for (size_t i = 0; i < t->n_templates; i++) {
        free(t->templates[i].name);
        free(t->templates[i].text);
    }
    free(t->templates);
    free(t->classes);
    free(t);
}

size_t nb_tokenizer_n_vocab(const nb_tokenizer *t)
{
    return t->n_ids;
}

bool nb_tokenizer_has(const nb_tokenizer *t, uint32_t id)
{
    return id < t->n_ids && (t->flags[id] & NB_TF_EXISTS);
}

nb_str nb_tokenizer_token_bytes(const nb_tokenizer *t, uint32_t id)
{
    if (!nb_tokenizer_has(t, id)) return (nb_str){ "", 0 };
    return nb_tok_bytes(t, t->out[id]);
}

bool nb_tokenizer_is_special(const nb_tokenizer *t, uint32_t id)
{
    return id < t->n_ids && (t->flags[id] & NB_TF_SPECIAL);
}

bool nb_tokenizer_is_control(const nb_tokenizer *t, uint32_t id)
{
    return id < t->n_ids && (t->flags[id] & NB_TF_CONTROL);
}

uint32_t nb_tokenizer_find(const nb_tokenizer *t, nb_str content)
{
    if (!nb_utf8_valid(content) && !t->dec.raw_added) return NB_TOK_NONE;
    const uint32_t v = nb_tok_name_index(t, content);
    if (v != NB_TOK_NONE && t->name_added[v] != NB_TOK_NONE) return t->name_id[v];
    if (!t->dec.raw_added) return nb_tok_model_find(t, content);
    const nb_tok_slot *s = nb_tok_map_get(&t->keys, t->key, &t->blob, content.p, content.n_bytes);
    return s ? s->value : NB_TOK_NONE;
}

uint32_t nb_tokenizer_find_added(const nb_tokenizer *t, nb_str content)
{
    const uint32_t id = nb_tokenizer_find(t, content);
    return id != NB_TOK_NONE && (t->flags[id] & NB_TF_ADDED) ? id : NB_TOK_NONE;
}

uint32_t nb_tokenizer_role_id(const nb_tokenizer *t, nb_tok_role role)
{
    return (unsigned)role < NB_TOK_N_ROLES ? t->role_id[role] : NB_TOK_NONE;
}

nb_str nb_tokenizer_role_text(const nb_tokenizer *t, nb_tok_role role)
{
    if ((unsigned)role >= NB_TOK_N_ROLES || !t->role_text[role]) return (nb_str){ "", 0 };
    return nb_str_c(t->role_text[role]);
}

nb_str nb_tokenizer_chat_template(const nb_tokenizer *t, const char *name)
{
    for (size_t i = 0; i < t->n_templates; i++)
        if (strcmp(t->templates[i].name, name ? name : "default") == 0)
            return (nb_str){ t->templates[i].text, t->templates[i].n_text_bytes };
    return (nb_str){ "", 0 };
}
