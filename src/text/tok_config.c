/* tok_config.c - tokenizer_config.json, special_tokens_map.json and
 * added_tokens.json: roles, flags, BOS/EOS, chat templates.
 *
 * What transformers does with them, as far as it changes ids or text:
 *   - every entry of added_tokens_decoder becomes an added token with those
 *     flags; a role's token and additional_special_tokens become special;
 *   - the Llama classes build the post-processor anew from add_bos_token and
 *     add_eos_token.
 * A role or additional token that the vocabulary lacks gets no id here
 * (transformers would append one, beyond the model's embedding). */
#include <stdlib.h>

#include "text/tok_internal.h"

#define CONFIG_NAME "tokenizer_config.json"

static nb_status no_memory(nb_error *err)
{
    return nb_fail(err, NB_ERR_NOMEM, CONFIG_NAME ": out of memory");
}

/* A configuration may name anew a place holder that tokenizer.json adds outside
 * of the model's vocabulary (R1's think tokens do): the id keeps its token. */
static nb_status rename_added(nb_tokenizer *t, uint32_t id, nb_str content, nb_error *err)
{
    if (!(t->flags[id] & NB_TF_ADDED) || (t->flags[id] & NB_TF_MODEL)) return NB_OK;
    if (nb_tokenizer_find(t, content) != NB_TOK_NONE) return NB_OK;
    size_t i = 0;
    while (i < t->n_added && t->added[i].id != id) i++;
    if (i == t->n_added || !content.n_bytes) return NB_OK;
    nb_buf old = { 0 }; /* a copy: the text may move */
    nb_status st = nb_buf_add_str(&old, nb_tok_bytes(t, t->added[i].content));
    if (st == NB_OK) st = nb_tok_name_add(t, nb_buf_view(&old), NB_TOK_NONE, NB_TOK_NONE);
    if (st == NB_OK) st = nb_tok_name_add(t, content, id, (uint32_t)i);
    if (st == NB_OK) t->added[i].content = t->name[nb_tok_name_index(t, content)];
    if (st == NB_OK && content.n_bytes > NB_TOK_MAX_ADDED_BYTES) st = NB_ERR_LIMIT;
    nb_buf_deinit(&old);
    return st == NB_OK ? st : nb_fail(err, st, CONFIG_NAME ": %s", nb_status_text(st));
}

/* A token given as a string or as an AddedToken object; NULL for neither. */
static const json_t *token_text(const json_t *v)
{
    if (json_is_object(v)) v = json_object_get(v, "content");
    return json_is_string(v) ? v : NULL;
}

static nb_status decoder_entry(nb_tokenizer *t, const char *key, const json_t *o, nb_error *err)
{
    static const char WHERE[] = CONFIG_NAME ": added_tokens_decoder";
    const json_t *content = json_object_get(o, "content");
    char *end;
    const unsigned long long id = strtoull(key, &end, 10);
    if (*key < '0' || *key > '9' || *end || !json_is_string(content))
        return nb_fail(err, NB_ERR_FORMAT,
                       "%s: \"%.32s\": an id with an object that has content expected", WHERE, key);
    NB_TRY(nb_tok_reserve_id(t, id, WHERE, err));
    const nb_added a = {
        .id = (uint32_t)id,
        .special = json_is_true(json_object_get(o, "special")),
        .normalized = json_is_true(json_object_get(o, "normalized")),
        .lstrip = json_is_true(json_object_get(o, "lstrip")),
        .rstrip = json_is_true(json_object_get(o, "rstrip")),
        .single_word = json_is_true(json_object_get(o, "single_word")),
    };
    NB_TRY(rename_added(t, a.id, nb_tok_json_str(content), err));
    return nb_tok_add_token(t, &a, nb_tok_json_str(content), true, WHERE, err);
}

static nb_status load_decoder_entries(nb_tokenizer *t, const json_t *config, nb_error *err)
{
    json_t *all = json_object_get(config, "added_tokens_decoder");
    if (!all || json_is_null(all)) return NB_OK;
    if (!json_is_object(all))
        return nb_fail(err, NB_ERR_FORMAT,
                       CONFIG_NAME ": added_tokens_decoder: an object expected");
    for (void *it = json_object_iter(all); it; it = json_object_iter_next(all, it))
        NB_TRY(decoder_entry(t, json_object_iter_key(it), json_object_iter_value(it), err));
    return NB_OK;
}

/* added_tokens.json: {"text": id} or {"id": "text"}. */
static nb_status load_added_file(nb_tokenizer *t, const json_t *added, nb_error *err)
{
    static const char WHERE[] = "added_tokens.json";
    json_t *all = (json_t *)(uintptr_t)added;
    for (void *it = json_object_iter(all); it; it = json_object_iter_next(all, it)) {
        const char *key = json_object_iter_key(it);
        const json_t *v = json_object_iter_value(it);
        nb_str content = nb_str_c(key);
        unsigned long long id = 0;
        char *end = NULL;
        if (json_is_integer(v) && json_integer_value(v) >= 0) {
            id = (unsigned long long)json_integer_value(v);
        } else if (json_is_string(v) && *key >= '0' && *key <= '9' &&
                   (id = strtoull(key, &end, 10), !*end)) {
            content = nb_tok_json_str(v);
        } else {
            return nb_fail(err, NB_ERR_FORMAT, "%s: \"%.64s\": text with id expected", WHERE, key);
        }
        NB_TRY(nb_tok_reserve_id(t, id, WHERE, err));
        const nb_added a = { .id = (uint32_t)id, .normalized = true };
        NB_TRY(nb_tok_add_token(t, &a, content, false, WHERE, err));
    }
    return NB_OK;
}

/* Makes the token special if the vocabulary has it. */
static nb_status make_special(nb_tokenizer *t, const json_t *v, nb_error *err)
{
    const json_t *text = token_text(v);
    if (!text) return NB_OK;
    const nb_added a = { .id = NB_TOK_NONE, .special = true };
    return nb_tok_add_token(t, &a, nb_tok_json_str(text), false, CONFIG_NAME, err);
}

static nb_status load_extra(nb_tokenizer *t, const json_t *config, nb_error *err)
{
    static const char *const LISTS[] = { "additional_special_tokens", "extra_special_tokens" };
    for (size_t k = 0; k < sizeof LISTS / sizeof *LISTS; k++) {
        json_t *v = json_object_get(config, LISTS[k]);
        for (size_t i = 0; i < json_array_size(v); i++)
            NB_TRY(make_special(t, json_array_get(v, i), err));
        for (void *it = json_object_iter(v); it; it = json_object_iter_next(v, it))
            NB_TRY(make_special(t, json_object_iter_value(it), err));
    }
    return NB_OK;
}

static nb_status load_roles(nb_tokenizer *t, const json_t *config, const json_t *map, nb_error *err)
{
    static const char *const NAMES[NB_TOK_N_ROLES] = {
        [NB_TOK_BOS] = "bos_token",
        [NB_TOK_EOS] = "eos_token",
        [NB_TOK_PAD] = "pad_token",
        [NB_TOK_UNK] = "unk_token",
    };
    for (int r = 0; r < NB_TOK_N_ROLES; r++) {
        const json_t *text = token_text(json_object_get(config, NAMES[r]));
        if (!text) text = token_text(json_object_get(map, NAMES[r]));
        if (!text) continue;
        free(t->role_text[r]);
        t->role_text[r] = nb_tok_strdup(nb_tok_json_str(text));
        if (!t->role_text[r]) return no_memory(err);
        NB_TRY(make_special(t, text, err));
        t->role_id[r] = nb_tokenizer_find(t, nb_tok_json_str(text));
    }
    return NB_OK;
}

static nb_status add_template(nb_tokenizer *t, nb_str name, nb_str text, nb_error *err)
{
    if (NB_GROW(t->templates, t->cap_templates, t->n_templates) != NB_OK) return no_memory(err);
    nb_named_template x = { nb_tok_strdup(name), nb_tok_strdup(text), text.n_bytes };
    if (!x.name || !x.text) {
        free(x.name);
        free(x.text);
        return no_memory(err);
    }
    t->templates[t->n_templates++] = x;
    return NB_OK;
}

static nb_status load_templates(nb_tokenizer *t, const json_t *config, nb_error *err)
{
    const json_t *v = json_object_get(config, "chat_template");
    if (!v || json_is_null(v)) return NB_OK;
    if (json_is_string(v)) return add_template(t, nb_str_c("default"), nb_tok_json_str(v), err);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *o = json_array_get(v, i);
        const json_t *name = json_object_get(o, "name"), *text = json_object_get(o, "template");
        if (!json_is_string(name) || !json_is_string(text))
            return nb_fail(err, NB_ERR_FORMAT,
                           CONFIG_NAME ": chat_template[%zu]: name and template expected", i);
        NB_TRY(add_template(t, nb_tok_json_str(name), nb_tok_json_str(text), err));
    }
    if (!json_is_array(v))
        return nb_fail(err, NB_ERR_FORMAT,
                       CONFIG_NAME ": chat_template: a string or a list of templates expected");
    return NB_OK;
}

static nb_status flag(const json_t *config, const char *name, bool def, bool *out, bool *given,
                      nb_error *err)
{
    const json_t *v = json_object_get(config, name);
    *given = v && !json_is_null(v);
    if (*given && !json_is_boolean(v))
        return nb_fail(err, NB_ERR_FORMAT, CONFIG_NAME ": %s: true or false expected", name);
    *out = *given ? json_is_true(v) : def;
    return NB_OK;
}

/* See tokenizer.h: BOS and EOS of the Llama classes. */
static nb_status llama_affixes(nb_tokenizer *t, const json_t *config, nb_error *err)
{
    static const char *const CLASSES[] = { "LlamaTokenizer", "LlamaTokenizerFast",
                                           "CodeLlamaTokenizer", "CodeLlamaTokenizerFast" };
    const char *class = json_string_value(json_object_get(config, "tokenizer_class"));
    bool is_llama = false;
    for (size_t i = 0; class && i < sizeof CLASSES / sizeof *CLASSES; i++)
        is_llama = is_llama || strcmp(class, CLASSES[i]) == 0;
    if (!is_llama) return NB_OK;
    bool bos = false, eos = false, bos_given = false, eos_given = false;
    NB_TRY(flag(config, "add_bos_token", true, &bos, &bos_given, err));
    NB_TRY(flag(config, "add_eos_token", false, &eos, &eos_given, err));
    if (bos && t->role_id[NB_TOK_BOS] == NB_TOK_NONE) {
        if (!bos_given) return NB_OK; /* nothing to build from: the file's own stays */
        return nb_fail(err, NB_ERR_FORMAT,
                       CONFIG_NAME ": add_bos_token is true, but bos_token has no id");
    }
    if (eos && t->role_id[NB_TOK_EOS] == NB_TOK_NONE)
        return nb_fail(err, NB_ERR_FORMAT,
                       CONFIG_NAME ": add_eos_token is true, but eos_token has no id");
    t->n_prefix = t->n_suffix = 0;
    if (bos) t->prefix[t->n_prefix++] = t->role_id[NB_TOK_BOS];
    if (eos) t->suffix[t->n_suffix++] = t->role_id[NB_TOK_EOS];
    return NB_OK;
}

nb_status nb_tok_load_config(nb_tokenizer *t, const json_t *config, const json_t *map,
                             const json_t *added, nb_error *err)
{
    NB_TRY(load_decoder_entries(t, config, err));
    NB_TRY(load_added_file(t, added, err));
    NB_TRY(load_extra(t, config, err));
    NB_TRY(load_extra(t, map, err));
    NB_TRY(load_roles(t, config, map, err));
    NB_TRY(load_templates(t, config, err));
    return llama_affixes(t, config, err);
}
