/* gguf_vocab.c - tokenizer.json, tokenizer_config.json and the chat template as GGUF metadata (load/gguf_tokenizer.c
 * is the reverse): byte-level BPE, which llama.cpp calls gpt2, and SentencePiece's BPE (gguf_spm.c), which it calls llama. */
#include "convert/gguf_vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

enum { MAX_TOKEN = 1 << 22, MAX_PATTERN = 8 };

typedef nb_gguf_vocab vocab;
enum {
    NORMAL = NB_GGUF_NORMAL,
    UNKNOWN = NB_GGUF_UNKNOWN,
    CONTROL = NB_GGUF_CONTROL,
    USER = NB_GGUF_USER,
    UNUSED = NB_GGUF_UNUSED,
    BYTE = NB_GGUF_BYTE
};

nb_status nb_gguf_vocab_refuse(const vocab *v, const char *what)
{
    return nb_fail(v->c->err, NB_ERR_UNSUPPORTED,
                   "tokenizer.json: %s (--gguf-pre none writes a file without a tokenizer)", what);
}

/* ---- how text is split ---- */

/* Appends the patterns of a pre_tokenizer; false: it has other parts than llama.cpp knows. */
static bool patterns(const json_t *p, const char **out, size_t *n, bool *bytes)
{
    const char *type = json_string_value(json_object_get(p, "type"));
    size_t i;
    const json_t *x;
    if (!type) return false;
    if (strcmp(type, "Sequence") == 0) {
        json_array_foreach(json_object_get(p, "pretokenizers"), i,
                           x) if (!patterns(x, out, n, bytes)) return false;
        return true;
    }
    if (strcmp(type, "ByteLevel") == 0) {
        *bytes = true;
        return !json_is_true(json_object_get(p, "add_prefix_space"));
    }
    const char *regex = json_string_value(json_object_get(json_object_get(p, "pattern"), "Regex"));
    const char *how = json_string_value(json_object_get(p, "behavior"));
    if (strcmp(type, "Split") != 0 || !regex || !how || *n == MAX_PATTERN) return false;
    if (strcmp(how, "Isolated") != 0 &&
        !(strcmp(how, "Removed") == 0 && json_is_true(json_object_get(p, "invert"))))
        return false;
    out[(*n)++] = regex;
    return true;
}

static nb_status put_pre(const vocab *v)
{
    const char *list[MAX_PATTERN], *given = v->c->o->gguf_pre;
    char name[NB_TOK_PRE_BYTES];
    size_t n = 0;
    bool bytes = false;
    const json_t *p = json_object_get(v->json, "pre_tokenizer");
    const bool known = patterns(p, list, &n, &bytes);
    if (!bytes) return nb_gguf_vocab_refuse(v, "it is no byte-level BPE");
    const bool ignore =
        json_is_true(json_object_get(json_object_get(v->json, "model"), "ignore_merges"));
    if (!given && (!known || !nb_tok_pre_name(list, n, ignore, name)))
        return nb_fail(
            v->c->err, NB_ERR_UNSUPPORTED,
            "tokenizer.json: llama.cpp has no name for how it splits text; --gguf-pre NAME gives one that "
            "splits your texts alike, such as deepseek-v3, or none");
    nb_gguf_put_str(v->g, "tokenizer.ggml.pre", nb_str_c(given ? given : name));
    return NB_OK;
}

/* ---- tokens ---- */

static nb_status set_token(vocab *v, json_int_t id, const char *text, unsigned char type)
{
    if (id < 0 || (size_t)id >= v->n || !text)
        return nb_gguf_vocab_refuse(v, "a token has no id below vocab_size");
    v->token[id] = text;
    v->type[id] = type;
    return NB_OK;
}

/* <0x00> to <0xFF> */
static bool is_byte(const char *s)
{
    return strlen(s) == 6 && strncmp(s, "<0x", 3) == 0 && strspn(s + 3, "0123456789ABCDEF") == 2 &&
           s[5] == '>';
}

static nb_status read_tokens(vocab *v)
{
    const json_t *size = json_object_get(v->c->text, "vocab_size"), *x;
    const json_t *model = json_object_get(v->json, "model"),
                 *words = json_object_get(model, "vocab");
    const char *type = json_string_value(json_object_get(model, "type")), *text;
    size_t i;
    if ((type && strcmp(type, "BPE") != 0) || !json_is_object(words))
        return nb_gguf_vocab_refuse(v, "it is no BPE");
    if (!json_is_integer(size) || json_integer_value(size) < 1 ||
        json_integer_value(size) > MAX_TOKEN)
        return nb_fail(v->c->err, NB_ERR_FORMAT, "config.json: vocab_size: expected 1 to %d",
                       MAX_TOKEN);
    v->n = (size_t)json_integer_value(size);
    v->token = calloc(v->n, sizeof *v->token);
    v->type = calloc(v->n, 1);
    if (!v->token || !v->type) return nb_conv_nomem(v->c);
    for (void *it = json_object_iter((json_t *)words); it;
         it = json_object_iter_next((json_t *)words, it)) {
        text = json_object_iter_key(it);
        NB_TRY(set_token(v,
                         json_is_integer(json_object_iter_value(it))
                             ? json_integer_value(json_object_iter_value(it))
                             : -1,
                         text, v->spm && is_byte(text) ? BYTE : NORMAL));
    }
    json_array_foreach(json_object_get(v->json, "added_tokens"), i, x)
    {
        text = json_string_value(json_object_get(x, "content"));
        const json_t *id = json_object_get(x, "id");
        NB_TRY(set_token(v, json_is_integer(id) ? json_integer_value(id) : -1, text,
                         json_is_true(json_object_get(x, "special")) ? CONTROL : USER));
    }
    text = json_string_value(json_object_get(model, "unk_token"));
    for (i = 0; v->spm && text && i < v->n; i++)
        if (v->token[i] && strcmp(v->token[i], text) == 0) v->type[i] = UNKNOWN;
    return NB_OK;
}

static void put_tokens(const vocab *v)
{
    char pad[32];
    nb_gguf_put_array(v->g, "tokenizer.ggml.tokens", NB_GGUF_STRING, v->n);
    for (size_t i = 0; i < v->n; i++) {
        (void)snprintf(pad, sizeof pad, "[PAD%zu]", i);
        nb_gguf_item_str(v->g, nb_str_c(v->token[i] ? v->token[i] : pad));
    }
    nb_gguf_put_array(v->g, "tokenizer.ggml.token_type", NB_GGUF_I32, v->n);
    for (size_t i = 0; i < v->n; i++) nb_gguf_item_i32(v->g, v->token[i] ? v->type[i] : UNUSED);
}

static nb_status put_merges(const vocab *v)
{
    const json_t *list = json_object_get(json_object_get(v->json, "model"), "merges"), *x;
    nb_buf both = { 0 };
    size_t i;
    nb_status st = NB_OK;
    nb_gguf_put_array(v->g, "tokenizer.ggml.merges", NB_GGUF_STRING, json_array_size(list));
    json_array_foreach(list, i, x)
    {
        const char *one = json_string_value(x), *a = json_string_value(json_array_get(x, 0)),
                   *b = json_string_value(json_array_get(x, 1));
        both.n_bytes = 0;
        if (one)
            st = nb_buf_add_c(&both, one);
        else if (a && b)
            st = nb_buf_printf(&both, "%s %s", a, b);
        else
            st = nb_gguf_vocab_refuse(v, "a merge is no pair of tokens");
        if (st != NB_OK) break;
        nb_gguf_item_str(v->g, nb_buf_view(&both));
    }
    nb_buf_deinit(&both);
    return st == NB_ERR_NOMEM ? nb_conv_nomem(v->c) : st;
}

/* ---- roles and templates ---- */

static bool find_id(const vocab *v, const char *text, uint32_t *id)
{
    for (size_t i = 0; text && i < v->n; i++)
        if (v->token[i] && strcmp(v->token[i], text) == 0) {
            *id = (uint32_t)i;
            return true;
        }
    return false;
}

/* The token of a role: a text, or an object that has it. */
static const char *role_text(const json_t *config, const char *role)
{
    const json_t *x = json_object_get(config, role);
    return json_is_object(x) ? json_string_value(json_object_get(x, "content"))
                             : json_string_value(x);
}

static void put_roles(const vocab *v)
{
    static const char *const roles[][3] = {
        { "bos_token", "bos_token_id", "tokenizer.ggml.bos_token_id" },
        { "eos_token", "eos_token_id", "tokenizer.ggml.eos_token_id" },
        { "pad_token", "pad_token_id", "tokenizer.ggml.padding_token_id" },
        { "unk_token", "unk_token_id", "tokenizer.ggml.unknown_token_id" }
    };
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        uint32_t id;
        const json_t *n = json_object_get(v->c->text, roles[i][1]);
        if (json_is_array(n)) n = json_array_get(n, 0);
        if (find_id(v, role_text(v->config, roles[i][0]), &id))
            nb_gguf_put_u32(v->g, roles[i][2], id);
        else if (json_is_integer(n) && json_integer_value(n) >= 0 &&
                 (size_t)json_integer_value(n) < v->n)
            nb_gguf_put_u32(v->g, roles[i][2], (uint32_t)json_integer_value(n));
    }
}

/* Whether texts begin with a token: tokenizer_config.json says so, or the post-processor does it. */
static void put_add_bos(const vocab *v)
{
    const json_t *say = json_object_get(v->config, "add_bos_token"),
                 *post = json_object_get(v->json, "post_processor");
    const json_t *first = json_array_get(json_object_get(post, "single"), 0);
    nb_gguf_put_bool(v->g, "tokenizer.ggml.add_bos_token",
                     json_is_boolean(say) ? json_is_true(say)
                                          : json_is_object(json_object_get(first, "SpecialToken")));
}

static nb_status put_template(const vocab *v)
{
    nb_buf text = { 0 };
    bool found;
    size_t i;
    const json_t *t = json_object_get(v->config, "chat_template"), *x;
    nb_status st = nb_conv_text(v->c, "chat_template.jinja", &text, &found);
    if (st == NB_OK && found)
        nb_gguf_put_str(v->g, "tokenizer.chat_template", nb_buf_view(&text));
    else if (st == NB_OK && json_is_string(t))
        nb_gguf_put_str(v->g, "tokenizer.chat_template",
                        (nb_str){ json_string_value(t), json_string_length(t) });
    nb_buf_deinit(&text);
    if (st != NB_OK || found) return st;
    json_array_foreach(t, i, x)
    {
        const char *name = json_string_value(json_object_get(x, "name"));
        const json_t *body = json_object_get(x, "template");
        char key[96];
        if (!name || !json_is_string(body) || strlen(name) > 40) continue;
        (void)snprintf(key, sizeof key, "tokenizer.chat_template%s%.40s",
                       strcmp(name, "default") ? "." : "", strcmp(name, "default") ? name : "");
        nb_gguf_put_str(v->g, key, (nb_str){ json_string_value(body), json_string_length(body) });
    }
    return NB_OK;
}

nb_status nb_gguf_put_vocab(vocab *v)
{
    v->spm = json_is_true(json_object_get(json_object_get(v->json, "model"), "byte_fallback"));
    nb_gguf_put_str(v->g, "tokenizer.ggml.model", nb_str_c(v->spm ? "llama" : "gpt2"));
    nb_status st = v->spm ? NB_OK : put_pre(v);
    if (st == NB_OK) st = read_tokens(v);
    if (st == NB_OK) {
        put_tokens(v);
        st = v->spm ? nb_gguf_put_spm(v) : put_merges(v);
    }
    if (st == NB_OK) {
        put_roles(v);
        put_add_bos(v);
    }
    free(v->token);
    free(v->type);
    v->token = NULL;
    v->type = NULL;
    return st;
}

static nb_status put_all(vocab *v)
{
    NB_TRY(nb_conv_json(v->c, "tokenizer.json", &v->json));
    NB_TRY(nb_conv_json(v->c, "tokenizer_config.json", &v->config));
    if (!v->json)
        return nb_fail(
            v->c->err, NB_ERR_UNSUPPORTED,
            "%s: has no tokenizer.json (--gguf-pre none writes a file without a tokenizer)",
            nb_show_path(v->c->o->model).s);
    NB_TRY(nb_gguf_put_vocab(v));
    return put_template(v);
}

nb_status nb_gguf_put_tokenizer(nb_conv *c, nb_gguf_out *g)
{
    vocab v = { .c = c, .g = g };
    if (c->o->gguf_pre && strcmp(c->o->gguf_pre, "none") == 0) {
        nb_gguf_put_str(g, "tokenizer.ggml.model", nb_str_c("none"));
        return NB_OK;
    }
    const nb_status st = put_all(&v);
    json_decref(v.json);
    json_decref(v.config);
    return st;
}
